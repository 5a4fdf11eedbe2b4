//! A tenure: one owner's right to one lock, from the grant to its end. What it is and what follows is decided in
//! [`state`] and [`renewal`], which are pure; here and in [`upkeep`] and [`release`] is what asks the nodes, and tells.

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

use tokio::sync::watch;

pub use self::release::ReleaseOutcome;
use self::{
    mode::Mode,
    state::{Effects, News, State},
};
pub(crate) use self::{renewal::Plan, state::Unclaimed, supervisor::Supervised, upkeep::ExtendError};
use crate::{
    clock::{self, Deadline, Stamp},
    error::LostReason,
    event::{Event, EventSink},
    owner::OwnerKey,
    process::{driver::Driver, fork},
    protocol::{calls::Label, names::Names, primitive::Primitive, reply::Slot},
    quorum::{Grant, Quorum},
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
        notify,
    },
};

/// How long a lease is offered at most to a caller that does not take it; a sixth of it, if that is less. It is not renewed
/// before that.
const COLLECT_WITHIN: Duration = Duration::from_secs(5);

/// What became of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Held,
    Lost(LostReason),
    Released,
    Detached,
}

impl Fate {
    /// Why it was lost, when a release finds that it was: if nobody noticed before, the key was gone.
    pub(crate) fn loss(self) -> LostReason {
        match self {
            Self::Lost(reason) => reason,
            Self::Held | Self::Released | Self::Detached => LostReason::Deleted,
        }
    }
}

/// What whoever waits for a tenure's end is told.
pub(crate) struct TenureStatus {
    pub(crate) fate: Fate,
    /// What its release found, once that is over.
    pub(crate) outcome: Option<ReleaseOutcome>,
}

/// What is done with a lease that its caller never got to see, in place of a release.
pub(crate) type Unseen = Box<dyn FnOnce() + Send>;

/// One unreleased acquire of a tenure's owner.
pub(crate) struct Claim {
    /// The lease it keeps alive, for a watchdog or adaptive acquire.
    pub(crate) renews: Option<Duration>,
    pub(crate) released: AtomicBool,
    /// Whether it was released while the tenure was held, and went on without it.
    pub(crate) left: AtomicBool,
    /// Whether it was offered, and given back since nobody took it.
    pub(crate) withdrawn: AtomicBool,
    pub(crate) unseen: Mutex<Option<Unseen>>,
}

impl Claim {
    pub(crate) fn new(renews: Option<Duration>) -> Arc<Self> {
        let not_yet = || AtomicBool::new(false);
        Arc::new(Self { renews, released: not_yet(), left: not_yet(), withdrawn: not_yet(), unseen: Mutex::new(None) })
    }
}

/// What a tenure is made of, apart from its grant.
pub(crate) struct Terms {
    pub(crate) names: Arc<Names>,
    pub(crate) owner: OwnerKey,
    pub(crate) field: String,
    /// What it was granted as.
    pub(crate) primitive: Primitive,
    /// What a permit has of a semaphore.
    pub(crate) slots: Vec<Slot>,
    pub(crate) ttl: Duration,
    pub(crate) fixed: bool,
    pub(crate) adaptive: bool,
    pub(crate) max_hold: Option<Duration>,
    /// The host's thread that acquired it.
    pub(crate) thread: Option<u64>,
    /// Alive while the host's thread, greenlet or task is.
    pub(crate) identity: Weak<u64>,
}

pub(crate) struct Tenure {
    /// Readable in a forked child, too.
    pub(crate) terms: Arc<Terms>,
    token: AtomicU64,
    /// Whether it reads, in a read/write lock. It stands for less before its nodes are told, and for more when they confirmed.
    reads: AtomicBool,
    pub(crate) since: Stamp,
    pub(crate) generation: u64,
    /// How many lease handles the host still refers to.
    pub(crate) handles: AtomicUsize,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) status: watch::Sender<TenureStatus>,
    events: EventSink,
    state: Mutex<State>,
    mode: Mutex<Mode>,
}

impl Tenure {
    pub(crate) fn new(
        terms: Terms,
        grant: Grant,
        claim: Arc<Claim>,
        lock: Weak<()>,
        quorum: Arc<Quorum>,
        events: EventSink,
    ) -> Arc<Self> {
        let reads = terms.primitive.reads();
        let (presences, sent) = (grant.presences, grant.sent.clone());
        let state = State::new(&terms, grant.since, presences, sent, claim, lock, quorum.settings.clone());
        let tenure = Arc::new(Self {
            terms: Arc::new(terms),
            token: AtomicU64::new(grant.token),
            reads: AtomicBool::new(reads),
            since: grant.since,
            generation: fork::generation(),
            handles: AtomicUsize::new(0),
            quorum,
            status: watch::Sender::new(TenureStatus { fate: Fate::Held, outcome: None }),
            events,
            state: Mutex::new(state),
            mode: Mutex::default(),
        });
        if !grant.late.is_over() {
            let late = tenure.clone().absorb_late_grants(grant.late, grant.sent, grant.since);
            tenure.quorum.spawn(late);
        }
        tenure
    }

    /// Changes the state, and does what follows, when nothing is locked any more.
    fn change<T>(&self, change: impl FnOnce(&mut State, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let result = change(&mut self.state.lock(), &mut effects);
        if !effects.is_none() {
            self.carry_out(effects);
        }
        result
    }

    fn carry_out(&self, effects: Effects) {
        let Effects { news, fate, unseen, release, keeper } = effects;
        for news in news {
            self.emit(news);
        }
        if let Some(fate) = fate {
            // An end is final, and told once.
            notify(&self.status, |status| status.fate = fate);
        }
        for instead in unseen {
            instead();
        }
        self.release_later(release);
        drop(keeper);
    }

    fn emit(&self, news: News) {
        let (name, token) = (self.terms.names.name().to_owned(), self.token());
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

    /// What it is of.
    pub(crate) fn primitive(&self) -> Primitive {
        match self.terms.primitive {
            Primitive::Read | Primitive::Write if self.reads.load(SeqCst) => Primitive::Read,
            Primitive::Read | Primitive::Write => Primitive::Write,
            other => other,
        }
    }

    /// What its nodes know it by.
    pub(crate) fn label(&self) -> Label<'_> {
        Label { primitive: self.primitive(), names: &self.terms.names, field: &self.terms.field }
    }

    /// Whether both are of one lock.
    pub(crate) fn same_lock(&self, other: &Self) -> bool {
        self.terms.names.lock == other.terms.names.lock
    }

    pub(crate) fn forked(&self) -> bool {
        self.generation != fork::generation()
    }

    /// What is left until the deadline; zero when it ended. Finding the deadline passed ends the tenure.
    pub(crate) fn remaining(&self) -> Duration {
        if self.forked() {
            return Duration::ZERO;
        }
        self.change(|state, effects| state.check(clock::now(), effects))
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether it is held. Unlike `is_held` this only looks, so that it may be asked under other locks: finding a
    /// deadline passed is told to others.
    pub(crate) fn is_live(&self) -> bool {
        !self.forked() && self.state.lock().is_held_at(clock::now())
    }

    /// What became of it, with the deadline taken into account.
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

    /// Gives back a tenure that nobody was told of.
    pub(crate) fn give_back(&self) {
        self.change(State::give_back);
    }

    /// Whether its owner or a lease is still there: a loss is to be told to them.
    pub(crate) fn is_remembered(&self) -> bool {
        self.handles.load(Relaxed) > 0 || self.terms.identity.strong_count() > 0
    }

    /// Decides what the watchdog does now. `recheck`: nodes that just came back.
    pub(crate) fn plan(&self, now: Stamp, recheck: &[usize]) -> Plan {
        let is_remembered = self.is_remembered();
        self.change(|state, effects| state.plan(now, recheck, is_remembered, effects))
    }

    /// How long the watchdog may leave it alone.
    pub(crate) fn time_to_check(&self) -> Duration {
        let now = clock::now();
        self.state.lock().time_to_check(now)
    }

    /// A further acquire by the same owner. Returns the length that the lease must be extended to, if it must. Fails with
    /// the fate of a tenure that has ended.
    pub(crate) fn claim(&self, claim: &Arc<Claim>, lock: Weak<()>, ttl: Duration) -> Result<Option<Duration>, Fate> {
        self.change(|state, effects| state.claim(claim, lock, ttl, clock::now(), effects))
    }

    /// Ends a claim, once.
    pub(crate) fn unclaim(&self, claim: &Arc<Claim>) -> Unclaimed {
        let end = self.change(|state, effects| state.unclaim(claim, clock::now(), effects));
        if matches!(end, Unclaimed::Others) {
            // Whoever waits for the end of this lease looks again.
            notify(&self.status, |_| {});
        }
        end
    }

    /// Offers a claim to its caller, who has not taken it yet.
    pub(crate) fn mark_uncollected(&self, claim: &Arc<Claim>) {
        let until = Deadline::after((self.terms.ttl / 6).min(COLLECT_WITHIN));
        self.state.lock().mark_uncollected(claim, until);
    }

    /// The caller takes a claim. False if it was offered, and withdrawn or lost meanwhile.
    pub(crate) fn collect(&self, claim: &Arc<Claim>) -> bool {
        !self.forked() && self.change(|state, effects| state.collect(claim, clock::now(), effects))
    }

    /// Withdraws it from whoever has not taken it yet, and releases it. False if somebody has taken it.
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
            tenure.release(Driver::Background).await;
        });
    }

    /// Resolves once it ended. A released tenure is free only once its release went out, which the outcome tells.
    pub(crate) async fn ended(self: Arc<Self>) {
        let free = |status: &TenureStatus| {
            status.fate != Fate::Held && (status.fate != Fate::Released || status.outcome.is_some())
        };
        // The sender is in `self`.
        let _ = self.status.subscribe().wait_for(free).await;
    }

    /// Its newest unreleased claim.
    pub(crate) fn newest_claim(&self) -> Option<Arc<Claim>> {
        self.state.lock().claims.last().cloned()
    }

    /// Whether a lock handle took part in it.
    pub(crate) fn taken_by(&self, lock: &Weak<()>) -> bool {
        self.state.lock().locks.iter().any(|known| known.ptr_eq(lock))
    }

    /// Stops everything about a held tenure and leaves the key alone. Fails with its fate: `Held` if it has several
    /// claims.
    pub(crate) fn detach(&self) -> Result<(), Fate> {
        self.change(|state, effects| state.detach(clock::now(), effects))
    }

    /// Keeps `keeper` alive until the tenure ends.
    pub(crate) fn keep_session(&self, keeper: Arc<dyn Any + Send + Sync>) {
        let mut state = self.state.lock();
        if state.fate == Fate::Held {
            state.keeper = Some(keeper);
        }
    }

    /// Lets go of what `keep` keeps.
    pub(crate) fn drop_session(&self) {
        let keeper = self.state.lock().keeper.take();
        drop(keeper);
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
