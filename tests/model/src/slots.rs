//! A semaphore on N nodes. Each of its k permits is a numbered slot, and a slot is an exclusive lock that a majority
//! grants. An attempt draws a slot and requests from every node the first free slot from there on. If the nodes granted
//! different slots, the attempt moves its grants to one of these. Messages and time work as in
//! [`exclusion`](crate::exclusion).
//!
//! ```text
//! client   Idle ──start: acquire to all──▶ Trying ──q grants of one slot──▶ Holding ──released, or deadline──▶ Over
//!                                          Trying ──chooses a slot: moves──▶ Moving ──q of that slot──▶ Holding
//!                                          Trying, Moving ──gives up at any moment, release to all──▶ Over
//! ```
//! Other libraries count the holders on each node and use no slots. With q = ⌊N/2⌋ + 1 that admits up to ⌊N·k/q⌋
//! holders.

use crate::checker::{Bits, Blocks, Layout, Model, State, least};

/// A configuration. The flags marked as broken each drop one rule of the protocol.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each flag keeps or drops one rule
pub struct Config {
    pub quorum: usize,
    pub clients: usize,
    /// The number of slots.
    pub permits: usize,
    /// The number of attempts of all clients, at most one each.
    pub starts: u64,
    /// 0: no time passes.
    pub lease: u64,
    pub belief: u64,
    /// Broken: grants of any slots count together, as if each node counted its holders.
    pub counted: bool,
    /// Broken: a move takes a slot even if another client has it.
    pub seizes: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Client, slot.
    Start(usize, u64),
    Choose(usize, u64),
    GiveUp(usize),
    Release(usize),
    /// Node, client.
    Acquire(usize, usize),
    Granted(usize, usize),
    Move(usize, usize),
    Moved(usize, usize),
    Released(usize, usize),
    /// Node, slot.
    Expire(usize, usize),
    Tick,
}

const IDLE: u64 = 0;
const TRYING: u64 = 1;
const MOVING: u64 = 2;
const HOLDING: u64 = 3;
const OVER: u64 = 4;

const NONE: u64 = 0;
const REQUEST: u64 = 1;
const ANSWER: u64 = 2;

mod mark {
    pub(super) const HELD: u32 = 1;
    pub(super) const HELD_BY_MOVE: u32 = 1 << 1;
    pub(super) const ALL_HELD: u32 = 1 << 2;
    pub(super) const LATE_GRANT: u32 = 1 << 3;
    pub(super) const MOVE_REFUSED: u32 = 1 << 4;
    pub(super) const RELEASED: u32 = 1 << 5;
    pub(super) const EXPIRED: u32 = 1 << 6;
    pub(super) const LOST: u32 = 1 << 7;
}

const MOST_PERMITS: usize = 3;

/// The model of a configuration on N nodes; K = N + 1.
#[derive(Debug)]
pub struct Slots<const K: usize> {
    config: Config,
    // The header: the clients' blocks.
    phase: Bits,
    /// The slot that the client drew, then the one that it wants or has.
    slot: Bits,
    /// The remaining time of the deadline that the acquire gives.
    timer: Bits,
    blocks: Blocks,
    starts: Bits,
    // A column: the clients' blocks, then the node's slots.
    acquire: Bits,
    /// The slot that the node granted, plus one.
    granted: Bits,
    /// The slot that the client knows to have here, plus one, and the remaining time of its deadline.
    known: Bits,
    life: Bits,
    moving: Bits,
    release: Bits,
    /// The owner of each slot, plus one, and the time for which the node keeps it at least.
    owners: [Bits; MOST_PERMITS],
    ttls: [Bits; MOST_PERMITS],
}

impl<const K: usize> Slots<K> {
    pub fn new(config: Config) -> Self {
        assert!(config.permits <= MOST_PERMITS, "at most {MOST_PERMITS} permits");
        let time = 64 - config.lease.max(config.belief).leading_zeros();
        let mut header = Layout::default();
        let (phase, slot, timer) = (header.take(3), header.take(2), header.take(time));
        let client_block = header.used();
        header.repeat(client_block, config.clients);
        let starts = header.take(3);
        let mut column = Layout::default();
        let (acquire, granted) = (column.take(2), column.take(2));
        let (known, life) = (column.take(2), column.take(time));
        let (moving, release) = (column.take(2), column.take(1));
        let place_block = column.used();
        column.repeat(place_block, config.clients);
        let (mut owners, mut ttls) = ([Bits::default(); MOST_PERMITS], [Bits::default(); MOST_PERMITS]);
        owners[..config.permits].fill_with(|| column.take(3));
        ttls[..config.permits].fill_with(|| column.take(time));
        Self {
            config,
            phase,
            slot,
            timer,
            blocks: Blocks { header: client_block, column: place_block },
            starts,
            acquire,
            granted,
            known,
            life,
            moving,
            release,
            owners,
            ttls,
        }
    }

    // ---- fields of a state ----

    fn of(&self, bits: Bits, client: usize) -> Bits {
        self.blocks.of(bits, client)
    }

    fn at(&self, bits: Bits, client: usize) -> Bits {
        self.blocks.at(bits, client)
    }

    fn phase(&self, state: &State<K>, client: usize) -> u64 {
        self.of(self.phase, client).get(state[0])
    }

    fn slot(&self, state: &State<K>, client: usize) -> u64 {
        self.of(self.slot, client).get(state[0])
    }

    /// The number of nodes on which the client knows that it has this slot.
    fn votes(&self, state: &State<K>, client: usize, slot: u64) -> usize {
        let (known, life) = (self.at(self.known, client), self.at(self.life, client));
        let counts = |known: u64| if self.config.counted { known != 0 } else { known == slot + 1 };
        state[1..].iter().filter(|column| life.get(**column) > 0 && counts(known.get(**column))).count()
    }

    fn believes(&self, state: &State<K>, client: usize) -> bool {
        self.phase(state, client) == HOLDING
            && self.votes(state, client, self.slot(state, client)) >= self.config.quorum
    }

    /// The slot that a node has given to the client.
    fn given(&self, column: u64, client: usize) -> Option<usize> {
        (0..self.config.permits).find(|slot| self.owners[*slot].get(column) == client as u64 + 1)
    }

    // ---- clients ----

    fn start(&self, state: &mut State<K>, client: usize, slot: u64) {
        let left = self.starts.get(state[0]);
        self.starts.set(&mut state[0], left - 1);
        self.of(self.phase, client).set(&mut state[0], TRYING);
        self.of(self.slot, client).set(&mut state[0], slot);
        self.of(self.timer, client).set(&mut state[0], self.config.belief);
        state[1..].iter_mut().for_each(|column| self.at(self.acquire, client).set(column, REQUEST));
    }

    /// Moves the client's other slots to this one.
    fn choose(&self, state: &mut State<K>, client: usize, slot: u64) {
        self.of(self.phase, client).set(&mut state[0], MOVING);
        self.of(self.slot, client).set(&mut state[0], slot);
        for column in &mut state[1..] {
            let known = self.at(self.known, client).get(*column);
            if known != 0 && known != slot + 1 {
                self.at(self.moving, client).set(column, REQUEST);
            }
        }
    }

    /// Ends the attempt or the tenure: sends a release to every node and ignores all further replies.
    fn end(&self, state: &mut State<K>, client: usize) {
        for column in &mut state[1..] {
            self.at(self.release, client).set(column, REQUEST);
            for bits in [self.acquire, self.moving] {
                let bits = self.at(bits, client);
                if bits.get(*column) == ANSWER {
                    bits.set(column, NONE);
                }
            }
            for bits in [self.granted, self.known, self.life] {
                self.at(bits, client).set(column, 0);
            }
        }
        self.of(self.phase, client).set(&mut state[0], OVER);
        self.of(self.timer, client).set(&mut state[0], 0);
    }

    /// Counts the grants that the client knows. A holder releases those of other slots.
    fn count(&self, state: &mut State<K>, client: usize) {
        let phase = self.phase(state, client);
        let slots = 0..self.config.permits as u64;
        let enough = |slot: &u64| self.votes(state, client, *slot) >= self.config.quorum;
        let held = match phase {
            TRYING => slots.clone().find(enough),
            MOVING => Some(self.slot(state, client)).filter(enough),
            _ => None,
        };
        if let Some(slot) = held {
            self.of(self.phase, client).set(&mut state[0], HOLDING);
            self.of(self.slot, client).set(&mut state[0], slot);
        }
        if self.phase(state, client) != HOLDING || self.config.counted {
            return;
        }
        let slot = self.slot(state, client);
        for column in &mut state[1..] {
            let known = self.at(self.known, client).get(*column);
            if known != 0 && known != slot + 1 && self.at(self.moving, client).get(*column) == NONE {
                self.at(self.release, client).set(column, REQUEST);
                self.at(self.known, client).set(column, 0);
                self.at(self.life, client).set(column, 0);
            }
        }
    }

    fn hear_grant(&self, state: &mut State<K>, node: usize, client: usize) {
        let timer = self.of(self.timer, client).get(state[0]);
        let column = &mut state[node];
        let slot = self.at(self.granted, client).get(*column);
        self.at(self.acquire, client).set(column, NONE);
        self.at(self.granted, client).set(column, 0);
        self.at(self.known, client).set(column, slot);
        self.at(self.life, client).set(column, timer);
        self.count(state, client);
    }

    fn hear_move(&self, state: &mut State<K>, node: usize, client: usize) {
        // The deadline stays that of the acquire.
        let slot = self.slot(state, client);
        self.at(self.moving, client).set(&mut state[node], NONE);
        self.at(self.known, client).set(&mut state[node], slot + 1);
        self.count(state, client);
    }

    // ---- nodes ----

    fn give(&self, column: &mut u64, slot: usize, owner: u64, ttl: u64) {
        self.owners[slot].set(column, owner);
        self.ttls[slot].set(column, ttl);
    }

    fn run_acquire(&self, state: &mut State<K>, node: usize, client: usize) {
        let (first, waits) = (self.slot(state, client) as usize, self.phase(state, client) != OVER);
        let column = &mut state[node];
        let permits = self.config.permits;
        let free = (0..permits).map(|at| (first + at) % permits).find(|slot| self.owners[*slot].get(*column) == 0);
        let answers = free.filter(|_| waits);
        if let Some(slot) = free {
            self.give(column, slot, client as u64 + 1, self.config.lease);
        }
        self.at(self.acquire, client).set(column, if answers.is_some() { ANSWER } else { NONE });
        self.at(self.granted, client).set(column, answers.map_or(0, |slot| slot as u64 + 1));
    }

    fn run_move(&self, state: &mut State<K>, node: usize, client: usize) {
        let (to, waits) = (self.slot(state, client) as usize, self.phase(state, client) != OVER);
        let column = &mut state[node];
        let free = self.config.seizes || self.owners[to].get(*column) == 0;
        let from = self.given(*column, client).filter(|_| free);
        if let Some(from) = from {
            let ttl = self.ttls[from].get(*column);
            self.give(column, from, 0, 0);
            self.give(column, to, client as u64 + 1, ttl);
        }
        self.at(self.moving, client).set(column, if from.is_some() && waits { ANSWER } else { NONE });
    }

    fn run_release(&self, state: &mut State<K>, node: usize, client: usize) {
        let column = &mut state[node];
        self.at(self.release, client).set(column, NONE);
        if let Some(slot) = self.given(*column, client) {
            self.give(column, slot, 0, 0);
        }
    }

    fn tick(&self, state: &mut State<K>) {
        for column in &mut state[1..] {
            self.ttls[..self.config.permits].iter().for_each(|ttl| ttl.count_down(column));
            (0..self.config.clients).for_each(|client| self.at(self.life, client).count_down(column));
        }
        for client in 0..self.config.clients {
            self.of(self.timer, client).count_down(&mut state[0]);
            if self.phase(state, client) == HOLDING && !self.believes(state, client) {
                self.end(state, client);
            }
        }
    }

    // ---- reduction to canonical states ----

    /// Drops messages and timers that can no longer change anything.
    fn tidy(&self, state: &mut State<K>) {
        for client in 0..self.config.clients {
            let phase = self.phase(state, client);
            let mut awaited = false;
            for column in &mut state[1..] {
                let acquire = self.at(self.acquire, client);
                awaited |= acquire.get(*column) != NONE || self.at(self.moving, client).get(*column) != NONE;
                let may_come = acquire.get(*column) == REQUEST || self.at(self.moving, client).get(*column) == REQUEST;
                if self.given(*column, client).is_none() && !may_come {
                    self.at(self.release, client).set(column, NONE);
                }
                if self.at(self.life, client).get(*column) == 0 && phase == HOLDING {
                    self.at(self.known, client).set(column, 0);
                }
            }
            if !awaited && phase != TRYING {
                self.of(self.timer, client).set(&mut state[0], 0);
            }
            let used = |bits: Bits| state[1..].iter().any(|column| self.at(bits, client).get(*column) == REQUEST);
            if phase == OVER && !used(self.acquire) && !used(self.moving) {
                self.of(self.slot, client).set(&mut state[0], 0);
            }
        }
    }

    /// The same state with the clients in another order.
    fn reordered(&self, state: &State<K>, order: &[usize]) -> State<K> {
        let mut new = self.blocks.reordered(state, order);
        for column in &mut new[1..] {
            for owner in &self.owners[..self.config.permits] {
                let client = owner.get(*column) as usize;
                if client != 0 {
                    let place = order.iter().position(|from| *from == client - 1).unwrap_or_default();
                    owner.set(column, place as u64 + 1);
                }
            }
        }
        new
    }

    fn believers(&self, state: &State<K>) -> impl Iterator<Item = usize> {
        (0..self.config.clients).filter(|client| self.believes(state, *client))
    }
}

impl<const K: usize> Model<K> for Slots<K> {
    type Step = Step;

    fn initial(&self) -> Vec<State<K>> {
        let mut state = [0; K];
        self.starts.set(&mut state[0], self.config.starts);
        vec![state]
    }

    fn steps(&self, state: &State<K>, next: &mut impl FnMut(Step, State<K>)) {
        let mut with = |step: Step, change: &dyn Fn(&mut State<K>)| {
            let mut new = *state;
            change(&mut new);
            next(step, new);
        };
        let slots = 0..self.config.permits as u64;
        for client in 0..self.config.clients {
            match self.phase(state, client) {
                IDLE if self.starts.get(state[0]) > 0 => {
                    // If slots are only counted, the first one makes no difference.
                    for slot in slots.clone().take(if self.config.counted { 1 } else { MOST_PERMITS }) {
                        with(Step::Start(client, slot), &|new| self.start(new, client, slot));
                    }
                }
                TRYING => {
                    with(Step::GiveUp(client), &|new| self.end(new, client));
                    let voted = |slot: &u64| self.votes(state, client, *slot) > 0;
                    for slot in slots.clone().filter(voted).filter(|_| !self.config.counted) {
                        with(Step::Choose(client, slot), &|new| self.choose(new, client, slot));
                    }
                }
                MOVING => with(Step::GiveUp(client), &|new| self.end(new, client)),
                HOLDING => with(Step::Release(client), &|new| self.end(new, client)),
                _ => {}
            }
        }
        for node in 1..K {
            let column = state[node];
            // Nodes with equal columns differ only in name.
            if state[1..node].contains(&column) {
                continue;
            }
            for client in 0..self.config.clients {
                let status = |bits: Bits| self.at(bits, client).get(column);
                match status(self.acquire) {
                    REQUEST => with(Step::Acquire(node, client), &|new| self.run_acquire(new, node, client)),
                    ANSWER => with(Step::Granted(node, client), &|new| self.hear_grant(new, node, client)),
                    _ => {}
                }
                match status(self.moving) {
                    REQUEST => with(Step::Move(node, client), &|new| self.run_move(new, node, client)),
                    ANSWER => with(Step::Moved(node, client), &|new| self.hear_move(new, node, client)),
                    _ => {}
                }
                if status(self.release) == REQUEST {
                    with(Step::Released(node, client), &|new| self.run_release(new, node, client));
                }
            }
            for slot in 0..self.config.permits {
                let ended = self.config.lease > 0 && self.ttls[slot].get(column) == 0;
                if self.owners[slot].get(column) != 0 && ended {
                    with(Step::Expire(node, slot), &|new| self.give(&mut new[node], slot, 0, 0));
                }
            }
        }
        if self.config.lease > 0 {
            with(Step::Tick, &|new| self.tick(new));
        }
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
        if self.believers(state).count() > self.config.permits {
            return Some("more hold than there are permits");
        }
        let shared = |slot: u64| self.believers(state).filter(|client| self.slot(state, *client) == slot).count() > 1;
        if !self.config.counted && (0..self.config.permits as u64).any(shared) {
            return Some("two hold the same slot");
        }
        None
    }

    fn marks(&self, before: &State<K>, step: Step, after: &State<K>) -> u32 {
        let begins = |client: usize| self.believes(after, client) && !self.believes(before, client);
        let all = |seen: u32| {
            if self.believers(after).count() == self.config.permits { seen | mark::ALL_HELD } else { seen }
        };
        match step {
            Step::Granted(_, client) if begins(client) => all(mark::HELD),
            Step::Moved(_, client) if begins(client) => all(mark::HELD_BY_MOVE),
            Step::Acquire(node, client)
                if self.phase(before, client) == OVER && self.given(after[node], client).is_some() =>
            {
                mark::LATE_GRANT
            }
            Step::Move(node, client) if self.at(self.moving, client).get(after[node]) == NONE => mark::MOVE_REFUSED,
            Step::Released(..) => mark::RELEASED,
            Step::Expire(..) => mark::EXPIRED,
            Step::Tick if self.believers(before).count() > self.believers(after).count() => mark::LOST,
            _ => 0,
        }
    }

    fn expected(&self) -> u32 {
        mark::HELD
            | mark::HELD_BY_MOVE
            | mark::ALL_HELD
            | mark::LATE_GRANT
            | mark::MOVE_REFUSED
            | mark::RELEASED
            | mark::EXPIRED
            | mark::LOST
    }

    fn tell(&self, before: &State<K>, step: Step, after: &State<K>) -> String {
        let name = |client: usize| ["A", "B", "C", "D"][client];
        let mut line = match step {
            Step::Start(client, slot) => format!("{} requests a slot of every node, from {slot} on", name(client)),
            Step::Choose(client, slot) => {
                format!("{} chooses slot {slot}: moves to the nodes that granted another", name(client))
            }
            Step::GiveUp(client) => format!("{} gives up: release to every node", name(client)),
            Step::Release(client) => format!("{} releases: release to every node", name(client)),
            Step::Acquire(node, client) => match self.given(after[node], client) {
                Some(slot) => format!("n{node} grants {} slot {slot} for {} ticks", name(client), self.config.lease),
                None => format!("n{node} has no slot for {}", name(client)),
            },
            Step::Granted(node, client) => format!("{} receives the grant of n{node}", name(client)),
            Step::Move(node, client) => match self.given(after[node], client) {
                Some(slot) => format!("a move of {} arrives at n{node}: it has slot {slot}", name(client)),
                None => format!("a move of {} arrives at n{node}: it has nothing there", name(client)),
            },
            Step::Moved(node, client) => format!("{} learns that its move on n{node} succeeded", name(client)),
            Step::Released(node, client) => format!("a release of {} arrives at n{node}", name(client)),
            Step::Expire(node, slot) => format!("slot {slot} on n{node} expires"),
            Step::Tick => "a tick passes".to_owned(),
        };
        for client in 0..self.config.clients {
            match (self.believes(before, client), self.believes(after, client)) {
                (false, true) => line = format!("{line}; {} HOLDS slot {}", name(client), self.slot(after, client)),
                (true, false) if matches!(step, Step::Tick) => {
                    line = format!("{line}; {}'s deadline is over", name(client));
                }
                _ => {}
            }
        }
        line
    }
}
