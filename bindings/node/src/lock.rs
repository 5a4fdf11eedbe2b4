//! A lock as JavaScript holds it. Calls that take time start at the [`Loop`](crate::event_loop::Loop).

use std::sync::Arc;

use napi_derive::napi;
use redlock::{LockError, Owner, Request};

use crate::values::{Given, duration};

/// A lock by name.
#[napi]
pub struct Lock {
    pub(crate) core: redlock::Lock,
    /// Its event loop closes clients that are in use.
    pub(crate) _client: Arc<redlock::Client>,
}

impl Lock {
    /// An acquire; without `wait` it waits as long as the lock says.
    pub(crate) fn request(&self, wait: Option<Given>) -> Result<Request, LockError> {
        let request = self.core.request(Owner::Fresh);
        match wait {
            Some(wait) => Ok(Request { wait: Some(duration("wait", wait)?), ..request }),
            None => Ok(request),
        }
    }
}

#[napi]
impl Lock {
    /// Whether this lock object holds the lock. Asks nobody.
    #[napi]
    pub fn owned(&self) -> bool {
        self.core.owned(&Owner::Fresh)
    }
}
