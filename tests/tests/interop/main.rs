//! Real lock libraries of others: each runs in a process of its own, on the same names as this project's. Redisson
//! (`redisson.rs`) shares our own format, wake-ups and fencing tokens. Libraries that write strings (`strings.rs`)
//! share `wire="token"`.
//!
//! `REDLOCK_PEERS` names the libraries and `REDLOCK_CONTENDERS` our other languages, as `name=command;…` run in the
//! project's directory: `make interop-test` sets both. `REDLOCK_HANDOFFS` sets how often a lock changes sides between
//! Redisson and one of our languages; with libraries that poll, a fifth as often. Words on the command line select the
//! checks whose names contain one of them. The run ends with a table.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fight;
mod place;
mod redisson;
mod strings;

use std::{
    cell::OnceCell,
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    rc::Rc,
    time::{Duration, Instant},
};

use redlock::{Client, Config, LockOptions, Ttl};
use redlock_tests::{campaign::number, contender};

use crate::{
    fight::{Row, table},
    place::Place,
    redisson::Ground,
};

/// A library, or one of our languages: its name and the command that starts it.
type Party = (String, String);
/// A check by name.
type Check = (String, Box<dyn FnOnce() -> Vec<Row>>);

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let peers = contender::commands("REDLOCK_PEERS");
    assert!(!peers.is_empty(), "REDLOCK_PEERS names no library: call `make interop-test`");
    let mut ours: Vec<Party> = vec![("rust".to_owned(), format!("'{}'", env!("CARGO_BIN_EXE_contender")))];
    ours.extend(contender::commands("REDLOCK_CONTENDERS"));

    let mut checks: Vec<Check> = Vec::new();
    let alone: Rc<dyn Fn() -> Rc<Place>> = Rc::new(|| Rc::new(Place::server()));
    let cluster = OnceCell::new();
    let on_cluster: Rc<dyn Fn() -> Rc<Place>> = Rc::new(move || {
        let cluster = cluster.get_or_init(|| Rc::new(Place::cluster()));
        cluster.clear();
        cluster.clone()
    });
    // The first of several versions of Redisson is the current one.
    let of_redisson = |peer: &&Party| peer.0.starts_with("redisson");
    for (number, peer) in peers.iter().filter(of_redisson).enumerate() {
        let current = number == 0;
        let languages = if current { ours.len() } else { 1 };
        let handoffs = |usual, part| if current { handoffs(usual, part) } else { handoffs(usual / 4, part * 4) };
        let (label, place) = ("", alone.clone());
        let alone = Ground { label, place, patient: true, languages, handoffs: handoffs(1000, 1) };
        checks.extend(redisson::checks(peer, &ours, &alone));
        let (label, place) = (", cluster", on_cluster.clone());
        let on_cluster = Ground { label, place, patient: false, languages, handoffs: handoffs(400, 4) };
        checks.extend(redisson::checks(peer, &ours, &on_cluster));
        if current {
            checks.push(redisson::without_shards(peer, &on_cluster));
        }
    }
    for peer in peers.iter().filter(|peer| !of_redisson(peer)) {
        checks.extend(strings::checks(peer, &ours));
    }
    checks.retain(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word)));
    assert!(!checks.is_empty(), "no check is called so");

    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for (name, check) in checks {
        let start = Instant::now();
        let end = catch_unwind(AssertUnwindSafe(check));
        let took = start.elapsed().as_secs_f64();
        println!("{} {name} ({took:.1} s)", if end.is_ok() { "ok    " } else { "FAILED" });
        match end {
            Ok(more) => rows.extend(more),
            Err(_) => failed.push(name),
        }
    }
    println!("{}", table(&rows));
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("FAILED: {}", failed.join("; "));
    ExitCode::FAILURE
}

/// How often a lock changes sides: `REDLOCK_HANDOFFS` divided by `part`, or else `usual`.
fn handoffs(usual: usize, part: usize) -> usize {
    number("REDLOCK_HANDOFFS").map_or(usual, |all| all as usize / part)
}

/// Our side of a check: a client in this process.
fn client(url: &str, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new([url]);
    change(&mut config);
    Client::new(config).unwrap()
}

/// One of our locks with this ttl.
fn lock(client: &Client, name: &str, ttl: Ttl) -> redlock::Lock {
    let mut options = LockOptions::default();
    options.ttl = ttl;
    client.lock(name, options).unwrap()
}

/// One of our locks that stays taken for `min_hold` at least.
fn resting(client: &Client, name: &str, min_hold: Duration) -> redlock::Lock {
    let mut options = LockOptions::default();
    options.min_hold = Some(min_hold);
    client.lock(name, options).unwrap()
}

/// Runs an async check; the locks themselves run on threads of their own.
fn run<T>(check: impl Future<Output = T>) -> T {
    // Tasks that wait run on the worker thread while the check blocks.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(1).enable_all().build().unwrap().block_on(check)
}
