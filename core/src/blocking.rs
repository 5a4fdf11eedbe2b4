//! Calls for programs without async code. They block the calling thread, which must not be one of an async runtime.

use std::{ops::Deref, time::Duration};

use tokio::runtime::Handle;

use crate::{
    acquire::claimant::Request,
    client::Client,
    error::LockError,
    lease::Lease,
    lock::Lock,
    owner::Owner,
    process::{driver::Driver, runtime},
    semaphore::Semaphore,
    tenure::ReleaseOutcome,
};

/// A lease that is released at the end of its scope: dropping it blocks until a quorum confirmed the release, and for
/// `reply_timeout` (default: 2 s) at most. [`release`](Self::release) does the same and returns the outcome.
///
/// A guard that is dropped on a thread of an async runtime, which must not block, is released in the background, as a
/// [`Lease`] is.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use redlock::{Client, Config, LockOptions, ReleaseOutcome};
///
/// let client = Client::new(Config::new(["memory://guard"]))?;
/// let lock = client.lock("report", LockOptions::default())?;
/// {
///     let _lease = lock.acquire_blocking()?;
///     assert!(lock.try_acquire_blocking()?.is_none(), "each call is an owner of its own");
/// }
/// let lease = lock.try_acquire_blocking()?.expect("it was released at the end of the block");
/// assert_eq!(lease.release()?, ReleaseOutcome::Released);
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct LeaseGuard {
    lease: Lease,
    released: bool,
}

impl LeaseGuard {
    fn new(lease: Lease) -> Self {
        Self { lease, released: false }
    }

    /// Releases the lease and returns what the release found, as [`Lease::release`] does.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn release(mut self) -> Result<ReleaseOutcome, LockError> {
        self.released = true;
        self.lease.release_blocking()
    }
}

impl Deref for LeaseGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        // In async code blocking would panic; there the lease releases itself in the background.
        if !self.released && Handle::try_current().is_err() {
            // Nobody asks for the outcome. A lease that was released or detached before stays as it is.
            drop(self.lease.release_blocking());
        }
    }
}

/// A check that never ends a call.
#[allow(clippy::unnecessary_wraps, reason = "the type of the checks of blocking calls")]
fn never() -> Result<(), LockError> {
    Ok(())
}

/// Blocks until a future of this crate is done.
fn block<T>(future: impl Future<Output = Result<T, LockError>>, name: &str) -> Result<T, LockError> {
    runtime::block(Driver::Background, future, &mut never).map_err(|interrupted| interrupted.error(name))?
}

impl Lock {
    /// Acquires the lock and blocks until it is granted, for the lock's `wait` (default: without a limit) at most.
    /// Fails as [`acquire`](Lock::acquire) does. Each call is an owner of its own, unless the options name one.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn acquire_blocking(&self) -> Result<LeaseGuard, LockError> {
        Ok(LeaseGuard::new(self.acquire_interruptible(self.request(Owner::Fresh), &mut never)?))
    }

    /// Acquires the lock if it is free, in one round trip: `None` if somebody else holds it. Fails as
    /// [`try_acquire`](Lock::try_acquire) does.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn try_acquire_blocking(&self) -> Result<Option<LeaseGuard>, LockError> {
        let request = Request { wait: Some(Duration::ZERO), ..self.request(Owner::Fresh) };
        match self.acquire_interruptible(request, &mut never) {
            Ok(lease) => Ok(Some(LeaseGuard::new(lease))),
            Err(LockError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Semaphore {
    /// Acquires `n` slots and blocks until they are granted, for the options' `wait` (default: without a limit) at
    /// most. Fails as [`acquire_many`](Semaphore::acquire_many) does.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn acquire_blocking(&self, n: u32) -> Result<LeaseGuard, LockError> {
        self.taking(n)?.acquire_blocking()
    }

    /// Acquires `n` slots if so many are free and nobody waits, in one round trip: `None` if not. Fails as
    /// [`try_acquire_many`](Semaphore::try_acquire_many) does.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn try_acquire_blocking(&self, n: u32) -> Result<Option<LeaseGuard>, LockError> {
        self.taking(n)?.try_acquire_blocking()
    }
}

impl Lease {
    /// [`release`](Lease::release), blocking.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn release_blocking(&self) -> Result<ReleaseOutcome, LockError> {
        self.release_interruptible(&mut never)
    }

    /// [`extend`](Lease::extend), blocking.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn extend_blocking(&self, ttl: Duration) -> Result<(), LockError> {
        self.extend_interruptible(ttl, &mut never)
    }

    /// [`downgrade`](Lease::downgrade), blocking.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn downgrade_blocking(&self) -> Result<(), LockError> {
        self.downgrade_interruptible(&mut never)
    }

    /// [`try_upgrade`](Lease::try_upgrade), blocking.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn try_upgrade_blocking(&self) -> Result<bool, LockError> {
        self.try_upgrade_interruptible(&mut never)
    }
}

impl Client {
    /// [`attach`](Client::attach), blocking. Without an explicit owner, the lease gets an owner of its own.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn attach_blocking(&self, text: &str) -> Result<LeaseGuard, LockError> {
        block(self.attach(text, Owner::Fresh), text).map(LeaseGuard::new)
    }

    /// [`close`](Client::close), blocking: for about a second at most.
    ///
    /// # Panics
    ///
    /// In async code, whose threads must not block.
    pub fn close_blocking(&self) {
        let closed = runtime::block(Driver::Background, self.close(), &mut never);
        // It ends early only in a child of a fork, which has nothing to close.
        drop(closed);
    }
}
