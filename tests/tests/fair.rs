//! Fair locks on real servers: waiters get the lock in the order in which their requests reached the server, whatever
//! happens to those before them. Nobody overtakes, and nothing stays behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

use futures_util::future::{join, join_all};
use redlock::{Client, Config, Lease, LockError, LockOptions, Owner, ReleaseOutcome, Ttl, Wire};
use redlock_tests::{
    PATIENCE,
    clients::{WAITER_LEASE, client, options},
    nothing_stays,
    proxy::{Direction, Flow, Proxy},
    server::Server,
    until,
};
use tokio::{sync::mpsc, task::JoinHandle};

fn fair(client: &Client) -> redlock::Lock {
    fair_with(client, |_| {})
}

fn fair_with(client: &Client, change: impl FnOnce(&mut LockOptions)) -> redlock::Lock {
    let fair = options(|options| {
        options.fair = true;
        change(options);
    });
    client.lock("x", fair).unwrap()
}

fn queued(server: &Server) -> usize {
    server.command(&["ZCARD", "redlock_queue:{x}"])
}

/// Acquires in the background, and sends its number and the lease once it has the lock. The waiter has its place when
/// this returns.
async fn waits(
    server: &Server,
    client: &Client,
    number: usize,
    granted: &mpsc::UnboundedSender<(usize, Lease)>,
) -> JoinHandle<()> {
    let before = queued(server);
    let (lock, granted) = (fair(client), granted.clone());
    let waiting = tokio::spawn(async move {
        let lease = lock.acquire().await.unwrap();
        granted.send((number, lease)).unwrap();
    });
    until(PATIENCE, "it has a place", || queued(server) == before + 1).await;
    waiting
}

async fn next(granted: &mut mpsc::UnboundedReceiver<(usize, Lease)>) -> (usize, Lease) {
    tokio::time::timeout(PATIENCE, granted.recv()).await.expect("the next one has it").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_the_order_of_their_requests() {
    for wire in [Wire::Redisson, Wire::Token] {
        let server = Server::start();
        let new = || {
            let mut config = Config::new([server.url()]);
            config.wire = wire;
            Client::new(config).unwrap()
        };
        let clients: Vec<Client> = (0..4).map(|_| new()).collect();
        let holder = fair(&clients[0]).acquire().await.unwrap();
        let (granted, mut order) = mpsc::unbounded_channel();
        // Each of the four clients waits three times, in rotation; one of them is the holder's.
        for number in 0..12 {
            waits(&server, &clients[number % 4], number, &granted).await;
        }
        let mut token = holder.token();
        assert_eq!(holder.release().await.unwrap(), ReleaseOutcome::Released);
        for number in 0..12 {
            let (got, lease) = next(&mut order).await;
            assert_eq!(got, number, "{wire:?}");
            assert!(lease.token() > token, "{wire:?}: tokens rise");
            token = lease.token();
            assert!(lease.held());
            assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        }
        nothing_stays(PATIENCE, &server).await;
    }
}

/// More calls than one turn of a task may make by tokio's cooperative scheduling, 128, and more than a connection carries
/// at once, 1 024.
#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_one_task_are_served_in_their_order() {
    const CALLS: usize = 2_500;
    let server = Server::start();
    let client = client([server.url()]);
    let held = fair(&client).acquire().await.unwrap();
    let served = RefCell::new(Vec::new());
    let waiters = join_all((0..CALLS).map(|number| {
        let (client, served) = (&client, &served);
        async move {
            let lease = fair(client).acquire().await.unwrap();
            served.borrow_mut().push(number);
            lease.release().await.unwrap();
        }
    }));
    let holder = async {
        until(PATIENCE, "all wait", || queued(&server) == CALLS).await;
        held.release().await.unwrap();
    };
    join(waiters, holder).await;
    let served = served.into_inner();
    assert_eq!(served.len(), CALLS);
    assert!(served.is_sorted(), "{served:?}");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_and_a_newcomer_never_go_ahead() {
    let server = Server::start();
    let (one, two) = (client([server.url()]), client([server.url()]));
    // Writes the place of a client that counts as alive but sends nothing. The lock is free.
    let now: Vec<String> = server.command(&["TIME"]);
    let soon = (now[0].parse::<u64>().unwrap() + 3).to_string() + "000000";
    let _: usize = server.command(&["ZADD", "redlock_queue:{x}", "1", "30000/somebody/somebody:1"]);
    let _: usize = server.command(&["ZADD", "redlock_alive:{x}", &soon, "somebody"]);
    assert!(fair(&one).try_acquire().await.unwrap().is_none(), "it is the other's turn");
    let (holders, ttl): (Vec<String>, i64) = (server.command(&["HKEYS", "x"]), server.command(&["PTTL", "x"]));
    assert_eq!(holders, ["somebody:1"], "who is told that it has it");
    assert!((1..=3_000).contains(&ttl), "for as long as its client counts as alive: {ttl}");
    let (granted, mut order) = mpsc::unbounded_channel();
    waits(&server, &one, 1, &granted).await;
    waits(&server, &two, 2, &granted).await;
    // That client never answers.
    let (first, lease) = next(&mut order).await;
    assert_eq!(first, 1);
    assert!(fair(&two).try_acquire().await.unwrap().is_none());
    lease.release().await.unwrap();
    let (second, lease) = next(&mut order).await;
    assert_eq!(second, 2);
    lease.release().await.unwrap();
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_that_are_gone_hold_nobody_up_for_longer_than_one_of_them() {
    let server = Server::start();
    let holder = fair(&client([server.url()])).acquire().await.unwrap();
    let (granted, mut order) = mpsc::unbounded_channel();
    let gone: Vec<(Proxy, Client)> = (0..4)
        .map(|_| {
            let proxy = Proxy::start(server.port());
            let client = client([proxy.url()]);
            (proxy, client)
        })
        .collect();
    let mut waiting = Vec::new();
    for (number, (_, client)) in gone.iter().enumerate() {
        waiting.push(waits(&server, client, number, &granted).await);
    }
    let live = client([server.url()]);
    waits(&server, &live, 99, &granted).await;
    for (proxy, _) in &gone {
        proxy.flow(Direction::Requests, Flow::Lose);
        proxy.flow(Direction::Replies, Flow::Lose);
    }
    let start = Instant::now();
    holder.release().await.unwrap();
    let (number, lease) = next(&mut order).await;
    assert_eq!(number, 99);
    assert!(start.elapsed() < WAITER_LEASE + Duration::from_millis(500), "{:?}", start.elapsed());
    waiting.iter().for_each(JoinHandle::abort);
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_message_costs_one_beat() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let waiter = client([proxy.url()]);
    let holder = fair(&client([server.url()])).acquire().await.unwrap();
    let (granted, mut order) = mpsc::unbounded_channel();
    waits(&server, &waiter, 0, &granted).await;
    let wakes = || server.command::<Vec<String>>(&["PUBSUB", "CHANNELS", "redlock_wake:{x}:*"]).len();
    until(PATIENCE, "it listens", || wakes() == 1).await;
    proxy.swallow(Direction::Replies, b"message");
    let start = Instant::now();
    holder.release().await.unwrap();
    let (_, lease) = next(&mut order).await;
    assert!(!proxy.is_hungry(Direction::Replies), "the message was not there to be lost");
    assert!(start.elapsed() < WAITER_LEASE, "{:?}", start.elapsed());
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_gives_up_leaves_the_queue_and_passes_its_grant_on() {
    let server = Server::start();
    let (one, two) = (client([server.url()]), client([server.url()]));
    let holder = fair(&one).acquire().await.unwrap();
    let (granted, mut order) = mpsc::unbounded_channel();
    let first = waits(&server, &one, 1, &granted).await;
    let second = waits(&server, &two, 2, &granted).await;
    waits(&server, &one, 3, &granted).await;
    second.abort();
    until(PATIENCE, "its place is gone", || queued(&server) == 2).await;
    // Gives up at about the moment at which the lock is granted.
    holder.release().await.unwrap();
    first.abort();
    let (mut number, mut lease) = next(&mut order).await;
    if number == 1 {
        lease.release().await.unwrap();
        (number, lease) = next(&mut order).await;
    }
    assert_eq!(number, 3);
    lease.release().await.unwrap();
    let held = fair(&one).acquire().await.unwrap();
    let late = fair_with(&two, |options| options.wait = Some(Duration::from_millis(500)));
    assert!(matches!(late.acquire().await, Err(LockError::Timeout { .. })));
    until(PATIENCE, "its place is gone", || queued(&server) == 0).await;
    held.release().await.unwrap();
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_queue_again_after_the_queue_was_lost() {
    let mut server = Server::start();
    let (one, two) = (client([server.url()]), client([server.url()]));
    let holder = fair_with(&one, |options| options.ttl = Ttl::Fixed(Duration::from_secs(1))).acquire().await.unwrap();
    let (granted, mut order) = mpsc::unbounded_channel();
    for number in 0..6 {
        waits(&server, if number % 2 == 0 { &one } else { &two }, number, &granted).await;
    }
    let _: String = server.command(&["FLUSHALL"]);
    let mut served = Vec::new();
    for _ in 0..3 {
        let (number, lease) = next(&mut order).await;
        served.push(number);
        lease.release().await.unwrap();
    }
    server.stop();
    server.restart();
    for _ in 3..6 {
        let (number, lease) = next(&mut order).await;
        served.push(number);
        let _ = lease.release().await;
    }
    served.sort_unstable();
    assert_eq!(served, [0, 1, 2, 3, 4, 5]);
    drop(holder);
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_that_hold_the_lock_do_not_queue() {
    let server = Server::start();
    let (one, two) = (client([server.url()]), client([server.url()]));
    let shared = |client: &Client| fair_with(client, |options| options.owner = Some("both".to_owned()));
    let lease = shared(&one).acquire().await.unwrap();
    let (granted, mut order) = mpsc::unbounded_channel();
    waits(&server, &two, 0, &granted).await;
    let nested = shared(&one).acquire().await.unwrap();
    let joined = shared(&two).acquire().await.unwrap();
    assert!(joined.held() && nested.held());
    nested.release().await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(queued(&server), 1, "the other process has it");
    joined.release().await.unwrap();
    let (_, lease) = next(&mut order).await;
    lease.release().await.unwrap();
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_owner_was_joined_before_it_heard_of_its_turn_has_a_token_of_its_own() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let (holder, slow, quick) = (client([server.url()]), client([proxy.url()]), client([server.url()]));
    let shared = |client: &Client| fair_with(client, |options| options.owner = Some("both".to_owned()));
    let held = fair(&holder).acquire().await.unwrap();
    let waiting = tokio::spawn(shared(&slow).acquire());
    until(PATIENCE, "it has a place", || queued(&server) == 1).await;
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.flow(direction, Flow::Hold);
    }
    held.release().await.unwrap();
    assert_eq!(queued(&server), 0, "the lock was handed to it");
    let joined = shared(&quick).acquire().await.unwrap();
    for direction in [Direction::Requests, Direction::Replies] {
        proxy.flow(direction, Flow::Pass);
    }
    let lease = tokio::time::timeout(PATIENCE, waiting).await.expect("it hears of its turn").unwrap().unwrap();
    assert!(lease.token() > joined.token(), "{} after {}", lease.token(), joined.token());
    joined.release().await.unwrap();
    lease.release().await.unwrap();
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_release_lets_the_next_waiter_in() {
    let server = Server::start();
    let (one, two) = (client([server.url()]), client([server.url()]));
    let (granted, mut order) = mpsc::unbounded_channel();
    // Released by a client whose lock is not fair.
    let held = one.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    waits(&server, &two, 0, &granted).await;
    held.release().await.unwrap();
    let (_, lease) = next(&mut order).await;
    waits(&server, &one, 1, &granted).await;
    // Released by force.
    assert!(one.force_release("x").await.unwrap());
    let (_, next_lease) = next(&mut order).await;
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    waits(&server, &two, 2, &granted).await;
    // Released by the client that attached the lease.
    let text = next_lease.detach().unwrap();
    let attached = two.attach(&text, Owner::Fresh).await.unwrap();
    attached.release().await.unwrap();
    let (_, lease) = next(&mut order).await;
    waits(&server, &one, 3, &granted).await;
    // Released because the holder's client closes.
    two.close().await;
    assert!(!lease.held());
    let (number, lease) = next(&mut order).await;
    assert_eq!(number, 3);
    lease.release().await.unwrap();
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_costs_three_scripts() {
    let server = Server::start();
    let clients = [client([server.url()]), client([server.url()]), client([server.url()])];
    let turns = 100;
    // All clients have subscribed: the requests before that are not counted.
    let holder = fair(&clients[0]).acquire().await.unwrap();
    let (granted, mut order) = mpsc::unbounded_channel();
    for (number, client) in clients.iter().enumerate() {
        waits(&server, client, number, &granted).await;
    }
    let wakes = || server.command::<Vec<String>>(&["PUBSUB", "CHANNELS", "redlock_wake:{x}:*"]).len();
    until(PATIENCE, "they listen", || wakes() == 3).await;
    holder.release().await.unwrap();
    for _ in 0..3 {
        let (number, lease) = next(&mut order).await;
        waits(&server, &clients[number], number, &granted).await;
        lease.release().await.unwrap();
    }
    let scripts = || {
        let stats: String = server.command(&["INFO", "commandstats"]);
        let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
        line.split([',', '=']).nth(1).unwrap().parse::<u64>().unwrap()
    };
    let (before, start) = (scripts(), Instant::now());
    for _ in 0..turns {
        let (number, lease) = next(&mut order).await;
        waits(&server, &clients[number], number, &granted).await;
        lease.release().await.unwrap();
    }
    // Plus the confirmations that keep the places: each client sends one every 1.5 s at most.
    let beats = 3 * (1 + start.elapsed().as_millis() as u64 / 1_500);
    let sent = scripts() - before;
    assert!(sent <= 3 * turns + beats, "{sent} scripts for {turns} grants");
}

#[tokio::test]
async fn a_quorum_refuses_fair_locks() {
    let client = Client::new(Config::new((0..3).map(|node| format!("memory://fair-{node}")))).unwrap();
    let mut options = LockOptions::default();
    options.fair = true;
    let error = client.lock("x", options).err().unwrap();
    assert!(matches!(&error, LockError::Invalid { argument: "fair", .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fair_waiter_hears_of_its_turn_after_plain_waiters_of_its_client() {
    let server = Server::start();
    let rival = client([server.url()]);
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let client = client([server.url()]);
        let plain = client.lock("x", LockOptions::default()).unwrap();
        // Its listener, which stays for a second, hears of many releases.
        for _ in 0..20 {
            let held = fair(&rival).acquire().await.unwrap();
            let waiter = tokio::spawn(plain.acquire());
            until(PATIENCE, "it listens", || {
                server.command::<(String, usize)>(&["PUBSUB", "NUMSUB", "redisson_lock__channel:{x}"]).1 > 0
            })
            .await;
            held.release().await.unwrap();
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
        let held = fair(&rival).acquire().await.unwrap();
        let (granted, mut order) = mpsc::unbounded_channel();
        waits(&server, &client, 0, &granted).await;
        held.release().await.unwrap();
        let released = Instant::now();
        next(&mut order).await.1.release().await.unwrap();
        quickest = quickest.min(released.elapsed());
    }
    // A waiter that hears nothing asks after 1.5 s at the earliest.
    assert!(quickest < Duration::from_secs(1), "{quickest:?}");
    nothing_stays(PATIENCE, &server).await;
}
