//! Tests of the clocks: the difference of two readings, and that each reading is of the right clock and in nanoseconds.

use std::{
    iter,
    sync::atomic::{AtomicI64, Ordering::SeqCst},
    thread,
    time::{Instant, SystemTime},
};

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
fn a_clock_that_was_set_makes_the_least_time_no_longer() {
    let start = stamp(100, 100, 100);
    assert_eq!(stamp(150, 120, 900).at_least_since(start), Duration::from_nanos(20));
    assert_eq!(stamp(130, 170, 90).at_least_since(start), Duration::from_nanos(30));
    assert_eq!(stamp(90, 170, 900).at_least_since(start), Duration::ZERO);
}

#[test]
fn a_deadline_ends_and_stays_ended() {
    let deadline = Deadline::new(stamp(0, 0, 0), Duration::from_nanos(10));
    assert_eq!(deadline.left_at(stamp(4, 0, 0)), Duration::from_nanos(6));
    assert_eq!(deadline.left_at(stamp(11, 0, 0)), Duration::ZERO);
}

#[test]
fn neither_monotonic_clock_goes_back_on_any_thread() {
    static SEEN: [AtomicI64; 2] = [const { AtomicI64::new(i64::MIN) }; 2];
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let seen = [SEEN[0].load(SeqCst), SEEN[1].load(SeqCst)];
                    let Stamp { boot, raw, .. } = read();
                    assert!(boot >= seen[0] && raw >= seen[1], "{boot} or {raw} after {seen:?}");
                    SEEN[0].fetch_max(boot, SeqCst);
                    SEEN[1].fetch_max(raw, SeqCst);
                }
            });
        }
    });
}

/// Checks that a clock advanced by `least` to `most` ns between two readings. The tolerance is a tenth for clocks that
/// are slewed, and a millisecond for clocks that move in steps.
fn fits(what: &str, [from, to]: [i64; 2], least: i64, most: i64) {
    let (passed, step) = (to - from, 1_000_000);
    assert!(
        passed >= least - least / 10 - step && passed <= most + most / 10 + step,
        "{what} advanced by {passed} ns, where {least} to {most} passed"
    );
}

#[test]
fn the_clocks_advance_together_and_count_nanoseconds() {
    let by_std = |from: Instant, to: Instant| (to - from).as_nanos() as i64;
    let before = Instant::now();
    let (first, second) = (read(), read());
    let after = Instant::now();
    // Long enough to detect a clock with another unit.
    let third = iter::repeat_with(read).find(|stamp| stamp.raw - second.raw > 30_000_000).unwrap();
    let later = Instant::now();
    let fourth = read();
    let last = Instant::now();
    // Each clock was read between two readings of its reference clock, so a paused thread does not matter.
    fits("the raw clock", [second.raw, fourth.raw], by_std(after, later), by_std(before, last));
    let (least, most) = (third.raw - second.raw, fourth.raw - first.raw);
    fits("the clock of the boot", [second.boot, fourth.boot], least, most);
    fits("the wall clock", [first.real, third.real], least, most);
}

#[test]
fn the_wall_clock_counts_from_the_epoch() {
    let epoch = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as i64;
    let before = epoch();
    let micros = read().wall_micros();
    assert!((before..=epoch()).contains(&micros));
}

#[test]
fn ticks_become_nanoseconds_for_a_century() {
    for frequency in [1_000_000_000, 24_000_000, 10_000_000, 3_579_545, 2_500_000_001] {
        assert_eq!(nanos(frequency, frequency), NANOS);
        let century = 100 * 365 * 24 * 3600;
        assert_eq!(nanos(century * frequency, frequency), century * NANOS);
        assert_eq!(nanos(frequency / 2, frequency), frequency / 2 * NANOS / frequency);
    }
}
