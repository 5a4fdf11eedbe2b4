//! Runs many seeds on all cores, in order, until enough of them violate an invariant or none is left.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use redlock::Mutant;

use super::{Report, run_mutant};
use redlock_servers::locked;

/// The result of a hunt.
#[derive(Debug, Default)]
pub struct Bag {
    /// The seeds that violated an invariant, each with its first violation.
    pub broken: BTreeMap<u64, String>,
    /// The number of seeds that were run.
    pub seeds: u64,
    /// The number of events.
    pub events: u64,
    /// How often each kind of event happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// How often a script ran during a fault.
    pub pairs: BTreeMap<(&'static str, &'static str), u64>,
}

/// Runs `count` seeds from `from` on, and stops after `enough` seeds with a violation. Calls `each` with every run.
pub fn hunt(mutant: Option<Mutant>, from: u64, count: u64, enough: usize, each: &(dyn Fn(u64, &Report) + Sync)) -> Bag {
    let (next, full) = (AtomicU64::new(from), AtomicBool::new(false));
    let bag = Mutex::new(Bag::default());
    let hunter = || {
        while !full.load(Relaxed) {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= from + count {
                return;
            }
            let report = run_mutant(mutant, seed, false);
            each(seed, &report);
            let mut bag = locked(&bag);
            bag.seeds += 1;
            bag.events += report.events;
            for (what, times) in &report.counts {
                *bag.counts.entry(what).or_default() += times;
            }
            for (pair, times) in &report.pairs {
                *bag.pairs.entry(*pair).or_default() += times;
            }
            if let Some((time, what)) = report.violations.first() {
                bag.broken.insert(seed, format!("{what} (after {:.3} s)", *time as f64 / 1e9));
                full.store(bag.broken.len() >= enough, Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        (1..cores).for_each(|_| drop(scope.spawn(hunter)));
        hunter();
    });
    bag.into_inner().unwrap_or_default()
}

/// The command that shows the run of a seed.
pub fn replay(seed: u64) -> String {
    format!("cargo run -p redlock-simulation --bin sim -- --show {seed}")
}
