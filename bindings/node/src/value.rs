//! A value that stands in a lock's key, for drop-in shims of libraries that know a hold by its value alone. Calls start at
//! the [`Loop`](crate::event_loop::Loop).

use std::sync::Arc;

use napi_derive::napi;

/// A value that may stand in the key of a lock, whoever wrote it.
#[napi]
pub struct HeldValue {
    pub(crate) core: redlock::HeldValue,
    /// Its event loop closes clients that are in use.
    pub(crate) _client: Arc<redlock::Client>,
}
