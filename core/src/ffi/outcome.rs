//! Results and errors of calls as flat, plain values, so that a binding has little to convert.

use crate::{client, error::LockError, event::Event, holders::LockInfo, lease::Lease, tenure::ReleaseOutcome};

/// A flat error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error code. Programs may rely on it, unlike on the message.
    pub code: &'static str,
    /// The message, for people.
    pub message: String,
    /// Why the lock was lost; only with code `lost`.
    pub reason: Option<&'static str>,
    /// Each node's address and error; only with code `unavailable`.
    pub causes: Vec<(String, String)>,
}

/// The status of a node, flat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node's address, without credentials.
    pub node: String,
    /// True if it answered as it should.
    pub ok: bool,
    /// The run id of the server, which changes with each restart.
    pub run: Option<String>,
    /// The version of the server.
    pub version: Option<String>,
    /// The error, if `ok` is false.
    pub cause: Option<String>,
}

impl From<client::NodeStatus> for NodeStatus {
    fn from(client::NodeStatus { node, state, .. }: client::NodeStatus) -> Self {
        match state {
            Ok(info) => Self { node, ok: true, run: info.run, version: info.version, cause: None },
            Err(cause) => Self { node, ok: false, run: None, version: None, cause: Some(cause) },
        }
    }
}

/// The result of a call, as a plain value.
#[derive(Debug)]
pub enum Value {
    /// No value.
    Nothing,
    /// Yes or no.
    Flag(bool),
    /// A number.
    Count(u32),
    /// A lease. Once drained, dropping it does not release the lock.
    Lease(Lease),
    /// The outcome of a release: `released`, `lost` or `unconfirmed`.
    Released(&'static str),
    /// The holders of a lock; `None` if nobody holds it.
    Info(Option<Box<LockInfo>>),
    /// The status of each node.
    Nodes(Vec<NodeStatus>),
    /// Why a lease was lost; `None` if it ended otherwise, or not within the time limit.
    Lost(Option<&'static str>),
    /// The events since the last call; empty once there can be no further ones.
    Events(Vec<Event>),
}

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::Nothing
    }
}

impl From<Option<LockInfo>> for Value {
    fn from(info: Option<LockInfo>) -> Self {
        Self::Info(info.map(Box::new))
    }
}

impl From<ReleaseOutcome> for Value {
    fn from(outcome: ReleaseOutcome) -> Self {
        Self::Released(outcome.as_str())
    }
}

impl From<Vec<client::NodeStatus>> for Value {
    fn from(nodes: Vec<client::NodeStatus>) -> Self {
        Self::Nodes(nodes.into_iter().map(NodeStatus::from).collect())
    }
}

/// The result of a call.
pub type Outcome = Result<Value, LockError>;
