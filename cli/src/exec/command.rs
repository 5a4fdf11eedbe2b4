//! The command: its program, found before the lock is acquired, its arguments, and its environment.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rustix::fs::{Access, access};

/// Where programs are looked for if `PATH` is not set.
const USUAL_PATH: &str = "/usr/local/bin:/bin:/usr/bin";

/// Why a command cannot be started.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// It exists and is not executable.
    NotExecutable(PathBuf),
    NotFound(OsString),
}

/// A command whose program exists.
#[derive(Debug)]
pub(super) struct Prepared {
    program: PathBuf,
    /// As the caller wrote the program's name.
    name: OsString,
    arguments: Vec<OsString>,
}

/// The values of the command's environment variables.
#[derive(Debug)]
pub(super) struct Variables<'a> {
    pub(super) name: &'a str,
    pub(super) token: u64,
    /// The number of the slot that a permit holds.
    pub(super) slot: Option<u32>,
    pub(super) ttl: Duration,
    pub(super) owner: Option<&'a str>,
}

impl Prepared {
    /// A program with its arguments.
    pub(super) fn new(name: OsString, arguments: Vec<OsString>) -> Result<Self, Unusable> {
        Ok(Self { program: find(&name, env::var_os("PATH").as_deref())?, name, arguments })
    }

    /// A line for the user's shell.
    pub(super) fn shell(line: OsString) -> Result<Self, Unusable> {
        let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty()).unwrap_or_else(|| "/bin/sh".into());
        Self::new(shell, vec!["-c".into(), line])
    }

    /// The name of the program.
    pub(super) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The command, with the environment of this process and these variables. Variables of an outer `redlock exec` do
    /// not mix with them.
    pub(super) fn command(&self, variables: &Variables<'_>) -> Command {
        let mut command = Command::new(&self.program);
        command.arg0(&self.name).args(&self.arguments);
        command.env("REDLOCK_NAME", variables.name);
        command.env("REDLOCK_TOKEN", variables.token.to_string());
        command.env("REDLOCK_TTL_MS", variables.ttl.as_millis().to_string());
        let slot = variables.slot.map(|slot| slot.to_string());
        for (name, value) in [("REDLOCK_SLOT", slot.as_deref()), ("REDLOCK_OWNER", variables.owner)] {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

/// Finds a program as `execvp` does.
fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Unusable> {
    let given = Path::new(name);
    if given.components().count() > 1 || name.as_encoded_bytes().contains(&b'/') {
        return match given.metadata() {
            Ok(found) if found.is_file() => executable(given.into()),
            Ok(_) => Err(Unusable::NotExecutable(given.into())),
            Err(_) => Err(Unusable::NotFound(name.into())),
        };
    }
    let mut unusable = Unusable::NotFound(name.into());
    for folder in env::split_paths(path.unwrap_or(USUAL_PATH.as_ref())) {
        // An empty entry is the working directory.
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let candidate = folder.join(given);
        if name.is_empty() || !candidate.is_file() {
            continue;
        }
        match executable(candidate) {
            Ok(program) => return Ok(program),
            Err(error) => unusable = error,
        }
    }
    Err(unusable)
}

fn executable(program: PathBuf) -> Result<PathBuf, Unusable> {
    if access(&program, Access::EXEC_OK).is_ok() { Ok(program) } else { Err(Unusable::NotExecutable(program)) }
}

/// The same answer from a start that failed after all: the file changed, or its interpreter is missing.
pub(super) fn unusable(name: &OsStr, error: &io::Error) -> Unusable {
    if error.kind() == io::ErrorKind::NotFound {
        Unusable::NotFound(name.into())
    } else {
        Unusable::NotExecutable(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(find("sh".as_ref(), Some("/nowhere:/bin".as_ref())), Ok("/bin/sh".into()));
        assert_eq!(find("/bin/sh".as_ref(), None), Ok("/bin/sh".into()));
        for missing in ["", "redlock-no-such-program", "/bin/redlock-no-such-program", "bin"] {
            assert_eq!(find(missing.as_ref(), Some("/bin".as_ref())), Err(Unusable::NotFound(missing.into())));
        }
    }

    #[test]
    fn a_file_without_the_right_to_execute_it_is_found_and_unusable() {
        let passwd = || Err(Unusable::NotExecutable("/etc/passwd".into()));
        assert_eq!(find("/etc/passwd".as_ref(), None), passwd());
        assert_eq!(find("passwd".as_ref(), Some("/etc".as_ref())), passwd());
        assert_eq!(find("/bin".as_ref(), None), Err(Unusable::NotExecutable("/bin".into())));
    }
}
