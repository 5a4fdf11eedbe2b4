//! One attempt of an acquire on the nodes, and what its result means for the acquire: a ballot, or a place in the queue
//! of the lock where a server keeps one.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{
    acquisition::{Acquisition, Tried},
    claimant::Claimant,
};
use crate::{
    config::Ttl,
    error::LockError,
    event::Event,
    lease::Lease,
    process::{
        driver::{Driver, Polled},
        runtime,
    },
    protocol::{calls::QueueEntry, primitive::Family, reply::QueueReply},
    quorum::{Ballot, Grant, Verdict},
    server::NodeErrorKind,
    tenure::{Supervised, Tenure, Terms},
    wait::{
        place::{self, Intent, Place},
        waiter::Pause,
    },
};

/// How often an acquire tries at once again because nodes of a new deployment just got their markers. Another client
/// may have written them; but if nodes lose their markers again at once, the acquire must not go on for ever.
const MOST_PROVISIONED: u32 = 3;

impl Acquisition {
    /// Tries to get the lock for `ttl`.
    pub(super) async fn attempt(&mut self, ttl: Duration, driver: Driver, polled: Polled) -> Result<Tried, LockError> {
        if self.claimant.has_queue() {
            self.enter_queue(ttl, driver, polled).await
        } else {
            self.run_ballot(ttl, driver, polled).await
        }
    }

    /// Runs one ballot.
    async fn run_ballot(&mut self, ttl: Duration, driver: Driver, polled: Polled) -> Result<Tried, LockError> {
        self.waiter.begin_try();
        let (quorum, names) = (&self.session().quorum, &self.claimant.names);
        let mut ballot = match &self.claimant.options.value {
            Some(value) => Ballot::of_chosen_value(quorum, names, value.clone(), ttl),
            None => Ballot::new(quorum, names, self.session().fields.draw(&self.claimant.key), ttl),
        }
        .contended(self.waiter.is_contended());
        if self.claimant.primitive.is_read_write() {
            let keeps_readers_out = !self.claimant.primitive.reads() && !self.waiter.is_try();
            let lease = if keeps_readers_out { place::LEASE } else { Duration::ZERO };
            ballot = ballot.of_read_write(self.claimant.primitive, self.session().fields.client(), lease);
            if keeps_readers_out && self.intent.is_none() {
                self.intent = Some(Intent::new(quorum, names, self.session().fields.client(), ttl));
            }
        }
        let supervised = matches!(polled, Polled::Here(_)).then(|| self.supervise(ballot.ttl(), ballot.undo_later()));
        let grace = if driver == Driver::Caller { runtime::GIVE_UP_GRACE } else { Duration::ZERO };
        let limit = self.waiter.limit() + grace;
        let verdict = timeout(limit, ballot.run(driver, &self.claimant.key)).await;
        if supervised.is_some_and(|supervised| !supervised.finish()) {
            // The caller stopped polling, so the supervisor gave up the ballot and the place in the queue. Requests
            // sent since then are undone here.
            self.waiter.leave();
            let clean_up = ballot.undo(true);
            self.clean_up = clean_up.filter(|_| self.claimant.options.value.is_some());
            return Ok(Tried::Wait(Pause::No));
        }
        match verdict {
            Ok(verdict) => self.conclude(verdict, ballot),
            Err(_) => Err(self.unanswered(ballot.unanswered())),
        }
    }

    /// Asks the server for the lock or, if it is not this waiter's turn, for a place in the lock's queue.
    async fn enter_queue(&mut self, ttl: Duration, driver: Driver, polled: Polled) -> Result<Tried, LockError> {
        self.waiter.begin_try();
        let session = self.claimant.session.clone();
        let mut place = self.place.take().unwrap_or_else(|| {
            let (field, client) = (session.fields.draw(&self.claimant.key), session.fields.client().to_owned());
            let entry = QueueEntry { field, ttl, client };
            let Claimant { primitive, names, key, .. } = &self.claimant;
            Place::new(&session.quorum, *primitive, names, entry, key.clone())
        });
        let lease = if self.waiter.is_try() { Duration::ZERO } else { place::LEASE };
        let supervised =
            matches!(polled, Polled::Here(_)).then(|| self.supervise(place.entry().ttl, place.undo_later()));
        let grace = if driver == Driver::Caller { runtime::GIVE_UP_GRACE } else { Duration::ZERO };
        let answer = timeout(self.waiter.limit() + grace, place.ask(driver, lease)).await;
        if supervised.is_some_and(|supervised| !supervised.finish()) {
            // The caller stopped polling, so the supervisor gave it up.
            self.waiter.leave();
            return Ok(Tried::Wait(Pause::No));
        }
        let quorum = &session.quorum;
        let Ok((since, answer)) = answer else {
            return Err(self.unanswered(vec![quorum.cause(0, "has not answered")]));
        };
        match answer {
            Ok(QueueReply::Granted { token, slots }) => {
                let entry = place.entry().clone();
                match place.into_grant(token, slots, since) {
                    Ok(grant) => self.granted(grant, entry.field, entry.ttl),
                    Err(error) => self.outage(vec![quorum.cause(0, error)], false),
                }
            }
            Ok(QueueReply::Waits { ticket, ahead, look }) => {
                session.registry.end_outage(self.key());
                self.answered = true;
                self.waiter.take_place(session.fields.client(), ticket, ahead, look);
                self.place = Some(place);
                Ok(Tried::Wait(Pause::Line))
            }
            // A try, which takes no place.
            Ok(QueueReply::Busy(_)) => {
                session.registry.end_outage(self.key());
                self.answered = true;
                Err(self.timed_out())
            }
            Ok(QueueReply::Conflict) => Err(LockError::Conflict { key: self.claimant.names.lock.clone() }),
            Err(error) if error.kind == NodeErrorKind::WrongType => {
                Err(LockError::Conflict { key: self.claimant.names.lock.clone() })
            }
            Err(error) => {
                let permanent = error.is_permanent();
                self.place = Some(place);
                self.outage(vec![quorum.cause(0, error)], permanent)
            }
        }
    }

    /// Has the supervisor undo the request if the caller stops polling it, so that it keeps nobody else from the lock.
    fn supervise(&self, ttl: Duration, undo: impl FnOnce() + Send + 'static) -> Supervised {
        let (registry, names, turn) =
            (self.session().registry.clone(), self.claimant.names.clone(), self.waiter.turn());
        let last_reply = self.session().settings.reply_timeout(ttl);
        self.session().watchdog.supervise(last_reply, move || {
            undo();
            if let Some(turn) = turn {
                registry.leave(names.local(), &turn);
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
    fn conclude(&mut self, verdict: Verdict, mut ballot: Ballot) -> Result<Tried, LockError> {
        if !matches!(verdict, Verdict::Held(_)) {
            self.undo_ballot_of_value(&mut ballot);
        }
        match verdict {
            Verdict::Held(grant) => self.granted(grant, ballot.field().to_owned(), ballot.ttl()),
            Verdict::Conflict => Err(LockError::Conflict { key: self.claimant.names.lock.clone() }),
            Verdict::Provisioned { causes } => {
                self.provisioned += 1;
                if self.provisioned > MOST_PROVISIONED {
                    // The markers were gone again each time.
                    return self.outage(causes, false);
                }
                Ok(Tried::Wait(Pause::No))
            }
            Verdict::Busy { free_in, split } => {
                self.session().registry.end_outage(self.key());
                self.answered = true;
                if self.waiter.is_try() {
                    return Err(self.timed_out());
                }
                if split {
                    ballot.undo(false);
                    return Ok(Tried::Wait(Pause::Split));
                }
                Ok(Tried::Wait(Pause::Busy(free_in)))
            }
            // One node's reply does not end an outage.
            Verdict::FirstNodeDenied { free_in } => Ok(Tried::Wait(Pause::Busy(Some(free_in)))),
            Verdict::Unavailable { causes, permanent } => self.outage(causes, permanent),
        }
    }

    /// Makes a tenure and its first lease of a quorum's grant.
    fn granted(&mut self, mut grant: Grant, field: String, ttl: Duration) -> Result<Tried, LockError> {
        self.session().registry.end_outage(self.key());
        self.waiter.note_grant();
        self.answered = true;
        let claim = self.claimant.claim_for(ttl);
        let terms = Terms {
            names: self.claimant.names.clone(),
            owner: self.claimant.key.clone(),
            field,
            primitive: self.claimant.primitive,
            slots: std::mem::take(&mut grant.slots),
            ttl,
            fixed: self.claimant.options.ttl.is_fixed(),
            adaptive: self.claimant.options.ttl == Ttl::Adaptive,
            max_hold: self.claimant.options.max_hold,
            thread: self.claimant.request.thread,
            identity: self.claimant.request.owner.watch(),
        };
        let (quorum, events) = (self.session().quorum.clone(), self.session().events.clone());
        let handle = Arc::downgrade(&self.claimant.handle);
        let tenure = Tenure::new(terms, grant, claim.clone(), handle, quorum, events);
        if self.collector_is_blocked() {
            tenure.release_uncollected();
            return Ok(Tried::Wait(Pause::Turn));
        }
        let session = &self.claimant.session;
        let registered = if self.claimant.primitive.family() == Family::Semaphore {
            session.register(&tenure);
            true
        } else {
            session.register_first(&tenure)
        };
        if !registered {
            // Another call of the same owner was granted the lock at the same time: this one nests in that tenure.
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
        Ok(Tried::Lease(lease))
    }
}
