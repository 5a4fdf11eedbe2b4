//! The watchdog keeps all other leases alive, whatever happens to one lease or to a listener for events.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use futures_util::future::join_all;
use redlock::{Client, Config, Event, EventSink, Lease, Lock, LockOptions, LostReason, Owner};
use redlock_tests::{
    nodes::{Backend, Node},
    renewed,
    server::Server,
    until,
};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(20);
const WATCHDOG: Duration = Duration::from_secs(3);

fn client(url: &str, events: EventSink) -> Client {
    let mut config = Config::new([url]);
    config.watchdog = WATCHDOG;
    Client::with_events(config, events).unwrap()
}

fn quiet() -> EventSink {
    Arc::new(|_| {})
}

async fn hold(client: &Client, name: &str) -> Lease {
    client.lock(name, LockOptions::default()).unwrap().acquire().await.unwrap()
}

/// Waits until leases that were renewed once are renewed again, so that no earlier reply counts.
async fn all_outlive_their_deadlines(what: &str, leases: &[Lease]) {
    for _ in 0..2 {
        join_all(leases.iter().map(|lease| renewed(SOON, what, lease))).await;
    }
}

/// The lock's key is gone and its note has another type, so the script fails on the server.
#[tokio::test]
async fn a_lock_that_cannot_be_renewed_takes_no_other_with_it() {
    for backend in [Backend::Redis, Backend::Memory] {
        let node = Node::start(backend);
        let client = client(&node.url(), quiet());
        let mut leases = Vec::new();
        for index in 0..20 {
            leases.push(hold(&client, &format!("lock-{index}")).await);
        }
        let bad = leases.remove(7);
        node.delete("lock-7");
        node.put("redlock_ended:{lock-7}", true);
        assert_eq!(timeout(SOON, bad.lost()).await.unwrap(), Some(LostReason::Deleted), "{}", backend.name());
        all_outlive_their_deadlines(backend.name(), &leases).await;
    }
}

/// The user loses the right to some keys, so the server refuses every request that names one of them.
#[tokio::test]
async fn a_lock_that_may_not_be_renewed_takes_no_other_with_it() {
    let server = Server::start();
    let client = client(&server.url(), quiet());
    let mut leases = Vec::new();
    for index in 0..20 {
        leases.push(hold(&client, &format!("lock-{index}")).await);
    }
    let lost = leases.split_off(17);
    let mut rules = vec!["ACL", "SETUSER", "default", "resetkeys", "~redlock_*"];
    let names: Vec<String> = (0..17).map(|index| format!("~lock-{index}")).collect();
    rules.extend(names.iter().map(String::as_str));
    let _: () = server.command(&rules);
    for lease in &lost {
        assert_eq!(timeout(SOON, lease.lost()).await.unwrap(), Some(LostReason::Unreachable));
    }
    all_outlive_their_deadlines("the others", &leases).await;
    let _: () = server.command(&["ACL", "SETUSER", "default", "~*"]);
}

#[tokio::test]
async fn a_sink_that_panics_ends_no_renewal() {
    std::panic::set_hook(Box::new(|_| {}));
    let server = Server::start();
    let panicked = Arc::new(AtomicUsize::new(0));
    let counted = panicked.clone();
    let client = client(
        &server.url(),
        Arc::new(move |event| {
            if matches!(event, Event::Orphaned { .. } | Event::Lost { .. }) {
                counted.fetch_add(1, SeqCst);
                panic!("{event}");
            }
        }),
    );
    let kept = hold(&client, "kept").await;
    {
        let forgotten = hold(&client, "forgotten").await;
        forgotten.disable_release_on_drop();
    }
    until(SOON, "it is told that one was forgotten, and that it ended", || panicked.load(SeqCst) == 2).await;
    all_outlive_their_deadlines("after the panics", &[kept]).await;
}

/// A sink may call the client and gets an answer: the client holds no mutex while it runs.
#[tokio::test]
async fn a_sink_may_call_the_client() {
    let server = Server::start();
    let (tell, told) = mpsc::channel();
    let known: Arc<Mutex<Option<Lock>>> = Arc::default();
    let asked = known.clone();
    let client = client(
        &server.url(),
        Arc::new(move |event| {
            if matches!(event, Event::Lost { .. } | Event::Orphaned { .. }) {
                let lock = asked.lock().unwrap().clone().unwrap();
                tell.send((event.kind(), lock.owned(&Owner::Explicit("me".into())))).unwrap();
            }
        }),
    );
    let lock = || {
        let mut options = LockOptions::default();
        options.owner = Some("me".into());
        client.lock("x", options).unwrap()
    };
    *known.lock().unwrap() = Some(lock());
    lock().acquire().await.unwrap().disable_release_on_drop();
    let told = tokio::task::spawn_blocking(move || (0..2).map(|_| told.recv_timeout(SOON)).collect::<Vec<_>>());
    assert_eq!(told.await.unwrap(), [Ok(("orphaned", true)), Ok(("lost", false))]);
}
