//! Requests that are sent to one node again until it confirms them: releases, and calls that undo requests which were
//! given up.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall},
    server::{BoxFuture, ConnectionId, Node, NodeError, NodeErrorKind, SentOn},
    sync::Mutex,
};

/// For how long a clean-up tries to reach a node.
pub(crate) const CLEANUP_LIMIT: Duration = Duration::from_secs(3600);
/// The time limit of one try in the background.
const TRY: Duration = Duration::from_secs(2);
/// The longest pause between two tries. A node that comes back ends it early.
const PAUSE: Duration = Duration::from_secs(1);

/// Sends a request to a node, and again after each error for which `again` is true, until `limit` is over. A pause ends
/// early when the node changes: a node that was down may be back. `ask` sends the request and gets the rest of the
/// limit.
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

/// Runs a script on a node. Tries again until the node answers or `limit` is over. `call` makes each request.
pub(crate) async fn insist(node: Arc<dyn Node>, call: impl Fn() -> ScriptCall, limit: Duration) {
    let sent = Mutex::new(SentOn::default());
    let ask = |left: Duration| {
        let now = SentOn::default();
        *sent.lock() = now.clone();
        node.eval(Driver::Background, call(), left.min(TRY), now)
    };
    // An error of the connection is not final, even if it does not end by waiting, as with a wrong password.
    let again = |error: &NodeError| !error.is_permanent() || sent.lock().get().is_none();
    // No caller needs to know whether it ran or failed for good.
    drop(retry(&node, limit, PAUSE, ask, again).await);
}

/// Runs a script on a node, ordered after everything that was sent on `connection`. Tries again until the node confirms
/// it. `call` makes each request. `known`: the node confirmed the request that this undoes.
pub(crate) async fn clean_up(
    node: Arc<dyn Node>,
    connection: ConnectionId,
    call: impl Fn() -> ScriptCall,
    known: bool,
) {
    let ask = |_| node.eval_after(connection.clone(), call(), TRY);
    let again = |error: &NodeError| match error.kind {
        NodeErrorKind::NotRun | NodeErrorKind::Unknown => true,
        // The server has become read-only, perhaps for a moment.
        NodeErrorKind::Refused => known,
        // The server refuses the release as it refused the acquire. A tenure that is there ends by its ttl.
        NodeErrorKind::Permanent | NodeErrorKind::Forbidden | NodeErrorKind::WrongType => false,
    };
    drop(retry(&node, CLEANUP_LIMIT, PAUSE, ask, again).await);
}

/// Waits until a node changes, for at most `time`.
pub(crate) async fn changed(changes: &mut watch::Receiver<u64>, time: Duration) {
    // After the channel is closed there are no changes.
    let changed = async {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    // The caller tries again in either case.
    let _ = timeout(time, changed).await;
}
