//! Who holds together: nobody beside an exclusive holder or a writer, nobody in the slot of another, and no more slots
//! than a semaphore has.

use super::{Clash, Hold, Part, Share, clash};

/// Finds holds that started before an earlier one ended, unless both are readers'.
pub(super) fn overlaps(parts: &[Part<'_>]) -> Vec<Clash> {
    let mut found = Vec::new();
    // The earlier holds that last longest: among those that exclude all others, and among all.
    let (mut alone, mut any): (Option<Part<'_>>, Option<Part<'_>>) = (None, None);
    for part in parts.iter().copied().filter(|part| part.hold.until.is_some()) {
        let before = if part.alone { any } else { alone };
        if let Some(before) = before.filter(|before| before.hold.until > Some(part.hold.from)) {
            found.push(clash(before, part));
        }
        let longer = |other: Option<Part<'_>>| other.is_none_or(|other| other.hold.until < part.hold.until);
        if longer(any) {
            any = Some(part);
        }
        if part.alone && longer(alone) {
            alone = Some(part);
        }
    }
    found
}

/// Finds permits of slots beyond the last one, and permits beside which more slots were held than there are.
pub(super) fn excess(holds: &[Hold], permits: u32) -> Vec<Hold> {
    let mut found: Vec<Hold> = Vec::new();
    let mut inside: Vec<(u64, usize)> = Vec::new();
    for hold in holds {
        let Share::Slots(slots) = &hold.share else { continue };
        let beyond = slots.iter().any(|slot| slot.number >= permits);
        if let Some(until) = hold.until {
            inside.retain(|(end, _)| *end > hold.from);
            inside.push((until, slots.len()));
        }
        if beyond || inside.iter().map(|(_, count)| count).sum::<usize>() > permits as usize {
            found.push(hold.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{
        Hold, Kind, check, check_as,
        tests::{READ_WRITE, SEMAPHORE, hold, permit, reader, writer},
    };

    #[test]
    fn an_overlap_is_found() {
        let (a, b) = (hold(1, 10, 21), hold(2, 20, 30));
        assert_eq!(check(vec![a.clone(), b.clone()]).overlaps, vec![(a.clone(), b.clone())]);
        assert_eq!(check_as(Kind::Fair, vec![a.clone(), b.clone()]).overlaps, vec![(a, b)]);
    }

    #[test]
    fn an_overlap_across_others_is_found() {
        let (long, short, last) = (hold(1, 10, 50), hold(2, 20, 25), hold(3, 40, 60));
        let found = check(vec![long.clone(), short.clone(), last.clone()]).overlaps;
        assert_eq!(found, vec![(long.clone(), short), (long, last)]);
    }

    #[test]
    fn a_writer_beside_anybody_is_found() {
        let (read, write) = (reader(1, 10, 21), writer(2, 20, 30));
        assert_eq!(check_as(READ_WRITE, vec![read.clone(), write.clone()]).overlaps, vec![(read, write)]);
        let (write, read) = (writer(2, 20, 30), reader(3, 29, 40));
        assert_eq!(check_as(READ_WRITE, vec![write.clone(), read.clone()]).overlaps, vec![(write, read)]);
        let (one, two) = (writer(2, 20, 30), writer(4, 29, 40));
        assert_eq!(check_as(READ_WRITE, vec![one.clone(), two.clone()]).overlaps, vec![(one, two)]);
        // Also across readers that came in between.
        let (long, short, write) = (reader(1, 10, 50), reader(1, 11, 12), writer(2, 40, 60));
        let found = check_as(READ_WRITE, vec![long.clone(), short, write.clone()]).overlaps;
        assert_eq!(found, vec![(long, write)]);
    }

    #[test]
    fn two_permits_with_one_slot_are_found() {
        let (one, two) = (permit(&[(0, 1), (1, 1)], 10, 21), permit(&[(2, 1), (1, 2)], 20, 30));
        let found = check_as(SEMAPHORE, vec![one.clone(), two.clone()]);
        assert_eq!(found.overlaps, vec![(one, two.clone())]);
        assert_eq!(found.excess, vec![two], "four slots of three");
    }

    #[test]
    fn a_slot_too_many_is_found() {
        let inside = [permit(&[(0, 1), (1, 1)], 10, 30), permit(&[(2, 1)], 11, 30)];
        let beyond = permit(&[(3, 1)], 12, 13);
        let found = check_as(SEMAPHORE, [&inside[..], std::slice::from_ref(&beyond)].concat());
        assert_eq!((found.overlaps, found.excess), (vec![], vec![beyond]));
        // A dead holder's slots are known, but not for how long it held them.
        let dead = Hold { until: None, ..permit(&[(3, 1)], 50, 0) };
        assert_eq!(check_as(SEMAPHORE, vec![dead.clone()]).excess, vec![dead]);
    }
}
