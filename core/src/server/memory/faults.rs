//! Access to a store for tests: [`Memory`] inspects a store, injects faults and removes them.
//!
//! States of a store: up → (`freeze`) → frozen → (`thaw`) → up; up or frozen → (`stop`) → stopped → (`start`) → up and
//! empty. Up answers at once, frozen queues requests in order, stopped refuses them.

use std::{mem, sync::Arc, time::Duration};

use super::{
    commands::{Commands, millis},
    store::{Deliver, State, Status, Store, Value, find},
};
use crate::{clock, process::fork};

/// A handle to the store of a `memory://` URL, to inspect it, to inject faults and to remove them.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use redlock::{Client, Config, LockOptions, Memory};
///
/// let store = Memory::named("orders"); // the store of all clients of memory://orders
/// let lock = Client::new(Config::new(["memory://orders"]))?.lock("42", LockOptions::default())?;
/// store.stop(); // like a server that was killed
/// assert_eq!(lock.try_acquire_blocking().err().expect("it is down").code(), "unavailable");
/// store.start();
/// assert!(lock.try_acquire_blocking()?.is_some());
/// # Ok(()) }
/// ```
///
/// Its methods act on the store at once, whether that is up, frozen or stopped. A handle can be made before or after
/// the clients: it contains only the name.
#[derive(Clone, Debug)]
pub struct Memory {
    name: String,
}

impl Memory {
    /// Returns a handle to the store behind `memory://name`; an empty name means that behind `memory://`.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// Removes a key, as `DEL`; returns whether it existed. Publishes no release message.
    pub fn delete(&self, key: &str) -> bool {
        self.with(|commands| commands.del(key))
    }

    /// Writes a string without a ttl, as `SET`; overwrites any value.
    pub fn set(&self, key: &str, value: &str) {
        self.with(|commands| commands.insert(key, Value::Text(value.to_owned()), None));
    }

    /// Adds a field to a hash, as `HSET`; a new hash has no ttl. Returns `false`, and does nothing, if the key holds
    /// a string.
    pub fn hset(&self, key: &str, field: &str) -> bool {
        self.with(|commands| commands.hset(key, field, "1")).is_ok()
    }

    /// Makes a key expire after `ttl`, rounded up to milliseconds, as `PEXPIRE`; returns whether it existed.
    pub fn expire(&self, key: &str, ttl: Duration) -> bool {
        self.with(|commands| commands.pexpire(key, millis(ttl)))
    }

    /// Returns whether a key exists, as `EXISTS`.
    pub fn exists(&self, key: &str) -> bool {
        self.with(|commands| commands.exists(key))
    }

    /// Removes all keys, as `FLUSHALL`.
    pub fn flush(&self) {
        self.store().state.lock().keys.clear();
    }

    /// Kills the server: it loses all keys, subscriptions end, and requests fail until [`start`](Self::start). Requests
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
    /// run when it thaws, in order and before later ones. Keys continue to expire.
    pub fn freeze(&self) {
        let store = self.store();
        let mut state = store.state.lock();
        if matches!(state.status, Status::Up) {
            state.status = Status::Frozen(Vec::new());
        }
    }

    /// Resumes a frozen server. Requests that waited run before this returns.
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
        // Outside the mutex: a reply without a waiter is dropped here, and a dropped subscription locks the store.
        for deliver in answers {
            deliver();
        }
        store.changed();
    }

    /// Returns the number of subscriptions to a channel, as `PUBSUB NUMSUB`.
    pub fn subscribers(&self, channel: &str) -> usize {
        self.store().state.lock().subscribers.get(channel).map_or(0, Vec::len)
    }

    /// Returns the number of script calls that the store executed since the process made it, failed ones included.
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
