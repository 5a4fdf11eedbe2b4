//! The wait for the lock: signals end it, and a terminal shows it.

use std::{
    io::{IsTerminal, Write, stderr},
    time::{Duration, Instant},
};

use redlock::{Lease, Lock, LockError, Owner};

use super::signals::Signals;
use crate::{duration, talk::Talk};

/// Why there is no lease.
#[derive(Debug)]
pub(super) enum NoLease {
    /// This signal ended the wait.
    Signal(i32),
    Failed(LockError),
}

impl From<LockError> for NoLease {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}

/// Acquires the lock.
pub(super) fn acquire(lock: &Lock, signals: &Signals, talk: &Talk) -> Result<Lease, NoLease> {
    let mut line = StatusLine::new(lock.name(), talk.quiet());
    let lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut || {
        line.show();
        signals.ending().map_or(Ok(()), |signal| Err(NoLease::Signal(signal)))
    })?;
    drop(line);
    // It may have arrived together with the grant.
    match signals.ending() {
        None => Ok(lease),
        Some(signal) => {
            // Nobody waits for the outcome: the command has not run.
            drop(lease.release_blocking());
            Err(NoLease::Signal(signal))
        }
    }
}

/// One line on the terminal, written anew each second and erased at the end of the wait.
struct StatusLine<'a> {
    name: &'a str,
    since: Instant,
    shown: Option<Duration>,
    enabled: bool,
}

impl<'a> StatusLine<'a> {
    fn new(name: &'a str, quiet: bool) -> Self {
        Self { name, since: Instant::now(), shown: None, enabled: !quiet && stderr().is_terminal() }
    }

    fn show(&mut self) {
        let waited = Duration::from_secs(self.since.elapsed().as_secs());
        if self.enabled && self.shown != Some(waited) {
            self.shown = Some(waited);
            // A terminal that is gone is no reason to stop waiting.
            let _ = write!(stderr(), "\r\x1b[Kwaiting for {:?} ({})", self.name, duration::show(waited));
        }
    }
}

impl Drop for StatusLine<'_> {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
