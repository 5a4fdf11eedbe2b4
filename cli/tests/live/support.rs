//! Helpers: a `redlock` that runs until it is ended, and leases for it to show.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use redlock_tests::{server::Server, wait_until};

/// Far above the needs of a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// `redlock` on these nodes.
pub(crate) fn command(urls: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["QUORUM", "PREFIX", "WIRE", "MAX_TTL", "CA", "CERT", "KEY", "APP"] {
        command.env_remove(format!("REDLOCK_{name}"));
    }
    command.env("REDLOCK_URL", urls);
    command
}

/// Acquires a lock for a minute, and returns the text of its lease.
pub(crate) fn acquire(server: &Server, name: &str) -> String {
    let output = command(&server.url(), &["acquire", name, "--ttl", "60"]).output().expect("redlock runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").trim().to_owned()
}

pub(crate) fn release(server: &Server, lease: &str) {
    let output = command(&server.url(), &["release", lease]).output().expect("redlock runs");
    assert!(output.status.success(), "{output:?}");
}

/// Polls `happened` until it is true. Panics after the limit.
pub(crate) fn until(what: &str, happened: impl FnMut() -> bool) {
    wait_until(LIMIT, what, happened);
}

/// A process that is killed at the end of a test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.spawn().expect("redlock starts"))
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// The exit code, once it has ended.
    pub(crate) fn code(&mut self) -> Option<i32> {
        let mut status = None;
        until("it ends", || {
            status = self.0.try_wait().expect("a status");
            status.is_some()
        });
        status.and_then(|status| status.code())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
