//! Wakes an event loop that has no libuv handles, as those of Bun and Deno: a thread waits for results, and wakes the
//! loop until it begins to drain.
//!
//! Waking it once is not enough. Deno loses some wake-ups of thread-safe functions: it registers the waker of its task
//! queue after it looked for tasks, and does not look again.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use napi::{Env, Error, Result};
use redlock::ffi::Calls;

use crate::{delivery::Delivery, waker::Waker};

/// After which time without a delivery the loop is woken again: at first, and at most.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Wakes an event loop whenever it should drain, until this is dropped or the loop ends.
pub(crate) struct Watch(Arc<Calls>);

impl Watch {
    /// Has the loop of `env` deliver. Fails if the process can start no thread.
    pub(crate) fn new(env: &Env, calls: &Arc<Calls>, delivery: Delivery) -> Result<Self> {
        let deliveries = delivery.deliveries();
        let waker = Waker::new(env, delivery)?;
        let watched = calls.clone();
        let watch = move || {
            while watched.wait() {
                deliveries.await_next(|| {
                    waker.wake();
                    !watched.has_ended()
                });
            }
        };
        let thread = thread::Builder::new().name("redlock-watch".to_owned());
        thread.spawn(watch).map_err(|error| Error::from_reason(format!("no thread can be started: {error}")))?;
        Ok(Self(calls.clone()))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Counts the deliveries that an event loop began.
#[derive(Default)]
pub(crate) struct Deliveries {
    count: Mutex<u64>,
    begun: Condvar,
}

impl Deliveries {
    /// Notes that one begins. What ends from now on is for this one, or for one that is still to begin.
    pub(crate) fn begin(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.begun.notify_all();
    }

    /// Wakes the loop, again and again, until it begins a delivery or `wake` returns false.
    fn await_next(&self, wake: impl Fn() -> bool) {
        let (mut patience, longest) = PATIENCE;
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *count;
        while *count == before && wake() {
            let waited = self.begun.wait_timeout_while(count, patience, |count| *count == before);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
            patience = longest.min(patience * 2);
        }
    }
}
