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

use tokio::sync::watch;

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
