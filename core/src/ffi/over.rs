//! Leases that are over. Their hosts free the handle then, and not when a garbage collector finds it.

use crate::{
    error::LockError,
    lease::Lease,
    tenure::{Fate, ReleaseOutcome},
};

/// How a lease ended that was not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// A quorum confirmed its release, or another lease of its owner holds the lock.
    Released,
    /// It was detached.
    Detached,
}

impl Over {
    /// How the lease ended. From then on it is not held, a release returns `released` or fails, and other calls fail with
    /// [`Over::error`]. `None` for a lease that is held or lost, and for a release that is not confirmed: its outcome is the
    /// lease's to tell.
    pub fn of(lease: &Lease) -> Option<Self> {
        let (tenure, _) = lease.parts()?;
        let Err(LockError::NotHeld { .. }) = lease.check() else { return None };
        match tenure.current_fate() {
            Fate::Detached => Some(Self::Detached),
            Fate::Released if tenure.status.borrow().outcome != Some(ReleaseOutcome::Released) => None,
            _ => Some(Self::Released),
        }
    }

    /// The error of calls that need a held lease.
    pub fn error(self, name: &str) -> LockError {
        let end = match self {
            Self::Released => "released",
            Self::Detached => "detached",
        };
        LockError::NotHeld { name: name.to_owned(), detail: format!("the lease was {end}") }
    }
}
