//! The search through all states that a model can reach, breadth first, so that the first violation found has a
//! shortest trace. This file also stores the states and prints traces.
//!
//! It replaces `stateright`, which reduces by symmetry only in its depth-first search, whose traces are not the
//! shortest, and which keeps fingerprints. Here symmetric states are one state, and states are stored exactly, in a few
//! machine words. The larger configurations need both.

use hashbrown::HashTable;

/// A state: one word for the header, then one word (a column) for each node.
pub type State<const K: usize> = [u64; K];

/// A model that can be searched.
pub trait Model<const K: usize>: Sync {
    /// One atomic event.
    type Step: Copy;

    fn initial(&self) -> Vec<State<K>>;

    /// Calls `next` with each event that is possible in `state` and with the state after it.
    fn steps(&self, state: &State<K>, next: &mut impl FnMut(Self::Step, State<K>));

    /// Returns the representative of all states that differ only in the names of nodes and clients, or in messages that
    /// can no longer change anything.
    fn canonical(&self, state: State<K>) -> State<K>;

    /// The property that `state` violates, if any.
    fn violation(&self, state: &State<K>) -> Option<&'static str>;

    /// The kinds of events that the step contains, one bit each. They prove that a search met every event that its
    /// configuration is meant to test.
    fn marks(&self, before: &State<K>, step: Self::Step, after: &State<K>) -> u32;

    /// The marks that an exhausted search must have met.
    fn expected(&self) -> u32;

    /// Describes an event in one line.
    fn tell(&self, before: &State<K>, step: Self::Step, after: &State<K>) -> String;
}

/// The result of a search.
#[derive(Debug)]
pub enum Verdict {
    /// The search visited all states, and none violates a property.
    Holds,
    /// The first state that violates a property, and a shortest path to it.
    Broken { violation: &'static str, trace: Vec<String> },
    /// The search reached its limit of states without a violation, and more are left.
    Unfinished,
}

#[derive(Debug)]
pub struct Outcome {
    pub verdict: Verdict,
    /// The number of canonical states visited.
    pub states: usize,
    /// The largest distance of a state from an initial one.
    pub depth: usize,
    /// Expected marks that the search did not meet.
    pub missing: u32,
}

struct Search<'a, const K: usize, M> {
    model: &'a M,
    states: Vec<State<K>>,
    /// The state from which each was first reached; an initial state is its own parent.
    parents: Vec<u32>,
    known: HashTable<u32>,
}

fn hash<const K: usize>(state: &State<K>) -> u64 {
    state.iter().fold(0x243f_6a88_85a3_08d3, |hash, word| {
        let product = u128::from(hash ^ word) * 0x9e37_79b9_7f4a_7c15;
        (product as u64) ^ ((product >> 64) as u64)
    })
}

impl<const K: usize, M: Model<K>> Search<'_, K, M> {
    /// Adds a state. Returns true if it is new.
    fn insert(&mut self, state: State<K>, parent: Option<u32>) -> bool {
        let states = &self.states;
        let entry =
            self.known.entry(hash(&state), |at| states[*at as usize] == state, |at| hash(&states[*at as usize]));
        let hashbrown::hash_table::Entry::Vacant(vacant) = entry else { return false };
        let at = states.len() as u32;
        vacant.insert(at);
        self.states.push(state);
        self.parents.push(parent.unwrap_or(at));
        true
    }

    /// The trace to a state. Nodes and clients keep the same names in all of its lines.
    fn trace(&self, end: usize) -> Vec<String> {
        let mut way = vec![end];
        while let Some(&at) = way.last() {
            let parent = self.parents[at] as usize;
            if parent == at {
                break;
            }
            way.push(parent);
        }
        way.reverse();
        let mut now = self.states[way[0]];
        let mut told = Vec::new();
        for at in &way[1..] {
            let wanted = self.states[*at];
            let mut found = None;
            self.model.steps(&now, &mut |step, next| {
                if found.is_none() && self.model.canonical(next) == wanted {
                    found = Some((step, next));
                }
            });
            // Symmetric states have symmetric successors.
            let Some((step, next)) = found else { unreachable!("a state's successor exists from each of its images") };
            told.push(self.model.tell(&now, step, &next));
            now = next;
        }
        told
    }
}

/// Searches until a violation, until all states are visited, or until there are `limit` states.
pub fn search<const K: usize, M: Model<K>>(model: &M, limit: usize) -> Outcome {
    explore(model, limit).0
}

/// All states that a model without violations can reach.
pub fn reachable<const K: usize, M: Model<K>>(model: &M) -> Vec<State<K>> {
    explore(model, usize::MAX).1
}

fn explore<const K: usize, M: Model<K>>(model: &M, limit: usize) -> (Outcome, Vec<State<K>>) {
    let mut search = Search { model, states: Vec::new(), parents: Vec::new(), known: HashTable::new() };
    for state in model.initial() {
        search.insert(model.canonical(state), None);
    }
    let (mut seen, mut depth, mut level_end, mut at) = (0, 0, search.states.len(), 0);
    let mut found = Vec::new();
    let mut verdict = Verdict::Holds;
    while at < search.states.len() {
        if at == level_end {
            depth += 1;
            level_end = search.states.len();
        }
        let state = search.states[at];
        if let Some(violation) = model.violation(&state) {
            verdict = Verdict::Broken { violation, trace: search.trace(at) };
            break;
        }
        if search.states.len() >= limit {
            verdict = Verdict::Unfinished;
            break;
        }
        found.clear();
        model.steps(&state, &mut |step, next| {
            seen |= model.marks(&state, step, &next);
            found.push(model.canonical(next));
        });
        for next in found.drain(..) {
            search.insert(next, Some(at as u32));
        }
        at += 1;
    }
    let missing = model.expected() & !seen;
    (Outcome { verdict, states: search.states.len(), depth, missing }, search.states)
}

/// The model without its reductions, for the test of the reductions.
#[derive(Debug)]
pub struct Unreduced<'a, M>(pub &'a M);

impl<const K: usize, M: Model<K>> Model<K> for Unreduced<'_, M> {
    type Step = M::Step;

    fn initial(&self) -> Vec<State<K>> {
        self.0.initial()
    }

    fn steps(&self, state: &State<K>, next: &mut impl FnMut(Self::Step, State<K>)) {
        self.0.steps(state, next);
    }

    fn canonical(&self, state: State<K>) -> State<K> {
        state
    }

    fn violation(&self, state: &State<K>) -> Option<&'static str> {
        self.0.violation(state)
    }

    fn marks(&self, before: &State<K>, step: Self::Step, after: &State<K>) -> u32 {
        self.0.marks(before, step, after)
    }

    fn expected(&self) -> u32 {
        self.0.expected()
    }

    fn tell(&self, before: &State<K>, step: Self::Step, after: &State<K>) -> String {
        self.0.tell(before, step, after)
    }
}

/// A bit field of a word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bits {
    shift: u32,
    width: u32,
}

impl Bits {
    #[inline]
    pub(crate) fn get(self, word: u64) -> u64 {
        (word >> self.shift) & ((1 << self.width) - 1)
    }

    #[inline]
    pub(crate) fn set(self, word: &mut u64, value: u64) {
        debug_assert!(value < 1 << self.width, "{value} needs more than {} bits", self.width);
        *word = *word & !(((1 << self.width) - 1) << self.shift) | value << self.shift;
    }

    /// Decrements the field, down to zero.
    #[inline]
    pub(crate) fn count_down(self, word: &mut u64) {
        self.set(word, self.get(*word).saturating_sub(1));
    }

    /// The same field, `offset` bits further: in a later block.
    #[inline]
    pub(crate) fn at(self, offset: u32) -> Self {
        Self { shift: self.shift + offset, width: self.width }
    }
}

/// Allocates the bit fields of a word, one after another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    used: u32,
}

impl Layout {
    pub(crate) fn take(&mut self, width: u32) -> Bits {
        let bits = Bits { shift: self.used, width };
        self.used += width;
        assert!(self.used <= 64, "a state's word has 64 bits");
        bits
    }

    /// Reserves space for `count` blocks in all, of which the first is already allocated.
    pub(crate) fn repeat(&mut self, block: u32, count: usize) {
        for _ in 1..count {
            self.take(block);
        }
    }

    pub(crate) fn used(self) -> u32 {
        self.used
    }
}

/// The widths of the blocks that each client (or attempt) has in the header and in a column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    pub(crate) header: u32,
    pub(crate) column: u32,
}

impl Blocks {
    /// A field of the block of `who` in the header.
    #[inline]
    pub(crate) fn of(self, bits: Bits, who: usize) -> Bits {
        bits.at(self.header * who as u32)
    }

    /// A field of the block of `who` in a column.
    #[inline]
    pub(crate) fn at(self, bits: Bits, who: usize) -> Bits {
        bits.at(self.column * who as u32)
    }

    /// The whole block of `who` in the header.
    pub(crate) fn block(self, header: u64, who: usize) -> u64 {
        (header >> (self.header * who as u32)) & ((1 << self.header) - 1)
    }

    /// The same state with all blocks in another order.
    pub(crate) fn reordered<const K: usize>(self, state: &State<K>, order: &[usize]) -> State<K> {
        let mut new = *state;
        let mut copy = |word: usize, width: u32, to: usize, from: usize| {
            let mask = ((1 << width) - 1) << (width * to as u32);
            let block = (state[word] >> (width * from as u32)) << (width * to as u32) & mask;
            new[word] = new[word] & !mask | block;
        };
        for (to, from) in order.iter().enumerate() {
            copy(0, self.header, to, *from);
            (1..K).for_each(|word| copy(word, self.column, to, *from));
        }
        new
    }
}

/// Returns the representative of all states that differ only in the names of nodes and of `count` clients (or
/// attempts). `key` gives a value by which these are sorted; `reordered` gives the state with them in another order.
pub(crate) fn least<const K: usize>(
    state: State<K>,
    count: usize,
    key: impl Fn(&State<K>, usize) -> u64,
    reordered: impl Fn(&State<K>, &[usize]) -> State<K>,
) -> State<K> {
    let mut keys = [0; 4];
    let keys = &mut keys[..count];
    keys.iter_mut().enumerate().for_each(|(who, of)| *of = key(&state, who));
    let mut least: Option<State<K>> = None;
    sorting_orders(keys, &mut |order| {
        let mut new = reordered(&state, order);
        new[1..].sort_unstable();
        if least.is_none_or(|least| new < least) {
            least = Some(new);
        }
    });
    least.unwrap_or(state)
}

/// Calls `each` with every order of `0..count` that sorts `keys`. There are several only if keys are equal.
fn sorting_orders(keys: &[u64], each: &mut impl FnMut(&[usize])) {
    let mut order = [0, 1, 2, 3];
    let order = &mut order[..keys.len()];
    order.sort_unstable_by_key(|at| keys[*at]);
    permute(keys, order, 0, each);
}

fn permute(keys: &[u64], order: &mut [usize], from: usize, each: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        return each(order);
    }
    for other in from..order.len() {
        if keys[order[other]] == keys[order[from]] {
            order.swap(from, other);
            permute(keys, order, from + 1, each);
            order.swap(from, other);
        }
    }
}
