//! The text of a detached lease as an argument, or from stdin, where other users of the machine cannot see it, and the
//! lease that it stands for.

use std::io::stdin;

use redlock::{Client, LeaseGuard, LockError};

use crate::{exit_code::ExitStatusCode, failure::Failure};

/// Takes over the lease in an argument.
pub(crate) fn attach(client: &Client, argument: &str) -> Result<LeaseGuard, Failure> {
    client.attach_blocking(&read(argument)?).map_err(|error| match error {
        // The caller never had the lock: the advice after a loss would mislead.
        LockError::Lost { name, .. } => Failure::new(
            ExitStatusCode::LOST,
            format!(
                "lock {name:?}: its text was used before, or its lease is over. Use the text that the last extend \
                 printed, or acquire the lock again."
            ),
        ),
        error => error.into(),
    })
}

/// The text of a lease; `-` reads a line of stdin.
fn read(argument: &str) -> Result<String, Failure> {
    if argument != "-" {
        return Ok(argument.trim().to_owned());
    }
    let mut line = String::new();
    stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::usage(format!("cannot read the lease from stdin: {error}")))?;
    let text = line.trim();
    if text.is_empty() { Err(Failure::usage("stdin has no lease")) } else { Ok(text.to_owned()) }
}
