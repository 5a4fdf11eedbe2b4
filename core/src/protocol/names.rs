//! The names of one lock on the servers.

use crate::{
    config::{Settings, TokenKey},
    protocol::primitive::Family,
};

/// The kinds of channels on which clients wait: for exclusive locks, read/write locks, semaphores, and a place in a
/// queue.
const WAITING: [&str; 4] = ["redisson_lock__channel", "redisson_rwlock", "redlock_semaphore", WAKE];
/// The kind of channel on which a client is notified alone.
const WAKE: &str = "redlock_wake";

/// The keys and the channels of one lock. On a cluster all of them are in one slot. Each name is built when it is sent:
/// that costs no more than a copy, and most locks need few of them.
#[derive(Debug)]
pub(crate) struct Names {
    /// The lock key, which has the tenures.
    pub(crate) lock: String,
    /// The length of the client's prefix in `lock`.
    prefix: usize,
    token_key: TokenKey,
    family: Family,
    /// Its name in this process, if that is not its key.
    local: Option<String>,
}

impl Names {
    /// `lock`: the lock key, as [`Settings::check_lock`] returns it.
    pub(crate) fn new(lock: String, settings: &Settings) -> Self {
        let Settings { config, .. } = settings;
        Self { lock, prefix: config.prefix.len(), token_key: config.token_key, family: Family::Lock, local: None }
    }

    /// The names of a lock of this family.
    pub(crate) fn of_family(family: Family, lock: String, settings: &Settings) -> Self {
        // No lock's name contains a NUL, so these are unique.
        let local = match family {
            Family::Lock => None,
            Family::ReadWrite => Some([&lock, "\0read_write"].concat()),
            Family::Semaphore => Some([&lock, "\0semaphore"].concat()),
        };
        Self { family, local, ..Self::new(lock, settings) }
    }

    /// Its name in this process. Locks of different kinds with the same name are separate here; the servers allow only
    /// one of them at a time.
    pub(crate) fn local(&self) -> &str {
        self.local.as_ref().unwrap_or(&self.lock)
    }

    /// The lock's name, without the client's prefix.
    pub(crate) fn name(&self) -> &str {
        &self.lock[self.prefix..]
    }

    /// The channel of its releases.
    pub(crate) fn channel(&self) -> String {
        match self.family {
            Family::Lock => self.lock_channel(),
            Family::ReadWrite => self.read_write_channel(),
            Family::Semaphore => self.of(WAITING[2]),
        }
    }

    /// The channel for the releases of an exclusive lock with this name.
    pub(crate) fn lock_channel(&self) -> String {
        self.of(WAITING[0])
    }

    /// The channel for the releases of a read/write lock with this name.
    pub(crate) fn read_write_channel(&self) -> String {
        self.of(WAITING[1])
    }

    /// Patterns of all channels on which clients wait for locks.
    pub(crate) fn release_channels() -> Vec<String> {
        WAITING.iter().map(|kind| format!("{kind}:*")).collect()
    }

    /// Patterns of the channels on which clients wait for this lock.
    pub(crate) fn channels_of_waiters(&self) -> Vec<String> {
        let of = |kind: &&str| escaped(&self.of(kind)) + if *kind == WAKE { ":*" } else { "" };
        WAITING.iter().map(of).collect()
    }

    /// The key of the lock whose waiters listen on a channel, and whether the channel is for one client alone.
    pub(crate) fn lock_of_channel(channel: &str) -> Option<(&str, bool)> {
        let (kind, rest) = channel.split_once(':').filter(|(kind, _)| WAITING.contains(kind))?;
        // The client's UUID follows.
        let rest = if kind == WAKE { rest.rsplit_once(':')?.0 } else { rest };
        let inside = rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        // Braces within it are the name's own.
        let lock = inside.filter(|inside| !inside.contains(['{', '}'])).unwrap_or(rest);
        Some((lock, kind == WAKE))
    }

    /// The key for the end of each reader's lease.
    pub(crate) fn readers(&self) -> String {
        self.of("redlock_readers")
    }

    /// The queue of the writers.
    pub(crate) fn writers_queue(&self) -> String {
        self.of("redlock_wqueue")
    }

    /// The queue of the readers.
    pub(crate) fn readers_queue(&self) -> String {
        self.of("redlock_rqueue")
    }

    /// The prefix of Redisson's keys for readers: each exists for as long as its reader's lease.
    pub(crate) fn reader_key_prefix(&self) -> String {
        let lock = self.lock.as_str();
        if lock.contains('{') { lock.to_owned() } else { ["{", lock, "}"].concat() }
    }

    /// The key for the slots of each permit of a semaphore.
    pub(crate) fn slots(&self) -> String {
        self.of("redlock_slots")
    }

    /// The key for the slots of a semaphore that are taken.
    pub(crate) fn taken(&self) -> String {
        self.of("redlock_taken")
    }

    /// The key for the last fencing token of each slot of a semaphore.
    pub(crate) fn slot_tokens(&self) -> String {
        self.of("redlock_slot_tokens")
    }

    /// The key for the last fencing token.
    pub(crate) fn counter(&self) -> String {
        self.of(match self.token_key {
            TokenKey::Redlock => "redlock_token",
            TokenKey::Redisson => "redisson_lock_token",
        })
    }

    /// The key for tenures that were ended on purpose.
    pub(crate) fn ended(&self) -> String {
        self.of("redlock_ended")
    }

    /// The queue of the waiters of a fair lock or a semaphore.
    pub(crate) fn queue(&self) -> String {
        self.of("redlock_queue")
    }

    /// The key for the time until which the places of each client count.
    pub(crate) fn alive(&self) -> String {
        self.of("redlock_alive")
    }

    /// The beginning of the wake channels, on which a client is notified that its first waiter should try. A colon and
    /// the client's UUID follow.
    pub(crate) fn wake(&self) -> String {
        self.of(WAKE)
    }

    /// The key for the average hold.
    pub(crate) fn average(&self) -> String {
        self.of("redlock_hold")
    }

    /// Redisson's rule: braces are added only to a name that has none, so that all keys share a cluster slot.
    fn of(&self, kind: &str) -> String {
        let lock = self.lock.as_str();
        if lock.contains('{') { [kind, ":", lock].concat() } else { [kind, ":{", lock, "}"].concat() }
    }
}

/// A pattern that matches this text alone.
pub(crate) fn escaped(text: &str) -> String {
    let special = |character: char| matches!(character, '*' | '?' | '[' | ']' | '\\' | '^' | '-');
    text.chars().flat_map(|character| special(character).then_some('\\').into_iter().chain([character])).collect()
}
