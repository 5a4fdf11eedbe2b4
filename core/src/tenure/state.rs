//! The state of a tenure, and its transitions. Pure: no clock, no task, no I/O. The caller passes the time, and carries
//! out the [`Effects`] after it has unlocked the state.
//!
//! ```text
//! Held ──deadline passed, or fewer than q nodes have it──▶ Lost(reason)
//! Held ──the last lease is released──────────────────────▶ Released
//! Held ──detached────────────────────────────────────────▶ Detached
//! ```
//! The three ends are final. The tenure's deadline is the q-th latest of its nodes' deadlines: until then at least q
//! nodes have the lock. A node's deadline counts from the moment before the request was sent. A node's reply moves it
//! only while the tenure is held.

use std::{
    any::Any,
    sync::{Arc, Weak},
    time::Duration,
};

use super::{Claim, Fate, InsteadOfRelease, Terms, min_hold::MinHold, round::Round};
use crate::{
    clock::{Deadline, Stamp},
    config::Settings,
    error::LostReason,
    quorum::Presence,
    server::SentOn,
    sync::atomic::Ordering::Relaxed,
};

pub(super) struct State {
    pub(super) fate: Fate,
    /// For each node, what is known of the tenure there.
    pub(super) presences: Vec<Presence>,
    /// For each node, when it was last found out that it has the tenure.
    found_at: Vec<Stamp>,
    /// For each node, the connection of the acquire, once that was sent; empty if the tenure was attached.
    sent: Vec<SentOn>,
    /// Whether it was released and the requests to its nodes are still to be sent.
    release_due: bool,
    /// How many releases were started. If the caller of the first stops polling it, the background sends another.
    releases: u32,
    /// Nodes that have not answered the acquire, and whose release is ordered behind it: that release removes a late
    /// grant. A node leaves the list when its release fails, finds no tenure, or is sent again.
    release_follows_acquire: Vec<usize>,
    /// No key of the tenure exists on a node after this. Counts every ttl that was requested, even in requests that
    /// were not answered.
    pub(super) keys_live_until: Deadline,
    pub(super) claims: Vec<Arc<Claim>>,
    /// The uncollected grants among the claims, each with the time until which its caller may collect it.
    pub(super) uncollected: Vec<(Arc<Claim>, Deadline)>,
    /// The lock objects of the claims; alive while the host refers to them.
    pub(super) lock_objects: Vec<Weak<()>>,
    pub(super) round: Round,
    /// Its index in the watchdog's list.
    pub(super) watchdog_index: Option<usize>,
    /// The session, whose watchdog renews it. Kept alive until it ends, even if the host has dropped its client and
    /// every handle.
    pub(super) session: Option<Arc<dyn Any + Send + Sync>>,
    pub(super) settings: Arc<Settings>,
    pub(super) terms: Arc<Terms>,
    /// The least time for which its lock stays taken.
    pub(super) min_hold: Option<MinHold>,
}

/// The effects of a change, to be carried out in this order.
#[derive(Default)]
pub(super) struct Effects {
    /// Events. First, so that a task which `fate` wakes finds them in the log already.
    pub(super) news: Vec<News>,
    /// Notifies the waiters for the tenure's end.
    pub(super) fate: Option<Fate>,
    /// To be run in place of releases.
    pub(super) instead_of_release: Vec<InsteadOfRelease>,
    /// Nodes that may still have it, where it must be released.
    pub(super) release: Vec<(usize, Presence)>,
    /// To be dropped: it may be the last reference to the client.
    pub(super) session: Option<Arc<dyn Any + Send + Sync>>,
}

impl Effects {
    /// Whether nothing follows.
    pub(super) fn is_none(&self) -> bool {
        self.fate.is_none()
            && self.news.is_empty()
            && self.instead_of_release.is_empty()
            && self.release.is_empty()
            && self.session.is_none()
    }
}

/// Events for operators.
#[derive(Clone, Copy)]
pub(super) enum News {
    Lost(LostReason),
    AtRisk(Duration),
    Orphaned,
}

/// The result of the end of a claim.
pub(crate) enum Unclaimed {
    /// Another call has ended it, or is ending it.
    AlreadyEnded,
    /// Other claims of the tenure remain.
    OthersRemain,
    /// It was the last claim. If the fate is `Released`, the caller must release it on the nodes.
    WasLast(Fate),
}

impl State {
    /// The state of a tenure that was just granted.
    pub(super) fn new(
        terms: Arc<Terms>,
        presences: Vec<Presence>,
        sent: Vec<SentOn>,
        claim: Arc<Claim>,
        lock_object: Weak<()>,
        settings: Arc<Settings>,
    ) -> Self {
        let known = presences.iter().filter_map(|presence| match presence {
            Presence::Held(deadline) => Some(*deadline),
            Presence::NotSent | Presence::Unknown(_) | Presence::Absent => None,
        });
        let (since, ttl) = (terms.right.since, terms.right.ttl);
        let requested = Deadline::new(since, ttl);
        let keys_live_until = known.fold(requested, |until, deadline| until.later_at(deadline, since));
        let mut state = Self {
            fate: Fate::Held,
            release_due: false,
            releases: 0,
            release_follows_acquire: Vec::new(),
            keys_live_until,
            claims: vec![claim],
            uncollected: Vec::new(),
            lock_objects: vec![lock_object],
            round: Round::first(since, &presences, settings.counter_ttl(ttl).unwrap_or_default()),
            found_at: vec![since; presences.len()],
            presences,
            sent,
            watchdog_index: None,
            session: None,
            settings,
            terms,
            min_hold: None,
        };
        state.round.next = Deadline::new(since, state.interval());
        state
    }

    pub(super) fn validity(&self, ttl: Duration) -> Duration {
        self.settings.validity(ttl)
    }

    pub(super) fn needed(&self) -> usize {
        self.settings.quorum
    }

    /// The number of nodes that are known to have it.
    fn count_held(&self) -> usize {
        self.presences.iter().filter(|presence| matches!(presence, Presence::Held(_))).count()
    }

    /// The time left at `now`, until the q-th latest of the nodes' deadlines: until then at least q nodes hold the
    /// lock, and after it fewer do.
    pub(super) fn left_at(&self, now: Stamp) -> Duration {
        let held = |presence: &Presence| match presence {
            Presence::Held(deadline) => Some(deadline.left_at(now)),
            _ => None,
        };
        if mutant!(LostOnlyOnError) {
            return Duration::from_secs(1);
        }
        if let [only] = &self.presences[..] {
            return held(only).unwrap_or_default();
        }
        let mut left: Vec<Duration> = self.presences.iter().filter_map(held).collect();
        left.sort_unstable_by(|a, b| b.cmp(a));
        left.get(self.needed() - 1).copied().unwrap_or_default()
    }

    pub(super) fn is_held_at(&self, now: Stamp) -> bool {
        self.fate == Fate::Held && !self.left_at(now).is_zero()
    }

    /// The time left until the deadline; zero once the tenure ended. If the deadline has passed, this ends the tenure.
    pub(super) fn check(&mut self, now: Stamp, effects: &mut Effects) -> Duration {
        if self.fate != Fate::Held {
            return Duration::ZERO;
        }
        let left = self.left_at(now);
        if left.is_zero() {
            self.expire(effects);
        }
        left
    }

    /// Ends it at its deadline.
    pub(super) fn expire(&mut self, effects: &mut Effects) {
        if mutant!(ResumeAfterDeadline) {
            return;
        }
        // If a renewal is unanswered, the nodes are to blame. Otherwise a fixed ttl is over, which an unanswered check
        // did not change, or the process was paused.
        let unanswered = self.round.is_unanswered() && !self.renewed_ttl().is_zero();
        self.lose(if unanswered { LostReason::Unreachable } else { LostReason::Expired }, effects);
    }

    /// Ends it as lost. The first reason stays.
    pub(super) fn lose(&mut self, reason: LostReason, effects: &mut Effects) {
        if self.fate != Fate::Held {
            return;
        }
        self.end(Fate::Lost(reason), effects);
        effects.news.push(News::Lost(reason));
        effects.session = self.session.take();
        // Some nodes may still have the tenure. It is lost, so there it would only keep other owners out. `close()`
        // sends these releases itself.
        if reason != LostReason::Closed {
            effects.release.extend(self.may_be_on());
        }
    }

    /// Releases a tenure whose lease no caller has collected.
    pub(super) fn release_uncollected(&mut self, effects: &mut Effects) {
        self.end(Fate::Released, effects);
        effects.release.extend(self.may_be_on());
    }

    fn end(&mut self, fate: Fate, effects: &mut Effects) {
        self.fate = fate;
        effects.fate = Some(fate);
        if fate != Fate::Detached {
            self.give_up_unsent();
        }
    }

    /// Cancels acquire requests that were not sent yet: sent after the release or the upgrade, they would write the
    /// tenure of before.
    pub(super) fn give_up_unsent(&mut self) {
        for (presence, sent) in self.presences.iter_mut().zip(&self.sent) {
            if let Presence::NotSent = presence {
                *presence = Presence::given_up(sent);
            }
        }
    }

    /// The nodes that may have it.
    pub(super) fn may_be_on(&self) -> Vec<(usize, Presence)> {
        let there = self.presences.iter().enumerate().map(|(node, presence)| match (presence, self.sent.get(node)) {
            // It may have been sent since.
            (Presence::NotSent, Some(sent)) => (node, Presence::unanswered(sent)),
            _ => (node, presence.clone()),
        });
        let there = there.filter(|(_, presence)| !matches!(presence, Presence::Absent));
        there.filter(|(_, presence)| matches!(presence, Presence::Held(_)) || !mutant!(ReleaseKnownOnly)).collect()
    }

    /// Starts a release. Returns the nodes that may have the tenure, and whether another release was started before.
    pub(super) fn begin_release(&mut self) -> (Vec<(usize, Presence)>, bool) {
        self.release_due = false;
        self.releases += 1;
        let nodes = self.may_be_on();
        let ordered = nodes.iter().filter(|(_, presence)| matches!(presence, Presence::Unknown(_)));
        self.release_follows_acquire = ordered.map(|(node, _)| *node).collect();
        (nodes, self.releases > 1)
    }

    /// Applies a node's reply to the release: whether the tenure was there, or `None` if the request failed.
    pub(super) fn release_answered(&mut self, node: usize, was_there: Option<bool>, effects: &mut Effects) {
        if was_there == Some(true) || !self.release_follows_acquire.contains(&node) {
            return;
        }
        self.release_follows_acquire.retain(|other| *other != node);
        // The release found nothing, but the acquire was granted: nothing ordered them, and the acquire ran later.
        if was_there == Some(false) && matches!(self.presences[node], Presence::Held(_)) {
            self.release_late_grant(node, self.presences[node].clone(), effects);
        }
    }

    /// Prepares to send the release again to the nodes that have not confirmed it: the first release no longer counts
    /// as ordered after their acquire. Returns these nodes, each with its present state: a late grant may have arrived.
    pub(super) fn give_up_release(&mut self, unconfirmed: Vec<(usize, Presence)>) -> Vec<(usize, Presence)> {
        self.release_follows_acquire.retain(|other| unconfirmed.iter().all(|(node, _)| node != other));
        let by_now = |(node, asked): (usize, Presence)| match &self.presences[node] {
            known @ Presence::Held(_) => (node, known.clone()),
            Presence::Absent | Presence::NotSent | Presence::Unknown(_) => (node, asked),
        };
        unconfirmed.into_iter().map(by_now).collect()
    }

    /// Applies a reply to the acquire, or to an upgrade, that arrived after the quorum's.
    pub(super) fn absorb_late_grant(&mut self, node: usize, presence: Presence, now: Stamp, effects: &mut Effects) {
        // A renewal or a repair may have a newer reply.
        if matches!(self.presences[node], Presence::NotSent | Presence::Unknown(_)) {
            self.set_presence(node, presence.clone(), now);
        }
        if !self.release_due && !self.release_follows_acquire.contains(&node) {
            self.release_late_grant(node, presence, effects);
        }
    }

    /// Sets what is known of the tenure on a node.
    pub(super) fn set_presence(&mut self, node: usize, presence: Presence, now: Stamp) {
        let was_there = matches!(self.presences[node], Presence::Held(_));
        if !was_there && matches!(presence, Presence::Held(_)) {
            self.found_at[node] = now;
        }
        self.presences[node] = presence;
    }

    /// Releases the tenure on a node that it reached after its end.
    pub(super) fn release_late_grant(&self, node: usize, presence: Presence, effects: &mut Effects) {
        let ended = matches!(self.fate, Fate::Lost(_) | Fate::Released);
        if ended && !matches!(presence, Presence::Absent) {
            effects.release.push((node, presence));
        }
    }

    /// Applies a node's reply that it does not have the tenure, to a request sent at `sent`. `why`: the reason, if this
    /// loses the lock.
    pub(super) fn note_absent(&mut self, node: usize, why: LostReason, sent: Stamp, now: Stamp, effects: &mut Effects) {
        match self.presences[node] {
            // The node may have run that request before the one that wrote the tenure: a script that it did not know
            // is sent twice, and others overtake it.
            Presence::Held(_) if sent.is_before(self.found_at[node]) => {}
            Presence::Held(_) => {
                self.presences[node] = Presence::Absent;
                // The q-th deadline of the other nodes may have passed already.
                if self.count_held() < self.needed() || self.left_at(now).is_zero() {
                    self.lose(why, effects);
                }
            }
            // The node lacks the tenure. If the acquire is never sent, a repair can write it.
            Presence::NotSent => {
                self.presences[node] = self.sent.get(node).map_or(Presence::Absent, Presence::given_up);
            }
            // The unanswered request may still write it.
            Presence::Unknown(_) | Presence::Absent => {}
        }
    }

    /// Whether a lock object refers to it.
    pub(super) fn has_lock_object(&self) -> bool {
        self.lock_objects.iter().any(|lock| lock.strong_count() > 0)
    }

    /// Adds the claim of a nested acquire. Returns the ttl to extend the lease to, if too little of it is left. Fails
    /// with the tenure's fate if it has ended: a claim does not revive it.
    pub(super) fn claim(
        &mut self,
        claim: &Arc<Claim>,
        lock_object: Weak<()>,
        ttl: Duration,
        now: Stamp,
        effects: &mut Effects,
    ) -> Result<Option<Duration>, Fate> {
        self.check(now, effects);
        let ended = match self.fate {
            Fate::Held => false,
            Fate::Lost(_) => !mutant!(NestAfterLoss),
            Fate::Released | Fate::Detached => true,
        };
        #[cfg(all(test, feature = "shuttle"))]
        let ended = ended && !crate::faults::broken("a claim of a tenure that ended");
        if ended {
            return Err(self.fate);
        }
        if let Some(min_hold) = &mut self.min_hold {
            // A nested lease may be returned without being collected.
            min_hold.collect();
        }
        let ttl_before = self.renewed_ttl();
        self.claims.push(claim.clone());
        self.lock_objects.retain(|known| known.strong_count() > 0);
        if !self.lock_objects.iter().any(|known| known.ptr_eq(&lock_object)) {
            self.lock_objects.push(lock_object);
        }
        if std::mem::take(&mut self.round.orphaned) {
            // Its owner is back: the watchdog renews it again, and at once.
            self.round.next = Deadline::new(now, Duration::ZERO);
        }
        if claim.renews.is_some() {
            // If this is the first renewed claim, or its ttl is the longest, the watchdog sends a renewal at once.
            if self.renewed_ttl() > ttl_before {
                self.round.next = Deadline::new(now, Duration::ZERO);
            }
            return Ok(None);
        }
        Ok((self.left_at(now) < self.validity(ttl)).then_some(ttl))
    }

    /// Ends a claim. Only the first call for a claim has an effect.
    pub(super) fn unclaim(&mut self, claim: &Arc<Claim>, now: Stamp, effects: &mut Effects) -> Unclaimed {
        // Decided under the mutex: if two threads release one lease, only one of them ends the tenure.
        let again = claim.released.swap(true, Relaxed);
        #[cfg(all(test, feature = "shuttle"))]
        let again = again && !crate::faults::broken("a claim that ends twice");
        if again {
            return Unclaimed::AlreadyEnded;
        }
        self.claims.retain(|known| !Arc::ptr_eq(known, claim));
        self.uncollected.retain(|(known, _)| !Arc::ptr_eq(known, claim));
        if !self.claims.is_empty() {
            claim.released_early.store(self.is_held_at(now), Relaxed);
            return Unclaimed::OthersRemain;
        }
        if self.fate == Fate::Held && !self.check(now, effects).is_zero() {
            self.end(Fate::Released, effects);
            self.release_due = true;
        }
        Unclaimed::WasLast(self.fate)
    }

    /// Ends it here and leaves its keys on the nodes. Fails with its fate: `Held` if it has several claims.
    pub(super) fn detach(&mut self, now: Stamp, effects: &mut Effects) -> Result<(), Fate> {
        self.check(now, effects);
        match self.fate {
            Fate::Held if self.claims.len() > 1 => Err(Fate::Held),
            Fate::Held => {
                self.claims.clear();
                self.end(Fate::Detached, effects);
                Ok(())
            }
            fate => Err(fate),
        }
    }

    /// Marks a claim as an uncollected grant, which the caller must collect before `until`.
    pub(super) fn mark_uncollected(&mut self, claim: &Arc<Claim>, until: Deadline) {
        let known = self.uncollected.iter().any(|(known, _)| Arc::ptr_eq(known, claim));
        if !known && !mutant!(OfferKept) && self.claims.iter().any(|known| Arc::ptr_eq(known, claim)) {
            self.uncollected.push((claim.clone(), until));
        }
    }

    /// The caller collects a claim. False if it was an uncollected grant that was given back or lost.
    pub(super) fn collect(&mut self, claim: &Arc<Claim>, now: Stamp, effects: &mut Effects) -> bool {
        if claim.withdrawn.load(Relaxed) {
            return false;
        }
        let index = self.uncollected.iter().position(|(known, _)| Arc::ptr_eq(known, claim));
        let collected = index.is_none_or(|index| {
            self.uncollected.swap_remove(index);
            !self.check(now, effects).is_zero()
        });
        if let Some(min_hold) = self.min_hold.as_mut().filter(|_| collected) {
            min_hold.collect();
        }
        collected
    }

    /// Gives back the uncollected grants that are overdue at `overdue_at`; all of them if that is `None`. `now` decides
    /// whether the tenure is still held. Returns whether this ended the tenure, which must then be released.
    pub(super) fn withdraw(&mut self, overdue_at: Option<Stamp>, now: Stamp, effects: &mut Effects) -> bool {
        let in_time = |until: &Deadline| overdue_at.is_some_and(|time| !until.left_at(time).is_zero());
        let (kept, withdrawn) =
            std::mem::take(&mut self.uncollected).into_iter().partition(|(_, until)| in_time(until));
        self.uncollected = kept;
        let mut ended = false;
        for (claim, _) in withdrawn {
            claim.withdrawn.store(true, Relaxed);
            if let Some(instead) = claim.instead_of_release.lock().take() {
                effects.instead_of_release.push(instead);
            } else {
                ended |= matches!(self.unclaim(&claim, now, effects), Unclaimed::WasLast(Fate::Released));
            }
        }
        ended
    }

    /// Whether any of its claims has been collected.
    pub(super) fn is_collected(&self) -> bool {
        self.claims.len() > self.uncollected.len()
    }
}
