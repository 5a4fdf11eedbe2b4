//! The events of a client, for logs and metrics. All of them go to one sink, by default `tracing`.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use crate::error::LostReason;

/// An event of a lock, a node or the client's event queue. `Display` gives one line for people.
/// [`Client::with_events`](crate::Client::with_events) has an example.
///
/// `name` is the lock's name without the client's prefix, `token` its fencing token, and `node` the node's address
/// without credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the comments above and of the variants say what the fields are")]
pub enum Event {
    /// A lock was acquired, `waited` after the call.
    Acquired { name: String, token: u64, waited: Duration },
    /// A lock was released; also if the release found that it had been lost, after the event for that. `held` is the time
    /// since the acquire.
    Released { name: String, token: u64, held: Duration },
    /// Two thirds of the ttl passed without a successful renewal, and `left` is the time until the loss: a good moment
    /// to save work.
    AtRisk { name: String, token: u64, left: Duration },
    /// A lock was lost. Reported once per tenure.
    Lost { name: String, token: u64, reason: LostReason },
    /// Neither a lease nor a lock object refers to a held lock any more. It is not renewed, and ends by its ttl.
    Orphaned { name: String, token: u64 },
    /// A node stopped answering. `cause` is for people.
    NodeDown { node: String, cause: String },
    /// A node answers again.
    NodeUp { node: String },
    /// The state of a node weakens the lock or makes it slow, and does not improve by itself. `detail` is for people.
    NodeWarning { node: String, detail: String },
    /// Events were dropped, because 10 000 others waited for the process to fetch them. Only the queues of Python, Node
    /// and the JVM report it; an [`EventSink`] gets every event.
    EventsDropped { count: u64 },
}

impl Event {
    /// The kind of the event, spelled the same in every language: `acquired`, `released`, `at_risk`, `lost`,
    /// `orphaned`, `node_down`, `node_up`, `node_warning` or `events_dropped`.
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

    /// The name and the token of the lock; `None` if the event is not about a lock.
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

    /// The address of the node; `None` if the event is not about a node.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::NodeDown { node, .. } | Self::NodeUp { node } | Self::NodeWarning { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Why the lock was lost; `None` for every event but [`Event::Lost`].
    pub fn reason(&self) -> Option<LostReason> {
        match self {
            Self::Lost { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// How many events were dropped; `None` for every event but [`Event::EventsDropped`].
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
            // The caller that closed the client expects this loss.
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

/// A function that receives events. It must return at once: the thread that it runs on renews leases. The library calls
/// it on its own threads and on those of its callers. It may call methods of a lock, since the library holds none of
/// its mutexes meanwhile. A panic in it is reported like any other panic, and ends nothing.
pub type EventSink = Arc<dyn Fn(&Event) + Send + Sync>;

/// Wraps a sink so that its panics end nothing in the library.
pub(crate) fn contained(sink: EventSink) -> EventSink {
    // A panic can leave only the sink's own state half-changed, so asserting unwind safety is sound.
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
