//! Waiting: who of this client holds and who waits, what wakes them, and for how long they hold back.

pub(crate) mod backoff;
pub(crate) mod line;
mod listener;
mod ordered_watch;
pub(crate) mod place;
pub(crate) mod registry;
pub(crate) mod ticket;
pub(crate) mod waiter;
