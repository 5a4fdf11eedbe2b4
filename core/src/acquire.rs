//! Who sees an acquire through. The first try is polled where the call is (see
//! [`polled`](crate::process::driver::polled)); if that decides nothing, the background goes on. What it gets is an
//! [`Offer`]: a caller that does not take it in time, because its event loop stands still, has not held the lock in vain
//! for long, and waits on once it is back.

use tokio::{sync::oneshot, task::AbortHandle};

use crate::{
    acquisition::{Acquisition, Tried},
    error::LockError,
    lease::Lease,
    offer::{Again, Offer},
    process::{
        driver::{Caller, Driver, Polled},
        exit::stay_silent_at_the_end,
        runtime::{self, Interrupted},
    },
    server::BoxFuture,
    wait::waiter::Pause,
};

/// Sees an acquire through, to something that its caller may take.
pub(crate) async fn acquire(mut acquisition: Box<Acquisition>, polled: Polled) -> Result<Offer, LockError> {
    let mut pause = Pause::None;
    if let Polled::Here(driver) = polled {
        // Boxed, since what comes after is small, and thousands may wait.
        match Box::pin(runtime::entered(driver, acquisition.try_once(driver, polled))).await? {
            Tried::Lease(lease) => return Ok(Offer::new(lease, acquisition)),
            Tried::Wait(reason) => pause = reason,
        }
    }
    go_on(acquisition, pause).await
}

/// The same, blocking, to a lease; `check` may end it.
pub(crate) fn acquire_blocking<E>(
    mut acquisition: Box<Acquisition>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Result<Lease, LockError>, Interrupted<E>> {
    let mut pause = Pause::None;
    let polled = acquisition.polled(Caller::Thread);
    if let Polled::Here(driver) = polled {
        let first = async move {
            let tried = acquisition.try_once(driver, polled).await;
            (acquisition, tried)
        };
        let tried;
        (acquisition, tried) = runtime::block(driver, first, check)?;
        match tried {
            Ok(Tried::Wait(reason)) => pause = reason,
            Ok(Tried::Lease(lease)) if lease.take() => return Ok(Ok(lease)),
            Ok(Tried::Lease(_)) => acquisition.begin_again(),
            Err(error) => return Ok(Err(error)),
        }
    }
    runtime::block(Driver::Background, Offer::taken(go_on(acquisition, pause)), check)
}

/// Goes on with an acquire in the background, until this is dropped.
async fn go_on(acquisition: Box<Acquisition>, pause: Pause) -> Result<Offer, LockError> {
    let (deliver, result) = oneshot::channel();
    let call = runtime::background().spawn(async move {
        let offer = try_on(acquisition, pause).await;
        if let Ok(offer) = &offer {
            offer.hold_out();
        }
        // An offer that nobody waits for is dropped, and so released.
        let _ = deliver.send(offer);
    });
    let _call = AbortOnDrop(call.abort_handle());
    let offer = result.await.unwrap_or(Err(LockError::Closed));
    if let Err(LockError::Closed) = offer {
        stay_silent_at_the_end().await;
    }
    offer
}

/// Sees an acquire through in the task that polls this.
pub(crate) async fn wait(acquisition: Box<Acquisition>) -> Result<Offer, LockError> {
    let offer = try_on(acquisition, Pause::None).await;
    if let Err(LockError::Closed) = offer {
        stay_silent_at_the_end().await;
    }
    offer
}

/// Tries until it has the lock, or its wait is over.
async fn try_on(mut acquisition: Box<Acquisition>, mut pause: Pause) -> Result<Offer, LockError> {
    loop {
        acquisition.pause(pause).await?;
        // Boxed: thousands may wait, few try.
        match Box::pin(acquisition.try_once(Driver::Background, Polled::Behind)).await? {
            Tried::Lease(lease) => return Ok(Offer::new(lease, acquisition)),
            Tried::Wait(reason) => pause = reason,
        }
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Again for Acquisition {
    /// Behind all others that wait by now.
    fn start(mut self: Box<Self>) -> BoxFuture<Result<Offer, LockError>> {
        self.begin_again();
        Box::pin(go_on(self, Pause::None))
    }
}
