//! Failures of a command: the exit code, and one line that says what failed and what to do.

use redlock::LockError;

use crate::{exit_code::ExitStatusCode, talk::Talk};

/// Why a command failed.
#[derive(Debug)]
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

/// What an argument of the library is called on the command line.
fn option(argument: &str) -> String {
    match argument {
        "name" => "NAME".to_owned(),
        "text" => "LEASE".to_owned(),
        "urls" => "--url".to_owned(),
        "app" => "--label".to_owned(),
        _ => format!("--{}", argument.replace('_', "-")),
    }
}

/// The line for an error of the library: what failed, and what to do.
fn message(error: &LockError, code: ExitStatusCode) -> String {
    if let LockError::Invalid { argument, detail } = error {
        return format!("{}: {}. See redlock help.", option(argument), detail.trim_end_matches('.'));
    }
    let advice = match error {
        LockError::Timeout { .. } => "Try again later, or wait longer (--wait).",
        LockError::Lost { .. } => "Do not use what it protects any more.",
        LockError::Unavailable { .. } if code == ExitStatusCode::REFUSED => {
            "Give another user and password in the URL, or give this user the right (docs/production.md lists them)."
        }
        LockError::Unavailable { .. } => "Check that the servers are up, and that --url or REDLOCK_URL names them.",
        LockError::Conflict { .. } => "Choose another name or --prefix; the same --wire as the other clients.",
        _ => return error.to_string(),
    };
    format!("{}. {advice}", error.to_string().trim_end_matches('.'))
}
