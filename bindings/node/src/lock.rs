//! A lock as JavaScript holds it. Calls that take time start at the [`Loop`](crate::event_loop::Loop).

use std::sync::Arc;

use napi_derive::napi;
use redlock::Owner;

/// A lock by name.
#[napi]
pub struct Lock {
    pub(crate) core: redlock::Lock,
    /// Its event loop closes clients that are in use.
    pub(crate) _client: Arc<redlock::Client>,
}

#[napi]
impl Lock {
    /// Whether this lock object holds the lock. Asks nobody.
    #[napi]
    pub fn owned(&self) -> bool {
        self.core.owned(&Owner::Fresh)
    }
}
