//! This client's waiters with a place in the queue that a server keeps for a lock, in the order of that queue. Only the
//! first of them sends requests: these confirm the places of all, and no other waiter can be granted the lock next.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{listener::Listener, queued_waiter::QueuedWaiter};
use crate::{quorum::PLACE_TTL, sync::Mutex};

/// The waiters, by the ticket numbers that the server drew for them.
pub(crate) struct PlacedWaiters(Mutex<State>);

struct State {
    waiting: BTreeMap<i64, Arc<QueuedWaiter>>,
    /// The listener's total before the last request of the first waiter.
    total_before_request: u64,
    /// When the first waiter confirms the places of all, even without a message.
    confirm_at: Instant,
    /// When the first waiter must send a request because something may change then that no message announces.
    retry_at: Option<Instant>,
}

impl Default for PlacedWaiters {
    fn default() -> Self {
        Self(Mutex::new(State {
            waiting: BTreeMap::new(),
            total_before_request: 0,
            confirm_at: Instant::now(),
            retry_at: None,
        }))
    }
}

impl State {
    fn is_first(&self, ticket: i64) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }

    /// Wakes the waiter that is first now. `keeps_time`: it sends its request when the one before would have; otherwise only
    /// messages tell it when.
    fn wake_first(&mut self, keeps_time: bool) {
        if !keeps_time {
            self.retry_at = None;
        }
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.wake.notify_one();
        }
    }
}

/// One of these waiters: decides whether it is the one that sends the requests. The requests that take, confirm and
/// give up its place are those of [`Place`](crate::quorum::Place). Dropping this removes it from the others.
pub(crate) struct PlacedWaiter {
    listener: Arc<Listener>,
    all: Arc<PlacedWaiters>,
    ticket: i64,
    waiter: Arc<QueuedWaiter>,
    /// The listener's total before its last request.
    total_before_request: u64,
    /// Whether its permit was delivered.
    delivered: bool,
}

impl PlacedWaiter {
    /// `ticket`: the number that the server drew for its place.
    pub(crate) fn new(
        (listener, all): (Arc<Listener>, Arc<PlacedWaiters>),
        ticket: i64,
        waiter: Arc<QueuedWaiter>,
    ) -> Self {
        Self { listener, all, ticket, waiter, total_before_request: 0, delivered: false }
    }

    /// Notes that it was granted its permit without a request. The next waiter need not send one in its place, either.
    pub(crate) fn note_delivered(&mut self) {
        self.delivered = true;
    }

    /// Whether no waiter of this client is before it.
    pub(crate) fn is_first(&self) -> bool {
        self.all.0.lock().is_first(self.ticket)
    }

    pub(crate) fn ticket(&self) -> i64 {
        self.ticket
    }

    /// Notes the server's reply that it has a place and must wait. `total_before_request`: the listener's total before
    /// that request. `retry_after`: after which time to send the next one if no message comes before.
    pub(crate) fn note_waiting(&mut self, total_before_request: u64, retry_after: Option<Duration>) {
        self.total_before_request = total_before_request;
        let mut state = self.all.0.lock();
        state.waiting.insert(self.ticket, self.waiter.clone());
        // Requests of the others confirm the client's places, too, but do not prove that the first one missed no
        // message.
        if state.is_first(self.ticket) {
            state.total_before_request = state.total_before_request.max(total_before_request);
            state.confirm_at = Instant::now() + PLACE_TTL.mul_f64(0.3 + fastrand::f64() * 0.067);
            state.retry_at = retry_after.map(|retry_after| Instant::now() + retry_after);
        }
    }

    /// Wakes all of these waiters: the server has lost this place, and so theirs. Each requests a new one.
    pub(crate) fn note_lost_place(&self) {
        let mut state = self.all.0.lock();
        if state.waiting.contains_key(&self.ticket) {
            for (_, waiter) in std::mem::take(&mut state.waiting) {
                waiter.wake.notify_one();
            }
        }
    }

    /// When it must send a request, if it is the first; `None` if its place was lost.
    fn next_request(&self) -> Option<Next> {
        let state = self.all.0.lock();
        if !state.waiting.contains_key(&self.ticket) {
            return None;
        }
        Some(if state.is_first(self.ticket) {
            let at = state.retry_at.map_or(state.confirm_at, |retry_at| retry_at.min(state.confirm_at));
            Next::First { total_before: state.total_before_request.max(self.total_before_request), at }
        } else {
            Next::Behind
        })
    }

    /// Whether it must send a request now.
    pub(crate) fn is_due(&self) -> bool {
        match self.next_request() {
            None => true,
            Some(Next::Behind) => false,
            Some(Next::First { total_before, at }) => self.listener.total() > total_before || Instant::now() >= at,
        }
    }

    /// Resolves when it must send a request; never while it is behind another waiter.
    pub(crate) async fn due(&self) {
        match self.next_request() {
            None => {}
            Some(Next::Behind) => std::future::pending().await,
            Some(Next::First { total_before, at }) => {
                tokio::select! {
                    biased;
                    () = self.listener.more_than(total_before) => {}
                    () = sleep_until(at), if !mutant!(NoPoll) => {}
                }
            }
        }
    }

    /// Wakes all others of these waiters, to send requests of their own: this one was granted a lock that they may
    /// share.
    pub(crate) fn wake_others(&mut self) {
        let mut waiting = std::mem::take(&mut self.all.0.lock().waiting);
        waiting.remove(&self.ticket);
        for waiter in waiting.values() {
            waiter.wake.notify_one();
        }
    }
}

impl Drop for PlacedWaiter {
    fn drop(&mut self) {
        let mut state = self.all.0.lock();
        let first = state.is_first(self.ticket);
        state.waiting.remove(&self.ticket);
        if first {
            state.wake_first(self.delivered);
        }
    }
}

enum Next {
    /// It is the first: it sends a request at this time, or once the listener's total exceeds `total_before`.
    First { total_before: u64, at: Instant },
    /// Another waiter is before it.
    Behind,
}
