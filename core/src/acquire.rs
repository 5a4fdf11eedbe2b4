//! One acquire: nested or new, alone or queued, tried once or until its wait is over.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    config::{LockOptions, NEVER, Ttl},
    error::{LockError, NodeCause},
    event::Event,
    lease::{Lease, extend},
    owner::{Owner, OwnerKey},
    process::{
        driver::Driver,
        exit::stay_silent_at_the_end,
        runtime::{self, Interrupted},
        timer,
    },
    protocol::names::Names,
    quorum::{Ballot, PendingWork, Verdict},
    session::Session,
    tenure::{Claim, Fate, Tenure, Terms},
    wait::{
        backoff,
        listener::Listener,
        registry::{Local, Ticket},
    },
};

/// How long a caller that gives up drives its own request on, before the background cleans up behind it.
const GRACE: Duration = Duration::from_millis(50);

/// How often an acquire tries at once again because new nodes have just got their markers. Another client may have
/// been at it, but nodes that lose their markers at once must not be asked for ever.
const MOST_PROVISIONED: u32 = 3;

/// One acquire, as a host asks for it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who acquires. An owner in the lock's options comes first.
    pub owner: Owner,
    /// How long to wait: `None` for ever, zero for one try.
    pub wait: Option<Duration>,
    /// The host's thread, if a blocked acquire blocks it: waiting for a tenure of the same thread is a deadlock.
    pub thread: Option<u64>,
    /// Whether waiting blocks `thread`.
    pub blocking: bool,
}

/// Sees an acquire through.
pub(crate) fn see_through(
    acquisition: Result<Acquisition, LockError>,
) -> impl Future<Output = Result<Lease, LockError>> + Send + 'static {
    // Boxed before it is handed on, as in `wait`.
    let run = acquisition.map(|acquisition| Box::pin(Box::new(acquisition).run()));
    async move {
        let lease = match run {
            Ok(run) => run.await,
            Err(error) => Err(error),
        };
        if let Err(LockError::Closed) = lease {
            stay_silent_at_the_end().await;
        }
        lease
    }
}

/// Runs an acquire in the background until the first of the two is dropped; its result comes out of the second.
pub(crate) fn in_background(
    call: impl Future<Output = Result<Lease, LockError>> + Send + 'static,
) -> (AbortOnDrop, oneshot::Receiver<Result<Lease, LockError>>) {
    let (deliver, result) = oneshot::channel();
    let task = runtime::background().spawn(async move {
        // A lease nobody waits for is dropped, and so released.
        let _ = deliver.send(call.await);
    });
    (AbortOnDrop(task.abort_handle()), result)
}

pub(crate) struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One acquire under way.
///
/// ```text
/// look ─own tenure─▶ nested          ─other tenure here─▶ wait for its end ─▶ look
///      ─first in line─▶ try ─granted─▶ lease   ─busy─▶ listen, try again, wait ─▶ look
///                           ─silence─▶ back off ─▶ look, until patience is over
/// ```
/// Dropped at any point it leaves the queue, and an attempt under way takes back what it took.
pub(crate) struct Acquisition {
    session: Arc<Session>,
    pub(crate) driver: Driver,
    names: Arc<Names>,
    options: Arc<LockOptions>,
    /// Alive as long as the lock object is, and this acquire of it.
    handle: Arc<()>,
    owner: Owner,
    key: OwnerKey,
    request: Request,
    /// By the clock that timers have: a wall clock that is set ends no wait.
    started: Instant,
    ticket: Option<Arc<Ticket>>,
    splits: u32,
    /// How often it tried after a release.
    races: u32,
    /// How often nodes of a new deployment got their markers in this acquire.
    provisioned: u32,
    /// Whether a quorum answered the last time.
    answered: bool,
    /// How many release messages had come before the last attempt; `None` if some may have been missed.
    heard: Option<u64>,
    /// The process waits for it to end, for a moment.
    _pending: PendingWork,
    /// What the first look saw, when that was taken before the task ran.
    pub(crate) seen: Option<Result<Next, LockError>>,
    /// What to wait for before anything else, after a try that was made elsewhere.
    paused: Option<Pause>,
    /// Pending while an attempt with the same value may still be on a node, or come there.
    undone: Option<mpsc::Receiver<()>>,
}

#[allow(clippy::large_enum_variant, reason = "lives for one call, on the stack")]
pub(crate) enum Step {
    Done(Result<Lease, LockError>),
    Wait(Acquisition),
}

/// What to do after looking at this client's own tenures.
pub(crate) enum Next {
    Nested(Lease, Arc<Tenure>, Option<Duration>),
    Try,
    /// Another owner of this client holds it.
    Behind(Arc<Tenure>),
    /// Others of this client are first.
    Queued,
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if let Some(ticket) = &self.ticket {
            self.session.registry.leave(&self.names.lock, ticket);
        }
    }
}

impl Acquisition {
    pub(crate) fn new(
        session: Arc<Session>,
        names: Arc<Names>,
        options: Arc<LockOptions>,
        handle: Arc<()>,
        owner: Owner,
        request: Request,
    ) -> Self {
        Self {
            _pending: session.quorum.pending_work(),
            session,
            driver: Driver::Background,
            names,
            options,
            handle,
            key: owner.key(),
            owner,
            request,
            started: Instant::now(),
            ticket: None,
            splits: 0,
            races: 0,
            provisioned: 0,
            answered: false,
            heard: None,
            seen: None,
            paused: None,
            undone: None,
        }
    }

    fn name(&self) -> String {
        self.names.name.clone()
    }

    fn left(&self) -> Option<Duration> {
        self.request.wait.map(|wait| wait.saturating_sub(self.started.elapsed()))
    }

    fn is_try(&self) -> bool {
        self.request.wait == Some(Duration::ZERO)
    }

    fn is_first(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| ticket.first.load(SeqCst))
    }

    /// Decides what this client can decide by itself.
    pub(crate) fn look(&mut self) -> Result<Next, LockError> {
        if self.session.is_closed() {
            return Err(LockError::Closed);
        }
        let options = &self.options;
        let local = self.session.registry.look(&self.names.lock, &self.key);
        let next = match local {
            Local::Own(tenure) => match tenure.current_fate() {
                Fate::Held if !options.reentrant => {
                    let detail = "its owner holds it already, and this lock is not re-entrant".to_owned();
                    return Err(LockError::Deadlock { name: self.name(), detail });
                }
                Fate::Held => return Ok(self.nest(&tenure)),
                Fate::Lost(_) if mutant!(NestAfterLoss) => return Ok(self.nest(&tenure)),
                Fate::Lost(reason) => return Err(LockError::Lost { name: self.name(), reason }),
                Fate::Released | Fate::Detached => Next::Try,
            },
            Local::Other(_) if self.session.quorum.protocol.primitive.is_shared() => Next::Try,
            Local::Other(tenure) => {
                let same_thread = self.request.thread.is_some() && tenure.terms.thread == self.request.thread;
                if self.request.blocking && same_thread && !self.is_try() {
                    let detail = "another task of the same thread holds it, and cannot release it while the thread is \
                                  blocked"
                        .to_owned();
                    return Err(LockError::Deadlock { name: self.name(), detail });
                }
                Next::Behind(tenure)
            }
            // Waiting owners of this client come first; a try does not wait.
            Local::Waited if self.is_try() => Next::Queued,
            Local::Waited | Local::Free => Next::Try,
        };
        if self.is_try() {
            return Ok(next);
        }
        if self.ticket.is_none() {
            self.ticket = Some(self.session.registry.enqueue(&self.names.lock, self.key.clone()));
        }
        Ok(if self.is_first() { next } else { Next::Queued })
    }

    /// The lease of an acquire that was nested at first look, and asks no server.
    pub(crate) fn nested(&mut self) -> Option<Lease> {
        match self.seen.take() {
            Some(Ok(Next::Nested(lease, _, None))) => Some(lease),
            other => {
                self.seen = other;
                None
            }
        }
    }

    fn claim_for(&self, ttl: Duration) -> Arc<Claim> {
        Claim::new((!self.options.ttl.is_fixed()).then_some(ttl))
    }

    fn nest(&self, tenure: &Arc<Tenure>) -> Next {
        let ttl = match self.options.ttl {
            Ttl::Fixed(ttl) => ttl,
            Ttl::Never => NEVER,
            Ttl::Watchdog | Ttl::Adaptive if !tenure.terms.fixed => tenure.terms.ttl,
            Ttl::Watchdog | Ttl::Adaptive => self.session.settings.config.watchdog,
        };
        let claim = self.claim_for(ttl);
        let extend = tenure.claim(&claim, Arc::downgrade(&self.handle), ttl);
        if claim.renews.is_some() {
            self.session.watchdog.reconsider(tenure);
        }
        Next::Nested(Lease::new(&self.session, tenure.clone(), claim), tenure.clone(), extend)
    }

    /// The first try of a blocking caller, on its own connection: what an uncontended acquire costs.
    pub(crate) fn first_try_blocking<E>(
        mut self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Step, Interrupted<E>> {
        let driver = self.session.quorum.caller_driver();
        match self.look() {
            Err(error) => return Ok(Step::Done(Err(error))),
            Ok(Next::Nested(lease, tenure, Some(ttl))) => {
                let (session, name) = (self.session.clone(), self.name());
                let extended =
                    runtime::block(driver, async { extend(&session, &tenure, driver, ttl, &name).await }, check)?;
                return Ok(Step::Done(extended.map(|()| lease)));
            }
            Ok(Next::Nested(lease, ..)) => return Ok(Step::Done(Ok(lease))),
            Ok(Next::Behind(_) | Next::Queued) if self.is_try() => {
                return Ok(Step::Done(Err(self.timed_out())));
            }
            Ok(Next::Behind(_) | Next::Queued) => return Ok(Step::Wait(self)),
            Ok(Next::Try) => {}
        }
        let Some(ttl) = self.session.ttl_at_hand(&self.names, self.options.ttl) else {
            return Ok(Step::Wait(self));
        };
        if driver == Driver::Background {
            return Ok(Step::Wait(self));
        }
        let (mut attempt, limit) = (self.attempt(ttl), self.limit());
        let mut round = Box::pin(attempt.run(driver, &self.key));
        let in_time = runtime::block(driver, async { timeout(limit, round.as_mut()).await }, check);
        if let Err(Interrupted::Forked) = in_time {
            std::mem::forget(round);
            std::mem::forget((attempt, self));
            return Err(Interrupted::Forked);
        }
        let (verdict, interrupted) = match in_time {
            Ok(Ok(verdict)) => (Some(verdict), None),
            given_up => {
                // The answer is usually on its way, and a known one is easier to undo.
                let late = runtime::caller().block_on(async { timeout(GRACE, round.as_mut()).await });
                (late.ok(), given_up.err())
            }
        };
        drop(round);
        let Some(verdict) = verdict else {
            return interrupted.map_or_else(|| Ok(Step::Done(Err(self.unanswered(&attempt)))), Err);
        };
        if let Some(interrupted) = interrupted {
            // A lease that was granted all the same is dropped here, and so released.
            drop(self.conclude(verdict, attempt));
            return Err(interrupted);
        }
        Ok(match self.conclude(verdict, attempt) {
            Conclusion::Lease(lease) => Step::Done(Ok(lease)),
            Conclusion::Failed(error) => Step::Done(Err(error)),
            Conclusion::Pause(pause) => {
                self.paused = Some(pause);
                Step::Wait(self)
            }
        })
    }

    /// How long one attempt may take: a try as long as its replies, a wait not beyond its end.
    fn limit(&self) -> Duration {
        match self.left() {
            Some(left) if !self.is_try() => left,
            _ => Duration::from_secs(365 * 86_400),
        }
    }

    fn attempt(&mut self, ttl: Duration) -> Ballot {
        self.heard = self.session.registry.heard(&self.names.lock);
        let (quorum, names) = (&self.session.quorum, &self.names);
        match &self.options.value {
            Some(value) => Ballot::of_value(quorum, names, value.clone(), ttl),
            None => Ballot::new(quorum, names, self.session.fields.draw(&self.key), ttl),
        }
    }

    /// Boxed, since a future keeps its argument twice.
    pub(crate) async fn run(mut self: Box<Self>) -> Result<Lease, LockError> {
        if let Some(pause) = self.paused.take() {
            Box::pin(self.pause(pause)).await?;
        }
        loop {
            let next = self.seen.take().unwrap_or_else(|| self.look())?;
            if self.is_try() && matches!(next, Next::Behind(_) | Next::Queued) {
                return Err(self.timed_out());
            }
            match next {
                Next::Nested(lease, _, None) => return Ok(lease),
                Next::Nested(lease, tenure, Some(ttl)) => {
                    Box::pin(extend(&self.session, &tenure, self.driver, ttl, &self.name())).await?;
                    return Ok(lease);
                }
                Next::Behind(tenure) => {
                    let mut fate = tenure.fate.subscribe();
                    // A released tenure is free only once its release went out, which the outcome tells.
                    let mut outcome = tenure.outcome.subscribe();
                    let ended = async {
                        let ended = fate.wait_for(|fate| *fate != Fate::Held).await.map(|fate| *fate);
                        if matches!(ended, Ok(Fate::Released)) {
                            let _ = outcome.wait_for(Option::is_some).await;
                        }
                    };
                    self.wait(pin!(ended)).await?;
                }
                Next::Queued => self.wait(pin!(std::future::pending())).await?,
                Next::Try => {
                    Box::pin(self.undone()).await?;
                    // Boxed, like what follows: thousands may wait, few try.
                    let ttl = Box::pin(self.session.ttl(&self.names, self.options.ttl)).await;
                    let mut attempt = Box::new(self.attempt(ttl));
                    let round = timeout(self.limit(), Box::pin(attempt.run(self.driver, &self.key)));
                    let Ok(verdict) = round.await else { return Err(self.unanswered(&attempt)) };
                    match self.conclude(verdict, *attempt) {
                        Conclusion::Lease(lease) => return Ok(lease),
                        Conclusion::Failed(error) => return Err(error),
                        Conclusion::Pause(pause) => Box::pin(self.pause(pause)).await?,
                    }
                }
            }
        }
    }

    /// Waits until nothing is left of an attempt with the value of the next one: what undoes it cannot tell them apart.
    async fn undone(&mut self) -> Result<(), LockError> {
        let Some(mut undone) = self.undone.take() else { return Ok(()) };
        let limit = self.limit().min(self.session.settings.config.patience);
        if timeout(limit, undone.recv()).await.is_ok() {
            return Ok(());
        }
        let outage = self.session.registry.outage(&self.names.lock);
        Err(self.session.quorum.unavailable(outage.map(|outage| outage.causes).unwrap_or_default()))
    }

    /// Waits for `event`, for a wake-up, or for the end of the wait. The event stays where it is: futures that are handed
    /// on are kept once for each hand, and thousands may wait.
    async fn wait(&self, event: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Result<(), LockError> {
        let Some(ticket) = &self.ticket else { return Err(self.timed_out()) };
        let woken = async {
            tokio::select! {
                biased;
                () = ticket.wake.notified() => {}
                () = event => {}
            }
        };
        match self.left() {
            None => woken.await,
            Some(left) => {
                if timeout(left, woken).await.is_err() && self.left().is_some_and(|left| left.is_zero()) {
                    return Err(self.timed_out());
                }
            }
        }
        Ok(())
    }

    /// What an attempt means for this acquire.
    fn conclude(&mut self, verdict: Verdict, mut attempt: Ballot) -> Conclusion {
        if self.options.value.is_some() && !matches!(verdict, Verdict::Held(_)) {
            self.undone = attempt.undo(self.is_try());
        }
        let key = &self.names.lock;
        match verdict {
            Verdict::Held(grant) => {
                self.session.registry.end_outage(key);
                if self.races > 0 {
                    self.session.registry.won(key, self.races - 1);
                }
                let ttl = attempt.ttl();
                let claim = self.claim_for(ttl);
                let options = &self.options;
                let terms = Terms {
                    names: self.names.clone(),
                    owner: self.key.clone(),
                    field: attempt.field().to_owned(),
                    ttl,
                    fixed: options.ttl.is_fixed(),
                    adaptive: options.ttl == Ttl::Adaptive,
                    max_hold: options.max_hold,
                    thread: self.request.thread,
                    identity: self.owner.watch(),
                };
                let (quorum, events) = (self.session.quorum.clone(), self.session.events.clone());
                let handle = Arc::downgrade(&self.handle);
                let tenure = Tenure::new(terms, grant, claim.clone(), handle, quorum, events);
                if !self.session.register_first(&tenure) {
                    // Another call of the same owner got its own grant at the same time: this one nests in that tenure.
                    tenure.give_back();
                    return Conclusion::Pause(Pause::None);
                }
                let lease = Lease::new(&self.session, tenure.clone(), claim);
                if self.session.is_closed() {
                    // Closed meanwhile: the lease drops, and so is released.
                    return Conclusion::Failed(LockError::Closed);
                }
                let waited = self.started.elapsed();
                (self.session.events)(&Event::Acquired { name: self.name(), token: tenure.token, waited });
                Conclusion::Lease(lease)
            }
            Verdict::Conflict => Conclusion::Failed(LockError::Conflict { key: key.clone() }),
            Verdict::Provisioned { causes } => {
                self.provisioned += 1;
                if self.provisioned > MOST_PROVISIONED {
                    // Written and gone each time.
                    return self.conclude(Verdict::Unavailable { causes, permanent: false }, attempt);
                }
                Conclusion::Pause(Pause::None)
            }
            Verdict::Busy { free_in, split } => {
                self.session.registry.end_outage(key);
                self.answered = true;
                if self.is_try() {
                    return Conclusion::Failed(self.timed_out());
                }
                if split {
                    attempt.undo(false);
                    self.splits += 1;
                    return Conclusion::Pause(Pause::Split(backoff::after_split(self.splits)));
                }
                self.splits = 0;
                Conclusion::Pause(Pause::Busy(free_in))
            }
            Verdict::Unavailable { causes, permanent } => {
                self.answered = false;
                let error = self.session.quorum.unavailable(causes.clone());
                if permanent || self.is_try() {
                    return Conclusion::Failed(error);
                }
                let patience = self.session.settings.config.patience;
                let patience = self.request.wait.map_or(patience, |wait| wait.min(patience));
                let silent_since = self.session.registry.note_outage(key, causes);
                if silent_since.elapsed() >= patience && self.started.elapsed() >= patience {
                    return Conclusion::Failed(error);
                }
                Conclusion::Pause(Pause::Silent)
            }
        }
    }

    async fn pause(&mut self, pause: Pause) -> Result<(), LockError> {
        match pause {
            Pause::None => Ok(()),
            Pause::Split(time) => self.wait(pin!(timer::brief(time))).await,
            Pause::Silent => self.wait(pin!(sleep(Duration::from_millis(100 + fastrand::u64(0..50))))).await,
            Pause::Busy(free_in) => {
                let (quorum, names) = (&self.session.quorum, &self.names);
                let listener = self.session.registry.listener(&names.lock, || Listener::start(quorum, &names.channel));
                let patience = backoff::before_poll(quorum.protocol.primitive, free_in);
                let news = async {
                    let Some(heard) = self.heard else {
                        // A release may have come before the subscription: look again once subscribed.
                        return listener.ready().await;
                    };
                    listener.news(heard, 1).await;
                    if quorum.nodes.len() > 1 {
                        // The release reaches the other nodes at about the same time.
                        let rest = listener.news(heard, quorum.needed() as u64);
                        let _ = timeout(Duration::from_millis(1), rest).await;
                    }
                    timer::brief(backoff::after_release(self.races, listener.has_rivals())).await;
                };
                self.wait(pin!(async { timeout(patience, news).await.unwrap_or_default() })).await?;
                self.races += 1;
                Ok(())
            }
        }
    }

    fn timed_out(&self) -> LockError {
        // An outage is never reported as contention.
        let key = &self.names.lock;
        match self.session.registry.outage(key) {
            Some(outage) if !self.answered => self.session.quorum.unavailable(outage.causes),
            // Those before it in the queue wait for the first answer of all.
            None if !self.is_try() && !self.is_first() && self.session.registry.is_unknown(key) => {
                self.session.quorum.unavailable(self.session.quorum.unheard())
            }
            _ => LockError::Timeout { name: self.name(), waited: self.started.elapsed() },
        }
    }

    fn unanswered(&self, attempt: &Ballot) -> LockError {
        if self.answered {
            return LockError::Timeout { name: self.name(), waited: self.started.elapsed() };
        }
        // What a node said last tells more than that it has not answered yet.
        let known = self.session.registry.outage(&self.names.lock).map(|outage| outage.causes).unwrap_or_default();
        let last = |silent: NodeCause| known.iter().find(|cause| cause.node == silent.node).cloned().unwrap_or(silent);
        self.session.quorum.unavailable(attempt.silent().into_iter().map(last).collect())
    }
}

enum Conclusion {
    Lease(Lease),
    Failed(LockError),
    Pause(Pause),
}

/// Why an acquire has to wait, and what for.
enum Pause {
    /// The next attempt can be made now, even by a try.
    None,
    Split(Duration),
    Silent,
    /// Somebody holds it, for so long if it is not renewed.
    Busy(Option<Duration>),
}
