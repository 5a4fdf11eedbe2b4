//! A lock whose client is not known yet: that of a default client, which is looked for when the lock is first used.

use std::sync::OnceLock;

use crate::{
    client::Client,
    config::{Config, LockOptions, Settings},
    error::LockError,
    lock::Lock,
};

/// A name and options, for a client to come.
#[derive(Clone, Debug)]
pub struct Unbound {
    /// The name, without a client's prefix.
    pub name: String,
    /// How it is taken.
    pub options: LockOptions,
}

impl Unbound {
    /// Fails with `invalid` for what a client with the default options would refuse.
    pub fn check(&self) -> Result<(), LockError> {
        static DEFAULT: OnceLock<Settings> = OnceLock::new();
        if DEFAULT.get().is_none() {
            // Not `get_or_init`: a fork must not catch it while it waits for memory.
            let _ = DEFAULT.set(Config::new(["memory://"]).validate()?);
        }
        DEFAULT.get().map_or(Ok(()), |settings| settings.check_lock(&self.name, &self.options).map(drop))
    }

    /// The lock of this client; fails with `invalid` for what this client refuses.
    pub fn of(&self, client: &Client) -> Result<Lock, LockError> {
        client.lock(&self.name, self.options.clone())
    }
}
