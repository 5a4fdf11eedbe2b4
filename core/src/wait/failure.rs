//! When a wait fails, and with which error. While too few nodes answer, a waiter tries again until patience is over. An
//! outage is never reported as contention.

use super::{registry::Holding, until::Pause, waiter::Waiter};
use crate::error::{LockError, NodeCause};

impl<T: Holding> Waiter<T> {
    /// Notes that a quorum answered its try.
    pub(crate) fn note_answer(&mut self) {
        self.registry.end_outage(self.key());
        self.answered = true;
    }

    /// Notes that fewer nodes than a quorum answered its try. Fails if waiting cannot help, or if patience is over.
    pub(crate) fn note_outage(&mut self, causes: Vec<NodeCause>, permanent: bool) -> Result<Pause, LockError> {
        self.answered = false;
        let error = self.quorum.unavailable(causes.clone());
        if permanent || self.is_try() {
            return Err(error);
        }
        let patience = self.quorum.settings.config.patience;
        let patience = self.wait.map_or(patience, |wait| wait.min(patience));
        let out_since = self.registry.note_outage(self.key(), causes);
        if out_since.elapsed() >= patience && self.waited() >= patience {
            return Err(error);
        }
        Ok(Pause::Outage)
    }

    /// The error when the wait is over.
    pub(crate) fn timed_out(&self) -> LockError {
        match self.registry.outage(self.key()) {
            Some(outage) if !self.answered => self.quorum.unavailable(outage.causes),
            // No quorum has answered yet: the waiters before this one still wait for the first reply.
            None if !self.is_try() && !self.answered && !self.may_go() && self.registry.is_unknown(self.key()) => {
                self.quorum.unavailable(self.quorum.unanswered_causes())
            }
            _ => self.held_by_another(),
        }
    }

    /// The error when the wait is over and these nodes have not answered the last try.
    pub(crate) fn unanswered(&self, nodes: Vec<NodeCause>) -> LockError {
        if self.answered {
            return self.held_by_another();
        }
        // If an earlier try failed on a node, that error says more than "has not answered".
        let known = self.known_causes();
        let last = |node: NodeCause| known.iter().find(|cause| cause.node == node.node).cloned().unwrap_or(node);
        self.quorum.unavailable(nodes.into_iter().map(last).collect())
    }

    /// Why nodes have not answered, as the waiters of this client know it.
    pub(crate) fn known_causes(&self) -> Vec<NodeCause> {
        self.registry.outage(self.key()).map(|outage| outage.causes).unwrap_or_default()
    }

    /// The error when the wait is over, while somebody holds the lock.
    fn held_by_another(&self) -> LockError {
        let name = self.wanted.names.name().to_owned();
        LockError::Timeout { name, waited: self.waited(), holder: None, rests_for: None }
    }
}
