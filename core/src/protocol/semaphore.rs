//! The calls of a semaphore's scripts. These scripts share KEYS and ARGV, and their counterparts in memory read them by
//! the same lists.

use std::time::Duration;

use crate::{
    config::wire_ttl,
    protocol::{
        calls::{
            AttachPermit, BumpPermit, EndPermits, EnterSemaphore, InspectPermits, Label, LeavePermit, Permit,
            PermitWaiting, Protocol, QueueEntry, RelocatePermit, RenewPermit, RepairPermit, TakeSlots, joined,
        },
        names::Names,
        primitive::Primitive,
        reply::Slot,
        script::{ScriptCall, semaphore_scripts},
    },
};

impl QueueEntry {
    /// The entry as the scripts of a semaphore write it.
    fn text_for(&self, (count, of): (u32, u32)) -> String {
        format!("{}/{}/{count}:{of}/{}", wire_ttl(self.ttl), self.client, self.field)
    }
}

/// The number of slots of a permit, and that of its semaphore.
fn size(primitive: Primitive) -> (u32, u32) {
    match primitive {
        Primitive::Permits { count, of } => (count, of),
        Primitive::Lock | Primitive::Fair | Primitive::Read | Primitive::Write => (1, 1),
    }
}

fn permit(names: &Names, field: &str) -> [Vec<String>; 2] {
    let permit = Permit {
        lock: names.lock.clone(),
        slots: names.slots(),
        taken: names.taken(),
        tokens: names.slot_tokens(),
        field: field.to_owned(),
    };
    permit.lists()
}

/// The slots of a permit as its node stores them: "3,7".
fn numbers(slots: &[Slot]) -> String {
    let numbers: Vec<String> = slots.iter().map(|slot| slot.number.to_string()).collect();
    numbers.join(",")
}

/// The slots of a permit and their tokens: "3:token,7:token".
fn with_tokens(slots: &[Slot]) -> String {
    let each: Vec<String> = slots.iter().map(|slot| format!("{}:{}", slot.number, slot.token)).collect();
    each.join(",")
}

impl Protocol {
    /// `announce`: notify the waiters, if several nodes decide; a single node always notifies them.
    fn permit_waiting_lists(&self, names: &Names, announce: bool) -> [Vec<String>; 2] {
        let several = self.settings.endpoints.len() > 1;
        let waiting = PermitWaiting {
            queue: names.queue(),
            alive: names.alive(),
            token_ttl: self.settings.slot_token_ttl().as_millis().to_string(),
            wake: match (several, announce) {
                (false, _) => names.wake(),
                (true, true) => names.channel(),
                (true, false) => String::new(),
            },
            handover: if several { "i".to_owned() } else { self.handover() },
            sharded: if self.settings.on_cluster() { "1".to_owned() } else { "0".to_owned() },
        };
        waiting.lists()
    }

    /// Acquires slots, or takes a place that counts for `place_ttl`; zero takes none.
    pub(super) fn enter_semaphore(&self, label: Label<'_>, entry: &QueueEntry, place_ttl: Duration) -> ScriptCall {
        let (count, of) = size(label.primitive);
        let take = EnterSemaphore {
            count: count.to_string(),
            of: of.to_string(),
            ttl: wire_ttl(entry.ttl),
            client: entry.client.clone(),
            place_ttl: place_ttl.as_millis().to_string(),
        };
        let parts = [permit(label.names, label.field), self.permit_waiting_lists(label.names, true), take.lists()];
        ScriptCall { replicas: self.settings.config.min_replicas, ..joined(&semaphore_scripts().acquire, parts) }
    }

    /// Takes slots on one of several nodes, the first free ones from `start` on.
    pub(super) fn take_slots(&self, label: Label<'_>, ttl: Duration, start: u32, proposal: i64) -> ScriptCall {
        let (count, of) = size(label.primitive);
        let take = TakeSlots {
            count: count.to_string(),
            of: of.to_string(),
            ttl: wire_ttl(ttl),
            start: start.to_string(),
            proposal: proposal.to_string(),
        };
        let parts = [permit(label.names, label.field), self.permit_waiting_lists(label.names, true), take.lists()];
        let call = self.with_marker_check(joined(&semaphore_scripts().take, parts));
        ScriptCall { replicas: self.settings.config.min_replicas, ..call }
    }

    /// Moves a permit to these slots on a node that granted others.
    pub(crate) fn relocate_permit(&self, label: Label<'_>, wanted: &[Slot], proposal: i64) -> ScriptCall {
        let to = RelocatePermit { wanted: numbers(wanted), proposal: proposal.to_string() };
        let parts = [permit(label.names, label.field), self.permit_waiting_lists(label.names, true), to.lists()];
        let call = self.with_marker_check(joined(&semaphore_scripts().relocate, parts));
        ScriptCall { replicas: self.settings.config.min_replicas, ..call }
    }

    /// Raises a node's tokens from those that it granted to those of the quorum.
    pub(super) fn bump_permit(&self, label: Label<'_>, granted: &[Slot], agreed: &[Slot]) -> ScriptCall {
        let bump = BumpPermit {
            token_ttl: self.settings.slot_token_ttl().as_millis().to_string(),
            granted: with_tokens(granted),
            agreed: with_tokens(agreed),
        };
        joined(&semaphore_scripts().bump, [permit(label.names, label.field), bump.lists()])
    }

    /// Writes a permit again on a node that lacks it.
    pub(super) fn repair_permit(&self, label: Label<'_>, ttl: Duration) -> ScriptCall {
        let repair = RepairPermit {
            ended: label.names.ended(),
            wanted: with_tokens(label.slots),
            ttl: ttl.as_millis().to_string(),
        };
        let parts = [permit(label.names, label.field), self.permit_waiting_lists(label.names, true), repair.lists()];
        self.with_marker_check(joined(&semaphore_scripts().repair, parts))
    }

    /// Ends a permit, or gives up its place. `sender`: as [`LeavePermit`] has it.
    pub(super) fn leave_semaphore(
        &self,
        label: Label<'_>,
        entry: Option<&QueueEntry>,
        announce: bool,
        sender: &str,
    ) -> ScriptCall {
        let entry = entry.map(|entry| entry.text_for(size(label.primitive))).unwrap_or_default();
        let waiting = self.permit_waiting_lists(label.names, announce);
        let leave = LeavePermit { entry, sender: sender.to_owned() };
        joined(&semaphore_scripts().leave, [permit(label.names, label.field), waiting, leave.lists()])
    }

    /// Ends a permit. The reply has the grants of those waiters of the client `sender` that this lets in, which get no
    /// message.
    pub(crate) fn release_permit(&self, label: Label<'_>, sender: &str) -> ScriptCall {
        self.leave_semaphore(label, None, true, sender)
    }

    pub(super) fn renew_permits<'a>(permits: impl Iterator<Item = (Label<'a>, Duration)>) -> ScriptCall {
        let renew = |(label, ttl): (Label<'_>, Duration)| {
            let one = RenewPermit {
                lock: label.names.lock.clone(),
                ended: label.names.ended(),
                slots: label.names.slots(),
                taken: label.names.taken(),
                field: label.field.to_owned(),
                ttl: ttl.as_millis().to_string(),
                wanted: numbers(label.slots),
            };
            one.lists()
        };
        let call = ScriptCall::new(&semaphore_scripts().renew, Vec::new(), Vec::new());
        permits.map(renew).fold(call, |call, [keys, args]| call.with(keys, args))
    }

    pub(super) fn attach_permit(new: Label<'_>, old: &str, ttl: Duration) -> ScriptCall {
        let (ttl, wanted) = (ttl.as_millis().to_string(), numbers(new.slots));
        let attach = AttachPermit { old: old.to_owned(), ttl, wanted };
        joined(&semaphore_scripts().attach, [permit(new.names, new.field), attach.lists()])
    }

    /// Ends all permits.
    pub(crate) fn end_permits(&self, names: &Names) -> ScriptCall {
        let end = EndPermits { ended: names.ended() };
        joined(&semaphore_scripts().end, [permit(names, ""), self.permit_waiting_lists(names, true), end.lists()])
    }

    /// Reads the holders of permits.
    pub(crate) fn inspect_permits(names: &Names) -> ScriptCall {
        joined(&semaphore_scripts().inspect, [InspectPermits { lock: names.lock.clone() }.lists()])
    }
}
