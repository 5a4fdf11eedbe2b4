//! One attempt of an acquire on the nodes, and what its result means for the acquire. Where a server keeps a queue for
//! the lock, the attempt requests the lock or a place in that queue; elsewhere it is a ballot.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{acquisition::Acquisition, claimant::Claimant};
use crate::{
    clock::Stamp,
    config::Ttl,
    error::LockError,
    event::Event,
    lease::Lease,
    process::{
        driver::{Driver, Polled},
        runtime,
    },
    protocol::{
        calls::QueueEntry,
        primitive::Primitive,
        reply::{Granted, QueueReply},
    },
    quorum::{Ballot, Grant, Intent, PLACE_TTL, Place, Verdict},
    server::NodeErrorKind,
    tenure::{Supervised, Tenure, Terms},
    wait::until::{Pause, Tried},
};

/// How often an acquire tries again at once because nodes of a new deployment just got their markers. The limit ends an
/// acquire whose nodes lose their markers again and again.
const MOST_PROVISIONED: u32 = 3;

impl Acquisition {
    /// Tries to get the lock for `ttl`.
    pub(super) async fn attempt(
        &mut self,
        ttl: Duration,
        driver: Driver,
        polled: Polled,
    ) -> Result<Tried<Lease>, LockError> {
        if self.claimant.has_queue() {
            self.enter_queue(ttl, driver, polled).await
        } else {
            self.run_ballot(ttl, driver, polled).await
        }
    }

    /// Runs one ballot.
    async fn run_ballot(&mut self, ttl: Duration, driver: Driver, polled: Polled) -> Result<Tried<Lease>, LockError> {
        self.waiter.begin_try();
        let (quorum, subject) = (&self.session().quorum, &self.claimant.subject);
        let mut ballot = match &self.claimant.options.value {
            Some(value) => Ballot::of_chosen_value(quorum, subject, value.clone(), ttl),
            None => Ballot::new(quorum, subject, self.session().fields.draw(&self.claimant.key), ttl),
        }
        .contended(self.waiter.is_contended());
        if let Primitive::Permits { of, .. } = subject.primitive {
            ballot = ballot.of_permit(of);
        }
        if subject.primitive.is_read_write() {
            let keeps_readers_out = !subject.primitive.reads() && !self.waiter.is_try();
            let keeps_readers_out_for = if keeps_readers_out { PLACE_TTL } else { Duration::ZERO };
            let client = self.session().fields.client();
            ballot = ballot.of_read_write(client, keeps_readers_out_for);
            if keeps_readers_out && self.intent.is_none() {
                self.intent = Some(Intent::new(quorum, subject, client, ttl));
            }
        }
        let supervised = matches!(polled, Polled::Here(_)).then(|| self.supervise(ballot.ttl(), ballot.undo_later()));
        let grace = if driver == Driver::Caller { runtime::GIVE_UP_GRACE } else { Duration::ZERO };
        let limit = self.waiter.limit() + grace;
        let verdict = timeout(limit, ballot.run(driver, &self.claimant.key)).await;
        if supervised.is_some_and(|supervised| !supervised.finish()) {
            // The caller stopped polling, so the supervisor gave up the ballot and left the queue. Requests sent since
            // then are undone here.
            self.waiter.leave();
            let clean_up = ballot.undo(true);
            self.clean_up = clean_up.filter(|_| self.claimant.options.value.is_some());
            return Ok(Tried::Wait(Pause::No));
        }
        match verdict {
            Ok(verdict) => self.conclude(verdict, ballot),
            Err(_) => Err(self.waiter.unanswered(ballot.unanswered())),
        }
    }

    /// Requests the lock or, if other waiters are first, a place in its queue on the server.
    async fn enter_queue(&mut self, ttl: Duration, driver: Driver, polled: Polled) -> Result<Tried<Lease>, LockError> {
        self.waiter.begin_try();
        let session = self.claimant.session.clone();
        let mut place = self.place.take().unwrap_or_else(|| {
            let (field, client) = (session.fields.draw(&self.claimant.key), session.fields.client().to_owned());
            let entry = QueueEntry { field, ttl, client };
            let Claimant { subject, key, .. } = &self.claimant;
            let mut place = Place::new(&session.quorum, subject, entry, key.clone());
            if let Some(queued) = self.waiter.queued() {
                place.expect_delivery(queued.wake.clone());
            }
            place
        });
        if let Some((since, granted)) = place.take_delivered() {
            self.waiter.note_delivered();
            return self.place_granted(place, granted, since);
        }
        let place_ttl = if self.waiter.is_try() { Duration::ZERO } else { PLACE_TTL };
        let supervised =
            matches!(polled, Polled::Here(_)).then(|| self.supervise(place.entry().ttl, place.undo_later()));
        let grace = if driver == Driver::Caller { runtime::GIVE_UP_GRACE } else { Duration::ZERO };
        let answer = timeout(self.waiter.limit() + grace, place.enter(driver, place_ttl)).await;
        if supervised.is_some_and(|supervised| !supervised.finish()) {
            // The caller stopped polling, so the supervisor gave up the place and left this client's queue.
            self.waiter.leave();
            return Ok(Tried::Wait(Pause::No));
        }
        let quorum = &session.quorum;
        let Ok((since, answer)) = answer else {
            return Err(self.waiter.unanswered(vec![quorum.cause(0, "has not answered")]));
        };
        match answer {
            Ok(QueueReply::Granted(granted)) => self.place_granted(place, granted, since),
            Ok(QueueReply::Waits { ticket, ahead, retry_after }) => {
                self.waiter.note_answer();
                self.waiter.take_place(session.fields.client(), ticket, ahead, retry_after);
                self.place = Some(place);
                Ok(Tried::Wait(Pause::Placed))
            }
            // A try, which takes no place.
            Ok(QueueReply::Busy(_)) => {
                self.waiter.note_answer();
                Err(self.waiter.timed_out())
            }
            Ok(QueueReply::Conflict) => Err(LockError::Conflict { key: self.claimant.subject.names.lock.clone() }),
            Err(error) if error.kind == NodeErrorKind::WrongType => {
                Err(LockError::Conflict { key: self.claimant.subject.names.lock.clone() })
            }
            Err(error) => {
                let permanent = error.is_permanent();
                self.place = Some(place);
                self.waiter.note_outage(vec![quorum.cause(0, error)], permanent).map(Tried::Wait)
            }
        }
    }

    /// Makes a lease of what a server granted to this place. `since`: when the request for it was sent.
    fn place_granted(&mut self, place: Place, granted: Granted, since: Stamp) -> Result<Tried<Lease>, LockError> {
        match place.into_grant(granted, since) {
            Ok(grant) => self.granted(grant),
            Err(error) => {
                let causes = vec![self.session().quorum.cause(0, error)];
                self.waiter.note_outage(causes, false).map(Tried::Wait)
            }
        }
    }

    /// Has the supervisor undo the request and leave the queue if the caller stops polling: otherwise the request could
    /// keep others from the lock.
    fn supervise(&self, ttl: Duration, undo: impl FnOnce() + Send + 'static) -> Supervised {
        let (registry, names, queued) =
            (self.session().registry.clone(), self.claimant.subject.names.clone(), self.waiter.queued());
        let last_reply = self.session().settings.reply_timeout(ttl);
        self.session().watchdog.supervise(last_reply, move || {
            undo();
            if let Some(queued) = queued {
                registry.leave(names.local(), &queued);
            }
        })
    }

    /// Undoes a ballot whose value the caller chose: the next ballot may have the same value.
    fn undo_ballot_of_value(&mut self, ballot: &mut Ballot) {
        if self.claimant.options.value.is_some() {
            self.clean_up = ballot.undo(self.waiter.is_try());
        }
    }

    /// Turns the verdict of a ballot into the result of the attempt.
    fn conclude(&mut self, verdict: Verdict, mut ballot: Ballot) -> Result<Tried<Lease>, LockError> {
        if !matches!(verdict, Verdict::Held(_)) {
            self.undo_ballot_of_value(&mut ballot);
        }
        match verdict {
            Verdict::Held(grant) => self.granted(grant),
            Verdict::Conflict => Err(LockError::Conflict { key: self.claimant.subject.names.lock.clone() }),
            Verdict::Provisioned { causes } => {
                self.provisioned += 1;
                if self.provisioned > MOST_PROVISIONED {
                    // The markers were gone again each time.
                    return self.waiter.note_outage(causes, false).map(Tried::Wait);
                }
                Ok(Tried::Wait(Pause::No))
            }
            Verdict::Busy { free_in, split } => {
                self.waiter.note_answer();
                if self.waiter.is_try() {
                    return Err(self.waiter.timed_out());
                }
                if split {
                    // This acquire tries again, and nobody else needs to. If it wants several slots, it may be denied
                    // then while fewer are free, for which others wait.
                    ballot.undo(self.claimant.subject.primitive.size() > 1);
                    return Ok(Tried::Wait(Pause::Split));
                }
                Ok(Tried::Wait(Pause::Busy(free_in)))
            }
            // One node's reply does not end an outage.
            Verdict::FirstNodeDenied { free_in } => Ok(Tried::Wait(Pause::Busy(Some(free_in)))),
            Verdict::Unavailable { causes, permanent } => self.waiter.note_outage(causes, permanent).map(Tried::Wait),
        }
    }

    /// Makes a tenure and its first lease of a quorum's grant.
    fn granted(&mut self, Grant { right, spread }: Grant) -> Result<Tried<Lease>, LockError> {
        self.waiter.note_answer();
        self.waiter.note_grant();
        let claim = self.claimant.claim_for(right.ttl);
        let terms = Terms {
            subject: self.claimant.subject.clone(),
            owner: self.claimant.key.clone(),
            right,
            fixed: self.claimant.options.ttl.is_fixed(),
            adaptive: self.claimant.options.ttl == Ttl::Adaptive,
            max_hold: self.claimant.options.max_hold,
            min_hold: self.claimant.options.min_hold,
            thread: self.claimant.request.thread,
            identity: self.claimant.request.owner.watch(),
        };
        let (quorum, events) = (self.session().quorum.clone(), self.session().events.clone());
        let handle = Arc::downgrade(&self.claimant.handle);
        let tenure = Tenure::new(terms, spread, claim.clone(), handle, quorum, events);
        if self.collector_is_blocked() {
            // The thread is blocked in another acquire of this lock, which is before this waiter in the queue.
            self.waiter.leave_place();
            tenure.release_uncollected();
            return Ok(Tried::Wait(Pause::NotFirst));
        }
        if !self.session().admit(&tenure) {
            // Another call of the same owner was granted the lock at the same time: this one nests in that tenure.
            self.waiter.leave_place();
            tenure.release_uncollected();
            return Ok(Tried::Wait(Pause::No));
        }
        let lease = Lease::new(&self.claimant.session, tenure.clone(), claim);
        if self.session().is_closed() {
            // The client was closed meanwhile; dropping the lease releases it.
            return Err(LockError::Closed);
        }
        let waited = self.waiter.waited();
        (self.session().events)(&Event::Acquired { name: self.claimant.name(), token: tenure.token(), waited });
        self.end_waiting();
        Ok(Tried::Done(lease))
    }
}
