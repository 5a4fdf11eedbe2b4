//! A lock without a client. It belongs to the default client, which is looked up when the lock is first used.

use std::sync::OnceLock;

use crate::{
    client::Client,
    config::{Config, LockOptions, Settings, check_permits, check_slots},
    error::LockError,
    ffi::options::{Setting, whole},
    lock::Lock,
    protocol::primitive::Primitive,
};

/// Which of the locks of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The exclusive lock.
    #[default]
    Whole,
    /// The read side of a read/write lock.
    Read,
    /// The write side of a read/write lock.
    Write,
    /// `n` slots of a semaphore with `of` slots.
    Permits {
        /// The number of slots to acquire.
        n: u32,
        /// The number of slots of the semaphore.
        of: u32,
    },
}

impl Part {
    /// Slots of a semaphore, from a host's numbers. Fails with `invalid` unless both are whole numbers in their range.
    pub fn permits(n: &Setting, of: &Setting) -> Result<Self, LockError> {
        let of = whole("permits", of)?;
        check_permits(of)?;
        let n = whole("n", n)?;
        check_slots(n, of)?;
        Ok(Self::Permits { n: n as u32, of: of as u32 })
    }

    /// From its name in the packages: "read" or "write"; anything else is the exclusive lock.
    pub fn named(name: Option<&str>) -> Self {
        match name {
            Some("read") => Self::Read,
            Some("write") => Self::Write,
            _ => Self::Whole,
        }
    }
}

/// The name and the options of a lock without a client.
#[derive(Clone, Debug)]
pub struct Unbound {
    /// The name, without a client's prefix.
    pub name: String,
    /// The options of the lock.
    pub options: LockOptions,
    /// Which of the locks of that name.
    pub part: Part,
}

impl Unbound {
    /// Fails with `invalid` for what a client with the default options would refuse.
    pub fn check(&self) -> Result<(), LockError> {
        static DEFAULT: OnceLock<Settings> = OnceLock::new();
        if DEFAULT.get().is_none() {
            // Not `get_or_init`, which holds a lock during the validation: if that waits for memory and the process
            // forks, the child gets a lock that nobody opens.
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

    /// Makes the lock with this client. Fails with `invalid` for options that the client refuses.
    pub fn of(&self, client: &Client) -> Result<Lock, LockError> {
        match self.part {
            Part::Whole => client.lock(&self.name, self.options.clone()),
            Part::Read => client.part(&self.name, self.options.clone(), Primitive::Read),
            Part::Write => client.part(&self.name, self.options.clone(), Primitive::Write),
            Part::Permits { n, of } => client.semaphore(&self.name, of, self.options.clone())?.taking(n),
        }
    }
}
