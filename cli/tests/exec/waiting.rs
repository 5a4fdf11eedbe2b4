//! Signals while `redlock exec` waits for the lock.

use rustix::process::Signal;

use crate::command::{Scene, until};

#[test]
fn a_signal_ends_the_wait_and_nothing_is_held() {
    let scene = Scene::new();
    let holder = "echo >ready; while [ ! -e go ]; do sleep 0.02; done";
    let mut holder = scene.start(&["x", "-c", holder]);
    scene.note("ready");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let mut run = scene.start(&["x", "--", "touch", "ran"]);
        until("it waits", || scene.server.waiting("x") > 0);
        run.signal(signal);
        assert_eq!((run.code(), run.stderr().as_str()), (code, ""));
        until("it waits no more", || scene.server.waiting("x") == 0);
    }
    scene.write("go");
    assert_eq!(holder.code(), 0);
    assert!(!scene.has("ran") && !scene.held("x"));
}

#[test]
fn a_signal_at_the_moment_of_the_grant_leaves_nothing_held() {
    for _ in 0..crate::command::rounds(3) {
        let scene = Scene::new();
        let mut holder = scene.start(&["x", "-c", "echo >ready; while [ ! -e go ]; do sleep 0.02; done"]);
        scene.note("ready");
        let mut run = scene.start(&["x", "-c", "echo >ran; exec sleep 100"]);
        until("it waits", || scene.server.waiting("x") > 0);
        scene.write("go");
        run.signal(Signal::TERM);
        assert_eq!((holder.code(), run.code()), (0, 143));
        until("the lock is free", || !scene.held("x"));
    }
}

#[test]
fn signals_that_do_not_end_a_command_do_not_end_the_wait() {
    let scene = Scene::new();
    let mut holder = scene.start(&["x", "-c", "echo >ready; while [ ! -e go ]; do sleep 0.02; done"]);
    scene.note("ready");
    let mut run = scene.start(&["x", "--", "touch", "ran"]);
    until("it waits", || scene.server.waiting("x") > 0);
    for signal in [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::CONT] {
        run.signal(signal);
    }
    scene.write("go");
    assert_eq!((holder.code(), run.code()), (0, 0));
    assert!(scene.has("ran"));
}
