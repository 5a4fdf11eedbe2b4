//! Tests of quorums in which some nodes answer late.

use std::{sync::Arc, time::Duration};

use super::{gated::Gated, scripted::Scripted};
use crate::{
    client::Client,
    config::{Config, LockOptions, Ttl},
    event,
    owner::OwnerKey,
    process::driver::Driver,
    protocol::{names::Names, script::Reply},
    quorum::{Ballot, Quorum, Verdict},
    server::{Node, NodeError, NodeErrorKind, memory::Memory},
    tenure::ReleaseOutcome,
};

const LONG: Duration = Duration::from_secs(20);

fn urls(name: &str, nodes: usize) -> Vec<String> {
    (0..nodes).map(|node| format!("memory://{name}-{node}")).collect()
}

/// A client of these nodes.
fn client(name: &str, nodes: &[Arc<Gated>]) -> Client {
    let nodes_of: Vec<Arc<dyn Node>> = nodes.iter().cloned().map(|node| -> Arc<dyn Node> { node }).collect();
    Client::with_nodes(Config::new(urls(name, nodes.len())), event::trace(), nodes_of).expect("a valid configuration")
}

fn gated(name: &str, held_back: &[&'static [&'static str]], is_mute: bool) -> Vec<Arc<Gated>> {
    let nodes = held_back.iter().enumerate();
    nodes.map(|(node, scripts)| Gated::new(&format!("{name}-{node}"), scripts, is_mute)).collect()
}

fn fixed() -> LockOptions {
    LockOptions { ttl: Ttl::Fixed(Duration::from_secs(60)), wait: Some(LONG), ..LockOptions::default() }
}

/// Two of three nodes grant. The lease is released before the acquire is sent to the third node.
#[tokio::test]
async fn an_acquire_that_was_not_sent_yet_is_not_sent_after_the_release() {
    let nodes = gated("unsent", &[&[], &[], &["acquire"]], true);
    let client = client("unsent", &nodes);
    client.init_nodes().await.expect("three nodes that answer");
    let lease = client.lock("x", fixed()).expect("a valid lock").acquire().await.expect("two of three grant");
    assert_eq!(lease.release().await.expect("a lease"), ReleaseOutcome::Released);
    nodes[2].open();
    nodes[2].has_passed("acquire").await;
    client.close().await;
    for node in 0..3 {
        assert!(!Memory::named(&format!("unsent-{node}")).exists("x"), "node {node} keeps the key");
    }
}

/// The first acquire of a new deployment is cancelled when one of five nodes has its marker.
#[tokio::test]
async fn all_nodes_of_a_new_deployment_get_their_markers_whoever_waits() {
    let late: &[&str] = &["provision"];
    let nodes = gated("fresh", &[&[], late, late, late, late], false);
    let client = client("fresh", &nodes);
    let first = client.lock("x", fixed()).expect("a valid lock");
    let given_up = tokio::spawn(async move { first.acquire().await });
    nodes[0].has_passed("provision").await;
    given_up.abort();
    assert!(given_up.await.is_err_and(|error| error.is_cancelled()));
    for node in &nodes {
        node.open();
    }
    // Nodes in quarantine would not vote for more than a minute.
    let lease = client.lock("y", fixed()).expect("a valid lock").acquire().await.expect("a new deployment votes");
    lease.release().await.expect("a lease");
    client.close().await;
}

/// Two of three nodes are down. The third denies the lock to an acquire under contention, which tries one node first.
#[tokio::test]
async fn a_denial_by_one_node_is_no_answer_of_a_quorum() {
    let settings = Arc::new(Config::new(urls("denial", 3)).validate().expect("valid"));
    let names = Arc::new(Names::new("x".to_owned(), &settings));
    for denies in 0..3 {
        let node = |node| -> Arc<dyn Node> {
            Scripted::new(format!("denial-{node}"), move |_| {
                let down = NodeError::new(NodeErrorKind::NotRun, "down");
                if node == denies { Ok(Reply::Text("0 30000 1".to_owned())) } else { Err(down) }
            })
        };
        let quorum = Arc::new(Quorum::new((0..3).map(node).collect(), settings.clone()));
        let owner = OwnerKey::Explicit("me".to_owned());
        let mut ballot = Ballot::new(&quorum, &names, "=me:1".to_owned(), Duration::from_secs(30)).contended(true);
        match ballot.run(Driver::Background, &owner).await {
            Verdict::FirstNodeDenied { .. } | Verdict::Unavailable { .. } => {}
            _ => panic!("an outage counts as an answer"),
        }
    }
}
