//! What a call results in, in words and plain values: flat, so that a binding has little to convert.

use crate::{client, error::LockError, event::Event, holders::LockInfo, lease::Lease, tenure::ReleaseOutcome};

/// An error, flat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code, which is the contract.
    pub code: &'static str,
    /// The text for people.
    pub message: String,
    /// Why the lock was lost; only with code `lost`.
    pub reason: Option<&'static str>,
    /// What each node said, by its address; only with code `unavailable`.
    pub causes: Vec<(String, String)>,
}

/// What a node says of itself, flat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// The node's address, without credentials.
    pub node: String,
    /// Whether it answered as it should.
    pub ok: bool,
    /// The run of the server, which changes with each restart.
    pub run: Option<String>,
    /// The version of the server.
    pub version: Option<String>,
    /// Why it did not answer, when it did not.
    pub cause: Option<String>,
}

impl From<client::NodeStatus> for NodeStatus {
    fn from(client::NodeStatus { node, state }: client::NodeStatus) -> Self {
        match state {
            Ok(info) => Self { node, ok: true, run: info.run, version: info.version, cause: None },
            Err(cause) => Self { node, ok: false, run: None, version: None, cause: Some(cause) },
        }
    }
}

/// What a call resulted in, in words and plain values.
#[derive(Debug)]
pub enum Value {
    /// It is done.
    Nothing,
    /// Yes or no.
    Flag(bool),
    /// A number.
    Count(u32),
    /// A lease. Dropping it releases nothing once it was drained.
    Lease(Lease),
    /// How a release ended.
    Released(&'static str),
    /// Who holds a lock.
    Info(Option<LockInfo>),
    /// What the nodes say of themselves.
    Nodes(Vec<NodeStatus>),
    /// Why a lease was lost; `None` when it ended otherwise.
    Lost(Option<&'static str>),
    /// What happened since the last time; empty when nothing will happen any more.
    Events(Vec<Event>),
}

impl From<()> for Value {
    fn from((): ()) -> Self {
        Self::Nothing
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

/// The end of a call.
pub type Outcome = Result<Value, LockError>;
