//! The names of one lock on the servers.

use crate::config::{Settings, TokenKey};

/// The keys of one lock, and its channel. All of them are in one slot of a cluster.
#[derive(Debug)]
pub(crate) struct Names {
    /// Without the client's prefix.
    pub(crate) name: String,
    /// Who holds it.
    pub(crate) lock: String,
    /// Where its releases are announced.
    pub(crate) channel: String,
    /// The last fencing token.
    pub(crate) counter: String,
    /// Tenures that were ended on purpose.
    pub(crate) ended: String,
    /// How long it is held on average.
    pub(crate) average: String,
}

impl Names {
    /// `lock`: its key, as [`Settings::check_lock`] made it of the name.
    pub(crate) fn new(name: &str, lock: String, settings: &Settings) -> Self {
        // Redisson's rule: braces are added only to a name that has none, so that all keys share a cluster slot.
        let of = |kind: &str| {
            if lock.contains('{') { format!("{kind}:{lock}") } else { format!("{kind}:{{{lock}}}") }
        };
        let counter = match settings.config.token_key {
            TokenKey::Redlock => of("redlock_token"),
            TokenKey::Redisson => of("redisson_lock_token"),
        };
        Self {
            name: name.to_owned(),
            channel: of("redisson_lock__channel"),
            counter,
            ended: of("redlock_ended"),
            average: of("redlock_hold"),
            lock,
        }
    }
}
