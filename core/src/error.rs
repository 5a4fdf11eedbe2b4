//! Errors, as coarse as callers can act on them. An error's `code` is a contract across languages; its text is for
//! people and may change.

use std::time::Duration;

/// Every error of this crate. Each variant needs a different reaction of the caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner held the lock until the wait was over: try later.
    #[error("lock {name:?} is held by somebody else; gave up after {waited:.1?}")]
    Timeout {
        /// The lock, without the client's prefix.
        name: String,
        /// How long this call waited.
        waited: Duration,
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
    /// Fewer nodes answered than must agree: an outage, not contention.
    #[error("needs {needed} of {nodes} nodes, {}", list(causes))]
    Unavailable {
        /// How many nodes must agree.
        needed: usize,
        /// How many nodes there are.
        nodes: usize,
        /// For each node that failed or did not answer, the cause.
        causes: Vec<NodeCause>,
    },
    /// The key holds data that is not a lock. The data was not changed.
    #[error("key {key:?} holds something that is no lock; it was left untouched")]
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

    /// The code of this error, the same in every language.
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

fn list(causes: &[NodeCause]) -> String {
    if causes.is_empty() {
        return "which did not answer".to_owned();
    }
    let each: Vec<_> = causes.iter().map(|c| format!("{}: {}", c.node, c.cause)).collect();
    each.join("; ")
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
    /// The reason, spelled the same in every language.
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
