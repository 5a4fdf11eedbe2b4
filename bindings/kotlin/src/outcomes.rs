//! Fetches the results of calls and converts them for Kotlin.

use std::sync::Arc;

use redlock::ffi::{self, NodeStatus, Value};

use crate::{
    calls::calls,
    lease::Lease,
    values::{Failure, Fallible, IDIOM},
};

/// A call that ended.
#[derive(uniffi::Record)]
pub(crate) struct Ended {
    /// The call.
    call: i64,
    /// The call's result. A lease in it is an uncollected grant until its waiter calls `take`.
    outcome: Outcome,
}

/// Blocks until at least one call has ended and returns the ended calls. One dedicated thread calls this.
#[uniffi::export]
pub(crate) fn fetch() -> Fallible<Vec<Ended>> {
    let ended = calls().fetch()?;
    Ok(ended.into_iter().map(|(id, outcome)| Ended { call: id.cast_signed(), outcome: outcome.into() }).collect())
}

/// Returns the result of a call with a negative number, which ended when it started. `None` if its lease was given back
/// before this: the call continues under the positive number.
#[uniffi::export]
pub(crate) fn end_of(call: i64) -> Option<Outcome> {
    calls().end_of(call).map(Outcome::from)
}

/// The status of one node.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Node {
    /// The node's address.
    address: String,
    /// The server's run id, new after each restart.
    run: Option<String>,
    /// The version of the server.
    version: Option<String>,
    /// Why it does not answer; `None` if it does.
    cause: Option<String>,
}

impl From<NodeStatus> for Node {
    fn from(NodeStatus { node, run, version, cause, .. }: NodeStatus) -> Self {
        Self { address: node, run, version, cause }
    }
}

/// The holder of a lock.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Holder {
    /// The kind of hold: `lock`, `read`, `write` or `semaphore`.
    kind: String,
    /// The explicit owner, or `uuid:tenure`.
    owner: String,
    /// All owners: several if they read or hold permits of a semaphore.
    owners: Vec<String>,
    /// The time until the key expires, in milliseconds; `None` if it has no expiry.
    ttl: Option<f64>,
    /// The last fencing token.
    token: i64,
    /// The name of the first holder's machine, if it is known.
    host: Option<String>,
    /// The number of its process.
    pid: Option<u32>,
    /// The name of its program.
    app: Option<String>,
    /// Since when it holds the lock, in microseconds since the epoch.
    since: Option<i64>,
}

/// An event of a client.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Happening {
    /// Whether it is logged as a warning.
    warning: bool,
    /// The log line.
    line: String,
}

/// The result of a call.
#[derive(uniffi::Enum)]
pub(crate) enum Outcome {
    /// It failed.
    Failed {
        /// The error.
        failure: Failure,
    },
    /// Success without a value.
    Nothing,
    /// A truth value.
    Flag {
        /// The truth value.
        value: bool,
    },
    /// A number.
    Count {
        /// The number.
        value: u32,
    },
    /// A lease.
    Leased {
        /// The lease.
        lease: Arc<Lease>,
        /// The lock's name.
        name: String,
        /// The explicit owner, or `uuid:tenure`.
        owner: String,
        /// The slots of the semaphore that it holds; empty for a lock.
        slots: Vec<i32>,
        /// The fencing tokens of `slots`, in their order.
        tokens: Vec<i64>,
    },
    /// A release ended.
    Released {
        /// `released`, `lost` or `unconfirmed`.
        outcome: String,
    },
    /// The holder of a lock.
    Info {
        /// The holder; `None` if the lock is free.
        holder: Option<Holder>,
    },
    /// The status of each node.
    Nodes {
        /// One entry for each node.
        nodes: Vec<Node>,
    },
    /// A lease ended.
    Lost {
        /// Why it was lost; `None` if it was released or detached.
        reason: Option<String>,
    },
    /// Events of the clients of this process.
    Events {
        /// Oldest first.
        events: Vec<Happening>,
    },
}

impl From<ffi::Outcome> for Outcome {
    fn from(outcome: ffi::Outcome) -> Self {
        match outcome {
            Err(error) => Self::Failed { failure: error.into() },
            Ok(Value::Nothing) => Self::Nothing,
            Ok(Value::Flag(value)) => Self::Flag { value },
            Ok(Value::Count(value)) => Self::Count { value },
            Ok(Value::Lease(lease)) => Self::Leased {
                name: lease.name().to_owned(),
                owner: lease.owner().to_owned(),
                slots: lease.slots().iter().map(|slot| slot.number.cast_signed()).collect(),
                tokens: lease.slots().iter().map(|slot| slot.token.cast_signed()).collect(),
                lease: Arc::new(Lease::from(lease)),
            },
            Ok(Value::Released(how)) => Self::Released { outcome: how.to_owned() },
            Ok(Value::Info(info)) => Self::Info { holder: info.map(|info| Holder::from(*info)) },
            Ok(Value::Nodes(nodes)) => Self::Nodes { nodes: nodes.into_iter().map(Node::from).collect() },
            Ok(Value::Lost(reason)) => Self::Lost { reason: reason.map(str::to_owned) },
            Ok(Value::Events(events)) => Self::Events {
                events: events
                    .iter()
                    .map(|event| Happening { warning: event.is_warning(), line: event.to_string() })
                    .collect(),
            },
        }
    }
}

impl From<redlock::LockInfo> for Holder {
    fn from(info: redlock::LockInfo) -> Self {
        let ttl = info.ttl.map(|ttl| IDIOM.number(ttl));
        let kind = info.kind.as_str().to_owned();
        let (since, token) = (info.since_micros(), info.token.cast_signed());
        let redlock::LockInfo { owner, owners, host, pid, app, .. } = info;
        Self { kind, owner, owners, ttl, token, host, pid, app, since }
    }
}
