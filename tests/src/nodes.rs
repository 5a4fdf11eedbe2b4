//! The nodes of one test, real servers or in memory, with the same faults for both: a step of a scenario does the same
//! to either kind. A node that is stopped or frozen is not queried.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use redlock::server::memory::Memory;

use crate::server::{Server, release_channels};

/// The kind of nodes that a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A server process for each node.
    Redis,
    /// A named store for each node.
    Memory,
}

impl Backend {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Memory => "memory",
        }
    }
}

/// One node.
#[derive(Debug)]
pub enum Node {
    /// A process.
    Redis(Server),
    /// A store's name, and whether it can answer.
    Memory(String, bool),
}

impl Node {
    /// Starts one.
    pub fn start(backend: Backend) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        match backend {
            Backend::Redis => Self::Redis(Server::start()),
            Backend::Memory => Self::Memory(format!("node-{}", NUMBER.fetch_add(1, Relaxed)), true),
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Memory(name, _) => format!("memory://{name}"),
        }
    }

    /// Its name in errors.
    pub fn address(&self) -> String {
        self.url().replace("redis://", "")
    }

    /// True if it can answer.
    pub fn is_up(&self) -> bool {
        match self {
            Self::Redis(server) => server.is_up(),
            Self::Memory(_, up) => *up,
        }
    }

    /// Kills it. Its keys are lost.
    pub fn stop(&mut self) {
        match self {
            Self::Redis(server) => server.stop(),
            Self::Memory(name, up) => {
                Memory::named(name).stop();
                *up = false;
            }
        }
    }

    /// Starts it again, empty.
    pub fn restart(&mut self) {
        match self {
            Self::Redis(server) => server.restart(),
            Self::Memory(name, up) => {
                Memory::named(name).start();
                *up = true;
            }
        }
    }

    /// Suspends it.
    pub fn freeze(&mut self) {
        match self {
            Self::Redis(server) => server.freeze(),
            Self::Memory(name, up) => {
                Memory::named(name).freeze();
                *up = false;
            }
        }
    }

    /// Resumes it.
    pub fn thaw(&mut self) {
        match self {
            Self::Redis(server) => server.thaw(),
            Self::Memory(name, up) => {
                Memory::named(name).thaw();
                *up = true;
            }
        }
    }

    /// Removes all keys.
    pub fn flush(&self) {
        match self {
            Self::Redis(server) => server.command(&["FLUSHALL"]),
            Self::Memory(name, _) => Memory::named(name).flush(),
        }
    }

    /// Removes a key without announcing a release.
    pub fn delete(&self, key: &str) {
        match self {
            Self::Redis(server) => server.command(&["DEL", key]),
            Self::Memory(name, _) => drop(Memory::named(name).delete(key)),
        }
    }

    /// Writes a string over the key, or adds a field to a hash, without a ttl.
    pub fn put(&self, key: &str, hash: bool) {
        match (self, hash) {
            (Self::Redis(server), true) => server.command(&["HSET", key, "somebody", "1"]),
            (Self::Redis(server), false) => server.command(&["SET", key, "somebody"]),
            (Self::Memory(name, _), true) => drop(Memory::named(name).hset(key, "somebody")),
            (Self::Memory(name, _), false) => Memory::named(name).set(key, "somebody"),
        }
    }

    /// Sets a key to expire after `ttl`.
    pub fn expire(&self, key: &str, ttl: Duration) {
        match self {
            Self::Redis(server) => server.command(&["PEXPIRE", key, &ttl.as_millis().to_string()]),
            Self::Memory(name, _) => drop(Memory::named(name).expire(key, ttl)),
        }
    }

    /// The type of a key, as `TYPE` names it; `None` in memory.
    pub fn kind(&self, key: &str) -> Option<String> {
        match self {
            Self::Redis(server) => Some(server.command(&["TYPE", key])),
            Self::Memory(..) => None,
        }
    }

    /// Whether a key exists.
    pub fn exists(&self, key: &str) -> bool {
        match self {
            Self::Redis(server) => server.command(&["EXISTS", key]),
            Self::Memory(name, _) => Memory::named(name).exists(key),
        }
    }

    /// The number of clients that listen for the release of the lock at `key`.
    pub fn waiting(&self, key: &str) -> usize {
        match self {
            Self::Redis(server) => server.waiting(key),
            Self::Memory(name, _) => {
                let heard = |channel: &String| Memory::named(name).subscribers(channel);
                release_channels(key).iter().map(heard).sum()
            }
        }
    }
}
