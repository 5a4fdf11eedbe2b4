//! The calls of a read/write lock's scripts. These scripts share KEYS and ARGV, and their counterparts in memory read
//! them by the same lists.

use std::time::Duration;

use crate::{
    config::wire_ttl,
    owner::rest_of,
    protocol::{
        calls::{
            AttachReadWrite, BumpReadWrite, EndReadWrite, EnterReadWrite, InspectReadWrite, Label, LeaveEntry,
            Protocol, QueueEntry, ReadWriteTenure, RenewReadWrite, RepairReadWrite, RestReadWrite, Upgrade, Waiting,
            joined, rest_ttl,
        },
        names::Names,
        primitive::Primitive,
        script::{ScriptCall, read_write_scripts},
    },
};

/// The argument of a repair that says whether the tenure reads or writes.
fn mode(primitive: Primitive) -> String {
    if primitive.reads() { "r".to_owned() } else { "w".to_owned() }
}

impl Protocol {
    fn tenure_lists(&self, label: Label<'_>) -> [Vec<String>; 2] {
        let tenure = ReadWriteTenure {
            lock: label.names.lock.clone(),
            counter: label.names.counter(),
            readers: label.names.readers(),
            field: label.field.to_owned(),
            counter_ttl: self.counter_ttl(Duration::ZERO),
            reader_key_prefix: label.names.reader_key_prefix(),
        };
        tenure.lists()
    }

    fn waiting_lists(&self, label: Label<'_>) -> [Vec<String>; 2] {
        let waiting = Waiting {
            writers_queue: label.names.writers_queue(),
            readers_queue: label.names.readers_queue(),
            alive: label.names.alive(),
            wake: label.names.wake(),
            handover: if self.settings.endpoints.len() > 1 { "i".to_owned() } else { self.handover() },
            channel: label.names.channel(),
            sharded: if self.settings.on_cluster() { "1".to_owned() } else { "0".to_owned() },
        };
        waiting.lists()
    }

    /// Lets a reader or a writer in, or gives it a place that counts for `place_ttl`; zero gives none.
    pub(super) fn enter_read_write(
        &self,
        label: Label<'_>,
        ttl: Duration,
        client: &str,
        place_ttl: Duration,
        proposal: i64,
    ) -> ScriptCall {
        let scripts = read_write_scripts();
        let script = if label.primitive.reads() { &scripts.read } else { &scripts.write };
        let admission = EnterReadWrite {
            ttl: wire_ttl(ttl),
            client: client.to_owned(),
            place_ttl: place_ttl.as_millis().to_string(),
            proposal: proposal.to_string(),
        };
        let call = joined(script, [self.tenure_lists(label), self.waiting_lists(label), admission.lists()]);
        let call = ScriptCall { replicas: self.settings.config.min_replicas, ..self.with_marker_check(call) };
        let goes_with_others = label.primitive.reads() && call.replicas == 0 && !call.identify;
        ScriptCall { batch: goes_with_others.then_some(&scripts.read_batch), ..call }
    }

    /// Ends a tenure, or gives up its place.
    pub(super) fn leave_read_write(&self, label: Label<'_>, entry: Option<&QueueEntry>) -> ScriptCall {
        let departure = LeaveEntry { entry: entry.map(QueueEntry::text).unwrap_or_default() };
        let parts = [self.tenure_lists(label), self.waiting_lists(label), departure.lists()];
        let scripts = read_write_scripts();
        let goes_with_others = label.primitive.reads() && entry.is_none();
        let batch = goes_with_others.then_some(&scripts.leave_batch);
        ScriptCall { batch, ..joined(&scripts.leave, parts) }
    }

    /// Ends a writer's tenure, but leaves the lock taken for `time`.
    pub(super) fn rest_read_write(&self, label: Label<'_>, time: Duration) -> ScriptCall {
        let rest = RestReadWrite { replacement: rest_of(label.field), ttl: rest_ttl(time) };
        joined(&read_write_scripts().rest, [self.tenure_lists(label), self.waiting_lists(label), rest.lists()])
    }

    /// Turns a writer into a reader.
    pub(crate) fn downgrade(&self, label: Label<'_>) -> ScriptCall {
        joined(&read_write_scripts().downgrade, [self.tenure_lists(label), self.waiting_lists(label)])
    }

    /// Turns a reader that is alone into a writer.
    pub(crate) fn upgrade(&self, label: Label<'_>, ttl: Duration, proposal: i64) -> ScriptCall {
        let upgrade = Upgrade { ttl: wire_ttl(ttl), proposal: proposal.to_string() };
        let call = joined(&read_write_scripts().upgrade, [self.tenure_lists(label), upgrade.lists()]);
        ScriptCall { replicas: self.settings.config.min_replicas, ..self.with_marker_check(call) }
    }

    pub(super) fn bump_read_write(&self, label: Label<'_>, granted: i64, agreed: i64) -> ScriptCall {
        let raise = BumpReadWrite { granted: granted.to_string(), agreed: agreed.to_string() };
        joined(&read_write_scripts().bump, [self.tenure_lists(label), raise.lists()])
    }

    pub(super) fn renew_read_write<'a>(tenures: impl Iterator<Item = (Label<'a>, Duration)>) -> ScriptCall {
        let renew = |(label, ttl): (Label<'_>, Duration)| {
            let one = RenewReadWrite {
                lock: label.names.lock.clone(),
                ended: label.names.ended(),
                readers: label.names.readers(),
                field: label.field.to_owned(),
                ttl: ttl.as_millis().to_string(),
                reader_key_prefix: label.names.reader_key_prefix(),
            };
            one.lists()
        };
        let call = ScriptCall::new(&read_write_scripts().renew, Vec::new(), Vec::new());
        tenures.map(renew).fold(call, |call, [keys, args]| call.with(keys, args))
    }

    pub(super) fn repair_read_write(&self, label: Label<'_>, token: u64, ttl: Duration) -> ScriptCall {
        let repair = RepairReadWrite {
            ended: label.names.ended(),
            mode: mode(label.primitive),
            ttl: ttl.as_millis().to_string(),
            token: token.to_string(),
        };
        self.with_marker_check(joined(&read_write_scripts().repair, [self.tenure_lists(label), repair.lists()]))
    }

    pub(super) fn attach_read_write(&self, new: Label<'_>, old: &str, ttl: Duration) -> ScriptCall {
        let attach = AttachReadWrite { old: old.to_owned(), ttl: ttl.as_millis().to_string() };
        joined(&read_write_scripts().attach, [self.tenure_lists(new), attach.lists()])
    }

    /// Ends all tenures of a read/write lock.
    pub(crate) fn end_read_write(&self, names: &Names) -> ScriptCall {
        let end = EndReadWrite {
            lock: names.lock.clone(),
            counter: names.counter(),
            readers: names.readers(),
            ended: names.ended(),
            reader_key_prefix: names.reader_key_prefix(),
            channel: names.lock_channel(),
            read_write_channel: names.read_write_channel(),
        };
        self.sharded(joined(&read_write_scripts().end, [end.lists()]))
    }

    /// Ends all tenures of a read/write lock, if one of them has one of these fields.
    pub(crate) fn end_read_write_fields(&self, names: &Names, fields: &[String]) -> ScriptCall {
        self.flagged(self.end_read_write(names)).with(Vec::new(), fields.to_vec())
    }

    /// Reads the holders of a read/write lock.
    pub(crate) fn inspect_read_write(names: &Names) -> ScriptCall {
        let (lock, counter, readers) = (names.lock.clone(), names.counter(), names.readers());
        joined(&read_write_scripts().inspect, [InspectReadWrite { lock, counter, readers }.lists()])
    }
}
