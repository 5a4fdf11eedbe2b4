//! Supervised calls: calls that their own callers poll. If one does not end soon after its last reply was due, the
//! supervisor takes over: the caller may be a blocked event loop, and others must not wait for it. The watchdog's task
//! runs this.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The time that a call has to end by itself after its last reply was due.
const SLACK: Duration = Duration::from_millis(100);

/// Takes over a call that its caller does not poll to its end.
type TakeOverCall = Box<dyn FnOnce() + Send>;

/// The supervised calls of one client.
#[derive(Default)]
pub(super) struct Supervisor {
    /// For each call, the function that takes it over, by the time when that is due and a number that makes this
    /// unique.
    calls: Mutex<BTreeMap<(Instant, u64), TakeOverCall>>,
    last: AtomicU64,
}

impl Supervisor {
    /// Supervises a call whose last reply is due after `last_reply`. `take_over` takes it over if it does not end in
    /// time.
    pub(super) fn supervise(
        self: &Arc<Self>,
        last_reply: Duration,
        take_over: impl FnOnce() + Send + 'static,
    ) -> Supervised {
        let limit = if mutant!(CallUnattended) { Duration::from_secs(3600) } else { last_reply + SLACK };
        let due = (Instant::now() + limit, self.last.fetch_add(1, Relaxed));
        self.calls.lock().insert(due, Box::new(take_over));
        Supervised { supervisor: self.clone(), due }
    }

    /// Takes over the calls that are overdue. Returns when the next one will be.
    pub(super) fn take_over_overdue(&self) -> Option<Instant> {
        loop {
            let take_over = {
                let mut calls = self.calls.lock();
                let next = calls.first_entry()?;
                if next.key().0 > Instant::now() {
                    return Some(next.key().0);
                }
                next.remove()
            };
            take_over();
        }
    }
}

/// A supervised call. Dropping this ends the supervision.
pub(crate) struct Supervised {
    supervisor: Arc<Supervisor>,
    due: (Instant, u64),
}

impl Supervised {
    /// When the supervisor takes over.
    pub(super) fn due(&self) -> Instant {
        self.due.0
    }

    /// Ends the supervision of a call that ended. False if the supervisor has taken over.
    pub(crate) fn finish(self) -> bool {
        self.supervisor.calls.lock().remove(&self.due).is_some()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let take_over = self.supervisor.calls.lock().remove(&self.due);
        // It may be the last reference to its client, so it is dropped with the mutex unlocked.
        drop(take_over);
    }
}
