//! Bad days on real servers: wrong settings, servers in trouble, and other programs that listen on the address. Each
//! must end within the wait, in an error with a code whose text says what is wrong and what to do. A fault that passes
//! is waited out. With `--nocapture` each case prints what the caller saw and when, as a row of a table.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    time::{Duration, Instant},
};

use redlock::{Client, Config, Lease, LockError, LockOptions, LostReason, Ttl};
use redlock_tests::{
    deployments::{Cluster, Watched},
    server::Server,
    stub::{HTTP, Stub},
    tls::Certificates,
};

/// More than any case takes by itself on a busy machine.
const SLACK: Duration = Duration::from_secs(8);
const LONG: Duration = Duration::from_secs(60);

fn row(deployment: &str, fault: &str, saw: &str, after: Duration) {
    println!("| {deployment} | {fault} | {saw} | {:.1} s |", after.as_secs_f64());
}

fn client(url: &str, change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::new([url]);
    // Only the wait limits how long an acquire tries during an outage.
    config.patience = LONG;
    change(&mut config);
    Client::new(config).unwrap()
}

fn waiting(wait: Duration) -> LockOptions {
    let mut options = LockOptions::default();
    options.wait = Some(wait);
    options
}

/// Waits for a condition that becomes true soon, at no known time.
async fn until(what: &str, happened: impl FnMut() -> bool) {
    redlock_tests::until(LONG, what, happened).await;
}

async fn refused(client: &Client, wait: Duration) -> (LockError, Duration) {
    let started = Instant::now();
    let error = client.lock("x", waiting(wait)).unwrap().acquire().await.expect_err("nobody grants it");
    (error, started.elapsed())
}

fn says(error: &LockError, words: &[&str]) {
    assert_eq!(error.code(), "unavailable", "{error}");
    for word in words {
        assert!(error.to_string().contains(word), "{word:?} is missing: {error}");
    }
    assert!(!error.to_string().contains("hunter"), "{error}");
}

/// Checks that a fault which no waiting repairs is reported at once.
async fn fails_at_once(deployment: &str, fault: &str, client: Client, words: &[&str]) {
    let (error, after) = refused(&client, LONG).await;
    says(&error, words);
    assert!(after < LONG / 2, "{fault}: only after {after:?}");
    row(deployment, fault, &error.to_string(), after);
    let config = client.config();
    let (error, after) = refused(&client, Duration::ZERO).await;
    says(&error, words);
    assert!(after < config.connect_timeout + config.reply_timeout + SLACK, "{fault}: a try took {after:?}");
    let lock = client.lock("x", LockOptions::default()).unwrap();
    says(&lock.inspect().await.unwrap_err(), &[]);
    assert!(client.ping().await.unwrap()[0].state.is_err() || words.contains(&"MOVED"), "{fault}");
}

/// Checks that a fault which may pass is reported when the wait is over.
async fn fails_in_time(deployment: &str, fault: &str, client: &Client, words: &[&str]) {
    let wait = Duration::from_secs(1);
    let (error, after) = refused(client, wait).await;
    says(&error, words);
    let config = client.config();
    assert!(after < wait + config.connect_timeout + config.reply_timeout + SLACK, "{fault}: only after {after:?}");
    row(deployment, fault, &error.to_string(), after);
}

/// Checks that an acquire with a long wait gets the lock once the fault has passed, and one with a short wait fails.
async fn is_waited_out(deployment: &str, fault: &str, client: &Client, words: &[&str], cure: impl AsyncFnOnce()) {
    let patient = tokio::spawn(client.lock("x", waiting(LONG)).unwrap().acquire());
    fails_in_time(deployment, fault, client, words).await;
    assert!(!patient.is_finished(), "{fault}: the wait was not over: {:?}", patient.await.unwrap().err());
    cure().await;
    let cured = Instant::now();
    let lease = patient.await.unwrap().unwrap();
    row(deployment, &format!("{fault}, which passes"), "the lock", cured.elapsed());
    lease.release().await.unwrap();
}

fn with_login(server: &Server, login: &str) -> String {
    server.url().replace("://", &format!("://{login}@"))
}

#[tokio::test]
async fn addresses_that_lead_nowhere() {
    // Longer than DNS allows, so that no query leaves the machine.
    let nowhere = client(&format!("redis://{}.invalid", "x".repeat(64)), |_| {});
    fails_in_time("single", "host name unknown", &nowhere, &["lookup"]).await;
    let nobody = client("redis://127.0.0.1:1", |_| {});
    fails_in_time("single", "nobody listens", &nobody, &["127.0.0.1:1: connection refused"]).await;
    let no_socket = client("unix:///nonexistent/socket", |_| {});
    fails_in_time("unix socket", "no such file", &no_socket, &["no such socket"]).await;
    for scheme in ["redis+cluster", "redis+sentinel"] {
        let path = if scheme.ends_with("sentinel") { "/main" } else { "" };
        let nobody = client(&format!("{scheme}://127.0.0.1:1{path}"), |_| {});
        fails_in_time(&scheme[6..], "nobody listens", &nobody, &["connection refused"]).await;
    }
}

#[tokio::test]
async fn something_else_answers() {
    let http = Stub::start(Some(HTTP));
    let words = ["does not speak Redis' protocol", "right port"];
    fails_at_once("single", "the port speaks HTTP", client(&http.url("redis"), |_| {}), &words).await;
    fails_at_once("cluster", "the port speaks HTTP", client(&http.url("redis+cluster"), |_| {}), &words).await;
    let sentinel = format!("{}/main", http.url("redis+sentinel"));
    fails_at_once("sentinel", "the port speaks HTTP", client(&sentinel, |_| {}), &words).await;
    fails_at_once("TLS", "the port speaks HTTP", client(&http.url("rediss"), |_| {}), &["TLS", "redis://"]).await;
    let silent = Stub::start(None);
    for scheme in ["redis", "rediss", "redis+cluster", "redis+sentinel"] {
        let path = if scheme.ends_with("sentinel") { "/main" } else { "" };
        let silent = client(&format!("{}{path}", silent.url(scheme)), |_| {});
        fails_in_time(scheme, "the port says nothing", &silent, &["answer"]).await;
        // A second waiter of this client gets the same error as the first.
        let first = tokio::spawn(silent.lock("x", waiting(LONG)).unwrap().acquire());
        tokio::task::yield_now().await;
        let (error, _) = refused(&silent, Duration::from_millis(200)).await;
        says(&error, &["answer"]);
        first.abort();
    }
}

#[tokio::test]
async fn wrong_logins() {
    let server = Server::start();
    let _: () = server.command(&["ACL", "SETUSER", "bob", "on", ">hunter2", "~*", "&*", "+@all"]);
    let _: () = server.command(&["ACL", "SETUSER", "carol", "off", ">hunter2", "~*", "&*", "+@all"]);
    for (fault, login) in [
        ("user unknown", "nobody:hunter2"),
        ("wrong password of a user", "bob:hunter3"),
        ("user is off", "carol:hunter2"),
    ] {
        let wrong = client(&with_login(&server, login), |_| {});
        fails_at_once("single", fault, wrong, &["WRONGPASS", "password"]).await;
    }
    let needless = client(&format!("{}?protocol=2", with_login(&server, ":hunter2")), |_| {});
    fails_at_once("single, RESP2", "a password where none is set", needless, &["password", "has none"]).await;
    let needless = client(&with_login(&server, ":hunter2"), |_| {});
    let lease = needless.lock("x", waiting(LONG)).unwrap().acquire().await.unwrap();
    row("single, RESP3", "a password where none is set", "the lock: the server takes any", Duration::ZERO);
    lease.release().await.unwrap();
    let high = client(&format!("{}/99", server.url()), |_| {});
    fails_at_once("single", "database out of range", high, &["DB index", "fewer databases"]).await;

    let cluster = Server::with_args(&["--cluster-enabled", "yes"]);
    let one = client(&format!("{}/1", cluster.url()), |_| {});
    fails_at_once("a cluster's server", "database 1", one, &["redis+cluster://"]).await;
    let sentinel = Watched::start(0);
    let watched = sentinel.url();
    let cluster_url = cluster.url().replace("redis:", "redis+cluster:");
    // Comes last, since afterwards the tests themselves cannot log in.
    for server in [&server, &cluster, &sentinel.servers()[0]] {
        let _: () = server.command(&["CONFIG", "SET", "requirepass", "hunter2"]);
    }
    for (deployment, url) in [("single", server.url()), ("cluster", cluster_url), ("sentinel", watched)] {
        let missing = client(&url, |_| {});
        fails_at_once(deployment, "password missing", missing, &["NOAUTH", "asks for a password"]).await;
        let wrong = client(&url.replace("://", "://:hunter3@"), |_| {});
        fails_at_once(deployment, "wrong password", wrong, &["WRONGPASS"]).await;
        let wrong = client(&format!("{}?protocol=2", url.replace("://", "://:hunter3@")), |_| {});
        fails_at_once(&format!("{deployment}, RESP2"), "wrong password", wrong, &["password"]).await;
    }
}

fn texts<'a>(owned: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    owned.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

#[tokio::test]
async fn tls_that_does_not_match() {
    let files = Certificates::make();
    let arguments = files.arguments("server");
    let server = Server::with_args(&texts(&arguments, &[]));
    let trusting = |config: &mut Config| config.tls.ca = Some(files.path("ca.crt"));
    let known = |config: &mut Config| {
        trusting(config);
        config.tls.cert = Some(files.path("client.crt"));
        config.tls.key = Some(files.path("client.key"));
    };
    let lease = client(&server.url(), known).lock("x", waiting(LONG)).unwrap().acquire().await.unwrap();
    lease.release().await.unwrap();

    let stranger = client(&server.url(), |config| {
        known(config);
        config.tls.ca = Some(files.path("other.crt"));
    });
    fails_at_once("TLS", "signed by another authority", stranger, &["TLS: invalid peer certificate", "(ca)"]).await;
    let anonymous = client(&server.url(), trusting);
    fails_at_once("TLS", "client certificate missing", anonymous, &["TLS", "client certificate", "cert, key"]).await;
    let plain = client(&server.url().replace("rediss", "redis"), |_| {});
    fails_in_time("TLS", "redis:// to a port with TLS", &plain, &["rediss://"]).await;

    let arguments = files.arguments("elsewhere");
    let misnamed = Server::with_args(&texts(&arguments, &["--tls-auth-clients", "no"]));
    let wrong = client(&misnamed.url(), trusting);
    fails_at_once("TLS", "certificate of another host", wrong, &["TLS", "not valid for name"]).await;

    let without = Server::start();
    let (error, after) =
        refused(&client(&without.url().replace("redis", "rediss"), trusting), Duration::from_secs(5)).await;
    row("single", "rediss:// to a port without TLS", &error.to_string(), after);
    // The server replies to the bytes of a TLS handshake only if they contain an end of line.
    assert!(["TLS", "no answer"].iter().any(|word| error.to_string().contains(word)), "{error}");
    assert_eq!(error.code(), "unavailable");
    assert!(after < Duration::from_secs(5) + Duration::from_secs(4) + SLACK);
}

#[tokio::test]
async fn another_kind_of_deployment() {
    let cluster = Cluster::start(3, 0);
    let other = cluster.another("x");
    let plain = client(&cluster.servers()[other].url(), |_| {});
    fails_at_once("cluster", "given as redis://", plain, &["MOVED", "use redis+cluster://"]).await;
    let server = Server::start();
    let wrong = client(&server.url().replace("redis:", "redis+cluster:"), |_| {});
    fails_at_once("single", "given as redis+cluster://", wrong, &["no Redis Cluster", "use redis://"]).await;
    let wrong = client(&format!("{}/main", server.url().replace("redis:", "redis+sentinel:")), |_| {});
    fails_at_once("single", "given as redis+sentinel://", wrong, &["no Sentinel", "use redis://"]).await;
    let mut watched = Watched::start(0);
    let wrong = client(&watched.sentinel(0).url(), |_| {});
    fails_at_once("sentinel", "given as redis://", wrong, &["Sentinel", "use redis+sentinel://"]).await;
    let wrong = client(&watched.sentinel(0).url().replace("redis:", "redis+cluster:"), |_| {});
    fails_at_once("sentinel", "given as redis+cluster://", wrong, &["Sentinel", "use redis+sentinel://"]).await;
    let wrong = client(&watched.url().replace("/main", "/other"), |_| {});
    fails_at_once("sentinel", "another master's name", wrong, &["knows no master \"other\""]).await;
}

/// Keeps the server busy with a script until `SCRIPT KILL`, which Redis allows because the script has written nothing.
fn keep_busy(server: &Server) -> redis::Connection {
    let mut connection = server.connect().unwrap();
    let script = redis::cmd("EVAL").arg("while true do end").arg(0).get_packed_command();
    connection.send_packed_command(&script).unwrap();
    connection
}

async fn is_busy(server: &Server) {
    until("the server is busy", || {
        let mut connection = server.connect().unwrap();
        let time = redis::cmd("TIME").query::<Vec<String>>(&mut connection);
        time.is_err_and(|error| error.code() == Some("BUSY"))
    })
    .await;
}

#[tokio::test]
async fn a_script_that_never_ends() {
    let server = Server::with_args(&["--lua-time-limit", "50"]);
    let url = server.url();
    for deployment in ["single, connected before", "single, not connected"] {
        let client = client(&url, |_| {});
        if deployment.ends_with("before") {
            client.lock("x", waiting(LONG)).unwrap().acquire().await.unwrap().release().await.unwrap();
        }
        let _busy = keep_busy(&server);
        is_busy(&server).await;
        is_waited_out(deployment, "BUSY", &client, &["BUSY", "SCRIPT KILL"], async || {
            let _: () = server.command(&["SCRIPT", "KILL"]);
        })
        .await;
    }
    // In a quorum the client must first read the node's identity, which works once the script has ended.
    let mut others = [Server::start(), Server::start()];
    let mut config = Config::new([url, others[0].url(), others[1].url()]);
    config.patience = LONG;
    let quorum = || Client::new(config.clone()).unwrap();
    quorum().lock("x", waiting(LONG)).unwrap().acquire().await.unwrap().release().await.unwrap();
    others[1].stop();
    let quorum = quorum();
    let _busy = keep_busy(&server);
    is_busy(&server).await;
    is_waited_out("two of three", "BUSY, the third down", &quorum, &["BUSY", "connection refused"], async || {
        let _: () = server.command(&["SCRIPT", "KILL"]);
    })
    .await;
}

/// Options that slow down loading until the test sets `key-load-delay` (µs for each key) to 0.
const SLOWLY: [&str; 4] = ["--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024"];

/// Writes so many keys that the server replies between them while it loads, and that loading outlasts the test.
fn fill(server: &Server) {
    let script = "for i = 1, 20000 do redis.call('SET', 'key' .. i, string.rep('x', 1000)) end";
    let _: () = server.command(&["EVAL", script, "0"]);
    let _: () = server.command(&["CONFIG", "SET", "rdbcompression", "no"]);
    let _: () = server.command(&["SAVE"]);
}

#[tokio::test]
async fn a_server_that_loads_its_keys() {
    let mut server = Server::with_args(&["--save", "3600 1"]);
    fill(&server);
    server.restart_loading(&SLOWLY);
    let client = client(&server.url(), |_| {});
    is_waited_out("single", "LOADING", &client, &["LOADING", "loading the dataset"], async || {
        let _: () = server.command(&["CONFIG", "SET", "key-load-delay", "0"]);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_refuses_to_write() {
    let server = Server::with_args(&["--save", "3600 1", "--dbfilename", "occupied"]);
    let url = server.url();
    let set = |name: &str, value: &str| server.command::<()>(&["CONFIG", "SET", name, value]);
    let known = client(&url, |_| {});
    known.lock("x", waiting(LONG)).unwrap().acquire().await.unwrap().release().await.unwrap();

    let _: () = server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    is_waited_out("single", "READONLY", &known, &["READONLY", "is a replica", "redis+sentinel://"], async || {
        let _: () = server.command(&["REPLICAOF", "NO", "ONE"]);
    })
    .await;
    set("replica-serve-stale-data", "no");
    let _: () = server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    is_waited_out("single", "MASTERDOWN", &known, &["MASTERDOWN", "is a replica", "its master"], async || {
        let _: () = server.command(&["REPLICAOF", "NO", "ONE"]);
    })
    .await;
    set("maxmemory", "1");
    is_waited_out("single", "OOM", &known, &["OOM", "maxmemory"], async || set("maxmemory", "0")).await;
    set("min-replicas-to-write", "1");
    is_waited_out("single", "NOREPLICAS", &known, &["NOREPLICAS", "min-replicas-to-write"], async || {
        set("min-replicas-to-write", "0");
    })
    .await;
    // Redis cannot write its file where a directory is.
    let occupied = server.directory().join("occupied");
    let _ = fs::remove_file(&occupied);
    fs::create_dir(&occupied).unwrap();
    let _: () = server.command(&["BGSAVE"]);
    let failed = || server.command::<String>(&["INFO", "persistence"]).contains("rdb_last_bgsave_status:err");
    until("the server cannot save", failed).await;
    is_waited_out("single", "MISCONF", &known, &["MISCONF", "save", "its log"], async || {
        fs::remove_dir(&occupied).unwrap();
        let _: () = server.command(&["BGSAVE"]);
    })
    .await;
}

#[tokio::test]
async fn a_server_that_takes_no_more_connections() {
    let server = Server::start();
    let mut control = server.connect().unwrap();
    let mut most = |count: u32| {
        redis::cmd("CONFIG").arg(&["SET", "maxclients", &count.to_string()]).query::<()>(&mut control).unwrap();
    };
    most(1);
    let client = client(&server.url(), |_| {});
    is_waited_out("single", "maxclients", &client, &["maxclients"], async || most(100)).await;
}

#[tokio::test]
async fn a_cluster_that_is_down() {
    let server = Server::with_args(&["--cluster-enabled", "yes"]);
    let unassigned = client(&server.url().replace("redis:", "redis+cluster:"), |_| {});
    is_waited_out("cluster", "CLUSTERDOWN: slots that nobody serves", &unassigned, &["CLUSTERDOWN"], async || {
        let _: () = server.command(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    })
    .await;

    let mut cluster = Cluster::start(3, 0);
    let connected = client(&cluster.url(), |_| {});
    connected.lock("x", waiting(LONG)).unwrap().acquire().await.unwrap().release().await.unwrap();
    let new = client(&cluster.url_of(cluster.owner("x")), |_| {});
    let owner = cluster.owner("x");
    let others: Vec<_> = (0..3).filter(|index| *index != owner).collect();
    for other in &others {
        cluster.server(*other).freeze();
    }
    until("the rest finds itself a minority", || {
        cluster.servers()[owner].command::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:fail")
    })
    .await;
    // The client first requests a newer map from the other servers, which times out.
    let config = new.config();
    let (error, after) = refused(&new, config.connect_timeout + config.reply_timeout + SLACK).await;
    says(&error, &["CLUSTERDOWN"]);
    row("cluster, not connected", "CLUSTERDOWN: most masters hang", &error.to_string(), after);
    is_waited_out("cluster", "CLUSTERDOWN: most masters hang", &connected, &["redis+cluster://"], async || {
        for other in &others {
            cluster.server(*other).thaw();
        }
    })
    .await;
}

// ---- while a lock is held -----------------------------------------------------------------------------------------

/// A lease of 3 s, renewed every second.
async fn held(url: &str) -> (Client, Lease) {
    let client = client(url, |config| config.watchdog = Duration::from_secs(3));
    let lease = client.lock("x", LockOptions::default()).unwrap().acquire().await.unwrap();
    (client, lease)
}

/// Checks that the lease stays held until its deadline and is lost then.
async fn ends_at_its_deadline(deployment: &str, fault: &str, lease: &Lease, bad: impl FnOnce()) {
    let (left, started) = (lease.remaining(), Instant::now());
    bad();
    let reason = tokio::time::timeout(LONG, lease.lost()).await.unwrap();
    let after = started.elapsed();
    row(deployment, fault, &format!("lost: {}", reason.unwrap()), after);
    assert_eq!(reason, Some(LostReason::Unreachable), "{fault}");
    assert!(!lease.held());
    assert!(after + Duration::from_millis(100) >= left, "{fault}: lost after {after:?} with {left:?} left");
    assert!(after < Duration::from_secs(3) + SLACK, "{fault}: only after {after:?}");
}

#[tokio::test]
async fn a_held_lock_and_a_busy_server() {
    let server = Server::with_args(&["--lua-time-limit", "50"]);
    let (_client, lease) = held(&server.url()).await;
    let mut busy = None;
    ends_at_its_deadline("single", "BUSY while held", &lease, || busy = Some(keep_busy(&server))).await;
    let _: () = server.command(&["SCRIPT", "KILL"]);

    // The holder does not notice a script that ends in time.
    let steady = client(&server.url(), |config| config.watchdog = Duration::from_secs(30));
    let lock = steady.lock("y", LockOptions::default()).unwrap();
    let lease = lock.acquire().await.unwrap();
    let _busy = keep_busy(&server);
    is_busy(&server).await;
    let extended = lease.extend(Duration::from_secs(30)).await;
    says(&extended.unwrap_err(), &["BUSY"]);
    let left = lease.remaining();
    let _: () = server.command(&["SCRIPT", "KILL"]);
    until("the lease is renewed", || lease.remaining() > left).await;
    assert!(lease.held());
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_held_lock_and_a_server_that_restarts() {
    let mut server = Server::with_args(&["--save", "3600 1"]);
    let (_client, lease) = held(&server.url()).await;
    fill(&server);
    let restart = |server: &mut Server| {
        let _: () = server.command(&["SAVE"]);
        server.restart_loading(&SLOWLY);
    };
    ends_at_its_deadline("single", "restart, LOADING while held", &lease, || restart(&mut server)).await;
    let _: () = server.command(&["CONFIG", "SET", "key-load-delay", "0"]);

    // A restart loses nothing if the server has loaded its saved keys within the lease.
    let steady = client(&server.url(), |config| config.watchdog = Duration::from_secs(60));
    let lease = steady.lock("y", waiting(LONG)).unwrap().acquire().await.unwrap();
    restart(&mut server);
    let extended = lease.extend(Duration::from_secs(60)).await;
    assert_eq!(extended.unwrap_err().code(), "unavailable");
    let _: () = server.command(&["CONFIG", "SET", "key-load-delay", "0"]);
    let left = lease.remaining();
    until("the lease is renewed", || lease.remaining() > left).await;
    row("single", "restart with what was saved, within the lease", "held", Duration::ZERO);
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_held_lock_and_a_server_that_becomes_a_replica() {
    let server = Server::start();
    let (_client, lease) = held(&server.url()).await;
    ends_at_its_deadline("single", "READONLY (demoted) while held", &lease, || {
        let _: () = server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    })
    .await;
}

#[tokio::test]
async fn a_held_lock_and_a_cluster_that_goes_down() {
    let mut cluster = Cluster::start(3, 0);
    let (_client, lease) = held(&cluster.url()).await;
    let owner = cluster.owner("x");
    ends_at_its_deadline("cluster", "CLUSTERDOWN while held", &lease, || {
        for other in (0..3).filter(|index| *index != owner) {
            cluster.server(other).stop();
        }
    })
    .await;
    // A fixed lease ends with `expired`, as it would have without the fault.
    let server = Server::start();
    let mut options = LockOptions::default();
    options.ttl = Ttl::Fixed(Duration::from_secs(1));
    let fixed = client(&server.url(), |_| {}).lock("x", options).unwrap().acquire().await.unwrap();
    let _: () = server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(tokio::time::timeout(LONG, fixed.lost()).await.unwrap(), Some(LostReason::Expired));
}
