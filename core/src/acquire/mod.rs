//! The acquire machine. This file says who polls an acquire: on a single node the caller polls the first attempt (see
//! [`polled`](crate::process::driver::polled)), and the background polls everything else. The result is a
//! [`UncollectedGrant`]: if the event loop is blocked when a lock is granted, the grant is given back after
//! min(ttl/6, 5 s), and the acquire queues again.

mod acquisition;
mod attempt;
pub(crate) mod claimant;
mod local;
pub(crate) mod uncollected_grant;

use tokio::{sync::oneshot, task::AbortHandle};

pub(crate) use self::acquisition::{Acquisition, Begun};
use self::uncollected_grant::{Restart, UncollectedGrant};
use crate::{
    error::LockError,
    lease::Lease,
    process::{
        driver::{Caller, Driver, Polled},
        exit::hang_if_exiting,
        runtime::{self, Interrupted},
    },
    server::BoxFuture,
    wait::until::{Pause, Tried, until_done},
};

/// Polls an acquire to its grant.
pub(crate) async fn acquire(mut acquisition: Box<Acquisition>, polled: Polled) -> Result<UncollectedGrant, LockError> {
    let mut pause = Pause::No;
    if let Polled::Here(driver) = polled {
        // Boxed: only the small rest of this future stays while thousands wait.
        let tried = Box::pin(runtime::with_background_timers(driver, acquisition.try_polled(driver, polled))).await;
        match unless_exiting(tried).await? {
            Tried::Done(lease) => return Ok(UncollectedGrant::new(lease, acquisition)),
            Tried::Wait(reason) => pause = reason,
        }
    }
    resume_in_background(acquisition, pause).await
}

/// Blocks until the acquire has its lease; `check` may end it.
pub(crate) fn acquire_interruptible<E>(
    mut acquisition: Box<Acquisition>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Result<Lease, LockError>, Interrupted<E>> {
    let mut pause = Pause::No;
    let polled = acquisition.polled(Caller::Thread);
    if let Polled::Here(driver) = polled {
        let first = async move {
            let tried = unless_exiting(acquisition.try_polled(driver, polled).await).await;
            (acquisition, tried)
        };
        let tried;
        (acquisition, tried) = runtime::block(driver, first, check)?;
        match tried {
            Ok(Tried::Wait(reason)) => pause = reason,
            Ok(Tried::Done(lease)) if lease.collect() => return Ok(Ok(lease)),
            Ok(Tried::Done(_)) => acquisition.mark_pending_again(),
            Err(error) => return Ok(Err(error)),
        }
    }
    runtime::block(Driver::Background, UncollectedGrant::collected(resume_in_background(acquisition, pause)), check)
}

/// Continues an acquire in the background. Dropping the future ends it.
async fn resume_in_background(acquisition: Box<Acquisition>, pause: Pause) -> Result<UncollectedGrant, LockError> {
    let (deliver, result) = oneshot::channel();
    let call = runtime::spawn(async move {
        let grant = until_done(acquisition, pause).await.map(uncollected);
        if let Ok(grant) = &grant {
            grant.mark_uncollected();
        }
        // Without a receiver the grant is dropped, and so released.
        let _ = deliver.send(grant);
    });
    let _call = AbortOnDrop(call.abort_handle());
    unless_exiting(result.await.unwrap_or(Err(LockError::Closed))).await
}

/// Polls an acquire to its grant in the task that polls this future, which must be one of the background's.
pub(crate) async fn acquire_in_this_task(acquisition: Box<Acquisition>) -> Result<UncollectedGrant, LockError> {
    unless_exiting(until_done(acquisition, Pause::No).await.map(uncollected)).await
}

/// Returns the result of an acquire; never, if the exit of the process closed its client.
async fn unless_exiting<T>(result: Result<T, LockError>) -> Result<T, LockError> {
    if let Err(LockError::Closed) = result {
        hang_if_exiting().await;
    }
    result
}

/// The grant of an acquire that tried until it succeeded.
fn uncollected((lease, acquisition): (Lease, Box<Acquisition>)) -> UncollectedGrant {
    UncollectedGrant::new(lease, acquisition)
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Restart for Acquisition {
    /// Acquires again, behind all other waiters.
    fn start(mut self: Box<Self>) -> BoxFuture<Result<UncollectedGrant, LockError>> {
        self.mark_pending_again();
        Box::pin(resume_in_background(self, Pause::No))
    }
}
