//! A mutex without poisoning, on the standard library's. Not `parking_lot`'s, whose table of parked threads is shared
//! by the whole process: a fork may copy it in a locked state, and the child would wait for ever.
//!
//! The tests of interleavings (`testing/interleavings.rs`) use shuttle's mutex and atomics instead. At each of their
//! operations a scheduler decides which thread continues.

#[cfg(not(all(test, feature = "shuttle")))]
use std::sync;
use std::sync::PoisonError;

#[cfg(all(test, feature = "shuttle"))]
use shuttle::sync;

use tokio::sync::{Notify, watch};

pub(crate) use self::sync::{MutexGuard, atomic};

/// Changes the value of a watch channel. Notifies only if there is a receiver, since that alone costs as much as the
/// change.
pub(crate) fn notify<T>(sender: &watch::Sender<T>, change: impl FnOnce(&mut T)) {
    sender.send_if_modified(|value| {
        change(value);
        // A later subscriber reads the new value: it cannot read before this returns.
        sender.receiver_count() > 0
    });
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Locks it, even after a panic while it was locked: no critical section here leaves a half-made state.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it unless it is locked.
    #[cfg(target_os = "linux")]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// A value that several tasks may wait for. A change wakes them in the order in which they started to wait. tokio's
/// `watch` wakes them in a random order, and a simulated run could not be repeated.
#[derive(Debug, Default)]
pub(crate) struct OrderedWatch<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> OrderedWatch<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub(crate) fn get(&self) -> T {
        *self.value.lock()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.lock());
        self.changed.notify_waiters();
    }

    /// Resolves once `is` accepts the value, with that value.
    pub(crate) async fn until(&self, is: impl Fn(&T) -> bool) -> T {
        loop {
            // Created before the check: it is notified of every change from here on, polled or not.
            let changed = self.changed.notified();
            let value = self.get();
            if is(&value) {
                return value;
            }
            changed.await;
        }
    }
}
