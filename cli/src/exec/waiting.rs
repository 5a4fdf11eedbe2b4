//! The wait for the lock: signals end it, and a terminal shows it.

use std::{
    io::{IsTerminal, Write, stderr},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use redlock::{Lease, Lock, LockError, LockInfo, Owner};
use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar;

use super::{report::can_report, signals::Signals};
use crate::{block::block, duration, holder, table::visible, talk::Talk};

/// Why there is no lease.
#[derive(Debug)]
pub(super) enum NoLease {
    /// This signal ended the wait.
    Signal(i32),
    /// This signal arrived together with the grant.
    Late(i32, Lease),
    Failed(LockError),
}

impl From<LockError> for NoLease {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}

/// Acquires the lock.
pub(super) fn acquire(lock: &Lock, signals: &Signals, talk: &Talk) -> Result<Lease, NoLease> {
    let mut line = StatusLine::new(lock, talk.quiet());
    let lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut || {
        line.show();
        signals.ending().map_or(Ok(()), |signal| Err(NoLease::Signal(signal)))
    })?;
    drop(line);
    match signals.ending() {
        None => Ok(lease),
        Some(signal) => Err(NoLease::Late(signal, lease)),
    }
}

/// One line on the terminal, written anew each second and erased at the end of the wait.
struct StatusLine<'a> {
    lock: &'a Lock,
    since: Instant,
    shown: Option<Duration>,
    enabled: bool,
    search: Search,
}

impl<'a> StatusLine<'a> {
    fn new(lock: &'a Lock, quiet: bool) -> Self {
        let enabled = !quiet && stderr().is_terminal();
        Self { lock, since: Instant::now(), shown: None, enabled, search: Search::default() }
    }

    fn show(&mut self) {
        let waited = Duration::from_secs(self.since.elapsed().as_secs());
        // A grant must not wait for whoever reads stderr.
        if !self.enabled || self.shown == Some(waited) || !can_report(Duration::ZERO) {
            return;
        }
        self.shown = Some(waited);
        let held_by = self.search.holder(self.lock).map(|info| format!(": held by {}", holder::held_by(info)));
        let line =
            format!("waiting for {:?} ({})", self.lock.name(), duration::show(waited)) + &held_by.unwrap_or_default();
        // A terminal that is gone is no reason to stop waiting.
        let _ = write!(stderr(), "\r\x1b[K{}", fitting(&visible(&line)));
    }
}

impl Drop for StatusLine<'_> {
    fn drop(&mut self) {
        if self.shown.is_some() && can_report(Duration::ZERO) {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

/// The beginning of a line that fits into one line of the terminal: only that one is erased.
fn fitting(line: &str) -> String {
    let columns = tcgetwinsize(stderr()).map_or(0, |size| usize::from(size.ws_col));
    // A terminal may not know its size.
    let mut left = if columns > 0 { columns - 1 } else { usize::MAX };
    let fits = |character: &char| {
        let width = character.width().unwrap_or_default();
        let fits = width <= left;
        left = if fits { left - width } else { 0 };
        fits
    };
    line.chars().take_while(fits).collect()
}

/// The search for the holder of a lock, on a thread of its own: the wait does not wait for the nodes.
#[derive(Default)]
struct Search {
    running: Option<JoinHandle<Option<LockInfo>>>,
    found: Option<LockInfo>,
}

impl Search {
    /// The holder by the last search that is over. Begins the next one.
    fn holder(&mut self, lock: &Lock) -> Option<&LockInfo> {
        if self.running.as_ref().is_none_or(JoinHandle::is_finished) {
            let inspection = lock.inspect();
            let next = thread::spawn(move || block(inspection).ok().flatten());
            self.found = self.running.replace(next).and_then(|over| over.join().ok()).flatten();
        }
        self.found.as_ref()
    }
}
