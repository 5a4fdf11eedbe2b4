//! Validated settings, and the times that follow from them.

use std::time::Duration;

use super::{Config, NEVER, TokenKey};
use crate::url::{Endpoint, Transport};

/// The shortest `token_ttl`: in each half of it, every held lock sends a request to prolong its counter.
const MIN_TOKEN_TTL: Duration = Duration::from_secs(60);
/// The default `token_ttl`.
const TOKEN_TTL: Duration = Duration::from_secs(3600);
/// Subtracted from a lease's validity in addition to the drift: the resolution of Redis' own clock, with room.
const RESOLUTION: Duration = Duration::from_millis(2);

/// How long a token counter must live for a lease of `ttl`: as long as the lease, but zero for a lease without end.
/// Otherwise such a lease would keep its counter for ever, long after its release.
fn least_counter_ttl(ttl: Duration) -> Duration {
    if ttl == NEVER { Duration::ZERO } else { ttl }
}

/// A validated configuration.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) quorum: usize,
    /// The number of nodes.
    pub(super) node_count: usize,
}

impl Settings {
    /// How long a lease of `ttl` counts as held, from the moment its request was sent.
    pub(crate) fn validity(&self, ttl: Duration) -> Duration {
        if mutant!(NoMargin) {
            return ttl;
        }
        ttl.mul_f64(1.0 - self.config.drift).saturating_sub(RESOLUTION)
    }

    /// How long a node that lost its keys does not vote.
    pub(crate) fn quarantine(&self) -> Duration {
        self.config.max_ttl.mul_f64(1.0 + self.config.drift)
    }

    /// How long a counter is kept after its last use; `None` for ever.
    pub(crate) fn token_ttl(&self) -> Option<Duration> {
        match self.config.token_key {
            TokenKey::Redlock => Some(self.own_token_ttl()),
            TokenKey::Redisson => None,
        }
    }

    /// How long a counter that is not Redisson's is kept after its last use.
    fn own_token_ttl(&self) -> Duration {
        self.config.token_ttl.unwrap_or(TOKEN_TTL.max(self.least_token_ttl()))
    }

    /// How long a counter is kept after an acquire with a lease of `ttl` wrote it; `None` for ever.
    pub(crate) fn counter_ttl(&self, ttl: Duration) -> Option<Duration> {
        self.token_ttl().map(|kept| kept.max(least_counter_ttl(ttl)))
    }

    /// How long the tokens of a semaphore's slots are kept after their last use. These are not Redisson's, whatever the
    /// token key.
    pub(crate) fn slot_token_ttl(&self) -> Duration {
        self.own_token_ttl().max(least_counter_ttl(Duration::ZERO))
    }

    /// How long a counter is kept after it was prolonged for a lease of `ttl`; `None` for ever. Half of it is at least
    /// the lease: a counter is prolonged when less than half is left, and so outlives every lease.
    pub(crate) fn prolonged_counter_ttl(&self, ttl: Duration) -> Option<Duration> {
        self.token_ttl().map(|kept| kept.max(least_counter_ttl(ttl) * 2))
    }

    /// The shortest `token_ttl` of this deployment. A node that lost its counters starts from its clock when it votes
    /// again; until then no counter that other nodes still have may expire.
    pub(super) fn least_token_ttl(&self) -> Duration {
        if self.node_count > 1 { self.quarantine().max(MIN_TOKEN_TTL) } else { MIN_TOKEN_TTL }
    }

    /// Whether nodes have markers: only if several nodes vote.
    pub(crate) fn uses_markers(&self) -> bool {
        self.node_count > 1 && self.config.quarantine
    }

    /// Whether any node is a cluster.
    pub(crate) fn on_cluster(&self) -> bool {
        self.endpoints.iter().any(|endpoint| matches!(endpoint.transport, Transport::Cluster { .. }))
    }

    /// How long to wait for a reply that is of no use once `left` is over.
    pub(crate) fn reply_within(&self, left: Duration) -> Duration {
        self.config.reply_timeout.min(left).max(Duration::from_millis(1))
    }

    /// How long to wait for a reply to a request about a lease of `ttl`.
    pub(crate) fn reply_timeout(&self, ttl: Duration) -> Duration {
        self.reply_within(self.validity(ttl))
    }
}
