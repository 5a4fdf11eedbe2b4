//! Tests of requests that reach a node after the other nodes have decided.
#![cfg(not(feature = "shuttle"))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::{sync::watch, time::timeout};

use crate::{
    client::Client,
    config::{Config, LockOptions, Ttl, Wire},
    lock::Lock,
    owner::Owner,
    protocol::{
        reply::TOKENS,
        script::{Reply, ScriptCall},
    },
    server::{Node, NodeError, NodeErrorKind},
    sync::Mutex,
    tenure::ReleaseOutcome,
    testing::scripted::Scripted,
};

const NODES: usize = 3;

/// Three nodes that grant, attach and release, and a client of them. The last node gets the script `held` only once the
/// gate is open, like a node whose connection is not open yet.
struct Nodes {
    client: Client,
    gate: watch::Sender<bool>,
    /// The scripts that were sent to the last node.
    ran: Arc<Mutex<Vec<&'static str>>>,
    /// Whether the last node can be reached.
    up: watch::Sender<bool>,
}

impl Nodes {
    fn new(held: &'static str, wire: Wire) -> Self {
        let (gate, ran) = (watch::Sender::new(false), Arc::new(Mutex::new(Vec::new())));
        let up = watch::Sender::new(true);
        let node = |node: usize| -> Arc<dyn Node> {
            let (ran, gate, up) = (ran.clone(), gate.clone(), up.clone());
            let answer = move |call: &ScriptCall| {
                if node == NODES - 1 {
                    // Read first: the test opens the node as soon as it sees the script.
                    let is_up = *up.borrow();
                    ran.lock().push(call.script.name);
                    if !is_up {
                        return Err(NodeError::new(NodeErrorKind::NotRun, "down"));
                    }
                }
                Ok(match call.script.name {
                    "acquire" => Reply::Text(format!("1 {} 1", TOKENS.start())),
                    "attach" => Reply::Int(30_000),
                    _ => Reply::Int(1),
                })
            };
            Scripted::waiting(format!("node{node}"), answer, move |call| {
                let waits = node == NODES - 1 && call.script.name == held;
                let mut gate = gate.subscribe();
                async move {
                    if waits {
                        let _ = gate.wait_for(|open| *open).await;
                    }
                }
                .boxed()
            })
        };
        let mut config = Config::new((0..NODES).map(|node| format!("memory://late{node}")));
        config.wire = wire;
        let nodes = (0..NODES).map(node).collect();
        let client = Client::with_nodes(config, Arc::new(|_| {}), nodes).expect("a valid configuration");
        Self { client, gate, ran, up }
    }

    fn lock(&self) -> Lock {
        let options = LockOptions { ttl: Ttl::Fixed(Duration::from_secs(30)), ..LockOptions::default() };
        self.client.lock("x", options).expect("a valid lock")
    }
}

/// If an acquire has not been sent to a node when the lease is released, it is never sent.
#[tokio::test]
async fn an_acquire_that_was_not_sent_never_is() {
    let nodes = Nodes::new("acquire", Wire::Redisson);
    let lease = nodes.lock().acquire().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    nodes.gate.send_replace(true);
    nodes.client.close().await;
    assert!(!nodes.ran.lock().contains(&"acquire"), "{:?}", nodes.ran.lock());
}

/// If an attach has not been sent to a node when the tenure ends, it is never sent.
#[tokio::test]
async fn an_attach_that_was_not_sent_never_is() {
    let nodes = Nodes::new("attach", Wire::Redisson);
    let text = nodes.lock().acquire().await.unwrap().detach().unwrap();
    let lease = nodes.client.attach(&text, Owner::Fresh).await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    nodes.gate.send_replace(true);
    nodes.client.close().await;
    assert!(!nodes.ran.lock().contains(&"attach"), "{:?}", nodes.ran.lock());
}

/// After two nodes have confirmed a release by value, it is retried on the third, which was down.
#[tokio::test]
async fn a_release_by_value_goes_on_for_a_node_that_is_down() {
    let nodes = Nodes::new("nothing", Wire::Token);
    let value = nodes.client.value("x", "mine").unwrap();
    nodes.up.send_replace(false);
    assert!(value.release().await.unwrap());
    let sent = || nodes.ran.lock().len();
    timeout(Duration::from_secs(20), async {
        while sent() < 2 {
            nodes.up.send_replace(sent() == 1);
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("it is sent again");
    assert_eq!(*nodes.ran.lock(), ["release", "release"]);
    nodes.client.close().await;
}
