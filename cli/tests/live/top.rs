//! `redlock top` on a pseudo-terminal.

use std::process::Command;

use redlock_tests::server::Server;
use rustix::process::Signal;

use crate::{
    support::{Running, acquire, command, release},
    terminal::Terminal,
};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";
const ESCAPE: &str = "\x1b";
const DOWN: &str = "\x1b[B";

fn top(urls: &str, arguments: &[&str]) -> Command {
    let mut top = command(urls, &[&["top", "--every", "100ms"], arguments].concat());
    top.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    top
}

fn start(server: &Server, arguments: &[&str]) -> Terminal {
    Terminal::start(top(&server.url(), arguments), 100, 24)
}

/// A command that holds a lock, or waits for it.
fn holder(urls: &str, arguments: &[&str]) -> Running {
    Running::start(command(urls, &[&["exec", "--quiet"], arguments, &["--", "sleep", "1000"]].concat()))
}

#[test]
fn held_locks_are_shown_filtered_and_opened() {
    let server = Server::start();
    let lease = acquire(&server, "order:1");
    acquire(&server, "order:2");
    acquire(&server, "report");
    let mut top = start(&server, &["--scan"]);
    top.shows("3 held, 0 waiting");
    top.shows("> order:1");
    top.press(DOWN);
    top.shows("> order:2");
    top.press("/");
    top.shows("/_");
    top.press("rep");
    top.shows("/rep_");
    top.shows("> report");
    top.hides("order:1");
    top.press("\r");
    top.shows("filter /rep");
    top.press("\r");
    top.shows("Lock report");
    top.shows("kind     lock");
    top.shows("NODE");
    top.shows(&format!("127.0.0.1:{}  lock", server.port()));
    top.press(ESCAPE);
    top.shows("> report");
    top.press(ESCAPE);
    top.shows("order:1");
    release(&server, &lease);
    top.hides("order:1");
    top.press("?");
    top.shows("this help");
    top.press("q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn processes_waiters_and_readers_are_shown() {
    let server = Server::start();
    let urls = server.url();
    let exclusive = holder(&urls, &["x", "--label", "billing"]);
    let mut top = start(&server, &["--scan"]);
    top.press("a");
    // The scan may have come before the holder.
    crate::support::until("it is held", || server.command::<i64>(&["EXISTS", "x"]) == 1);
    let _waiters = [holder(&urls, &["x"]), holder(&urls, &["x"])];
    top.shows("1 held, 2 waiting");
    top.shows(&format!("billing {} on ", exclusive.0.id()));
    let _readers = [holder(&urls, &["r", "--shared"]), holder(&urls, &["r", "--shared"])];
    let _permits = [holder(&urls, &["s", "--limit", "3"]), holder(&urls, &["s", "--limit", "3"])];
    crate::support::until("all hold", || {
        server.command::<i64>(&["HLEN", "r"]) > 2 && server.command::<i64>(&["ZCARD", "s"]) >= 2
    });
    top.press("a");
    top.shows("read x2");
    top.shows("semaphore x2");
    top.press("sssG");
    top.shows("> x");
    top.press("k\r");
    top.shows("Lock s");
    top.shows("SLOTS");
    top.press("c");
    top.shows("DIFFERENCE");
    top.press(CTRL_C);
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn clients_that_differ_have_a_sign() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let urls = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
    let _usual = [holder(&urls, &["x", "--label", "shop"]), holder(&urls, &["y", "--label", "shop"])];
    let other = command(&urls, &["exec", "--quiet", "z", "--label", "shop", "--max-ttl", "40s", "--", "sleep", "1000"]);
    let other = Running::start(other);
    let mut top = Terminal::start(top(&urls, &["--color", "always"]), 100, 24);
    let line = format!("! pid {} (shop) on ", other.0.id());
    top.shows(&line);
    top.shows("max_ttl 40s instead of 60s");
    top.until("it is red", |screen| {
        let row =
            (0..24).find(|row| screen.rows(0, 100).nth(usize::from(*row)).is_some_and(|text| text.contains(&line)));
        row.and_then(|row| screen.cell(row, 0)).is_some_and(|cell| cell.fgcolor() == vt100::Color::Idx(1))
    });
    top.press("q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn without_a_scan_a_key_finds_all_locks() {
    let server = Server::start();
    acquire(&server, "x");
    let mut top = start(&server, &[]);
    top.shows("Nobody waits for a lock. a finds all locks.");
    top.press("a");
    top.shows("> x");
    top.press(ESCAPE);
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn a_pause_stops_the_looks_and_a_key_looks_once() {
    let server = Server::start();
    acquire(&server, "x");
    let mut top = start(&server, &["--scan"]);
    top.shows("> x");
    top.press("p");
    top.shows("PAUSED");
    acquire(&server, "y");
    top.press("a");
    top.shows("  y");
    top.press(" ");
    top.hides("PAUSED");
    top.press("q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn signals_end_it_and_restore_the_terminal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let server = Server::start();
        acquire(&server, "x");
        let mut top = start(&server, &["x"]);
        top.shows("> x");
        top.running.signal(signal);
        assert_eq!(top.ends(), Some(0), "{signal:?}");
    }
}

#[test]
fn a_server_that_dies_is_reported_until_it_is_back() {
    let mut server = Server::start();
    acquire(&server, "x");
    let mut top = start(&server, &["x"]);
    top.shows("> x");
    server.stop();
    top.shows("Check that the servers are up");
    top.shows("down: ");
    top.shows("The locks are those of");
    top.shows("> x");
    server.restart();
    acquire(&server, "x");
    top.hides("Check that the servers are up");
    top.shows("> x");
    top.press("q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn a_server_that_freezes_is_shown_with_the_last_locks_until_it_thaws() {
    let mut server = Server::start();
    acquire(&server, "x");
    let mut top = start(&server, &["x"]);
    top.shows("> x");
    top.shows("master");
    server.freeze();
    top.shows("frozen or out of reach: no answer");
    top.shows("The locks are those of");
    top.shows("> x");
    top.hides("master");
    // The keys work meanwhile.
    top.press("?");
    top.shows("this help");
    top.press(ESCAPE);
    top.shows("> x");
    server.thaw();
    top.hides("frozen");
    top.hides("The locks are those of");
    top.shows("master");
    top.press("q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn a_missing_right_is_reported_while_it_runs() {
    let server = Server::start();
    let _: String = server.command(&["ACL", "SETUSER", "viewer", "on", ">secret", "~*", "&*", "+@all"]);
    let url = format!("redis://viewer:secret@127.0.0.1:{}", server.port());
    let mut top = Terminal::start(top(&url, &[]), 100, 24);
    top.shows("Nobody waits for a lock.");
    let _: String = server.command(&["ACL", "SETUSER", "viewer", "-pubsub"]);
    top.shows("Give this user the right");
    let _: String = server.command(&["ACL", "SETUSER", "viewer", "+pubsub"]);
    top.hides("Give this user the right");
    let _: String = server.command(&["ACL", "SETUSER", "viewer", "-client|list"]);
    top.press("c");
    top.shows("The user needs the right client|list");
    top.press("q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn an_outage_at_the_beginning_is_an_error() {
    let mut server = Server::start();
    let _: String = server.command(&["ACL", "SETUSER", "bob", "on", ">secret", "~*", "&*", "+@connection", "+info"]);
    let url = format!("redis://bob:secret@127.0.0.1:{}", server.port());
    let mut refused = Terminal::start(top(&url, &[]), 200, 24);
    refused.shows("Give this user the right");
    assert_eq!(refused.ends(), Some(77));
    server.stop();
    let mut down = Terminal::start(top(&server.url(), &[]), 200, 24);
    down.shows("Check that the servers are up");
    assert_eq!(down.ends(), Some(69));
}

#[test]
fn without_a_terminal_it_names_the_commands_for_that() {
    let server = Server::start();
    let output = top(&server.url(), &[]).output().expect("redlock runs");
    let message = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(64), &b""[..]));
    assert!(message.contains("redlock watch --json") && message.contains("redlock ls"), "{message}");
    let mut json = Terminal::start(top(&server.url(), &["--json"]), 200, 24);
    json.shows("redlock watch --json");
    assert_eq!(json.ends(), Some(64));
    let mut dumb = top(&server.url(), &[]);
    dumb.env("TERM", "dumb");
    let mut dumb = Terminal::start(dumb, 200, 24);
    dumb.shows("redlock watch --json");
    assert_eq!(dumb.ends(), Some(64));
}

#[test]
fn it_adapts_to_another_size() {
    let server = Server::start();
    acquire(&server, "x");
    let mut top = start(&server, &["x"]);
    top.shows("c: clients");
    top.resize(40, 15);
    top.until("the short line of keys", |screen| {
        screen.rows(0, 40).nth(14).is_some_and(|line| line.trim_end() == "Enter: details  ?: help  q: quit")
    });
    top.shows("> x");
    top.resize(100, 24);
    top.shows("c: clients");
    top.press("q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn no_color_leaves_the_colours_of_the_terminal() {
    for arguments in [&[][..], &["--color", "never"]] {
        let mut server = Server::start();
        let mut plain = top(&server.url(), arguments);
        if arguments.is_empty() {
            plain.env("NO_COLOR", "1");
        }
        let mut top = Terminal::start(plain, 100, 24);
        top.shows("Nobody waits");
        server.stop();
        top.shows("Check that the servers are up");
        top.until("no colours", |screen| {
            let cells = (0..24).flat_map(|row| (0..100).map(move |column| (row, column)));
            cells
                .filter_map(|(row, column)| screen.cell(row, column))
                .all(|cell| cell.fgcolor() == vt100::Color::Default)
        });
        top.press("q");
        assert_eq!(top.ends(), Some(0));
    }
}

#[test]
fn ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back() {
    let server = Server::start();
    acquire(&server, "x");
    let mut bash = Command::new("bash");
    bash.args(["--norc", "--noprofile", "--noediting", "-i"]);
    bash.env("PS1", "$ ").env("TERM", "xterm-256color").env_remove("HISTFILE");
    let mut shell = Terminal::start(bash, 100, 24);
    let line = format!("{} -u {} top x --every 100ms\n", env!("CARGO_BIN_EXE_redlock"), server.url());
    shell.press(&line);
    for round in 1..3 {
        shell.shows("> x");
        shell.press(CTRL_Z);
        shell.until("it is stopped", |screen| {
            !screen.alternate_screen() && screen.contents().matches("Stopped").count() == round
        });
        shell.press(&format!("echo shell $(({round} + 1)) has the terminal\n"));
        shell.shows(&format!("shell {} has", round + 1));
        shell.press("fg\n");
        shell.until("it has the terminal", vt100::Screen::alternate_screen);
    }
    shell.shows("> x");
    shell.press("q");
    // Until the prompt is there, keys go to the program.
    shell.until("it has ended", |screen| !screen.alternate_screen() && screen.contents().trim_end().ends_with('$'));
    shell.press("echo code=$?; exit\n");
    shell.shows("code=0");
    assert_eq!(shell.ends(), Some(0));
}
