//! A tenure: one owner's hold of one lock, from the grant to its end.
//!
//! ```text
//! Held ──deadline passed, or fewer than q nodes have it──▶ Lost(reason)
//! Held ──the last lease is released──────────────────────▶ Released
//! Held ──detached────────────────────────────────────────▶ Detached
//! ```
//! The three ends are final. The deadline is the q-th newest of the nodes' deadlines; each counts from before its
//! request was sent and moves only by a success that arrives while the tenure is still held.

use std::{
    any::Any,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    tell,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use crate::{
    clock::{self, Deadline, Stamp},
    config::NEVER,
    error::LostReason,
    event::{Event, EventSink},
    owner::OwnerKey,
    process::runtime,
    protocol::names::Names,
    protocol::{
        reply::{self, Renewed, Vote},
        script::{Call, Reply},
    },
    quorum::{self, Answers, GRACE, Grant, Presence, Quorum, clean_up, pause},
    server::{BoxFuture, Lane, Node, NodeError, NodeErrorKind, Sent},
};

pub(crate) mod watchdog;

/// The pause after a renewal without a quorum; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What became of a tenure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Held,
    Lost(LostReason),
    Released,
    Detached,
}

/// What a release found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock was held until now and is free.
    Released,
    /// It had been lost before.
    Lost,
    /// Too few nodes confirmed in time; they are asked again until the lease ends by itself.
    Unconfirmed,
}

impl ReleaseOutcome {
    /// The outcome as all languages spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Lost => "lost",
            Self::Unconfirmed => "unconfirmed",
        }
    }
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
    pub(crate) unseen: Mutex<Option<Unseen>>,
}

impl Claim {
    pub(crate) fn new(renews: Option<Duration>) -> Arc<Self> {
        let (released, left) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { renews, released, left, unseen: Mutex::new(None) })
    }
}

/// What a tenure is made of, apart from its grant.
pub(crate) struct Terms {
    pub(crate) names: Arc<Names>,
    pub(crate) owner: OwnerKey,
    pub(crate) field: String,
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
    pub(crate) terms: Terms,
    pub(crate) token: u64,
    pub(crate) since: Stamp,
    pub(crate) generation: u64,
    /// How many lease handles the host still refers to.
    pub(crate) handles: AtomicUsize,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) fate: watch::Sender<Fate>,
    pub(crate) outcome: watch::Sender<Option<ReleaseOutcome>>,
    events: EventSink,
    state: Mutex<State>,
}

struct State {
    fate: Fate,
    presences: Vec<Presence>,
    /// Until when a key can live on any node: by the longest lease that was asked for, answered or not.
    lives: Deadline,
    claims: Vec<Arc<Claim>>,
    /// Alive while a lock handle that took part is.
    locks: Vec<Weak<()>>,
    renewal: Renewal,
    /// Its place in the watchdog's list.
    slot: Option<usize>,
    /// What renews it, kept alive until it ends, even when the host forgot its client and every handle.
    keeper: Option<Arc<dyn Any + Send + Sync>>,
}

/// Where the current round of renewal stands.
struct Renewal {
    /// When to look at this tenure next.
    next: Deadline,
    /// When its requests were sent.
    sent: Stamp,
    in_flight: Vec<bool>,
    /// Nodes that lack the tenure and are asked to take it in again.
    repairing: Vec<bool>,
    /// Nodes that have the lease that this round asks for.
    extended: Vec<bool>,
    failures: u32,
    warned: bool,
    /// The owner is gone and nothing refers to the tenure.
    orphaned: bool,
}

/// What the watchdog is to do with a tenure.
pub(crate) enum Plan {
    /// Nothing for so long.
    Wait(Duration),
    /// Send a renewal to `nodes`, and a repair to `repairs`; a ttl of zero only checks.
    Renew { nodes: Vec<usize>, repairs: Vec<usize>, ttl: Duration, sent: Stamp },
    /// It ended: forget it.
    Forget,
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
        let nodes = grant.presences.len();
        let renewal = Renewal {
            next: Deadline::new(grant.since, Duration::ZERO),
            sent: grant.since,
            in_flight: vec![false; nodes],
            repairing: vec![false; nodes],
            extended: grant.presences.iter().map(|presence| matches!(presence, Presence::Held(_))).collect(),
            failures: 0,
            warned: false,
            orphaned: false,
        };
        let known = grant.presences.iter().filter_map(|presence| match presence {
            Presence::Held(deadline) => Some(*deadline),
            Presence::Unknown(_) | Presence::Absent => None,
        });
        let asked = Deadline::new(grant.since, terms.ttl);
        let state = State {
            fate: Fate::Held,
            lives: known.fold(asked, Deadline::later),
            presences: grant.presences,
            claims: vec![claim],
            locks: vec![lock],
            renewal,
            slot: None,
            keeper: None,
        };
        let tenure = Arc::new(Self {
            terms,
            token: grant.token,
            since: grant.since,
            generation: runtime::generation(),
            handles: AtomicUsize::new(0),
            quorum,
            fate: watch::Sender::new(Fate::Held),
            outcome: watch::Sender::new(None),
            events,
            state: Mutex::new(state),
        });
        let mut state = tenure.state.lock();
        state.renewal.next = Deadline::new(grant.since, tenure.interval(&state));
        drop(state);
        if !grant.late.is_empty() {
            tenure.quorum.spawn(tenure.clone().absorb_late_grants(grant.late, grant.sent, grant.since));
        }
        tenure
    }

    fn validity(&self, ttl: Duration) -> Duration {
        self.quorum.settings.validity(ttl)
    }

    /// Whether both are of one lock.
    pub(crate) fn same_lock(&self, other: &Self) -> bool {
        self.terms.names.lock == other.terms.names.lock
    }

    pub(crate) fn forked(&self) -> bool {
        self.generation != runtime::generation()
    }

    /// What is left at `now`: the q-th largest of the nodes' deadlines.
    fn left_in(&self, state: &State, now: Stamp) -> Duration {
        let yes = |presence: &Presence| match presence {
            Presence::Held(deadline) => Some(deadline.left_at(now)),
            _ => None,
        };
        if mutant!(LostOnlyOnError) {
            return Duration::from_secs(1);
        }
        if let [only] = &state.presences[..] {
            return yes(only).unwrap_or_default();
        }
        let mut left: Vec<Duration> = state.presences.iter().filter_map(yes).collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        left.get(self.quorum.needed() - 1).copied().unwrap_or_default()
    }

    /// What is left until the deadline; zero when it ended. Finding the deadline passed ends the tenure.
    pub(crate) fn remaining(&self) -> Duration {
        if self.forked() {
            return Duration::ZERO;
        }
        let state = self.state.lock();
        if state.fate != Fate::Held {
            return Duration::ZERO;
        }
        let left = self.left_in(&state, clock::now());
        if left.is_zero() {
            self.expire(state);
        }
        left
    }

    pub(crate) fn is_held(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Whether it is held. Unlike `is_held` this only looks, so that it may be asked under other locks: finding a
    /// deadline passed is told to others.
    pub(crate) fn is_live(&self) -> bool {
        if self.forked() {
            return false;
        }
        let state = self.state.lock();
        state.fate == Fate::Held && !self.left_in(&state, clock::now()).is_zero()
    }

    /// What became of it, with the deadline taken into account.
    pub(crate) fn current_fate(&self) -> Fate {
        if self.forked() {
            return Fate::Lost(LostReason::Forked);
        }
        self.remaining();
        self.state.lock().fate
    }

    fn expire(&self, state: MutexGuard<'_, State>) {
        if mutant!(ResumeAfterDeadline) {
            return;
        }
        // A renewal that was sent and not answered means silence on the other side; none sent means that this
        // process did not run.
        let waited = state.renewal.in_flight.contains(&true) || state.renewal.failures > 0;
        let reason = if waited { LostReason::Unreachable } else { LostReason::Expired };
        self.lose_with(state, reason);
    }

    /// Ends the tenure as lost. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) {
        self.lose_with(self.state.lock(), reason);
    }

    fn lose_with(&self, mut state: MutexGuard<'_, State>, reason: LostReason) {
        if state.fate != Fate::Held {
            return;
        }
        state.fate = Fate::Lost(reason);
        let keeper = state.keeper.take();
        let leftovers = Self::leftovers(&state);
        drop(state);
        // Whoever waits for the loss finds it in the log.
        (self.events)(&Event::Lost { name: self.terms.names.name.clone(), token: self.token, reason });
        tell(&self.fate, |fate| *fate = Fate::Lost(reason));
        // Close releases in one batch of its own. Everything else leaves minority grants behind, which only hinder.
        if reason != LostReason::Closed {
            self.release_later(leftovers);
        }
        // Perhaps the last of its client: not under the lock.
        drop(keeper);
    }

    /// Gives back a tenure that nobody was told of.
    pub(crate) fn give_back(&self) {
        let mut state = self.state.lock();
        state.fate = Fate::Released;
        let leftovers = Self::leftovers(&state);
        drop(state);
        tell(&self.fate, |fate| *fate = Fate::Released);
        self.release_later(leftovers);
    }

    fn leftovers(state: &State) -> Vec<(usize, Presence)> {
        let there = state.presences.iter().cloned().enumerate();
        let there = there.filter(|(_, presence)| !matches!(presence, Presence::Absent));
        there.filter(|(_, presence)| matches!(presence, Presence::Held(_)) || !mutant!(ReleaseKnownOnly)).collect()
    }

    fn release_call(&self) -> Call {
        self.quorum.protocol.release(&self.terms.names, &self.terms.field, true)
    }

    /// Releases on these nodes in the background, for as long as the key can live there.
    fn release_later(&self, presences: Vec<(usize, Presence)>) {
        for (index, presence) in presences {
            let node = self.quorum.nodes[index].clone();
            let (call, ttl) = (self.release_call(), self.longest_life());
            self.quorum.spawn_pending(async move {
                if let Presence::Unknown(Some(link)) = presence {
                    return clean_up(node, link, call, false).await;
                }
                quorum::insist(node, call, ttl).await;
            });
        }
    }

    /// How long a key can live on a node at most.
    fn longest_life(&self) -> Duration {
        let left = self.state.lock().lives.left().mul_f64(1.0 / (1.0 - self.quorum.settings.config.drift));
        self.terms.ttl.max(left + Duration::from_millis(10))
    }

    /// Takes in the answers that came after the quorum had been reached.
    async fn absorb_late_grants(self: Arc<Self>, mut late: Answers, sent: Vec<Sent>, since: Stamp) {
        while let Some((node, answer)) = late.next().await {
            let presence = match answer {
                Ok(reply) if matches!(reply::vote(&reply), Some((Vote::Granted { .. }, _))) => {
                    Presence::Held(Deadline::new(since, self.validity(self.terms.ttl)))
                }
                // Renewals and the release include it.
                Err(error) if error.may_have_run() => Presence::Unknown(sent[node].get()),
                // What it did is unknown.
                Ok(reply) if reply::vote(&reply).is_none() => Presence::Unknown(sent[node].get()),
                Ok(reply) => {
                    self.quorum.late_unmarked(&self.terms.names, node, &reply).await;
                    Presence::Absent
                }
                Err(_) => Presence::Absent,
            };
            let ended = {
                let mut state = self.state.lock();
                // A renewal or a repair may know better by now.
                if matches!(state.presences[node], Presence::Unknown(_)) {
                    state.presences[node] = presence.clone();
                }
                matches!(state.fate, Fate::Lost(_) | Fate::Released)
            };
            if ended && !matches!(presence, Presence::Absent) {
                self.release_later(vec![(node, presence)]);
            }
        }
    }

    /// The lease that renewals ask for; zero when no claim wants any.
    fn renewed_ttl(state: &State) -> Duration {
        state.claims.iter().filter_map(|claim| claim.renews).max().unwrap_or_default()
    }

    /// How long until the next look after a success: a third of the lease, or the deadline of a fixed one.
    fn interval(&self, state: &State) -> Duration {
        let ttl = Self::renewed_ttl(state);
        if ttl.is_zero() {
            return self.validity(self.terms.ttl);
        }
        (ttl / 3).mul_f64(fastrand::f64().mul_add(0.2, 0.9))
    }

    /// Whether anything could still release it: its thread, greenlet or task, a lease or a lock handle.
    fn referenced(&self, state: &State) -> bool {
        self.handles.load(Relaxed) > 0
            || self.terms.identity.strong_count() > 0
            || state.locks.iter().any(|lock| lock.strong_count() > 0)
    }

    /// A lost tenure whose owner may still believe in it.
    pub(crate) fn is_remembered(&self) -> bool {
        self.handles.load(Relaxed) > 0 || self.terms.identity.strong_count() > 0
    }

    /// How long until two thirds of the lease are over without a renewal; for ever if nobody is to be told of that.
    fn safe_for(&self, state: &State, left: Duration) -> Duration {
        let ttl = Self::renewed_ttl(state);
        if ttl.is_zero() || state.renewal.orphaned || state.renewal.warned {
            return Duration::MAX;
        }
        left.saturating_sub(self.validity(ttl).saturating_sub(ttl.mul_f64(2.0 / 3.0)))
    }

    /// Decides what the watchdog does now. `recheck`: nodes that just came back.
    pub(crate) fn look(&self, now: Stamp, recheck: &[usize]) -> Plan {
        let mut news = Vec::new();
        let task = self.plan(now, recheck, &mut news);
        for event in news {
            (self.events)(&event);
        }
        task
    }

    fn plan(&self, now: Stamp, recheck: &[usize], news: &mut Vec<Event>) -> Plan {
        let mut state = self.state.lock();
        if state.fate != Fate::Held {
            return Plan::Forget;
        }
        let left = self.left_in(&state, now);
        if left.is_zero() && !mutant!(ResumeAfterDeadline) {
            self.expire(state);
            return Plan::Forget;
        }
        let mut wake = left;
        if let Some(max_hold) = self.terms.max_hold {
            let until = max_hold.saturating_sub(now.since(self.since));
            if until.is_zero() {
                self.lose_with(state, LostReason::MaxHold);
                return Plan::Forget;
            }
            wake = wake.min(until);
        }
        let ttl = Self::renewed_ttl(&state);
        let next = state.renewal.next.left_at(now);
        let due = !ttl.is_zero() && next.is_zero();
        if !ttl.is_zero() && !state.renewal.orphaned && due && !self.referenced(&state) {
            state.renewal.orphaned = true;
            news.push(Event::Orphaned { name: self.terms.names.name.clone(), token: self.token });
        }
        let renewable = !ttl.is_zero() && !state.renewal.orphaned;
        let safe = self.safe_for(&state, left);
        if safe.is_zero() {
            state.renewal.warned = true;
            news.push(Event::AtRisk { name: self.terms.names.name.clone(), token: self.token, left });
        }
        wake = wake.min(safe);
        let round = renewable && due;
        let (mut nodes, mut repairs) = (Vec::new(), Vec::new());
        for (node, presence) in state.presences.iter().enumerate() {
            let renewal = &state.renewal;
            match presence {
                Presence::Absent | Presence::Unknown(Some(_)) if round && !renewal.repairing[node] => {
                    repairs.push(node);
                }
                Presence::Absent => {}
                _ if (round || recheck.contains(&node)) && !renewal.in_flight[node] => nodes.push(node),
                _ => {}
            }
        }
        if nodes.is_empty() && repairs.is_empty() {
            if renewable && !due {
                wake = wake.min(next);
            }
            return Plan::Wait(wake);
        }
        for node in &nodes {
            state.renewal.in_flight[*node] = true;
        }
        for node in &repairs {
            state.renewal.repairing[*node] = true;
        }
        if round {
            state.renewal.sent = now;
            state.renewal.extended.fill(false);
            state.lives = state.lives.later(Deadline::new(now, ttl));
            // Until the answers say otherwise.
            state.renewal.next = Deadline::new(now, Duration::MAX);
        }
        Plan::Renew { nodes, repairs, ttl: if renewable { ttl } else { Duration::ZERO }, sent: now }
    }

    /// A node answered a renewal.
    pub(crate) fn renewed(&self, node: usize, found: Renewed, ttl: Duration, sent: Stamp) {
        let mut state = self.state.lock();
        state.renewal.in_flight[node] = false;
        if found == Renewed::Extended && !ttl.is_zero() && !sent.is_before(state.renewal.sent) {
            state.renewal.extended[node] = true;
        }
        if let Some(mut state) = self.take_in(state, node, found, ttl, sent) {
            self.plan_retry(&mut state, clock::now());
        }
    }

    /// What a node answered to a request for a lease of `ttl`, which is part of no round.
    fn extended(&self, node: usize, found: Renewed, ttl: Duration, sent: Stamp) {
        self.take_in(self.state.lock(), node, found, ttl, sent);
    }

    /// Takes in what a node answered; returns the state unless the tenure ended.
    fn take_in<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        node: usize,
        found: Renewed,
        ttl: Duration,
        sent: Stamp,
    ) -> Option<MutexGuard<'a, State>> {
        let now = clock::now();
        if state.fate != Fate::Held {
            return None;
        }
        let sent = if mutant!(DeadlineFromReply) { now } else { sent };
        if self.left_in(&state, now).is_zero() && !mutant!(ResumeAfterDeadline) {
            // Lost is final, even when the node says otherwise.
            self.expire(state);
            return None;
        }
        if found == Renewed::Extended {
            // A check moves nothing, and a deadline never moves back.
            if !ttl.is_zero() {
                let deadline = Deadline::new(sent, self.validity(ttl));
                match &state.presences[node] {
                    Presence::Held(known) if known.left_at(now) >= deadline.left_at(now) => {}
                    _ => state.presences[node] = Presence::Held(deadline),
                }
                if self.is_round_over(&state) {
                    state.renewal.failures = 0;
                    state.renewal.warned = false;
                    state.renewal.next = Deadline::new(state.renewal.sent, self.interval(&state));
                }
            }
        } else if matches!(state.presences[node], Presence::Held(_)) {
            state.presences[node] = Presence::Absent;
            let there = state.presences.iter().filter(|presence| matches!(presence, Presence::Held(_))).count();
            // The other nodes' deadlines may be older ones.
            if there < self.quorum.needed() || self.left_in(&state, now).is_zero() {
                let reason = match found {
                    Renewed::Gone => LostReason::Deleted,
                    Renewed::Ended => LostReason::Released,
                    Renewed::Taken | Renewed::Extended => LostReason::Taken,
                };
                self.lose_with(state, reason);
                return None;
            }
        } else if matches!(state.presences[node], Presence::Unknown(None)) {
            // Asked to attach, and never heard of: it is known now, and can be repaired.
            state.presences[node] = Presence::Absent;
        }
        Some(state)
    }

    /// Has a node take the tenure in again that lost it, or never had it. The answer is like a late grant: what comes
    /// after the end is released.
    pub(crate) async fn repair(self: Arc<Self>, node: usize, ttl: Duration, since: Stamp) {
        let target = self.quorum.nodes[node].clone();
        let limit = self.quorum.settings.reply_timeout(ttl);
        let terms = &self.terms;
        let known = self.state.lock().presences[node].clone();
        let old = match known {
            Presence::Unknown(Some(link)) => {
                // First of all the acquire that was never answered has run, or never will.
                let call = self.quorum.protocol.renew_one(&terms.names, &terms.field, ttl);
                Some(target.eval_after(link, call, limit).await)
            }
            _ => None,
        };
        let found = match old {
            Some(Ok(reply)) => reply::renewals(&reply, 1).map(|found| found[0]),
            Some(Err(_)) => None,
            None => Some(Renewed::Gone),
        };
        let presence = match found {
            Some(Renewed::Gone) if self.is_held() => {
                let sent = Sent::default();
                let call = self.quorum.protocol.repair(&terms.names, &terms.owner, &terms.field, self.token, ttl);
                match target.eval(Lane::Background, call, limit, sent.clone()).await {
                    Ok(reply) => match reply::renewals(&reply, 1).map(|found| found[0]) {
                        Some(Renewed::Extended) => Some(Presence::Held(Deadline::new(since, self.validity(ttl)))),
                        Some(_) => Some(Presence::Absent),
                        None => Some(Presence::Unknown(sent.get())),
                    },
                    Err(error) if error.may_have_run() => Some(Presence::Unknown(sent.get())),
                    Err(_) => Some(Presence::Absent),
                }
            }
            Some(Renewed::Extended) => Some(Presence::Held(Deadline::new(since, self.validity(ttl)))),
            Some(_) => Some(Presence::Absent),
            // Silence: nothing is known that was not known before.
            None => None,
        };
        let there = matches!(presence, Some(Presence::Held(_)));
        if there {
            self.renewed(node, Renewed::Extended, ttl, since);
        }
        let mut state = self.state.lock();
        state.renewal.repairing[node] = false;
        let Some(presence) = presence else { return };
        match state.fate {
            // A renewal may know better by now.
            Fate::Held if !there && !matches!(state.presences[node], Presence::Held(_)) => {
                state.presences[node] = presence;
                self.plan_retry(&mut state, clock::now());
            }
            Fate::Lost(_) | Fate::Released if !matches!(presence, Presence::Absent) => {
                drop(state);
                self.release_later(vec![(node, presence)]);
            }
            _ => {}
        }
    }

    /// A node did not answer a renewal.
    pub(crate) fn renewal_failed(&self, node: usize) {
        let mut state = self.state.lock();
        state.renewal.in_flight[node] = false;
        self.plan_retry(&mut state, clock::now());
    }

    /// Whether a quorum has the lease that the current round asks for.
    fn is_round_over(&self, state: &State) -> bool {
        state.renewal.extended.iter().filter(|extended| **extended).count() >= self.quorum.needed()
    }

    /// Plans the next try while a round has no quorum.
    fn plan_retry(&self, state: &mut State, now: Stamp) {
        if self.is_round_over(state) || Self::renewed_ttl(state).is_zero() {
            return;
        }
        let mut pause = FIRST_PAUSE;
        if !state.renewal.in_flight.contains(&true) {
            pause *= 2_u32.pow(state.renewal.failures.min(4));
            state.renewal.failures += 1;
        }
        // While some are silent the others are asked again: a node that had no room for the tenure may have it now.
        state.renewal.next = Deadline::new(now, pause);
    }

    /// A further acquire by the same owner. Says how long the lease must be extended to, if it must.
    pub(crate) fn claim(&self, claim: &Arc<Claim>, lock: Weak<()>, ttl: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        let renewed = Self::renewed_ttl(&state);
        state.claims.push(claim.clone());
        state.locks.retain(|known| known.strong_count() > 0);
        if !state.locks.iter().any(|known| known.ptr_eq(&lock)) {
            state.locks.push(lock);
        }
        if claim.renews.is_some() {
            // The watchdog takes over, or is to renew for longer than it did.
            if Self::renewed_ttl(&state) > renewed {
                state.renewal.next = Deadline::after(Duration::ZERO);
            }
            return None;
        }
        (self.left_in(&state, clock::now()) < self.validity(ttl)).then_some(ttl)
    }

    /// Asks all nodes for a lease of `ttl` from now on.
    pub(crate) async fn extend(self: Arc<Self>, lane: Lane, ttl: Duration) -> Result<(), Fallen> {
        let sent = clock::now();
        // What never ends is asked for as that, and so stays.
        let ttl = if self.terms.ttl == NEVER { NEVER } else { ttl };
        let call = self.quorum.protocol.renew_one(&self.terms.names, &self.terms.field, ttl);
        let limit = self.quorum.settings.config.reply_timeout.min(self.remaining()).max(Duration::from_millis(1));
        let presences = {
            let mut state = self.state.lock();
            state.lives = state.lives.later(Deadline::new(sent, ttl));
            Self::leftovers(&state)
        };
        let mut answers: FuturesUnordered<_> = presences
            .into_iter()
            .map(|(node, _)| {
                let answer = self.quorum.nodes[node].eval(lane, call.clone(), limit, Sent::default());
                let tenure = self.clone();
                async move {
                    let answer = answer.await.and_then(|reply| {
                        reply::renewals(&reply, 1).map(|found| found[0]).ok_or_else(NodeError::no_answer)
                    });
                    if let Ok(found) = answer {
                        tenure.extended(node, found, ttl, sent);
                    }
                    (node, answer)
                }
            })
            .collect();
        let (mut extended, mut failures) = (0, Vec::new());
        while let Some((node, answer)) = answers.next().await {
            match answer {
                Ok(found) => extended += usize::from(found == Renewed::Extended),
                Err(error) => failures.push((node, error)),
            }
            if extended >= self.quorum.needed() || !self.is_held() {
                break;
            }
        }
        if !answers.is_empty() {
            // The others' answers move their deadlines too, or tell of a loss.
            self.quorum.spawn(answers.for_each(|_| async {}));
        }
        match self.current_fate() {
            Fate::Held if extended >= self.quorum.needed() => Ok(()),
            Fate::Held => Err(Fallen::Unanswered(failures)),
            fate => Err(Fallen::Ended(fate)),
        }
    }

    /// Ends a claim, once.
    pub(crate) fn unclaim(&self, claim: &Arc<Claim>) -> Unclaimed {
        let mut state = self.state.lock();
        // Decided under the lock: of two threads that release one lease, one ends the tenure.
        let again = claim.released.swap(true, Relaxed);
        #[cfg(all(test, feature = "shuttle"))]
        let again = again && !crate::testing::interleavings::broken("a claim that ends twice");
        if again {
            return Unclaimed::Before;
        }
        state.claims.retain(|known| !Arc::ptr_eq(known, claim));
        if !state.claims.is_empty() {
            let left = state.fate == Fate::Held && !self.left_in(&state, clock::now()).is_zero();
            claim.left.store(left, Relaxed);
            drop(state);
            // Whoever waits for the end of this lease looks again.
            tell(&self.fate, |_| {});
            return Unclaimed::Others;
        }
        if state.fate == Fate::Held {
            if self.left_in(&state, clock::now()).is_zero() {
                self.expire(state);
                return Unclaimed::Ended(self.state.lock().fate);
            }
            state.fate = Fate::Released;
            drop(state);
            tell(&self.fate, |fate| *fate = Fate::Released);
            return Unclaimed::Ended(Fate::Released);
        }
        Unclaimed::Ended(state.fate)
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
        let mut state = self.state.lock();
        if state.fate == Fate::Held && self.left_in(&state, clock::now()).is_zero() {
            self.expire(state);
            return Err(self.state.lock().fate);
        }
        match state.fate {
            Fate::Held if state.claims.len() > 1 => Err(Fate::Held),
            Fate::Held => {
                state.fate = Fate::Detached;
                state.claims.clear();
                drop(state);
                tell(&self.fate, |fate| *fate = Fate::Detached);
                Ok(())
            }
            fate => Err(fate),
        }
    }

    /// Keeps `keeper` alive until the tenure ends.
    pub(crate) fn keep(&self, keeper: Arc<dyn Any + Send + Sync>) {
        let mut state = self.state.lock();
        if state.fate == Fate::Held {
            state.keeper = Some(keeper);
        }
    }

    /// Lets go of what `keep` keeps.
    pub(crate) fn unkeep(&self) {
        let keeper = self.state.lock().keeper.take();
        drop(keeper);
    }

    pub(crate) fn slot(&self) -> Option<usize> {
        self.state.lock().slot
    }

    pub(crate) fn set_slot(&self, slot: Option<usize>) {
        self.state.lock().slot = slot;
    }

    /// How long the watchdog may leave it alone.
    pub(crate) fn patience(&self) -> Duration {
        let now = clock::now();
        let state = self.state.lock();
        let left = self.left_in(&state, now);
        state.renewal.next.left_at(now).min(left).min(self.safe_for(&state, left))
    }

    /// Releases the tenure on its nodes; returns at q confirmations. Dropped early, it goes on in the background.
    pub(crate) async fn release(self: Arc<Self>, lane: Lane) -> ReleaseOutcome {
        let (presences, left) = {
            let state = self.state.lock();
            (Self::leftovers(&state), self.left_in(&state, clock::now()))
        };
        let limit = self.quorum.settings.config.reply_timeout.min(left).max(Duration::from_millis(1));
        let call = self.release_call();
        let answers: Answers = FuturesUnordered::new();
        for (node, presence) in &presences {
            let (node, target) = (*node, &self.quorum.nodes[*node]);
            let answer = match presence {
                Presence::Unknown(Some(link)) => target.eval_after(link.clone(), call.clone(), limit),
                _ => insist(target.clone(), lane, call.clone(), limit),
            };
            answers.push(Box::pin(async move { (node, answer.await) }));
        }
        let (needed, spare) = (self.quorum.needed(), self.quorum.spare());
        // Where it may have been held until now. Lost is only what a quorum cannot have held any more.
        let (mut released, mut possible) = (0, presences.len());
        let since = Instant::now();
        let mut ending = Ending { tenure: &self, lane, unconfirmed: presences, answers };
        loop {
            // Free for sure once too few for a quorum may have it. Whether it had been lost, the others may say soon.
            let free = ending.unconfirmed.len() <= spare;
            let next = if free {
                let grace = GRACE.max(since.elapsed() * 3);
                timeout(grace, ending.answers.next()).await.unwrap_or_default()
            } else {
                ending.answers.next().await
            };
            let Some((node, answer)) = next else { break };
            let Some(done) = answer.ok().and_then(|reply| reply::done(&reply)) else { continue };
            ending.unconfirmed.retain(|(other, _)| *other != node);
            if done {
                released += 1;
            } else {
                possible -= 1;
            }
            if released >= needed {
                break;
            }
        }
        let outcome = match released {
            _ if released >= needed => ReleaseOutcome::Released,
            _ if possible < needed => ReleaseOutcome::Lost,
            _ if ending.unconfirmed.len() <= spare => ReleaseOutcome::Released,
            _ => ReleaseOutcome::Unconfirmed,
        };
        drop(ending);
        tell(&self.outcome, |known| *known = Some(outcome));
        let (name, held) = (self.terms.names.name.clone(), self.since.elapsed());
        (self.events)(&Event::Released { name, token: self.token, held });
        outcome
    }
}

/// Runs a script on a node, as soon as it can within `limit`: a node that is down may be back any moment.
fn insist(node: Arc<dyn Node>, lane: Lane, call: Call, limit: Duration) -> BoxFuture<Result<Reply, NodeError>> {
    Box::pin(async move {
        let over = Instant::now() + limit;
        let mut changes = node.changes();
        loop {
            let left = over.duration_since(Instant::now()).max(Duration::from_millis(1));
            let answer = node.eval(lane, call.clone(), left, Sent::default()).await;
            let again = matches!(&answer, Err(error) if error.kind == NodeErrorKind::NotRun) && Instant::now() < over;
            if !again {
                return answer;
            }
            pause(&mut changes, over.duration_since(Instant::now()).min(Duration::from_millis(100))).await;
        }
    })
}

/// What the end of a claim led to.
pub(crate) enum Unclaimed {
    /// It had ended before, or ends in another call.
    Before,
    /// Others remain, or another call ends the tenure.
    Others,
    /// It was the last; `Released` is for the caller to see through.
    Ended(Fate),
}

/// Why an extension failed.
pub(crate) enum Fallen {
    Ended(Fate),
    Unanswered(Vec<(usize, NodeError)>),
}

/// A release under way. When it is dropped, whatever is not confirmed is released in the background.
struct Ending<'a> {
    tenure: &'a Arc<Tenure>,
    lane: Lane,
    unconfirmed: Vec<(usize, Presence)>,
    answers: Answers,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.unconfirmed.is_empty() {
            return;
        }
        // Requests under way are awaited first: their answers usually come right behind the quorum's. Those on the
        // caller's lane have nobody to drive them any more and are sent again instead.
        let mut answers = std::mem::take(&mut self.answers);
        if self.lane == Lane::Caller {
            answers.clear();
        }
        let (tenure, mut unconfirmed) = (self.tenure.clone(), std::mem::take(&mut self.unconfirmed));
        self.tenure.quorum.spawn_pending(async move {
            while let Some((node, answer)) = answers.next().await {
                if answer.is_ok() {
                    unconfirmed.retain(|(other, _)| *other != node);
                }
            }
            tenure.release_later(unconfirmed);
            // A caller that gave up left the outcome open.
            tenure.outcome.send_if_modified(|outcome| {
                let open = outcome.is_none();
                *outcome = outcome.or(Some(ReleaseOutcome::Unconfirmed));
                open
            });
        });
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[path = "../testing/tenure.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
