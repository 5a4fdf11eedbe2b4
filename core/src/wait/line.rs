//! This client's waiters in the queue that a server keeps for one lock, in the order of that queue. Only the first of
//! them sends requests: these confirm the places of all, and no other waiter can be granted the lock next.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{listener::Listener, place::LEASE, turn::Turn};
use crate::sync::Mutex;

/// The waiters, by the ticket numbers that the server drew for them.
pub(crate) struct Line(Mutex<State>);

struct State {
    waiting: BTreeMap<i64, Arc<Turn>>,
    /// The listener's count before the last request of the first waiter.
    count_before: u64,
    /// When the first waiter confirms the places of all, even without a message.
    confirm_at: Instant,
    /// When the first waiter must send a request because something may change then that no message announces.
    check_at: Option<Instant>,
}

impl Default for Line {
    fn default() -> Self {
        Self(Mutex::new(State {
            waiting: BTreeMap::new(),
            count_before: 0,
            confirm_at: Instant::now(),
            check_at: None,
        }))
    }
}

impl State {
    fn is_first(&self, ticket: i64) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }

    /// Wakes the waiter that is first now.
    fn wake_first(&mut self) {
        self.check_at = None;
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.wake.notify_one();
        }
    }
}

/// One waiter in the line: decides whether it is the one of this client's waiters that sends the requests. The requests
/// that take, confirm and give up its place are those of [`Place`](super::place::Place). Dropping this leaves the line.
pub(crate) struct InLine {
    listener: Arc<Listener>,
    line: Arc<Line>,
    ticket: i64,
    turn: Arc<Turn>,
    /// The listener's count before its last request.
    count_before: u64,
}

impl InLine {
    /// `ticket`: the number that the server drew for its place.
    pub(crate) fn new((listener, line): (Arc<Listener>, Arc<Line>), ticket: i64, turn: Arc<Turn>) -> Self {
        Self { listener, line, ticket, turn, count_before: 0 }
    }

    pub(crate) fn ticket(&self) -> i64 {
        self.ticket
    }

    /// Takes in the server's reply that it has a place and must wait. `count_before`: the listener's count before that
    /// request. `check_in`: after how long to send another one if no message comes before.
    pub(crate) fn note_waiting(&mut self, count_before: u64, check_in: Option<Duration>) {
        self.count_before = count_before;
        let mut state = self.line.0.lock();
        state.waiting.insert(self.ticket, self.turn.clone());
        // Requests of the others confirm the client's places, too, but do not prove that the first one missed no
        // message.
        if state.is_first(self.ticket) {
            state.count_before = state.count_before.max(count_before);
            state.confirm_at = Instant::now() + LEASE.mul_f64(0.3 + fastrand::f64() * 0.067);
            state.check_at = check_in.map(|check_in| Instant::now() + check_in);
        }
    }

    /// Wakes all waiters in the line: the server has lost this place, and so theirs. Each requests a new one.
    pub(crate) fn note_lost_place(&self) {
        let mut state = self.line.0.lock();
        if state.waiting.contains_key(&self.ticket) {
            for (_, turn) in std::mem::take(&mut state.waiting) {
                turn.wake.notify_one();
            }
        }
    }

    /// When it must send a request, if it is the first; `None` if its place was lost.
    fn next_request(&self) -> Option<Next> {
        let state = self.line.0.lock();
        if !state.waiting.contains_key(&self.ticket) {
            return None;
        }
        Some(if state.is_first(self.ticket) {
            let at = state.check_at.map_or(state.confirm_at, |check_at| check_at.min(state.confirm_at));
            Next::First { count_before: state.count_before.max(self.count_before), at }
        } else {
            Next::Behind
        })
    }

    /// Whether it must send a request now.
    pub(crate) fn is_due(&self) -> bool {
        match self.next_request() {
            None => true,
            Some(Next::Behind) => false,
            Some(Next::First { count_before, at }) => self.listener.count() > count_before || Instant::now() >= at,
        }
    }

    /// Resolves when it must send a request; never while it is behind another waiter.
    pub(crate) async fn due(&self) {
        match self.next_request() {
            None => {}
            Some(Next::Behind) => std::future::pending().await,
            Some(Next::First { count_before, at }) => {
                tokio::select! {
                    biased;
                    () = self.listener.more_than(count_before) => {}
                    () = sleep_until(at), if !mutant!(NoPoll) => {}
                }
            }
        }
    }
}

impl InLine {
    /// Wakes all other waiters in the line, to send requests of their own: this one was granted a lock that they may
    /// share.
    pub(crate) fn wake_others(&mut self) {
        let mut waiting = std::mem::take(&mut self.line.0.lock().waiting);
        waiting.remove(&self.ticket);
        for turn in waiting.values() {
            turn.wake.notify_one();
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut state = self.line.0.lock();
        let first = state.is_first(self.ticket);
        state.waiting.remove(&self.ticket);
        if first {
            state.wake_first();
        }
    }
}

enum Next {
    First { count_before: u64, at: Instant },
    Behind,
}
