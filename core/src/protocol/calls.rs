//! What is asked of a server: for each script its KEYS and ARGV, in the order in which its header names them. Written
//! down here alone: what builds a call and what reads one, in memory, go by the same list.

use std::{slice, sync::Arc, time::Duration};

use crate::{
    config::{NEVER, Settings, wire_ttl},
    owner::{OwnerKey, wire_owner},
    protocol::{
        names::Names,
        primitive::Primitive,
        script::{Call, Script, Scripts, WhileMoving},
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
    /// `lua/learn.lua`
    Learn { average } (sample, ttl)
    /// `lua/provision.lua`; an [`Identity`] follows.
    Provision { marker } (how, seen)
}

/// The owner that `acquire.lua` gets for a value of the caller's choosing.
pub(crate) const CHOSEN: &str = "!";

/// What a client asks, as calls.
pub(crate) struct Protocol {
    pub(crate) primitive: Primitive,
    scripts: &'static Scripts,
    settings: Arc<Settings>,
}

impl Protocol {
    pub(crate) fn new(primitive: Primitive, settings: Arc<Settings>) -> Self {
        Self { primitive, scripts: primitive.scripts(), settings }
    }

    /// How long a counter is kept that is written for a lease of `ttl`.
    fn counter_ttl(&self, ttl: Duration) -> String {
        self.settings.counter_ttl(ttl).map_or("0".to_owned(), |ttl| ttl.as_millis().to_string())
    }

    /// Has a script announce to the listeners of a cluster's shard, too.
    fn sharded(&self, call: Call) -> Call {
        if self.settings.on_cluster() { call.with(Vec::new(), vec!["1".to_owned()]) } else { call }
    }

    /// Has a node look at its marker first, where several vote.
    fn guarded(&self, mut call: Call) -> Call {
        call.identify = self.settings.guarded();
        if !call.identify {
            return call;
        }
        let quarantine = self.settings.quarantine().as_micros().to_string();
        let [keys, args] = Guard { marker: MARKER.to_owned(), quarantine }.lists();
        call.with(keys, args)
    }

    /// Takes it for one tenure. `proposal`: for its token, 0 for none.
    pub(crate) fn acquire(&self, names: &Names, field: &str, taker: Taker<'_>, ttl: Duration, proposal: i64) -> Call {
        let acquire = Acquire {
            lock: names.lock.clone(),
            counter: names.counter.clone(),
            field: field.to_owned(),
            owner: match taker {
                Taker::Owner(owner) => joinable(owner),
                Taker::Chosen => CHOSEN.to_owned(),
            },
            ttl: wire_ttl(ttl),
            counter_ttl: self.counter_ttl(ttl),
            proposal: proposal.to_string(),
        };
        let replicas = self.settings.config.min_replicas;
        Call { replicas, ..self.guarded(call(&self.scripts.acquire, acquire.lists())) }
    }

    /// Raises the token of a grant.
    pub(crate) fn bump(&self, names: &Names, field: &str, granted: i64, agreed: i64) -> Call {
        let bump = Bump {
            lock: names.lock.clone(),
            counter: names.counter.clone(),
            field: field.to_owned(),
            granted: granted.to_string(),
            agreed: agreed.to_string(),
            // Only a quorum raises, and there no lease is longer than a counter is kept.
            counter_ttl: self.counter_ttl(Duration::ZERO),
        };
        call(&self.scripts.bump, bump.lists())
    }

    /// One renewal of many tenures; a ttl of zero only checks that a tenure is there.
    pub(crate) fn renew<'a>(&self, tenures: impl Iterator<Item = (&'a Names, &'a str, Duration)>) -> Call {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (names, field, ttl) in tenures {
            // To never end is nothing that could be asked for again.
            let ttl = if ttl == NEVER { Duration::ZERO } else { ttl };
            let (lock, ended) = (names.lock.clone(), names.ended.clone());
            let one = Renew { lock, ended, field: field.to_owned(), ttl: ttl.as_millis().to_string() };
            let [its_keys, its_args] = one.lists();
            keys.extend(its_keys);
            args.extend(its_args);
        }
        let mut call = Call::new(&self.scripts.renew, keys, args);
        if self.settings.on_cluster() {
            call.while_moving = if call.keys.len() == 2 {
                let lock = call.keys[0].clone();
                WhileMoving::Instead(Box::new(Call { keys: Arc::new(vec![lock.clone(), lock]), ..call.clone() }))
            } else {
                WhileMoving::Fail
            };
        }
        call
    }

    /// Renews one tenure.
    pub(crate) fn renew_one(&self, names: &Names, field: &str, ttl: Duration) -> Call {
        self.renew(std::iter::once((names, field, ttl)))
    }

    /// Prolongs the counters of many tenures, each with its token, for so long from now on.
    pub(crate) fn prolong<'a>(&self, tenures: impl Iterator<Item = (&'a Names, &'a str, u64, Duration)>) -> Call {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (names, field, token, ttl) in tenures {
            let one = Prolong {
                lock: names.lock.clone(),
                counter: names.counter.clone(),
                field: field.to_owned(),
                token: token.to_string(),
                counter_ttl: ttl.as_millis().to_string(),
            };
            let [its_keys, its_args] = one.lists();
            keys.extend(its_keys);
            args.extend(its_args);
        }
        // While a slot moves it is not waited for: there is a next renewal.
        Call { while_moving: WhileMoving::Fail, ..Call::new(&self.scripts.prolong, keys, args) }
    }

    /// Writes a tenure again where it is missing.
    pub(crate) fn repair(&self, names: &Names, owner: &OwnerKey, field: &str, token: u64, ttl: Duration) -> Call {
        let repair = Repair {
            lock: names.lock.clone(),
            counter: names.counter.clone(),
            ended: names.ended.clone(),
            field: field.to_owned(),
            owner: joinable(owner),
            ttl: ttl.as_millis().to_string(),
            token: token.to_string(),
            counter_ttl: self.counter_ttl(ttl),
        };
        self.guarded(call(&self.scripts.repair, repair.lists()))
    }

    /// Ends a tenure. `announce`: tell those who wait.
    pub(crate) fn release(&self, names: &Names, field: &str, announce: bool) -> Call {
        let channel = if announce { names.channel.clone() } else { String::new() };
        let release = Release { lock: names.lock.clone(), field: field.to_owned(), channel };
        self.sharded(call(&self.scripts.release, release.lists()))
    }

    /// Ends the tenures of an explicit owner, or everybody's.
    pub(crate) fn end(&self, names: &Names, owner: Option<&str>) -> Call {
        let end = End {
            lock: names.lock.clone(),
            ended: names.ended.clone(),
            owner: owner.map(wire_owner).unwrap_or_default(),
            channel: names.channel.clone(),
        };
        self.sharded(call(&self.scripts.end, end.lists()))
    }

    /// Asks who holds it.
    pub(crate) fn inspect(&self, names: &Names) -> Call {
        let inspect = Inspect { lock: names.lock.clone(), counter: names.counter.clone() };
        call(&self.scripts.inspect, inspect.lists())
    }

    /// Renames a tenure. `ttl`: what it shall have at least.
    pub(crate) fn attach(&self, names: &Names, old: &str, new: &str, ttl: Duration) -> Call {
        let (old, new, ttl) = (old.to_owned(), new.to_owned(), ttl.as_millis().to_string());
        call(&self.scripts.attach, Attach { lock: names.lock.clone(), old, new, ttl }.lists())
    }

    /// Changes when a value ends that stands in the key.
    pub(crate) fn retime(&self, names: &Names, value: &str, how: &str, millis: i64) -> Call {
        let (field, time, how) = (value.to_owned(), millis.to_string(), how.to_owned());
        call(&self.scripts.retime, Retime { lock: names.lock.clone(), field, time, how }.lists())
    }

    /// Reads, or with a sample updates, the average hold of a lock.
    pub(crate) fn learn(&self, names: &Names, sample: Option<Duration>) -> Call {
        let sample = sample.map_or(-1, |hold| hold.as_micros().max(1) as i64).to_string();
        let ttl = AVERAGE_TTL.as_millis().to_string();
        call(&self.scripts.learn, Learn { average: names.average.clone(), sample, ttl }.lists())
    }

    /// Writes a node's marker. `seen`: the node's time when it lacked it, µs.
    pub(crate) fn provision(&self, marker: String, how: &str, seen: i64) -> Call {
        let (how, seen) = (how.to_owned(), seen.to_string());
        Call { identify: true, ..call(&self.scripts.provision, Provision { marker, how, seen }.lists()) }
    }
}

fn call(script: &'static Script, [keys, args]: [Vec<String>; 2]) -> Call {
    Call::new(script, keys, args)
}

/// Who takes a lock, as far as its nodes care.
#[derive(Clone, Copy)]
pub(crate) enum Taker<'a> {
    Owner(&'a OwnerKey),
    /// Whoever knows the value that is written.
    Chosen,
}

/// An owner as the scripts know it; empty for one that nobody joins.
fn joinable(owner: &OwnerKey) -> String {
    match owner {
        OwnerKey::Explicit(name) => wire_owner(name),
        OwnerKey::Ambient(_) => String::new(),
    }
}
