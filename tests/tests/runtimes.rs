//! Tasks make first tries and releases on a connection of their own tokio runtime. Locks are acquired, released and
//! kept, whatever happens to that runtime and whichever executor polls a call.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, mpsc},
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use redlock::{Client, Config, LockOptions, ReleaseOutcome};
use redlock_tests::server::Server;
use tokio::runtime::{Builder, Runtime};

/// How long a call may take on a busy machine; far less than a lease.
const SOON: Duration = Duration::from_secs(20);

fn client(server: &Server) -> Client {
    let mut config = Config::new([server.url()]);
    config.reply_timeout = Duration::from_millis(500);
    Client::new(config).unwrap()
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Polls a future as an executor other than tokio does.
fn without_runtime<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

async fn pair(client: &Client, name: &str) {
    let lease = client.lock(name, LockOptions::default()).unwrap().acquire().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

/// The number of connections that send scripts.
fn carriers(server: &Server) -> usize {
    let clients: String = server.command(&["CLIENT", "LIST"]);
    clients.lines().filter(|line| line.contains("cmd=evalsha") || line.contains("cmd=eval ")).count()
}

#[test]
fn a_runtime_makes_its_own_round_trips_and_takes_its_connection_along() {
    let server = Server::start();
    let client = client(&server);
    let lock = client.lock("kept", LockOptions::default()).unwrap();
    let first = runtime();
    let lease = first.block_on(lock.acquire()).unwrap();
    assert_eq!(carriers(&server), 1);
    for round in 0..3 {
        // Each round is on a runtime of its own, which ends.
        runtime().block_on(pair(&client, &format!("short {round}")));
    }
    drop(first);
    // The first runtime's lease survives it, and another runtime releases it.
    assert!(lease.held());
    assert_eq!(runtime().block_on(async { lease.release().await }).unwrap(), ReleaseOutcome::Released);
    let deadline = Instant::now() + SOON;
    // One connection may stay: the background's, which checked the leases after the first runtime's connection was
    // gone.
    while carriers(&server) > 1 {
        assert!(Instant::now() < deadline, "{} connections of runtimes that ended stay", carriers(&server) - 1);
        thread::yield_now();
    }
}

#[test]
fn several_runtimes_use_one_client_at_once() {
    let server = Server::start();
    let client = client(&server);
    thread::scope(|scope| {
        for thread in 0..4 {
            let client = &client;
            scope.spawn(move || {
                runtime().block_on(async {
                    for round in 0..20 {
                        pair(client, if round % 2 == 0 { "shared" } else { "own" }).await;
                        pair(client, &format!("of {thread}")).await;
                    }
                });
            });
        }
    });
    let left: i64 = server.command(&["EXISTS", "shared", "own"]);
    assert_eq!(left, 0);
}

#[test]
fn a_runtime_without_io_uses_the_librarys() {
    let server = Server::start();
    let client = client(&server);
    let without = Builder::new_current_thread().build().unwrap();
    for _ in 0..3 {
        without.block_on(pair(&client, "x"));
    }
    // Runtimes with I/O are not affected.
    runtime().block_on(pair(&client, "x"));
}

#[test]
fn any_executor_may_poll_a_call_of_a_runtime() {
    let server = Server::start();
    let client = client(&server);
    let (one, other) = (runtime(), runtime());
    let lock = client.lock("x", LockOptions::default()).unwrap();
    let acquiring = {
        let _inside = one.enter();
        lock.acquire()
    };
    let lease = other.block_on(acquiring).unwrap();
    let releasing = {
        let _inside = one.enter();
        lease.release()
    };
    // The release was called on one runtime, and no runtime polls it.
    assert_eq!(without_runtime(releasing).unwrap(), ReleaseOutcome::Released);
    without_runtime(pair(&client, "x"));
}

/// The first call that connects is polled once, and then kept without being polled.
#[test]
fn a_call_that_is_polled_once_keeps_no_other_from_connecting() {
    let server = Server::start();
    let client = client(&server);
    runtime().block_on(async {
        let (first, second) = (client.lock("x", LockOptions::default()), client.lock("y", LockOptions::default()));
        let (first, second) = (first.unwrap(), second.unwrap());
        let mut kept = Box::pin(first.try_acquire());
        assert!(futures_util::poll!(&mut kept).is_pending());
        let lease = second.try_acquire().await.unwrap().unwrap();
        assert!(lease.held());
        lease.release().await.unwrap();
        let lease = kept.await.unwrap().unwrap();
        assert!(lease.held());
        lease.release().await.unwrap();
    });
}

/// A lock that is granted to a runtime right before it blocks is released for others.
#[test]
fn a_runtime_that_stands_still_keeps_nobody_from_a_lock() {
    let server = Server::start();
    let (client, other) = (client(&server), client(&server));
    let (stop, stopped) = mpsc::channel::<()>();
    let (asked, asking) = mpsc::channel();
    let standing = thread::spawn(move || {
        runtime().block_on(async move {
            pair(&client, "warm").await;
            let lock = client.lock("x", LockOptions::default()).unwrap();
            let acquiring = lock.acquire();
            let mut acquiring = Box::pin(acquiring);
            // The request is sent, and then nobody polls anything in this runtime.
            assert!(futures_util::poll!(&mut acquiring).is_pending());
            tokio::task::yield_now().await;
            asked.send(()).unwrap();
            stopped.recv().unwrap();
            // The call continues once the runtime does.
            let lease = acquiring.await.unwrap();
            assert!(lease.held());
            assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        });
    });
    asking.recv().unwrap();
    let started = Instant::now();
    runtime().block_on(pair(&other, "x"));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    stop.send(()).unwrap();
    standing.join().unwrap();
}
