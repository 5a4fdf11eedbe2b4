//! What goes on for one node until it confirmed: ends of tenures, and what undoes requests that were given up.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall},
    server::{BoxFuture, ConnectionId, Node, NodeError, NodeErrorKind, SentOn},
};

/// How long a clean-up goes on for a node that does not come back.
pub(crate) const CLEANUP_LIMIT: Duration = Duration::from_secs(3600);
/// How long one try of what goes on in the background may take.
const TRY: Duration = Duration::from_secs(2);
/// The longest pause between two of them; a node that comes back ends it.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks a node, within `limit` again and again while `again` says so of its error. Each pause ends early when the node
/// changes: one that is down may be back any moment. `ask` gets what is left of the limit.
pub(crate) async fn retry(
    node: &Arc<dyn Node>,
    limit: Duration,
    pause: Duration,
    ask: impl Fn(Duration) -> BoxFuture<Result<Reply, NodeError>>,
    again: impl Fn(&NodeError) -> bool,
) -> Result<Reply, NodeError> {
    let mut changes = node.changes();
    let over = Instant::now() + limit;
    loop {
        let left = over.duration_since(Instant::now()).max(Duration::from_millis(1));
        let answer = ask(left).await;
        if !answer.as_ref().is_err_and(&again) || Instant::now() >= over {
            return answer;
        }
        changed(&mut changes, over.duration_since(Instant::now()).min(pause)).await;
        if Instant::now() >= over {
            return answer;
        }
    }
}

/// Runs a script on a node, until it answered or `limit` is over.
pub(crate) async fn insist(node: Arc<dyn Node>, call: ScriptCall, limit: Duration) {
    let ask = |left: Duration| node.eval(Driver::Background, call.clone(), left.min(TRY), SentOn::default());
    // Whether it ran, or was refused for good, nobody asks.
    drop(retry(&node, limit, PAUSE, ask, |error| !error.is_permanent()).await);
}

/// Runs a script on a node, ordered after everything sent on `connection`, until the node confirms. `known`: what it undoes is
/// there.
pub(crate) async fn clean_up(node: Arc<dyn Node>, connection: ConnectionId, call: ScriptCall, known: bool) {
    let ask = |_| node.eval_after(connection.clone(), call.clone(), TRY);
    let again = |error: &NodeError| match error.kind {
        NodeErrorKind::NotRun | NodeErrorKind::Unknown => true,
        // Read-only by now, perhaps for a moment.
        NodeErrorKind::Refused => known,
        // The server refuses to release, as it refused to acquire, and what is there dies by its ttl.
        NodeErrorKind::Permanent | NodeErrorKind::WrongType => false,
    };
    drop(retry(&node, CLEANUP_LIMIT, PAUSE, ask, again).await);
}

/// Waits until a node changes, and for `time` at most.
pub(crate) async fn changed(changes: &mut watch::Receiver<u64>, time: Duration) {
    // A closed channel never changes.
    let changed = async {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    // Either is a reason to go on.
    let _ = timeout(time, changed).await;
}
