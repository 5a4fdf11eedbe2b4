//! `top`, `watch` and `web` with a server that is down, wrong, frozen or closed to this user: what to do, and the exit
//! code.

use redlock_tests::{
    server::Server,
    stub::{HTTP, Stub},
};

use crate::{support::command, terminal::Terminal, web::Web};

const CHECK: &str = "Check that the servers are up, and that --url or REDLOCK_URL names them.";

/// A deployment that cannot be used.
struct Case {
    url: String,
    /// The exit code of a command that cannot begin.
    code: i32,
    /// What failed, and what to do.
    parts: [&'static str; 2],
}

/// Checks each view on each deployment.
fn check(cases: &[Case]) {
    for Case { url, code, parts } in cases {
        let ran = command(url, &["watch", "x"]).output().expect("redlock runs");
        let stderr = String::from_utf8(ran.stderr).expect("UTF-8");
        assert_eq!((ran.status.code(), stderr.lines().count()), (Some(*code), 1), "watch {url}: {stderr}");
        let mut top = command(url, &["top"]);
        top.env("TERM", "xterm-256color");
        let mut top = Terminal::start(top, 250, 24);
        // A page shows it, so that it can be opened before the servers are up.
        let web = Web::start(url, &[]);
        let trouble = web.get("/api/snapshot", "").json()["trouble"].as_str().expect("a text").to_owned();
        for part in parts {
            assert!(stderr.contains(part), "{part:?} is not in {stderr}");
            assert!(trouble.contains(part), "{part:?} is not in {trouble}");
            top.shows(part);
        }
        assert_eq!(top.ends(), Some(*code), "top {url}");
    }
}

#[test]
fn servers_that_are_down_wrong_or_frozen_are_69() {
    let (mut down, mut frozen) = (Server::start(), Server::start());
    down.stop();
    frozen.freeze();
    let http = Stub::start(Some(HTTP));
    check(&[
        Case { url: down.url(), code: 69, parts: ["connection refused", CHECK] },
        Case { url: http.url("redis"), code: 69, parts: ["does not speak Redis' protocol", CHECK] },
        Case { url: frozen.url(), code: 69, parts: ["no answer", CHECK] },
    ]);
    frozen.thaw();
}

#[test]
fn a_refused_login_or_right_is_77() {
    let server = Server::start();
    let _: String = server.command(&["ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@connection", "+info"]);
    let url = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port());
    check(&[
        Case { url: url("bob:wrong"), code: 77, parts: ["WRONGPASS", "Give a user and a password"] },
        Case { url: url("bob:secret"), code: 77, parts: ["NOPERM", "Give this user the right"] },
    ]);
}
