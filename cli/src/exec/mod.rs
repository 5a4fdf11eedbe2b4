//! `redlock exec`: runs a command while this machine holds a lock. If the lock is about to be lost, the command is ended
//! before the deadline: while it runs, nobody else holds the lock.
//!
//! The command must be started from the main thread: see `child`.

#[cfg(unix)]
mod child;
#[cfg(unix)]
mod command;
#[cfg(unix)]
mod options;
#[cfg(unix)]
mod outcome;
#[cfg(unix)]
mod refusals;
#[cfg(unix)]
mod report;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod sharing;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod supervise;
#[cfg(unix)]
mod supervision;
#[cfg(unix)]
mod terminal;
#[cfg(not(unix))]
mod unsupported;
#[cfg(unix)]
mod waiting;

#[cfg(not(unix))]
pub(crate) use self::unsupported::{ExecOptions, run};
#[cfg(unix)]
pub(crate) use self::{options::ExecOptions, run::run, signals::is_ignored, terminal::suspend};
