//! A client: its configuration, its locks, and the calls that concern the nodes.

use std::sync::Arc;

use redlock::{
    Config, Owner,
    ffi::Operation::{Attach, Close, ForceRelease, InitNodes, Ping},
};

use crate::{
    calls::{sink, start},
    lock::{Lock, permits, unbound},
    values::{Fallible, IDIOM, Settings, options},
};

/// A client of one or several nodes.
#[derive(uniffi::Object)]
pub(crate) struct Client {
    core: redlock::Client,
}

impl Client {
    fn of(config: Config) -> Fallible<Self> {
        Ok(Self { core: redlock::Client::with_events(config, sink())? })
    }
}

#[uniffi::export]
impl Client {
    /// A client of these nodes. Does no I/O.
    #[uniffi::constructor]
    pub(crate) fn new(urls: Vec<String>, settings: Settings) -> Fallible<Self> {
        Self::of(IDIOM.config(urls, options(settings))?)
    }

    /// A client of the nodes in the environment variable `REDLOCK_URL`. Does no I/O.
    #[uniffi::constructor]
    pub(crate) fn from_env(settings: Settings) -> Fallible<Self> {
        Self::of(IDIOM.config_from_env(options(settings))?)
    }

    /// The nodes' addresses, without credentials.
    pub(crate) fn nodes(&self) -> Vec<String> {
        self.core.nodes()
    }

    /// A lock by name. Sends nothing.
    pub(crate) fn lock(&self, name: &str, settings: Settings) -> Fallible<Arc<Lock>> {
        Ok(Arc::new(Lock::from(self.core.lock(name, IDIOM.lock_options(options(settings))?)?)))
    }

    /// One lock of a read/write lock: `part` is "read" or "write". Sends nothing.
    pub(crate) fn part(&self, name: String, settings: Settings, part: &str) -> Fallible<Arc<Lock>> {
        Ok(Arc::new(Lock::from(unbound(name, settings, part)?.of(&self.core)?)))
    }

    /// A lock object that acquires `n` of the `of` slots of a semaphore. Sends nothing.
    pub(crate) fn permits(&self, name: String, settings: Settings, n: i32, of: i32) -> Fallible<Arc<Lock>> {
        Ok(Arc::new(Lock::from(permits(name, settings, n, of)?.of(&self.core)?)))
    }

    /// Starts to send a request to every node: `Nodes`.
    pub(crate) fn ping(&self) -> Fallible<i64> {
        start(Ping(&self.core))
    }

    /// Starts to free a lock, whoever the holder is: a `Flag`, false if there was none.
    pub(crate) fn force_release(&self, name: &str) -> Fallible<i64> {
        start(ForceRelease(&self.core, name))
    }

    /// Starts to make all nodes of a quorum vote at once, even those in quarantine: `Nothing`.
    pub(crate) fn init_nodes(&self) -> Fallible<i64> {
        start(InitNodes(&self.core))
    }

    /// Starts to attach a detached lease: `Leased`.
    pub(crate) fn attach(&self, text: &str) -> Fallible<i64> {
        start(Attach(&self.core, text, Owner::Fresh))
    }

    /// Starts to release the locks of this client and to disconnect: `Nothing`.
    pub(crate) fn shut_down(&self) -> Fallible<i64> {
        start(Close(&self.core))
    }
}
