//! The program's own tokio runtimes. A task that runs on one of them may make its round trips there: no other thread has
//! to be woken between a request and its reply.

use std::{cell::RefCell, collections::HashSet};

use tokio::runtime::{Handle, Id};

use super::{driver::Driver, fork::PerProcess, runtime};
use crate::sync::Mutex;

/// Runtimes that cannot drive connections: they have no I/O.
static UNFIT: PerProcess<Mutex<HashSet<Id>>> = PerProcess::new();

thread_local! { static CURRENT: RefCell<Option<Handle>> = const { RefCell::new(None) }; }

/// Who drives the requests of a call that is made here.
pub(crate) fn driver() -> Driver {
    match Handle::try_current().map(|handle| handle.id()) {
        Ok(id) if id != runtime::background().id() => Driver::Program(id),
        _ => Driver::Background,
    }
}

/// The runtime whose task polls a call on this thread, if it is this one, and can drive connections.
pub(crate) fn current(id: Id) -> Option<Handle> {
    CURRENT.with_borrow(Clone::clone).filter(|handle| handle.id() == id && !UNFIT.get().lock().contains(&id))
}

/// Has it drive no connections any more.
pub(crate) fn is_unfit(id: Id) {
    UNFIT.get().lock().insert(id);
}

/// Says that a task of this runtime polls a call on this thread, until what this returns is dropped.
pub(crate) fn enter(program: Option<Handle>) -> Entered {
    Entered { before: CURRENT.replace(program) }
}

/// While it lives, a task polls a call on this thread.
pub(crate) struct Entered {
    before: Option<Handle>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}
