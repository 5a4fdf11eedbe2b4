//! The checks, a file each. A check is a pure function from facts to findings.

pub(super) mod clocks;
mod durability;
mod eviction;
mod fleet;
mod hygiene;
mod independence;
pub(super) mod markers;
mod reach;
mod replicas;
mod rights;
mod version;

#[cfg(test)]
pub(super) mod made;

use super::{facts::Facts, finding::Report};

/// A check.
pub(crate) struct Check {
    /// Its name, and the heading of its section in `docs/doctor.md`.
    pub(crate) name: &'static str,
    /// What is true if it finds nothing.
    pub(crate) passed: &'static str,
    pub(crate) run: fn(&Facts) -> Report,
}

/// All checks, in their order.
pub(crate) static CHECKS: [Check; 11] = [
    Check { name: "reach", passed: "all servers answer", run: reach::check },
    Check { name: "version", passed: "all servers have a version and a mode that are tested", run: version::check },
    Check { name: "independence", passed: "each node is a master of its own", run: independence::check },
    Check { name: "clocks", passed: "the clocks agree and run equally fast", run: clocks::check },
    Check { name: "eviction", passed: "no server may evict a lock", run: eviction::check },
    Check { name: "durability", passed: "a restart forgets no lock for long", run: durability::check },
    Check { name: "replicas", passed: "replicas keep up", run: replicas::check },
    Check { name: "markers", passed: "all nodes vote", run: markers::check },
    Check { name: "rights", passed: "the user has all rights that locks need", run: rights::check },
    Check { name: "fleet", passed: "all clients have the same settings", run: fleet::check },
    Check { name: "hygiene", passed: "no server is slow or full", run: hygiene::check },
];
