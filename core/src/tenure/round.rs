//! One round of renewal: whom it asked, and who has the lease that it asks for.

use std::time::Duration;

use crate::{
    clock::{Deadline, Stamp},
    quorum::Presence,
};

/// Where the current round of renewal stands.
pub(super) struct Round {
    /// When to look at this tenure next.
    pub(super) next: Deadline,
    /// When its requests were sent.
    pub(super) sent: Stamp,
    pub(super) in_flight: Vec<bool>,
    /// Nodes that lack the tenure and are asked to take it in again.
    pub(super) repairing: Vec<bool>,
    /// Nodes that have the lease that this round asks for.
    pub(super) extended: Vec<bool>,
    pub(super) failures: u32,
    pub(super) warned: bool,
    /// The owner is gone and nothing refers to the tenure.
    pub(super) orphaned: bool,
}

impl Round {
    /// The acquire itself.
    pub(super) fn first(since: Stamp, presences: &[Presence]) -> Self {
        Self {
            next: Deadline::new(since, Duration::ZERO),
            sent: since,
            in_flight: vec![false; presences.len()],
            repairing: vec![false; presences.len()],
            extended: presences.iter().map(|presence| matches!(presence, Presence::Held(_))).collect(),
            failures: 0,
            warned: false,
            orphaned: false,
        }
    }

    /// Whether a renewal was sent and not answered by enough nodes.
    pub(super) fn is_unanswered(&self) -> bool {
        self.in_flight.contains(&true) || self.failures > 0
    }

    /// Whether so many nodes have the lease that it asks for.
    pub(super) fn is_over(&self, needed: usize) -> bool {
        self.extended.iter().filter(|extended| **extended).count() >= needed
    }
}
