//! Wakes an event loop of Bun or Deno, which has no libuv handles. A thread waits for results, and wakes the loop until
//! the loop begins to drain (ADR 41).
//!
//! One wake-up is not enough: Deno loses some wake-ups by thread-safe functions, since it checks its task queue first,
//! then registers the waker, and does not check again.

use std::{sync::Arc, thread};

use napi::{Env, Error, Result};
use redlock::ffi::Calls;

use crate::{delivery::Delivery, waker::Waker};

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
        self.0.abandon_all();
    }
}
