//! Ends clients and event loops in order at the end of the process.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use futures_util::future::{BoxFuture, join_all};

use super::fork::PerProcess;
use crate::sync::Mutex;

/// A resource that must end before the process does.
pub(crate) trait EndsWithProcess: Send + Sync {
    /// Drops the work that nobody will continue, since a host's event loop no longer runs. Called before any resource
    /// is ended.
    fn stop(self: Arc<Self>) {}

    /// Ends cleanly whatever others rely on, such as held locks.
    fn end(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

static LIVING: PerProcess<Mutex<Vec<Weak<dyn EndsWithProcess>>>> = PerProcess::new();
static ENDING: AtomicBool = AtomicBool::new(false);

/// Registers a resource that must end before this process does.
pub(crate) fn register(one: Weak<dyn EndsWithProcess>) {
    let mut living = LIVING.get().lock();
    living.retain(|known| known.strong_count() > 0);
    living.push(one);
}

/// Resolves at once; never, if the process is exiting. A thread that still waits for a lock then stays blocked until
/// the host stops it. An error would only make that thread report a failure.
pub(crate) async fn hang_if_exiting() {
    if ENDING.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

/// Closes every client of this process, all at once, as [`Client::close`](crate::Client::close) does. Hosts call it as
/// the last thing at the end of the process: an acquire that still waits then never returns.
pub async fn close_all() {
    ENDING.store(true, Ordering::SeqCst);
    let living: Vec<_> = LIVING.get().lock().iter().filter_map(Weak::upgrade).collect();
    living.iter().cloned().for_each(EndsWithProcess::stop);
    join_all(living.into_iter().map(EndsWithProcess::end)).await;
}
