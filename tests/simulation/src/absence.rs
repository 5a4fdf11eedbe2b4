//! Users that are away during their calls: no one polls their futures, or their event loops block, and both are dropped
//! or continue after a while. Also leases that pass as texts between all hosts, and are attached once, twice, or only
//! in part.
//!
//! Other runs do none of this, and draw no random numbers for it.

use std::{future::Future, sync::Arc, time::Duration};

use redlock::{
    Lease, Lock, LockError, LockOptions, LostReason, Owner, Request,
    ffi::{Calls, Operation, Outcome, Value, completions::Started},
};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use super::{
    SECOND, Time,
    check::Text,
    host,
    workload::{AFTERMATH, Actor, impatient, note, violated},
    world,
};

/// The number of latest texts that users pick up.
const CURRENT: usize = 6;

/// How a user waits for a call.
pub(super) enum Attention {
    /// Awaits it.
    Whole,
    /// Polls it at times.
    Lapses,
    /// Is an event loop, and drains it at times.
    Host,
}

/// The state of a user that is away at times.
pub(super) struct Absence {
    calls: Calls,
    woken: Arc<Notify>,
    /// The number under which its call is registered as a waiter.
    waits: Option<u64>,
    /// How long the user was away since the call began.
    pub(super) away: Duration,
    /// Whether an event loop made the call.
    by_host: bool,
    /// Whether an event loop's call returned its lease, so that dropping the lease does not release it.
    kept: bool,
    /// The texts that it handed on.
    texts: Vec<usize>,
}

impl Default for Absence {
    fn default() -> Self {
        let woken = Arc::new(Notify::new());
        let wakes = woken.clone();
        let calls = Calls::new(move || wakes.notify_one());
        Self { calls, woken, waits: None, away: Duration::ZERO, by_host: false, kept: false, texts: Vec::new() }
    }
}

impl Absence {
    /// Starts a call. `waits`: its number as a waiter.
    pub(super) fn begin(&mut self, waits: Option<u64>) {
        (self.waits, self.away, self.by_host, self.kept) = (waits, Duration::ZERO, false, false);
    }

    /// Gives up a lease as a user that drops it. A lease from an event loop's call is not released by its drop, so this
    /// abandons it.
    pub(super) fn forget(&self, lease: &Lease) {
        if self.kept {
            lease.abandon();
        }
    }
}

impl Actor {
    /// How the user waits for its next call.
    pub(super) fn attention(&mut self) -> Attention {
        if self.plan.absent == 0.0 || host::here() >= self.plan.calm || !self.chance(self.plan.absent) {
            return Attention::Whole;
        }
        if self.rng.bool() { Attention::Lapses } else { Attention::Host }
    }

    /// Is away for a while, during which it does not count as a waiter. The absence ends with the faults.
    async fn away(&mut self) {
        let left = self.plan.calm.saturating_sub(host::here());
        let longest = [SECOND / 5, 3 * SECOND, 30 * SECOND][self.rng.usize(0..3)];
        let time = Duration::from_nanos(self.rng.u64(0..longest).min(left));
        let number = self.absence.waits;
        let waiting = number.and_then(|number| world::with(|world| world.checks.waiting.remove(&number))?);
        note(self.host, "is away", || format!("for {time:.3?}"));
        let began = Instant::now();
        sleep(time).await;
        self.absence.away += began.elapsed();
        if let (Some(number), Some((host, lock, _))) = (number, waiting) {
            world::with(|world| world.checks.waiting.insert(number, (host, lock, host::here())));
        }
        note(self.host, "is back", String::new);
    }

    /// Polls a call at times, then gives it up or awaits it.
    pub(super) async fn absently<F: Future>(&mut self, call: F) -> Option<F::Output> {
        let mut call = Box::pin(call);
        for _ in 0..self.rng.u32(1..3) {
            if let Some(output) = impatient(call.as_mut(), self.rng.u32(0..6)).await {
                return Some(output);
            }
            self.away().await;
        }
        if self.chance(0.3) {
            return None;
        }
        Some(call.await)
    }

    /// Makes a call as an event loop that blocks at times, and may give it up.
    async fn by_host(&mut self, operation: Operation<'_>) -> Option<Outcome> {
        self.absence.by_host = true;
        let id = match self.absence.calls.start(operation) {
            Ok(Started::Pending(id)) => id,
            Ok(Started::Done(outcome)) => return Some(outcome),
            Err(error) => return Some(Err(error)),
        };
        loop {
            if self.chance(0.4) {
                self.away().await;
            } else {
                self.absence.woken.notified().await;
            }
            let gives_up = self.chance(0.15) && self.absence.calls.abandon(id);
            if gives_up && self.rng.bool() {
                self.away().await;
            }
            // A loop that is woken drains, even if it gave up this call.
            let ended = self.absence.calls.drain().unwrap_or_default();
            if gives_up {
                return None;
            }
            if let Some((_, outcome)) = ended.into_iter().find(|(ended, _)| *ended == id) {
                return Some(outcome);
            }
        }
    }

    /// Acquires as an event loop.
    pub(super) async fn acquire_by_host(&mut self, lock: &Lock, request: Request) -> Option<Result<Lease, LockError>> {
        let outcome = self.by_host(Operation::Acquire(lock, request)).await?;
        self.absence.kept = true;
        leased(outcome)
    }

    /// Ends a lease in one of the ways of this file. Returns false if it did not.
    pub(super) async fn end_absently(&mut self, lock: &Lock, lease: &Arc<Lease>) -> bool {
        if self.plan.absent == 0.0 {
            return false;
        }
        match self.rng.u32(0..4) {
            0 | 1 if lock.options().owner.is_none() => {
                let Some(number) = self.hand_over(lease) else { return false };
                for _ in 0..self.rng.u32(0..4) {
                    // Or at once, while the requests of the attempt that it gave up are in flight.
                    if self.rng.bool() {
                        sleep(Duration::from_millis(self.rng.u64(0..2_000))).await;
                    }
                    self.attach(number).await;
                }
                true
            }
            2 => {
                self.release_absently(lease).await;
                true
            }
            _ => false,
        }
    }

    /// Releases a lease while away at times. The lease must be released all the same.
    async fn release_absently(&mut self, lease: &Arc<Lease>) {
        self.absence.begin(None);
        let outcome = if matches!(self.attention(), Attention::Host) {
            self.by_host(Operation::Release(lease)).await.map(|outcome| format!("{outcome:?}"))
        } else {
            let release = lease.release();
            self.absently(release).await.map(|outcome| format!("{outcome:?}"))
        };
        Self::retire(lease);
        note(self.host, "released absently", || format!("{}: {outcome:?}", lease.name()));
        if lease.held() {
            violated(format!("I3 {} is held after its release", lease.name()));
        }
    }

    /// Records that a lease has no holder.
    pub(super) fn note_detached(&self, lease: &Lease) {
        let life = self.plan.max_ttl.as_nanos() as Time;
        world::with(|world| world.checks.detach(host::here(), lease.owner(), life));
    }

    /// Detaches a lease so that any user may attach it. Returns the number of its text.
    fn hand_over(&mut self, lease: &Arc<Lease>) -> Option<usize> {
        let left = lease.remaining();
        let text = lease.detach().ok()?;
        Self::retire(lease);
        self.note_detached(lease);
        note(self.host, "handed over", || format!("{} with token {}, for {left:.3?}", lease.name(), lease.token()));
        let number = world::with(|world| {
            world.checks.texts.push(Text::new(host::here(), text, lease, left));
            world.checks.texts.len() - 1
        })?;
        self.absence.texts.push(number);
        Some(number)
    }

    /// Sometimes attaches a lease that a user handed on. Returns true if it tried.
    pub(super) async fn take_over(&mut self) -> bool {
        if self.plan.absent == 0.0 || !self.chance(0.35) {
            return false;
        }
        let texts = world::with(|world| world.checks.texts.len()).unwrap_or_default();
        if texts == 0 {
            return false;
        }
        let number = texts - 1 - self.rng.usize(0..texts.min(CURRENT));
        self.attach(number).await;
        true
    }

    /// Attaches a text, and ends the lease if that succeeds.
    async fn attach(&mut self, number: usize) -> Option<Result<(), LockError>> {
        let lease = match self.try_attach(number).await? {
            Ok(lease) => lease,
            Err(error) => return Some(Err(error)),
        };
        if self.chance(0.2) {
            // After this second attach the lease is lost, for this user too.
            let (away, kept) = (self.absence.away, self.absence.kept);
            if let Some(Ok(again)) = self.try_attach(number).await {
                Self::retire(&again);
            }
            (self.absence.away, self.absence.kept) = (away, kept);
        }
        self.update(&lease).await;
        match self.rng.u32(0..5) {
            0 if self.hand_over(&lease).is_some() => {}
            1 if !self.absence.kept => {
                note(self.host, "dropped", || lease.name().to_owned());
                Self::retire(&lease);
            }
            _ => self.release_absently(&lease).await,
        }
        Some(Ok(()))
    }

    /// Attaches a text. May give up at any point, even once it has the lease.
    async fn try_attach(&mut self, number: usize) -> Option<Result<Arc<Lease>, LockError>> {
        let (attempt, text, name) = world::with(|world| {
            let text = world.checks.texts.get_mut(number)?;
            Some((text.begin(host::here(), self.host), text.text.clone(), text.lock.clone()))
        })??;
        let (client, started, began) = (self.client.clone(), host::here(), Instant::now());
        self.absence.begin(None);
        let result = match self.rng.u32(0..8) {
            0 | 1 => self.absently(client.attach(&text, Owner::Fresh)).await,
            2 => impatient(client.attach(&text, Owner::Fresh), self.rng.u32(0..8)).await,
            3 | 4 => {
                let outcome = self.by_host(Operation::Attach(&client, &text, Owner::Fresh)).await;
                self.absence.kept = true;
                outcome.and_then(leased)
            }
            _ => Some(client.attach(&text, Owner::Fresh).await),
        };
        let result = match result {
            // The loop fetched the lease for a caller that had given up.
            Some(Ok(lease)) if self.absence.kept && self.chance(0.2) => {
                lease.abandon();
                self.absence.by_host = false;
                None
            }
            result => result,
        };
        let (elapsed, limit) = (began.elapsed(), self.plan.reply_timeout * 5 + Duration::from_millis(100));
        if elapsed > limit + self.absence.away && !self.was_frozen(started) {
            violated(format!("I8 attaching {name} took {elapsed:?}"));
        }
        // A call that an event loop gave up stays in its queue until the loop drains it or it is withdrawn.
        let queued = result.is_none() && self.absence.by_host;
        let longest = (self.plan.max_ttl / 6).min(Duration::from_secs(5)) + self.plan.reply_timeout * 3;
        let until = if queued { host::here() + longest.mul_f64(1.1).as_nanos() as Time } else { host::here() };
        let earlier = world::with(|world| world.checks.tried(number, self.host, until))?;
        match result {
            None => {
                note(self.host, "gave up", || format!("attaching {name}"));
                None
            }
            Some(Ok(lease)) => {
                let lease = Arc::new(lease);
                note(self.host, "attached", || format!("{name} with token {}", lease.token()));
                let held = lease.held();
                if !held && !self.was_frozen(started) && !self.clock_was_set() {
                    violated(format!("I1 attaching {name} returned a lease that is over"));
                }
                world::with(|world| world.checks.attached(host::here(), &self.plan, number, &lease, held));
                if let Ok(lock) = self.client.lock(&name, LockOptions::default()) {
                    self.track(&lock, &lease);
                }
                Some(Ok(lease))
            }
            Some(Err(error)) => {
                note(self.host, error.code(), || format!("attaching {name}: {error}"));
                // A client's wall clock that is set forward ends its leases, even during an attach. So does an attach
                // that takes longer than the rest of the lease: the client counts that from its request.
                let expired = matches!(error, LockError::Lost { reason: LostReason::Expired, .. });
                let left = world::with(|world| world.checks.left(host::here(), number));
                let too_slow = left.is_some_and(|left| left <= elapsed);
                let ended = expired && (self.clock_was_set() || too_slow);
                // The client had taken the lease, and ends it.
                if expired && too_slow {
                    world::with(|world| world.checks.ended(host::here(), number));
                }
                if let (LockError::Lost { .. }, Some(attempt), false) = (&error, attempt, ended) {
                    world::with(|world| {
                        let (tried, dead) = ((number, attempt, &earlier), world.dead.clone());
                        world.checks.attach_lost((started, host::here()), &self.plan, tried, self.host, &dead);
                    });
                }
                Some(Err(error))
            }
        }
    }

    /// Once the faults are over, every text without a holder can be attached.
    pub(super) async fn settle(&mut self) {
        for number in std::mem::take(&mut self.absence.texts) {
            while world::with(|world| world.checks.texts[number].is_good(host::here())) == Some(true) {
                match self.attach(number).await {
                    Some(Ok(())) => break,
                    // At once, while the requests of the given-up attempt are in flight.
                    None if self.rng.bool() => continue,
                    None | Some(Err(LockError::Lost { .. })) => {}
                    // An attach does not depend on servers that lost their keys, but connections need time to recover.
                    Some(Err(LockError::Unavailable { .. })) if host::here() < self.plan.calm + AFTERMATH => {}
                    Some(Err(error)) => violated(format!("I8 host {} could not attach in peace: {error}", self.host)),
                }
                sleep(Duration::from_millis(self.rng.u64(50..500))).await;
            }
        }
    }
}

fn leased(outcome: Outcome) -> Option<Result<Lease, LockError>> {
    match outcome {
        Ok(Value::Lease(lease)) => Some(Ok(lease)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}
