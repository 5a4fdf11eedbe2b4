//! A lock: its name, its options, and the calls that acquire and release it.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    acquire::claimant::{Claimant, Request},
    acquire::uncollected_grant::UncollectedGrant,
    acquire::{Acquisition, Begun, acquire, acquire_in_this_task, acquire_interruptible},
    config::{
        LockOptions, check_owner, min_hold_refused_with_owner, no_meaning_for_semaphore, owner_refused_for_read_write,
    },
    error::LockError,
    holders::{self, LockInfo},
    lease::Lease,
    owner::Owner,
    process::{
        driver::{Caller, Driver, Polled},
        runtime::{self, Interrupted},
    },
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
        subject::Subject,
    },
    release::{ReleaseStart, begin_release},
    session::{ClientInner, Session, run_to_completion},
    tenure::{Fate, ReleaseOutcome, Tenure},
};

/// A lock by name. Cheap to clone; clones are the same lock object.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use std::time::Duration;
///
/// use redlock::{Client, Config, LockOptions, Ttl};
///
/// let client = Client::new(Config::new(["memory://lock"]))?;
/// let mut options = LockOptions::default();
/// options.ttl = Ttl::Fixed(Duration::from_secs(10));
/// let lock = client.lock("invoices", options)?;
/// let lease = lock.acquire_blocking()?;
/// assert!(lease.held() && lease.remaining() <= Duration::from_secs(10));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Lock {
    client: Arc<ClientInner>,
    subject: Subject,
    options: Arc<LockOptions>,
    /// Alive as long as this lock object is. Tenures that it acquired are renewed for that long.
    handle: Arc<()>,
}

impl Lock {
    pub(crate) fn new(client: Arc<ClientInner>, name: &str, options: LockOptions) -> Result<Self, LockError> {
        let key = client.settings.check_lock(name, &options)?;
        let names = Arc::new(Names::new(key, &client.settings));
        let primitive = if options.fair { Primitive::Fair } else { Primitive::Lock };
        let subject = Subject::new(primitive, names);
        Ok(Self { client, subject, options: Arc::new(options), handle: Arc::new(()) })
    }

    /// A lock on another primitive. Its tenures are renewed for as long as `handle` is alive.
    pub(crate) fn of(client: Arc<ClientInner>, subject: Subject, options: Arc<LockOptions>, handle: Arc<()>) -> Self {
        Self { client, subject, options, handle }
    }

    /// The name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.subject.names.name()
    }

    /// The options that the lock was made with.
    pub fn options(&self) -> &LockOptions {
        &self.options
    }

    /// A request by `owner` with the lock's own `wait`.
    #[doc(hidden)]
    pub fn request(&self, owner: Owner) -> Request {
        Request { owner, wait: self.options.wait, thread: None, blocking: false }
    }

    /// Acquires the lock, waiting for the lock's `wait` (default: without a limit) at most. Each call is an owner of
    /// its own, unless the options name one. Dropping the future cancels the call and leaves nothing behind.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use std::time::Duration;
    ///
    /// use redlock::{Client, Config, LockError, LockOptions};
    ///
    /// let client = Client::new(Config::new(["memory://acquire"]))?;
    /// let lease = client.lock("report", LockOptions::default())?.acquire().await?;
    ///
    /// let mut options = LockOptions::default();
    /// options.wait = Some(Duration::from_millis(100));
    /// let late = client.lock("report", options)?.acquire().await;
    /// assert!(matches!(late, Err(LockError::Timeout { .. })), "it is held");
    /// # drop(lease);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// `timeout` when the wait is over, `unavailable` when too few nodes answer for the client's
    /// [`patience`](crate::Config::patience), `conflict` when the key holds something else, `lost` when the owner nests
    /// in a lease that was lost, `deadlock` when the call would wait for its own owner, `closed`.
    pub fn acquire(&self) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        self.acquire_as(self.request(Owner::Fresh))
    }

    /// Acquires the lock if it is free, in one round trip: `None` if somebody else holds it. Fails as
    /// [`acquire`](Lock::acquire) does, but never with `timeout`, and with `unavailable` at once.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions};
    ///
    /// let client = Client::new(Config::new(["memory://try_acquire"]))?;
    /// let lock = client.lock("report", LockOptions::default())?;
    /// let lease = lock.try_acquire().await?.expect("it is free");
    /// assert!(lock.try_acquire().await?.is_none(), "it is held");
    /// # drop(lease);
    /// # Ok(()) }
    /// ```
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Lease>, LockError>> + Send + use<> {
        let pending = self.acquire_as(Request { wait: Some(Duration::ZERO), ..self.request(Owner::Fresh) });
        async move {
            match pending.await {
                Ok(lease) => Ok(Some(lease)),
                Err(LockError::Timeout { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// `acquire` for a host, which names the owner.
    #[doc(hidden)]
    pub fn acquire_as(&self, request: Request) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        // Acquires nest now: in the order of the calls, and not of their first polls.
        let first = self.claimant(request).map(Acquisition::begin);
        async move {
            let acquisition = match first? {
                // The first poll may come long after the call.
                Begun::Lease(lease) if mutant!(NestAfterLoss) => return Ok(lease),
                Begun::Lease(lease) => return lease.check().map(|()| lease),
                Begun::Poll(acquisition) => acquisition,
            };
            let polled = acquisition.polled(Caller::Task);
            UncollectedGrant::collected(acquire(acquisition, polled)).await
        }
    }

    /// `acquire` for the completion queue of a host, which collects the grant later. Dropping the future cancels it.
    pub(crate) fn acquire_uncollected(
        &self,
        polled: Polled,
        request: Request,
    ) -> impl Future<Output = Result<UncollectedGrant, LockError>> + Send + use<> {
        let first = self.claimant(request).map(|claimant| {
            let mut acquisition = Box::new(Acquisition::new(claimant));
            (acquisition.decide_first(), acquisition)
        });
        async move {
            match (first?, polled) {
                ((Some(lease), acquisition), _) => Ok(UncollectedGrant::new(lease, acquisition)),
                ((None, acquisition), Polled::Here(_)) => acquire(acquisition, polled).await,
                // The queue polls it in the background already.
                ((None, acquisition), Polled::InBackground) => acquire_in_this_task(acquisition).await,
            }
        }
    }

    /// Where a call of `caller` is polled.
    pub(crate) fn polled(&self, caller: Caller) -> Polled {
        self.client.session().map_or(Polled::InBackground, |session| session.quorum.polled(caller))
    }

    /// `acquire` for a host, blocking. `check` runs every 50 ms; if it fails, the call fails with its error and leaves
    /// nothing behind. Panics in async code, as tokio does.
    #[doc(hidden)]
    pub fn acquire_interruptible<E: From<LockError>>(
        &self,
        request: Request,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Lease, E> {
        let acquisition = match Acquisition::begin(self.claimant(request)?) {
            Begun::Lease(lease) => return Ok(lease),
            Begun::Poll(acquisition) => acquisition,
        };
        Ok(acquire_interruptible(acquisition, check).map_err(|interrupted| interrupted.error(self.name()))??)
    }

    /// Wakes the waiters of the client, as a message does.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn announce(client: &std::sync::Weak<ClientInner>) {
        if let Some(session) = client.upgrade().and_then(|client| client.session().ok()) {
            session.registry.wake_all();
        }
    }

    /// What `announce` needs.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn listeners(&self) -> std::sync::Weak<ClientInner> {
        Arc::downgrade(&self.client)
    }

    /// `acquire_as` in the caller's own task.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn acquire_here(&self, owner: Owner) -> impl Future<Output = Result<Lease, LockError>> + use<> {
        UncollectedGrant::collected(self.acquire_uncollected(Polled::InBackground, self.request(owner)))
    }

    fn claimant(&self, mut request: Request) -> Result<Claimant, LockError> {
        if let Owner::Explicit(name) = &request.owner {
            check_owner(name)?;
            match self.subject.primitive.family() {
                Family::Lock if self.options.min_hold.is_some() => return Err(min_hold_refused_with_owner()),
                Family::Lock => {}
                Family::ReadWrite => return Err(owner_refused_for_read_write()),
                Family::Semaphore => return Err(no_meaning_for_semaphore("owner")),
            }
        }
        request.owner = self.owner(&request.owner);
        let session = self.client.session()?;
        if session.is_closed() {
            // The process is exiting. Only acquires that began before wait for its end.
            return Err(LockError::Closed);
        }
        let (subject, options, handle) = (self.subject.clone(), self.options.clone(), self.handle.clone());
        Ok(Claimant { session, subject, options, handle, key: request.owner.key(), request })
    }

    /// Releases the owner's newest lease. With [`Owner::Fresh`] that is the newest lease of this lock object. An
    /// explicit owner that has no lease in this process ends all its tenures, whichever process acquired them.
    ///
    /// Fails with `not_held` if there is none, and with `closed`. Only a release that ends tenures of other processes
    /// fails with `unavailable` or `conflict`; any other one reports an outage as [`ReleaseOutcome::Unconfirmed`].
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions, Owner, ReleaseOutcome};
    ///
    /// let client = Client::new(Config::new(["memory://release"]))?;
    /// let lock = client.lock("report", LockOptions::default())?;
    /// let lease = lock.acquire().await?;
    /// assert_eq!(lock.release(&Owner::Fresh).await?, ReleaseOutcome::Released);
    /// assert!(!lease.held());
    /// # Ok(()) }
    /// ```
    pub fn release(&self, owner: &Owner) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<> {
        self.release_in(self.polled(Caller::Task), owner)
    }

    pub(crate) fn release_in(
        &self,
        polled: Polled,
        owner: &Owner,
    ) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<> {
        let begun = self.begin_release(owner);
        async move {
            match begun? {
                Ending::Local(begun) => Ok(begun.finish(polled).await),
                Ending::Everywhere(end) => run_to_completion(end).await,
            }
        }
    }

    /// `release` for a host, blocking. `check` runs every 50 ms and may end the call, but not the release. Panics in
    /// async code.
    #[doc(hidden)]
    pub fn release_interruptible<E: From<LockError>>(
        &self,
        owner: &Owner,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<ReleaseOutcome, E> {
        let end = match self.begin_release(owner)? {
            Ending::Local(begun) => return begun.finish_blocking(check),
            Ending::Everywhere(end) => end,
        };
        match runtime::block(Driver::Background, end, check) {
            Ok(outcome) => Ok(outcome?),
            Err(Interrupted::Check(error)) => Err(error),
            // A forked child never holds its parent's lock.
            Err(Interrupted::Forked) => Ok(ReleaseOutcome::Lost),
            // The release goes on in the background.
            Err(Interrupted::ThreadEnded) => Ok(ReleaseOutcome::Unconfirmed),
        }
    }

    /// Ends a block of code of this owner: releases, and fails with `lost` if the lock was lost. Blocks as
    /// `release_interruptible` does.
    #[doc(hidden)]
    pub fn leave_interruptible<E: From<LockError>>(
        &self,
        owner: &Owner,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let lost = self.lost_error(owner);
        if self.release_interruptible(owner, check)? == ReleaseOutcome::Lost { Err(lost.into()) } else { Ok(()) }
    }

    pub(crate) fn leave_in(
        &self,
        polled: Polled,
        owner: &Owner,
    ) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let (lost, released) = (self.lost_error(owner), self.release_in(polled, owner));
        async move { if released.await? == ReleaseOutcome::Lost { Err(lost) } else { Ok(()) } }
    }

    /// The error for a release by this owner that finds the lock lost.
    fn lost_error(&self, owner: &Owner) -> LockError {
        let newest = self.client.session().ok().and_then(|session| self.newest(&session, &self.owner(owner)));
        let fate = newest.map_or(Fate::Held, |tenure| tenure.current_fate());
        LockError::Lost { name: self.subject.names.name().to_owned(), reason: fate.lost_reason() }
    }

    fn owner(&self, owner: &Owner) -> Owner {
        if self.options.never_nests() {
            return Owner::Fresh;
        }
        self.options.owner.clone().map_or_else(|| owner.clone(), Owner::Explicit)
    }

    fn begin_release(
        &self,
        owner: &Owner,
    ) -> Result<Ending<impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<>>, LockError> {
        let session = self.client.session()?;
        let unheld =
            |detail: &str| LockError::NotHeld { name: self.subject.names.name().to_owned(), detail: detail.to_owned() };
        let owner = self.owner(owner);
        if let Some(tenure) = self.newest(&session, &owner)
            && let Some(claim) = tenure.newest_claim()
        {
            return begin_release(&session, &tenure, &claim).map(Ending::Local).map_err(|fate| fate.error(self.name()));
        }
        let Owner::Explicit(name) = owner else {
            return Err(unheld("released by an owner that does not hold it"));
        };
        let (names, nobody) = (self.subject.names.clone(), unheld("its owner holds it nowhere"));
        Ok(Ending::Everywhere(async move {
            let ended = holders::end(&session, &names, &name).await?;
            if ended { Ok(ReleaseOutcome::Released) } else { Err(nobody) }
        }))
    }

    fn newest(&self, session: &Session, owner: &Owner) -> Option<Arc<Tenure>> {
        let handle = Arc::downgrade(&self.handle);
        match owner {
            Owner::Fresh => {
                session.registry.newest(self.subject.names.local(), |tenure| tenure.acquired_through(&handle))
            }
            known => {
                let key = known.key();
                session.registry.newest(self.subject.names.local(), |tenure| tenure.terms.owner == key)
            }
        }
    }

    /// Whether this owner holds the lock, by this client's clock and without a round trip. With [`Owner::Fresh`]:
    /// whether this lock object does.
    pub fn owned(&self, owner: &Owner) -> bool {
        self.token(owner).is_some()
    }

    /// The fencing token of the lease that this owner holds, as for [`owned`](Lock::owned); `None` without one.
    pub fn token(&self, owner: &Owner) -> Option<u64> {
        let session = self.client.session().ok()?;
        self.newest(&session, &self.owner(owner)).filter(|tenure| tenure.is_held()).map(|tenure| tenure.token())
    }

    /// Whether anybody holds the lock, by the replies of a quorum. Fails as [`inspect`](Lock::inspect) does.
    pub fn locked(&self) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let (session, names) = (self.client.session(), self.subject.names.clone());
        async move {
            let session = session?;
            run_to_completion(async move { holders::is_held(&session, &names).await }).await
        }
    }

    /// How many slots of its semaphore are free. Fails with `invalid` for a lock.
    #[doc(hidden)]
    pub fn available(&self) -> impl Future<Output = Result<u32, LockError>> + Send + use<> {
        let (session, names, primitive) = (self.client.session(), self.subject.names.clone(), self.subject.primitive);
        async move {
            let Primitive::Permits { of, .. } = primitive else {
                return Err(LockError::invalid("lock", "is no semaphore"));
            };
            let session = session?;
            run_to_completion(async move { holders::available(&session, &names, of).await }).await
        }
    }

    /// The holder of the lock, by the replies of a quorum: `None` if nobody holds it. Fails with `unavailable` while
    /// too few nodes answer, with `conflict` if the key holds something else, and with `closed`. The process of the
    /// holder is taken from `CLIENT LIST`, which the clients of a process request at most once in 10 s from each server.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions};
    ///
    /// let client = Client::new(Config::new(["memory://inspect"]))?;
    /// let lock = client.lock("report", LockOptions::default())?;
    /// let lease = lock.acquire().await?;
    /// let info = lock.inspect().await?.expect("it is held");
    /// assert_eq!((info.owner.as_str(), info.token), (lease.owner(), lease.token()));
    /// lease.release().await?;
    /// assert!(!lock.locked().await?);
    /// # Ok(()) }
    /// ```
    pub fn inspect(&self) -> impl Future<Output = Result<Option<LockInfo>, LockError>> + Send + use<> {
        let (session, names) = (self.client.session(), self.subject.names.clone());
        async move {
            let session = session?;
            run_to_completion(async move { holders::inspect(&session, &names).await }).await
        }
    }
}

/// What a release by an owner ends.
enum Ending<F> {
    /// A lease of this process.
    Local(ReleaseStart),
    /// All tenures of an explicit owner, in all processes.
    Everywhere(F),
}
