//! `redlock exec` with real processes and a real redis-server. `REDLOCK_ROUNDS` is the number of rounds of each test
//! that repeats a race; the default is a few.
#![cfg(unix)]

mod codes;
mod command;
#[cfg(target_os = "linux")]
mod containers;
mod kinds;
mod losses;
mod signals;
#[cfg(target_os = "linux")]
mod terminal;
mod waiting;
