//! A value in a lock's key, for drop-in shims of libraries that know a held lock by its value alone.
//! [`Loop`](crate::event_loop::Loop) has the calls for it.

use std::sync::Arc;

use napi_derive::napi;

/// A value that may be in the key of a lock, whichever process wrote it.
#[napi]
pub struct HeldValue {
    pub(crate) core: redlock::HeldValue,
    /// Keeps the client alive: at its end, the event loop closes only clients that are in use.
    pub(crate) _client: Arc<redlock::Client>,
}
