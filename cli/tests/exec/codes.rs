//! Exit codes, the start of the command, and its environment.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use rustix::process::Pid;

use crate::command::{Scene, until};

#[test]
fn the_commands_own_code_passes() {
    let scene = Scene::new();
    for code in 0..=255 {
        assert_eq!(scene.code(&["x", "--", "sh", "-c", &format!("exit {code}")]), code);
    }
    assert!(!scene.held("x"));
}

#[test]
fn a_signal_is_128_plus_its_number() {
    let scene = Scene::new();
    let harmless = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
    let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let of_the_c_library = [32, 33];
    let last = if cfg!(target_os = "linux") { 64 } else { 31 };
    let ends = |signal: &i32| ![&harmless[..], &stopping, &of_the_c_library].concat().contains(signal);
    for signal in (1..=last).filter(ends) {
        let mut run = scene.start(&["x", "-c", "ulimit -c 0; echo $$ >pid; exec sleep 100"]);
        let command = scene.pid("pid");
        // Until it is `sleep`, the shell may ignore the signal.
        until("the signal ends it", || {
            raise(command, signal);
            !run.is_running()
        });
        assert_eq!(run.code(), 128 + signal);
        scene.forget("pid");
    }
}

/// Sends a signal that may have no name, to a process that may have ended.
#[allow(unsafe_code, reason = "rustix sends named signals only")]
fn raise(pid: Pid, signal: i32) {
    // SAFETY: a plain system call.
    unsafe { libc::kill(pid.as_raw_pid(), signal) };
}

#[test]
fn a_lock_that_somebody_else_holds_is_75_or_what_the_caller_chose() {
    let scene = Scene::new();
    let holder = ["x", "--", "sh", "-c", "echo >ready; while [ ! -e go ]; do sleep 0.02; done"];
    let mut holder = scene.start(&holder);
    scene.note("ready");
    assert_eq!(scene.code(&["x", "-n", "--", "touch", "ran"]), 75);
    assert_eq!(scene.code(&["x", "-w", "0", "--", "touch", "ran"]), 75);
    assert_eq!(scene.code(&["x", "-w", "100ms", "--", "touch", "ran"]), 75);
    assert_eq!(scene.code(&["x", "-n", "-E", "0", "--", "touch", "ran"]), 0);
    assert!(!scene.has("ran"));
    let mut waiter = scene.start(&["x", "-w", "60", "--", "touch", "ran"]);
    scene.write("go");
    assert_eq!((holder.code(), waiter.code()), (0, 0));
    assert!(scene.has("ran"));
}

#[test]
fn a_server_that_is_down_is_69() {
    let mut scene = Scene::new();
    scene.server.stop();
    let mut run = scene.start(&["x", "-n", "--", "touch", "ran"]);
    assert_eq!(run.code(), 69);
    assert!(run.stderr().contains("redlock"), "{}", run.stderr());
    assert!(!scene.has("ran"));
}

#[test]
fn a_key_that_is_no_lock_is_65() {
    let scene = Scene::new();
    let _: String = scene.server.command(&["SET", "x", "something"]);
    assert_eq!(scene.code(&["x", "--", "touch", "ran"]), 65);
    assert!(!scene.has("ran"));
}

#[test]
fn a_command_that_cannot_run_is_126_or_127_before_the_lock_is_acquired() {
    let mut scene = Scene::new();
    let file = scene.folder.join("file");
    fs::write(&file, "#!/no/such/interpreter\n").expect("a file");
    let interpreted = scene.folder.join("interpreted");
    fs::copy(&file, &interpreted).expect("a file");
    fs::set_permissions(&interpreted, fs::Permissions::from_mode(0o755)).expect("a mode");
    assert_eq!(scene.code(&["x", "--min-hold", "60", "--", "./interpreted"]), 127);
    assert!(!scene.held("x"), "the interpreter is looked for when the lock is held");

    // No server is asked: it would be 69.
    scene.server.stop();
    assert_eq!(scene.code(&["x", "--", "redlock-no-such-program"]), 127);
    assert_eq!(scene.code(&["x", "--", "./no-such-file"]), 127);
    assert_eq!(scene.code(&["x", "--", "./file"]), 126);
}

#[test]
fn bad_options_are_64_before_the_lock_is_acquired() {
    let scene = Scene::new();
    for arguments in [
        &["x"][..],
        &["x", "--watchdog", "1s", "--", "true"],
        &["x", "--ttl", "soon", "--", "true"],
        &["x", "-s", "NONE", "--", "true"],
        &["x", "-k", "8s", "--", "true"],
        &["", "--", "true"],
        &["x", "--owner", "", "--", "true"],
        &["x", "--ttl", "9s", "--max-hold", "9s", "--", "true"],
        &["x", "--min-hold", "9s", "--owner", "o", "--", "true"],
        &["x", "--min-hold", "9s", "--ttl", "8s", "--", "true"],
        &["x", "--min-hold", "61s", "--max-hold", "60s", "--", "true"],
    ] {
        let mut run = scene.start(arguments);
        assert_eq!(run.code(), 64, "{arguments:?}: {}", run.stderr());
        assert!(!run.stderr().is_empty(), "{arguments:?}");
    }
}

#[test]
fn the_command_gets_its_streams_and_the_locks_variables() {
    let scene = Scene::new();
    let print = "cat; echo \"$REDLOCK_NAME $REDLOCK_TTL_MS ${REDLOCK_OWNER-none}\"; echo \"$REDLOCK_TOKEN\" >token; echo oops >&2";
    let mut command = scene.command(&["nightly", "--watchdog", "20s", "-c", print]);
    fs::write(scene.folder.join("in"), "input\n").expect("a file");
    command.stdin(fs::File::open(scene.folder.join("in")).expect("a file")).env("REDLOCK_OWNER", "an outer one's");
    let mut run = scene.run(command);
    assert_eq!(run.code(), 0);
    assert_eq!((run.stdout().as_str(), run.stderr().as_str()), ("input\nnightly 20000 none\n", "oops\n"));
    let first: u64 = scene.note("token").parse().expect("a token");
    scene.code(&["nightly", "-c", "echo \"$REDLOCK_TOKEN\" >token"]);
    assert!(scene.note("token").parse::<u64>().expect("a token") > first);
}

#[test]
fn an_owner_may_nest() {
    let scene = Scene::new();
    let program = env!("CARGO_BIN_EXE_redlock");
    let nested = format!("{program} exec x -n --owner \"$REDLOCK_OWNER\" -- touch ran");
    assert_eq!(scene.code(&["x", "--owner", "deploy-7", "-c", &nested]), 0);
    assert!(scene.has("ran"));
    let other = format!("{program} exec x -n --owner other -- touch ran-too");
    assert_eq!(scene.code(&["x", "--owner", "deploy-7", "-c", &other]), 75);
    assert!(!scene.has("ran-too"));
}

#[test]
fn a_least_time_outlasts_the_command() {
    let scene = Scene::new();
    let least = Duration::from_millis(1500);
    let start = Instant::now();
    assert_eq!(scene.code(&["x", "--min-hold", "1500ms", "-c", "exit 3"]), 3);
    assert!(scene.held("x"));
    assert_eq!(scene.code(&["x", "-n", "--", "touch", "ran"]), 75);
    assert!(!scene.has("ran"));
    assert_eq!(scene.code(&["x", "--", "touch", "ran"]), 0);
    assert!(scene.has("ran") && start.elapsed() >= least);
    assert!(!scene.held("x"), "the second run had no least time");
}

#[test]
fn a_script_locks_itself() {
    let scene = Scene::new();
    let script = format!(
        "#!/bin/sh\n[ \"$REDLOCK_NAME\" = nightly ] || exec {} exec nightly -n -E 0 -- \"$0\" \"$@\"\necho \"$1\" >ran\n",
        env!("CARGO_BIN_EXE_redlock")
    );
    let path = scene.folder.join("script");
    fs::write(&path, script).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a mode");
    let mut command = std::process::Command::new(&path);
    command.arg("an argument");
    scene.in_folder(&mut command);
    assert_eq!(scene.run(command).code(), 0);
    assert_eq!(scene.note("ran"), "an argument");
}
