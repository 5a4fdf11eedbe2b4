//! Calls whose round trips an event loop makes itself (`redlock::ffi::Calls::hosted`). The tests drive them as asyncio
//! and libuv do, by watching the descriptor.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use redlock::{
    Client, Config, Event, LockError, LockOptions, Owner, ReleaseOutcome,
    ffi::{
        Call,
        Operation::{Acquire, Close, Extend, Leave, Ping, Release},
        Value,
        completions::Started,
    },
};
use redlock_tests::{clients::client, event_loop::Loop, server::Server, wait_until};

const LONG: Duration = Duration::from_secs(20);

fn pending(call: Result<Call, LockError>) -> u64 {
    match call.unwrap() {
        Started::Pending(id) => id,
        Started::Done(outcome) => panic!("ended at once: {outcome:?}"),
    }
}

/// A client, and a loop with a connection.
fn connected(server: &Server) -> (Client, Loop) {
    let (client, mut host) = (client([server.url()]), Loop::new());
    let lock = client.lock("first", LockOptions::default()).unwrap();
    let lease = host.lease(host.calls.start(Acquire(&lock, lock.request(Owner::Fresh))));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
    (client, host)
}

fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    keys.retain(|key| !key.starts_with("redlock_token") && key != "redlock_node");
    keys
}

/// The number of connections on which the last command was a script.
fn connections(server: &Server) -> usize {
    let clients: String = server.command(&["CLIENT", "LIST"]);
    clients.lines().filter(|line| line.contains("cmd=eval")).count()
}

#[test]
fn one_connection_of_the_loop_carries_everything() {
    let server = Server::start();
    let (client, mut host) = connected(&server);
    let connections = connections(&server);
    let lock = client.lock("x", LockOptions::default()).unwrap();
    for _ in 0..20 {
        let lease = host.lease(host.calls.start(Acquire(&lock, lock.request(Owner::Fresh))));
        assert!(matches!(host.end(host.calls.start(Extend(&lease, Duration::from_secs(60)))), Ok(Value::Nothing)));
        assert!(matches!(host.end(host.calls.start(Leave(&lease))), Ok(Value::Nothing)));
    }
    assert_eq!((connections, self::connections(&server)), (1, 1));
    assert!(keys(&server).is_empty());
}

#[test]
fn calls_without_a_round_trip_end_at_once() {
    let server = Server::start();
    let (client, mut host) = connected(&server);
    let mut options = LockOptions::default();
    options.owner = Some("job".to_owned());
    let lock = client.lock("x", options).unwrap();
    let outer = host.lease(host.calls.start(Acquire(&lock, lock.request(Owner::Fresh))));
    let Started::Done(Ok(Value::Lease(nested))) = host.calls.start(Acquire(&lock, lock.request(Owner::Fresh))).unwrap()
    else {
        panic!("a nested acquire waited")
    };
    assert_eq!(nested.token(), outer.token());
    assert!(matches!(host.calls.start(Release(&nested)), Ok(Started::Done(Ok(Value::Released("released"))))));
    assert_eq!(host.release(&outer), ReleaseOutcome::Released);
}

#[test]
fn calls_of_one_turn_share_a_write() {
    let server = Server::start();
    let (client, mut host) = connected(&server);
    let locks: Vec<_> = (0..50).map(|n| client.lock(&format!("x{n}"), LockOptions::default()).unwrap()).collect();
    let reads = || -> u64 {
        let stats: String = server.command(&["INFO", "stats"]);
        let reads = stats.lines().find_map(|line| line.strip_prefix("total_reads_processed:")).unwrap();
        reads.trim().parse().unwrap()
    };
    let before = reads();
    let begun: Vec<_> = locks.iter().map(|lock| host.calls.start(Acquire(lock, lock.request(Owner::Fresh)))).collect();
    host.calls.flush();
    for call in begun {
        host.lease(call);
    }
    // The server reads the first request by itself and the others together, at most 16 KiB at a time. The requests for
    // the statistics count as well.
    let reads = reads() - before;
    assert!(reads < 10, "{reads} reads for 50 calls");
}

#[test]
fn a_call_that_is_given_up_leaves_nothing_and_disturbs_no_other() {
    let mut server = Server::start();
    let (client, mut host) = connected(&server);
    let locks: Vec<_> = (0..10).map(|n| client.lock(&format!("x{n}"), LockOptions::default()).unwrap()).collect();
    for _ in 0..5 {
        server.freeze();
        let begun: Vec<_> =
            locks.iter().map(|lock| pending(host.calls.start(Acquire(lock, lock.request(Owner::Fresh))))).collect();
        host.calls.flush();
        for id in begun.iter().step_by(2) {
            assert!(host.calls.abandon(*id));
        }
        server.thaw();
        let others: Vec<_> = begun.into_iter().skip(1).step_by(2).collect();
        let leases: Vec<_> = others.into_iter().map(|id| host.lease(Ok(Started::Pending(id)))).collect();
        let start = Instant::now();
        while keys(&server).len() != leases.len() {
            assert!(start.elapsed() < LONG, "left: {:?}", keys(&server));
            host.turn(Duration::from_millis(5));
        }
        for lease in leases {
            assert_eq!(host.release(&lease), ReleaseOutcome::Released);
        }
    }
}

#[test]
fn a_loop_that_stands_still_leaves_nothing() {
    let mut server = Server::start();
    let (client, host) = connected(&server);
    let lock = client.lock("x", LockOptions::default()).unwrap();
    server.freeze();
    let id = pending(host.calls.start(Acquire(&lock, lock.request(Owner::Fresh))));
    assert!(host.calls.abandon(id));
    server.thaw();
    // The loop takes no further turn.
    wait_until(LONG, "the acquire ran", || server.command::<Vec<String>>(&["KEYS", "redlock_token*x*"]).len() == 1);
    wait_until(LONG, "what it left is gone", || keys(&server).is_empty());
}

#[test]
fn a_loop_that_ends_leaves_nothing() {
    let mut server = Server::start();
    let (client, mut host) = connected(&server);
    let lock = |name: &str| client.lock(name, LockOptions::default()).unwrap();
    let (held, asked) = (lock("held"), lock("asked"));
    let lease = host.lease(host.calls.start(Acquire(&held, held.request(Owner::Fresh))));
    server.freeze();
    // The first request is sent, the second is not.
    pending(host.calls.start(Acquire(&asked, asked.request(Owner::Fresh))));
    pending(host.calls.start(Release(&lease)));
    drop(host);
    server.thaw();
    wait_until(LONG, "both are gone", || keys(&server).is_empty());
    let mut next = Loop::new();
    let lease = next.lease(next.calls.start(Acquire(&asked, asked.request(Owner::Fresh))));
    assert_eq!(next.release(&lease), ReleaseOutcome::Released);
}

#[test]
fn a_result_from_before_a_flush_is_still_reported() {
    let server = Server::start();
    let (client, mut host) = connected(&server);
    let lock = client.lock("x", LockOptions::default()).unwrap();
    for _ in 0..20 {
        // The background executes this call.
        let ping = host.calls.start(Ping(&client));
        assert!(host.is_readable(LONG));
        host.calls.flush();
        assert!(matches!(host.end(ping), Ok(Value::Nodes(_))));
        let lease = host.lease(host.calls.start(Acquire(&lock, lock.request(Owner::Fresh))));
        assert_eq!(host.release(&lease), ReleaseOutcome::Released);
    }
}

#[test]
fn a_frozen_server_is_unavailable_in_time_and_serves_again() {
    let mut server = Server::start();
    let (client, mut host) = connected(&server);
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let mut request = lock.request(Owner::Fresh);
    request.wait = Some(Duration::ZERO);
    server.freeze();
    let outcome = host.end(host.calls.start(Acquire(&lock, request.clone())));
    assert!(matches!(outcome, Err(LockError::Unavailable { .. })), "{outcome:?}");
    server.thaw();
    let start = Instant::now();
    let lease = loop {
        match host.end(host.calls.start(Acquire(&lock, request.clone()))) {
            Ok(Value::Lease(lease)) => break lease,
            other => assert!(start.elapsed() < LONG, "{other:?}"),
        }
    };
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

#[test]
fn a_server_that_restarts_is_connected_to_again() {
    let mut server = Server::start();
    let (client, mut host) = connected(&server);
    let lock = client.lock("x", LockOptions::default()).unwrap();
    server.restart();
    let lease = host.lease(host.calls.start(Acquire(&lock, lock.request(Owner::Fresh))));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

#[test]
fn a_closed_client_ends_its_calls() {
    let server = Server::start();
    let (client, mut host) = connected(&server);
    let other = self::client([server.url()]);
    let lock = |client: &Client| client.lock("x", LockOptions::default()).unwrap();
    let (held, wanted) = (lock(&other), lock(&client));
    let lease = host.lease(host.calls.start(Acquire(&held, held.request(Owner::Fresh))));
    let waiting = host.calls.start(Acquire(&wanted, wanted.request(Owner::Fresh)));
    let closed = host.calls.start(Close(&client));
    assert!(matches!(host.end(waiting), Err(LockError::Closed)));
    assert!(matches!(host.end(closed), Ok(Value::Nothing)));
    assert_eq!(host.release(&lease), ReleaseOutcome::Released);
}

/// A release is abandoned while its loop connects: the background sends it on a connection of its own.
#[test]
fn a_release_that_is_given_up_while_the_loop_connects_takes_no_node_down() {
    let server = Server::start();
    let (sender, events) = mpsc::channel();
    let sink = Arc::new(move |event: &Event| {
        if event.kind() == "node_down" {
            // Fails once the test is over and the receiver is gone.
            let _ = sender.send(format!("{event:?}"));
        }
    });
    let client = Client::with_events(Config::new([server.url()]), sink).unwrap();
    let lock = client.lock("x", LockOptions::default()).unwrap();
    // A thread acquires, on the connection of blocking callers: the client has no other.
    let lease = lock.acquire_interruptible(lock.request(Owner::Fresh), &mut || Ok::<(), LockError>(())).unwrap();
    let host = Loop::new();
    let id = pending(host.calls.start(Release(&lease)));
    assert!(host.calls.abandon(id));
    wait_until(LONG, "it is released", || keys(&server).is_empty());
    assert_eq!(events.try_recv().ok(), None);
}
