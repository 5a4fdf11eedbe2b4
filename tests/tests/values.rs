//! The features that drop-in shims of other libraries need, on a real server: locks with a chosen value, locks
//! without a ttl, and operations on a value that this process does not hold by a lease.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use redlock::{Client, Config, Lease, LockError, LockOptions, Memory, ReleaseOutcome, Retime, Ttl, Wire};
use redlock_tests::{
    proxy::{Direction, Proxy},
    server::Server,
    wait_until,
};

const LONG: Duration = Duration::from_secs(20);

fn config(urls: impl IntoIterator<Item = String>) -> Config {
    let mut config = Config::new(urls);
    config.wire = Wire::Token;
    config
}

fn client(server: &Server) -> Client {
    Client::new(config([server.url()])).unwrap()
}

fn options(value: &str, ttl: Ttl) -> LockOptions {
    let mut options = LockOptions::default();
    (options.value, options.ttl, options.wait) = (Some(value.to_owned()), ttl, Some(LONG));
    options
}

async fn held(client: &Client, value: &str, ttl: Ttl) -> Lease {
    client.lock("x", options(value, ttl)).unwrap().acquire().await.unwrap()
}

fn get(server: &Server) -> Option<String> {
    server.command(&["GET", "x"])
}

fn pttl(server: &Server) -> i64 {
    server.command(&["PTTL", "x"])
}

/// The number of scripts that the server has run.
fn scripts_run(server: &Server) -> u64 {
    let stats: String = server.command(&["INFO", "commandstats"]);
    let calls =
        |line: &str| line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
    stats.lines().filter_map(calls).sum::<u64>()
}

const TEN: Ttl = Ttl::Fixed(Duration::from_secs(10));

#[tokio::test]
async fn a_chosen_value_is_granted_only_while_there_is_no_key() {
    let server = Server::start();
    let (one, other) = (client(&server), client(&server));
    let lease = held(&one, "mine", TEN).await;
    assert_eq!((get(&server).as_deref(), lease.owner(), lease.held()), (Some("mine"), "mine", true));
    assert!((9_000..=10_000).contains(&pttl(&server)));
    for client in [&one, &other] {
        // Nobody nests in such a lock, not even with the same value.
        let again = client.lock("x", options("mine", TEN)).unwrap();
        assert!(again.try_acquire().await.unwrap().is_none());
    }
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(get(&server), None);

    let _: i64 = server.command(&["LPUSH", "x", "somebody's list"]);
    let lock = one.lock("x", options("mine", TEN)).unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none(), "SET NX does not look at the type");
    let _: i64 = server.command(&["DEL", "x"]);
    drop(lock.try_acquire().await.unwrap().unwrap());
}

#[tokio::test]
async fn without_a_ttl_a_lock_stays_until_it_is_released() {
    let server = Server::start();
    let client = client(&server);
    let lease = held(&client, "mine", Ttl::Never).await;
    assert_eq!(pttl(&server), -1);
    lease.extend(Duration::from_secs(5)).await.unwrap();
    assert_eq!(pttl(&server), -1, "it would have ended earlier than it did");
    // After a connection breaks, the client checks every lease. The check must not change this one.
    let before = scripts_run(&server);
    let _: i64 = server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    // Must not block the runtime, which reads that connection.
    redlock_tests::until(LONG, "the lease was looked at", || scripts_run(&server) > before).await;
    assert_eq!((get(&server).as_deref(), pttl(&server), lease.held()), (Some("mine"), -1, true));
    assert!(lease.remaining() > Duration::from_secs(86_400));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);

    let lease = held(&client, "mine again", Ttl::Never).await;
    let _: String = server.command(&["SET", "x", "taken"]);
    assert!(matches!(lease.extend(LONG).await, Err(LockError::Lost { .. })));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    assert_eq!(get(&server).as_deref(), Some("taken"));
}

#[test]
fn options_that_fit_no_shim_are_refused() {
    let refused = |config: Config, options: LockOptions, argument: &str| {
        let error = Client::new(config).unwrap().lock("x", options).err().unwrap();
        assert!(matches!(&error, LockError::Invalid { argument: known, .. } if *known == argument), "{error}");
    };
    let one = || config(["redis://127.0.0.1:1".to_owned()]);
    let three = || config((1..4).map(|port| format!("redis://127.0.0.1:{port}")));
    refused(Config::new(["redis://127.0.0.1:1"]), options("v", TEN), "value");
    refused(one(), options("", TEN), "value");
    refused(one(), options("v", Ttl::Fixed(Duration::ZERO)), "ttl");
    refused(three(), options("v", Ttl::Never), "ttl");
    refused(three(), options("v", Ttl::Fixed(Duration::from_secs(61))), "ttl");
    let mut patient = three();
    patient.max_ttl = Duration::from_secs(10 * 365 * 86_400);
    // `max_ttl` is at its maximum of ten years. A larger ttl, by which callers of some libraries mean "for ever", is
    // accepted.
    let millis = (1 << 53) - 1;
    let client = Client::new(patient).unwrap();
    client.lock("x", options("v", Ttl::Fixed(Duration::from_millis(millis)))).unwrap();
    let mut never = LockOptions::default();
    never.ttl = Ttl::Never;
    refused(Config::new(["redis://127.0.0.1:1"]), never, "ttl");
    let mut owned = options("v", TEN);
    owned.owner = Some("job".to_owned());
    refused(one(), owned, "owner");
    // A lease with a value may have a ttl that an ordinary fixed lease may not.
    for ttl in [Duration::from_millis(1), Duration::from_millis((1 << 53) - 1)] {
        Client::new(one()).unwrap().lock("x", options("v", Ttl::Fixed(ttl))).unwrap();
    }
    assert!(Client::new(Config::new(["redis://127.0.0.1:1"])).unwrap().value("x", "v").is_err());
    let value = Client::new(three()).unwrap().value("x", "v").unwrap();
    let mut go_on = || Ok::<(), LockError>(());
    assert!(matches!(value.retime_interruptible(Retime::Add, 1, &mut go_on), Err(LockError::Invalid { .. })));
    assert!(matches!(value.retime_interruptible(Retime::Set, 61_000, &mut go_on), Err(LockError::Invalid { .. })));
}

#[tokio::test]
async fn a_lost_reply_leaves_nothing_of_a_value_behind() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let mut config = config([proxy.url()]);
    config.reply_timeout = Duration::from_millis(200);
    let client = Client::new(config).unwrap();
    let lock = client.lock("x", options("mine", TEN)).unwrap();
    assert_eq!(lock.acquire().await.unwrap().release().await.unwrap(), ReleaseOutcome::Released);
    let before = scripts_run(&server);
    proxy.swallow(Direction::Replies, b"$35\r\n1 ");
    let lease = lock.acquire().await.unwrap();
    assert!(!proxy.is_hungry(Direction::Replies), "no reply was lost");
    assert!(scripts_run(&server) - before >= 3, "acquire, release, acquire");
    assert!(lease.held());
    assert_eq!(get(&server).as_deref(), Some("mine"));
}

/// An attempt whose reply was lost is undone by its value. That must be complete before the value is sent again, or it
/// would undo the second attempt. During the outage the requests that undo the first attempt time out too, and are sent
/// once more.
#[tokio::test]
async fn the_undo_of_an_attempt_never_hits_the_next_attempt() {
    let store = Memory::named("values-undone");
    let mut config = config(["memory://values-undone".to_owned()]);
    (config.reply_timeout, config.patience) = (Duration::from_millis(100), LONG);
    let client = Client::new(config).unwrap();
    // Several locks, since each may be between two attempts when the outage ends.
    let names: Vec<String> = (0..20).map(|number| format!("x{number}")).collect();
    store.freeze();
    let acquires = names.iter().map(|name| client.lock(name, options("mine", TEN)).unwrap().acquire());
    let acquires: Vec<_> = acquires.map(tokio::spawn).collect();
    // The length of the outage.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    store.thaw();
    for acquire in acquires {
        acquire.await.unwrap().unwrap().let_go().unwrap();
    }
    // Waits for all requests that are still under way.
    client.close().await;
    let taken: Vec<_> = names.iter().filter(|name| !store.exists(name)).collect();
    assert!(taken.is_empty(), "taken by what was to undo an earlier attempt: {taken:?}");
}

#[tokio::test]
async fn a_value_is_released_and_retimed_by_whoever_knows_it() {
    let server = Server::start();
    let client = client(&server);
    let value = client.value("x", "theirs").unwrap();
    let near = |ttl: i64| ((ttl - 1_000)..=ttl).contains(&pttl(&server));
    assert!(!value.is_there().await.unwrap() && !value.release().await.unwrap());
    assert!(!value.retime(Retime::Set, 1_000).await.unwrap());

    let _: String = server.command(&["SET", "x", "theirs", "PX", "10000"]);
    assert!(value.is_there().await.unwrap());
    assert!(near(10_000), "looking changed the ttl");
    assert!(value.retime(Retime::Add, 10_000).await.unwrap() && near(20_000));
    assert!(value.retime(Retime::Add, -15_000).await.unwrap() && near(5_000));
    assert!(value.retime(Retime::Replace, 3_000).await.unwrap() && near(3_000));
    let _: i64 = server.command(&["PERSIST", "x"]);
    assert!(!value.retime(Retime::Add, 1_000).await.unwrap() && !value.retime(Retime::Replace, 1_000).await.unwrap());
    assert_eq!((pttl(&server), value.is_there().await.unwrap()), (-1, true));
    assert!(value.retime(Retime::Set, 4_000).await.unwrap() && near(4_000));
    let other = client.value("x", "theirs too").unwrap();
    assert!(!other.is_there().await.unwrap() && !other.release().await.unwrap());
    assert!(!other.retime(Retime::Set, 1_000).await.unwrap());
    // The same with blocking calls, in a thread outside any runtime.
    let blocking = value.clone();
    let thread = std::thread::spawn(move || {
        let mut go_on = || Ok::<(), LockError>(());
        assert!(blocking.is_there_interruptible(&mut go_on).unwrap());
        assert!(blocking.retime_interruptible(Retime::Replace, 6_000, &mut go_on).unwrap());
        (blocking.release_interruptible(&mut go_on).unwrap(), blocking.release_interruptible(&mut go_on).unwrap())
    });
    assert_eq!(thread.join().unwrap(), (true, false));

    let _: i64 = server.command(&["LPUSH", "x", "theirs"]);
    assert!(!value.is_there().await.unwrap() && !value.release().await.unwrap());
    assert!(!value.retime(Retime::Set, 1_000).await.unwrap());
    let _: i64 = server.command(&["DEL", "x"]);

    let mut raw = server.connect().unwrap();
    let _: () = redis::cmd("SET").arg("x").arg(&b"\xff\x00 no text"[..]).query(&mut raw).unwrap();
    let info = client.lock("x", LockOptions::default()).unwrap().inspect().await.unwrap().unwrap();
    assert_eq!((info.owner.as_str(), info.ttl), ("\u{fffd}\0 no text", None));
    let shown = client.value("x", &info.owner).unwrap();
    assert!(!shown.is_there().await.unwrap() && !shown.release().await.unwrap(), "it only looks the same");
}

#[tokio::test]
async fn a_quorum_decides_about_a_value() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let mut config = config(servers.iter().map(Server::url));
    config.reply_timeout = Duration::from_millis(300);
    let client = Client::new(config).unwrap();
    let lease = held(&client, "mine", TEN).await;
    lease.let_go().unwrap();
    assert!(!lease.held());
    let value = client.value("x", "mine").unwrap();
    wait_until(LONG, "all have it", || servers.iter().all(|server| get(server).as_deref() == Some("mine")));
    let _: String = servers[0].command(&["SET", "x", "other", "PX", "9000"]);
    assert!(value.is_there().await.unwrap() && value.retime(Retime::Set, 5_000).await.unwrap());
    wait_until(LONG, "the others end earlier", || servers[1..].iter().all(|server| pttl(server) <= 5_000));
    assert!(pttl(&servers[0]) > 5_000, "a foreign key was touched");
    let _: String = servers[1].command(&["SET", "x", "other", "PX", "9000"]);
    assert!(!value.is_there().await.unwrap() && !value.release().await.unwrap());
    wait_until(LONG, "the third released all the same", || get(&servers[2]).is_none());

    let _: i64 = servers[0].command(&["DEL", "x"]);
    let _: i64 = servers[1].command(&["DEL", "x"]);
    let lease = held(&client, "mine again", TEN).await;
    lease.let_go().unwrap();
    servers[0].freeze();
    servers[1].freeze();
    let value = client.value("x", "mine again").unwrap();
    assert!(matches!(value.is_there().await, Err(LockError::Unavailable { .. })));
    // The release is not confirmed, and completes in the background.
    assert!(matches!(value.release().await, Err(LockError::Unavailable { .. })));
    servers[0].thaw();
    servers[1].thaw();
    wait_until(LONG, "it is gone everywhere", || servers.iter().all(|server| get(server).is_none()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_let_go_is_known_by_its_value_alone() {
    let server = Server::start();
    let (client, other) = (client(&server), client(&server));
    let lease = held(&client, "mine", Ttl::Never).await;
    assert!(matches!(lease.detach(), Err(LockError::Invalid { .. })), "no text could name it");
    assert!(lease.held());
    lease.let_go().unwrap();
    assert!(!lease.held());
    assert!(matches!(lease.release().await, Err(LockError::NotHeld { .. })));
    drop(lease);
    // This client knows no more about it than any other.
    let waits = client.lock("x", options("next", TEN)).unwrap();
    assert!(waits.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(waits.acquire());
    wait_until(LONG, "it listens", || server.waiting("x") > 0);
    assert!(other.value("x", "mine").unwrap().release().await.unwrap());
    assert!(waiting.await.unwrap().unwrap().held());
    client.close().await;
    assert_eq!(get(&server), None);
}

#[tokio::test]
async fn a_lease_that_was_let_go_outlives_its_client() {
    let server = Server::start();
    let client = client(&server);
    held(&client, "mine", Ttl::Never).await.let_go().unwrap();
    client.close().await;
    assert_eq!((get(&server).as_deref(), pttl(&server)), (Some("mine"), -1));
}
