//! The only place that reads the clocks that leases depend on. A lease is safe only if its time never runs slower than
//! the server's. Elapsed time is therefore the largest of the differences that three clocks show: a clock that runs
//! during suspend, one that is not slewed, and the wall clock. (If this machine's wall clock was set forward, the
//! server's may have been, too.) Linux calls them `CLOCK_BOOTTIME`, `CLOCK_MONOTONIC_RAW` and `CLOCK_REALTIME`.
//!
//! Other modules wait and time out by `Instant` and tokio's timers, which may stop during suspend. Such a timer never
//! decides about a lease: the task that it wakes reads these clocks.
#![allow(unsafe_code, reason = "std has no safe wrapper for these clocks")]

use std::time::Duration;

/// A moment, as the three clocks show it. The [`Duration`] between two stamps is never less than the time that passed.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    boot: i64,
    raw: i64,
    real: i64,
}

/// Reads the three clocks.
pub fn now() -> Stamp {
    #[cfg(feature = "simulation")]
    if let Some(stamp) = test::simulated() {
        return stamp;
    }
    #[cfg(feature = "simulation")]
    let (boot, raw, real) = test::offsets();
    #[cfg(not(feature = "simulation"))]
    let (boot, raw, real) = (0, 0, 0);
    let read = read();
    Stamp { boot: read.boot + boot, raw: read.raw + raw, real: read.real + real }
}

#[cfg(unix)]
fn read() -> Stamp {
    fn read(clock: libc::clockid_t) -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid, writable timespec for the whole call.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        time.tv_sec * NANOS + time.tv_nsec
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let boot = read(libc::CLOCK_BOOTTIME);
    let raw = read(libc::CLOCK_MONOTONIC_RAW);
    // On macOS the raw clock runs during sleep.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let boot = raw;
    Stamp { boot, raw, real: read(libc::CLOCK_REALTIME) }
}

#[cfg(windows)]
fn read() -> Stamp {
    use std::time::SystemTime;
    use windows_sys::Win32::System::{
        Performance::{QueryPerformanceCounter, QueryPerformanceFrequency},
        WindowsProgramming::QueryInterruptTimePrecise,
    };
    // In units of 100 ns. The similar functions do not suffice: `QueryUnbiasedInterruptTime` stops during sleep, and
    // `QueryInterruptTime` advances in steps of up to 16 ms.
    let mut boot = 0;
    // SAFETY: `boot` is writable for the whole call.
    unsafe { QueryInterruptTimePrecise(&raw mut boot) };
    let (mut ticks, mut frequency) = (0, 0);
    // SAFETY: both are writable for the whole call. By their documentation, neither function fails.
    unsafe {
        QueryPerformanceCounter(&raw mut ticks);
        QueryPerformanceFrequency(&raw mut frequency);
    }
    // `SystemTime` uses the precise function of the system.
    let real = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i64,
        Err(before) => -(before.duration().as_nanos() as i64),
    };
    Stamp { boot: boot.cast_signed() * 100, raw: nanos(ticks, frequency), real }
}

const NANOS: i64 = 1_000_000_000;

/// Converts the ticks of a counter to ns. `frequency`: ticks per second. `ticks * NANOS` would overflow after 15
/// minutes at 10 MHz.
#[cfg(any(windows, test))]
fn nanos(ticks: i64, frequency: i64) -> i64 {
    ticks / frequency * NANOS + ticks % frequency * NANOS / frequency
}

impl Stamp {
    /// Time from `earlier` to `self`: the largest of the three differences, never negative.
    pub fn since(&self, earlier: Stamp) -> Duration {
        if mutant!(MonotonicOnly) {
            return Duration::from_nanos((self.raw - earlier.raw).max(0) as u64);
        }
        let nanos = (self.boot - earlier.boot).max(self.raw - earlier.raw).max(self.real - earlier.real);
        Duration::from_nanos(nanos.max(0) as u64)
    }

    /// Time from `earlier` to `self`, and never more than the time that passed: the least of the differences that the
    /// clocks show which nobody sets. It may leave out the time for which the machine was suspended.
    pub(crate) fn at_least_since(&self, earlier: Stamp) -> Duration {
        let nanos = (self.boot - earlier.boot).min(self.raw - earlier.raw);
        Duration::from_nanos(nanos.max(0) as u64)
    }

    /// The moment that is `time` earlier.
    #[cfg(all(test, not(feature = "shuttle")))]
    pub(crate) fn back(self, time: Duration) -> Stamp {
        let time = time.as_nanos() as i64;
        Stamp { boot: self.boot - time, raw: self.raw - time, real: self.real - time }
    }

    /// Whether it was read before the other.
    pub(crate) fn is_before(self, other: Stamp) -> bool {
        self.boot < other.boot
    }

    /// Time from `self` to now.
    pub fn elapsed(&self) -> Duration {
        now().since(*self)
    }

    /// Microseconds since the epoch on the wall clock: the time of a node in memory, as Redis gives it.
    pub(crate) fn wall_micros(&self) -> i64 {
        self.real / 1000
    }

    /// Microseconds on the clock that neither jumps nor stops. Only differences are meaningful.
    pub fn micros(&self) -> i64 {
        self.boot / 1000
    }
}

/// The moment until which a lease or a grant is valid.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    from: Stamp,
    valid: Duration,
}

impl Deadline {
    /// The deadline that is `valid` after `from`.
    pub fn new(from: Stamp, valid: Duration) -> Self {
        Self { from, valid }
    }

    /// The deadline that is `valid` from now.
    pub fn after(valid: Duration) -> Self {
        Self::new(now(), valid)
    }

    /// The time left at `now`; zero once the deadline passed.
    pub fn left_at(&self, now: Stamp) -> Duration {
        self.valid.saturating_sub(now.since(self.from))
    }

    /// The time left; zero once the deadline passed.
    pub fn left(&self) -> Duration {
        self.left_at(now())
    }

    /// The later of both deadlines, as seen at `now`.
    pub(crate) fn later_at(self, other: Self, now: Stamp) -> Self {
        if self.left_at(now) < other.left_at(now) { other } else { self }
    }
}

/// Moves the clocks of this process, for tests of suspend and of wall clocks that jump, or replaces them.
#[cfg(feature = "simulation")]
pub mod test {
    use std::{
        cell::RefCell,
        rc::Rc,
        sync::atomic::{AtomicI64, Ordering::SeqCst},
    };

    use super::Stamp;

    /// The three clocks in ns: the one that runs during suspend, the one that is not slewed, the wall clock.
    pub type Source = Rc<dyn Fn() -> [i64; 3]>;

    thread_local! { static SOURCE: RefCell<Option<Source>> = const { RefCell::new(None) }; }

    /// Makes the current thread read these clocks, or the real ones for `None`. Returns the previous ones.
    pub fn source(source: Option<Source>) -> Option<Source> {
        SOURCE.replace(source)
    }

    pub(super) fn simulated() -> Option<Stamp> {
        let source = SOURCE.with_borrow(Clone::clone)?;
        let [boot, raw, real] = source();
        Some(Stamp { boot, raw, real })
    }

    static OFFSETS: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];

    pub(super) fn offsets() -> (i64, i64, i64) {
        (OFFSETS[0].load(SeqCst), OFFSETS[1].load(SeqCst), OFFSETS[2].load(SeqCst))
    }

    /// Moves the clock that runs during suspend, the one that is not slewed and the wall clock by these nanoseconds.
    pub fn shift(boot: i64, raw: i64, real: i64) {
        for (offset, by) in OFFSETS.iter().zip([boot, raw, real]) {
            offset.fetch_add(by, SeqCst);
        }
    }
}

#[cfg(test)]
#[path = "testing/clock.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
