//! `ls` and `inspect`.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use redlock::{Client, Config, LockOptions, Ttl};
use redlock_tests::{
    deployments::{Cluster, Watched},
    server::Server,
    wait_until,
};

use crate::support::{LIMIT, Ran, command, on, on_quorum, run};

/// A `redlock acquire` that waits. Its end gives up the wait.
struct Waiter(Child);

impl Waiter {
    fn start(urls: &str, name: &str) -> Self {
        let mut waiter = command(&["acquire", name, "--ttl", "60"]);
        waiter.env("REDLOCK_URL", urls).stdout(Stdio::null()).stderr(Stdio::null());
        Self(waiter.spawn().expect("redlock starts"))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_urls(urls: &str, arguments: &[&str]) -> Ran {
    let mut command: Command = command(arguments);
    command.env("REDLOCK_URL", urls);
    run(command)
}

#[test]
fn the_holder_is_shown_node_by_node() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let free = on_quorum(&servers, &["inspect", "x"]);
    assert_eq!(free.code, 1, "{free:?}");
    assert!(free.stdout.starts_with("x: free\n"), "{}", free.stdout);
    let lease = on_quorum(&servers, &["acquire", "x", "--ttl", "60", "--json"]).object();
    let held = on_quorum(&servers, &["inspect", "x", "--json"]);
    assert_eq!(held.code, 0, "{held:?}");
    let object = held.object();
    assert_eq!((&object["held"], &object["kind"]), (&true.into(), &"lock".into()), "{object}");
    assert_eq!(object["waiting"], 0, "{object}");
    assert!(object["ttl"].as_f64().is_some_and(|ttl| ttl > 0.0 && ttl <= 60.0), "{object}");
    let nodes = object["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    // A node that granted late may have a larger one.
    assert!(nodes.iter().any(|node| node["token"] == lease["token"]), "{object}");
    for (node, server) in nodes.iter().zip(&servers) {
        assert_eq!(node["node"], format!("127.0.0.1:{}", server.port()));
        assert_eq!((&node["owners"][0], &node["error"]), (&object["owner"], &serde_json::Value::Null), "{node}");
        assert!(node["waiting"].is_u64(), "{node}");
    }
    let table = on_quorum(&servers, &["inspect", "x"]).stdout;
    assert!(table.starts_with("x: held by ") && table.contains("\nNODE") && table.lines().count() == 5, "{table}");
}

/// A `redlock exec` that holds a lock until it is let go.
struct Holding(Child);

impl Holding {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut exec = command(&[&["exec"], arguments, &["--", "cat"]].concat());
        exec.env("REDLOCK_URL", server.url()).stdin(Stdio::piped()).stdout(Stdio::null());
        let holding = Self(exec.spawn().expect("redlock starts"));
        wait_until(LIMIT, "the lock is held", || on(server, &["inspect", arguments[0]]).code == 0);
        holding
    }

    fn let_go(mut self) -> Option<i32> {
        drop(self.0.stdin.take());
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_process_that_holds_a_lock_is_shown() {
    let server = Server::start();
    let holding = Holding::start(&server, &["x", "--label", "nightly"]);
    let pid = holding.0.id();
    let object = on(&server, &["inspect", "x", "--json"]).object();
    assert_eq!((&object["pid"], &object["app"]), (&pid.into(), &"nightly".into()), "{object}");
    let host = object["host"].as_str().expect("a machine").to_owned();
    let since = object["since"].as_f64().expect("a time");
    let age = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs_f64() - since;
    assert!((-1.0..LIMIT.as_secs_f64()).contains(&age), "{object}");

    let holder = format!("pid {pid} (nightly) on {host}");
    let inspected = on(&server, &["inspect", "x"]).stdout;
    assert!(inspected.starts_with(&format!("x: held by {holder} for ")), "{inspected}");
    let listed = on(&server, &["ls", "--scan"]).stdout;
    assert!(listed.contains("HELD BY") && listed.contains(&holder), "{listed}");
    let late = on(&server, &["acquire", "x", "--ttl", "5", "-w", "200ms"]);
    assert!(late.code == 75 && late.stderr.contains(&holder), "{late:?}");
    assert_eq!(holding.let_go(), Some(0));

    // By default others see the command, and never its arguments.
    let holding = Holding::start(&server, &["y"]);
    assert_eq!(on(&server, &["inspect", "y", "--json"]).object()["app"], "cat");
    assert_eq!(holding.let_go(), Some(0));
}

#[test]
fn a_lock_that_rests_has_no_holder_and_is_not_free() {
    let server = Server::start();
    assert_eq!(on(&server, &["exec", "x", "--min-hold", "60", "--", "true"]).code, 0);
    assert_eq!(on(&server, &["exec", "x", "-n", "--min-hold", "60", "--", "true"]).code, 75);
    let inspected = on(&server, &["inspect", "x", "--wait", "50ms"]);
    assert_eq!(inspected.code, 0, "{inspected:?}");
    assert!(inspected.stdout.starts_with("x: held by nobody; free in "), "{inspected:?}");
    let object = on(&server, &["inspect", "x", "--json"]).object();
    assert_eq!((&object["kind"], &object["held"]), (&"rest".into(), &true.into()), "{object}");
    assert!(object["owner"].is_null() && object["pid"].is_null() && object["ttl"].is_f64(), "{object}");
    assert_eq!(object["nodes"][0]["kind"], "rest", "{object}");
    let listed = on(&server, &["ls", "--scan"]).stdout;
    assert!(listed.contains("rest") && listed.contains("nobody; free in "), "{listed}");
    let forced = on(&server, &["release", "x", "--force", "--yes"]);
    assert!(forced.code == 0 && forced.stderr.contains("nobody; free in "), "{forced:?}");
    assert_eq!(on(&server, &["inspect", "x"]).code, 1);
}

#[test]
fn inspect_waits_until_a_lock_is_free() {
    let server = Server::start();
    let lease = on(&server, &["acquire", "x", "--ttl", "60"]).line().to_owned();
    assert_eq!(on(&server, &["inspect", "x", "--wait", "50ms"]).code, 0);
    let mut waits = command(&["inspect", "x", "--wait", "60"]);
    waits.env("REDLOCK_URL", server.url()).stdout(Stdio::null());
    let mut waits = waits.spawn().expect("redlock starts");
    assert_eq!(on(&server, &["release", &lease]).code, 0);
    assert_eq!(waits.wait().expect("it ends").code(), Some(1));
}

#[test]
fn a_key_that_is_no_lock_is_a_conflict() {
    let server = Server::start();
    let _: String = server.command(&["SET", "x", "something"]);
    for arguments in [&["inspect", "x"][..], &["acquire", "x", "--ttl", "5"], &["release", "x", "--force", "--yes"]] {
        let ran = on(&server, arguments);
        assert_eq!(ran.code, 65, "{ran:?}");
        assert!(ran.stderr.contains("\"x\"") && ran.stderr.lines().count() == 1, "{ran:?}");
        assert!(!ran.stdout.contains("not known"), "{ran:?}");
    }
}

#[test]
fn contended_locks_are_listed_with_their_waiters() {
    let (server, cluster, watched) = (Server::start(), Cluster::start(3, 0), Watched::start(1));
    let quorum = [Server::start(), Server::start(), Server::start()];
    let urls: Vec<String> = quorum.iter().map(Server::url).collect();
    for urls in [server.url(), cluster.url(), watched.url(), urls.join(",")] {
        for name in ["order:1", "order:2", "a{tag}b", "quiet"] {
            assert_eq!(with_urls(&urls, &["acquire", name, "--ttl", "60"]).code, 0, "{urls}");
        }
        let nothing = with_urls(&urls, &["ls"]);
        assert_eq!((nothing.code, nothing.stdout.as_str()), (0, ""), "{nothing:?}");
        assert!(nothing.stderr.contains("--scan"), "{nothing:?}");
        let waiters: Vec<Waiter> =
            ["order:1", "order:1", "order:2", "a{tag}b"].iter().map(|name| Waiter::start(&urls, name)).collect();
        let mut listed = Vec::new();
        wait_until(LIMIT, "all waiters are counted", || {
            listed = with_urls(&urls, &["ls", "--json"]).objects();
            listed.iter().map(|lock| lock["waiting"].as_u64().expect("a number")).sum::<u64>() == 4
        });
        let shown: Vec<_> = listed
            .iter()
            .map(|lock| (lock["name"].as_str().expect("a name"), lock["waiting"].as_u64().expect("a number")))
            .collect();
        assert_eq!(shown, [("a{tag}b", 1), ("order:1", 2), ("order:2", 1)], "{urls}");
        assert!(listed.iter().all(|lock| lock["kind"] == "lock" && lock["owner"].is_string()), "{listed:?}");
        let some = with_urls(&urls, &["ls", "order:[2-9]"]).stdout;
        assert!(some.lines().count() == 2 && some.contains("order:2"), "{some}");
        drop(waiters);
    }
}

#[test]
fn waiters_are_shown_in_the_order_of_their_turns() {
    let server = Server::start();
    assert_eq!(on(&server, &["acquire", "x", "--ttl", "60"]).code, 0);
    let queue = || on(&server, &["inspect", "x", "--json"]).object()["queue"].as_array().expect("a queue").clone();
    assert_eq!(queue().len(), 0);
    let mut waiters = Vec::new();
    for app in ["first", "second"] {
        let mut waiter = command(&["exec", "--fair", "--label", app, "x", "--", "true"]);
        waiter.env("REDLOCK_URL", server.url()).stdout(Stdio::null()).stderr(Stdio::null());
        waiters.push(Waiter(waiter.spawn().expect("redlock starts")));
        wait_until(LIMIT, "it has its place", || queue().len() == waiters.len());
    }
    let apps: Vec<_> = queue().iter().map(|waiter| waiter["app"].clone()).collect();
    assert_eq!(apps, ["first", "second"]);
    let table = on(&server, &["inspect", "x"]).stdout;
    let turns: Vec<&str> = table.lines().skip_while(|line| !line.starts_with("TURN")).collect();
    assert!(turns.len() == 3 && turns[1].contains("(first)") && turns[2].contains("(second)"), "{table}");
    let list = on(&server, &["ls"]).stdout;
    assert!(list.lines().nth(1).is_some_and(|line| line.contains("(first)") && !line.contains("(second)")), "{list}");
}

#[test]
fn a_scan_finds_every_lock_and_nothing_else() {
    let (server, cluster) = (Server::start(), Cluster::start(3, 0));
    let quorum = [Server::start(), Server::start(), Server::start()];
    let urls: Vec<String> = quorum.iter().map(Server::url).collect();
    for (servers, urls) in [
        (std::slice::from_ref(&server), server.url()),
        (cluster.servers(), cluster.url()),
        (&quorum[..], urls.join(",")),
    ] {
        for server in servers {
            for (key, value) in [("text", "something"), ("number", "12:30"), ("address", "10.0.0.1:6379")] {
                let connection = server.connect();
                // A server of a cluster refuses the keys of others.
                let _ = connection.and_then(|mut to| redis::cmd("SET").arg(key).arg(value).query::<()>(&mut to));
                let session = redis::cmd("HSET").arg("session").arg("user:1").arg("x").to_owned();
                let _ = server.connect().and_then(|mut to| session.query::<()>(&mut to));
            }
        }
        for name in ["a", "b", "c*", "other"] {
            assert_eq!(with_urls(&urls, &["acquire", name, "--ttl", "60", "--prefix", "p*:"]).code, 0, "{urls}");
        }
        assert_eq!(with_urls(&urls, &["acquire", "p:outside", "--ttl", "60"]).code, 0);
        let listed = with_urls(&urls, &["ls", "--scan", "--prefix", "p*:", "--json"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        let names: Vec<_> =
            listed.objects().iter().map(|lock| lock["name"].as_str().expect("a name").to_owned()).collect();
        assert_eq!(names, ["a", "b", "c*", "other"], "{urls}");
        let all = with_urls(&urls, &["ls", "--scan", "--json"]);
        assert_eq!(all.objects().len(), 5, "{all:?}");
    }
}

#[test]
fn a_scan_finds_the_locks_of_a_slot_that_moves() {
    let cluster = Cluster::start(3, 0);
    let list = || {
        let listed = with_urls(&cluster.url(), &["ls", "--scan", "--json"]);
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.objects().iter().map(|lock| lock["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    for name in ["{x}1", "{x}2", "other"] {
        assert_eq!(with_urls(&cluster.url(), &["acquire", name, "--ttl", "60"]).code, 0);
    }
    let (from, to) = (cluster.owner("x"), cluster.another("x"));
    cluster.begin_move("x", to);
    // One lock has moved with its token; of the other one both keys are where they were.
    for key in ["{x}1", "redlock_token:{x}1"] {
        cluster.move_key(key, from, to);
    }
    assert_eq!(list(), ["other", "{x}1", "{x}2"]);
    cluster.end_move("x", from, to);
    assert_eq!(list(), ["other", "{x}1", "{x}2"]);
}

#[test]
fn a_scan_goes_through_many_keys_and_stops_at_its_limit() {
    let server = Server::start();
    let fill = "for i = 1, 20000 do redis.call('SET', 'key:' .. i, 'x') end";
    let _: redis::Value = server.command(&["EVAL", fill, "0"]);
    assert_eq!(on(&server, &["acquire", "x", "--ttl", "60"]).code, 0);
    let all = on(&server, &["ls", "--scan", "--all"]);
    assert!(all.stdout.contains("\nx ") && all.stderr.is_empty(), "{all:?}");
    let some = on(&server, &["ls", "--scan", "--limit", "3000"]);
    assert_eq!(some.code, 0);
    assert!(some.stderr.contains("--all"), "{some:?}");
    let calls: String = server.command(&["INFO", "commandstats"]);
    assert!(!calls.contains("cmdstat_keys:") && calls.contains("cmdstat_scan:"), "{calls}");
}

#[test]
fn both_wires_and_kinds_are_listed() {
    let server = Server::start();
    let wire = ["--wire", "token"];
    assert_eq!(on(&server, &[&["acquire", "x", "--ttl", "60"], &wire[..]].concat()).code, 0);
    let listed = on(&server, &[&["ls", "--scan", "--json"], &wire[..]].concat());
    assert_eq!(listed.objects().len(), 1, "{listed:?}");
    // Another wire's lock is no lock here.
    assert!(on(&server, &["ls", "--scan", "--json"]).objects().is_empty());
}

#[test]
fn a_node_that_is_down_hides_no_lock() {
    let mut quorum = [Server::start(), Server::start(), Server::start()];
    let client = Client::new(Config::new(quorum.iter().map(Server::url))).expect("a configuration");
    let mut options = LockOptions::default();
    options.ttl = Ttl::Fixed(Duration::from_secs(60));
    let permit =
        client.semaphore("sem", 1, options.clone()).expect("a semaphore").acquire_blocking(1).expect("a permit");
    // By this client, not by the command: a process that ends after a majority has granted may leave a node out.
    let _lease = client.lock("lock", options).expect("a lock").acquire_blocking().expect("the lock");
    wait_until(LIMIT, "every node has both", || {
        quorum.iter().all(|server| server.command::<usize>(&["EXISTS", "sem", "lock"]) == 2)
    });
    quorum[0].stop();
    let listed = on_quorum(&quorum, &["ls", "--scan", "--json"]);
    assert_eq!(listed.code, 0, "{listed:?}");
    let kinds: Vec<_> = listed.objects().iter().map(|lock| lock["kind"].clone()).collect();
    assert_eq!(kinds, ["lock", "semaphore"], "{listed:?}");
    let inspected = on_quorum(&quorum, &["inspect", "sem", "--json"]);
    assert_eq!(inspected.code, 0, "{inspected:?}");
    let object = inspected.object();
    assert_eq!((&object["kind"], &object["owner"]), (&"semaphore".into(), &permit.owner().into()), "{object}");
    let nodes = object["nodes"].as_array().expect("nodes");
    let are_down: Vec<bool> = nodes.iter().map(|node| node["error"].is_string()).collect();
    assert_eq!(are_down, [true, false, false], "{object}");
}

#[test]
fn a_lock_that_cannot_be_inspected_hides_no_other() {
    let server = Server::start();
    for name in ["a", "b"] {
        assert_eq!(on(&server, &["acquire", name, "--ttl", "60", "--prefix", "p:"]).code, 0);
    }
    // The user may not read the token of b.
    let keys = ["ACL", "SETUSER", "some", "on", ">secret", "&*", "+@all", "~p:*", "~redlock_token:{p:a}"];
    let _: String = server.command(&keys);
    let url = format!("redis://some:secret@127.0.0.1:{}", server.port());
    let list = |more: &[&str]| with_urls(&url, &[&["ls", "--scan", "--prefix", "p:"], more].concat());
    let listed = list(&["--json"]);
    assert_eq!(listed.code, 77, "{listed:?}");
    let locks = listed.objects();
    assert_eq!(locks.len(), 2, "{listed:?}");
    assert!(locks[0]["kind"] == "lock" && locks[0]["error"].is_null(), "{listed:?}");
    assert!(locks[1]["kind"].is_null() && locks[1]["error"].is_string(), "{listed:?}");
    assert!(listed.stderr.contains("cannot inspect \"b\"") && listed.stderr.lines().count() == 1, "{listed:?}");
    let table = list(&[]).stdout;
    assert!(table.lines().any(|line| line.starts_with("b ") && line.contains("not known")), "{table}");
}

/// The rules on a page of the documentation.
fn documented(page: &str) -> Vec<String> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let page = std::fs::read_to_string(page).expect("a page");
    page.lines().filter_map(|line| line.strip_prefix("ACL SETUSER locks ")).map(str::to_owned).collect()
}

#[test]
fn the_documented_rights_suffice() {
    let server = Server::start();
    let permit = |rule: &str| {
        let words: Vec<&str> = ["ACL", "SETUSER", "locks"].into_iter().chain(rule.split(' ')).collect();
        let _: () = server.command(&words);
    };
    let url = format!("redis://locks:secret@127.0.0.1:{}", server.port());
    let with = |arguments: &[&str]| with_urls(&url, &[arguments, &["--prefix", "app:"]].concat());
    permit(&documented("deployments.md")[0]);
    let rules = documented("cli.md");
    assert_eq!(rules.len(), 2);
    assert_eq!(with(&["acquire", "x", "--ttl", "60"]).code, 0);
    let inspected = with(&["inspect", "x", "--json"]);
    assert_eq!((inspected.code, &inspected.object()["waiting"]), (0, &serde_json::Value::Null));
    assert_eq!(with(&["ls"]).code, 77);
    permit(&rules[0]);
    assert_eq!(with(&["ls"]).code, 0);
    assert_eq!(with(&["inspect", "x", "--json"]).object()["waiting"], 0);
    assert_eq!(with(&["ls", "--scan"]).code, 77);
    permit(&rules[1]);
    assert_eq!(with(&["ls", "--scan", "--json"]).objects().len(), 1);
}
