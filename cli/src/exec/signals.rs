//! The signals that `exec` handles, the wake-ups of its loop, and the names of signals.
//!
//! Each handler sets a flag and writes a byte to a socket, which wakes the loop. So does every event of the client. A
//! signal that the parent of `exec` ignores stays ignored, for the command, too: `nohup` and background jobs of a shell
//! without job control rely on that.
#![allow(unsafe_code, reason = "std neither reads nor sets the disposition of a signal")]

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};

pub(super) const HUP: i32 = libc::SIGHUP;
pub(super) const INT: i32 = libc::SIGINT;
pub(super) const QUIT: i32 = libc::SIGQUIT;
pub(super) const KILL: i32 = libc::SIGKILL;
pub(super) const TERM: i32 = libc::SIGTERM;
pub(super) const CONT: i32 = libc::SIGCONT;
pub(super) const TSTP: i32 = libc::SIGTSTP;

/// The signals that end the wait for a lock.
const ENDING: [i32; 4] = [HUP, INT, QUIT, TERM];
/// The others that are forwarded to the command.
const FORWARDED: [i32; 4] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH, CONT];
/// Those of job control, which stop a process that does not handle them. While a command runs, `exec` must not stop
/// before it.
const STOPPING: [i32; 3] = [TSTP, libc::SIGTTIN, libc::SIGTTOU];

/// A signal that was handled since the last call of [`Signals::take`].
#[derive(Debug)]
struct Flag {
    signal: i32,
    raised: Arc<AtomicBool>,
}

/// Wakes the loop from any thread.
#[derive(Debug)]
pub(super) struct Waker(UnixStream);

impl Waker {
    pub(super) fn wake(&self) {
        // If the socket is full, the loop has enough to wake up for.
        let _ = (&self.0).write(&[0]);
    }
}

/// The handlers. They stay for the rest of the process.
#[derive(Debug)]
pub(super) struct Signals {
    flags: Vec<Flag>,
    wakes: UnixStream,
    waker: UnixStream,
}

impl Signals {
    /// Installs the handlers, but for those of job control.
    pub(super) fn handle() -> io::Result<Self> {
        let (wakes, waker) = UnixStream::pair()?;
        wakes.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let mut signals = Self { flags: Vec::new(), wakes, waker };
        // Not even an ignored one: the kernel would then report no end of a child.
        signals.register(libc::SIGCHLD)?;
        for signal in ENDING.into_iter().chain(FORWARDED) {
            if !is_ignored(signal) {
                signals.register(signal)?;
            }
        }
        Ok(signals)
    }

    /// Installs the handlers of job control as well, for the time in which a command runs.
    pub(super) fn handle_stops(&mut self) -> io::Result<()> {
        for signal in STOPPING {
            if !is_ignored(signal) {
                self.register(signal)?;
            }
        }
        Ok(())
    }

    fn register(&mut self, signal: i32) -> io::Result<()> {
        let raised = Arc::new(AtomicBool::new(false));
        // In this order: whoever is woken finds the flag.
        signal_hook::flag::register(signal, raised.clone())?;
        signal_hook::low_level::pipe::register(signal, self.waker.try_clone()?)?;
        self.flags.push(Flag { signal, raised });
        Ok(())
    }

    /// Wakes the loop.
    pub(super) fn waker(&self) -> io::Result<Waker> {
        self.waker.try_clone().map(Waker)
    }

    /// The signals for the command that arrived since the last call.
    pub(super) fn take(&self) -> Vec<i32> {
        let mut bytes = [0; 64];
        while matches!((&self.wakes).read(&mut bytes), Ok(read) if read == bytes.len()) {}
        let mut signals: Vec<_> =
            self.flags.iter().filter(|flag| flag.raised.swap(false, SeqCst)).map(|flag| flag.signal).collect();
        signals.retain(|signal| ![libc::SIGCHLD, libc::SIGTTIN, libc::SIGTTOU].contains(signal));
        signals
    }

    /// The signal that ends a wait for the lock, if one arrived.
    pub(super) fn ending(&self) -> Option<i32> {
        self.take().into_iter().find(|signal| ENDING.contains(signal))
    }

    /// Waits for a signal or an event, for `limit` at most.
    pub(super) fn wait(&self, limit: Duration) {
        let limit = Timespec::try_from(limit).ok();
        // A signal may interrupt it; it has set its flag then.
        let _ = poll(&mut [PollFd::new(&self.wakes, PollFlags::IN)], limit.as_ref());
    }
}

/// Whether this process ignored SIGPIPE at its start. The runtime of Rust ignores it from then on, and lets each command
/// that is started have the default.
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);

/// Runs before the runtime of Rust.
#[used]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
static AT_START: extern "C" fn() = {
    extern "C" fn at_start() {
        IGNORED_PIPE.store(is_ignored(libc::SIGPIPE), SeqCst);
    }
    at_start
};

/// Restores that the command ignores SIGPIPE, if this process did at its start. May be called after a fork.
pub(super) fn restore_ignored_pipe() {
    if IGNORED_PIPE.load(SeqCst) {
        // SAFETY: it only sets a disposition that runs no code of this process.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: all bytes zero are a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: it only reads the disposition, into a valid struct.
    let read = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    read == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Runs `run` while a signal has its default disposition.
pub(super) fn with_default<T>(signal: i32, run: impl FnOnce() -> T) -> T {
    // SAFETY: all bytes zero are a valid `sigaction`: the default disposition.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above; the call below fills it.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both structs are valid. The default disposition runs no code of this process.
    unsafe { libc::sigaction(signal, &raw const default, &raw mut before) };
    let result = run();
    // SAFETY: it restores the disposition that the kernel returned.
    unsafe { libc::sigaction(signal, &raw const before, ptr::null_mut()) };
    result
}

/// Runs `run` while this thread blocks SIGTTOU, which the terminal sends to a background process that changes it.
pub(super) fn with_ttou_blocked<T>(run: impl FnOnce() -> T) -> T {
    // SAFETY: `sigemptyset` initialises both sets before they are used. All three calls may be made after a fork.
    let (block, mut before): (libc::sigset_t, libc::sigset_t) = unsafe {
        let (mut block, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&raw mut before);
        libc::sigemptyset(&raw mut block);
        libc::sigaddset(&raw mut block, libc::SIGTTOU);
        (block, before)
    };
    // SAFETY: both sets are valid.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const block, &raw mut before) };
    let result = run();
    // SAFETY: it restores the mask that the kernel returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// The names that options accept and messages show, without `SIG`.
const NAMES: [(&str, i32); 19] = [
    ("HUP", HUP),
    ("INT", INT),
    ("QUIT", QUIT),
    ("ABRT", libc::SIGABRT),
    ("KILL", KILL),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", TERM),
    ("CONT", CONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", TSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
];

/// A signal by its name, with or without `SIG`, or by its number.
pub(super) fn parse(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let signal = number.or_else(|| text.parse().ok()).and_then(Signal::from_named_raw);
    signal.map(Signal::as_raw).ok_or_else(|| "is no signal; use a name such as TERM, or a number".to_owned())
}

/// How messages name a signal.
pub(super) fn name(signal: i32) -> String {
    let known = NAMES.iter().find(|(_, number)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(name, _)| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_names_and_numbers() {
        for text in ["TERM", "term", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse(text), Ok(TERM));
        }
        for text in ["", "0", "65", "-1", "SIG", "TERMS"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!((name(TERM), name(34)), ("SIGTERM".to_owned(), "signal 34".to_owned()));
    }
}
