//! What goes on for a node until it confirmed: ends of tenures, and what undoes requests that were given up.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    protocol::script::Call,
    server::{Lane, Link, Node, NodeErrorKind, Sent},
};

/// How long a clean-up goes on for a node that does not come back.
pub(crate) const CLEANUP_LIMIT: Duration = Duration::from_secs(3600);

/// Runs a script on a node, again and again until it answered or `limit` is over.
pub(crate) async fn insist(node: Arc<dyn Node>, call: Call, limit: Duration) {
    let mut changes = node.changes();
    let over = Instant::now() + limit;
    while Instant::now() < over {
        let limit = over.duration_since(Instant::now()).clamp(Duration::from_millis(1), Duration::from_secs(2));
        let answer = node.eval(Lane::Background, call.clone(), limit, Sent::default()).await;
        if !answer.is_err_and(|error| !error.is_permanent()) {
            return;
        }
        pause(&mut changes, over.duration_since(Instant::now()).min(Duration::from_secs(1))).await;
    }
}

/// Releases a tenure on one node, ordered after everything sent on `link`, until the node confirms. `known`: it is there.
pub(crate) async fn clean_up(node: Arc<dyn Node>, link: Link, call: Call, known: bool) {
    let began = Instant::now();
    let mut changes = node.changes();
    while began.elapsed() < CLEANUP_LIMIT {
        match node.eval_after(link.clone(), call.clone(), Duration::from_secs(2)).await {
            Err(error) if matches!(error.kind, NodeErrorKind::NotRun | NodeErrorKind::Unknown) => {}
            // Read-only by now, perhaps for a moment.
            Err(error) if error.kind == NodeErrorKind::Refused && known => {}
            // Done; or the server refuses to release, as it refused to acquire, and what is there dies by its ttl.
            _ => return,
        }
        pause(&mut changes, Duration::from_secs(1)).await;
    }
}

/// Waits until a node changes, and for `time` at most.
pub(crate) async fn pause(changes: &mut watch::Receiver<u64>, time: Duration) {
    // A closed channel never changes.
    let changed = async {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    // Either is a reason to go on.
    let _ = timeout(time, changed).await;
}
