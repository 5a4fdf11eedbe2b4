//! What is given up half-way: a call whose future is dropped leaves nothing behind and keeps nobody waiting.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use redlock::{Client, Config, Lock, LockOptions, Owner, ReleaseOutcome};
use redlock_tests::server::Server;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);

fn client(url: &str) -> Client {
    Client::new(Config::new([url])).unwrap()
}

fn lock(client: &Client, owner: Option<&str>) -> Lock {
    let mut options = LockOptions::default();
    options.owner = owner.map(str::to_owned);
    client.lock("x", options).unwrap()
}

/// Drops a release before anything was sent, in each way there is to ask for one: somebody who waits for the lock gets
/// it long before its ttl ends.
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
            let client = client(&url);
            let (lock, other) = (lock(&client, None), lock(&client, Some("another")));
            let lease = lock.acquire().await.unwrap();
            // In the queue behind it, before it is awaited.
            let waiting = other.acquire();
            release(&lock, &lease);
            let again = timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("{url}, {what}: never released"));
            again.unwrap().release().await.unwrap();
            // A later call learns how it ended.
            assert_eq!(timeout(SOON, lease.release()).await.expect(what).unwrap(), ReleaseOutcome::Released);
            assert!(!lock.locked().await.unwrap(), "{url}, {what}");
        }
    }
}
