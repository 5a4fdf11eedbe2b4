//! Which commands may run at once, and in which order they wait: the kind of lock that `exec` acquires.

use clap::value_parser;
use redlock::{Client, Lock, LockError, LockOptions};

/// The options that choose the kind of lock. Without one it is exclusive, and waiters have no order.
#[derive(Debug, clap::Args)]
pub(super) struct Sharing {
    /// Get the lock in the order of the waiters, not on a quorum; for locks whose users are all fair
    #[arg(long)]
    fair: bool,
    /// Hold the lock together with other --shared commands, as a reader of a read/write lock. Commands without it are
    /// kept out, and keep these out
    #[arg(long, conflicts_with_all = ["fair", "owner", "min_hold"])]
    shared: bool,
    /// Hold the lock alone, in turn with --shared commands, as the writer of a read/write lock. A command with neither
    /// option waits until no --shared command runs, however many start meanwhile
    #[arg(long, conflicts_with_all = ["shared", "fair", "owner"])]
    exclusive: bool,
    /// Let N commands run at once, as permits of a semaphore; the command finds the number of its slot in its
    /// environment
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=65_536),
        conflicts_with_all = ["shared", "exclusive", "fair", "owner", "min_hold"])]
    limit: Option<u32>,
}

impl Sharing {
    /// The lock of this kind.
    pub(super) fn lock(&self, client: &Client, name: &str, mut options: LockOptions) -> Result<Lock, LockError> {
        options.fair = self.fair;
        match self.limit {
            Some(limit) => client.semaphore(name, limit, options)?.taking(1),
            None if self.shared => Ok(client.read_write_lock(name, options)?.read().clone()),
            None if self.exclusive => Ok(client.read_write_lock(name, options)?.write().clone()),
            None => client.lock(name, options),
        }
    }
}
