//! A lock whose client is not known yet: that of a default client, which is looked for when the lock is first used.

use std::sync::OnceLock;

use crate::{
    client::Client,
    config::{Config, LockOptions, Settings, check_slots},
    error::LockError,
    ffi::options::{Setting, count},
    lock::Lock,
    protocol::primitive::Primitive,
};

/// Which lock of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The exclusive lock.
    #[default]
    Whole,
    /// What readers take of a read/write lock.
    Read,
    /// What a writer takes of a read/write lock.
    Write,
    /// So many slots of a semaphore that has `of`.
    Permits {
        /// How many.
        n: u32,
        /// Of how many.
        of: u32,
    },
}

impl Part {
    /// So many slots of a semaphore, as a host gives both numbers. Fails with `invalid` for what is no whole number.
    pub fn permits(n: &Setting, of: &Setting) -> Result<Self, LockError> {
        Ok(Self::Permits { n: count("n", n)?, of: count("permits", of)? })
    }

    /// As packages call it: "read", "write", or nothing.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("read") => Self::Read,
            Some("write") => Self::Write,
            _ => Self::Whole,
        }
    }
}

/// A name and options, for a client to come.
#[derive(Clone, Debug)]
pub struct Unbound {
    /// The name, without a client's prefix.
    pub name: String,
    /// How it is taken.
    pub options: LockOptions,
    /// Which lock of that name.
    pub part: Part,
}

impl Unbound {
    /// Fails with `invalid` for what a client with the default options would refuse.
    pub fn check(&self) -> Result<(), LockError> {
        static DEFAULT: OnceLock<Settings> = OnceLock::new();
        if DEFAULT.get().is_none() {
            // Not `get_or_init`: a fork must not catch it while it waits for memory.
            let _ = DEFAULT.set(Config::new(["memory://"]).validate()?);
        }
        let checked = |settings: &Settings| match self.part {
            Part::Whole => settings.check_lock(&self.name, &self.options).map(drop),
            Part::Read | Part::Write => settings.check_read_write(&self.name, &self.options).map(drop),
            Part::Permits { n, of } => {
                settings.check_semaphore(&self.name, of, &self.options)?;
                check_slots(n, of)
            }
        };
        DEFAULT.get().map_or(Ok(()), checked)
    }

    /// The lock of this client; fails with `invalid` for what this client refuses.
    pub fn of(&self, client: &Client) -> Result<Lock, LockError> {
        match self.part {
            Part::Whole => client.lock(&self.name, self.options.clone()),
            Part::Read => client.part(&self.name, self.options.clone(), Primitive::Read),
            Part::Write => client.part(&self.name, self.options.clone(), Primitive::Write),
            Part::Permits { n, of } => client.semaphore(&self.name, of, self.options.clone())?.taking(n),
        }
    }
}
