//! The loop around a running command: it feeds the state machine of `supervision`, and performs its actions.

use std::{
    io,
    process::Command,
    time::{Duration, Instant},
};

use redlock::Lease;

use super::{
    child::Child,
    report::{Report, can_report},
    signals::{self, CONT, INT, QUIT, Signals},
    supervision::{Action, Ended, Rules, Supervisor, View},
    terminal::{self, KeyEnd, Terminal},
};

/// The longest time between two looks: timers may stop while the machine is suspended, the lease's clock does not.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long a report waits for whoever reads stderr, once the command has ended.
const LAST_REPORT: Duration = Duration::from_secs(1);

/// A command under supervision.
#[derive(Debug)]
pub(super) struct Supervised<'a> {
    child: Child,
    terminal: Option<Terminal>,
    signals: &'a Signals,
    lease: &'a Lease,
    report: Report<'a>,
    since: Instant,
}

/// The end of a command.
#[derive(Debug)]
pub(super) struct End {
    pub(super) ended: Ended,
    /// Whether it was ended because of the lock.
    pub(super) by_us: bool,
    /// Whether a loss was reported while it ran.
    pub(super) reported: bool,
    /// A key, such as Ctrl-C, that ended the command.
    pub(super) key: Option<KeyEnd>,
}

impl<'a> Supervised<'a> {
    /// Starts the command. `foreground`: in the process group of this process.
    pub(super) fn start(
        command: Command,
        foreground: bool,
        terminal: Option<Terminal>,
        signals: &'a Signals,
        lease: &'a Lease,
        report: Report<'a>,
    ) -> io::Result<Self> {
        let since = Instant::now();
        let child = Child::start(command, foreground, terminal.as_ref())?;
        Ok(Self { child, terminal, signals, lease, report, since })
    }

    /// Supervises the command to its end.
    pub(super) fn run(mut self, rules: Rules) -> End {
        let mut supervisor = Supervisor::new(rules);
        // If the command has the terminal, a key signals its group alone.
        let mut handled = Vec::new();
        // What could not be reported yet.
        let mut unreported = Vec::new();
        let ended = loop {
            // First the signals: whatever happens after this call wakes the wait below.
            for signal in self.signals.take() {
                handled.push(signal);
                supervisor.signalled(signal);
            }
            for (change, stopped_by) in self.child.changes() {
                if !self.lends_on_demand(stopped_by) {
                    supervisor.changed(change);
                }
            }
            let look = supervisor.look(self.since.elapsed(), self.view(), self.child.group_is_alive());
            let suspended = look.actions.contains(&Action::Suspend);
            for action in look.actions {
                // The signals to the command must not wait for whoever reads stderr.
                if matches!(action, Action::Report(..) | Action::ReportIgnored(_)) && !can_report(Duration::ZERO) {
                    unreported.push(action);
                } else {
                    self.perform(action, &mut supervisor);
                }
            }
            if let Some(ended) = look.over {
                break ended;
            }
            if !suspended {
                self.signals.wait(look.wake.min(LONGEST_WAIT));
            }
        };
        let key = self.leave_terminal(ended, &handled);
        if !unreported.is_empty() && can_report(LAST_REPORT) {
            for action in unreported {
                self.perform(action, &mut supervisor);
            }
        }
        End { ended, by_us: supervisor.ended_by_us(), reported: supervisor.has_reported(), key }
    }

    fn view(&self) -> View {
        // In this order: a lease whose time is over has its reason.
        let left = self.lease.remaining();
        View { left, lost: self.lease.lost_reason() }
    }

    fn perform(&self, action: Action, supervisor: &mut Supervisor) {
        match action {
            Action::Send(signal) => self.child.send(signal),
            Action::Kill => self.child.send(signals::KILL),
            Action::Report(cause, left) => self.report.ending(cause, left),
            Action::ReportIgnored(reason) => self.report.ignored(reason),
            Action::Suspend => {
                if let (Some(terminal), Some(group)) = (&self.terminal, self.child.group()) {
                    terminal.take_back(group);
                }
                terminal::suspend();
                supervisor.signalled(CONT);
            }
            Action::Resume => {
                if let (Some(terminal), Some(group)) = (&self.terminal, self.child.group())
                    && terminal.lends_at_start()
                {
                    terminal.lend(group);
                }
                self.child.send(CONT);
            }
        }
    }

    /// Gives the terminal to a command that was stopped because it has not got it, and continues it.
    fn lends_on_demand(&self, stopped_by: Option<i32>) -> bool {
        let (Some(terminal), Some(group)) = (&self.terminal, self.child.group()) else { return false };
        let asks = matches!(stopped_by, Some(libc::SIGTTIN | libc::SIGTTOU));
        let lent = asks && terminal.is_ours() && terminal.lend(group);
        if lent {
            self.child.send(CONT);
        }
        lent
    }

    /// Takes the terminal back, with its modes if the command could not restore them. Returns the key that ended the
    /// command. `handled`: the signals that reached this process.
    fn leave_terminal(&self, ended: Ended, handled: &[i32]) -> Option<KeyEnd> {
        let terminal = self.terminal.as_ref()?;
        let had = self.child.group().is_some_and(|group| terminal.take_back(group));
        let Ended::Signalled(signal) = ended else { return None };
        if had {
            terminal.restore_modes();
        }
        if handled.contains(&signal) {
            return terminal.key_end(signal);
        }
        (had && [INT, QUIT].contains(&signal)).then_some(KeyEnd::Group(signal))
    }
}
