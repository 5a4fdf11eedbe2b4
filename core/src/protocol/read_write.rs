//! The calls of a read/write lock's scripts. These scripts share KEYS and ARGV, and their counterparts in memory read
//! them by the same lists.

use std::time::Duration;

use crate::{
    config::wire_ttl,
    protocol::{
        calls::{
            Admission, AttachInside, Departure, EndInside, Inside, InspectInside, Label, Protocol, QueueEntry, Raise,
            RenewInside, RepairInside, Upgrade, Waiting, joined,
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
    fn inside(&self, label: Label<'_>) -> [Vec<String>; 2] {
        let inside = Inside {
            lock: label.names.lock.clone(),
            counter: label.names.counter(),
            readers: label.names.readers(),
            field: label.field.to_owned(),
            counter_ttl: self.counter_ttl(Duration::ZERO),
            notes: label.names.notes(),
        };
        inside.lists()
    }

    fn waiting(&self, label: Label<'_>) -> [Vec<String>; 2] {
        let waiting = Waiting {
            writing: label.names.writing(),
            reading: label.names.reading(),
            alive: label.names.alive(),
            wake: label.names.wake(),
            how: if self.settings.endpoints.len() > 1 { "i".to_owned() } else { self.grants() },
            channel: label.names.channel(),
            sharded: if self.settings.on_cluster() { "1".to_owned() } else { "0".to_owned() },
        };
        waiting.lists()
    }

    /// Lets a reader or a writer in, or gives it a place that counts for `lease`; zero gives none.
    pub(super) fn admit(
        &self,
        label: Label<'_>,
        ttl: Duration,
        client: &str,
        lease: Duration,
        proposal: i64,
    ) -> ScriptCall {
        let scripts = read_write_scripts();
        let script = if label.primitive.reads() { &scripts.read } else { &scripts.write };
        let admission = Admission {
            ttl: wire_ttl(ttl),
            client: client.to_owned(),
            lease: lease.as_millis().to_string(),
            proposal: proposal.to_string(),
        };
        let call = joined(script, [self.inside(label), self.waiting(label), admission.lists()]);
        ScriptCall { replicas: self.settings.config.min_replicas, ..self.guarded(call) }
    }

    /// Ends a tenure, or gives up its place.
    pub(super) fn depart(&self, label: Label<'_>, entry: Option<&QueueEntry>) -> ScriptCall {
        let departure = Departure { entry: entry.map(QueueEntry::text).unwrap_or_default() };
        let parts = [self.inside(label), self.waiting(label), departure.lists()];
        joined(&read_write_scripts().leave, parts)
    }

    /// Turns a writer into a reader.
    pub(crate) fn downgrade(&self, label: Label<'_>) -> ScriptCall {
        joined(&read_write_scripts().downgrade, [self.inside(label), self.waiting(label)])
    }

    /// Turns a reader that is alone into a writer.
    pub(crate) fn upgrade(&self, label: Label<'_>, ttl: Duration, proposal: i64) -> ScriptCall {
        let upgrade = Upgrade { ttl: wire_ttl(ttl), proposal: proposal.to_string() };
        let call = joined(&read_write_scripts().upgrade, [self.inside(label), upgrade.lists()]);
        ScriptCall { replicas: self.settings.config.min_replicas, ..self.guarded(call) }
    }

    pub(super) fn raise(&self, label: Label<'_>, granted: i64, agreed: i64) -> ScriptCall {
        let raise = Raise { granted: granted.to_string(), agreed: agreed.to_string() };
        joined(&read_write_scripts().bump, [self.inside(label), raise.lists()])
    }

    pub(super) fn renew_inside<'a>(tenures: impl Iterator<Item = (Label<'a>, Duration)>) -> ScriptCall {
        let renew = |(label, ttl): (Label<'_>, Duration)| {
            let one = RenewInside {
                lock: label.names.lock.clone(),
                ended: label.names.ended(),
                readers: label.names.readers(),
                field: label.field.to_owned(),
                ttl: ttl.as_millis().to_string(),
                notes: label.names.notes(),
            };
            one.lists()
        };
        let call = ScriptCall::new(&read_write_scripts().renew, Vec::new(), Vec::new());
        tenures.map(renew).fold(call, |call, [keys, args]| call.with(keys, args))
    }

    pub(super) fn repair_inside(&self, label: Label<'_>, token: u64, ttl: Duration) -> ScriptCall {
        let repair = RepairInside {
            ended: label.names.ended(),
            mode: mode(label.primitive),
            ttl: ttl.as_millis().to_string(),
            token: token.to_string(),
        };
        self.guarded(joined(&read_write_scripts().repair, [self.inside(label), repair.lists()]))
    }

    pub(super) fn attach_inside(&self, new: Label<'_>, old: &str, ttl: Duration) -> ScriptCall {
        let attach = AttachInside { old: old.to_owned(), ttl: ttl.as_millis().to_string() };
        joined(&read_write_scripts().attach, [self.inside(new), attach.lists()])
    }

    /// Ends all tenures of a read/write lock.
    pub(crate) fn end_inside(&self, names: &Names) -> ScriptCall {
        let end = EndInside {
            lock: names.lock.clone(),
            counter: names.counter(),
            readers: names.readers(),
            ended: names.ended(),
            notes: names.notes(),
            channel: names.lock_channel(),
            read_write_channel: names.read_write_channel(),
        };
        self.sharded(joined(&read_write_scripts().end, [end.lists()]))
    }

    /// Reads the holders of a read/write lock.
    pub(crate) fn inspect_inside(names: &Names) -> ScriptCall {
        let (lock, counter, readers) = (names.lock.clone(), names.counter(), names.readers());
        joined(&read_write_scripts().inspect, [InspectInside { lock, counter, readers }.lists()])
    }
}
