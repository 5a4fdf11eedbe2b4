//! What `exec` says on stderr: nothing, unless the lock was not obtained, was lost or could not be released. So it can
//! run under cron, which mails every line.

use std::time::Duration;

use redlock::LostReason;

use super::{signals, supervision::Cause};
use crate::{duration, talk::Talk};

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

    /// No node, or too few, confirmed the release.
    pub(super) fn unconfirmed(&self) {
        let name = self.name;
        self.talk.warn(&format!("the release of lock {name:?} was not confirmed: others wait until its lease ends"));
    }
}
