//! How long to wait between two tries.

use std::time::Duration;

use crate::protocol::primitive::Primitive;

/// How long to wait for news before trying all the same.
pub(crate) fn before_poll(primitive: Primitive, free_in: Option<Duration>) -> Duration {
    if mutant!(NoPoll) {
        return Duration::from_secs(86_400);
    }
    let poll = if primitive.announces() { 2000 + fastrand::u64(0..500) } else { 100 + fastrand::u64(0..100) };
    let poll = Duration::from_millis(poll);
    // The key ends when its ttl ran out on the node; a little later nobody has to be asked twice.
    free_in.map_or(poll, |free_in| poll.min(free_in + Duration::from_millis(1 + fastrand::u64(0..5))))
}

/// How long to stay away after the votes were split for the `times`-th time in a row.
pub(crate) fn after_split(times: u32) -> Duration {
    Duration::from_micros(fastrand::u64(500..2000 << times.min(6)))
}

/// How long to hold back after a release before trying. A server wakes its listeners in an order that does not change,
/// and whoever is woken first would win every race: so those that came too late often go ahead of those that just began
/// to wait. `missed`: how many races this waiter lost. Without rivals there is nobody to let go first.
pub(crate) fn after_release(missed: u32, rivals: bool) -> Duration {
    let (mut least, mut most) = if missed == 0 && !rivals { (0, COURTESY / 4) } else { (COURTESY * 3 / 5, COURTESY) };
    for _ in 0..missed.min(8) {
        (least, most) = (least * 3 / 5, most * 3 / 5);
    }
    Duration::from_micros(fastrand::u64(least..=most))
}

/// In µs: longer than it takes a server to wake a few processes, shorter than anybody minds.
const COURTESY: u64 = 400;
