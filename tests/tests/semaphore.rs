//! Semaphores on real servers: never more slots than there are, each with one holder and increasing tokens; waiters are
//! served in the order of their requests; the loss of any key breaks none of this.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use redlock::{
    Client, Config, Identity, Kind, Lease, Lock, LockError, LockOptions, LostReason, Owner, ReleaseOutcome, Semaphore,
    Ttl, Wire,
};
use redlock_tests::{
    PATIENCE,
    clients::{WAITER_LEASE, acquires, client, got, numbers, released, semaphore, semaphore_for},
    nothing_stays,
    proxy::{Direction, Flow, Proxy},
    server::Server,
    until,
};
use tokio::task::JoinHandle;

fn waiting(server: &Server) -> usize {
    server.command(&["ZCARD", "redlock_queue:{x}"])
}

/// Acquires `n` slots in the background. The waiter has its place when this returns.
async fn waits(server: &Server, semaphore: &Semaphore, n: u32) -> JoinHandle<Lease> {
    let before = waiting(server);
    let waiter = acquires(semaphore, n);
    until(PATIENCE, "it has a place", || waiting(server) == before + 1).await;
    waiter
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_slots_are_held_than_there_are() {
    for wire in [Wire::Redisson, Wire::Token] {
        let server = Server::start();
        let new = || {
            let mut config = Config::new([server.url()]);
            config.wire = wire;
            Client::new(config).unwrap()
        };
        let (one, two) = (new(), new());
        let (ours, theirs) = (semaphore(&one, 3), semaphore(&two, 3));
        let mut permits =
            vec![ours.acquire().await.unwrap(), theirs.acquire().await.unwrap(), ours.acquire().await.unwrap()];
        assert_eq!(permits.iter().flat_map(numbers).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(theirs.try_acquire().await.unwrap().is_none());
        assert_eq!(ours.available().await.unwrap(), 0);
        let known = theirs.inspect().await.unwrap();
        assert_eq!(known.iter().map(|permit| permit.slots.len()).sum::<usize>(), 3);
        assert!(permits.iter().all(|permit| known.iter().any(|info| info.owner == permit.owner())));

        let middle = permits.remove(1);
        let before = middle.token();
        released(middle).await;
        assert_eq!(theirs.available().await.unwrap(), 1);
        let again = ours.try_acquire().await.unwrap().unwrap();
        assert_eq!(numbers(&again), [1]);
        assert!(again.token() > before, "tokens of a slot rise");
        assert_eq!(again.token(), again.slots()[0].token);
        permits.push(again);
        for permit in permits {
            released(permit).await;
        }
        assert_eq!(ours.available().await.unwrap(), 3);
        nothing_stays(PATIENCE, &server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_outlives_the_others_brings_no_permit_back() {
    let server = Server::start();
    let (one, two) = (semaphore(&client([server.url()]), 2), semaphore(&client([server.url()]), 2));
    let over = one.acquire().await.unwrap();
    // The keys may expire a millisecond apart. This is that millisecond: one key is left, and no TTL of any.
    let _: u32 = server.command(&["PERSIST", "redlock_slots:{x}"]);
    let _: u32 = server.command(&["DEL", "x"]);
    let permits = [two.acquire().await.unwrap(), two.acquire().await.unwrap()];
    assert_eq!(permits.iter().flat_map(numbers).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(server.command::<u32>(&["HLEN", "redlock_slots:{x}"]), 2);
    assert_eq!(over.release().await.unwrap(), ReleaseOutcome::Lost);
    assert!(two.try_acquire().await.unwrap().is_none());
    for permit in permits {
        released(permit).await;
    }
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_given_up_grants_nothing_while_the_name_is_another_lock() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let held = semaphore(&client([server.url()]), 1).acquire().await.unwrap();
    let (first, second) = (semaphore(&client([proxy.url()]), 1), semaphore(&client([server.url()]), 1));
    let (first, second) = (waits(&server, &first, 1).await, waits(&server, &second, 1).await);
    // A waiter asks again when its subscription begins. The first one cannot: it would hear of the conflict and leave.
    proxy.flow(Direction::Requests, Flow::Hold);
    // At once: the second one, if it asks in between, would be granted the permit.
    let script = "redis.call('DEL', unpack(KEYS)) redis.call('HSET', KEYS[1], 'somebody:1', 1) \
                  redis.call('PEXPIRE', KEYS[1], 60000)";
    let _: () = server.command(&["EVAL", script, "3", "x", "redlock_slots:{x}", "redlock_taken:{x}"]);
    second.abort();
    until(PATIENCE, "it has left", || waiting(&server) == 1).await;
    assert_eq!(server.command::<u32>(&["EXISTS", "redlock_slots:{x}", "redlock_taken:{x}"]), 0);
    proxy.heal();
    first.abort();
    until(PATIENCE, "the first one has left, too", || waiting(&server) == 0).await;
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_the_order_of_their_requests() {
    let server = Server::start();
    let clients: Vec<Semaphore> = (0..3).map(|_| semaphore(&client([server.url()]), 2)).collect();
    let holders = [clients[0].acquire().await.unwrap(), clients[1].acquire().await.unwrap()];
    let mut waiters = Vec::new();
    for number in 0..9 {
        waiters.push(waits(&server, &clients[number % 3], 1).await);
    }
    let mut inside: Vec<Lease> = holders.into();
    for waiter in waiters {
        released(inside.remove(0)).await;
        inside.push(got(waiter).await);
        assert_eq!(inside.iter().flat_map(numbers).collect::<BTreeSet<_>>().len(), 2);
    }
    for permit in inside {
        released(permit).await;
    }
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_for_several_slots_is_not_overtaken_and_slots_freed_together_go_to_many() {
    let server = Server::start();
    let (one, two) = (semaphore(&client([server.url()]), 4), semaphore(&client([server.url()]), 4));
    let (first, second) = (one.acquire_many(2).await.unwrap(), one.acquire_many(2).await.unwrap());
    let large = waits(&server, &two, 3).await;
    let small: [JoinHandle<Lease>; 2] = [waits(&server, &one, 1).await, waits(&server, &two, 1).await];
    released(first).await;
    // Two slots are free: too few for the first in the queue, and the others wait behind it.
    assert!(two.try_acquire().await.unwrap().is_none());
    assert_eq!(one.available().await.unwrap(), 2);
    assert!(!large.is_finished() && small.iter().all(|small| !small.is_finished()));
    released(second).await;
    // Four slots are free: three for the first in the queue, one for the next.
    let large = got(large).await;
    assert_eq!(numbers(&large).len(), 3);
    let [next, last] = small;
    let next = got(next).await;
    assert!(!last.is_finished());
    released(large).await;
    let last = got(last).await;
    assert_eq!(one.available().await.unwrap(), 2);
    released(next).await;
    released(last).await;
    let all = one.acquire_many(4).await.unwrap();
    assert_eq!(numbers(&all), [0, 1, 2, 3]);
    let mut together = Vec::new();
    for number in 0..4 {
        together.push(waits(&server, [&one, &two][number % 2], 1).await);
    }
    released(all).await;
    for waiter in together {
        released(got(waiter).await).await;
    }
    nothing_stays(PATIENCE, &server).await;
}

/// Whichever key is lost while permits are held, there are never more holders than slots, and all slots are granted
/// again later.
#[tokio::test(flavor = "multi_thread")]
async fn each_of_its_keys_may_be_lost() {
    let kinds = ["", "slots", "taken", "slot_tokens", "queue", "alive"];
    let keys = kinds.map(|kind| if kind.is_empty() { "x".to_owned() } else { format!("redlock_{kind}:{{x}}") });
    let lose = |lost: &String, how| {
        let lost = lost.clone();
        tokio::spawn(async move { one_key_is_lost(&lost, how).await })
    };
    let all: Vec<_> = keys.iter().flat_map(|lost| [lose(lost, "PEXPIRE"), lose(lost, "DEL")]).collect();
    for one in all {
        one.await.unwrap();
    }
}

async fn one_key_is_lost(lost: &str, how: &str) {
    const TTL: Duration = Duration::from_secs(4);
    let server = Server::start();
    let (one, two) = (client([server.url()]), client([server.url()]));
    let (ours, theirs) = (semaphore_for(&one, 3, TTL), semaphore_for(&two, 3, TTL));
    let held = [ours.acquire_many(2).await.unwrap(), theirs.acquire().await.unwrap()];
    // The permits acquired from here on are renewed.
    let (ours, theirs) = (semaphore(&one, 3), semaphore(&two, 3));
    let waiter = waits(&server, &theirs, 1).await;
    let command = if how == "DEL" { vec!["DEL", lost] } else { vec!["PEXPIRE", lost, "1"] };
    let _: i64 = server.command(&command);
    // The key may be written again at once.
    until(PATIENCE, "it is lost", || !(0..=1).contains(&server.command::<i64>(&["PTTL", lost]))).await;
    // Neither a new try nor the waiter gets a permit while all three slots are held.
    let newcomer = theirs.try_acquire().await.unwrap();
    let room = held.iter().any(|permit| !permit.held());
    assert!(newcomer.is_none() || room, "{how} {lost}: a fourth came in");
    drop(newcomer);
    let waited = got(waiter).await;
    let inside: usize = held.iter().filter(|permit| permit.held()).map(|permit| permit.slots().len()).sum();
    assert!(inside < 3, "{how} {lost}: came in beside {inside}");
    // Once the first leases are over, the waiter and this acquire hold all three slots.
    let others = got(tokio::spawn(async move { ours.acquire_many(2).await.unwrap() })).await;
    let ours = semaphore(&one, 3);
    let slots: BTreeSet<u32> = [numbers(&waited), numbers(&others)].concat().into_iter().collect();
    assert_eq!(slots.len(), 3, "{how} {lost}");
    assert!(ours.try_acquire().await.unwrap().is_none(), "{how} {lost}");
    released(waited).await;
    released(others).await;
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_outlives_the_loss_of_the_key() {
    let server = Server::start();
    let mut config = Config::new([server.url()]);
    config.watchdog = Duration::from_secs(3);
    let client = Client::new(config).unwrap();
    let semaphore = semaphore(&client, 2);
    let permit = semaphore.acquire().await.unwrap();
    for key in ["x", "redlock_slots:{x}", "redlock_taken:{x}"] {
        let _: i64 = server.command(&["DEL", key]);
        redlock_tests::renewed(PATIENCE, "it is renewed", &permit).await;
        assert!(permit.held(), "{key}");
        assert_eq!(semaphore.available().await.unwrap(), 1, "{key}");
    }
    let _: i64 = server.command(&["DEL", "x", "redlock_slots:{x}", "redlock_taken:{x}"]);
    assert_eq!(permit.lost().await, Some(LostReason::Deleted));
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_slots_may_differ_during_a_rollout() {
    let server = Server::start();
    let client = client([server.url()]);
    let (more, fewer) = (semaphore(&client, 4), semaphore(&client, 2));
    let all = more.acquire_many(3).await.unwrap();
    assert!(fewer.try_acquire().await.unwrap().is_none());
    assert_eq!((more.available().await.unwrap(), fewer.available().await.unwrap()), (1, 0));
    let fourth = more.try_acquire().await.unwrap().unwrap();
    assert_eq!(numbers(&fourth), [3]);
    released(all).await;
    assert_eq!((more.available().await.unwrap(), fewer.available().await.unwrap()), (3, 2));
    let both = fewer.acquire_many(2).await.unwrap();
    assert_eq!(numbers(&both), [0, 1]);
    assert!(fewer.try_acquire().await.unwrap().is_none());
    released(both).await;
    released(fourth).await;
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_is_passed_over() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let dying = client([proxy.url()]);
    let living = semaphore(&client([server.url()]), 1);
    let ttl = Duration::from_secs(1);
    let held = semaphore_for(&dying, 1, ttl).acquire().await.unwrap();
    let dead: [JoinHandle<Result<Lease, LockError>>; 3] = std::array::from_fn(|_| {
        let semaphore = semaphore(&dying, 1);
        tokio::spawn(async move { semaphore.acquire().await })
    });
    until(PATIENCE, "they wait", || waiting(&server) == 3).await;
    let waiter = waits(&server, &living, 1).await;
    proxy.flow(Direction::Requests, Flow::Lose);
    proxy.flow(Direction::Replies, Flow::Lose);
    let silent = Instant::now();
    let permit = got(waiter).await;
    let late = silent.elapsed();
    assert!(late < ttl + WAITER_LEASE + Duration::from_secs(1), "after {late:?}");
    assert!(!held.held());
    for dead in dead {
        dead.abort();
    }
    released(permit).await;
    proxy.flow(Direction::Requests, Flow::Pass);
    proxy.flow(Direction::Replies, Flow::Pass);
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_gives_up_leaves_nothing_behind() {
    let server = Server::start();
    let (one, two) = (semaphore(&client([server.url()]), 2), semaphore(&client([server.url()]), 2));
    let held = one.acquire().await.unwrap();
    let large = waits(&server, &two, 2).await;
    let small = waits(&server, &one, 1).await;
    // The first in the queue gives up; the one behind it needs fewer slots.
    large.abort();
    let small = got(small).await;
    assert!(large.await.unwrap_err().is_cancelled());
    released(small).await;
    released(held).await;
    nothing_stays(PATIENCE, &server).await;
}

/// A client with a waiter behind its own permit of the only slot. The reply to the permit's release, which the server holds
/// back, has the waiter's grant.
async fn granted_by_a_reply_on_its_way(server: &Server, proxy: &Proxy) -> (JoinHandle<Lease>, JoinHandle<()>) {
    let ours = semaphore_for(&client([proxy.url()]), 1, Duration::from_secs(600));
    let held = ours.acquire().await.unwrap();
    let waiter = waits(server, &ours, 1).await;
    proxy.flow(Direction::Replies, Flow::Hold);
    let release = tokio::spawn(async move { drop(held.release().await) });
    until(PATIENCE, "the waiter has the permit", || waiting(server) == 0).await;
    assert_eq!(server.command::<u32>(&["HLEN", "redlock_slots:{x}"]), 1);
    (waiter, release)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_its_permit_although_the_reply_that_has_it_is_lost() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let (waiter, release) = granted_by_a_reply_on_its_way(&server, &proxy).await;
    proxy.cut();
    proxy.heal();
    released(got(waiter).await).await;
    release.await.unwrap();
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_gives_up_before_it_learns_of_its_permit_leaves_nothing_behind() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let (waiter, release) = granted_by_a_reply_on_its_way(&server, &proxy).await;
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    proxy.heal();
    release.await.unwrap();
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_client_of_the_name_sees_it_and_ends_it_by_force() {
    let server = Server::start();
    let client = client([server.url()]);
    let semaphore = semaphore(&client, 2);
    let (one, two) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    let waiter = waits(&server, &semaphore, 2).await;
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let info = lock.inspect().await.unwrap().unwrap();
    assert_eq!((info.kind, info.owners.len(), info.token), (Kind::Semaphore, 2, 0));
    assert!(lock.locked().await.unwrap());
    assert!(client.force_release("x").await.unwrap());
    let both = got(waiter).await;
    assert_eq!(numbers(&both), [0, 1]);
    for permit in [one, two] {
        assert_eq!(permit.extend(Duration::from_secs(5)).await.unwrap_err().code(), "lost");
        assert_eq!(permit.lost_reason(), Some(LostReason::Released));
    }
    released(both).await;
    assert!(!client.force_release("x").await.unwrap());
    assert_eq!(lock.inspect().await.unwrap(), None);
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_handed_over_with_its_slots() {
    let server = Server::start();
    let (one, two) = (client([server.url()]), client([server.url()]));
    let permit = semaphore(&one, 3).acquire_many(2).await.unwrap();
    let (slots, token) = (permit.slots().to_vec(), permit.token());
    let text = permit.detach().unwrap();
    let attached = two.attach(&text, Owner::Fresh).await.unwrap();
    assert_eq!((attached.slots(), attached.token()), (&slots[..], token));
    assert_eq!(one.attach(&text, Owner::Fresh).await.unwrap_err().code(), "lost");
    assert_eq!(semaphore(&one, 3).available().await.unwrap(), 1);
    released(attached).await;
    nothing_stays(PATIENCE, &server).await;
}

/// Stands for threads, and nested blocks in them, that share one semaphore object.
#[tokio::test(flavor = "multi_thread")]
async fn each_owner_gives_back_its_own_newest_first() {
    let server = Server::start();
    let client = client([server.url()]);
    let (one, two) = (Identity::new(), Identity::new());
    let [single, double] = [1, 2].map(|n| semaphore(&client, 4).taking(n).unwrap());
    let request = |lock: &Lock, owner: &Identity| lock.request(Owner::Ambient(owner.clone()));
    let first = single.acquire_as(request(&single, &one)).await.unwrap();
    let second = double.acquire_as(request(&double, &one)).await.unwrap();
    let third = single.acquire_as(request(&single, &two)).await.unwrap();
    assert_eq!([numbers(&first), numbers(&second), numbers(&third)].concat(), [0, 1, 2, 3]);
    let of_one = Owner::Ambient(one);
    assert!(single.owned(&of_one));
    assert_eq!(single.release(&of_one).await.unwrap(), ReleaseOutcome::Released);
    assert!(first.held() && !second.held() && third.held());
    assert_eq!(single.release(&of_one).await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(single.release(&of_one).await.unwrap_err().code(), "not_held");
    assert!(third.held());
    let named = single.acquire_as(single.request(Owner::Explicit("me".to_owned()))).await.unwrap_err();
    assert!(matches!(named, LockError::Invalid { argument: "owner", .. }));
    // The lease itself releases its permit, whoever calls it.
    released(third).await;
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_something_else_are_refused_and_left_alone() {
    let server = Server::start();
    let client = client([server.url()]);
    let (semaphore, lock) = (semaphore(&client, 2), client.lock("x", LockOptions::default()).unwrap());
    let read = client.read_write_lock("x", LockOptions::default()).unwrap().read().clone();
    let permit = semaphore.acquire().await.unwrap();
    for other in [&lock, &read] {
        assert_eq!(other.try_acquire().await.unwrap_err().code(), "conflict");
        assert_eq!(other.acquire().await.unwrap_err().code(), "conflict");
    }
    released(permit).await;
    for other in [&lock, &read] {
        let lease = other.acquire().await.unwrap();
        assert_eq!(semaphore.acquire().await.unwrap_err().code(), "conflict");
        assert_eq!(semaphore.available().await.unwrap_err().code(), "conflict");
        released(lease).await;
    }
    for foreign in [&["SET", "x", "1"][..], &["ZADD", "x", "1", "somebody's"], &["RPUSH", "x", "1"]] {
        let _: redis::Value = server.command(foreign);
        assert_eq!(semaphore.try_acquire().await.unwrap_err().code(), "conflict");
        assert_eq!(client.force_release("x").await.unwrap_err().code(), "conflict");
        let _: i64 = server.command(&["PEXPIRE", "x", "60000"]);
        let code = semaphore.try_acquire().await.unwrap_err().code();
        assert_eq!(code, "conflict", "{foreign:?}");
        let left: i64 = server.command(&["DEL", "x"]);
        assert_eq!(left, 1, "it was left alone");
    }
    nothing_stays(PATIENCE, &server).await;
}

#[test]
fn bad_input_is_refused_before_anything_is_sent() {
    let client = client(["redis://127.0.0.1:1"]);
    let refused = |made: Result<Semaphore, LockError>| match made {
        Err(LockError::Invalid { argument, .. }) => argument,
        other => panic!("{:?}", other.map(|_| ())),
    };
    let with = |permits: u32, change: fn(&mut LockOptions)| {
        let mut options = LockOptions::default();
        change(&mut options);
        client.semaphore("x", permits, options)
    };
    assert_eq!(refused(with(0, |_| {})), "permits");
    assert_eq!(refused(with(65_537, |_| {})), "permits");
    assert_eq!(refused(with(1, |options| options.fair = true)), "fair");
    assert_eq!(refused(with(1, |options| options.owner = Some("me".to_owned()))), "owner");
    assert_eq!(refused(with(1, |options| options.reentrant = false)), "reentrant");
    assert_eq!(refused(with(1, |options| options.ttl = Ttl::Fixed(Duration::ZERO))), "ttl");
    assert_eq!(refused(client.semaphore("", 1, LockOptions::default())), "name");
    for n in [0, 4] {
        let semaphore = client.semaphore("x", 3, LockOptions::default()).unwrap();
        assert!(matches!(semaphore.taking(n), Err(LockError::Invalid { argument: "n", .. })));
    }
}
