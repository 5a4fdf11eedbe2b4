//! The exit codes: those of sysexits.h where one fits, as flock(1) has it.

use std::process::ExitCode;

use redlock::{LockError, NodeCause};

/// The exit code of `redlock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExitStatusCode(pub(crate) u8);

impl ExitStatusCode {
    /// Done. From `inspect`: somebody holds the lock.
    pub(crate) const DONE: Self = Self(0);
    /// Only from `inspect`: nobody holds the lock.
    pub(crate) const FREE: Self = Self(1);
    /// Only from `doctor`: something may go wrong.
    pub(crate) const WARNING: Self = Self(1);
    /// Only from `doctor`: locks cannot be acquired, or are not exclusive.
    pub(crate) const CRITICAL: Self = Self(2);
    /// Only from `doctor`: a check could not be made.
    pub(crate) const UNKNOWN: Self = Self(3);
    /// `EX_USAGE`: an option or argument is wrong.
    pub(crate) const USAGE: Self = Self(64);
    /// `EX_DATAERR`: the key holds something that is no lock.
    pub(crate) const CONFLICT: Self = Self(65);
    /// `EX_UNAVAILABLE`: fewer nodes answered than must agree.
    pub(crate) const UNAVAILABLE: Self = Self(69);
    /// `EX_SOFTWARE`: an internal error.
    pub(crate) const INTERNAL: Self = Self(70);
    /// `EX_IOERR`: the output could not be written.
    pub(crate) const OUTPUT: Self = Self(74);
    /// `EX_TEMPFAIL`: somebody else holds the lock.
    pub(crate) const HELD: Self = Self(75);
    /// `EX_NOPERM`: a node refused the login or a right.
    pub(crate) const REFUSED: Self = Self(77);
    /// The lock was lost; one past the last code of sysexits.h.
    pub(crate) const LOST: Self = Self(79);
    /// The command is not executable.
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    /// The command was not found.
    pub(crate) const NOT_FOUND: Self = Self(127);
}

impl From<ExitStatusCode> for ExitCode {
    fn from(code: ExitStatusCode) -> Self {
        code.0.into()
    }
}

impl From<&LockError> for ExitStatusCode {
    fn from(error: &LockError) -> Self {
        match error {
            LockError::Timeout { .. } => Self::HELD,
            LockError::Lost { .. } | LockError::NotHeld { .. } => Self::LOST,
            LockError::Unavailable { causes, .. } if is_refusal(causes) => Self::REFUSED,
            LockError::Unavailable { .. } => Self::UNAVAILABLE,
            LockError::Conflict { .. } => Self::CONFLICT,
            LockError::Invalid { .. } => Self::USAGE,
            // `Deadlock` and `Closed` are mistakes of this program.
            _ => Self::INTERNAL,
        }
    }
}

/// Whether nodes refused the login or a right, and no other cause explains the outage as well: then waiting does not
/// help.
fn is_refusal(causes: &[NodeCause]) -> bool {
    !causes.is_empty() && causes.iter().all(|cause| cause.forbidden)
}
