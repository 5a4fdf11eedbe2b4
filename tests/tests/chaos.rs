//! Chaos on real servers. Processes take locks while servers are frozen, killed, emptied and replaced, the network
//! delays, loses and cuts, clocks jump, and the processes themselves are suspended and killed. The checkers verify that
//! no two processes hold a lock at once, that tokens are unique and increase, and that a register that checks tokens
//! loses no update.
//!
//! Where the faults void exclusion, the last two must hold all the same. Negative controls show that the checkers find
//! violations: no margin, no fencing, no quarantine, a majority with a clock that jumps. See `docs/guarantees.md`.
//!
//! `REDLOCK_CHAOS_SEED` repeats a schedule. `REDLOCK_CHAOS_SECONDS` sets the length of each campaign.
//! `REDLOCK_CHAOS_GRANTS` sets how many grants the campaigns that must keep exclusion make together, at least:
//! `make chaos` is the long form.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use redlock_tests::{
    campaign::{Campaign, Goal, number},
    locked,
    nemesis::{
        Fault::{self, *},
        HARMLESS,
    },
    register::Check,
};

/// The harmless faults and some others.
fn harmless_and(others: &[Fault]) -> Vec<Fault> {
    [HARMLESS, others].concat()
}

/// Runs the campaigns one at a time: the machine is small, and each report describes one campaign.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    locked(&TURN)
}

fn campaign(name: &'static str) -> Campaign {
    Campaign::new(name, env!("CARGO_BIN_EXE_worker"), env!("CARGO_TARGET_TMPDIR"))
}

/// This campaign's share, in percent, of `REDLOCK_CHAOS_GRANTS`.
fn share(percent: u64) -> u64 {
    number("REDLOCK_CHAOS_GRANTS").unwrap_or_default() * percent / 100
}

#[test]
fn one_server() {
    let _turn = turn();
    let campaign = Campaign {
        durable: true,
        // The server keeps its keys over a restart.
        faults: harmless_and(&[Restart, Restart]),
        pauses: true,
        kills: true,
        grants: share(40),
        ..campaign("one_server")
    };
    campaign.run().expect_exclusion();
}

#[test]
fn three_servers() {
    let _turn = turn();
    let campaign = Campaign {
        nodes: 3,
        // A node of a quorum that lost its keys does not vote for a while.
        faults: harmless_and(&[Restart, Flush, Failover]),
        pauses: true,
        kills: true,
        grants: share(25),
        ..campaign("three_servers")
    };
    campaign.run().expect_exclusion();
}

#[test]
fn five_servers() {
    let _turn = turn();
    let campaign = Campaign {
        nodes: 5,
        // A node of a quorum that lost its keys does not vote for a while.
        faults: harmless_and(&[Restart, Flush, Failover]),
        pauses: true,
        kills: true,
        grants: share(20),
        ..campaign("five_servers")
    };
    campaign.run().expect_exclusion();
}

/// A quorum of four of five needs no quarantine, and tolerates a node whose clock jumps.
#[test]
fn four_of_five_servers() {
    let _turn = turn();
    let campaign = Campaign {
        nodes: 5,
        quorum: Some(4),
        quarantine: false,
        clocks: Some(0),
        faults: harmless_and(&[Restart, Flush, Failover, Evict, Clock]),
        pauses: true,
        kills: true,
        grants: share(15),
        ..campaign("four_of_five_servers")
    };
    campaign.run().expect_exclusion();
}

/// All workers want the same lock.
#[test]
fn one_name() {
    let _turn = turn();
    let campaign = Campaign {
        nodes: 3,
        names: 1,
        tasks: 2,
        faults: HARMLESS.to_vec(),
        pauses: true,
        grants: share(5),
        ..campaign("one_name")
    };
    campaign.run().expect_exclusion();
}

/// A server that loses its keys voids exclusion, but not the order of tokens.
#[test]
fn one_server_that_forgets() {
    let _turn = turn();
    let campaign = Campaign {
        careful: false,
        faults: vec![Restart, Flush, Evict, Failover, Freeze, Hold],
        pauses: true,
        names: 8,
        stays: 0.1,
        ..campaign("one_server_that_forgets")
    };
    campaign.run().expect_order();
}

/// As above, for one server whose clock jumps.
#[test]
fn one_server_whose_clock_jumps() {
    let _turn = turn();
    let campaign = Campaign {
        careful: false,
        clocks: Some(0),
        faults: vec![Clock],
        pauses: true,
        names: 64,
        stays: 0.1,
        ..campaign("one_server_whose_clock_jumps")
    };
    campaign.run().expect_order();
}

/// A server's clock is fast by eight percent, and tenures are used to their end. A margin of ten percent covers that, a
/// margin of one percent does not.
#[test]
fn without_a_margin_there_are_overlaps() {
    let _turn = turn();
    let without = Campaign {
        clocks: Some(80_000),
        careful: false,
        drift: 0.01,
        names: 8,
        stays: 0.5,
        goal: Goal::Overlap,
        ..campaign("without_a_margin_there_are_overlaps")
    };
    let with = Campaign { careful: true, drift: 0.1, goal: Goal::Time, ..without.clone() };
    without.run().expect_overlaps();
    with.run().expect_exclusion();
}

/// Holders are suspended between check and write, beyond their lease. Only a register that checks tokens survives that.
#[test]
fn without_fencing_updates_are_lost() {
    let _turn = turn();
    let unfenced = Campaign {
        pauses: true,
        names: 2,
        ttl: Duration::from_millis(300),
        work: (Duration::from_millis(50), 1.0),
        stays: 0.0,
        check: Check::Never,
        goal: Goal::LostUpdate,
        ..campaign("without_fencing_updates_are_lost")
    };
    let fenced = Campaign { check: Check::Always, goal: Goal::Time, ..unfenced.clone() };
    unfenced.run().expect_lost_updates();
    fenced.run().expect_exclusion();
}

/// Two of three nodes restart empty while some holders are cut off.
#[test]
fn without_quarantine_there_are_overlaps() {
    let _turn = turn();
    let without = Campaign {
        nodes: 3,
        quarantine: false,
        careful: false,
        faults: vec![RestartBehindPartition],
        names: 8,
        stays: 0.5,
        goal: Goal::Overlap,
        ..campaign("without_quarantine_there_are_overlaps")
    };
    let with = Campaign { quarantine: true, careful: true, goal: Goal::Time, ..without.clone() };
    without.run().expect_overlaps();
    with.run().expect_exclusion();
}

/// One clock jumps ahead: a majority of five may fail, four of five may not.
#[test]
fn a_larger_quorum_survives_a_clock_that_jumps() {
    let _turn = turn();
    let majority = Campaign {
        nodes: 5,
        quorum: Some(3),
        careful: false,
        clocks: Some(0),
        faults: vec![JumpBehindOutage],
        names: 8,
        stays: 0.5,
        goal: Goal::Overlap,
        ..campaign("a_larger_quorum_survives_a_clock_that_jumps")
    };
    let four = Campaign { quorum: Some(4), goal: Goal::Time, ..majority.clone() };
    majority.run().expect_overlaps();
    four.run().expect_exclusion();
}
