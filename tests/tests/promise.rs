//! The promises of `docs/guarantees.md` on real servers: how many commands a lock costs, how its holder learns of a
//! loss, and that nothing is left behind. Times appear as bounds that separate one mechanism from another, never as
//! speed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use redlock::{Client, Config, Event, Lease, LockError, LockOptions, LostReason, Owner, ReleaseOutcome, TokenKey, Ttl};
use redlock_tests::{
    PATIENCE,
    clients::{client_with, options, servers, urls},
    server::Server,
    until,
};
use tokio::time::timeout;

fn client(servers: &[Server], change: impl FnOnce(&mut Config)) -> Client {
    client_with(urls(servers), change)
}

/// Calls of each command since the statistics were reset, without those of this test itself.
fn calls(server: &Server) -> BTreeMap<String, u64> {
    let text: String = server.command(&["INFO", "commandstats"]);
    text.lines()
        .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="))
        .filter(|(name, _)| !name.starts_with("config") && *name != "info")
        .map(|(name, rest)| (name.to_owned(), rest.split(',').next().unwrap().parse().unwrap()))
        .collect()
}

fn reset(server: &Server) {
    let _: () = server.command(&["CONFIG", "RESETSTAT"]);
}

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    let lasts =
        |key: &str| key.starts_with("redlock_token") || key.starts_with("redlock_slot_tokens") || key == "redlock_node";
    keys.retain(|key| !lasts(key));
    keys
}

#[tokio::test]
async fn calls_of_one_owner_at_the_same_time_share_a_tenure() {
    let servers = servers(1);
    let client = client(&servers, |_| {});
    let lock = client.lock("x", options(|options| options.owner = Some("job".into()))).unwrap();
    // Connects first, so that both requests are sent before either is answered.
    lock.acquire().await.unwrap().release().await.unwrap();
    for _ in 0..50 {
        let (one, other) = tokio::join!(lock.try_acquire(), lock.try_acquire());
        let (one, other) = (one.unwrap().unwrap(), other.unwrap().unwrap());
        assert_eq!(one.token(), other.token());
        assert_eq!(one.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(other.held());
        assert_eq!(other.release().await.unwrap(), ReleaseOutcome::Released);
        until(PATIENCE, "the second tenure is given back", || keys(&servers[0]).is_empty()).await;
    }
}

#[tokio::test]
async fn an_uncontended_pair_is_two_round_trips_and_a_nested_one_none() {
    let server = servers(1);
    let client = client(&server, |_| {});
    let lock = client.lock("x", LockOptions::default()).unwrap();
    // Loads the scripts, which happens at their first use.
    lock.acquire().await.unwrap().release().await.unwrap();
    reset(&server[0]);
    let lease = lock.acquire().await.unwrap();
    assert_eq!(calls(&server[0])["evalsha"], 1);
    lease.release().await.unwrap();
    let seen = calls(&server[0]);
    assert_eq!(seen["evalsha"], 2);
    assert!(!seen.contains_key("eval") && !seen.contains_key("subscribe"), "{seen:?}");

    let owned = client.lock("y", options(|o| o.owner = Some("me".into()))).unwrap();
    let outer = owned.acquire().await.unwrap();
    reset(&server[0]);
    for _ in 0..100 {
        let inner = owned.acquire().await.unwrap();
        assert_eq!(inner.token(), outer.token());
        assert_eq!(inner.release().await.unwrap(), ReleaseOutcome::Released);
    }
    assert_eq!(calls(&server[0]).get("evalsha"), None);
    assert!(outer.held());
}

#[tokio::test]
async fn blocking_callers_pay_the_same_round_trips() {
    let server = servers(1);
    let client = client(&server, |_| {});
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let pair = move |lock: &redlock::Lock| {
        let mut go_on = || Ok::<(), LockError>(());
        let lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut go_on).unwrap();
        lease.release_interruptible(&mut go_on).unwrap();
    };
    tokio::task::spawn_blocking({
        let lock = lock.clone();
        move || pair(&lock)
    })
    .await
    .unwrap();
    reset(&server[0]);
    tokio::task::spawn_blocking(move || pair(&lock)).await.unwrap();
    assert_eq!(calls(&server[0])["evalsha"], 2);
}

#[tokio::test]
async fn an_idle_waiter_polls_at_most_every_two_seconds() {
    let server = servers(1);
    let (holder, waiter) = (client(&server, |_| {}), client(&server, |_| {}));
    let lease = holder.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.lock("x", LockOptions::default()).unwrap().acquire());
    until(PATIENCE, "the waiter is subscribed", || server[0].waiting("x") == 1).await;
    // This is the try that follows the subscription.
    until(PATIENCE, "it tried again", || calls(&server[0]).get("evalsha").is_some_and(|count| *count >= 2)).await;
    reset(&server[0]);
    let watched = Instant::now();
    until(PATIENCE, "it polled", || calls(&server[0]).get("evalsha").is_some_and(|count| *count >= 2)).await;
    assert!(watched.elapsed() > Duration::from_secs(2), "{:?}", watched.elapsed());
    lease.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().held());
}

/// The servers on which a release of the lock would wake a waiter.
fn listened_to(servers: &[Server], up: impl Fn(usize) -> bool) -> Vec<usize> {
    (0..servers.len()).filter(|node| up(*node) && servers[*node].waiting("x") > 0).collect()
}

#[tokio::test]
async fn a_waiter_listens_to_as_few_nodes_as_share_one_with_every_quorum_and_to_others_in_their_place() {
    let mut servers = servers(5);
    let (holder, waiter) = (client(&servers, |_| {}), client(&servers, |_| {}));
    let lease = holder.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let waiting = tokio::spawn(waiter.lock("x", LockOptions::default()).unwrap().acquire());
    until(PATIENCE, "three are listened to", || listened_to(&servers, |_| true).len() == 3).await;
    let first = listened_to(&servers, |_| true);
    servers[first[0]].stop();
    until(PATIENCE, "three others are", || listened_to(&servers, |node| node != first[0]).len() >= 3).await;
    servers[first[1]].stop();
    let others = |node| !first[..2].contains(&node);
    until(PATIENCE, "all that are left are", || listened_to(&servers, others).len() == 3).await;
    lease.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().held());
}

#[tokio::test]
async fn a_frozen_server_is_noticed_before_the_key_can_expire() {
    let mut server = servers(1);
    let client = client(&server, |c| c.watchdog = Duration::from_secs(3));
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let frozen = Instant::now();
    server[0].freeze();
    let reason = lease.lost().await;
    let learned = frozen.elapsed();
    assert!(!lease.held() && lease.remaining().is_zero());
    assert_eq!(reason, Some(LostReason::Unreachable));
    // The key lives for 3 s from the last renewal, which was before the freeze.
    assert!(learned < Duration::from_secs(3), "learned only after {learned:?}");
    server[0].thaw();
    assert!(!lease.held(), "lost is final");
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
}

#[tokio::test]
async fn a_deleted_key_is_noticed_at_the_next_renewal() {
    let server = servers(1);
    let client = client(&server, |c| c.watchdog = Duration::from_secs(3));
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let deleted = Instant::now();
    let _: () = server[0].command(&["DEL", "x"]);
    assert_eq!(lease.lost().await, Some(LostReason::Deleted));
    assert!(
        deleted.elapsed() < Duration::from_millis(2400),
        "a third of the lease and a little: {:?}",
        deleted.elapsed()
    );
    assert!(matches!(lease.check(), Err(LockError::Lost { reason: LostReason::Deleted, .. })));
}

#[tokio::test]
async fn a_broken_connection_has_every_hold_checked_at_once() {
    let server = servers(1);
    let client = client(&server, |_| {});
    let watched = client.lock("watched", LockOptions::default()).unwrap().acquire().await.unwrap();
    let fixed = options(|o| o.ttl = Ttl::Fixed(Duration::from_secs(25)));
    let fixed = client.lock("fixed", fixed).unwrap().acquire().await.unwrap();
    let kept = client.lock("kept", LockOptions::default()).unwrap().acquire().await.unwrap();
    let _: () = server[0].command(&["DEL", "watched", "fixed"]);
    let start = Instant::now();
    let _: () = server[0].command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(watched.lost().await, Some(LostReason::Deleted));
    assert_eq!(fixed.lost().await, Some(LostReason::Deleted));
    // The next renewal would be after 10 s, and the deadline of the fixed lease after 22 s.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(kept.held());
    assert_eq!(kept.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_restart_without_persistence_is_noticed_on_reconnection() {
    let mut server = servers(1);
    let client = client(&server, |_| {});
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let start = Instant::now();
    server[0].stop();
    server[0].restart();
    assert_eq!(lease.lost().await, Some(LostReason::Deleted));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    assert!(client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap().token() > lease.token());
}

#[test]
fn a_restart_is_noticed_by_a_client_that_has_only_blocked() {
    let mut server = servers(1);
    let client = client(&server, |_| {});
    let fixed = options(|options| options.ttl = Ttl::Fixed(Duration::from_secs(60)));
    // Only the caller's thread reads its connection, so its end goes unnoticed.
    let lease = client.lock("x", fixed).unwrap().acquire_blocking().unwrap();
    server[0].stop();
    server[0].restart();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        assert!(client.ping().await.unwrap().iter().all(|node| node.state.is_ok()));
        assert_eq!(timeout(PATIENCE, lease.lost()).await, Ok(Some(LostReason::Deleted)));
    });
}

#[tokio::test]
async fn flushed_scripts_are_loaded_again() {
    let server = servers(1);
    let client = client(&server, |_| {});
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let _: () = server[0].command(&["SCRIPT", "FLUSH"]);
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    let _: () = server[0].command(&["SCRIPT", "FLUSH"]);
    assert!(client.lock("x", LockOptions::default()).unwrap().try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_full_server_refuses_acquires_but_renews_and_releases() {
    let server = servers(1);
    let client = client(&server, |c| c.watchdog = Duration::from_secs(3));
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let reader = client.read_write_lock("r", LockOptions::default()).unwrap().read().clone();
    let permit = client.semaphore("p", 2, LockOptions::default()).unwrap();
    let leases = [lock.acquire().await.unwrap(), reader.acquire().await.unwrap(), permit.acquire().await.unwrap()];
    let until_at_first: Vec<_> = leases.iter().map(|lease| Instant::now() + lease.remaining()).collect();
    // Another holder may have extended the keys: then a renewal finds nothing to extend but its own lease.
    let held = keys(&server[0]);
    for key in &held {
        assert_eq!(server[0].command::<i64>(&["PEXPIRE", key, "60000"]), 1);
    }
    let _: () = server[0].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let _: () = server[0].command(&["CONFIG", "SET", "maxmemory", "1"]);
    let of_both = client.read_write_lock("z", LockOptions::default()).unwrap();
    for lock in [&client.lock("y", LockOptions::default()).unwrap(), of_both.read(), of_both.write()] {
        let refused = lock.try_acquire().await.unwrap_err();
        assert_eq!(refused.code(), "unavailable");
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }
    let slots = client.semaphore("s", 2, LockOptions::default()).unwrap();
    assert_eq!(slots.try_acquire().await.unwrap_err().code(), "unavailable");
    assert_eq!(keys(&server[0]).len(), held.len());
    // A renewal comes a third of the watchdog later.
    let longer = Duration::from_millis(500);
    let all_are_longer = || {
        let ends = leases.iter().map(|lease| Instant::now() + lease.remaining());
        ends.zip(&until_at_first).all(|(end, first)| end > *first + longer)
    };
    until(PATIENCE, "each was renewed", all_are_longer).await;
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    }
    assert_eq!(keys(&server[0]), Vec::<String>::new());
}

#[tokio::test]
async fn foreign_data_is_left_alone() {
    let server = servers(1);
    let client = client(&server, |_| {});
    let _: () = server[0].command(&["SET", "string", "theirs"]);
    let _: () = server[0].command(&["HSET", "hash", "field", "theirs"]);
    let _: () = server[0].command(&["LPUSH", "list", "theirs"]);
    for key in ["string", "hash", "list"] {
        let lock = client.lock(key, LockOptions::default()).unwrap();
        assert_eq!(lock.acquire().await.unwrap_err().code(), "conflict", "{key}");
        assert_eq!(client.force_release(key).await.unwrap_err().code(), "conflict", "{key}");
    }
    let (string, hash): (String, String) =
        (server[0].command(&["GET", "string"]), server[0].command(&["HGET", "hash", "field"]));
    assert_eq!((&*string, &*hash), ("theirs", "theirs"));
    assert_eq!(server[0].command::<i64>(&["PTTL", "hash"]), -1);
    assert_eq!(server[0].command::<i64>(&["LLEN", "list"]), 1);
}

#[tokio::test]
async fn two_of_five_nodes_may_be_out_and_three_may_not() {
    let mut nodes = servers(5);
    let client = client(&nodes, |c| c.patience = Duration::from_millis(1500));
    let lock = client.lock("x", LockOptions::default()).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    nodes[0].stop();
    nodes[1].freeze();
    // The frozen node costs nothing, not even the first time: the client does not wait for more than a quorum.
    for _ in 0..20 {
        let start = Instant::now();
        lock.acquire().await.unwrap().release().await.unwrap();
        assert!(start.elapsed() < Duration::from_millis(1500), "waited for a time-out: {:?}", start.elapsed());
    }
    nodes[2].stop();
    let start = Instant::now();
    let limited = client.lock("x", options(|o| o.wait = Some(Duration::from_secs(4)))).unwrap();
    let error = limited.acquire().await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    assert_eq!(error.code(), "unavailable");
    for node in &nodes[..3] {
        assert!(error.to_string().contains(&node.port().to_string()), "{error}");
    }
    nodes[1].thaw();
    until(PATIENCE, "the thawed node votes", || nodes[1].command::<String>(&["PING"]) == "PONG").await;
    let patient = client.lock("x", LockOptions::default()).unwrap();
    assert!(patient.acquire().await.unwrap().held());
}

#[tokio::test]
async fn one_try_is_enough_on_new_nodes() {
    let nodes = servers(3);
    let client = client(&nodes, |_| {});
    assert!(client.lock("x", LockOptions::default()).unwrap().try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn two_names_of_one_server_are_no_quorum() {
    let server = servers(1);
    let names = ["127.0.0.1", "localhost"].map(|host| format!("redis://{host}:{}", server[0].port()));
    let client = Client::new(Config::new(names)).unwrap();
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let start = Instant::now();
    let error = loop {
        // The background notices the fault from the first replies.
        match lock.try_acquire().await {
            Err(error) => break error,
            Ok(lease) => drop(lease),
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    };
    assert!(error.to_string().contains("is the same server as"), "{error}");
}

#[tokio::test]
async fn a_node_restarted_empty_is_in_quarantine() {
    let mut nodes = servers(3);
    let client = client(&nodes, |c| {
        c.max_ttl = Duration::from_secs(60);
        c.patience = Duration::from_millis(500);
    });
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    // Two nodes lose the lock. Without quarantine they would form a quorum for another owner.
    for node in &mut nodes[..2] {
        node.stop();
        node.restart();
    }
    let other = self::client(&nodes, |c| c.patience = Duration::from_millis(500));
    let error = other.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("votes again in"), "{error}");
    assert_eq!(lease.lost().await, Some(LostReason::Deleted));
    // `init_nodes` lets them vote: its caller vouches that no lock is held.
    other.init_nodes().await.unwrap();
    let next = other.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    assert!(next.token() > lease.token());
}

#[tokio::test]
async fn a_flushed_node_is_in_quarantine() {
    let nodes = servers(3);
    let client = client(&nodes, |c| c.patience = Duration::from_millis(500));
    let first = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    for node in &nodes[..2] {
        let _: () = node.command(&["FLUSHALL"]);
    }
    let other = self::client(&nodes, |c| c.patience = Duration::from_millis(500));
    let refused = other.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap_err();
    assert_eq!(refused.code(), "unavailable");
    drop(first);
}

/// The clocks of two nodes in quarantine are set back by a day: their keys were lost tomorrow.
#[tokio::test]
async fn a_clock_that_is_set_back_does_not_prolong_a_quarantine() {
    const DAY: u64 = 86_400_000_000;
    let now = |node: &Server| {
        let (seconds, _) = node.command::<(u64, u64)>(&["TIME"]);
        seconds * 1_000_000
    };
    let nodes = servers(3);
    let short =
        |config: &mut Config| (config.max_ttl, config.watchdog) = (Duration::from_secs(1), Duration::from_secs(1));
    let before = client(&nodes, |config| {
        short(config);
        config.patience = Duration::from_millis(200);
    });
    let lock = before.lock("x", LockOptions::default()).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    for node in &nodes[..2] {
        let mark: String = node.command(&["GET", "redlock_node"]);
        let (run, _) = mark.split_once(' ').unwrap();
        let mark = format!("{run} {}", now(node) + DAY);
        let () = node.command(&["SET", "redlock_node", &mark]);
    }
    let refused = lock.acquire().await.unwrap_err().to_string();
    assert!(refused.contains("votes again in"), "{refused}");
    let patient = client(&nodes, short);
    patient.lock("x", LockOptions::default()).unwrap().acquire().await.expect("their quarantine is over after max_ttl");
}

#[tokio::test]
async fn strict_refuses_new_nodes_until_somebody_vouches_for_them() {
    let nodes = servers(3);
    let client = client(&nodes, |c| {
        c.strict = true;
        c.patience = Duration::from_millis(500);
    });
    let lock = client.lock("x", LockOptions::default()).unwrap();
    assert_eq!(lock.acquire().await.unwrap_err().code(), "unavailable");
    assert_eq!(nodes.iter().flat_map(keys).collect::<Vec<_>>(), Vec::<String>::new());
    client.init_nodes().await.unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// A quorum of nodes that write to disk before they reply.
fn durable_nodes() -> Vec<Server> {
    (0..3).map(|_| Server::with_args(&["--appendonly", "yes", "--appendfsync", "always"])).collect()
}

/// Checks that a quorum grants a lock to `other` and still has the lock that it granted before.
async fn votes_and_has_kept(other: &Client, lease: &Lease) {
    let free = other.lock("y", LockOptions::default()).unwrap().acquire().await.unwrap();
    assert_eq!(free.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_restarted_node_that_writes_before_it_answers_keeps_its_locks_and_votes_at_once() {
    let mut nodes = durable_nodes();
    let client = client(&nodes, |_| {});
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    for node in &mut nodes[..2] {
        node.stop();
        node.restart();
    }
    let other = self::client(&nodes, |_| {});
    assert!(other.lock("x", LockOptions::default()).unwrap().try_acquire().await.unwrap().is_none(), "it is held");
    votes_and_has_kept(&other, &lease).await;
}

#[tokio::test]
async fn a_durable_node_that_was_asked_while_it_loaded_its_keys_votes_once_it_has_them() {
    let mut nodes = durable_nodes();
    let client = client(&nodes, |_| {});
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    for node in &mut nodes[..2] {
        // Makes loading take a while: 20000 keys.
        let fill = "for i = 1, 20000 do redis.call('SET', 'key' .. i, i) end";
        let _: () = node.command(&["EVAL", fill, "0"]);
        node.restart_loading(&["--key-load-delay", "300"]);
    }
    let other = self::client(&nodes, |_| {});
    let early = other.lock("y", LockOptions::default()).unwrap().try_acquire().await;
    assert_eq!(early.unwrap_err().code(), "unavailable");
    for node in &nodes[..2] {
        let _: () = node.command(&["CONFIG", "SET", "key-load-delay", "0"]);
    }
    votes_and_has_kept(&other, &lease).await;
}

#[tokio::test]
async fn the_counter_of_tokens_lives_an_hour_or_as_told_and_redissons_for_ever() {
    let server = servers(1);
    for (token_ttl, lives) in [(None, 3_600_000), (Some(Duration::from_secs(60)), 60_000)] {
        let ours = client(&server, |config| config.token_ttl = token_ttl);
        let lease = ours.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
        let left: i64 = server[0].command(&["PTTL", "redlock_token:{x}"]);
        assert!((lives - 6_000..=lives).contains(&left), "{left}");
        lease.release().await.unwrap();
        // A counter outlives every lease, however long the ttl is.
        let fixed = options(|options| options.ttl = Ttl::Fixed(Duration::from_secs(7200)));
        let lease = ours.lock("x", fixed).unwrap().acquire().await.unwrap();
        assert!(server[0].command::<i64>(&["PTTL", "redlock_token:{x}"]) > 7_190_000);
        lease.release().await.unwrap();
    }

    let shared = client(&server, |c| c.token_key = TokenKey::Redisson);
    let lock = shared.lock("x", LockOptions::default()).unwrap();
    let lease = lock.acquire().await.unwrap();
    assert_eq!(server[0].command::<i64>(&["PTTL", "redisson_lock_token:{x}"]), -1);
    lease.release().await.unwrap();
    // This is the command by which Redisson draws a token. Its token follows ours, and our next one follows it.
    let theirs: u64 = server[0].command(&["INCR", "redisson_lock_token:{x}"]);
    assert_eq!(theirs, lease.token() + 1);
    let next = lock.acquire().await.unwrap();
    assert!(next.token() > theirs);
    next.release().await.unwrap();
}

/// Stands for a lease that is renewed for longer than a counter lives, without taking that time. `tests/clocks.rs`
/// covers that time.
#[tokio::test]
async fn a_lease_that_is_extended_prolongs_its_counter_and_brings_it_back() {
    let server = servers(1);
    let client = client(&server, |config| config.token_ttl = Some(Duration::from_secs(60)));
    let fixed = options(|options| {
        options.ttl = Ttl::Fixed(Duration::from_secs(20));
        options.owner = Some("me".into());
    });
    let lock = client.lock("x", fixed).unwrap();
    let lease = lock.acquire().await.unwrap();
    let counter = "redlock_token:{x}";
    let left = || server[0].command::<i64>(&["PTTL", counter]);
    let value = || server[0].command::<Option<String>>(&["GET", counter]);
    let token = Some(lease.token().to_string());
    // The extension is shorter than the life of the counter: nothing to prolong.
    reset(&server[0]);
    lease.extend(Duration::from_secs(25)).await.unwrap();
    assert!(left() <= 60_000);
    assert_eq!(calls(&server[0])["evalsha"], 1);
    // The extension is longer than the life of the counter.
    lease.extend(Duration::from_secs(90)).await.unwrap();
    until(PATIENCE, "the counter is prolonged", || left() > 170_000).await;
    assert_eq!(value(), token);
    // The counter was evicted, say. The next extension that would outlive it writes it again.
    let _: () = server[0].command(&["DEL", counter]);
    lease.extend(Duration::from_secs(600)).await.unwrap();
    until(PATIENCE, "the counter is back", || left() > 1_100_000).await;
    assert_eq!(value(), token);
    // A counter that another client prolonged further, or raised, stays as it is.
    let _: () = server[0].command(&["SET", counter, "9007199254740000"]);
    lease.extend(Duration::from_secs(3600)).await.unwrap();
    until(PATIENCE, "it was asked for", || calls(&server[0])["evalsha"] >= 7).await;
    assert_eq!((value().as_deref(), left()), (Some("9007199254740000"), -1));
    let _: () = server[0].command(&["DEL", counter]);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_that_is_attached_and_renewed_prolongs_its_counter() {
    let server = servers(1);
    let client = client(&server, |config| config.watchdog = Duration::from_millis(2400));
    let text = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap().detach().unwrap();
    let _: () = server[0].command(&["PEXPIRE", "redlock_token:{x}", "30000"]);
    let lease = client.attach(&text, Owner::Fresh).await.unwrap();
    // The text does not say for how long the lock was held before, so the first renewal prolongs the counter.
    let left = || server[0].command::<i64>(&["PTTL", "redlock_token:{x}"]);
    until(PATIENCE, "the counter is prolonged", || left() > 3_590_000).await;
    assert_eq!(
        client.lock("x", LockOptions::default()).unwrap().inspect().await.unwrap().unwrap().token,
        lease.token()
    );
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_lease_at_risk_is_reported_once_and_before_it_is_lost() {
    let mut server = servers(1);
    let (sender, events) = mpsc::channel();
    let sink = Arc::new(move |event: &Event| {
        if matches!(event.kind(), "at_risk" | "lost") {
            // Fails once the test is over and the receiver is gone.
            let _ = sender.send(event.kind());
        }
    });
    let mut config = Config::new([server[0].url()]);
    config.watchdog = Duration::from_millis(900);
    let client = Client::with_events(config, sink).unwrap();
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    server[0].freeze();
    assert_eq!(lease.lost().await, Some(LostReason::Unreachable));
    let seen: Vec<_> = std::iter::from_fn(|| events.recv_timeout(Duration::from_secs(20)).ok()).take(2).collect();
    assert_eq!(seen, ["at_risk", "lost"]);
}

#[tokio::test]
async fn an_acquire_that_was_given_up_leaves_nothing_behind() {
    let nodes = servers(3);
    let client = client(&nodes, |_| {});
    let lock = client.lock("x", LockOptions::default()).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    for _ in 0..200 {
        let moment = Duration::from_micros(fastrand::u64(0..2500));
        // Drops the acquire somewhere between the first byte and the last step. A lease that was granted is dropped as
        // well.
        let _ = tokio::time::timeout(moment, lock.acquire()).await;
    }
    for node in &nodes {
        until(PATIENCE, "all is released", || keys(node).is_empty()).await;
    }
    assert!(lock.try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn an_acquire_given_up_on_a_frozen_server_leaves_nothing_behind() {
    let mut server = servers(1);
    let client = client(&server, |c| c.reply_timeout = Duration::from_millis(300));
    let lock = client.lock("x", LockOptions::default()).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    for blocking in [false, true] {
        server[0].freeze();
        let error = if blocking {
            let request = redlock::Request { wait: Some(Duration::ZERO), ..lock.request(Owner::Fresh) };
            let lock = lock.clone();
            let blocked = move || lock.acquire_interruptible(request, &mut || Ok::<(), LockError>(()));
            tokio::task::spawn_blocking(blocked).await.unwrap().unwrap_err()
        } else {
            lock.try_acquire().await.unwrap_err()
        };
        assert_eq!(error.code(), "unavailable");
        server[0].thaw();
        let thawed = Instant::now();
        until(PATIENCE, "it is free", || keys(&server[0]).is_empty()).await;
        assert!(thawed.elapsed() < Duration::from_secs(5), "{:?}", thawed.elapsed());
        // The lock stays free: no part of the request is still on its way.
        until(PATIENCE, "it can be taken", || futures_util::FutureExt::now_or_never(lock.acquire()).is_none()).await;
        lock.acquire().await.unwrap().release().await.unwrap();
    }
}

/// Enough waiters to show it if each made a try or a subscription of its own.
const WAITERS: u64 = 1000;

#[tokio::test]
async fn waiters_of_one_client_share_one_try_and_come_in_order() {
    let server = servers(1);
    let client = client(&server, |_| {});
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let first = lock.acquire().await.unwrap();
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..WAITERS {
        let (acquire, order) = (lock.acquire(), order.clone());
        tokio::spawn(async move {
            let lease = acquire.await.unwrap();
            order.send((number, lease.token())).unwrap();
            lease.release().await.unwrap();
        });
    }
    reset(&server[0]);
    first.release().await.unwrap();
    let mut last = first.token();
    for number in 0..WAITERS {
        let (waiter, token) = served.recv().await.unwrap();
        assert_eq!(waiter, number);
        assert!(token > last);
        last = token;
    }
    let scripts = calls(&server[0])["evalsha"];
    assert!(scripts <= 3 * WAITERS, "{scripts} script calls for {WAITERS} grants");
}

/// The holder has a fixed lease, so nothing of its own would tell it of the loss before its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_forced_release_reaches_the_holder_and_the_waiters_of_its_own_client() {
    for nodes in [1, 3] {
        let server = servers(nodes);
        let client = client(&server, |config| config.quarantine = false);
        let lock = client.lock("x", options(|options| options.ttl = Ttl::Fixed(Duration::from_secs(60)))).unwrap();
        let held = lock.acquire().await.unwrap();
        let waiting = tokio::spawn(lock.acquire());
        assert!(client.force_release("x").await.unwrap());
        assert_eq!(held.lost().await, Some(LostReason::Released));
        let next = timeout(PATIENCE, waiting).await.expect("the lock is free").unwrap().unwrap();
        assert!(next.held() && next.token() > held.token(), "{nodes} nodes");
        assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Lost);
        assert!(next.held(), "the release of the lost one ends no other");
    }
}

#[tokio::test]
async fn thousands_of_acquires_at_once_wait_for_each_other() {
    let server = servers(1);
    let client = client(&server, |config| config.reply_timeout = PATIENCE);
    // Several times the number of requests that a connection may have unanswered.
    let tries = (0..5000).map(|n| client.lock(&format!("lock-{n}"), LockOptions::default()).unwrap().try_acquire());
    let tries: Vec<_> = tries.map(tokio::spawn).collect();
    for attempt in tries {
        assert!(attempt.await.unwrap().unwrap().is_some());
    }
}

#[tokio::test]
async fn a_dead_holder_frees_the_lock_within_one_lease() {
    let server = servers(1);
    let (dying, next) = (client(&server, |c| c.watchdog = Duration::from_millis(1200)), client(&server, |_| {}));
    let lease = dying.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let died = Instant::now();
    // As after kill -9: nothing is released, and nothing is renewed.
    lease.detach().unwrap();
    let heir = next.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    assert!(died.elapsed() < Duration::from_millis(1900), "{:?}", died.elapsed());
    assert!(heir.token() > lease.token());
}

#[tokio::test]
async fn closing_releases_and_spares_reservations() {
    let server = servers(1);
    let client = client(&server, |_| {});
    let lease = client.lock("mine", LockOptions::default()).unwrap().acquire().await.unwrap();
    let reserved = options(|o| {
        o.owner = Some("user-42".into());
        o.ttl = Ttl::Fixed(Duration::from_secs(30));
    });
    let reservation = client.lock("seat", reserved).unwrap().acquire().await.unwrap();
    client.close().await;
    assert_eq!(lease.lost_reason(), Some(LostReason::Closed));
    assert_eq!(reservation.lost_reason(), Some(LostReason::Closed));
    assert_eq!(keys(&server[0]), vec!["seat"]);
    assert_eq!(client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap_err().code(), "closed");
}

#[tokio::test]
async fn closing_takes_a_second_when_the_server_hangs() {
    let mut server = servers(1);
    let client = client(&server, |_| {});
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    server[0].freeze();
    let start = Instant::now();
    client.close().await;
    assert_eq!(lease.lost_reason(), Some(LostReason::Closed));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

/// A blocking caller that has to wait sends one try and then its subscription.
#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_caller_tries_once_before_it_listens() {
    let server = servers(1);
    let holder = client(&server, |_| {}).lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let client = client(&server, |_| {});
    let blocking = |name: &str| {
        let lock = client.lock(name, LockOptions::default()).unwrap();
        tokio::task::spawn_blocking(move || {
            let mut go_on = || Ok::<(), LockError>(());
            let lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut go_on).unwrap();
            lease.release_interruptible(&mut go_on).unwrap();
        })
    };
    // Loads the scripts, which happens at their first use.
    blocking("y").await.unwrap();
    let mut monitor = BufReader::new(TcpStream::connect(("127.0.0.1", server[0].port())).unwrap());
    monitor.get_ref().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    monitor.get_mut().write_all(b"MONITOR\r\n").unwrap();
    let mut line = String::new();
    monitor.read_line(&mut line).unwrap();
    let waiting = blocking("x");
    let mut tries = 0;
    while !line.to_lowercase().contains("\"subscribe\"") {
        line.clear();
        monitor.read_line(&mut line).unwrap();
        tries += usize::from(line.to_lowercase().contains("\"evalsha\""));
    }
    assert_eq!(tries, 1);
    holder.release().await.unwrap();
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_close_returns_with_the_first() {
    let mut server = Server::start();
    let client = Client::new(Config::new([server.url()])).unwrap();
    let lease = client.lock("closed twice", LockOptions::default()).unwrap().acquire().await.unwrap();
    // A release cannot be confirmed, so that the first close takes its second.
    server.freeze();
    let start = Instant::now();
    let first = tokio::spawn(client.close());
    until(PATIENCE, "the first close has begun", || !lease.held()).await;
    client.close().await;
    assert!(start.elapsed() >= Duration::from_millis(900), "the second returned after {:?}", start.elapsed());
    first.await.unwrap();
}

#[tokio::test]
async fn a_loss_that_only_the_release_finds_is_reported() {
    let server = Server::start();
    let (seen, events) = mpsc::channel();
    let sink = Arc::new(move |event: &Event| {
        if event.lock().is_some() {
            let _ = seen.send((event.kind(), event.reason()));
        }
    });
    let client = Client::with_events(Config::new([server.url()]), sink).unwrap();
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    let _: usize = server.command(&["DEL", "x"]);
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    let deleted = Some(LostReason::Deleted);
    assert_eq!(events.try_iter().collect::<Vec<_>>(), [("acquired", None), ("lost", deleted), ("released", None)]);
    client.close().await;
}
