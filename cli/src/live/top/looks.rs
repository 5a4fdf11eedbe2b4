//! Threads that look: at the servers, at the keyboard, at signals. Each reports to the one channel that the view reads.

use std::{
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{self, Event, KeyEvent};
use redlock::{Kind, LockOptions};

use super::state::Details;
use crate::{
    block::block,
    failure::Failure,
    live::snapshot::{Snapshot, Source},
};

/// What a thread found.
#[derive(Debug)]
pub(super) enum Report {
    Key(KeyEvent),
    /// The size of the terminal has changed.
    Resized,
    Looked(Box<Snapshot>),
    Details(Details),
    /// How far the scan is: keys that were visited, all keys, locks.
    Scanning(u64, u64, usize),
    /// The scan is over; or why it failed.
    Scanned(Result<usize, String>),
    /// A warning of the client.
    Warned(String),
    #[cfg(unix)]
    Signal(i32),
    /// A thread has ended: nothing more can be shown.
    Over(Failure),
}

/// What the view wants of the servers.
#[derive(Debug)]
pub(super) enum Ask {
    Look,
    Scan,
    Pause(bool),
    /// Look at this lock on each node, or at none.
    Open(Option<String>),
}

/// Looks at the servers every `every`, and when it is asked.
pub(super) fn at_servers(source: Source, every: Duration, reports: Sender<Report>) -> Sender<Ask> {
    let (ask, asks) = channel();
    start(reports, move |reports| look(source, every, &asks, reports));
    ask
}

/// Reads the keys.
pub(super) fn at_keys(reports: Sender<Report>) {
    start(reports, |reports| {
        loop {
            let report = match event::read()? {
                Event::Key(key) => Report::Key(key),
                Event::Resize(..) => Report::Resized,
                _ => continue,
            };
            if reports.send(report).is_err() {
                return Ok(());
            }
        }
    });
}

/// Waits for signals: those that end the program, and those of job control that another process sent.
#[cfg(unix)]
pub(super) fn at_signals(reports: Sender<Report>) -> Result<(), Failure> {
    let mut signals =
        signal_hook::iterator::Signals::new([libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGTSTP, libc::SIGCONT])?;
    start(reports, move |reports| {
        for signal in signals.forever() {
            if reports.send(Report::Signal(signal)).is_err() {
                break;
            }
        }
        Ok(())
    });
    Ok(())
}

/// Starts a thread. Its end, by a failure or a panic, is its last report.
fn start(reports: Sender<Report>, run: impl FnOnce(&Sender<Report>) -> Result<(), Failure> + Send + 'static) {
    struct Last(Sender<Report>, Option<Failure>);

    impl Drop for Last {
        fn drop(&mut self) {
            let failure = self.1.take().unwrap_or_else(|| {
                Failure::new(crate::exit_code::ExitStatusCode::INTERNAL, "a thread of the view has ended")
            });
            // Fails if the view has ended, as it should.
            let _ = self.0.send(Report::Over(failure));
        }
    }

    thread::spawn(move || {
        let mut last = Last(reports.clone(), None);
        last.1 = run(&reports).err();
    });
}

fn look(mut source: Source, every: Duration, asks: &Receiver<Ask>, reports: &Sender<Report>) -> Result<(), Failure> {
    let (mut open, mut paused) = (None::<String>, false);
    loop {
        let due = Instant::now() + every;
        let snapshot = block(source.snapshot())?;
        let details = open.as_deref().and_then(|name| details(&source, name, &snapshot));
        if reports.send(Report::Looked(Box::new(snapshot))).is_err() {
            return Ok(());
        }
        if let Some(details) = details {
            let _ = reports.send(Report::Details(details));
        }
        // Until the next look.
        loop {
            let left = if paused { Duration::MAX } else { due.saturating_duration_since(Instant::now()) };
            match asks.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) | Ok(Ask::Look) => break,
                Ok(Ask::Pause(false)) => {
                    paused = false;
                    break;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Ask::Pause(true)) => paused = true,
                Ok(Ask::Open(None)) => open = None,
                Ok(Ask::Open(name)) => {
                    open = name;
                    break;
                }
                Ok(Ask::Scan) => {
                    let mut locks = 0;
                    let scanned = block(source.scan(None, |page, found| {
                        locks = found;
                        // Fails if the view has ended; then so does this process.
                        let _ = reports.send(Report::Scanning(page.visited, page.keys, found));
                    }));
                    let scanned = scanned.map(|_| locks).map_err(|failure| failure.message);
                    let _ = reports.send(Report::Scanned(scanned));
                    break;
                }
            }
        }
    }
}

/// What the nodes have of a lock. `None` if that failed: the snapshot says why.
fn details(source: &Source, name: &str, snapshot: &Snapshot) -> Option<Details> {
    let client = source.client();
    let info = snapshot.locks.iter().find(|lock| lock.name == name).and_then(|lock| lock.info.as_ref());
    let permits = if info.is_some_and(|info| info.kind == Kind::Semaphore) {
        // The number of permits has no meaning for this.
        let semaphore = client.semaphore(name, 1, LockOptions::default()).ok()?;
        block(semaphore.inspect()).unwrap_or_default()
    } else {
        Vec::new()
    };
    Some(Details { name: name.to_owned(), nodes: block(client.inspect_nodes(name)).ok()?, permits })
}
