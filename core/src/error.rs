//! Errors, as coarse as callers can act on them. An error's `code` is a contract across languages; its text is for
//! people and may change.

use std::{fmt, time::Duration};

/// Every error of this crate. Each variant needs a different reaction of the caller.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use std::time::Duration;
///
/// use redlock::{Client, Config, LockError, LockOptions};
///
/// let client = Client::new(Config::new(["memory://errors"]))?;
/// let lease = client.lock("report", LockOptions::default())?.acquire_blocking()?;
///
/// let mut options = LockOptions::default();
/// options.wait = Some(Duration::from_millis(100));
/// match client.lock("report", options)?.acquire_blocking() {
///     Err(error @ LockError::Timeout { .. }) => assert_eq!(error.code(), "timeout"),
///     Err(error) => return Err(error), // an outage, or a bug
///     Ok(_) => unreachable!("it is held"),
/// }
/// # drop(lease);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner held the lock until the wait was over: try later.
    #[error("lock {name:?} is held by {}; gave up after {waited:.1?}", shown(holder.as_deref(), *rests_for))]
    Timeout {
        /// The lock, without the client's prefix.
        name: String,
        /// How long this call waited.
        waited: Duration,
        /// The process that held it then; `None` if it is not known, and for a try.
        holder: Option<Box<Holder>>,
        /// How much longer the last holder's `min_hold` lasts, if nobody holds the lock; `None` for a try.
        rests_for: Option<Duration>,
    },
    /// The lock was lost: stop using the resource that it protects.
    #[error("lock {name:?} was lost: {reason}")]
    Lost {
        /// The lock, without the client's prefix.
        name: String,
        /// Why it was lost.
        reason: LostReason,
    },
    /// The caller releases or extends a lock that it does not hold: a bug of the caller.
    #[error("lock {name:?} is not held: {detail}")]
    NotHeld {
        /// The lock, without the client's prefix.
        name: String,
        /// What the caller did.
        detail: String,
    },
    /// Fewer nodes answered than must agree: an outage, not contention. A try fails with it at once, a waiting acquire
    /// after the client's [`patience`](crate::Config::patience), or after its own `wait` if that is shorter.
    #[error("{}", outage(*needed, *nodes, causes))]
    Unavailable {
        /// How many nodes must agree.
        needed: usize,
        /// How many nodes there are.
        nodes: usize,
        /// For each node that failed or did not answer, the cause.
        causes: Vec<NodeCause>,
    },
    /// The key holds data that is not a lock. The data was not changed.
    #[error("key {key:?} holds something that is no lock of this kind; it was left untouched")]
    Conflict {
        /// The key, with the client's prefix.
        key: String,
    },
    /// The acquire would wait for its own caller, and so for ever.
    #[error("waiting for lock {name:?} would never end: {detail}")]
    Deadlock {
        /// The lock, without the client's prefix.
        name: String,
        /// Who waits for whom.
        detail: String,
    },
    /// An argument is invalid. No request was sent.
    #[error("{argument}: {detail}")]
    Invalid {
        /// The argument's name.
        argument: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

impl LockError {
    /// The error, in the child of a fork, of a call that was under way in the parent.
    pub(crate) fn forked(name: &str) -> Self {
        Self::Lost { name: name.to_owned(), reason: LostReason::Forked }
    }

    /// The code of this error, the same in every language: `timeout`, `lost`, `not_held`, `unavailable`, `conflict`,
    /// `deadlock`, `invalid` or `closed`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Lost { .. } => "lost",
            Self::NotHeld { .. } => "not_held",
            Self::Unavailable { .. } => "unavailable",
            Self::Conflict { .. } => "conflict",
            Self::Deadlock { .. } => "deadlock",
            Self::Invalid { .. } => "invalid",
            Self::Closed => "closed",
        }
    }

    pub(crate) fn invalid(argument: &'static str, detail: impl Into<String>) -> Self {
        Self::Invalid { argument, detail: detail.into() }
    }
}

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The name of its machine.
    pub host: String,
    /// Its number on that machine.
    pub pid: u32,
    /// The name of its program.
    pub app: String,
    /// For how long it holds the lock; `None` if it is not known.
    pub held_for: Option<Duration>,
    /// How many other owners hold the lock with it: readers, or holders of permits.
    pub others: usize,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, pid, app, held_for, others } = self;
        write!(f, "pid {pid} ({app}) on {host}")?;
        if let Some(time) = held_for {
            write!(f, " for {}", rounded(*time))?;
        }
        match others {
            0 => Ok(()),
            1 => write!(f, " and 1 other"),
            others => write!(f, " and {others} others"),
        }
    }
}

fn shown(holder: Option<&Holder>, rests_for: Option<Duration>) -> String {
    match (holder, rests_for) {
        (Some(holder), _) => holder.to_string(),
        (None, Some(time)) => format!("nobody, but its min_hold lasts for another {}", rounded(time)),
        (None, None) => "somebody else".to_owned(),
    }
}

/// A time with its two largest units: `2.5s`, `2m13s`, `1h05m`, `3d02h`.
#[doc(hidden)]
pub fn rounded(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, 0..10) => format!("{:.1}s", time.as_secs_f64()),
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m{seconds:02}s"),
        (0, hours, minutes, _) => format!("{hours}h{minutes:02}m"),
        (days, hours, ..) => format!("{days}d{hours:02}h"),
    }
}

/// The error of one node, or why it did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCause {
    /// The node's address, without credentials.
    pub node: String,
    /// The cause, for people.
    pub cause: String,
    /// Whether the node refused the user, the password or a right: waiting does not help.
    pub forbidden: bool,
}

/// What failed. A client of one node has no quorum to speak of.
fn outage(needed: usize, nodes: usize, causes: &[NodeCause]) -> String {
    match (nodes, causes) {
        (_, []) => format!("needs {needed} of {nodes} nodes, which did not answer"),
        (1, [only]) => format!("cannot use {}: {}", only.node, only.cause),
        _ => {
            let each: Vec<_> = causes.iter().map(|c| format!("{}: {}", c.node, c.cause)).collect();
            format!("needs {needed} of {nodes} nodes, {}", each.join("; "))
        }
    }
}

/// Why a lock was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The deadline passed. A fixed lease ends so by itself, a renewed one only if its process was paused for too long.
    Expired,
    /// Another owner holds the key.
    Taken,
    /// It was ended on purpose: by `force_release`, or by a release of the same explicit owner elsewhere.
    Released,
    /// The key is gone: it was deleted, evicted, flushed or lost in a restart.
    Deleted,
    /// Too few nodes answered before the deadline.
    Unreachable,
    /// The client was closed.
    Closed,
    /// The process forked; the parent still holds the lock.
    Forked,
    /// The lock was held for longer than `max_hold`.
    MaxHold,
}

impl LostReason {
    /// The reason, spelled the same in every language: `expired`, `taken`, `released`, `deleted`, `unreachable`,
    /// `closed`, `forked` or `max_hold`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Taken => "taken",
            Self::Released => "released",
            Self::Deleted => "deleted",
            Self::Unreachable => "unreachable",
            Self::Closed => "closed",
            Self::Forked => "forked",
            Self::MaxHold => "max_hold",
        }
    }
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_out_says_who_holds_the_lock() {
        let message = |held_for, others| {
            let holder = Holder { host: "web-3".into(), pid: 812, app: "billing".into(), held_for, others };
            let (name, waited) = ("report".to_owned(), Duration::from_secs(2));
            LockError::Timeout { name, waited, holder: Some(Box::new(holder)), rests_for: None }.to_string()
        };
        let seconds = |seconds: u64| Some(Duration::from_millis(seconds * 1000 + 460));
        for (held_for, others, shown) in [
            (None, 0, ""),
            (seconds(3), 0, " for 3.5s"),
            (seconds(59), 0, " for 59s"),
            (seconds(133), 0, " for 2m13s"),
            (seconds(3_600), 0, " for 1h00m"),
            (seconds(200_000), 1, " for 2d07h and 1 other"),
            (None, 2, " and 2 others"),
        ] {
            let expected = format!("lock \"report\" is held by pid 812 (billing) on web-3{shown}; gave up after 2.0s");
            assert_eq!(message(held_for, others), expected);
        }
    }

    #[test]
    fn an_outage_of_the_only_node_speaks_of_no_quorum() {
        let message = |needed, nodes, causes: &[&str]| {
            let cause = |node: &&str| NodeCause {
                node: (*node).to_owned(),
                cause: "connection refused".to_owned(),
                forbidden: false,
            };
            LockError::Unavailable { needed, nodes, causes: causes.iter().map(cause).collect() }.to_string()
        };
        assert_eq!(message(1, 1, &["a:6379"]), "cannot use a:6379: connection refused");
        assert_eq!(message(1, 1, &[]), "needs 1 of 1 nodes, which did not answer");
        let two = "needs 2 of 3 nodes, a:6379: connection refused; b:6379: connection refused";
        assert_eq!(message(2, 3, &["a:6379", "b:6379"]), two);
        assert_eq!(message(2, 3, &["a:6379"]), "needs 2 of 3 nodes, a:6379: connection refused");
    }
}
