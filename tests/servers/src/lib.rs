//! What the tests of every crate need, the core's own included: real servers with faults, a faulty network before them,
//! programs that are no Redis, certificates, free ports, and waiting for a condition.

use std::{
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};

pub mod port;
pub mod process;
pub mod proxy;
pub mod server;
pub mod stub;
pub mod tls;

/// A limit above the needs of a busy machine, and below the lease that the watchdog renews (30 s): a release that never
/// comes does not pass because its lease has ended.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The time between the first two checks of a condition, and the longest one. It grows, since most checks connect to a
/// server: thousands of connections would use up the ports of this machine.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// All proxies and stubs of a process run here: they must continue while a test's own thread is busy or blocked.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("proxies").enable_all().build().expect("a runtime for the proxies")
});

/// Locks a mutex, even if a thread panicked with it: the value it guards is consistent after each step.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Polls `happened` until it is true. Panics after `limit`.
pub async fn until(limit: Duration, what: &str, mut happened: impl FnMut() -> bool) {
    let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
    while !happened() {
        assert!(start.elapsed() < limit, "waited in vain until {what}");
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

/// As [`until`], for code without async: it blocks the thread.
pub fn wait_until(limit: Duration, what: &str, mut happened: impl FnMut() -> bool) {
    let (start, mut pause) = (Instant::now(), FIRST_PAUSE);
    while !happened() {
        assert!(start.elapsed() < limit, "waited in vain until {what}");
        thread::sleep(pause);
        pause = longer(pause);
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 9 / 8).min(LONGEST_PAUSE)
}
