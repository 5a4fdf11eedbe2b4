//! The stores behind `memory://`, one a name and process: their keys, their subscribers, and the faults that [`Memory`]
//! puts into them.
//!
//! A store belongs to the process that made it: after a fork the child finds an empty one, and never takes a lock that
//! may have been held when it was forked.
//!
//! States of a store: up → (`freeze`) → frozen → (`thaw`) → up; up or frozen → (`stop`) → stopped → (`start`) → up and
//! empty. Up answers at once, frozen keeps requests in order for later, stopped refuses them.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::sync::watch;

use super::commands::{Commands, millis};
use crate::{
    clock::{self, Deadline, Stamp},
    process::fork::{self, Tied},
    sync::Mutex,
};

/// The store of a `memory://` URL, to look into it, to break it and to mend it.
///
/// ```
/// use redlock::server::memory::Memory;
///
/// let store = Memory::named("orders"); // what clients of memory://orders talk to
/// store.freeze(); // like a server that was suspended
/// store.thaw();
/// ```
///
/// Its methods act on the store at once, whether it is up, frozen or stopped. A handle can be made before or after
/// the clients and is worth no more than the name.
#[derive(Clone, Debug)]
pub struct Memory {
    name: String,
}

impl Memory {
    /// The store behind `memory://name`; an empty name is the one behind `memory://`.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Removes a key, as `DEL`; tells whether it existed. Announces nothing.
    pub fn delete(&self, key: &str) -> bool {
        self.with(|commands| commands.del(key))
    }

    /// Writes a string without a ttl over whatever the key holds, as `SET`.
    pub fn set(&self, key: &str, value: &str) {
        self.with(|commands| commands.insert(key, Value::Text(value.to_owned()), None));
    }

    /// Adds a field to a hash, as `HSET`; a new hash has no ttl. Returns `false`, and does nothing, if the key holds
    /// a string.
    pub fn hset(&self, key: &str, field: &str) -> bool {
        self.with(|commands| commands.hset(key, field)).is_ok()
    }

    /// Lets a key expire after `ttl`, rounded up to milliseconds, as `PEXPIRE`; tells whether it existed.
    pub fn expire(&self, key: &str, ttl: Duration) -> bool {
        self.with(|commands| commands.pexpire(key, millis(ttl)))
    }

    /// Whether a key exists, as `EXISTS`.
    pub fn exists(&self, key: &str) -> bool {
        self.with(|commands| commands.exists(key))
    }

    /// Removes all keys, as `FLUSHALL`.
    pub fn flush(&self) {
        self.store().state.lock().keys.clear();
    }

    /// Kills the server: all keys are lost, subscriptions end, requests fail until [`start`](Self::start). Requests
    /// that waited in a frozen store never run.
    pub fn stop(&self) {
        let store = self.store();
        {
            let mut state = store.state.lock();
            if matches!(state.status, Status::Stopped) {
                return;
            }
            state.status = Status::Stopped;
            state.keys.clear();
            state.subscribers.clear();
        }
        store.changed();
    }

    /// Starts a stopped server: it is empty and has a new run id. Does nothing if it runs.
    pub fn start(&self) {
        let store = self.store();
        {
            let mut state = store.state.lock();
            if !matches!(state.status, Status::Stopped) {
                return;
            }
            // Numbers of subscribers are not reused: one that outlived the old run must not end one of the new run.
            let (commands, last_subscriber) = (state.commands, state.last_subscriber);
            *state = State { commands, last_subscriber, ..State::new() };
        }
        store.changed();
    }

    /// Suspends the server: requests wait until [`thaw`](Self::thaw) or their time-out. Those that timed out still
    /// run when it thaws, in order and before later ones. Keys go on expiring.
    pub fn freeze(&self) {
        let store = self.store();
        let mut state = store.state.lock();
        if matches!(state.status, Status::Up) {
            state.status = Status::Frozen(Vec::new());
        }
    }

    /// Resumes a frozen server; what waited runs before this returns.
    pub fn thaw(&self) {
        let store = self.store();
        let answers: Vec<Deliver> = {
            let mut state = store.state.lock();
            match mem::replace(&mut state.status, Status::Up) {
                Status::Frozen(waiting) => waiting.into_iter().map(|job| job(&mut state)).collect(),
                other => {
                    state.status = other;
                    return;
                }
            }
        };
        // Outside the lock: an answer that nobody waits for is dropped here, and a dropped subscription locks the store.
        for deliver in answers {
            deliver();
        }
        store.changed();
    }

    /// How many subscriptions a channel has, as `PUBSUB NUMSUB`.
    pub fn subscribers(&self, channel: &str) -> usize {
        self.store().state.lock().subscribers.get(channel).map_or(0, Vec::len)
    }

    /// How many script calls the store executed since the process made it, failed ones included.
    pub fn commands(&self) -> u64 {
        self.store().state.lock().commands
    }

    // Looked up each time, so that a handle made before a fork means the child's store in the child.
    fn store(&self) -> Arc<Store> {
        find(fork::generation(), &self.name)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Commands<'_>) -> T) -> T {
        act(&mut Commands { state: &mut self.store().state.lock(), now: clock::now() })
    }
}

/// Ends a subscription when dropped.
pub(super) struct Unsubscribe {
    pub(super) store: Tied<Arc<Store>>,
    pub(super) channel: String,
    pub(super) number: u64,
}

impl Drop for Unsubscribe {
    fn drop(&mut self) {
        let Some(store) = self.store.get() else { return };
        let mut state = store.state.lock();
        if let Some(all) = state.subscribers.get_mut(&self.channel) {
            all.retain(|subscriber| subscriber.number != self.number);
            if all.is_empty() {
                state.subscribers.remove(&self.channel);
            }
        }
    }
}

/// The stores of one process.
struct Generation {
    number: u64,
    stores: Mutex<BTreeMap<String, Arc<Store>>>,
    /// Those of a child, in the child.
    next: OnceLock<&'static Generation>,
}

impl Generation {
    const fn new(number: u64) -> Self {
        Self { number, stores: Mutex::new(BTreeMap::new()), next: OnceLock::new() }
    }
}

/// The store of a name in a fork generation. Reads its way past older generations without taking their locks.
pub(super) fn find(generation: u64, name: &str) -> Arc<Store> {
    static FIRST: Generation = Generation::new(0);
    let mut at = &FIRST;
    while at.number != generation {
        if let Some(next) = at.next.get() {
            at = next;
        } else {
            // Leaked, as `'static` asks. Not `get_or_init`: a fork must not catch it while it waits for memory.
            let _ = at.next.set(Box::leak(Box::new(Generation::new(generation))));
        }
    }
    Arc::clone(at.stores.lock().entry(name.to_owned()).or_insert_with(|| {
        let (state, changes) = (Mutex::new(State::new()), watch::Sender::new(0));
        Arc::new(Store { state, changes })
    }))
}

pub(super) struct Store {
    pub(super) state: Mutex<State>,
    pub(super) changes: watch::Sender<u64>,
}

impl Store {
    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A request that waits for a thaw: does its work and returns what hands over the answer.
pub(super) type Job = Box<dyn FnOnce(&mut State) -> Deliver + Send>;
pub(super) type Deliver = Box<dyn FnOnce() + Send>;

pub(super) enum Status {
    Up,
    Frozen(Vec<Job>),
    Stopped,
}

/// One run of the server.
pub(super) struct State {
    pub(super) status: Status,
    pub(super) run: String,
    pub(super) started: i64,
    pub(super) commands: u64,
    pub(super) keys: HashMap<String, Entry>,
    /// How many keys there may be before expired ones are looked for.
    pub(super) sweep_at: usize,
    pub(super) subscribers: HashMap<String, Vec<Subscriber>>,
    pub(super) last_subscriber: u64,
}

pub(super) const SWEEP_AT_LEAST: usize = 1024;

pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) expires: Option<Deadline>,
}

pub(super) enum Value {
    Text(String),
    /// In the order of insertion, as Redis keeps small hashes. What the fields hold is never read by a script.
    Hash(Vec<String>),
}

pub(super) struct Subscriber {
    pub(super) number: u64,
    pub(super) node: u64,
    pub(super) sender: watch::Sender<u64>,
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            status: Status::Up,
            run: uuid::Uuid::new_v4().simple().to_string(),
            started: clock::now().wall_micros(),
            commands: 0,
            keys: HashMap::new(),
            sweep_at: SWEEP_AT_LEAST,
            subscribers: HashMap::new(),
            last_subscriber: 0,
        }
    }
}

impl Entry {
    pub(super) fn expired(&self, now: Stamp) -> bool {
        self.expires.is_some_and(|expires| expires.left_at(now).is_zero())
    }
}
