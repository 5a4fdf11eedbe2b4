//! Calls that their callers poll. One that does not end soon after its last reply was due is seen to: its caller may be an
//! event loop that stands still, and others must not wait for that. The watchdog's task does it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// How long after its last reply was due a call may take to end by itself.
const SLACK: Duration = Duration::from_millis(100);

/// What is done about a call that its caller does not poll to its end.
type Overdue = Box<dyn FnOnce() + Send>;

/// The calls of one client that their callers poll.
#[derive(Default)]
pub(super) struct Supervisor {
    /// By when they should have ended, and a number.
    overdue: Mutex<BTreeMap<(Instant, u64), Overdue>>,
    last: AtomicU64,
}

impl Supervisor {
    /// Does something about a call if it does not end in time.
    pub(super) fn supervise(
        self: &Arc<Self>,
        last_reply: Duration,
        overdue: impl FnOnce() + Send + 'static,
    ) -> Supervised {
        let limit = if mutant!(CallUnattended) { Duration::from_secs(3600) } else { last_reply + SLACK };
        let due = (Instant::now() + limit, self.last.fetch_add(1, Relaxed));
        self.overdue.lock().insert(due, Box::new(overdue));
        Supervised { calls: self.clone(), due }
    }

    /// Does something about the calls that are overdue; says when the next one will be.
    pub(super) fn take_over_overdue(&self) -> Option<Instant> {
        loop {
            let overdue = {
                let mut calls = self.overdue.lock();
                let next = calls.first_entry()?;
                if next.key().0 > Instant::now() {
                    return Some(next.key().0);
                }
                next.remove()
            };
            overdue();
        }
    }
}

/// A call that its caller polls.
pub(crate) struct Supervised {
    calls: Arc<Supervisor>,
    due: (Instant, u64),
}

impl Supervised {
    /// When something is done about it.
    pub(super) fn due(&self) -> Instant {
        self.due.0
    }

    /// The call ended. False if that was too late.
    pub(crate) fn finish(self) -> bool {
        self.calls.overdue.lock().remove(&self.due).is_some()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let overdue = self.calls.overdue.lock().remove(&self.due);
        // It may be the last that refers to its client: not under the lock.
        drop(overdue);
    }
}
