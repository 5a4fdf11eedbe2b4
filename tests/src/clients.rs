//! Clients, and what the tests of several kinds of lock do with them.

use std::time::Duration;

use redlock::{Client, Config, Lease, LockOptions, ReleaseOutcome, Semaphore, Ttl};
use tokio::{task::JoinHandle, time::timeout};

use crate::{PATIENCE, server::Server};

/// For how long a client's places in a queue count after it last confirmed them.
pub const WAITER_LEASE: Duration = Duration::from_secs(5);

/// So many servers.
pub fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start()).collect()
}

/// The URLs of servers, as one quorum.
pub fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// A client of these nodes.
pub fn client<S: Into<String>>(urls: impl IntoIterator<Item = S>) -> Client {
    client_with(urls, |_| {})
}

/// A client of these nodes with other options than the defaults.
pub fn client_with<S: Into<String>>(urls: impl IntoIterator<Item = S>, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new(urls);
    change(&mut config);
    Client::new(config).expect("valid options")
}

/// Options of a lock other than the defaults.
pub fn options(change: impl FnOnce(&mut LockOptions)) -> LockOptions {
    let mut options = LockOptions::default();
    change(&mut options);
    options
}

/// The semaphore `x`.
pub fn semaphore(client: &Client, permits: u32) -> Semaphore {
    client.semaphore("x", permits, LockOptions::default()).expect("valid options")
}

/// The semaphore `x`, with fixed leases.
pub fn semaphore_for(client: &Client, permits: u32, ttl: Duration) -> Semaphore {
    client.semaphore("x", permits, options(|options| options.ttl = Ttl::Fixed(ttl))).expect("valid options")
}

/// The numbers of a permit's slots.
pub fn numbers(permit: &Lease) -> Vec<u32> {
    permit.slots().iter().map(|slot| slot.number).collect()
}

/// Acquires `n` slots in the background.
pub fn acquires(semaphore: &Semaphore, n: u32) -> JoinHandle<Lease> {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire_many(n).await.expect("nothing ends the wait") })
}

/// The lease of a waiter, which comes soon.
pub async fn got(waiter: JoinHandle<Lease>) -> Lease {
    timeout(PATIENCE, waiter).await.expect("it comes in").expect("the waiter did not panic")
}

/// Releases a lease that is held.
pub async fn released(lease: Lease) {
    assert_eq!(lease.release().await.expect("the nodes answer"), ReleaseOutcome::Released);
}
