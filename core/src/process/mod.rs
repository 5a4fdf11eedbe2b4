//! The parts that belong to a process and not to one client: runtimes, timers, forks, exit.

#[doc(hidden)]
pub mod driver;
pub(crate) mod exit;
#[doc(hidden)]
pub mod fork;
#[cfg(target_os = "linux")]
pub(crate) mod host_io;
pub(crate) mod names;
pub(crate) mod program;
#[doc(hidden)]
pub mod runtime;
pub(crate) mod timer;
