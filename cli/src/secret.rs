//! The text of a detached lease as an argument, or from stdin, where other users of the machine cannot see it.

use std::io::stdin;

use crate::failure::Failure;

/// The text of a lease; `-` reads a line of stdin.
pub(crate) fn read(argument: &str) -> Result<String, Failure> {
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
