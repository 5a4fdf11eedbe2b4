//! What an operator's survey finds: contended locks, all locks, a lock node by node; and a release by force that ends one
//! tenure. On real servers, and in memory. Clusters and Sentinel have the same tests in the crate of the command line.

use std::time::Duration;

use redlock::{Client, Config, Contended, Kind, LockError, LockOptions, Ttl};
use redlock_tests::server::Server;

fn options() -> LockOptions {
    let mut options = LockOptions::default();
    options.ttl = Ttl::Fixed(Duration::from_secs(60));
    options
}

/// Waits until all nodes have holders of a lock, or none has: the last request of an acquire or a release may arrive after
/// the quorum's reply.
async fn all_nodes_agree(client: &Client, name: &str, held: bool) {
    loop {
        let views = client.inspect_nodes(name).await.expect("an answer");
        if views.iter().all(|view| view.state.as_ref().is_ok_and(|state| state.owners.is_empty() != held)) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Runs a test with clients of one server, of a quorum of three, and of a store in memory. Each has a prefix with
/// characters that patterns know.
async fn everywhere(name: &str, test: impl AsyncFn(Client)) {
    let servers = [Server::start(), Server::start(), Server::start(), Server::start()];
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    for urls in [urls[..1].to_vec(), urls[1..].to_vec(), vec![format!("memory://survey-{name}")]] {
        let mut config = Config::new(urls);
        "p*[x]:".clone_into(&mut config.prefix);
        let client = Client::new(config).expect("a configuration");
        test(client.clone()).await;
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contended_locks_have_waiters() {
    everywhere("contended", async |client| {
        assert_eq!(client.contended().await.expect("an answer"), []);
        let lock = client.lock("x", options()).expect("a lock");
        let lease = lock.acquire().await.expect("a lease");
        // A waiter of the same client would wait for its neighbour, and listen to no server.
        let other = Client::new(client.config().clone()).expect("a configuration");
        let waiter = tokio::spawn(other.lock("x", options()).expect("a lock").acquire());
        let found = loop {
            let found = client.contended().await.expect("an answer");
            if !found.is_empty() {
                break found;
            }
            tokio::task::yield_now().await;
        };
        let [Contended { name, waiting: 1, .. }] = &found[..] else { panic!("{found:?}") };
        assert_eq!(name, "x");
        lease.release().await.expect("a release");
        waiter.await.expect("a task").expect("a lease").release().await.expect("a release");
        other.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_finds_each_held_lock() {
    everywhere("scan", async |client| {
        let mut leases = Vec::new();
        for name in ["a", "b", "c*"] {
            leases.push(client.lock(name, options()).expect("a lock").acquire().await.expect("a lease"));
        }
        let read = client.read_write_lock("reads", options()).expect("a lock").read().acquire().await.expect("a lease");
        let mut scan = client.scan();
        let mut names = Vec::new();
        while let Some(page) = scan.next_page().await.expect("a page") {
            assert!(page.visited <= page.keys, "{page:?}");
            names.extend(page.names);
        }
        names.sort();
        names.dedup();
        assert_eq!(names, ["a", "b", "c*", "reads"]);
        drop((leases, read));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_free_locks_are_forgotten() {
    everywhere("forget", async |client| {
        let acquire = async |name| client.lock(name, options()).expect("a lock").acquire().await.expect("a lease");
        acquire("free").await.release().await.expect("a release");
        let held = acquire("held").await;
        let tokens = async |name| -> Vec<u64> {
            let views = client.inspect_nodes(name).await.expect("an answer");
            views.iter().map(|view| view.state.as_ref().expect("a state").token).collect()
        };
        // A release is done when a quorum has confirmed it: the last node may still hold the lock.
        loop {
            client.forget(&["free".to_owned(), "held".to_owned(), "unknown".to_owned()]).await.expect("an answer");
            if tokens("free").await.iter().all(|token| *token == 0) {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert!(tokens("held").await.contains(&held.token()));
        held.release().await.expect("a release");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_tells_its_holder() {
    everywhere("nodes", async |client| {
        let lease = client.lock("x", options()).expect("a lock").acquire().await.expect("a lease");
        let views = client.inspect_nodes("x").await.expect("an answer");
        assert_eq!(views.len(), client.nodes().len());
        let held = views.iter().filter(|view| view.state.as_ref().is_ok_and(|state| state.kind == Some(Kind::Lock)));
        let needed = views.len() / 2 + 1;
        assert!(held.count() >= needed, "{views:?}");
        let known: Vec<u64> = views.iter().map(|view| view.state.as_ref().expect("a state").token).collect();
        assert!(known.contains(&lease.token()), "{known:?}");
        lease.release().await.expect("a release");
        let free = client.inspect_nodes("free").await.expect("an answer");
        for view in free {
            let state = view.state.expect("a state");
            assert_eq!((state.kind, state.ttl, state.token, view.waiting), (None, None, 0, Some(0)));
        }
        assert!(matches!(client.inspect_nodes("").await, Err(LockError::Invalid { argument: "name", .. })));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hash_without_a_ttl_is_no_lock() {
    let servers = [Server::start(), Server::start(), Server::start()];
    for urls in [&servers[..1], &servers[..]] {
        let client = Client::new(Config::new(urls.iter().map(Server::url))).expect("a configuration");
        for fields in [&["field", "1"][..], &["mode", "read", "field", "1"]] {
            for server in urls {
                let _: i64 = server.command(&[&["HSET", "x"], fields].concat());
            }
            let lock = client.lock("x", options()).expect("a lock");
            assert!(matches!(lock.try_acquire().await, Err(LockError::Conflict { .. })));
            assert!(matches!(lock.inspect().await, Err(LockError::Conflict { .. })));
            assert!(matches!(lock.locked().await, Err(LockError::Conflict { .. })));
            let views = client.inspect_nodes("x").await.expect("an answer");
            assert!(views.iter().all(|view| view.state.is_err()), "{views:?}");
        }
        client.close().await;
        for server in urls {
            let _: i64 = server.command(&["DEL", "x"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_a_min_hold_is_found_and_has_no_holder() {
    everywhere("rest", async |client| {
        let mut resting = options();
        resting.min_hold = Some(Duration::from_secs(60));
        let lease = client.lock("x", resting.clone()).expect("a lock").acquire().await.expect("a lease");
        lease.release().await.expect("a release");
        let both = client.read_write_lock("y", resting).expect("a lock");
        both.write().acquire().await.expect("a lease").release().await.expect("a release");
        let mut scan = client.scan();
        let mut names = Vec::new();
        while let Some(page) = scan.next_page().await.expect("a page") {
            names.extend(page.names);
        }
        names.sort();
        names.dedup();
        assert_eq!(names, ["x", "y"]);
        for name in names {
            let views = client.inspect_nodes(&name).await.expect("an answer");
            let rests = views.iter().filter(|view| {
                let state = view.state.as_ref().expect("a state");
                state.kind == Some(Kind::Rest) && state.owners.is_empty() && state.ttl.is_some()
            });
            let needed = views.len() / 2 + 1;
            assert!(rests.count() >= needed, "{name}: {views:?}");
        }
        assert!(client.force_release_token("x", lease.token()).await.expect("an answer"));
        assert!(
            client
                .inspect_nodes("x")
                .await
                .expect("an answer")
                .iter()
                .any(|view| { view.state.as_ref().is_ok_and(|state| state.kind.is_none()) })
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_ends_its_own_tenure() {
    everywhere("token", async |client| {
        let lock = client.lock("x", options()).expect("a lock");
        let end = async |token| client.force_release_token("x", token).await.expect("an answer");
        assert!(!end(1).await, "nobody holds it");
        let first = lock.acquire().await.expect("a lease");
        first.release().await.expect("a release");
        all_nodes_agree(&client, "x", false).await;
        let second = lock.acquire().await.expect("a lease");
        all_nodes_agree(&client, "x", true).await;
        assert!(!end(first.token()).await);
        assert!(lock.locked().await.expect("an answer"));
        assert!(end(second.token()).await);
        all_nodes_agree(&client, "x", false).await;
        assert!(!lock.locked().await.expect("an answer"));

        let both = client.read_write_lock("y", options()).expect("a lock");
        let reader = both.read().acquire().await.expect("a lease");
        all_nodes_agree(&client, "y", true).await;
        let end = async |token| client.force_release_token("y", token).await.expect("an answer");
        assert!(!end(reader.token() - 1).await);
        assert!(end(reader.token()).await);
        all_nodes_agree(&client, "y", false).await;
        let writer = both.write().try_acquire().await.expect("an answer").expect("the lock is free");
        assert!(end(writer.token()).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_survey_of_servers_that_are_down_is_an_outage() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let client = Client::new(Config::new(servers.iter().map(Server::url))).expect("a configuration");
    servers[0].stop();
    assert!(client.contended().await.is_ok());
    assert!(client.scan().next_page().await.is_ok());
    servers[1].stop();
    assert!(matches!(client.contended().await, Err(LockError::Unavailable { needed: 2, nodes: 3, .. })));
    assert!(matches!(client.scan().next_page().await, Err(LockError::Unavailable { .. })));
    let views = client.inspect_nodes("x").await.expect("an answer");
    let told: Vec<bool> = views.iter().map(|view| view.state.is_ok()).collect();
    assert_eq!(told, [false, false, true]);
    assert!(views.iter().all(|view| view.state.as_ref().err().is_none_or(|cause| !cause.forbidden)));
}

/// Starts an acquire of a client of its own, and returns once `client` sees so many waiters.
async fn queued(client: &Client, wanted: usize, lock: impl FnOnce(&Client) -> redlock::Lock) -> Client {
    let mut config = client.config().clone();
    config.app = Some(format!("waiter {wanted}"));
    let other = Client::new(config).expect("a configuration");
    let acquire = lock(&other).acquire();
    tokio::spawn(async move {
        // Its client is closed while it waits.
        let _ = acquire.await;
    });
    while client.queue("x").await.expect("an answer").len() < wanted {
        tokio::task::yield_now().await;
    }
    other
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_are_read_in_their_order() {
    let server = Server::start();
    for url in [server.url(), "memory://survey-queue".to_owned()] {
        let client = Client::new(Config::new([url])).expect("a configuration");
        assert_eq!(client.queue("x").await.expect("an answer"), []);

        let fair = |client: &Client| {
            let mut options = options();
            options.fair = true;
            client.lock("x", options).expect("a lock")
        };
        let holder = fair(&client).acquire().await.expect("a lease");
        let others = [queued(&client, 1, fair).await, queued(&client, 2, fair).await];
        let queue = client.queue("x").await.expect("an answer");
        let apps: Vec<Option<&str>> = queue.iter().map(|waiter| waiter.app.as_deref()).collect();
        assert_eq!(apps, [Some("waiter 1"), Some("waiter 2")], "{queue:?}");
        assert!(queue[0].since < queue[1].since, "{queue:?}");
        for waiter in &queue {
            assert_eq!((waiter.kind, waiter.slots), (Kind::Lock, 1), "{waiter:?}");
            assert_eq!(waiter.pid, Some(std::process::id()), "{waiter:?}");
            assert!(waiter.valid_for <= Duration::from_secs(5), "{waiter:?}");
        }
        for other in others {
            other.close().await;
        }
        holder.release().await.expect("a release");

        let both = |client: &Client| client.read_write_lock("x", options()).expect("a lock");
        let holder = both(&client).write().acquire().await.expect("a lease");
        let others = [
            queued(&client, 1, |client| both(client).read().clone()).await,
            queued(&client, 2, |client| both(client).write().clone()).await,
            queued(&client, 3, |client| both(client).read().clone()).await,
        ];
        let kinds: Vec<Kind> = client.queue("x").await.expect("an answer").iter().map(|waiter| waiter.kind).collect();
        assert_eq!(kinds, [Kind::Read, Kind::Write, Kind::Read]);
        for other in others {
            other.close().await;
        }
        holder.release().await.expect("a release");

        let permits = client.semaphore("x", 3, options()).expect("a semaphore");
        let holder = permits.acquire_many(3).await.expect("a lease");
        let other = queued(&client, 1, |client| {
            let permits = client.semaphore("x", 3, options()).expect("a semaphore");
            permits.taking(2).expect("2 of 3")
        })
        .await;
        let queue = client.queue("x").await.expect("an answer");
        assert_eq!((queue[0].kind, queue[0].slots), (Kind::Semaphore, 2), "{queue:?}");
        other.close().await;
        holder.release().await.expect("a release");
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_nodes_keep_no_queue() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let client = Client::new(Config::new(servers.iter().map(Server::url))).expect("a configuration");
    assert_eq!(client.queue("x").await.expect("an answer"), []);
    assert!(matches!(client.queue("").await, Err(LockError::Invalid { argument: "name", .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_cannot_be_read_is_an_error() {
    let mut server = Server::start();
    let client = Client::new(Config::new([server.url()])).expect("a configuration");
    let _: i64 = server.command(&["LPUSH", "x", "somebody's"]);
    assert!(matches!(client.queue("x").await, Err(LockError::Conflict { .. })));
    server.stop();
    assert!(matches!(client.queue("y").await, Err(LockError::Unavailable { .. })));
}
