//! Semaphores on several independent servers: never more slots than there are, whatever happens to a minority of the
//! servers; tokens of a slot increase; nothing stays behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use redlock::{Client, Config, Kind, Lease, LockError, LockOptions, LostReason, Owner, Semaphore};
use redlock_tests::{
    PATIENCE,
    clients::{acquires, client, client_with, got, numbers, released, semaphore, semaphore_for, servers, urls},
    locked, nothing_stays,
    server::Server,
    until,
};
use tokio::task::JoinHandle;

async fn clean(servers: &[Server]) {
    for server in servers.iter().filter(|server| server.is_up()) {
        nothing_stays(PATIENCE, server).await;
    }
}

/// How many permits a server has.
fn held_on(server: &Server) -> usize {
    server.command(&["ZCARD", "x"])
}

async fn held_everywhere(servers: &[Server], number: usize) {
    until(PATIENCE, "every node has them", || servers.iter().all(|server| held_on(server) == number)).await;
}

fn waiting(servers: &[Server]) -> bool {
    servers.iter().filter(|server| server.waiting("x") > 0).count() > servers.len() / 2
}

/// Acquires `n` slots in the background. The waiter listens when this returns.
async fn waits(servers: &[Server], semaphore: &Semaphore, n: u32) -> JoinHandle<Lease> {
    let waiter = acquires(semaphore, n);
    until(PATIENCE, "it listens", || waiting(servers)).await;
    waiter
}

/// What the holders believe: never a slot with two holders, and tokens of a slot increase.
#[derive(Default)]
struct Inside {
    slots: Mutex<BTreeMap<u32, u64>>,
    tokens: Mutex<BTreeMap<u32, u64>>,
    most: AtomicUsize,
    grants: AtomicUsize,
}

impl Inside {
    fn enter(&self, permit: &Lease) {
        let mut slots = locked(&self.slots);
        for slot in permit.slots() {
            assert_eq!(slots.insert(slot.number, slot.token), None, "slot {} has two holders", slot.number);
            let before = locked(&self.tokens).insert(slot.number, slot.token);
            assert!(before.is_none_or(|before| before < slot.token), "a token of slot {} fell", slot.number);
        }
        self.most.fetch_max(slots.len(), SeqCst);
        self.grants.fetch_add(1, SeqCst);
    }

    fn leave(&self, permit: &Lease) {
        let mut slots = locked(&self.slots);
        for slot in permit.slots() {
            slots.remove(&slot.number);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_slots_are_held_than_there_are() {
    for nodes in [3, 5] {
        let servers = servers(nodes);
        let (one, two) = (client(urls(&servers)), client(urls(&servers)));
        for permits in [1, 2, 3] {
            let (ours, theirs) = (semaphore(&one, permits), semaphore(&two, permits));
            let mut held = Vec::new();
            for number in 0..permits {
                assert_eq!(theirs.available().await.unwrap(), permits - number);
                held.push([&ours, &theirs][number as usize % 2].acquire().await.unwrap());
            }
            let all: BTreeSet<u32> = held.iter().flat_map(numbers).collect();
            assert_eq!(all, (0..permits).collect());
            assert!(theirs.try_acquire().await.unwrap().is_none());
            assert_eq!(ours.available().await.unwrap(), 0);
            let known = theirs.inspect().await.unwrap();
            assert_eq!(known.len(), held.len());
            for permit in &held {
                let info = known.iter().find(|info| info.owner == permit.owner()).unwrap();
                assert_eq!(info.slots, numbers(permit));
            }
            // The only free slot is that of the first permit, and its tokens increase.
            let first = held.remove(0);
            let (slot, before) = (numbers(&first), first.token());
            released(first).await;
            let again = theirs.acquire().await.unwrap();
            assert_eq!(numbers(&again), slot);
            assert!(again.token() > before);
            assert_eq!(again.token(), again.slots()[0].token);
            held.push(again);
            for permit in held {
                released(permit).await;
            }
            assert_eq!(ours.available().await.unwrap(), permits);
            clean(&servers).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_slots_are_acquired_at_once() {
    let servers = servers(3);
    let (one, two) = (semaphore(&client(urls(&servers)), 3), semaphore(&client(urls(&servers)), 3));
    let double = one.acquire_many(2).await.unwrap();
    assert_eq!(numbers(&double).len(), 2);
    assert!(two.try_acquire_many(2).await.unwrap().is_none());
    let single = two.acquire().await.unwrap();
    assert!(!numbers(&double).contains(&numbers(&single)[0]));
    released(double).await;
    let double = two.acquire_many(2).await.unwrap();
    assert!(two.try_acquire().await.unwrap().is_none());
    released(double).await;
    released(single).await;
    let all = two.acquire_many(3).await.unwrap();
    assert_eq!(numbers(&all), [0, 1, 2]);
    released(all).await;
    clean(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_wakes_waiters_without_a_poll() {
    let servers = servers(3);
    let (one, two) = (semaphore(&client(urls(&servers)), 1), semaphore(&client(urls(&servers)), 1));
    let mut held = one.acquire().await.unwrap();
    let mut fastest = Duration::MAX;
    for round in 0..6 {
        let (_, other) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let waiter = waits(&servers, other, 1).await;
        let start = Instant::now();
        released(held).await;
        held = got(waiter).await;
        fastest = fastest.min(start.elapsed());
    }
    // Waiters poll after two seconds.
    assert!(fastest < Duration::from_secs(1), "{fastest:?}");
    released(held).await;
    clean(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_callers_as_slots_all_get_one() {
    let servers = servers(3);
    let clients: Vec<Client> = (0..20).map(|_| client(urls(&servers))).collect();
    // The markers exist, and all are connected.
    released(semaphore(&clients[0], 20).acquire().await.unwrap()).await;
    for number in [1_u32, 2] {
        let callers: Vec<_> = clients
            .iter()
            .map(|client| {
                let semaphore = semaphore(client, 20 * number);
                tokio::spawn(async move { semaphore.acquire_many(number).await.unwrap() })
            })
            .collect();
        let mut held = Vec::new();
        for caller in callers {
            held.push(got(caller).await);
        }
        let slots: BTreeSet<u32> = held.iter().flat_map(numbers).collect();
        assert_eq!(slots.len(), 20 * number as usize);
        assert!(held.iter().all(Lease::held));
        for permit in held {
            released(permit).await;
        }
    }
    clean(&servers).await;
}

/// Lets many callers acquire and release; returns how many permits were granted.
async fn at_once(servers: &[Server], permits: u32, (callers, rounds): (usize, usize)) -> usize {
    let inside = Arc::new(Inside::default());
    let clients: Vec<Client> = (0..4).map(|_| client(urls(servers))).collect();
    let workers = (0..callers).map(|number| {
        let (inside, semaphore) = (inside.clone(), semaphore(&clients[number % 4], permits));
        tokio::spawn(async move {
            for round in 0..rounds {
                let n = if permits > 1 && (number + round) % 3 == 0 { 2 } else { 1 };
                let permit = semaphore.acquire_many(n).await.unwrap();
                inside.enter(&permit);
                tokio::task::yield_now().await;
                inside.leave(&permit);
                released(permit).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        tokio::time::timeout(Duration::from_secs(120), worker).await.expect("nobody starves").unwrap();
    }
    assert!(inside.most.load(SeqCst) <= permits as usize);
    inside.grants.load(SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once() {
    for (nodes, permits) in [(3, 1), (3, 2), (3, 3), (5, 2)] {
        let servers = servers(nodes);
        assert_eq!(at_once(&servers, permits, (12, 8)).await, 96);
        clean(&servers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_that_is_down_or_frozen_keeps_nothing() {
    for freezes in [false, true] {
        let mut servers = servers(3);
        let (one, two) = (client(urls(&servers)), client(urls(&servers)));
        let (ours, theirs) = (semaphore(&one, 2), semaphore(&two, 2));
        released(ours.acquire_many(2).await.unwrap()).await;
        released(theirs.acquire().await.unwrap()).await;
        clean(&servers).await;
        if freezes {
            servers[1].freeze();
        } else {
            servers[1].stop();
        }
        let start = Instant::now();
        let (first, second) = (ours.acquire().await.unwrap(), theirs.acquire().await.unwrap());
        assert_ne!(numbers(&first), numbers(&second));
        assert!(theirs.try_acquire().await.unwrap().is_none());
        released(first).await;
        let third = theirs.acquire().await.unwrap();
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        released(second).await;
        released(third).await;
        if freezes {
            // The requests that it was sent run now, and so do those that undo them.
            servers[1].thaw();
            clean(&servers).await;
            released(ours.acquire_many(2).await.unwrap()).await;
        }
        clean(&servers).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_permits_are_lost_at_their_deadlines() {
    let mut servers = servers(3);
    let client = client_with(urls(&servers), |config| config.watchdog = Duration::from_secs(2));
    let semaphore = semaphore(&client, 2);
    let permit = semaphore.acquire().await.unwrap();
    servers[0].freeze();
    servers[2].freeze();
    let start = Instant::now();
    let reason = tokio::time::timeout(PATIENCE, permit.lost()).await.unwrap();
    assert_eq!(reason, Some(LostReason::Unreachable));
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    assert!(matches!(semaphore.try_acquire().await, Err(LockError::Unavailable { .. })));
    servers[0].thaw();
    servers[2].thaw();
    clean(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_restarts_empty_does_not_vote_and_is_repaired() {
    let mut servers = servers(3);
    let max_ttl = Duration::from_secs(2);
    let change = |config: &mut Config| {
        config.max_ttl = max_ttl;
        config.watchdog = Duration::from_millis(1500);
    };
    let (one, two) = (client_with(urls(&servers), change), client_with(urls(&servers), change));
    let (ours, theirs) = (semaphore(&one, 2), semaphore(&two, 2));
    let held = [ours.acquire().await.unwrap(), theirs.acquire().await.unwrap()];
    held_everywhere(&servers, 2).await;
    for node in 0..3 {
        servers[node].stop();
        servers[node].restart();
        // The others have both permits. The empty node neither grants nor accepts one. A client that notices that it has no
        // marker begins its quarantine, and after that the holders write their permits there again.
        let start = Instant::now();
        while servers[node].command::<usize>(&["EXISTS", "redlock_node"]) == 0 {
            assert!(ours.try_acquire().await.unwrap().is_none());
            assert!(start.elapsed() < PATIENCE, "it gets a marker");
        }
        assert!(theirs.try_acquire().await.unwrap().is_none());
        held_everywhere(&servers, 2).await;
        assert!(start.elapsed() > max_ttl, "it was in quarantine");
        assert!(held.iter().all(Lease::held));
        assert!(theirs.try_acquire().await.unwrap().is_none());
    }
    for permit in held {
        released(permit).await;
    }
    clean(&servers).await;
}

/// Whichever key is lost on one node, there are never more holders than slots, and all slots are granted again later.
#[tokio::test(flavor = "multi_thread")]
async fn each_key_may_be_lost_on_one_node() {
    let servers = servers(3);
    let (one, two) = (client(urls(&servers)), client(urls(&servers)));
    for kind in ["", "slots", "taken", "slot_tokens"] {
        let key = if kind.is_empty() { "x".to_owned() } else { format!("redlock_{kind}:{{x}}") };
        for server in &servers {
            let (ours, theirs) = (semaphore(&one, 3), semaphore(&two, 3));
            let held = [ours.acquire_many(2).await.unwrap(), theirs.acquire().await.unwrap()];
            held_everywhere(&servers, 2).await;
            let _: i64 = server.command(&["DEL", &key]);
            for n in 1..=3 {
                assert!(ours.try_acquire_many(n).await.unwrap().is_none(), "{key}");
                assert!(theirs.try_acquire_many(n).await.unwrap().is_none(), "{key}");
            }
            assert_eq!(ours.available().await.unwrap(), 0, "{key}");
            for permit in held {
                assert!(permit.held());
                released(permit).await;
            }
            let all = theirs.acquire_many(3).await.unwrap();
            assert_eq!(numbers(&all), [0, 1, 2]);
            released(all).await;
            clean(&servers).await;
        }
    }
}

/// A node on which others have a slot grants another one. The permit is moved there to the slot of the majority, or
/// ends there.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_granted_another_slot_counts_only_once_it_is_moved() {
    let servers = servers(3);
    let (all, single) = (client(urls(&servers)), client(urls(&servers[1..2])));
    let long = Duration::from_secs(50);
    // On this node alone, slot 0 is taken.
    let foreign = semaphore_for(&single, 1, long).acquire().await.unwrap();
    let both = semaphore(&all, 2);
    for _ in 0..8 {
        let (first, second) = (both.acquire().await.unwrap(), both.acquire().await.unwrap());
        assert_eq!([numbers(&first), numbers(&second)].concat().into_iter().collect::<BTreeSet<_>>().len(), 2);
        assert!(both.try_acquire().await.unwrap().is_none());
        let (zero, one) = if numbers(&first) == [0] { (first, second) } else { (second, first) };
        // The permit with slot 0 is on the other nodes only, and keeps nothing on this one.
        let on_node = || -> Vec<String> { servers[1].command(&["ZRANGE", "x", "0", "-1"]) };
        until(PATIENCE, "slot 1 has its holder there", || {
            on_node().iter().filter(|member| member.starts_with(one.owner()) && member.ends_with("|1")).count() == 1
        })
        .await;
        until(PATIENCE, "the other one keeps nothing", || on_node().len() == 2).await;
        assert!(on_node().iter().all(|member| !member.starts_with(zero.owner())));
        released(zero).await;
        released(one).await;
        until(PATIENCE, "nothing is left", || on_node().len() == 1).await;
    }
    released(foreign).await;
    clean(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_client_of_the_name_sees_it_and_ends_it_by_force() {
    let servers = servers(3);
    let client = client(urls(&servers));
    let semaphore = semaphore(&client, 2);
    let (one, two) = (semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap());
    let waiter = waits(&servers, &semaphore, 2).await;
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let info = lock.inspect().await.unwrap().unwrap();
    assert_eq!((info.kind, info.owners.len(), info.token), (Kind::Semaphore, 2, 0));
    assert_eq!(lock.try_acquire().await.unwrap_err().code(), "conflict");
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
    clean(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_down_hide_no_holder() {
    for (nodes, down, freezes) in [(3, 1, false), (3, 1, true), (5, 2, false)] {
        let mut servers = servers(nodes);
        let client = client(urls(&servers));
        let ttl = Duration::from_secs(50);
        let permit = semaphore_for(&client, 2, ttl).acquire().await.unwrap();
        held_everywhere(&servers, 1).await;
        for server in &mut servers[..down] {
            if freezes {
                server.freeze();
            } else {
                server.stop();
            }
        }
        let lock = client.lock("x", LockOptions::default()).unwrap();
        let check = async || {
            let info = lock.inspect().await.unwrap().unwrap();
            assert_eq!((info.kind, info.owners.as_slice()), (Kind::Semaphore, &[permit.owner().to_owned()][..]));
            assert!(lock.locked().await.unwrap());
        };
        check().await;
        assert!(matches!(client.force_release_token("x", 1).await, Err(LockError::Conflict { .. })));
        // A node that answers may have lost the key: one that is down may hold the missing vote.
        let _: i64 = servers[down].command(&["DEL", "x"]);
        check().await;
        // The key of one node may be no lock at all.
        let _: i64 = servers[down].command(&["LPUSH", "x", "somebody's"]);
        check().await;
        let _: i64 = servers[down].command(&["DEL", "x"]);
        assert!(client.force_release("x").await.unwrap());
        assert_eq!(lock.inspect().await.unwrap(), None);
        assert!(!lock.locked().await.unwrap());
        if freezes {
            servers[0].thaw();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_extended_renewed_and_handed_over_with_its_slots() {
    let servers = servers(3);
    let change = |config: &mut Config| config.watchdog = Duration::from_secs(1);
    let (one, two) = (client_with(urls(&servers), change), client_with(urls(&servers), change));
    let permit = semaphore(&one, 3).acquire_many(2).await.unwrap();
    permit.extend(Duration::from_secs(5)).await.unwrap();
    assert!(permit.remaining() > Duration::from_secs(3));
    let (slots, token) = (permit.slots().to_vec(), permit.token());
    let text = permit.detach().unwrap();
    let attached = two.attach(&text, Owner::Fresh).await.unwrap();
    assert_eq!((attached.slots(), attached.token()), (&slots[..], token));
    assert_eq!(one.attach(&text, Owner::Fresh).await.unwrap_err().code(), "lost");
    redlock_tests::renewed(PATIENCE, "it is renewed", &attached).await;
    redlock_tests::renewed(PATIENCE, "it is renewed again", &attached).await;
    assert_eq!(semaphore(&one, 3).available().await.unwrap(), 1);
    released(attached).await;
    clean(&servers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_dies_frees_its_slots_and_waiters_of_a_client_keep_their_order() {
    let servers = servers(3);
    let (one, two) = (client(urls(&servers)), client(urls(&servers)));
    let ttl = Duration::from_secs(1);
    // Nobody renews it: as of a process that died.
    let dead = semaphore_for(&one, 2, ttl).acquire_many(2).await.unwrap();
    let theirs = semaphore(&two, 2);
    let large = waits(&servers, &theirs, 2).await;
    let small = {
        let theirs = theirs.clone();
        tokio::spawn(async move { theirs.acquire().await.unwrap() })
    };
    let large = got(large).await;
    assert!(!dead.held());
    assert!(!small.is_finished());
    assert!(theirs.try_acquire().await.unwrap().is_none(), "a waiter of this client comes first");
    released(large).await;
    released(got(small).await).await;
    clean(&servers).await;
}
