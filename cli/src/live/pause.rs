//! The pause between two looks. It ends early with Ctrl-C, with a signal to terminate, and when nobody reads stdout any
//! more.

use std::time::Duration;

use crate::failure::Failure;

/// Why a pause is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(unix), allow(dead_code, reason = "there Ctrl-C ends the process"))]
pub(super) enum Woken {
    /// The time is over.
    InTime,
    /// A signal asks for the end.
    Signal,
    /// Nobody reads stdout.
    Unread,
}

#[cfg(unix)]
mod unix {
    use std::{
        io::{self, stdout},
        os::unix::net::UnixStream,
        time::Instant,
    };

    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        io::Errno,
    };

    use super::{Duration, Failure, Woken};

    /// Not SIGHUP, which `nohup` ignores.
    const SIGNALS: [i32; 2] = [libc::SIGINT, libc::SIGTERM];
    /// The events of a stdout that nobody reads.
    const BROKEN: PollFlags = PollFlags::ERR.union(PollFlags::HUP).union(PollFlags::NVAL);

    /// Pauses, and what ends them.
    pub(in super::super) struct Pause {
        signals: UnixStream,
    }

    impl Pause {
        /// From now on the signals end a pause and not the process.
        pub(in super::super) fn new() -> Result<Self, Failure> {
            let (signals, handler) = UnixStream::pair()?;
            for signal in SIGNALS {
                signal_hook::low_level::pipe::register(signal, handler.try_clone()?)?;
            }
            Ok(Self { signals })
        }

        /// Waits for so long, or until something happens.
        pub(in super::super) fn wait(&self, time: Duration) -> Result<Woken, Failure> {
            let start = Instant::now();
            loop {
                let left = time.saturating_sub(start.elapsed());
                let woken = self.poll(left)?;
                if woken != Woken::InTime || left.is_zero() {
                    return Ok(woken);
                }
            }
        }

        /// Waits for a signal that asks for the end.
        pub(in super::super) fn until_signal(&self) -> Result<(), Failure> {
            loop {
                match poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], None) {
                    Ok(_) => return Ok(()),
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(io::Error::from(error).into()),
                }
            }
        }

        /// Whether nobody reads stdout any more.
        #[allow(clippy::unused_self, reason = "other systems do not know it")]
        pub(in super::super) fn is_unread(&self) -> bool {
            self.poll(Duration::ZERO).is_ok_and(|woken| woken == Woken::Unread)
        }

        /// Waits until stdout takes another line, of 4 KiB at most. Returns false if that would be in vain: a signal asks
        /// for the end, or nobody reads stdout any more.
        pub(in super::super) fn until_writable(&self) -> Result<bool, Failure> {
            loop {
                let [stdout, signals] = self.events(PollFlags::OUT, None)?;
                if signals.contains(PollFlags::IN) || stdout.intersects(BROKEN) {
                    return Ok(false);
                }
                if stdout.contains(PollFlags::OUT) {
                    return Ok(true);
                }
            }
        }

        /// Waits for so long at most.
        fn poll(&self, time: Duration) -> io::Result<Woken> {
            let time =
                Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
            let [stdout, signals] = self.events(PollFlags::empty(), Some(&time))?;
            Ok(if stdout.intersects(BROKEN) {
                Woken::Unread
            } else if signals.contains(PollFlags::IN) {
                Woken::Signal
            } else {
                Woken::InTime
            })
        }

        /// Waits for so long at most, and returns what happened to stdout and to the signals. `awaited`: what of stdout
        /// ends the wait, beside its end.
        fn events(&self, awaited: PollFlags, time: Option<&Timespec>) -> io::Result<[PollFlags; 2]> {
            let stdout = stdout();
            let mut watched = [PollFd::new(&stdout, awaited), PollFd::new(&self.signals, PollFlags::IN)];
            match poll(&mut watched, time) {
                Ok(_) => Ok([watched[0].revents(), watched[1].revents()]),
                Err(Errno::INTR) => Ok([PollFlags::empty(); 2]),
                Err(error) => Err(error.into()),
            }
        }
    }
}

#[cfg(unix)]
pub(super) use unix::Pause;

/// Pauses. Where signals cannot be handled, Ctrl-C ends the process.
#[cfg(not(unix))]
pub(super) struct Pause;

#[cfg(not(unix))]
#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "as on Unix")]
impl Pause {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self)
    }

    pub(super) fn wait(&self, time: Duration) -> Result<Woken, Failure> {
        std::thread::sleep(time);
        Ok(Woken::InTime)
    }

    pub(super) fn until_signal(&self) -> Result<(), Failure> {
        loop {
            std::thread::park();
        }
    }

    pub(super) fn is_unread(&self) -> bool {
        false
    }

    pub(super) fn until_writable(&self) -> Result<bool, Failure> {
        Ok(true)
    }
}
