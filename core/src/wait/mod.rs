//! Waiting: the holders and waiters of this client, what wakes a waiter, and how long it backs off.

pub(crate) mod backoff;
pub(crate) mod line;
mod listener;
mod ordered_watch;
pub(crate) mod place;
pub(crate) mod registry;
pub(crate) mod turn;
pub(crate) mod waiter;
