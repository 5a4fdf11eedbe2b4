//! The calls of the scripts: for each script its KEYS and ARGV, in the order in which its header names them. This is
//! the only list: the code that builds a call uses it, and so does the node in memory, which reads the call.

use std::{slice, sync::Arc, time::Duration};

use crate::{
    config::{NEVER, Settings, Wire, millis_up, wire_ttl},
    owner::{self, OwnerKey, rest_of, wire_owner},
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
        reply::{Granted, Slot},
        script::{Script, ScriptCall, Scripts, WhileMoving, scripts},
    },
};

/// The key of a node's marker, the same for all locks of a deployment. A cluster node replaces it by the marker of the
/// slot.
pub(crate) const MARKER: &str = "redlock_node";

/// How long the average hold of a lock is kept.
const AVERAGE_TTL: Duration = Duration::from_secs(24 * 3600);

/// The arguments of a call that have not been read yet.
pub(crate) struct Arguments<'a> {
    keys: slice::Iter<'a, String>,
    args: slice::Iter<'a, String>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(keys: &'a [String], args: &'a [String]) -> Self {
        Self { keys: keys.iter(), args: args.iter() }
    }

    fn key(&mut self) -> Option<&'a str> {
        self.keys.next().map(String::as_str)
    }

    fn arg(&mut self) -> Option<&'a str> {
        self.args.next().map(String::as_str)
    }

    /// The keys behind those that were read.
    pub(crate) fn other_keys(self) -> Vec<&'a str> {
        self.keys.map(String::as_str).collect()
    }

    /// The arguments behind those that were read.
    pub(crate) fn other_args(self) -> Vec<&'a str> {
        self.args.map(String::as_str).collect()
    }

    /// The arguments behind the flag of [`Protocol::flagged`].
    pub(crate) fn behind_flag(mut self) -> Vec<&'a str> {
        self.arg();
        self.other_args()
    }
}

/// Defines a type for each script, with its KEYS and ARGV in order.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident { $($key:ident),* } ( $($arg:ident),* ))*) => {$(
        $(#[$doc])*
        pub(crate) struct $name<T> {
            $(pub(crate) $key: T,)*
            $(pub(crate) $arg: T,)*
        }

        impl<T> $name<T> {
            /// Its KEYS and its ARGV.
            pub(crate) fn lists(self) -> [Vec<T>; 2] {
                [vec![$(self.$key),*], vec![$(self.$arg),*]]
            }
        }

        impl<'a> $name<&'a str> {
            /// The next arguments of a call; `None` if there are too few.
            pub(crate) fn read(from: &mut Arguments<'a>) -> Option<Self> {
                Some(Self { $($key: from.key()?,)* $($arg: from.arg()?,)* })
            }
        }
    )*};
}

arguments! {
    /// `lua/acquire.lua`; a [`MarkerCheck`] may follow.
    Acquire { lock, counter } (field, owner, ttl, counter_ttl, proposal)
    /// `lua/enter.lua`; the flag of [`Protocol::sharded`] may follow.
    Enter { lock, counter, queue, alive } (field, owner, ttl, counter_ttl, client, place_ttl, wake, handover)
    /// `lua/leave.lua`; the flag of [`Protocol::sharded`] may follow.
    Leave { lock, counter, queue, alive } (field, entry, counter_ttl, channel, wake, handover)
    /// Makes a script check first whether the node may vote; behind the script's other arguments.
    MarkerCheck { marker } (quarantine)
    /// The arguments that a node adds about itself, if [`ScriptCall::identify`] is set; behind all others.
    Identity {} (run, lost_at, durable)
    /// `lua/bump.lua`
    Bump { lock, counter } (field, granted, agreed, counter_ttl)
    /// `lua/renew.lua`, for one of its tenures.
    Renew { lock, ended } (field, ttl)
    /// `lua/prolong.lua`, for one of its tenures.
    Prolong { lock, counter } (field, token, counter_ttl)
    /// `lua/repair.lua`; a [`MarkerCheck`] may follow.
    Repair { lock, counter, ended } (field, owner, ttl, token, counter_ttl)
    /// `lua/release.lua`; the flag of [`Protocol::sharded`] may follow.
    Release { lock } (field, channel)
    /// `lua/rest.lua`; the flag of [`Protocol::sharded`] may follow.
    Rest { lock } (field, replacement, ttl, channel)
    /// `lua/end.lua`; the flag of [`Protocol::flagged`] may follow, and fields.
    End { lock, ended } (owner, channel)
    /// `lua/survey/queue.lua`; the queues follow.
    ReadQueue { alive } (most)
    /// `lua/survey/scan.lua`
    ScanKeys {} (cursor, pattern, count)
    /// `lua/survey/forget.lua`
    Forget { lock, counter } ()
    /// `lua/inspect.lua`
    Inspect { lock, counter } ()
    /// `lua/attach.lua`
    Attach { lock } (old, new, ttl)
    /// `lua/retime.lua`. `change`: "add", "replace" or "set".
    Retime { lock } (field, time, change)
    /// The first arguments of every script for one tenure of a read/write lock.
    ReadWriteTenure { lock, counter, readers } (field, counter_ttl, reader_key_prefix)
    /// The next arguments of a script that may let waiters in; behind a [`ReadWriteTenure`]. `handover`: "1" makes the
    /// next waiters holders, "0" only notifies them, "i" does neither, since several nodes decide.
    Waiting { writers_queue, readers_queue, alive } (wake, handover, channel, sharded)
    /// `lua/read_write/read.lua` and `write.lua`, behind a [`ReadWriteTenure`] and a [`Waiting`]; a [`MarkerCheck`] may
    /// follow.
    EnterReadWrite {} (ttl, client, place_ttl, proposal)
    /// The `leave` of a read/write lock, behind a [`ReadWriteTenure`] and a [`Waiting`].
    LeaveEntry {} (entry)
    /// `lua/read_write/rest.lua`, behind a [`ReadWriteTenure`] and a [`Waiting`].
    RestReadWrite {} (replacement, ttl)
    /// `lua/read_write/upgrade.lua`, behind a [`ReadWriteTenure`]; a [`MarkerCheck`] may follow.
    Upgrade {} (ttl, proposal)
    /// `lua/read_write/bump.lua`, behind a [`ReadWriteTenure`].
    BumpReadWrite {} (granted, agreed)
    /// `lua/read_write/renew.lua`, for one of its tenures.
    RenewReadWrite { lock, ended, readers } (field, ttl, reader_key_prefix)
    /// `lua/read_write/repair.lua`, behind a [`ReadWriteTenure`]; a [`MarkerCheck`] may follow.
    RepairReadWrite { ended } (mode, ttl, token)
    /// `lua/read_write/end.lua`; the flag of [`Protocol::flagged`] may follow, and fields.
    EndReadWrite { lock, counter, readers, ended } (reader_key_prefix, channel, read_write_channel)
    /// `lua/read_write/inspect.lua`
    InspectReadWrite { lock, counter, readers } ()
    /// `lua/read_write/attach.lua`, behind a [`ReadWriteTenure`] with the new field.
    AttachReadWrite {} (old, ttl)
    /// The first arguments of every script for one permit of a semaphore.
    Permit { lock, slots, taken, tokens } (field)
    /// The next arguments of a script that may let waiters in; behind a [`Permit`]. `handover`: "1" makes the next
    /// waiters holders, "0" only notifies the first, "i" notifies all on the channel `wake`, since several nodes decide.
    PermitWaiting { queue, alive } (token_ttl, wake, handover, sharded)
    /// `lua/semaphore/acquire.lua`, behind a [`Permit`] and a [`PermitWaiting`].
    EnterSemaphore {} (count, of, ttl, client, place_ttl)
    /// `lua/semaphore/leave.lua`, behind a [`Permit`] and a [`PermitWaiting`]. `sender`: the client that gets the grants of
    /// its own waiters in the reply; empty for none.
    LeavePermit {} (entry, sender)
    /// `lua/semaphore/take.lua`, behind a [`Permit`] and a [`PermitWaiting`]; a [`MarkerCheck`] may follow.
    TakeSlots {} (count, of, ttl, start, proposal)
    /// `lua/semaphore/relocate.lua`, behind a [`Permit`] and a [`PermitWaiting`]; a [`MarkerCheck`] may follow.
    RelocatePermit {} (wanted, proposal)
    /// `lua/semaphore/bump.lua`, behind a [`Permit`].
    BumpPermit {} (token_ttl, granted, agreed)
    /// `lua/semaphore/repair.lua`, behind a [`Permit`] and a [`PermitWaiting`]; a [`MarkerCheck`] may follow.
    RepairPermit { ended } (wanted, ttl)
    /// `lua/semaphore/renew.lua`, for one of its permits.
    RenewPermit { lock, ended, slots, taken } (field, ttl, wanted)
    /// `lua/semaphore/end.lua`, behind a [`Permit`] and a [`PermitWaiting`].
    EndPermits { ended } ()
    /// `lua/semaphore/inspect.lua`
    InspectPermits { lock } ()
    /// `lua/semaphore/attach.lua`, behind a [`Permit`] with the new field.
    AttachPermit {} (old, ttl, wanted)
    /// `lua/learn.lua`
    Learn { average } (sample, ttl)
    /// `lua/provision.lua`; an [`Identity`] follows. `origin`: as [`MarkerOrigin`] has it.
    Provision { marker } (origin, seen)
}

/// Why a node gets a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MarkerOrigin {
    /// The deployment is new: the node votes immediately.
    New,
    /// The node lost its keys: its quarantine begins.
    Lost,
    /// An operator vouches for the node: it votes immediately, and any earlier marker is replaced.
    Init,
}

impl MarkerOrigin {
    /// The argument of `provision.lua`.
    fn text(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Lost => "lost",
            Self::Init => "init",
        }
    }
}

/// The owner argument of `acquire.lua` for a chosen value: a value that the caller gave in place of a generated field.
pub(crate) const OWNER_OF_CHOSEN_VALUE: &str = "!";

/// Identifies a tenure on the servers.
#[derive(Clone, Copy)]
pub(crate) struct Label<'a> {
    pub(crate) primitive: Primitive,
    pub(crate) names: &'a Names,
    pub(crate) field: &'a str,
    /// The slots of a permit; empty for a lock, and while they are not known.
    pub(crate) slots: &'a [Slot],
}

impl<'a> Label<'a> {
    /// A tenure of an exclusive lock.
    pub(crate) fn of_lock(names: &'a Names, field: &'a str) -> Self {
        Self { primitive: Primitive::Lock, names, field, slots: &[] }
    }
}

/// Builds the calls that a client sends.
pub(crate) struct Protocol {
    scripts: &'static Scripts,
    pub(super) settings: Arc<Settings>,
}

impl Protocol {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        Self { scripts: scripts(settings.config.wire), settings }
    }

    /// How an exclusive lock is written.
    pub(crate) fn wire(&self) -> Wire {
        self.settings.config.wire
    }

    /// Whether every possible holder announces its release, so that waiters need to poll only rarely.
    pub(crate) fn announces(&self, primitive: Primitive) -> bool {
        // Other libraries that write strings announce no release.
        primitive.family() != Family::Lock || self.wire() == Wire::Redisson
    }

    /// The ttl in ms of a counter that is written for a lease of `ttl`; "0" for ever.
    pub(super) fn counter_ttl(&self, ttl: Duration) -> String {
        self.settings.counter_ttl(ttl).map_or("0".to_owned(), |ttl| ttl.as_millis().to_string())
    }

    /// On a cluster, adds the flag "1", with which a script announces to the listeners of the shard, too.
    pub(super) fn sharded(&self, call: ScriptCall) -> ScriptCall {
        if self.settings.on_cluster() { call.with(Vec::new(), vec!["1".to_owned()]) } else { call }
    }

    /// Adds the flag "0" to a call that has no flag of [`sharded`](Self::sharded), since further arguments follow.
    pub(super) fn flagged(&self, call: ScriptCall) -> ScriptCall {
        if self.settings.on_cluster() { call } else { call.with(Vec::new(), vec!["0".to_owned()]) }
    }

    /// If several nodes vote, makes a node check its marker first.
    pub(super) fn with_marker_check(&self, mut call: ScriptCall) -> ScriptCall {
        call.identify = self.settings.uses_markers();
        if !call.identify {
            return call;
        }
        let quarantine = self.settings.quarantine().as_micros().to_string();
        let [keys, args] = MarkerCheck { marker: MARKER.to_owned(), quarantine }.lists();
        call.with(keys, args)
    }

    /// Acquires for one tenure. `proposal`: the proposed token; 0 for none.
    pub(crate) fn acquire(&self, label: Label<'_>, taker: Taker<'_>, ttl: Duration, proposal: i64) -> ScriptCall {
        let Label { names, field, .. } = label;
        let owner = match taker {
            Taker::ReadWrite { client, keeps_readers_out_for } => {
                return self.enter_read_write(label, ttl, client, keeps_readers_out_for, proposal);
            }
            Taker::Slots { start } => return self.take_slots(label, ttl, start, proposal),
            Taker::Owner(owner) => owner_argument(owner),
            Taker::ChosenValue => OWNER_OF_CHOSEN_VALUE.to_owned(),
        };
        let acquire = Acquire {
            lock: names.lock.clone(),
            counter: names.counter(),
            field: field.to_owned(),
            owner,
            ttl: wire_ttl(ttl),
            counter_ttl: self.counter_ttl(ttl),
            proposal: proposal.to_string(),
        };
        let replicas = self.settings.config.min_replicas;
        ScriptCall { replicas, ..self.with_marker_check(call(&self.scripts.acquire, acquire.lists())) }
    }

    /// Acquires for one tenure in its turn, or takes a place in the queue. The place counts for `place_ttl` after each
    /// such call; with zero it takes none.
    pub(crate) fn enter(
        &self,
        primitive: Primitive,
        names: &Names,
        entry: &QueueEntry,
        owner: &OwnerKey,
        place_ttl: Duration,
    ) -> ScriptCall {
        let label = Label { primitive, names, field: &entry.field, slots: &[] };
        match primitive.family() {
            Family::Lock => {}
            Family::ReadWrite => return self.enter_read_write(label, entry.ttl, &entry.client, place_ttl, 0),
            Family::Semaphore => return self.enter_semaphore(label, entry, place_ttl),
        }
        let enter = Enter {
            lock: names.lock.clone(),
            counter: names.counter(),
            queue: names.queue(),
            alive: names.alive(),
            field: entry.field.clone(),
            owner: owner_argument(owner),
            ttl: wire_ttl(entry.ttl),
            counter_ttl: self.counter_ttl(entry.ttl),
            client: entry.client.clone(),
            place_ttl: place_ttl.as_millis().to_string(),
            wake: names.wake(),
            handover: self.handover(),
        };
        let replicas = self.settings.config.min_replicas;
        ScriptCall { replicas, ..self.sharded(call(&self.scripts.enter, enter.lists())) }
    }

    /// Gives up a place in a queue, or the tenure that it became.
    pub(crate) fn leave(&self, primitive: Primitive, names: &Names, entry: &QueueEntry) -> ScriptCall {
        let label = Label { primitive, names, field: &entry.field, slots: &[] };
        match primitive.family() {
            Family::Lock => self.leave_lock(label, Some(entry)),
            Family::ReadWrite => self.leave_read_write(label, Some(entry)),
            Family::Semaphore => self.leave_semaphore(label, Some(entry), true, ""),
        }
    }

    /// Ends a tenure of a lock with a queue, or gives up its place. `entry`: the place; `None` if the tenure was
    /// granted.
    fn leave_lock(&self, label: Label<'_>, entry: Option<&QueueEntry>) -> ScriptCall {
        let Label { names, field, .. } = label;
        let leave = Leave {
            lock: names.lock.clone(),
            counter: names.counter(),
            queue: names.queue(),
            alive: names.alive(),
            field: field.to_owned(),
            entry: entry.map(QueueEntry::text).unwrap_or_default(),
            // The next holder may have a longer lease. Its first renewal prolongs the counter.
            counter_ttl: self.counter_ttl(Duration::ZERO),
            channel: names.channel(),
            wake: names.wake(),
            handover: self.handover(),
        };
        self.sharded(call(&self.scripts.leave, leave.lists()))
    }

    /// Whether a script may make a waiter the holder without a request of that waiter: "1" or "0". It may not if
    /// replicas must acknowledge the grant.
    pub(super) fn handover(&self) -> String {
        if self.settings.config.min_replicas == 0 { "1".to_owned() } else { "0".to_owned() }
    }

    /// Bumps a node's counter from the token that it granted to the token of the quorum.
    pub(crate) fn bump(&self, label: Label<'_>, granted: &Granted, agreed: &Granted) -> ScriptCall {
        match label.primitive.family() {
            Family::Lock => {}
            Family::ReadWrite => return self.bump_read_write(label, granted.token, agreed.token),
            Family::Semaphore => return self.bump_permit(label, &granted.slots, &agreed.slots),
        }
        let Label { names, field, .. } = label;
        let bump = Bump {
            lock: names.lock.clone(),
            counter: names.counter(),
            field: field.to_owned(),
            granted: granted.token.to_string(),
            agreed: agreed.token.to_string(),
            // This happens only on a quorum, where no lease is longer than its counter is kept.
            counter_ttl: self.counter_ttl(Duration::ZERO),
        };
        call(&self.scripts.bump, bump.lists())
    }

    /// Renews many tenures of one family. A ttl of zero only checks that a tenure is there.
    pub(crate) fn renew<'a>(&self, tenures: impl Iterator<Item = (Label<'a>, Duration)>) -> ScriptCall {
        // A lease without end needs no extension.
        let asked = |(label, ttl): (Label<'a>, Duration)| (label, if ttl == NEVER { Duration::ZERO } else { ttl });
        let mut tenures = tenures.map(asked).peekable();
        match tenures.peek().map_or(Family::Lock, |(label, _)| label.primitive.family()) {
            Family::Lock => {}
            Family::ReadWrite => return Self::renew_read_write(tenures),
            Family::Semaphore => return Self::renew_permits(tenures),
        }
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (Label { names, field, .. }, ttl) in tenures {
            let (lock, ended) = (names.lock.clone(), names.ended());
            let one = Renew { lock, ended, field: field.to_owned(), ttl: ttl.as_millis().to_string() };
            let [its_keys, its_args] = one.lists();
            keys.extend(its_keys);
            args.extend(its_args);
        }
        let mut call = ScriptCall::new(&self.scripts.renew, keys, args);
        if self.settings.on_cluster() {
            call.while_moving = if call.keys.len() == 2 {
                let lock = call.keys[0].clone();
                // While the slot moves, a server may refuse a call with two different keys. So this call names the lock
                // twice, and the script reads no note of ended tenures.
                WhileMoving::Instead(Box::new(ScriptCall { keys: Arc::new(vec![lock.clone(), lock]), ..call.clone() }))
            } else {
                WhileMoving::Fail
            };
        }
        call
    }

    /// Renews one tenure.
    pub(crate) fn renew_one(&self, label: Label<'_>, ttl: Duration) -> ScriptCall {
        self.renew(std::iter::once((label, ttl)))
    }

    /// Prolongs the counters of many tenures: for each its token, and the counter's ttl from now on.
    pub(crate) fn prolong<'a>(&self, tenures: impl Iterator<Item = (Label<'a>, u64, Duration)>) -> ScriptCall {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (label, token, ttl) in tenures {
            let one = Prolong {
                lock: label.names.lock.clone(),
                counter: label.names.counter(),
                field: label.field.to_owned(),
                token: token.to_string(),
                counter_ttl: ttl.as_millis().to_string(),
            };
            let [its_keys, its_args] = one.lists();
            keys.extend(its_keys);
            args.extend(its_args);
        }
        // Do not wait while a slot moves: the next renewal tries again.
        ScriptCall { while_moving: WhileMoving::Fail, ..ScriptCall::new(&self.scripts.prolong, keys, args) }
    }

    /// Writes a tenure again on a node that lacks it.
    pub(crate) fn repair(&self, label: Label<'_>, owner: &OwnerKey, token: u64, ttl: Duration) -> ScriptCall {
        match label.primitive.family() {
            Family::Lock => {}
            Family::ReadWrite => return self.repair_read_write(label, token, ttl),
            Family::Semaphore => return self.repair_permit(label, ttl),
        }
        let Label { names, field, .. } = label;
        let repair = Repair {
            lock: names.lock.clone(),
            counter: names.counter(),
            ended: names.ended(),
            field: field.to_owned(),
            owner: owner_argument(owner),
            ttl: ttl.as_millis().to_string(),
            token: token.to_string(),
            counter_ttl: self.counter_ttl(ttl),
        };
        self.with_marker_check(call(&self.scripts.repair, repair.lists()))
    }

    /// Ends a tenure. `announce`: notify the waiters.
    pub(crate) fn release(&self, label: Label<'_>, announce: bool) -> ScriptCall {
        let Label { names, field, .. } = label;
        match label.primitive {
            Primitive::Lock => {}
            Primitive::Fair => return self.leave_lock(label, None),
            Primitive::Read | Primitive::Write => return self.leave_read_write(label, None),
            Primitive::Permits { .. } => return self.leave_semaphore(label, None, announce, ""),
        }
        let channel = if announce { names.channel() } else { String::new() };
        let release = Release { lock: names.lock.clone(), field: field.to_owned(), channel };
        self.sharded(call(&self.scripts.release, release.lists()))
    }

    /// Ends a tenure, but leaves the lock taken for `time`. Nobody holds it then.
    pub(crate) fn rest(&self, label: Label<'_>, time: Duration) -> ScriptCall {
        if label.primitive.is_read_write() {
            return self.rest_read_write(label, time);
        }
        let Label { names, field, .. } = label;
        let rest = Rest {
            lock: names.lock.clone(),
            field: field.to_owned(),
            replacement: rest_of(field),
            ttl: rest_ttl(time),
            channel: names.channel(),
        };
        self.sharded(call(&self.scripts.rest, rest.lists()))
    }

    /// Ends all tenures of an explicit owner, or of all owners.
    pub(crate) fn end(&self, names: &Names, owner: Option<&str>) -> ScriptCall {
        let end = End {
            lock: names.lock.clone(),
            ended: names.ended(),
            owner: owner.map(wire_owner).unwrap_or_default(),
            channel: names.lock_channel(),
        };
        self.sharded(call(&self.scripts.end, end.lists()))
    }

    /// Ends the tenures of a lock that have these fields.
    pub(crate) fn end_fields(&self, names: &Names, fields: &[String]) -> ScriptCall {
        self.flagged(self.end(names, None)).with(Vec::new(), fields.to_vec())
    }

    /// Reads the holders of a lock.
    pub(crate) fn inspect(&self, names: &Names) -> ScriptCall {
        let inspect = Inspect { lock: names.lock.clone(), counter: names.counter() };
        call(&self.scripts.inspect, inspect.lists())
    }

    /// Replaces the field `old` of a tenure by that of `new`. `ttl`: the least time that it has left then; zero leaves
    /// it.
    pub(crate) fn attach(&self, new: Label<'_>, old: &str, ttl: Duration) -> ScriptCall {
        match new.primitive.family() {
            Family::Lock => {}
            Family::ReadWrite => return self.attach_read_write(new, old, ttl),
            Family::Semaphore => return Self::attach_permit(new, old, ttl),
        }
        let Label { names, field: new, .. } = new;
        let (old, new, ttl) = (old.to_owned(), new.to_owned(), ttl.as_millis().to_string());
        call(&self.scripts.attach, Attach { lock: names.lock.clone(), old, new, ttl }.lists())
    }

    /// Changes the ttl of a key that holds this value.
    pub(crate) fn retime(&self, names: &Names, value: &str, change: &str, millis: i64) -> ScriptCall {
        let (field, time, change) = (value.to_owned(), millis.to_string(), change.to_owned());
        call(&self.scripts.retime, Retime { lock: names.lock.clone(), field, time, change }.lists())
    }

    /// Reads the average hold of a lock, or with a sample updates it.
    pub(crate) fn learn(&self, names: &Names, sample: Option<Duration>) -> ScriptCall {
        let sample = sample.map_or(-1, |hold| hold.as_micros().max(1) as i64).to_string();
        let ttl = AVERAGE_TTL.as_millis().to_string();
        call(&self.scripts.learn, Learn { average: names.average(), sample, ttl }.lists())
    }

    /// Writes a node's marker. `seen`: the node's time in µs when the marker was missing.
    pub(crate) fn provision(&self, marker: String, origin: MarkerOrigin, seen: i64) -> ScriptCall {
        let (origin, seen) = (origin.text().to_owned(), seen.to_string());
        ScriptCall { identify: true, ..call(&self.scripts.provision, Provision { marker, origin, seen }.lists()) }
    }
}

/// The ttl in ms of a lock that is taken for at least `time`. A server may count the millisecond that has begun.
pub(super) fn rest_ttl(time: Duration) -> String {
    (millis_up(time) + 1).to_string()
}

fn call(script: &'static Script, [keys, args]: [Vec<String>; 2]) -> ScriptCall {
    ScriptCall::new(script, keys, args)
}

/// A call with the KEYS and ARGV of all parts, one after another.
pub(super) fn joined<const N: usize>(script: &'static Script, parts: [[Vec<String>; 2]; N]) -> ScriptCall {
    let call = ScriptCall::new(script, Vec::new(), Vec::new());
    parts.into_iter().fold(call, |call, [keys, args]| call.with(keys, args))
}

/// The entry of a waiter in the queue of a lock.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    /// The field of the tenure that it becomes.
    pub(crate) field: String,
    /// The ttl of the lease that it requests.
    pub(crate) ttl: Duration,
    /// The UUID of the waiter's client.
    pub(crate) client: String,
}

/// An entry of a queue, as the scripts write it.
pub(crate) struct ParsedEntry<'a> {
    pub(crate) client: &'a str,
    /// How many slots of a semaphore it wants; `None` for a lock.
    pub(crate) slots: Option<u32>,
    pub(crate) field: &'a str,
}

impl QueueEntry {
    /// Parses the text of an entry; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<ParsedEntry<'_>> {
        let (_, rest) = text.split_once('/')?;
        let (client, rest) = rest.split_once('/')?;
        // An entry for a semaphore has "count:of/" before the field. A field that has a slash begins with "=".
        let permit = rest.split_once('/').filter(|_| !owner::is_explicit(rest));
        let Some((wanted, field)) = permit else { return Some(ParsedEntry { client, slots: None, field: rest }) };
        let (count, _) = wanted.split_once(':')?;
        Some(ParsedEntry { client, slots: Some(count.parse().ok()?), field })
    }

    /// The entry as the scripts write it.
    pub(super) fn text(&self) -> String {
        format!("{}/{}/{}", wire_ttl(self.ttl), self.client, self.field)
    }
}

/// What a node must know about the owner that acquires a lock.
#[derive(Clone, Copy)]
pub(crate) enum Taker<'a> {
    Owner(&'a OwnerKey),
    /// No owner: the chosen value identifies the holder.
    ChosenValue,
    /// A reader or writer of a read/write lock. `keeps_readers_out_for`: how long a writer that is not let in keeps new
    /// readers out; zero for not at all.
    ReadWrite {
        client: &'a str,
        keeps_readers_out_for: Duration,
    },
    /// A permit of a semaphore, which takes the first free slots from `start` on.
    Slots {
        start: u32,
    },
}

/// An owner as an argument of a script; empty for an owner in which no other tenure can nest.
fn owner_argument(owner: &OwnerKey) -> String {
    match owner {
        OwnerKey::Explicit(name) => wire_owner(name),
        OwnerKey::Ambient(_) => String::new(),
    }
}
