//! One waiter: its turn in this client's queue, its time limit and its pauses. A pause ends with a message, the expiry
//! of the lease that was seen, its turn, or a poll. It knows the names of the lock, but nothing of tenures
//! and leases.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::{
    backoff,
    line::InLine,
    listener::{Listener, MessageCounts},
    registry::{Holding, Registry},
    turn::Turn,
};
use crate::{
    owner::OwnerKey,
    process::timer,
    protocol::{names::Names, primitive::Primitive},
    quorum::{BELIEVED_ALONE, Quorum},
    server::BoxFuture,
};

/// Why a waiter cannot try at once, and what it waits for.
pub(crate) enum Pause {
    /// No pause: it can try now.
    No,
    /// Other waiters of this client are first.
    Turn,
    /// Another owner of this client holds the lock until this resolves.
    Held(BoxFuture<()>),
    /// The votes were split: several tried at once, and nobody got a quorum.
    Split,
    /// Too few nodes answer.
    Outage,
    /// Somebody holds the lock; it expires after this time unless it is renewed.
    Busy(Option<Duration>),
    /// It has a place in the lock's queue on the server.
    Line,
}

/// The wait is over. So is that of a try: it has no place in the queue and never pauses.
pub(crate) struct Over;

pub(crate) struct Waiter<T: Holding> {
    registry: Arc<Registry<T>>,
    quorum: Arc<Quorum>,
    primitive: Primitive,
    names: Arc<Names>,
    /// How long it waits at most; `None` for no limit.
    wait: Option<Duration>,
    /// On the clock of timers: setting the wall clock ends no wait.
    started: Instant,
    /// Its entry in this client's queue.
    turn: Option<Arc<Turn>>,
    /// The number of split votes in a row.
    splits: u32,
    /// The number of `Busy` pauses that ended before the wait was over. Each is followed by a try, in a race with
    /// others.
    races: u32,
    /// Whether others are about to try, too: it was woken by a release, the votes were split, or rivals are known.
    contended: bool,
    /// The listener's counts before the last try; `None` if it may have missed a message.
    counts_if_complete: Option<MessageCounts>,
    /// The listener's count of all messages before the last try, even if it may have missed one.
    count_before: u64,
    /// Its place in the lock's queue on the server.
    line: Option<InLine>,
}

impl<T: Holding> Drop for Waiter<T> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<T: Holding> Waiter<T> {
    pub(crate) fn new(
        registry: Arc<Registry<T>>,
        quorum: Arc<Quorum>,
        primitive: Primitive,
        names: Arc<Names>,
        wait: Option<Duration>,
    ) -> Self {
        Self {
            registry,
            quorum,
            primitive,
            names,
            wait,
            started: Instant::now(),
            turn: None,
            splits: 0,
            races: 0,
            contended: false,
            counts_if_complete: None,
            count_before: 0,
            line: None,
        }
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

    /// Whether no waiter of this client is before it: it is first in the queue, or it is a try and has no turn.
    pub(crate) fn may_go(&self) -> bool {
        self.turn.as_ref().is_none_or(|turn| turn.first.load(SeqCst))
    }

    /// Whether it and all waiters before it may hold the lock at the same time.
    pub(crate) fn is_behind_sharers(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| self.registry.may_share(self.names.local(), turn))
    }

    /// Enters this client's queue, unless it is in it. `blocked`: the thread is blocked until the lock is
    /// granted, and goes ahead of its own tasks.
    pub(crate) fn enqueue(&mut self, owner: &OwnerKey, thread: Option<u64>, blocked: bool) {
        if self.turn.is_none() {
            self.turn = Some(self.registry.enqueue(
                self.names.local(),
                (owner.clone(), self.primitive.is_shared()),
                thread,
                blocked,
            ));
        }
    }

    /// Leaves this client's queue, and the line of those with a place on the server.
    pub(crate) fn leave(&mut self) {
        self.line = None;
        if let Some(turn) = self.turn.take() {
            self.registry.leave(self.names.local(), &turn);
        }
    }

    /// Its turn in this client's queue, so that the supervisor can remove it from there.
    pub(crate) fn turn(&self) -> Option<Arc<Turn>> {
        self.turn.clone()
    }

    /// Starts a try: messages from now on end the pause that follows it.
    pub(crate) fn begin_try(&mut self) {
        let listener = self.registry.existing_listener(self.names.local());
        self.counts_if_complete = listener.as_ref().and_then(|listener| listener.counts());
        self.count_before = listener.as_ref().map_or(0, |listener| listener.count());
        let begins = self.races == 0 && self.splits == 0 && !self.is_try();
        self.contended |= begins && listener.is_some_and(|listener| listener.has_rivals());
    }

    /// Whether others are about to try, too, and there is time to send a request to the first node before the others.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended && self.left().is_none_or(|left| left > BELIEVED_ALONE)
    }

    /// Whether it has a place in the lock's queue on the server.
    pub(crate) fn is_placed(&self) -> bool {
        self.line.is_some()
    }

    /// Whether it must send a request for a place in the lock's queue, or about the one it has.
    pub(crate) fn is_due(&self) -> bool {
        self.line.as_ref().is_none_or(InLine::is_due)
    }

    /// Takes the place that the server gave it: its ticket number in the lock's queue, and how many entries are ahead.
    /// `check_in`: after how long something may have to be done that no message announces.
    pub(crate) fn take_place(&mut self, client: &str, ticket: i64, ahead: u64, check_in: Option<Duration>) {
        let Some(turn) = &self.turn else { return };
        let start = || Listener::start(&self.quorum, &self.names, Some(client));
        let line = self.registry.line(self.names.local(), self.primitive, start);
        if let Some(known) = self.line.take_if(|known| known.ticket() != ticket) {
            known.note_lost_place();
        }
        let check_in = backoff::before_request_in_line(self.quorum.protocol.announces(self.primitive), ahead, check_in);
        self.line
            .get_or_insert_with(|| InLine::new(line, ticket, turn.clone()))
            .note_waiting(self.count_before, check_in);
    }

    /// Notes that it was granted the lock: wakes other readers, and records the lost races.
    pub(crate) fn note_grant(&mut self) {
        if let Some(line) = self.line.as_mut().filter(|_| self.primitive.reads()) {
            // The other readers may be granted it, too.
            line.wake_others();
        }
        if self.races > 0 {
            self.registry.note_lost_races(self.names.local(), self.races - 1);
        }
    }

    /// Waits until there is a reason to try again. Fails if the wait is over.
    pub(crate) async fn pause(&mut self, pause: Pause) -> Result<(), Over> {
        self.contended = matches!(pause, Pause::Split | Pause::Busy(_));
        match pause {
            Pause::No => Ok(()),
            Pause::Turn => self.until(pin!(std::future::pending())).await,
            Pause::Held(mut ended) => self.until(ended.as_mut()).await,
            Pause::Split => {
                self.splits += 1;
                self.until(pin!(timer::brief(backoff::after_split(self.splits)))).await
            }
            Pause::Outage => self.until(pin!(sleep(Duration::from_millis(100 + fastrand::u64(0..50))))).await,
            Pause::Line => match &self.line {
                Some(line) => self.until(pin!(line.due())).await,
                None => Ok(()),
            },
            Pause::Busy(free_in) => {
                self.splits = 0;
                let start = || Listener::start(&self.quorum, &self.names, None);
                let listener = self.registry.listener(self.names.local(), start);
                let until_poll = backoff::before_poll(self.quorum.protocol.announces(self.primitive), free_in);
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
    async fn news(&self, listener: &Listener) {
        let Some(counts) = self.counts_if_complete else {
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
    async fn until(&self, event: Pin<&mut (dyn Future<Output = ()> + Send)>) -> Result<(), Over> {
        let Some(turn) = &self.turn else { return Err(Over) };
        let woken = async {
            tokio::select! {
                biased;
                () = turn.wake.notified() => {}
                () = event => {}
            }
        };
        match self.left() {
            None => woken.await,
            Some(left) => {
                if timeout(left, woken).await.is_err() && self.is_over() {
                    return Err(Over);
                }
            }
        }
        Ok(())
    }
}
