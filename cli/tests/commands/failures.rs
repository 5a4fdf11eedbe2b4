//! Servers that are down, wrong, frozen or closed to this user, and wrong lines: exit codes, and one line that says what
//! to do.

use redlock_tests::{
    server::Server,
    stub::{HTTP, Stub},
};

use crate::support::{Ran, command, on, on_quorum, run};

/// Every command that needs a server.
const COMMANDS: [&[&str]; 7] = [
    &["bench", "--seconds", "1"],
    &["acquire", "x", "--ttl", "30", "-n"],
    &["exec", "x", "-n", "--", "true"],
    &["inspect", "x"],
    &["ls"],
    &["ls", "--scan"],
    &["release", "x", "--force", "--yes"],
];

fn with_url(url: &str, arguments: &[&str]) -> Ran {
    let mut command = command(arguments);
    command.env("REDLOCK_URL", url);
    run(command)
}

/// Checks the code, and that the only line on stderr has these parts.
fn check(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.stderr.starts_with("redlock: ") && ran.stderr.lines().count() == 1, "{ran:?}");
    for part in parts {
        assert!(ran.stderr.contains(part), "{part:?} is not in {ran:?}");
    }
}

/// Checks the commands that take a lease, which was acquired while the server answered.
fn check_with_lease(server: &Server, lease: &str, code: i32, parts: &[&str]) {
    for arguments in [&["extend", lease, "30"][..], &["release", lease]] {
        let ran = on(server, arguments);
        check(&ran, code, parts);
        assert_eq!(ran.stdout, "", "{ran:?}");
    }
}

#[test]
fn a_server_that_is_down_is_69() {
    let mut server = Server::start();
    let lease = on(&server, &["acquire", "y", "--ttl", "60"]).line().to_owned();
    server.stop();
    let address = format!("127.0.0.1:{}", server.port());
    let parts = [&address, "connection refused", "Check that the servers are up"];
    for arguments in COMMANDS {
        check(&on(&server, arguments), 69, &parts);
    }
    check_with_lease(&server, &lease, 69, &parts);
}

#[test]
fn a_wrong_server_is_69() {
    let http = Stub::start(Some(HTTP));
    for arguments in COMMANDS {
        check(&with_url(&http.url("redis"), arguments), 69, &["does not speak Redis' protocol", "URL? Check", "--url"]);
    }
}

#[test]
fn a_frozen_server_is_69_and_nothing_hangs() {
    let mut server = Server::start();
    let lease = on(&server, &["acquire", "y", "--ttl", "60"]).line().to_owned();
    server.freeze();
    let parts = ["no answer", "Check that the servers are up"];
    for arguments in COMMANDS {
        check(&on(&server, arguments), 69, &parts);
    }
    check_with_lease(&server, &lease, 69, &parts);
    server.thaw();
}

#[test]
fn a_refused_login_or_right_is_77() {
    let server = Server::start();
    let _: String = server.command(&["ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@connection", "+info"]);
    let url = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port());
    for arguments in COMMANDS {
        check(&with_url(&url("bob:wrong"), arguments), 77, &["WRONGPASS", "Give a user and a password"]);
        check(&with_url(&url("bob:secret"), arguments), 77, &["NOPERM", "Give this user the right"]);
    }
    let shown = with_url(&url("bob:secret"), &["acquire", "x", "--ttl", "30", "-v"]).stderr;
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn a_quorum_with_too_few_nodes_is_69_and_inspect_shows_each() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    assert_eq!(on_quorum(&servers, &["acquire", "x", "--ttl", "60"]).code, 0);
    servers[0].stop();
    assert_eq!(on_quorum(&servers, &["inspect", "x"]).code, 0, "two of three are enough");
    assert_eq!(on_quorum(&servers, &["ls", "--scan"]).code, 0);
    servers[1].stop();
    let ran = on_quorum(&servers, &["inspect", "x", "--json"]);
    check(&ran, 69, &["needs 2 of 3 nodes"]);
    let object = ran.object();
    assert!(object["held"].is_null(), "{object}");
    let errors: Vec<bool> =
        object["nodes"].as_array().expect("nodes").iter().map(|node| node["error"].is_string()).collect();
    assert_eq!(errors, [true, true, false], "{object}");
}

#[test]
fn a_wrong_line_is_64() {
    let lines: [&[&str]; 14] = [
        &[],
        &["no-such-command"],
        &["acquire", "x"],
        &["acquire", "x", "--ttl", "5 apples"],
        &["acquire", "x", "--ttl", "1ms"],
        &["acquire", "x", "--ttl", "5", "-n", "-w", "5"],
        &["acquire", "x", "--ttl", "5", "--wire", "paper"],
        &["acquire", "x", "--ttl", "5", "--quorum", "9"],
        &["acquire", "x", "--ttl", "5", "--cert", "c.pem"],
        &["acquire", "", "--ttl", "5"],
        &["exec", "x"],
        &["exec", "x", "--label", &"x".repeat(65), "--", "true"],
        &["release", "x", "--yes"],
        &["ls", "--url-file", "/no/such/file"],
    ];
    for line in lines {
        let ran = run(command(line));
        assert_eq!(ran.code, 64, "{line:?} {ran:?}");
        assert!(ran.stdout.is_empty() && !ran.stderr.is_empty(), "{ran:?}");
    }
    for line in [&["--help"][..], &["--version"], &["acquire", "--help"]] {
        let ran = run(command(line));
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    }
}

#[test]
fn a_store_in_memory_is_refused() {
    for arguments in COMMANDS {
        let ran = with_url("memory://x", arguments);
        check(&ran, 64, &["memory://x", "inside one process"]);
    }
    assert_eq!(with_url("memory://x", &["explain", "timeout"]).code, 0);
}

#[test]
fn urls_come_from_options_a_file_or_the_environment() {
    let (server, other) = (Server::start(), Server::start());
    assert_eq!(on(&server, &["acquire", "x", "--ttl", "60"]).code, 0);
    assert_eq!(on(&other, &["-u", &server.url(), "inspect", "x"]).code, 0, "an option goes before the environment");
    let file = server.directory().join("urls");
    std::fs::write(&file, format!("# the lock server\n\n{}\n", server.url())).expect("a file");
    let file = file.to_str().expect("a path");
    assert_eq!(on(&other, &["inspect", "x", "--url-file", file]).code, 0);
    assert_eq!(on(&other, &["inspect", "x"]).code, 1);
    let mut prefixed = command(&["inspect", "x"]);
    prefixed.env("REDLOCK_URL", server.url()).env("REDLOCK_PREFIX", "p:");
    assert_eq!(run(prefixed).code, 1);
}
