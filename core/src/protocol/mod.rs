//! The protocol between a client and the servers: the names of keys, the scripts, their arguments and their replies.
//! Pure: no clock, no task, no I/O.

pub(crate) mod admission;
pub(crate) mod calls;
pub(crate) mod names;
pub(crate) mod primitive;
mod read_write;
pub(crate) mod reply;
#[doc(hidden)]
pub mod script;
mod semaphore;
#[doc(hidden)]
pub mod sharding;
pub(crate) mod subject;
pub(crate) mod survey;
