//! A fleet whose clocks differ runs each tick's job once: `min_hold` keeps the lock taken until the slowest replica has
//! found it so. Time is simulated, so that minutes take no time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use redlock::{Client, Config, LockOptions, ReleaseOutcome, Wire};
use redlock_servers::locked;
use redlock_simulation::{SECOND, host::Host};
use tokio::time::{Instant, sleep, sleep_until};

const NAMES: usize = 100;
const TICKS: u32 = 10;
const PERIOD: Duration = Duration::from_secs(60);
/// By how much the clock of each replica is behind the true time.
const REPLICAS: [Duration; 2] = [Duration::ZERO, Duration::from_secs(5)];
const JOB: Duration = Duration::from_millis(10);
/// Longer than the clocks differ, shorter than a period.
const MIN_HOLD: Duration = Duration::from_secs(30);

/// How often the job of each name and tick ran.
type Runs = Arc<Mutex<BTreeMap<(usize, u32), u32>>>;

/// A deployment, and how its locks are written.
#[derive(Clone, Copy)]
struct Deployment {
    nodes: usize,
    wire: Wire,
    fair: bool,
}

/// Runs the job of a name and a tick, unless another replica has the lock.
async fn run(client: &Client, options: LockOptions, (name, tick): (usize, u32), runs: &Runs) {
    let lock = client.lock(&format!("job-{name}"), options).unwrap();
    let Some(lease) = lock.try_acquire().await.unwrap() else { return };
    sleep(JOB).await;
    *locked(runs).entry((name, tick)).or_default() += 1;
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

/// A replica: at each tick of its own clock it starts the jobs of all names at once.
async fn replica(client: Client, options: LockOptions, behind: Duration, runs: Runs) {
    let begin = Instant::now();
    for tick in 1..=TICKS {
        sleep_until(begin + PERIOD * tick + behind).await;
        join_all((0..NAMES).map(|name| run(&client, options.clone(), (name, tick), &runs))).await;
    }
}

/// Runs the fleet. Returns how often the job of each name and tick ran.
fn fleet(name: &str, deployment: Deployment, min_hold: Option<Duration>) -> BTreeMap<(usize, u32), u32> {
    let mut config = Config::new((0..deployment.nodes).map(|node| format!("memory://{name}-{node}")));
    config.wire = deployment.wire;
    let mut options = LockOptions::default();
    (options.fair, options.min_hold) = (deployment.fair, min_hold);
    let runs = Runs::default();
    let mut host = Host::new(0, 1.0);
    let clients: Vec<Client> = host.inside(|| REPLICAS.map(|_| Client::new(config.clone()).unwrap()).into());
    for (client, behind) in clients.iter().zip(REPLICAS) {
        host.inside(|| host.start(replica(client.clone(), options.clone(), behind, runs.clone())));
    }
    host.run(u64::from(TICKS + 1) * PERIOD.as_secs() * SECOND);
    let runtime = host.kill();
    host.inside(|| drop((clients, runtime)));
    std::mem::take(&mut *locked(&runs))
}

fn check(name: &str, deployment: Deployment) {
    let jobs = NAMES * TICKS as usize;
    let with = fleet(&format!("{name}-with"), deployment, Some(MIN_HOLD));
    assert_eq!(with.len(), jobs, "{name}: every tick ran");
    let again: Vec<_> = with.iter().filter(|(_, times)| **times != 1).collect();
    assert!(again.is_empty(), "{name}: these ran again: {again:?}");
    let without = fleet(&format!("{name}-without"), deployment, None);
    assert_eq!(without.len(), jobs, "{name}: every tick ran");
    assert!(without.values().all(|times| *times == 2), "{name}: a released lock stops nobody: {without:?}");
}

#[test]
fn two_replicas_whose_clocks_differ_by_five_seconds_run_each_tick_once() {
    let one = Deployment { nodes: 1, wire: Wire::Redisson, fair: false };
    check("one", one);
    check("token", Deployment { wire: Wire::Token, ..one });
    check("fair", Deployment { fair: true, ..one });
    check("three", Deployment { nodes: 3, ..one });
}
