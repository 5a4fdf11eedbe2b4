//! `redlock watch` and `redlock web` with real servers.

mod support;
mod watch;
mod web;
