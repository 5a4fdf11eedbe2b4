//! The state machine that decides which signals the command gets, and when `exec` ends. Pure: no clock, no process, no
//! I/O. The caller reports signals and changes of the command, calls `look` whenever something happened or the time it
//! asked for is over, and performs the actions.
//!
//! ```text
//! Running ──TERM, INT, HUP or QUIT to `exec`──────────▶ Running, forwarded; a second INT: killed
//! Running ──lease about to end, or lost by a reply────▶ Ending, signalled ──kill-after, or margin before D──▶ killed
//! Running ──lease over────────────────────────────────▶ killed
//! Running ──stopped, with job control─────────────────▶ suspended; after CONT: resumed, or killed if the lock is lost
//! any     ──the command ended─────────────────────────▶ over, once the rest of a signalled group is gone, too
//! ```

use std::time::Duration;

use redlock::LostReason;

/// Signal numbers that the machine distinguishes. They are the same on every Unix, except for `TSTP` and `CONT`.
use super::signals::{CONT, HUP, INT, QUIT, TERM, TSTP};

/// How often to look while something is awaited that no signal reports: a renewal, or the end of grandchildren.
const POLL: Duration = Duration::from_millis(20);
/// How long to wait for a group after SIGKILL. Its processes end at once, unless the kernel cannot interrupt them.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// The constants of one run, from the options.
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Sent when the lock is about to be lost, or was lost.
    pub(super) signal: i32,
    /// The time from that signal to SIGKILL.
    pub(super) kill_after: Duration,
    /// SIGKILL is sent this long before the deadline.
    pub(super) margin: Duration,
    /// Sent when the lease is at risk.
    pub(super) warning: Option<Warning>,
    /// Whether a loss leaves the command alone.
    pub(super) ignore_loss: bool,
    /// The command is ended after this time.
    pub(super) max_hold: Option<Duration>,
    /// Whether the watchdog renews the lease.
    pub(super) renewed: bool,
    /// Whether `exec` stops when the command stops.
    pub(super) job_control: bool,
    /// Whether the command shares the terminal's foreground group with `exec`, so that the terminal's keys reach both.
    pub(super) shares_keys: bool,
}

/// A signal that the command gets before it must end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warning {
    pub(super) signal: i32,
    /// It is sent this long before the deadline.
    pub(super) left: Duration,
}

/// The state of the lease, by its own clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The time until the deadline; zero once it was lost.
    pub(super) left: Duration,
    pub(super) lost: Option<LostReason>,
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

/// A change of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Stopped,
    Continued,
    Ended(Ended),
}

/// Why the command is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The lease was not renewed, or is a fixed one, and its deadline comes near.
    Deadline,
    /// `--max-hold` is over.
    MaxHold,
    /// The lock was lost.
    Lost(LostReason),
}

/// What the caller does next, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send this signal to the command.
    Send(i32),
    /// Report that the command is ended, and why. The lease has this much time left.
    Report(Cause, Duration),
    /// Report a loss that leaves the command alone.
    ReportIgnored(LostReason),
    /// SIGKILL to the command.
    Kill,
    /// Stop `exec` itself until somebody continues it. Then report a signal CONT.
    Suspend,
    /// Continue the stopped command.
    Resume,
}

/// The result of a look.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) actions: Vec<Action>,
    /// The next look is due after this time, unless something happens before.
    pub(super) wake: Duration,
    /// How the command ended, once there is nothing left to do.
    pub(super) over: Option<Ended>,
}

/// The command is being ended.
#[derive(Clone, Copy, Debug)]
struct Ending {
    kill_at: Duration,
}

/// The times until the command must be signalled and killed.
#[derive(Clone, Copy, Debug)]
struct Due {
    signal: Duration,
    kill: Duration,
    left: Duration,
    cause: Cause,
}

/// See the head of this file. Times are since the acquire.
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
#[derive(Debug)]
pub(super) struct Supervisor {
    rules: Rules,
    actions: Vec<Action>,
    /// Somebody else asked the command to end.
    asked_to_end: bool,
    ending: Option<Ending>,
    killed: bool,
    warned: bool,
    reported_ignored: bool,
    stopped: bool,
    /// `exec` was continued, and the command is not yet.
    resuming: bool,
    ended: Option<Ended>,
    /// When the rest of the group is killed, and when it is given up.
    group_until: Option<Duration>,
}

impl Supervisor {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            actions: Vec::new(),
            asked_to_end: false,
            ending: None,
            killed: false,
            warned: false,
            reported_ignored: false,
            stopped: false,
            resuming: false,
            ended: None,
            group_until: None,
        }
    }

    /// Whether it began to end the command because of the lock.
    pub(super) fn ended_by_us(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether it reported a loss, or the end of the command because of the lock.
    pub(super) fn has_reported(&self) -> bool {
        self.reported_ignored || self.ended_by_us()
    }

    /// A signal that `exec` received.
    pub(super) fn signalled(&mut self, signal: i32) {
        match signal {
            INT if self.asked_to_end => return self.kill(),
            TERM | INT | HUP | QUIT => self.asked_to_end = true,
            CONT if self.stopped => {
                self.resuming = true;
                return;
            }
            _ => {}
        }
        if !(self.rules.shares_keys && matches!(signal, INT | QUIT | TSTP)) {
            self.actions.push(Action::Send(signal));
        }
    }

    /// A change of the command.
    pub(super) fn changed(&mut self, change: Change) {
        match change {
            Change::Stopped => {
                self.stopped = true;
                if self.rules.job_control {
                    self.actions.push(Action::Suspend);
                }
            }
            Change::Continued => (self.stopped, self.resuming) = (false, false),
            Change::Ended(ended) => {
                self.ended = Some(ended);
                // A key of the terminal signals the whole group, and `exec` gets no signal.
                self.asked_to_end |= matches!(ended, Ended::Signalled(HUP | INT | QUIT | TERM));
            }
        }
    }

    /// Decides what to do now. `group_alive`: whether a process of the command's group is left; it matters once the
    /// command has ended.
    pub(super) fn look(&mut self, now: Duration, lease: View, group_alive: bool) -> Look {
        let (wake, over) = match self.ended {
            None => (self.warn(lease).min(self.guard(now, lease)), None),
            Some(ended) => match self.rest_of_group(now, lease, group_alive) {
                Some(wake) => (wake, None),
                None => (Duration::ZERO, Some(ended)),
            },
        };
        Look { actions: std::mem::take(&mut self.actions), wake, over }
    }

    /// Warns the command, once for each time that the lease is at risk. Returns the time until the warning is due.
    fn warn(&mut self, lease: View) -> Duration {
        let Some(warning) = self.rules.warning else { return Duration::MAX };
        let until = lease.left.saturating_sub(warning.left);
        let at_risk = until.is_zero() && lease.lost.is_none();
        if at_risk && !self.warned {
            self.actions.push(Action::Send(warning.signal));
        }
        self.warned = at_risk;
        if until.is_zero() { Duration::MAX } else { until }
    }

    /// Watches the lease while the command runs. Returns the time of the next look.
    fn guard(&mut self, now: Duration, lease: View) -> Duration {
        if self.killed {
            return Duration::MAX;
        }
        self.report_ignored(lease);
        let due = self.due(now, lease);
        if self.resuming {
            return self.resume(now, due);
        }
        if due.signal.is_zero() && self.ending.is_none() {
            self.end(now, due);
            if !due.kill.is_zero() {
                self.actions.push(Action::Send(self.rules.signal));
            }
        }
        let Some(ending) = self.ending else { return due.signal };
        let kill = due.kill.min(ending.kill_at.saturating_sub(now));
        if kill.is_zero() {
            self.kill();
        }
        kill
    }

    /// Continues a command that stopped, if the lock is held for long enough; kills it while it is stopped if the lock
    /// was lost. In between a renewal may be on its way: `exec` was stopped, too, and sent none.
    fn resume(&mut self, now: Duration, due: Due) -> Duration {
        if due.kill.is_zero() || matches!(due.cause, Cause::Lost(_)) {
            self.end(now, due);
            self.kill();
        } else if !due.signal.is_zero() || !self.rules.renewed || self.ending.is_some() {
            self.resuming = false;
            self.actions.push(Action::Resume);
            return Duration::ZERO;
        }
        due.kill.min(POLL)
    }

    /// The times left, by the lease and by `max_hold`.
    fn due(&self, now: Duration, lease: View) -> Due {
        let Rules { kill_after, margin, .. } = self.rules;
        let held = self.rules.max_hold.map_or(Duration::MAX, |limit| limit.saturating_sub(now));
        let (left, cause) = match lease.lost {
            _ if self.rules.ignore_loss => (held, Cause::MaxHold),
            Some(reason) if told_by_reply(reason) => {
                // It may be another owner's already. No deadline is left that the command could be killed before.
                return Due {
                    signal: Duration::ZERO,
                    kill: Duration::MAX,
                    left: Duration::ZERO,
                    cause: Cause::Lost(reason),
                };
            }
            Some(reason) => (Duration::ZERO, Cause::Lost(reason)),
            None if held < lease.left => (held, Cause::MaxHold),
            None => (lease.left, Cause::Deadline),
        };
        Due { signal: left.saturating_sub(kill_after.max(margin)), kill: left.saturating_sub(margin), left, cause }
    }

    fn end(&mut self, now: Duration, due: Due) {
        if self.ending.is_none() {
            self.ending = Some(Ending { kill_at: now + self.rules.kill_after });
            self.actions.push(Action::Report(due.cause, due.left));
        }
    }

    fn kill(&mut self) {
        if !self.killed {
            self.killed = true;
            self.actions.push(Action::Kill);
        }
    }

    fn report_ignored(&mut self, lease: View) {
        if let Some(reason) = lease.lost
            && self.rules.ignore_loss
            && !self.reported_ignored
        {
            self.reported_ignored = true;
            self.actions.push(Action::ReportIgnored(reason));
        }
    }

    /// Waits for the other processes of the command's group, if the command was signalled: they were, too. Returns the
    /// time of the next look, `None` if there is nothing to wait for.
    fn rest_of_group(&mut self, now: Duration, lease: View, alive: bool) -> Option<Duration> {
        let signalled = self.asked_to_end || self.ending.is_some() || self.killed;
        if !alive || !signalled {
            return None;
        }
        let due = self.due(now, lease);
        let until = *self.group_until.get_or_insert(match self.ending {
            _ if self.killed => now + AFTER_KILL,
            Some(ending) => ending.kill_at,
            None => now + self.rules.kill_after,
        });
        if self.killed {
            return (now < until).then_some(POLL);
        }
        if due.signal.is_zero() {
            self.end(now, due);
        }
        let left = until.saturating_sub(now).min(due.kill);
        if left.is_zero() {
            self.kill();
            self.group_until = Some(now + AFTER_KILL);
        }
        Some(left.min(POLL))
    }
}

/// Whether a node's reply reported the loss, so that it was unforeseen. The other losses are those of a deadline.
fn told_by_reply(reason: LostReason) -> bool {
    matches!(reason, LostReason::Taken | LostReason::Deleted | LostReason::Released)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const RULES: Rules = Rules {
        signal: TERM,
        kill_after: secs(5),
        margin: ms(300),
        warning: None,
        ignore_loss: false,
        max_hold: None,
        renewed: true,
        job_control: true,
        shares_keys: false,
    };

    fn held(left: Duration) -> View {
        View { left, lost: None }
    }

    fn lost(reason: LostReason) -> View {
        View { left: Duration::ZERO, lost: Some(reason) }
    }

    /// The actions of a look after so many seconds.
    fn actions(supervisor: &mut Supervisor, now: u64, lease: View) -> Vec<Action> {
        supervisor.look(secs(now), lease, true).actions
    }

    #[test]
    fn an_outage_ends_the_command_before_the_deadline() {
        let mut it = Supervisor::new(RULES);
        let look = it.look(secs(1), held(secs(26)), true);
        assert_eq!((look.actions, look.wake), (vec![], secs(21)));
        let look = it.look(secs(22), held(secs(5)), true);
        assert_eq!(look.actions, [Action::Report(Cause::Deadline, secs(5)), Action::Send(TERM)]);
        assert_eq!(look.wake, ms(4700), "until the margin before the deadline");
        assert_eq!(it.look(ms(26_699), held(ms(301)), true).actions, []);
        assert_eq!(it.look(ms(26_700), held(ms(300)), true).actions, [Action::Kill]);
        it.changed(Change::Ended(Ended::Signalled(9)));
        let look = it.look(ms(26_710), held(ms(290)), false);
        assert_eq!(look.over, Some(Ended::Signalled(9)));
        assert!(it.ended_by_us());
    }

    #[test]
    fn a_late_renewal_does_not_save_the_command() {
        let mut it = Supervisor::new(RULES);
        it.look(secs(22), held(secs(5)), true);
        let look = it.look(secs(23), held(secs(27)), true);
        assert_eq!((look.actions, look.wake), (vec![], secs(4)));
        assert_eq!(actions(&mut it, 27, held(secs(23))), [Action::Kill]);
    }

    #[test]
    fn a_loss_by_a_reply_signals_at_once_and_kills_later() {
        for reason in [LostReason::Taken, LostReason::Deleted, LostReason::Released] {
            let mut it = Supervisor::new(RULES);
            let report = Action::Report(Cause::Lost(reason), Duration::ZERO);
            assert_eq!(actions(&mut it, 8, lost(reason)), [report, Action::Send(TERM)]);
            let look = it.look(secs(9), lost(reason), true);
            assert_eq!((look.actions, look.wake), (vec![], secs(4)));
            assert_eq!(actions(&mut it, 13, lost(reason)), [Action::Kill]);
        }
    }

    #[test]
    fn a_lease_that_is_over_kills_at_once() {
        for reason in [LostReason::Expired, LostReason::Unreachable, LostReason::Closed] {
            let mut it = Supervisor::new(RULES);
            let report = Action::Report(Cause::Lost(reason), Duration::ZERO);
            assert_eq!(actions(&mut it, 60, lost(reason)), [report, Action::Kill]);
        }
    }

    #[test]
    fn max_hold_ends_the_command_as_an_outage_does() {
        let mut it = Supervisor::new(Rules { max_hold: Some(secs(60)), ..RULES });
        assert_eq!(it.look(secs(50), held(secs(20)), true).wake, secs(5));
        let report = Action::Report(Cause::MaxHold, secs(5));
        assert_eq!(actions(&mut it, 55, held(secs(20))), [report, Action::Send(TERM)]);
        assert_eq!(it.look(ms(59_700), held(secs(20)), true).actions, [Action::Kill]);
    }

    #[test]
    fn losses_may_be_ignored_but_not_max_hold() {
        let mut it = Supervisor::new(Rules { ignore_loss: true, max_hold: Some(secs(60)), ..RULES });
        assert_eq!(actions(&mut it, 20, held(secs(1))), []);
        let report = Action::ReportIgnored(LostReason::Unreachable);
        assert_eq!(actions(&mut it, 30, lost(LostReason::Unreachable)), [report]);
        assert_eq!(actions(&mut it, 31, lost(LostReason::Unreachable)), []);
        assert!(!it.ended_by_us());
        let ended = actions(&mut it, 55, lost(LostReason::Unreachable));
        assert_eq!(ended, [Action::Report(Cause::MaxHold, secs(5)), Action::Send(TERM)]);
    }

    #[test]
    fn signals_are_forwarded_and_a_second_int_kills() {
        let mut it = Supervisor::new(RULES);
        for signal in [TERM, HUP, 10, 12, CONT, 28] {
            it.signalled(signal);
            assert_eq!(actions(&mut it, 1, held(secs(26))), [Action::Send(signal)]);
        }
        it.signalled(INT);
        assert_eq!(actions(&mut it, 2, held(secs(26))), [Action::Kill]);
        it.signalled(INT);
        assert_eq!(actions(&mut it, 2, held(secs(26))), []);
        it.changed(Change::Ended(Ended::Signalled(9)));
        assert_eq!(it.look(secs(2), held(secs(26)), false).over, Some(Ended::Signalled(9)));
        assert!(!it.ended_by_us(), "the user did");
    }

    #[test]
    fn keys_of_a_shared_terminal_are_not_sent_twice() {
        let mut it = Supervisor::new(Rules { shares_keys: true, ..RULES });
        for signal in [QUIT, TSTP] {
            it.signalled(signal);
            assert_eq!(actions(&mut it, 1, held(secs(26))), []);
        }
        it.signalled(TERM);
        assert_eq!(actions(&mut it, 1, held(secs(26))), [Action::Send(TERM)]);
        it.signalled(INT);
        assert_eq!(actions(&mut it, 1, held(secs(26))), [Action::Kill]);
    }

    #[test]
    fn a_stop_suspends_and_a_held_lock_resumes() {
        let mut it = Supervisor::new(RULES);
        it.changed(Change::Stopped);
        assert_eq!(actions(&mut it, 1, held(secs(26))), [Action::Suspend]);
        it.signalled(CONT);
        assert_eq!(actions(&mut it, 20, held(secs(7))), [Action::Resume]);
        it.changed(Change::Continued);
        assert_eq!(actions(&mut it, 21, held(secs(27))), []);
    }

    #[test]
    fn a_lock_lost_while_stopped_kills_the_stopped_command() {
        for reason in [LostReason::Expired, LostReason::Taken] {
            let mut it = Supervisor::new(RULES);
            it.changed(Change::Stopped);
            it.look(secs(1), held(secs(26)), true);
            it.signalled(CONT);
            let report = Action::Report(Cause::Lost(reason), Duration::ZERO);
            assert_eq!(actions(&mut it, 40, lost(reason)), [report, Action::Kill]);
        }
    }

    #[test]
    fn with_little_time_left_a_stopped_command_waits_for_the_renewal() {
        let mut it = Supervisor::new(RULES);
        it.changed(Change::Stopped);
        it.look(secs(1), held(secs(26)), true);
        it.signalled(CONT);
        let look = it.look(secs(24), held(secs(3)), true);
        assert_eq!((look.actions, look.wake), (vec![], POLL));
        assert_eq!(it.look(ms(24_020), held(secs(27)), true).actions, [Action::Resume]);

        let mut it = Supervisor::new(Rules { renewed: false, ..RULES });
        it.changed(Change::Stopped);
        it.look(secs(1), held(secs(26)), true);
        it.signalled(CONT);
        let ended = [Action::Report(Cause::Deadline, secs(3)), Action::Send(TERM)];
        assert_eq!(actions(&mut it, 24, held(secs(3))), [Action::Resume], "no renewal comes");
        assert_eq!(actions(&mut it, 24, held(secs(3))), ended);
    }

    #[test]
    fn without_job_control_a_stop_suspends_nothing() {
        let mut it = Supervisor::new(Rules { job_control: false, ..RULES });
        it.changed(Change::Stopped);
        assert_eq!(actions(&mut it, 1, held(secs(26))), []);
        let ended = [Action::Report(Cause::Deadline, secs(5)), Action::Send(TERM)];
        assert_eq!(actions(&mut it, 22, held(secs(5))), ended);
    }

    #[test]
    fn the_rest_of_a_signalled_group_is_waited_for_and_killed() {
        let mut it = Supervisor::new(RULES);
        it.signalled(TERM);
        it.changed(Change::Ended(Ended::Signalled(TERM)));
        assert_eq!(it.look(secs(1), held(secs(26)), true).over, None);
        assert_eq!(it.look(secs(5), held(secs(22)), true).actions, []);
        assert_eq!(it.look(secs(6), held(secs(21)), true).actions, [Action::Kill]);
        assert_eq!(it.look(ms(6_020), held(secs(21)), false).over, Some(Ended::Signalled(TERM)));
        assert!(!it.ended_by_us());
    }

    #[test]
    fn the_rest_of_a_group_is_killed_before_the_deadline() {
        let mut it = Supervisor::new(RULES);
        it.look(secs(22), held(secs(5)), true);
        it.changed(Change::Ended(Ended::Signalled(TERM)));
        assert_eq!(it.look(secs(23), held(secs(4)), true).actions, []);
        assert_eq!(it.look(ms(26_700), held(ms(300)), true).actions, [Action::Kill]);
        assert_eq!(it.look(ms(26_720), held(ms(280)), true).over, None);
        assert!(it.look(ms(27_700), lost(LostReason::Unreachable), true).over.is_some(), "it cannot be waited for");
    }

    #[test]
    fn background_processes_of_a_command_that_ended_by_itself_are_left_alone() {
        let mut it = Supervisor::new(RULES);
        it.changed(Change::Ended(Ended::Exited(0)));
        let look = it.look(secs(1), held(secs(26)), true);
        assert_eq!((look.actions, look.over), (vec![], Some(Ended::Exited(0))));
    }

    #[test]
    fn a_command_that_a_key_ended_was_signalled_with_its_group() {
        let mut it = Supervisor::new(RULES);
        it.changed(Change::Ended(Ended::Signalled(INT)));
        assert_eq!(it.look(secs(1), held(secs(26)), true).over, None);
        assert_eq!(it.look(secs(6), held(secs(21)), true).actions, [Action::Kill]);
    }

    #[test]
    fn a_lease_at_risk_warns_once_each_time() {
        let warning = Some(Warning { signal: 10, left: secs(7) });
        let mut it = Supervisor::new(Rules { warning, ..RULES });
        assert_eq!(it.look(secs(1), held(secs(26)), true).wake, secs(19));
        assert_eq!(actions(&mut it, 20, held(secs(7))), [Action::Send(10)]);
        assert_eq!(actions(&mut it, 21, held(secs(6))), []);
        assert_eq!(actions(&mut it, 22, held(secs(26))), []);
        assert_eq!(actions(&mut it, 42, held(secs(6))), [Action::Send(10)]);
    }
}
