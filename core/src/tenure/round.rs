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
    /// The same of each node.
    pub(super) nodes: Vec<NodeRound>,
    pub(super) failures: u32,
    pub(super) warned: bool,
    /// The owner is gone and nothing refers to the tenure.
    pub(super) orphaned: bool,
}

/// Where it stands on one node.
#[derive(Clone)]
pub(super) struct NodeRound {
    /// A renewal was sent and is not answered.
    pub(super) in_flight: bool,
    /// The node lacks the tenure, and is asked to take it in again.
    pub(super) repairing: bool,
    /// The node has the lease that this round asks for.
    pub(super) extended: bool,
    /// Until when the token counter lives there, at least. It outlasts rounds.
    pub(super) counter: Deadline,
}

impl Round {
    /// The acquire itself. `counter_ttl`: how long the counters live that it wrote.
    pub(super) fn first(since: Stamp, presences: &[Presence], counter_ttl: Duration) -> Self {
        let node = |presence: &Presence| NodeRound {
            in_flight: false,
            repairing: false,
            extended: matches!(presence, Presence::Held(_)),
            counter: Deadline::new(since, counter_ttl),
        };
        Self {
            next: Deadline::new(since, Duration::ZERO),
            sent: since,
            nodes: presences.iter().map(node).collect(),
            failures: 0,
            warned: false,
            orphaned: false,
        }
    }

    /// Whether a renewal is under way to a node.
    pub(super) fn is_in_flight(&self) -> bool {
        self.nodes.iter().any(|node| node.in_flight)
    }

    /// Whether a renewal was sent and not answered by enough nodes.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_in_flight() || self.failures > 0
    }

    /// Whether so many nodes have the lease that it asks for.
    pub(super) fn is_over(&self, needed: usize) -> bool {
        self.nodes.iter().filter(|node| node.extended).count() >= needed
    }
}
