//! Decides when a tenure is renewed, and what the replies mean for it. Pure, like the rest of the state.
//!
//! After a third of the lease a round of renewal starts. It sends a renewal to all nodes. While no quorum has
//! extended the lease, it sends again after a pause, to the nodes without a request in flight:
//!
//! ```text
//! due ─▶ sent to all nodes ──a quorum extended──▶ due after a third of the lease
//!          ▲   └──no reply, or too few──▶ a pause ──┐
//!          └────────────────────────────────────────┘
//! ```
//! A node that lacks the tenure gets a repair instead, which writes it there again.
//!
//! The token counter has a ttl of its own. When a node extended the lease and less than half of its counter's ttl is
//! left, the counter is due, too. A separate request prolongs it, so that a renewal names no further key.

use std::time::Duration;

use super::{
    Fate,
    state::{Effects, News, State},
};
use crate::{
    clock::{Deadline, Stamp},
    error::LostReason,
    protocol::reply::Renewed,
    quorum::Presence,
};

/// The pause after a renewal without a quorum; doubled after each further one.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// What the watchdog must do with a tenure.
pub(crate) enum Plan {
    /// Nothing for so long.
    Wait(Duration),
    /// Send a renewal to `nodes`, and a repair to `repairs`; a ttl of zero only checks.
    Renew { nodes: Vec<usize>, repairs: Vec<usize>, ttl: Duration, sent: Stamp },
    /// It ended: forget it.
    Forget,
    /// Its caller did not collect it in time: release it, and forget it.
    Release,
}

impl State {
    /// The ttl that renewals request; zero if no claim is renewed.
    pub(super) fn renewed_ttl(&self) -> Duration {
        self.claims.iter().filter_map(|claim| claim.renews).max().unwrap_or_default()
    }

    /// The time from a success to the next round: a third of the lease, give or take 10 %. For a fixed ttl it lasts
    /// until the deadline.
    pub(super) fn interval(&self) -> Duration {
        let ttl = self.renewed_ttl();
        if ttl.is_zero() {
            return self.validity(self.terms.right.ttl);
        }
        (ttl / 3).mul_f64(fastrand::f64().mul_add(0.2, 0.9))
    }

    /// The time until two thirds of the ttl are over since the last renewal, when the lease is at risk. `MAX` if no
    /// event is due for that: the lease is not renewed, or the event was sent already.
    fn until_at_risk(&self, left: Duration) -> Duration {
        let ttl = self.renewed_ttl();
        if ttl.is_zero() || self.round.orphaned || self.round.warned {
            return Duration::MAX;
        }
        left.saturating_sub(self.validity(ttl).saturating_sub(ttl.mul_f64(2.0 / 3.0)))
    }

    /// The time until the next uncollected grant is given back.
    fn uncollected_for(&self, now: Stamp) -> Duration {
        self.uncollected.iter().map(|(_, until)| until.left_at(now)).min().unwrap_or(Duration::MAX)
    }

    /// The time until `max_hold` is over.
    fn until_max_hold(&self, now: Stamp) -> Duration {
        let held = now.since(self.terms.right.since);
        self.terms.max_hold.map_or(Duration::MAX, |max_hold| max_hold.saturating_sub(held))
    }

    /// The time until the watchdog must check it.
    pub(super) fn time_to_check(&self, now: Stamp) -> Duration {
        let left = self.left_at(now).min(self.until_max_hold(now));
        self.round.next.left_at(now).min(left).min(self.until_at_risk(left)).min(self.uncollected_for(now))
    }

    /// Decides what the watchdog does with it now. `recheck`: nodes that just broke or came back. `is_owned`:
    /// whether its owner or one of its leases still exists.
    pub(super) fn plan(&mut self, now: Stamp, recheck: &[usize], is_owned: bool, effects: &mut Effects) -> Plan {
        if self.fate != Fate::Held {
            return Plan::Forget;
        }
        let left = self.left_at(now);
        if left.is_zero() && !mutant!(ResumeAfterDeadline) {
            self.expire(effects);
            return Plan::Forget;
        }
        let until_max_hold = self.until_max_hold(now);
        if until_max_hold.is_zero() {
            self.lose(LostReason::MaxHold, effects);
            return Plan::Forget;
        }
        if self.withdraw(Some(now), now, effects) {
            return Plan::Release;
        }
        let ttl = self.renewed_ttl();
        let next = self.round.next.left_at(now);
        let due = !ttl.is_zero() && next.is_zero();
        let is_referred_to = is_owned || self.has_lock_object();
        if due && !self.round.orphaned && !is_referred_to {
            self.round.orphaned = true;
            effects.news.push(News::Orphaned);
        }
        let renewable = !ttl.is_zero() && !self.round.orphaned;
        let until_at_risk = self.until_at_risk(left);
        if until_at_risk.is_zero() {
            self.round.warned = true;
            effects.news.push(News::AtRisk(left));
        }
        let (nodes, repairs) = self.nodes_to_renew(renewable && due, recheck);
        if nodes.is_empty() && repairs.is_empty() {
            let wake = left.min(until_at_risk).min(self.uncollected_for(now)).min(until_max_hold);
            return Plan::Wait(if renewable && !due { wake.min(next) } else { wake });
        }
        self.mark_under_way(&nodes, &repairs);
        if renewable && due {
            self.begin_round(ttl, now);
        }
        Plan::Renew { nodes, repairs, ttl: if renewable { ttl } else { Duration::ZERO }, sent: now }
    }

    /// The nodes that get a renewal, or a check, and those that get a repair. `round`: whether a round is due.
    fn nodes_to_renew(&self, round: bool, recheck: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let (mut nodes, mut repairs) = (Vec::new(), Vec::new());
        for (node, presence) in self.presences.iter().enumerate() {
            match presence {
                Presence::Absent | Presence::Unknown(_) if round && !self.round.nodes[node].repairing => {
                    repairs.push(node);
                }
                Presence::Absent => {}
                _ if (round || recheck.contains(&node)) && !self.round.nodes[node].in_flight => nodes.push(node),
                _ => {}
            }
        }
        (nodes, repairs)
    }

    /// Notes the requests that are sent now.
    fn mark_under_way(&mut self, nodes: &[usize], repairs: &[usize]) {
        for node in nodes {
            self.round.nodes[*node].in_flight = true;
        }
        for node in repairs {
            self.round.nodes[*node].repairing = true;
        }
    }

    fn begin_round(&mut self, ttl: Duration, now: Stamp) {
        self.round.sent = now;
        self.round.nodes.iter_mut().for_each(|node| node.extended = false);
        self.note_requested_ttl(ttl, now);
        // The replies set the next round.
        self.round.next = Deadline::new(now, Duration::MAX);
    }

    /// Notes that a lease of `ttl` was requested.
    pub(super) fn note_requested_ttl(&mut self, ttl: Duration, now: Stamp) {
        self.keys_live_until = self.keys_live_until.later_at(Deadline::new(now, ttl), now);
    }

    /// Applies a node's reply to a renewal for `ttl`; zero means that the request only checked.
    pub(super) fn renewal_answered(
        &mut self,
        node: usize,
        found: Renewed,
        (ttl, sent): (Duration, Stamp),
        now: Stamp,
        effects: &mut Effects,
    ) {
        if found == Renewed::Extended && !ttl.is_zero() && !sent.is_before(self.round.sent) {
            self.round.nodes[node].extended = true;
        }
        let is_held = self.apply_reply(node, found, (ttl, sent), now, effects);
        // Afterwards: a reply that comes too late ends the tenure as unanswered.
        self.round.nodes[node].in_flight = false;
        if is_held {
            self.plan_retry(now);
        }
    }

    /// Applies a node's reply to a request for a lease of `ttl`, whether or not that belongs to a round. Returns
    /// whether the tenure is still held.
    pub(super) fn apply_reply(
        &mut self,
        node: usize,
        found: Renewed,
        (ttl, sent): (Duration, Stamp),
        now: Stamp,
        effects: &mut Effects,
    ) -> bool {
        if self.fate != Fate::Held {
            return false;
        }
        if self.left_at(now).is_zero() && !mutant!(ResumeAfterDeadline) {
            // A loss is final, even if the node still has the tenure.
            self.expire(effects);
            return false;
        }
        match found {
            // A check extends nothing.
            Renewed::Extended if ttl.is_zero() => {}
            Renewed::Extended => {
                let since = if mutant!(DeadlineFromReply) { now } else { sent };
                self.note_extension(node, Deadline::new(since, self.validity(ttl)), now);
            }
            // `Tenure::interpret` has turned this into another result.
            Renewed::Reads => {}
            Renewed::Gone => self.note_absent(node, LostReason::Deleted, sent, now, effects),
            Renewed::Ended => self.note_absent(node, LostReason::Released, sent, now, effects),
            Renewed::Taken => self.note_absent(node, LostReason::Taken, sent, now, effects),
        }
        self.fate == Fate::Held
    }

    /// Notes that a node extended the lease to this deadline.
    fn note_extension(&mut self, node: usize, deadline: Deadline, now: Stamp) {
        match &self.presences[node] {
            // A deadline never moves back.
            Presence::Held(known) if known.left_at(now) >= deadline.left_at(now) => {}
            _ => self.set_presence(node, Presence::Held(deadline), now),
        }
        if self.round.is_over(self.needed()) {
            self.round.failures = 0;
            self.round.warned = false;
            self.round.next = Deadline::new(self.round.sent, self.interval());
        }
    }

    /// Notes that a renewal of a node failed.
    pub(super) fn renewal_failed(&mut self, node: usize, now: Stamp) {
        self.round.nodes[node].in_flight = false;
        self.plan_retry(now);
    }

    /// Returns the ttl to prolong a node's token counter with, if it is due after the reply `found` to a request for a
    /// lease of `ttl`. The counter then counts as prolonged, unless `mark_counter_due` follows.
    pub(super) fn prolong_counter(
        &mut self,
        node: usize,
        found: Renewed,
        ttl: Duration,
        now: Stamp,
    ) -> Option<Duration> {
        if self.fate != Fate::Held || found != Renewed::Extended || ttl.is_zero() {
            return None;
        }
        let counter_ttl = self.settings.prolonged_counter_ttl(ttl)?;
        let counter = &mut self.round.nodes[node].counter;
        if counter.left_at(now) >= counter_ttl / 2 || mutant!(CounterEnds) {
            return None;
        }
        *counter = Deadline::new(now, counter_ttl);
        Some(counter_ttl)
    }

    /// Makes the token counter on a node due: it may expire any moment.
    pub(super) fn mark_counter_due(&mut self, node: usize, now: Stamp) {
        self.round.nodes[node].counter = Deadline::new(now, Duration::ZERO);
    }

    /// Applies the result of a repair, sent at `sent` with a lease of `ttl`. `presence`: what is known of the tenure
    /// on the node then; `None` if nothing new is known.
    pub(super) fn repair_answered(
        &mut self,
        node: usize,
        presence: Option<Presence>,
        (ttl, sent): (Duration, Stamp),
        now: Stamp,
        effects: &mut Effects,
    ) {
        let there = matches!(presence, Some(Presence::Held(_)));
        if there {
            self.renewal_answered(node, Renewed::Extended, (ttl, sent), now, effects);
        }
        self.round.nodes[node].repairing = false;
        let Some(presence) = presence else { return };
        if self.fate != Fate::Held {
            self.release_late_grant(node, presence, effects);
        } else if !there && !matches!(self.presences[node], Presence::Held(_)) {
            // No renewal has shown meanwhile that the node has it.
            self.set_presence(node, presence, now);
            self.plan_retry(now);
        }
    }

    /// Plans the next attempt of a round that has no quorum yet.
    fn plan_retry(&mut self, now: Stamp) {
        if self.round.is_over(self.needed()) || self.renewed_ttl().is_zero() {
            return;
        }
        let mut pause = FIRST_PAUSE;
        if !self.round.is_in_flight() {
            pause *= 2_u32.pow(self.round.failures.min(4));
            self.round.failures += 1;
        }
        // The nodes that replied get another request while others do not answer: a node that had no room for the tenure
        // may have room now.
        self.round.next = Deadline::new(now, pause);
    }
}
