//! The terminal from which `exec` was started, and who has it: the foreground process group gets the keys and may read.
//!
//! The command gets the terminal, as a group of its own, if `exec` has it. In a pipeline the terminal belongs to all
//! programs of the pipeline. There the command gets it only once it asks for it, by a read that stops it.

use std::{
    fs::{File, OpenOptions},
    io::{self, stderr, stdin, stdout},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{FileType, fstat},
    process::{Pid, Signal, getpgrp, kill_current_process_group},
    termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp},
};

use super::signals::{TSTP, with_default, with_ttou_blocked};

/// The controlling terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    /// The process group of `exec`.
    own: Pid,
    /// Its modes before the command.
    modes: Option<Termios>,
    pipeline: bool,
}

impl Terminal {
    /// The controlling terminal, `None` if this process has none, as under cron.
    pub(super) fn open() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&file).ok();
        Some(Self { file, own: getpgrp(), modes, pipeline: is_in_pipeline() })
    }

    /// Whether the command shall get the terminal at its start.
    pub(super) fn lends_at_start(&self) -> bool {
        self.is_ours() && !self.pipeline
    }

    /// Whether the process group of `exec` has it.
    pub(super) fn is_ours(&self) -> bool {
        self.is_of(self.own)
    }

    fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|foreground| foreground == group)
    }

    /// A handle for the command's process, which takes the terminal before it becomes the command.
    pub(super) fn handle(&self) -> io::Result<OwnedFd> {
        self.file.as_fd().try_clone_to_owned()
    }

    /// Gives it to the command's group. False if that failed.
    pub(super) fn lend(&self, group: Pid) -> bool {
        give(self.file.as_fd(), group).is_ok()
    }

    /// Takes it back if the command's group has it. Returns whether it had.
    pub(super) fn take_back(&self, group: Pid) -> bool {
        let lent = self.is_of(group);
        if lent {
            // Fails only if the terminal is gone.
            let _ = give(self.file.as_fd(), self.own);
        }
        lent
    }

    /// Takes it back from whichever group has it.
    pub(super) fn reclaim(&self) {
        let _ = give(self.file.as_fd(), self.own);
    }

    /// Restores the modes that it had before the command, which may have left it without echo.
    pub(super) fn restore_modes(&self) {
        if let Some(modes) = &self.modes {
            // Fails only if the terminal is gone.
            let _ = with_ttou_blocked(|| tcsetattr(&self.file, OptionalActions::Drain, modes));
        }
    }
}

/// Makes a group the terminal's foreground group. It may be called after a fork.
pub(super) fn give(terminal: BorrowedFd<'_>, group: Pid) -> io::Result<()> {
    Ok(with_ttou_blocked(|| tcsetpgrp(terminal, group))?)
}

/// Stops this process, with its process group, as the terminal's suspend key does. Returns once it was continued, or at
/// once if nobody could continue it: the kernel does not stop an orphaned group.
pub(crate) fn suspend() {
    // The default disposition stops this thread before the call returns.
    let _ = with_default(TSTP, || kill_current_process_group(Signal::TSTP));
}

/// Ends this process by the signal of a key, with its process group: the terminal sent it to the command's group alone,
/// and a script that called `exec` must end, too. Returns only if the signal is ignored.
pub(super) fn end_group(signal: i32) {
    let Some(key) = Signal::from_named_raw(signal) else { return };
    let _ = with_default(signal, || kill_current_process_group(key));
}

/// Whether a standard stream is a pipe or a socket, so that other programs may share the terminal.
fn is_in_pipeline() -> bool {
    let is_pipe = |stream: BorrowedFd<'_>| {
        fstat(stream)
            .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
    };
    is_pipe(stdin().as_fd()) || is_pipe(stdout().as_fd()) || is_pipe(stderr().as_fd())
}
