//! The fencing tokens of a history. A token is larger than every token that was granted before its acquire was called,
//! and no two holds share one. Readers share tokens: a reader's is larger than those of earlier writers, and smaller than
//! those of later ones.

use super::{Clash, Part, clash};

/// Finds tokens out of order, and tokens that were granted twice.
pub(super) fn disorder(parts: &[Part<'_>]) -> Vec<Clash> {
    let mut parts: Vec<Part<'_>> = parts.iter().copied().filter(|part| part.token.is_some()).collect();
    let mut found = Vec::new();
    // For each part, the one with the largest token among it and the parts before it: of all, and of writers.
    let (mut any, mut alone): (Vec<Part<'_>>, Vec<Option<Part<'_>>>) = (Vec::new(), Vec::new());
    for part in parts.iter().copied() {
        any.push(*any.last().filter(|before| before.token >= part.token).unwrap_or(&part));
        let last = alone.last().copied().flatten();
        let rises = part.alone && last.is_none_or(|last| last.token < part.token);
        alone.push(if rises { Some(part) } else { last });
    }
    for part in &parts {
        let Some(last) = parts.partition_point(|other| other.hold.from < part.hold.called).checked_sub(1) else {
            continue;
        };
        let before = if part.alone { Some(any[last]) } else { alone[last] };
        found.extend(before.filter(|before| before.token > part.token).map(|before| clash(before, *part)));
    }
    parts.sort_by_key(|part| part.token);
    let twice = |two: &&[Part<'_>]| two[0].token == two[1].token && (two[0].alone || two[1].alone);
    found.extend(parts.windows(2).filter(twice).map(|two| clash(two[0], two[1])));
    found
}

/// Finds readers that hold a lock together with different tokens. No writer can have come between them.
pub(super) fn among_readers(parts: &[Part<'_>]) -> Vec<Clash> {
    let mut found = Vec::new();
    let mut longest: Option<Part<'_>> = None;
    for part in parts.iter().copied().filter(|part| !part.alone && part.hold.until.is_some()) {
        match longest {
            Some(other) if other.hold.until > Some(part.hold.from) && other.token != part.token => {
                found.push(clash(other, part));
            }
            _ => {}
        }
        if longest.is_none_or(|other| other.hold.until < part.hold.until) {
            longest = Some(part);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{
        Findings, Hold, check, check_as,
        tests::{ON_A_QUORUM, READ_WRITE, SEMAPHORE, hold, permit, reader, writer},
    };

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let (a, b) = (hold(2, 10, 20), hold(2, 20, 30));
        assert_eq!(check(vec![a.clone(), b.clone()]).disorder, vec![(a, b)]);
    }

    #[test]
    fn tokens_are_in_order_of_calls_that_follow_grants() {
        // The second acquire was called while the reply to the first was in flight: either may have the smaller token.
        let (first, second) = (hold(2, 20, 30), Hold { called: 15, ..hold(1, 31, 40) });
        assert_eq!(check(vec![first.clone(), second.clone()]), Findings::default());
        let second = Hold { called: 21, ..second };
        assert_eq!(check(vec![first.clone(), second.clone()]).disorder, vec![(first, second)]);
        // Also with other holds in between.
        let between = hold(3, 41, 42);
        let late = Hold { called: 45, ..hold(2, 50, 51) };
        assert_eq!(check(vec![between.clone(), late.clone()]).disorder, vec![(between, late)]);
    }

    #[test]
    fn without_a_token_only_overlaps_count() {
        let bare = |from, until| Hold { token: None, ..hold(0, from, until) };
        assert_eq!(check(vec![bare(10, 20), hold(2, 20, 30), bare(30, 40), hold(3, 40, 50)]), Findings::default());
        let (theirs, ours) = (bare(10, 21), hold(1, 20, 30));
        assert_eq!(check(vec![theirs.clone(), ours.clone()]).overlaps, vec![(theirs, ours)]);
    }

    #[test]
    fn readers_tokens_lie_between_those_of_writers() {
        let write = writer(10, 10, 20);
        for token in [9, 10] {
            let read = reader(token, 20, 30);
            for kind in [READ_WRITE, ON_A_QUORUM] {
                let found = check_as(kind, vec![write.clone(), read.clone()]).disorder;
                assert_eq!(found.len(), 1, "a reader with {token} after a writer with 10");
                let found = check_as(kind, vec![read.clone(), writer(token, 30, 40), writer(50, 50, 60)]).disorder;
                assert_eq!(found.len(), 1, "a writer with the token of the reader before it");
                let found = check_as(kind, vec![read.clone(), writer(token - 1, 30, 40)]).disorder;
                assert_eq!(found.len(), 1, "a writer with a token below that of the reader before it");
            }
        }
        let writers = vec![writer(10, 10, 20), writer(9, 20, 30)];
        assert_eq!(check_as(ON_A_QUORUM, writers.clone()).disorder, vec![(writers[0].clone(), writers[1].clone())]);
    }

    #[test]
    fn readers_that_read_together_share_a_token_on_one_server() {
        let (one, two) = (reader(11, 20, 30), reader(12, 29, 40));
        assert_eq!(check_as(READ_WRITE, vec![one.clone(), two.clone()]).disorder, vec![(one.clone(), two.clone())]);
        assert_eq!(check_as(ON_A_QUORUM, vec![one, two]), Findings::default());
        // A writer whose log is lost can have come between these.
        let apart = vec![reader(11, 20, 30), reader(13, 30, 40)];
        assert_eq!(check_as(READ_WRITE, apart), Findings::default());
    }

    #[test]
    fn tokens_rise_for_each_slot() {
        let (one, two) = (permit(&[(0, 9), (1, 3)], 10, 20), permit(&[(1, 3)], 20, 30));
        assert_eq!(check_as(SEMAPHORE, vec![one.clone(), two.clone()]).disorder, vec![(one.clone(), two)]);
        let other = permit(&[(2, 1)], 20, 30);
        assert_eq!(check_as(SEMAPHORE, vec![one, other]), Findings::default());
    }
}
