//! Checks the history of one lock in several processes: holds must not overlap, and tokens must be unique and increase
//! in the order of the grants. It reads logs, so a process may be killed at any point and be written in any language.
//!
//! A log has one line for each event, with times in ns of `CLOCK_MONOTONIC`, which all processes of a machine share and
//! every language can read. `grant <token> <ns> [<ns of the call>]` has the time right after an acquire returned.
//! `release <token> <ns>` has a time right before the release was sent, at which the lock was still held. A process
//! writes each line out before its next turn. A grant that is lost at once has no second line. Locks of other libraries
//! have no tokens: a `-` stands in their place, and such holds are only checked for overlaps. Their logs have a further
//! line, `ready - <ns>`, when they start.

use std::{collections::HashMap, fs, io, path::Path};

/// One tenure, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The fencing token, if the library has one.
    pub token: Option<u64>,
    /// When the acquire was called, or, if the log does not say, when it returned.
    pub called: u64,
    /// When the acquire returned.
    pub from: u64,
    /// Until when its holder held it; `None` for a holder that died, or never saw the lock held.
    pub until: Option<u64>,
}

/// The findings in a history.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Tenures that started before an earlier one ended.
    pub overlaps: Vec<(Hold, Hold)>,
    /// Tokens that were granted twice, or are not larger than a token granted before their acquire was called.
    pub disorder: Vec<(Hold, Hold)>,
}

impl Findings {
    /// Adds the findings of another lock.
    pub fn extend(&mut self, other: Self) {
        self.overlaps.extend(other.overlaps);
        self.disorder.extend(other.disorder);
    }
}

/// Reads the holds from logs.
pub fn read(logs: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<Vec<Hold>> {
    let mut holds = Vec::new();
    for log in logs {
        let mut open: HashMap<Option<u64>, usize> = HashMap::new();
        for line in fs::read_to_string(log)?.lines() {
            let mut words = line.split_whitespace();
            let (Some(event), Some(token), Some(time)) = (words.next(), words.next(), words.next()) else { continue };
            let token = if token == "-" { Ok(None) } else { token.parse().map(Some) };
            let (Ok(token), Ok(time)) = (token, time.parse()) else { continue };
            let called = words.next().and_then(|word| word.parse().ok()).unwrap_or(time);
            match event {
                "grant" => {
                    open.insert(token, holds.len());
                    holds.push(Hold { token, called, from: time, until: None });
                }
                "release" => {
                    if let Some(index) = open.remove(&token) {
                        holds[index].until = Some(time);
                    }
                }
                _ => {}
            }
        }
    }
    Ok(holds)
}

/// Finds overlaps and tokens out of order. For a hold without an end only the token counts, since the time of the hold
/// is unknown.
pub fn check(mut holds: Vec<Hold>) -> Findings {
    holds.sort_by_key(|hold| hold.from);
    let mut findings = Findings::default();
    let mut last: Option<(Hold, u64)> = None;
    for hold in &holds {
        let Some(until) = hold.until else { continue };
        match last {
            Some((earlier, end)) if end > hold.from => findings.overlaps.push((earlier, *hold)),
            _ => {}
        }
        if last.is_none_or(|(_, end)| end < until) {
            last = Some((*hold, until));
        }
    }
    holds.retain(|hold| hold.token.is_some());
    // For each hold, the one with the largest token among it and the holds before it.
    let mut largest: Vec<Hold> = Vec::with_capacity(holds.len());
    for hold in &holds {
        let before = largest.last().filter(|before| before.token >= hold.token);
        largest.push(*before.unwrap_or(hold));
    }
    for hold in &holds {
        let before = holds.partition_point(|other| other.from < hold.called);
        if let Some(earlier) = largest[..before].last().filter(|earlier| earlier.token > hold.token) {
            findings.disorder.push((*earlier, *hold));
        }
    }
    holds.sort_by_key(|hold| hold.token);
    findings.disorder.extend(holds.windows(2).filter(|two| two[0].token == two[1].token).map(|two| (two[0], two[1])));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(token: u64, from: u64, until: u64) -> Hold {
        Hold { token: Some(token), called: from, from, until: Some(until) }
    }

    #[test]
    fn a_clean_history_has_no_findings() {
        assert_eq!(check(vec![hold(2, 20, 30), hold(1, 10, 20), hold(9, 31, 40)]), Findings::default());
    }

    #[test]
    fn an_overlap_is_found() {
        let (a, b) = (hold(1, 10, 21), hold(2, 20, 30));
        assert_eq!(check(vec![a, b]).overlaps, vec![(a, b)]);
    }

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let (a, b) = (hold(2, 10, 20), hold(2, 20, 30));
        assert_eq!(check(vec![a, b]).disorder, vec![(a, b)]);
    }

    #[test]
    fn an_overlap_across_others_is_found() {
        let (long, short, last) = (hold(1, 10, 50), hold(2, 20, 25), hold(3, 40, 60));
        assert_eq!(check(vec![long, short, last]).overlaps, vec![(long, short), (long, last)]);
    }

    #[test]
    fn tokens_are_in_order_of_calls_that_follow_grants() {
        // The second acquire was called while the reply to the first was in flight: either may have the smaller token.
        let (first, second) = (hold(2, 20, 30), Hold { called: 15, ..hold(1, 31, 40) });
        assert_eq!(check(vec![first, second]), Findings::default());
        let second = Hold { called: 21, ..second };
        assert_eq!(check(vec![first, second]).disorder, vec![(first, second)]);
        // Also with other holds in between.
        let between = hold(3, 41, 42);
        let late = Hold { called: 45, ..hold(2, 50, 51) };
        assert_eq!(check(vec![between, late]).disorder, vec![(between, late)]);
    }

    #[test]
    fn of_a_hold_without_an_end_only_the_token_counts() {
        let (lost, held) = (Hold { until: None, ..hold(1, 25, 0) }, hold(2, 20, 30));
        let called = Hold { called: 1, ..lost };
        assert_eq!(check(vec![called, held]), Findings::default());
        let twice = Hold { token: Some(2), ..called };
        assert_eq!(check(vec![twice, held]).disorder.len(), 1);
    }

    #[test]
    fn without_a_token_only_overlaps_count() {
        let bare = |from, until| Hold { token: None, ..hold(0, from, until) };
        assert_eq!(check(vec![bare(10, 20), hold(2, 20, 30), bare(30, 40), hold(3, 40, 50)]), Findings::default());
        let (theirs, ours) = (bare(10, 21), hold(1, 20, 30));
        assert_eq!(check(vec![theirs, ours]).overlaps, vec![(theirs, ours)]);
    }

    #[test]
    fn a_log_without_tokens_is_read() -> io::Result<()> {
        let log = std::env::temp_dir().join(format!("redlock-history-{}", std::process::id()));
        fs::write(&log, "ready - 1\ngrant - 20 10\nrelease - 30\ngrant - 50 40\n")?;
        let holds = read([&log]);
        fs::remove_file(&log)?;
        let first = Hold { token: None, called: 10, from: 20, until: Some(30) };
        assert_eq!(holds?, vec![first, Hold { called: 40, from: 50, until: None, ..first }]);
        Ok(())
    }
}
