//! The only place that reads a clock. A lease is safe only if the time it measures never runs slower than the
//! server's, so elapsed time is the largest of three differences: `CLOCK_BOOTTIME` (goes on in suspend),
//! `CLOCK_MONOTONIC_RAW` (is not slewed) and `CLOCK_REALTIME` (a wall clock set forward may mean that the server's
//! was too). `Instant` and tokio's timers stop in suspend: they only wake, what they woke for is recomputed here.
#![allow(unsafe_code, reason = "clock_gettime has no safe wrapper in std for these clocks")]

use std::time::Duration;

/// A moment, as the three clocks saw it. Two of them give a [`Duration`], never less than what really passed.
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
    Stamp {
        boot: read(BOOT) + boot,
        raw: read(libc::CLOCK_MONOTONIC_RAW) + raw,
        real: read(libc::CLOCK_REALTIME) + real,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: libc::clockid_t = libc::CLOCK_BOOTTIME;
/// Elsewhere the raw monotonic clock goes on during sleep (macOS); other systems are untested.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: libc::clockid_t = libc::CLOCK_MONOTONIC_RAW;

fn read(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the whole call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
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

    /// Time from `self` to now.
    pub fn elapsed(&self) -> Duration {
        now().since(*self)
    }

    /// Microseconds since the epoch on the wall clock, for a node that has to tell the time as Redis does.
    pub(crate) fn wall_micros(&self) -> i64 {
        self.real / 1000
    }

    /// Microseconds on the clock that neither jumps nor stops; only differences mean anything.
    pub fn micros(&self) -> i64 {
        self.boot / 1000
    }
}

/// A moment until which something is valid.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    from: Stamp,
    valid: Duration,
}

impl Deadline {
    /// Valid for `valid` from `from` on.
    pub fn new(from: Stamp, valid: Duration) -> Self {
        Self { from, valid }
    }

    /// Valid for `valid` from now on.
    pub fn after(valid: Duration) -> Self {
        Self::new(now(), valid)
    }

    /// What is left at `now`; zero once it passed.
    pub fn left_at(&self, now: Stamp) -> Duration {
        self.valid.saturating_sub(now.since(self.from))
    }

    /// What is left; zero once it passed.
    pub fn left(&self) -> Duration {
        self.left_at(now())
    }

    /// The one of both that passes later.
    pub(crate) fn later(self, other: Self) -> Self {
        let now = now();
        if self.left_at(now) < other.left_at(now) { other } else { self }
    }

    /// Whether it passed.
    pub fn passed(&self) -> bool {
        self.left().is_zero()
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

    /// The three clocks in ns: `CLOCK_BOOTTIME`, `CLOCK_MONOTONIC_RAW`, `CLOCK_REALTIME`.
    pub type Source = Rc<dyn Fn() -> [i64; 3]>;

    thread_local! { static SOURCE: RefCell<Option<Source>> = const { RefCell::new(None) }; }

    /// Reads these clocks on the current thread from now on, `None` for the real ones; returns what was read before.
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

    /// Moves `CLOCK_BOOTTIME`, `CLOCK_MONOTONIC_RAW` and `CLOCK_REALTIME` by so many nanoseconds.
    pub fn shift(boot: i64, raw: i64, real: i64) {
        for (offset, by) in OFFSETS.iter().zip([boot, raw, real]) {
            offset.fetch_add(by, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(boot: i64, raw: i64, real: i64) -> Stamp {
        Stamp { boot, raw, real }
    }

    #[test]
    fn elapsed_is_the_largest_difference() {
        let start = stamp(100, 100, 100);
        assert_eq!(stamp(150, 120, 90).since(start), Duration::from_nanos(50));
        assert_eq!(stamp(110, 170, 90).since(start), Duration::from_nanos(70));
        assert_eq!(stamp(110, 120, 900).since(start), Duration::from_nanos(800));
        assert_eq!(stamp(90, 90, 90).since(start), Duration::ZERO);
    }

    #[test]
    fn a_deadline_ends_and_stays_ended() {
        let deadline = Deadline::new(stamp(0, 0, 0), Duration::from_nanos(10));
        assert_eq!(deadline.left_at(stamp(4, 0, 0)), Duration::from_nanos(6));
        assert_eq!(deadline.left_at(stamp(11, 0, 0)), Duration::ZERO);
    }
}
