//! Tests that the reductions lose no state. A search with them must find the same states as a search without them whose
//! results are reduced afterwards. A wrong symmetry, or a dropped message that could still matter, shows as a
//! difference.

use std::collections::HashSet;

use redlock_model::{
    checker::{Model, Unreduced, reachable},
    exclusion::{self, Exclusion},
    min_hold::{self, MinHold},
    read_write::{self, ReadWrite},
    slots::{self, Slots},
    tokens::{self, Tokens},
};

fn lose_nothing<const K: usize>(model: &impl Model<K>) {
    let reduced: HashSet<_> = reachable(model).into_iter().collect();
    let all = reachable(&Unreduced(model));
    let count = all.len();
    let images: HashSet<_> = all.into_iter().map(|state| model.canonical(state)).collect();
    assert!(images == reduced, "{count} states reduce to {}, the reduced search finds {}", images.len(), reduced.len());
    assert!(count > reduced.len(), "there was nothing to reduce");
}

const CONFIG: exclusion::Config = exclusion::Config {
    quorum: 2,
    clients: 2,
    attempts: 1,
    starts: 2,
    renewals: 0,
    repairs: 0,
    lease: 2,
    belief: 2,
    crashes: 0,
    quarantine: 0,
    flushes: 0,
    jumps: 0,
    from_reply: false,
    reused: false,
    resumes: false,
    recreates: false,
    repair: exclusion::Repair::Absent,
    repairs_lost: false,
    repairs_anywhere: false,
    ordered: false,
    repairs_ordered: false,
    orphans: false,
};

#[test]
fn of_exclusion_on_three_nodes() {
    lose_nothing(&Exclusion::<4>::new(exclusion::Config { lease: 1, belief: 1, ..CONFIG }));
}

#[test]
fn of_exclusion_with_renewal_repair_and_restart() {
    let config =
        exclusion::Config { renewals: 1, repairs: 1, crashes: 1, quarantine: 1, lease: 1, belief: 1, ..CONFIG };
    lose_nothing(&Exclusion::<3>::new(config));
}

#[test]
fn of_exclusion_with_several_attempts() {
    lose_nothing(&Exclusion::<3>::new(exclusion::Config { attempts: 2, starts: 3, ..CONFIG }));
}

#[test]
fn of_exclusion_with_three_clients_on_one_node() {
    let config = exclusion::Config { quorum: 1, clients: 3, starts: 3, renewals: 2, flushes: 0, ..CONFIG };
    lose_nothing(&Exclusion::<2>::new(config));
}

#[test]
fn of_tokens() {
    let config = tokens::Config { quorum: 2, attempts: 2, spread: 1, ..tokens::Config::default() };
    lose_nothing(&Tokens::<4>::new(config));
}

#[test]
fn of_tokens_with_a_resent_acquire_and_a_repair() {
    let config = tokens::Config { quorum: 2, attempts: 2, resent: 1, repairs: 1, ..tokens::Config::default() };
    lose_nothing(&Tokens::<3>::new(config));
}

#[test]
fn of_slots() {
    let config =
        slots::Config { quorum: 2, clients: 2, permits: 2, starts: 2, lease: 1, belief: 1, ..slots::Config::default() };
    lose_nothing(&Slots::<3>::new(config));
}

#[test]
fn of_readers_and_writers() {
    let config = read_write::Config {
        readers_quorum: 1,
        writers_quorum: 1,
        writers: 1,
        readers: 2,
        lease: 1,
        belief: 1,
        changes: 1,
        ..read_write::Config::default()
    };
    lose_nothing(&ReadWrite::<2>::new(config));
}

#[test]
fn of_tokens_with_a_counter_that_is_evicted_and_prolonged() {
    let config = tokens::Config {
        quorum: 2,
        attempts: 2,
        ticks: 2,
        skew: 1,
        quarantine: 1,
        amnesias: 1,
        memory: tokens::Memory::Evicted,
        prolongs: 1,
        ..tokens::Config::default()
    };
    lose_nothing(&Tokens::<3>::new(config));
}

#[test]
fn of_min_hold() {
    let config =
        min_hold::Config { quorum: 2, lease: 1, min_hold: 2, frees: false, keeps_key: false, from_request: false };
    lose_nothing(&MinHold::<3>::new(config));
}
