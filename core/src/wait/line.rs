//! The waiters of this client in the queue that a server keeps for one lock, in the order of that queue. The first of them
//! speaks for all: what it asks tells the server that the client is there, and it alone can be the next to be granted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{listener::Listener, place::LEASE, ticket::Ticket};
use crate::sync::Mutex;

/// They know each other by the tickets that the server drew for them.
pub(crate) struct Line(Mutex<State>);

struct State {
    waiting: BTreeMap<i64, Arc<Ticket>>,
    /// How much had been heard when the first one asked last.
    heard: u64,
    /// When the first one asks again, whether or not something was told.
    beat: Instant,
    /// When the first one must look at what nobody tells.
    look: Option<Instant>,
}

impl Default for Line {
    fn default() -> Self {
        Self(Mutex::new(State { waiting: BTreeMap::new(), heard: 0, beat: Instant::now(), look: None }))
    }
}

impl State {
    fn is_first(&self, ticket: i64) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first == ticket)
    }

    /// Whoever is first by now looks again.
    fn tell_first(&mut self) {
        self.look = None;
        if let Some((_, first)) = self.waiting.first_key_value() {
            first.wake.notify_one();
        }
    }
}

/// One of them; leaves when dropped.
pub(crate) struct InLine {
    listener: Arc<Listener>,
    line: Arc<Line>,
    ticket: i64,
    place: Arc<Ticket>,
    /// How much had been heard when it asked.
    heard: u64,
}

impl InLine {
    /// The server gave it this ticket.
    pub(crate) fn new((listener, line): (Arc<Listener>, Arc<Line>), ticket: i64, place: Arc<Ticket>) -> Self {
        Self { listener, line, ticket, place, heard: 0 }
    }

    pub(crate) fn ticket(&self) -> i64 {
        self.ticket
    }

    /// The server said that it waits, when it asked, which was when so much had been heard. `look`: after how long it should
    /// look again if nothing is told before.
    pub(crate) fn waits(&mut self, heard: u64, look: Option<Duration>) {
        self.heard = heard;
        let mut state = self.line.0.lock();
        state.waiting.insert(self.ticket, self.place.clone());
        // What the others ask proves as well that the client is there, but not that the first one missed nothing.
        if state.is_first(self.ticket) {
            state.heard = state.heard.max(heard);
            state.beat = Instant::now() + LEASE.mul_f64(0.3 + fastrand::f64() * 0.067);
            state.look = look.map(|look| Instant::now() + look);
        }
    }

    /// The server did not know the place any more. Then it does not know those of the others, either: each asks by itself.
    pub(crate) fn lost(&self) {
        let mut state = self.line.0.lock();
        if state.waiting.contains_key(&self.ticket) {
            for (_, place) in std::mem::take(&mut state.waiting) {
                place.wake.notify_one();
            }
        }
    }

    /// When it has to ask, if it is the first; `None` if its place is not known any more.
    fn next(&self) -> Option<Next> {
        let state = self.line.0.lock();
        if !state.waiting.contains_key(&self.ticket) {
            return None;
        }
        Some(if state.is_first(self.ticket) {
            let at = state.look.map_or(state.beat, |look| look.min(state.beat));
            Next::First { heard: state.heard.max(self.heard), at }
        } else {
            Next::Behind
        })
    }

    /// Whether it is to ask now.
    pub(crate) fn is_due(&self) -> bool {
        match self.next() {
            None => true,
            Some(Next::Behind) => false,
            Some(Next::First { heard, at }) => self.listener.count() > heard || Instant::now() >= at,
        }
    }

    /// Resolves when it is to ask, for one that is first.
    pub(crate) async fn due(&self) {
        match self.next() {
            None => {}
            Some(Next::Behind) => std::future::pending().await,
            Some(Next::First { heard, at }) => {
                tokio::select! {
                    biased;
                    () = self.listener.more_than(heard) => {}
                    () = sleep_until(at), if !mutant!(NoPoll) => {}
                }
            }
        }
    }
}

impl InLine {
    /// It has what it waited for, and others may have it at the same time: all of them ask.
    pub(crate) fn share(&mut self) {
        let mut waiting = std::mem::take(&mut self.line.0.lock().waiting);
        waiting.remove(&self.ticket);
        for place in waiting.values() {
            place.wake.notify_one();
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        let mut state = self.line.0.lock();
        let first = state.is_first(self.ticket);
        state.waiting.remove(&self.ticket);
        if first {
            state.tell_first();
        }
    }
}

enum Next {
    First { heard: u64, at: Instant },
    Behind,
}
