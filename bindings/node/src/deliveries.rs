//! Counts the deliveries of an event loop, so that a thread can wake the loop until one begins.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

/// The pauses between two wake-ups without a delivery: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

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
    pub(crate) fn await_next(&self, wake: impl Fn() -> bool) {
        let (mut pause, longest) = PAUSES;
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *count;
        while *count == before && wake() {
            let waited = self.begun.wait_timeout_while(count, pause, |count| *count == before);
            count = waited.unwrap_or_else(PoisonError::into_inner).0;
            pause = longest.min(pause * 2);
        }
    }
}
