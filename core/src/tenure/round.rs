//! One round of renewal: the nodes with a request under way, and those that have extended the lease.

use std::time::Duration;

use crate::{
    clock::{Deadline, Stamp},
    quorum::Presence,
};

/// The current round of renewal.
pub(super) struct Round {
    /// When the next attempt or round is due.
    pub(super) next: Deadline,
    /// When its requests were sent.
    pub(super) sent: Stamp,
    /// The state of each node.
    pub(super) nodes: Vec<NodeRound>,
    pub(super) failures: u32,
    pub(super) warned: bool,
    /// The tenure is an orphan: its owner is gone, and neither a lease nor a lock object refers to it.
    pub(super) orphaned: bool,
}

/// The state of one node in a round.
#[derive(Clone)]
pub(super) struct NodeRound {
    /// A renewal is under way.
    pub(super) in_flight: bool,
    /// A repair is under way.
    pub(super) repairing: bool,
    /// The node has extended the lease in this round.
    pub(super) extended: bool,
    /// The token counter lives there at least until then. A new round keeps this.
    pub(super) counter: Deadline,
}

impl Round {
    /// The first round: the acquire itself. `counter_ttl`: the ttl of the token counters that it wrote.
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

    /// Whether a renewal was sent and too few nodes have answered it.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_in_flight() || self.failures > 0
    }

    /// Whether `needed` nodes have extended the lease.
    pub(super) fn is_over(&self, needed: usize) -> bool {
        self.nodes.iter().filter(|node| node.extended).count() >= needed
    }
}
