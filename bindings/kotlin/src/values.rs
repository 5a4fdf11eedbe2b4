//! What crosses the boundary: options, errors, and what calls result in.

use std::{collections::HashMap, sync::Arc, time::Duration};

use redlock::{
    LockError,
    ffi::{self, Idiom, NodeStatus, Value},
};

use crate::lease::Lease;

/// How Kotlin spells.
pub(crate) const IDIOM: Idiom = Idiom::CamelMillis;

/// The value of an option; times are in milliseconds.
#[derive(Debug, uniffi::Enum)]
pub(crate) enum Setting {
    /// A string.
    Text {
        /// The string.
        value: String,
    },
    /// A number.
    Number {
        /// The number.
        value: f64,
    },
    /// A truth value.
    Flag {
        /// The truth value.
        value: bool,
    },
}

/// Options by name.
pub(crate) type Settings = HashMap<String, Setting>;

impl From<Setting> for ffi::Setting {
    fn from(setting: Setting) -> Self {
        match setting {
            Setting::Text { value } => Self::Text(value),
            Setting::Number { value } => Self::Number(value),
            Setting::Flag { value } => Self::Flag(value),
        }
    }
}

/// Options as the core takes them.
pub(crate) fn options(settings: Settings) -> impl Iterator<Item = (String, ffi::Setting)> {
    settings.into_iter().map(|(name, value)| (name, value.into()))
}

/// A time in milliseconds.
pub(crate) fn duration(argument: &'static str, millis: f64) -> Result<Duration, LockError> {
    IDIOM.duration(argument, &ffi::Setting::Number(millis))
}

/// How long to wait, in milliseconds; without end: for ever.
pub(crate) fn wait(millis: f64) -> Result<Option<Duration>, LockError> {
    if millis == f64::INFINITY { Ok(None) } else { duration("wait", millis).map(Some) }
}

/// What one node said.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Cause {
    /// The node's address.
    node: String,
    /// What it said, or why it said nothing.
    cause: String,
}

/// An error of the core.
#[derive(Debug, uniffi::Record)]
pub(crate) struct Failure {
    /// The code: what Kotlin picks the class by.
    code: String,
    /// The text for people.
    detail: String,
    /// Why the lock was lost.
    reason: Option<String>,
    /// What each node said.
    causes: Vec<Cause>,
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let ffi::Failure { code, message, reason, causes } = IDIOM.failure(&error);
        Self {
            code: code.to_owned(),
            detail: message,
            reason: reason.map(str::to_owned),
            causes: causes.into_iter().map(|(node, cause)| Cause { node, cause }).collect(),
        }
    }
}

/// Why a call did not return.
#[derive(Debug, thiserror::Error, uniffi::Error)]
pub(crate) enum Refusal {
    /// The core said so.
    #[error("{failure:?}")]
    Failed {
        /// What it said.
        failure: Failure,
    },
    /// The calling thread was interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl From<LockError> for Refusal {
    fn from(error: LockError) -> Self {
        Self::Failed { failure: error.into() }
    }
}

/// What a method returns.
pub(crate) type Fallible<T> = Result<T, Refusal>;

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
