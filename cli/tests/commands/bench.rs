//! `bench` on real servers: what it prints, and that it leaves nothing behind.

use redlock_tests::server::Server;
use serde_json::Value;

use crate::support::{Ran, command, on, on_quorum, run};

fn keys(server: &Server) -> Vec<String> {
    server.command(&["KEYS", "*"])
}

/// The rows of one kind.
fn rows(ran: &Ran, what: &str) -> Vec<Value> {
    ran.objects().into_iter().filter(|object| object["what"] == what).collect()
}

#[test]
fn a_table_and_a_verdict_are_printed_and_nothing_is_left() {
    let server = Server::start();
    let ran = on(&server, &["bench", "--seconds", "1", "--callers", "3"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    for part in [
        "P99 MS",
        &format!("round trip to 127.0.0.1:{}", server.port()),
        "acquire and release, 1 caller ",
        "acquire and release, 3 callers",
        "hand-off to a waiter",
        "reply_timeout (2s)",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn objects_have_times_in_seconds() {
    let server = Server::start();
    let ran = on(&server, &["bench", "--seconds", "1", "--callers", "2", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let pairs = rows(&ran, "pairs");
    assert_eq!(pairs.iter().map(|row| row["callers"].as_u64()).collect::<Vec<_>>(), [Some(1), Some(2)]);
    for what in ["round_trip", "pairs", "hand_off"] {
        let found = rows(&ran, what);
        assert!(!found.is_empty(), "{what}");
        for row in found {
            let time = |name: &str| row[name].as_f64().expect("a time");
            assert!(row["count"].as_u64() > Some(0) && row["error"].is_null(), "{row}");
            assert!(0.0 < time("p50") && time("p50") <= time("p99") && time("p99") <= time("max"), "{row}");
            assert_eq!(row["rate"].is_null(), what == "hand_off", "{row}");
        }
    }
    let remarks = rows(&ran, "verdict");
    assert!(remarks.len() >= 3 && remarks.iter().all(|row| row["warning"].is_boolean() && row["text"].is_string()));
}

#[test]
fn a_quorum_has_a_row_for_each_node_also_if_one_is_down() {
    let mut servers = [Server::start(), Server::start(), Server::start()];
    let arguments = ["bench", "--seconds", "1", "--json"];
    let ran = on_quorum(&servers, &arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    let trips = rows(&ran, "round_trip");
    let nodes: Vec<_> = trips.iter().map(|row| row["node"].as_str().expect("a node").to_owned()).collect();
    assert_eq!(nodes, servers.each_ref().map(|server| format!("127.0.0.1:{}", server.port())));
    for server in &servers {
        assert_eq!(keys(server), ["redlock_node"], "only the marker, which every acquire writes");
    }
    servers[1].stop();
    let ran = on_quorum(&servers, &arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    let down = &rows(&ran, "round_trip")[1];
    assert!(down["error"].as_str().is_some_and(|error| error.contains("connection refused")), "{down}");
    assert!(down["p50"].is_null() && down["count"] == 0, "{down}");
    let warns =
        |row: &Value| row["warning"] == true && row["text"].as_str().is_some_and(|text| text.contains(&nodes[1]));
    assert!(rows(&ran, "verdict").iter().any(warns), "{ran:?}");
    for server in [&servers[0], &servers[2]] {
        assert_eq!(keys(server), ["redlock_node"]);
    }
}

#[test]
fn absurd_options_are_refused_by_name() {
    for (option, value) in [
        ("--callers", "0"),
        ("--callers", "1001"),
        ("--callers", "-1"),
        ("--callers", "x"),
        ("--seconds", "0"),
        ("--seconds", "601"),
        ("--seconds", "1.5"),
    ] {
        let ran = run(command(&["bench", &format!("{option}={value}")]));
        assert_eq!((ran.code, ran.stdout.as_str()), (64, ""), "{ran:?}");
        assert!(ran.stderr.contains(option) && ran.stderr.contains(value), "{ran:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_and_leaves_nothing_behind() {
    use std::process::Stdio;

    use redlock_tests::wait_until;
    use rustix::process::{Pid, Signal, kill_process};

    use crate::support::LIMIT;

    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let server = Server::start();
        let mut bench = command(&["bench", "--seconds", "600"]);
        bench.env("REDLOCK_URL", server.url()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = bench.spawn().expect("redlock starts");
        wait_until(LIMIT, "it acquires something", || !keys(&server).is_empty());
        kill_process(Pid::from_child(&child), signal).expect("it runs");
        let output = child.wait_with_output().expect("redlock ends");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert_eq!(keys(&server), [""; 0]);
    }
}
