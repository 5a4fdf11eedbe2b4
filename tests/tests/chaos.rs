//! Chaos on real servers. Processes take locks of every kind while servers are frozen, killed, emptied and replaced, the
//! network delays, loses and cuts, clocks jump, and the processes themselves are suspended and killed. The checkers verify
//! that no two processes hold at once what excludes each other, that tokens are unique and increase, that a register that
//! checks tokens loses no update, and that nobody overtakes a waiter where an order is promised.
//!
//! Where the faults void exclusion, tokens and register must hold all the same. Negative controls show that the checkers find
//! violations: no margin, no fencing, no quarantine, a majority with a clock that jumps. See `docs/guarantees.md`.
//!
//! `REDLOCK_CHAOS_SEED` repeats a schedule. `REDLOCK_CHAOS_SECONDS` sets the length of each campaign.
//! `REDLOCK_CHAOS_GRANTS` sets how many grants the campaigns that must keep exclusion make together, at least:
//! `make chaos` is the long form.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use redlock::{Client, Config, LockOptions, ReleaseOutcome};
use redlock_tests::{
    campaign::{Campaign, Goal, number},
    history::{Hold, Kind, check_order},
    locked,
    nemesis::{
        Fault::{self, *},
        HARMLESS,
    },
    observer,
    process::monotonic,
    proxy::{Direction, Flow, Proxy},
    register::Check,
    server::Server,
    until,
};

const PATIENCE: Duration = Duration::from_secs(20);

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

/// The faults of a server that keeps its keys, each of a kind of its own: the others strike the plain locks.
const FAULTS: &[Fault] = &[Freeze, ForgetScripts, Disconnect, Delay, Hold, Lose, CutBytes, HalfClose, Restart];

/// Few locks, for which others wait. Waiters that were killed delay the others for up to 5 s, so few are.
fn contended(name: &'static str, kind: Kind) -> Campaign {
    Campaign {
        kind,
        names: 16,
        durable: true,
        faults: FAULTS.to_vec(),
        pauses: true,
        kills: true,
        deaths: 0.05,
        wait: Duration::from_secs(2),
        time: Duration::from_secs(4),
        grants: share(2),
        ..campaign(name)
    }
}

/// The same on five servers, which may lose their keys, with no observer, since no order is promised there.
fn contended_on_five(name: &'static str, kind: Kind) -> Campaign {
    Campaign {
        nodes: 5,
        durable: false,
        faults: [FAULTS, &[Flush, Failover]].concat(),
        deaths: 0.2,
        ..contended(name, kind)
    }
}

#[test]
fn fair_locks() {
    let _turn = turn();
    contended("fair_locks", Kind::Fair).run().expect_turns();
}

#[test]
fn read_write_locks() {
    let _turn = turn();
    contended("read_write_locks", Kind::ReadWrite { shares_tokens: true }).run().expect_turns();
}

/// So many readers in each process that their calls go together.
#[test]
fn crowds_of_readers() {
    let _turn = turn();
    let kind = Kind::ReadWrite { shares_tokens: true };
    Campaign { names: 2, tasks: 48, ..contended("crowds_of_readers", kind) }.run().expect_turns();
}

#[test]
fn read_write_locks_on_five_servers() {
    let _turn = turn();
    let kind = Kind::ReadWrite { shares_tokens: false };
    contended_on_five("read_write_locks_on_five_servers", kind).run().expect_exclusion();
}

#[test]
fn semaphores() {
    let _turn = turn();
    contended("semaphores", Kind::Semaphore { permits: 3 }).run().expect_turns();
}

#[test]
fn semaphores_on_five_servers() {
    let _turn = turn();
    contended_on_five("semaphores_on_five_servers", Kind::Semaphore { permits: 3 }).run().expect_exclusion();
}

/// A waiter has its place and sends nothing more, and the lock is freed by hand: an acquire that does not queue gets it.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_queue_is_seen_to_overtake() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let client = |url: String| Client::new(Config::new([url])).unwrap();
    let lock = |client: &Client, fair| {
        let mut options = LockOptions::default();
        options.fair = fair;
        client.lock("x", options).unwrap()
    };
    let (holder, waiter, other) = (client(server.url()), client(proxy.url()), client(server.url()));
    let held = lock(&holder, true).acquire().await.unwrap();
    let waits = tokio::spawn(lock(&waiter, true).acquire());
    let queue = observer::queue(Kind::Fair).unwrap();
    until(PATIENCE, "it has its place", || server.command::<usize>(&["ZCARD", &format!("{queue}:{{x}}")]) == 1).await;
    proxy.flow(Direction::Requests, Flow::Hold);
    let (url, over) = (server.url(), Arc::new(AtomicBool::new(false)));
    let end = over.clone();
    let observer = thread::spawn(move || observer::observe(&url, queue, &["x".to_owned()], &end));
    looks(&server, 10).await;
    let _: usize = server.command(&["DEL", "x"]);
    let called = monotonic();
    let ahead = lock(&other, false).try_acquire().await.unwrap().expect("the lock is free");
    let hold = Hold { token: Some(ahead.token()), called, from: monotonic(), ..Hold::default() };
    looks(&server, 10).await;
    over.store(true, SeqCst);
    let places = observer.join().unwrap();
    let order = check_order(&places[0], &[hold]);
    assert_eq!((order.compared, order.overtakes.len()), (1, 1), "{places:?}");
    proxy.heal();
    waits.abort();
    assert_eq!(ahead.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Lost);
}

/// Waits until scripts were sent in full so often from now on. An observer does that all the time, clients once a script.
async fn looks(server: &Server, count: u64) {
    let looks = || -> u64 {
        let info: String = server.command(&["INFO", "commandstats"]);
        let calls = info.split_once("cmdstat_eval:calls=").map_or("0", |(_, rest)| rest.split(',').next().unwrap());
        calls.parse().unwrap()
    };
    let enough = looks() + count;
    until(PATIENCE, "the observer looks", || looks() >= enough).await;
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
