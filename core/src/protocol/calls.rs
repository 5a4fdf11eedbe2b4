//! What is asked of a server: for each script its KEYS and ARGV, in the order in which its header names them. Written
//! down here alone: what builds a call and what reads one, in memory, go by the same list.

use std::{slice, sync::Arc, time::Duration};

use crate::{
    config::{NEVER, Settings, Wire, wire_ttl},
    owner::{OwnerKey, wire_owner},
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
        script::{Script, ScriptCall, Scripts, WhileMoving, scripts},
    },
};

/// The key of a node's marker, the same for all locks of a deployment. On a cluster it stands for that of the slot.
pub(crate) const MARKER: &str = "redlock_node";

/// How long the average hold of a lock is kept.
const AVERAGE_TTL: Duration = Duration::from_secs(24 * 3600);

/// What is still to be read of a call.
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
}

/// KEYS and ARGV of each script, in order.
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
    /// `lua/acquire.lua`; a [`Guard`] may follow.
    Acquire { lock, counter } (field, owner, ttl, counter_ttl, proposal)
    /// `lua/enter.lua`; "1" may follow, on a cluster.
    Enter { lock, counter, queue, alive } (field, owner, ttl, counter_ttl, client, lease, wake, grants)
    /// `lua/leave.lua`; "1" may follow, on a cluster.
    Leave { lock, counter, queue, alive } (field, entry, counter_ttl, channel, wake, grants)
    /// What has a node look first whether it may vote: of `acquire.lua` and `repair.lua`, behind the others.
    Guard { marker } (quarantine)
    /// What a node adds of itself, where it is asked to: behind all others.
    Identity {} (run, lost_at, durable)
    /// `lua/bump.lua`
    Bump { lock, counter } (field, granted, agreed, counter_ttl)
    /// `lua/renew.lua`, for one of its tenures.
    Renew { lock, ended } (field, ttl)
    /// `lua/prolong.lua`, for one of its tenures.
    Prolong { lock, counter } (field, token, counter_ttl)
    /// `lua/repair.lua`; a [`Guard`] may follow.
    Repair { lock, counter, ended } (field, owner, ttl, token, counter_ttl)
    /// `lua/release.lua`; "1" may follow, on a cluster.
    Release { lock } (field, channel)
    /// `lua/end.lua`; "1" may follow, on a cluster.
    End { lock, ended } (owner, channel)
    /// `lua/inspect.lua`
    Inspect { lock, counter } ()
    /// `lua/attach.lua`
    Attach { lock } (old, new, ttl)
    /// `lua/retime.lua`
    Retime { lock } (field, time, how)
    /// What scripts for one tenure of a read/write lock begin with.
    Inside { lock, counter, readers } (field, counter_ttl, notes)
    /// What those add that may let others in: behind an [`Inside`].
    Waiting { writing, reading, alive } (wake, how, channel, sharded)
    /// What `lua/read_write/read.lua` and `write.lua` add to both; a [`Guard`] may follow.
    Admission {} (ttl, client, lease, proposal)
    /// What the `leave` of a read/write lock or of a semaphore adds to both.
    Departure {} (entry)
    /// What `lua/read_write/upgrade.lua` adds to an [`Inside`]; a [`Guard`] may follow.
    Upgrade {} (ttl, proposal)
    /// What `lua/read_write/bump.lua` adds to an [`Inside`].
    Raise {} (granted, agreed)
    /// `lua/read_write/renew.lua`, for one of its tenures.
    RenewInside { lock, ended, readers } (field, ttl, notes)
    /// What `lua/read_write/repair.lua` adds to an [`Inside`]; a [`Guard`] may follow.
    RepairInside { ended } (mode, ttl, token)
    /// `lua/read_write/end.lua`; "1" may follow, on a cluster.
    EndInside { lock, counter, readers, ended } (notes, channel, read_write_channel)
    /// `lua/read_write/inspect.lua`
    InspectInside { lock, counter, readers } ()
    /// What `lua/read_write/attach.lua` adds to an [`Inside`], whose field is the new one.
    AttachInside {} (old, ttl)
    /// What scripts for one permit of a semaphore begin with.
    Permit { lock, slots, taken, tokens } (field)
    /// What those add that may let others in: behind a [`Permit`].
    Turn { queue, alive } (token_ttl, wake, how, sharded)
    /// What `lua/semaphore/acquire.lua` adds to both.
    Take {} (count, of, ttl, client, lease)
    /// `lua/semaphore/renew.lua`, for one of its permits.
    RenewPermit { lock, ended, slots, taken } (field, ttl)
    /// What `lua/semaphore/end.lua` adds to a [`Permit`] and a [`Turn`].
    EndPermits { ended } ()
    /// `lua/semaphore/inspect.lua`
    InspectPermits { lock } ()
    /// What `lua/semaphore/attach.lua` adds to a [`Permit`], whose field is the new one.
    AttachPermit {} (old, ttl)
    /// `lua/learn.lua`
    Learn { average } (sample, ttl)
    /// `lua/provision.lua`; an [`Identity`] follows.
    Provision { marker } (how, seen)
}

/// The owner that `acquire.lua` gets for a value of the caller's choosing.
pub(crate) const CHOSEN: &str = "!";

/// What the servers know a tenure by.
#[derive(Clone, Copy)]
pub(crate) struct Label<'a> {
    pub(crate) primitive: Primitive,
    pub(crate) names: &'a Names,
    pub(crate) field: &'a str,
}

impl<'a> Label<'a> {
    /// Of the exclusive lock.
    pub(crate) fn of_lock(names: &'a Names, field: &'a str) -> Self {
        Self { primitive: Primitive::Lock, names, field }
    }
}

/// What a client asks, as calls.
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

    /// Whether releases by whoever may hold it are announced, so that waiters need only ask now and then.
    pub(crate) fn announces(&self, primitive: Primitive) -> bool {
        // Peers that write strings announce none.
        primitive.family() != Family::Lock || self.wire() == Wire::Redisson
    }

    /// How long a counter is kept that is written for a lease of `ttl`, in ms; "0" for ever.
    pub(super) fn counter_ttl(&self, ttl: Duration) -> String {
        self.settings.counter_ttl(ttl).map_or("0".to_owned(), |ttl| ttl.as_millis().to_string())
    }

    /// Has a script announce to the listeners of a cluster's shard, too.
    pub(super) fn sharded(&self, call: ScriptCall) -> ScriptCall {
        if self.settings.on_cluster() { call.with(Vec::new(), vec!["1".to_owned()]) } else { call }
    }

    /// Has a node look at its marker first, where several vote.
    pub(super) fn guarded(&self, mut call: ScriptCall) -> ScriptCall {
        call.identify = self.settings.guarded();
        if !call.identify {
            return call;
        }
        let quarantine = self.settings.quarantine().as_micros().to_string();
        let [keys, args] = Guard { marker: MARKER.to_owned(), quarantine }.lists();
        call.with(keys, args)
    }

    /// Takes it for one tenure. `proposal`: for its token, 0 for none.
    pub(crate) fn acquire(&self, label: Label<'_>, taker: Taker<'_>, ttl: Duration, proposal: i64) -> ScriptCall {
        let Label { names, field, .. } = label;
        let owner = match taker {
            Taker::Inside { client, lease } => return self.admit(label, ttl, client, lease, proposal),
            Taker::Owner(owner) => joinable(owner),
            Taker::Chosen => CHOSEN.to_owned(),
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
        ScriptCall { replicas, ..self.guarded(call(&self.scripts.acquire, acquire.lists())) }
    }

    /// Takes it for one tenure in its turn, or a place in its queue, which counts for `lease` after each such call; zero
    /// takes no place.
    pub(crate) fn enter(
        &self,
        primitive: Primitive,
        names: &Names,
        entry: &QueueEntry,
        owner: &OwnerKey,
        lease: Duration,
    ) -> ScriptCall {
        let label = Label { primitive, names, field: &entry.field };
        match primitive.family() {
            Family::Lock => {}
            Family::ReadWrite => return self.admit(label, entry.ttl, &entry.client, lease, 0),
            Family::Semaphore => return self.take(label, entry, lease),
        }
        let enter = Enter {
            lock: names.lock.clone(),
            counter: names.counter(),
            queue: names.queue(),
            alive: names.alive(),
            field: entry.field.clone(),
            owner: joinable(owner),
            ttl: wire_ttl(entry.ttl),
            counter_ttl: self.counter_ttl(entry.ttl),
            client: entry.client.clone(),
            lease: lease.as_millis().to_string(),
            wake: names.wake(),
            grants: self.grants(),
        };
        let replicas = self.settings.config.min_replicas;
        ScriptCall { replicas, ..self.sharded(call(&self.scripts.enter, enter.lists())) }
    }

    /// Gives up what stands in a queue, or what it became.
    pub(crate) fn leave(&self, primitive: Primitive, names: &Names, entry: &QueueEntry) -> ScriptCall {
        let label = Label { primitive, names, field: &entry.field };
        match primitive.family() {
            Family::Lock => self.hand_on(label, Some(entry)),
            Family::ReadWrite => self.depart(label, Some(entry)),
            Family::Semaphore => self.give_back(label, Some(entry)),
        }
    }

    /// Ends a tenure of a lock with a queue, or gives up what stands for it there: `entry`, unless it was granted.
    fn hand_on(&self, label: Label<'_>, entry: Option<&QueueEntry>) -> ScriptCall {
        let Label { names, field, .. } = label;
        let leave = Leave {
            lock: names.lock.clone(),
            counter: names.counter(),
            queue: names.queue(),
            alive: names.alive(),
            field: field.to_owned(),
            entry: entry.map(QueueEntry::text).unwrap_or_default(),
            // Whoever gets it next may have a longer lease; its first renewal prolongs the counter.
            counter_ttl: self.counter_ttl(Duration::ZERO),
            channel: names.channel(),
            wake: names.wake(),
            grants: self.grants(),
        };
        self.sharded(call(&self.scripts.leave, leave.lists()))
    }

    /// Whether a script may make somebody the holder who has not asked just now: not where replicas must know first.
    pub(super) fn grants(&self) -> String {
        if self.settings.config.min_replicas == 0 { "1".to_owned() } else { "0".to_owned() }
    }

    /// Raises the token of a grant.
    pub(crate) fn bump(&self, label: Label<'_>, granted: i64, agreed: i64) -> ScriptCall {
        if label.primitive.is_read_write() {
            return self.raise(label, granted, agreed);
        }
        let Label { names, field, .. } = label;
        let bump = Bump {
            lock: names.lock.clone(),
            counter: names.counter(),
            field: field.to_owned(),
            granted: granted.to_string(),
            agreed: agreed.to_string(),
            // Only a quorum raises, and there no lease is longer than a counter is kept.
            counter_ttl: self.counter_ttl(Duration::ZERO),
        };
        call(&self.scripts.bump, bump.lists())
    }

    /// One renewal of many tenures, which are all of one family; a ttl of zero only checks that a tenure is there.
    pub(crate) fn renew<'a>(&self, tenures: impl Iterator<Item = (Label<'a>, Duration)>) -> ScriptCall {
        // To never end is nothing that could be asked for again.
        let asked = |(label, ttl): (Label<'a>, Duration)| (label, if ttl == NEVER { Duration::ZERO } else { ttl });
        let mut tenures = tenures.map(asked).peekable();
        match tenures.peek().map_or(Family::Lock, |(label, _)| label.primitive.family()) {
            Family::Lock => {}
            Family::ReadWrite => return Self::renew_inside(tenures),
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

    /// Prolongs the counters of many tenures, each with its token, for so long from now on.
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
        // While a slot moves it is not waited for: there is a next renewal.
        ScriptCall { while_moving: WhileMoving::Fail, ..ScriptCall::new(&self.scripts.prolong, keys, args) }
    }

    /// Writes a tenure again where it is missing.
    pub(crate) fn repair(&self, label: Label<'_>, owner: &OwnerKey, token: u64, ttl: Duration) -> ScriptCall {
        match label.primitive.family() {
            Family::Lock => {}
            Family::ReadWrite => return self.repair_inside(label, token, ttl),
            // One server decides: what it lost is lost.
            Family::Semaphore => return self.renew_one(label, ttl),
        }
        let Label { names, field, .. } = label;
        let repair = Repair {
            lock: names.lock.clone(),
            counter: names.counter(),
            ended: names.ended(),
            field: field.to_owned(),
            owner: joinable(owner),
            ttl: ttl.as_millis().to_string(),
            token: token.to_string(),
            counter_ttl: self.counter_ttl(ttl),
        };
        self.guarded(call(&self.scripts.repair, repair.lists()))
    }

    /// Ends a tenure. `announce`: tell those who wait.
    pub(crate) fn release(&self, label: Label<'_>, announce: bool) -> ScriptCall {
        let Label { names, field, .. } = label;
        match label.primitive {
            Primitive::Lock => {}
            Primitive::Fair => return self.hand_on(label, None),
            Primitive::Read | Primitive::Write => return self.depart(label, None),
            Primitive::Permits { .. } => return self.give_back(label, None),
        }
        let channel = if announce { names.channel() } else { String::new() };
        let release = Release { lock: names.lock.clone(), field: field.to_owned(), channel };
        self.sharded(call(&self.scripts.release, release.lists()))
    }

    /// Ends the tenures of an explicit owner, or everybody's.
    pub(crate) fn end(&self, names: &Names, owner: Option<&str>) -> ScriptCall {
        let end = End {
            lock: names.lock.clone(),
            ended: names.ended(),
            owner: owner.map(wire_owner).unwrap_or_default(),
            channel: names.lock_channel(),
        };
        self.sharded(call(&self.scripts.end, end.lists()))
    }

    /// Asks who holds it.
    pub(crate) fn inspect(&self, names: &Names) -> ScriptCall {
        let inspect = Inspect { lock: names.lock.clone(), counter: names.counter() };
        call(&self.scripts.inspect, inspect.lists())
    }

    /// Gives a tenure this name, which had another. `ttl`: what it shall have at least.
    pub(crate) fn attach(&self, new: Label<'_>, old: &str, ttl: Duration) -> ScriptCall {
        match new.primitive.family() {
            Family::Lock => {}
            Family::ReadWrite => return self.attach_inside(new, old, ttl),
            Family::Semaphore => return Self::attach_permit(new, old, ttl),
        }
        let Label { names, field: new, .. } = new;
        let (old, new, ttl) = (old.to_owned(), new.to_owned(), ttl.as_millis().to_string());
        call(&self.scripts.attach, Attach { lock: names.lock.clone(), old, new, ttl }.lists())
    }

    /// Changes when a value ends that stands in the key.
    pub(crate) fn retime(&self, names: &Names, value: &str, how: &str, millis: i64) -> ScriptCall {
        let (field, time, how) = (value.to_owned(), millis.to_string(), how.to_owned());
        call(&self.scripts.retime, Retime { lock: names.lock.clone(), field, time, how }.lists())
    }

    /// Reads, or with a sample updates, the average hold of a lock.
    pub(crate) fn learn(&self, names: &Names, sample: Option<Duration>) -> ScriptCall {
        let sample = sample.map_or(-1, |hold| hold.as_micros().max(1) as i64).to_string();
        let ttl = AVERAGE_TTL.as_millis().to_string();
        call(&self.scripts.learn, Learn { average: names.average(), sample, ttl }.lists())
    }

    /// Writes a node's marker. `seen`: the node's time when it lacked it, µs.
    pub(crate) fn provision(&self, marker: String, how: &str, seen: i64) -> ScriptCall {
        let (how, seen) = (how.to_owned(), seen.to_string());
        ScriptCall { identify: true, ..call(&self.scripts.provision, Provision { marker, how, seen }.lists()) }
    }
}

fn call(script: &'static Script, [keys, args]: [Vec<String>; 2]) -> ScriptCall {
    ScriptCall::new(script, keys, args)
}

/// A call with the KEYS and ARGV of these, one after another.
pub(super) fn joined<const N: usize>(script: &'static Script, parts: [[Vec<String>; 2]; N]) -> ScriptCall {
    let call = ScriptCall::new(script, Vec::new(), Vec::new());
    parts.into_iter().fold(call, |call, [keys, args]| call.with(keys, args))
}

/// What stands in the queue of a lock for one that waits.
#[derive(Clone, Debug)]
pub(crate) struct QueueEntry {
    /// The tenure that it is to become.
    pub(crate) field: String,
    /// The lease that it asks for.
    pub(crate) ttl: Duration,
    /// Who waits, as the queue knows it.
    pub(crate) client: String,
}

impl QueueEntry {
    /// As the scripts write it.
    pub(super) fn text(&self) -> String {
        format!("{}/{}/{}", wire_ttl(self.ttl), self.client, self.field)
    }
}

/// Who takes a lock, as far as its nodes care.
#[derive(Clone, Copy)]
pub(crate) enum Taker<'a> {
    Owner(&'a OwnerKey),
    /// Whoever knows the value that is written.
    Chosen,
    /// One of a client, inside a read/write lock. `lease`: for how long it holds new readers back if it is not let in.
    Inside {
        client: &'a str,
        lease: Duration,
    },
}

/// An owner as the scripts know it; empty for one that nobody joins.
fn joinable(owner: &OwnerKey) -> String {
    match owner {
        OwnerKey::Explicit(name) => wire_owner(name),
        OwnerKey::Ambient(_) => String::new(),
    }
}
