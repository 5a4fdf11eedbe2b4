//! A read/write lock on N nodes. Readers need a quorum, as writers do, and a node lets a reader in beside readers only.
//! A reader may try to become the writer, on nodes where it is alone. A writer may downgrade to a reader. Messages
//! and time work as in [`exclusion`](crate::exclusion).
//!
//! ```text
//! client   Idle ──start: acquire to all──▶ Trying ──q grants──▶ Holding ──released, or deadline──▶ Over
//!                                          Trying ──gives up at any moment, release to all──▶ Over
//! reader   Holding ──upgrade to all──▶ Upgrading ──q nodes where it is alone──▶ Holding, as a writer
//!                                      Upgrading ──gives up: back to all──▶ Holding
//! writer   Holding ──downgrade: back to all──▶ Holding, as a reader
//! ```

use crate::checker::{Bits, Blocks, Layout, Model, State, least};

/// A configuration. The flags marked as broken each drop one rule of the protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// The number of grants that a reader and a writer need.
    pub readers_quorum: usize,
    pub writers_quorum: usize,
    pub writers: usize,
    pub readers: usize,
    pub lease: u64,
    pub belief: u64,
    /// The number of upgrade attempts and downgrades, of all clients together.
    pub changes: u64,
    /// Broken: a node makes a reader the writer although other readers are there.
    pub crowded: bool,
    /// Broken: a node lets readers in beside a writer, as if it mistook a plain lock for a reader's.
    pub ignored: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Start(usize),
    GiveUp(usize),
    Release(usize),
    Upgrade(usize),
    /// A client gives up an upgrade, or downgrades.
    Back(usize),
    /// Node, client.
    Acquire(usize, usize),
    Granted(usize, usize),
    Convert(usize, usize),
    Converted(usize, usize),
    Backed(usize, usize),
    Released(usize, usize),
    Expire(usize, usize),
    Tick,
}

const IDLE: u64 = 0;
const TRYING: u64 = 1;
const HOLDING: u64 = 2;
const OVER: u64 = 3;

const NONE: u64 = 0;
const REQUEST: u64 = 1;
const ANSWER: u64 = 2;

mod mark {
    pub(super) const READ: u32 = 1;
    pub(super) const READ_TOGETHER: u32 = 1 << 1;
    pub(super) const WRITTEN: u32 = 1 << 2;
    pub(super) const UPGRADED: u32 = 1 << 3;
    pub(super) const UPGRADE_REFUSED: u32 = 1 << 4;
    pub(super) const WENT_BACK: u32 = 1 << 5;
    pub(super) const LATE_GRANT: u32 = 1 << 6;
    pub(super) const EXPIRED: u32 = 1 << 7;
    pub(super) const LOST: u32 = 1 << 8;
}

/// The model of a configuration on N nodes; K = N + 1.
#[derive(Debug)]
pub struct ReadWrite<const K: usize> {
    config: Config,
    // The header: the fields of each client, then the number of changes left.
    phase: Bits,
    writes: Bits,
    upgrading: Bits,
    /// The remaining time of the deadline that the acquire gives.
    timer: Bits,
    blocks: Blocks,
    changes: Bits,
    // A column, for each client: its messages, what the client knows, and what the node stores.
    acquire: Bits,
    upgrade: Bits,
    back: Bits,
    release: Bits,
    life: Bits,
    /// True if the client knows that it is the writer on this node.
    alone: Bits,
    present: Bits,
    exclusive: Bits,
    ttl: Bits,
}

impl<const K: usize> ReadWrite<K> {
    pub fn new(config: Config) -> Self {
        let time = 64 - config.lease.max(config.belief).leading_zeros();
        let mut header = Layout::default();
        let (phase, writes, upgrading, timer) = (header.take(2), header.take(1), header.take(1), header.take(time));
        let client_block = header.used();
        header.repeat(client_block, config.writers + config.readers);
        let changes = header.take(2);
        let mut column = Layout::default();
        let (acquire, upgrade) = (column.take(2), column.take(2));
        let (back, release) = (column.take(1), column.take(1));
        let (life, alone) = (column.take(time), column.take(1));
        let (present, exclusive, ttl) = (column.take(1), column.take(1), column.take(time));
        let place_block = column.used();
        column.repeat(place_block, config.writers + config.readers);
        Self {
            config,
            phase,
            writes,
            upgrading,
            timer,
            blocks: Blocks { header: client_block, column: place_block },
            changes,
            acquire,
            upgrade,
            back,
            release,
            life,
            alone,
            present,
            exclusive,
            ttl,
        }
    }

    // ---- fields of a state ----

    fn clients(&self) -> std::ops::Range<usize> {
        0..self.config.writers + self.config.readers
    }

    fn of(&self, bits: Bits, client: usize) -> Bits {
        self.blocks.of(bits, client)
    }

    fn at(&self, bits: Bits, client: usize) -> Bits {
        self.blocks.at(bits, client)
    }

    fn get(&self, state: &State<K>, bits: Bits, client: usize) -> u64 {
        self.of(bits, client).get(state[0])
    }

    fn set(&self, state: &mut State<K>, bits: Bits, client: usize, value: u64) {
        self.of(bits, client).set(&mut state[0], value);
    }

    /// The number of nodes on which the client knows that it is present; with `writes`, that it is the writer.
    fn places(&self, state: &State<K>, client: usize, writes: bool) -> usize {
        let (life, alone) = (self.at(self.life, client), self.at(self.alone, client));
        state[1..].iter().filter(|column| life.get(**column) > 0 && (!writes || alone.get(**column) == 1)).count()
    }

    fn writes(&self, state: &State<K>, client: usize) -> bool {
        self.get(state, self.writes, client) == 1
    }

    fn believes(&self, state: &State<K>, client: usize) -> bool {
        let writes = self.writes(state, client);
        let needed = if writes { self.config.writers_quorum } else { self.config.readers_quorum };
        self.get(state, self.phase, client) == HOLDING && self.places(state, client, writes) >= needed
    }

    fn is_upgrading(&self, state: &State<K>, client: usize) -> bool {
        self.get(state, self.upgrading, client) == 1
    }

    // ---- clients ----

    fn start(&self, state: &mut State<K>, client: usize) {
        self.set(state, self.phase, client, TRYING);
        self.set(state, self.writes, client, u64::from(client < self.config.writers));
        self.set(state, self.timer, client, self.config.belief);
        state[1..].iter_mut().for_each(|column| self.at(self.acquire, client).set(column, REQUEST));
    }

    /// Ends the attempt or the tenure: sends a release to every node and ignores all further replies.
    fn end(&self, state: &mut State<K>, client: usize) {
        for column in &mut state[1..] {
            self.at(self.release, client).set(column, REQUEST);
            for bits in [self.acquire, self.upgrade] {
                let bits = self.at(bits, client);
                if bits.get(*column) == ANSWER {
                    bits.set(column, NONE);
                }
            }
            for bits in [self.life, self.alone, self.back] {
                self.at(bits, client).set(column, 0);
            }
        }
        self.set(state, self.phase, client, OVER);
        for bits in [self.writes, self.upgrading, self.timer] {
            self.set(state, bits, client, 0);
        }
    }

    fn change(&self, state: &mut State<K>) {
        let left = self.changes.get(state[0]);
        self.changes.set(&mut state[0], left - 1);
    }

    fn ask_to_upgrade(&self, state: &mut State<K>, client: usize) {
        self.change(state);
        self.set(state, self.upgrading, client, 1);
        state[1..].iter_mut().for_each(|column| self.at(self.upgrade, client).set(column, REQUEST));
    }

    fn go_back(&self, state: &mut State<K>, client: usize) {
        self.set(state, self.upgrading, client, 0);
        self.set(state, self.writes, client, 0);
        for column in &mut state[1..] {
            self.at(self.back, client).set(column, 1);
            self.at(self.alone, client).set(column, 0);
            if self.at(self.upgrade, client).get(*column) == ANSWER {
                self.at(self.upgrade, client).set(column, NONE);
            }
        }
    }

    fn hear_grant(&self, state: &mut State<K>, node: usize, client: usize) {
        let (timer, writes) = (self.get(state, self.timer, client), self.writes(state, client));
        self.at(self.acquire, client).set(&mut state[node], NONE);
        self.at(self.life, client).set(&mut state[node], timer);
        self.at(self.alone, client).set(&mut state[node], u64::from(writes));
        let needed = if writes { self.config.writers_quorum } else { self.config.readers_quorum };
        if self.places(state, client, writes) >= needed {
            self.set(state, self.phase, client, HOLDING);
        }
    }

    fn hear_conversion(&self, state: &mut State<K>, node: usize, client: usize) {
        self.at(self.upgrade, client).set(&mut state[node], NONE);
        self.at(self.alone, client).set(&mut state[node], 1);
        if self.places(state, client, true) >= self.config.writers_quorum {
            self.set(state, self.upgrading, client, 0);
            self.set(state, self.writes, client, 1);
        }
    }

    // ---- nodes ----

    fn others(&self, column: u64, client: usize, exclusive: bool) -> bool {
        self.clients().filter(|other| *other != client).any(|other| {
            self.at(self.present, other).get(column) == 1
                && (!exclusive || self.at(self.exclusive, other).get(column) == 1)
        })
    }

    fn remove(&self, column: &mut u64, client: usize) {
        for bits in [self.present, self.exclusive, self.ttl] {
            self.at(bits, client).set(column, 0);
        }
    }

    fn run_acquire(&self, state: &mut State<K>, node: usize, client: usize) {
        let (waits, as_writer) = (self.get(state, self.phase, client) != OVER, client < self.config.writers);
        let column = &mut state[node];
        let hindered = if as_writer {
            self.others(*column, client, false)
        } else {
            self.others(*column, client, true) && !self.config.ignored
        };
        if !hindered {
            self.at(self.present, client).set(column, 1);
            self.at(self.exclusive, client).set(column, u64::from(as_writer));
            self.at(self.ttl, client).set(column, self.config.lease);
        }
        self.at(self.acquire, client).set(column, if !hindered && waits { ANSWER } else { NONE });
    }

    fn run_upgrade(&self, state: &mut State<K>, node: usize, client: usize) {
        let waits = self.is_upgrading(state, client);
        let column = &mut state[node];
        let alone = self.config.crowded || !self.others(*column, client, false);
        let converted = self.at(self.present, client).get(*column) == 1 && alone;
        if converted {
            self.at(self.exclusive, client).set(column, 1);
        }
        self.at(self.upgrade, client).set(column, if converted && waits { ANSWER } else { NONE });
    }

    /// Arrives after the upgrade that it undoes: on the same connection, or after that connection has ended.
    fn run_back(&self, column: &mut u64, client: usize) {
        self.at(self.back, client).set(column, 0);
        self.at(self.exclusive, client).set(column, 0);
        self.at(self.upgrade, client).set(column, NONE);
    }

    fn run_release(&self, column: &mut u64, client: usize) {
        self.at(self.release, client).set(column, NONE);
        self.remove(column, client);
    }

    fn tick(&self, state: &mut State<K>) {
        for client in self.clients() {
            for column in &mut state[1..] {
                self.at(self.ttl, client).count_down(column);
                self.at(self.life, client).count_down(column);
            }
            self.of(self.timer, client).count_down(&mut state[0]);
            if self.get(state, self.phase, client) == HOLDING && !self.believes(state, client) {
                self.end(state, client);
            }
        }
    }

    // ---- reduction to canonical states ----

    /// Drops messages and timers that can no longer change anything.
    fn tidy(&self, state: &mut State<K>) {
        for client in self.clients() {
            let phase = self.get(state, self.phase, client);
            let mut awaited = false;
            for column in &mut state[1..] {
                let under_way = |column: u64, bits: Bits| self.at(bits, client).get(column) == REQUEST;
                let there = self.at(self.present, client).get(*column) == 1 || under_way(*column, self.acquire);
                awaited |= self.at(self.acquire, client).get(*column) != NONE;
                if !there {
                    for bits in [self.release, self.back] {
                        self.at(bits, client).set(column, 0);
                    }
                    if under_way(*column, self.upgrade) {
                        self.at(self.upgrade, client).set(column, NONE);
                    }
                }
                if self.at(self.life, client).get(*column) == 0 {
                    self.at(self.alone, client).set(column, 0);
                }
            }
            if !awaited || phase == OVER {
                self.set(state, self.timer, client, 0);
            }
        }
    }

    /// The sort key of a client. Writers come first.
    fn key(&self, state: &State<K>, client: usize) -> u64 {
        self.blocks.block(state[0], client) | u64::from(client >= self.config.writers) << 60
    }
}

impl<const K: usize> Model<K> for ReadWrite<K> {
    type Step = Step;

    fn initial(&self) -> Vec<State<K>> {
        let mut state = [0; K];
        self.changes.set(&mut state[0], self.config.changes);
        vec![state]
    }

    fn steps(&self, state: &State<K>, next: &mut impl FnMut(Step, State<K>)) {
        let mut with = |step: Step, change: &dyn Fn(&mut State<K>)| {
            let mut new = *state;
            change(&mut new);
            next(step, new);
        };
        let may_change = self.changes.get(state[0]) > 0;
        for client in self.clients() {
            match self.get(state, self.phase, client) {
                IDLE => with(Step::Start(client), &|new| self.start(new, client)),
                TRYING => with(Step::GiveUp(client), &|new| self.end(new, client)),
                HOLDING => {
                    with(Step::Release(client), &|new| self.end(new, client));
                    // No upgrade or step back of this client is in flight.
                    let quiet = state[1..].iter().all(|column| {
                        self.at(self.upgrade, client).get(*column) == NONE
                            && self.at(self.back, client).get(*column) == 0
                    });
                    match (self.is_upgrading(state, client), self.writes(state, client)) {
                        (true, _) => with(Step::Back(client), &|new| self.go_back(new, client)),
                        (false, false) if may_change && quiet => {
                            with(Step::Upgrade(client), &|new| self.ask_to_upgrade(new, client));
                        }
                        (false, true) if may_change && quiet => with(Step::Back(client), &|new| {
                            self.change(new);
                            self.go_back(new, client);
                        }),
                        _ => {}
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
            for client in self.clients() {
                let status = |bits: Bits| self.at(bits, client).get(column);
                match status(self.acquire) {
                    REQUEST => with(Step::Acquire(node, client), &|new| self.run_acquire(new, node, client)),
                    ANSWER => with(Step::Granted(node, client), &|new| self.hear_grant(new, node, client)),
                    _ => {}
                }
                match status(self.upgrade) {
                    REQUEST => with(Step::Convert(node, client), &|new| self.run_upgrade(new, node, client)),
                    ANSWER => with(Step::Converted(node, client), &|new| self.hear_conversion(new, node, client)),
                    _ => {}
                }
                if status(self.back) == 1 {
                    with(Step::Backed(node, client), &|new| self.run_back(&mut new[node], client));
                }
                if status(self.release) == REQUEST {
                    with(Step::Released(node, client), &|new| self.run_release(&mut new[node], client));
                }
                if status(self.present) == 1 && status(self.ttl) == 0 {
                    with(Step::Expire(node, client), &|new| self.remove(&mut new[node], client));
                }
            }
        }
        with(Step::Tick, &|new| self.tick(new));
    }

    fn canonical(&self, mut state: State<K>) -> State<K> {
        self.tidy(&mut state);
        least(
            state,
            self.clients().len(),
            |state, who| self.key(state, who),
            |state, order| self.blocks.reordered(state, order),
        )
    }

    fn violation(&self, state: &State<K>) -> Option<&'static str> {
        let believers = || self.clients().filter(|client| self.believes(state, *client));
        if believers().any(|client| self.writes(state, client)) && believers().count() > 1 {
            return Some("a writer is not alone");
        }
        None
    }

    fn marks(&self, before: &State<K>, step: Step, after: &State<K>) -> u32 {
        let readers = |state: &State<K>| {
            self.clients().filter(|client| self.believes(state, *client) && !self.writes(state, *client)).count()
        };
        let begins = |client: usize| self.believes(after, client) && !self.believes(before, client);
        match step {
            Step::Granted(_, client) if begins(client) => match (self.writes(after, client), readers(after)) {
                (true, _) => mark::WRITTEN,
                (false, 1) => mark::READ,
                (false, _) => mark::READ | mark::READ_TOGETHER,
            },
            Step::Converted(_, client) if self.writes(after, client) => mark::UPGRADED,
            Step::Convert(node, client) if self.at(self.exclusive, client).get(after[node]) == 0 => {
                mark::UPGRADE_REFUSED
            }
            Step::Back(client) if self.writes(before, client) => mark::WENT_BACK,
            Step::Acquire(node, client)
                if self.get(before, self.phase, client) == OVER
                    && self.at(self.present, client).get(after[node]) == 1 =>
            {
                mark::LATE_GRANT
            }
            Step::Expire(..) => mark::EXPIRED,
            Step::Tick if self.clients().any(|one| self.believes(before, one) && !self.believes(after, one)) => {
                mark::LOST
            }
            _ => 0,
        }
    }

    fn expected(&self) -> u32 {
        let config = &self.config;
        let some = |wanted: bool, mark: u32| if wanted { mark } else { 0 };
        mark::READ
            | mark::LATE_GRANT
            | mark::EXPIRED
            | mark::LOST
            | some(config.readers > 1, mark::READ_TOGETHER)
            | some(config.writers > 0, mark::WRITTEN)
            | some(config.changes > 0, mark::UPGRADED | mark::UPGRADE_REFUSED | mark::WENT_BACK)
    }

    fn tell(&self, before: &State<K>, step: Step, after: &State<K>) -> String {
        let name = |client: usize| {
            let number = if client < self.config.writers { client } else { client - self.config.writers };
            format!("{}{}", if client < self.config.writers { "W" } else { "R" }, number + 1)
        };
        let there = |node: usize, client: usize| self.at(self.present, client).get(after[node]) == 1;
        let mut line = match step {
            Step::Start(client) => format!("{} sends acquire to every node", name(client)),
            Step::GiveUp(client) => format!("{} gives up: release to every node", name(client)),
            Step::Release(client) => format!("{} releases: release to every node", name(client)),
            Step::Upgrade(client) => format!("{} sends an upgrade to every node", name(client)),
            Step::Back(client) => format!("{} goes on as a reader: back to every node", name(client)),
            Step::Acquire(node, client) => {
                format!("n{node} {} {}", if there(node, client) { "lets in" } else { "refuses" }, name(client))
            }
            Step::Granted(node, client) => format!("{} receives the grant of n{node}", name(client)),
            Step::Convert(node, client) => {
                let done = self.at(self.exclusive, client).get(after[node]) == 1;
                format!("n{node} {} {} the writer", if done { "makes" } else { "does not make" }, name(client))
            }
            Step::Converted(node, client) => format!("{} learns that it is the writer on n{node}", name(client)),
            Step::Backed(node, client) => format!("{} is a reader on n{node} again", name(client)),
            Step::Released(node, client) => format!("a release of {} arrives at n{node}", name(client)),
            Step::Expire(node, client) => format!("the entry of {} on n{node} expires", name(client)),
            Step::Tick => "a tick passes".to_owned(),
        };
        for client in self.clients() {
            match (self.believes(before, client), self.believes(after, client)) {
                (false, true) => line = format!("{line}; {} HOLDS", name(client)),
                (true, true) if self.writes(after, client) && !self.writes(before, client) => {
                    line = format!("{line}; {} WRITES", name(client));
                }
                (true, false) if matches!(step, Step::Tick) => {
                    line = format!("{line}; {}'s deadline is over", name(client));
                }
                _ => {}
            }
        }
        line
    }
}
