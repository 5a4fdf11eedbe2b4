//! Checks what several processes did with one lock: their holds must not overlap and their tokens must rise in the
//! order of the grants. It reads logs, so a process may be killed at any point and in any language.
//!
//! A log has one line an event, with times in ns of `CLOCK_MONOTONIC`, which all processes of a machine share and every
//! language reads: `grant <token> <ns>` right after an acquire returned, `release <token> <ns>` right before a release
//! is sent. Whoever writes one keeps a line in no buffer beyond its turn.

use std::{collections::HashMap, fs, io, path::Path};

/// One tenure, as its holder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The fencing token.
    pub token: u64,
    /// When the acquire returned.
    pub from: u64,
    /// When the release was sent; `None` for a holder that died.
    pub until: Option<u64>,
}

/// What a history shows.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Tenures that began before an earlier one ended.
    pub overlaps: Vec<(Hold, Hold)>,
    /// Tokens that are not above the one granted before.
    pub disorder: Vec<(Hold, Hold)>,
}

/// Reads the holds out of logs.
pub fn read(logs: impl IntoIterator<Item = impl AsRef<Path>>) -> io::Result<Vec<Hold>> {
    let mut holds = Vec::new();
    for log in logs {
        let mut open: HashMap<u64, usize> = HashMap::new();
        for line in fs::read_to_string(log)?.lines() {
            let mut words = line.split_whitespace();
            let (Some(event), Some(token), Some(time)) = (words.next(), words.next(), words.next()) else { continue };
            let (Ok(token), Ok(time)) = (token.parse(), time.parse()) else { continue };
            match event {
                "grant" => {
                    open.insert(token, holds.len());
                    holds.push(Hold { token, from: time, until: None });
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

/// Looks for overlaps and for tokens out of order. A holder that died holds nothing from its death on; since nobody
/// noted when that was, its tenure counts as a moment.
pub fn check(mut holds: Vec<Hold>) -> Findings {
    holds.sort_by_key(|hold| hold.from);
    let mut findings = Findings::default();
    for pair in holds.windows(2) {
        let (first, second) = (pair[0], pair[1]);
        if first.until.is_some_and(|until| until > second.from) {
            findings.overlaps.push((first, second));
        }
        if first.token >= second.token {
            findings.disorder.push((first, second));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(token: u64, from: u64, until: u64) -> Hold {
        Hold { token, from, until: Some(until) }
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
}
