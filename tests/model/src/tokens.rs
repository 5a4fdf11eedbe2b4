//! Fencing tokens without time: attempts draw tokens from the counters of N nodes and agree on one. A key ends at any
//! moment; expiry, release and an operator's deletion are all the same here. Messages are delayed without bound and
//! come in any order, and a request may arrive twice. Counters start at any value.
//!
//! ```text
//! attempt  Asking ──q grants, all with the largest token──▶ Done
//!          Asking ──q grants──▶ Raising ──all that granted less are raised──▶ Done
//!          either ──can no longer succeed──▶ Failed
//! ```
//! Two properties are checked. P1: no token is given twice. P2: a token is larger than all tokens that were reported
//! before the attempt got its first grant. If clocks seed the counters, one tick of the clock is worth more tokens than
//! are ever drawn.

use crate::checker::{Bits, Blocks, Layout, Model, State, least};

/// The condition on which the quorum's token is written back to a node that granted a smaller one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Raise {
    /// As in the protocol: if the key is still the attempt's own and the counter still is as at its grant.
    #[default]
    CompareAndSet,
    /// If the key is still the attempt's own.
    WhileMine,
    Always,
    /// No write-back.
    Never,
}

/// The value that a repair writes into the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairedCounter {
    /// The larger one of the counter and the token.
    #[default]
    Larger,
    /// The token.
    Token,
}

/// The value that a prolongation writes into the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prolonged {
    /// The token, if the key is the attempt's own and there is no counter.
    #[default]
    IfGone,
    /// The token, whatever the key and the counter are.
    Always,
}

/// What a node loses, and the state of its counter after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    #[default]
    Lost,
    /// The counter has an older value.
    Older,
    /// The counter stays; only the keys are lost.
    Kept,
    /// Only the counter is lost, and the holder of the key keeps it. No attempt draws a token until the quarantine is
    /// over: the quarantine stands for the time that passes until then.
    Evicted,
}

/// The properties that are checked. A configuration that breaks names one, so that no other violation can end its
/// search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    #[default]
    Both,
    P1,
    P2,
}

/// A configuration. The defaults are the protocol as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    pub quorum: usize,
    pub attempts: usize,
    pub raise: Raise,
    /// Each counter starts at any value of `0..=spread`.
    pub spread: u64,
    /// How many acquires arrive a second time.
    pub resent: u64,
    /// How often a node loses its keys or its counter, and which of the two.
    pub amnesias: u64,
    pub memory: Memory,
    /// The number of repairs, each on one node. A repair writes the key if there is none.
    pub repairs: u64,
    pub repaired: RepairedCounter,
    /// The number of prolongations of a counter while its holder has the lock, each on one node.
    pub prolongs: u64,
    pub prolonged: Prolonged,
    /// Ticks of the clock that seeds counters; 0 for counters that only count.
    pub ticks: u64,
    /// How many ticks one node's reading of the clock may be ahead of another's.
    pub skew: u64,
    /// For how many ticks a node that lost its keys or its counter does not vote.
    pub quarantine: u64,
    /// Replies arrive at once or never. That finds the same violations in far fewer states. On a reply an attempt only
    /// sends write-backs, which are delayed themselves, or reports its token. An early report only raises the value
    /// that later tokens must exceed.
    pub prompt: bool,
    pub watch: Watch,
}

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Acquire(usize, usize, Acquire),
    /// The reply to the acquire or to its copy.
    Granted(usize, usize, bool),
    Raise(usize, usize),
    Raised(usize, usize),
    SendRepair(usize, usize),
    Repair(usize, usize),
    SendProlong(usize, usize),
    Prolong(usize, usize),
    Free(usize),
    /// Node, its new counter.
    Forget(usize, u64),
    Tick,
}

/// How an acquire arrives at a node.
#[derive(Clone, Copy, Debug)]
pub struct Acquire {
    /// This is the copy.
    copy: bool,
    /// A copy stays in flight.
    again: bool,
    /// The reading of the node's clock.
    reading: u64,
    /// The reply never arrives.
    lost: bool,
}

const ASKING: u64 = 0;
const RAISING: u64 = 1;
const DONE: u64 = 2;
const FAILED: u64 = 3;

const NONE: u64 = 0;
const REQUEST: u64 = 1;
const ANSWER: u64 = 2;
/// The reply has arrived, and the attempt remembers it.
const KNOWN: u64 = 3;

/// The number of tokens that a tick of the clock is worth: more than are drawn in one configuration.
const PER_TICK: u64 = 8;

mod mark {
    pub(super) const DONE: u32 = 1;
    pub(super) const LATER: u32 = 1 << 1;
    pub(super) const RAISED: u32 = 1 << 2;
    pub(super) const NOT_RAISED: u32 = 1 << 3;
    pub(super) const RESENT: u32 = 1 << 4;
    pub(super) const GRANTED_AGAIN: u32 = 1 << 5;
    pub(super) const FORGOT: u32 = 1 << 6;
    pub(super) const REPAIRED: u32 = 1 << 7;
    pub(super) const REFUSED: u32 = 1 << 8;
    pub(super) const COUNTER_REPAIRED: u32 = 1 << 9;
    pub(super) const COUNTER_PROLONGED: u32 = 1 << 10;
}

/// The fields of the header for each attempt.
#[derive(Clone, Copy, Debug)]
struct AttemptBits {
    phase: Bits,
    /// The quorum's token, once it is known.
    token: Bits,
    /// Whether a node has granted, and the largest token that had been reported at that moment.
    granted: Bits,
    floor: Bits,
}

/// The fields of a node's column for each attempt.
#[derive(Clone, Copy, Debug)]
struct MessageBits {
    acquire: Bits,
    grant: Bits,
    copy: Bits,
    copy_grant: Bits,
    raise: Bits,
    repair: Bits,
    prolong: Bits,
}

/// The model of a configuration on N nodes; K = N + 1.
#[derive(Debug)]
pub struct Tokens<const K: usize> {
    config: Config,
    attempt: AttemptBits,
    blocks: Blocks,
    resent: Bits,
    amnesias: Bits,
    repairs: Bits,
    prolongs: Bits,
    now: Bits,
    wrong: Bits,
    message: MessageBits,
    key: Bits,
    counter: Bits,
    quarantine: Bits,
}

impl<const K: usize> Tokens<K> {
    pub fn new(config: Config) -> Self {
        // Each attempt draws one token from each node, and one more for each copy. The sum of all bounds every counter.
        let draws = config.attempts as u64 + config.resent;
        assert!(draws < PER_TICK, "a tick is worth more than all tokens drawn");
        let largest = (config.ticks + config.skew) * PER_TICK + config.spread + (K as u64) * draws;
        let width = if config.ticks > 0 {
            64 - ((config.ticks + config.skew + 2) * PER_TICK).leading_zeros()
        } else {
            64 - largest.leading_zeros()
        };
        let time = 64 - config.ticks.max(config.quarantine).leading_zeros();
        let mut header = Layout::default();
        let attempt = AttemptBits {
            phase: header.take(2),
            token: header.take(width),
            granted: header.take(1),
            floor: header.take(width),
        };
        let attempt_block = header.used();
        header.repeat(attempt_block, config.attempts);
        let (resent, amnesias, repairs) = (header.take(2), header.take(2), header.take(2));
        let prolongs = header.take(if config.prolongs > 0 { 2 } else { 0 });
        let (now, wrong) = (header.take(time), header.take(2));
        let mut column = Layout::default();
        let copies = if config.resent > 0 { (2, width) } else { (0, 0) };
        let message = MessageBits {
            acquire: column.take(2),
            grant: column.take(width),
            copy: column.take(copies.0),
            copy_grant: column.take(copies.1),
            raise: column.take(2),
            repair: column.take(u32::from(config.repairs > 0)),
            prolong: column.take(u32::from(config.prolongs > 0)),
        };
        let message_block = column.used();
        column.repeat(message_block, config.attempts);
        let (key, counter, quarantine) = (column.take(2), column.take(width), column.take(time));
        Self {
            config,
            attempt,
            blocks: Blocks { header: attempt_block, column: message_block },
            resent,
            amnesias,
            repairs,
            prolongs,
            now,
            wrong,
            message,
            key,
            counter,
            quarantine,
        }
    }

    // ---- fields of a state ----

    fn of(&self, bits: Bits, attempt: usize) -> Bits {
        self.blocks.of(bits, attempt)
    }

    fn at(&self, bits: Bits, attempt: usize) -> Bits {
        self.blocks.at(bits, attempt)
    }

    fn phase(&self, state: &State<K>, attempt: usize) -> u64 {
        self.of(self.attempt.phase, attempt).get(state[0])
    }

    fn token(&self, state: &State<K>, attempt: usize) -> u64 {
        self.of(self.attempt.token, attempt).get(state[0])
    }

    fn is_open(&self, state: &State<K>, attempt: usize) -> bool {
        matches!(self.phase(state, attempt), ASKING | RAISING)
    }

    fn mine(attempt: usize) -> u64 {
        attempt as u64 + 1
    }

    /// The largest token reported so far.
    fn reported(&self, state: &State<K>) -> u64 {
        let done = (0..self.config.attempts).filter(|attempt| self.phase(state, *attempt) == DONE);
        done.map(|attempt| self.token(state, attempt)).max().unwrap_or_default()
    }

    fn grants(&self, state: &State<K>, attempt: usize) -> impl Iterator<Item = (usize, u64)> + Clone + use<K> {
        let (acquire, grant) = (self.at(self.message.acquire, attempt), self.at(self.message.grant, attempt));
        let state = *state;
        (1..K).filter(move |node| acquire.get(state[*node]) == KNOWN).map(move |node| (node, grant.get(state[node])))
    }

    // ---- nodes ----

    /// Grants the key if it is free or the attempt's own. Returns the token, or `None` if the node refuses.
    fn draw(&self, state: &mut State<K>, node: usize, attempt: usize, reading: u64) -> Option<u64> {
        let (key, counter) = (self.key.get(state[node]), self.counter.get(state[node]));
        if self.quarantine.get(state[node]) > 0 {
            return None;
        }
        if key == Self::mine(attempt) {
            return Some(counter);
        }
        if key != 0 {
            return None;
        }
        let token = (counter + 1).max(reading * PER_TICK);
        self.key.set(&mut state[node], Self::mine(attempt));
        self.counter.set(&mut state[node], token);
        let granted = self.of(self.attempt.granted, attempt);
        if granted.get(state[0]) == 0 && self.is_open(state, attempt) {
            let floor = self.reported(state);
            granted.set(&mut state[0], 1);
            self.of(self.attempt.floor, attempt).set(&mut state[0], floor);
        }
        Some(token)
    }

    fn run_acquire(&self, state: &mut State<K>, node: usize, attempt: usize, how: Acquire) {
        let (message, grant) = if how.copy {
            (self.message.copy, self.message.copy_grant)
        } else {
            (self.message.acquire, self.message.grant)
        };
        let drawn = self.draw(state, node, attempt, how.reading);
        let answered = drawn.is_some() && !how.lost;
        self.at(message, attempt).set(&mut state[node], if answered { ANSWER } else { NONE });
        self.at(grant, attempt).set(&mut state[node], if answered { drawn.unwrap_or_default() } else { 0 });
        if how.again {
            let left = self.resent.get(state[0]);
            self.resent.set(&mut state[0], left - 1);
            self.at(self.message.copy, attempt).set(&mut state[node], REQUEST);
        }
        if answered && self.config.prompt && self.phase(state, attempt) == ASKING {
            self.hear_grant(state, node, attempt, how.copy);
        }
    }

    fn raise_applies(&self, column: u64, attempt: usize) -> bool {
        let mine = self.key.get(column) == Self::mine(attempt);
        match self.config.raise {
            Raise::CompareAndSet => {
                mine && self.counter.get(column) == self.at(self.message.grant, attempt).get(column)
            }
            Raise::WhileMine => mine,
            Raise::Always => true,
            Raise::Never => false,
        }
    }

    fn run_raise(&self, state: &mut State<K>, node: usize, attempt: usize) {
        let (done, token) = (self.raise_applies(state[node], attempt), self.token(state, attempt));
        let answer = if done && self.phase(state, attempt) == RAISING { ANSWER } else { NONE };
        let counter = self.counter.get(state[node]);
        if done {
            self.counter.set(&mut state[node], counter.max(token));
        }
        self.at(self.message.raise, attempt).set(&mut state[node], answer);
        if answer == ANSWER && self.config.prompt {
            self.hear_raised(state, node, attempt);
        }
    }

    fn run_repair(&self, state: &mut State<K>, node: usize, attempt: usize) {
        self.at(self.message.repair, attempt).set(&mut state[node], NONE);
        if self.key.get(state[node]) != 0 || self.quarantine.get(state[node]) > 0 {
            return;
        }
        let (token, counter) = (self.token(state, attempt), self.counter.get(state[node]));
        self.key.set(&mut state[node], Self::mine(attempt));
        let counter = match self.config.repaired {
            RepairedCounter::Larger => counter.max(token),
            RepairedCounter::Token => token,
        };
        self.counter.set(&mut state[node], counter);
    }

    fn run_prolong(&self, state: &mut State<K>, node: usize, attempt: usize) {
        self.at(self.message.prolong, attempt).set(&mut state[node], NONE);
        let gone = self.key.get(state[node]) == Self::mine(attempt) && self.counter.get(state[node]) == 0;
        if gone || self.config.prolonged == Prolonged::Always {
            let token = self.token(state, attempt);
            self.counter.set(&mut state[node], token);
        }
    }

    // ---- attempts ----

    fn hear_grant(&self, state: &mut State<K>, node: usize, attempt: usize, copy: bool) {
        if copy {
            let (status, grant) = (self.at(self.message.copy, attempt), self.at(self.message.copy_grant, attempt));
            let token = grant.get(state[node]);
            status.set(&mut state[node], NONE);
            grant.set(&mut state[node], 0);
            if self.at(self.message.acquire, attempt).get(state[node]) == KNOWN {
                return;
            }
            self.at(self.message.grant, attempt).set(&mut state[node], token);
        }
        // The first q grants are the quorum. Later ones are held, but do not count for the token.
        let asking = self.phase(state, attempt) == ASKING;
        self.at(self.message.acquire, attempt).set(&mut state[node], if asking { KNOWN } else { NONE });
        if !asking {
            return;
        }
        if self.grants(state, attempt).count() < self.config.quorum {
            return;
        }
        let token = self.grants(state, attempt).map(|(_, token)| token).max().unwrap_or_default();
        self.of(self.attempt.token, attempt).set(&mut state[0], token);
        let lower = self.grants(state, attempt).filter(|(_, granted)| *granted < token);
        if self.config.raise == Raise::Never || lower.clone().next().is_none() {
            return self.finish(state, attempt);
        }
        self.of(self.attempt.phase, attempt).set(&mut state[0], RAISING);
        for (node, _) in lower {
            self.at(self.message.raise, attempt).set(&mut state[node], REQUEST);
        }
    }

    fn hear_raised(&self, state: &mut State<K>, node: usize, attempt: usize) {
        self.at(self.message.raise, attempt).set(&mut state[node], KNOWN);
        if self.raised(state, attempt, |status| status == KNOWN) {
            self.finish(state, attempt);
        }
    }

    /// True if the write-backs to all nodes that granted a smaller token have a status that is `wanted`.
    fn raised(&self, state: &State<K>, attempt: usize, wanted: impl Fn(u64) -> bool) -> bool {
        let (token, raise) = (self.token(state, attempt), self.at(self.message.raise, attempt));
        self.grants(state, attempt).all(|(node, granted)| granted == token || wanted(raise.get(state[node])))
    }

    fn finish(&self, state: &mut State<K>, attempt: usize) {
        let token = self.token(state, attempt);
        let mut others = (0..self.config.attempts).filter(|other| *other != attempt);
        let twice = others.any(|other| self.phase(state, other) == DONE && self.token(state, other) == token);
        let disorder = token <= self.of(self.attempt.floor, attempt).get(state[0]);
        if twice && self.config.watch != Watch::P2 {
            self.wrong.set(&mut state[0], 1);
        } else if disorder && self.config.watch != Watch::P1 {
            self.wrong.set(&mut state[0], 2);
        }
        self.of(self.attempt.phase, attempt).set(&mut state[0], DONE);
    }

    // ---- reduction to canonical states ----

    /// Drops messages that can no longer change anything, and ends attempts that can no longer succeed.
    fn tidy(&self, state: &mut State<K>) {
        // Only the next grant reads the counter of a free node. A counter below the clock's value at that grant is as
        // good as none.
        let settled = self.config.raise == Raise::CompareAndSet && self.config.repairs == 0 && self.config.ticks > 0;
        let now = self.now.get(state[0]);
        for column in state[1..].iter_mut().filter(|column| settled && self.key.get(**column) == 0) {
            if self.counter.get(*column) < (now + self.quarantine.get(*column) + 1) * PER_TICK {
                self.counter.set(column, 0);
            }
        }
        for attempt in 0..self.config.attempts {
            let possible = |state: &State<K>| {
                let bits = [self.message.acquire, self.message.copy].map(|bits| self.at(bits, attempt));
                let left = state[1..].iter().filter(|column| bits.iter().any(|bits| bits.get(**column) != NONE));
                left.count() >= self.config.quorum
            };
            for column in &mut state[1..] {
                let gone = self.key.get(*column) != Self::mine(attempt)
                    && [self.message.acquire, self.message.copy]
                        .iter()
                        .all(|bits| self.at(*bits, attempt).get(*column) != REQUEST);
                let raise = self.at(self.message.raise, attempt);
                if gone && raise.get(*column) == REQUEST && self.config.raise != Raise::Always {
                    raise.set(column, NONE);
                }
            }
            let doomed = match self.phase(state, attempt) {
                ASKING => !possible(state),
                RAISING => !self.raised(state, attempt, |status| status != NONE),
                _ => false,
            };
            if doomed {
                self.of(self.attempt.phase, attempt).set(&mut state[0], FAILED);
            }
            let phase = self.phase(state, attempt);
            if phase != ASKING {
                self.forget_answers(state, attempt, phase);
            }
        }
    }

    /// Drops replies that the attempt no longer waits for, and remembered replies that it no longer needs.
    fn forget_answers(&self, state: &mut State<K>, attempt: usize, phase: u64) {
        let mut raising = false;
        for column in &mut state[1..] {
            let [acquire, grant, copy, copy_grant, raise] = [
                self.message.acquire,
                self.message.grant,
                self.message.copy,
                self.message.copy_grant,
                self.message.raise,
            ]
            .map(|bits| self.at(bits, attempt));
            if phase != RAISING && raise.get(*column) > REQUEST {
                raise.set(column, NONE);
            }
            let keep = phase == RAISING || raise.get(*column) == REQUEST;
            raising |= raise.get(*column) == REQUEST;
            if acquire.get(*column) == ANSWER || (acquire.get(*column) == KNOWN && !keep) {
                acquire.set(column, NONE);
            }
            if acquire.get(*column) != KNOWN {
                grant.set(column, 0);
            }
            if self.config.resent > 0 && copy.get(*column) == ANSWER {
                copy.set(column, NONE);
                copy_grant.set(column, 0);
            }
        }
        if phase == DONE || phase == FAILED {
            self.of(self.attempt.granted, attempt).set(&mut state[0], 0);
            self.of(self.attempt.floor, attempt).set(&mut state[0], 0);
        }
        if phase == FAILED && !raising {
            self.of(self.attempt.token, attempt).set(&mut state[0], 0);
        }
    }

    /// The same state with the attempts in another order.
    fn reordered(&self, state: &State<K>, order: &[usize]) -> State<K> {
        let mut new = self.blocks.reordered(state, order);
        for column in &mut new[1..] {
            let key = self.key.get(*column) as usize;
            if key != 0 {
                let place = order.iter().position(|from| *from == key - 1).unwrap_or_default();
                self.key.set(column, Self::mine(place));
            }
        }
        new
    }
}

impl<const K: usize> Model<K> for Tokens<K> {
    type Step = Step;

    fn initial(&self) -> Vec<State<K>> {
        let mut state = [0; K];
        self.resent.set(&mut state[0], self.config.resent);
        self.amnesias.set(&mut state[0], self.config.amnesias);
        self.repairs.set(&mut state[0], self.config.repairs);
        self.prolongs.set(&mut state[0], self.config.prolongs);
        for column in &mut state[1..] {
            (0..self.config.attempts).for_each(|attempt| self.at(self.message.acquire, attempt).set(column, REQUEST));
        }
        let mut all = vec![state];
        for node in 1..K {
            all = all
                .into_iter()
                .flat_map(|state| {
                    (0..=self.config.spread).map(move |counter| {
                        let mut new = state;
                        self.counter.set(&mut new[node], counter);
                        new
                    })
                })
                .collect();
        }
        all
    }

    fn steps(&self, state: &State<K>, next: &mut impl FnMut(Step, State<K>)) {
        let config = &self.config;
        // If no attempt can succeed any more, no property can be violated.
        let mut tidied = *state;
        self.tidy(&mut tidied);
        if !(0..config.attempts).any(|attempt| self.is_open(&tidied, attempt)) {
            return;
        }
        let mut with = |step: Step, change: &dyn Fn(&mut State<K>)| {
            let mut new = *state;
            change(&mut new);
            next(step, new);
        };
        let [now, resent, amnesias, repairs, prolongs] =
            [self.now, self.resent, self.amnesias, self.repairs, self.prolongs].map(|bits| bits.get(state[0]));
        let readings = if config.ticks > 0 { now + 1..=now + 1 + config.skew } else { 0..=0 };
        for node in 1..K {
            let column = state[node];
            // Nodes with equal columns differ only in name.
            if state[1..node].contains(&column) {
                continue;
            }
            for attempt in 0..config.attempts {
                let status = |bits: Bits| self.at(bits, attempt).get(column);
                for copy in [false, true] {
                    match status(if copy { self.message.copy } else { self.message.acquire }) {
                        REQUEST => {
                            let losses = if config.prompt && self.phase(state, attempt) == ASKING { 2 } else { 1 };
                            let copies = if !copy && resent > 0 { 2 } else { 1 };
                            for reading in readings.clone() {
                                for (lost, again) in
                                    (0..losses).flat_map(|loss| (0..copies).map(move |more| (loss, more)))
                                {
                                    let how = Acquire { copy, again: again == 1, reading, lost: lost == 1 };
                                    with(Step::Acquire(node, attempt, how), &|new| {
                                        self.run_acquire(new, node, attempt, how);
                                    });
                                }
                            }
                        }
                        ANSWER => {
                            with(Step::Granted(node, attempt, copy), &|new| self.hear_grant(new, node, attempt, copy));
                        }
                        _ => {}
                    }
                }
                match status(self.message.raise) {
                    REQUEST => with(Step::Raise(node, attempt), &|new| self.run_raise(new, node, attempt)),
                    ANSWER => with(Step::Raised(node, attempt), &|new| self.hear_raised(new, node, attempt)),
                    _ => {}
                }
                let repair = status(self.message.repair);
                if repairs > 0 && repair == NONE && self.phase(state, attempt) == DONE {
                    with(Step::SendRepair(node, attempt), &|new| {
                        self.repairs.set(&mut new[0], repairs - 1);
                        self.at(self.message.repair, attempt).set(&mut new[node], REQUEST);
                    });
                }
                if repair == REQUEST {
                    with(Step::Repair(node, attempt), &|new| self.run_repair(new, node, attempt));
                }
                let prolong = status(self.message.prolong);
                if prolongs > 0 && prolong == NONE && self.phase(state, attempt) == DONE {
                    with(Step::SendProlong(node, attempt), &|new| {
                        self.prolongs.set(&mut new[0], prolongs - 1);
                        self.at(self.message.prolong, attempt).set(&mut new[node], REQUEST);
                    });
                }
                if prolong == REQUEST {
                    with(Step::Prolong(node, attempt), &|new| self.run_prolong(new, node, attempt));
                }
            }
            if self.key.get(column) != 0 {
                with(Step::Free(node), &|new| self.key.set(&mut new[node], 0));
            }
            if amnesias > 0 {
                let counter = self.counter.get(column);
                let left = match config.memory {
                    Memory::Lost | Memory::Evicted => 0..=0,
                    Memory::Older => 0..=counter.saturating_sub(1),
                    Memory::Kept => counter..=counter,
                };
                for counter in left {
                    with(Step::Forget(node, counter), &|new| {
                        self.amnesias.set(&mut new[0], amnesias - 1);
                        if config.memory != Memory::Evicted {
                            self.key.set(&mut new[node], 0);
                        }
                        self.counter.set(&mut new[node], counter);
                        self.quarantine.set(&mut new[node], config.quarantine);
                    });
                }
            }
        }
        if now < config.ticks {
            with(Step::Tick, &|new| {
                self.now.set(&mut new[0], now + 1);
                new[1..].iter_mut().for_each(|column| self.quarantine.count_down(column));
            });
        }
    }

    fn canonical(&self, mut state: State<K>) -> State<K> {
        self.tidy(&mut state);
        least(
            state,
            self.config.attempts,
            |state, who| self.blocks.block(state[0], who),
            |state, order| self.reordered(state, order),
        )
    }

    fn violation(&self, state: &State<K>) -> Option<&'static str> {
        match self.wrong.get(state[0]) {
            1 => Some("P1: one token is given twice"),
            2 => Some("P2: a token is not above one that was reported before"),
            _ => None,
        }
    }

    fn marks(&self, before: &State<K>, step: Step, after: &State<K>) -> u32 {
        let done = |state: &State<K>| (0..self.config.attempts).filter(|at| self.phase(state, *at) == DONE).count();
        let kind = match step {
            Step::Raise(node, attempt) if !self.raise_applies(before[node], attempt) => mark::NOT_RAISED,
            Step::Raise(..) => mark::RAISED,
            Step::Acquire(node, ..) if self.quarantine.get(before[node]) > 0 => mark::REFUSED,
            Step::Acquire(node, attempt, how) if how.copy => {
                if self.key.get(before[node]) == Self::mine(attempt) {
                    mark::RESENT
                } else if self.key.get(before[node]) == 0 {
                    mark::GRANTED_AGAIN
                } else {
                    0
                }
            }
            Step::Forget(..) => mark::FORGOT,
            Step::Repair(node, _) if self.counter.get(before[node]) != self.counter.get(after[node]) => {
                mark::REPAIRED | mark::COUNTER_REPAIRED
            }
            Step::Repair(..) => mark::REPAIRED,
            Step::Prolong(node, _) if self.counter.get(before[node]) != self.counter.get(after[node]) => {
                mark::COUNTER_PROLONGED
            }
            _ => 0,
        };
        let (before, after) = (done(before), done(after));
        kind | if after == before {
            0
        } else if before > 0 {
            mark::LATER
        } else {
            mark::DONE
        }
    }

    fn expected(&self) -> u32 {
        let config = &self.config;
        let some = |wanted: bool, mark: u32| if wanted { mark } else { 0 };
        let quorum = K > 2;
        mark::DONE
            | mark::LATER
            | some(quorum && config.raise != Raise::Never, mark::RAISED)
            | some(quorum && config.resent > 0, mark::RESENT | mark::GRANTED_AGAIN)
            | some(quorum && config.raise == Raise::CompareAndSet && config.resent > 0, mark::NOT_RAISED)
            | some(config.amnesias > 0, mark::FORGOT)
            | some(config.quarantine > 0, mark::REFUSED)
            | some(config.repairs > 0, mark::REPAIRED | mark::COUNTER_REPAIRED)
            | some(config.prolongs > 0, mark::COUNTER_PROLONGED)
    }

    fn tell(&self, before: &State<K>, step: Step, after: &State<K>) -> String {
        let name = |attempt: usize| ["A", "B", "C", "D"][attempt];
        let key = |state: &State<K>, node: usize| self.key.get(state[node]);
        let counter = |state: &State<K>, node: usize| self.counter.get(state[node]);
        let mut line = match step {
            Step::Acquire(node, attempt, how) => {
                let what = if how.copy { "the copy of the acquire" } else { "the acquire" };
                let quarantined = self.quarantine.get(before[node]) > 0;
                let free = key(before, node) == 0 || key(before, node) == Self::mine(attempt);
                let mut line = format!("n{node} refuses {what} of {}", name(attempt));
                if free && !quarantined {
                    let (old, new) = (counter(before, node), counter(after, node));
                    line = format!("n{node} (counter {old}) grants {what} of {}: {new}", name(attempt));
                }
                if how.lost {
                    line += "; the answer is lost";
                }
                if how.again { line + "; a copy is still under way" } else { line }
            }
            Step::Granted(node, attempt, _) => format!("{} receives the grant of n{node}", name(attempt)),
            Step::Raise(node, attempt) => {
                let (old, new) = (counter(before, node), counter(after, node));
                let done = if old == new { "nothing done".to_owned() } else { format!("counter {old} becomes {new}") };
                format!("write-back of {} by {} arrives at n{node}: {done}", self.token(before, attempt), name(attempt))
            }
            Step::Raised(node, attempt) => format!("{} learns that n{node} was raised", name(attempt)),
            Step::SendRepair(node, attempt) => format!("{} sends a repair to n{node}", name(attempt)),
            Step::Repair(node, attempt) if key(before, node) != key(after, node) => {
                let (old, new) = (counter(before, node), counter(after, node));
                format!("repair by {} arrives at n{node}: key written, counter {old} becomes {new}", name(attempt))
            }
            Step::Repair(node, attempt) => format!("repair by {} arrives at n{node}: nothing done", name(attempt)),
            Step::SendProlong(node, attempt) => format!("{} prolongs its counter on n{node}", name(attempt)),
            Step::Prolong(node, attempt) => {
                let (old, new) = (counter(before, node), counter(after, node));
                let done = if old == new { "nothing done".to_owned() } else { format!("counter {old} becomes {new}") };
                format!("prolongation by {} arrives at n{node}: {done}", name(attempt))
            }
            Step::Free(node) => {
                format!("the key of {} on n{node} ends", name((key(before, node) as usize).saturating_sub(1)))
            }
            Step::Forget(node, new) => {
                let old = counter(before, node);
                let votes = match self.config.quarantine {
                    0 => String::new(),
                    ticks => format!("; it votes again in {ticks} ticks"),
                };
                let what = match self.config.memory {
                    Memory::Evicted => "loses its counter alone",
                    Memory::Lost | Memory::Older | Memory::Kept => "restarts without its keys",
                };
                format!("n{node} {what}, counter {old} becomes {new}{votes}")
            }
            Step::Tick => format!("a tick passes: it is {}", self.now.get(after[0])),
        };
        for attempt in 0..self.config.attempts {
            match (self.phase(before, attempt), self.phase(after, attempt)) {
                (ASKING | RAISING, DONE) => {
                    line = format!("{line}; {} HOLDS with token {}", name(attempt), self.token(after, attempt));
                }
                (ASKING, RAISING) => line = format!("{line}; its token is {}", self.token(after, attempt)),
                _ => {}
            }
        }
        line
    }
}
