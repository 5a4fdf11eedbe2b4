//! `min_hold` of a tenure: for how long its lock stays taken after a release. The rest is never too short: elapsed time
//! counts from the moment when the grant was known, and by the slower clock.

use std::time::Duration;

use super::Fate;
use crate::{clock::Stamp, error::LostReason, protocol::primitive::Primitive};

/// The least time for which the lock stays taken.
#[derive(Clone, Copy)]
pub(super) struct MinHold {
    time: Duration,
    /// A moment after the grant.
    granted: Stamp,
    /// Whether a caller got a lease. A grant that nobody collected is given back at once: no job ran.
    collected: bool,
}

impl MinHold {
    /// `granted`: a moment after the grant.
    pub(super) fn new(time: Duration, granted: Stamp) -> Self {
        Self { time, granted, collected: false }
    }

    /// A caller has collected a lease.
    pub(super) fn collect(&mut self) {
        self.collected = true;
    }

    /// Counts from a later grant: a reader became a writer.
    pub(super) fn restart(&mut self, granted: Stamp) {
        self.granted = granted;
    }

    /// How much of it is left.
    pub(super) fn left_at(&self, now: Stamp) -> Duration {
        self.time.saturating_sub(now.at_least_since(self.granted))
    }

    /// For how long the lock stays taken if the tenure, which ended with this fate, is released now; zero: not at all.
    pub(super) fn rest_at(&self, now: Stamp, fate: Fate, primitive: Primitive) -> Duration {
        let rests = match fate {
            // Somebody ended the tenure by force, and the rest with it; or the request removes what an upgrade left on a
            // node.
            Fate::Lost(LostReason::Released) | Fate::Held | Fate::Detached => false,
            Fate::Released | Fate::Lost(_) => self.collected,
        };
        let rests = rests && !mutant!(RestForgotten);
        // A writer that became a reader has let others in.
        if rests && !primitive.is_shared() { self.left_at(now) } else { Duration::ZERO }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::clock;

    const TIME: Duration = Duration::from_secs(50);
    const HELD: Duration = Duration::from_secs(20);
    const LEFT: Duration = Duration::from_secs(30);

    /// A tenure that was granted `HELD` ago and collected.
    fn min_hold(now: Stamp) -> MinHold {
        let mut min_hold = MinHold::new(TIME, now.back(HELD));
        min_hold.collect();
        min_hold
    }

    #[test]
    fn the_rest_follows_each_end_by_the_holder() {
        let now = clock::now();
        let rest = |fate| min_hold(now).rest_at(now, fate, Primitive::Lock);
        for fate in [Fate::Released, Fate::Lost(LostReason::Expired), Fate::Lost(LostReason::Closed)] {
            assert_eq!(rest(fate), LEFT, "{fate:?}");
        }
        for fate in [Fate::Held, Fate::Detached, Fate::Lost(LostReason::Released)] {
            assert_eq!(rest(fate), Duration::ZERO, "{fate:?}");
        }
    }

    #[test]
    fn a_grant_that_nobody_collected_leaves_no_rest() {
        let now = clock::now();
        let uncollected = MinHold::new(TIME, now.back(HELD));
        assert_eq!(uncollected.rest_at(now, Fate::Released, Primitive::Lock), Duration::ZERO);
    }

    #[test]
    fn a_reader_leaves_no_rest_and_a_new_writer_counts_anew() {
        let now = clock::now();
        let mut min_hold = min_hold(now);
        assert_eq!(min_hold.rest_at(now, Fate::Released, Primitive::Read), Duration::ZERO);
        min_hold.restart(now);
        assert_eq!(min_hold.rest_at(now, Fate::Released, Primitive::Write), TIME);
    }

    #[test]
    fn no_rest_is_left_once_it_is_over() {
        let now = clock::now();
        let over = MinHold { granted: now.back(TIME), ..min_hold(now) };
        assert_eq!(over.rest_at(now, Fate::Released, Primitive::Fair), Duration::ZERO);
    }
}
