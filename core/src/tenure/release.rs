//! The end of a tenure on its nodes.

use std::{sync::Arc, time::Duration};

use super::{Fate, Tenure, Terms, min_hold::MinHold, state::News};
use crate::{
    clock::{self, Stamp},
    event::Event,
    process::driver::Driver,
    protocol::{
        calls::Label,
        primitive::{Family, Primitive},
        reply,
        script::{Reply, ScriptCall},
    },
    quorum::{Count, FanOut, MINORITY_GRACE, NodeRequest, Presence, Quorum, clean_up, insist, retry},
    server::{NodeErrorKind, SentOn},
};

/// The pause before a release is tried again that could not be sent.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for the last nodes when another one lacked the tenure: their replies may change the outcome.
const DOUBT: Duration = Duration::from_millis(250);

/// The result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock was held until now, and nobody holds it any more. It is free, or after the rest of its `min_hold`.
    Released,
    /// The lock had been lost before.
    Lost,
    /// Too few nodes confirmed in time. The release is sent again in the background until the lease ends by itself.
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

/// The request that releases a tenure on a node.
struct ReleaseRequest {
    frees: ScriptCall,
    /// Boxed: few tenures have it, and every release waits in a future with this value.
    rests: Option<Box<Resting>>,
}

/// Makes the request that leaves the lock taken.
struct Resting {
    quorum: Arc<Quorum>,
    terms: Arc<Terms>,
    primitive: Primitive,
    fate: Fate,
    min_hold: MinHold,
}

impl ReleaseRequest {
    /// The request as it is sent now. A later one leaves the lock taken for less time, or frees it.
    fn call(&self) -> ScriptCall {
        self.rests.as_ref().and_then(|rests| rests.call()).unwrap_or_else(|| self.frees.clone())
    }
}

impl Resting {
    fn call(&self) -> Option<ScriptCall> {
        let rest = self.min_hold.rest_at(clock::now(), self.fate, self.primitive);
        let label = Label {
            primitive: self.primitive,
            names: &self.terms.subject.names,
            field: &self.terms.right.field,
            slots: &self.terms.right.slots,
        };
        (!rest.is_zero()).then(|| self.quorum.protocol.rest(label, rest))
    }
}

impl Tenure {
    /// `sender`: this client, if the reply is to have the grants of its own waiters.
    fn release_request(&self, sender: Option<&str>) -> ReleaseRequest {
        let rests = self.terms.min_hold.and_then(|_| {
            let state = self.state.lock();
            let (quorum, terms, primitive) = (self.quorum.clone(), self.terms.clone(), self.primitive());
            Some(Box::new(Resting { quorum, terms, primitive, fate: state.fate, min_hold: state.min_hold? }))
        });
        let frees = match sender {
            Some(client) => self.quorum.protocol.release_permit(self.label(), client),
            None => self.quorum.protocol.release(self.label(), true),
        };
        ReleaseRequest { frees, rests }
    }

    /// The rest of its `min_hold`; zero if it has none.
    pub(crate) fn min_hold_left(&self) -> Duration {
        let min_hold = self.state.lock().min_hold.filter(|_| !self.primitive().is_shared());
        min_hold.map_or(Duration::ZERO, |min_hold| min_hold.left_at(clock::now()))
    }

    /// Releases it on these nodes in the background, and retries for as long as the key can live there.
    pub(super) fn release_later(&self, presences: Vec<(usize, Presence)>) {
        for (index, presence) in presences {
            let node = self.quorum.nodes[index].clone();
            let (release, ttl) = (self.release_request(None), self.longest_key_life());
            self.quorum.spawn_pending(async move {
                if let Presence::Unknown(connection) = presence {
                    return clean_up(node, connection, || release.call(), false).await;
                }
                insist(node, || release.call(), ttl).await;
            });
        }
    }

    /// The longest time that its key can still live on a node.
    fn longest_key_life(&self) -> Duration {
        let left = self.state.lock().keys_live_until.left().mul_f64(1.0 / (1.0 - self.quorum.settings.config.drift));
        self.terms.right.ttl.max(left + Duration::from_millis(10))
    }

    /// Releases the tenure on its nodes, and reports the outcome.
    pub(crate) async fn release(self: Arc<Self>, driver: Driver) -> ReleaseOutcome {
        let (outcome, _) = self.clone().release_on_nodes(driver).await;
        self.report_release(outcome);
        outcome
    }

    /// Reports the outcome of a release: notifies the waiters for it, and sends an event; another one before if only the
    /// release found that the lock had been lost.
    pub(crate) fn report_release(&self, outcome: ReleaseOutcome) {
        self.status.change(|status| status.outcome = Some(outcome));
        let fate = self.state.lock().fate;
        if outcome == ReleaseOutcome::Lost && fate == Fate::Released {
            self.emit(News::Lost(fate.lost_reason()));
        }
        let (name, held) = (self.terms.subject.names.name().to_owned(), self.terms.right.since.elapsed());
        (self.events)(&Event::Released { name, token: self.token(), held });
    }

    /// Releases the tenure on its nodes; returns at q confirmations. If it is dropped earlier, the background
    /// continues. The second value says whether a quorum still had the tenure, which proves the outcome.
    pub(crate) async fn release_on_nodes(self: Arc<Self>, driver: Driver) -> (ReleaseOutcome, bool) {
        let since = clock::now();
        let ((presences, again), left) = {
            let mut state = self.state.lock();
            (state.begin_release(), state.left_at(since))
        };
        let sender = self.sender();
        let limit = self.quorum.settings.reply_within(left);
        let (needed, spare) = (self.quorum.needed(), self.quorum.spare());
        let answers = FanOut::new(presences.iter().map(|(node, presence)| {
            let release = self.release_request(sender.as_deref());
            self.send_release(*node, presence, release, (driver, limit))
        }));
        // `possible`: nodes that may have had it until now. It counts as lost only if they are too few for a quorum.
        let (mut released, mut possible) = (0, presences.len());
        let mut doubt = false;
        // If so few nodes may have it, the lock is free already. They get a short time to say whether it had been lost.
        let answers = answers.within((presences.len() <= spare).then_some(MINORITY_GRACE));
        let mut releasing = Releasing { tenure: &self, driver, unconfirmed: presences, answers, since, sender };
        let Releasing { unconfirmed, answers, .. } = &mut releasing;
        let read = |reply: &_| self.read_release(reply, since);
        let counted = answers.count(read, |node, answer| {
            self.release_answered(node, answer.as_ref().ok().copied());
            if let Ok(done) = answer {
                unconfirmed.retain(|(other, _)| *other != node);
                // After an earlier release, a node without the tenure does not prove a loss.
                let missing = !done && !again;
                released += usize::from(done);
                possible -= usize::from(missing);
                doubt |= missing;
            }
            match () {
                () if released >= needed => Count::Decided(()),
                () if unconfirmed.len() <= spare => Count::Soon(if doubt { DOUBT } else { MINORITY_GRACE }),
                () => Count::More,
            }
        });
        let _: Option<()> = counted.await;
        let outcome = match released {
            _ if released >= needed => ReleaseOutcome::Released,
            _ if possible < needed => ReleaseOutcome::Lost,
            _ if unconfirmed.len() <= spare => ReleaseOutcome::Released,
            _ => ReleaseOutcome::Unconfirmed,
        };
        if again && releasing.sender.is_some() {
            // The reply to the earlier release may never be read.
            self.doubt_grants();
        }
        drop(releasing);
        (outcome, released >= needed)
    }

    /// This client, if it has waiters that the release may let in and notify by its reply.
    fn sender(&self) -> Option<String> {
        let is_permit = self.primitive().family() == Family::Semaphore;
        is_permit.then(|| self.quorum.deliveries.client_waiting(&self.terms.subject.names.lock))?
    }

    /// Whether a release was done, as its node replied. Tells waiters of this client that it let them in. `since`: when the
    /// release was sent.
    fn read_release(&self, reply: &Reply, since: Stamp) -> Option<bool> {
        let (was_done, grants) = reply::released(reply)?;
        let since = if mutant!(DeliveryDeadlineFromReply) { clock::now() } else { since };
        for (field, slots) in grants {
            self.quorum.deliveries.deliver(&self.terms.subject.names.lock, field, slots, since);
        }
        Some(was_done)
    }

    /// Tells waiters of this client that the release may have let them in.
    fn doubt_grants(&self) {
        self.quorum.deliveries.doubt(&self.terms.subject.names.lock);
    }

    fn release_answered(&self, node: usize, was_there: Option<bool>) {
        self.change(|state, effects| state.release_answered(node, was_there, effects));
    }

    /// Sends the release to one node. Retries while the node is down: it may be back any moment.
    fn send_release(
        &self,
        index: usize,
        presence: &Presence,
        release: ReleaseRequest,
        (driver, limit): (Driver, Duration),
    ) -> NodeRequest {
        let node = self.quorum.nodes[index].clone();
        if let Presence::Unknown(connection) = presence {
            return NodeRequest::new(index, node.eval_after(connection.clone(), release.call(), limit));
        }
        let request = async move {
            let ask = |left| node.eval(driver, release.call(), left, SentOn::default());
            retry(&node, limit, PAUSE, ask, |error| error.kind == NodeErrorKind::NotRun).await
        };
        NodeRequest::new(index, Box::pin(request))
    }
}

/// A release under way. Dropped, it releases in the background on all nodes that have not confirmed.
struct Releasing<'a> {
    tenure: &'a Arc<Tenure>,
    driver: Driver,
    unconfirmed: Vec<(usize, Presence)>,
    answers: FanOut,
    /// When it was sent.
    since: Stamp,
    /// This client, if the replies have the grants of its waiters.
    sender: Option<String>,
}

impl Drop for Releasing<'_> {
    fn drop(&mut self) {
        if self.unconfirmed.is_empty() {
            return;
        }
        // Requests under way are awaited first: their replies usually follow right after the quorum's. Those on the
        // caller's own connection make no progress without the caller, so they are sent again.
        let mut answers = std::mem::take(&mut self.answers);
        if self.driver != Driver::Background {
            answers.clear();
        }
        let (tenure, mut unconfirmed) = (self.tenure.clone(), std::mem::take(&mut self.unconfirmed));
        let (since, has_grants) = (self.since, self.sender.is_some());
        self.tenure.quorum.spawn_pending(async move {
            // If the caller gave up, nobody else sets the outcome.
            let _told = Told(tenure.clone());
            while let Some((node, answer)) = answers.late().await {
                let was_done = answer.as_ref().ok().and_then(|reply| tenure.read_release(reply, since));
                tenure.release_answered(node, was_done);
                if answer.is_ok() {
                    unconfirmed.retain(|(other, _)| *other != node);
                }
            }
            if has_grants && !unconfirmed.is_empty() {
                tenure.doubt_grants();
            }
            let unconfirmed = tenure.state.lock().give_up_release(unconfirmed);
            tenure.release_later(unconfirmed);
        });
    }
}

/// Dropped, it tells those who wait for the outcome of a release that it is unconfirmed, unless they were told one. A
/// client that is closed drops the tasks of its releases.
pub(super) struct Told(pub(super) Arc<Tenure>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.status.change(|status| {
            status.outcome = status.outcome.or(Some(ReleaseOutcome::Unconfirmed));
        });
    }
}
