//! The one seam of the crate: what a lock needs of a server. Implemented by Redis, by the in-memory node and by
//! simulations. Everything above it is the same for one node and for many.

use std::{fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    process::driver::Driver,
    protocol::{
        parts::Parts,
        script::{Reply, ScriptCall},
    },
    sync::Mutex,
};

#[doc(hidden)]
pub mod memory;
pub(crate) mod redis;

/// A future in a box, as the trait needs it. It owns what it uses and can be moved to any thread.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A connection that carried a request, so that a clean-up can be ordered after it.
#[derive(Clone, Debug)]
pub struct ConnectionId {
    /// Who drives it.
    pub driver: Driver,
    /// Unique within this process.
    pub number: u64,
    /// How the server knows it, when the server told: client id, and address as the server sees it.
    pub peer: Option<(i64, Arc<str>)>,
    /// The run of the server it leads to, when known.
    pub run: Option<Arc<str>>,
    /// The server's address, where a node has several servers.
    pub server: Option<Arc<str>>,
}

/// Where a node writes down which connection it is about to use, before the first byte is sent. Empty means that
/// nothing was sent. Closed means that nothing will be sent from now on.
#[derive(Clone, Debug, Default)]
pub struct SentOn(Arc<Mutex<Sending>>);

#[derive(Debug, Default)]
struct Sending {
    connection: Option<ConnectionId>,
    closed: bool,
}

impl SentOn {
    /// Notes the connection. What was sent on an earlier one is known not to have run. Fails if the request was given up
    /// meanwhile: the node must not send it.
    pub fn set(&self, connection: ConnectionId) -> Result<(), NodeError> {
        let mut sending = self.0.lock();
        if sending.closed {
            return Err(NodeError::new(NodeErrorKind::NotRun, "given up before it was sent"));
        }
        sending.connection = Some(connection);
        Ok(())
    }

    /// The connection, if anything was sent.
    pub fn get(&self) -> Option<ConnectionId> {
        self.0.lock().connection.clone()
    }

    /// Gives the request up where it was not sent yet. Returns the connection if it was.
    pub fn close(&self) -> Option<ConnectionId> {
        let mut sending = self.0.lock();
        sending.closed = true;
        sending.connection.clone()
    }

    /// Whether it was given up.
    pub fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

/// A server that runs the scripts.
pub trait Node: Send + Sync + 'static {
    /// Its address without credentials, as shown in errors.
    fn name(&self) -> &str;

    /// Runs a script, driven by `driver`; fails after `timeout` without a reply. The transport never sends it twice, except
    /// after a reply that proves that it did not run: NOSCRIPT, or where else to go.
    fn eval(
        &self,
        driver: Driver,
        call: ScriptCall,
        timeout: Duration,
        sent: SentOn,
    ) -> BoxFuture<Result<Reply, NodeError>>;

    /// Runs a script so that it takes effect after everything ever sent on `connection`: on that connection while it
    /// lives and is driven from the background, else on another once the server confirmed that `connection` is closed.
    fn eval_after(
        &self,
        connection: ConnectionId,
        call: ScriptCall,
        timeout: Duration,
    ) -> BoxFuture<Result<Reply, NodeError>>;

    /// Listens to a channel; resolves once the server acknowledged it.
    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>>;

    /// One round trip, for health checks.
    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>>;

    /// Raised by one each time the node lost a connection, came back or answers again: time to re-check everything.
    fn changes(&self) -> watch::Receiver<u64>;

    /// Drops its connections. Later requests fail.
    fn close(&self);

    /// What it can do that others cannot.
    fn traits(&self) -> Traits {
        Traits::default()
    }
}

/// What distinguishes a node from a single server that is driven from the background.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// How its keys are divided.
    pub parts: Parts,
    /// Whether an event loop may own a connection to it.
    pub hostable: bool,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeInfo {
    /// The run of the server: a new one after each restart.
    pub run: Option<String>,
    /// The server's version.
    pub version: Option<String>,
}

impl NodeInfo {
    /// For implementations of [`Node`].
    pub fn new(run: Option<String>, version: Option<String>) -> Self {
        Self { run, version }
    }
}

/// A subscription to a channel; ends when dropped.
pub struct Subscription {
    /// Counts messages. Closed when the subscription broke.
    pub messages: watch::Receiver<u64>,
    /// Whatever must live as long; its drop unsubscribes.
    pub guard: Box<dyn std::any::Any + Send + Sync>,
}

/// Why a node did not run a script, or may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    /// What it means for the request.
    pub kind: NodeErrorKind,
    /// For people; no credentials.
    pub detail: String,
    /// Where else to ask, or when.
    pub(crate) hint: Option<Hint>,
}

/// How a server that did not run a request said where, or when, it would be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// By the owner of the slot: its address, without a host if that is the same.
    Moved(String),
    /// By the next owner of the slot, this once.
    Ask(String),
    /// By the same server, once it has all keys or none.
    TryAgain,
    /// By the server's master.
    Replica,
}

/// What an error means for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeErrorKind {
    /// Never sent, or refused in a way that proves it did not run; may pass.
    NotRun,
    /// Refused, and waiting will not mend it: wrong password, missing right, TLS, protocol.
    Permanent,
    /// Sent, and no reply: it may have run, or may still run.
    Unknown,
    /// The key holds another type.
    WrongType,
    /// The server runs but refuses this: out of memory, read-only, loading, busy. It may have run in part.
    Refused,
}

impl NodeError {
    /// An error of a kind.
    pub fn new(kind: NodeErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), hint: None }
    }

    /// What a node did that replied something that no script replies.
    pub(crate) fn no_answer() -> Self {
        Self::new(NodeErrorKind::Refused, "answered something that is no answer to this request")
    }

    pub(crate) fn with_hint(self, hint: Option<Hint>) -> Self {
        Self { hint, ..self }
    }

    /// Whether something of the request may be on the server, now or later.
    pub fn may_have_run(&self) -> bool {
        matches!(self.kind, NodeErrorKind::Unknown | NodeErrorKind::Refused | NodeErrorKind::Permanent)
    }

    /// Whether trying again cannot help.
    pub fn is_permanent(&self) -> bool {
        self.kind == NodeErrorKind::Permanent
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}
