//! A lock with a least hold. The release replaces the tenure's key on each node by one that nobody owns, the *rest*,
//! and gives it a ttl: what is left of `min_hold`. Messages are delayed without bound; only the acquire of a tenure
//! never arrives after its release.
//!
//! Two properties. Nobody holds the lock earlier than `min_hold` ticks after a grant whose release a quorum confirmed.
//! And nothing lengthens the time of a key whose tenure a node has released, so that the lock becomes free.
//!
//! ```text
//! client   Idle ──acquire──▶ Trying ──q nodes granted──▶ Holding ──released, or deadline──▶ Over
//! node     free ──acquire──▶ its key ──released in time──▶ rest ──ttl──▶ free
//!                                    ──released later────────────────▶ free
//! ```

use crate::checker::{Bits, Blocks, Layout, Model, State, least};

/// A configuration. The flags marked as broken each drop one rule of the protocol.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // each flag keeps or drops one rule
pub struct Config {
    pub quorum: usize,
    /// For how long a key lives at least after an acquire or a renewal, and a client counts the lock as held.
    pub lease: u64,
    /// For how long the lock stays taken at least after its grant.
    pub min_hold: u64,
    /// Broken: a release frees the lock.
    pub frees: bool,
    /// Broken: the tenure's own key stays, with the ttl of the rest.
    pub keeps_key: bool,
    /// Broken: the rest counts from before the request.
    pub from_request: bool,
}

const CLIENTS: usize = 2;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Start(usize),
    Release(usize),
    Renew(usize),
    Acquire(usize, usize),
    Granted(usize, usize),
    Renewed(usize, usize),
    Released(usize, usize),
    Expire(usize),
    Tick,
}

const IDLE: u64 = 0;
const TRYING: u64 = 1;
const HOLDING: u64 = 2;
const OVER: u64 = 3;

const NONE: u64 = 0;
const REQUEST: u64 = 1;
const ANSWER: u64 = 2;

/// The key on a node, besides 0 for none and the number of a client plus one.
const REST: u64 = 3;

mod mark {
    pub(super) const HELD: u32 = 1;
    pub(super) const RESTED: u32 = 1 << 1;
    pub(super) const FREED: u32 = 1 << 2;
    pub(super) const EXPIRED: u32 = 1 << 3;
    pub(super) const RENEWED: u32 = 1 << 4;
    pub(super) const RENEWED_LATE: u32 = 1 << 5;
    pub(super) const LOST: u32 = 1 << 6;
    pub(super) const HELD_NEXT: u32 = 1 << 7;
}

#[derive(Debug)]
pub struct MinHold<const K: usize> {
    config: Config,
    blocks: Blocks,
    // The header, for each client: its phase, the time until its deadline, what is left of `min_hold` by its count, and
    // in truth; how many nodes have granted it the lock and told it so, and how many of them have run its release.
    phase: Bits,
    timer: Bits,
    left: Bits,
    truth: Bits,
    granted: Bits,
    told: Bits,
    released: Bits,
    /// Whether it has sent its renewal.
    renewed: Bits,
    // What must never happen.
    early: Bits,
    grew: Bits,
    // A column: for each client its messages, and whether the node has released its tenure; then the key.
    acquire: Bits,
    renewal: Bits,
    release: Bits,
    done: Bits,
    key: Bits,
    ttl: Bits,
}

impl<const K: usize> MinHold<K> {
    pub fn new(config: Config) -> Self {
        let time = 64 - config.lease.max(config.min_hold).leading_zeros();
        let mut header = Layout::default();
        let phase = header.take(2);
        let (timer, left, truth) = (header.take(time), header.take(time), header.take(time));
        let (granted, told, released, renewed) = (header.take(2), header.take(2), header.take(2), header.take(1));
        let mut column = Layout::default();
        let (acquire, renewal, release, done) = (column.take(2), column.take(1), column.take(1), column.take(1));
        let blocks = Blocks { header: header.used(), column: column.used() };
        header.repeat(blocks.header, CLIENTS);
        column.repeat(blocks.column, CLIENTS);
        let (early, grew) = (header.take(1), header.take(1));
        let (key, ttl) = (column.take(2), column.take(time));
        Self {
            config,
            blocks,
            phase,
            timer,
            left,
            truth,
            granted,
            told,
            released,
            renewed,
            early,
            grew,
            acquire,
            renewal,
            release,
            done,
            key,
            ttl,
        }
    }

    fn get(&self, state: &State<K>, bits: Bits, client: usize) -> u64 {
        self.blocks.of(bits, client).get(state[0])
    }

    fn set(&self, state: &mut State<K>, bits: Bits, client: usize, value: u64) {
        self.blocks.of(bits, client).set(&mut state[0], value);
    }

    fn count(&self, state: &mut State<K>, bits: Bits, client: usize) -> u64 {
        let count = self.get(state, bits, client) + 1;
        self.set(state, bits, client, count);
        count
    }

    fn message(&self, bits: Bits, client: usize) -> Bits {
        self.blocks.at(bits, client)
    }

    fn send(&self, state: &mut State<K>, bits: Bits, client: usize) {
        state[1..].iter_mut().for_each(|column| self.message(bits, client).set(column, REQUEST));
    }

    // ---- the clients ----

    fn start(&self, state: &mut State<K>, client: usize) {
        self.set(state, self.phase, client, TRYING);
        self.set(state, self.timer, client, self.config.lease);
        self.set(state, self.left, client, self.config.min_hold);
        self.send(state, self.acquire, client);
    }

    fn told(&self, state: &mut State<K>, node: usize, client: usize) {
        self.message(self.acquire, client).set(&mut state[node], NONE);
        let in_time = self.get(state, self.phase, client) == TRYING && self.get(state, self.timer, client) > 0;
        if !in_time || self.count(state, self.told, client) < self.config.quorum as u64 {
            return;
        }
        self.set(state, self.phase, client, HOLDING);
        let other = 1 - client;
        let by_quorum = |bits| self.get(state, bits, other) >= self.config.quorum as u64;
        if by_quorum(self.told) && by_quorum(self.released) && self.get(state, self.truth, other) > 0 {
            self.early.set(&mut state[0], 1);
        }
    }

    /// Ends a tenure, or an attempt. What is left of `min_hold` is in the release, and no longer changes.
    fn end(&self, state: &mut State<K>, client: usize) {
        if self.get(state, self.phase, client) == TRYING {
            self.set(state, self.left, client, 0);
        }
        self.set(state, self.phase, client, OVER);
        self.set(state, self.timer, client, 0);
        self.send(state, self.release, client);
    }

    fn renew(&self, state: &mut State<K>, client: usize) {
        self.set(state, self.renewed, client, 1);
        self.send(state, self.renewal, client);
    }

    // ---- the nodes ----

    fn holds(&self, column: u64, client: usize) -> bool {
        self.key.get(column) == client as u64 + 1
    }

    fn write(&self, column: &mut u64, key: u64, ttl: u64) {
        self.key.set(column, key);
        self.ttl.set(column, if key == 0 { 0 } else { ttl });
    }

    fn run_acquire(&self, state: &mut State<K>, node: usize, client: usize) {
        let free = self.key.get(state[node]) == 0;
        if free {
            self.write(&mut state[node], client as u64 + 1, self.config.lease);
        }
        let waits = self.get(state, self.phase, client) == TRYING;
        self.message(self.acquire, client).set(&mut state[node], if free && waits { ANSWER } else { NONE });
        // The grant is complete with the quorum's last node.
        if free && self.count(state, self.granted, client) == self.config.quorum as u64 {
            self.set(state, self.truth, client, self.config.min_hold);
        }
    }

    fn run_renewal(&self, state: &mut State<K>, node: usize, client: usize) {
        self.message(self.renewal, client).set(&mut state[node], NONE);
        if !self.holds(state[node], client) || self.ttl.get(state[node]) >= self.config.lease {
            return;
        }
        self.ttl.set(&mut state[node], self.config.lease);
        if self.message(self.done, client).get(state[node]) == 1 {
            self.grew.set(&mut state[0], 1);
        }
    }

    fn run_release(&self, state: &mut State<K>, node: usize, client: usize) {
        self.message(self.release, client).set(&mut state[node], NONE);
        self.message(self.acquire, client).set(&mut state[node], NONE);
        if !self.holds(state[node], client) {
            return;
        }
        let rest = if self.config.frees { 0 } else { self.get(state, self.left, client) };
        let key = if self.config.keeps_key { client as u64 + 1 } else { REST };
        self.write(&mut state[node], if rest == 0 { 0 } else { key }, rest);
        self.message(self.done, client).set(&mut state[node], 1);
        self.count(state, self.released, client);
    }

    fn tick(&self, state: &mut State<K>) {
        state[1..].iter_mut().for_each(|column| self.ttl.count_down(column));
        for client in 0..CLIENTS {
            let phase = self.get(state, self.phase, client);
            self.blocks.of(self.timer, client).count_down(&mut state[0]);
            self.blocks.of(self.truth, client).count_down(&mut state[0]);
            if phase == HOLDING || phase == TRYING && self.config.from_request {
                self.blocks.of(self.left, client).count_down(&mut state[0]);
            }
            let over = matches!(phase, TRYING | HOLDING) && self.get(state, self.timer, client) == 0;
            if over {
                self.end(state, client);
            }
        }
    }
}

impl<const K: usize> Model<K> for MinHold<K> {
    type Step = Step;

    fn initial(&self) -> Vec<State<K>> {
        vec![[0; K]]
    }

    fn steps(&self, state: &State<K>, next: &mut impl FnMut(Step, State<K>)) {
        let mut with = |step: Step, change: &dyn Fn(&mut State<K>)| {
            let mut new = *state;
            change(&mut new);
            next(step, new);
        };
        for client in 0..CLIENTS {
            match self.get(state, self.phase, client) {
                IDLE => with(Step::Start(client), &|new| self.start(new, client)),
                TRYING => with(Step::Release(client), &|new| self.end(new, client)),
                HOLDING => {
                    with(Step::Release(client), &|new| self.end(new, client));
                    if self.get(state, self.renewed, client) == 0 {
                        with(Step::Renew(client), &|new| self.renew(new, client));
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
            for client in 0..CLIENTS {
                match self.message(self.acquire, client).get(column) {
                    REQUEST => with(Step::Acquire(node, client), &|new| self.run_acquire(new, node, client)),
                    ANSWER => with(Step::Granted(node, client), &|new| self.told(new, node, client)),
                    _ => {}
                }
                if self.message(self.renewal, client).get(column) == REQUEST {
                    with(Step::Renewed(node, client), &|new| self.run_renewal(new, node, client));
                }
                if self.message(self.release, client).get(column) == REQUEST {
                    with(Step::Released(node, client), &|new| self.run_release(new, node, client));
                }
            }
            if self.key.get(column) != 0 && self.ttl.get(column) == 0 {
                with(Step::Expire(node), &|new| self.write(&mut new[node], 0, 0));
            }
        }
        with(Step::Tick, &|new| self.tick(new));
    }

    fn canonical(&self, mut state: State<K>) -> State<K> {
        (0..CLIENTS).for_each(|client| self.tidy(&mut state, client));
        let reordered = |state: &State<K>, order: &[usize]| {
            let mut new = self.blocks.reordered(state, order);
            for column in &mut new[1..] {
                let key = self.key.get(*column);
                if key != 0 && key != REST {
                    let place = order.iter().position(|from| *from as u64 + 1 == key).unwrap_or_default();
                    self.key.set(column, place as u64 + 1);
                }
            }
            new
        };
        least(state, CLIENTS, |state, who| self.blocks.block(state[0], who), reordered)
    }

    fn violation(&self, state: &State<K>) -> Option<&'static str> {
        if self.early.get(state[0]) == 1 {
            return Some("a client holds before min_hold is over");
        }
        (self.grew.get(state[0]) == 1).then_some("a released lock stays taken for longer")
    }

    fn marks(&self, before: &State<K>, step: Step, after: &State<K>) -> u32 {
        match step {
            Step::Granted(_, client) if self.get(after, self.phase, client) == HOLDING => {
                let next = self.get(after, self.phase, 1 - client) == OVER;
                if next { mark::HELD | mark::HELD_NEXT } else { mark::HELD }
            }
            Step::Released(node, client) if self.holds(before[node], client) => {
                let renewal_follows = self.message(self.renewal, client).get(before[node]) == REQUEST;
                let late = if renewal_follows { mark::RENEWED_LATE } else { 0 };
                late | if self.key.get(after[node]) == REST { mark::RESTED } else { mark::FREED }
            }
            Step::Renewed(node, _) if self.ttl.get(after[node]) > self.ttl.get(before[node]) => mark::RENEWED,
            Step::Expire(_) => mark::EXPIRED,
            Step::Tick if (0..CLIENTS).any(|client| self.is_lost(before, after, client)) => mark::LOST,
            _ => 0,
        }
    }

    fn expected(&self) -> u32 {
        mark::HELD
            | mark::RESTED
            | mark::FREED
            | mark::EXPIRED
            | mark::RENEWED
            | mark::RENEWED_LATE
            | mark::LOST
            | mark::HELD_NEXT
    }

    fn tell(&self, before: &State<K>, step: Step, after: &State<K>) -> String {
        let name = |client: usize| ["A", "B"][client];
        match step {
            Step::Start(client) => format!("{} sends an acquire to every node", name(client)),
            Step::Release(client) if self.get(before, self.phase, client) == TRYING => {
                format!("{} gives its acquire up", name(client))
            }
            Step::Release(client) => {
                format!("{} releases, with {} ticks of min_hold left", name(client), self.get(after, self.left, client))
            }
            Step::Renew(client) => format!("{} sends a renewal to every node", name(client)),
            Step::Acquire(node, client) => {
                let granted = self.holds(after[node], client) && !self.holds(before[node], client);
                format!("n{node} {} {}", if granted { "grants the acquire of" } else { "refuses" }, name(client))
            }
            Step::Granted(node, client) => {
                let holds = if self.get(after, self.phase, client) == HOLDING { "; it HOLDS" } else { "" };
                format!("{} receives the grant of n{node}{holds}", name(client))
            }
            Step::Renewed(node, client) => {
                format!("the renewal of {} arrives at n{node}: {} ticks left", name(client), self.ttl.get(after[node]))
            }
            Step::Released(node, client) => {
                let left = self.ttl.get(after[node]);
                let what = match self.key.get(after[node]) {
                    _ if !self.holds(before[node], client) => "finds nothing".to_owned(),
                    0 => "deletes its key".to_owned(),
                    _ => format!("leaves the lock taken for {left} ticks"),
                };
                format!("the release of {} arrives at n{node}: {what}", name(client))
            }
            Step::Expire(node) => format!("the key on n{node} expires"),
            Step::Tick => "a tick passes".to_owned(),
        }
    }
}

impl<const K: usize> MinHold<K> {
    /// Drops what a client that is over no longer needs: messages that change nothing any more, and what was known of a
    /// promise that is over or was never made.
    fn tidy(&self, state: &mut State<K>, client: usize) {
        if self.get(state, self.phase, client) != OVER {
            return;
        }
        let [acquire, renewal, release, done] =
            [self.acquire, self.renewal, self.release, self.done].map(|bits| self.message(bits, client));
        for column in &mut state[1..] {
            if acquire.get(*column) == ANSWER {
                acquire.set(column, NONE);
            }
            let (holds, may_come) = (self.holds(*column, client), acquire.get(*column) == REQUEST);
            if !holds && !may_come {
                release.set(column, NONE);
                renewal.set(column, NONE);
            }
            if renewal.get(*column) == NONE {
                done.set(column, 0);
            }
        }
        self.set(state, self.renewed, client, 0);
        if state[1..].iter().all(|column| release.get(*column) == NONE) {
            self.set(state, self.left, client, 0);
        }
        let was_held = self.get(state, self.told, client) >= self.config.quorum as u64;
        if !was_held || self.get(state, self.truth, client) == 0 {
            for bits in [self.granted, self.told, self.released, self.truth] {
                self.set(state, bits, client, 0);
            }
        }
    }

    fn is_lost(&self, before: &State<K>, after: &State<K>, client: usize) -> bool {
        self.get(before, self.phase, client) == HOLDING && self.get(after, self.phase, client) == OVER
    }
}
