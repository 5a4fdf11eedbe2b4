//! Helpers: a folder and a server for each test, `redlock exec` as a process, and the processes that it starts.

use std::{
    env, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio, id},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use redlock_tests::{server::Server, wait_until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Far above the needs of a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How often a race is repeated.
pub(crate) fn rounds(usual: u32) -> u32 {
    env::var("REDLOCK_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}

/// Polls `happened` until it is true. Panics after the limit.
pub(crate) fn until(what: &str, happened: impl FnMut() -> bool) {
    wait_until(LIMIT, what, happened);
}

/// A server, and a folder in which commands leave their notes.
pub(crate) struct Scene {
    pub(crate) server: Server,
    pub(crate) folder: PathBuf,
}

impl Scene {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = env::temp_dir().join(format!("redlock-exec-{}-{}", id(), NUMBER.fetch_add(1, Relaxed)));
        fs::create_dir_all(&folder).expect("a folder");
        Self { server: Server::start(), folder }
    }

    /// `redlock exec` with these arguments, in the folder.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
        command.arg("exec").args(arguments);
        self.in_folder(&mut command);
        command
    }

    /// Gives a command the folder and the server of this scene.
    pub(crate) fn in_folder(&self, command: &mut Command) {
        command.current_dir(&self.folder).env("REDLOCK_URL", self.server.url()).env_remove("REDLOCK_NAME");
        command.env("SHELL", "/bin/sh");
        command.stdin(Stdio::null());
    }

    /// Starts `redlock exec` in a session of its own, as cron does.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        detach(&mut command);
        self.run(command)
    }

    /// Starts a command with its output in files.
    pub(crate) fn run(&self, mut command: Command) -> Running {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let file = |kind: &str| self.folder.join(format!("{kind}-{number}"));
        let (out, err) = (file("stdout"), file("stderr"));
        command.stdout(fs::File::create(&out).expect("a file")).stderr(fs::File::create(&err).expect("a file"));
        Running { child: command.spawn().expect("redlock exec starts"), out, err }
    }

    /// Runs `redlock exec` to its end, and returns its exit code.
    pub(crate) fn code(&self, arguments: &[&str]) -> i32 {
        self.start(arguments).code()
    }

    /// Whether somebody holds a lock.
    pub(crate) fn held(&self, name: &str) -> bool {
        self.server.command(&["EXISTS", name])
    }

    /// Waits for a file that a command writes, and returns its text without the line's end.
    pub(crate) fn note(&self, file: &str) -> String {
        let path = self.folder.join(file);
        // A line is complete once it has its end.
        until(file, || fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n')));
        fs::read_to_string(path).expect("a file").trim_end().to_owned()
    }

    /// Waits for a file with a pid.
    pub(crate) fn pid(&self, file: &str) -> Pid {
        pid(self.note(file).parse().expect("a pid"))
    }

    /// Whether a command wrote a file.
    pub(crate) fn has(&self, file: &str) -> bool {
        self.folder.join(file).exists()
    }

    /// Writes a file that a command waits for.
    pub(crate) fn write(&self, file: &str) {
        fs::write(self.folder.join(file), "\n").expect("a file");
    }

    /// Removes a file, for the next round.
    pub(crate) fn forget(&self, file: &str) {
        fs::remove_file(self.folder.join(file)).expect("a file");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes a command start in a session of its own, without a terminal.
#[allow(unsafe_code, reason = "std starts no session")]
pub(crate) fn detach(command: &mut Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: one system call.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        })
    };
}

/// A running `redlock exec`. Dropping it kills it.
pub(crate) struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        pid(self.child.id().cast_signed())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it was not waited for");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for its end. The exit code, or the negative number of the signal that ended it.
    pub(crate) fn code(&mut self) -> i32 {
        let mut status = None;
        until("redlock exec ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        let status = status.expect("it ended");
        status.code().unwrap_or_else(|| -status.signal().expect("a signal"))
    }

    pub(crate) fn stdout(&self) -> String {
        read(&self.out)
    }

    pub(crate) fn stderr(&self) -> String {
        read(&self.err)
    }

    /// Waits for a text on stderr.
    pub(crate) fn says(&self, text: &str) {
        until(text, || self.stderr().contains(text));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

pub(crate) fn pid(number: i32) -> Pid {
    Pid::from_raw(number).expect("a pid")
}

/// Whether a process exists and has not ended. A zombie has.
pub(crate) fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok() && state(pid).is_some_and(|state| state != 'Z')
}

/// The state of a process, as ps(1) shows it.
#[cfg(target_os = "linux")]
pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The name before it is in parentheses, and may contain some.
    stat.rsplit(") ").next()?.chars().next()
}

/// The state of a process, as ps(1) shows it.
#[cfg(not(target_os = "linux"))]
pub(crate) fn state(pid: Pid) -> Option<char> {
    let line = Command::new("ps").args(["-o", "stat=", "-p", &pid.as_raw_pid().to_string()]).output().expect("ps");
    String::from_utf8_lossy(&line.stdout).chars().next()
}

/// Ends a process that the test is responsible for.
pub(crate) fn end(pid: Pid) {
    let _ = kill_process(pid, Signal::KILL);
}
