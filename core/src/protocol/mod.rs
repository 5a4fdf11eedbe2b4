//! What is asked of the servers: scripts, and what their replies mean. Pure: no clock, no task, no I/O.

pub(crate) mod reply;
#[doc(hidden)]
pub mod script;
