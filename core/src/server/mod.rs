//! The interface between locks and servers: the trait [`Node`]. Redis, the in-memory node and simulations implement it.
//! Everything above it is the same for one node and for many.

use std::{
    fmt,
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    identity::Identity,
    process::driver::Driver,
    protocol::{
        script::{Reply, ScriptCall},
        sharding::Sharding,
    },
    sync::Mutex,
};

#[doc(hidden)]
pub mod memory;
pub(crate) mod redis;

/// A boxed future, as the trait returns it. It owns its data and can be moved to any thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// Identifies the connection that carried a request, so that a clean-up can be ordered after that request.
#[derive(Clone, Debug)]
pub struct ConnectionId {
    /// The driver of the connection.
    pub driver: Driver,
    /// Unique within this process.
    pub number: u64,
    /// The client id and the client's address as the server sees them, if the server reported them.
    pub peer: Option<(i64, Arc<str>)>,
    /// The run id of the connected server, if known.
    pub run: Option<Arc<str>>,
    /// The server's address, if the node has several servers.
    pub server: Option<Arc<str>>,
}

/// Records which connection carries a request. The node sets it before it sends the first byte. Empty means that
/// nothing was sent; closed means that nothing will be sent from now on.
#[derive(Clone, Debug, Default)]
pub struct SentOn(Arc<Mutex<Sending>>);

/// The state of a [`SentOn`].
#[derive(Debug, Default)]
struct Sending {
    connection: Option<ConnectionId>,
    closed: bool,
}

impl SentOn {
    /// Records the connection. It replaces an earlier one, on which the request is known not to have run. Fails if the
    /// request was given up meanwhile: the node must not send it.
    pub fn set(&self, connection: ConnectionId) -> Result<(), NodeError> {
        let mut sending = self.0.lock();
        if sending.closed {
            return Err(NodeError::new(NodeErrorKind::NotRun, "given up before it was sent"));
        }
        sending.connection = Some(connection);
        Ok(())
    }

    /// Returns the connection, if anything was sent.
    pub fn get(&self) -> Option<ConnectionId> {
        self.0.lock().connection.clone()
    }

    /// Gives up the request if it was not sent yet. Returns the connection if it was.
    pub fn close(&self) -> Option<ConnectionId> {
        let mut sending = self.0.lock();
        sending.closed = true;
        sending.connection.clone()
    }

    /// Whether the request was given up.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

/// A server that runs the scripts.
pub trait Node: Send + Sync + 'static {
    /// The node's address without credentials, as shown in errors.
    fn name(&self) -> &str;

    /// Runs a script, driven by `driver`. Fails after `timeout` without a reply. The transport never sends it twice,
    /// except after a reply that proves that it did not run: NOSCRIPT or a redirection. Then it is sent again unless
    /// `sent` was closed meanwhile.
    fn eval(
        &self,
        driver: Driver,
        call: ScriptCall,
        timeout: Duration,
        sent: SentOn,
    ) -> BoxFuture<Result<Reply, NodeError>>;

    /// Runs a script so that it takes effect after everything ever sent on `connection`. Uses that connection while it
    /// lives and no blocking caller has to drive it; otherwise another, once the server confirmed that it is closed.
    fn eval_after(
        &self,
        connection: ConnectionId,
        call: ScriptCall,
        timeout: Duration,
    ) -> BoxFuture<Result<Reply, NodeError>>;

    /// Subscribes to a channel; resolves once the server acknowledged it.
    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>>;

    /// Makes one round trip, for health checks.
    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>>;

    /// Lists the clients of this library that are connected to the node and name their connections, each once. Fails if
    /// the node [does not list clients](Traits::lists_clients).
    fn clients(&self, timeout: Duration) -> BoxFuture<Result<Vec<NamedConnection>, NodeError>> {
        let _ = timeout;
        Box::pin(ready(Err(NodeError::new(NodeErrorKind::Permanent, "does not list its clients"))))
    }

    /// A counter of changes: it increases when a connection breaks, or when the node answers again. Callers then check
    /// everything again.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Closes the node's connections. Later requests fail.
    fn close(&self);

    /// The node's capabilities.
    fn traits(&self) -> Traits {
        Traits::default()
    }
}

/// The capabilities of a node. The default is a single server whose connections the background drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// How the node's keys are divided among servers.
    pub sharding: Sharding,
    /// Whether an event loop may own a connection to the node.
    pub hostable: bool,
    /// Whether the node lists its clients.
    pub lists_clients: bool,
}

/// A client that is connected to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedConnection {
    /// What the name of its connection says.
    pub identity: Identity,
    /// The address of the connection as the server sees it, if there is one.
    pub address: Option<String>,
}

/// The reply of a node to a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The run id of the server: a new one after each restart.
    pub run: Option<String>,
    /// The server's version.
    pub version: Option<String>,
    /// The addresses of a cluster's masters; empty for a single server.
    pub servers: Vec<String>,
}

impl NodeInfo {
    /// Creates the info, for implementations of [`Node`].
    pub fn new(run: Option<String>, version: Option<String>) -> Self {
        Self { run, version, servers: Vec::new() }
    }
}

/// A subscription to a channel; ends when dropped.
pub struct Subscription {
    /// The number of messages so far. Closed when the subscription breaks.
    pub messages: watch::Receiver<u64>,
    /// Keeps the subscription alive; its drop unsubscribes.
    pub guard: Box<dyn std::any::Any + Send + Sync>,
}

/// Why a node did not run a script, or may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    /// The meaning of the error for the request.
    pub kind: NodeErrorKind,
    /// The text for people; it contains no credentials.
    pub detail: String,
    /// Where, or when, to send the request instead.
    pub(crate) hint: Option<Hint>,
}

/// Where, or when, a request would run that the server did not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// On the owner of the slot, at this address; without a host, that is the replying server's.
    Moved(String),
    /// On the next owner of the slot, for this request only.
    Ask(String),
    /// On the same server, once it has all keys or none.
    TryAgain,
    /// On the server's master.
    Replica,
}

/// The meaning of an error for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeErrorKind {
    /// Never sent, or refused in a way that proves that it did not run. A later try may succeed.
    NotRun,
    /// Refused, and a later try will not succeed: TLS, protocol, unknown command.
    Permanent,
    /// The same, for a wrong user or password, or for a right that the user lacks.
    Forbidden,
    /// Sent without a reply: it may have run, or may still run.
    Unknown,
    /// The key holds another type.
    WrongType,
    /// The server refused it: out of memory, read-only, an error in the script. It may have run in part.
    Refused,
}

impl NodeError {
    /// Creates an error of a kind.
    pub fn new(kind: NodeErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), hint: None }
    }

    /// The error for a reply that no script gives.
    pub(crate) fn no_answer() -> Self {
        Self::new(NodeErrorKind::Refused, "answered something that is no answer to this request")
    }

    /// The same error with another hint.
    pub(crate) fn with_hint(self, hint: Option<Hint>) -> Self {
        Self { hint, ..self }
    }

    /// Whether the request may have an effect on the server, now or later.
    pub fn may_have_run(&self) -> bool {
        matches!(self.kind, NodeErrorKind::Unknown | NodeErrorKind::Refused) || self.is_permanent()
    }

    /// Whether a later try cannot succeed.
    pub fn is_permanent(&self) -> bool {
        matches!(self.kind, NodeErrorKind::Permanent | NodeErrorKind::Forbidden)
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}
