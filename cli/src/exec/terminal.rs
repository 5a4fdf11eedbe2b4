//! The terminal from which `exec` was started, and who has it: the foreground process group gets the keys and may read.
//!
//! The command gets the terminal, as a group of its own, if `exec` has it. There are two exceptions, in which it gets it
//! only once it asks for it, by a read that stops it: in a pipeline the terminal belongs to all its programs, and a
//! background job of a script, which ignores SIGINT, leaves it to the script.

use std::{
    fs::{File, OpenOptions},
    io::{self, stderr, stdin, stdout},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{FileType, fstat},
    process::{Pid, Signal, getpgrp, getpid, kill_current_process_group, kill_process},
    termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp},
};

use super::signals::{INT, QUIT, TSTP, is_ignored, with_default, with_ttou_blocked};

/// The controlling terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    file: File,
    /// The process group of `exec`.
    own: Pid,
    /// Its modes before the command.
    modes: Option<Termios>,
    /// Whether the command gets it only once it asks for it.
    on_demand: bool,
}

impl Terminal {
    /// The controlling terminal, `None` if this process has none, as under cron.
    pub(super) fn open() -> Option<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let modes = tcgetattr(&file).ok();
        // In a command substitution of an interactive shell, which ignores SIGTTIN, a read would fail and not stop.
        let cannot_ask = is_ignored(libc::SIGTTIN);
        let on_demand = is_ignored(INT) || is_in_pipeline() && !cannot_ask;
        Some(Self { file, own: getpgrp(), modes, on_demand })
    }

    /// Whether the command shall get the terminal at its start.
    pub(super) fn lends_at_start(&self) -> bool {
        self.is_ours() && !self.on_demand
    }

    /// Whether the process group of `exec` has it.
    pub(super) fn is_ours(&self) -> bool {
        self.is_of(self.own)
    }

    /// The end of `exec` if this signal, which it handled, can be that of a key.
    pub(super) fn key_end(&self, signal: i32) -> Option<KeyEnd> {
        ([INT, QUIT].contains(&signal) && self.is_ours()).then_some(KeyEnd::Itself(signal))
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

/// How `exec` ends after a key of the terminal, such as Ctrl-C, ended the command or the wait: by the signal of the key,
/// as if there was no handler. A script that called `exec` must end, too, and a shell takes the key for handled if `exec`
/// returns an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyEnd {
    /// The terminal sent the signal to the command's group alone: the group of `exec` gets it now.
    Group(i32),
    /// The group of `exec` got the signal, and `exec` handled it: it ends by it now.
    Itself(i32),
}

impl KeyEnd {
    /// Ends this process. Returns only if the signal is ignored.
    pub(super) fn end(self) {
        let (Self::Group(signal) | Self::Itself(signal)) = self;
        let Some(key) = Signal::from_named_raw(signal) else { return };
        let _ = with_default(signal, || match self {
            Self::Group(_) => kill_current_process_group(key),
            Self::Itself(_) => kill_process(getpid(), key),
        });
    }
}

/// Whether a standard stream is a pipe or a socket, so that other programs may share the terminal.
fn is_in_pipeline() -> bool {
    let is_pipe = |stream: BorrowedFd<'_>| {
        fstat(stream)
            .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
    };
    is_pipe(stdin().as_fd()) || is_pipe(stdout().as_fd()) || is_pipe(stderr().as_fd())
}
