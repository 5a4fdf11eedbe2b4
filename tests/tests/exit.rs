//! Acquires while the process exits. The only test of its binary: the exit is a state of the whole process.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::mpsc, thread, time::Duration};

use redlock::{
    LockError, LockOptions, Owner,
    ffi::{self, Operation},
};
use redlock_tests::{
    clients::client,
    proxy::{Direction, Flow, Proxy},
    server::Server,
    wait_until,
};

/// How long to wait for something that must happen.
const SOON: Duration = Duration::from_secs(20);

/// An acquire that is granted its lock while the process exits stays blocked: an error would make its thread report a
/// failure. An acquire that begins afterwards, in an exit handler, fails at once.
#[test]
fn an_acquire_under_way_never_returns_and_a_later_one_fails() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let lock = client([proxy.url()]).lock("x", LockOptions::default()).unwrap();
    lock.acquire_blocking().unwrap().release().unwrap();

    proxy.flow(Direction::Replies, Flow::Hold);
    let (checks, checked) = mpsc::channel();
    let acquiring = lock.clone();
    let blocked = thread::spawn(move || {
        let mut check = || {
            let _ = checks.send(());
            Ok::<_, LockError>(())
        };
        Operation::Acquire(&acquiring, acquiring.request(Owner::Fresh)).block(&mut check).map(drop)
    });
    wait_until(SOON, "the server granted", || server.command(&["EXISTS", "x"]));
    let exiting = thread::spawn(|| ffi::close_all(&mut || Ok::<_, LockError>(())));
    wait_until(SOON, "the exit began", || matches!(lock.try_acquire_blocking(), Err(LockError::Closed)));
    proxy.flow(Direction::Replies, Flow::Pass);
    exiting.join().unwrap().unwrap();
    wait_until(SOON, "the grant was given back", || !server.command::<bool>(&["EXISTS", "x"]));

    // The checks that were made before, and more: the call still runs.
    let before = checked.try_iter().count();
    for check in 0..before + 5 {
        assert!(checked.recv_timeout(SOON).is_ok(), "returned after {check} checks: {:?}", blocked.join());
    }
    assert!(matches!(lock.acquire_blocking().map(drop), Err(LockError::Closed)));
}
