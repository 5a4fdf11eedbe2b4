//! `min_hold` on real servers: every way to end a tenure leaves the rest, and waiters are woken when it is over.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use redlock::{Client, Config, Identity, Kind, LockOptions, Owner, ReleaseOutcome, Request, Wire};
use redlock_tests::{server::Server, until};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(50);
const LIMIT: Duration = Duration::from_secs(20);

fn client(servers: &[Server], wire: Wire) -> Client {
    let mut config = Config::new(servers.iter().map(Server::url));
    config.wire = wire;
    Client::new(config).unwrap()
}

fn options(min_hold: Duration) -> LockOptions {
    let mut options = LockOptions::default();
    options.min_hold = Some(min_hold);
    options
}

/// The fields of a lock on a server.
fn fields(server: &Server, name: &str) -> Vec<String> {
    match &*server.command::<String>(&["TYPE", name]) {
        "none" => Vec::new(),
        "hash" => server.command(&["HKEYS", name]),
        // The key may be gone by now.
        "string" => server.command::<Option<String>>(&["GET", name]).into_iter().collect(),
        other => panic!("{name} is a {other}"),
    }
}

/// Waits until a quorum of the servers has the rest of `owner`'s tenure, and the others have it or nothing: an acquire or
/// an attach does not wait for the last server, which then leaves out what arrives too late.
async fn rests(servers: &[Server], name: &str, owner: &str) {
    let rest = [format!("~{owner}")];
    until(LIMIT, "the rest is on a quorum, and nothing else anywhere", || {
        let found: Vec<Vec<String>> = servers.iter().map(|server| fields(server, name)).collect();
        let with_rest = found.iter().filter(|fields| **fields == rest).count();
        with_rest > servers.len() / 2 && found.iter().all(|fields| *fields == rest || fields.is_empty())
    })
    .await;
    for server in servers.iter().filter(|server| fields(server, name) == rest) {
        let ttl: u64 = server.command(&["PTTL", name]);
        assert!(ttl <= 50_001 && ttl > 25_000, "{ttl}");
    }
}

#[tokio::test]
async fn every_way_to_end_a_tenure_leaves_the_rest() {
    for count in [1, 3] {
        let servers: Vec<Server> = (0..count).map(|_| Server::start()).collect();
        for wire in [Wire::Redisson, Wire::Token] {
            let client = client(&servers, wire);
            let name = |way: &str| format!("{way} {wire:?}");
            let lock = |way: &str| client.lock(&name(way), options(LONG)).unwrap();

            let lease = lock("released").acquire().await.unwrap();
            assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
            rests(&servers, &name("released"), lease.owner()).await;

            let lease = lock("dropped").acquire().await.unwrap();
            let owner = lease.owner().to_owned();
            drop(lease);
            rests(&servers, &name("dropped"), &owner).await;

            let lease = lock("given up").acquire().await.unwrap();
            // The release is decided in the call, and the background sends it.
            drop(lease.release());
            rests(&servers, &name("given up"), lease.owner()).await;

            let lease = lock("detached").acquire().await.unwrap();
            let lease = client.attach(&lease.detach().unwrap(), Owner::Fresh).await.unwrap();
            assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
            rests(&servers, &name("detached"), lease.owner()).await;

            let blocking = lock("blocking");
            let owner = tokio::task::spawn_blocking(move || {
                let guard = blocking.acquire_blocking().unwrap();
                let owner = guard.owner().to_owned();
                assert_eq!(guard.release().unwrap(), ReleaseOutcome::Released);
                owner
            });
            rests(&servers, &name("blocking"), &owner.await.unwrap()).await;

            let lease = lock("closed").acquire().await.unwrap();
            client.close().await;
            rests(&servers, &name("closed"), lease.owner()).await;
        }
    }
}

#[tokio::test]
async fn the_last_release_of_a_nested_lock_begins_the_rest() {
    let servers = [Server::start()];
    let lock = client(&servers, Wire::Redisson).lock("nested", options(LONG)).unwrap();
    let identity = Identity::new();
    let request = || Request { owner: Owner::Ambient(identity.clone()), ..lock.request(Owner::Fresh) };
    let (outer, inner) = (lock.acquire_as(request()).await.unwrap(), lock.acquire_as(request()).await.unwrap());
    assert_eq!(outer.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(fields(&servers[0], "nested"), [inner.owner()]);
    assert_eq!(inner.release().await.unwrap(), ReleaseOutcome::Released);
    rests(&servers, "nested", inner.owner()).await;
    // The owner does not hold it any more.
    let tried = Request { wait: Some(Duration::ZERO), ..request() };
    assert_eq!(lock.acquire_as(tried).await.unwrap_err().code(), "timeout");
}

/// A rest needs a field of another name, and a server that is out of memory refuses commands that add one.
#[tokio::test]
async fn a_server_without_memory_keeps_the_rest() {
    let servers = [Server::start()];
    for wire in [Wire::Redisson, Wire::Token] {
        let client = client(&servers, wire);
        let name = format!("full {wire:?}");
        let lock = client.lock(&name, options(LONG)).unwrap();
        let both = client.read_write_lock(&format!("{name} write"), options(LONG)).unwrap();
        let (lease, writing) = (lock.acquire().await.unwrap(), both.write().acquire().await.unwrap());
        let _: () = servers[0].command(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        assert_eq!(writing.release().await.unwrap(), ReleaseOutcome::Released);
        rests(&servers, &name, lease.owner()).await;
        assert_eq!(both.write().inspect().await.unwrap().unwrap().kind, Kind::Rest);
        let _: () = servers[0].command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// Without the announcement of the new ttl a waiter would sleep until its next poll, after 2 s and more.
#[tokio::test]
async fn waiters_wake_when_the_rest_is_over() {
    let servers = [Server::start()];
    let (holding, waiting) = (client(&servers, Wire::Redisson), client(&servers, Wire::Redisson));
    let rest = Duration::from_millis(600);
    let fair = |mut options: LockOptions| {
        options.fair = true;
        options
    };
    let part = |client: &Client, options| client.read_write_lock("written", options).unwrap();
    let locks = [
        (holding.lock("plain", options(rest)).unwrap(), waiting.lock("plain", LockOptions::default()).unwrap()),
        (
            holding.lock("fair", fair(options(rest))).unwrap(),
            waiting.lock("fair", fair(LockOptions::default())).unwrap(),
        ),
        (part(&holding, options(rest)).write().clone(), part(&waiting, LockOptions::default()).read().clone()),
        (part(&holding, options(rest)).write().clone(), part(&waiting, LockOptions::default()).write().clone()),
    ];
    for (held, waited) in locks {
        // So that the waiter's client has its connections.
        assert!(!waited.locked().await.unwrap());
        let before = Instant::now();
        let lease = held.acquire().await.unwrap();
        let waiter = tokio::spawn(waited.acquire());
        let channels = ["redisson_lock__channel", "redisson_rwlock"].map(|kind| format!("{kind}:{{{}}}", held.name()));
        until(LIMIT, "it waits", || {
            let heard: Vec<(String, u64)> = servers[0].command(&["PUBSUB", "NUMSUB", &channels[0], &channels[1]]);
            heard.iter().any(|(_, listeners)| *listeners > 0)
        })
        .await;
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        let next = waiter.await.unwrap().unwrap();
        let took = before.elapsed();
        assert!(took >= rest, "{} was free after {took:?}", held.name());
        assert!(took < Duration::from_millis(1_900), "{} was granted after {took:?}", held.name());
        next.release().await.unwrap();
    }
}

/// A server that does not know the script of an attach refuses it. The whole script would reach it after the requests that
/// are ordered behind the attach, and the tenure would stay there until its lease is over. So it is not sent.
#[tokio::test]
async fn a_late_attach_does_not_follow_the_rest() {
    let mut servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let client = client(&servers, Wire::Redisson);
    let lease = client.lock("x", options(LONG)).unwrap().acquire().await.unwrap();
    until(LIMIT, "it is on all servers", || servers.iter().all(|server| !fields(server, "x").is_empty())).await;
    let text = lease.detach().unwrap();
    // The last server knows the scripts of an acquire and of a rest, not those of an attach and of a release.
    let _: () = servers[2].command(&["SCRIPT", "FLUSH"]);
    let alone = Client::new(Config::new([servers[2].url()])).unwrap();
    alone.lock("y", options(LONG)).unwrap().acquire().await.unwrap().release().await.unwrap();
    servers[2].freeze();
    let attached = client.attach(&text, Owner::Fresh).await.unwrap();
    let rest = [format!("~{}", attached.owner())];
    let releasing = tokio::spawn(attached.release());
    until(LIMIT, "the others have the rest", || servers[..2].iter().all(|server| fields(server, "x") == rest)).await;
    servers[2].thaw();
    assert_eq!(releasing.await.unwrap().unwrap(), ReleaseOutcome::Released);
    until(LIMIT, "the last server has nothing", || fields(&servers[2], "x").is_empty()).await;
}

#[tokio::test]
async fn a_time_out_says_that_only_the_rest_is_in_the_way() {
    let server = Server::start();
    let client = client(std::slice::from_ref(&server), Wire::Redisson);
    let lease = client.lock("x", options(LONG)).unwrap().acquire().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    let mut waits = LockOptions::default();
    waits.wait = Some(Duration::from_millis(100));
    let error = client.lock("x", waits).unwrap().acquire().await.unwrap_err().to_string();
    assert!(error.contains("is held by nobody, but its min_hold lasts for another 4"), "{error}");
    client.close().await;
}
