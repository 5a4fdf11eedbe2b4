//! The end of a lease, for hosts that free its handle then, and not when a garbage collector finds it.

use crate::{
    error::LockError,
    lease::Lease,
    tenure::{Fate, ReleaseOutcome},
};

/// How a lease ended that was not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseEnd {
    /// A quorum confirmed its release, or another lease of its owner holds the lock.
    Released,
    /// It was detached.
    Detached,
}

impl LeaseEnd {
    /// How the lease ended. From then on it is not held, a release returns `released` or fails, and other calls fail
    /// with [`LeaseEnd::error`]. `None` for a lease that is held or lost, and for a release that is not confirmed: only
    /// the lease knows that outcome.
    pub fn of(lease: &Lease) -> Option<Self> {
        let (tenure, _) = lease.tenure_and_session()?;
        let Err(LockError::NotHeld { .. }) = lease.check() else { return None };
        match tenure.current_fate() {
            Fate::Detached => Some(Self::Detached),
            Fate::Released if tenure.status.get().outcome != Some(ReleaseOutcome::Released) => None,
            _ => Some(Self::Released),
        }
    }

    /// The error of calls that need a held lease.
    pub fn error(self, name: &str) -> LockError {
        let fate = match self {
            Self::Released => Fate::Released,
            Self::Detached => Fate::Detached,
        };
        fate.error(name)
    }
}
