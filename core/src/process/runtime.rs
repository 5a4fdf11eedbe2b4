//! The threads that keep locks alive. One background runtime a process holds the connections, the watchdog and the
//! waiters; a second one, driven by whoever blocks in it, saves blocking callers the hop between threads.
//!
//! Both are leaked, never dropped: dropping a runtime joins its threads, which deadlocks under an interpreter's lock
//! and after a fork, where those threads do not exist: a child starts its own.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::OnceLock,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::yield_now,
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
        // No thread or descriptor left: nothing of this crate can work, and no caller could do anything about it.
        panic!("cannot start the {name} runtime: {error}")
    })
}

/// The runtime that runs by itself.
pub fn background() -> Handle {
    #[cfg(feature = "simulation")]
    if let Some(handle) = test::entered() {
        return handle;
    }
    always_driven().handle().clone()
}

fn always_driven() -> &'static Runtime {
    RUNTIMES.get().background.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1);
        let runtime = build(builder, "redlock");
        program::exclude(runtime.handle().id());
        runtime
    })
}

/// Lets this thread make timers of the background runtime.
#[cfg(target_os = "linux")]
pub(crate) fn enter() -> tokio::runtime::EnterGuard<'static> {
    always_driven().enter()
}

/// The runtime that is driven only by threads inside its `block_on`.
pub fn caller() -> &'static Runtime {
    RUNTIMES.get().caller.get_or_init(|| build(Builder::new_current_thread(), "redlock-caller"))
}

/// How long a blocked caller is deaf to signals and forks.
const SLICE: Duration = Duration::from_millis(50);

/// Why a blocking call ended without its result.
#[derive(Debug)]
pub enum Interrupted<E> {
    /// The host's check said so.
    Check(E),
    /// The process forked during the check: this is the child, which has no part in what its parent waits for.
    Forked,
    /// This thread's local values are gone, so it can run no future: it is in a handler of the C library, at the end of
    /// the process.
    ThreadEnded,
}

impl<E: From<LockError>> Interrupted<E> {
    /// What a call about this lock fails with.
    pub(crate) fn error(self, name: &str) -> E {
        match self {
            Self::Check(error) => error,
            Self::Forked => LockError::forked(name).into(),
            Self::ThreadEnded => LockError::Closed.into(),
        }
    }
}

/// Whether this thread's local values are gone. A future that it polled would panic, and so end the process.
pub(crate) fn thread_has_ended() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// How long a blocked thread that gives up drives its own requests on, before the background cleans up behind them: the
/// answer is usually on its way, and a known one is easier to undo.
pub(crate) const GIVE_UP_GRACE: Duration = Duration::from_millis(50);

/// Blocks until `future` is done, and runs `check` every 50 ms: hosts look for signals there. The future is dropped
/// when `check` fails, with what comes of it. `driver` tells which runtime drives it.
pub fn block<T, E>(
    driver: Driver,
    future: impl Future<Output = T>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<T, Interrupted<E>> {
    if thread_has_ended() {
        return Err(Interrupted::ThreadEnded);
    }
    let mut future = Box::pin(future);
    let before = generation();
    loop {
        let slice = async {
            let result = timeout(SLICE, future.as_mut()).await;
            if result.is_err() {
                // Wakers that tokio deferred to the end of this turn would be lost with it, and whatever inside is
                // polled only when it is woken would never be polled again.
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
            // Its memory is a copy; what it refers to lives in the parent.
            std::mem::forget(future);
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

/// A future that any executor may poll: its timers are those of the background runtime. Its requests are this driver's.
pub(crate) async fn entered<F: Future>(driver: Driver, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        // Each time: a future may be moved to another runtime.
        let program = if let Driver::Program(_) = driver { Handle::try_current().ok() } else { None };
        let _program = program::enter(program);
        let background = background();
        let _entered = background.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// Runs a future on the background runtime, whatever the caller's executor is; goes on when the caller gives up.
pub fn detached<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> impl Future<Output = Option<T>> + Send + 'static {
    let task = background().spawn(future);
    async move { task.await.ok() }
}

/// Puts another runtime in the place of the background's, for the current thread: simulations give each client its own.
#[cfg(feature = "simulation")]
pub mod test {
    use std::cell::RefCell;

    use tokio::runtime::Handle;

    thread_local! { static ENTERED: RefCell<Option<Handle>> = const { RefCell::new(None) }; }

    pub(super) fn entered() -> Option<Handle> {
        ENTERED.with_borrow(Clone::clone)
    }

    pub(crate) fn is_entered() -> bool {
        ENTERED.with_borrow(Option::is_some)
    }

    /// Uses `handle` from now on, `None` for the real one; returns what was used before.
    pub fn enter(handle: Option<Handle>) -> Option<Handle> {
        ENTERED.replace(handle)
    }
}

#[cfg(test)]
mod tests {
    use std::{task::Poll, time::Instant};

    use futures_util::{StreamExt, poll, stream::FuturesUnordered};

    use super::*;

    /// A task's future that is polled first in one runtime and then in another.
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
        let mut future = Box::pin(entered(Driver::Program(one), future));
        assert!(first.block_on(async { poll!(&mut future) }).is_pending());
        second.block_on(future);
        assert_eq!(seen, [(true, false), (false, true)]);
    }

    /// A future that is in the middle of yielding whenever a slice ends, polled only when it is woken.
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
