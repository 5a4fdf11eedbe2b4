//! A lock as JavaScript holds it.

use std::sync::Arc;

use napi::{Env, Result};
use napi_derive::napi;
use redlock::{LockError, Owner, Request, ffi};

use crate::{
    handle::Held,
    values::{Given, NODE, Options, OrThrow, duration, permits, settings, text},
};

/// A lock whose client is not known yet.
#[napi]
pub struct Unbound {
    pub(crate) core: ffi::Unbound,
}

#[napi]
impl Unbound {
    /// Refuses what a client with the default options would refuse. `part`: "read" or "write" of a read/write lock.
    #[napi(constructor)]
    pub fn new(env: &Env, name: Given, options: Option<Options>, part: Option<String>) -> Result<Self> {
        Self::checked(env, unbound(name, options, ffi::Part::named(part.as_deref())))
    }

    /// The same, of `n` slots of a semaphore that has `of`.
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

/// A name and options, for whichever client.
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
    /// Its event loop closes clients that are in use.
    pub(crate) _client: Arc<redlock::Client>,
}

impl Lock {
    /// An acquire; without `wait` it waits as long as the lock says.
    pub(crate) fn request(&self, wait: Option<Given>) -> std::result::Result<Request, LockError> {
        let request = self.core.request(Owner::Fresh);
        match wait {
            Some(wait) => Ok(Request { wait: Some(duration("wait", wait)?), ..request }),
            None => Ok(request),
        }
    }
}

/// Whether this lock object holds the lock. Asks nobody.
#[napi(namespace = "locks")]
pub fn owned(lock: Held<'_, Lock>) -> bool {
    lock.core.owned(&Owner::Fresh)
}
