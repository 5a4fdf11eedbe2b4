//! Processes of any language or library that compete for a lock. Each acquires and releases it a number of times and
//! writes a log as `history` reads it. Their commands come from the environment, since other builds make them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use crate::wait_until;

/// How long a process may make no progress: far longer than a lease, and than the start of a virtual machine on a busy
/// computer.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A competing process, which is killed when dropped.
#[derive(Debug)]
pub struct Contender {
    /// Its name in reports.
    pub name: String,
    /// Its log.
    pub log: PathBuf,
    /// The process.
    pub child: Child,
}

impl Drop for Contender {
    fn drop(&mut self) {
        // Fails only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Contender {
    /// Starts `command` with the arguments `words`, then its log in `folder`, then `more`.
    pub fn start(name: &str, command: &str, words: [&str; 3], more: &[&str], folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let child = shell(name, command).args(words).arg(&log).args(more).spawn().expect("a shell");
        Self { name: name.to_owned(), log, child }
    }

    /// The length of its log, which grows while it makes progress.
    pub fn progress(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |log| log.len())
    }
}

/// A command in the project's directory, to which arguments can be added. The shell replaces itself by the command, so
/// that killing its process kills the command.
pub fn shell(name: &str, command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &format!("exec {command} \"$@\""), name]);
    shell.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    shell
}

/// The names and commands in an environment variable, as `name=command;…`.
pub fn commands(variable: &str) -> Vec<(String, String)> {
    let all = env::var(variable).unwrap_or_default();
    let each = all.split(';').map(str::trim).filter(|one| !one.is_empty());
    let each = each.map(|one| one.split_once('=').unwrap_or_else(|| panic!("{variable} has name=command;…")));
    each.map(|(name, command)| (name.to_owned(), command.to_owned())).collect()
}

/// Polls `happened` until it is true. Panics after `PATIENCE`.
pub fn until(what: &str, happened: impl FnMut() -> bool) {
    wait_until(PATIENCE, what, happened);
}
