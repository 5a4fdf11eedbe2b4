//! Processes of all languages fight for one lock: on one node, on five, on five with two in trouble, and on five in
//! chaos; and on one node for a fair lock, a read/write lock and a semaphore. No two processes may hold it at once,
//! except readers together and permits with slots of their own. Tokens must increase in the order of the grants, every
//! process must get all its grants, and no key may be left.
//!
//! By default only Rust's processes fight. `REDLOCK_CONTENDERS` names those of other languages, as `name=command;…` run
//! in the project's directory. Each is called with `URLS NAME TIMES LOG`, and in a fight for another kind of lock with
//! what `contender` in `tests/src/bin` describes. It writes a log in the format of `redlock_tests::history`. A contender
//! of another version, whose name begins with `other`, may know plain locks only: then it must exclude fair locks, readers
//! and writers, and a semaphore must refuse it. `REDLOCK_GRANTS` sets how often each process acquires the lock, `REDLOCK_CHAOS_SEED`
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

use redlock::{Client, Config, Lease, Lock, LockError, LockOptions, Owner};
use redlock_tests::{
    campaign::number,
    contender::{self, Contender, PATIENCE, until},
    history::{self, Findings, Hold, Kind, Share},
    locked,
    nemesis::{Arena, Fault, HARMLESS, Plan},
    server::Server,
};

const LOCK: &str = "fight";
/// The number of slots of the semaphore.
const PERMITS: u32 = 3;

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

/// All of a lock of this kind, so that nobody else can hold any of it.
fn whole(client: &Client, kind: Kind) -> Result<Lock, LockError> {
    let mut options = LockOptions::default();
    options.fair = kind == Kind::Fair;
    match kind {
        Kind::Lock | Kind::Fair => client.lock(LOCK, options),
        Kind::ReadWrite { .. } => Ok(client.read_write_lock(LOCK, options)?.write().clone()),
        Kind::Semaphore { permits } => client.semaphore(LOCK, permits, options)?.taking(permits),
    }
}

/// The number of waiters on a node: those in the queues of a lock, and those that listen for its release.
fn waiters(server: &Server) -> usize {
    let queues = ["redlock_queue", "redlock_wqueue", "redlock_rqueue"];
    let queued = queues.iter().map(|queue| server.command::<usize>(&["ZCARD", &format!("{queue}:{{{LOCK}}}")]));
    queued.sum::<usize>().max(server.waiting(LOCK))
}

/// Lets every contender acquire the lock `times` times and hold it for up to `hold_ms`. Until they are done, calls
/// `disturb` repeatedly with the number of grants so far and in total.
fn contest<R: Ring>(
    what: &str,
    ring: &mut R,
    kind: Kind,
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
    let lock = whole(&client, kind).unwrap();
    let mut go_on = || Ok::<(), LockError>(());
    let barrier: Lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut go_on).unwrap();
    let start = |(number, (name, command)): (usize, &(String, String))| {
        let (hold, word) = (hold_ms.to_string(), kind.word());
        let more: &[&str] = match kind {
            Kind::Lock if hold_ms == 0 => &[],
            Kind::Lock => &[&hold],
            _ => &[&hold, "0", "redisson", "", &word],
        };
        Contender::start(name, command, [&ring.urls(number), LOCK, &times.to_string()], more, &folder)
    };
    let mut contenders: Vec<Contender> = commands().iter().enumerate().map(start).collect();
    until("all of them wait", || {
        contenders.retain_mut(|Contender { name, child, log }| {
            let Some(status) = child.try_wait().unwrap() else { return true };
            // It takes the semaphore for a lock.
            let refused = matches!(kind, Kind::Semaphore { .. }) && name.starts_with("other") && !status.success();
            assert!(refused, "{name} has ended");
            assert_eq!(history::read([log]).unwrap_or_default(), [], "grants of {name}");
            false
        });
        // A waiter subscribes to as few nodes as have one in common with every quorum.
        let servers = ring.servers();
        servers.iter().map(waiters).sum::<usize>() >= contenders.len() * servers.len().div_ceil(2)
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

    let mut all = holds(&contenders);
    // A plain lock excludes readers and writers, as a writer does.
    let plain = |hold: &&mut Hold| matches!(kind, Kind::ReadWrite { .. }) && hold.share == Share::Whole;
    all.iter_mut().flatten().filter(plain).for_each(|hold| hold.share = Share::Write);
    report(&contenders, &all, what, took);
    for (contender, holds) in contenders.iter().zip(&all) {
        assert_eq!(holds.len(), times, "grants of {}", contender.name);
        assert!(holds.iter().all(|hold| hold.until.is_some()), "{} released all of them", contender.name);
    }
    assert_eq!(history::check_as(kind, all.concat()), Findings::default(), "logs in {}", folder.display());
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
    contest(&what, &mut servers, Kind::Lock, times, 0, |servers, grants, total| {
        if let Some(fault) = faults.get(done)
            && grants() >= (done + 1) * total / (faults.len() + 1)
        {
            fault(servers);
            done += 1;
        }
    });
    assert_eq!(done, faults.len(), "they were done before all faults came");
}

/// The keys on a node that must be gone when no lock is held. Counters stay, and so does, for 5 s, the record of the
/// clients that waited.
fn left(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    let kept = ["redlock_token", "redlock_slot_tokens", "redlock_alive", "redlock_node"];
    keys.retain(|key| !kept.iter().any(|kept| key.starts_with(kept)));
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

/// A fight on one node for a lock of another kind.
fn fight_for(what: &str, kind: Kind, times: usize) {
    contest(what, &mut vec![Server::start()], kind, times, 1, |_, _, _| {});
}

#[test]
fn for_a_fair_lock() {
    fight_for("fair lock", Kind::Fair, 100);
}

#[test]
fn for_a_read_write_lock() {
    fight_for("read-write lock", Kind::ReadWrite { shares_tokens: true }, 100);
}

#[test]
fn for_a_semaphore() {
    fight_for("semaphore", Kind::Semaphore { permits: PERMITS }, 100);
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
    contest("5 nodes, chaos", &mut arena, Kind::Lock, 120, 2, |arena, _, _| {
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
