//! The names of one lock on the servers.

use crate::{
    config::{Settings, TokenKey},
    protocol::primitive::Family,
};

/// The keys of one lock, and its channel. All of them are in one slot of a cluster. Each is made when it is sent: that is
/// no more than a copy would be, and most locks need few of them.
#[derive(Debug)]
pub(crate) struct Names {
    /// Who holds it.
    pub(crate) lock: String,
    /// How much of `lock` is the client's prefix.
    prefix: usize,
    token_key: TokenKey,
    family: Family,
    /// What it is called in this process, if that is not its key.
    local: Option<String>,
}

impl Names {
    /// `lock`: its key, as [`Settings::check_lock`] made it of the name.
    pub(crate) fn new(lock: String, settings: &Settings) -> Self {
        let Settings { config, .. } = settings;
        Self { lock, prefix: config.prefix.len(), token_key: config.token_key, family: Family::Lock, local: None }
    }

    /// The names of what is of this family.
    pub(crate) fn of_family(family: Family, lock: String, settings: &Settings) -> Self {
        // No name has a NUL.
        let local = match family {
            Family::Lock => None,
            Family::ReadWrite => Some([&lock, "\0read_write"].concat()),
            Family::Semaphore => Some([&lock, "\0semaphore"].concat()),
        };
        Self { family, local, ..Self::new(lock, settings) }
    }

    /// What this process calls it: locks of several kinds by one name are apart here, and excluded by the servers.
    pub(crate) fn local(&self) -> &str {
        self.local.as_ref().unwrap_or(&self.lock)
    }

    /// Without the client's prefix.
    pub(crate) fn name(&self) -> &str {
        &self.lock[self.prefix..]
    }

    /// Where its releases are announced.
    pub(crate) fn channel(&self) -> String {
        match self.family {
            Family::Lock => self.lock_channel(),
            Family::ReadWrite => self.read_write_channel(),
            Family::Semaphore => self.of("redlock_semaphore"),
        }
    }

    /// Where those of an exclusive lock by this name are.
    pub(crate) fn lock_channel(&self) -> String {
        self.of("redisson_lock__channel")
    }

    /// Where those of a read/write lock by this name are.
    pub(crate) fn read_write_channel(&self) -> String {
        self.of("redisson_rwlock")
    }

    /// Until when each reader's lease goes.
    pub(crate) fn readers(&self) -> String {
        self.of("redlock_readers")
    }

    /// The writers that wait.
    pub(crate) fn writing(&self) -> String {
        self.of("redlock_wqueue")
    }

    /// The readers that wait.
    pub(crate) fn reading(&self) -> String {
        self.of("redlock_rqueue")
    }

    /// What the keys begin with that say that a reader's lease goes on, as Redisson calls them.
    pub(crate) fn notes(&self) -> String {
        let lock = self.lock.as_str();
        if lock.contains('{') { lock.to_owned() } else { ["{", lock, "}"].concat() }
    }

    /// The slots of each permit of a semaphore.
    pub(crate) fn slots(&self) -> String {
        self.of("redlock_slots")
    }

    /// The slots of a semaphore that are taken.
    pub(crate) fn taken(&self) -> String {
        self.of("redlock_taken")
    }

    /// The last fencing token of each slot of a semaphore.
    pub(crate) fn slot_tokens(&self) -> String {
        self.of("redlock_slot_tokens")
    }

    /// The last fencing token.
    pub(crate) fn counter(&self) -> String {
        self.of(match self.token_key {
            TokenKey::Redlock => "redlock_token",
            TokenKey::Redisson => "redisson_lock_token",
        })
    }

    /// Tenures that were ended on purpose.
    pub(crate) fn ended(&self) -> String {
        self.of("redlock_ended")
    }

    /// Who waits for it, where those are served in their order.
    pub(crate) fn queue(&self) -> String {
        self.of("redlock_queue")
    }

    /// Until when the waiters of each client count.
    pub(crate) fn alive(&self) -> String {
        self.of("redlock_alive")
    }

    /// Where clients are told that their first waiter should look, each behind a colon and its name.
    pub(crate) fn wake(&self) -> String {
        self.of("redlock_wake")
    }

    /// How long it is held on average.
    pub(crate) fn average(&self) -> String {
        self.of("redlock_hold")
    }

    /// Redisson's rule: braces are added only to a name that has none, so that all keys share a cluster slot.
    fn of(&self, kind: &str) -> String {
        let lock = self.lock.as_str();
        if lock.contains('{') { [kind, ":", lock].concat() } else { [kind, ":{", lock, "}"].concat() }
    }
}
