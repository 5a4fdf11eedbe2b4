//! Waiting: the holders and waiters of this client, the listeners and timers that wake a waiter, and its back-off.

pub(crate) mod backoff;
mod listener;
mod ordered_watch;
pub(crate) mod place;
pub(crate) mod placed_waiters;
pub(crate) mod queued_waiter;
pub(crate) mod registry;
pub(crate) mod waiter;
