//! A lock for JavaScript, with or without a client.

use std::sync::Arc;

use napi::{Env, Result};
use napi_derive::napi;
use redlock::{LockError, Owner, Request, ffi};

use crate::{
    handle::Borrowed,
    values::{Given, NODE, Options, OrThrow, duration, permits, settings, text},
};

/// A lock without a client yet.
#[napi]
pub struct Unbound {
    pub(crate) core: ffi::Unbound,
}

#[napi]
impl Unbound {
    /// Fails if a client with the default options would refuse it. `part`: "read" or "write" of a read/write lock.
    #[napi(constructor)]
    pub fn new(env: &Env, name: Given, options: Option<Options>, part: Option<String>) -> Result<Self> {
        Self::checked(env, unbound(name, options, ffi::Part::named(part.as_deref())))
    }

    /// The same for `n` slots of a semaphore with `of` slots.
    #[napi(factory)]
    pub fn permits(env: &Env, name: Given, options: Option<Options>, n: Given, of: Given) -> Result<Self> {
        Self::checked(env, permits(&n, &of).and_then(|part| unbound(name, options, part)))
    }
}

impl Unbound {
    fn checked(env: &Env, unbound: std::result::Result<ffi::Unbound, LockError>) -> Result<Self> {
        Ok(Self { core: unbound.and_then(|core| core.check().map(|()| core)).or_throw(env)? })
    }
}

/// A lock of a name and options, for a client to come.
pub(crate) fn unbound(
    name: Given,
    options: Option<Options>,
    part: ffi::Part,
) -> std::result::Result<ffi::Unbound, LockError> {
    let options = NODE.lock_options(settings(options.unwrap_or_default()))?;
    Ok(ffi::Unbound { name: text("name", name)?, options, part })
}

/// A lock by name. Calls that take time start at the [`Loop`](crate::event_loop::Loop).
pub struct Lock {
    pub(crate) core: redlock::Lock,
    /// Keeps the client alive: at its end, the event loop closes only clients that are in use.
    pub(crate) _client: Arc<redlock::Client>,
}

impl Lock {
    /// The request of an acquire. Without `wait` the lock's own applies.
    pub(crate) fn request(&self, wait: Option<Given>) -> std::result::Result<Request, LockError> {
        let request = self.core.request(Owner::Fresh);
        match wait {
            Some(wait) => Ok(Request { wait: Some(duration("wait", wait)?), ..request }),
            None => Ok(request),
        }
    }
}

/// Whether this lock object holds the lock. Sends nothing.
#[napi(namespace = "locks")]
pub fn owned(lock: Borrowed<'_, Lock>) -> bool {
    lock.core.owned(&Owner::Fresh)
}
