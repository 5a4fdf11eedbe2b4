//! Signals to a test's own processes, and the clock that they share.

use std::{io, process::Child};

/// Sends a signal to a child that was not waited for yet, so that its pid is still its own.
#[allow(unsafe_code, reason = "the standard library sends no signal but SIGKILL")]
pub fn signal(child: &Child, signal: libc::c_int) {
    let pid = child.id();
    // SAFETY: a plain system call.
    let sent = unsafe { libc::kill(pid.cast_signed(), signal) };
    assert_eq!(sent, 0, "signal {signal} to {pid}: {}", io::Error::last_os_error());
}

/// Nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share.
#[allow(unsafe_code, reason = "the standard library does not read this clock")]
pub fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
