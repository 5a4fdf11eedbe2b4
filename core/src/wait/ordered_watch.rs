//! A value that several tasks may wait for. A change wakes them in the order in which they started to wait. tokio's
//! `watch` wakes them in a random order, and a simulated run could not be repeated.

use tokio::sync::Notify;

use crate::sync::Mutex;

#[derive(Default)]
pub(super) struct OrderedWatch<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> OrderedWatch<T> {
    pub(super) fn get(&self) -> T {
        *self.value.lock()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.lock());
        self.changed.notify_waiters();
    }

    /// Resolves once `is` accepts the value.
    pub(super) async fn until(&self, is: impl Fn(&T) -> bool) {
        loop {
            // Created before the check: it is notified of every change from here on, polled or not.
            let changed = self.changed.notified();
            if is(&self.get()) {
                return;
            }
            changed.await;
        }
    }
}
