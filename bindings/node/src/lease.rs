//! A lease as JavaScript holds it. The garbage collector decides when it ends, so that releases nothing.

use napi::{Env, Result};
use napi_derive::napi;

use crate::values::{NODE, OrThrow};

/// A held lock.
#[napi]
pub struct Lease {
    pub(crate) core: redlock::Lease,
}

#[napi]
impl Lease {
    /// The lock's name, without the client's prefix.
    #[napi(getter)]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// The explicit owner, or `uuid:tenure`.
    #[napi(getter)]
    pub fn owner(&self) -> &str {
        self.core.owner()
    }

    /// The fencing token.
    #[napi(getter)]
    pub fn token(&self) -> u64 {
        self.core.token()
    }

    /// Whether the lock is held, right now.
    #[napi(getter)]
    pub fn held(&self) -> bool {
        self.core.held()
    }

    /// Why it was lost, if it was.
    #[napi(getter)]
    pub fn lost_reason(&self) -> Option<&'static str> {
        self.core.lost_reason().map(redlock::LostReason::as_str)
    }

    /// Milliseconds for which it is held unless it is renewed.
    #[napi]
    pub fn remaining(&self) -> f64 {
        NODE.number(self.core.remaining())
    }

    /// Fails after a loss, a release or `detach()`.
    #[napi]
    pub fn check(&self, env: &Env) -> Result<()> {
        self.core.check().or_throw(env)
    }

    /// For drop-in shims: stops everything about it and leaves the key alone.
    #[napi]
    pub fn let_go(&self, env: &Env) -> Result<()> {
        self.core.let_go().or_throw(env)
    }

    /// Lets go of the lock without releasing it.
    #[napi]
    pub fn detach(&self, env: &Env) -> Result<String> {
        self.core.detach().or_throw(env)
    }
}
