//! Outages and losses: when the command ends, and with which code.

use std::{
    io::{Write, pipe},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use redlock_tests::server::Server;
use rustix::io::ioctl_fionbio;

use crate::command::{Running, Scene, detach, is_alive, rounds, until};

/// A command that ends by SIGTERM.
const OBEDIENT: &str = "echo $$ >pid; exec sleep 100";
/// A command that ignores SIGTERM, and whose child does.
const DEAF: &str = "trap '' TERM; sleep 100 & echo $! >child; echo $$ >pid; wait; wait";

/// The lease in an outage. A busy machine has 1.05 s between SIGKILL and its end.
const LEASE: &str = "8s";
/// How long before the key's expiry the deadline of such a lease is: a tenth of it.
const DRIFT: Duration = Duration::from_millis(800);
/// How many outages happen at once.
const AT_ONCE: u32 = 10;

/// Starts a command, and waits until it runs.
fn started(scene: &Scene, lease: &str, command: &str) -> Running {
    let run = scene.start(&["x", "--watchdog", lease, "-c", command]);
    scene.note("pid");
    run
}

/// Waits until every process of the command has ended.
fn dies(scene: &Scene) {
    let pids: Vec<_> = ["pid", "child"].iter().filter(|file| scene.has(file)).map(|file| scene.pid(file)).collect();
    until("the command is dead", || !pids.iter().any(|&pid| is_alive(pid)));
}

/// Waits until the lease was renewed just now, so that no renewal is under way, and returns the time until which the
/// server keeps the lock.
fn expiry(server: &Server) -> Instant {
    let mut expiry = None;
    until("the lease is fresh", || {
        let now = Instant::now();
        let left: i64 = server.command(&["PTTL", "x"]);
        expiry = (left > 7400).then(|| now + Duration::from_millis(left.unsigned_abs()));
        expiry.is_some()
    });
    expiry.expect("a lease")
}

#[test]
fn in_a_partition_the_command_is_dead_while_the_lock_is_held() {
    outages("partition", |command| {
        let mut scene = Scene::new();
        let mut run = started(&scene, LEASE, command);
        let expiry = expiry(&scene.server);
        scene.server.freeze();
        dies(&scene);
        let left = expiry.checked_duration_since(Instant::now());
        scene.server.thaw();
        assert_eq!(run.code(), 79, "{}", run.stderr());
        assert!(run.stderr().contains("SIGTERM"), "{}", run.stderr());
        until("the lock is free", || !scene.held("x"));
        left
    });
}

#[test]
fn when_the_server_dies_the_command_is_dead_before_the_lease_ends() {
    outages("crash", |command| {
        let mut scene = Scene::new();
        let mut run = started(&scene, LEASE, command);
        let expiry = expiry(&scene.server);
        scene.server.stop();
        dies(&scene);
        let left = expiry.checked_duration_since(Instant::now());
        assert_eq!(run.code(), 79, "{}", run.stderr());
        left
    });
}

/// Nobody reads the pipe, as if the program that ships logs hung in the same outage.
#[test]
fn a_stderr_that_nobody_reads_keeps_no_command_alive() {
    let mut scene = Scene::new();
    let (reader, mut writer) = pipe().expect("a pipe");
    ioctl_fionbio(&writer, true).expect("a pipe");
    while writer.write(&[b'.'; 4096]).is_ok() {}
    ioctl_fionbio(&writer, false).expect("a pipe");
    let mut command = scene.command(&["x", "--watchdog", LEASE, "-c", OBEDIENT]);
    detach(&mut command);
    let mut redlock = command.stdout(Stdio::null()).stderr(writer).spawn().expect("redlock exec starts");
    scene.note("pid");
    let expiry = expiry(&scene.server);
    scene.server.freeze();
    dies(&scene);
    let left = expiry.checked_duration_since(Instant::now());
    scene.server.thaw();
    assert!(left.is_some(), "the command outlived its lease");
    assert_eq!(redlock.wait().expect("a child").code(), Some(79));
    drop(reader);
}

/// Runs the rounds of an outage, several at once, with each kind of command. `outage` returns how long before the key's
/// expiry the command was dead, `None` if it was not. Prints the shortest of these times.
fn outages(kind: &str, outage: impl Fn(&str) -> Option<Duration> + Sync) {
    for (command, which) in [(OBEDIENT, "obeys"), (DEAF, "ignores")] {
        let (mut left, mut least) = (rounds(1), Duration::MAX);
        while left > 0 {
            let some = left.min(AT_ONCE);
            left -= some;
            thread::scope(|scope| {
                let each: Vec<_> = (0..some).map(|_| scope.spawn(|| outage(command))).collect();
                for one in each {
                    let dead = one.join().expect("a round").expect("the command outlived its lease");
                    least = least.min(dead);
                }
            });
        }
        let before_deadline = least.as_millis().cast_signed() - DRIFT.as_millis().cast_signed();
        println!(
            "{kind}, {} rounds, the command {which} SIGTERM: dead {least:?} before the key's expiry at the latest, \
             {before_deadline} ms before the deadline",
            rounds(1)
        );
    }
}

#[test]
fn a_deleted_lock_ends_the_command_at_the_next_renewal() {
    let scene = Scene::new();
    for (command, by) in [(OBEDIENT, "SIGTERM"), (DEAF, "SIGKILL")] {
        let mut run = started(&scene, "2s", command);
        let _: u32 = scene.server.command(&["DEL", "x"]);
        assert_eq!(run.code(), 79, "by {by}: {}", run.stderr());
        assert!(run.stderr().contains("deleted"), "{}", run.stderr());
        for file in ["pid", "child"] {
            if scene.has(file) {
                assert!(!is_alive(scene.pid(file)), "{file} is left, by {by}");
                scene.forget(file);
            }
        }
    }
}

#[test]
fn a_lock_that_another_owner_took_ends_the_command_and_stays_theirs() {
    let scene = Scene::new();
    let mut run = started(&scene, "2s", OBEDIENT);
    let _: () = scene.server.command(&["EVAL", TAKE, "1", "x"]);
    assert_eq!(run.code(), 79);
    assert!(run.stderr().contains("taken"), "{}", run.stderr());
    assert!(scene.held("x"));
}

/// Another owner's lock in place of ours.
const TAKE: &str = "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'somebody:1', 1) \
                    redis.call('PEXPIRE', KEYS[1], 60000)";

#[test]
fn the_commands_own_failure_goes_before_the_loss() {
    let scene = Scene::new();
    let mut run = started(&scene, "2s", "trap 'exit 3' TERM; echo $$ >pid; while :; do sleep 0.02; done");
    let _: u32 = scene.server.command(&["DEL", "x"]);
    assert_eq!(run.code(), 3);
    scene.forget("pid");
    // The codes by which programs say that a signal ended them.
    let mut run = started(&scene, "2s", "trap 'exit 143' TERM; echo $$ >pid; while :; do sleep 0.02; done");
    let _: u32 = scene.server.command(&["DEL", "x"]);
    assert_eq!(run.code(), 79);
}

#[test]
fn a_loss_may_be_ignored_and_the_code_tells_of_it() {
    for (end, code) in [("exit 0", 79), ("exit 3", 3)] {
        let scene = Scene::new();
        let command = format!("echo $$ >pid; while [ ! -e go ]; do sleep 0.02; done; {end}");
        let mut run = scene.start(&["x", "--watchdog", "2s", "--on-loss", "ignore", "-c", &command]);
        scene.note("pid");
        let _: u32 = scene.server.command(&["DEL", "x"]);
        run.says("--on-loss ignore");
        assert!(is_alive(scene.pid("pid")));
        scene.write("go");
        assert_eq!(run.code(), code);
    }
}

#[test]
fn max_hold_ends_the_command_and_frees_the_lock() {
    let scene = Scene::new();
    let mut run = scene.start(&["x", "--watchdog", "2s", "--max-hold", "1s", "-c", OBEDIENT]);
    assert_eq!(run.code(), 79);
    assert!(run.stderr().contains("--max-hold"), "{}", run.stderr());
    assert!(!is_alive(scene.pid("pid")));
    assert!(!scene.held("x"));
}

#[test]
fn a_fixed_lease_ends_a_command_that_is_longer() {
    let scene = Scene::new();
    assert_eq!(scene.code(&["x", "--ttl", "2s", "-c", OBEDIENT]), 79);
    assert!(!is_alive(scene.pid("pid")));
    assert_eq!(scene.code(&["x", "--ttl", "2s", "--", "true"]), 0);
}

#[test]
fn a_warning_comes_before_the_end() {
    let mut scene = Scene::new();
    let command = "trap 'echo warned >>order' USR1; trap 'echo ended >>order; exit 9' TERM; echo $$ >pid; \
                   while :; do sleep 0.02; done";
    let mut run = scene.start(&["x", "--watchdog", "4s", "-k", "500ms", "--warn-signal", "USR1", "-c", command]);
    scene.note("pid");
    scene.server.freeze();
    assert_eq!(run.code(), 9);
    scene.server.thaw();
    assert_eq!(scene.note("order"), "warned\nended");
}

#[test]
fn another_signal_may_end_the_command() {
    let scene = Scene::new();
    let command = "trap 'echo >interrupted; exit 4' INT; echo $$ >pid; while :; do sleep 0.02; done";
    let mut run = scene.start(&["x", "--watchdog", "2s", "-s", "INT", "-c", command]);
    scene.note("pid");
    let _: u32 = scene.server.command(&["DEL", "x"]);
    assert_eq!(run.code(), 4);
    scene.note("interrupted");
}

#[test]
fn a_lock_that_is_renewed_outlives_its_lease() {
    let scene = Scene::new();
    let command = "echo >ready; while [ ! -e go ]; do sleep 0.02; done";
    let mut run = scene.start(&["x", "--watchdog", "2s", "-c", command]);
    scene.note("ready");
    let start = Instant::now();
    until("two leases are over", || {
        assert!(scene.held("x"), "it was not renewed");
        start.elapsed() > Duration::from_secs(4)
    });
    scene.write("go");
    assert_eq!((run.code(), run.stderr().as_str()), (0, ""), "nothing to say");
    assert!(!scene.held("x"));
}

#[test]
fn a_release_that_nobody_confirms_keeps_the_commands_code() {
    let mut scene = Scene::new();
    let command = "echo >ready; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    let mut run = scene.start(&["x", "-c", command]);
    scene.note("ready");
    scene.server.freeze();
    scene.write("go");
    assert_eq!(run.code(), 5);
    assert!(run.stderr().contains("not confirmed"), "{}", run.stderr());
    scene.server.thaw();
}

#[test]
fn a_loss_that_only_the_release_finds_is_reported() {
    for (end, code) in [("exit 0", 79), ("exit 3", 3)] {
        let scene = Scene::new();
        let command = format!("echo $$ >pid; while [ ! -e go ]; do sleep 0.02; done; {end}");
        let mut run = scene.start(&["x", "-c", &command]);
        scene.note("pid");
        let _: u32 = scene.server.command(&["DEL", "x"]);
        scene.write("go");
        assert_eq!(run.code(), code);
        assert_eq!(run.stderr().matches("lock \"x\" was lost").count(), 1, "{}", run.stderr());
    }
}
