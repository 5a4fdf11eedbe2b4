//! The program's own tokio runtimes. A task on one of them can make its round trips there: no other thread must be
//! woken between a request and its reply.

use std::{cell::RefCell, collections::HashSet};

use tokio::runtime::{Handle, Id};

use super::fork::PerProcess;
use crate::sync::Mutex;

/// Runtimes that drive no connections for their tasks: they have no I/O, or are the library's own.
static EXCLUDED: PerProcess<Mutex<HashSet<Id>>> = PerProcess::new();

thread_local! { static CURRENT: RefCell<Option<Handle>> = const { RefCell::new(None) }; }

/// The tokio runtime in which this thread is, if any.
pub(crate) fn here() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

/// The runtime `id`, if a task of it polls a call on this thread and it may drive connections.
pub(crate) fn current(id: Id) -> Option<Handle> {
    CURRENT.with_borrow(Clone::clone).filter(|handle| handle.id() == id && !EXCLUDED.get().lock().contains(&id))
}

/// Excludes a runtime from driving connections.
pub(crate) fn exclude_from_driving(id: Id) {
    EXCLUDED.get().lock().insert(id);
}

/// Notes that a task of this runtime polls a call on this thread, until the returned guard is dropped.
pub(crate) fn set_current(program: Option<Handle>) -> CurrentGuard {
    CurrentGuard { before: CURRENT.replace(program) }
}

/// Restores the previous state of the thread when it is dropped.
pub(crate) struct CurrentGuard {
    before: Option<Handle>,
}

impl Drop for CurrentGuard {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}
