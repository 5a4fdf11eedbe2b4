//! One acquire: a single try, or tries until its wait is over. [`local`](super::local) makes the decisions that need no
//! request, [`attempt`](super::attempt) makes one attempt on the nodes, and [`acquire`](super) says who polls it.
//!
//! ```text
//! decide ─the owner holds it─▶ nest
//!        ─another owner of this client holds it─▶ wait for the end of that tenure ─▶ decide
//!        ─first in the queue─▶ attempt ─granted─▶ lease
//!                                      ─busy─▶ listen for a release, or poll ─▶ decide
//!                                      ─too few nodes answer─▶ back off ─▶ decide, until patience is over
//! ```

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};

use super::claimant::{Claimant, Nested};
use crate::{
    error::LockError,
    holders,
    lease::{Lease, extend},
    process::driver::{Caller, Driver, Polled},
    quorum::{Intent, PendingWork, Place},
    session::Session,
    tenure::Tenure,
    wait::{
        until::{Pause, Tried, Try},
        waiter::{Waiter, Wanted},
    },
};

/// One acquire under way. Dropped at any point, it leaves the queue, and its ballot gives back what it was granted.
pub(crate) struct Acquisition {
    pub(super) claimant: Claimant,
    pub(super) waiter: Waiter<Tenure>,
    /// How often nodes of a new deployment got their markers in this acquire.
    pub(super) provisioned: u32,
    /// The first decision, if it was made before the call was polled.
    decided: Option<Result<Next, LockError>>,
    /// Closes once the previous ballot is undone: nothing of it is on a node or can still reach one. `None` if there is
    /// nothing to wait for. Only for a value that the caller chose: the next ballot has the same value.
    pub(super) clean_up: Option<mpsc::Receiver<()>>,
    /// Its place in the lock's queue on the server, if it has one.
    pub(super) place: Option<Place>,
    /// Keeps new readers out on several nodes, while a writer waits.
    pub(super) intent: Option<Intent>,
    /// Makes an exiting process wait a moment for this acquire. `None` once the lock is granted. Dropped last, after
    /// the place and the intent have started to be given up.
    pending: Option<PendingWork>,
}

/// An acquire after the first local decision.
pub(crate) enum Begun {
    /// It nested, and needs no request.
    Lease(Lease),
    /// It must be polled.
    Poll(Box<Acquisition>),
}

/// What this client decided by itself.
pub(super) enum Next {
    Nested(Nested),
    Try,
    Wait(Pause),
}

impl Acquisition {
    /// Nests if the owner holds the lock, and returns the lease unless that needs a request. Otherwise returns the
    /// acquire, to be polled.
    pub(crate) fn begin(claimant: Claimant) -> Begun {
        let nested = claimant.nested();
        match nested {
            Some(Nested { lease, extend: None, .. }) => Begun::Lease(lease),
            nested => {
                let mut acquisition = Box::new(Self::new(claimant));
                acquisition.decided = nested.map(|nested| Ok(Next::Nested(nested)));
                Begun::Poll(acquisition)
            }
        }
    }

    pub(crate) fn new(claimant: Claimant) -> Self {
        let Claimant { session, subject, request, .. } = &claimant;
        let (registry, quorum) = (session.registry.clone(), session.quorum.clone());
        let wanted = Wanted {
            names: subject.names.clone(),
            admission: subject.primitive.admission(),
            announces: quorum.protocol.announces(subject.primitive),
        };
        let pending = Some(session.quorum.pending_work());
        Self {
            waiter: Waiter::new(registry, quorum, wanted, request.wait),
            claimant,
            provisioned: 0,
            decided: None,
            clean_up: None,
            place: None,
            intent: None,
            pending,
        }
    }

    /// Makes an exiting process wait for this acquire again: its grant was given back because the caller did not
    /// collect it.
    pub(super) fn mark_pending_again(&mut self) {
        self.pending = Some(self.session().quorum.pending_work());
    }

    /// Where its first attempt is polled.
    pub(crate) fn polled(&self, caller: Caller) -> Polled {
        self.session().quorum.polled(caller)
    }

    /// Decides now, so that acquires nest and enter the queue in the order of the calls. Returns the lease if the
    /// acquire nests and needs no request.
    pub(crate) fn decide_first(&mut self) -> Option<Lease> {
        let decided = self.decide_locally();
        if let Ok(Next::Nested(Nested { lease, extend: None, .. })) = decided {
            self.end_waiting();
            return Some(lease);
        }
        self.decided = Some(decided);
        None
    }

    /// Decides locally and, where that is not enough, makes one attempt on the nodes.
    pub(super) async fn try_polled(&mut self, driver: Driver, polled: Polled) -> Result<Tried<Lease>, LockError> {
        let next = match self.decided.take() {
            Some(decided) => decided,
            None => self.decide_locally(),
        };
        match next? {
            Next::Nested(Nested { lease, tenure, extend: longer }) => {
                if let Some(ttl) = longer {
                    if polled != Polled::InBackground {
                        // The caller may stop polling in the middle; that must not keep the lock.
                        lease.mark_uncollected();
                    }
                    Box::pin(extend(self.session(), &tenure, driver, ttl, self.claimant.subject.names.name())).await?;
                }
                self.end_waiting();
                Ok(Tried::Done(lease))
            }
            Next::Wait(_) if self.waiter.is_try() => Err(self.waiter.timed_out()),
            Next::Wait(pause) => Ok(Tried::Wait(pause)),
            Next::Try => {
                let ttl = match self.session().known_ttl(&self.claimant.subject.names, self.claimant.options.ttl) {
                    Some(ttl) if self.clean_up.is_none() => ttl,
                    // The nodes must report the ttl, or undo the previous ballot, first. Only the background waits for
                    // that. `Pause::No` moves the acquire there at once, and its next try waits.
                    _ if polled != Polled::InBackground => return Ok(Tried::Wait(Pause::No)),
                    _ => {
                        Box::pin(self.until_cleaned_up()).await?;
                        Box::pin(self.learned_ttl()).await?
                    }
                };
                self.attempt(ttl, driver, polled).await
            }
        }
    }

    /// The ttl, which the nodes report.
    async fn learned_ttl(&mut self) -> Result<Duration, LockError> {
        let (session, limit) = (self.session().clone(), self.waiter.limit());
        let ttl = session.ttl(&self.claimant.subject.names, self.claimant.options.ttl);
        match timeout(limit, ttl).await {
            Ok(ttl) => Ok(ttl),
            Err(_) => Err(self.waiter.unanswered(session.quorum.unanswered_causes())),
        }
    }

    /// Waits until the previous ballot is undone. Only for a value that the caller chose: a late request that undoes
    /// that ballot would undo the next one, too.
    async fn until_cleaned_up(&mut self) -> Result<(), LockError> {
        let Some(mut clean_up) = self.clean_up.take() else { return Ok(()) };
        let limit = self.waiter.limit().min(self.session().settings.config.patience);
        if timeout(limit, clean_up.recv()).await.is_ok() {
            return Ok(());
        }
        Err(self.session().quorum.unavailable(self.waiter.known_causes()))
    }

    /// Ends the waiting: the next waiter may try, even before the caller collects the grant, and the process may exit.
    pub(super) fn end_waiting(&mut self) {
        self.waiter.leave();
        // The nodes that granted the lock removed it themselves.
        if let Some(intent) = self.intent.take() {
            intent.forget();
        }
        self.pending = None;
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.claimant.session
    }

    /// The lock's key in the registry.
    pub(super) fn key(&self) -> &str {
        self.claimant.subject.names.local()
    }
}

impl Try for Acquisition {
    type Outcome = Lease;
    type Error = LockError;

    async fn pause(&mut self, pause: Pause) -> Result<(), LockError> {
        match self.waiter.pause(pause).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.waiter.timed_out()),
        }
    }

    async fn try_once(&mut self) -> Result<Tried<Lease>, LockError> {
        self.try_polled(Driver::Background, Polled::InBackground).await
    }

    /// Ends the acquire with this error. After a wait for a lock that somebody holds, the error says who that is, if the
    /// nodes tell it in time.
    async fn fail(self: Box<Self>, mut error: LockError) -> LockError {
        let is_try = self.waiter.is_try();
        let Claimant { session, subject, .. } = &self.claimant;
        let (session, names) = (session.clone(), subject.names.clone());
        // Leaves the queues first: nobody waits behind an acquire that has failed.
        drop(self);
        if !is_try {
            holders::name_holder(session, names, &mut error).await;
        }
        error
    }
}
