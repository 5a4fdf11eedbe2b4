//! Helpers shared by the tests of all layers: real servers with faults (the crate `redlock-servers`), a common interface
//! to servers and in-memory nodes, the shared scenarios and the drivers that run them in each language, checkers of
//! histories, processes of other languages and libraries, and the parts of the chaos tests: faulty clocks, random
//! faults, and worker processes.

use std::time::Duration;

use redlock::Lease;
pub use redlock_servers::{PATIENCE, locked, port, process, proxy, server, stub, tls, until, wait_until};
use tokio::time::timeout;

pub mod campaign;
pub mod clients;
pub mod clocks;
pub mod contender;
pub mod deployments;
pub mod driver;
#[cfg(target_os = "linux")]
pub mod event_loop;
pub mod history;
pub mod nemesis;
pub mod nodes;
pub mod observer;
pub mod peer;
pub mod register;
pub mod scenario;
pub mod target;
#[cfg(unix)]
pub mod terminal;
pub mod worker;

/// Waits until a server has no keys except those that may stay for a while: token counters, notes of ended tenures, and
/// the marker of a node.
pub async fn nothing_stays(limit: Duration, server: &server::Server) {
    let gone = timeout(limit, until(Duration::MAX, "nothing stays", || left(server).is_empty())).await;
    assert!(gone.is_ok(), "these keys stay: {:?}", left(server));
}

/// The keys of a server, except those that may stay for a while: token counters, notes of ended tenures, and
/// the marker of a node.
pub fn left(server: &server::Server) -> Vec<String> {
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    let may_stay = ["redlock_token", "redlock_slot_tokens", "redlock_ended", "redlock_node"];
    keys.retain(|key| !may_stay.iter().any(|kind| key.starts_with(kind)));
    keys
}

/// Waits until a lease is renewed: only a renewal makes its remaining time grow.
pub async fn renewed(limit: Duration, what: &str, lease: &Lease) {
    let mut least = lease.remaining();
    until(limit, what, || {
        assert_eq!(lease.lost_reason(), None, "lost while waiting until {what}");
        let left = lease.remaining();
        let grown = left > least;
        least = least.min(left);
        grown
    })
    .await;
}
