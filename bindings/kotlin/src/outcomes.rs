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
    /// What it resulted in. A lease is offered: whoever waits for it takes it.
    outcome: Outcome,
}

/// Blocks until calls ended. For one thread, which does nothing else.
#[uniffi::export]
pub(crate) fn fetch() -> Fallible<Vec<Ended>> {
    let ended = calls().fetch()?;
    Ok(ended.into_iter().map(|(id, outcome)| Ended { call: id.cast_signed(), outcome: outcome.into() }).collect())
}

/// The end of a call whose number is negative: it needed no waiting. Nothing: it goes on, without the sign.
#[uniffi::export]
pub(crate) fn end_of(call: i64) -> Option<Outcome> {
    calls().end_of(call).map(Outcome::from)
}

/// What one node says of itself.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Node {
    /// The node's address.
    address: String,
    /// The run of the server.
    run: Option<String>,
    /// The version of the server.
    version: Option<String>,
    /// Why it does not answer.
    cause: Option<String>,
}

impl From<NodeStatus> for Node {
    fn from(NodeStatus { node, run, version, cause, .. }: NodeStatus) -> Self {
        Self { address: node, run, version, cause }
    }
}

/// Who holds a lock.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Holder {
    /// How it is held.
    kind: String,
    /// The explicit owner, or `uuid:tenure`.
    owner: String,
    /// All of them.
    owners: Vec<String>,
    /// How long the key lives, in milliseconds.
    ttl: Option<f64>,
    /// The last fencing token.
    token: i64,
}

/// Something that happened in a client.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Happening {
    /// Whether an operator should see it.
    warning: bool,
    /// The line for the log.
    line: String,
}

/// What a call resulted in.
#[derive(uniffi::Enum)]
pub(crate) enum Outcome {
    /// It failed.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// It is done.
    Nothing,
    /// Yes or no.
    Flag {
        /// Which.
        value: bool,
    },
    /// A number.
    Count {
        /// Which.
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
        /// Its slots of a semaphore.
        slots: Vec<i32>,
        /// The fencing tokens of its slots.
        tokens: Vec<i64>,
    },
    /// How a release ended.
    Released {
        /// The word for it.
        outcome: String,
    },
    /// Who holds a lock, if anybody does.
    Info {
        /// The holder.
        holder: Option<Holder>,
    },
    /// What the nodes say of themselves.
    Nodes {
        /// The nodes.
        nodes: Vec<Node>,
    },
    /// A lease ended.
    Lost {
        /// Why it was lost, if it was.
        reason: Option<String>,
    },
    /// What happened in the clients of this process.
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
            Ok(Value::Info(info)) => Self::Info { holder: info.map(Holder::from) },
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
        Self { kind, owner: info.owner, owners: info.owners, ttl, token: info.token.cast_signed() }
    }
}
