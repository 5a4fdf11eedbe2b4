//! A lease.

use redlock::ffi::{
    Operation::{Downgrade, Extend, Leave, Lost, Release, TryUpgrade},
    Over,
};

use crate::{
    calls::start,
    values::{Fallible, IDIOM, duration},
};

/// A held lock. Collecting it releases nothing.
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
    /// Whether it is held, right now.
    pub(crate) fn held(&self) -> bool {
        self.core.held()
    }

    /// How long it is held unless it is renewed, in milliseconds.
    pub(crate) fn remaining(&self) -> f64 {
        IDIOM.number(self.core.remaining())
    }

    /// Why it was lost, if it was.
    pub(crate) fn lost_reason(&self) -> Option<String> {
        self.core.lost_reason().map(|reason| reason.as_str().to_owned())
    }

    /// Fails unless it is held.
    pub(crate) fn check(&self) -> Fallible<()> {
        Ok(self.core.check()?)
    }

    /// Starts to let it end so many milliseconds from now: `Nothing`.
    pub(crate) fn extend(&self, ttl_ms: f64) -> Fallible<i64> {
        start(Extend(&self.core, duration("ttl", ttl_ms)?))
    }

    /// Its fencing token.
    pub(crate) fn token(&self) -> i64 {
        self.core.token().cast_signed()
    }

    /// The token of a lease that is over, negative if it was detached. Zero as long as something can still change.
    pub(crate) fn over(&self) -> i64 {
        match Over::of(&self.core) {
            Some(Over::Released) => self.token(),
            Some(Over::Detached) => -self.token(),
            None => 0,
        }
    }

    /// Starts to make a reader of a writer: `Nothing`.
    pub(crate) fn downgrade(&self) -> Fallible<i64> {
        start(Downgrade(&self.core))
    }

    /// Starts to make a writer of a reader that is alone: a `Flag`.
    pub(crate) fn try_upgrade(&self) -> Fallible<i64> {
        start(TryUpgrade(&self.core))
    }

    /// Starts to wait for its end: `Lost`.
    pub(crate) fn lost(&self) -> Fallible<i64> {
        start(Lost(&self.core, None))
    }

    /// Starts a release: `Released`.
    pub(crate) fn release(&self) -> Fallible<i64> {
        start(Release(&self.core))
    }

    /// Starts to end its block: `Nothing`, or the error `lost`.
    pub(crate) fn leave(&self) -> Fallible<i64> {
        start(Leave(&self.core))
    }

    /// Lets go of it without a release; the text takes it over.
    pub(crate) fn detach(&self) -> Fallible<String> {
        Ok(self.core.detach()?)
    }
}

/// Fails as a call of a lease that is over, for a host that has freed the lease. `ttl_ms` is the argument of an extension.
#[uniffi::export]
pub(crate) fn not_held(name: &str, detached: bool, ttl_ms: Option<f64>) -> Fallible<i64> {
    if let Some(ttl) = ttl_ms {
        duration("ttl", ttl)?;
    }
    let over = if detached { Over::Detached } else { Over::Released };
    Err(over.error(name).into())
}
