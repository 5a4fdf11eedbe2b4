//! A semaphore: numbered slots, of which a permit has one or several. A permit is a [`Lease`]; [`Lease::slots`] has its slots.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    client::Client,
    config::{LockOptions, check_slots},
    error::LockError,
    holders,
    lease::Lease,
    lock::Lock,
    owner,
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
        reply::Permitted,
        subject::Subject,
    },
    session::{ClientInner, run_to_completion},
};

/// A semaphore by name: at most `permits` slots are held at once, by all processes together. Cheap to clone.
///
/// Slots are numbered from 0, and each is held by one permit at most. Waiters get permits in the order of their calls. A waiter
/// for several slots gets all of them at once, and later waiters for fewer slots do not overtake it. On a quorum that holds for
/// the waiters of one client; among clients no order is promised. Clients may use different numbers of permits for one name, for
/// example while a new number is rolled out: each acquires only slots below its own number.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use redlock::{Client, Config, LockOptions};
///
/// let client = Client::new(Config::new(["memory://semaphore"]))?;
/// let downloads = client.semaphore("downloads", 2, LockOptions::default())?;
/// let permit = downloads.acquire_blocking(1)?;
/// assert_eq!(permit.slots()[0].number, 0);
/// let other = downloads.acquire_blocking(1)?;
/// assert!(downloads.try_acquire_blocking(1)?.is_none(), "both slots are held");
/// # drop(other);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    client: Arc<ClientInner>,
    names: Arc<Names>,
    options: Arc<LockOptions>,
    permits: u32,
    /// Alive as long as this object is. Permits that it acquired are renewed for that long.
    handle: Arc<()>,
}

/// A permit that somebody holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitInfo {
    /// The owner, as `uuid:permit`.
    pub owner: String,
    /// The numbers of its slots.
    pub slots: Vec<u32>,
    /// The time until it expires, unless it is renewed before.
    pub ttl: Duration,
}

impl Semaphore {
    /// The name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.names.name()
    }

    /// The number of slots.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Acquires one slot, waiting for the options' `wait` (default: without a limit) at most. Fails with `timeout`, `unavailable`,
    /// `conflict` or `closed`. Dropping the future cancels the call and leaves nothing behind.
    pub fn acquire(&self) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        self.acquire_many(1)
    }

    /// Acquires `n` slots at once. Fails as `acquire` does, and with `invalid` unless `n` is from 1 to the number of permits.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions};
    ///
    /// let client = Client::new(Config::new(["memory://acquire_many"]))?;
    /// let downloads = client.semaphore("downloads", 4, LockOptions::default())?;
    /// let permit = downloads.acquire_many(3).await?;
    /// assert_eq!(permit.slots().len(), 3);
    /// assert_eq!(downloads.available().await?, 1);
    /// assert_eq!(downloads.inspect().await?[0].slots.len(), 3);
    /// # Ok(()) }
    /// ```
    pub fn acquire_many(&self, n: u32) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        let pending = self.taking(n).map(|lock| lock.acquire());
        async move { pending?.await }
    }

    /// Acquires one slot if one is free and nobody waits, in one round trip: `None` if not. Fails as `acquire` does, but never
    /// with `timeout`, and with `unavailable` at once.
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Lease>, LockError>> + Send + use<> {
        self.try_acquire_many(1)
    }

    /// Acquires `n` slots if so many are free and nobody waits, in one round trip: `None` if not. Fails as `try_acquire` does,
    /// and with `invalid` as `acquire_many` does.
    pub fn try_acquire_many(&self, n: u32) -> impl Future<Output = Result<Option<Lease>, LockError>> + Send + use<> {
        let pending = self.taking(n).map(|lock| lock.try_acquire());
        async move { pending?.await }
    }

    /// A lock whose every acquire is a permit of `n` slots.
    #[doc(hidden)]
    pub fn taking(&self, n: u32) -> Result<Lock, LockError> {
        check_slots(n, self.permits)?;
        let subject = Subject::new(Primitive::Permits { count: n, of: self.permits }, self.names.clone());
        Ok(Lock::of(self.client.clone(), subject, self.options.clone(), self.handle.clone()))
    }

    /// The number of free slots, as the server reports it now: on a quorum, of slots that no permit has on so many nodes. Others
    /// may be waiting for them. Fails as `inspect` does.
    pub fn available(&self) -> impl Future<Output = Result<u32, LockError>> + Send + use<> {
        let one = self.taking(1);
        async move { one?.available().await }
    }

    /// The permits that are held, ordered by the time of their expiry. On a quorum these are the permits that a quorum of the
    /// nodes reports; a node that does not answer counts as if it did. Fails with `unavailable` if the server, or a quorum, does
    /// not answer, with `conflict` if the key holds something else, and with `closed`.
    pub fn inspect(&self) -> impl Future<Output = Result<Vec<PermitInfo>, LockError>> + Send + use<> {
        let (session, names) = (self.client.session(), self.names.clone());
        async move {
            let session = session?;
            let held = run_to_completion(async move { holders::permits(&session, &names).await }).await?;
            let info = |Permitted { field, slots, left }| {
                let owner = owner::shown(&field).to_owned();
                PermitInfo { owner, slots, ttl: left }
            };
            Ok(held.into_iter().map(info).collect())
        }
    }
}

impl Client {
    /// Makes a semaphore with 1 to 65 536 permits. Fails with `invalid` if the name, the number or an option is wrong: names are
    /// those of [`lock`](Client::lock), and `owner` and `fair` are not for semaphores. Sends nothing.
    pub fn semaphore(&self, name: &str, permits: u32, options: LockOptions) -> Result<Semaphore, LockError> {
        let client = self.inner().clone();
        let key = client.settings.check_semaphore(name, permits, &options)?;
        let names = Arc::new(Names::of_family(Family::Semaphore, key, &client.settings));
        Ok(Semaphore { client, names, options: Arc::new(options), permits, handle: Arc::new(()) })
    }
}
