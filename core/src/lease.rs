//! A lease: what a caller gets from an acquire and hands back with a release. Several leases of one owner share one
//! tenure; the last release ends it.

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
    tenure::{Claim, ExtendError, Fate, ReleaseOutcome, Tenure, Terms, Unseen},
};

/// A held lock.
///
/// `held()` reads a clock and is exact whatever the network does: once it is false it stays false. In Rust, dropping
/// a lease releases it in the background; hosts with a garbage collector call [`Lease::disable_release_on_drop`] first.
pub struct Lease {
    tenure: Tied<Arc<Tenure>>,
    session: Tied<Arc<Session>>,
    claim: Arc<Claim>,
    /// What never changes, readable in a forked child too.
    pub(crate) terms: Arc<Terms>,
    /// The first, readable in a forked child too.
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

    /// What it is a lease of, unless the process forked since.
    pub(crate) fn parts(&self) -> Option<(&Arc<Tenure>, &Arc<Session>)> {
        Some((self.tenure.get()?, self.session.get()?))
    }

    /// What is to be done when it is dropped before its caller has seen it, in place of a release.
    pub(crate) fn set_unseen(&self, otherwise: impl FnOnce() + Send + 'static) {
        *self.claim.unseen.lock() = Some(Box::new(otherwise));
    }

    /// Offers it to its caller, who has not taken it yet.
    pub(crate) fn mark_uncollected(&self) {
        let Some((tenure, session)) = self.parts() else { return };
        tenure.mark_uncollected(&self.claim);
        session.watchdog.reconsider(tenure);
    }

    /// The same, for a host that hears of it before it takes it: collecting this one releases nothing.
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

    /// Its caller takes it. False if it was offered, and withdrawn or lost meanwhile.
    pub(crate) fn collect(&self) -> bool {
        self.tenure.get().is_some_and(|tenure| tenure.collect(&self.claim))
    }

    /// Its caller has seen it, and will release it as any other.
    pub(crate) fn seen(self) -> Self {
        self.forget_unseen();
        self
    }

    fn forget_unseen(&self) {
        // It may be the last that refers to its client: not under the lock.
        drop(self.take_unseen());
    }

    fn take_unseen(&self) -> Option<Unseen> {
        // In a child it is the parent's.
        self.tenure.get()?;
        self.claim.unseen.lock().take()
    }

    /// Dropping the lease no longer releases it: for hosts whose garbage collector decides when that happens.
    pub fn disable_release_on_drop(&self) {
        self.release_on_drop.store(false, Relaxed);
    }

    /// Gives back, in the background, a lease that its caller never got to see: hosts say so of what they have drained
    /// for somebody who had given up.
    pub fn abandon(&self) {
        if let Some(otherwise) = self.take_unseen() {
            return otherwise();
        }
        // Whatever the outcome, nobody waits for it.
        drop(self.begin_release());
    }

    /// The lock's name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.terms.names.name()
    }

    /// Whether it reads, by what it stands for here.
    #[cfg(feature = "simulation")]
    pub fn reads(&self) -> bool {
        self.tenure.get().is_some_and(|tenure| tenure.primitive().reads())
    }

    /// The explicit owner, or `uuid:tenure`.
    pub fn owner(&self) -> &str {
        shown(&self.terms.field)
    }

    /// The fencing token, in µs: larger than that of every earlier holder. A resource that remembers the largest it
    /// has seen, and refuses smaller ones on every access, is safe from holders that were stopped and came back. Changes when
    /// [`downgrade`](Lease::downgrade) or [`try_upgrade`](Lease::try_upgrade) does, and only then.
    pub fn token(&self) -> u64 {
        self.tenure.get().map_or(self.token, |tenure| tenure.token())
    }

    /// What a permit has of a semaphore, in order; nothing for a lease of a lock.
    pub fn slots(&self) -> &[Slot] {
        &self.terms.slots
    }

    /// The fate as this lease sees it: its own release ends it, whatever the tenure does.
    fn fate(&self) -> Fate {
        let Some(tenure) = self.tenure.get() else { return Fate::Lost(LostReason::Forked) };
        match tenure.current_fate() {
            _ if self.claim.left.load(Relaxed) => Fate::Released,
            fate => fate,
        }
    }

    /// Whether the lock is held, right now. Once false it stays false.
    pub fn held(&self) -> bool {
        self.fate() == Fate::Held
    }

    /// How long it is held unless it is renewed; zero once it is not.
    pub fn remaining(&self) -> Duration {
        match self.tenure.get() {
            Some(tenure) if !self.claim.released.load(Relaxed) => tenure.remaining(),
            _ => Duration::ZERO,
        }
    }

    /// Why it was lost, if it was.
    pub fn lost_reason(&self) -> Option<LostReason> {
        match self.fate() {
            Fate::Lost(reason) => Some(reason),
            _ => None,
        }
    }

    /// Fails with `lost` after a loss, with `not_held` after a release or `detach()`.
    pub fn check(&self) -> Result<(), LockError> {
        match self.fate() {
            Fate::Held => Ok(()),
            fate => Err(self.ended(fate)),
        }
    }

    pub(crate) fn ended(&self, fate: Fate) -> LockError {
        let name = self.terms.names.name().to_owned();
        match fate {
            Fate::Lost(reason) => LockError::Lost { name, reason },
            Fate::Detached => LockError::NotHeld { name, detail: "the lease was detached".to_owned() },
            Fate::Released | Fate::Held => LockError::NotHeld { name, detail: "the lease was released".to_owned() },
        }
    }

    /// Resolves with the reason when the lock is lost, with `None` when it is released or detached instead.
    pub fn lost(&self) -> impl Future<Output = Option<LostReason>> + Send + use<> {
        let (tenure, claim) = (self.tenure.clone(), self.claim.clone());
        async move {
            let Some(tenure) = tenure.get() else { return Some(LostReason::Forked) };
            let mut status = tenure.status.subscribe();
            let ended = status.wait_for(|status| status.fate != Fate::Held || claim.left.load(Relaxed)).await;
            match ended.map(|status| status.fate) {
                Ok(Fate::Lost(reason)) if !claim.left.load(Relaxed) => Some(reason),
                _ => None,
            }
        }
    }

    /// Lets the lock end `ttl` from now, never earlier than it would have. A renewed lease is renewed on. Fails with
    /// `lost` after a loss and with `unavailable`, nothing changed, while too few nodes answer.
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
                Polled::Here(driver) => runtime::entered(driver, work?).await,
                Polled::InBackground => run_to_completion(work?).await,
            }
        }
    }

    /// Where its calls are polled.
    pub(crate) fn polled(&self, caller: Caller) -> Polled {
        self.session.get().map_or(Polled::InBackground, |session| session.quorum.polled(caller))
    }

    /// `extend`, blocking; `check` runs every 50 ms and may end the call. Not for async code: it panics there.
    pub fn extend_blocking<E: From<LockError>>(
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
        let Some((tenure, session)) = self.parts() else {
            return Err(self.ended(Fate::Lost(LostReason::Forked)));
        };
        session.settings.check_ttl("ttl", ttl)?;
        let (tenure, session, name) = (tenure.clone(), session.clone(), self.terms.names.name().to_owned());
        Ok(async move {
            let result = extend(&session, &tenure, driver, ttl, &name).await;
            session.watchdog.reconsider(&tenure);
            result
        })
    }

    /// Ends this lease, whether or not the future is awaited. The last lease of a tenure frees the lock: returns once a
    /// quorum confirmed, and after the reply time-out at the latest; what is not confirmed by then is tried on until the
    /// lease would have ended. Never fails for a lost or unconfirmed lease; a second call returns the same. Fails with
    /// `not_held` after `detach()`.
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

    /// `release`, blocking; `check` runs every 50 ms and may end the call, not the release. Not for async code: it panics
    /// there.
    pub fn release_blocking<E: From<LockError>>(
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

    /// The tenure behind it.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn tenure(&self) -> Arc<Tenure> {
        self.tenure.get().expect("no fork happens here").clone()
    }

    fn begin_release(&self) -> Result<ReleaseStart, LockError> {
        self.forget_unseen();
        let Some((tenure, session)) = self.parts() else {
            return Ok(ReleaseStart::Done(ReleaseOutcome::Lost));
        };
        begin_release(session, tenure, &self.claim).map_err(|fate| self.ended(fate))
    }

    /// What a block does when it ends: releases, and fails with `lost` if the lock was lost. Does nothing when the
    /// lease was detached or released inside.
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

    /// `leave`, blocking; `check` as for `release_blocking`. Not for async code: it panics there.
    pub fn leave_blocking<E: From<LockError>>(&self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        let Some((begun, lost)) = self.begin_leave()? else { return Ok(()) };
        if begun.finish_blocking(check)? == ReleaseOutcome::Lost { Err(lost.into()) } else { Ok(()) }
    }

    /// Begins the release at the end of a block, and says what to fail with if it finds the lock lost. `None`: the
    /// lease was detached or released inside.
    fn begin_leave(&self) -> Result<Option<(ReleaseStart, LockError)>, LockError> {
        match self.fate() {
            Fate::Released | Fate::Detached => Ok(None),
            fate @ (Fate::Held | Fate::Lost(_)) => {
                Ok(Some((self.begin_release()?, self.ended(Fate::Lost(fate.loss())))))
            }
        }
    }

    /// Stops renewing and lets go of the lock without releasing it, for a drop-in shim that knows it by its value.
    #[doc(hidden)]
    pub fn let_go(&self) -> Result<(), LockError> {
        let Some((tenure, session)) = self.parts() else {
            return Err(self.ended(Fate::Lost(LostReason::Forked)));
        };
        self.check()?;
        tenure.detach().map_err(|fate| match fate {
            Fate::Held => LockError::invalid("lease", "has nested leases; release them before it is detached"),
            fate => self.ended(fate),
        })?;
        self.claim.released.store(true, Relaxed);
        session.forget(tenure);
        Ok(())
    }
}

/// Extends a tenure; the part that nested acquires share.
pub(crate) async fn extend(
    session: &Session,
    tenure: &Arc<Tenure>,
    driver: Driver,
    ttl: Duration,
    name: &str,
) -> Result<(), LockError> {
    tenure.clone().extend(driver, ttl).await.map_err(|fallen| explained(session, tenure, name, fallen))
}

/// Why something could not be done to a tenure.
pub(crate) fn explained(session: &Session, tenure: &Tenure, name: &str, fallen: ExtendError) -> LockError {
    match fallen {
        ExtendError::Ended(Fate::Lost(reason)) => LockError::Lost { name: name.to_owned(), reason },
        ExtendError::Ended(_) => {
            LockError::NotHeld { name: name.to_owned(), detail: "the lease was released".to_owned() }
        }
        ExtendError::Unanswered(errors) if errors.iter().all(|(_, e)| e.kind == NodeErrorKind::WrongType) => {
            LockError::Conflict { key: tenure.terms.names.lock.clone() }
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
            self.forget_unseen();
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.terms.names.name())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}
