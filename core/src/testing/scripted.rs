//! A node for unit tests: a closure replies to each script.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::watch;

use crate::{
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall},
    server::{BoxFuture, ConnectionId, Node, NodeError, NodeErrorKind, NodeInfo, SentOn, Subscription},
};

/// Computes the reply to a script.
pub(crate) type Answering = dyn Fn(&ScriptCall) -> Result<Reply, NodeError> + Send + Sync;

/// Delays a request before it is sent.
pub(crate) type Waiting = dyn Fn(&ScriptCall) -> BoxFuture<()> + Send + Sync;

pub(crate) struct Scripted {
    name: String,
    answer: Arc<Answering>,
    waiting: Arc<Waiting>,
    changes: watch::Sender<u64>,
    /// The addresses of its masters, if it is a cluster.
    servers: Vec<String>,
}

impl Scripted {
    pub(crate) fn new(
        name: impl Into<String>,
        answer: impl Fn(&ScriptCall) -> Result<Reply, NodeError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::waiting(name, answer, |_| async {}.boxed())
    }

    /// A node that delays each request until the future from `waiting` is ready.
    pub(crate) fn waiting(
        name: impl Into<String>,
        answer: impl Fn(&ScriptCall) -> Result<Reply, NodeError> + Send + Sync + 'static,
        waiting: impl Fn(&ScriptCall) -> BoxFuture<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (answer, waiting) = (Arc::new(answer), Arc::new(waiting));
        Arc::new(Self { name: name.into(), answer, waiting, changes: watch::Sender::new(0), servers: Vec::new() })
    }

    /// A cluster with these masters.
    #[cfg(not(feature = "shuttle"))]
    pub(crate) fn cluster(
        servers: Vec<String>,
        answer: impl Fn(&ScriptCall) -> Result<Reply, NodeError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (answer, waiting) = (Arc::new(answer), Arc::new(|_: &ScriptCall| async {}.boxed()));
        Arc::new(Self { name: servers[0].clone(), answer, waiting, changes: watch::Sender::new(0), servers })
    }
}

impl Node for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn eval(&self, driver: Driver, call: ScriptCall, _: Duration, sent: SentOn) -> BoxFuture<Result<Reply, NodeError>> {
        let (answer, waiting) = (self.answer.clone(), (self.waiting)(&call));
        async move {
            waiting.await;
            sent.set(ConnectionId { driver, number: 1, peer: None, run: None, server: None })?;
            // Lets the scheduler run other threads while the request, and then the reply, is under way.
            #[cfg(feature = "shuttle")]
            shuttle::future::yield_now().await;
            let answer = answer(&call);
            #[cfg(feature = "shuttle")]
            shuttle::future::yield_now().await;
            answer
        }
        .boxed()
    }

    fn eval_after(&self, _: ConnectionId, call: ScriptCall, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        self.eval(Driver::Background, call, timeout, SentOn::default())
    }

    fn subscribe(&self, _: String) -> BoxFuture<Result<Subscription, NodeError>> {
        async { Err(NodeError::new(NodeErrorKind::Permanent, "no messages here")) }.boxed()
    }

    fn ping(&self, _: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        let info = NodeInfo { servers: self.servers.clone(), ..NodeInfo::new(None, None) };
        async { Ok(info) }.boxed()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn close(&self) {}
}
