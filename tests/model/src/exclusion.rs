//! Mutual exclusion with time: clients acquire, renew, repair and release a lock on N nodes. Messages are delayed
//! without bound and arrive in any order; a lost message is one that never arrives. A key lives at least `lease` ticks
//! after a write, and expires at any moment after that. A holder counts the lock as held (it *believes*) for `belief`
//! ticks from its send. These two numbers contain the drift of clocks: the client's margin has to ensure `belief <=
//! lease`.
//!
//! ```text
//! client   Idle ──start: acquire to all──▶ Trying ──q grants still valid──▶ Holding ──released, or deadline──▶ Idle
//!                                          Trying ──gives up at any moment, release to all─────────────────▶ Idle
//! message  none ──sent──▶ in flight ──arrives at any moment──▶ reply in flight ──arrives──▶ none
//! ```
//! A client's place at a node is the remaining time of the deadline that its last success there gave. The client
//! believes while at least q places are above zero. Each attempt writes a value of its own.

use crate::checker::{Bits, Blocks, Layout, Model, State, least};

/// What a repair does on a node where another client's key is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// Nothing. A repair writes only if there is no key.
    #[default]
    Absent,
    /// Broken: writes its own key.
    Overwrites,
}

/// A configuration. The defaults are the protocol as it is; the flags marked as broken each drop one of its rules.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each flag keeps or drops one rule
pub struct Config {
    pub quorum: usize,
    pub clients: usize,
    /// The largest number of attempts: of each client, and of all together.
    pub attempts: usize,
    pub starts: u64,
    /// Renewal rounds in each tenure.
    pub renewals: usize,
    /// Repair rounds in each tenure. A repair writes the key again to nodes that are not known to have it.
    pub repairs: usize,
    pub lease: u64,
    pub belief: u64,
    /// How often a node restarts without its keys.
    pub crashes: u64,
    /// How many ticks such a node does not vote.
    pub quarantine: u64,
    /// How often a node loses its keys and its marker without a restart. The next acquire notices that and is refused.
    /// Once a client has written a new marker, the node is in quarantine.
    pub flushes: u64,
    /// How often a node's clock jumps past the expiry of its key.
    pub jumps: u64,
    /// Broken: deadlines count from the reply.
    pub from_reply: bool,
    /// Broken: all attempts of a client write the same value.
    pub reused: bool,
    /// Broken: replies that arrive after the deadline continue the tenure.
    pub resumes: bool,
    /// A renewal writes the key again if it is gone.
    pub recreates: bool,
    pub repair: Repair,
    /// Broken: repairs are sent after the deadline as well.
    pub repairs_lost: bool,
    /// Broken: nodes that do not vote execute repairs as well.
    pub repairs_anywhere: bool,
    /// A release arrives after the acquire that it undoes: on the same connection, or after that connection has ended.
    pub ordered: bool,
    /// The same for a release and the repairs before it.
    pub repairs_ordered: bool,
    /// Also a violation: a key that no tenure owns and for which no release is in flight.
    pub orphans: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Start(usize),
    GiveUp(usize),
    Release(usize),
    /// A client sends a round of renewal or repair: client, round.
    Round(usize, usize),
    /// Node, client, attempt.
    Acquire(usize, usize, usize),
    Granted(usize, usize),
    Released(usize, usize, usize),
    /// Node, client, attempt, round.
    Rounded(usize, usize, usize, usize),
    RoundDone(usize, usize, usize),
    Expire(usize),
    Crash(usize),
    Flush(usize),
    Provision(usize),
    Jump(usize),
    Tick,
}

const IDLE: u64 = 0;
const TRYING: u64 = 1;
const HOLDING: u64 = 2;

const NONE: u64 = 0;
const REQUEST: u64 = 1;
const ANSWER: u64 = 2;

mod mark {
    pub(super) const HELD: u32 = 1;
    pub(super) const HELD_AGAIN: u32 = 1 << 1;
    pub(super) const LATE_GRANT: u32 = 1 << 2;
    pub(super) const RENEWED: u32 = 1 << 3;
    pub(super) const REPAIRED: u32 = 1 << 4;
    pub(super) const LOST: u32 = 1 << 5;
    pub(super) const CRASHED: u32 = 1 << 6;
    pub(super) const FLUSHED: u32 = 1 << 7;
    pub(super) const JUMPED: u32 = 1 << 8;
    pub(super) const QUARANTINED: u32 = 1 << 9;
    pub(super) const EXPIRED: u32 = 1 << 10;
    pub(super) const RELEASED: u32 = 1 << 11;
}

/// The fields of the header for each client.
#[derive(Clone, Copy, Debug)]
struct ClientBits {
    phase: Bits,
    attempt: Bits,
    /// The remaining time of the deadline that the acquire gives.
    timer: Bits,
    /// Another client held the lock during this tenure.
    spoiled: Bits,
    /// For each round, whether it was sent, and the remaining time of the deadline that it gives.
    used: [Bits; MAX_ROUNDS],
    timers: [Bits; MAX_ROUNDS],
}

/// The fields of a node's column for each client.
#[derive(Clone, Copy, Debug)]
struct PlaceBits {
    place: Bits,
    acquire: Bits,
    release: Bits,
    rounds: [Bits; MAX_ROUNDS],
}

const MAX_ROUNDS: usize = 3;

/// The model of a configuration on N nodes; K = N + 1.
#[derive(Debug)]
pub struct Exclusion<const K: usize> {
    config: Config,
    rounds: usize,
    // The header: the clients' blocks, then the remaining attempts and faults.
    client: ClientBits,
    blocks: Blocks,
    starts: Bits,
    crashes: Bits,
    flushes: Bits,
    jumps: Bits,
    // A column: the clients' blocks (each a place, then a block for each attempt), then the node's own fields.
    place: PlaceBits,
    attempt_block: u32,
    key: Bits,
    ttl: Bits,
    quarantine: Bits,
    unmarked: Bits,
}

impl<const K: usize> Exclusion<K> {
    pub fn new(config: Config) -> Self {
        let rounds = config.renewals + config.repairs;
        assert!(rounds <= MAX_ROUNDS, "at most {MAX_ROUNDS} rounds");
        let time = 64 - config.lease.max(config.belief).max(config.quarantine).leading_zeros();
        let mut header = Layout::default();
        let mut many = |width: u32| {
            let mut bits = [Bits::default(); MAX_ROUNDS];
            bits[..rounds].fill_with(|| header.take(width));
            bits
        };
        let (used, timers) = (many(1), many(time));
        let client = ClientBits {
            phase: header.take(2),
            attempt: header.take(2),
            timer: header.take(time),
            spoiled: header.take(1),
            used,
            timers,
        };
        let client_block = header.used();
        header.repeat(client_block, config.clients);
        let (starts, crashes, flushes, jumps) = (header.take(3), header.take(2), header.take(2), header.take(2));

        let mut column = Layout::default();
        let own = column.take(time);
        let before = column.used();
        let (acquire, release) = (column.take(2), column.take(1));
        let mut messages = [Bits::default(); MAX_ROUNDS];
        messages[..rounds].fill_with(|| column.take(2));
        let place = PlaceBits { place: own, acquire, release, rounds: messages };
        let attempt_block = column.used() - before;
        column.repeat(attempt_block, config.attempts);
        let place_block = column.used();
        column.repeat(place_block, config.clients);
        let (key, ttl, quarantine, unmarked) = (column.take(4), column.take(time), column.take(time), column.take(1));
        Self {
            config,
            rounds,
            client,
            blocks: Blocks { header: client_block, column: place_block },
            starts,
            crashes,
            flushes,
            jumps,
            place,
            attempt_block,
            key,
            ttl,
            quarantine,
            unmarked,
        }
    }

    // ---- fields of a state ----

    fn of(&self, bits: Bits, client: usize) -> Bits {
        self.blocks.of(bits, client)
    }

    fn place(&self, client: usize) -> Bits {
        self.blocks.at(self.place.place, client)
    }

    fn message(&self, bits: Bits, client: usize, attempt: usize) -> Bits {
        self.blocks.at(bits, client).at(self.attempt_block * attempt as u32)
    }

    fn phase(&self, state: &State<K>, client: usize) -> u64 {
        self.of(self.client.phase, client).get(state[0])
    }

    fn attempt(&self, state: &State<K>, client: usize) -> usize {
        self.of(self.client.attempt, client).get(state[0]) as usize
    }

    /// The value that an attempt writes.
    fn value(&self, client: usize, attempt: usize) -> u64 {
        (1 + client * self.config.attempts + if self.config.reused { 0 } else { attempt }) as u64
    }

    fn places(&self, state: &State<K>, client: usize) -> usize {
        let place = self.place(client);
        state[1..].iter().filter(|column| place.get(**column) > 0).count()
    }

    fn believes(&self, state: &State<K>, client: usize) -> bool {
        self.phase(state, client) == HOLDING && self.places(state, client) >= self.config.quorum
    }

    fn is_repair(&self, round: usize) -> bool {
        round >= self.config.renewals
    }

    /// True if a message of this round can write a key.
    fn creates(&self, round: usize) -> bool {
        self.is_repair(round) || self.config.recreates
    }

    /// True if a message in flight can still write this attempt's key.
    fn may_come(&self, column: u64, client: usize, attempt: usize) -> bool {
        let under_way = |bits: Bits| self.message(bits, client, attempt).get(column) == REQUEST;
        under_way(self.place.acquire)
            || (0..self.rounds).any(|round| self.creates(round) && under_way(self.place.rounds[round]))
    }

    // ---- clients ----

    fn start(&self, state: &mut State<K>, client: usize) {
        let (attempt, left) = (self.attempt(state, client), self.starts.get(state[0]));
        self.starts.set(&mut state[0], left - 1);
        self.of(self.client.phase, client).set(&mut state[0], TRYING);
        let belief = if self.config.from_reply { 0 } else { self.config.belief };
        self.of(self.client.timer, client).set(&mut state[0], belief);
        let acquire = self.message(self.place.acquire, client, attempt);
        state[1..].iter_mut().for_each(|column| acquire.set(column, REQUEST));
    }

    /// Ends the attempt or the tenure: sends a release to every node and ignores all further replies.
    fn end(&self, state: &mut State<K>, client: usize) {
        let attempt = self.attempt(state, client);
        for column in &mut state[1..] {
            self.message(self.place.release, client, attempt).set(column, REQUEST);
            self.place(client).set(column, 0);
            for bits in self.place.rounds[..self.rounds].iter().chain([&self.place.acquire]) {
                let bits = self.message(*bits, client, attempt);
                if bits.get(*column) == ANSWER {
                    bits.set(column, NONE);
                }
            }
        }
        let header = &mut state[0];
        self.of(self.client.phase, client).set(header, IDLE);
        self.of(self.client.attempt, client).set(header, attempt as u64 + 1);
        self.of(self.client.timer, client).set(header, 0);
        self.of(self.client.spoiled, client).set(header, 0);
        for round in 0..self.rounds {
            self.of(self.client.used[round], client).set(header, 0);
            self.of(self.client.timers[round], client).set(header, 0);
        }
    }

    fn can_send(&self, state: &State<K>, client: usize, round: usize) -> bool {
        let used = |round: usize| self.of(self.client.used[round], client).get(state[0]) == 1;
        // The rounds of one kind are used in order.
        let first = if self.is_repair(round) { self.config.renewals } else { 0 };
        if self.phase(state, client) != HOLDING || used(round) || (round > first && !used(round - 1)) {
            return false;
        }
        let believes = self.believes(state, client);
        if self.is_repair(round) {
            (believes || self.config.repairs_lost) && self.places(state, client) + 1 < K
        } else {
            believes || self.config.resumes
        }
    }

    fn send(&self, state: &mut State<K>, client: usize, round: usize) {
        let attempt = self.attempt(state, client);
        self.of(self.client.used[round], client).set(&mut state[0], 1);
        if !self.config.from_reply {
            self.of(self.client.timers[round], client).set(&mut state[0], self.config.belief);
        }
        let message = self.message(self.place.rounds[round], client, attempt);
        for column in &mut state[1..] {
            if !self.is_repair(round) || self.place(client).get(*column) == 0 {
                message.set(column, REQUEST);
            }
        }
    }

    /// The client receives a node's successful reply.
    fn succeed(&self, state: &mut State<K>, node: usize, client: usize, timer: Bits) {
        let held = self.believes(state, client);
        let given = if self.config.from_reply { self.config.belief } else { self.of(timer, client).get(state[0]) };
        let place = self.place(client);
        let known = place.get(state[node]);
        place.set(&mut state[node], known.max(given));
        if self.places(state, client) >= self.config.quorum && !held {
            self.of(self.client.phase, client).set(&mut state[0], HOLDING);
            for other in (0..self.config.clients).filter(|other| *other != client) {
                if self.phase(state, other) == HOLDING {
                    self.of(self.client.spoiled, other).set(&mut state[0], 1);
                }
            }
        }
    }

    // ---- nodes ----

    fn write(&self, column: &mut u64, value: u64) {
        self.key.set(column, value);
        self.ttl.set(column, if value == 0 { 0 } else { self.config.lease });
    }

    fn votes(&self, column: u64) -> bool {
        self.quarantine.get(column) == 0 && self.unmarked.get(column) == 0
    }

    /// The state of the reply: none if the attempt is over and its client no longer waits.
    fn answer(&self, state: &State<K>, client: usize, attempt: usize) -> u64 {
        let waits = self.phase(state, client) != IDLE && self.attempt(state, client) == attempt;
        if waits { ANSWER } else { NONE }
    }

    fn run_acquire(&self, state: &mut State<K>, node: usize, client: usize, attempt: usize) {
        let message = self.message(self.place.acquire, client, attempt);
        let (value, key) = (self.value(client, attempt), self.key.get(state[node]));
        let granted = self.votes(state[node]) && (key == 0 || key == value);
        let answer = if granted { self.answer(state, client, attempt) } else { NONE };
        message.set(&mut state[node], answer);
        if granted {
            self.write(&mut state[node], value);
        }
    }

    fn run_round(&self, state: &mut State<K>, node: usize, client: usize, attempt: usize, round: usize) {
        let message = self.message(self.place.rounds[round], client, attempt);
        let (value, key) = (self.value(client, attempt), self.key.get(state[node]));
        // A node that lost its keys may have granted the lock to a client that still counts that grant. So it executes
        // no repair either.
        let may_write = self.votes(state[node]) || self.config.repairs_anywhere;
        let overwrites = self.is_repair(round) && self.config.repair == Repair::Overwrites;
        let done = key == value || (self.creates(round) && may_write && (key == 0 || overwrites));
        let answer = if done { self.answer(state, client, attempt) } else { NONE };
        message.set(&mut state[node], answer);
        if done {
            self.write(&mut state[node], value);
        }
    }

    fn run_release(&self, state: &mut State<K>, node: usize, client: usize, attempt: usize) {
        let column = &mut state[node];
        self.message(self.place.release, client, attempt).set(column, NONE);
        if self.key.get(*column) == self.value(client, attempt) {
            self.write(column, 0);
        }
        // Requests sent before the release have arrived before it, or never will.
        let mut ends = |bits: Bits| {
            let bits = self.message(bits, client, attempt);
            if bits.get(*column) == REQUEST {
                bits.set(column, NONE);
            }
        };
        if self.config.ordered {
            ends(self.place.acquire);
            (0..self.config.renewals).for_each(|round| ends(self.place.rounds[round]));
        }
        if self.config.repairs_ordered {
            (self.config.renewals..self.rounds).for_each(|round| ends(self.place.rounds[round]));
        }
    }

    fn tick(&self, state: &mut State<K>) {
        for column in &mut state[1..] {
            self.ttl.count_down(column);
            self.quarantine.count_down(column);
            (0..self.config.clients).for_each(|client| self.place(client).count_down(column));
        }
        for client in 0..self.config.clients {
            self.of(self.client.timer, client).count_down(&mut state[0]);
            for round in 0..self.rounds {
                self.of(self.client.timers[round], client).count_down(&mut state[0]);
            }
            if self.phase(state, client) == HOLDING && !self.believes(state, client) && !self.config.resumes {
                self.end(state, client);
            }
        }
    }

    // ---- reduction to canonical states ----

    /// Drops messages and timers that can no longer change anything.
    fn tidy(&self, state: &mut State<K>) {
        for client in 0..self.config.clients {
            let (current, waits) = (self.attempt(state, client), self.phase(state, client) != IDLE);
            let expired = |bits: Bits, header: u64| !self.config.from_reply && self.of(bits, client).get(header) == 0;
            let header = state[0];
            let mut awaited = [false; MAX_ROUNDS + 1];
            for column in &mut state[1..] {
                for attempt in 0..self.config.attempts.min(current + 1) {
                    let holds = self.key.get(*column) == self.value(client, attempt);
                    if !self.config.reused && !holds && !self.may_come(*column, client, attempt) {
                        self.message(self.place.release, client, attempt).set(column, NONE);
                        for round in 0..self.rounds {
                            let bits = self.message(self.place.rounds[round], client, attempt);
                            if bits.get(*column) == REQUEST {
                                bits.set(column, NONE);
                            }
                        }
                    }
                    if !waits || attempt != current {
                        continue;
                    }
                    let messages = self.place.rounds.iter().zip(&self.client.timers).take(self.rounds);
                    let all = messages.chain([(&self.place.acquire, &self.client.timer)]);
                    for (number, (message, timer)) in all.enumerate() {
                        let bits = self.message(*message, client, attempt);
                        if bits.get(*column) == ANSWER && expired(*timer, header) {
                            bits.set(column, NONE);
                        }
                        awaited[number] |= bits.get(*column) != NONE;
                    }
                }
            }
            // In the order of `all` above.
            let timers = self.client.timers[..self.rounds].iter().chain([&self.client.timer]);
            for (timer, _) in timers.zip(awaited).filter(|(_, awaited)| !awaited) {
                self.of(*timer, client).set(&mut state[0], 0);
            }
        }
    }

    /// The same state with the clients in another order.
    fn reordered(&self, state: &State<K>, order: &[usize]) -> State<K> {
        let mut new = self.blocks.reordered(state, order);
        for column in &mut new[1..] {
            let key = self.key.get(*column) as usize;
            if key != 0 {
                let (owner, attempt) = ((key - 1) / self.config.attempts, (key - 1) % self.config.attempts);
                let place = order.iter().position(|from| *from == owner).unwrap_or_default();
                self.key.set(column, (1 + place * self.config.attempts + attempt) as u64);
            }
        }
        new
    }
}

impl<const K: usize> Model<K> for Exclusion<K> {
    type Step = Step;

    fn initial(&self) -> Vec<State<K>> {
        let mut state = [0; K];
        self.starts.set(&mut state[0], self.config.starts);
        self.crashes.set(&mut state[0], self.config.crashes);
        self.flushes.set(&mut state[0], self.config.flushes);
        self.jumps.set(&mut state[0], self.config.jumps);
        vec![state]
    }

    fn steps(&self, state: &State<K>, next: &mut impl FnMut(Step, State<K>)) {
        let mut with = |step: Step, change: &dyn Fn(&mut State<K>)| {
            let mut new = *state;
            change(&mut new);
            next(step, new);
        };
        let config = &self.config;
        for client in 0..config.clients {
            match self.phase(state, client) {
                IDLE if self.attempt(state, client) < config.attempts && self.starts.get(state[0]) > 0 => {
                    with(Step::Start(client), &|new| self.start(new, client));
                }
                TRYING => with(Step::GiveUp(client), &|new| self.end(new, client)),
                HOLDING => {
                    with(Step::Release(client), &|new| self.end(new, client));
                    for round in (0..self.rounds).filter(|round| self.can_send(state, client, *round)) {
                        with(Step::Round(client, round), &|new| self.send(new, client, round));
                    }
                }
                _ => {}
            }
        }
        for node in 1..K {
            let column = state[node];
            // Nodes with equal columns differ only in name.
            if state[1..node].contains(&column) {
                continue;
            }
            for client in 0..config.clients {
                let current = self.attempt(state, client);
                for attempt in 0..config.attempts.min(current + 1) {
                    let status = |bits: Bits| self.message(bits, client, attempt).get(column);
                    match status(self.place.acquire) {
                        REQUEST => with(Step::Acquire(node, client, attempt), &|new| {
                            self.run_acquire(new, node, client, attempt);
                        }),
                        ANSWER => with(Step::Granted(node, client), &|new| {
                            self.message(self.place.acquire, client, attempt).set(&mut new[node], NONE);
                            self.succeed(new, node, client, self.client.timer);
                        }),
                        _ => {}
                    }
                    if status(self.place.release) == REQUEST {
                        with(Step::Released(node, client, attempt), &|new| {
                            self.run_release(new, node, client, attempt);
                        });
                    }
                    for round in 0..self.rounds {
                        match status(self.place.rounds[round]) {
                            REQUEST => with(Step::Rounded(node, client, attempt, round), &|new| {
                                self.run_round(new, node, client, attempt, round);
                            }),
                            ANSWER => with(Step::RoundDone(node, client, round), &|new| {
                                self.message(self.place.rounds[round], client, attempt).set(&mut new[node], NONE);
                                self.succeed(new, node, client, self.client.timers[round]);
                            }),
                            _ => {}
                        }
                    }
                }
            }
            let has_key = self.key.get(column) != 0;
            if has_key && self.ttl.get(column) == 0 {
                with(Step::Expire(node), &|new| self.write(&mut new[node], 0));
            }
            let mut fault = |left: Bits, step: Step, change: &dyn Fn(&mut u64)| {
                let count = left.get(state[0]);
                if count > 0 {
                    with(step, &|new| {
                        left.set(&mut new[0], count - 1);
                        self.write(&mut new[node], 0);
                        change(&mut new[node]);
                    });
                }
            };
            fault(self.crashes, Step::Crash(node), &|column| self.quarantine.set(column, config.quarantine));
            fault(self.flushes, Step::Flush(node), &|column| self.unmarked.set(column, 1));
            if has_key {
                fault(self.jumps, Step::Jump(node), &|_| {});
            }
            if self.unmarked.get(column) == 1 {
                with(Step::Provision(node), &|new| {
                    self.unmarked.set(&mut new[node], 0);
                    self.quarantine.set(&mut new[node], config.quarantine);
                });
            }
        }
        with(Step::Tick, &|new| self.tick(new));
    }

    fn canonical(&self, mut state: State<K>) -> State<K> {
        self.tidy(&mut state);
        least(
            state,
            self.config.clients,
            |state, who| self.blocks.block(state[0], who),
            |state, order| self.reordered(state, order),
        )
    }

    fn violation(&self, state: &State<K>) -> Option<&'static str> {
        let believers = (0..self.config.clients).filter(|client| self.believes(state, *client));
        if believers.clone().count() > 1 {
            return Some("two clients hold the lock");
        }
        if believers.into_iter().any(|client| self.of(self.client.spoiled, client).get(state[0]) == 1) {
            return Some("a client holds on although another one held in between");
        }
        let orphan = |column: u64| {
            let key = self.key.get(column) as usize;
            if key == 0 {
                return false;
            }
            let (owner, attempt) = ((key - 1) / self.config.attempts, (key - 1) % self.config.attempts);
            let owned = self.phase(state, owner) != IDLE && self.attempt(state, owner) == attempt;
            !owned && self.message(self.place.release, owner, attempt).get(column) == NONE
        };
        if self.config.orphans && state[1..].iter().any(|column| orphan(*column)) {
            return Some("a key is left that nobody owns and nobody releases");
        }
        None
    }

    fn marks(&self, before: &State<K>, step: Step, after: &State<K>) -> u32 {
        match step {
            Step::Granted(_, client) if self.believes(after, client) && !self.believes(before, client) => {
                if self.attempt(before, client) > 0 { mark::HELD | mark::HELD_AGAIN } else { mark::HELD }
            }
            Step::Acquire(node, client, attempt) => {
                let written = self.key.get(before[node]) != self.key.get(after[node]);
                if written && self.attempt(before, client) != attempt {
                    mark::LATE_GRANT
                } else if self.quarantine.get(before[node]) > 0 {
                    mark::QUARANTINED
                } else {
                    0
                }
            }
            Step::RoundDone(_, _, round) => {
                if self.is_repair(round) {
                    mark::REPAIRED
                } else {
                    mark::RENEWED
                }
            }
            Step::Released(..) => mark::RELEASED,
            Step::Expire(_) => mark::EXPIRED,
            Step::Crash(_) => mark::CRASHED,
            Step::Flush(_) => mark::FLUSHED,
            Step::Jump(_) => mark::JUMPED,
            Step::Tick
                if (0..self.config.clients)
                    .any(|client| self.believes(before, client) && !self.believes(after, client)) =>
            {
                mark::LOST
            }
            _ => 0,
        }
    }

    fn expected(&self) -> u32 {
        let config = &self.config;
        let some = |wanted: bool, mark: u32| if wanted { mark } else { 0 };
        mark::HELD
            | mark::EXPIRED
            | mark::RELEASED
            | mark::LOST
            | some(!config.ordered, mark::LATE_GRANT)
            | some(config.attempts > 1, mark::HELD_AGAIN)
            | some(config.renewals > 0, mark::RENEWED)
            | some(config.repairs > 0, mark::REPAIRED)
            | some(config.crashes > 0, mark::CRASHED | mark::QUARANTINED)
            | some(config.flushes > 0, mark::FLUSHED | mark::QUARANTINED)
            | some(config.jumps > 0, mark::JUMPED)
    }

    fn tell(&self, before: &State<K>, step: Step, after: &State<K>) -> String {
        let name = |client: usize| ["A", "B", "C", "D"][client];
        let round_name = |round: usize| {
            if self.is_repair(round) {
                format!("repair {}", round - self.config.renewals + 1)
            } else {
                format!("renewal {}", round + 1)
            }
        };
        let key = |state: &State<K>, node: usize| self.key.get(state[node]);
        let mut line = match step {
            Step::Start(client) => {
                format!("{} sends acquire {} to every node", name(client), self.attempt(before, client) + 1)
            }
            Step::GiveUp(client) => {
                format!("{} gives acquire {} up: release to every node", name(client), self.attempt(before, client) + 1)
            }
            Step::Release(client) => format!("{} releases: release to every node", name(client)),
            Step::Round(client, round) => {
                let to = if self.is_repair(round) { "nodes not known to have its key" } else { "every node" };
                format!("{} sends {} to {to}", name(client), round_name(round))
            }
            Step::Acquire(node, client, attempt) => {
                let who = format!("acquire {} of {}", attempt + 1, name(client));
                if !self.votes(before[node]) {
                    format!("n{node} is in quarantine and refuses {who}")
                } else if key(after, node) == self.value(client, attempt) {
                    format!("n{node} grants {who} for {} ticks", self.config.lease)
                } else {
                    format!("n{node} refuses {who}")
                }
            }
            Step::Granted(node, client) => format!("{} receives the grant of n{node}", name(client)),
            Step::Released(node, client, attempt) => {
                let found = key(before, node) != key(after, node);
                let what = if found { "deletes its key" } else { "finds nothing" };
                format!("release of acquire {} of {} arrives at n{node}: {what}", attempt + 1, name(client))
            }
            Step::Rounded(node, client, attempt, round) => {
                let own = key(after, node) == self.value(client, attempt);
                let what = match (own, key(before, node) == key(after, node)) {
                    (true, true) => "extended",
                    (true, false) => "key written",
                    _ => "nothing done",
                };
                format!("{} of {} arrives at n{node}: {what}", round_name(round), name(client))
            }
            Step::RoundDone(node, client, round) => {
                format!("{} learns that its {} at n{node} succeeded", name(client), round_name(round))
            }
            Step::Expire(node) => format!("the key on n{node} expires"),
            Step::Crash(node) if self.config.quarantine == 0 => format!("n{node} restarts without its keys and votes"),
            Step::Crash(node) => {
                format!("n{node} restarts without its keys and votes again in {} ticks", self.config.quarantine)
            }
            Step::Flush(node) => format!("n{node} loses its keys and its marker"),
            Step::Provision(node) => {
                format!("n{node} gets a new marker and votes again in {} ticks", self.config.quarantine)
            }
            Step::Jump(node) => format!("the clock of n{node} jumps: its key expires early"),
            Step::Tick => "a tick passes".to_owned(),
        };
        for client in 0..self.config.clients {
            match (self.believes(before, client), self.believes(after, client)) {
                (false, true) => line = format!("{line}; {} HOLDS", name(client)),
                (true, false) if matches!(step, Step::Tick) => {
                    line = format!("{line}; {}'s deadline is over", name(client));
                }
                _ => {}
            }
        }
        line
    }
}
