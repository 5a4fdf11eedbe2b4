//! The stores behind `memory://`, one a name and process: their keys, and their subscribers.
//!
//! A store belongs to the process that made it: after a fork the child finds an empty one, and never takes a lock that
//! may have been held when it was forked.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use tokio::sync::watch;

use crate::{
    clock::{self, Deadline, Stamp},
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
    pub(super) fn changed(&self) {
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
    /// In the order of insertion, as Redis keeps small hashes.
    Hash(Vec<(String, String)>),
    Sorted(Sorted),
}

/// A sorted set, of whole scores.
#[derive(Default)]
pub(super) struct Sorted {
    pub(super) scores: HashMap<String, i64>,
    pub(super) order: BTreeSet<(i64, String)>,
}

impl Sorted {
    pub(super) fn put(&mut self, member: &str, score: i64) {
        self.remove(member);
        self.scores.insert(member.to_owned(), score);
        self.order.insert((score, member.to_owned()));
    }

    pub(super) fn remove(&mut self, member: &str) -> bool {
        let known = self.scores.remove(member);
        known.is_some_and(|score| self.order.remove(&(score, member.to_owned())))
    }
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
