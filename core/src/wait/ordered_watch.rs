//! A value that several tasks may wait for. They go on in the order in which they began to wait, where tokio's `watch` wakes
//! several in a random one: a simulated run would not repeat itself.

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

    /// Resolves once the value is so.
    pub(super) async fn until(&self, is: impl Fn(&T) -> bool) {
        loop {
            // Hears of every change from here on, polled or not.
            let changed = self.changed.notified();
            if is(&self.get()) {
                return;
            }
            changed.await;
        }
    }
}
