//! Calls that are given up half-way: a call whose future is dropped leaves nothing behind and delays nobody.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    future::Future,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::join_all, stream};
use redlock::{
    Client, Config, Lock, LockError, LockOptions, LostReason, Owner, ReleaseOutcome, Ttl,
    ffi::{Operation, completions::Started},
};
use redlock_tests::{
    campaign::number,
    clients::{client, options},
    event_loop::Loop,
    nodes::{Backend, Node},
    server::Server,
    until,
};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
/// A short lease, whose renewals still come in time on a busy machine.
const LEASE: Duration = Duration::from_millis(1500);

fn lock(client: &Client, owner: Option<&str>) -> Lock {
    client.lock("x", options(|options| options.owner = owner.map(str::to_owned))).unwrap()
}

/// Drops a release before anything was sent, for each way to request one. A waiter gets the lock long before its ttl
/// ends.
#[tokio::test]
async fn a_release_that_nobody_awaits_is_made() {
    let server = Server::start();
    for url in [format!("memory://{}", server.port()), server.url()] {
        type Release = fn(&Lock, &redlock::Lease);
        let ways: [(&str, Release); 3] = [
            ("lease.release()", |_, lease| drop(lease.release())),
            ("lease.leave()", |_, lease| drop(lease.leave())),
            ("lock.release()", |lock, _| drop(lock.release(&Owner::Fresh))),
        ];
        for (what, release) in ways {
            let client = client([&url]);
            let (lock, other) = (lock(&client, None), lock(&client, Some("another")));
            let lease = lock.acquire().await.unwrap();
            // An acquire enters the queue when it is called, before it is awaited.
            let waiting = other.acquire();
            release(&lock, &lease);
            let again = timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("{url}, {what}: never released"));
            again.unwrap().release().await.unwrap();
            // A later call returns the outcome of that release.
            assert_eq!(timeout(SOON, lease.release()).await.expect(what).unwrap(), ReleaseOutcome::Released);
            assert!(!lock.locked().await.unwrap(), "{url}, {what}");
        }
    }
}

/// The fields of a lock's key.
fn fields(server: &Server) -> Vec<String> {
    server.command(&["HKEYS", "x"])
}

/// Attaches until it succeeds, which it must once the attach that was given up is undone.
async fn attach(client: &Client, text: &str) -> redlock::Lease {
    let start = Instant::now();
    loop {
        match client.attach(text, Owner::Fresh).await {
            Ok(lease) => return lease,
            Err(error) => assert!(start.elapsed() < SOON, "{error}"),
        }
    }
}

/// Wherever an attach is given up, the text stays valid for another client.
#[tokio::test]
async fn an_attach_that_nobody_awaits_leaves_the_text_as_it_was() {
    for backend in [Backend::Redis, Backend::Memory] {
        let node = Node::start(backend);
        let (one, other) = (client([node.url()]), client([node.url()]));
        for polls in 0..30 {
            let lease = lock(&one, Some("job")).acquire().await.unwrap();
            let text = lease.detach().unwrap();
            let mut attaching = Box::pin(one.attach(&text, Owner::Fresh));
            let mut attached = false;
            for _ in 0..polls {
                attached = attaching.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
                if attached {
                    break;
                }
                std::thread::sleep(Duration::from_micros(20));
            }
            drop(attaching);
            if attached {
                // The lease is released like any other that is dropped.
                until(SOON, "it is released", || !node.exists("x")).await;
                continue;
            }
            let again = attach(&other, &text).await;
            assert_eq!(again.token(), lease.token());
            assert!(again.held());
            assert_eq!(again.release().await.unwrap(), ReleaseOutcome::Released);
            let used = other.attach(&text, Owner::Fresh).await;
            assert!(matches!(used, Err(LockError::Lost { reason: LostReason::Taken, .. })), "{used:?}");
        }
    }
}

/// The same client need not retry: its attach waits until the one that was given up is undone.
#[tokio::test]
async fn an_attach_right_behind_one_that_was_given_up_attaches() {
    for backend in [Backend::Redis, Backend::Memory] {
        let node = Node::start(backend);
        let client = client([node.url()]);
        for given_up in 1..4 {
            let (lease, text) = loop {
                let lease = lock(&client, Some("job")).acquire().await.unwrap();
                let text = lease.detach().unwrap();
                let gives_up = || {
                    let mut attaching = Box::pin(client.attach(&text, Owner::Fresh));
                    attaching.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
                };
                if (0..given_up).all(|_| gives_up()) {
                    break (lease, text);
                }
                // The attach was complete before it was given up; its lease is released like any other.
                until(SOON, "it is released", || !node.exists("x")).await;
            };
            let again = client.attach(&text, Owner::Fresh).await.unwrap();
            assert_eq!(again.token(), lease.token());
            let used = client.attach(&text, Owner::Fresh).await;
            assert!(matches!(used, Err(LockError::Lost { reason: LostReason::Taken, .. })), "{used:?}");
            assert_eq!(again.release().await.unwrap(), ReleaseOutcome::Released);
        }
    }
}

/// An event loop gives up an attach before it has fetched the result, or fetches it for a caller that has given up.
#[tokio::test]
async fn an_attach_that_a_host_gives_up_leaves_the_text_as_it_was() {
    let server = Server::start();
    let (client, other) = (client([server.url()]), client([server.url()]));
    for fetched in [false, true] {
        give_up(&server, &client, &other, fetched).await;
    }
}

async fn give_up(server: &Server, client: &Client, other: &Client, fetched: bool) {
    let lease = lock(client, Some("job")).acquire().await.unwrap();
    let text = lease.detach().unwrap();
    let before = fields(server);
    let mut host = Loop::new();
    let call = host.calls.start(Operation::Attach(client, &text, Owner::Fresh)).unwrap();
    let Started::Pending(id) = call else { panic!("it needed no round trip") };
    until(SOON, "it is attached", || fields(server) != before).await;
    if fetched {
        host.lease(Ok(call)).abandon();
    } else {
        assert!(host.calls.abandon(id));
        // The loop drops what it abandoned in its next turn.
        host.turn(SOON);
    }
    let again = attach(other, &text).await;
    assert_eq!(again.token(), lease.token());
    again.release().await.unwrap();
    assert!(fields(server).is_empty());
}

/// How many rounds the tests of new clients make.
fn rounds(usual: u64) -> u64 {
    number("REDLOCK_ROUNDS").unwrap_or(usual)
}

/// New clients of three servers, several at once, so that connections to some servers are still being made when others
/// have granted. Each client closes right after its release, as a short program does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_right_behind_a_release_leaves_no_key() {
    const AT_ONCE: usize = 8;
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let client = || Client::new(Config::new(servers.iter().map(Server::url))).unwrap();
    client().init_nodes().await.unwrap();
    let once = |round: u64| {
        let client = client();
        async move {
            let mut options = LockOptions::default();
            options.ttl = Ttl::Fixed(Duration::from_secs(60));
            let lease = client.lock(&format!("lock-{round}"), options).unwrap().acquire().await.unwrap();
            assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
            client.close().await;
        }
    };
    stream::iter((0..rounds(200)).map(once)).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    for server in &servers {
        // Once the server has closed a connection, everything that was sent on it has run.
        until(SOON, "all connections are closed", || {
            server.command::<String>(&["CLIENT", "LIST"]).lines().count() == 1
        })
        .await;
        let left: Vec<String> = server.command(&["KEYS", "lock-*"]);
        assert!(left.is_empty(), "{}: {left:?}", server.url());
    }
}

/// The first acquires of a new deployment of five servers are given up at any moment, as web handlers do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_deployment_votes_whoever_gives_up_its_first_acquires() {
    let servers: Vec<Server> = (0..5).map(|_| Server::start()).collect();
    for _ in 0..rounds(30) {
        for server in &servers {
            server.command::<()>(&["FLUSHALL"]);
        }
        let client = Client::new(Config::new(servers.iter().map(Server::url))).unwrap();
        let given_up = (0..60).map(|number| {
            let lock = client.lock(&format!("lock-{number}"), LockOptions::default()).unwrap();
            async move { drop(timeout(Duration::from_micros(fastrand::u64(500..8_000)), lock.acquire()).await) }
        });
        join_all(given_up).await;
        // In a quarantine no node would vote for more than a minute.
        let lease = timeout(SOON, lock(&client, None).acquire()).await.expect("a quarantine").unwrap();
        lease.release().await.unwrap();
        client.close().await;
    }
}

/// The kind of a detached lease is that of the lease that was left, not of the tenure's first one.
#[tokio::test]
async fn a_detached_lease_keeps_its_own_kind() {
    let mut config = Config::new(["memory://kinds"]);
    config.watchdog = LEASE;
    let client = Client::new(config).unwrap();
    let lock = |ttl| {
        let options = options(|options| (options.owner, options.ttl) = (Some("me".into()), ttl));
        client.lock("x", options).unwrap()
    };
    let (fixed, renewed) = (lock(Ttl::Fixed(LEASE)), lock(Ttl::Watchdog));
    for (outer, inner, is_renewed) in [(&fixed, &renewed, true), (&renewed, &fixed, false)] {
        let first = outer.acquire().await.unwrap();
        let left = inner.acquire().await.unwrap();
        first.release().await.unwrap();
        let attached = client.attach(&left.detach().unwrap(), Owner::Fresh).await.unwrap();
        if is_renewed {
            redlock_tests::renewed(SOON, "the lease is renewed", &attached).await;
            attached.release().await.unwrap();
        } else {
            assert_eq!(timeout(SOON, attached.lost()).await.unwrap(), Some(LostReason::Expired));
        }
    }
}
