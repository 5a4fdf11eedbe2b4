//! Waiting for a lock: who of this client waits, and what wakes them.

pub(crate) mod backoff;
pub(crate) mod listener;
pub(crate) mod registry;
