//! A lease.

use redlock::ffi::{
    LeaseEnd,
    Operation::{Downgrade, Extend, Leave, Lost, Release, TryUpgrade},
};

use crate::{
    calls::start,
    values::{Fallible, IDIOM, duration},
};

/// A held lock. If the JVM collects it, the lock is not released.
#[derive(uniffi::Object)]
pub(crate) struct Lease {
    core: redlock::Lease,
}

impl From<redlock::Lease> for Lease {
    fn from(core: redlock::Lease) -> Self {
        Self { core }
    }
}

#[uniffi::export]
impl Lease {
    /// Whether the lock is held now. Sends nothing.
    pub(crate) fn held(&self) -> bool {
        self.core.held()
    }

    /// The time until the deadline, in milliseconds; zero after it.
    pub(crate) fn remaining(&self) -> f64 {
        IDIOM.number(self.core.remaining())
    }

    /// Why the lock was lost; `None` while it is held and after a release.
    pub(crate) fn lost_reason(&self) -> Option<String> {
        self.core.lost_reason().map(|reason| reason.as_str().to_owned())
    }

    /// Fails with `lost` or `not_held` unless the lock is held.
    pub(crate) fn check(&self) -> Fallible<()> {
        Ok(self.core.check()?)
    }

    /// Starts to move the deadline to `ttl_ms` from now: `Nothing`.
    pub(crate) fn extend(&self, ttl_ms: f64) -> Fallible<i64> {
        start(Extend(&self.core, duration("ttl", ttl_ms)?))
    }

    /// The fencing token.
    pub(crate) fn token(&self) -> i64 {
        self.core.token().cast_signed()
    }

    /// The token of a lease that is released or detached, negated if detached. Zero while it is held, and for a lost
    /// lease or an unconfirmed release, whose native lease is still needed.
    pub(crate) fn over(&self) -> i64 {
        match LeaseEnd::of(&self.core) {
            Some(LeaseEnd::Released) => self.token(),
            Some(LeaseEnd::Detached) => -self.token(),
            None => 0,
        }
    }

    /// Starts to turn the writer into a reader: `Nothing`.
    pub(crate) fn downgrade(&self) -> Fallible<i64> {
        start(Downgrade(&self.core))
    }

    /// Starts to turn the only reader into a writer: a `Flag`, false if there are other readers.
    pub(crate) fn try_upgrade(&self) -> Fallible<i64> {
        start(TryUpgrade(&self.core))
    }

    /// Starts to wait for the end of the lease: `Lost`.
    pub(crate) fn lost(&self) -> Fallible<i64> {
        start(Lost(&self.core, None))
    }

    /// Starts a release: `Released`.
    pub(crate) fn release(&self) -> Fallible<i64> {
        start(Release(&self.core))
    }

    /// Starts the release at the end of a block: `Nothing`, or the error `lost`.
    pub(crate) fn leave(&self) -> Fallible<i64> {
        start(Leave(&self.core))
    }

    /// Ends the lease without a release. Returns the text with which `attach` takes it over.
    pub(crate) fn detach(&self) -> Fallible<String> {
        Ok(self.core.detach()?)
    }
}

/// Fails like a call on a lease that is over. Kotlin calls it when it has freed the native lease. `ttl_ms` is the
/// argument of `extend`; an invalid one is refused first.
#[uniffi::export]
pub(crate) fn not_held(name: &str, detached: bool, ttl_ms: Option<f64>) -> Fallible<i64> {
    if let Some(ttl) = ttl_ms {
        duration("ttl", ttl)?;
    }
    let end = if detached { LeaseEnd::Detached } else { LeaseEnd::Released };
    Err(end.error(name).into())
}
