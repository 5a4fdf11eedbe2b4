//! What can go wrong, as coarse as callers can act on it. The `code` of an error is the contract across languages;
//! its text is for people and may change.

use std::time::Duration;

/// Every failure of this crate. Each variant tells what the caller should do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Somebody else holds the lock: try later.
    #[error("lock {name:?} is held by somebody else; gave up after {waited:.1?}")]
    Timeout {
        /// The lock, without the client's prefix.
        name: String,
        /// How long this call waited.
        waited: Duration,
    },
    /// The lock was lost: stop touching what it protects.
    #[error("lock {name:?} was lost: {reason}")]
    Lost {
        /// The lock, without the client's prefix.
        name: String,
        /// Why it was lost.
        reason: LostReason,
    },
    /// The caller releases or extends what it does not hold: a bug of the caller.
    #[error("lock {name:?} is not held: {detail}")]
    NotHeld {
        /// The lock, without the client's prefix.
        name: String,
        /// What the caller did.
        detail: String,
    },
    /// Too few nodes answered: an outage, not contention.
    #[error("needs {needed} of {nodes} nodes, {}", list(causes))]
    Unavailable {
        /// How many nodes must agree.
        needed: usize,
        /// How many nodes there are.
        nodes: usize,
        /// What each node that did not help said.
        causes: Vec<NodeCause>,
    },
    /// The key holds something that is no lock; it was left untouched.
    #[error("key {key:?} holds something that is no lock; it was left untouched")]
    Conflict {
        /// The key, with the client's prefix.
        key: String,
    },
    /// Waiting would wait for the caller itself.
    #[error("waiting for lock {name:?} would never end: {detail}")]
    Deadlock {
        /// The lock, without the client's prefix.
        name: String,
        /// Who waits for whom.
        detail: String,
    },
    /// An argument is wrong; nothing was sent.
    #[error("{argument}: {detail}")]
    Invalid {
        /// The argument.
        argument: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// The client was closed.
    #[error("the client was closed")]
    Closed,
}

impl LockError {
    /// What is told of a lock in a child of a fork, to who waited for it in the parent.
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

/// What one node said, or why it said nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeCause {
    /// The node's address, without credentials.
    pub node: String,
    /// The cause.
    pub cause: String,
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
    /// The lease ended: a fixed one by itself, a renewed one because its process was stopped for too long.
    Expired,
    /// Somebody else holds the key.
    Taken,
    /// Ended on purpose: `force_release`, or a release by the same explicit owner elsewhere.
    Released,
    /// The key is gone: deleted, evicted, flushed or lost in a restart.
    Deleted,
    /// Too few nodes answered until the deadline.
    Unreachable,
    /// The client was closed.
    Closed,
    /// The process forked; the parent still holds the lock.
    Forked,
    /// Held for longer than `max_hold`.
    MaxHold,
}

impl LostReason {
    /// The reason as all languages spell it.
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
