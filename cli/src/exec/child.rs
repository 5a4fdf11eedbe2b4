//! The process of the command: its start, its process group, the signals to it, and its changes.
//!
//! The command gets a process group of its own, and signals go to the group, so that a shell's children get them, too.
//! If `exec` dies, the kernel kills the command (Linux). It does so when the *thread* ends that started it: the command
//! must be started from the main thread.
#![allow(unsafe_code, reason = "a hook between fork and exec")]

use std::{
    io,
    os::{fd::AsFd, unix::process::CommandExt},
    process::Command,
};

use rustix::{
    io::Errno,
    process::{
        Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group, test_kill_process_group, wait,
    },
};

use super::{
    signals,
    supervision::{Change, Ended},
    terminal::{self, Terminal},
};

/// The process that runs the command.
#[derive(Debug)]
pub(super) struct Child {
    pid: Pid,
    /// Whether it leads a process group of its own.
    leads: bool,
    ended: bool,
}

impl Child {
    /// Starts the command: in a process group of its own that may have the terminal, or with `shared` in that of this
    /// process.
    pub(super) fn start(mut command: Command, shared: bool, terminal: Option<&Terminal>) -> io::Result<Self> {
        if !shared {
            command.process_group(0);
            adopt_orphans();
        }
        let lent = terminal.filter(|terminal| !shared && terminal.lends_at_start());
        let handle = lent.map(Terminal::handle).transpose()?;
        let parent = getpid();
        let before_exec = move || {
            die_with(parent)?;
            signals::restore_ignored_pipe();
            if let Some(handle) = &handle {
                // If it fails, the command gets the terminal when it asks for it.
                let _ = terminal::give(handle.as_fd(), getpid());
            }
            Ok(())
        };
        // SAFETY: the hook makes system calls only, and allocates nothing.
        unsafe { command.pre_exec(before_exec) };
        match command.spawn() {
            Ok(child) => {
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                let pid = pid.ok_or_else(|| io::Error::other("the command has no pid"))?;
                Ok(Self { pid, leads: !shared, ended: false })
            }
            Err(error) => {
                if let Some(terminal) = lent {
                    terminal.reclaim();
                }
                Err(error)
            }
        }
    }

    /// Its process group, if it leads one.
    pub(super) fn group(&self) -> Option<Pid> {
        self.leads.then_some(self.pid)
    }

    /// Sends a signal to the group, or to the command alone.
    pub(super) fn send(&self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        // Sending fails only if the process has ended, or has become another user's.
        let sent = self.group().is_some_and(|group| kill_process_group(group, signal).is_ok());
        let alone = !sent || signal == Signal::KILL;
        if alone && !self.ended {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Whether a process of its group is left.
    pub(super) fn group_is_alive(&self) -> bool {
        self.group().is_some_and(|group| !matches!(test_kill_process_group(group), Err(Errno::SRCH)))
    }

    /// The signal that stopped it, and every other change since the last call. Reaps all ended children, also those
    /// that this process adopted.
    pub(super) fn changes(&mut self) -> Vec<(Change, Option<i32>)> {
        let mut changes = Vec::new();
        loop {
            match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED) {
                Ok(Some((pid, status))) if pid == self.pid => changes.extend(change(status)),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.ended |= changes.iter().any(|(change, _)| matches!(change, Change::Ended(_)));
        changes
    }
}

fn change(status: WaitStatus) -> Option<(Change, Option<i32>)> {
    if let Some(code) = status.exit_status() {
        Some((Change::Ended(Ended::Exited(code)), None))
    } else if let Some(signal) = status.terminating_signal() {
        Some((Change::Ended(Ended::Signalled(signal)), None))
    } else if let Some(signal) = status.stopping_signal() {
        Some((Change::Stopped, Some(signal)))
    } else {
        status.continued().then_some((Change::Continued, None))
    }
}

/// Makes the kernel kill this process, the command's, when its parent dies.
#[cfg(target_os = "linux")]
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before.
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
}

#[cfg(not(target_os = "linux"))]
#[allow(clippy::unnecessary_wraps, reason = "the type of the other systems")]
fn die_with(_: Pid) -> io::Result<()> {
    Ok(())
}

/// Makes the command's orphans children of this process, which then learns of their end.
fn adopt_orphans() {
    // Without it the end of a group is polled for.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}
