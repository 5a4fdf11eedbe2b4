//! A read/write lock: several readers at once, or one writer. Readers and writers each acquire a [`Lock`] of their own.

use std::{future::Future, sync::Arc};

use crate::{
    client::Client,
    config::LockOptions,
    error::LockError,
    lease::{Lease, extend_error},
    lock::Lock,
    process::{driver::Driver, runtime},
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
        subject::Subject,
    },
    session::{ClientInner, run_to_completion},
};

/// A read/write lock by name: many may read at once, or one may write. Cheap to clone.
///
/// On one server, cluster or Sentinel service it is phase-fair: while a writer waits, new readers wait behind it; when
/// that writer releases, all readers that wait by then enter, and after them the next writer. So a reader waits for one
/// writer at most, and nobody starves. On a quorum a waiting writer keeps new readers out, and no order is promised.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use redlock::{Client, Config, LockOptions};
///
/// let client = Client::new(Config::new(["memory://read_write"]))?;
/// let lock = client.read_write_lock("config", LockOptions::default())?;
/// let one = lock.read().acquire_blocking()?;
/// let other = lock.read().acquire_blocking()?;
/// assert!(lock.write().try_acquire_blocking()?.is_none(), "two read");
/// # drop((one, other));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    fn new(client: &Arc<ClientInner>, name: &str, options: LockOptions) -> Result<Self, LockError> {
        let names = Arc::new(Names::of_family(
            Family::ReadWrite,
            client.settings.check_read_write(name, &options)?,
            &client.settings,
        ));
        let options = Arc::new(options);
        let half = |primitive| {
            let subject = Subject::new(primitive, names.clone());
            Lock::of(client.clone(), subject, options.clone(), Arc::new(()))
        };
        Ok(Self { read: half(Primitive::Read), write: half(Primitive::Write) })
    }

    /// The name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// The lock for readers. The holder of the write lock acquires it without a round trip.
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// The lock for a writer. An acquire by an owner that reads fails with `deadlock` at once, since it would wait for
    /// itself; use [`Lease::try_upgrade`].
    pub fn write(&self) -> &Lock {
        &self.write
    }
}

impl Client {
    /// Makes a read/write lock. Fails with `invalid` if the name or an option is wrong: names are those of
    /// [`lock`](Client::lock), and `owner` and `fair` are not for read/write locks. Sends nothing.
    pub fn read_write_lock(&self, name: &str, options: LockOptions) -> Result<ReadWriteLock, LockError> {
        ReadWriteLock::new(self.inner(), name, options)
    }

    /// One of its two locks, for a host.
    pub(crate) fn part(&self, name: &str, options: LockOptions, primitive: Primitive) -> Result<Lock, LockError> {
        let ReadWriteLock { read, write } = self.read_write_lock(name, options)?;
        Ok(if primitive.reads() { read } else { write })
    }
}

impl Lease {
    /// Turns a writer into a reader; nobody else writes in between. Waiting readers enter, and the token becomes a
    /// reader's. Does nothing for a reader.
    ///
    /// Fails with `lost` after a loss, with `not_held` after a release or `detach()`, and with `invalid` for a lease of
    /// another kind of lock. Fails with `unavailable` while too few nodes answer: the lease is a reader's then, but
    /// others may be kept out until this is called again or the lease is released.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions};
    ///
    /// let client = Client::new(Config::new(["memory://downgrade"]))?;
    /// let lock = client.read_write_lock("config", LockOptions::default())?;
    /// let lease = lock.write().acquire().await?;
    /// assert!(lock.read().try_acquire().await?.is_none(), "one writes");
    /// lease.downgrade().await?;
    /// let other = lock.read().acquire().await?;
    /// assert!(!lease.try_upgrade().await?, "two read");
    /// other.release().await?;
    /// assert!(lease.try_upgrade().await?);
    /// # Ok(()) }
    /// ```
    pub fn downgrade(&self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let work = self.changing("downgrade").map(|(session, tenure, name)| {
            run_to_completion(async move {
                tenure.clone().downgrade().await.map_err(|failure| extend_error(&session, &tenure, &name, failure))
            })
        });
        async move { work?.await }
    }

    /// Turns the only reader into a writer, with a new token. Returns whether it writes now: false, at once, while
    /// others read; true for a writer. Fails with `lost` after a loss, with `not_held` after a release or `detach()`,
    /// with `unavailable` while too few nodes answer, and with `invalid` for a lease of another kind of lock.
    /// [`downgrade`](Lease::downgrade) has an example.
    pub fn try_upgrade(&self) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let work = self.changing("try_upgrade").map(|(session, tenure, name)| {
            run_to_completion(async move {
                let upgraded = tenure.clone().upgrade().await;
                session.watchdog.reconsider(&tenure);
                upgraded.map_err(|failure| extend_error(&session, &tenure, &name, failure))
            })
        });
        async move { work?.await }
    }

    /// `downgrade` for a host, blocking. `check` runs every 50 ms and may end the call. Panics in async code.
    #[doc(hidden)]
    pub fn downgrade_interruptible<E: From<LockError>>(
        &self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let done = runtime::block(Driver::Background, self.downgrade(), check);
        Ok(done.map_err(|interrupted| interrupted.error(self.name()))??)
    }

    /// `try_upgrade` for a host, blocking as `downgrade_interruptible` does.
    #[doc(hidden)]
    pub fn try_upgrade_interruptible<E: From<LockError>>(
        &self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<bool, E> {
        let done = runtime::block(Driver::Background, self.try_upgrade(), check);
        Ok(done.map_err(|interrupted| interrupted.error(self.name()))??)
    }

    /// The session, tenure and name of a lease that may be downgraded or upgraded.
    fn changing(
        &self,
        call: &'static str,
    ) -> Result<(Arc<crate::session::Session>, Arc<crate::tenure::Tenure>, String), LockError> {
        if !self.terms.subject.primitive.is_read_write() {
            return Err(LockError::invalid("lease", format!("is not of a read/write lock: {call} is for those")));
        }
        self.check()?;
        match self.tenure_and_session() {
            Some((tenure, session)) => Ok((session.clone(), tenure.clone(), self.name().to_owned())),
            None => Err(LockError::forked(self.name())),
        }
    }
}
