//! A holder learns of a loss at its deadline, by reading a clock. The tests suspend servers and check many leases, each
//! right after the moment from which it may no longer count as held. They compute that moment from when the acquire
//! returned or the servers stopped, and do not ask the lease. Suspending a minority causes no loss.
//!
//! `REDLOCK_LOSS_ROUNDS` repeats the test; each round has a thousand leases.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use redlock::{Client, Config, Event, Lease, LockOptions, Ttl};
use redlock_tests::{campaign::number, locked, process::monotonic, server::Server};

const LEASE: Duration = Duration::from_secs(2);
/// The validity of a lease of that length, in ns: ten percent and two milliseconds less.
const VALID: u64 = 1_798_000_000;
/// How many leases are checked in a round. As many others only wait for the report of their loss, since a check would
/// trigger it.
const LOOKED_AT: usize = 500;
/// By then the replies that servers sent before they stopped have arrived.
const SETTLED: Duration = Duration::from_millis(200);

fn config(servers: &[Server], lease: Duration) -> Config {
    let mut config = Config::new(servers.iter().map(Server::url));
    config.watchdog = lease;
    config.max_ttl = lease;
    config
}

async fn leases(client: &Client, count: usize, fixed: bool) -> Vec<(Lease, u64)> {
    let acquires = (0..count).map(|number| {
        let mut options = LockOptions::default();
        if fixed {
            options.ttl = Ttl::Fixed(LEASE);
        }
        let acquire = client.lock(&format!("{fixed}-{number}"), options).unwrap().acquire();
        async move {
            let lease = acquire.await.unwrap();
            (lease, monotonic())
        }
    });
    join_all(acquires).await
}

/// The median, the 99th percentile and the maximum, in ms.
fn quantiles(mut late: Vec<u64>) -> [f64; 3] {
    late.sort_unstable();
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize] as f64 / 1e6;
    [at(0.5), at(0.99), at(1.0)]
}

/// Suspends `count` of the servers. Returns how late each loss was reported, in ns.
async fn suspend(servers: &mut [Server], count: usize) -> Vec<u64> {
    let client = Client::new(config(servers, LEASE)).unwrap();
    let mut held = leases(&client, LOOKED_AT, false).await;
    held.extend(leases(&client, LOOKED_AT, true).await);
    for server in &mut servers[..count] {
        server.freeze();
    }
    let frozen = monotonic();
    let is_fixed = |index: usize| index >= LOOKED_AT;
    // A fixed lease counts from before its acquire returned, a renewed one at most from when the servers stopped.
    let bounds: Vec<u64> = held
        .iter()
        .enumerate()
        .map(|(index, (_, returned))| VALID + if is_fixed(index) { *returned } else { frozen })
        .collect();
    let reported = join_all(held.iter().map(|(lease, _)| {
        let lost = lease.lost();
        async move { lost.await.map(|_| monotonic()) }
    }));
    let reported = tokio::spawn(reported);
    let held = Arc::new(held);
    let looked = held.clone();
    // On a thread of its own, so that each check comes right after its moment.
    let looking = thread::spawn(move || {
        let mut order: Vec<usize> = (0..looked.len()).step_by(2).collect();
        order.sort_unstable_by_key(|index| bounds[*index]);
        let wait = |moment| thread::sleep(Duration::from_nanos(u64::saturating_sub(moment, monotonic())));
        wait(frozen + SETTLED.as_nanos() as u64);
        let deadlines: Vec<u64> =
            looked.iter().map(|(lease, _)| monotonic() + lease.remaining().as_nanos() as u64).collect();
        let believed = order.into_iter().filter(|index| {
            wait(bounds[*index] + 1);
            looked[*index].0.held()
        });
        (believed.count(), deadlines)
    });
    let (believed, deadlines) = tokio::task::spawn_blocking(|| looking.join().unwrap()).await.unwrap();
    assert_eq!(believed, 0, "leases that believed beyond their deadline, of {LOOKED_AT}");
    let reported = tokio::time::timeout(Duration::from_secs(60), reported).await.expect("all are reported").unwrap();
    for server in &mut servers[..count] {
        server.thaw();
    }
    assert!(held.iter().all(|(lease, _)| !lease.held()), "lost is final");
    client.close().await;
    let late = reported.iter().zip(deadlines).map(|(event, deadline)| event.unwrap().saturating_sub(deadline));
    late.skip(1).step_by(2).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_held_beyond_its_deadline() {
    let mut late = Vec::new();
    for _ in 0..number("REDLOCK_LOSS_ROUNDS").unwrap_or(1) {
        for (nodes, frozen) in [(1, 1), (3, 2)] {
            let mut servers: Vec<Server> = (0..nodes).map(|_| Server::start()).collect();
            late.extend(suspend(&mut servers, frozen).await);
        }
    }
    let count = late.len();
    let [half, most, all] = quantiles(late);
    println!(
        "{count} leases: 0 believed after the deadline; {count} others: reported after {half:.1} ms (p50), {most:.1} ms (p99), {all:.1} ms (max)"
    );
    // Allows for timers on a busy machine. The check that matters is above.
    assert!(most < 250.0, "losses were reported {most} ms after the deadline");
}

/// A client of five servers, and the losses that it reported.
struct Kept {
    client: Client,
    lost: Arc<Mutex<Vec<String>>>,
}

impl Kept {
    /// Long enough that a machine that stalls for a while loses none.
    const LEASE: Duration = Duration::from_secs(6);

    fn new(servers: &[Server], change: impl FnOnce(&mut Config)) -> Self {
        let lost = Arc::new(Mutex::new(Vec::new()));
        let sink = lost.clone();
        let events = Arc::new(move |event: &Event| {
            if matches!(event, Event::Lost { .. }) {
                locked(&sink).push(event.to_string());
            }
        });
        let mut config = config(servers, Self::LEASE);
        change(&mut config);
        Self { client: Client::with_events(config, events).unwrap(), lost }
    }

    /// Acquires and releases a lock repeatedly for the length of three leases. Returns how long each acquire took, in
    /// ns.
    async fn others(&self) -> Vec<u64> {
        let lock = self.client.lock("other", LockOptions::default()).unwrap();
        let (end, mut took) = (monotonic() + 3 * Self::LEASE.as_nanos() as u64, Vec::new());
        while monotonic() < end {
            let start = monotonic();
            let lease = lock.acquire().await.unwrap();
            took.push(monotonic() - start);
            lease.release().await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        took
    }

    fn check(&self, held: &[(Lease, u64)]) {
        let lost = locked(&self.lost);
        assert!(lost.is_empty(), "{} of {} were lost: {:#?}", lost.len(), held.len(), &lost[..lost.len().min(5)]);
        assert!(held.iter().all(|(lease, _)| lease.held()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_minority_is_no_loss() {
    let mut servers: Vec<Server> = (0..5).map(|_| Server::start()).collect();
    let kept = Kept::new(&servers, |_| {});
    let held = leases(&kept.client, 200, false).await;
    servers[0].freeze();
    servers[1].freeze();
    let took = kept.others().await;
    kept.check(&held);
    let count = took.len();
    let [half, most, all] = quantiles(took);
    println!(
        "{count} acquires beside two of five suspended: {half:.1} ms (p50), {most:.1} ms (p99), {all:.1} ms (max)"
    );
}

/// Three of five nodes grant, since another owner occupies the other two for a while. Then two of the three stop. The
/// leases must move to the other two once these are free, before the requests to the stopped nodes time out.
#[tokio::test(flavor = "multi_thread")]
async fn leases_move_to_the_nodes_that_answer() {
    let mut servers: Vec<Server> = (0..5).map(|_| Server::start()).collect();
    let kept = Kept::new(&servers, |config| config.reply_timeout = Kept::LEASE);
    // New nodes vote once the client has seen all of them.
    kept.client.lock("first", LockOptions::default()).unwrap().acquire().await.unwrap().release().await.unwrap();
    // Longer than until the first renewal, which finds the locks occupied there.
    let occupied = (Kept::LEASE / 3 + Duration::from_millis(1500)).as_millis().to_string();
    let count = 10;
    for server in &servers[3..] {
        for number in 0..count {
            let name = format!("false-{number}");
            let _: u64 = server.command(&["HSET", &name, "somebody:1", "1"]);
            let _: u64 = server.command(&["PEXPIRE", &name, &occupied]);
        }
    }
    let held = leases(&kept.client, count, false).await;
    servers[0].freeze();
    servers[1].freeze();
    tokio::time::sleep(2 * Kept::LEASE).await;
    kept.check(&held);
    for server in &servers[3..] {
        let fields: Vec<String> = server.command(&["HKEYS", "false-0"]);
        assert!(fields.len() == 1 && fields[0] != "somebody:1", "{fields:?}");
    }
}
