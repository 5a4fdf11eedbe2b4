//! What belongs to a process, and not to one client: its threads, and its forks.

#[doc(hidden)]
pub mod runtime;
