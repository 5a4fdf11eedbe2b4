//! A lease: an acquire returns it, a release ends it. The leases of one owner share a tenure; the last release ends
//! that.

use std::{
    fmt,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    error::{LockError, LostReason},
    owner::shown,
    process::{
        driver::{Caller, Driver, Polled},
        fork::Tied,
        runtime,
    },
    protocol::reply::Slot,
    release::{ReleaseStart, begin_release},
    server::NodeErrorKind,
    session::{Session, run_to_completion},
    tenure::{Claim, ExtendError, Fate, InsteadOfRelease, ReleaseOutcome, Tenure, TenureStatus, Terms},
};

/// A held lock. Dropping it releases the lock in the background.
///
/// [`held`](Lease::held) reads a clock and is exact whatever the network does: once it is false it stays false.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use redlock::{Client, Config, LockOptions};
///
/// let client = Client::new(Config::new(["memory://lease"]))?;
/// let lease = client.lock("report", LockOptions::default())?.acquire_blocking()?;
/// // Before each write: fails with `lost` once the lease is lost. The resource checks the token.
/// lease.check()?;
/// println!("UPDATE report SET …, token = {0} WHERE token <= {0}", lease.token());
/// # Ok(()) }
/// ```
pub struct Lease {
    tenure: Tied<Arc<Tenure>>,
    session: Tied<Arc<Session>>,
    claim: Arc<Claim>,
    /// Constant, and so readable in a forked child, too.
    pub(crate) terms: Arc<Terms>,
    /// The first token. Readable in a forked child, too.
    token: u64,
    release_on_drop: AtomicBool,
}

impl Lease {
    pub(crate) fn new(session: &Arc<Session>, tenure: Arc<Tenure>, claim: Arc<Claim>) -> Self {
        tenure.handles.fetch_add(1, Relaxed);
        Self {
            terms: tenure.terms.clone(),
            token: tenure.token(),
            tenure: Tied::new(tenure),
            session: Tied::new(session.clone()),
            claim,
            release_on_drop: AtomicBool::new(true),
        }
    }

    /// The tenure and the session, unless the process forked since the acquire.
    pub(crate) fn tenure_and_session(&self) -> Option<(&Arc<Tenure>, &Arc<Session>)> {
        Some((self.tenure.get()?, self.session.get()?))
    }

    /// Sets what happens, in place of a release, if the lease is dropped before its caller has collected it.
    pub(crate) fn set_instead_of_release(&self, instead: impl FnOnce() + Send + 'static) {
        *self.claim.instead_of_release.lock() = Some(Box::new(instead));
    }

    /// Starts the time within which the caller must collect it.
    pub(crate) fn mark_uncollected(&self) {
        let Some((tenure, session)) = self.tenure_and_session() else { return };
        tenure.mark_uncollected(&self.claim);
        session.watchdog.reconsider(tenure);
    }

    /// A second handle to the same claim, for a host that reads a grant before it collects it. Dropping it releases
    /// nothing.
    pub(crate) fn preview(&self) -> Self {
        if let Some(tenure) = self.tenure.get() {
            tenure.handles.fetch_add(1, Relaxed);
        }
        Self {
            tenure: self.tenure.clone(),
            session: self.session.clone(),
            claim: self.claim.clone(),
            terms: self.terms.clone(),
            token: self.token,
            release_on_drop: AtomicBool::new(false),
        }
    }

    /// Marks it as collected. False if it was given back or lost before.
    pub(crate) fn collect(&self) -> bool {
        self.tenure.get().is_some_and(|tenure| tenure.collect(&self.claim))
    }

    /// From now on dropping the lease releases it: removes the replacement that `set_instead_of_release` set.
    pub(crate) fn clear_instead_of_release(&self) {
        // Dropped outside of the lock: it may be the last reference to the client.
        drop(self.take_instead_of_release());
    }

    fn take_instead_of_release(&self) -> Option<InsteadOfRelease> {
        // In a forked child it belongs to the parent.
        self.tenure.get()?;
        self.claim.instead_of_release.lock().take()
    }

    /// From now on dropping the lease releases nothing: for hosts whose garbage collector drops it at any time.
    #[doc(hidden)]
    pub fn disable_release_on_drop(&self) {
        self.release_on_drop.store(false, Relaxed);
    }

    /// Gives back, in the background, a lease that a host fetched for a caller who had cancelled.
    #[doc(hidden)]
    pub fn abandon(&self) {
        if let Some(instead) = self.take_instead_of_release() {
            return instead();
        }
        // Nobody waits for the outcome.
        drop(self.begin_release());
    }

    /// The lock's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.terms.subject.names.name()
    }

    /// Whether it is a reader's now: downgrade and upgrade change that.
    #[cfg(feature = "simulation")]
    pub fn reads(&self) -> bool {
        self.tenure.get().is_some_and(|tenure| tenure.primitive().reads())
    }

    /// The explicit owner, or `uuid:tenure`.
    pub fn owner(&self) -> &str {
        shown(&self.terms.right.field)
    }

    /// The fencing token: larger than that of every earlier holder. It counts microseconds, but only its order matters.
    /// A resource that remembers the largest token it has seen, and refuses smaller ones on every access, is safe from
    /// holders that were paused past their deadline. Only [`downgrade`](Lease::downgrade) and
    /// [`try_upgrade`](Lease::try_upgrade) change it.
    pub fn token(&self) -> u64 {
        self.tenure.get().map_or(self.token, |tenure| tenure.token())
    }

    /// The slots of a permit, in order. Empty for a lease of a lock.
    pub fn slots(&self) -> &[Slot] {
        &self.terms.right.slots
    }

    /// The fate of this lease: released once it was released itself, else that of the tenure.
    fn fate(&self) -> Fate {
        let Some(tenure) = self.tenure.get() else { return Fate::Lost(LostReason::Forked) };
        match tenure.current_fate() {
            _ if self.claim.released_early.load(Relaxed) => Fate::Released,
            fate => fate,
        }
    }

    /// Whether the lock is held now, by this process's clock. Sends nothing. Once false it stays false.
    pub fn held(&self) -> bool {
        self.fate() == Fate::Held
    }

    /// The time until the deadline, unless it is renewed before; zero once the lease has ended.
    pub fn remaining(&self) -> Duration {
        match self.tenure.get() {
            Some(tenure) if !self.claim.released.load(Relaxed) => tenure.remaining(),
            _ => Duration::ZERO,
        }
    }

    /// The reason of the loss; `None` while it is held, and after a release or `detach()`.
    pub fn lost_reason(&self) -> Option<LostReason> {
        match self.fate() {
            Fate::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// Fails with `lost` after a loss, with `not_held` after a release or `detach()`. Sends nothing.
    pub fn check(&self) -> Result<(), LockError> {
        match self.fate() {
            Fate::Held => Ok(()),
            fate => Err(fate.error(self.name())),
        }
    }

    /// Resolves with the reason when the lock is lost, with `None` when it is released or detached instead.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use std::time::Duration;
    ///
    /// use redlock::{Client, Config, LockOptions, LostReason, Ttl};
    ///
    /// let client = Client::new(Config::new(["memory://lost"]))?;
    /// let mut options = LockOptions::default();
    /// options.ttl = Ttl::Fixed(Duration::from_millis(100));
    /// let lease = client.lock("report", options)?.acquire().await?;
    /// // A program puts it in a `select!`, beside its work.
    /// assert_eq!(lease.lost().await, Some(LostReason::Expired));
    /// # Ok(()) }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Option<LostReason>> + Send + use<> {
        let (tenure, claim) = (self.tenure.clone(), self.claim.clone());
        async move {
            let Some(tenure) = tenure.get() else { return Some(LostReason::Forked) };
            let over = |status: &TenureStatus| status.fate != Fate::Held || claim.released_early.load(Relaxed);
            match tenure.status.until(over).await.fate {
                Fate::Lost(reason) if !claim.released_early.load(Relaxed) => Some(reason),
                _ => None,
            }
        }
    }

    /// Moves the deadline to `ttl` from now, but never to an earlier time. A renewed lease is renewed further. `ttl` is
    /// from 50 ms to 10 years, and on a quorum at most [`max_ttl`](crate::Config::max_ttl).
    ///
    /// Fails with `lost` after a loss, with `not_held` after a release or `detach()`, and with `invalid` if `ttl` is
    /// out of its range. Fails with `unavailable`, changing nothing, while too few nodes answer, and with `conflict` if
    /// the key holds something else by now.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use std::time::Duration;
    ///
    /// use redlock::{Client, Config, LockOptions, Ttl};
    ///
    /// let client = Client::new(Config::new(["memory://extend"]))?;
    /// let mut options = LockOptions::default();
    /// options.ttl = Ttl::Fixed(Duration::from_secs(10));
    /// let lease = client.lock("report", options)?.acquire().await?;
    /// lease.extend(Duration::from_secs(60)).await?;
    /// assert!(lease.remaining() > Duration::from_secs(10));
    /// # Ok(()) }
    /// ```
    pub fn extend(&self, ttl: Duration) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        self.extend_in(self.polled(Caller::Task), ttl)
    }

    pub(crate) fn extend_in(
        &self,
        polled: Polled,
        ttl: Duration,
    ) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let work = self.begin_extend(ttl, polled.driver());
        async move {
            match polled {
                Polled::Here(driver) => runtime::with_background_timers(driver, work?).await,
                Polled::InBackground => run_to_completion(work?).await,
            }
        }
    }

    /// Where its calls are polled.
    pub(crate) fn polled(&self, caller: Caller) -> Polled {
        self.session.get().map_or(Polled::InBackground, |session| session.quorum.polled(caller))
    }

    /// `extend` for a host, blocking. `check` runs every 50 ms and may end the call. Panics in async code.
    #[doc(hidden)]
    pub fn extend_interruptible<E: From<LockError>>(
        &self,
        ttl: Duration,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let driver = self.polled(Caller::Thread).driver();
        let extended = runtime::block(driver, self.begin_extend(ttl, driver)?, check);
        Ok(extended.map_err(|interrupted| interrupted.error(self.name()))??)
    }

    fn begin_extend(
        &self,
        ttl: Duration,
        driver: Driver,
    ) -> Result<impl Future<Output = Result<(), LockError>> + Send + use<>, LockError> {
        self.check()?;
        let Some((tenure, session)) = self.tenure_and_session() else {
            return Err(LockError::forked(self.name()));
        };
        session.settings.check_ttl("ttl", ttl)?;
        let (tenure, session, name) = (tenure.clone(), session.clone(), self.terms.subject.names.name().to_owned());
        Ok(async move {
            let result = extend(&session, &tenure, driver, ttl, &name).await;
            session.watchdog.reconsider(&tenure);
            result
        })
    }

    /// Releases the lease, whether or not the future is awaited. The last lease of a tenure frees the lock.
    ///
    /// Returns once a quorum confirmed the release, and after `reply_timeout` (default: 2 s) at the latest. A release
    /// that is not confirmed by then is sent again in the background until the keys expire. A lost or unconfirmed lease
    /// is an outcome, not an error. A second call returns the same outcome. Fails with `not_held` after `detach()`.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions, ReleaseOutcome};
    ///
    /// let client = Client::new(Config::new(["memory://release_lease"]))?;
    /// let lease = client.lock("report", LockOptions::default())?.acquire().await?;
    /// assert_eq!(lease.release().await?, ReleaseOutcome::Released);
    /// assert!(!lease.held());
    /// # Ok(()) }
    /// ```
    pub fn release(&self) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<> {
        self.release_in(self.polled(Caller::Task))
    }

    pub(crate) fn release_in(
        &self,
        polled: Polled,
    ) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<> {
        let begun = self.begin_release();
        async move { Ok(begun?.finish(polled).await) }
    }

    /// `release` for a host, blocking. `check` runs every 50 ms and may end the call, but not the release. Panics in
    /// async code.
    #[doc(hidden)]
    pub fn release_interruptible<E: From<LockError>>(
        &self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<ReleaseOutcome, E> {
        self.begin_release()?.finish_blocking(check)
    }

    /// `release` in the caller's own task.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) async fn release_here(&self) -> Result<ReleaseOutcome, LockError> {
        match self.begin_release()? {
            ReleaseStart::Ours(decided) => Ok(decided.send(Driver::Background).await),
            begun => Ok(begun.finish(Polled::Here(Driver::Background)).await),
        }
    }

    /// Its tenure.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn tenure(&self) -> Arc<Tenure> {
        self.tenure.get().expect("no fork happens here").clone()
    }

    fn begin_release(&self) -> Result<ReleaseStart, LockError> {
        self.clear_instead_of_release();
        let Some((tenure, session)) = self.tenure_and_session() else {
            return Ok(ReleaseStart::Done(ReleaseOutcome::Lost));
        };
        begin_release(session, tenure, &self.claim).map_err(|fate| fate.error(self.name()))
    }

    /// Ends a block of code: releases, and fails with `lost` if the lock was lost. Does nothing if the lease was
    /// detached inside the block, or released while it was held.
    pub fn leave(&self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        self.leave_in(self.polled(Caller::Task))
    }

    pub(crate) fn leave_in(&self, polled: Polled) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let leaving = self.begin_leave();
        async move {
            let Some((begun, lost)) = leaving? else { return Ok(()) };
            if begun.finish(polled).await == ReleaseOutcome::Lost { Err(lost) } else { Ok(()) }
        }
    }

    /// `leave` for a host, blocking as `release_interruptible` does.
    #[doc(hidden)]
    pub fn leave_interruptible<E: From<LockError>>(&self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        let Some((begun, lost)) = self.begin_leave()? else { return Ok(()) };
        if begun.finish_blocking(check)? == ReleaseOutcome::Lost { Err(lost.into()) } else { Ok(()) }
    }

    /// Starts the release at the end of a block, with the error to return if it finds the lock lost. `None` if the
    /// lease was detached inside the block, or released while it was held.
    fn begin_leave(&self) -> Result<Option<(ReleaseStart, LockError)>, LockError> {
        match self.fate() {
            Fate::Released | Fate::Detached => Ok(None),
            fate @ (Fate::Held | Fate::Lost(_)) => {
                Ok(Some((self.begin_release()?, Fate::Lost(fate.lost_reason()).error(self.name()))))
            }
        }
    }

    /// Stops renewing the lock and forgets it without a release, for a drop-in that knows the lock by its value.
    #[doc(hidden)]
    pub fn let_go(&self) -> Result<(), LockError> {
        let Some((tenure, session)) = self.tenure_and_session() else {
            return Err(LockError::forked(self.name()));
        };
        self.check()?;
        tenure.detach().map_err(|fate| match fate {
            Fate::Held => LockError::invalid("lease", "has nested leases; release them before it is detached"),
            fate => fate.error(self.name()),
        })?;
        self.claim.released.store(true, Relaxed);
        session.forget(tenure);
        Ok(())
    }
}

/// Extends a tenure, for `Lease::extend` and for nested acquires.
pub(crate) async fn extend(
    session: &Session,
    tenure: &Arc<Tenure>,
    driver: Driver,
    ttl: Duration,
    name: &str,
) -> Result<(), LockError> {
    tenure.clone().extend(driver, ttl).await.map_err(|failure| extend_error(session, tenure, name, failure))
}

/// The error for a tenure that could not be extended, downgraded or upgraded.
pub(crate) fn extend_error(session: &Session, tenure: &Tenure, name: &str, failure: ExtendError) -> LockError {
    match failure {
        ExtendError::Ended(fate) => fate.error(name),
        ExtendError::Unanswered(errors)
            if !errors.is_empty() && errors.iter().all(|(_, e)| e.kind == NodeErrorKind::WrongType) =>
        {
            LockError::Conflict { key: tenure.terms.subject.names.lock.clone() }
        }
        ExtendError::Unanswered(errors) => session
            .quorum
            .unavailable(errors.into_iter().map(|(node, error)| session.quorum.cause(node, error)).collect()),
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(tenure) = self.tenure.get() else { return };
        tenure.handles.fetch_sub(1, Relaxed);
        if self.release_on_drop.load(Relaxed) {
            self.abandon();
        } else {
            self.clear_instead_of_release();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.terms.subject.names.name())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}
