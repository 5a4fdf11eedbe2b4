//! The exit code of `redlock exec`, from the end of the command and the state of the lock.

use super::{signals::KILL, supervision::Ended};
use crate::exit_code::ExitStatusCode;

/// The exit code if the command was ended because of the lock, or succeeded after the lock was lost.
const LOST: u8 = ExitStatusCode::LOST.0;

/// The state of the lock at the end of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// It was held to the end.
    ToTheEnd,
    /// It was lost, and the command was left alone.
    Lost,
    /// The command was ended with this signal because of the lock.
    EndedBy(i32),
}

/// The exit code. The command's own failure goes before the loss, except for the usual code of a program that was told
/// to end.
pub(super) fn exit_code(ended: Ended, held: Held) -> u8 {
    let own = match ended {
        Ended::Exited(code) => byte(code),
        Ended::Signalled(signal) => byte(128 + signal),
    };
    match (held, ended) {
        (Held::ToTheEnd, _) => own,
        (Held::EndedBy(_), Ended::Signalled(_)) => LOST,
        (Held::EndedBy(signal), _) if [128 + signal, 128 + KILL].contains(&own.into()) => LOST,
        (Held::Lost | Held::EndedBy(_), _) => {
            if own == 0 {
                LOST
            } else {
                own
            }
        }
    }
}

/// An exit code as the kernel passes it on.
fn byte(code: i32) -> u8 {
    code as u8
}

#[cfg(test)]
mod tests {
    use super::{super::signals::TERM, *};

    #[test]
    fn the_commands_own_code_passes() {
        for code in 0..=255 {
            assert_eq!(i32::from(exit_code(Ended::Exited(code), Held::ToTheEnd)), code);
        }
        for signal in 1..=64 {
            assert_eq!(i32::from(exit_code(Ended::Signalled(signal), Held::ToTheEnd)), 128 + signal);
        }
    }

    #[test]
    fn a_loss_replaces_success_and_our_own_signals() {
        for (ended, held, code) in [
            (Ended::Exited(0), Held::Lost, LOST),
            (Ended::Exited(3), Held::Lost, 3),
            (Ended::Signalled(TERM), Held::Lost, 143),
            (Ended::Exited(0), Held::EndedBy(TERM), LOST),
            (Ended::Exited(143), Held::EndedBy(TERM), LOST),
            (Ended::Exited(137), Held::EndedBy(TERM), LOST),
            (Ended::Exited(3), Held::EndedBy(TERM), 3),
            (Ended::Signalled(TERM), Held::EndedBy(TERM), LOST),
            (Ended::Signalled(KILL), Held::EndedBy(TERM), LOST),
        ] {
            assert_eq!(exit_code(ended, held), code, "{ended:?} {held:?}");
        }
    }
}
