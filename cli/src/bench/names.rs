//! The names of the locks that a measurement makes up. No other run and no program has them.

use redlock::{Client, LockError};
use uuid::Uuid;

/// The beginning of each name.
const PREFIX: &str = "redlock_bench";

/// The names of one run.
#[derive(Clone, Debug)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// So many names for callers with locks of their own, and one for the lock that they contend for.
    pub(crate) fn new(callers: usize) -> Self {
        let run = Uuid::new_v4();
        Self((0..=callers).map(|number| format!("{PREFIX}:{run}:{number}")).collect())
    }

    /// The locks of the callers.
    pub(crate) fn own(&self) -> &[String] {
        &self.0[1..]
    }

    /// The lock that all contend for. The round trips ask for it, too.
    pub(crate) fn contended(&self) -> &str {
        &self.0[0]
    }

    /// Deletes what the locks left on the servers: their token counters.
    pub(crate) async fn forget(&self, client: &Client) -> Result<(), LockError> {
        client.forget(&self.0).await
    }
}
