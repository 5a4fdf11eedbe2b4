//! The command `redlock`: runs commands under a lock, hands leases to shell scripts, and shows operators who holds what.
//! All logic of locks is in the core.
#![allow(clippy::trivially_copy_pass_by_ref, reason = "commands take all that they are given by reference")]

mod bench;
mod block;
mod commands;
mod connect;
mod doctor;
mod duration;
mod exec;
mod exit_code;
mod failure;
mod glob;
mod holder;
mod line;
mod live;
mod queue;
mod secret;
mod table;
mod talk;

use std::process::ExitCode;

use self::line::Line;

fn main() -> ExitCode {
    // `exec` starts its command on this thread, which must live as long as the command.
    let code = match Line::read() {
        Ok(line) => line.run(),
        Err(code) => code,
    };
    code.into()
}
