//! How long to wait between two tries.

use std::time::Duration;

/// How long to wait for news before trying all the same. `announces`: whether releases are announced.
pub(crate) fn before_poll(announces: bool, free_in: Option<Duration>) -> Duration {
    if mutant!(NoPoll) {
        return Duration::from_secs(86_400);
    }
    let poll = if announces { 2000 + fastrand::u64(0..500) } else { 100 + fastrand::u64(0..100) };
    let poll = Duration::from_millis(poll);
    // The key ends when its ttl ran out on the node.
    free_in.map_or(poll, |free_in| poll.min(shortly_after(free_in)))
}

/// How long one that has a place in a lock's queue may wait for a word, apart from when its client has to speak. `look`: when
/// something may have to be done.
pub(crate) fn in_line(announces: bool, ahead: u64, look: Option<Duration>) -> Option<Duration> {
    if ahead == 0 {
        // Locks of others that announce nothing are looked for by the first.
        return if announces { look.map(shortly_after) } else { Some(before_poll(announces, look)) };
    }
    // The first looks then, too, if it is still there.
    look.map(|look| look + Duration::from_millis(5 + fastrand::u64(0..50)))
}

/// A little after something ended on a server, so that nobody has to be asked twice.
fn shortly_after(left: Duration) -> Duration {
    left + Duration::from_millis(1 + fastrand::u64(0..5))
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
