//! The refusal of `redlock exec` on systems without process groups and signals.

use std::ffi::OsString;

use crate::{connect::ConnectOptions, exit_code::ExitStatusCode, failure::Failure, talk::Talk};

/// Runs a command while this machine holds a lock; only on Unix
#[derive(Debug, clap::Args)]
pub(crate) struct ExecOptions {
    /// The name of the lock, and the command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    _arguments: Vec<OsString>,
}

/// Refuses to run the command.
pub(crate) fn run(_: ExecOptions, _: &ConnectOptions, talk: &Talk) -> ExitStatusCode {
    Failure::usage("exec needs a Unix system: here it could not end the command before the lock is lost").report(talk)
}
