//! Helpers: `redlock` as a process, and what it printed.

use std::{
    io::Write,
    process::{Command, Stdio},
    time::Duration,
};

use redlock_tests::server::Server;
use serde_json::Value;

/// Far above the needs of a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a run of `redlock` left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The only line on stdout.
    pub(crate) fn line(&self) -> &str {
        let mut lines = self.stdout.lines();
        let line = lines.next().unwrap_or_else(|| panic!("nothing on stdout: {self:?}"));
        assert!(lines.next().is_none(), "{self:?}");
        line
    }

    /// The objects on stdout.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
    }

    /// The only object on stdout.
    pub(crate) fn object(&self) -> Value {
        serde_json::from_str(self.line()).expect("an object")
    }
}

/// `redlock` with these arguments and no server of its own choice.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlock"));
    command.args(arguments).stdin(Stdio::null());
    for name in ["URL", "QUORUM", "PREFIX", "WIRE", "MAX_TTL", "CA", "CERT", "KEY", "APP"] {
        command.env_remove(format!("REDLOCK_{name}"));
    }
    command.env_remove("NO_COLOR");
    command
}

/// Runs a command to its end.
pub(crate) fn run(mut command: Command) -> Ran {
    let output = command.output().expect("redlock runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    Ran { code: output.status.code().expect("an exit code"), stdout, stderr }
}

/// Runs `redlock` on a server.
pub(crate) fn on(server: &Server, arguments: &[&str]) -> Ran {
    let mut command = command(arguments);
    command.env("REDLOCK_URL", server.url());
    run(command)
}

/// Runs `redlock` on several servers as one quorum.
pub(crate) fn on_quorum(servers: &[Server], arguments: &[&str]) -> Ran {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let mut command = command(arguments);
    command.env("REDLOCK_URL", urls.join(","));
    run(command)
}

/// Runs `redlock` with a line on stdin.
pub(crate) fn with_stdin(server: &Server, arguments: &[&str], line: &str) -> Ran {
    let mut command = command(arguments);
    command.env("REDLOCK_URL", server.url()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("redlock starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(line.as_bytes()).expect("redlock reads");
    drop(stdin);
    let output = child.wait_with_output().expect("redlock ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    Ran { code: output.status.code().expect("an exit code"), stdout, stderr }
}

/// Whether a server has the key of a lock.
pub(crate) fn exists(server: &Server, key: &str) -> bool {
    server.command::<i64>(&["EXISTS", key]) == 1
}
