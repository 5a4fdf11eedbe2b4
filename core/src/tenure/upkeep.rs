//! The requests of one held tenure: late grants of its acquire, extensions, repairs and its token counters. The
//! watchdog sends renewals, each for many tenures at once.

use std::{sync::Arc, time::Duration};

use super::{Fate, Tenure};
use crate::{
    clock::{self, Deadline, Stamp},
    config::NEVER,
    process::driver::Driver,
    protocol::{
        primitive::Family,
        reply::{self, Renewed, Vote},
        script::Reply,
    },
    quorum::{Count, FanOut, NodeRequest, Presence, Quorum},
    server::{ConnectionId, NodeError, SentOn},
};

/// Why an extension failed.
pub(crate) enum ExtendError {
    Ended(Fate),
    Unanswered(Vec<(usize, NodeError)>),
}

impl Tenure {
    /// Applies replies to the acquire that arrive after the quorum's.
    pub(super) async fn absorb_late_grants(self: Arc<Self>, mut late: FanOut, sent_on: Vec<SentOn>) {
        let right = &self.terms.right;
        while let Some((node, answer)) = late.late().await {
            let presence = match answer {
                // It was upgraded since. Only the reply to the upgrade says what the node has now.
                Ok(_) if !self.has_acquired_mode() => Presence::unanswered(&sent_on[node]),
                Ok(reply) => match reply::vote_for(self.terms.subject.primitive, &reply) {
                    Some((Vote::Granted(granted), _)) if granted.is_of(&right.slots) => {
                        self.held_for(right.ttl, right.since)
                    }
                    // A permit with other slots. It does not count, and is moved.
                    Some((Vote::Granted(_), _)) => {
                        if self.is_live() {
                            late.extend([self.relocation(node)]);
                        }
                        Presence::unanswered(&sent_on[node])
                    }
                    Some(_) => {
                        self.quorum.late_unmarked(&self.terms.subject.names, node, &reply).await;
                        Presence::Absent
                    }
                    // An unknown reply: the node may have granted it.
                    None => Presence::unanswered(&sent_on[node]),
                },
                // No reply, but the node may have granted it: renewals and the release must go there, too.
                Err(error) if error.may_have_run() => Presence::unanswered(&sent_on[node]),
                // A move that failed leaves the permit with other slots there.
                Err(_) if self.terms.subject.primitive.family() == Family::Semaphore => {
                    Presence::unanswered(&sent_on[node])
                }
                Err(_) => Presence::Absent,
            };
            self.change(|state, effects| state.absorb_late_grant(node, presence, clock::now(), effects));
        }
    }

    /// A request that moves a permit to its slots on a node that granted others.
    fn relocation(&self, node: usize) -> NodeRequest {
        let (quorum, right) = (&self.quorum, &self.terms.right);
        let call = quorum.protocol.relocate_permit(self.label(), &right.slots, quorum.proposal());
        let limit = quorum.settings.reply_timeout(right.ttl);
        NodeRequest::new(node, quorum.nodes[node].eval(Driver::Background, call, limit, SentOn::default()))
    }

    /// Reads the reply to a renewal of this tenure alone.
    fn renewal(&self, reply: &Reply) -> Option<Renewed> {
        reply::renewals(reply, 1, self.terms.subject.primitive.is_read_write()).map(|found| found[0])
    }

    /// The presence on a node that granted a lease of `ttl`, requested at `since`.
    fn held_for(&self, ttl: Duration, since: Stamp) -> Presence {
        Presence::Held(Deadline::new(since, self.quorum.settings.validity(ttl)))
    }

    /// Applies a node's reply to a renewal for `ttl`, sent at `sent`. Returns the ttl to prolong the token counter
    /// there with, if that is due.
    pub(crate) fn renewal_answered(&self, node: usize, found: Renewed, ttl: Duration, sent: Stamp) -> Option<Duration> {
        let Some(found) = self.interpret(found, sent) else {
            self.renewal_failed(node);
            return None;
        };
        self.change(|state, effects| {
            let now = clock::now();
            state.renewal_answered(node, found, (ttl, sent), now, effects);
            if self.has_counter() { state.prolong_counter(node, found, ttl, now) } else { None }
        })
    }

    /// Notes that a renewal of a node failed.
    pub(crate) fn renewal_failed(&self, node: usize) {
        self.change(|state, _| state.renewal_failed(node, clock::now()));
    }

    /// Whether its token is that of the lock's counter. Readers draw no token, and each slot of a semaphore has its
    /// own.
    fn has_counter(&self) -> bool {
        self.terms.subject.primitive.family() == Family::Lock
    }

    /// Makes all token counters due: after an attach, another holder's acquire wrote them, perhaps long ago.
    pub(crate) fn mark_counters_due(&self) {
        let (mut state, now) = (self.state.lock(), clock::now());
        (0..self.quorum.nodes.len()).for_each(|node| state.mark_counter_due(node, now));
    }

    /// Writes the tenure again to a node that lost it, or never had it. As with a late grant, a repair that arrives
    /// after the end is released.
    pub(crate) async fn repair(self: Arc<Self>, node: usize, ttl: Duration, since: Stamp) {
        let unknown = match self.state.lock().presences[node].clone() {
            Presence::Unknown(connection) => Some(connection),
            Presence::NotSent | Presence::Absent | Presence::Held(_) => None,
        };
        let presence = self.put_back(node, unknown, (ttl, since)).await;
        self.change(|state, effects| state.repair_answered(node, presence, (ttl, since), clock::now(), effects));
    }

    /// Sends a repair. Returns what is known of the tenure on the node then; `None` if nothing new is known. `unknown`:
    /// the connection of an earlier request that may have written it there, or still may.
    async fn put_back(
        &self,
        node: usize,
        unknown: Option<ConnectionId>,
        (ttl, since): (Duration, Stamp),
    ) -> Option<Presence> {
        let (target, terms) = (&self.quorum.nodes[node], &self.terms);
        let limit = self.quorum.settings.reply_timeout(ttl);
        if let Some(connection) = unknown {
            // Ordered after the unanswered request: once this has a reply, that one has run, or never will.
            let call = self.quorum.protocol.renew_one(self.label(), ttl);
            let found = self.renewal(&target.eval_after(connection, call, limit).await.ok()?)?;
            match self.interpret(found, since)? {
                Renewed::Gone => {}
                // Others have permits there. The repair finds out whether they have its slots.
                Renewed::Taken if self.terms.subject.primitive.family() == Family::Semaphore => {}
                Renewed::Extended => return Some(self.held_for(ttl, since)),
                // `interpret` never returns `Reads`.
                Renewed::Taken | Renewed::Ended | Renewed::Reads => return Some(Presence::Absent),
            }
        }
        if !self.is_held() {
            return Some(Presence::Absent);
        }
        let sent_on = SentOn::default();
        let call = self.quorum.protocol.repair(self.label(), &terms.owner, self.token(), ttl);
        Some(match target.eval(Driver::Background, call, limit, sent_on.clone()).await {
            Ok(reply) => match self.renewal(&reply).map(|found| self.interpret(found, since)) {
                Some(Some(Renewed::Extended)) => self.held_for(ttl, since),
                Some(Some(_)) => Presence::Absent,
                Some(None) | None => Presence::unanswered(&sent_on),
            },
            Err(error) if error.may_have_run() => Presence::unanswered(&sent_on),
            Err(_) => Presence::Absent,
        })
    }

    /// Extends the lease on all nodes, to `ttl` from now on.
    pub(crate) async fn extend(self: Arc<Self>, driver: Driver, ttl: Duration) -> Result<(), ExtendError> {
        let sent = clock::now();
        // A lease that never ends keeps its ttl.
        let ttl = if self.terms.right.ttl == NEVER { NEVER } else { ttl };
        let call = self.quorum.protocol.renew_one(self.label(), ttl);
        let limit = self.quorum.settings.reply_within(self.remaining());
        let nodes = {
            let mut state = self.state.lock();
            state.note_requested_ttl(ttl, sent);
            state.may_be_on()
        };
        let mut answers = FanOut::new(nodes.into_iter().map(|(node, _)| {
            let (answer, tenure) =
                (self.quorum.nodes[node].eval(driver, call.clone(), limit, SentOn::default()), self.clone());
            let request = async move {
                let answer = answer.await;
                // Replies after the quorum's count, too: they move deadlines, or report a loss.
                let found = answer.as_ref().ok().and_then(|reply| tenure.renewal(reply));
                if let Some(found) = found.and_then(|found| tenure.interpret(found, sent)) {
                    let due = tenure.change(|state, effects| {
                        let now = clock::now();
                        state.apply_reply(node, found, (ttl, sent), now, effects);
                        if tenure.has_counter() { state.prolong_counter(node, found, ttl, now) } else { None }
                    });
                    if let Some(counter_ttl) = due {
                        let quorum = tenure.quorum.clone();
                        tenure.quorum.spawn(prolong(quorum, node, vec![(tenure.clone(), counter_ttl)]));
                    }
                }
                answer
            };
            NodeRequest::new(node, Box::pin(request))
        }));
        let (mut extended, mut failures) = (0, Vec::new());
        let counted = answers.count(
            |reply| self.renewal(reply),
            |node, answer| {
                match answer {
                    Ok(found) => {
                        extended += usize::from(self.interpret(found, sent) == Some(Renewed::Extended));
                    }
                    Err(error) => failures.push((node, error)),
                }
                let over = extended >= self.quorum.needed() || !self.is_held();
                if over { Count::Decided(()) } else { Count::More }
            },
        );
        let _: Option<()> = counted.await;
        if !answers.is_over() {
            self.quorum.spawn(answers.see_through());
        }
        match self.current_fate() {
            Fate::Held if extended >= self.quorum.needed() => Ok(()),
            Fate::Held => Err(ExtendError::Unanswered(failures)),
            fate => Err(ExtendError::Ended(fate)),
        }
    }
}

/// Prolongs token counters on one node, each with its ttl. A failure ends no tenure; if it may pass, the counters are
/// due again.
pub(super) async fn prolong(quorum: Arc<Quorum>, node: usize, due: Vec<(Arc<Tenure>, Duration)>) {
    let each = due.iter().map(|(tenure, counter_ttl)| (tenure.label(), tenure.token(), *counter_ttl));
    let (call, limit) = (quorum.protocol.prolong(each), quorum.settings.config.reply_timeout);
    match quorum.nodes[node].eval(Driver::Background, call, limit, SentOn::default()).await {
        Ok(reply) if reply::prolonged(&reply, due.len()) => {}
        // The node refuses this counter for good: it waits until it is due again. A refused batch is sent one by one,
        // so that the others are prolonged.
        Err(error) if error.is_permanent() && due.len() == 1 => {}
        Err(error) if error.is_permanent() => {
            for one in due {
                Box::pin(prolong(quorum.clone(), node, vec![one])).await;
            }
        }
        _ => {
            for (tenure, _) in due {
                tenure.state.lock().mark_counter_due(node, clock::now());
            }
        }
    }
}
