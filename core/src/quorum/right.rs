//! What an acquire is granted, by a ballot or by the queue of a server. A tenure keeps it; an attach takes it over.

use std::time::Duration;

use super::{FanOut, Presence};
use crate::{clock::Stamp, protocol::reply::Slot, server::SentOn};

/// A right that a quorum granted. It never changes.
pub(crate) struct Right {
    /// Stands for it on the nodes.
    pub(crate) field: String,
    /// Its fencing token; of a permit that of its first slot. An upgrade or downgrade gives its tenure another.
    pub(crate) token: u64,
    /// The slots of a permit, each with its token; empty for a lock.
    pub(crate) slots: Vec<Slot>,
    /// Read before the requests were sent.
    pub(crate) since: Stamp,
    /// The lease that was requested.
    pub(crate) ttl: Duration,
}

/// On which nodes a right is, as far as known at its grant.
#[derive(Default)]
pub(crate) struct Spread {
    /// For each node, whether it is there.
    pub(crate) presences: Vec<Presence>,
    /// The requests without a reply so far.
    pub(crate) late: FanOut,
    /// For each node, the connection that carried the request; empty if no late reply can follow.
    pub(crate) sent: Vec<SentOn>,
}

/// A quorum's grant.
pub(crate) struct Grant {
    pub(crate) right: Right,
    pub(crate) spread: Spread,
}
