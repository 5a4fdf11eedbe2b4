//! The course of `redlock exec`: find the command, acquire the lock, supervise the command, release the lock.

use std::{io, sync::Arc, time::Duration};

use redlock::{Client, Event, Lease, LockError, ReleaseOutcome};

use super::{
    command::{Prepared, Variables, unusable},
    options::ExecOptions,
    outcome::{Held, exit_code},
    report::{Report, can_report},
    signals::Signals,
    supervise::{End, Supervised},
    supervision::Rules,
    terminal::{KeyEnd, Terminal},
    waiting::{self, NoLease},
};
use crate::{block::block, connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Runs the command under the lock, and returns the exit code. Call it on the main thread: see `child`.
pub(crate) fn run(options: ExecOptions, servers: &ConnectOptions, talk: &Talk) -> ExitStatusCode {
    match prepare(options, servers, talk).and_then(|run| run.finish(talk)) {
        Ok(finish) => {
            if let Some(key) = finish.key {
                key.end();
            }
            finish.code
        }
        Err(failure) => failure.report(talk),
    }
}

/// All that is checked before the lock is acquired.
struct Run {
    options: ExecOptions,
    prepared: Prepared,
    rules: Rules,
    terminal: Option<Terminal>,
    signals: Signals,
    client: Client,
    /// The ttl of the client's renewed leases.
    watchdog: Duration,
}

/// How `exec` ends.
struct Finish {
    code: ExitStatusCode,
    /// The key that ended the command or the wait.
    key: Option<KeyEnd>,
}

impl From<u8> for Finish {
    fn from(code: u8) -> Self {
        Self { code: ExitStatusCode(code), key: None }
    }
}

fn prepare(mut options: ExecOptions, servers: &ConnectOptions, talk: &Talk) -> Result<Run, Failure> {
    let mut config = servers.config()?;
    options.configure(&mut config);
    let terminal = Terminal::open();
    let rules = options.rules(&config, terminal.is_some(), options.foreground && terminal.is_some())?;
    let prepared = match options.line.take() {
        Some(line) => Prepared::shell(line),
        None => Prepared::new(options.command.remove(0), std::mem::take(&mut options.command)),
    }?;
    let signals = Signals::handle().map_err(|error| no_signals(&error))?;
    let waker = signals.waker().map_err(|error| no_signals(&error))?;
    let talk = *talk;
    let events = move |event: &Event| match event {
        // A loss that a reply reports must wake the loop at once.
        Event::Lost { .. } => waker.wake(),
        // All events wait for this call.
        Event::NodeWarning { .. } if can_report(Duration::ZERO) => talk.detail(&event.to_string()),
        _ => {}
    };
    let watchdog = config.watchdog;
    let client = Client::with_events(config, Arc::new(events))?;
    Ok(Run { options, prepared, rules, terminal, signals, client, watchdog })
}

fn no_signals(error: &io::Error) -> Failure {
    Failure::new(ExitStatusCode::INTERNAL, format!("cannot handle signals: {error}"))
}

impl Run {
    fn finish(self, talk: &Talk) -> Result<Finish, Failure> {
        let client = self.client.clone();
        let finish = self.under_the_lock(talk);
        // A wait that was given up takes back what it may have been granted.
        client.close_blocking();
        finish
    }

    fn under_the_lock(self, talk: &Talk) -> Result<Finish, Failure> {
        let lock = self.options.lock(&self.client)?;
        match waiting::acquire(&lock, &self.signals, talk) {
            Ok(lease) => self.with(&lease, talk),
            Err(NoLease::Signal(signal)) => Ok(self.ended_by(signal)),
            Err(NoLease::Late(signal, lease)) => {
                self.give_back(&lease);
                Ok(self.ended_by(signal))
            }
            Err(NoLease::Failed(error @ LockError::Timeout { .. })) => {
                // Where it counts as success, cron shall mail nothing.
                if self.options.conflict_exit_code != 0 {
                    talk.say(&Failure::from(error).message);
                }
                Ok(Finish::from(self.options.conflict_exit_code))
            }
            Err(NoLease::Failed(error)) => Err(error.into()),
        }
    }

    /// The end after a signal before the command ran.
    fn ended_by(&self, signal: i32) -> Finish {
        let key = self.terminal.as_ref().and_then(|terminal| terminal.key_end(signal));
        Finish { code: ExitStatusCode((128 + signal) as u8), key }
    }

    /// Runs the command under this lease, and releases it.
    fn with(mut self, lease: &Lease, talk: &Talk) -> Result<Finish, Failure> {
        talk.detail(&format!("acquired {:?} with token {}", lease.name(), lease.token()));
        let report = Report { talk, name: lease.name(), signal: self.rules.signal };
        let End { ended, by_us, reported, key } = match self.supervise(lease, report) {
            Ok(end) => end,
            Err(failure) => {
                self.give_back(lease);
                return Err(failure);
            }
        };
        let lost = lease.lost_reason().is_some();
        let released = lease.release_blocking()?;
        let lost = lost || released == ReleaseOutcome::Lost;
        if lost && !reported {
            report.found_lost(lease.lost_reason());
        }
        if released == ReleaseOutcome::Unconfirmed {
            report.unconfirmed();
        }
        talk.detail(&format!("release of {:?}: {}", lease.name(), released.as_str()));
        let held = match (by_us, lost) {
            (true, _) => Held::EndedBy(self.rules.signal),
            (false, true) => Held::Lost,
            (false, false) => Held::ToTheEnd,
        };
        let key = key.filter(|_| held == Held::ToTheEnd);
        Ok(Finish { code: ExitStatusCode(exit_code(ended, held)), key })
    }

    /// Frees the lock of a command that did not run, also before its `min_hold` is over. The failure or signal that kept
    /// the command from running is reported, and not the outcome.
    fn give_back(&self, lease: &Lease) {
        drop(lease.release_blocking());
        if self.options.min_hold.is_some() {
            drop(block(self.client.force_release_token(lease.name(), lease.token())));
        }
    }

    fn supervise(&mut self, lease: &Lease, report: Report<'_>) -> Result<End, Failure> {
        self.signals.handle_stops().map_err(|error| no_signals(&error))?;
        let command = self.prepared.command(&Variables {
            name: lease.name(),
            token: lease.token(),
            slot: lease.slots().first().map(|slot| slot.number),
            ttl: self.options.lease(self.watchdog),
            owner: self.options.owner.as_deref(),
        });
        let supervised =
            Supervised::start(command, self.options.foreground, self.terminal.take(), &self.signals, lease, report)
                .map_err(|error| unusable(self.prepared.name(), &error))?;
        Ok(supervised.run(self.rules))
    }
}
