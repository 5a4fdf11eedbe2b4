//! A queue of waiters on one server that hands the lock over: when the lock becomes free, the server makes the first
//! live waiter its holder and notifies only that waiter. Messages are delayed without bound; a lost message is one that
//! never arrives. Only the cancellation of an acquire is ordered behind that acquire.
//!
//! A waiter does not know when the server made it the holder. It counts its deadline from before a request whose reply
//! proved that it still waited, because the hand-over came later. A reply that found an entry in the queue proves the
//! same for the client's entries with later tickets, since entries leave in the order of their tickets. An entry that
//! was dropped because its client sent nothing for too long may enter again, and then receive the message of an earlier
//! hand-over that has ended. So it gets a new ticket, and the message names the ticket that was handed the lock.
//!
//! ```text
//! entry    Idle ──acquire──▶ Waiting ──granted, or notified──▶ Holding ──released, or deadline: leaves──▶ Over
//!                            Waiting ──acquire again, any moment── Waiting ──gives up: leaves──▶ Over
//! node     free ──hand-over to the first live entry, or grant to the acquiring one──▶ held ──left, or ttl──▶ free
//! ```

use crate::checker::{Bits, Layout, Model, State};

/// A configuration. The flags marked as broken each drop one rule of the protocol.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each flag keeps or drops one rule
pub struct Config {
    /// The client of each entry.
    pub clients: [usize; ENTRIES],
    /// The ttl of the lock when the reply to an acquire grants it.
    pub ttl: u64,
    /// How long the server keeps a client's entries after a request for one of them.
    pub patience: u64,
    /// How long an entry counts the lock as held from its starting moment: no longer than `ttl` and `patience`.
    pub belief: u64,
    /// Broken: a notified entry counts the lock as held from the message on.
    pub from_message: bool,
    /// Broken: the message does not name the ticket.
    pub unnamed: bool,
    /// Broken: an entry that enters again keeps its old ticket.
    pub keeps_ticket: bool,
    /// The cancellation of an acquire arrives after it.
    pub ordered: bool,
}

pub const ENTRIES: usize = 3;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask(usize),
    Arrive(usize),
    Answer(usize),
    Told(usize),
    Leave(usize),
    Left(usize),
    Expire,
    Tick,
}

const IDLE: u64 = 0;
const WAITING: u64 = 1;
const HOLDING: u64 = 2;
const OVER: u64 = 3;

const NONE: u64 = 0;
const REQUEST: u64 = 1;
/// Replies: the entry was in the queue already; it has entered the queue; it has the lock.
const FOUND: u64 = 2;
const ENTERED: u64 = 3;
const GRANTED: u64 = 4;

mod mark {
    pub(super) const GRANTED: u32 = 1;
    pub(super) const TOLD: u32 = 1 << 1;
    pub(super) const TOLD_OF_ANOTHER: u32 = 1 << 2;
    pub(super) const HANDED_OVER_BY_ASKING: u32 = 1 << 3;
    pub(super) const DEAD_SKIPPED: u32 = 1 << 4;
    pub(super) const ENTERED_AGAIN: u32 = 1 << 5;
    pub(super) const EXPIRED: u32 = 1 << 6;
    pub(super) const LOST: u32 = 1 << 7;
    pub(super) const TOLD_TOO_LATE: u32 = 1 << 8;
}

#[derive(Debug)]
pub struct HandOver {
    config: Config,
    // The header: the fields of each entry.
    phase: Bits,
    /// The remaining times of three deadlines: the one that the last request gives, the latest one proved, and the one
    /// of the lock that the entry holds.
    sent: Bits,
    proved: Bits,
    deadline: Bits,
    message: Bits,
    /// The entry's ticket as its client knows it, and the ticket that the message in flight names.
    ticket: Bits,
    told: Bits,
    leave: Bits,
    entry_block: u32,
    // The node: the holder, the queue (entries plus one), their tickets, and how long it keeps each client's entries.
    holder: Bits,
    ttl: Bits,
    queue: [Bits; ENTRIES],
    tickets: [Bits; ENTRIES],
    alive: [Bits; ENTRIES],
}

impl HandOver {
    pub fn new(config: Config) -> Self {
        let time = 64 - config.ttl.max(config.patience).max(config.belief).leading_zeros();
        let mut header = Layout::default();
        let phase = header.take(2);
        let (sent, proved, deadline) = (header.take(time), header.take(time), header.take(time));
        let (message, ticket, told, leave) = (header.take(3), header.take(4), header.take(4), header.take(1));
        let entry_block = header.used();
        header.repeat(entry_block, ENTRIES);
        let mut node = Layout::default();
        let (holder, ttl) = (node.take(2), node.take(time));
        let mut each = |width: u32| std::array::from_fn(|_| node.take(width));
        let (queue, tickets, alive) = (each(2), each(4), each(time));
        Self {
            config,
            phase,
            sent,
            proved,
            deadline,
            message,
            ticket,
            told,
            leave,
            entry_block,
            holder,
            ttl,
            queue,
            tickets,
            alive,
        }
    }

    fn of(&self, bits: Bits, entry: usize) -> Bits {
        bits.at(self.entry_block * entry as u32)
    }

    fn get(&self, state: &State<2>, bits: Bits, entry: usize) -> u64 {
        self.of(bits, entry).get(state[0])
    }

    fn set(&self, state: &mut State<2>, bits: Bits, entry: usize, value: u64) {
        self.of(bits, entry).set(&mut state[0], value);
    }

    fn believes(&self, state: &State<2>, entry: usize) -> bool {
        self.get(state, self.phase, entry) == HOLDING && self.get(state, self.deadline, entry) > 0
    }

    // ---- the node ----

    fn holder(&self, state: &State<2>) -> Option<usize> {
        self.holder.get(state[1]).checked_sub(1).map(|entry| entry as usize)
    }

    fn queued(&self, state: &State<2>) -> Vec<usize> {
        let places = self.queue.iter().map(|place| place.get(state[1]));
        places.filter(|entry| *entry != 0).map(|entry| entry as usize - 1).collect()
    }

    fn set_queue(&self, state: &mut State<2>, entries: &[usize]) {
        for (place, bits) in self.queue.iter().enumerate() {
            bits.set(&mut state[1], entries.get(place).map_or(0, |entry| *entry as u64 + 1));
        }
    }

    fn alive_for(&self, state: &State<2>, entry: usize) -> u64 {
        self.alive[self.config.clients[entry]].get(state[1])
    }

    fn dequeue(&self, state: &mut State<2>, entry: usize) {
        let mut queue = self.queued(state);
        queue.retain(|other| *other != entry);
        self.set_queue(state, &queue);
    }

    /// The first entry whose client is alive. The entries before it are removed.
    fn head(&self, state: &mut State<2>) -> Option<usize> {
        let mut queue = self.queued(state);
        queue.drain(..queue.iter().take_while(|entry| self.alive_for(state, **entry) == 0).count());
        self.set_queue(state, &queue);
        queue.first().copied()
    }

    fn give(&self, state: &mut State<2>, entry: usize, ttl: u64) {
        self.dequeue(state, entry);
        self.holder.set(&mut state[1], entry as u64 + 1);
        self.ttl.set(&mut state[1], ttl);
    }

    fn free(&self, state: &mut State<2>) {
        self.holder.set(&mut state[1], 0);
        self.ttl.set(&mut state[1], 0);
    }

    fn hand_over(&self, state: &mut State<2>) {
        if let Some(entry) = self.head(state) {
            let ttl = self.config.ttl.min(self.alive_for(state, entry));
            self.give(state, entry, ttl);
            // If an earlier message is still in flight, losing it and receiving it are both covered: it stands for
            // itself or for this one.
            if self.get(state, self.told, entry) == 0 || !self.config.unnamed {
                self.set(state, self.told, entry, self.tickets[entry].get(state[1]));
            }
        }
    }

    fn enter(&self, state: &mut State<2>, entry: usize) {
        let known = self.get(state, self.ticket, entry);
        let ticket =
            if self.config.keeps_ticket && known != 0 { known } else { self.used(state).max().unwrap_or(0) + 1 };
        self.tickets[entry].set(&mut state[1], ticket);
        let mut queue = self.queued(state);
        queue.push(entry);
        queue.sort_by_key(|entry| self.tickets[*entry].get(state[1]));
        self.set_queue(state, &queue);
    }

    /// All tickets that the node or a client knows.
    fn used(&self, state: &State<2>) -> impl Iterator<Item = u64> {
        let known = (0..ENTRIES).flat_map(|entry| [self.ticket, self.told].map(|bits| self.get(state, bits, entry)));
        known.chain(self.tickets.iter().map(|ticket| ticket.get(state[1])))
    }

    fn arrive(&self, state: &mut State<2>, entry: usize) {
        let (mine, free) = (self.holder(state) == Some(entry), self.holder(state).is_none());
        let head = if mine { None } else { self.head(state) };
        let answer = if mine || (free && head.is_none_or(|head| head == entry)) {
            let left = self.ttl.get(state[1]);
            self.give(state, entry, left.max(self.config.ttl));
            GRANTED
        } else {
            let found = self.queued(state).contains(&entry);
            if !found {
                self.enter(state, entry);
            }
            self.alive[self.config.clients[entry]].set(&mut state[1], self.config.patience);
            if free {
                self.hand_over(state);
            }
            if found { FOUND } else { ENTERED }
        };
        let waits = self.get(state, self.phase, entry) == WAITING;
        self.set(state, self.message, entry, if waits { answer } else { NONE });
    }

    fn left(&self, state: &mut State<2>, entry: usize) {
        self.set(state, self.leave, entry, 0);
        self.dequeue(state, entry);
        if self.holder(state) == Some(entry) {
            self.free(state);
            self.hand_over(state);
        }
        if self.config.ordered {
            self.set(state, self.message, entry, NONE);
        }
    }

    // ---- the clients ----

    fn ask(&self, state: &mut State<2>, entry: usize) {
        self.set(state, self.phase, entry, WAITING);
        self.set(state, self.sent, entry, self.config.belief);
        self.set(state, self.message, entry, REQUEST);
    }

    fn hold(&self, state: &mut State<2>, entry: usize, deadline: u64) {
        self.set(state, self.phase, entry, HOLDING);
        self.set(state, self.deadline, entry, deadline);
        self.set(state, self.proved, entry, 0);
    }

    fn prove(&self, state: &mut State<2>, entry: usize, deadline: u64) {
        let known = self.get(state, self.proved, entry);
        if self.get(state, self.phase, entry) == WAITING {
            self.set(state, self.proved, entry, known.max(deadline));
        }
    }

    fn answer(&self, state: &mut State<2>, entry: usize) {
        let (answer, sent) = (self.get(state, self.message, entry), self.get(state, self.sent, entry));
        self.set(state, self.message, entry, NONE);
        self.set(state, self.sent, entry, 0);
        if self.get(state, self.phase, entry) != WAITING {
            return;
        }
        if answer == GRANTED {
            return self.hold(state, entry, sent);
        }
        // Only the entry's own requests put it into the queue, and one is in flight at a time. So the node's ticket is
        // the one in the reply.
        let ticket = self.tickets[entry].get(state[1]);
        self.set(state, self.ticket, entry, ticket);
        self.prove(state, entry, sent);
        if answer == FOUND {
            let same = |other: &usize| self.config.clients[*other] == self.config.clients[entry];
            for other in (0..ENTRIES).filter(same) {
                if self.get(state, self.ticket, other) > ticket {
                    self.prove(state, other, sent);
                }
            }
        }
    }

    fn told(&self, state: &mut State<2>, entry: usize) {
        let told = self.get(state, self.told, entry);
        self.set(state, self.told, entry, 0);
        let known = self.config.unnamed || self.get(state, self.ticket, entry) == told;
        let proved = self.get(state, self.proved, entry);
        let deadline = if self.config.from_message { self.config.belief } else { proved };
        // Without a proof the entry waits for its next reply.
        if self.get(state, self.phase, entry) == WAITING && known && deadline > 0 {
            self.hold(state, entry, deadline);
        }
    }

    fn leave(&self, state: &mut State<2>, entry: usize) {
        self.set(state, self.phase, entry, OVER);
        for bits in [self.sent, self.proved, self.deadline, self.ticket, self.told] {
            self.set(state, bits, entry, 0);
        }
        if self.get(state, self.message, entry) != REQUEST {
            self.set(state, self.message, entry, NONE);
        }
        self.set(state, self.leave, entry, 1);
    }

    fn tick(&self, state: &mut State<2>) {
        self.ttl.count_down(&mut state[1]);
        self.alive.iter().for_each(|alive| alive.count_down(&mut state[1]));
        for entry in 0..ENTRIES {
            for bits in [self.sent, self.proved, self.deadline] {
                self.of(bits, entry).count_down(&mut state[0]);
            }
            if self.get(state, self.phase, entry) == HOLDING && !self.believes(state, entry) {
                self.leave(state, entry);
            }
        }
    }
}

impl Model<2> for HandOver {
    type Step = Step;

    fn initial(&self) -> Vec<State<2>> {
        vec![[0; 2]]
    }

    fn steps(&self, state: &State<2>, next: &mut impl FnMut(Step, State<2>)) {
        let mut with = |step: Step, change: &dyn Fn(&mut State<2>)| {
            let mut new = *state;
            change(&mut new);
            next(step, new);
        };
        for entry in 0..ENTRIES {
            let (phase, message) = (self.get(state, self.phase, entry), self.get(state, self.message, entry));
            // The entries of one client start in order.
            let is_next = (0..entry)
                .filter(|before| self.config.clients[*before] == self.config.clients[entry])
                .all(|before| self.get(state, self.phase, before) != IDLE);
            if message == NONE && (phase == WAITING || (phase == IDLE && is_next)) {
                with(Step::Ask(entry), &|new| self.ask(new, entry));
            }
            if phase == WAITING || phase == HOLDING {
                with(Step::Leave(entry), &|new| self.leave(new, entry));
            }
            match message {
                NONE => {}
                REQUEST => with(Step::Arrive(entry), &|new| self.arrive(new, entry)),
                _ => with(Step::Answer(entry), &|new| self.answer(new, entry)),
            }
            if self.get(state, self.told, entry) != 0 {
                with(Step::Told(entry), &|new| self.told(new, entry));
            }
            if self.get(state, self.leave, entry) == 1 {
                with(Step::Left(entry), &|new| self.left(new, entry));
            }
        }
        if self.holder(state).is_some() && self.ttl.get(state[1]) == 0 {
            with(Step::Expire, &|new| self.free(new));
        }
        with(Step::Tick, &|new| self.tick(new));
    }

    /// Drops messages and tickets that can no longer change anything.
    fn canonical(&self, mut state: State<2>) -> State<2> {
        for entry in 0..ENTRIES {
            let gone = self.get(&state, self.phase, entry) == OVER && self.get(&state, self.message, entry) == NONE;
            if gone && !self.queued(&state).contains(&entry) && self.holder(&state) != Some(entry) {
                self.set(&mut state, self.leave, entry, 0);
                self.set(&mut state, self.told, entry, 0);
            }
            if gone || (self.get(&state, self.phase, entry) == HOLDING && self.holder(&state) != Some(entry)) {
                self.set(&mut state, self.ticket, entry, 0);
            }
            let asked = self.get(&state, self.message, entry) >= FOUND;
            if !asked && !self.queued(&state).contains(&entry) {
                self.tickets[entry].set(&mut state[1], 0);
            }
        }
        // Only the order of the tickets matters: replace each by its rank.
        let mut used: Vec<u64> = self.used(&state).filter(|ticket| *ticket != 0).collect();
        used.sort_unstable();
        used.dedup();
        let rank = |ticket: u64| used.iter().position(|used| *used == ticket).map_or(0, |place| place as u64 + 1);
        for entry in 0..ENTRIES {
            for bits in [self.ticket, self.told] {
                let ticket = self.get(&state, bits, entry);
                self.set(&mut state, bits, entry, rank(ticket));
            }
            let ticket = self.tickets[entry].get(state[1]);
            self.tickets[entry].set(&mut state[1], rank(ticket));
        }
        state
    }

    fn violation(&self, state: &State<2>) -> Option<&'static str> {
        if (0..ENTRIES).filter(|entry| self.believes(state, *entry)).count() > 1 {
            return Some("two clients hold the lock");
        }
        let gone = |entry: usize| self.get(state, self.phase, entry) == OVER && self.get(state, self.leave, entry) == 0;
        self.holder(state).filter(|entry| gone(*entry)).map(|_| "the lock was taken for nobody")
    }

    fn marks(&self, before: &State<2>, step: Step, after: &State<2>) -> u32 {
        let begins = |entry: usize| self.believes(after, entry) && !self.believes(before, entry);
        match step {
            Step::Answer(entry) if begins(entry) => mark::GRANTED,
            Step::Told(entry) if begins(entry) => {
                let first = (0..entry).all(|other| self.config.clients[other] != self.config.clients[entry]);
                if first { mark::TOLD } else { mark::TOLD_OF_ANOTHER }
            }
            Step::Told(entry) if self.get(before, self.told, entry) != self.get(before, self.ticket, entry) => {
                mark::TOLD_TOO_LATE
            }
            Step::Arrive(entry) => {
                let (held, got) = (self.holder(before), self.holder(after));
                let by_asking = held.is_none() && got.is_some_and(|got| got != entry);
                let fewer = self.queued(before).len() > self.queued(after).len() && got == held;
                let again = self.get(after, self.message, entry) == ENTERED && self.get(before, self.ticket, entry) > 0;
                let some = |met: bool, mark: u32| if met { mark } else { 0 };
                some(by_asking, mark::HANDED_OVER_BY_ASKING)
                    | some(fewer, mark::DEAD_SKIPPED)
                    | some(again, mark::ENTERED_AGAIN)
            }
            Step::Expire => mark::EXPIRED,
            Step::Tick if (0..ENTRIES).any(|entry| self.believes(before, entry) && !self.believes(after, entry)) => {
                mark::LOST
            }
            _ => 0,
        }
    }

    fn expected(&self) -> u32 {
        mark::GRANTED
            | mark::TOLD
            | mark::TOLD_OF_ANOTHER
            | mark::TOLD_TOO_LATE
            | mark::HANDED_OVER_BY_ASKING
            | mark::DEAD_SKIPPED
            | mark::ENTERED_AGAIN
            | mark::EXPIRED
            | mark::LOST
    }

    fn tell(&self, before: &State<2>, step: Step, after: &State<2>) -> String {
        let name = |entry: usize| format!("{}{}", ["A", "B", "C"][self.config.clients[entry]], entry + 1);
        let mut line = match step {
            Step::Ask(entry) => format!("{} sends an acquire", name(entry)),
            Step::Arrive(entry) => {
                let what = match self.get(after, self.message, entry) {
                    GRANTED => "it has the lock",
                    FOUND => "it keeps waiting",
                    ENTERED => "it enters the queue",
                    _ => "nobody waits for the answer",
                };
                format!("the acquire of {} arrives: {what}", name(entry))
            }
            Step::Answer(entry) => format!("{} receives the reply", name(entry)),
            Step::Told(entry) => format!("{} receives the message that it has the lock", name(entry)),
            Step::Leave(entry) => format!("{} leaves", name(entry)),
            Step::Left(entry) => format!("the leave of {} arrives", name(entry)),
            Step::Expire => "the lock expires".to_owned(),
            Step::Tick => "a tick passes".to_owned(),
        };
        if let (true, Some(now)) = (self.holder(before) != self.holder(after), self.holder(after)) {
            line = format!("{line}; the node gives it to {} for {} ticks", name(now), self.ttl.get(after[1]));
        }
        for entry in 0..ENTRIES {
            if self.believes(after, entry) && !self.believes(before, entry) {
                line = format!("{line}; {} HOLDS for {} ticks", name(entry), self.get(after, self.deadline, entry));
            }
        }
        line
    }
}
