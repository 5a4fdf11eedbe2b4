//! One waiter: its entry in this client's queue, its time limit and its pauses. A pause ends with a message, when the
//! holder's lease expires, when the waiter becomes the first in the queue, or with a poll. A waiter knows the name that it
//! waits for as [`Wanted`], and nothing of primitives, tenures and leases.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Weak, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::{
    backoff,
    listener::{Listener, MessageCounts},
    placed_waiters::PlacedWaiter,
    queued_waiter::QueuedWaiter,
    registry::{Holding, Registry},
    until::Pause,
};
use crate::{
    owner::OwnerKey,
    process::timer,
    protocol::{admission::Admission, names::Names},
    quorum::{BELIEVED_ALONE, Quorum},
};

/// The wait is over. A try does not wait: each of its pauses ends with this at once.
pub(crate) struct TimedOut;

/// What a waiter waits for.
pub(crate) struct Wanted {
    pub(crate) names: Arc<Names>,
    /// How it meets the other waiters of this client.
    pub(crate) admission: Admission,
    /// Whether every release is announced, so that polls are rarely needed.
    pub(crate) announces: bool,
}

pub(crate) struct Waiter<T: Holding> {
    pub(super) registry: Arc<Registry<T>>,
    pub(super) quorum: Arc<Quorum>,
    pub(super) wanted: Wanted,
    /// How long it waits at most; `None` for no limit.
    pub(super) wait: Option<Duration>,
    /// On the clock of timers: setting the wall clock ends no wait.
    started: Instant,
    /// Its entry in this client's queue.
    queued: Option<Arc<QueuedWaiter>>,
    /// The number of split votes in a row.
    splits: u32,
    /// The number of tries after `Busy` pauses. In each it races against other waiters.
    races: u32,
    /// Whether others are about to try, too: it was woken by a release, the votes were split, or rivals are known.
    contended: bool,
    /// What the listener had counted before the last try; `None` without a listener.
    before_try: Option<BeforeTry>,
    /// Its place in the lock's queue on the server.
    placed: Option<PlacedWaiter>,
    /// Whether a quorum answered the last try.
    pub(super) answered: bool,
}

/// What a listener had counted before a try. Another one, which may replace it before the wait, counts from 0.
struct BeforeTry {
    listener: Weak<Listener>,
    /// `None` if it could miss messages then.
    counts: Option<MessageCounts>,
    /// The total, even if it could miss messages then.
    total: u64,
}

impl BeforeTry {
    fn of(listener: &Arc<Listener>) -> Self {
        Self { listener: Arc::downgrade(listener), counts: listener.counts(), total: listener.total() }
    }
}

impl<T: Holding> Drop for Waiter<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<T: Holding> Waiter<T> {
    pub(crate) fn new(registry: Arc<Registry<T>>, quorum: Arc<Quorum>, wanted: Wanted, wait: Option<Duration>) -> Self {
        Self {
            registry,
            quorum,
            wanted,
            wait,
            started: Instant::now(),
            queued: None,
            splits: 0,
            races: 0,
            contended: false,
            before_try: None,
            placed: None,
            answered: false,
        }
    }

    /// The lock's key in the registry.
    pub(super) fn key(&self) -> &str {
        self.wanted.names.local()
    }

    /// How long it has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether it makes one attempt and does not wait.
    pub(crate) fn is_try(&self) -> bool {
        self.wait == Some(Duration::ZERO)
    }

    fn left(&self) -> Option<Duration> {
        self.wait.map(|wait| wait.saturating_sub(self.waited()))
    }

    /// Whether its wait is over.
    pub(crate) fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }

    /// The time limit of one attempt: the rest of the wait. A `try` has no limit but the time-outs of its replies.
    pub(crate) fn limit(&self) -> Duration {
        match self.left() {
            Some(left) if !self.is_try() => left,
            _ => Duration::from_secs(365 * 86_400),
        }
    }

    /// Whether no waiter of this client is before it: it is first in the queue, or it is a try and not in the queue.
    pub(crate) fn may_go(&self) -> bool {
        self.queued.as_ref().is_none_or(|queued| queued.first.load(SeqCst))
    }

    /// Whether it and all waiters before it may hold the lock at the same time, and none of those was denied its units.
    pub(crate) fn is_behind_sharers(&self) -> bool {
        self.queued.as_ref().is_some_and(|queued| self.registry.may_share(self.key(), queued))
    }

    /// Enters this client's queue, unless it is in it. `blocked`: the thread is blocked until the lock is granted, and
    /// goes ahead of its own tasks.
    pub(crate) fn enqueue(&mut self, owner: &OwnerKey, thread: Option<u64>, blocked: bool) {
        if self.queued.is_none() {
            self.queued =
                Some(self.registry.enqueue(self.key(), (owner.clone(), self.wanted.admission), thread, blocked));
        }
    }

    /// Leaves this client's queue, and its waiters with a place on the server.
    pub(crate) fn leave(&mut self) {
        self.placed = None;
        if let Some(queued) = self.queued.take() {
            self.registry.leave(self.key(), &queued);
        }
    }

    /// Its entry in this client's queue, so that the supervisor can remove it from there.
    pub(crate) fn queued(&self) -> Option<Arc<QueuedWaiter>> {
        self.queued.clone()
    }

    /// Starts a try: messages from now on end the pause that follows it.
    pub(crate) fn begin_try(&mut self) {
        let listener = self.registry.existing_listener(self.key());
        self.before_try = listener.as_ref().map(BeforeTry::of);
        let begins = self.races == 0 && self.splits == 0 && !self.is_try();
        self.contended |= begins && listener.is_some_and(|listener| listener.has_rivals());
    }

    /// What this listener had counted before the last try; `None` if there was none, or another one.
    fn before_try_of(&self, listener: &Arc<Listener>) -> Option<&BeforeTry> {
        self.before_try.as_ref().filter(|before| before.listener.as_ptr() == Arc::as_ptr(listener))
    }

    /// Whether others are about to try, too, and there is time to send a request to the first node before the others.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended && self.left().is_none_or(|left| left > BELIEVED_ALONE)
    }

    /// Whether it has a place in the lock's queue on the server, and no waiter of this client is before it there.
    pub(crate) fn is_placed_first(&self) -> bool {
        self.placed.as_ref().is_some_and(PlacedWaiter::is_first)
    }

    /// Notes that it was granted its permit without a request.
    pub(crate) fn note_delivered(&mut self) {
        if let Some(placed) = &mut self.placed {
            placed.note_delivered();
        }
    }

    /// Whether it has a place in the lock's queue on the server.
    pub(crate) fn is_placed(&self) -> bool {
        self.placed.is_some()
    }

    /// Whether it must send a request now: for a place in the lock's queue, or to confirm the places of this client.
    pub(crate) fn is_due(&self) -> bool {
        self.placed.as_ref().is_none_or(PlacedWaiter::is_due)
    }

    /// Takes the place that the server gave it: its ticket number in the lock's queue, and how many entries are ahead.
    /// `retry_after`: after which time to send the next request even without a message, as the server replied.
    pub(crate) fn take_place(&mut self, client: &str, ticket: i64, ahead: u64, retry_after: Option<Duration>) {
        let Some(queued) = &self.queued else { return };
        let start = || Listener::start(&self.quorum, &self.wanted.names, Some(client));
        let all = self.registry.placed_waiters(self.key(), self.wanted.admission, start);
        if let Some(known) = self.placed.take_if(|known| known.ticket() != ticket) {
            known.note_lost_place();
        }
        let total_before = self.before_try_of(&all.0).map_or(0, |before| before.total);
        let retry_after = backoff::before_queue_request(self.wanted.announces, ahead, retry_after);
        self.placed
            .get_or_insert_with(|| PlacedWaiter::new(all, ticket, queued.clone()))
            .note_waiting(total_before, retry_after);
    }

    /// Leaves the waiters with a place on the server: its place became a grant, which is given back. The next of them sends
    /// the requests.
    pub(crate) fn leave_place(&mut self) {
        self.placed = None;
    }

    /// Notes that it was granted the lock: wakes the others that are admitted with it, and records the lost races.
    pub(crate) fn note_grant(&mut self) {
        if let Some(placed) = self.placed.as_mut().filter(|_| self.wanted.admission.admits_all()) {
            placed.wake_others();
        }
        if self.races > 0 {
            self.registry.note_lost_races(self.key(), self.races - 1);
        }
    }

    /// Waits until another try may have a different result. Fails if the wait is over.
    pub(crate) async fn pause(&mut self, pause: Pause) -> Result<(), TimedOut> {
        self.contended = matches!(pause, Pause::Split | Pause::Busy(_));
        match pause {
            Pause::No => Ok(()),
            Pause::NotFirst => self.until(pin!(std::future::pending())).await,
            Pause::Held(mut ended) => self.until(ended.as_mut()).await,
            Pause::Split => {
                self.splits += 1;
                self.until(pin!(timer::brief(backoff::after_split(self.splits)))).await
            }
            Pause::Outage => self.until(pin!(sleep(Duration::from_millis(100 + fastrand::u64(0..50))))).await,
            Pause::Placed => match &self.placed {
                Some(placed) => self.until(pin!(placed.due())).await,
                None => Ok(()),
            },
            Pause::Busy(free_in) => {
                self.splits = 0;
                if let Some(queued) = self.queued.as_ref().filter(|_| self.wanted.admission.is_counted()) {
                    queued.denied.store(true, SeqCst);
                }
                let start = || Listener::start(&self.quorum, &self.wanted.names, None);
                let listener = self.registry.listener(self.key(), start);
                let until_poll = backoff::before_poll(self.wanted.announces, free_in);
                let (news, mut polls) = (self.news(&listener), false);
                self.until(pin!(async { polls = timeout(until_poll, news).await.is_err() })).await?;
                // After a poll it sends its requests to all nodes at once: the first node may have missed a release.
                self.contended = !polls;
                self.races += 1;
                Ok(())
            }
        }
    }

    /// Resolves when the lock may be free.
    async fn news(&self, listener: &Arc<Listener>) {
        let Some(counts) = self.before_try_of(listener).and_then(|before| before.counts) else {
            // A release may have come before the subscription: try again once subscribed.
            return listener.ready().await;
        };
        listener.news(counts).await;
        if self.quorum.nodes.len() > 1 {
            // The release reaches all nodes at about the same time. The node that gets the next request first matters
            // most.
            let _ = timeout(Duration::from_millis(1), listener.news_of_first(counts)).await;
        }
        timer::brief(backoff::after_release(self.races, listener.has_rivals())).await;
    }

    /// Waits for `event`, for a wake-up, or for the end of the wait. Takes `Pin<&mut>`: passed by value, each nested
    /// async fn would store the future again, and thousands may wait.
    async fn until(&self, event: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Result<(), TimedOut> {
        let Some(queued) = &self.queued else { return Err(TimedOut) };
        let woken = async {
            tokio::select! {
                biased;
                () = queued.wake.notified() => {}
                () = event => {}
            }
        };
        match self.left() {
            None => woken.await,
            Some(left) => {
                if timeout(left, woken).await.is_err() && self.is_over() {
                    return Err(TimedOut);
                }
            }
        }
        Ok(())
    }
}
