//! What happens inside a client, for logs and metrics. One enum, one sink; the default sink is `tracing`.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crate::error::LostReason;

/// Something that happened. Its `Display` is a line for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields say what they are: the lock's name without prefix, its token, times")]
pub enum Event {
    /// A lock was taken.
    Acquired { name: String, token: u64, waited: Duration },
    /// A lock was released, or was found to be lost when it was.
    Released { name: String, token: u64, held: Duration },
    /// Two thirds of the ttl passed without a successful renewal: a good moment to save work.
    AtRisk { name: String, token: u64, left: Duration },
    /// A lock was lost. Reported once per tenure.
    Lost { name: String, token: u64, reason: LostReason },
    /// Nothing refers to a held lock any more: it is no longer renewed and ends with its ttl.
    Orphaned { name: String, token: u64 },
    /// A node stopped answering.
    NodeDown { node: String, cause: String },
    /// A node answers again.
    NodeUp { node: String },
    /// Something about a node weakens the lock or makes it slow, and waiting will not mend it.
    NodeWarning { node: String, detail: String },
    /// Events were dropped, because 10 000 waited for the process to fetch them. Only the queues of Python, Node and the JVM
    /// report it; an [`EventSink`] gets every event.
    EventsDropped { count: u64 },
}

impl Event {
    /// What kind it is, as all languages spell it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Acquired { .. } => "acquired",
            Self::Released { .. } => "released",
            Self::AtRisk { .. } => "at_risk",
            Self::Lost { .. } => "lost",
            Self::Orphaned { .. } => "orphaned",
            Self::NodeDown { .. } => "node_down",
            Self::NodeUp { .. } => "node_up",
            Self::NodeWarning { .. } => "node_warning",
            Self::EventsDropped { .. } => "events_dropped",
        }
    }

    /// The lock it is about, and its token; nothing for any other event.
    pub fn lock(&self) -> Option<(&str, u64)> {
        match self {
            Self::Acquired { name, token, .. }
            | Self::Released { name, token, .. }
            | Self::AtRisk { name, token, .. }
            | Self::Lost { name, token, .. }
            | Self::Orphaned { name, token } => Some((name, *token)),
            Self::NodeDown { .. } | Self::NodeUp { .. } | Self::NodeWarning { .. } | Self::EventsDropped { .. } => None,
        }
    }

    /// The node it is about; nothing for any other event.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::NodeDown { node, .. } | Self::NodeUp { node } | Self::NodeWarning { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Why a lock was lost; only of that event.
    pub fn reason(&self) -> Option<LostReason> {
        match self {
            Self::Lost { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// How many events were dropped; only of that event.
    pub fn count(&self) -> Option<u64> {
        match self {
            Self::EventsDropped { count } => Some(*count),
            _ => None,
        }
    }

    /// Whether an operator should see it.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Acquired { .. } | Self::Released { .. } | Self::NodeUp { .. } => false,
            // Whoever closed the client knows.
            Self::Lost { reason, .. } => *reason != LostReason::Closed,
            _ => true,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquired { name, token, waited } => {
                write!(f, "lock {name:?} acquired with token {token} after {waited:.1?}")
            }
            Self::Released { name, token, held } => {
                write!(f, "lock {name:?} with token {token} released after {held:.1?}")
            }
            Self::AtRisk { name, token, left } => {
                write!(f, "lock {name:?} with token {token} could not be renewed and is lost in {left:.1?}")
            }
            Self::Lost { name, token, reason } => {
                write!(f, "lock {name:?} with token {token} was lost: {reason}")
            }
            Self::Orphaned { name, token } => write!(
                f,
                "lock {name:?} with token {token} was never released and nothing refers to it any more; it ends with \
                 its ttl"
            ),
            Self::NodeDown { node, cause } => write!(f, "node {node} does not answer: {cause}"),
            Self::NodeUp { node } => write!(f, "node {node} answers again"),
            Self::NodeWarning { node, detail } => write!(f, "node {node}: {detail}"),
            Self::EventsDropped { count } => {
                write!(f, "{count} events were dropped: the process did not fetch them in time")
            }
        }
    }
}

/// Where events go. Called on the library's own threads, and on those that call it, never under one of its locks: what
/// it asks of a lock is answered. It must return at once, since leases are kept alive by the thread that it runs on. A
/// panic in it is reported as any other, and ends nothing.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;

/// A sink whose panics end nothing here.
pub(crate) fn contained(sink: EventSink) -> EventSink {
    // What the panic left half done is the sink's own.
    Arc::new(move |event| drop(catch_unwind(AssertUnwindSafe(|| sink(event)))))
}

/// The default sink: `tracing`, warnings as `WARN`, the rest as `DEBUG`.
pub fn trace() -> EventSink {
    Arc::new(|event| {
        if event.is_warning() {
            tracing::warn!(target: "redlock", "{event}");
        } else {
            tracing::debug!(target: "redlock", "{event}");
        }
    })
}
