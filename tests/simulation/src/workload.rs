//! The users of locks. They acquire, nest, extend, detach, give up at any point, read and write a resource with the
//! token, and release in every way there is. Each user is a task of its host's runtime and has its own random numbers.
//! [`absence`](super::absence) has what they do while they are away.

use std::{
    cell::RefCell,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use fastrand::Rng;
use redlock::{Client, Identity, Lease, Lock, LockError, LockOptions, Owner, ReleaseOutcome, Request, Ttl};
use tokio::time::{Instant, sleep, timeout};

use super::{
    SECOND, Time,
    absence::{Absence, Attention},
    check::slot_name,
    host,
    plan::Plan,
    world::{self, Event},
};
use redlock_servers::locked;

/// A lease under observation.
pub struct Tracked {
    /// The host of its user.
    pub host: usize,
    /// The lease, while its user has it.
    pub lease: Arc<Lease>,
    /// Its lock.
    pub lock: String,
    /// Whether a check has found it ended. It must not be held again.
    pub ended: bool,
}

thread_local! {
    /// Every lease that a user has, and those that ended lately.
    pub static LEASES: RefCell<Vec<Tracked>> = const { RefCell::new(Vec::new()) };
}

/// A user.
pub struct Actor {
    pub(super) absence: Absence,
    pub(super) host: usize,
    pub(super) client: Client,
    pub(super) rng: Rng,
    pub(super) locks: usize,
    pub(super) plan: Arc<Plan>,
    pub(super) frozen: Arc<Mutex<Vec<Time>>>,
}

/// Polls a future `polls` times, then gives up: a call can be cancelled at every point at which it waits.
pub(super) struct Impatient<F> {
    future: Pin<Box<F>>,
    polls: u32,
}

impl<F: Future> Future for Impatient<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                if self.polls == 0 {
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }
}

pub(super) fn impatient<F: Future>(future: F, polls: u32) -> Impatient<F> {
    Impatient { future: Box::pin(future), polls }
}

/// The name of a lock.
pub fn lock_name(lock: usize) -> String {
    format!("lock-{lock}")
}

pub(super) fn violated(what: String) {
    world::with(|world| {
        let now = host::here();
        world.checks.violated(now, what);
    });
}

pub(super) fn note(host: usize, what: &'static str, text: impl FnOnce() -> String) {
    world::with(|world| {
        let now = host::here();
        world.checks.count(what);
        world.note(now, (host, what), || format!("host {host} {what} {}", text()));
    });
}

impl Actor {
    /// Uses locks until the faults are over, then acquires each once more, which must succeed.
    pub async fn live(mut self) {
        while host::here() < self.plan.calm {
            self.turn().await;
            let rest = self.rng.u64(0..400);
            sleep(Duration::from_millis(rest)).await;
        }
        self.settle().await;
        for lock in 0..self.locks {
            let mut options = LockOptions::default();
            options.wait = Some(Duration::from_secs(30));
            options.fair = self.plan.fair;
            if self.plan.absent > 0.0 {
                // A lease that was handed on lives for up to `max_ttl`.
                options.wait = Some(Duration::from_secs(30) + self.plan.max_ttl.mul_f64(1.2));
            }
            let name = lock_name(lock);
            let lock = if let Some(permits) = self.plan.permits {
                // All slots at once: none may be lost.
                self.client.semaphore(&name, permits, options).and_then(|semaphore| semaphore.taking(permits))
            } else if self.plan.read_write {
                self.client.read_write_lock(&name, options).map(|both| both.write().clone())
            } else {
                self.client.lock(&name, options)
            };
            let Ok(lock) = lock else { return };
            let result = loop {
                let early = host::here() < self.plan.calm + AFTERMATH;
                match self.acquire(&lock, Owner::Fresh).await {
                    // Servers that lost their keys do not vote for a while.
                    Some(Err(LockError::Unavailable { .. })) if early => {
                        sleep(Duration::from_millis(500)).await;
                    }
                    Some(Ok(lease)) => {
                        sleep(Duration::from_millis(5)).await;
                        let outcome = lease.release().await;
                        Self::retire(&lease);
                        // Requests that were slow to arrive still end connections for a while. A host whose clock is
                        // fast begins before a server's clock is set for the last time.
                        let is_disturbed = match outcome {
                            Ok(ReleaseOutcome::Unconfirmed) => true,
                            Ok(ReleaseOutcome::Lost) => self.plan.sets_server_clocks(),
                            _ => false,
                        };
                        if early && is_disturbed {
                            continue;
                        }
                        break Some(Ok(outcome));
                    }
                    Some(Err(error)) => break Some(Err(error)),
                    None => break None,
                }
            };
            match result {
                Some(Ok(Ok(ReleaseOutcome::Released))) => {}
                Some(Ok(outcome)) => {
                    violated(format!("I8 host {} could not release {} in peace: {outcome:?}", self.host, lock.name()));
                }
                // If a server's clock was set back, a dead client's key, a rest and a quarantine last longer, perhaps until
                // the client is closed.
                Some(Err(LockError::Unavailable { .. } | LockError::Timeout { .. } | LockError::Closed))
                    if self.plan.sets_server_clocks() => {}
                other => {
                    let outcome = other.map(|result| result.map(|_| ()));
                    violated(format!("I8 host {} could not take {} in peace: {outcome:?}", self.host, lock.name()));
                }
            }
        }
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.rng.f64() < share
    }

    fn options(&mut self) -> LockOptions {
        let ttl = match self.rng.u32(0..4) {
            0 => Ttl::Fixed(Duration::from_millis(self.rng.u64(50..self.plan.max_ttl.as_millis() as u64))),
            1 if self.plan.watchdog >= Duration::from_secs(1) => Ttl::Adaptive,
            _ => Ttl::Watchdog,
        };
        let wait = match self.rng.u32(0..4) {
            0 => Some(Duration::ZERO),
            1 => Some(Duration::from_millis(self.rng.u64(1..500))),
            _ => Some(Duration::from_millis(self.rng.u64(500..8_000))),
        };
        let mut options = LockOptions::default();
        (options.ttl, options.wait, options.fair) = (ttl, wait, self.plan.fair);
        options.min_hold = self.min_hold(ttl);
        options
    }

    /// A `min_hold` in some of the runs that have any; not above a fixed ttl.
    fn min_hold(&mut self, ttl: Ttl) -> Option<Duration> {
        let mut longest = self.plan.min_hold.filter(|_| self.chance(0.5))?;
        if let Ttl::Fixed(ttl) = ttl {
            longest = longest.min(ttl);
        }
        Some(Duration::from_millis(self.rng.u64(50..=longest.as_millis() as u64)))
    }

    /// A lock by name, or one of the two locks of a read/write lock.
    fn lock(&mut self, name: &str, options: LockOptions) -> Option<Lock> {
        if let Some(permits) = self.plan.permits {
            let n = self.rng.u32(1..=permits);
            return self.client.semaphore(name, permits, options).ok()?.taking(n).ok();
        }
        if !self.plan.read_write {
            return self.client.lock(name, options).ok();
        }
        let both = self.client.read_write_lock(name, options).ok()?;
        Some(if self.chance(0.6) { both.read().clone() } else { both.write().clone() })
    }

    async fn turn(&mut self) {
        if self.take_over().await {
            return;
        }
        let name = lock_name(self.rng.usize(0..self.locks));
        let mut options = self.options();
        if !self.plan.read_write && self.chance(self.plan.owners) {
            options.owner = Some(format!("owner-{}", self.rng.u32(0..2)));
            options.min_hold = None;
        }
        let Some(lock) = self.lock(&name, options) else { return };
        let identity = Identity::new();
        let owner = if self.chance(0.5) { Owner::Ambient(identity.clone()) } else { Owner::Fresh };
        let Some(Ok(lease)) = self.acquire(&lock, owner.clone()).await else { return };
        self.hold(&lock, &owner, lease).await;
        drop(identity);
    }

    /// Acquires, or gives up at any point. A lease must be held, and an error must come in time.
    async fn acquire(&mut self, lock: &Lock, owner: Owner) -> Option<Result<Arc<Lease>, LockError>> {
        let begins_tenure = matches!(owner, Owner::Fresh) && lock.options().owner.is_none();
        let request = Request { owner, ..lock.request(Owner::Fresh) };
        let wait = request.wait;
        let calm = host::here() >= self.plan.calm;
        let (started, began) = (host::here(), Instant::now());
        let slots = self.plan.permits.unwrap_or_default();
        let (number, floor, floors) = world::with(|world| {
            let number = world.rng.u64(..);
            if wait != Some(Duration::ZERO) {
                world.checks.waiting.insert(number, (self.host, lock.name().to_owned(), started));
            }
            let floors = (0..slots).map(|slot| world.checks.largest(&slot_name(lock.name(), slot)));
            (number, world.checks.largest(lock.name()), floors.collect::<Vec<u64>>())
        })?;
        self.absence.begin((wait != Some(Duration::ZERO)).then_some(number));
        let attention = self.attention();
        let is_collected_at_once = matches!(attention, Attention::Whole);
        let result = match attention {
            Attention::Host => self.acquire_by_host(lock, request).await,
            Attention::Lapses => self.absently(lock.acquire_as(request)).await,
            Attention::Whole => {
                let pending = lock.acquire_as(request);
                match self.rng.u32(0..12) {
                    0 if !calm => impatient(pending, self.rng.u32(1..8)).await,
                    1 if !calm => timeout(Duration::from_micros(self.rng.u64(0..300_000)), pending).await.ok(),
                    _ => Some(pending.await),
                }
            }
        };
        world::with(|world| world.checks.waiting.remove(&number));
        let Some(result) = result else {
            note(self.host, "gave up", || format!("acquiring {}", lock.name()));
            return None;
        };
        // I8: the call ends in time, unless its process did not run. A try may have to connect and to wait for replies.
        let round = self.plan.reply_timeout * 4 + Duration::from_millis(100);
        let limit = match wait {
            Some(Duration::ZERO) => round + self.absence.away,
            Some(wait) => wait + round + self.absence.away,
            None => Duration::MAX,
        };
        if began.elapsed() > limit && !self.was_frozen(started) {
            violated(format!("I8 acquiring {} took {:?} with wait {wait:?}", lock.name(), began.elapsed()));
        }
        match result {
            Ok(lease) => {
                let lease = Arc::new(lease);
                let held = lease.held();
                note(self.host, "acquired", || format!("{} with token {}", lock.name(), lease.token()));
                if !held && !self.was_frozen(started) && !self.clock_was_set() {
                    violated(format!("I1 acquiring {} returned a lease that is over", lock.name()));
                }
                if begins_tenure && is_collected_at_once {
                    self.check_rest(lock, &lease);
                }
                self.track(lock, &lease);
                world::with(|world| {
                    let now = host::here();
                    // Under an explicit owner another user may have released the lease that is renewed.
                    // Readers share tokens.
                    let known = lock.options().owner.is_none() && !lease.reads();
                    if !matches!(lock.options().ttl, Ttl::Fixed(_)) && known {
                        world.checks.renewed.insert((lock.name().to_owned(), lease.token()));
                    }
                    if slots > 0 {
                        world.checks.tell_permits_apart(&lease);
                    }
                    if held {
                        world.checks.acquired_after_rest(now, &lease);
                    }
                    if let Some(min_hold) = lock.options().min_hold {
                        world.checks.begin_min_hold(now, &lease, min_hold);
                    }
                    if slots > 0 {
                        return world.checks.told_slots(now, &lease, &floors);
                    }
                    // A nested lease has the token of the outer one.
                    if !world.checks.detached.contains_key(lease.owner()) {
                        world.checks.told(now, &lease, floor);
                    }
                });
                Some(Ok(lease))
            }
            Err(error) => {
                note(self.host, error.code(), || format!("acquiring {}: {error}", lock.name()));
                Some(Err(error))
            }
        }
    }

    /// I1: a new lease has at least a twentieth of its ttl left, also if its process did not run while it was granted.
    fn check_rest(&self, lock: &Lock, lease: &Lease) {
        let ttl = match lock.options().ttl {
            Ttl::Fixed(ttl) => ttl,
            Ttl::Watchdog => self.plan.watchdog,
            // Chosen by the core.
            _ => return,
        };
        let left = lease.remaining();
        if left < ttl / 20 {
            violated(format!("I1 acquiring {} returned a lease with {left:?} of {ttl:?} left", lock.name()));
        }
    }

    pub(super) fn was_frozen(&self, since: Time) -> bool {
        locked(&self.frozen).iter().any(|time| *time >= since)
    }

    pub(super) fn clock_was_set(&self) -> bool {
        self.plan.faults.iter().any(|(_, fault)| matches!(fault, super::plan::Fault::HostClock(..)))
    }

    pub(super) fn track(&self, lock: &Lock, lease: &Arc<Lease>) {
        let tracked = Tracked { host: self.host, lease: lease.clone(), lock: lock.name().to_owned(), ended: false };
        LEASES.with_borrow_mut(|leases| leases.push(tracked));
        // No other owner may hold the lock now.
        world::with(|world| world.at(host::here(), Event::Sample));
    }

    pub(super) fn retire(lease: &Arc<Lease>) {
        LEASES.with_borrow_mut(|leases| leases.retain(|tracked| !Arc::ptr_eq(&tracked.lease, lease)));
    }

    async fn hold(&mut self, lock: &Lock, owner: &Owner, lease: Arc<Lease>) {
        let rounds = self.rng.u32(0..4);
        if self.plan.token_ttl.is_some() && !matches!(lock.options().ttl, Ttl::Fixed(_)) && self.chance(0.1) {
            self.hold_for_long(&lease).await;
        }
        // Most users check the lease before they access the resource. Some do not, and the resource must refuse them.
        let careful = self.chance(0.7);
        for _ in 0..rounds {
            if careful && lease.check().is_err() {
                break;
            }
            match self.rng.u32(0..8) {
                // Users of one explicit owner share a token, so the resource cannot distinguish them.
                0..=3 if lock.options().owner.is_none() => self.update(&lease).await,
                4 if matches!(owner, Owner::Ambient(_)) && self.plan.permits.is_none() => {
                    self.nest(lock, owner, &lease).await;
                }
                5 => {
                    let ttl = Duration::from_millis(self.rng.u64(50..self.plan.max_ttl.as_millis() as u64));
                    let extending = lease.extend(ttl);
                    let outcome = if self.chance(0.2) {
                        impatient(extending, self.rng.u32(1..4)).await
                    } else {
                        Some(extending.await)
                    };
                    note(self.host, "extended", || format!("{}: {outcome:?}", lock.name()));
                }
                6 if self.plan.read_write => self.change(&lease).await,
                _ => {
                    let longest = if self.chance(0.2) { 5_000 } else { 300 };
                    sleep(Duration::from_millis(self.rng.u64(0..longest))).await;
                }
            }
        }
        self.end(lock, lease).await;
    }

    /// Holds the lease for longer than the acquire keeps the counter, but not beyond the faults.
    async fn hold_for_long(&mut self, lease: &Lease) {
        let left = self.plan.calm.saturating_sub(host::here());
        sleep(Duration::from_nanos(self.rng.u64(65 * SECOND..90 * SECOND).min(left))).await;
        if lease.held() && left > 65 * SECOND {
            note(self.host, "held for long", || format!("{} with token {}", lease.name(), lease.token()));
        }
    }

    /// Reads and writes the resource, or reads it twice, with a delay for each request.
    pub(super) async fn update(&mut self, lease: &Lease) {
        let slow = |rng: &mut Rng| {
            let longest = if rng.u32(0..10) == 0 { 2_000_000 } else { 9_000 };
            Duration::from_micros(rng.u64(100..longest))
        };
        let (token, reads) = (lease.token(), lease.reads());
        // Of a permit it is the register of its first slot.
        let slot = lease.slots().first().map(|slot| slot_name(lease.name(), slot.number));
        let lock = slot.as_deref().unwrap_or(lease.name());
        sleep(slow(&mut self.rng)).await;
        let Some(Some(value)) = world::with(|world| world.checks.read(lock, token)) else { return };
        sleep(slow(&mut self.rng)).await;
        world::with(|world| {
            let now = host::here();
            if reads {
                world.checks.count("read twice");
                return world.checks.read_again(now, lock, token, value);
            }
            world.checks.count("wrote");
            world.checks.write(now, lock, token, value);
        });
    }

    /// Upgrades or downgrades, or gives that up.
    async fn change(&mut self, lease: &Arc<Lease>) {
        let (before, reads) = (lease.token(), lease.reads());
        // A downgrade draws no token: it has the one behind its own.
        let anew = || world::with(|world| world.checks.begins_anew(lease)).unwrap_or_default();
        let floor = if reads { anew() } else { before };
        let given_up = self.chance(0.2).then(|| self.rng.u32(1..8));
        let (what, outcome) = if reads {
            let upgrade = lease.try_upgrade();
            let outcome = match given_up {
                Some(polls) => impatient(upgrade, polls).await,
                None => Some(upgrade.await),
            };
            ("upgraded", format!("{outcome:?}"))
        } else {
            let downgrade = lease.downgrade();
            let outcome = match given_up {
                Some(polls) => impatient(downgrade, polls).await,
                None => Some(downgrade.await),
            };
            ("downgraded", format!("{outcome:?}"))
        };
        note(self.host, what, || format!("{}: {outcome}", lease.name()));
        if lease.held() && lease.token() != before {
            world::with(|world| world.checks.told(host::here(), lease, floor));
        }
    }

    /// I9: nested leases share tenure and token, only the last release frees the lock, and nesting in a lost tenure
    /// fails.
    async fn nest(&mut self, lock: &Lock, owner: &Owner, outer: &Arc<Lease>) {
        let held_before = outer.held();
        let started = host::here();
        let inner = lock.acquire_as(Request { owner: owner.clone(), ..lock.request(Owner::Fresh) }).await;
        note(self.host, "nested", || format!("{}: {:?}", lock.name(), inner.as_ref().map(Lease::token)));
        match inner {
            Ok(inner) => {
                if !held_before {
                    violated(format!("I9 nested in a lost hold of {}", lock.name()));
                }
                if inner.token() != outer.token() {
                    violated(format!("I9 the nested lease of {} has another token", lock.name()));
                }
                sleep(Duration::from_millis(self.rng.u64(0..50))).await;
                let held = outer.held();
                // This only decrements the count of claims, and waits for nothing.
                let outcome = inner.release().await;
                if held && matches!(outcome, Ok(ReleaseOutcome::Lost)) && outer.held() {
                    violated(format!("I9 the nested lease of {} was lost alone", lock.name()));
                }
            }
            Err(LockError::Lost { .. } | LockError::Unavailable { .. } | LockError::Closed) => {}
            // The write lock's lease is a reader's by now: a nested acquire would wait for itself.
            Err(LockError::Deadlock { .. } | LockError::Timeout { .. }) if outer.reads() => {}
            Err(error) => {
                if !self.was_frozen(started) {
                    violated(format!("I9 nesting in {} failed: {error}", lock.name()));
                }
            }
        }
    }

    async fn end(&mut self, lock: &Lock, lease: Arc<Lease>) {
        let (started, began) = (host::here(), Instant::now());
        if self.end_absently(lock, &lease).await {
            return;
        }
        match self.rng.u32(0..12) {
            0 => {
                // Dropping the lease releases it in the background.
                note(self.host, "dropped", || lock.name().to_owned());
                Self::retire(&lease);
                return self.absence.forget(&lease);
            }
            1 => {
                let pending = lease.release();
                Self::retire(&lease);
                let outcome = impatient(pending, self.rng.u32(1..4)).await;
                note(self.host, "released impatiently", || format!("{}: {outcome:?}", lock.name()));
                return;
            }
            2 if lock.options().owner.is_none() => {
                if let Ok(text) = lease.detach() {
                    Self::retire(&lease);
                    self.note_detached(&lease);
                    note(self.host, "detached", || lock.name().to_owned());
                    sleep(Duration::from_millis(self.rng.u64(0..200))).await;
                    if self.chance(0.7)
                        && let Ok(again) = self.client.attach(&text, Owner::Fresh).await
                    {
                        let again = Arc::new(again);
                        note(self.host, "attached", || lock.name().to_owned());
                        if again.token() != lease.token() {
                            violated(format!("I2 attaching {} changed its token", lock.name()));
                        }
                        self.track(lock, &again);
                        self.update(&again).await;
                        let _ = again.release().await;
                        Self::retire(&again);
                    }
                    return;
                }
            }
            _ => {}
        }
        let held = lease.held();
        let outcome = lease.release().await;
        Self::retire(&lease);
        if held && matches!(outcome, Ok(ReleaseOutcome::Released)) && self.plan.present() {
            world::with(|world| world.begin_rest(host::here(), &lease));
        }
        note(self.host, "released", || format!("{}: {outcome:?}", lock.name()));
        let limit = self.plan.reply_timeout * 3 + Duration::from_millis(100);
        if began.elapsed() > limit && !self.was_frozen(started) {
            violated(format!("I8 releasing {} took {:?}", lock.name(), began.elapsed()));
        }
        if lease.held() {
            violated(format!("I3 {} is held after its release", lock.name()));
        }
    }
}

/// How long after the faults a client that died or was cut off may still hold a lock.
pub const AFTERMATH: Time = 20 * SECOND;
