//! `--shared`, `--exclusive`, `--limit` and `--fair`.

use crate::command::{Running, Scene, until};

/// The queue of the lock `x`.
const QUEUE: &str = "redlock_queue:{x}";

/// A command that notes that it runs, and ends when `go` is there.
fn guarded(note: &str, go: &str) -> String {
    format!("echo >{note}; while [ ! -e {go} ]; do sleep 0.02; done")
}

/// Starts a command under the lock `x` with this option, and waits until it runs.
fn holds(scene: &Scene, option: &[&str], note: &str, go: &str) -> Running {
    let command = guarded(note, go);
    let run = scene.start(&[&["x", "-c", &command], option].concat());
    scene.note(note);
    run
}

/// The exit code of a try with this option.
fn tries(scene: &Scene, option: &[&str]) -> i32 {
    scene.code(&[&["x", "-n"], option, &["--", "true"]].concat())
}

#[test]
fn shared_commands_run_together_and_exclude_the_others() {
    let scene = Scene::new();
    let mut readers = ["one", "two"].map(|note| holds(&scene, &["--shared"], note, "read"));
    assert_eq!([tries(&scene, &["--exclusive"]), tries(&scene, &[]), tries(&scene, &["--shared"])], [75, 75, 0]);
    scene.write("read");
    assert_eq!(readers.each_mut().map(Running::code), [0, 0]);
    for alone in [&["--exclusive"][..], &[]] {
        let mut writer = holds(&scene, alone, "alone", "wrote");
        assert_eq!([tries(&scene, &["--shared"]), tries(&scene, &["--exclusive"])], [75, 75]);
        scene.write("wrote");
        assert_eq!(writer.code(), 0);
        scene.forget("alone");
        scene.forget("wrote");
    }
    assert!(!scene.held("x"));
}

#[test]
fn an_exclusive_command_goes_before_later_shared_ones() {
    let scene = Scene::new();
    let mut reader = holds(&scene, &["--shared"], "reads", "read");
    let mut writer = scene.start(&["x", "--exclusive", "-c", "echo >writes"]);
    // Before the writer is in the queue, a reader enters.
    until("the writer waits", || tries(&scene, &["--shared"]) == 75);
    assert!(!scene.has("writes"));
    scene.write("read");
    assert_eq!((reader.code(), writer.code()), (0, 0));
    assert!(scene.has("writes"));
}

#[test]
fn as_many_commands_run_as_the_limit_says_each_with_a_slot() {
    let scene = Scene::new();
    let slot = |note: &str, go: &str| {
        let command = format!("echo \"$REDLOCK_SLOT\" >{note}; while [ ! -e {go} ]; do sleep 0.02; done");
        let run = scene.start(&["x", "--limit", "2", "-c", &command]);
        (run, scene.note(note))
    };
    let ((mut first, one), (mut second, other)) = (slot("a", "go-a"), slot("b", "go-b"));
    assert_eq!((one.as_str(), other.as_str()), ("0", "1"));
    assert_eq!(tries(&scene, &["--limit", "2"]), 75);
    scene.write("go-a");
    assert_eq!(first.code(), 0);
    let (mut third, again) = slot("c", "go-b");
    assert_eq!(again, "0");
    assert_eq!(tries(&scene, &[]), 65, "the name is a semaphore's");
    scene.write("go-b");
    assert_eq!((second.code(), third.code()), (0, 0));
    let mut outer = scene.command(&["y", "-c", "test -z \"$REDLOCK_SLOT\""]);
    outer.env("REDLOCK_SLOT", "an outer one's");
    assert_eq!(scene.run(outer).code(), 0);
}

#[test]
fn fair_commands_run_in_the_order_of_their_starts() {
    let scene = Scene::new();
    let mut holder = holds(&scene, &["--fair"], "ready", "go");
    let mut waiters = Vec::new();
    for number in 1..=4 {
        waiters.push(scene.start(&["x", "--fair", "-c", &format!("echo {number} >>order")]));
        until("it is in the queue", || scene.server.command::<usize>(&["ZCARD", QUEUE]) == number);
    }
    scene.write("go");
    assert_eq!(holder.code(), 0);
    assert!(waiters.iter_mut().all(|waiter| waiter.code() == 0));
    let order = std::fs::read_to_string(scene.folder.join("order")).expect("the order");
    assert_eq!(order.split_whitespace().collect::<Vec<_>>(), ["1", "2", "3", "4"]);
}

#[test]
fn what_needs_one_server_is_refused_on_a_quorum() {
    let scene = Scene::new();
    let urls = ["-u", "redis://127.0.0.1:1", "-u", "redis://127.0.0.1:2", "-u", "redis://127.0.0.1:3"];
    let mut run = scene.start(&[&["x", "--fair"], &urls[..], &["--", "touch", "ran"]].concat());
    assert_eq!(run.code(), 64, "{}", run.stderr());
    assert_eq!(run.stderr().lines().count(), 1, "{}", run.stderr());
    assert!(!scene.has("ran"));
}
