//! A grant that its caller has not collected yet. An event loop collects its results when it runs; while it is blocked,
//! it cannot. After min(ttl/6, 5 s) the watchdog gives such a grant back, so that others get the lock, and the acquire
//! queues again once the caller is back. It does not try earlier: the next grant would be given back, too.

use crate::{error::LockError, lease::Lease, server::BoxFuture};

/// A lease that its caller has not collected yet. Dropping it releases it; a lease from `attach` is detached again
/// instead.
pub(crate) struct UncollectedGrant {
    lease: Lease,
    /// Started if this grant was given back.
    restart: Box<dyn Restart>,
}

/// A call that can be started, and started again when its grant was given back.
pub(crate) trait Restart: Send {
    /// Starts the call in the background.
    fn start(self: Box<Self>) -> BoxFuture<Result<UncollectedGrant, LockError>>;
}

impl UncollectedGrant {
    /// Wraps a lease that was just granted. The caller is polling, so the time to collect it does not run yet.
    pub(crate) fn new(lease: Lease, restart: Box<dyn Restart>) -> Self {
        Self { lease, restart }
    }

    /// Starts the time within which the caller must collect it.
    pub(crate) fn mark_uncollected(&self) {
        self.lease.mark_uncollected();
    }

    /// The lease, for a host to look at before it collects it.
    pub(crate) fn preview(&self) -> Lease {
        self.lease.preview()
    }

    /// Hands the lease to the caller. If the grant was given back, returns the call, to start it again.
    pub(crate) fn collect(self) -> Result<Lease, Box<dyn Restart>> {
        if self.lease.collect() { Ok(self.lease) } else { Err(self.restart) }
    }

    /// Collects the grant of a call, starting over for as long as grants were given back.
    pub(crate) async fn collected(grants: impl Future<Output = Result<Self, LockError>>) -> Result<Lease, LockError> {
        let mut grant = grants.await?;
        loop {
            match grant.collect() {
                Ok(lease) => return Ok(lease),
                Err(restart) => grant = restart.start().await?,
            }
        }
    }
}
