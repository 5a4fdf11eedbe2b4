//! `redlock exec` on a terminal, under a shell with job control: keys, stopped jobs, pipelines, scripts.
//!
//! Commands that Ctrl-Z stops sleep in a subshell. For a plain `sleep` dash calls vfork: if the key stops the child before
//! its exec, the kernel cannot stop dash, and no parent sees a stop, with or without `redlock`.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command},
    sync::{Arc, Mutex, PoisonError},
};

use redlock_tests::terminal::Pty;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::command::{Scene, is_alive, rounds, state, until};

const INTERRUPT: &str = "\x03";
const SUSPEND: &str = "\x1a";

/// bash on a pseudo-terminal. Dropping it ends it with its jobs.
struct Shell {
    child: Child,
    terminal: Pty,
    screen: Arc<Mutex<String>>,
}

impl Shell {
    fn start(scene: &Scene) -> Self {
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile", "--noediting", "-i"]);
        scene.in_folder(&mut command);
        command.env("PATH", path_with_redlock()).env("PS1", "$ ").env("TERM", "dumb").env_remove("HISTFILE");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        let (terminal, child) = Pty::start(command, (80, 24), move |bytes| {
            shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(bytes));
        });
        Self { child, terminal, screen }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.press(keys);
    }

    fn enter(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    fn screen(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the screen shows a text, which no line that was typed contains.
    fn shows(&self, text: &str) {
        let start = std::time::Instant::now();
        while !self.screen().contains(text) {
            assert!(start.elapsed() < crate::command::LIMIT, "no {text:?} on the screen:\n{}", self.screen());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// The exit code of the last command.
    fn code(&mut self, code: i32) {
        self.enter("echo code=$?;");
        self.shows(&format!("code={code}"));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Its jobs get SIGHUP when their terminal is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn path_with_redlock() -> String {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_redlock"));
    let folder = program.parent().expect("a folder").to_string_lossy().into_owned();
    format!("{folder}:{}", std::env::var("PATH").expect("a PATH"))
}

/// The parent of a process: `redlock exec`, for a command.
fn parent_of(pid: Pid) -> Pid {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).expect("a process");
    let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).expect("a parent");
    crate::command::pid(parent.parse().expect("a pid"))
}

#[test]
fn ctrl_c_ends_the_command_and_frees_the_lock() {
    for _ in 0..rounds(2) {
        let scene = Scene::new();
        let mut shell = Shell::start(&scene);
        shell.enter("redlock exec x -k 200ms -c 'sleep 100 & echo $! >child; echo $$ >pid; wait'");
        let (command, child) = (scene.pid("pid"), scene.pid("child"));
        assert!(scene.held("x"));
        shell.press(INTERRUPT);
        shell.code(130);
        // A background job of a shell ignores SIGINT.
        assert!(!is_alive(command) && !is_alive(child) && !scene.held("x"));
    }
}

#[test]
fn the_command_reads_from_the_terminal() {
    let scene = Scene::new();
    let mut shell = Shell::start(&scene);
    shell.enter("redlock exec x -c 'echo >ready; read line; echo \"got $line\"'");
    scene.note("ready");
    shell.enter("hello");
    shell.shows("got hello");
    shell.code(0);
    shell.enter("echo the shell $((1 + 1)) has the terminal");
    shell.shows("the shell 2 has");
}

#[test]
fn ctrl_z_stops_the_command_and_redlock_and_fg_continues_both() {
    for _ in 0..rounds(2) {
        let scene = Scene::new();
        let mut shell = Shell::start(&scene);
        shell.enter("redlock exec x -c 'echo $$ >pid; while [ ! -e go ]; do (sleep 0.02); done; echo $((6 * 7)) done'");
        let command = scene.pid("pid");
        let redlock = parent_of(command);
        shell.press(SUSPEND);
        shell.shows("Stopped");
        assert_eq!((state(command), state(redlock)), (Some('T'), Some('T')));
        scene.write("go");
        shell.enter("fg");
        shell.shows("42 done");
        shell.code(0);
        assert!(!scene.held("x"));
    }
}

#[test]
fn a_lock_that_is_lost_while_stopped_kills_the_command_before_it_runs_again() {
    for _ in 0..rounds(2) {
        let scene = Scene::new();
        let mut shell = Shell::start(&scene);
        let count = "echo $$ >pid; i=0; while :; do i=$((i + 1)); echo $i >count; (sleep 0.01); done";
        shell.enter(&format!("redlock exec x --watchdog 2s -c '{count}'"));
        let command = scene.pid("pid");
        scene.note("count");
        shell.press(SUSPEND);
        shell.shows("Stopped");
        until("the lease is over", || !scene.held("x"));
        let before = fs::read_to_string(scene.folder.join("count")).expect("a file");
        shell.enter("fg");
        shell.code(79);
        assert!(!is_alive(command));
        assert_eq!(fs::read_to_string(scene.folder.join("count")).expect("a file"), before);
    }
}

#[test]
fn bg_continues_the_command_without_the_terminal() {
    let scene = Scene::new();
    let mut shell = Shell::start(&scene);
    shell.enter(
        "redlock exec x -c 'echo $$ >pid; while [ ! -e go ]; do (sleep 0.02); done; read line; echo \"got $line\"'",
    );
    let command = scene.pid("pid");
    shell.press(SUSPEND);
    shell.shows("Stopped");
    shell.enter("bg");
    until("the command runs", || state(command) != Some('T'));
    shell.enter("echo the shell $((1 + 1)) has the terminal");
    shell.shows("the shell 2 has");
    // It asks for the terminal, and stops until it gets it.
    scene.write("go");
    until("the command stops", || state(command) == Some('T') && state(parent_of(command)) == Some('T'));
    shell.enter("fg");
    until("the command runs", || state(command) != Some('T'));
    shell.enter("hello");
    shell.shows("got hello");
    shell.code(0);
}

#[test]
fn ctrl_c_ends_a_script_around_it() {
    let scene = Scene::new();
    for shell in ["sh", "bash"] {
        let script = "redlock exec x -c 'echo >ready; exec sleep 100'\necho after >after\n";
        fs::write(scene.folder.join("script"), script).expect("a file");
        let mut terminal = Shell::start(&scene);
        terminal.enter(&format!("{shell} script"));
        scene.note("ready");
        terminal.press(INTERRUPT);
        terminal.code(130);
        assert!(!scene.has("after") && !scene.held("x"), "{shell}");
        scene.forget("ready");
    }
}

/// In a pipeline and with `--foreground` the key reaches `redlock`, too, and in the wait it reaches nobody else. bash then
/// goes on with the script, unless the signal ends `redlock` as well.
#[test]
fn ctrl_c_ends_a_script_around_it_also_if_redlock_handles_the_key() {
    let scene = Scene::new();
    let mut holder = scene.start(&["held", "-c", "echo >ready; while [ ! -e go ]; do (sleep 0.02); done"]);
    scene.note("ready");
    scene.forget("ready");
    let command = "-c 'echo >ready; exec sleep 100'";
    for (line, call) in [
        (format!("redlock exec x {command}"), "bash script | cat"),
        (format!("redlock exec x --foreground {command}"), "bash script"),
        ("echo >ready; redlock exec held -- touch ran".to_owned(), "bash script"),
    ] {
        fs::write(scene.folder.join("script"), format!("{line}\necho after >after\n")).expect("a file");
        let mut terminal = Shell::start(&scene);
        terminal.enter(call);
        scene.note("ready");
        if line.contains("held") {
            terminal.shows("waiting for");
        }
        terminal.press(INTERRUPT);
        terminal.code(130);
        assert!(!scene.has("after") && !scene.has("ran") && !scene.held("x"), "{line}");
        scene.forget("ready");
    }
    scene.write("go");
    assert_eq!(holder.code(), 0);
}

#[test]
fn ctrl_z_stops_a_script_around_it() {
    for _ in 0..rounds(2) {
        let scene = Scene::new();
        let script = "redlock exec x -c 'echo $$ >pid; while [ ! -e go ]; do (sleep 0.02); done'\necho after >after\n";
        fs::write(scene.folder.join("script"), script).expect("a file");
        let mut shell = Shell::start(&scene);
        shell.enter("sh script");
        let command = scene.pid("pid");
        shell.press(SUSPEND);
        shell.shows("Stopped");
        assert_eq!(state(command), Some('T'));
        scene.write("go");
        shell.enter("fg");
        scene.note("after");
        shell.code(0);
    }
}

#[test]
fn in_a_pipeline_the_command_gets_the_terminal_when_it_asks() {
    let scene = Scene::new();
    let mut shell = Shell::start(&scene);
    shell.enter("redlock exec x -c 'echo >ready; read line </dev/tty; echo \"got $line\"' | cat");
    scene.note("ready");
    shell.enter("hello");
    shell.shows("got hello");
    shell.code(0);
    scene.forget("ready");
    // A program at the other end of the pipeline may read it as well.
    shell.enter(
        "redlock exec x -c 'echo >ready; exec sleep 100' | (read line </dev/tty; echo \"the reader got $line\")",
    );
    scene.note("ready");
    shell.enter("keys");
    shell.shows("the reader got keys");
    shell.press(INTERRUPT);
    shell.enter("echo first=${PIPESTATUS[0]};");
    shell.shows("first=130");
    assert!(!scene.held("x"));
}

#[test]
fn in_the_background_the_shell_keeps_the_terminal() {
    let scene = Scene::new();
    let mut shell = Shell::start(&scene);
    shell.enter("redlock exec x -c 'echo $$ >pid; exec sleep 100' &");
    let command = scene.pid("pid");
    shell.enter("echo the shell $((1 + 1)) has the terminal");
    shell.shows("the shell 2 has");
    shell.enter("kill %1; wait %1");
    shell.code(143);
    assert!(!is_alive(command) && !scene.held("x"));
}

#[test]
fn a_background_job_leaves_the_terminal_to_its_script() {
    let scene = Scene::new();
    let script = "redlock exec x -c 'echo >ready; while [ ! -e go ]; do (sleep 0.02); done' &\n\
                  until [ -e ready ]; do sleep 0.02; done\necho >asks\nread line\necho \"got $line\"\n\
                  echo >go\nwait\n";
    fs::write(scene.folder.join("script"), script).expect("a file");
    let mut shell = Shell::start(&scene);
    shell.enter("bash script");
    scene.note("asks");
    shell.enter("hello");
    shell.shows("got hello");
    shell.code(0);
    assert!(!scene.held("x"));
}

#[test]
fn in_a_command_substitution_the_command_reads_from_the_terminal() {
    let scene = Scene::new();
    let mut shell = Shell::start(&scene);
    shell.enter("said=$(redlock exec x -c 'echo >ready; read line; echo \"got $line\"'); echo \"<$said>\"");
    scene.note("ready");
    shell.enter("hello");
    shell.shows("<got hello>");
    shell.code(0);
}

#[test]
fn an_int_that_was_sent_to_redlock_ends_no_script_around_it() {
    let scene = Scene::new();
    let script = "redlock exec x -c 'echo $$ >pid; exec sleep 100'\necho $? >after\n";
    fs::write(scene.folder.join("script"), script).expect("a file");
    let mut shell = Shell::start(&scene);
    shell.enter("sh script");
    let redlock = parent_of(scene.pid("pid"));
    kill_process(redlock, Signal::INT).expect("it runs");
    assert_eq!(scene.note("after"), "130");
    shell.code(0);
}

#[test]
fn in_the_foreground_keys_reach_the_command_once() {
    let scene = Scene::new();
    let mut shell = Shell::start(&scene);
    let count = "trap \"echo caught >>caught\" INT; echo $$ >pid; while [ ! -e go ]; do (sleep 0.02); done";
    shell.enter(&format!("redlock exec x --foreground -c '{count}'"));
    let command = scene.pid("pid");
    shell.press(INTERRUPT);
    assert_eq!(scene.note("caught"), "caught");
    shell.press(SUSPEND);
    shell.shows("Stopped");
    assert_eq!(state(command), Some('T'));
    shell.enter("fg");
    scene.write("go");
    shell.code(0);
    assert_eq!(scene.note("caught"), "caught");
}

#[test]
fn the_wait_is_shown_and_ctrl_c_ends_it() {
    let scene = Scene::new();
    let mut holder = scene.start(&["x", "-c", "echo >ready; while [ ! -e go ]; do (sleep 0.02); done"]);
    scene.note("ready");
    let mut shell = Shell::start(&scene);
    shell.enter("redlock exec x -- touch ran");
    shell.shows("waiting for \"x\"");
    shell.shows(&format!("held by pid {} (redlock) on ", holder.pid().as_raw_pid()));
    shell.press(INTERRUPT);
    shell.code(130);
    scene.write("go");
    assert_eq!(holder.code(), 0);
    assert!(!scene.has("ran") && !scene.held("x"));
}

#[test]
fn the_modes_of_the_terminal_are_restored_after_a_kill() {
    let scene = Scene::new();
    let mut shell = Shell::start(&scene);
    shell.enter("redlock exec x -c 'stty raw -echo; echo $$ >pid; exec sleep 100'");
    let command = scene.pid("pid");
    kill_process_group(command, Signal::KILL).expect("it leads a group");
    shell.code(137);
    let modes = Command::new("stty").arg("-F").arg(shell.terminal.path()).arg("-a").output().expect("stty");
    let modes = String::from_utf8_lossy(&modes.stdout).into_owned();
    assert!(modes.contains(" icanon") && modes.contains(" echo "), "{modes}");
}
