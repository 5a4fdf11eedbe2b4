//! Waiting: the loop that tries again, the holders and waiters of this client, the listeners and timers that wake a
//! waiter, and its back-off.

pub(crate) mod backoff;
mod failure;
mod listener;
pub(crate) mod placed_waiters;
pub(crate) mod queued_waiter;
pub(crate) mod registry;
pub(crate) mod until;
pub(crate) mod waiter;
