//! Calls that block, for programs without async code, on real servers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::{Duration, Instant},
};

use redlock::{LockError, LockOptions, ReleaseOutcome, Ttl};
use redlock_tests::{clients::client, server::Server};

fn exists(server: &Server, name: &str) -> bool {
    server.command(&["EXISTS", name])
}

#[test]
fn a_guard_is_released_at_the_end_of_its_scope() {
    let server = Server::start();
    let lock = client([server.url()]).lock("scope", LockOptions::default()).unwrap();
    for _ in 0..200 {
        let guard = lock.acquire_blocking().unwrap();
        assert!(guard.held() && exists(&server, "scope"));
        drop(guard);
        assert!(!exists(&server, "scope"), "the release was confirmed before the scope ended");
    }
}

#[test]
fn a_panic_releases_a_guard() {
    let server = Server::start();
    let lock = client([server.url()]).lock("panic", LockOptions::default()).unwrap();
    let body = AssertUnwindSafe(|| {
        let _guard = lock.acquire_blocking().unwrap();
        std::panic::resume_unwind(Box::new("the body failed"));
    });
    catch_unwind(body).unwrap_err();
    assert!(!exists(&server, "panic"));
}

#[test]
fn a_release_returns_its_outcome_and_is_made_once() {
    let server = Server::start();
    let lock = client([server.url()]).lock("outcome", LockOptions::default()).unwrap();
    assert_eq!(lock.acquire_blocking().unwrap().release().unwrap(), ReleaseOutcome::Released);

    let lost = lock.acquire_blocking().unwrap();
    assert_eq!(server.command::<i64>(&["DEL", "outcome"]), 1);
    assert_eq!(lost.release().unwrap(), ReleaseOutcome::Lost);

    // Released by hand, then acquired by somebody else: the end of the scope must not touch that.
    let first = lock.acquire_blocking().unwrap();
    assert_eq!(first.release_blocking().unwrap(), ReleaseOutcome::Released);
    let second = lock.acquire_blocking().unwrap();
    drop(first);
    assert!(second.held() && exists(&server, "outcome"));
}

#[test]
fn a_try_does_not_wait_and_a_wait_has_its_limit() {
    let server = Server::start();
    let client = client([server.url()]);
    let mut options = LockOptions::default();
    options.wait = Some(Duration::from_millis(50));
    let lock = client.lock("busy", options).unwrap();
    let holder = lock.try_acquire_blocking().unwrap().expect("it is free");
    assert!(lock.try_acquire_blocking().unwrap().is_none());
    let start = Instant::now();
    assert!(matches!(lock.acquire_blocking(), Err(LockError::Timeout { .. })));
    assert!(start.elapsed() >= Duration::from_millis(50));
    drop(holder);
    assert!(lock.try_acquire_blocking().unwrap().is_some());
}

#[test]
fn leases_are_extended_changed_and_attached() {
    let server = Server::start();
    let client = client([server.url()]);
    let mut options = LockOptions::default();
    options.ttl = Ttl::Fixed(Duration::from_secs(5));
    let lease = client.lock("extended", options.clone()).unwrap().acquire_blocking().unwrap();
    lease.extend_blocking(Duration::from_secs(50)).unwrap();
    assert!(lease.remaining() > Duration::from_secs(10));
    let text = lease.detach().unwrap();
    let token = lease.token();
    drop(lease);
    let attached = client.attach_blocking(&text).unwrap();
    assert_eq!(attached.token(), token);
    assert_eq!(attached.release().unwrap(), ReleaseOutcome::Released);

    let both = client.read_write_lock("changed", options.clone()).unwrap();
    let writer = both.write().acquire_blocking().unwrap();
    writer.downgrade_blocking().unwrap();
    let reader = both.read().acquire_blocking().unwrap();
    assert!(!writer.try_upgrade_blocking().unwrap(), "somebody else reads");
    drop(reader);
    assert!(writer.try_upgrade_blocking().unwrap());
    drop(writer);

    let slots = client.semaphore("slots", 2, options).unwrap();
    let permit = slots.acquire_blocking(2).unwrap();
    assert_eq!(permit.slots().len(), 2);
    assert!(slots.try_acquire_blocking(1).unwrap().is_none());
    client.close_blocking();
    assert!(!permit.held());
    assert!(matches!(slots.acquire_blocking(1), Err(LockError::Closed)));
}

/// A guard that an async runtime drops must not block its thread, which would panic.
#[test]
fn a_guard_that_async_code_drops_is_released_in_the_background() {
    let server = Server::start();
    let lock = client([server.url()]).lock("async", LockOptions::default()).unwrap();
    let guard = lock.acquire_blocking().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        drop(guard);
        // Returns once the release has reached the server.
        let next = lock.acquire().await.unwrap();
        assert!(next.held());
    });
}
