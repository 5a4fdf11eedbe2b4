//! `doctor`: it names each planted fault, and says nothing of healthy deployments.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use redlock::{
    Client, Config, LockError, LockOptions,
    process::{driver::Driver, runtime},
};
use redlock_tests::{
    clocks::WallClock,
    deployments::{Cluster, Watched},
    proxy::{Direction, Proxy},
    server::Server,
    stub::{HTTP, Stub},
    tls::Certificates,
    wait_until,
};
use serde_json::Value;

use crate::support::{LIMIT, Ran, command, run};

/// A server that keeps its locks. Without a slow log: a busy machine is no fault of the server.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--slowlog-log-slower-than", "-1"];

fn doctor(urls: &str, more: &[&str]) -> Ran {
    // Long enough to tell 1 % of drift from the round trips, and no longer.
    let mut command = command(&[&["doctor", "--interval", "300ms"][..], more].concat());
    command.env("REDLOCK_URL", urls);
    run(command)
}

fn urls(servers: &[Server]) -> String {
    servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
}

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::with_args(&["--slowlog-log-slower-than", "-1"])).collect()
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// A client of a program, connected to all nodes.
fn client(urls: &str, app: &str, quorum: usize) -> Client {
    let mut config = Config::from_list(urls);
    config.app = Some(app.to_owned());
    config.quorum = Some(quorum);
    let client = Client::new(config).expect("a client");
    let mut never = || Ok::<(), LockError>(());
    let pinged = runtime::block(Driver::Background, client.ping(), &mut never).expect("not interrupted");
    let nodes = pinged.expect("statuses");
    assert!(nodes.iter().all(|node| node.state.is_ok()), "{nodes:?}");
    client
}

/// Checks that nothing was found.
fn healthy(urls: &str, nodes: &str) {
    let ran = doctor(urls, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    assert_eq!(ran.stdout, format!("no problems found on {nodes}; 11 checks\n"));
}

/// Runs `doctor`, and returns the finding of a check on a server, which must have this severity.
fn finding(urls: &str, more: &[&str], severity: &str, check: &str, node: Option<&str>) -> Value {
    let ran = doctor(urls, &[more, &["--json"]].concat());
    let code = if severity == "critical" { 2 } else { 1 };
    assert_eq!(ran.code, code, "{ran:?}");
    let objects = ran.objects();
    let is_it = |object: &&Value| object["check"] == check && node.is_none_or(|node| object["node"] == node);
    let found = objects.iter().find(is_it).unwrap_or_else(|| panic!("no finding of {check}: {ran:?}"));
    assert_eq!(found["severity"], severity, "{found}");
    let page = format!("docs/doctor.md#{check}");
    assert!(found["page"] == page.as_str() && found["advice"].is_string(), "{found}");
    found.clone()
}

/// Checks that a member of a finding has these parts.
fn says(finding: &Value, member: &str, parts: &[&str]) {
    let text = finding[member].as_str().expect("a text");
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {finding}");
    }
}

#[test]
fn a_healthy_server_has_nothing_and_keeps_nothing() {
    let server = Server::with_args(&DURABLE);
    healthy(&server.url(), "1 node");
    let keys: Vec<String> = server.command(&["KEYS", "*"]);
    assert!(keys.iter().all(|key| key.starts_with("redlock_token:")), "{keys:?}");
    let _: String = server.command(&["FLUSHALL"]);
    assert_eq!(doctor(&server.url(), &["--read-only"]).code, 0);
    assert_eq!(server.command::<usize>(&["DBSIZE"]), 0);
}

#[test]
fn each_check_that_passed_has_a_line_and_a_section_in_the_documentation() {
    let server = Server::with_args(&DURABLE);
    let ran = doctor(&server.url(), &["-v"]);
    let passed: Vec<&str> = ran.stdout.lines().filter_map(|line| line.strip_prefix("ok")).collect();
    assert_eq!((ran.code, passed.len()), (0, 11), "{ran:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/doctor.md");
    let page = fs::read_to_string(page).expect("the page").to_lowercase();
    for line in passed {
        let name = line.split_whitespace().next().expect("a name");
        assert!(page.contains(&format!("\n## {name}\n")), "docs/doctor.md has no section {name}");
    }
    assert!(ran.stderr.contains("round trip"), "{ran:?}");
    let objects = doctor(&server.url(), &["-v", "--json"]).objects();
    let names: BTreeSet<&str> = objects.iter().filter_map(|object| object["check"].as_str()).collect();
    assert!(names.len() == 11 && objects.iter().all(|object| object["severity"] == "ok"), "{objects:?}");
}

#[test]
fn healthy_sentinels_have_nothing() {
    let watched = Watched::with_args(1, &DURABLE, "");
    healthy(&watched.url(), "1 node");
}

#[test]
fn a_healthy_cluster_has_nothing() {
    let cluster = Cluster::with_args(3, 1, &DURABLE);
    healthy(&cluster.url(), "1 node");
}

#[test]
fn a_healthy_quorum_has_nothing_with_its_clients() {
    for count in [3, 5] {
        let servers = servers(count);
        let urls = urls(&servers);
        let clients = ["billing", "billing", "shop"].map(|app| client(&urls, app, count / 2 + 1));
        // Before the first acquire, which writes the markers, and after it.
        healthy(&urls, &format!("{count} nodes"));
        let lock = clients[0].lock("report", LockOptions::default()).expect("a lock");
        let lease = lock.acquire_blocking().expect("a lease");
        healthy(&urls, &format!("{count} nodes"));
        lease.release().expect("a release");
        for client in clients {
            client.close_blocking();
        }
    }
}

#[test]
fn fault_1_an_eviction_policy() {
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::with_args(&[&DURABLE[..], &evicting].concat());
    let finding = finding(&server.url(), &[], "critical", "eviction", Some(&address(&server)));
    says(&finding, "found", &["allkeys-lru"]);
    says(&finding, "advice", &["noeviction"]);
}

#[test]
fn fault_2_no_persistence() {
    let server = Server::start();
    let finding = finding(&server.url(), &[], "warning", "durability", Some(&address(&server)));
    says(&finding, "found", &["no append-only file", "forgets"]);
    let cluster = Cluster::start(3, 1);
    assert_eq!(doctor(&cluster.url(), &[]).stdout.matches("no append-only file").count(), 3);
}

#[test]
fn fault_3_a_replica_named_as_a_node() {
    let mut servers = servers(2);
    let master = servers[0].port().to_string();
    servers.push(Server::with_args(&["--replicaof", &format!("127.0.0.1 {master}")]));
    let finding = finding(&urls(&servers), &[], "critical", "independence", Some(&address(&servers[2])));
    says(&finding, "found", &[&format!("is a replica of 127.0.0.1:{master}"), "a node, too"]);
}

#[test]
fn fault_4_two_names_of_one_server() {
    let servers = servers(2);
    let twin = servers[0].url().replace("127.0.0.1", "localhost");
    let urls = format!("{},{twin}", urls(&servers));
    let name = format!("localhost:{}", servers[0].port());
    let finding = finding(&urls, &[], "critical", "independence", Some(&name));
    says(&finding, "found", &["two names of one node", &address(&servers[0])]);
}

#[test]
fn fault_5_a_clock_that_is_ahead() {
    let clock = WallClock::new(0);
    clock.set(Duration::from_secs(3), true);
    let mut servers = servers(2);
    servers.push(Server::launch(&[], &clock.environment()));
    let odd = address(&servers[2]);
    says(&finding(&urls(&servers), &[], "warning", "clocks", Some(&odd)), "found", &["3.0 s ahead of the others'"]);
    let short = finding(&urls(&servers), &["--max-ttl", "8s"], "warning", "clocks", Some(&odd));
    says(&short, "found", &["tokens are not in order"]);

    let fast = WallClock::new(100_000);
    let server = Server::launch(&DURABLE, &fast.environment());
    says(&finding(&server.url(), &[], "warning", "clocks", None), "found", &["too fast"]);
}

#[test]
fn fault_6_a_missing_right() {
    let server = Server::with_args(&DURABLE);
    let url = format!("redis://bob:secret@{}", address(&server));
    let node = address(&server);
    let allow = |rules: &[&str]| {
        let user = ["ACL", "SETUSER", "bob", "reset", "on", ">secret", "~*", "&*", "+@all"];
        let _: String = server.command(&[&user[..], rules].concat());
    };
    // ACL DRYRUN names it, without and with the trial.
    allow(&["-hexists"]);
    for more in [&[][..], &["--read-only"]] {
        let found = finding(&url, more, "critical", "rights", Some(&node));
        says(&found, "found", &["bob", "hexists"]);
        assert_eq!(found["advice"], "Run: ACL SETUSER bob +hexists");
    }
    let _: String = server.command(&["ACL", "SETUSER", "bob", "reset", "on", ">secret", "~app:*", "&*", "+@all"]);
    let keys = finding(&url, &["--prefix", "app:"], "critical", "rights", Some(&node));
    assert_eq!(keys["advice"], "Run: ACL SETUSER bob ~redlock_token:* ~redlock_ended:*");
    // Where ACL DRYRUN is forbidden, the trial does.
    for (denied, step) in [("-hset", "acquire"), ("-hexists", "renew"), ("-hkeys", "inspect")] {
        allow(&[denied, "-acl|dryrun"]);
        let found = finding(&url, &[], "critical", "rights", Some(&node));
        says(&found, "found", &[&format!("cannot {step} a lock")]);
        assert_eq!(found["advice"], format!("Run: ACL SETUSER bob +{}", &denied[1..]));
    }
    assert!(!doctor(&url, &["-v"]).stderr.contains("secret"));
}

#[test]
fn fault_7_another_quorum_in_the_fleet() {
    let servers = servers(3);
    let urls = urls(&servers);
    let clients = [2, 2, 3].map(|quorum| client(&urls, "billing", quorum));
    let finding = finding(&urls, &[], "warning", "fleet", None);
    let pid = format!("(pid {})", std::process::id());
    says(&finding, "found", &["app billing on ", &pid, "quorum 3, others 2"]);
    for client in clients {
        client.close_blocking();
    }
}

#[test]
fn fault_8_an_old_version() {
    let server = Server::with_args(&DURABLE);
    let old = Proxy::start(server.port());
    old.rewrite(Direction::Replies, age);
    let finding = finding(&old.url(), &[], "warning", "version", None);
    says(&finding, "found", &["Redis 5.", "RESP3"]);
    says(&finding, "advice", &["6.2"]);
}

#[test]
fn fault_9_tls_on_one_side_only() {
    let certificates = Certificates::make();
    let arguments = certificates.arguments("server");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let no_client = ["--tls-auth-clients", "no"];
    let with_tls = Server::with_args(&[&DURABLE[..], &no_client, &arguments].concat());
    let without = Server::with_args(&DURABLE);
    let pairs = [
        with_tls.url().replace("rediss://", "redis://"),
        without.url().replace("redis://", "rediss://"),
        // A certificate that nothing here trusts.
        with_tls.url(),
    ];
    for url in pairs {
        let finding = finding(&url, &[], "critical", "reach", None);
        says(&finding, "advice", &["rediss://"]);
    }
    let ran = doctor(&with_tls.url(), &["--ca", &certificates.path("ca.crt")]);
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn fault_10_a_frozen_server() {
    let mut servers = servers(3);
    servers[1].freeze();
    let finding = finding(&urls(&servers), &[], "warning", "reach", Some(&address(&servers[1])));
    says(&finding, "found", &["no answer", "2 of 3 nodes answer, 2 must"]);
    servers[2].freeze();
    let urls = urls(&servers);
    self::finding(&urls, &[], "critical", "reach", Some(&address(&servers[1])));
    for server in &mut servers[1..] {
        server.thaw();
    }
}

#[test]
fn a_node_in_quarantine_is_named() {
    let mut servers = servers(3);
    let urls = urls(&servers);
    let mut acquire = command(&["acquire", "x", "--ttl", "5"]);
    acquire.env("REDLOCK_URL", &urls);
    assert_eq!(run(acquire).code, 0);
    servers[0].stop();
    servers[0].restart();
    let finding = finding(&urls, &[], "warning", "markers", Some(&address(&servers[0])));
    says(&finding, "found", &["has lost its keys", "2 of 3 nodes vote, 2 must"]);
}

#[test]
fn a_replica_that_syncs_every_write_is_a_trap() {
    let servers = servers(3);
    let of = format!("127.0.0.1 {}", servers[0].port());
    let replica = Server::with_args(&["--appendonly", "yes", "--appendfsync", "always", "--replicaof", &of]);
    // The master lists a replica once it is connected.
    wait_until(LIMIT, "the replica is in step", || {
        servers[0].command::<String>(&["INFO", "replication"]).contains("state=online")
    });
    let finding = finding(&urls(&servers), &[], "critical", "durability", Some(&address(&replica)));
    says(&finding, "found", &["appendfsync always", &address(&servers[0])]);
}

#[test]
fn a_server_that_is_down_wrong_frozen_or_forbidden_has_one_line_that_says_what_to_do() {
    let one_line = |url: &str, parts: &[&str]| {
        let ran = doctor(url, &[]);
        assert_eq!(ran.code, 2, "{ran:?}");
        let line = ran.line();
        assert!(line.starts_with("critical  "), "{line}");
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in {line}");
        }
        assert!(ran.stderr.starts_with("redlock: 1 critical on 1 node; 11 checks"), "{ran:?}");
    };
    let mut server = Server::with_args(&DURABLE);
    let address = address(&server);
    let few = ["ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@connection", "+info"];
    let _: String = server.command(&few);
    let login = |login: &str| format!("redis://{login}@{address}");
    one_line(&login("bob:wrong"), &["password", "Give a user and a password"]);
    one_line(&login("bob:secret"), &["cannot acquire a lock", "NOPERM", "ACL SETUSER NAME +evalsha"]);
    server.freeze();
    one_line(&server.url(), &[&address, "no answer", "Check that the server runs"]);
    server.thaw();
    server.stop();
    one_line(&server.url(), &[&address, "connection refused", "Check that the server is up"]);

    let http = Stub::start(Some(HTTP));
    one_line(&http.url("redis"), &["does not speak Redis' protocol", "Check the port"]);
}

#[test]
fn a_store_in_memory_and_a_wrong_line_are_64() {
    assert_eq!(doctor("memory://x", &[]).code, 64);
    assert_eq!(run(command(&["doctor", "--interval", "soon"])).code, 64);
}

/// Changes the version's first digit. The reply to INFO begins with it, so that it is never in two reads.
fn age(bytes: &mut [u8]) {
    const FIELD: &[u8] = b"redis_version:";
    if let Some(at) = bytes.windows(FIELD.len()).position(|window| window == FIELD)
        && let Some(digit) = bytes.get_mut(at + FIELD.len())
    {
        *digit = b'5';
    }
}
