//! The library's two tokio runtimes in each process. The background runtime has a thread of its own, and runs the
//! connections, the watchdog and the waiters. The caller runtime is driven by the threads that block in it, and saves
//! them the switch to another thread.
//!
//! Both are leaked, never dropped. Dropping a runtime joins its threads, which deadlocks under an interpreter's lock,
//! and after a fork, where those threads do not exist. A child starts its own.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::OnceLock,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::{JoinHandle, yield_now},
    time::timeout,
};

use super::{
    driver::Driver,
    fork::{PerProcess, generation},
    program,
};
use crate::error::LockError;

static RUNTIMES: PerProcess<Runtimes> = PerProcess::new();

#[derive(Default)]
struct Runtimes {
    background: OnceLock<Runtime>,
    caller: OnceLock<Runtime>,
}

fn build(mut builder: Builder, name: &str) -> Runtime {
    builder.thread_name(name).enable_all().build().unwrap_or_else(|error| {
        // No thread or file descriptor is left. Nothing of this crate can work then, and no caller could handle the
        // error.
        panic!("cannot start the {name} runtime: {error}")
    })
}

/// The background runtime.
pub fn background() -> Handle {
    #[cfg(feature = "simulation")]
    if let Some(handle) = test::replacement() {
        return handle;
    }
    always_driven().handle().clone()
}

fn always_driven() -> &'static Runtime {
    RUNTIMES.get().background.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1);
        let runtime = build(builder, "redlock");
        program::exclude_from_driving(runtime.handle().id());
        runtime
    })
}

/// Lets this thread create timers of the background runtime, until the returned guard is dropped.
#[cfg(target_os = "linux")]
pub(crate) fn enter_background() -> tokio::runtime::EnterGuard<'static> {
    always_driven().enter()
}

/// The caller runtime. It runs only while a thread is inside its `block_on`.
pub fn caller() -> &'static Runtime {
    RUNTIMES.get().caller.get_or_init(|| build(Builder::new_current_thread(), "redlock-caller"))
}

/// How often a blocked caller checks for signals and forks.
const SLICE: Duration = Duration::from_millis(50);

/// Why a blocking call ended without its result.
#[derive(Debug)]
pub enum Interrupted<E> {
    /// The host's check returned this error.
    Check(E),
    /// The process forked during the check. This is the child, and the call belongs to its parent.
    Forked,
    /// This thread's local values are gone, so it can run no future: it is in a handler of the C library, at the end of
    /// the process.
    ThreadEnded,
}

impl<E: From<LockError>> Interrupted<E> {
    /// The error of a call on the lock of this name.
    pub(crate) fn error(self, name: &str) -> E {
        match self {
            Self::Check(error) => error,
            Self::Forked => LockError::forked(name).into(),
            Self::ThreadEnded => LockError::Closed.into(),
        }
    }
}

/// True if this thread's local values are gone. A future that it polled would panic, and so end the process.
pub(crate) fn thread_has_ended() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// How long a blocked thread that gives up still drives its own requests, before the background cleans up after them.
/// The reply is usually on its way, and a known result is easier to undo.
pub(crate) const GIVE_UP_GRACE: Duration = Duration::from_millis(50);

/// Blocks until `future` is done. Runs `check` every 50 ms, so that hosts can handle signals; if it fails, the future
/// is dropped, which gives its call up. `driver`: the runtime that drives the future.
pub fn block<T, E>(
    driver: Driver,
    future: impl Future<Output = T>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<T, Interrupted<E>> {
    if thread_has_ended() {
        return Err(Interrupted::ThreadEnded);
    }
    let mut future = Box::pin(future);
    let result = drive(driver, future.as_mut(), check);
    if matches!(result, Err(Interrupted::Forked)) {
        // Its memory is a copy; what it refers to lives in the parent.
        std::mem::forget(future);
    }
    result
}

/// Drives a future until it is done or interrupted. It is a trait object, so that not every call that blocks has this
/// loop and both runtimes in its code.
fn drive<T, E>(
    driver: Driver,
    mut future: Pin<&mut dyn Future<Output = T>>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<T, Interrupted<E>> {
    let before = generation();
    loop {
        let slice = async {
            let result = timeout(SLICE, future.as_mut()).await;
            if result.is_err() {
                // tokio defers some wake-ups to the end of this turn. Without this yield they would be lost, and a
                // nested future that waits for its own wake-up, as in `FuturesUnordered`, would hang.
                yield_now().await;
            }
            result
        };
        let result = match driver {
            Driver::Caller => caller().block_on(slice),
            Driver::Background | Driver::Host(_) | Driver::Program(_) => background().block_on(slice),
        };
        if let Ok(value) = result {
            return Ok(value);
        }
        let checked = check();
        if before != generation() {
            return Err(Interrupted::Forked);
        }
        if let Err(error) = checked {
            if driver == Driver::Caller {
                drop(caller().block_on(async { timeout(GIVE_UP_GRACE, future.as_mut()).await }));
            }
            return Err(Interrupted::Check(error));
        }
    }
}

/// Makes a future that any executor may poll: its timers are those of the background runtime. `driver` drives its
/// requests.
pub(crate) async fn with_background_timers<F: Future>(driver: Driver, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        // At each poll, since a future may be moved to another runtime.
        let program = if let Driver::Program(_) = driver { Handle::try_current().ok() } else { None };
        let _program = program::set_current(program);
        let background = background();
        let _entered = background.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// Starts a task on the background runtime. Boxed for the size of the library, as in `quorum::background`.
pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    background().spawn(task.boxed())
}

/// Starts a future on the background runtime, where it runs to its end: whatever the caller's executor is, and even if
/// the caller drops the returned future. That resolves to `None` if the runtime ends first.
pub fn spawn_in_background<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> + Send + 'static {
    // Boxed for the size of the library, as in `quorum::background`.
    let task = background().spawn(future.boxed());
    async move { task.await.ok() }
}

/// Replaces the background runtime for the current thread: simulations give each client its own.
#[cfg(feature = "simulation")]
pub mod test {
    use std::cell::RefCell;

    use tokio::runtime::Handle;

    thread_local! { static REPLACEMENT: RefCell<Option<Handle>> = const { RefCell::new(None) }; }

    pub(super) fn replacement() -> Option<Handle> {
        REPLACEMENT.with_borrow(Clone::clone)
    }

    pub(crate) fn is_replaced() -> bool {
        REPLACEMENT.with_borrow(Option::is_some)
    }

    /// Sets the background runtime of this thread, `None` for the real one. Returns the previous setting.
    pub fn replace_background(handle: Option<Handle>) -> Option<Handle> {
        REPLACEMENT.replace(handle)
    }
}

#[cfg(test)]
mod tests {
    use std::{task::Poll, time::Instant};

    use futures_util::{StreamExt, poll, stream::FuturesUnordered};

    use super::*;

    /// A task's future is polled first in one runtime and then in another.
    #[test]
    fn a_future_that_is_moved_is_driven_where_it_is_polled() {
        let runtime = || Builder::new_current_thread().build().expect("a runtime");
        let (first, second) = (runtime(), runtime());
        let (one, other) = (first.handle().id(), second.handle().id());
        let mut seen = Vec::new();
        let future = poll_fn(|_| {
            seen.push((program::current(one).is_some(), program::current(other).is_some()));
            if seen.len() < 2 { Poll::Pending } else { Poll::Ready(()) }
        });
        let mut future = Box::pin(with_background_timers(Driver::Program(one), future));
        assert!(first.block_on(async { poll!(&mut future) }).is_pending());
        second.block_on(future);
        assert_eq!(seen, [(true, false), (false, true)]);
    }

    /// A future that is polled only when it is woken, and is yielding whenever a slice ends.
    #[test]
    fn no_wake_up_is_lost_between_slices() {
        for driver in [Driver::Caller, Driver::Background] {
            let busy = async {
                let start = Instant::now();
                while start.elapsed() < SLICE * 3 {
                    yield_now().await;
                }
            };
            let mut woken: FuturesUnordered<_> = [busy].into_iter().collect();
            let start = Instant::now();
            let mut give_up = || if start.elapsed() < Duration::from_secs(20) { Ok(()) } else { Err("hung") };
            assert!(matches!(block(driver, woken.next(), &mut give_up), Ok(Some(()))), "{driver:?}");
        }
    }
}
