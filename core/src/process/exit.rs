//! The end of the process: what must end before it, and in which order.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicBool, Ordering},
};

use futures_util::future::{BoxFuture, join_all};

use super::fork::PerProcess;
use crate::sync::Mutex;

/// What lives as long as the process at most, and ends in good order.
pub(crate) trait EndsWithProcess: Send + Sync {
    /// Drops what nobody will go on with, before anything ends: a host's event loop runs no more.
    fn stop(self: Arc<Self>) {}

    /// Ends in good order what others rely on.
    fn end(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

static LIVING: PerProcess<Mutex<Vec<Weak<dyn EndsWithProcess>>>> = PerProcess::new();
static ENDING: AtomicBool = AtomicBool::new(false);

/// Notes something that must end before this process does.
pub(crate) fn register(one: Weak<dyn EndsWithProcess>) {
    let mut living = LIVING.get().lock();
    living.retain(|known| known.strong_count() > 0);
    living.push(one);
}

/// Does not resolve while the process ends. A thread that still waits for a lock then is one that the host stops
/// without a word; waking it with an error would only make it complain.
pub(crate) async fn stay_silent_at_the_end() {
    if ENDING.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
}

/// Closes every client of this process, all at once. Hosts call it when the process ends, as the last thing.
pub async fn close_all() {
    ENDING.store(true, Ordering::SeqCst);
    let living: Vec<_> = LIVING.get().lock().iter().filter_map(Weak::upgrade).collect();
    living.iter().cloned().for_each(EndsWithProcess::stop);
    join_all(living.into_iter().map(EndsWithProcess::end)).await;
}
