//! A node for unit tests: a closure says what each script replies.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::watch;

use crate::{
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall},
    server::{BoxFuture, ConnectionId, Node, NodeError, NodeErrorKind, NodeInfo, SentOn, Subscription},
};

/// What a script replies.
pub(crate) type Answering = dyn Fn(&ScriptCall) -> Result<Reply, NodeError> + Send + Sync;

/// What a request waits for before it is sent.
pub(crate) type Waiting = dyn Fn(&ScriptCall) -> BoxFuture<()> + Send + Sync;

pub(crate) struct Scripted {
    name: String,
    answer: Arc<Answering>,
    waiting: Arc<Waiting>,
    changes: watch::Sender<u64>,
}

impl Scripted {
    pub(crate) fn new(
        name: impl Into<String>,
        answer: impl Fn(&ScriptCall) -> Result<Reply, NodeError> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Self::waiting(name, answer, |_| async {}.boxed())
    }

    /// One to which a request is sent only when what it waits for is over.
    pub(crate) fn waiting(
        name: impl Into<String>,
        answer: impl Fn(&ScriptCall) -> Result<Reply, NodeError> + Send + Sync + 'static,
        waiting: impl Fn(&ScriptCall) -> BoxFuture<()> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let (answer, waiting) = (Arc::new(answer), Arc::new(waiting));
        Arc::new(Self { name: name.into(), answer, waiting, changes: watch::Sender::new(0) })
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
            // A request takes a while, and so does its reply.
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
        async { Ok(NodeInfo::new(None, None)) }.boxed()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn close(&self) {}
}
