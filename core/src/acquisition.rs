//! One acquire: alone or queued, tried once or until its wait is over. Who polls it is said in
//! [`acquire`](crate::acquire).
//!
//! ```text
//! look ─own tenure─▶ nested          ─other tenure here─▶ wait for its end ─▶ look
//!      ─first in line─▶ try ─granted─▶ lease   ─busy─▶ listen, try again, wait ─▶ look
//!                           ─silence─▶ back off ─▶ look, until patience is over
//! ```

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::timeout};

use crate::{
    claimant::{Claimant, Nested},
    config::Ttl,
    error::{LockError, NodeCause},
    event::Event,
    lease::{Lease, extend},
    process::{
        driver::{Caller, Driver, Polled},
        runtime,
    },
    protocol::{calls::Entry, primitive::Family, reply::Entered},
    quorum::{Ballot, Grant, PendingWork, Verdict},
    server::NodeErrorKind,
    tenure::{Attended, Fate, Tenure, Terms},
    wait::{
        place::{self, Intent, Place},
        registry::Local,
        waiter::{Pause, Waiter},
    },
};

/// How often an acquire tries at once again because new nodes have just got their markers. Another client may have
/// been at it, but nodes that lose their markers at once must not be asked for ever.
const MOST_PROVISIONED: u32 = 3;

/// One acquire under way. Dropped at any point it leaves the queue, and a ballot under way takes back what it took.
pub(crate) struct Acquisition {
    claimant: Claimant,
    waiter: Waiter<Tenure>,
    /// How often nodes of a new deployment got their markers in this acquire.
    provisioned: u32,
    /// Whether a quorum answered the last time.
    answered: bool,
    /// The process waits for it to end, for a moment; not while it is offered.
    pending: Option<PendingWork>,
    /// What the first look saw, when that was taken before the call was polled.
    seen: Option<Result<Next, LockError>>,
    /// Pending while a ballot with the same value may still be on a node, or come there.
    undone: Option<mpsc::Receiver<()>>,
    /// Its place in the lock's queue, where there is one.
    place: Option<Place>,
    /// What holds new readers back on several nodes, while a writer waits.
    intent: Option<Intent>,
}

/// What one try led to.
pub(crate) enum Tried {
    Lease(Lease),
    Wait(Pause),
}

/// What to do after looking at this client's own tenures.
enum Next {
    Nested(Nested),
    Try,
    Wait(Pause),
}

impl Acquisition {
    /// The lease, if its owner has the lock already, as long as it needs it; else what goes on.
    pub(crate) fn begin(claimant: Claimant) -> Result<Lease, Box<Self>> {
        let nested = claimant.nested();
        match nested {
            Some(Nested { lease, extend: None, .. }) => Ok(lease),
            nested => {
                let mut acquisition = Box::new(Self::new(claimant));
                acquisition.seen = nested.map(|nested| Ok(Next::Nested(nested)));
                Err(acquisition)
            }
        }
    }

    pub(crate) fn new(claimant: Claimant) -> Self {
        let Claimant { session, primitive, names, request, .. } = &claimant;
        let (registry, quorum) = (session.registry.clone(), session.quorum.clone());
        Self {
            pending: Some(session.quorum.pending_work()),
            waiter: Waiter::new(registry, quorum, *primitive, names.clone(), request.wait),
            claimant,
            provisioned: 0,
            answered: false,
            seen: None,
            undone: None,
            place: None,
            intent: None,
        }
    }

    /// It goes on after its offer was given back.
    pub(crate) fn begin_again(&mut self) {
        self.pending = Some(self.claimant.session.quorum.pending_work());
    }

    /// Where its first try is polled.
    pub(crate) fn polled(&self, caller: Caller) -> Polled {
        self.claimant.session.quorum.polled(caller)
    }

    /// Takes the first look now: nesting and places in the queue are decided in the order of the calls. The lease, if it is
    /// nested and asks no server.
    pub(crate) fn look_first(&mut self) -> Option<Lease> {
        let seen = self.look();
        if let Ok(Next::Nested(Nested { lease, extend: None, .. })) = seen {
            self.settle();
            return Some(lease);
        }
        self.seen = Some(seen);
        None
    }

    /// Decides what this client can decide by itself.
    fn look(&mut self) -> Result<Next, LockError> {
        if self.claimant.session.is_closed() {
            return Err(LockError::Closed);
        }
        let local = self.claimant.session.registry.look(self.claimant.names.local(), &self.claimant.key);
        let next = match local {
            // Whoever has one may have more, and anybody who knows its lease may give it back.
            _ if self.claimant.primitive.family() == Family::Semaphore => Next::Try,
            Local::Own(tenure) => match self.own(&tenure)? {
                Some(next) => return Ok(next),
                None => Next::Try,
            },
            Local::Other(tenure) => match (tenure.primitive().is_shared(), self.claimant.primitive.is_shared()) {
                (true, true) => Next::Try,
                // There may be other readers, and the servers are to know that a writer waits.
                (true, false) => self.behind(&tenure).map(|_| Next::Try)?,
                (false, _) => self.behind(&tenure)?,
            },
            // Waiting owners of this client come first; a try does not wait.
            Local::Waited if self.waiter.is_try() => Next::Wait(Pause::Turn),
            Local::Waited | Local::Free => Next::Try,
        };
        if self.waiter.is_try() {
            return Ok(next);
        }
        self.waiter.enqueue(&self.claimant.key, self.claimant.request.thread, self.claimant.request.blocking);
        if self.claimant.has_queue() {
            return Ok(self.look_in_line());
        }
        Ok(if self.waiter.is_first() || self.waiter.is_behind_sharers() { next } else { Next::Wait(Pause::Turn) })
    }

    /// Its owner has it in a way that must end before this can begin.
    fn would_wait_for_itself(&self) -> Result<Next, LockError> {
        if self.waiter.is_try() {
            return Ok(Next::Wait(Pause::Turn));
        }
        let detail =
            "its owner reads it, and would wait for itself; try_upgrade() makes a writer of a reader that is alone";
        Err(LockError::Deadlock { name: self.claimant.name(), detail: detail.to_owned() })
    }

    /// The server decides whose turn it is, also among those of this client: whether it is to be asked now.
    fn look_in_line(&self) -> Next {
        if self.waiter.is_placed() {
            return if self.waiter.is_due() { Next::Try } else { Next::Wait(Pause::Line) };
        }
        // One is enough to find out whether it answers again.
        let outage = self.claimant.session.registry.outage(self.claimant.names.local());
        if outage.is_some() && !self.waiter.is_first() { Next::Wait(Pause::Turn) } else { Next::Try }
    }

    /// Nests in a tenure of its owner; `None` if that was released or detached.
    fn own(&self, tenure: &Arc<Tenure>) -> Result<Option<Next>, LockError> {
        let may_nest = self.claimant.options.reentrant && self.claimant.is_included(tenure);
        let fate = if may_nest {
            match self.claimant.nest(tenure) {
                Ok(nested) => return Ok(Some(Next::Nested(nested))),
                Err(fate) => fate,
            }
        } else {
            tenure.current_fate()
        };
        match fate {
            Fate::Held if !self.claimant.options.reentrant => {
                let detail = "its owner holds it already, and this lock is not re-entrant".to_owned();
                Err(LockError::Deadlock { name: self.claimant.name(), detail })
            }
            Fate::Held => self.would_wait_for_itself().map(Some),
            Fate::Lost(reason) => Err(LockError::Lost { name: self.claimant.name(), reason }),
            Fate::Released | Fate::Detached => Ok(None),
        }
    }

    /// Another owner of this client holds it.
    fn behind(&self, tenure: &Arc<Tenure>) -> Result<Next, LockError> {
        let same_thread = self.claimant.request.thread.is_some() && tenure.terms.thread == self.claimant.request.thread;
        if self.claimant.request.blocking && same_thread && !self.waiter.is_try() {
            // Something of this thread that has not taken it yet could not do so before this thread goes on.
            if !tenure.withdraw() {
                let detail = "another task of the same thread holds it, and cannot release it while the thread is \
                              blocked"
                    .to_owned();
                return Err(LockError::Deadlock { name: self.claimant.name(), detail });
            }
        }
        Ok(Next::Wait(Pause::Held(Box::pin(tenure.clone().ended()))))
    }

    /// Waits for what may change the outcome of a try; fails when its wait is over.
    pub(crate) async fn pause(&mut self, pause: Pause) -> Result<(), LockError> {
        match self.waiter.pause(pause).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// Tries once: by what this client knows, else by asking the nodes.
    pub(crate) async fn try_once(&mut self, driver: Driver, polled: Polled) -> Result<Tried, LockError> {
        let next = match self.seen.take() {
            Some(seen) => seen,
            None => self.look(),
        };
        match next? {
            Next::Nested(Nested { lease, tenure, extend: longer }) => {
                if let Some(ttl) = longer {
                    if polled != Polled::Behind {
                        // Its caller may stop in the middle, and not keep the lock by that.
                        lease.offer();
                    }
                    Box::pin(extend(&self.claimant.session, &tenure, driver, ttl, self.claimant.names.name())).await?;
                }
                self.settle();
                Ok(Tried::Lease(lease))
            }
            Next::Wait(_) if self.waiter.is_try() => Err(self.timed_out()),
            Next::Wait(pause) => Ok(Tried::Wait(pause)),
            Next::Try => {
                let ttl = match self.claimant.session.ttl_at_hand(&self.claimant.names, self.claimant.options.ttl) {
                    Some(ttl) if self.undone.is_none() => ttl,
                    // What has to be waited for first belongs to the background.
                    _ if polled != Polled::Behind => return Ok(Tried::Wait(Pause::None)),
                    _ => {
                        Box::pin(self.undone()).await?;
                        Box::pin(self.claimant.session.ttl(&self.claimant.names, self.claimant.options.ttl)).await
                    }
                };
                if self.claimant.has_queue() {
                    self.enter(ttl, driver, polled).await
                } else {
                    self.ask(ttl, driver, polled).await
                }
            }
        }
    }

    /// Waits until nothing is left of a ballot with the value of the next one: what undoes it cannot tell them apart.
    async fn undone(&mut self) -> Result<(), LockError> {
        let Some(mut undone) = self.undone.take() else { return Ok(()) };
        let limit = self.waiter.limit().min(self.claimant.session.settings.config.patience);
        if timeout(limit, undone.recv()).await.is_ok() {
            return Ok(());
        }
        let outage = self.claimant.session.registry.outage(self.claimant.names.local());
        Err(self.claimant.session.quorum.unavailable(outage.map(|outage| outage.causes).unwrap_or_default()))
    }

    /// Asks the nodes, once.
    async fn ask(&mut self, ttl: Duration, driver: Driver, polled: Polled) -> Result<Tried, LockError> {
        self.waiter.tries();
        let (quorum, names) = (&self.claimant.session.quorum, &self.claimant.names);
        let mut ballot = match &self.claimant.options.value {
            Some(value) => Ballot::of_value(quorum, names, value.clone(), ttl),
            None => Ballot::new(quorum, names, self.claimant.session.fields.draw(&self.claimant.key), ttl),
        }
        .contended(self.waiter.is_contended());
        if self.claimant.primitive.is_read_write() {
            let holds_back = !self.claimant.primitive.reads() && !self.waiter.is_try();
            let lease = if holds_back { place::LEASE } else { Duration::ZERO };
            ballot = ballot.inside(self.claimant.primitive, self.claimant.session.fields.client(), lease);
            if holds_back && self.intent.is_none() {
                self.intent = Some(Intent::new(quorum, names, self.claimant.session.fields.client(), ttl));
            }
        }
        let attended = matches!(polled, Polled::Here(_)).then(|| self.attend(ballot.ttl(), ballot.undo_later()));
        let grace = if driver == Driver::Caller { runtime::GIVE_UP_GRACE } else { Duration::ZERO };
        let limit = self.waiter.limit() + grace;
        let verdict = timeout(limit, ballot.run(driver, &self.claimant.key)).await;
        if attended.is_some_and(|attended| !attended.ended()) {
            // Nobody polled this for so long that it was given up, as was its place in the queue. What it asked for since
            // then is given up here.
            self.waiter.leave();
            let undone = ballot.undo(true);
            self.undone = undone.filter(|_| self.claimant.options.value.is_some());
            return Ok(Tried::Wait(Pause::None));
        }
        match verdict {
            Ok(verdict) => self.conclude(verdict, ballot),
            Err(_) => Err(self.unanswered(ballot.silent())),
        }
    }

    /// Asks the server for it, in its turn, or for a place in the lock's queue.
    async fn enter(&mut self, ttl: Duration, driver: Driver, polled: Polled) -> Result<Tried, LockError> {
        self.waiter.tries();
        let session = self.claimant.session.clone();
        let mut place = self.place.take().unwrap_or_else(|| {
            let (field, client) = (session.fields.draw(&self.claimant.key), session.fields.client().to_owned());
            let entry = Entry { field, ttl, client };
            let Claimant { primitive, names, key, .. } = &self.claimant;
            Place::new(&session.quorum, *primitive, names, entry, key.clone())
        });
        let lease = if self.waiter.is_try() { Duration::ZERO } else { place::LEASE };
        let attended = matches!(polled, Polled::Here(_)).then(|| self.attend(place.entry().ttl, place.undo_later()));
        let grace = if driver == Driver::Caller { runtime::GIVE_UP_GRACE } else { Duration::ZERO };
        let answer = timeout(self.waiter.limit() + grace, place.ask(driver, lease)).await;
        if attended.is_some_and(|attended| !attended.ended()) {
            // Nobody polled this for so long that it was given up.
            self.waiter.leave();
            return Ok(Tried::Wait(Pause::None));
        }
        let quorum = &session.quorum;
        let Ok((since, answer)) = answer else {
            return Err(self.unanswered(vec![quorum.cause(0, "has not answered")]));
        };
        match answer {
            Ok(Entered::Granted { token, slots }) => {
                let entry = place.entry().clone();
                match place.settle(token, slots, since) {
                    Ok(grant) => self.granted(grant, entry.field, entry.ttl),
                    Err(error) => self.outage(vec![quorum.cause(0, error)], false),
                }
            }
            Ok(Entered::Waits { ticket, ahead, look }) => {
                session.registry.end_outage(self.claimant.names.local());
                self.answered = true;
                self.waiter.placed(session.fields.client(), ticket, ahead, look);
                self.place = Some(place);
                Ok(Tried::Wait(Pause::Line))
            }
            // It asked for no place.
            Ok(Entered::Busy(_)) => {
                session.registry.end_outage(self.claimant.names.local());
                self.answered = true;
                Err(self.timed_out())
            }
            Ok(Entered::Conflict) => Err(LockError::Conflict { key: self.claimant.names.lock.clone() }),
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

    /// Sees to it that a request which its caller does not poll to its end keeps nobody else from the lock.
    fn attend(&self, ttl: Duration, undo: impl FnOnce() + Send + 'static) -> Attended {
        let (registry, names, ticket) =
            (self.claimant.session.registry.clone(), self.claimant.names.clone(), self.waiter.ticket());
        let last_reply = self.claimant.session.settings.reply_timeout(ttl);
        self.claimant.session.watchdog.attend(last_reply, move || {
            undo();
            if let Some(ticket) = ticket {
                registry.leave(names.local(), &ticket);
            }
        })
    }

    /// Undoes a ballot whose value the next one may have, too.
    fn take_back(&mut self, ballot: &mut Ballot) {
        if self.claimant.options.value.is_some() {
            self.undone = ballot.undo(self.waiter.is_try());
        }
    }

    /// What a ballot means for this acquire.
    fn conclude(&mut self, verdict: Verdict, mut ballot: Ballot) -> Result<Tried, LockError> {
        if !matches!(verdict, Verdict::Held(_)) {
            self.take_back(&mut ballot);
        }
        match verdict {
            Verdict::Held(grant) => self.granted(grant, ballot.field().to_owned(), ballot.ttl()),
            Verdict::Conflict => Err(LockError::Conflict { key: self.claimant.names.lock.clone() }),
            Verdict::Provisioned { causes } => {
                self.provisioned += 1;
                if self.provisioned > MOST_PROVISIONED {
                    // Written and gone each time.
                    return self.outage(causes, false);
                }
                Ok(Tried::Wait(Pause::None))
            }
            Verdict::Busy { free_in, split } => {
                self.claimant.session.registry.end_outage(self.claimant.names.local());
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
            // One node's word: it ends no outage.
            Verdict::Behind { free_in } => Ok(Tried::Wait(Pause::Busy(Some(free_in)))),
            Verdict::Unavailable { causes, permanent } => self.outage(causes, permanent),
        }
    }

    /// A quorum granted it.
    fn granted(&mut self, mut grant: Grant, field: String, ttl: Duration) -> Result<Tried, LockError> {
        self.claimant.session.registry.end_outage(self.claimant.names.local());
        self.waiter.won();
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
        let (quorum, events) = (self.claimant.session.quorum.clone(), self.claimant.session.events.clone());
        let handle = Arc::downgrade(&self.claimant.handle);
        let tenure = Tenure::new(terms, grant, claim.clone(), handle, quorum, events);
        if self.would_block() {
            tenure.give_back();
            return Ok(Tried::Wait(Pause::Turn));
        }
        let session = &self.claimant.session;
        let alone = if self.claimant.primitive.family() == Family::Semaphore {
            session.register(&tenure);
            true
        } else {
            session.register_first(&tenure)
        };
        if !alone {
            // Another call of the same owner got its own grant at the same time: this one nests in that tenure.
            tenure.give_back();
            return Ok(Tried::Wait(Pause::None));
        }
        let lease = Lease::new(&self.claimant.session, tenure.clone(), claim);
        if self.claimant.session.is_closed() {
            // Closed meanwhile: the lease drops, and so is released.
            return Err(LockError::Closed);
        }
        let waited = self.waiter.waited();
        (self.claimant.session.events)(&Event::Acquired { name: self.claimant.name(), token: tenure.token(), waited });
        self.settle();
        Ok(Tried::Lease(lease))
    }

    /// It has its lease: others come next, also while that is offered, and the process may end.
    fn settle(&mut self) {
        self.waiter.leave();
        // The nodes that let it in know.
        if let Some(intent) = self.intent.take() {
            intent.forget();
        }
        self.pending = None;
    }

    /// Whether the thread that would have to take it stands still, and waits for the same lock.
    fn would_block(&self) -> bool {
        let thread = self.claimant.request.thread.filter(|_| !self.claimant.request.blocking);
        thread.is_some_and(|thread| self.claimant.session.registry.is_blocked(self.claimant.names.local(), thread))
    }

    /// Too few nodes answered.
    fn outage(&mut self, causes: Vec<NodeCause>, permanent: bool) -> Result<Tried, LockError> {
        self.answered = false;
        let error = self.claimant.session.quorum.unavailable(causes.clone());
        if permanent || self.waiter.is_try() {
            return Err(error);
        }
        let patience = self.claimant.session.settings.config.patience;
        let patience = self.claimant.request.wait.map_or(patience, |wait| wait.min(patience));
        let silent_since = self.claimant.session.registry.note_outage(self.claimant.names.local(), causes);
        if silent_since.elapsed() >= patience && self.waiter.waited() >= patience {
            return Err(error);
        }
        Ok(Tried::Wait(Pause::Silent))
    }

    fn timed_out(&self) -> LockError {
        // An outage is never reported as contention.
        let (key, quorum) = (self.claimant.names.local(), &self.claimant.session.quorum);
        match self.claimant.session.registry.outage(key) {
            Some(outage) if !self.answered => quorum.unavailable(outage.causes),
            // Those before it in the queue wait for the first answer of all.
            None if !self.waiter.is_try()
                && !self.answered
                && !self.waiter.is_first()
                && self.claimant.session.registry.is_unknown(key) =>
            {
                quorum.unavailable(quorum.unheard())
            }
            _ => LockError::Timeout { name: self.claimant.name(), waited: self.waiter.waited() },
        }
    }

    fn unanswered(&self, silent: Vec<NodeCause>) -> LockError {
        if self.answered {
            return LockError::Timeout { name: self.claimant.name(), waited: self.waiter.waited() };
        }
        // What a node said last tells more than that it has not answered yet.
        let known = self
            .claimant
            .session
            .registry
            .outage(self.claimant.names.local())
            .map(|outage| outage.causes)
            .unwrap_or_default();
        let last = |silent: NodeCause| known.iter().find(|cause| cause.node == silent.node).cloned().unwrap_or(silent);
        self.claimant.session.quorum.unavailable(silent.into_iter().map(last).collect())
    }
}
