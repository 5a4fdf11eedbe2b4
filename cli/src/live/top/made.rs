//! Looks for unit tests: those of a store in memory, which a test then changes.

use std::{
    sync::LazyLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock::{Client, Config, LockOptions, NodeView};

use crate::{
    block::block,
    live::{
        nodes::Node,
        snapshot::{Connected, Lock, Snapshot, Source},
    },
};

/// The time of each look: 22:13:20Z.
pub(super) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

struct Made {
    snapshot: Snapshot,
    views: Vec<NodeView>,
}

/// One node, the held lock `x`, one client.
static MADE: LazyLock<Made> = LazyLock::new(|| {
    let client = Client::new(Config::new(["memory://top"])).expect("a client");
    let lock = client.lock("x", LockOptions::default()).expect("a lock");
    let lease = lock.acquire_blocking().expect("a lease");
    let snapshot = block(Source::new(client.clone(), Some("x")).snapshot()).expect("a look");
    let views = block(client.inspect_nodes("x")).expect("a look");
    lease.release().expect("a release");
    client.close_blocking();
    Made { snapshot, views }
});

/// A lock that a process of `app` holds for so many seconds, and for which so many clients wait.
pub(super) fn lock(name: &str, app: &str, waiting: usize, seconds: u64) -> Lock {
    let mut lock = MADE.snapshot.locks[0].clone();
    (lock.name, lock.waiting) = (name.to_owned(), waiting);
    let info = lock.info.as_mut().expect("a holder");
    (info.app, info.pid, info.host) = (Some(app.to_owned()), Some(812), Some("web-3".to_owned()));
    (info.since, info.ttl) = (Some(now() - Duration::from_secs(seconds)), Some(Duration::from_secs(25)));
    lock
}

/// A client, and how its settings differ.
pub(super) fn client(app: &str, odd: Option<&str>) -> Connected {
    let mut client = MADE.snapshot.clients.as_ref().expect("clients")[0].clone();
    let identity = &mut client.client.identity;
    (identity.app, identity.pid, identity.host) = (app.to_owned(), 97, "web-4".to_owned());
    client.odd = odd.map(str::to_owned);
    client
}

/// A node. One that begins with `-` is down.
pub(crate) fn node(name: &str) -> Node {
    let mut status = MADE.snapshot.nodes[0].status.clone();
    (status.node, status.round_trip) = (name.trim_start_matches('-').to_owned(), Duration::from_micros(420));
    if name.starts_with('-') {
        status.state = Err("connection refused".to_owned());
    }
    Node::new(status)
}

/// A look at these nodes, with these locks and clients.
pub(super) fn snapshot(nodes: &[&str], locks: Vec<Lock>, clients: Vec<Connected>) -> Snapshot {
    let nodes = nodes.iter().map(|name| node(name)).collect();
    let (when, clients) = (now(), Some(clients));
    Snapshot { when, nodes, locks, locks_when: Some(when), clients, trouble: None, scanned: None }
}

/// What one node has of a held lock.
pub(super) fn views() -> Vec<NodeView> {
    MADE.views.clone()
}
