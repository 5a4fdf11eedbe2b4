//! Failures of a command: the exit code, and one line that says what failed and what to do.

use redlock::{LockError, NodeCause};

use crate::{exit_code::ExitStatusCode, talk::Talk};

/// Why a command failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: ExitStatusCode,
    /// The line on stderr.
    pub(crate) message: String,
}

impl Failure {
    /// A failure with this exit code.
    pub(crate) fn new(code: ExitStatusCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A wrong option or argument.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitStatusCode::USAGE, message)
    }

    /// Prints the line, and returns the exit code.
    pub(crate) fn report(self, talk: &Talk) -> ExitStatusCode {
        talk.error(&self.message);
        self.code
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = ExitStatusCode::from(&error);
        Self { code, message: message(&error, code) }
    }
}

/// The line for an error of the library: what failed, and what to do.
fn message(error: &LockError, code: ExitStatusCode) -> String {
    match error {
        LockError::Invalid { argument: "text", detail } if detail.contains("detach()") => sentences(
            "this is not the text of a lease",
            "Give the text that redlock acquire or extend printed; with --force, release takes the name of a lock.",
        ),
        LockError::Invalid { argument: "text", detail } => sentences(
            &format!("the text of the lease {detail}"),
            "Give the text that redlock acquire or extend printed.",
        ),
        LockError::Invalid { argument, detail } => {
            sentences(&format!("{}: {detail}", option(argument)), "See redlock help.")
        }
        LockError::Timeout { .. } => sentences(&error.to_string(), "Try again later, or wait longer (--wait)."),
        LockError::Lost { .. } => sentences(&error.to_string(), "Do not use what it protects any more."),
        LockError::Conflict { .. } => {
            sentences(&error.to_string(), "Choose another name or --prefix; the same --wire as the other clients.")
        }
        LockError::Unavailable { causes, .. } => sentences(&error.to_string(), outage(causes, code)),
        _ => error.to_string(),
    }
}

/// What to do in an outage.
fn outage(causes: &[NodeCause], code: ExitStatusCode) -> &'static str {
    if code != ExitStatusCode::REFUSED {
        "Check that the servers are up, and that --url or REDLOCK_URL names them."
    } else if causes.iter().any(|cause| lacks_right(&cause.cause)) {
        "Give this user the right: docs/deployments.md and docs/cli.md list those that are needed."
    } else {
        "Give a user and a password that the server knows, in REDLOCK_URL or by --url-file."
    }
}

/// Whether a server knows the user, who lacks a right. The error of a command inside a script has no code.
fn lacks_right(cause: &str) -> bool {
    ["NOPERM", "The user executing the script can't"].iter().any(|part| cause.contains(part))
}

/// Joins what failed and what to do.
fn sentences(failed: &str, advice: &str) -> String {
    let end = if failed.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{failed}{end} {advice}")
}

/// What an argument of the library is called on the command line.
fn option(argument: &str) -> String {
    match argument {
        "name" => "NAME".to_owned(),
        "urls" => "--url".to_owned(),
        "app" => "--label".to_owned(),
        _ => format!("--{}", argument.replace('_', "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_told_from_a_wrong_user() {
        for cause in [
            "NOPERM this user has no permissions to run the 'eval' command",
            "ERR The user executing the script can't run this command or subcommand script: 1f, on @user_script:8.",
            "The user executing the script can't access at least one of the keys mentioned in the command arguments",
        ] {
            assert!(lacks_right(cause), "{cause}");
        }
        for cause in
            ["WRONGPASS invalid username-password pair or user is disabled.", "NOAUTH Authentication required."]
        {
            assert!(!lacks_right(cause), "{cause}");
        }
    }
}
