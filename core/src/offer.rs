//! From the library to whoever asked: what was granted is offered, and is its caller's once that took it. An event loop
//! that stands still takes nothing; so what is not taken within a sixth of its lease, and five seconds, is given back by
//! the watchdog, others get it meanwhile, and the call goes on once its caller is there again. Until then it is not tried
//! again: it would be given back again.

use crate::{
    acquire::{Acquisition, go_on},
    detached::Attach,
    error::LockError,
    lease::Lease,
    wait::waiter::Pause,
};

/// A lease that its caller has not taken yet. Dropped, it is released; or, if it was attached, as if nobody had.
pub(crate) struct Offer {
    lease: Lease,
    again: Again,
}

/// What to do for a caller that missed its offer.
pub(crate) enum Again {
    Acquire(Box<Acquisition>),
    Attach(Box<Attach>),
}

impl Offer {
    /// Of what was just granted, in the middle of a poll of the caller's own.
    pub(crate) fn new(lease: Lease, again: Again) -> Self {
        Self { lease, again }
    }

    /// Its caller may take long to take it.
    pub(crate) fn hold_out(&self) {
        self.lease.offer();
    }

    /// The lease, if it is still there; else what goes on.
    pub(crate) fn take(self) -> Result<Lease, Again> {
        if self.lease.take() { Ok(self.lease) } else { Err(self.again) }
    }
}

impl Again {
    /// Goes on, in the background.
    pub(crate) async fn start(self) -> Result<Offer, LockError> {
        match self {
            Self::Acquire(acquisition) => go_on(acquisition.again(), Pause::None).await,
            Self::Attach(attach) => attach.start().await,
        }
    }
}
