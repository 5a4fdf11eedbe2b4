//! From the library to whoever asked: what was granted is offered, and is its caller's once that took it. An event loop
//! that stands still takes nothing; so what is not taken within a sixth of its lease, and five seconds, is given back by
//! the watchdog, others get it meanwhile, and the call goes on once its caller is there again. Until then it is not tried
//! again: it would be given back again.

use crate::{error::LockError, lease::Lease, server::BoxFuture};

/// A lease that its caller has not taken yet. Dropped, it is released; or, if it was attached, as if nobody had.
pub(crate) struct Offer {
    lease: Lease,
    again: Box<dyn Again>,
}

/// A call that can go on for a caller that missed its offer.
pub(crate) trait Again: Send {
    /// Goes on, in the background.
    fn start(self: Box<Self>) -> BoxFuture<Result<Offer, LockError>>;
}

impl Offer {
    /// Of what was just granted, in the middle of a poll of the caller's own.
    pub(crate) fn new(lease: Lease, again: Box<dyn Again>) -> Self {
        Self { lease, again }
    }

    /// Its caller may take long to take it.
    pub(crate) fn hold_out(&self) {
        self.lease.offer();
    }

    /// The lease, before it is taken.
    pub(crate) fn shown(&self) -> Lease {
        self.lease.shown()
    }

    /// The lease, if it is still there; else what goes on.
    pub(crate) fn take(self) -> Result<Lease, Box<dyn Again>> {
        if self.lease.take() { Ok(self.lease) } else { Err(self.again) }
    }

    /// Takes what comes of a call; goes on with it if that came while nobody could take it.
    pub(crate) async fn taken(offers: impl Future<Output = Result<Self, LockError>>) -> Result<Lease, LockError> {
        let mut offer = offers.await?;
        loop {
            match offer.take() {
                Ok(lease) => return Ok(lease),
                Err(again) => offer = again.start().await?,
            }
        }
    }
}
