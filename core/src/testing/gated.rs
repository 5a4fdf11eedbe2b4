//! An in-memory node that delays some scripts until its gate opens, like a node whose connection is not open yet.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::sync::watch;

use crate::{
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall},
    server::{BoxFuture, ConnectionId, Node, NodeError, NodeInfo, SentOn, Subscription, memory::MemoryNode},
};

pub(crate) struct Gated {
    node: Arc<MemoryNode>,
    /// The scripts that the gate delays.
    held_back: &'static [&'static str],
    gate: watch::Sender<bool>,
    /// The scripts that passed the gate, whether or not they ran.
    passed: watch::Sender<Vec<&'static str>>,
    /// Whether it never replies to the delayed scripts.
    is_mute: bool,
}

impl Gated {
    pub(crate) fn new(name: &str, held_back: &'static [&'static str], is_mute: bool) -> Arc<Self> {
        Arc::new(Self {
            node: MemoryNode::open(name, None),
            held_back,
            gate: watch::Sender::new(false),
            passed: watch::Sender::new(Vec::new()),
            is_mute,
        })
    }

    pub(crate) fn open(&self) {
        self.gate.send_replace(true);
    }

    /// Whether the script has passed the gate.
    pub(crate) fn did_pass(&self, script: &str) -> bool {
        self.passed.borrow().contains(&script)
    }

    /// Resolves once the script has passed the gate.
    pub(crate) async fn has_passed(&self, script: &str) {
        let mut passed = self.passed.subscribe();
        passed.wait_for(|passed| passed.contains(&script)).await.expect("the sender is in `self`");
    }
}

impl Node for Gated {
    fn name(&self) -> &str {
        self.node.name()
    }

    fn eval(
        &self,
        driver: Driver,
        call: ScriptCall,
        timeout: Duration,
        sent: SentOn,
    ) -> BoxFuture<Result<Reply, NodeError>> {
        let (node, passed, script) = (self.node.clone(), self.passed.clone(), call.script.name);
        let is_held_back = self.held_back.contains(&script);
        let (mut gate, is_mute) = (self.gate.subscribe(), self.is_mute && is_held_back);
        async move {
            if is_held_back && gate.wait_for(|open| *open).await.is_err() {
                std::future::pending::<()>().await;
            }
            let answer = node.eval(driver, call, timeout, sent).await;
            passed.send_modify(|passed| passed.push(script));
            if is_mute {
                std::future::pending::<()>().await;
            }
            answer
        }
        .boxed()
    }

    fn eval_after(&self, id: ConnectionId, call: ScriptCall, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        self.node.eval_after(id, call, timeout)
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        self.node.subscribe(channel)
    }

    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        self.node.ping(timeout)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.node.changes()
    }

    fn close(&self) {
        self.node.close();
    }
}
