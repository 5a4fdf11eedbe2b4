//! Processes of all languages fight for one lock: on one node, on five, on five with two in trouble, and on five in
//! chaos. No two processes may hold it at once, tokens must increase in the order of the grants, every process must get
//! all its grants, and no key may be left.
//!
//! By default only Rust's processes fight. `REDLOCK_CONTENDERS` names those of other languages, as `name=command;…` run
//! in the project's directory. Each is called with `URLS NAME TIMES LOG` and writes a log in the format of
//! `redlock_tests::history`. `REDLOCK_GRANTS` sets how often each process acquires the lock, `REDLOCK_CHAOS_SEED`
//! repeats the schedule of faults.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::PathBuf,
    process::id,
    sync::Mutex,
    thread::sleep,
    time::{Duration, Instant},
};

use redlock::{Client, Config, LockError, LockOptions, Owner};
use redlock_tests::{
    campaign::number,
    contender::{self, Contender, PATIENCE, until},
    history::{self, Findings, Hold},
    locked,
    nemesis::{Arena, Fault, HARMLESS, Plan},
    server::Server,
};

const LOCK: &str = "fight";

/// The contenders: two processes of Rust, and one of each other language.
fn commands() -> Vec<(String, String)> {
    let rust = format!("'{}'", env!("CARGO_BIN_EXE_contender"));
    let two = ["rust 1", "rust 2"].map(|name| (name.to_owned(), rust.clone()));
    two.into_iter().chain(contender::commands("REDLOCK_CONTENDERS")).collect()
}

/// The deployment that they fight on.
trait Ring {
    fn servers(&self) -> &[Server];
    /// The URLs of the nodes; contenders may reach them by different ones.
    fn urls(&self, contender: usize) -> String;
}

impl Ring for Vec<Server> {
    fn servers(&self) -> &[Server] {
        self
    }

    fn urls(&self, _contender: usize) -> String {
        self.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }
}

impl Ring for Arena {
    fn servers(&self) -> &[Server] {
        self.servers()
    }

    fn urls(&self, contender: usize) -> String {
        self.urls(contender).join(",")
    }
}

/// Lets every contender acquire the lock `times` times and hold it for up to `hold_ms`. Until they are done, calls
/// `disturb` repeatedly with the number of grants so far and in total.
fn contest<R: Ring>(
    what: &str,
    ring: &mut R,
    times: usize,
    hold_ms: u64,
    mut disturb: impl FnMut(&mut R, &dyn Fn() -> usize, usize),
) {
    // One fight at a time, so that each report describes one fight.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = locked(&TURN);
    let times = number("REDLOCK_GRANTS").map_or(times, |times| times as usize);
    let folder = env::temp_dir().join(format!("redlock-languages-{}-{}", id(), what.replace(' ', "-")));
    fs::create_dir_all(&folder).unwrap();

    // Holds the lock until all contenders wait for it, since some languages start slowly.
    let direct = ring.servers().iter().map(Server::url).collect::<Vec<_>>().join(",");
    let client = Client::new(Config::from_list(&direct)).unwrap();
    let lock = client.lock(LOCK, LockOptions::default()).unwrap();
    let mut go_on = || Ok::<(), LockError>(());
    let barrier = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut go_on).unwrap();
    let start = |(number, (name, command)): (usize, &(String, String))| {
        let more: &[&str] = if hold_ms > 0 { &[&hold_ms.to_string()] } else { &[] };
        Contender::start(name, command, [&ring.urls(number), LOCK, &times.to_string()], more, &folder)
    };
    let mut contenders: Vec<Contender> = commands().iter().enumerate().map(start).collect();
    until("all of them wait", || {
        for Contender { name, child, .. } in &mut contenders {
            assert_eq!(child.try_wait().unwrap(), None, "{name} has ended");
        }
        // A waiter subscribes to as few nodes as have one in common with every quorum.
        let servers = ring.servers();
        servers.iter().map(|server| server.waiting(LOCK)).sum::<usize>() >= contenders.len() * servers.len().div_ceil(2)
    });
    let started = Instant::now();
    barrier.release_interruptible(&mut go_on).unwrap();

    let total = times * contenders.len();
    let logs: Vec<PathBuf> = contenders.iter().map(|contender| contender.log.clone()).collect();
    let grants = || logs.iter().map(|log| history::read([log]).map_or(0, |holds| holds.len())).sum();
    let (mut seen, mut moved) = (Vec::new(), Instant::now());
    loop {
        let running = contenders.iter_mut().filter_map(|one| match one.child.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "{} ended with {status}; logs in {}", one.name, folder.display());
                None
            }
            None => Some(one.progress()),
        });
        let now: Vec<u64> = running.collect();
        if now.is_empty() {
            break;
        }
        if now != seen {
            (seen, moved) = (now, Instant::now());
        }
        assert!(moved.elapsed() < PATIENCE, "nobody gets the lock; logs in {}", folder.display());
        disturb(ring, &grants, total);
        sleep(Duration::from_millis(10));
    }
    let took = started.elapsed();

    let all = holds(&contenders);
    report(&contenders, &all, what, took);
    for (contender, holds) in contenders.iter().zip(&all) {
        assert_eq!(holds.len(), times, "grants of {}", contender.name);
        assert!(holds.iter().all(|hold| hold.until.is_some()), "{} released all of them", contender.name);
    }
    assert_eq!(history::check(all.concat()), Findings::default(), "logs in {}", folder.display());
    for server in ring.servers().iter().filter(|server| server.is_up()) {
        until("the lock leaves no key and no listener", || left(server).is_empty() && server.waiting(LOCK) == 0);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Injects each of the `faults` after another equal part of all grants.
fn fight(count: usize, times: usize, faults: &[fn(&mut [Server])]) {
    let mut servers: Vec<Server> = (0..count).map(|_| Server::start()).collect();
    let mut done = 0;
    let what = format!("{count} nodes, {} faults", faults.len());
    contest(&what, &mut servers, times, 0, |servers, grants, total| {
        if let Some(fault) = faults.get(done)
            && grants() >= (done + 1) * total / (faults.len() + 1)
        {
            fault(servers);
            done += 1;
        }
    });
    assert_eq!(done, faults.len(), "they were done before all faults came");
}

/// The keys on a node that must be gone when no lock is held.
fn left(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.retain(|key| !key.starts_with("redlock_token") && key != "redlock_node");
    keys
}

/// The holds of each contender so far. A contender that has not started has no log.
fn holds(contenders: &[Contender]) -> Vec<Vec<Hold>> {
    contenders.iter().map(|one| history::read([&one.log]).unwrap_or_default()).collect()
}

/// Prints each contender's share of the grants while all of them fought, and the longest time between two of its
/// grants.
fn report(contenders: &[Contender], all: &[Vec<Hold>], what: &str, took: Duration) {
    let ends = |holds: &Vec<Hold>| holds.last().map_or(0, |hold| hold.from);
    let together = all.iter().map(ends).min().unwrap_or_default();
    let within = |holds: &[Hold]| holds.iter().filter(|hold| hold.from <= together).count();
    let sum: usize = all.iter().map(|holds| within(holds)).sum();
    let grants: usize = all.iter().map(Vec::len).sum();
    println!("{what}: {grants} grants in {:.1} s", took.as_secs_f64());
    for (Contender { name, .. }, holds) in contenders.iter().zip(all) {
        let share = 100.0 * within(holds) as f64 / sum.max(1) as f64;
        let gaps = holds.windows(2).map(|pair| pair[1].from - pair[0].from);
        let longest = gaps.max().unwrap_or_default() as f64 / 1e6;
        println!("  {name:16} {} grants, {share:5.1} % while all fought, at most {longest:.0} ms without", holds.len());
    }
}

#[test]
fn on_one_node() {
    fight(1, 2000, &[]);
}

#[test]
fn on_five_nodes() {
    fight(5, 500, &[]);
}

#[test]
fn on_five_nodes_of_which_one_freezes_and_one_dies() {
    fight(5, 300, &[|nodes| nodes[0].freeze(), |nodes| nodes[1].stop(), |nodes| nodes[0].thaw()]);
}

/// The contenders wait without limit, so a quorum must always be able to answer. Otherwise anything may happen to
/// servers that keep their keys.
#[test]
fn on_five_nodes_in_chaos() {
    let seed = number("REDLOCK_CHAOS_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    println!("on_five_nodes_in_chaos: REDLOCK_CHAOS_SEED={seed}");
    let mut arena = Arena::start(Plan {
        nodes: 5,
        needed: 3,
        durable: true,
        clocks: None,
        lease: Duration::from_secs(1),
        quarantine: true,
        careful: true,
        available: true,
    });
    let mut dice = fastrand::Rng::with_seed(seed);
    let faults = [HARMLESS, &[Fault::Restart]].concat();
    let (mut deck, mut done) = (Vec::new(), 0);
    contest("5 nodes, chaos", &mut arena, 120, 2, |arena, _, _| {
        if deck.is_empty() {
            deck.clone_from(&faults);
            dice.shuffle(&mut deck);
        }
        if let Some(fault) = deck.pop() {
            arena.strike(fault, &mut dice, &mut |_| done += 1);
        }
    });
    println!("  {done} faults");
}
