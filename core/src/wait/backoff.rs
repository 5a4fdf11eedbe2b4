//! How long a waiter pauses between two tries.

use std::time::Duration;

/// How long to wait for a release message before polling. `announces`: whether releases are announced. `free_in`: when
/// the key expires, if known.
pub(crate) fn before_poll(announces: bool, free_in: Option<Duration>) -> Duration {
    if mutant!(NoPoll) {
        return Duration::from_secs(86_400);
    }
    let poll = if announces { 2000 + fastrand::u64(0..500) } else { 100 + fastrand::u64(0..100) };
    let poll = Duration::from_millis(poll);
    // Not beyond the expiry of the key on the node.
    free_in.map_or(poll, |free_in| poll.min(shortly_after(free_in)))
}

/// How long a waiter with a place in a lock's queue waits for a message before it sends the next request; `None` for no
/// limit. The requests that confirm the client's places have times of their own. `ahead`: how many entries are before
/// its own. `retry_after`: after which time to send the request, as the server replied.
pub(crate) fn before_queue_request(announces: bool, ahead: u64, retry_after: Option<Duration>) -> Option<Duration> {
    if ahead == 0 {
        // Other libraries release locks without a message: the first waiter polls for that.
        return if announces { retry_after.map(shortly_after) } else { Some(before_poll(announces, retry_after)) };
    }
    // A little later than the first waiter, which sends its request if it still exists.
    retry_after.map(|retry_after| retry_after + Duration::from_millis(5 + fastrand::u64(0..50)))
}

/// A little after an expiry on a server, so that one request is enough.
fn shortly_after(left: Duration) -> Duration {
    left + Duration::from_millis(1 + fastrand::u64(0..5))
}

/// How long to back off after the `times`-th split vote in a row.
pub(crate) fn after_split(times: u32) -> Duration {
    Duration::from_micros(fastrand::u64(500..2000 << times.min(6)))
}

/// How long to back off after a release before trying. A server notifies its subscribers in a fixed order, so the same
/// client would win every race. Therefore a waiter backs off less, the more races it has lost (`missed`). A new waiter
/// without rivals need let nobody go first: its range is from 0 to a quarter of `COURTESY`.
pub(crate) fn after_release(missed: u32, rivals: bool) -> Duration {
    let (mut least, mut most) = if missed == 0 && !rivals { (0, COURTESY / 4) } else { (COURTESY * 3 / 5, COURTESY) };
    for _ in 0..missed.min(8) {
        (least, most) = (least * 3 / 5, most * 3 / 5);
    }
    Duration::from_micros(fastrand::u64(least..=most))
}

/// In µs: longer than a server takes to notify a few processes, and short for a hand-off.
const COURTESY: u64 = 400;
