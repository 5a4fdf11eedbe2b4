//! What is asked of the servers: names, scripts, their arguments, and what their replies mean. Pure: no clock, no task, no
//! I/O.

pub(crate) mod calls;
pub(crate) mod names;
#[doc(hidden)]
pub mod parts;
pub(crate) mod primitive;
mod read_write;
pub(crate) mod reply;
#[doc(hidden)]
pub mod script;
mod semaphore;
