//! The stores behind `memory://`, one for each name and process: their keys and their subscribers.
//!
//! A store belongs to the process that made it. After a fork the child gets an empty one, and never locks a mutex that
//! may have been held at the fork.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock, Weak},
};

use tokio::sync::watch;

use crate::{
    clock::{self, Deadline, Stamp},
    identity::Identity,
    process::fork::Tied,
    sync::Mutex,
};

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
    /// The stores of a forked child; set only in the child.
    next: OnceLock<&'static Generation>,
}

impl Generation {
    const fn new(number: u64) -> Self {
        Self { number, stores: Mutex::new(BTreeMap::new()), next: OnceLock::new() }
    }
}

/// Returns the store of a name in a fork generation. Passes older generations without locking their mutexes.
pub(super) fn find(generation: u64, name: &str) -> Arc<Store> {
    static FIRST: Generation = Generation::new(0);
    let mut at = &FIRST;
    while at.number != generation {
        if let Some(next) = at.next.get() {
            at = next;
        } else {
            // Leaked, since it must be `'static`. Not `get_or_init`: a fork in the middle of the allocation would leave
            // the cell locked in the child.
            let _ = at.next.set(Box::leak(Box::new(Generation::new(generation))));
        }
    }
    Arc::clone(at.stores.lock().entry(name.to_owned()).or_insert_with(|| {
        let (state, changes) = (Mutex::new(State::new()), watch::Sender::new(0));
        Arc::new(Store { state, changes, clients: Mutex::default() })
    }))
}

/// A store that several clients share.
pub(super) struct Store {
    pub(super) state: Mutex<State>,
    pub(super) changes: watch::Sender<u64>,
    /// The clients that use it, by the number of their access.
    clients: Mutex<BTreeMap<u64, Weak<Identity>>>,
}

impl Store {
    /// Adds a client, until its identity is dropped.
    pub(super) fn join(&self, access: u64, identity: &Arc<Identity>) {
        let mut clients = self.clients.lock();
        clients.retain(|_, identity| identity.strong_count() > 0);
        clients.insert(access, Arc::downgrade(identity));
    }

    /// Removes a client.
    pub(super) fn leave(&self, access: u64) {
        self.clients.lock().remove(&access);
    }

    /// The clients that use it.
    pub(super) fn clients(&self) -> Vec<Arc<Identity>> {
        self.clients.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Notifies the clients' nodes of a change.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// A request that waits for a thaw: it runs on the state and returns the function that delivers the reply.
pub(super) type Job = Box<dyn FnOnce(&mut State) -> Deliver + Send>;
/// Delivers a reply; called without the store's mutex.
pub(super) type Deliver = Box<dyn FnOnce() + Send>;

/// Whether a store runs, delays requests or refuses them; the header of `faults` describes the transitions.
pub(super) enum Status {
    Up,
    Frozen(Vec<Job>),
    Stopped,
}

/// The state of a store, as of one run of a server.
pub(super) struct State {
    pub(super) status: Status,
    pub(super) run: String,
    pub(super) started: i64,
    pub(super) commands: u64,
    pub(super) keys: HashMap<String, Entry>,
    /// The number of keys above which expired ones are removed.
    pub(super) sweep_at: usize,
    pub(super) subscribers: HashMap<String, Vec<Subscriber>>,
    pub(super) last_subscriber: u64,
}

pub(super) const SWEEP_AT_LEAST: usize = 1024;

/// A key's value and expiry.
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) expires: Option<Deadline>,
}

/// The value of a key.
pub(super) enum Value {
    Text(String),
    /// In the order of insertion, as Redis keeps small hashes.
    Hash(Vec<(String, String)>),
    Sorted(Sorted),
}

/// A sorted set with integer scores.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) scores: HashMap<String, i64>,
    pub(super) order: BTreeSet<(i64, String)>,
}

impl Sorted {
    /// Adds a member, or changes its score.
    pub(super) fn put(&mut self, member: &str, score: i64) {
        self.remove(member);
        self.scores.insert(member.to_owned(), score);
        self.order.insert((score, member.to_owned()));
    }

    /// Removes a member; returns whether it existed.
    pub(super) fn remove(&mut self, member: &str) -> bool {
        let known = self.scores.remove(member);
        known.is_some_and(|score| self.order.remove(&(score, member.to_owned())))
    }
}

/// A subscription of a client's node to a channel.
pub(super) struct Subscriber {
    pub(super) number: u64,
    pub(super) node: u64,
    pub(super) sender: watch::Sender<u64>,
}

impl State {
    /// An empty store that runs, with a new run id.
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
    /// Whether the key has expired.
    pub(super) fn expired(&self, now: Stamp) -> bool {
        self.expires.is_some_and(|expires| expires.left_at(now).is_zero())
    }
}
