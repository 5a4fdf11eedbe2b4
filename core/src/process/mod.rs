//! What belongs to a process, and not to one client: its threads, its forks, its end.

#[doc(hidden)]
pub mod fork;
#[doc(hidden)]
pub mod runtime;
pub(crate) mod timer;
