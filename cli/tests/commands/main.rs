//! `redlock` with real servers: every command but `exec`, its output and its exit codes.

mod bench;
mod doctor;
mod failures;
mod leases;
mod looks;
mod pages;
mod support;
