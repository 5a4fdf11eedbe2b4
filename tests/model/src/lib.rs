//! The protocol as explicit models. In every reachable state of a bounded configuration all properties must hold, and
//! without a rule its configuration must break. `docs/proof.md` says what that proves; `tests/model.rs` runs it.

// Only the crate's own test uses this. The names of events and settings say what a comment would repeat.
#![allow(missing_docs)]

pub mod checker;
pub mod configurations;
pub mod exclusion;
pub mod hand_over;
pub mod min_hold;
pub mod read_write;
pub mod resource;
pub mod slots;
pub mod tokens;

use checker::{Outcome, search};
use configurations::{Configuration, Subject};
use exclusion::Exclusion;
use hand_over::HandOver;
use min_hold::MinHold;
use read_write::ReadWrite;
use resource::Schedules;
use slots::Slots;
use tokens::Tokens;

/// The result of one configuration.
#[derive(Debug)]
pub enum Result {
    Searched(Outcome),
    Scheduled(Schedules),
}

/// Searches a configuration up to `limit` states.
///
/// # Panics
/// If `run` has no case for the configuration's number of nodes.
#[must_use]
pub fn run(configuration: &Configuration, limit: usize) -> Result {
    Result::Searched(match (configuration.subject, configuration.nodes) {
        (Subject::Exclusion(config), 1) => search(&Exclusion::<2>::new(config), limit),
        (Subject::Exclusion(config), 3) => search(&Exclusion::<4>::new(config), limit),
        (Subject::Exclusion(config), 4) => search(&Exclusion::<5>::new(config), limit),
        (Subject::Exclusion(config), 5) => search(&Exclusion::<6>::new(config), limit),
        (Subject::Tokens(config), 1) => search(&Tokens::<2>::new(config), limit),
        (Subject::Tokens(config), 3) => search(&Tokens::<4>::new(config), limit),
        (Subject::Tokens(config), 5) => search(&Tokens::<6>::new(config), limit),
        (Subject::ReadWrite(config), 3) => search(&ReadWrite::<4>::new(config), limit),
        (Subject::ReadWrite(config), 5) => search(&ReadWrite::<6>::new(config), limit),
        (Subject::Slots(config), 3) => search(&Slots::<4>::new(config), limit),
        (Subject::Slots(config), 5) => search(&Slots::<6>::new(config), limit),
        (Subject::MinHold(config), 1) => search(&MinHold::<2>::new(config), limit),
        (Subject::MinHold(config), 3) => search(&MinHold::<4>::new(config), limit),
        (Subject::HandOver(config), 1) => search(&HandOver::new(config), limit),
        (Subject::Resource(config), _) => return Result::Scheduled(resource::schedules(&config)),
        (_, nodes) => unreachable!("no configuration has {nodes} nodes"),
    })
}
