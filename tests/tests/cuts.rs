//! Cuts a connection after every single byte of every request and every reply, for each kind of call. Every call must
//! return with an outcome that it may have; in the end no key, no subscription and no connection may be left.
//!
//! Leases are so long that no key expires by itself. By default the exchanges of a new connection are cut only after
//! every 13th byte, and all connections of a quorum at once only after every fifth. `REDLOCK_CUT_STRIDE=1` cuts those
//! after every byte too, which takes long.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use redlock::{
    Client, Config, Lease, LockError, LockOptions, Owner, ReleaseOutcome, Ttl,
    ffi::{Operation, Value},
};
use redlock_tests::{
    campaign::number,
    event_loop::Loop,
    proxy::{Cut, DIRECTIONS, Direction, Proxy},
    server::Server,
    until,
};
use tokio::task::spawn_blocking;

/// Far longer than any case takes.
const LEASE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(30);
/// How many cases run at once. Most of their time they wait for a new connection.
const TOGETHER: usize = 48;

/// The call that is under way when the connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// A try as the first request of a new client.
    First,
    Try,
    /// A try on the connection of blocking callers.
    TryBlocking,
    /// A try on the connection of an event loop; `FirstHosted` is its first request.
    TryHosted,
    FirstHosted,
    /// A renewal.
    Extend,
    Release,
    ReleaseBlocking,
    ReleaseHosted,
    /// An attach, repeated until it succeeds.
    Attach,
    /// An acquire that finds the lock held, subscribes, and gets the lock on its release.
    Wait,
}

/// Servers, a proxy in front of each, and a client that connects through the proxies.
struct Case {
    servers: Arc<Vec<Server>>,
    proxies: Vec<Proxy>,
    client: Client,
    host: Arc<Mutex<Loop>>,
    name: String,
}

#[allow(clippy::unnecessary_wraps, reason = "what blocking calls take")]
fn go_on() -> Result<(), LockError> {
    Ok(())
}

/// Limits the duration of every call, whatever happens to its connection.
async fn returns<T>(what: &str, call: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, call).await.unwrap_or_else(|_| panic!("{what} does not return"))
}

impl Case {
    fn new(servers: &Arc<Vec<Server>>) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::start(server.port())).collect();
        let client = Client::new(Config::new(proxies.iter().map(Proxy::url))).unwrap();
        let name = format!("lock-{}", NUMBER.fetch_add(1, Relaxed));
        Self { servers: servers.clone(), proxies, client, host: Arc::new(Mutex::new(Loop::new())), name }
    }

    fn lock(&self) -> redlock::Lock {
        lock(&self.client, &self.name)
    }

    async fn blocking(&self) -> Result<Lease, LockError> {
        let lock = self.lock();
        let request = redlock::Request { wait: Some(Duration::ZERO), ..lock.request(Owner::Fresh) };
        spawn_blocking(move || lock.acquire_interruptible(request, &mut go_on)).await.unwrap()
    }

    /// A try by an event loop.
    async fn hosted(&self) -> Result<Lease, LockError> {
        let (lock, host) = (self.lock(), self.host.clone());
        let request = redlock::Request { wait: Some(Duration::ZERO), ..lock.request(Owner::Fresh) };
        let outcome = spawn_blocking(move || {
            let mut host = host.lock().unwrap();
            let call = host.calls.start(Operation::Acquire(&lock, request));
            host.end(call)
        });
        match outcome.await.unwrap()? {
            Value::Lease(lease) => Ok(lease),
            other => panic!("no lease: {other:?}"),
        }
    }

    async fn release_hosted(&self, lease: Lease) -> ReleaseOutcome {
        let host = self.host.clone();
        spawn_blocking(move || host.lock().unwrap().release(&lease)).await.unwrap()
    }

    /// Prepares the call, calls `armed`, and makes the call.
    async fn run(&self, call: Call, armed: impl FnOnce()) -> &'static str {
        let lock = self.lock();
        let shown = format!("{call:?} of {}", self.name);
        // Except for the `First` cases, the connection exists before, with everything that a new one exchanges.
        match call {
            Call::First | Call::FirstHosted => {}
            Call::TryHosted | Call::ReleaseHosted => {
                let lease = self.hosted().await.unwrap();
                self.release_hosted(lease).await;
            }
            Call::TryBlocking | Call::ReleaseBlocking => {
                let lease = self.blocking().await.unwrap();
                spawn_blocking(move || lease.release_interruptible(&mut go_on)).await.unwrap().unwrap();
            }
            _ => drop(lock.acquire().await.unwrap().release().await),
        }
        // A release returns once a majority has confirmed it. If the last node were cut off before its own release
        // arrives, it would deny the next acquire. With a second node cut off, that would look like another holder.
        until(PATIENCE, "all nodes have released it", || !self.exists()).await;
        match call {
            Call::First | Call::Try | Call::TryBlocking | Call::TryHosted | Call::FirstHosted => {
                armed();
                let lease = match call {
                    Call::TryBlocking => returns(&shown, self.blocking()).await.map(Some),
                    Call::TryHosted | Call::FirstHosted => returns(&shown, self.hosted()).await.map(Some),
                    _ => returns(&shown, lock.try_acquire()).await,
                };
                match lease {
                    Ok(lease) => {
                        let lease = lease.unwrap_or_else(|| panic!("{shown}: nobody else holds it"));
                        assert!(lease.held(), "{shown}");
                        let release = async {
                            match call {
                                Call::TryBlocking => {
                                    spawn_blocking(move || lease.release_interruptible(&mut go_on)).await.unwrap()
                                }
                                Call::TryHosted | Call::FirstHosted => Ok(self.release_hosted(lease).await),
                                _ => lease.release().await,
                            }
                        };
                        released(returns(&shown, release).await.unwrap())
                    }
                    Err(error) => error.code(),
                }
            }
            Call::Extend => {
                let lease = lock.acquire().await.unwrap();
                armed();
                let extended = returns(&shown, lease.extend(LEASE)).await;
                assert!(lease.held(), "{shown}");
                released(returns(&shown, lease.release()).await.unwrap());
                extended.map_or_else(|error| error.code(), |()| "ok")
            }
            Call::Release => {
                let lease = lock.acquire().await.unwrap();
                armed();
                released(returns(&shown, lease.release()).await.unwrap())
            }
            Call::ReleaseBlocking => {
                let lease = self.blocking().await.unwrap();
                armed();
                let release = spawn_blocking(move || lease.release_interruptible(&mut go_on));
                released(returns(&shown, release).await.unwrap().unwrap())
            }
            Call::ReleaseHosted => {
                let lease = self.hosted().await.unwrap();
                armed();
                released(returns(&shown, self.release_hosted(lease)).await)
            }
            Call::Attach => {
                let held = lock.acquire().await.unwrap();
                let text = held.detach().unwrap();
                armed();
                let first = returns(&shown, self.client.attach(&text, Owner::Fresh)).await;
                let outcome = first.as_ref().map_or_else(LockError::code, |_| "ok");
                // An attach that failed may have been executed. The text must be as valid as before.
                let mut attached = first;
                let start = Instant::now();
                while matches!(attached, Err(LockError::Unavailable { .. })) {
                    assert!(start.elapsed() < PATIENCE, "{shown}: {attached:?}");
                    attached = returns(&shown, self.client.attach(&text, Owner::Fresh)).await;
                }
                let lease = attached.unwrap_or_else(|error| panic!("{shown}: {outcome}, then {error}"));
                assert_eq!(lease.token(), held.token(), "{shown}");
                released(returns(&shown, lease.release()).await.unwrap());
                outcome
            }
            Call::Wait => {
                let other = Client::new(Config::new(self.servers.iter().map(Server::url))).unwrap();
                let holder = self::lock(&other, &self.name).acquire().await.unwrap();
                armed();
                let waiting = tokio::spawn(lock.acquire());
                // Either the waiter has subscribed, or its connection was cut before.
                until(PATIENCE, "the waiter waits", || {
                    let cut = self.proxies.iter().all(|proxy| DIRECTIONS.iter().all(|way| !proxy.is_armed(*way)));
                    cut || self.subscribers() == 1
                })
                .await;
                holder.release().await.unwrap();
                other.close().await;
                let lease = returns(&shown, waiting).await.unwrap().unwrap();
                released(returns(&shown, lease.release()).await.unwrap())
            }
        }
    }

    fn subscribers(&self) -> usize {
        self.servers.iter().map(|server| server.waiting(&self.name)).sum()
    }

    fn exists(&self) -> bool {
        self.servers.iter().any(|server| server.command(&["EXISTS", &self.name]))
    }
}

fn lock(client: &Client, name: &str) -> redlock::Lock {
    let mut options = LockOptions::default();
    options.ttl = Ttl::Fixed(LEASE);
    client.lock(name, options).unwrap()
}

/// The outcome of a release. It is never `lost`, since nobody else can have ended the tenure.
fn released(outcome: ReleaseOutcome) -> &'static str {
    assert_ne!(outcome, ReleaseOutcome::Lost);
    if outcome == ReleaseOutcome::Released { "ok" } else { outcome.as_str() }
}

/// Cuts after every `stride`-th byte of one direction, and counts the outcomes.
async fn cut(servers: &Arc<Vec<Server>>, call: Call, way: Direction, stride: u64) {
    // The length of the exchange without a cut. The second run counts, since the server knows the scripts by then.
    let mut length = 0;
    for _ in 0..2 {
        let whole = Case::new(servers);
        let passed = || whole.proxies.iter().map(|proxy| proxy.passed(way));
        let mut before: Vec<u64> = Vec::new();
        assert_eq!(whole.run(call, || before = passed().collect()).await, "ok", "{call:?}");
        // Requests to a minority may still be under way.
        length = passed().zip(before).map(|(after, before)| after - before).max().unwrap();
        whole.client.close().await;
    }

    let outcomes = stream::iter((0..=length).step_by(stride as usize)).map(|after| async move {
        let case = Case::new(servers);
        let arm = || {
            for proxy in &case.proxies {
                proxy.cut_after(way, after, Cut::Whole);
            }
        };
        let outcome = case.run(call, arm).await;
        let expected: &[&str] = match call {
            Call::Wait => &["ok", "unconfirmed"],
            Call::Extend | Call::Attach => &["ok", "unavailable"],
            _ => &["ok", "unconfirmed", "unavailable"],
        };
        assert!(expected.contains(&outcome), "{call:?} cut after {after} of {length} {way:?}: {outcome}");
        until(PATIENCE, &format!("{call:?} cut after {after} of {length} {way:?} leaves nothing"), || {
            !case.exists() && case.subscribers() == 0
        })
        .await;
        returns("close", case.client.close()).await;
        outcome
    });
    let outcomes: Vec<&str> = outcomes.buffer_unordered(TOGETHER).collect().await;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for outcome in &outcomes {
        *counts.entry(outcome).or_default() += 1;
    }
    println!("{call:?} on {} node(s), {way:?}, {length} bytes: {} cuts, {counts:?}", servers.len(), outcomes.len());
}

async fn every_byte(nodes: usize, calls: &[Call], stride: u64) {
    let servers: Arc<Vec<Server>> = Arc::new((0..nodes).map(|_| Server::start()).collect());
    for call in calls {
        for way in DIRECTIONS {
            cut(&servers, *call, way, stride).await;
        }
    }
    for server in servers.iter() {
        until(PATIENCE, "no connection is left", || {
            let clients = |kind| server.command::<String>(&["CLIENT", "LIST", "TYPE", kind]).lines().count();
            // The only client left is the connection of this command.
            clients("normal") == 1 && clients("pubsub") == 0
        })
        .await;
        let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
        keys.retain(|key| !key.starts_with("redlock_token") && key != "redlock_node");
        assert_eq!(keys, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acquires_leave_nothing() {
    every_byte(1, &[Call::Try, Call::TryBlocking], 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_and_releases_leave_nothing() {
    every_byte(1, &[Call::Extend, Call::Release, Call::ReleaseBlocking], 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attaches_leave_their_text_as_it_was() {
    every_byte(1, &[Call::Attach], 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_loops_leave_nothing() {
    every_byte(1, &[Call::TryHosted, Call::ReleaseHosted], 1).await;
    every_byte(1, &[Call::FirstHosted], number("REDLOCK_CUT_STRIDE").unwrap_or(13)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_leave_nothing() {
    every_byte(1, &[Call::Wait], number("REDLOCK_CUT_STRIDE").unwrap_or(13)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_connections_leave_nothing() {
    every_byte(1, &[Call::First], number("REDLOCK_CUT_STRIDE").unwrap_or(13)).await;
}

/// Cuts all three connections at once.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_quorum_too() {
    every_byte(3, &[Call::Try, Call::Release, Call::Attach], number("REDLOCK_CUT_STRIDE").unwrap_or(5)).await;
}

/// A waiter that misses the message of a release notices the release by polling.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_message_costs_one_poll() {
    let servers = Arc::new(vec![Server::start()]);
    let case = Case::new(&servers);
    let other = Client::new(Config::new([servers[0].url()])).unwrap();
    let holder = lock(&other, &case.name).acquire().await.unwrap();
    let waiting = tokio::spawn(case.lock().acquire());
    until(PATIENCE, "the waiter is subscribed", || case.subscribers() == 1).await;
    case.proxies[0].swallow(Direction::Replies, b"message");
    let start = Instant::now();
    holder.release().await.unwrap();
    let lease = returns("the waiter", waiting).await.unwrap().unwrap();
    assert!(!case.proxies[0].is_hungry(Direction::Replies), "the message was not there to be lost");
    // The next poll is at most 2.5 s away; the key would live for a minute.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    lease.release().await.unwrap();
}
