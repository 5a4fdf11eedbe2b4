//! `redlock top`, `redlock watch` and `redlock web` with real servers.

#[cfg(unix)]
mod outages;
mod support;
#[cfg(unix)]
mod terminal;
#[cfg(unix)]
mod top;
mod watch;
mod web;
