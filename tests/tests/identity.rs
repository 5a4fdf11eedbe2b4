//! Who holds a lock: the names of connections, what inspections and time-outs say of the holder, and what it costs the
//! servers. The holder in another process is a connection that the test names, and a lock that the test writes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use redis::Connection;
use redlock::{Client, Config, Event, Lease, LockError, LockOptions, Owner, Ttl, identity::Identity};
use redlock_tests::{
    deployments::{Cluster, Watched},
    locked,
    server::Server,
};

const LONG: Duration = Duration::from_secs(60);
/// The time-out of a request that is in vain: within it, the client connects and asks who holds the lock.
const LOOK: Duration = Duration::from_secs(1);

async fn until(what: &str, happened: impl FnMut() -> bool) {
    redlock_tests::until(LONG, what, happened).await;
}

fn config(urls: &[String], app: &str) -> Config {
    let mut config = Config::new(urls.iter().cloned());
    config.app = Some(app.to_owned());
    config.max_ttl = Duration::from_secs(20);
    config.watchdog = Duration::from_secs(10);
    config
}

fn client(urls: &[String], app: &str) -> Client {
    Client::new(config(urls, app)).unwrap()
}

fn options(wait: Duration) -> LockOptions {
    let mut options = LockOptions::default();
    (options.wait, options.ttl) = (Some(wait), Ttl::Fixed(Duration::from_secs(20)));
    options
}

async fn hold(client: &Client, name: &str) -> Lease {
    client.lock(name, options(LONG)).unwrap().acquire().await.unwrap()
}

async fn timed_out(client: &Client, name: &str) -> LockError {
    client.lock(name, options(LOOK)).unwrap().acquire().await.unwrap_err()
}

/// The names of a server's connections, without that of the one that asks.
fn names(server: &Server) -> Vec<String> {
    let list: String = server.command(&["CLIENT", "LIST"]);
    // Other connections may just have been named by CLIENT SETNAME. Servers before 7 show no subcommand.
    let asks = |line: &&str| line.contains("cmd=client|list") || line.contains("cmd=client ");
    let others = list.lines().filter(|line| !asks(line));
    let name =
        |line: &str| line.split(' ').find_map(|field| field.strip_prefix("name=")).unwrap_or_default().to_owned();
    others.map(name).collect()
}

/// The clients that the names of a server's connections tell of.
fn identities(server: &Server) -> Vec<Identity> {
    names(server).iter().filter_map(|name| Identity::parse(name)).collect()
}

/// A client of another process, as far as a server sees it: a connection with a name.
struct Elsewhere {
    name: String,
    client: String,
    _connections: Vec<Connection>,
}

impl Elsewhere {
    /// A client of `app` on these servers, whose settings are those of `like` with `n` nodes.
    fn connect(servers: &[&Server], app: &str, nodes: usize) -> Self {
        let client = format!("{:08x}-9f3c-4b1e-8a53-6f1d2c3b4a59", fastrand::u32(..));
        // The hash of an empty prefix.
        let name = format!(
            "redlock/9.9.9;h:web-3;a:{app};p:812;u:{client};n:{nodes};q:{};w:r;m:20000;f:cbf29ce484222325",
            nodes / 2 + 1
        );
        let connect = |server: &&Server| {
            let mut connection = server.connect().unwrap();
            redis::cmd("CLIENT").arg("SETNAME").arg(&name).exec(&mut connection).unwrap();
            connection
        };
        let connections = servers.iter().map(connect).collect();
        Self { name, client, _connections: connections }
    }

    /// Writes a lock that this client has held for `age`.
    fn holds(&self, servers: &[&Server], lock: &str, age: Duration) {
        let since = (SystemTime::now() - age).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let token = since.as_micros().to_string();
        for server in servers {
            let _: () = server.command(&["HSET", lock, &format!("{}:1", self.client), "1"]);
            let _: () = server.command(&["PEXPIRE", lock, "600000"]);
            let _: () = server.command(&["SET", &format!("redlock_token:{{{lock}}}"), &token]);
        }
    }
}

/// Makes a server note every command.
fn note_commands(server: &Server) {
    let _: () = server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000"]);
    let _: () = server.command(&["SLOWLOG", "RESET"]);
}

/// How often a server was asked for these words since then.
fn asked(server: &Server, words: &[&str]) -> usize {
    let log: Vec<Vec<redis::Value>> = server.command(&["SLOWLOG", "GET", "100000"]);
    // The fourth part of an entry is the command.
    let commands = log.iter().map(|entry| redis::from_redis_value_ref::<Vec<String>>(&entry[3]).unwrap());
    let is_it = |command: &Vec<String>| command.iter().zip(words).all(|(one, word)| one.eq_ignore_ascii_case(word));
    commands.filter(is_it).count()
}

// ---- names --------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_has_a_name() {
    let server = Server::start();
    let of_shop = |app: &str| {
        let mut config = config(&[server.url()], app);
        config.prefix = "shop:".to_owned();
        Client::new(config).unwrap()
    };
    let (client, other) = (of_shop("billing"), of_shop("other"));
    let held = hold(&other, "x").await;
    // The connection of this runtime, that of threads, that of the background, and the one that subscribes.
    let own = hold(&client, "own").await;
    let lock = client.lock("y", options(LONG)).unwrap();
    let blocking = std::thread::spawn(move || lock.acquire_blocking().unwrap().release().unwrap());
    tokio::task::spawn_blocking(move || blocking.join().unwrap()).await.unwrap();
    let waiting = tokio::spawn(client.lock("x", options(LONG)).unwrap().acquire());
    until("it waits", || server.waiting("shop:x") == 1).await;
    until("all are named", || {
        let names = names(&server);
        names.len() >= 5 && names.iter().all(|name| name.starts_with("redlock/"))
    })
    .await;
    let mut seen = identities(&server);
    seen.retain(|identity| identity.app == "billing");
    assert!(seen.len() >= 3, "{seen:?}");
    let Identity { version, client: uuid, host, pid, app, nodes, quorum, max_ttl, prefix_hash, .. } = seen[0].clone();
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
    assert_eq!((version.as_str(), pid, app.as_str()), (env!("CARGO_PKG_VERSION"), std::process::id(), "billing"));
    assert_eq!((nodes, quorum, max_ttl), (1, 1, Duration::from_secs(20)));
    assert!(!host.is_empty() && own.owner().starts_with(&uuid), "{} of {uuid}", own.owner());
    assert_ne!(prefix_hash, 0xcbf2_9ce4_8422_2325, "the hash of an empty prefix");
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_connection_that_is_made_again_is_named_again() {
    let server = Server::start();
    let client = client(&[server.url()], "billing");
    client.ping().await.unwrap();
    assert_eq!(identities(&server).len(), 1);
    let _: i64 = server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    until("it is back", || identities(&server).len() == 1).await;
    client.close().await;
}

#[tokio::test]
async fn servers_of_a_cluster_see_the_name_and_a_node_is_counted_once() {
    let cluster = Cluster::start(3, 0);
    let client = client(&[cluster.url()], "billing");
    client.ping().await.unwrap();
    for server in cluster.servers() {
        until("the connections are named", || {
            let names = identities(server);
            !names.is_empty() && names.iter().all(|identity| identity.app == "billing")
        })
        .await;
    }
    let other = self::client(&[cluster.url()], "other");
    let held = hold(&other, "x").await;
    // Subscribes to both channels.
    let waiting = tokio::spawn(client.lock("x", options(LONG)).unwrap().acquire());
    let owner = &cluster.servers()[cluster.owner("x")];
    until("the connection that subscribes is named", || {
        let list: String = owner.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.contains(" name=redlock/")
    })
    .await;
    let all = client.connected_clients().await.unwrap();
    let seen: Vec<_> = all.iter().map(|client| (client.identity.app.as_str(), client.nodes)).collect();
    assert_eq!(seen, [("billing", 1), ("other", 1)]);
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn sentinels_do_not_see_the_name() {
    let mut deployment = Watched::start(1);
    let client = client(&[deployment.url()], "billing");
    let held = hold(&client, "x").await;
    assert!(!identities(&deployment.servers()[deployment.master()]).is_empty());
    for index in 0..3 {
        let named = names(deployment.sentinel(index)).iter().any(|name| name.starts_with("redlock/"));
        assert!(!named, "Sentinel {index}");
    }
    held.release().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn resp2_does_without_the_name_of_the_connection_that_subscribes() {
    let server = Server::start();
    let client = client(&[format!("{}?protocol=2", server.url())], "billing");
    let other = self::client(&[server.url()], "other");
    let held = hold(&other, "x").await;
    client.ping().await.unwrap();
    assert!(identities(&server).iter().any(|identity| identity.app == "billing"));
    let waiting = tokio::spawn(client.lock("x", options(LONG)).unwrap().acquire());
    until("it waits", || server.waiting("x") == 1).await;
    let list: String = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert!(list.contains(" name= "), "{list}");
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap();
    client.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_do_without_names() {
    let server = Server::start();
    let other = Elsewhere::connect(&[&server], "unseen", 1);
    other.holds(&[&server], "x", Duration::ZERO);
    note_commands(&server);
    let mut config = config(&[server.url()], "billing");
    config.identify = false;
    let client = Client::new(config).unwrap();
    let info = client.lock("x", options(LONG)).unwrap().inspect().await.unwrap().unwrap();
    assert_eq!((info.host, info.pid, info.app, info.since), (None, None, None, None));
    let error = timed_out(&client, "x").await;
    assert!(error.to_string().contains("by somebody else"), "{error}");
    assert_eq!(asked(&server, &["CLIENT", "SETNAME"]), 0);
    assert_eq!(asked(&server, &["CLIENT", "LIST"]), 0);
    assert_eq!(names(&server).iter().filter(|name| **name != other.name && !name.is_empty()).count(), 0);
    client.close().await;
}

/// What a server has denied to users, and how often.
fn denied(server: &Server) -> BTreeMap<String, i64> {
    let log: Vec<Vec<redis::Value>> = server.command(&["ACL", "LOG", "128"]);
    let field = |entry: &[redis::Value], name: &str| {
        let text = |value: &redis::Value| redis::from_redis_value_ref::<String>(value).unwrap_or_default();
        entry.iter().position(|one| text(one) == name).map(|at| entry[at + 1].clone()).unwrap()
    };
    let read = |entry: &Vec<redis::Value>| {
        let object = redis::from_redis_value_ref::<String>(&field(entry, "object")).unwrap();
        (object, redis::from_redis_value_ref::<i64>(&field(entry, "count")).unwrap())
    };
    // The server tells nobody the name of the library then, which is sent with every connection.
    log.iter().map(read).filter(|(object, _)| object != "client|setinfo").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_rights_nothing_fails_and_nothing_is_asked_twice() {
    let server = Server::start();
    let rights = ["allkeys", "allchannels", "+@all", "-client", "+client|info", "+client|id", "+client|kill"];
    let _: () = server.command(&[&["ACL", "SETUSER", "locks", "on", ">secret"], &rights[..]].concat());
    let other = Elsewhere::connect(&[&server], "elsewhere", 1);
    other.holds(&[&server], "x", Duration::from_secs(5));
    let warned = Arc::new(Mutex::new(Vec::new()));
    let (sink, urls) = (warned.clone(), [server.url().replacen("://", "://locks:secret@", 1)]);
    let events = Arc::new(move |event: &Event| {
        if event.is_warning() {
            locked(&sink).push(event.to_string());
        }
    });
    let client = Client::with_events(config(&urls, "unnamed"), events).unwrap();
    let lock = client.lock("x", options(LONG)).unwrap();
    for _ in 0..3 {
        let info = lock.inspect().await.unwrap().unwrap();
        assert_eq!((info.host, info.app, info.since), (None, None, None));
        let error = timed_out(&client, "x").await;
        assert!(error.to_string().contains("by somebody else"), "{error}");
        hold(&client, "y").await.release().await.unwrap();
    }
    let error = client.connected_clients().await.unwrap_err().to_string();
    assert!(error.contains("CLIENT LIST") || error.contains("client|list"), "{error}");
    assert_eq!(denied(&server), BTreeMap::from([("client|list".to_owned(), 1), ("client|setname".to_owned(), 1)]));
    assert!(locked(&warned).is_empty(), "{warned:?}");
    client.close().await;
}

// ---- the holder ---------------------------------------------------------------------------------------------------

#[tokio::test]
async fn inspect_and_a_time_out_say_who_holds_a_lock() {
    let server = Server::start();
    let other = Elsewhere::connect(&[&server], "billing", 1);
    other.holds(&[&server], "x", Duration::from_secs(133));
    let client = client(&[server.url()], "shop");
    let lock = client.lock("x", options(LOOK)).unwrap();
    let info = lock.inspect().await.unwrap().unwrap();
    assert_eq!((info.host.as_deref(), info.pid, info.app.as_deref()), (Some("web-3"), Some(812), Some("billing")));
    let held_for = SystemTime::now().duration_since(info.since.unwrap()).unwrap();
    assert!(held_for >= Duration::from_secs(133) && held_for < LONG * 3, "{held_for:?}");
    let error = lock.acquire().await.unwrap_err();
    let LockError::Timeout { holder: Some(holder), .. } = &error else { panic!("{error}") };
    assert_eq!((holder.host.as_str(), holder.pid, holder.app.as_str()), ("web-3", 812, "billing"));
    assert!(error.to_string().contains("is held by pid 812 (billing) on web-3 for 2m"), "{error}");
    // Without a thread of its own, a program gets the same error.
    let error = tokio::task::spawn_blocking(move || lock.acquire_blocking().unwrap_err()).await.unwrap();
    assert!(error.to_string().contains("pid 812"), "{error}");
    client.close().await;
}

#[tokio::test]
async fn since_is_known_only_of_tenures_that_drew_their_token() {
    let server = Server::start();
    let client = client(&[server.url()], "billing");
    let started = SystemTime::now();
    let since = async |lock: redlock::Lock| lock.inspect().await.unwrap().unwrap().since;
    let is_new = |since: Option<SystemTime>| {
        since.is_some_and(|since| since + Duration::from_secs(1) > started && since < SystemTime::now() + LONG)
    };

    let held = hold(&client, "lock").await;
    assert!(is_new(since(client.lock("lock", options(LONG)).unwrap()).await));
    held.release().await.unwrap();

    let mut of_nobody = options(LONG);
    of_nobody.owner = Some("nightly".to_owned());
    let explicit = client.lock("explicit", of_nobody).unwrap();
    let held = explicit.acquire().await.unwrap();
    let info = explicit.inspect().await.unwrap().unwrap();
    assert_eq!((info.app.as_deref(), is_new(info.since)), (None, true));
    held.release().await.unwrap();

    let both = client.read_write_lock("both", options(LONG)).unwrap();
    let writes = both.write().acquire().await.unwrap();
    assert!(is_new(since(both.write().clone()).await));
    writes.downgrade().await.unwrap();
    let info = both.read().inspect().await.unwrap().unwrap();
    assert_eq!((info.app.as_deref(), info.since), (Some("billing"), None));
    writes.release().await.unwrap();

    let semaphore = client.semaphore("semaphore", 2, options(LONG)).unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let info = client.lock("semaphore", options(LONG)).unwrap().inspect().await.unwrap().unwrap();
    assert_eq!((info.app.as_deref(), info.since), (Some("billing"), None));
    permit.release().await.unwrap();

    // Redisson leaves the counter of an earlier holder as it is.
    let _: () = server.command(&["HSET", "lock", "0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59:1", "1"]);
    let _: () = server.command(&["PEXPIRE", "lock", "60000"]);
    assert_eq!(since(client.lock("lock", options(LONG)).unwrap()).await, None);
    client.close().await;
}

#[tokio::test]
async fn several_readers_are_counted() {
    let server = Server::start();
    let other = client(&[server.url()], "billing");
    let read = || other.read_write_lock("x", options(LONG)).unwrap().read().acquire();
    let readers = [read().await.unwrap(), read().await.unwrap(), read().await.unwrap()];
    let writer = client(&[server.url()], "shop");
    let lock = writer.read_write_lock("x", options(LOOK)).unwrap();
    let error = lock.write().acquire().await.unwrap_err();
    let pid = std::process::id();
    assert!(error.to_string().contains(&format!("held by pid {pid} (billing) on ")), "{error}");
    assert!(error.to_string().contains(" and 2 others; gave up"), "{error}");
    for reader in readers {
        reader.release().await.unwrap();
    }
    other.close().await;
    writer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_are_shared_and_a_try_asks_nothing() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let all: Vec<&Server> = servers.iter().collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let other = Elsewhere::connect(&all, "elsewhere", 3);
    let clients = [client(&urls, "one"), client(&urls, "two")];
    clients[0].init_nodes().await.unwrap();
    other.holds(&all, "x", Duration::from_secs(5));
    for server in &all {
        note_commands(server);
    }
    for _ in 0..3 {
        let tried = clients[0].lock("x", options(LONG)).unwrap().try_acquire().await.unwrap();
        assert!(tried.is_none());
        assert!(clients[0].lock("x", options(LONG)).unwrap().locked().await.unwrap());
    }
    let lists = || -> Vec<usize> { all.iter().map(|server| asked(server, &["CLIENT", "LIST"])).collect() };
    assert_eq!(lists(), [0, 0, 0]);

    let waits = (0..40).map(|index| {
        let lock = clients[index % 2].lock("x", options(LOOK)).unwrap();
        async move { lock.acquire_as(lock.request(Owner::Fresh)).await.unwrap_err().to_string() }
    });
    let errors = futures_util::future::join_all(waits).await;
    assert!(errors.iter().any(|error| error.contains("pid 812 (elsewhere) on web-3")), "{errors:?}");
    for client in &clients {
        let info = client.lock("x", options(LONG)).unwrap().inspect().await.unwrap().unwrap();
        assert_eq!(info.app.as_deref(), Some("elsewhere"));
    }
    assert_eq!(lists(), [1, 1, 1]);
    for client in clients {
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_does_not_wait_for_a_server_that_is_slow_to_tell() {
    let server = Server::start();
    let other = Elsewhere::connect(&[&server], "elsewhere", 1);
    other.holds(&[&server], "x", Duration::from_secs(5));
    let client = client(&[server.url()], "shop");
    let waiting = tokio::spawn(client.lock("x", options(Duration::from_secs(1))).unwrap().acquire());
    until("it waits", || server.waiting("x") == 1).await;
    let started = Instant::now();
    // Far longer than the wait, and shorter than the reply time-out.
    let _: () = server.command(&["CLIENT", "PAUSE", "1900", "ALL"]);
    let error = waiting.await.unwrap().unwrap_err();
    let (after, pause) = (started.elapsed(), Duration::from_millis(1900));
    assert!(matches!(error, LockError::Timeout { holder: None, .. }), "{error}");
    assert!(after < pause, "only after {after:?}");
    client.close().await;
}

// ---- other clients ------------------------------------------------------------------------------------------------

#[tokio::test]
async fn clients_are_listed_with_the_nodes_that_see_them() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let (one, two) = (client(&urls, "one"), client(&urls[..1], "two"));
    one.ping().await.unwrap();
    two.ping().await.unwrap();
    let all = one.connected_clients().await.unwrap();
    let seen: Vec<_> = all.iter().map(|client| (client.identity.app.as_str(), client.nodes)).collect();
    assert_eq!(seen, [("one", 3), ("two", 1)]);
    assert!(
        all.iter().all(|client| client.address.as_deref().is_some_and(|address| address.starts_with("127.0.0.1:")))
    );
    one.close().await;
    two.close().await;
}

#[tokio::test]
async fn a_store_in_memory_knows_its_clients() {
    let (here, there) = (["memory://clients".to_owned()], ["memory://other-clients".to_owned()]);
    let (one, two, three) = (client(&here, "one"), client(&here, "two"), client(&there, "three"));
    two.ping().await.unwrap();
    three.ping().await.unwrap();
    let held = hold(&two, "x").await;
    let all = one.connected_clients().await.unwrap();
    let seen: Vec<_> = all.iter().map(|client| (client.identity.app.as_str(), client.nodes)).collect();
    assert_eq!(seen, [("one", 1), ("two", 1)]);
    let error = timed_out(&one, "x").await;
    assert!(error.to_string().contains("(two) on "), "{error}");
    held.release().await.unwrap();
    two.close().await;
    let all = one.connected_clients().await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    one.close().await;
    three.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_settings_are_warned_of_once() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let all: Vec<&Server> = servers.iter().collect();
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let (app, warned) = ("differing", Arc::new(Mutex::new(Vec::new())));
    // Twice the same difference, and clients that have nothing to do with this one.
    let others = [(app, 5), (app, 5), (app, 3), ("another", 5)].map(|(app, n)| Elsewhere::connect(&all, app, n));
    let watched = || {
        let warned = warned.clone();
        let events = Arc::new(move |event: &Event| {
            if let Event::NodeWarning { .. } = event {
                locked(&warned).push(event.to_string());
            }
        });
        Client::with_events(config(&urls, app), events).unwrap()
    };
    let clients = [watched(), watched()];
    clients[0].init_nodes().await.unwrap();
    others[2].holds(&all, "x", Duration::ZERO);
    for client in &clients {
        let info = client.lock("x", options(LONG)).unwrap().inspect().await.unwrap().unwrap();
        assert_eq!(info.app.as_deref(), Some(app));
    }
    until("it is warned of", || !locked(&warned).is_empty()).await;
    let warnings = locked(&warned).clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let expected = "another client of \"differing\", pid 812 on web-3, has other settings: nodes 5 instead of 3, \
                    quorum 3 instead of 2";
    assert!(warnings[0].ends_with(expected), "{warnings:?}");
    for client in clients {
        client.close().await;
    }
}
