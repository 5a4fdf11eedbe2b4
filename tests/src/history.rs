//! Checks the history of one lock of any kind in several processes: who held it when, with which tokens, and in which
//! order. It reads logs, so a process may be killed at any point and be written in any language.
//!
//! Times are in ns of `CLOCK_MONOTONIC`, which all processes of a machine share. A hold counts from the return of its
//! acquire to the last moment at which its holder saw it held. `exclusion` checks who holds together, `tokens` the
//! fencing tokens, `order` the order of waiters, and `log` reads and writes the files.

mod exclusion;
mod log;
mod order;
mod tokens;

use serde::{Deserialize, Serialize};

pub use log::{grant, read, release, write_tenures};
pub use order::{Order, Place, check_order};

/// The kind of a lock, as far as its history is concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A plain lock.
    #[default]
    Lock,
    /// A fair lock.
    Fair,
    /// A read/write lock.
    ReadWrite {
        /// True on one server: readers between two writers share one token there.
        shares_tokens: bool,
    },
    /// A semaphore.
    Semaphore {
        /// The number of its slots.
        permits: u32,
    },
}

impl Kind {
    /// The word for it in the arguments of a contender.
    pub fn word(self) -> String {
        match self {
            Self::Lock => "lock".to_owned(),
            Self::Fair => "fair".to_owned(),
            Self::ReadWrite { .. } => "read_write".to_owned(),
            Self::Semaphore { permits } => format!("semaphore:{permits}"),
        }
    }

    /// The kind of a word that `word` returned; nothing for any other.
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "lock" => Some(Self::Lock),
            "fair" => Some(Self::Fair),
            "read_write" => Some(Self::ReadWrite { shares_tokens: false }),
            _ => Some(Self::Semaphore { permits: word.strip_prefix("semaphore:")?.parse().ok()? }),
        }
    }
}

/// One slot of a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
    /// Its number, from 0.
    pub number: u32,
    /// Its fencing token.
    pub token: u64,
}

/// What a hold holds, and so which others it excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// All of a lock.
    #[default]
    Whole,
    /// The lock as its writer.
    Write,
    /// The lock as one of its readers.
    Read,
    /// These slots of a semaphore.
    Slots(Vec<Slot>),
}

/// One tenure, as its holder saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The fencing token, if the library has one; of a permit that of its first slot.
    pub token: Option<u64>,
    /// What it holds.
    pub share: Share,
    /// True if it went ahead of waiters, as an upgrade may.
    pub ahead: bool,
    /// When the acquire was called, or, if the log does not say, when it returned.
    pub called: u64,
    /// When the acquire returned.
    pub from: u64,
    /// Until when its holder held it; `None` for a holder that died, or never saw the lock held.
    pub until: Option<u64>,
    /// When its release had succeeded, if it did.
    pub released: Option<u64>,
}

/// A fault in a history: the earlier of two holds, and the later one, which should not be.
pub type Clash = (Hold, Hold);

/// The findings in a history.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Tenures that started before an earlier one ended that excludes them.
    pub overlaps: Vec<Clash>,
    /// Tokens that were granted twice, or are not larger than a token granted before their acquire was called.
    pub disorder: Vec<Clash>,
    /// Permits of slots that the semaphore does not have, and permits beside which more slots were held than it has.
    pub excess: Vec<Hold>,
}

impl Findings {
    /// Adds the findings of another lock.
    pub fn extend(&mut self, other: Self) {
        self.overlaps.extend(other.overlaps);
        self.disorder.extend(other.disorder);
        self.excess.extend(other.excess);
    }
}

/// Finds the faults in the history of a plain lock.
pub fn check(holds: Vec<Hold>) -> Findings {
    check_as(Kind::Lock, holds)
}

/// Finds the faults in the history of a lock of this kind. Panics if a hold is of another kind.
///
/// For a hold without an end only the token counts, since the time of the hold is unknown.
pub fn check_as(kind: Kind, mut holds: Vec<Hold>) -> Findings {
    holds.sort_by_key(|hold| hold.from);
    let mut findings = Findings::default();
    match kind {
        Kind::Lock | Kind::Fair => {
            assert!(holds.iter().all(|hold| hold.share == Share::Whole), "a hold of another kind");
            check_part(&holds.iter().map(Part::of).collect::<Vec<_>>(), &mut findings);
        }
        Kind::ReadWrite { shares_tokens } => {
            let fits = |hold: &Hold| matches!(hold.share, Share::Read | Share::Write);
            assert!(holds.iter().all(fits), "a hold of another kind");
            let parts: Vec<Part> = holds.iter().map(Part::of).collect();
            check_part(&parts, &mut findings);
            if shares_tokens {
                findings.disorder.extend(tokens::among_readers(&parts));
            }
        }
        Kind::Semaphore { permits } => {
            for slot in 0..permits {
                check_part(
                    &holds.iter().filter_map(|hold| Part::of_slot(hold, slot)).collect::<Vec<_>>(),
                    &mut findings,
                );
            }
            findings.excess = exclusion::excess(&holds, permits);
        }
    }
    findings
}

fn check_part(parts: &[Part<'_>], findings: &mut Findings) {
    findings.overlaps.extend(exclusion::overlaps(parts));
    findings.disorder.extend(tokens::disorder(parts));
}

/// A hold as far as one resource is concerned: a lock, or one slot. The checks get parts in the order of their grants.
#[derive(Clone, Copy)]
struct Part<'a> {
    hold: &'a Hold,
    token: Option<u64>,
    /// True if it excludes all others, false for a reader.
    alone: bool,
}

impl<'a> Part<'a> {
    fn of(hold: &'a Hold) -> Self {
        Self { hold, token: hold.token, alone: hold.share != Share::Read }
    }

    fn of_slot(hold: &'a Hold, number: u32) -> Option<Self> {
        let Share::Slots(slots) = &hold.share else { panic!("a hold of another kind") };
        let slot = slots.iter().find(|slot| slot.number == number)?;
        Some(Self { hold, token: Some(slot.token), alone: true })
    }
}

fn clash(earlier: Part<'_>, later: Part<'_>) -> Clash {
    (earlier.hold.clone(), later.hold.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hold of a lock that was called at the moment of its grant.
    pub(super) fn hold(token: u64, from: u64, until: u64) -> Hold {
        Hold { token: Some(token), called: from, from, until: Some(until), ..Hold::default() }
    }

    pub(super) fn reader(token: u64, from: u64, until: u64) -> Hold {
        Hold { share: Share::Read, ..hold(token, from, until) }
    }

    pub(super) fn writer(token: u64, from: u64, until: u64) -> Hold {
        Hold { share: Share::Write, ..hold(token, from, until) }
    }

    pub(super) fn permit(slots: &[(u32, u64)], from: u64, until: u64) -> Hold {
        let slots: Vec<Slot> = slots.iter().map(|&(number, token)| Slot { number, token }).collect();
        Hold { share: Share::Slots(slots.clone()), ..hold(slots[0].token, from, until) }
    }

    pub(super) const READ_WRITE: Kind = Kind::ReadWrite { shares_tokens: true };
    pub(super) const ON_A_QUORUM: Kind = Kind::ReadWrite { shares_tokens: false };
    pub(super) const SEMAPHORE: Kind = Kind::Semaphore { permits: 3 };

    #[test]
    fn clean_histories_have_no_findings() {
        let lock = vec![hold(2, 20, 30), hold(1, 10, 20), hold(9, 31, 40)];
        assert_eq!(check(lock.clone()), Findings::default());
        assert_eq!(check_as(Kind::Fair, lock), Findings::default());
        let readers = [reader(11, 20, 60), reader(11, 25, 30), reader(11, 59, 70)];
        let writers = [writer(10, 10, 20), writer(20, 70, 80), writer(22, 80, 90)];
        assert_eq!(check_as(READ_WRITE, [&readers[..], &writers].concat()), Findings::default());
        let permits = vec![
            permit(&[(0, 5), (2, 5)], 10, 20),
            permit(&[(1, 4)], 15, 30),
            permit(&[(0, 6)], 20, 40),
            permit(&[(1, 5), (2, 6)], 30, 35),
        ];
        assert_eq!(check_as(SEMAPHORE, permits), Findings::default());
    }

    #[test]
    fn of_a_hold_without_an_end_only_the_token_counts() {
        let (lost, held) = (Hold { until: None, ..hold(1, 25, 0) }, hold(2, 20, 30));
        let called = Hold { called: 1, ..lost };
        assert_eq!(check(vec![called.clone(), held.clone()]), Findings::default());
        let twice = Hold { token: Some(2), ..called };
        assert_eq!(check(vec![twice, held]).disorder.len(), 1);
    }
}
