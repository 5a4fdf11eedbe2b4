//! The calls of a semaphore's scripts. These scripts share KEYS and ARGV, and their counterparts in memory read them by
//! the same lists.

use std::time::Duration;

use crate::{
    config::wire_ttl,
    protocol::{
        calls::{
            AttachPermit, EndPermits, EnterSemaphore, InspectPermits, Label, LeaveEntry, Permit, PermitWaiting,
            Protocol, QueueEntry, RenewPermit, joined,
        },
        names::Names,
        primitive::Primitive,
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

impl Protocol {
    fn permit_waiting_lists(&self, names: &Names) -> [Vec<String>; 2] {
        let waiting = PermitWaiting {
            queue: names.queue(),
            alive: names.alive(),
            token_ttl: self.counter_ttl(Duration::ZERO),
            wake: names.wake(),
            handover: self.handover(),
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
        let parts = [permit(label.names, label.field), self.permit_waiting_lists(label.names), take.lists()];
        ScriptCall { replicas: self.settings.config.min_replicas, ..joined(&semaphore_scripts().acquire, parts) }
    }

    /// Ends a permit, or gives up its place.
    pub(super) fn leave_semaphore(&self, label: Label<'_>, entry: Option<&QueueEntry>) -> ScriptCall {
        let entry = entry.map(|entry| entry.text_for(size(label.primitive))).unwrap_or_default();
        let parts =
            [permit(label.names, label.field), self.permit_waiting_lists(label.names), LeaveEntry { entry }.lists()];
        joined(&semaphore_scripts().leave, parts)
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
            };
            one.lists()
        };
        let call = ScriptCall::new(&semaphore_scripts().renew, Vec::new(), Vec::new());
        permits.map(renew).fold(call, |call, [keys, args]| call.with(keys, args))
    }

    pub(super) fn attach_permit(new: Label<'_>, old: &str, ttl: Duration) -> ScriptCall {
        let attach = AttachPermit { old: old.to_owned(), ttl: ttl.as_millis().to_string() };
        joined(&semaphore_scripts().attach, [permit(new.names, new.field), attach.lists()])
    }

    /// Ends all permits.
    pub(crate) fn end_permits(&self, names: &Names) -> ScriptCall {
        let end = EndPermits { ended: names.ended() };
        joined(&semaphore_scripts().end, [permit(names, ""), self.permit_waiting_lists(names), end.lists()])
    }

    /// Reads the holders of permits.
    pub(crate) fn inspect_permits(names: &Names) -> ScriptCall {
        joined(&semaphore_scripts().inspect, [InspectPermits { lock: names.lock.clone() }.lists()])
    }
}
