//! The decisions that a client makes by itself, before it sends anything: the owner nests, another owner of this client
//! is first, or the acquire tries the nodes.

use std::sync::Arc;

use super::acquisition::{Acquisition, Next};
use crate::{
    error::LockError,
    quorum::Place,
    tenure::{Fate, Tenure},
    wait::{registry::Local, until::Pause},
};

impl Acquisition {
    /// Decides from the tenures and waiters of this client. An acquire that may wait enters this client's queue here.
    pub(super) fn decide_locally(&mut self) -> Result<Next, LockError> {
        if self.session().is_closed() {
            return Err(LockError::Closed);
        }
        let admission = self.claimant.subject.primitive.admission();
        let next = match self.session().registry.lookup(self.key(), &self.claimant.key) {
            // An owner may have several permits, and whoever knows a permit may release it: the nodes decide. Several
            // nodes keep no queue. There, waiters of this client that were denied come first.
            _ if admission.is_counted() => {
                let is_behind = !self.claimant.has_queue() && self.session().registry.is_denied(self.key());
                if is_behind && self.waiter.is_try() { Next::Wait(Pause::NotFirst) } else { Next::Try }
            }
            Local::Own(tenure) => match self.nest_in(&tenure)? {
                Some(next) => return Ok(next),
                None => Next::Try,
            },
            Local::Other(tenure) => match (tenure.primitive().is_shared(), admission.is_shared()) {
                (true, true) => Next::Try,
                // Other clients may read, too, and the servers must know that a writer waits.
                (true, false) => self.wait_for(&tenure).map(|_| Next::Try)?,
                (false, _) => self.wait_for(&tenure)?,
            },
            // Waiting owners of this client come first; a try does not wait.
            Local::Waited if self.waiter.is_try() => Next::Wait(Pause::NotFirst),
            Local::Waited | Local::Free => Next::Try,
        };
        if self.waiter.is_try() {
            return Ok(next);
        }
        self.waiter.enqueue(&self.claimant.key, self.claimant.request.thread, self.claimant.request.blocking);
        if self.claimant.has_queue() {
            return Ok(self.decide_with_server_queue());
        }
        Ok(if self.waiter.may_go() || self.waiter.is_behind_sharers() { next } else { Next::Wait(Pause::NotFirst) })
    }

    /// Where a server keeps the queue, the server decides which waiter is next, also among those of this client. This
    /// decides only whether to send it a request now.
    fn decide_with_server_queue(&self) -> Next {
        if self.place.as_ref().is_some_and(Place::is_delivered) {
            return Next::Try;
        }
        if self.waiter.is_placed() {
            // The first of those that a release may have granted a permit asks, and the next one after it.
            let asks = || self.waiter.is_placed_first() && self.place.as_ref().is_some_and(Place::is_in_doubt);
            return if self.waiter.is_due() || asks() { Next::Try } else { Next::Wait(Pause::Placed) };
        }
        // During an outage one waiter is enough to find out whether the server answers again.
        let outage = self.session().registry.outage(self.key());
        if outage.is_some() && !self.waiter.may_go() { Next::Wait(Pause::NotFirst) } else { Next::Try }
    }

    /// Nests in a tenure of the same owner. `None` if that tenure was released or detached.
    fn nest_in(&self, tenure: &Arc<Tenure>) -> Result<Option<Next>, LockError> {
        let may_nest = self.claimant.options.reentrant && self.claimant.is_included(tenure);
        let fate = if may_nest {
            match self.claimant.nest(tenure) {
                Ok(nested) => return Ok(Some(Next::Nested(nested))),
                Err(fate) => fate,
            }
        } else {
            tenure.current_fate()
        };
        match fate {
            Fate::Held if !self.claimant.options.reentrant => {
                let detail = "its owner holds it already, and this lock is not re-entrant".to_owned();
                Err(LockError::Deadlock { name: self.claimant.name(), detail })
            }
            Fate::Held => self.refuse_to_upgrade().map(Some),
            Fate::Lost(reason) => Err(LockError::Lost { name: self.claimant.name(), reason }),
            Fate::Released | Fate::Detached => Ok(None),
        }
    }

    /// The owner reads and wants to write: its own reading would have to end first.
    fn refuse_to_upgrade(&self) -> Result<Next, LockError> {
        if self.waiter.is_try() {
            return Ok(Next::Wait(Pause::NotFirst));
        }
        let detail =
            "its owner reads it, and would wait for itself; try_upgrade() makes a writer of a reader that is alone";
        Err(LockError::Deadlock { name: self.claimant.name(), detail: detail.to_owned() })
    }

    /// Waits until another owner's tenure lets others try. Fails if the thread that has to release it is the one that
    /// would block.
    fn wait_for(&self, tenure: &Arc<Tenure>) -> Result<Next, LockError> {
        let same_thread = self.claimant.request.thread.is_some() && tenure.terms.thread == self.claimant.request.thread;
        if self.claimant.request.blocking && same_thread && !self.waiter.is_try() {
            // A grant that a task of this thread has not collected yet could not be collected while the thread is
            // blocked.
            if !tenure.withdraw() {
                let detail =
                    "its own thread holds it under another owner, and cannot release it while it waits".to_owned();
                return Err(LockError::Deadlock { name: self.claimant.name(), detail });
            }
        }
        Ok(Next::Wait(Pause::Held(Box::pin(tenure.clone().lets_others_try()))))
    }

    /// Whether a grant could not be collected, because the thread that would collect it is blocked until it has the
    /// same lock.
    pub(super) fn collector_is_blocked(&self) -> bool {
        let thread = self.claimant.request.thread.filter(|_| !self.claimant.request.blocking);
        thread.is_some_and(|thread| self.session().registry.is_blocked(self.key(), thread))
    }
}
