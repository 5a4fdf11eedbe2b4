//! Locks on the deployments that production runs: clusters whose slots move and whose masters die, masters under
//! Sentinels, replicas that must acknowledge. The servers are real; times appear only as bounds that separate one
//! mechanism from another.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use redlock::{Client, Config, Event, Lease, LockError, LockOptions, LostReason, Owner, ReleaseOutcome, Ttl};
use redlock_tests::{
    clients::{client_with, options},
    deployments::{Cluster, Watched},
    history::{self, Findings, Hold},
    process::monotonic,
    proxy::Proxy,
    server::Server,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

fn client(urls: &[String], change: impl FnOnce(&mut Config)) -> Client {
    client_with(urls, change)
}

fn on(url: String) -> Client {
    client(&[url], |_| {})
}

/// Waits for a condition that becomes true soon, at no known time.
async fn until(what: &str, happened: impl FnMut() -> bool) {
    redlock_tests::until(Duration::from_secs(30), what, happened).await;
}

async fn renewed(what: &str, lease: &Lease) {
    redlock_tests::renewed(Duration::from_secs(30), what, lease).await;
}

#[tokio::test]
async fn a_cluster_keeps_locks_of_all_slots() {
    let cluster = Cluster::start(3, 0);
    let (one, other) = (on(cluster.url()), on(cluster.url_of(2)));
    let mut leases = Vec::new();
    for number in 0..200 {
        let name = format!("lock {number}");
        let lease = one.lock(&name, LockOptions::default()).unwrap().acquire().await.unwrap();
        assert!(other.lock(&name, LockOptions::default()).unwrap().try_acquire().await.unwrap().is_none());
        leases.push(lease);
    }
    for server in cluster.servers() {
        let keys: usize = server.command(&["DBSIZE"]);
        assert!(keys >= 2 * 20, "each server keeps some of the locks");
    }
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    }
    let pong = one.ping().await.unwrap();
    assert!(pong[0].state.is_ok(), "{pong:?}");
}

#[tokio::test]
async fn a_seed_that_left_the_cluster_hides_none_of_its_masters() {
    let mut cluster = Cluster::start(3, 1);
    let client = on(cluster.url_of(3));
    let lock = client.lock("x", options(|_| {})).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    // As `redis-cli --cluster del-node` does. The server still answers, and knows no other.
    let seed = cluster.server(3);
    seed.command::<()>(&["CLUSTER", "RESET", "SOFT"]);
    seed.command::<()>(&["CONFIG", "RESETSTAT"]);
    for master in 0..3 {
        cluster.server(master).freeze();
    }
    assert!(lock.try_acquire().await.is_err());
    until("the client has asked the seed more than once", || {
        let stats: String = cluster.servers()[3].command(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_cluster|info:calls="));
        calls.is_some_and(|calls| !calls.starts_with("1,"))
    })
    .await;
    for master in 0..3 {
        cluster.server(master).thaw();
    }
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// A lease that ends soon if it is not renewed.
fn quick(config: &mut Config) {
    config.watchdog = Duration::from_secs(3);
}

/// A lease that outlives a failover.
fn steady(config: &mut Config) {
    config.watchdog = Duration::from_secs(20);
}

#[tokio::test]
async fn a_release_wakes_a_waiter_in_a_cluster() {
    let cluster = Cluster::start(3, 0);
    let (one, other) = (on(cluster.url()), on(cluster.url_of(1)));
    let (one, other) = (one.lock("x", options(|_| {})).unwrap(), other.lock("x", options(|_| {})).unwrap());
    let mut waits = Vec::new();
    for _ in 0..20 {
        let lease = one.acquire().await.unwrap();
        let waiting = tokio::spawn(other.acquire());
        let owner = &cluster.servers()[cluster.owner("x")];
        until("the waiter listens to the shard", || {
            let counts: Vec<redis::Value> = owner.command(&["PUBSUB", "SHARDNUMSUB", "redisson_lock__channel:{x}"]);
            counts.last() == Some(&redis::Value::Int(1))
        })
        .await;
        let released = Instant::now();
        lease.release().await.unwrap();
        let lease = waiting.await.unwrap().unwrap();
        waits.push(released.elapsed());
        lease.release().await.unwrap();
        until("the waiter listens no more", || {
            let channels: Vec<String> = owner.command(&["PUBSUB", "SHARDCHANNELS"]);
            channels.is_empty()
        })
        .await;
    }
    waits.sort();
    // Without a message the waiter would poll after two seconds.
    assert!(waits[10] < Duration::from_millis(500), "{waits:?}");
}

#[tokio::test]
async fn either_kind_of_message_wakes_a_waiter_in_a_cluster() {
    let cluster = Cluster::start(3, 0);
    let client = on(cluster.url());
    let lock = client.lock("x", options(|_| {})).unwrap();
    let channel = "redisson_lock__channel:{x}";
    for publish in ["PUBLISH", "SPUBLISH"] {
        let owner = &cluster.servers()[cluster.owner("x")];
        let _: () = owner.command(&["HSET", "x", "11111111-2222-3333-4444-555555555555:1", "1"]);
        let _: () = owner.command(&["PEXPIRE", "x", "60000"]);
        let waiting = tokio::spawn(lock.acquire());
        until("the waiter listens", || {
            let counts: Vec<redis::Value> = owner.command(&["PUBSUB", "SHARDNUMSUB", channel]);
            counts.last() == Some(&redis::Value::Int(1)) && owner.waiting("x") == 1
        })
        .await;
        // Releases as older (`PUBLISH`) and newer (`SPUBLISH`) versions of Redisson do.
        let _: () = owner.command(&["DEL", "x"]);
        let released = Instant::now();
        let _: () = owner.command(&[publish, channel, "0"]);
        let lease = waiting.await.unwrap().unwrap();
        assert!(released.elapsed() < Duration::from_secs(2), "{publish} woke it, not the poll");
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_held_lock_moves_with_its_slot() {
    let cluster = Cluster::start(3, 0);
    let client = client(&[cluster.url()], quick);
    let lock = client.lock("x", options(|_| {})).unwrap();
    let lease = lock.acquire().await.unwrap();
    let (from, to) = (cluster.owner("x"), cluster.another("x"));
    cluster.begin_move("x", to);
    // The lock has moved and its counter has not: neither server can serve a request for both keys.
    cluster.move_key("x", from, to);
    lease.extend(Duration::from_secs(20)).await.unwrap();
    let waited = lock.inspect().await;
    assert!(matches!(waited, Err(LockError::Unavailable { .. })), "{waited:?}");
    cluster.end_move("x", from, to);
    assert_eq!(lock.inspect().await.unwrap().unwrap().owner, lease.owner());
    assert!(lease.held());
    let pttl: i64 = cluster.servers()[to].command(&["PTTL", "x"]);
    assert!(pttl > 15_000, "the extension reached the new owner: {pttl} ms left");
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    let left: i64 = cluster.servers()[to].command(&["EXISTS", "x"]);
    assert_eq!(left, 0);
}

/// Calls that go together are redirected together, and each finds the new owner of the slot.
#[tokio::test]
async fn a_crowd_of_readers_follows_its_slot() {
    let cluster = Cluster::start(3, 0);
    let client = on(cluster.url());
    let lock = client.read_write_lock("x", LockOptions::default()).unwrap();
    let lease = lock.read().acquire().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    let (from, to) = (cluster.owner("x"), cluster.another("x"));
    cluster.begin_move("x", to);
    cluster.end_move("x", from, to);
    let leases: Vec<Lease> =
        join_all((0..100).map(|_| lock.read().acquire())).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(cluster.servers()[to].command::<usize>(&["HLEN", "x"]), 101);
    cluster.begin_move("x", from);
    cluster.end_move("x", to, from);
    for outcome in join_all(leases.iter().map(Lease::release)).await {
        assert_eq!(outcome.unwrap(), ReleaseOutcome::Released);
    }
}

/// Acquires a fair lock with clients of these URLs, one behind the other, and sends the number of each that got it. Each
/// releases it at once.
async fn queue_up(looks: &Client, urls: &[String], granted: &UnboundedSender<usize>) {
    for (number, url) in urls.iter().enumerate() {
        let lock = on(url.clone()).lock("x", options(|options| options.fair = true)).unwrap();
        let granted = granted.clone();
        tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            granted.send(number).unwrap();
            lease.release().await.unwrap();
        });
        while looks.queue("x").await.is_ok_and(|queue| queue.len() <= number) {
            tokio::task::yield_now().await;
        }
    }
}

async fn turns(mut granted: UnboundedReceiver<usize>) -> Vec<usize> {
    let mut turns = Vec::new();
    while let Some(number) = granted.recv().await {
        turns.push(number);
    }
    turns
}

#[tokio::test]
async fn a_queue_moves_with_its_slot_and_keeps_its_order() {
    let cluster = Cluster::start(3, 0);
    let client = client(&[cluster.url()], quick);
    let lock = client.lock("x", options(|options| options.fair = true)).unwrap();
    let lease = lock.acquire().await.unwrap();
    let (granted, order) = unbounded_channel();
    queue_up(&client, &[0, 1, 2].map(|server| cluster.url_of(server)), &granted).await;
    drop(granted);
    let (from, to) = (cluster.owner("x"), cluster.another("x"));
    cluster.begin_move("x", to);
    for key in ["redlock_queue:{x}", "x", "redlock_alive:{x}", "redlock_token:{x}"] {
        cluster.move_key(key, from, to);
    }
    cluster.end_move("x", from, to);
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(turns(order).await, [0, 1, 2]);
    assert!(!lock.locked().await.unwrap());
}

#[tokio::test]
async fn the_watchdog_keeps_locks_whose_slot_is_on_its_way() {
    let cluster = Cluster::start(3, 0);
    let client = client(&[cluster.url()], quick);
    // All names are in one slot.
    let names: Vec<String> = (0..10).map(|number| format!("{{x}} {number}")).collect();
    let mut leases = Vec::new();
    for name in &names {
        leases.push(client.lock(name, options(|_| {})).unwrap().acquire().await.unwrap());
    }
    let (from, to) = (cluster.owner("{x}"), cluster.another("{x}"));
    cluster.begin_move("{x}", to);
    // Moves half of the keys, and leaves the slot in between for longer than any lease lasts without renewal.
    for name in names.iter().step_by(2) {
        cluster.move_key(name, from, to);
    }
    let renewed = |server: usize, name: &str| -> bool {
        let pttl: i64 = cluster.servers()[server].command(&["EVAL", "return redis.call('PTTL', KEYS[1])", "1", name]);
        pttl > 0
    };
    let begun = Instant::now();
    until("more than a lease has passed", || begun.elapsed() > Duration::from_secs(4)).await;
    assert!(leases.iter().all(redlock::Lease::held));
    assert!(renewed(from, &names[1]));
    cluster.end_move("{x}", from, to);
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test]
async fn an_acquire_waits_for_a_slot_that_is_on_its_way() {
    let cluster = Cluster::start(3, 0);
    let client = on(cluster.url());
    let lock = client.lock("x", options(|_| {})).unwrap();
    // Creates the counter.
    lock.acquire().await.unwrap().release().await.unwrap();
    let (from, to) = (cluster.owner("x"), cluster.another("x"));
    cluster.begin_move("x", to);
    let waiting = tokio::spawn(lock.acquire());
    let refused = lock.try_acquire().await;
    assert!(refused.is_err() || refused.unwrap().is_none());
    cluster.end_move("x", from, to);
    let lease = waiting.await.unwrap().unwrap();
    assert!(lease.held());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_failover_keeps_what_the_replica_has() {
    let mut cluster = Cluster::start(3, 1);
    let client = client(&[cluster.url()], steady);
    let lock = client.lock("x", options(|_| {})).unwrap();
    let lease = lock.acquire().await.unwrap();
    let token = lease.token();
    let owner = cluster.owner("x");
    let _: i64 = cluster.servers()[owner].command(&["WAIT", "1", "5000"]);
    until("the replica has the lock", || {
        let replica = &cluster.servers()[3 + owner];
        let info: String = replica.command(&["INFO", "keyspace"]);
        info.contains("db0:keys=")
    })
    .await;
    cluster.server(owner).stop();
    until("the replica takes over", || cluster.owner("x") == 3 + owner).await;
    renewed("the lease is renewed by the new master", &lease).await;
    assert!(lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    let next = lock.acquire().await.unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

#[tokio::test]
async fn a_failover_that_forgot_a_lock_is_told_to_its_holder() {
    let mut cluster = Cluster::start(3, 1);
    let client = client(&[cluster.url()], |_| {});
    let lock = client.lock("x", options(|_| {})).unwrap();
    let owner = cluster.owner("x");
    // Cuts the replica off from its master until it takes over.
    cluster.server(3 + owner).freeze();
    let _: i64 = cluster.servers()[owner].command(&["CLIENT", "KILL", "TYPE", "replica"]);
    let lease = lock.acquire().await.unwrap();
    cluster.server(owner).stop();
    cluster.server(3 + owner).thaw();
    until("the replica takes over", || cluster.owner("x") == 3 + owner).await;
    let held = Instant::now();
    let reason = tokio::time::timeout(Duration::from_secs(9), lease.lost()).await;
    assert_eq!(reason.unwrap(), Some(LostReason::Deleted), "well before the lease of 30 s ends: {:?}", held.elapsed());
}

#[tokio::test]
async fn a_cluster_without_a_master_is_unavailable_and_the_rest_goes_on() {
    let mut cluster = Cluster::with_args(3, 0, &["--cluster-require-full-coverage", "no"]);
    let client = client(&[cluster.url()], |config| config.patience = Duration::from_millis(300));
    let (dead, alive) = (cluster.owner("x"), cluster.another("x"));
    let name = (0..1000).map(|n| format!("y{n}")).find(|name| cluster.owner(name) == alive).unwrap();
    let other = client.lock(&name, options(|_| {})).unwrap().acquire().await.unwrap();
    cluster.server(dead).stop();
    let wait = options(|options| options.wait = Some(Duration::from_secs(5)));
    let error = client.lock("x", wait).unwrap().acquire().await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    // By then the other servers may have declared it failed.
    let named = [cluster.servers()[dead].port().to_string(), "nobody in the cluster serves slot".to_owned()];
    assert!(named.iter().any(|name| error.to_string().contains(name)), "{error}");
    assert!(other.held());
    other.extend(Duration::from_secs(60)).await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test]
async fn nothing_is_sent_for_a_name_whose_keys_would_not_share_a_slot() {
    let client = on("redis+cluster://127.0.0.1:1".into());
    for name in ["a{b", "a}b", "{}x", "{a}{b}", "}{", "a{b}}"] {
        let error = client.lock(name, options(|_| {})).err().unwrap_or_else(|| panic!("{name} was taken"));
        assert_eq!(error.code(), "invalid", "{name}");
    }
    for name in ["a", "{a}b", "b{a}"] {
        client.lock(name, options(|_| {})).unwrap();
    }
}

#[tokio::test]
async fn sentinels_lead_to_the_new_master() {
    let mut watched = Watched::start(2);
    let client = client(&[watched.url()], steady);
    let lock = client.lock("x", options(|_| {})).unwrap();
    let lease = lock.acquire().await.unwrap();
    let _: i64 = watched.servers()[0].command(&["WAIT", "2", "5000"]);
    until("both replicas have the lock", || {
        watched.servers()[1..].iter().all(|replica| {
            let info: String = replica.command(&["INFO", "keyspace"]);
            info.contains("db0:keys=")
        })
    })
    .await;
    watched.server(0).stop();
    let master = watched.failed_over(0);
    renewed("the lease is renewed by the new master", &lease).await;
    let pttl: i64 = watched.servers()[master].command(&["PTTL", "x"]);
    assert!(pttl > 0);
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    let again = lock.acquire().await.unwrap();
    assert!(again.token() > lease.token());
    again.release().await.unwrap();
}

#[tokio::test]
async fn a_frozen_master_is_left_for_the_one_that_the_sentinels_elect() {
    let mut watched = Watched::start(1);
    let (tell, told) = std::sync::mpsc::channel();
    let sink = move |event: &Event| drop(tell.send(event.clone()));
    let client = Client::with_events(Config::new([watched.url()]), Arc::new(sink)).unwrap();
    let lock = client.lock("x", options(|_| {})).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    watched.server(0).freeze();
    let master = watched.failed_over(0);
    // The client sent no request to the master since it froze, and still learns of the election.
    until("the election is heard of", || {
        told.try_iter().any(|event| matches!(event, Event::NodeDown { cause, .. } if cause.contains("elected another")))
    })
    .await;
    let lease = lock.acquire().await.unwrap();
    let exists: i64 = watched.servers()[master].command(&["EXISTS", "x"]);
    assert_eq!(exists, 1);
    // The old master comes back and still believes that it is the master.
    watched.server(0).thaw();
    lease.extend(Duration::from_secs(40)).await.unwrap();
    lease.release().await.unwrap();
    let exists: i64 = watched.servers()[master].command(&["EXISTS", "x"]);
    assert_eq!(exists, 0);
}

#[tokio::test]
async fn a_planned_failover_loses_nothing() {
    let watched = Watched::start(1);
    let client = client(&[watched.url()], steady);
    let lock = client.lock("x", options(|_| {})).unwrap();
    let lease = lock.acquire().await.unwrap();
    let _: i64 = watched.servers()[0].command(&["WAIT", "1", "5000"]);
    let master = watched.hand_over();
    renewed("the lease is renewed by the new master", &lease).await;
    assert!(lease.held());
    let pttl: i64 = watched.servers()[master].command(&["PTTL", "x"]);
    assert!(pttl > 0);
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_queue_survives_a_planned_failover_and_keeps_its_order() {
    let watched = Watched::start(1);
    let client = client(&[watched.url()], steady);
    let lock = client.lock("x", options(|options| options.fair = true)).unwrap();
    let lease = lock.acquire().await.unwrap();
    let (granted, order) = unbounded_channel();
    queue_up(&client, &[watched.url(), watched.url(), watched.url()], &granted).await;
    drop(granted);
    let _: i64 = watched.servers()[0].command(&["WAIT", "1", "5000"]);
    let master = watched.hand_over();
    renewed("the lease is renewed by the new master", &lease).await;
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(turns(order).await, [0, 1, 2]);
    let exists: i64 = watched.servers()[master].command(&["EXISTS", "x"]);
    assert_eq!(exists, 0);
}

#[tokio::test]
async fn a_master_that_was_demoted_behind_its_address_is_left() {
    let master = Server::start();
    let replica = Server::with_args(&["--replicaof", &format!("127.0.0.1 {}", master.port())]);
    let proxy = Proxy::start(master.port());
    let client = client(&[proxy.url()], steady);
    let lease = client.lock("x", options(|_| {})).unwrap().acquire().await.unwrap();
    until("the replica has the lock", || replica.command::<i64>(&["EXISTS", "x"]) == 1).await;
    // As a managed service does: the address leads to the new master, and the former one ends no connection.
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    proxy.lead_to(replica.port());
    master.command::<()>(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    client.lock("y", options(|_| {})).unwrap().acquire().await.unwrap().release().await.unwrap();
    renewed("the lease is renewed by the new master", &lease).await;
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(replica.command::<i64>(&["EXISTS", "x"]), 0);
}

#[tokio::test]
async fn wrong_sentinels_are_told_apart() {
    let mut watched = Watched::start(0);
    let wait = |options: &mut LockOptions| options.wait = Some(Duration::ZERO);
    let wrong = watched.url().replace("/main", "/other");
    let error = on(wrong).lock("x", options(wait)).unwrap().acquire().await.unwrap_err();
    assert!(error.to_string().contains("knows no master \"other\""), "{error}");
    let plain = format!("redis+sentinel://127.0.0.1:{}/main", watched.servers()[0].port());
    let error = on(plain).lock("x", options(wait)).unwrap().acquire().await.unwrap_err();
    assert!(error.to_string().contains("unknown command"), "{error}");
    // One Sentinel of three is enough to find the master.
    watched.sentinel(0).stop();
    watched.sentinel(1).freeze();
    let client = on(watched.url());
    client.lock("x", options(wait)).unwrap().acquire().await.unwrap().release().await.unwrap();
    watched.sentinel(2).stop();
    let error = on(watched.url()).lock("x", options(wait)).unwrap().acquire().await.unwrap_err();
    assert!(error.to_string().contains("no Sentinel names a master"), "{error}");
}

#[tokio::test]
async fn replicas_acknowledge_a_lock_before_it_counts() {
    let mut watched = Watched::start(2);
    let url = watched.servers()[0].url();
    let client = client(&[url], |config| {
        config.min_replicas = 2;
        config.patience = Duration::from_millis(100);
    });
    let lock = client.lock("x", options(|options| options.ttl = Ttl::Fixed(Duration::from_secs(20)))).unwrap();
    let lease = lock.acquire().await.unwrap();
    for replica in &watched.servers()[1..] {
        let pttl: i64 = replica.command(&["PTTL", "x"]);
        assert!(pttl > 0, "the replica has it when the acquire returns");
    }
    lease.release().await.unwrap();
    watched.server(2).stop();
    let error = lock.acquire().await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("only 1 of 2 replicas acknowledged the lock within"), "{error}");
    until("nothing is left of it", || watched.servers()[0].command::<i64>(&["EXISTS", "x"]) == 0).await;
    let permits = client.semaphore("z", 2, options(|_| {})).unwrap();
    let error = permits.acquire().await.unwrap_err();
    assert!(error.to_string().contains("only 1 of 2 replicas acknowledged the lock within"), "{error}");
    until("nothing is left of it", || watched.servers()[0].command::<i64>(&["EXISTS", "z"]) == 0).await;
    // A client that needs no replicas is not delayed by one that waits for them.
    let plain = on(watched.servers()[0].url());
    let other = plain.lock("y", options(|_| {})).unwrap().acquire().await.unwrap();
    other.release().await.unwrap();
}

#[tokio::test]
async fn a_quorum_of_deployments_agrees() {
    let (mut cluster, mut watched, server) = (Cluster::start(3, 0), Watched::start(1), Server::start());
    let urls = [cluster.url(), watched.url(), server.url()];
    let client = client(&urls, |config| {
        config.watchdog = Duration::from_secs(3);
        config.max_ttl = Duration::from_secs(3);
    });
    let lock = client.lock("x", options(|_| {})).unwrap();
    let mut token = 0;
    for _ in 0..5 {
        let lease = lock.acquire().await.unwrap();
        assert!(lease.token() > token);
        token = lease.token();
        lease.release().await.unwrap();
    }
    let lease = lock.acquire().await.unwrap();
    // One server of the cluster is down, so the cluster does not vote. The other two nodes know who holds the lock.
    let owner = cluster.owner("x");
    cluster.server(owner).stop();
    renewed("it is renewed on the two others", &lease).await;
    lease.release().await.unwrap();
    cluster.server(owner).restart();
    cluster.agree();
    // The server lost its keys: the cluster does not vote for a while, the other two nodes do.
    let lease = lock.acquire().await.unwrap();
    assert!(lease.token() > token);
    lease.release().await.unwrap();
    watched.server(0).stop();
    let error =
        client.lock("x", options(|options| options.wait = Some(Duration::ZERO))).unwrap().acquire().await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    watched.failed_over(0);
    // A promoted replica may lack its master's last writes, so it is in quarantine too, until both nodes vote again.
    let lease = lock.acquire().await;
    let lease = match lease {
        Ok(lease) => lease,
        Err(error) => {
            assert!(error.to_string().contains("votes again in"), "{error}");
            lock.acquire_as(redlock::Request { wait: Some(Duration::from_secs(20)), ..lock.request(Owner::Fresh) })
                .await
                .unwrap()
        }
    };
    assert!(lease.token() > token);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_replica_that_is_promoted_where_clients_are_connected_to_it_does_not_vote_at_once() {
    const MAX_TTL: Duration = Duration::from_secs(2);
    let (mut master, other, mut third) = (Server::start(), Server::start(), Server::start());
    let replica = Server::with_args(&["--replicaof", &format!("127.0.0.1 {}", master.port())]);
    let short = |config: &mut Config| (config.watchdog, config.max_ttl) = (MAX_TTL, MAX_TTL);
    let take =
        |client: &Client| client.lock("x", options(|options| options.wait = Some(Duration::ZERO))).unwrap().acquire();
    let before = client(&[master.url(), other.url(), third.url()], short);
    take(&before).await.unwrap().release().await.unwrap();
    until("the replica has the marker", || replica.command::<i64>(&["EXISTS", "redlock_node"]) == 1).await;
    // A client that connects while the server is a replica. The other two grant its lock.
    let client = client(&[replica.url(), other.url(), third.url()], short);
    take(&client).await.unwrap().release().await.unwrap();
    until("the replica has run for longer than a quarantine lasts", || {
        let info: String = replica.command(&["INFO", "server"]);
        let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:")).unwrap();
        Duration::from_secs(uptime.trim().parse().unwrap()) > 2 * MAX_TTL
    })
    .await;
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"]);
    master.stop();
    third.stop();
    let error = take(&client).await.unwrap_err();
    assert!(error.to_string().contains("votes again in"), "it may lack its master's last writes: {error}");
}

#[tokio::test]
async fn all_slots_of_a_new_deployment_vote_at_once() {
    let (cluster, mut servers) = (Cluster::start(3, 0), [Server::start(), Server::start()]);
    let client = client(&[cluster.url(), servers[0].url(), servers[1].url()], |_| {});
    let acquire = |name: String| client.lock(&name, options(|_| {})).unwrap().acquire();
    acquire("first".into()).await.unwrap().release().await.unwrap();
    // Without this server the quorum needs the cluster's vote, also in slots that nobody has used.
    servers[0].stop();
    for number in 0..20 {
        acquire(format!("lock {number}")).await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn first_uses_of_many_slots_at_once_find_a_new_deployment_and_no_lost_keys() {
    let (cluster, server) = (Cluster::start(3, 0), Server::start());
    // A quorum of two nodes needs both.
    let client = client(&[cluster.url(), server.url()], |_| {});
    let pairs = (0..50).map(|number| {
        let pending = client.lock(&format!("lock {number}"), options(|_| {})).unwrap().acquire();
        async move { pending.await.unwrap().release().await.unwrap() }
    });
    let outcomes = futures_util::future::join_all(pairs).await;
    assert!(outcomes.iter().all(|outcome| *outcome == redlock::ReleaseOutcome::Released), "{outcomes:?}");
}

#[tokio::test]
async fn a_cluster_listed_twice_is_one_vote() {
    let cluster = Cluster::start(3, 0);
    let server = Server::start();
    let client = client(&[cluster.url(), cluster.url_of(1), server.url()], |_| {});
    let lock = client.lock("x", options(|options| options.wait = Some(Duration::from_secs(1)))).unwrap();
    let mut seen = String::new();
    for _ in 0..200 {
        match lock.try_acquire().await {
            Ok(lease) => drop(lease),
            Err(error) => {
                seen = error.to_string();
                break;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(seen.contains("is the same server as"), "{seen:?}");
}

#[tokio::test]
async fn a_request_outlasts_servers_that_send_it_to_each_other() {
    let cluster = Cluster::start(3, 0);
    let client = client(&[cluster.url()], |config| config.reply_timeout = Duration::from_secs(30));
    let lock = client.lock("x", options(|_| {})).unwrap();
    let (one, other) = (cluster.owner("x"), cluster.another("x"));
    let (slot, id) = (cluster.slot("x").to_string(), cluster.id(other).to_owned());
    let server = |index: usize| &cluster.servers()[index];
    // Each of the two servers redirects to the other.
    let _: String = server(one).command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    let waiting = tokio::spawn(lock.inspect());
    until("each has sent it on more often than one follows at once", || {
        [one, other].into_iter().all(|index| {
            let info: String = server(index).command(&["INFO", "errorstats"]);
            let moved = info.lines().find_map(|line| line.strip_prefix("errorstat_MOVED:count="));
            moved.is_some_and(|count| count.trim().parse::<u64>().unwrap() > 10)
        })
    })
    .await;
    let _: String = server(other).command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
    assert!(waiting.await.unwrap().unwrap().is_none());
}

/// Acquires and releases a lock `times` times; returns when it held it.
async fn take_turns(client: Client, name: &'static str, times: usize) -> Vec<Hold> {
    let lock = client.lock(name, options(|_| {})).unwrap();
    let mut holds = Vec::new();
    while holds.len() < times {
        let called = monotonic();
        let lease = lock.acquire().await.unwrap();
        let from = monotonic();
        tokio::task::yield_now().await;
        let until = monotonic();
        let until = lease.held().then_some(until);
        holds.push(Hold { token: Some(lease.token()), called, from, until, ..Hold::default() });
        lease.release().await.unwrap();
    }
    holds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_exclude_and_tokens_rise_while_their_slot_is_moved_about() {
    let cluster = Cluster::start(3, 0);
    // Nobody knows how long the servers' gossip takes to agree on the slot's owner.
    let patient = |server| client(&[cluster.url_of(server)], |config| config.reply_timeout = Duration::from_secs(30));
    let clients: Vec<Client> = (0..3).map(patient).collect();
    let turns = clients.iter().flat_map(|client| (0..2).map(|_| tokio::spawn(take_turns(client.clone(), "x", 200))));
    let turns: Vec<_> = turns.collect();
    let mut moves = 0;
    while turns.iter().any(|turns| !turns.is_finished()) {
        let (from, to) = (cluster.owner("x"), cluster.another("x"));
        cluster.begin_move("x", to);
        // In every other move the counter moves before the lock.
        if moves % 2 == 0 {
            cluster.move_key("redlock_token:{x}", from, to);
        }
        cluster.end_move("x", from, to);
        moves += 1;
    }
    let mut holds = Vec::new();
    for turns in turns {
        holds.extend(turns.await.unwrap());
    }
    assert_eq!(holds.len(), 6 * 200);
    assert!(holds.iter().all(|hold| hold.until.is_some()), "no hold was lost on the way");
    assert_eq!(history::check(holds), Findings::default());
    assert!(moves > 2, "{moves} moves");
}
