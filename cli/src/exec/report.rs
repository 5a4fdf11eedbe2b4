//! What `exec` says on stderr: nothing, unless the lock was not obtained, was lost or could not be released. So it can
//! run under cron, which mails every line.

use std::{io::stderr, time::Duration};

use redlock::LostReason;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{signals, supervision::Cause};
use crate::{duration, talk::Talk};

/// Whether a line can be written to stderr within this time, or fails at once. It cannot if stderr is a full pipe, or a
/// terminal that Ctrl-S stopped.
pub(super) fn can_report(within: Duration) -> bool {
    let limit = Timespec::try_from(within).ok();
    !matches!(poll(&mut [PollFd::new(&stderr(), PollFlags::OUT)], limit.as_ref()), Ok(0))
}

/// The reports of one run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report<'a> {
    pub(super) talk: &'a Talk,
    pub(super) name: &'a str,
    /// The signal that ends the command.
    pub(super) signal: i32,
}

impl Report<'_> {
    /// The command is ended, since the lock is about to be lost or was lost.
    pub(super) fn ending(&self, cause: Cause, left: Duration) {
        let Self { name, .. } = self;
        let signal = signals::name(self.signal);
        self.talk.warn(&match cause {
            Cause::Deadline => {
                format!(
                    "lock {name:?} is lost in {} unless it is renewed: {signal} to the command",
                    duration::show(left)
                )
            }
            Cause::MaxHold => format!("lock {name:?} was held for --max-hold: {signal} to the command"),
            Cause::Lost(reason) => format!("lock {name:?} was lost ({reason}): the command is ended"),
        });
    }

    /// The lock was lost, and the command is left alone.
    pub(super) fn ignored(&self, reason: LostReason) {
        self.talk.warn(&format!("lock {:?} was lost ({reason}): the command goes on, by --on-loss ignore", self.name));
    }

    /// Only the release has found that the lock was lost.
    pub(super) fn found_lost(&self, reason: Option<LostReason>) {
        let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
        self.talk
            .warn(&format!("lock {:?} was lost{reason} while the command ran: others may have held it", self.name));
    }

    /// No node, or too few, confirmed the release.
    pub(super) fn unconfirmed(&self) {
        let name = self.name;
        self.talk.warn(&format!("the release of lock {name:?} was not confirmed: others wait until its lease ends"));
    }
}
