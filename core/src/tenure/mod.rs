//! A tenure: one uninterrupted holding of one lock by one owner, from the grant to the release or the loss. [`state`]
//! and [`renewal`] decide its transitions and are pure. This file, [`upkeep`] and [`release`] send requests to the
//! nodes and notify the waiters for the tenure's end.

mod batches;
mod min_hold;
mod mode;
mod release;
mod renewal;
mod round;
mod state;
mod supervisor;
mod upkeep;
pub(crate) mod watchdog;

use std::{
    any::Any,
    sync::{Arc, Weak},
    time::Duration,
};

pub use self::release::ReleaseOutcome;
use self::{
    min_hold::MinHold,
    mode::Mode,
    release::Told,
    state::{Effects, News, State},
};
pub(crate) use self::{renewal::Plan, state::Unclaimed, supervisor::Supervised, upkeep::ExtendError};
use crate::{
    clock::{self, Deadline, Stamp},
    error::{LockError, LostReason},
    event::{Event, EventSink},
    owner::OwnerKey,
    process::{driver::Driver, fork},
    protocol::{calls::Label, primitive::Primitive, subject::Subject},
    quorum::{Quorum, Right, Spread},
    sync::{
        Mutex, OrderedWatch,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

/// The longest time that a caller has to collect its grant; a sixth of the ttl, if that is less. It is over before the
/// first renewal is due.
const COLLECT_WITHIN: Duration = Duration::from_secs(5);

/// Whether a tenure is held, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Held,
    Lost(LostReason),
    Released,
    Detached,
}

impl Fate {
    /// The reason to report when a release finds that the lock was lost. If nobody noticed the loss before, the key was
    /// gone.
    pub(crate) fn lost_reason(self) -> LostReason {
        match self {
            Self::Lost(reason) => reason,
            Self::Held | Self::Released | Self::Detached => LostReason::Deleted,
        }
    }

    /// The error of a call that needs a held lease, on the lock of this name. `Held`: this lease was released, but
    /// other leases of the tenure remain.
    pub(crate) fn error(self, name: &str) -> LockError {
        let detail = match self {
            Self::Lost(reason) => return LockError::Lost { name: name.to_owned(), reason },
            Self::Detached => "the lease was detached",
            Self::Released | Self::Held => "the lease was released",
        };
        LockError::NotHeld { name: name.to_owned(), detail: detail.to_owned() }
    }
}

/// The status of a tenure, for the waiters for its end.
#[derive(Clone, Copy)]
pub(crate) struct TenureStatus {
    pub(crate) fate: Fate,
    /// The outcome of its release, once that is over.
    pub(crate) outcome: Option<ReleaseOutcome>,
}

/// Runs in place of the release of a lease that its caller has not collected: a lease from `attach` is detached again.
pub(crate) type InsteadOfRelease = Box<dyn FnOnce() + Send>;

/// The share that one lease has in its tenure.
pub(crate) struct Claim {
    /// The ttl to renew it with; `None` for a fixed ttl.
    pub(crate) renews: Option<Duration>,
    pub(crate) released: AtomicBool,
    /// Whether it was released while the tenure was held and other claims remained.
    pub(crate) released_early: AtomicBool,
    /// Whether it was an uncollected grant and was given back.
    pub(crate) withdrawn: AtomicBool,
    /// Set until its caller has collected it, if dropping it must not release it.
    pub(crate) instead_of_release: Mutex<Option<InsteadOfRelease>>,
}

impl Claim {
    pub(crate) fn new(renews: Option<Duration>) -> Arc<Self> {
        let not_yet = || AtomicBool::new(false);
        Arc::new(Self {
            renews,
            released: not_yet(),
            released_early: not_yet(),
            withdrawn: not_yet(),
            instead_of_release: Mutex::new(None),
        })
    }
}

/// The properties of a tenure that never change.
pub(crate) struct Terms {
    /// What was acquired. An upgrade or downgrade does not change it.
    pub(crate) subject: Subject,
    pub(crate) owner: OwnerKey,
    pub(crate) right: Right,
    /// Whether its ttl is fixed: nothing renews it.
    pub(crate) fixed: bool,
    pub(crate) adaptive: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    /// The host's thread that acquired it.
    pub(crate) thread: Option<u64>,
    /// Alive while the host's thread, greenlet or task is.
    pub(crate) identity: Weak<u64>,
}

pub(crate) struct Tenure {
    /// Readable in a forked child, too.
    pub(crate) terms: Arc<Terms>,
    token: AtomicU64,
    /// Whether it is a reader of a read/write lock. A downgrade sets this before it sends its requests, an upgrade
    /// clears it after a quorum confirmed.
    reads: AtomicBool,
    pub(crate) generation: u64,
    /// How many lease handles the host still refers to.
    pub(crate) handles: AtomicUsize,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) status: OrderedWatch<TenureStatus>,
    events: EventSink,
    state: Mutex<State>,
    mode: Mutex<Mode>,
}

impl Tenure {
    pub(crate) fn new(
        terms: Terms,
        spread: Spread,
        claim: Arc<Claim>,
        lock_object: Weak<()>,
        quorum: Arc<Quorum>,
        events: EventSink,
    ) -> Arc<Self> {
        let reads = terms.subject.primitive.reads();
        let (terms, Spread { presences, late, sent }) = (Arc::new(terms), spread);
        let mut state = State::new(terms.clone(), presences, sent.clone(), claim, lock_object, quorum.settings.clone());
        state.min_hold = terms.min_hold.map(|time| MinHold::new(time, clock::now()));
        let tenure = Arc::new(Self {
            token: AtomicU64::new(terms.right.token),
            reads: AtomicBool::new(reads),
            terms,
            generation: fork::generation(),
            handles: AtomicUsize::new(0),
            quorum,
            status: OrderedWatch::new(TenureStatus { fate: Fate::Held, outcome: None }),
            events,
            state: Mutex::new(state),
            mode: Mutex::default(),
        });
        if !late.is_over() {
            tenure.quorum.spawn(tenure.clone().absorb_late_grants(late, sent));
        }
        tenure
    }

    /// Changes the state, then carries out the effects with the mutex unlocked.
    fn change<T>(&self, change: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let result = change(&mut self.state.lock(), &mut effects);
        if !effects.is_none() {
            self.carry_out(effects);
        }
        result
    }

    fn carry_out(&self, effects: Effects) {
        let Effects { news, fate, instead_of_release, release, session } = effects;
        for news in news {
            self.emit(news);
        }
        if let Some(fate) = fate {
            // An end is final, so this notifies once.
            self.status.change(|status| status.fate = fate);
        }
        for run in instead_of_release {
            run();
        }
        self.release_later(release);
        drop(session);
    }

    fn emit(&self, news: News) {
        let (name, token) = (self.terms.subject.names.name().to_owned(), self.token());
        (self.events)(&match news {
            News::Lost(reason) => Event::Lost { name, token, reason },
            News::AtRisk(left) => Event::AtRisk { name, token, left },
            News::Orphaned => Event::Orphaned { name, token },
        });
    }

    /// Its fencing token.
    pub(crate) fn token(&self) -> u64 {
        self.token.load(SeqCst)
    }

    /// The primitive that it holds now: an upgrade or downgrade changes it.
    pub(crate) fn primitive(&self) -> Primitive {
        match self.terms.subject.primitive {
            Primitive::Read | Primitive::Write if self.reads.load(SeqCst) => Primitive::Read,
            Primitive::Read | Primitive::Write => Primitive::Write,
            other => other,
        }
    }

    /// Identifies it in requests to its nodes.
    pub(crate) fn label(&self) -> Label<'_> {
        Label {
            primitive: self.primitive(),
            names: &self.terms.subject.names,
            field: &self.terms.right.field,
            slots: &self.terms.right.slots,
        }
    }

    /// Whether both hold the same lock.
    pub(crate) fn same_lock(&self, other: &Self) -> bool {
        self.terms.subject.names.lock == other.terms.subject.names.lock
    }

    pub(crate) fn forked(&self) -> bool {
        self.generation != fork::generation()
    }

    /// The time left until the deadline; zero once the tenure ended. If the deadline has passed, this ends the tenure.
    pub(crate) fn remaining(&self) -> Duration {
        if self.forked() {
            return Duration::ZERO;
        }
        self.change(|state, effects| state.check(clock::now(), effects))
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether it is held. Unlike `is_held` this never ends the tenure and so notifies nobody: it may be called while
    /// other mutexes are locked.
    pub(crate) fn is_live(&self) -> bool {
        !self.forked() && self.state.lock().is_held_at(clock::now())
    }

    /// Its fate. If the deadline has passed, this ends the tenure first.
    pub(crate) fn current_fate(&self) -> Fate {
        if self.forked() {
            return Fate::Lost(LostReason::Forked);
        }
        self.change(|state, effects| {
            state.check(clock::now(), effects);
            state.fate
        })
    }

    /// Ends the tenure as lost. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        self.change(|state, effects| state.lose(reason, effects));
    }

    /// Releases, in the background, a tenure whose lease no caller has collected.
    pub(crate) fn release_uncollected(&self) {
        self.change(State::release_uncollected);
    }

    /// Whether its owner or one of its leases still exists.
    fn is_owned(&self) -> bool {
        self.handles.load(Relaxed) > 0 || self.terms.identity.strong_count() > 0
    }

    /// Whether its owner must learn of a loss. Who lets a fixed ttl run out, and keeps neither lease nor lock object, is
    /// done with the lock.
    pub(crate) fn is_remembered(&self) -> bool {
        let is_dropped = || self.terms.fixed && !self.state.lock().has_lock_object();
        self.is_owned() && (self.handles.load(Relaxed) > 0 || !is_dropped())
    }

    /// The ttl that renewals request; zero if it is not renewed.
    pub(crate) fn renewed_ttl(&self) -> Duration {
        self.state.lock().renewed_ttl()
    }

    /// Decides what the watchdog does with it now. `recheck`: nodes that just broke or came back.
    pub(crate) fn plan(&self, now: Stamp, recheck: &[usize]) -> Plan {
        let is_owned = self.is_owned();
        self.change(|state, effects| state.plan(now, recheck, is_owned, effects))
    }

    /// The time until the watchdog must check it.
    pub(crate) fn time_to_check(&self) -> Duration {
        let now = clock::now();
        self.state.lock().time_to_check(now)
    }

    /// Adds the claim of a nested acquire. Returns the ttl to extend the lease to, if too little of it is left. Fails
    /// with the fate of a tenure that has ended.
    pub(crate) fn claim(
        &self,
        claim: &Arc<Claim>,
        lock_object: Weak<()>,
        ttl: Duration,
    ) -> Result<Option<Duration>, Fate> {
        self.change(|state, effects| state.claim(claim, lock_object, ttl, clock::now(), effects))
    }

    /// Ends a claim. Only the first call for a claim has an effect.
    pub(crate) fn unclaim(&self, claim: &Arc<Claim>) -> Unclaimed {
        let end = self.change(|state, effects| state.unclaim(claim, clock::now(), effects));
        if matches!(end, Unclaimed::OthersRemain) {
            // Wakes the waiters for the end of this lease: they check `released_early`.
            self.status.change(|_| {});
        }
        end
    }

    /// Marks a claim as an uncollected grant, which the caller must collect within min(ttl/6, 5 s).
    pub(crate) fn mark_uncollected(&self, claim: &Arc<Claim>) {
        let until = Deadline::after((self.terms.right.ttl / 6).min(COLLECT_WITHIN));
        self.state.lock().mark_uncollected(claim, until);
    }

    /// The caller collects a claim. False if it was an uncollected grant that was given back or lost.
    pub(crate) fn collect(&self, claim: &Arc<Claim>) -> bool {
        !self.forked() && self.change(|state, effects| state.collect(claim, clock::now(), effects))
    }

    /// Gives the lock back, in the background, if no claim has been collected. False if one has.
    pub(crate) fn withdraw(self: &Arc<Self>) -> bool {
        let ended =
            self.change(|state, effects| (!state.is_collected()).then(|| state.withdraw(None, clock::now(), effects)));
        if ended == Some(true) {
            self.release_in_background();
        }
        ended.is_some()
    }

    /// Releases it in the background.
    pub(crate) fn release_in_background(self: &Arc<Self>) {
        self.drop_session();
        let tenure = self.clone();
        self.quorum.spawn_pending(async move {
            let _told = Told(tenure.clone());
            tenure.release(Driver::Background).await;
        });
    }

    /// Resolves once other owners may try: it ended, or it became a reader. A released tenure counts as ended only when
    /// the outcome is known: before, the lock is not free.
    pub(crate) async fn lets_others_try(self: Arc<Self>) {
        let has_ended = |status: &TenureStatus| {
            status.fate != Fate::Held && (status.fate != Fate::Released || status.outcome.is_some())
        };
        self.status.until(|status| has_ended(status) || self.primitive().is_shared()).await;
    }

    /// Its newest unreleased claim.
    pub(crate) fn newest_claim(&self) -> Option<Arc<Claim>> {
        self.state.lock().claims.last().cloned()
    }

    /// Whether one of its claims was acquired through this lock object.
    pub(crate) fn acquired_through(&self, lock_object: &Weak<()>) -> bool {
        self.state.lock().lock_objects.iter().any(|known| known.ptr_eq(lock_object))
    }

    /// Ends a held tenure in this process and leaves its keys on the nodes. Fails with its fate: `Held` if it has
    /// several claims.
    pub(crate) fn detach(&self) -> Result<(), Fate> {
        self.change(|state, effects| state.detach(clock::now(), effects))
    }

    /// Keeps the session alive until the tenure ends.
    pub(crate) fn keep_session(&self, session: Arc<dyn Any + Send + Sync>) {
        let mut state = self.state.lock();
        if state.fate == Fate::Held {
            state.session = Some(session);
        }
    }

    /// Stops keeping the session alive.
    pub(crate) fn drop_session(&self) {
        let session = self.state.lock().session.take();
        drop(session);
    }

    pub(crate) fn watchdog_index(&self) -> Option<usize> {
        self.state.lock().watchdog_index
    }

    pub(crate) fn set_watchdog_index(&self, index: Option<usize>) {
        self.state.lock().watchdog_index = index;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[path = "../testing/tenure.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
