//! The calls that wait until a connection has room for another request, in their order. Whoever makes room sends the
//! first of them, so that none depends on the tasks of other callers.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use super::deferred::Deferred;
use crate::{protocol::script::Reply, server::NodeError, sync::Mutex};

/// A call that waits until it is sent.
pub(super) type Turn = Deferred<(), Result<Reply, NodeError>>;

/// The calls that wait for room.
#[derive(Default)]
pub(super) struct Room {
    line: Mutex<Line>,
    /// The number of calls that wait or are being sent.
    count: AtomicUsize,
}

#[derive(Default)]
struct Line {
    turns: VecDeque<Turn>,
    /// Whether somebody is sending the first of them.
    sending: bool,
}

impl Room {
    /// Whether further calls must wait behind others.
    pub(super) fn is_waited_for(&self) -> bool {
        self.count.load(SeqCst) > 0
    }

    /// Adds a call behind all others.
    pub(super) fn wait(&self, turn: Turn) {
        let mut line = self.line.lock();
        self.count.fetch_add(1, SeqCst);
        line.turns.push_back(turn);
    }

    /// Sends calls as long as there is room for another.
    pub(super) fn send_next(&self, has_room: impl Fn() -> bool) {
        while self.is_waited_for() {
            let turn = {
                let mut line = self.line.lock();
                // Who is sending looks for room again afterwards.
                if line.sending || !has_room() {
                    return;
                }
                let Some(turn) = line.turns.pop_front() else { return };
                line.sending = true;
                turn
            };
            turn.begin(());
            self.line.lock().sending = false;
            self.count.fetch_sub(1, SeqCst);
        }
    }
}
