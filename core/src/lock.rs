//! A lock: a name and how to take it. Here an acquire is decided: nested or new, alone or queued, tried once or until
//! its wait is over.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use futures_util::future::Either;
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use crate::{
    answer::{self, End},
    config::{LockOptions, NEVER, Ttl, check_owner},
    error::{LockError, LostReason, NodeCause},
    event::Event,
    hold::{Claim, Fate, Hold, ReleaseOutcome, Terms},
    home::{Home, Shared, stay_silent_at_the_end},
    lease::{Begun, Lease, begin_release, extend},
    node::Lane,
    owner::{self, Owner, OwnerKey},
    quorum::{Attempt, Chore, Keys, Verdict},
    runtime::{self, Interrupted},
    table::{Local, Place},
    waiter::{self, Listener},
};

/// How long a caller that gives up drives its own request on, before the background cleans up behind it.
const GRACE: Duration = Duration::from_millis(50);

/// How often an acquire tries at once again because new nodes have just got their markers. Another client may have
/// been at it, but nodes that lose their markers at once must not be asked for ever.
const MOST_READIED: u32 = 3;

/// A lock by name. Cheap to clone; clones are the same lock object.
#[derive(Clone)]
pub struct Lock {
    shared: Arc<Shared>,
    keys: Arc<Keys>,
    options: Arc<LockOptions>,
    /// Alive as long as this lock object is: a tenure it took is renewed for that long.
    handle: Arc<()>,
}

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

/// Who holds a lock, as a quorum saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`.
    pub owner: String,
    /// How long the key lives unless it is renewed; `None` when a peer gave it no ttl.
    pub ttl: Option<Duration>,
    /// The last fencing token; 0 when the holder draws none.
    pub token: u64,
}

impl Lock {
    pub(crate) fn new(shared: Arc<Shared>, name: &str, options: LockOptions) -> Result<Self, LockError> {
        let key = shared.settings.check_lock(name, &options)?;
        let keys = Arc::new(Keys::new(name, key, &shared.settings));
        Ok(Self { shared, keys, options: Arc::new(options), handle: Arc::new(()) })
    }

    /// The name, without the client's prefix.
    pub fn name(&self) -> &str {
        &self.keys.name
    }

    /// How this lock is taken.
    pub fn options(&self) -> &LockOptions {
        &self.options
    }

    /// A request by `owner` with this lock's own wait.
    pub fn request(&self, owner: Owner) -> Request {
        Request { owner, wait: self.options.wait, thread: None, blocking: false }
    }

    /// Takes the lock, waiting for it as long as its options say. Each call is an owner of its own, unless the options
    /// name one. Fails with `timeout`, `unavailable`, `conflict`, `lost` (a nested acquire whose outer lease was lost)
    /// or `closed`. Dropping the future gives up and leaves nothing behind.
    pub fn acquire(&self) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        self.acquire_as(self.request(Owner::Fresh))
    }

    /// Takes the lock if it is free, in one round trip: `None` when somebody holds it.
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Lease>, LockError>> + Send + use<> {
        let pending = self.acquire_as(Request { wait: Some(Duration::ZERO), ..self.request(Owner::Fresh) });
        async move {
            match pending.await {
                Ok(lease) => Ok(Some(lease)),
                Err(LockError::Timeout { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }

    /// `acquire` for a host that names the owner.
    pub fn acquire_as(&self, request: Request) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        let mut acquisition = self.begin_in(Lane::Background, request);
        // What needs no round trip needs no other thread either.
        let begun = match acquisition.as_mut().ok().and_then(Acquisition::nested) {
            Some(lease) => Either::Left(lease),
            None => Either::Right(in_background(see_through(acquisition))),
        };
        async move {
            let (call, result) = match begun {
                Either::Left(lease) => return Ok(lease),
                Either::Right(begun) => begun,
            };
            let lease = result.await.unwrap_or(Err(LockError::Closed));
            drop(call);
            lease
        }
    }

    /// An acquire by one lane, which begins when it is first polled. Dropping it gives up.
    pub(crate) fn acquire_in(
        &self,
        lane: Lane,
        request: Request,
    ) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        see_through(self.begin_in(lane, request))
    }

    fn begin_in(&self, lane: Lane, request: Request) -> Result<Acquisition, LockError> {
        let mut acquisition = self.begin(request)?;
        acquisition.lane = lane;
        // Nesting and the place in the queue are decided in the order of the calls.
        acquisition.seen = Some(acquisition.look());
        Ok(acquisition)
    }

    /// The lane for an event loop that owns its connections.
    pub(crate) fn host_lane(&self, host: u64) -> Lane {
        self.shared.home().map_or(Lane::Background, |home| home.quorum.host_lane(host))
    }

    /// Takes the lock and blocks until it has it. `check` runs every 50 ms and may end the call, which then leaves
    /// nothing behind.
    pub fn acquire_blocking<E: From<LockError>>(
        &self,
        request: Request,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Lease, E> {
        let acquisition = self.begin(request)?;
        let forked = || LockError::Lost { name: self.keys.name.clone(), reason: LostReason::Forked };
        let acquisition = match acquisition.first_try_blocking(check) {
            Ok(Step::Done(lease)) => return Ok(lease?),
            Ok(Step::Wait(acquisition)) => acquisition,
            Err(Interrupted::Check(error)) => return Err(error),
            Err(Interrupted::Forked) => return Err(forked().into()),
        };
        let (call, result) = in_background(see_through(Ok(acquisition)));
        match runtime::block(Lane::Background, result, check) {
            Ok(lease) => Ok(lease.unwrap_or(Err(LockError::Closed))?),
            Err(Interrupted::Check(error)) => Err(error),
            Err(Interrupted::Forked) => {
                std::mem::forget(call);
                Err(forked().into())
            }
        }
    }

    /// Wakes the waiters of the client, as a message does.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn announce(shared: &std::sync::Weak<Shared>) {
        if let Some(home) = shared.upgrade().and_then(|shared| shared.home().ok()) {
            home.table.wake_all();
        }
    }

    /// What `announce` needs.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn listeners(&self) -> std::sync::Weak<Shared> {
        Arc::downgrade(&self.shared)
    }

    /// `acquire_as` in the caller's own task.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn acquire_here(&self, owner: Owner) -> impl Future<Output = Result<Lease, LockError>> + use<> {
        let acquisition = self.begin(self.request(owner)).map(|mut acquisition| {
            acquisition.seen = Some(acquisition.look());
            acquisition
        });
        async move { Box::new(acquisition?).run().await }
    }

    fn begin(&self, request: Request) -> Result<Acquisition, LockError> {
        if let Owner::Explicit(name) = &request.owner {
            check_owner(name)?;
        }
        let owner = self.owner(&request.owner);
        let home = self.shared.home()?;
        Ok(Acquisition {
            _chore: home.quorum.chore(),
            home,
            lane: Lane::Background,
            lock: self.clone(),
            key: owner.key(),
            owner,
            request,
            started: Instant::now(),
            place: None,
            splits: 0,
            races: 0,
            readied: 0,
            answered: false,
            heard: None,
            seen: None,
            paused: None,
            undone: None,
        })
    }

    /// Releases the newest lease: of the owner, or, for owners that are new each time, of this lock object. An
    /// explicit owner without a lease in this process ends all its tenures, wherever they were taken. Fails with
    /// `not_held` when there is none.
    pub fn release(&self, owner: &Owner) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<> {
        self.release_in(Lane::Background, owner)
    }

    pub(crate) fn release_in(
        &self,
        lane: Lane,
        owner: &Owner,
    ) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<> {
        let begun = self.begin_release(owner);
        async move {
            match begun? {
                Ending::Local(begun) => Ok(begun.finish(lane).await),
                Ending::Everywhere(end) => runtime::detached(end).await.unwrap_or(Err(LockError::Closed)),
            }
        }
    }

    /// `release`, blocking; `check` runs every 50 ms and may end the call, not the release.
    pub fn release_blocking<E: From<LockError>>(
        &self,
        owner: &Owner,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<ReleaseOutcome, E> {
        let end = match self.begin_release(owner)? {
            Ending::Local(begun) => return begun.finish_blocking(check),
            Ending::Everywhere(end) => end,
        };
        match runtime::block(Lane::Background, end, check) {
            Ok(outcome) => Ok(outcome?),
            Err(Interrupted::Check(error)) => Err(error),
            Err(Interrupted::Forked) => Ok(ReleaseOutcome::Lost),
        }
    }

    /// What a block of this owner does when it ends: `release_blocking`, and fails with `lost` if the lock was lost.
    pub fn leave_blocking<E: From<LockError>>(
        &self,
        owner: &Owner,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let newest = self.shared.home().ok().and_then(|home| self.newest(&home, &self.owner(owner)));
        let reason = match newest.map(|hold| hold.current_fate()) {
            Some(Fate::Lost(reason)) => reason,
            // If nobody notices a loss before the release does, the key was gone.
            _ => LostReason::Deleted,
        };
        match self.release_blocking(owner, check)? {
            ReleaseOutcome::Lost => Err(LockError::Lost { name: self.keys.name.clone(), reason }.into()),
            ReleaseOutcome::Released | ReleaseOutcome::Unconfirmed => Ok(()),
        }
    }

    fn owner(&self, owner: &Owner) -> Owner {
        if self.options.is_alone() {
            return Owner::Fresh;
        }
        self.options.owner.clone().map_or_else(|| owner.clone(), Owner::Explicit)
    }

    fn begin_release(
        &self,
        owner: &Owner,
    ) -> Result<Ending<impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<>>, LockError> {
        let home = self.shared.home()?;
        let unheld = |detail: &str| LockError::NotHeld { name: self.keys.name.clone(), detail: detail.to_owned() };
        let owner = self.owner(owner);
        if let Some(hold) = self.newest(&home, &owner)
            && let Some(claim) = hold.newest_claim()
        {
            return begin_release(&home, &hold, &claim)
                .map(Ending::Local)
                .map_err(|_| unheld("the lease was detached"));
        }
        let Owner::Explicit(name) = owner else {
            return Err(unheld("released by an owner that does not hold it"));
        };
        let (keys, nobody) = (self.keys.clone(), unheld("its owner holds it nowhere"));
        Ok(Ending::Everywhere(async move {
            let ended = end(&home, &keys, Some(&name)).await?;
            if ended { Ok(ReleaseOutcome::Released) } else { Err(nobody) }
        }))
    }

    fn newest(&self, home: &Home, owner: &Owner) -> Option<Arc<Hold>> {
        let handle = Arc::downgrade(&self.handle);
        match owner {
            Owner::Fresh => home.table.newest(&self.keys.lock, |hold| hold.taken_by(&handle)),
            known => {
                let key = known.key();
                home.table.newest(&self.keys.lock, |hold| hold.terms.owner == key)
            }
        }
    }

    /// Whether this owner (for owners that are new each time: this lock object) holds the lock, by this client's
    /// clock; no round trip.
    pub fn owned(&self, owner: &Owner) -> bool {
        self.token(owner).is_some()
    }

    /// The fencing token of what this owner (for owners that are new each time: this lock object) holds, by this
    /// client's clock; no round trip.
    pub fn token(&self, owner: &Owner) -> Option<u64> {
        let home = self.shared.home().ok()?;
        self.newest(&home, &self.owner(owner)).filter(|hold| hold.is_held()).map(|hold| hold.token)
    }

    /// Whether anybody holds the lock, decided by a quorum.
    pub fn locked(&self) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let info = self.inspect();
        async move { Ok(info.await?.is_some()) }
    }

    /// Who holds the lock, decided by a quorum: `None` when nobody does.
    pub fn inspect(&self) -> impl Future<Output = Result<Option<LockInfo>, LockError>> + Send + use<> {
        let (home, keys) = (self.shared.home(), self.keys.clone());
        async move {
            let home = home?;
            runtime::detached(async move { inspect(&home, &keys).await }).await.unwrap_or(Err(LockError::Closed))
        }
    }
}

enum Ending<F> {
    /// A lease of this process.
    Local(Begun),
    /// The tenures of an explicit owner.
    Everywhere(F),
}

/// Ends the tenures of an explicit owner, or everybody's. Says whether there was one.
pub(crate) async fn end(home: &Home, keys: &Keys, owner: Option<&str>) -> Result<bool, LockError> {
    let replies = home.quorum.gather(Lane::Background, &home.quorum.end_call(keys, owner), answer::end).await?;
    if replies.iter().filter(|(_, end)| *end == End::Conflict).count() > home.quorum.spare() {
        return Err(LockError::Conflict { key: keys.lock.clone() });
    }
    Ok(replies.iter().any(|(_, end)| matches!(end, End::Tenures(1..))))
}

async fn inspect(home: &Home, keys: &Keys) -> Result<Option<LockInfo>, LockError> {
    let quorum = &home.quorum;
    let replies = quorum.gather(Lane::Background, &quorum.inspect_call(keys), answer::holders).await?;
    // The nodes that did not answer may hold what is just short of a quorum.
    let unasked = quorum.nodes.len() - replies.len();
    let mut seen: Vec<(&str, usize, Option<Duration>)> = Vec::new();
    let mut token = 0;
    for (_, holders) in &replies {
        token = token.max(holders.counter);
        for field in &holders.fields {
            match seen.iter_mut().find(|(known, ..)| known == field) {
                Some((_, count, longest)) => {
                    *count += 1;
                    *longest = holders.ttl.max(*longest);
                }
                None => seen.push((field, 1, holders.ttl)),
            }
        }
    }
    let holder = seen.into_iter().max_by_key(|(_, count, _)| *count).filter(|(_, n, _)| n + unasked >= quorum.needed());
    Ok(holder.map(|(field, _, ttl)| LockInfo { owner: owner::shown(field), ttl, token }))
}

/// Sees an acquire through.
fn see_through(
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
fn in_background(
    call: impl Future<Output = Result<Lease, LockError>> + Send + 'static,
) -> (AbortOnDrop, oneshot::Receiver<Result<Lease, LockError>>) {
    let (deliver, result) = oneshot::channel();
    let task = runtime::background().spawn(async move {
        // A lease nobody waits for is dropped, and so released.
        let _ = deliver.send(call.await);
    });
    (AbortOnDrop(task.abort_handle()), result)
}

struct AbortOnDrop(AbortHandle);

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
struct Acquisition {
    home: Arc<Home>,
    lane: Lane,
    lock: Lock,
    owner: Owner,
    key: OwnerKey,
    request: Request,
    /// By the clock that timers have: a wall clock that is set ends no wait.
    started: Instant,
    place: Option<Arc<Place>>,
    splits: u32,
    /// How often it tried after a release.
    races: u32,
    /// How often nodes of a new deployment got their markers in this acquire.
    readied: u32,
    /// Whether a quorum answered the last time.
    answered: bool,
    /// How many release messages had come before the last attempt; `None` if some may have been missed.
    heard: Option<u64>,
    /// The process waits for it to end, for a moment.
    _chore: Chore,
    /// What the first look saw, when that was taken before the task ran.
    seen: Option<Result<Next, LockError>>,
    /// What to wait for before anything else, after a try that was made elsewhere.
    paused: Option<Pause>,
    /// Pending while an attempt with the same value may still be on a node, or come there.
    undone: Option<mpsc::Receiver<()>>,
}

#[allow(clippy::large_enum_variant, reason = "lives for one call, on the stack")]
enum Step {
    Done(Result<Lease, LockError>),
    Wait(Acquisition),
}

/// What to do after looking at this client's own tenures.
enum Next {
    Nested(Lease, Arc<Hold>, Option<Duration>),
    Try,
    /// Another owner of this client holds it.
    Behind(Arc<Hold>),
    /// Others of this client are first.
    Queued,
}

impl Drop for Acquisition {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            self.home.table.leave(&self.lock.keys.lock, place);
        }
    }
}

impl Acquisition {
    fn name(&self) -> String {
        self.lock.keys.name.clone()
    }

    fn left(&self) -> Option<Duration> {
        self.request.wait.map(|wait| wait.saturating_sub(self.started.elapsed()))
    }

    fn is_try(&self) -> bool {
        self.request.wait == Some(Duration::ZERO)
    }

    fn is_first(&self) -> bool {
        self.place.as_ref().is_none_or(|place| place.first.load(SeqCst))
    }

    /// Decides what this client can decide by itself.
    fn look(&mut self) -> Result<Next, LockError> {
        if self.home.is_closed() {
            return Err(LockError::Closed);
        }
        let options = &self.lock.options;
        let local = self.home.table.look(&self.lock.keys.lock, &self.key);
        let next = match local {
            Local::Own(hold) => match hold.current_fate() {
                Fate::Held if !options.reentrant => {
                    let detail = "its owner holds it already, and this lock is not re-entrant".to_owned();
                    return Err(LockError::Deadlock { name: self.name(), detail });
                }
                Fate::Held => return Ok(self.nest(&hold)),
                Fate::Lost(_) if mutant!(NestAfterLoss) => return Ok(self.nest(&hold)),
                Fate::Lost(reason) => return Err(LockError::Lost { name: self.name(), reason }),
                Fate::Released | Fate::Detached => Next::Try,
            },
            Local::Other(hold) => {
                let same_thread = self.request.thread.is_some() && hold.terms.thread == self.request.thread;
                if self.request.blocking && same_thread && !self.is_try() {
                    let detail = "another task of the same thread holds it, and cannot release it while the thread is \
                                  blocked"
                        .to_owned();
                    return Err(LockError::Deadlock { name: self.name(), detail });
                }
                Next::Behind(hold)
            }
            // Waiting owners of this client come first; a try does not wait.
            Local::Waited if self.is_try() => Next::Queued,
            Local::Waited | Local::Free => Next::Try,
        };
        if self.is_try() {
            return Ok(next);
        }
        if self.place.is_none() {
            self.place = Some(self.home.table.enqueue(&self.lock.keys.lock, self.key.clone()));
        }
        Ok(if self.is_first() { next } else { Next::Queued })
    }

    /// The lease of an acquire that was nested at first look, and asks no server.
    fn nested(&mut self) -> Option<Lease> {
        match self.seen.take() {
            Some(Ok(Next::Nested(lease, _, None))) => Some(lease),
            other => {
                self.seen = other;
                None
            }
        }
    }

    fn claim_for(&self, ttl: Duration) -> Arc<Claim> {
        Claim::new((!self.lock.options.ttl.is_fixed()).then_some(ttl))
    }

    fn nest(&self, hold: &Arc<Hold>) -> Next {
        let ttl = match self.lock.options.ttl {
            Ttl::Fixed(ttl) => ttl,
            Ttl::Never => NEVER,
            Ttl::Watchdog | Ttl::Adaptive if !hold.terms.fixed => hold.terms.ttl,
            Ttl::Watchdog | Ttl::Adaptive => self.home.settings.config.watchdog,
        };
        let claim = self.claim_for(ttl);
        let extend = hold.claim(&claim, Arc::downgrade(&self.lock.handle), ttl);
        if claim.renews.is_some() {
            self.home.watchdog.reconsider(hold);
        }
        Next::Nested(Lease::new(&self.home, hold.clone(), claim), hold.clone(), extend)
    }

    /// The first try of a blocking caller, on its own connection: what an uncontended acquire costs.
    fn first_try_blocking<E>(mut self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<Step, Interrupted<E>> {
        let lane = self.home.quorum.caller_lane();
        match self.look() {
            Err(error) => return Ok(Step::Done(Err(error))),
            Ok(Next::Nested(lease, hold, Some(ttl))) => {
                let (home, name) = (self.home.clone(), self.name());
                let extended = runtime::block(lane, async { extend(&home, &hold, lane, ttl, &name).await }, check)?;
                return Ok(Step::Done(extended.map(|()| lease)));
            }
            Ok(Next::Nested(lease, ..)) => return Ok(Step::Done(Ok(lease))),
            Ok(Next::Behind(_) | Next::Queued) if self.is_try() => {
                return Ok(Step::Done(Err(self.timed_out())));
            }
            Ok(Next::Behind(_) | Next::Queued) => return Ok(Step::Wait(self)),
            Ok(Next::Try) => {}
        }
        let Some(ttl) = self.home.ttl_at_hand(&self.lock.keys, self.lock.options.ttl) else {
            return Ok(Step::Wait(self));
        };
        if lane == Lane::Background {
            return Ok(Step::Wait(self));
        }
        let (mut attempt, limit) = (self.attempt(ttl), self.limit());
        let mut round = Box::pin(attempt.run(lane, &self.key));
        let in_time = runtime::block(lane, async { timeout(limit, round.as_mut()).await }, check);
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

    fn attempt(&mut self, ttl: Duration) -> Attempt {
        self.heard = self.home.table.heard(&self.lock.keys.lock);
        let (quorum, keys) = (&self.home.quorum, &self.lock.keys);
        match &self.lock.options.value {
            Some(value) => Attempt::of_value(quorum, keys, value.clone(), ttl),
            None => Attempt::new(quorum, keys, self.home.tenures.draw(&self.key), ttl),
        }
    }

    /// Boxed, since a future keeps its argument twice.
    async fn run(mut self: Box<Self>) -> Result<Lease, LockError> {
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
                Next::Nested(lease, hold, Some(ttl)) => {
                    Box::pin(extend(&self.home, &hold, self.lane, ttl, &self.name())).await?;
                    return Ok(lease);
                }
                Next::Behind(hold) => {
                    let mut fate = hold.fate.subscribe();
                    // A released tenure is free only once its release went out, which the outcome tells.
                    let mut outcome = hold.outcome.subscribe();
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
                    let ttl = Box::pin(self.home.ttl(&self.lock.keys, self.lock.options.ttl)).await;
                    let mut attempt = Box::new(self.attempt(ttl));
                    let round = timeout(self.limit(), Box::pin(attempt.run(self.lane, &self.key)));
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
        let limit = self.limit().min(self.home.settings.config.patience);
        if timeout(limit, undone.recv()).await.is_ok() {
            return Ok(());
        }
        let outage = self.home.table.outage(&self.lock.keys.lock);
        Err(self.home.quorum.unavailable(outage.map(|outage| outage.causes).unwrap_or_default()))
    }

    /// Waits for `event`, for a wake-up, or for the end of the wait. The event stays where it is: futures that are handed
    /// on are kept once for each hand, and thousands may wait.
    async fn wait(&self, event: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Result<(), LockError> {
        let Some(place) = &self.place else { return Err(self.timed_out()) };
        let woken = async {
            tokio::select! {
                biased;
                () = place.wake.notified() => {}
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
    fn conclude(&mut self, verdict: Verdict, mut attempt: Attempt) -> Conclusion {
        if self.lock.options.value.is_some() && !matches!(verdict, Verdict::Held(_)) {
            self.undone = attempt.undo(self.is_try());
        }
        let key = &self.lock.keys.lock;
        match verdict {
            Verdict::Held(grant) => {
                self.home.table.end_outage(key);
                if self.races > 0 {
                    self.home.table.won(key, self.races - 1);
                }
                let ttl = attempt.ttl();
                let claim = self.claim_for(ttl);
                let options = &self.lock.options;
                let terms = Terms {
                    keys: self.lock.keys.clone(),
                    owner: self.key.clone(),
                    field: attempt.field().to_owned(),
                    ttl,
                    fixed: options.ttl.is_fixed(),
                    adaptive: options.ttl == Ttl::Adaptive,
                    max_hold: options.max_hold,
                    thread: self.request.thread,
                    identity: self.owner.watch(),
                };
                let (quorum, events) = (self.home.quorum.clone(), self.home.events.clone());
                let handle = Arc::downgrade(&self.lock.handle);
                let hold = Hold::new(terms, grant, claim.clone(), handle, quorum, events);
                if !self.home.settle_first(&hold) {
                    // Another call of the same owner got its own grant at the same time: this one nests in that tenure.
                    hold.give_back();
                    return Conclusion::Pause(Pause::None);
                }
                let lease = Lease::new(&self.home, hold.clone(), claim);
                if self.home.is_closed() {
                    // Closed meanwhile: the lease drops, and so is released.
                    return Conclusion::Failed(LockError::Closed);
                }
                let waited = self.started.elapsed();
                (self.home.events)(&Event::Acquired { name: self.name(), token: hold.token, waited });
                Conclusion::Lease(lease)
            }
            Verdict::Conflict => Conclusion::Failed(LockError::Conflict { key: key.clone() }),
            Verdict::Ready { causes } => {
                self.readied += 1;
                if self.readied > MOST_READIED {
                    // Written and gone each time.
                    return self.conclude(Verdict::Unavailable { causes, permanent: false }, attempt);
                }
                Conclusion::Pause(Pause::None)
            }
            Verdict::Busy { free_in, split } => {
                self.home.table.end_outage(key);
                self.answered = true;
                if self.is_try() {
                    return Conclusion::Failed(self.timed_out());
                }
                if split {
                    attempt.undo(false);
                    self.splits += 1;
                    return Conclusion::Pause(Pause::Split(waiter::backoff(self.splits)));
                }
                self.splits = 0;
                Conclusion::Pause(Pause::Busy(free_in))
            }
            Verdict::Unavailable { causes, permanent } => {
                self.answered = false;
                let error = self.home.quorum.unavailable(causes.clone());
                if permanent || self.is_try() {
                    return Conclusion::Failed(error);
                }
                let patience = self.home.settings.config.patience;
                let patience = self.request.wait.map_or(patience, |wait| wait.min(patience));
                let silent_since = self.home.table.note_outage(key, causes);
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
            Pause::Split(time) => self.wait(pin!(runtime::brief(time))).await,
            Pause::Silent => self.wait(pin!(sleep(Duration::from_millis(100 + fastrand::u64(0..50))))).await,
            Pause::Busy(free_in) => {
                let (quorum, keys) = (&self.home.quorum, &self.lock.keys);
                let listener = self.home.table.listener(&keys.lock, || Listener::start(quorum, &keys.channel));
                let patience = waiter::patience(self.home.settings.config.wire, free_in);
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
                    runtime::brief(waiter::courtesy(self.races, listener.has_rivals())).await;
                };
                self.wait(pin!(async { timeout(patience, news).await.unwrap_or_default() })).await?;
                self.races += 1;
                Ok(())
            }
        }
    }

    fn timed_out(&self) -> LockError {
        // An outage is never reported as contention.
        let key = &self.lock.keys.lock;
        match self.home.table.outage(key) {
            Some(outage) if !self.answered => self.home.quorum.unavailable(outage.causes),
            // Those before it in the queue wait for the first answer of all.
            None if !self.is_try() && !self.is_first() && self.home.table.is_unknown(key) => {
                self.home.quorum.unavailable(self.home.quorum.unheard())
            }
            _ => LockError::Timeout { name: self.name(), waited: self.started.elapsed() },
        }
    }

    fn unanswered(&self, attempt: &Attempt) -> LockError {
        if self.answered {
            return LockError::Timeout { name: self.name(), waited: self.started.elapsed() };
        }
        // What a node said last tells more than that it has not answered yet.
        let known = self.home.table.outage(&self.lock.keys.lock).map(|outage| outage.causes).unwrap_or_default();
        let last = |silent: NodeCause| known.iter().find(|cause| cause.node == silent.node).cloned().unwrap_or(silent);
        self.home.quorum.unavailable(attempt.silent().into_iter().map(last).collect())
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
