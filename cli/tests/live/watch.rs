//! `redlock watch`.

use std::{
    io::{BufRead, BufReader, Lines},
    process::{ChildStdout, Stdio},
};

use redlock_tests::server::Server;
use serde_json::Value;

use crate::support::{Running, acquire, command, release, until};

struct Watch {
    running: Running,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Watch {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        Self::start_on(&server.url(), arguments)
    }

    fn start_on(url: &str, arguments: &[&str]) -> Self {
        let mut watch = command(url, &[&["watch", "--every", "100ms"], arguments].concat());
        watch.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(watch);
        let stdout = running.0.stdout.take().expect("a pipe");
        Self { running, lines: BufReader::new(stdout).lines() }
    }

    fn line(&mut self) -> String {
        self.lines.next().expect("a line").expect("UTF-8")
    }

    fn object(&mut self) -> Value {
        serde_json::from_str(&self.line()).expect("an object")
    }
}

#[test]
fn each_change_of_a_lock_is_a_line() {
    let server = Server::start();
    let first = acquire(&server, "x");
    let mut watch = Watch::start(&server, &["x", "--json"]);
    let held = watch.object();
    assert_eq!(
        (&held["change"], &held["name"], &held["before"]),
        (&"held".into(), &"x".into(), &Value::Null),
        "{held}"
    );
    release(&server, &first);
    let freed = watch.object();
    assert_eq!((&freed["change"], &freed["owner"]), (&"freed".into(), &Value::Null), "{freed}");
    assert_eq!(freed["before"]["owner"], held["owner"], "{freed}");
    acquire(&server, "y");
    acquire(&server, "x");
    let taken = watch.object();
    assert_eq!((&taken["change"], &taken["name"]), (&"taken".into(), &"x".into()), "{taken}");
    assert!(taken["owner"].is_string() && taken["owner"] != held["owner"] && taken["time"].is_f64(), "{taken}");
    // Between two looks.
    let script =
        "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 60000)";
    let other = "0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a59:1";
    let _: redis::Value = server.command(&["EVAL", script, "1", "x", other]);
    let changed = watch.object();
    assert_eq!((&changed["change"], &changed["owner"]), (&"changed".into(), &other.into()), "{changed}");
    assert_eq!(changed["before"]["owner"], taken["owner"], "{changed}");
}

#[test]
fn all_locks_are_watched_after_a_scan() {
    let server = Server::start();
    let lease = acquire(&server, "order:1");
    acquire(&server, "other");
    let mut watch = Watch::start(&server, &["order:*", "--scan"]);
    let held = watch.line();
    assert!(held.contains("Z order:1: held by "), "{held}");
    release(&server, &lease);
    let freed = watch.line();
    assert!(freed.contains("Z order:1: freed by "), "{freed}");
}

#[test]
fn a_lock_that_cannot_be_inspected_is_neither_freed_nor_taken() {
    let server = Server::start();
    let (a, b) = (acquire(&server, "p:a"), acquire(&server, "p:b"));
    let user = |rules: &[&str]| -> String {
        server.command(&[&["ACL", "SETUSER", "some", "on", ">secret", "resetkeys", "~p:*"], rules].concat())
    };
    user(&["&*", "+@all", "~redlock_token:*"]);
    let url = format!("redis://some:secret@127.0.0.1:{}", server.port());
    let mut watch = Watch::start_on(&url, &["--scan", "--prefix", "p:"]);
    assert!(watch.line().contains("Z a: held by "));
    assert!(watch.line().contains("Z b: held by "));
    // The user may not read the token of a any more.
    user(&["~redlock_token:{p:b}"]);
    release(&server, &b);
    let freed = watch.line();
    assert!(freed.contains("Z b: freed by "), "{freed}");
    user(&["~redlock_token:*"]);
    release(&server, &a);
    let freed = watch.line();
    assert!(freed.contains("Z a: freed by "), "{freed}");
}

#[test]
fn an_outage_at_the_beginning_is_an_error() {
    let mut server = Server::start();
    server.stop();
    let output = command(&server.url(), &["watch", "x"]).output().expect("redlock runs");
    assert_eq!(output.status.code(), Some(69), "{output:?}");
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_with_0() {
    use rustix::process::Signal;

    for signal in [Signal::INT, Signal::TERM] {
        let server = Server::start();
        acquire(&server, "x");
        let mut watch = Watch::start(&server, &["x"]);
        watch.line();
        watch.running.signal(signal);
        assert_eq!(watch.running.code(), Some(0));
        assert!(watch.lines.next().is_none());
    }
}

#[cfg(unix)]
#[test]
fn it_ends_with_0_when_nobody_reads_its_output() {
    let server = Server::start();
    acquire(&server, "x");
    let mut watch = Watch::start(&server, &["x"]);
    watch.line();
    let Watch { mut running, lines } = watch;
    drop(lines);
    assert_eq!(running.code(), Some(0));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_it_while_it_waits_for_a_reader() {
    use std::io::{ErrorKind, Write, pipe};

    use rustix::{io::ioctl_fionbio, process::Signal};

    let server = Server::start();
    acquire(&server, "x");
    let (reader, mut full) = pipe().expect("a pipe");
    ioctl_fionbio(&full, true).expect("it need not block");
    let refused = loop {
        if let Err(error) = full.write(&[b'\n'; 4096]) {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    ioctl_fionbio(&full, false).expect("it may block");

    let mut watch = command(&server.url(), &["watch", "x", "--every", "100ms"]);
    watch.stdout(full).stderr(Stdio::null());
    let mut running = Running::start(watch);
    // From before its first look on, it handles signals.
    let pid = format!("p:{};", running.0.id());
    until("it looks", || server.command::<String>(&["CLIENT", "LIST"]).contains(&pid));
    running.signal(Signal::TERM);
    assert_eq!(running.code(), Some(0));
    drop(reader);
}
