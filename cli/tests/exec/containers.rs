//! `redlock exec` as process 1 of a PID namespace, as the entry point of a container is. It needs the right to make one:
//! root, or user namespaces.

use std::{fs, process::Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::command::{Running, Scene, detach, is_alive, pid, rounds, until};

/// Starts `redlock exec` as process 1 of a namespace.
fn container(scene: &Scene, arguments: &[&str]) -> Running {
    let mut command = Command::new("unshare");
    // Where root may do it, no user namespace is needed.
    command.args(["--map-root-user", "--fork", "--pid", "--mount-proc", "--"]);
    command.args([env!("CARGO_BIN_EXE_redlock"), "exec"]).args(arguments);
    scene.in_folder(&mut command);
    detach(&mut command);
    scene.run(command)
}

/// The child of a process.
fn child_of(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_pid();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    Some(pid(children.split_whitespace().next()?.parse().expect("a pid")))
}

/// Waits for process 1 of the namespace, as seen from outside.
fn first(run: &Running) -> Pid {
    let mut first = None;
    until("the namespace has a process", || {
        first = child_of(run.pid());
        first.is_some()
    });
    first.expect("a process")
}

#[test]
fn the_runtimes_sigterm_ends_everything() {
    for _ in 0..rounds(3) {
        let scene = Scene::new();
        let command = "trap 'echo >cleaned; exit 0' TERM; sleep 100 & echo $$ >pid; wait";
        let mut run = container(&scene, &["x", "-c", command]);
        scene.note("pid");
        let first = first(&run);
        let command = child_of(first).expect("the command");
        kill_process(first, Signal::TERM).expect("process 1 runs");
        assert_eq!(run.code(), 0, "{}", run.stderr());
        assert!(scene.has("cleaned"));
        assert!(!is_alive(first) && !is_alive(command));
        assert!(!scene.held("x"));
    }
}

#[test]
fn orphans_are_reaped() {
    let scene = Scene::new();
    // The inner shell ends before its child, which then belongs to process 1.
    let command = "sh -c 'sleep 0.05 & echo $! >orphan'; while [ ! -e go ]; do sleep 0.02; done";
    let mut run = container(&scene, &["x", "-c", command]);
    let orphan = scene.note("orphan");
    let first = first(&run);
    // A zombie would still be in the namespace's /proc.
    let entry = format!("/proc/{}/root/proc/{orphan}", first.as_raw_pid());
    until("the orphan was reaped", || fs::metadata(&entry).is_err());
    scene.write("go");
    assert_eq!(run.code(), 0, "{}", run.stderr());
}

#[test]
fn the_runtimes_sigkill_ends_everything() {
    let scene = Scene::new();
    let mut run = container(&scene, &["x", "-c", "sleep 100 & echo $$ >pid; wait"]);
    scene.note("pid");
    let first = first(&run);
    let command = child_of(first).expect("the command");
    kill_process(first, Signal::KILL).expect("process 1 runs");
    run.code();
    until("the command is dead", || !is_alive(command));
}
