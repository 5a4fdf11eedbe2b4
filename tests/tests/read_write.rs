//! Read/write locks on real servers: many readers or one writer. On one server they take turns in phases; on a quorum
//! waiting writers keep new readers out. Redisson's own scripts run beside ours.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures_util::{future::join_all, poll};
use redlock::{
    Client, Config, Identity, Kind, Lease, LockError, LockOptions, LostReason, Owner, ReadWriteLock, ReleaseOutcome,
    Request, Ttl, Wire,
};
use redlock_tests::{
    PATIENCE,
    clients::{WAITER_LEASE, client_with, got, options, released},
    nothing_stays,
    proxy::{Direction, Flow, Proxy},
    server::Server,
    until,
};
use tokio::{task::JoinHandle, time::timeout};

fn client_of(urls: &[String]) -> Client {
    client_with(urls, |config| config.quarantine = false)
}

fn client(server: &Server) -> Client {
    client_of(&[server.url()])
}

fn lock(client: &Client) -> ReadWriteLock {
    client.read_write_lock("x", LockOptions::default()).unwrap()
}

fn lock_with(client: &Client, change: impl FnOnce(&mut LockOptions)) -> Result<ReadWriteLock, LockError> {
    client.read_write_lock("x", options(change))
}

async fn reader(client: &Client) -> Lease {
    lock(client).read().acquire().await.unwrap()
}

async fn writer(client: &Client) -> Lease {
    lock(client).write().acquire().await.unwrap()
}

fn waiting(server: &Server, queue: &str) -> usize {
    server.command(&["ZCARD", &format!("redlock_{queue}:{{x}}")])
}

/// How often a server ran a command.
fn runs(server: &Server, command: &str) -> usize {
    let stats: String = server.command(&["INFO", "commandstats"]);
    let calls = stats.split_once(&format!("cmdstat_{command}:calls="));
    calls.and_then(|(_, rest)| rest.split(',').next()?.parse().ok()).unwrap_or_default()
}

/// Acquires in the background. The waiter has its place when this returns.
async fn waits(server: &Server, client: &Client, queue: &str) -> JoinHandle<Lease> {
    let before = waiting(server, queue);
    let lock = lock(client);
    let half = if queue == "rqueue" { lock.read().clone() } else { lock.write().clone() };
    let waiter = tokio::spawn(async move { half.acquire().await.unwrap() });
    until(PATIENCE, "it has a place", || waiting(server, queue) == before + 1).await;
    waiter
}

/// The calls of a crowd go together: it makes few requests, and a writer gets in behind it.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_readers_makes_few_requests() {
    const CROWD: usize = 300;
    let mut server = Server::start();
    let (client, other) = (client(&server), client(&server));
    // Both halves' scripts are known to the server.
    for _ in 0..2 {
        released(reader(&client).await).await;
    }
    let before = runs(&server, "evalsha");
    let lock = lock(&client);
    server.freeze();
    let mut readers: Vec<_> = (0..CROWD).map(|_| Box::pin(lock.read().acquire())).collect();
    // All are sent before the thaw. A connection that was idle is checked first, which takes some polls.
    for _ in 0..5 {
        for reader in &mut readers {
            assert!(poll!(reader).is_pending());
        }
    }
    server.thaw();
    let held: Vec<Lease> = join_all(readers).await.into_iter().map(Result::unwrap).collect();
    assert!(runs(&server, "evalsha") - before <= 20, "{} requests", runs(&server, "evalsha") - before);
    assert!(held.iter().all(|lease| lease.token() == held[0].token()));
    assert_eq!(server.command::<usize>(&["HLEN", "x"]), CROWD + 1);
    let writer = waits(&server, &other, "wqueue").await;
    let left = join_all(held.iter().map(Lease::release)).await;
    assert!(left.iter().all(|outcome| *outcome.as_ref().unwrap() == ReleaseOutcome::Released));
    released(writer.await.unwrap()).await;
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_read_and_one_writes() {
    for wire in [Wire::Redisson, Wire::Token] {
        let server = Server::start();
        let new = || {
            let mut config = Config::new([server.url()]);
            config.wire = wire;
            Client::new(config).unwrap()
        };
        let (one, two) = (new(), new());
        let readers = [reader(&one).await, reader(&one).await, reader(&two).await];
        let token = readers[0].token();
        assert!(readers.iter().all(|reader| reader.token() == token), "readers do not refuse each other");
        assert!(lock(&two).write().try_acquire().await.unwrap().is_none());
        let info = lock(&two).write().inspect().await.unwrap().unwrap();
        assert_eq!((info.kind, info.token), (Kind::Read, token));
        let mut owners: Vec<&str> = readers.iter().map(Lease::owner).collect();
        let mut seen = info.owners.clone();
        owners.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, owners);
        for lease in readers {
            released(lease).await;
        }
        let write = writer(&two).await;
        assert!(write.token() > token, "{wire:?}");
        assert!(lock(&one).read().try_acquire().await.unwrap().is_none());
        assert!(lock(&one).write().try_acquire().await.unwrap().is_none());
        let info = lock(&one).read().inspect().await.unwrap().unwrap();
        assert_eq!((info.kind, &*info.owner, info.token), (Kind::Write, write.owner(), write.token()));
        assert!(lock(&one).read().locked().await.unwrap());
        let between = write.token();
        released(write).await;
        let read = reader(&one).await;
        assert!(read.token() > between);
        released(read).await;
        nothing_stays(PATIENCE, &server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_lease_takes_nothing_from_a_longer_one() {
    let server = Server::start();
    let (one, two) = (client(&server), client(&server));
    let fixed = |client: &Client, ttl: Duration| {
        let mut options = LockOptions::default();
        options.ttl = Ttl::Fixed(ttl);
        client.read_write_lock("config", options).unwrap()
    };
    let long = fixed(&one, Duration::from_secs(60)).read().acquire().await.unwrap();
    let short = fixed(&two, Duration::from_secs(5)).read().acquire().await.unwrap();
    for key in ["config", "redlock_readers:{config}"] {
        let left: i64 = server.command(&["PTTL", key]);
        assert!(left > 30_000, "{key}: {left} ms");
    }
    released(short).await;
    released(long).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn phases_take_turns() {
    let server = Server::start();
    let clients: Vec<Client> = (0..3).map(|_| client(&server)).collect();
    let first = reader(&clients[0]).await;
    let write = waits(&server, &clients[1], "wqueue").await;
    // A writer waits: new readers of every client wait behind it, and a try does not overtake it.
    let mut reads = Vec::new();
    for number in 0..9 {
        reads.push(waits(&server, &clients[number % 3], "rqueue").await);
    }
    let second = waits(&server, &clients[2], "wqueue").await;
    assert!(lock(&clients[0]).read().try_acquire().await.unwrap().is_none());
    released(first).await;
    let write = got(write).await;
    assert!(reads.iter().all(|read| !read.is_finished()));
    released(write).await;
    // All readers that waited by then enter together, before the next writer.
    let mut inside = Vec::new();
    for read in reads {
        inside.push(got(read).await);
    }
    assert!(inside.iter().all(|lease| lease.held() && lease.token() == inside[0].token()));
    assert!(!second.is_finished());
    for lease in inside {
        released(lease).await;
    }
    released(got(second).await).await;
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_is_gone_or_gives_up_lets_readers_in() {
    let server = Server::start();
    let (one, two) = (client(&server), client(&server));
    let first = reader(&one).await;
    let giving_up = waits(&server, &one, "wqueue").await;
    let read = waits(&server, &two, "rqueue").await;
    giving_up.abort();
    let began = Instant::now();
    released(got(read).await).await;
    assert!(began.elapsed() < WAITER_LEASE / 2, "it is told: {:?}", began.elapsed());
    // The place of a writer that died is dropped after its lease.
    let proxy = Proxy::start(server.port());
    let gone = Client::new(Config::new([proxy.url()])).unwrap();
    let _waiting = waits(&server, &gone, "wqueue").await;
    // From here on no request of that client reaches the server.
    proxy.flow(Direction::Requests, Flow::Hold);
    let began = Instant::now();
    released(got(tokio::spawn(async move { reader(&two).await })).await).await;
    assert!(began.elapsed() < WAITER_LEASE + Duration::from_secs(2), "{:?}", began.elapsed());
    released(first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_one_tenure_take_turns() {
    for nodes in [1, 3] {
        let servers: Vec<Server> = (0..nodes).map(|_| Server::start()).collect();
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        let (one, two) = (client_of(&urls), client_of(&urls));
        for _ in 0..50 {
            let lease = reader(&one).await;
            let (first, second) = tokio::join!(lease.try_upgrade(), lease.try_upgrade());
            assert!(first.unwrap() && second.unwrap(), "{nodes} nodes: it is alone");
            // An upgrade that undid itself would have made it a reader on the servers.
            assert!(lock(&two).read().try_acquire().await.unwrap().is_none(), "{nodes} nodes: it writes");
            let (down, up) = tokio::join!(lease.downgrade(), lease.try_upgrade());
            down.unwrap();
            let read = lock(&two).read().try_acquire().await.unwrap();
            assert_eq!(read.is_none(), up.unwrap() && !lease.reads(), "{nodes} nodes: both agree on what it is");
            if let Some(read) = read {
                released(read).await;
            }
            released(lease).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_lets_in_waiting_readers_of_its_own_client() {
    for nodes in [1, 3] {
        let servers: Vec<Server> = (0..nodes).map(|_| Server::start()).collect();
        let client = client_of(&servers.iter().map(Server::url).collect::<Vec<_>>());
        let lease = writer(&client).await;
        let mut waiting = [(); 2].map(|()| Box::pin(lock(&client).read().acquire()));
        for waiting in &mut waiting {
            assert!(poll!(waiting).is_pending());
        }
        lease.downgrade().await.unwrap();
        for waiting in waiting {
            let reader = timeout(PATIENCE, waiting).await.expect("it comes in").unwrap();
            assert!(reader.held() && lease.held(), "{nodes} nodes");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_becomes_a_reader_and_a_lone_reader_a_writer() {
    for nodes in [1, 3] {
        let servers: Vec<Server> = (0..nodes).map(|_| Server::start()).collect();
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        let (one, two) = (client_of(&urls), client_of(&urls));
        let lease = writer(&one).await;
        let written = lease.token();
        assert!(lease.try_upgrade().await.unwrap(), "a writer is one");
        assert_eq!(lease.token(), written);
        let other = lock(&two).read().clone();
        let waiting = tokio::spawn(async move { other.acquire().await.unwrap() });
        if nodes == 1 {
            until(PATIENCE, "it waits", || self::waiting(&servers[0], "rqueue") == 1).await;
        }
        lease.downgrade().await.unwrap();
        lease.downgrade().await.unwrap();
        let other = got(waiting).await;
        assert!(lease.held() && other.held(), "{nodes} nodes: readers that wait come in");
        assert_eq!(lease.token(), written + 1, "no writer draws it");
        if nodes == 1 {
            assert_eq!(other.token(), lease.token());
        }
        assert!(!lease.try_upgrade().await.unwrap(), "another reads");
        assert!(!other.try_upgrade().await.unwrap(), "another reads");
        assert!(lease.held() && other.held());
        released(other).await;
        assert!(lease.try_upgrade().await.unwrap(), "{nodes} nodes: it is alone");
        assert!(lease.token() > written + 1);
        assert!(lock(&two).read().try_acquire().await.unwrap().is_none());
        lease.extend(Duration::from_secs(20)).await.unwrap();
        let last = lease.token();
        released(lease).await;
        let next = writer(&two).await;
        assert!(next.token() > last);
        released(next).await;
        for server in &servers {
            nothing_stays(PATIENCE, server).await;
        }
    }
}

/// A fixed lease that was extended keeps its later end as a writer.
#[tokio::test]
async fn an_upgrade_shortens_no_lease() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    for urls in [&urls[..1], &urls[..]] {
        let client = client_of(urls);
        let fixed = lock_with(&client, |options| options.ttl = Ttl::Fixed(Duration::from_secs(10))).unwrap();
        let lease = fixed.read().acquire().await.unwrap();
        lease.extend(Duration::from_secs(60)).await.unwrap();
        let left = lease.remaining();
        assert!(lease.try_upgrade().await.unwrap());
        let is_kept = || lease.remaining() + Duration::from_secs(20) > left;
        assert!(urls.len() > 1 || is_kept(), "{:?} of {left:?}", lease.remaining());
        // On a quorum the last node to confirm may be one that counts.
        until(PATIENCE, "it ends as late as before", is_kept).await;
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_may_also_read_and_an_owner_never_waits_for_itself() {
    let server = Server::start();
    let client = client(&server);
    let (lock, me) = (lock(&client), Identity::new());
    let request =
        |wait: Option<Duration>| Request { owner: Owner::Ambient(me.clone()), wait, thread: None, blocking: false };
    let write = lock.write().acquire_as(request(None)).await.unwrap();
    let read = lock.read().acquire_as(request(None)).await.unwrap();
    assert_eq!(read.token(), write.token(), "one tenure");
    released(write).await;
    assert!(read.held() && lock.read().locked().await.unwrap());
    released(read).await;
    let read = lock.read().acquire_as(request(None)).await.unwrap();
    let again = lock.read().acquire_as(request(None)).await.unwrap();
    // A waiting writer does not stop a nested read.
    let writer = waits(&server, &self::client(&server), "wqueue").await;
    let nested = lock.read().acquire_as(request(None)).await.unwrap();
    let own = lock.write().acquire_as(request(None)).await;
    assert!(matches!(own, Err(LockError::Deadlock { .. })), "{own:?}");
    let tried = lock.write().acquire_as(request(Some(Duration::ZERO))).await;
    assert!(matches!(tried, Err(LockError::Timeout { .. })), "{tried:?}");
    for lease in [read, again, nested] {
        released(lease).await;
    }
    released(got(writer).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_one_name_exclude_each_other() {
    let server = Server::start();
    let (one, two) = (client(&server), client(&server));
    let plain = |client: &Client| client.lock("x", LockOptions::default()).unwrap();
    let read = reader(&one).await;
    assert!(plain(&two).try_acquire().await.unwrap().is_none());
    assert_eq!(plain(&two).inspect().await.unwrap().unwrap().kind, Kind::Read);
    released(read).await;
    let held = plain(&one).acquire().await.unwrap();
    assert!(lock(&two).read().try_acquire().await.unwrap().is_none());
    assert!(lock(&two).write().try_acquire().await.unwrap().is_none());
    assert_eq!(lock(&two).read().inspect().await.unwrap().unwrap().kind, Kind::Lock);
    released(held).await;
    // A string is foreign data, or a lock of the other wire.
    let _: String = server.command(&["SET", "x", "data"]);
    for half in [lock(&one).read().clone(), lock(&one).write().clone()] {
        assert!(matches!(half.try_acquire().await, Err(LockError::Conflict { .. })));
    }
    let kept: String = server.command(&["GET", "x"]);
    assert_eq!(kept, "data");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_before_anything_is_sent() {
    let server = Server::start();
    let client = client(&server);
    let argument = |result: Result<ReadWriteLock, LockError>| match result.map(drop) {
        Err(LockError::Invalid { argument, .. }) => argument,
        other => panic!("{other:?}"),
    };
    assert_eq!(argument(lock_with(&client, |options| options.fair = true)), "fair");
    assert_eq!(argument(lock_with(&client, |options| options.owner = Some("me".to_owned()))), "owner");
    assert_eq!(argument(lock_with(&client, |options| options.ttl = Ttl::Fixed(Duration::ZERO))), "ttl");
    assert_eq!(argument(client.read_write_lock("", LockOptions::default())), "name");
    let named = Request { owner: Owner::Explicit("me".to_owned()), wait: None, thread: None, blocking: false };
    let refused = lock(&client).read().acquire_as(named).await;
    assert!(matches!(refused, Err(LockError::Invalid { argument: "owner", .. })), "{refused:?}");
    let plain = client.lock("plain", LockOptions::default()).unwrap().acquire().await.unwrap();
    assert!(matches!(plain.downgrade().await, Err(LockError::Invalid { argument: "lease", .. })));
    assert!(matches!(plain.try_upgrade().await, Err(LockError::Invalid { argument: "lease", .. })));
    released(plain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_dies_frees_its_share_alone() {
    let server = Server::start();
    let (one, two) = (client(&server), client(&server));
    let short = lock_with(&one, |options| options.ttl = Ttl::Fixed(Duration::from_secs(1))).unwrap();
    let dead = short.read().acquire().await.unwrap();
    dead.disable_release_on_drop();
    let alive = reader(&two).await;
    let writer = waits(&server, &one, "wqueue").await;
    until(PATIENCE, "its lease ends", || !dead.held()).await;
    assert!(!writer.is_finished(), "the other still reads");
    assert!(matches!(dead.check(), Err(LockError::Lost { .. })));
    released(alive).await;
    released(got(writer).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_are_renewed_detached_and_ended_on_purpose() {
    let server = Server::start();
    let mut config = Config::new([server.url()]);
    config.watchdog = Duration::from_secs(3);
    let (one, two) = (Client::new(config.clone()).unwrap(), Client::new(config).unwrap());
    for writes in [false, true] {
        let lease = if writes { writer(&one).await } else { reader(&one).await };
        redlock_tests::renewed(PATIENCE, "it is renewed", &lease).await;
        redlock_tests::renewed(PATIENCE, "it is renewed again", &lease).await;
        let (token, text) = (lease.token(), lease.detach().unwrap());
        let attached = two.attach(&text, Owner::Fresh).await.unwrap();
        assert_eq!(attached.token(), token);
        assert!(attached.held() && lock(&one).write().try_acquire().await.unwrap().is_none());
        assert!(matches!(one.attach(&text, Owner::Fresh).await, Err(LockError::Lost { .. })), "once");
        if !writes {
            assert!(attached.try_upgrade().await.unwrap(), "it is what it was");
            attached.downgrade().await.unwrap();
        }
        assert!(one.force_release("x").await.unwrap());
        let lost = timeout(PATIENCE, attached.lost()).await.unwrap();
        assert_eq!(lost, Some(LostReason::Released));
        assert!(!lock(&one).read().locked().await.unwrap());
    }
    nothing_stays(PATIENCE, &server).await;
}

/// Counts who is inside, as the holders believe: never a writer together with anybody else.
#[derive(Default)]
struct Inside {
    readers: AtomicUsize,
    writers: AtomicUsize,
    wrong: AtomicUsize,
    grants: AtomicUsize,
    tokens: Mutex<BTreeMap<u64, char>>,
}

impl Inside {
    fn enter(&self, writes: bool, token: u64) {
        let (mine, others) = if writes { (&self.writers, &self.readers) } else { (&self.readers, &self.writers) };
        let alone = mine.fetch_add(1, SeqCst) == 0 || !writes;
        let wrong = !alone || others.load(SeqCst) > 0;
        self.wrong.fetch_add(usize::from(wrong), SeqCst);
        self.grants.fetch_add(1, SeqCst);
        let kind = if writes { 'w' } else { 'r' };
        let before = self.tokens.lock().unwrap().insert(token, kind);
        // A token belongs to one writer, or to readers only.
        self.wrong.fetch_add(usize::from(before.is_some_and(|before| writes || before == 'w')), SeqCst);
    }

    fn leave(&self, writes: bool) {
        if writes { &self.writers } else { &self.readers }.fetch_sub(1, SeqCst);
    }
}

/// Runs many readers and writers at once; returns how many were let in.
async fn at_once(urls: &[String], each: usize) -> usize {
    let inside = Arc::new(Inside::default());
    let clients: Vec<Client> = (0..4).map(|_| client_of(urls)).collect();
    let workers = (0..16).map(|number| {
        let (inside, client) = (inside.clone(), clients[number % 4].clone());
        tokio::spawn(async move {
            for round in 0..each {
                let writes = (number + round) % 4 == 0;
                let lease = if writes { writer(&client).await } else { reader(&client).await };
                inside.enter(writes, lease.token());
                tokio::task::yield_now().await;
                if writes && round % 3 == 0 {
                    inside.leave(true);
                    lease.downgrade().await.unwrap();
                    inside.enter(false, lease.token());
                    inside.leave(false);
                } else if !writes && round % 5 == 0 {
                    inside.leave(false);
                    let upgraded = lease.try_upgrade().await.unwrap();
                    inside.enter(upgraded, lease.token());
                    inside.leave(upgraded);
                } else {
                    inside.leave(writes);
                }
                released(lease).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        timeout(Duration::from_secs(120), worker).await.expect("nobody starves").unwrap();
    }
    assert_eq!(inside.wrong.load(SeqCst), 0);
    inside.grants.load(SeqCst)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_on_one_server() {
    let server = Server::start();
    assert!(at_once(&[server.url()], 100).await >= 1_600);
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_on_a_quorum() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    assert!(at_once(&urls, 20).await >= 320);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_quorum_a_writer_that_waits_holds_new_readers_back() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start()).collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let (one, two) = (client_of(&urls), client_of(&urls));
    let first = reader(&one).await;
    let lock_two = lock(&two);
    let write = tokio::spawn({
        let write = lock_two.write().clone();
        async move { write.acquire().await.unwrap() }
    });
    until(PATIENCE, "every node knows", || servers.iter().all(|server| waiting(server, "wqueue") == 1)).await;
    assert!(lock(&one).read().try_acquire().await.unwrap().is_none());
    released(first).await;
    released(got(write).await).await;
    released(reader(&one).await).await;
    // A writer that gives up keeps nobody out, and tells so the readers that wait.
    let first = reader(&one).await;
    let impatient = lock_with(&two, |options| options.wait = Some(Duration::from_millis(500))).unwrap();
    let given_up = tokio::spawn(async move { impatient.write().acquire().await });
    until(PATIENCE, "every node knows", || servers.iter().all(|server| waiting(server, "wqueue") == 1)).await;
    let before: Vec<usize> = servers.iter().map(|server| runs(server, "publish")).collect();
    assert!(matches!(given_up.await.unwrap(), Err(LockError::Timeout { .. })));
    until(PATIENCE, "no node knows of it", || servers.iter().all(|server| waiting(server, "wqueue") == 0)).await;
    assert!(servers.iter().zip(&before).all(|(server, before)| runs(server, "publish") > *before));
    released(reader(&two).await).await;
    released(first).await;
    for server in &servers {
        nothing_stays(PATIENCE, server).await;
    }
}

/// A reader as Redisson writes it: a count, and a key for each of its holds.
struct Foreign<'a>(&'a Server, &'static str);

impl Foreign<'_> {
    fn note(&self, hold: usize) -> String {
        format!("{{x}}:{}:rwlock_timeout:{hold}", self.1)
    }

    fn enter(&self, holds: usize) {
        let _: usize = self.0.command(&["HSET", "x", "mode", "read", self.1, &holds.to_string()]);
        for hold in 1..=holds {
            let _: () = self.0.command(&["SET", &self.note(hold), "1", "PX", "30000"]);
        }
        let _: usize = self.0.command(&["PEXPIRE", "x", "30000"]);
    }

    /// Expires the reader, while others keep the hash alive.
    fn expire(&self, holds: usize) {
        for hold in 1..=holds {
            let _: usize = self.0.command(&["DEL", &self.note(hold)]);
        }
    }
}

/// Imitates Redisson; a real one runs beside ours in `tests/tests/interop`.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_others_count_while_their_keys_live() {
    let server = Server::start();
    let client = client(&server);
    let read = reader(&client).await;
    let (one, two) = (Foreign(&server, "java:1"), Foreign(&server, "java:2"));
    one.enter(2);
    two.enter(1);
    assert_eq!(lock(&client).read().inspect().await.unwrap().unwrap().owners.len(), 3);
    one.expire(2);
    released(read).await;
    assert!(lock(&client).write().try_acquire().await.unwrap().is_none(), "one is left");
    two.expire(1);
    released(writer(&client).await).await;
    nothing_stays(PATIENCE, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_readers_that_wait_come_in_together() {
    let server = Server::start();
    let (one, two) = (client(&server), client(&server));
    let held = writer(&one).await;
    let waiter = waits(&server, &two, "rqueue").await;
    // More readers of that client than one command of the script lists.
    let script = "local client = redis.call('ZRANGE', KEYS[2], '0', '0')[1]
        for i = 1, 2500 do redis.call('ZADD', KEYS[1], i, '60000/' .. client .. '/many:' .. i) end";
    let _: () = server.command(&["EVAL", script, "2", "redlock_rqueue:{x}", "redlock_alive:{x}"]);
    released(held).await;
    let lease = got(waiter).await;
    assert_eq!(waiting(&server, "rqueue"), 0);
    assert_eq!(server.command::<u32>(&["HLEN", "x"]), 2502);
    released(lease).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_was_let_in_is_not_refused_when_memory_is_full() {
    let server = Server::start();
    let (one, two) = (client(&server), client(&server));
    let held = writer(&one).await;
    let waiter = waits(&server, &two, "rqueue").await;
    let _: () = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    released(held).await;
    let lease = got(waiter).await;
    released(lease).await;
    nothing_stays(PATIENCE, &server).await;
}
