//! Wakes an event loop of Bun or Deno, which has no libuv handles. A thread waits for results, and wakes the loop until
//! the loop begins to drain (ADR 41).
//!
//! One wake-up is not enough, because Deno loses some of thread-safe functions: it checks its task queue first, then
//! registers the waker, and does not check again.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use napi::{Env, Error, Result};
use redlock::ffi::Calls;

use crate::{delivery::Delivery, waker::Waker};

/// The pauses between two wake-ups without a delivery: the first, and the longest.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// Wakes an event loop whenever there are results, until this is dropped or the loop ends.
pub(crate) struct Watch(Arc<Calls>);

impl Watch {
    /// Starts the thread, which makes the loop of `env` deliver. Fails if the process can start no thread.
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

/// Counts the deliveries that an event loop has begun.
#[derive(Default)]
pub(crate) struct Deliveries {
    count: Mutex<u64>,
    begun: Condvar,
}

impl Deliveries {
    /// Counts a delivery that begins. It, or a later one, takes each result that comes from now on.
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
