//! Signals to `redlock exec`, and what they leave behind: nothing.

use std::os::unix::process::CommandExt;

use rustix::process::Signal;

use crate::command::{Scene, end, is_alive, rounds, until};

/// Starts a child, notes both pids, and waits for the child.
const FAMILY: &str = "sleep 100 & echo $! >child; echo $$ >pid; wait";

#[test]
fn the_lock_stays_held_until_a_terminated_command_is_gone() {
    for signal in [Signal::TERM, Signal::INT] {
        let scene = Scene::new();
        let command = "trap 'echo >asked; while [ ! -e go ]; do sleep 0.02; done; exit 3' TERM INT; echo >ready; \
                       while :; do sleep 0.02; done";
        let mut run = scene.start(&["x", "-c", command]);
        scene.note("ready");
        run.signal(signal);
        scene.note("asked");
        assert!(scene.held("x") && run.is_running());
        scene.write("go");
        assert_eq!(run.code(), 3);
        assert!(!scene.held("x") && !run.stderr().contains("redlock"), "{}", run.stderr());
    }
}

#[test]
fn no_process_of_a_terminated_group_is_left() {
    for _ in 0..rounds(3) {
        let scene = Scene::new();
        let mut run = scene.start(&["x", "-c", FAMILY]);
        let (parent, child) = (scene.pid("pid"), scene.pid("child"));
        run.signal(Signal::TERM);
        assert_eq!(run.code(), 143);
        assert!(!is_alive(parent) && !is_alive(child));
        assert!(!scene.held("x"));
    }
}

#[test]
fn the_lock_stays_held_while_a_child_cleans_up_after_its_shell() {
    let scene = Scene::new();
    let slow = "trap 'echo >cleaning; while [ ! -e go ]; do sleep 0.02; done; echo >clean; exit' TERM; echo >ready; \
                while :; do sleep 0.02; done";
    // The shell ends at once.
    let mut run = scene.start(&["x", "-c", &format!("sh -c \"{}\"; true", slow.replace('$', "\\$"))]);
    scene.note("ready");
    run.signal(Signal::TERM);
    scene.note("cleaning");
    assert!(scene.held("x") && run.is_running());
    scene.write("go");
    assert_eq!(run.code(), 143);
    assert!(scene.has("clean") && !scene.held("x"));
}

#[test]
fn a_child_that_ignores_the_signal_is_killed() {
    let scene = Scene::new();
    let deaf = "(trap '' TERM; exec sleep 100) & echo $! >child; echo $$ >pid; wait";
    let mut run = scene.start(&["x", "-k", "200ms", "-c", deaf]);
    let (parent, child) = (scene.pid("pid"), scene.pid("child"));
    until("the child ignores it", || ignores_term(child));
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 143);
    assert!(!is_alive(parent) && !is_alive(child));
}

#[cfg(target_os = "linux")]
fn ignores_term(pid: rustix::process::Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).expect("a process");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim().to_owned();
    u64::from_str_radix(&mask, 16).expect("a number") & 1 << (libc::SIGTERM - 1) != 0
}

#[cfg(not(target_os = "linux"))]
fn ignores_term(pid: rustix::process::Pid) -> bool {
    let mask = std::process::Command::new("ps").args(["-o", "command=", "-p", &pid.as_raw_pid().to_string()]).output();
    String::from_utf8_lossy(&mask.expect("ps").stdout).starts_with("sleep")
}

#[test]
fn a_second_int_kills() {
    let scene = Scene::new();
    let command = "trap 'echo >asked' INT; sleep 100 & echo $! >child; echo >ready; while :; do sleep 0.02; done";
    let mut run = scene.start(&["x", "-c", command]);
    scene.note("ready");
    run.signal(Signal::INT);
    scene.note("asked");
    assert!(scene.held("x") && run.is_running());
    run.signal(Signal::INT);
    assert_eq!(run.code(), 137);
    assert!(!is_alive(scene.pid("child")));
    assert!(!scene.held("x"));
}

#[test]
fn the_other_signals_reach_the_command_and_the_lock_stays_held() {
    let scene = Scene::new();
    let traps: String = ["HUP", "USR1", "USR2", "WINCH", "CONT", "QUIT"]
        .map(|signal| format!("trap 'echo >{signal}' {signal}; "))
        .concat();
    let command = format!("{traps}echo >ready; while [ ! -e go ]; do sleep 0.02; done");
    let mut run = scene.start(&["x", "-c", &command]);
    scene.note("ready");
    let signals = [Signal::HUP, Signal::USR1, Signal::USR2, Signal::WINCH, Signal::CONT, Signal::QUIT];
    for (signal, name) in signals.into_iter().zip(["HUP", "USR1", "USR2", "WINCH", "CONT", "QUIT"]) {
        run.signal(signal);
        scene.note(name);
    }
    assert!(scene.held("x"));
    scene.write("go");
    assert_eq!(run.code(), 0);
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_dies_with_redlock() {
    for _ in 0..rounds(3) {
        let scene = Scene::new();
        let mut run = scene.start(&["x", "--", "sh", "-c", "echo $$ >pid; exec sleep 100"]);
        let command = scene.pid("pid");
        run.signal(Signal::KILL);
        assert_eq!(run.code(), -libc::SIGKILL);
        until("the command is dead", || !is_alive(command));
        assert!(scene.held("x"), "until its lease ends");
    }
}

#[test]
fn what_a_command_leaves_in_the_background_is_left_alone() {
    let scene = Scene::new();
    let mut run = scene.start(&["x", "-c", "sleep 100 >/dev/null 2>&1 & echo $! >child"]);
    assert_eq!(run.code(), 0);
    let child = scene.pid("child");
    assert!(is_alive(child));
    assert!(!scene.held("x"));
    end(child);
}

#[test]
#[allow(unsafe_code, reason = "std ignores no signal")]
fn an_ignored_signal_stays_ignored() {
    let scene = Scene::new();
    let command = "kill -HUP $$; kill -INT $$; kill -PIPE $$; echo >ready; while [ ! -e go ]; do sleep 0.02; done";
    let mut run = scene.command(&["x", "-c", command]);
    // As nohup does, and a shell without job control for its background jobs.
    // SAFETY: one system call.
    unsafe {
        run.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            Ok(())
        })
    };
    let mut run = scene.run(run);
    scene.note("ready");
    run.signal(Signal::HUP);
    run.signal(Signal::INT);
    scene.write("go");
    assert_eq!(run.code(), 0);
}

#[test]
fn a_signal_that_is_not_ignored_has_its_default() {
    let scene = Scene::new();
    for (signal, code) in [("PIPE", 141), ("INT", 130), ("HUP", 129)] {
        assert_eq!(scene.code(&["x", "-c", &format!("kill -{signal} $$")]), code);
    }
}

#[test]
fn in_the_foreground_signals_reach_the_command_alone() {
    let scene = Scene::new();
    let mut run = scene.start(&["x", "--foreground", "-c", FAMILY]);
    let (parent, child) = (scene.pid("pid"), scene.pid("child"));
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 143);
    assert!(!is_alive(parent) && is_alive(child));
    end(child);
}

#[test]
fn a_stopped_command_is_continued_under_its_lock() {
    let scene = Scene::new();
    let mut run = scene.start(&["x", "-c", "echo $$ >pid; while [ ! -e go ]; do sleep 0.02; done"]);
    let command = scene.pid("pid");
    rustix::process::kill_process(command, Signal::STOP).expect("it runs");
    until("it is stopped", || crate::command::state(command) == Some('T'));
    scene.write("go");
    assert!(scene.held("x") && run.is_running(), "redlock itself goes on");
    run.signal(Signal::CONT);
    assert_eq!(run.code(), 0);
}
