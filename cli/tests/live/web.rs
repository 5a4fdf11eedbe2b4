//! `redlock web`, by raw requests: what it refuses, and what it answers.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
    sync::mpsc::{Receiver, channel},
    thread::spawn,
    time::{Duration, Instant},
};

use redlock_tests::server::Server;
use serde_json::Value;

use crate::support::{LIMIT, Running, acquire, command, release, until};

pub(crate) struct Web {
    running: Running,
    address: String,
    stderr: Receiver<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn has(&self, header: &str) -> bool {
        self.head.lines().any(|line| line.to_ascii_lowercase().starts_with(header))
    }
}

impl Web {
    pub(crate) fn start(urls: &str, arguments: &[&str]) -> Self {
        let own = ["web", "--listen", "127.0.0.1:0", "--every", "100ms"];
        let mut web = command(urls, &[&own[..], arguments].concat());
        web.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::start(web);
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let address =
            line.trim().strip_prefix("http://").and_then(|url| url.strip_suffix('/')).expect("a URL").to_owned();
        let (lines, stderr) = channel();
        let reader = BufReader::new(running.0.stderr.take().expect("a pipe"));
        // Ends with the process.
        spawn(move || reader.lines().map_while(Result::ok).try_for_each(|line| lines.send(line)));
        Self { running, address, stderr }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
        stream
    }

    /// Sends a request as it is.
    fn send(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut bytes = Vec::new();
        // A refused request may be reset after its answer.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).expect("UTF-8");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {text:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn get(&self, path: &str, headers: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}\r\n", self.address))
    }

    fn post(&self, headers: &str, body: &str) -> Answer {
        let (address, length) = (&self.address, body.len());
        self.send(&format!(
            "POST /api/release HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        ))
    }

    /// The headers of the page's own release.
    fn own_headers(&self) -> String {
        format!("X-Redlock: 1\r\nContent-Type: application/json\r\nOrigin: http://{}\r\n", self.address)
    }

    fn locks(&self) -> Vec<Value> {
        self.get("/api/snapshot", "").json()["locks"].as_array().expect("locks").clone()
    }
}

fn body(name: &str, token: &str, confirm: &str) -> String {
    serde_json::json!({ "name": name, "token": token, "confirm": confirm }).to_string()
}

#[test]
fn only_known_host_names_are_answered() {
    let server = Server::start();
    let web = Web::start(&server.url(), &["--host", "locks.example"]);
    let port = web.address.rsplit_once(':').expect("a port").1;
    let ask =
        |path: &str, host: &str| web.send(&format!("GET {path} HTTP/1.1\r\n{host}Connection: close\r\n\r\n")).status;
    for path in ["/", "/healthz", "/metrics", "/api/snapshot"] {
        for host in [&web.address, &format!("localhost:{port}"), &format!("LOCALHOST:{port}"), &format!("[::1]:{port}")]
        {
            assert_eq!(ask(path, &format!("Host: {host}\r\n")), 200, "{path} {host}");
        }
        assert_eq!(ask(path, "Host: Locks.Example\r\n"), 200, "{path}");
        for host in
            ["evil.example", "127.0.0.1", "127.0.0.1:1", &format!("evil.example:{port}"), "locks.example.evil", ""]
        {
            assert_eq!(ask(path, &format!("Host: {host}\r\n")), 403, "{path} {host}");
        }
        let twice = ask(path, &format!("Host: {}\r\nHost: evil.example\r\n", web.address));
        assert!([400, 403].contains(&twice), "{path} {twice}");
        let absolute = format!("http://evil.example{path}");
        assert_eq!(ask(&absolute, &format!("Host: {}\r\n", web.address)), 403, "{absolute}");
    }
    let old = web.send("GET / HTTP/1.0\r\n\r\n").status;
    assert!([400, 403].contains(&old), "{old}");
}

#[test]
fn every_answer_has_the_headers_that_protect_it() {
    let server = Server::start();
    let web = Web::start(&server.url(), &[]);
    let evil = "GET / HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n";
    for answer in [web.get("/", ""), web.get("/api/snapshot", ""), web.get("/nothing", ""), web.send(evil)] {
        for header in [
            "content-security-policy: default-src 'none'; connect-src 'self';",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "cache-control: no-store",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(answer.has(header), "{header}: {answer:?}");
        }
        assert!(!answer.has("access-control") && !answer.has("set-cookie"), "{answer:?}");
    }
    let preflight = format!(
        "OPTIONS /api/release HTTP/1.1\r\nHost: {}\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n\
         Access-Control-Request-Headers: x-redlock,content-type\r\nConnection: close\r\n\r\n",
        web.address
    );
    let answer = web.send(&preflight);
    assert!(answer.status == 405 && !answer.has("access-control"), "{answer:?}");
}

#[test]
fn requests_of_other_sites_are_refused() {
    let server = Server::start();
    let web = Web::start(&server.url(), &["--allow-release"]);
    for site in ["cross-site", "same-site"] {
        for path in ["/api/snapshot", "/api/stream", "/metrics"] {
            assert_eq!(web.get(path, &format!("Sec-Fetch-Site: {site}\r\n")).status, 403, "{path}");
        }
        let headers = format!("{}Sec-Fetch-Site: {site}\r\n", web.own_headers());
        assert_eq!(web.post(&headers, &body("x", "1", "x")).status, 403);
    }
    // A link to the page.
    assert_eq!(web.get("/", "Sec-Fetch-Site: cross-site\r\n").status, 200);
    let unknown = format!("{}Sec-Fetch-Site: none\r\n", web.own_headers());
    assert_eq!(web.post(&unknown, &body("x", "1", "x")).status, 403);
    for headers in ["", "X-Redlock: 0\r\n"] {
        assert_eq!(web.get("/api/scan", headers).status, 403);
    }
    assert_eq!(web.get("/api/scan", "X-Redlock: 1\r\n").status, 204);
    assert_eq!(web.get("/api/release", "X-Redlock: 1\r\n").status, 405);
}

#[test]
fn a_page_is_read_only_by_default() {
    let server = Server::start();
    acquire(&server, "x");
    let web = Web::start(&server.url(), &["--scan"]);
    let token = web.locks()[0]["token"].as_str().expect("a token").to_owned();
    let refused = web.post(&web.own_headers(), &body("x", &token, "x"));
    assert!(refused.status == 403 && refused.body.contains("--allow-release"), "{refused:?}");
    assert_eq!(web.get("/api/snapshot", "").json()["release"], false);
    assert_eq!(web.locks().len(), 1);
}

#[test]
fn a_release_is_checked_and_on_record() {
    let server = Server::start();
    acquire(&server, "x");
    let web = Web::start(&server.url(), &["--scan", "--allow-release", "--read-header", "X-User"]);
    let token = web.locks()[0]["token"].as_str().expect("a token").to_owned();
    let (good, own) = (body("x", &token, "x"), web.own_headers());
    let without = |header: &str| {
        let kept = own.split_inclusive("\r\n").filter(|line| !line.starts_with(header));
        kept.collect::<String>()
    };
    let refused = |headers: &str, body: &str, status: u16| {
        let refused = web.post(headers, body);
        assert_eq!(refused.status, status, "{headers:?} {body:?} {refused:?}");
    };
    refused("", &good, 403);
    refused(&without("X-Redlock"), &good, 403);
    refused(&without("Content-Type"), &good, 415);
    refused(&format!("{}Content-Type: text/plain\r\n", without("Content-Type")), &good, 415);
    refused(&without("Origin"), &good, 403);
    refused(&format!("{}Origin: http://evil.example\r\n", without("Origin")), &good, 403);
    refused(&format!("{}Origin: null\r\n", without("Origin")), &good, 403);
    refused(&own, "{", 400);
    refused(&own, "[]", 400);
    refused(&own, &body("x", &token, "y"), 400);
    refused(&own, &body("x", "no number", "x"), 400);
    refused(&own, &body("x", "0", "x"), 400);
    refused(&own, &body("", &token, ""), 400);
    // A little more than the limit.
    refused(&own, &body("x", &token, &"x".repeat(16_384)), 413);
    assert_eq!(web.post(&own, &body("x", "5", "x")).json()["released"], false);
    assert_eq!(web.locks().len(), 1, "nothing was released so far");
    let headers = format!("{own}X-User: ann\r\n");
    assert_eq!(web.post(&headers, &good).json()["released"], true);
    assert_eq!(web.locks().len(), 0);
    let lines: Vec<String> = (0..3).map(|_| web.stderr.recv_timeout(LIMIT).expect("a line")).collect();
    assert!(lines[1].contains("an unnamed user") && lines[1].ends_with("does not hold it"), "{lines:?}");
    let expected = format!("redlock: \"x\" with token {token}, for ann from 127.0.0.1:");
    assert!(lines[2].starts_with(&expected) && lines[2].ends_with(": released"), "{lines:?}");
}

#[test]
fn data_needs_the_token() {
    let server = Server::start();
    let folder = Folder::new();
    let file = folder.0.join("token");
    fs::write(&file, "correct-horse-battery\n").expect("a file");
    let path = file.to_str().expect("UTF-8");
    let web = Web::start(&server.url(), &["--token-file", path]);
    assert_eq!(web.get("/", "").status, 200);
    assert_eq!(web.get("/healthz", "").status, 200);
    for path in ["/api/snapshot", "/api/stream", "/api/scan", "/metrics"] {
        for given in
            ["", "Bearer wrong", "Bearer correct-horse-batter", "Basic correct-horse-battery", "correct-horse-battery"]
        {
            let header = if given.is_empty() { String::new() } else { format!("Authorization: {given}\r\n") };
            let refused = web.get(path, &format!("{header}X-Redlock: 1\r\n"));
            assert!(refused.status == 401 && refused.has("www-authenticate: bearer"), "{path} {given} {refused:?}");
        }
    }
    assert_eq!(web.post(&web.own_headers(), &body("x", "1", "x")).status, 401);
    assert_eq!(web.get("/api/snapshot", "Authorization: Bearer correct-horse-battery\r\n").status, 200);
}

/// A folder that is removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("redlock-web-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn others_may_not_look_without_a_token() {
    let server = Server::start();
    for (arguments, part) in [
        (&["--listen", "0.0.0.0:0"][..], "--token-file"),
        (&["--listen", "[::]:0"][..], "--token-file"),
        (&["--token-file", "/dev/null"][..], "at least 16"),
        (&["--token-file", "/does/not/exist"][..], "cannot read"),
        (&["--listen", "127.0.0.1:0", "--every", "1ms"][..], "100ms"),
        (&["--read-header", "X-User"][..], "--allow-release"),
    ] {
        let output = command(&server.url(), &[&["web"], arguments].concat()).output().expect("redlock runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(64) && stderr.contains(part), "{arguments:?} {output:?}");
    }
    let web = Web::start(&server.url(), &[]);
    let twice = command(&server.url(), &["web", "--listen", &web.address]).output().expect("redlock runs");
    assert_eq!(twice.status.code(), Some(64), "{twice:?}");
}

/// Reads the next event of a stream.
fn event(reader: &mut impl BufRead) -> Value {
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).expect("a line") > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("an object");
        }
    }
}

#[test]
fn a_stream_shows_each_change_and_the_servers_are_asked_only_while_it_is_read() {
    let server = Server::start();
    let lease = acquire(&server, "order:1");
    let web = Web::start(&server.url(), &["--scan", "--name", "prod"]);
    let mut stream = web.connect();
    // HTTP/1.0 has no chunks.
    let request = format!("GET /api/stream HTTP/1.0\r\nHost: {}\r\n\r\n", web.address);
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reader = BufReader::new(stream);
    let first = event(&mut reader);
    assert_eq!((&first["name"], &first["locks"][0]["name"]), (&"prod".into(), &"order:1".into()), "{first}");
    assert_eq!((&first["trouble"], &first["quorum"]), (&Value::Null, &1.into()), "{first}");
    let node = &first["nodes"][0];
    assert!(node["error"].is_null() && node["round_trip"].is_f64() && node["version"].is_string(), "{first}");
    assert!(first["clients"].as_array().is_some_and(|all| all.iter().any(|one| one["app"] == "redlock")), "{first}");
    release(&server, &lease);
    until("the lock is gone", || event(&mut reader)["locks"].as_array().is_some_and(Vec::is_empty));
    drop(reader);
    let calls = || -> String { server.command::<String>(&["INFO", "commandstats"]) };
    let evals = |stats: String| stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).map(str::to_owned);
    let (mut last, mut since) = (None, Instant::now());
    until("nobody asks any more", || {
        let now = Some(evals(calls()));
        if now != last {
            (last, since) = (now, Instant::now());
        }
        // Several times as long as --every.
        since.elapsed() > Duration::from_secs(1)
    });
    web.get("/metrics", "");
    assert_ne!(last, Some(evals(calls())), "a request asks the servers");
}

#[test]
fn a_lock_that_rests_is_not_held() {
    let server = Server::start();
    let _holder = Running::start(command(&server.url(), &["exec", "held", "--", "sleep", "100"]));
    until("it is held", || server.command::<i64>(&["EXISTS", "held"]) == 1);
    let rests = ["exec", "report", "--min-hold", "60s", "--", "true"];
    assert!(command(&server.url(), &rests).status().expect("redlock runs").success());
    let web = Web::start(&server.url(), &["--scan"]);
    let metrics = web.get("/metrics", "").body;
    assert!(metrics.lines().any(|line| line == "redlock_held{group=\"report\"} 0"), "{metrics}");
    let oldest = |name| metrics.contains(&format!("redlock_oldest_hold_seconds{{group=\"{name}\"}}"));
    assert!(oldest("held") && !oldest("report"), "{metrics}");
}

#[test]
fn a_scan_that_fails_is_reported_once() {
    let server = Server::start();
    let _: String = server.command(&["ACL", "SETUSER", "viewer", "on", ">secret", "~*", "&*", "+@all", "-scan"]);
    let url = server.url().replace("redis://", "redis://viewer:secret@");
    let web = Web::start(&url, &["--scan"]);
    for _ in 0..3 {
        assert!(web.get("/api/snapshot", "").json()["scanned"].is_null());
    }
    let report = web.stderr.recv_timeout(LIMIT).expect("a line");
    assert!(report.contains("cannot find all locks") && report.contains("'scan'"), "{report}");
    assert!(web.stderr.try_recv().is_err(), "once");
}

#[test]
fn a_release_is_on_record_if_the_viewer_goes_away_meanwhile() {
    let server = Server::start();
    let web = Web::start(&server.url(), &["--allow-release"]);
    web.get("/api/snapshot", "");
    let _: String = server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let (address, body) = (&web.address, body("order:1", "1", "order:1"));
    let (headers, length) = (web.own_headers(), body.len());
    let mut stream = web.connect();
    let head = format!("POST /api/release HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n{headers}\r\n");
    stream.write_all((head + &body).as_bytes()).expect("it reads");
    until("the server has the release", || server.command::<String>(&["CLIENT", "LIST"]).contains(" flags=b "));
    drop(stream);
    let record = loop {
        let line = web.stderr.recv_timeout(LIMIT).expect("a record");
        if line.contains("order:1") {
            break line;
        }
    };
    assert!(record.contains("not released"), "{record}");
}

#[test]
fn metrics_have_groups_and_no_names() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let urls = urls.join(",");
    for name in ["order:1", "order:2", "report"] {
        let output = command(&urls, &["acquire", name, "--ttl", "60"]).output().expect("redlock runs");
        assert!(output.status.success(), "{output:?}");
    }
    let web = Web::start(&urls, &["--scan"]);
    let answer = web.get("/metrics", "");
    let metrics = &answer.body;
    for line in [
        "redlock_held{group=\"order:*\"} 2",
        "redlock_held{group=\"report\"} 1",
        "redlock_waiting{group=\"report\"} 0",
        "redlock_locks_known 1",
        "redlock_odd_clients 0",
        &format!("redlock_node_up{{node=\"127.0.0.1:{}\"}} 1", servers[0].port()),
        "# TYPE redlock_held gauge",
    ] {
        assert!(metrics.lines().any(|one| one == line), "{line} is not in {metrics}");
    }
    assert!(answer.has("content-type: text/plain; version=0.0.4") && !metrics.contains("order:1"), "{answer:?}");
    let locks = web.locks();
    assert!(locks.len() == 3 && locks.iter().all(|lock| lock["nodes"].as_u64() >= Some(2)), "{locks:?}");
}

#[test]
fn a_lock_that_cannot_be_inspected_hides_no_other() {
    let server = Server::start();
    acquire(&server, "p:a");
    acquire(&server, "p:b");
    // The user may not read the token of b.
    let keys = ["ACL", "SETUSER", "some", "on", ">secret", "&*", "+@all", "~p:*", "~redlock_token:{p:a}"];
    let _: String = server.command(&keys);
    let url = format!("redis://some:secret@127.0.0.1:{}", server.port());
    let web = Web::start(&url, &["--scan", "--prefix", "p:"]);
    let shown = web.get("/api/snapshot", "").json();
    assert!(shown["trouble"].is_null(), "{shown}");
    let lock = |name: &str| shown["locks"].as_array().expect("locks").iter().find(|lock| lock["name"] == name);
    let (a, b) = (lock("a").expect("a lock"), lock("b").expect("a lock"));
    assert!(a["kind"] == "lock" && a["error"].is_null(), "{a}");
    assert!(b["kind"].is_null() && b["error"].is_string(), "{b}");
}

#[test]
fn an_outage_is_shown() {
    let mut server = Server::start();
    acquire(&server, "x");
    let web = Web::start(&server.url(), &["--scan"]);
    assert_eq!(web.locks().len(), 1);
    server.stop();
    let mut shown = Value::Null;
    until("the outage is seen", || {
        shown = web.get("/api/snapshot", "").json();
        shown["trouble"].is_string()
    });
    let node = &shown["nodes"][0];
    assert!(node["state"] == "down" && node["error"].is_string() && node["role"].is_null(), "{shown}");
    assert!(shown["locks"][0]["name"] == "x" && shown["locks_when"].as_f64() < shown["when"].as_f64(), "{shown}");
    assert_eq!(web.get("/healthz", "").status, 200);
    assert!(web.get("/metrics", "").body.contains("redlock_locks_known 0"));
}

#[cfg(unix)]
#[test]
fn a_server_that_freezes_is_shown_with_the_last_locks_until_it_thaws() {
    let mut server = Server::start();
    acquire(&server, "x");
    let web = Web::start(&server.url(), &["--scan"]);
    let mut stream = web.connect();
    let request = format!("GET /api/stream HTTP/1.0\r\nHost: {}\r\n\r\n", web.address);
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reader = BufReader::new(stream);
    let before = event(&mut reader);
    assert_eq!(
        (&before["nodes"][0]["state"], &before["nodes"][0]["role"]),
        (&"up".into(), &"master".into()),
        "{before}"
    );
    server.freeze();
    let mut frozen = Value::Null;
    until("the freeze is seen", || {
        frozen = event(&mut reader);
        frozen["trouble"].is_string()
    });
    let node = &frozen["nodes"][0];
    assert!(
        node["state"] == "no_answer" && node["text"].as_str().is_some_and(|text| text.starts_with("frozen")),
        "{frozen}"
    );
    assert_eq!(frozen["locks"][0]["name"], "x", "the last locks stay: {frozen}");
    assert!(frozen["locks_when"].as_f64() < frozen["when"].as_f64(), "{frozen}");
    // The page is served, and says so to monitoring.
    assert_eq!((web.get("/", "").status, web.get("/healthz", "").status), (200, 200));
    let metrics = web.get("/metrics", "").body;
    let sample = format!("redlock_node_no_answer{{node=\"127.0.0.1:{}\"}} 1", server.port());
    assert!(metrics.lines().any(|line| line == sample), "{metrics}");
    server.thaw();
    let mut after = Value::Null;
    until("the thaw is seen", || {
        after = event(&mut reader);
        after["trouble"].is_null()
    });
    assert!(after["nodes"][0]["state"] == "up" && after["locks_when"] == after["when"], "{after}");
}

#[test]
fn nodes_have_their_role_their_clock_and_their_vote() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
    let acquire = |name: &str| {
        let output = command(&urls, &["acquire", name, "--ttl", "60"]).output().expect("redlock runs");
        assert!(output.status.success(), "{output:?}");
    };
    acquire("x");
    servers[0].stop();
    servers[0].restart();
    // The quarantine begins with an acquire after the restart that hears of it: an acquire ends at a quorum, and its
    // process may end before the third node has answered.
    let mut number = 0;
    until("the quarantine begins", || {
        number += 1;
        acquire(&format!("y{number}"));
        servers[0].command::<i64>(&["EXISTS", "redlock_node"]) == 1
    });
    let web = Web::start(&urls, &[]);
    let mut shown = Value::Null;
    until("the nodes are examined", || {
        shown = web.get("/api/snapshot", "").json();
        shown["nodes"].as_array().is_some_and(|nodes| nodes.iter().all(|node| node["votes"].is_boolean()))
    });
    let nodes = &shown["nodes"];
    assert_eq!((&nodes[0]["state"], &nodes[1]["state"]), (&"quarantine".into(), &"up".into()), "{shown}");
    assert!(nodes[0]["votes_in"].as_f64().is_some_and(|left| left > 0.0 && left <= 66.0), "{shown}");
    assert!(nodes[0]["text"].as_str().is_some_and(|text| text.starts_with("in quarantine, votes in ")), "{shown}");
    for (node, votes) in [(0, false), (1, true), (2, true)] {
        assert_eq!((&nodes[node]["votes"], &nodes[node]["role"]), (&votes.into(), &"master".into()), "{shown}");
        assert!(nodes[node]["clock"].as_f64().is_some_and(|clock| clock.abs() < 1.0), "{shown}");
    }
    let metrics = web.get("/metrics", "").body;
    let has = |metric: &str, node: usize, more: &str| {
        let start = format!("{metric}{{node=\"127.0.0.1:{}\"{more}", servers[node].port());
        assert!(metrics.lines().any(|line| line.starts_with(&start)), "{start} is not in {metrics}");
    };
    has("redlock_node_votes", 0, "} 0");
    has("redlock_node_votes", 1, "} 1");
    has("redlock_node_quarantine_seconds", 1, "} 0");
    has("redlock_node_clock_offset_seconds", 2, "} ");
    has("redlock_node_role", 2, ",role=\"master\"} 1");
    has("redlock_node_replicas", 2, "} 0");
    has("redlock_node_no_answer", 2, "} 0");
    let left = metrics.lines().find(|line| line.starts_with("redlock_node_quarantine_seconds{"));
    let left = left.and_then(|line| line.rsplit(' ').next()).and_then(|left| left.parse::<f64>().ok());
    assert!(left.is_some_and(|left| left > 0.0), "{metrics}");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_with_0() {
    let server = Server::start();
    let mut web = Web::start(&server.url(), &[]);
    web.running.signal(rustix::process::Signal::TERM);
    assert_eq!(web.running.code(), Some(0));
}

#[test]
fn the_documented_rights_of_a_viewer_suffice_to_look_and_for_nothing_else() {
    let server = Server::start();
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/live.md");
    let page = fs::read_to_string(page).expect("a page");
    let rule = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER viewer ")).expect("a rule");
    let words: Vec<&str> = ["ACL", "SETUSER", "viewer"].into_iter().chain(rule.split(' ')).collect();
    let _: () = server.command(&words);
    acquire(&server, "app:lock");
    let url = format!("redis://viewer:secret@127.0.0.1:{}", server.port());
    let web = Web::start(&url, &["--scan", "--prefix", "app:", "--allow-release"]);
    let shown = web.get("/api/snapshot", "").json();
    assert_eq!((&shown["trouble"], &shown["locks"][0]["name"]), (&Value::Null, &"lock".into()), "{shown}");
    assert!(shown["clients"].is_array() && shown["nodes"][0]["error"].is_null(), "{shown}");
    let token = shown["locks"][0]["token"].as_str().expect("a token");
    let refused = web.post(&web.own_headers(), &body("lock", token, "lock"));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(web.locks().len(), 1);
    let acquired = command(&url, &["acquire", "x", "--ttl", "60", "--prefix", "app:"]).output().expect("redlock runs");
    assert_eq!(acquired.status.code(), Some(77), "{acquired:?}");
}
