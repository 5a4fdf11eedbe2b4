//! A lease as JavaScript holds it. The garbage collector decides when it ends, so that releases nothing.

use napi::{Env, Result};
use napi_derive::napi;
use redlock::Lease;

use crate::{
    handle::Held,
    values::{NODE, OrThrow},
};

/// The lock's name, without the client's prefix.
#[napi(namespace = "leases")]
pub fn name(lease: Held<'_, Lease>) -> String {
    lease.name().to_owned()
}

/// The explicit owner, or `uuid:tenure`.
#[napi(namespace = "leases")]
pub fn owner(lease: Held<'_, Lease>) -> String {
    lease.owner().to_owned()
}

/// The fencing token.
#[napi(namespace = "leases")]
pub fn token(lease: Held<'_, Lease>) -> u64 {
    lease.token()
}

/// The slots that it has of a semaphore.
#[napi(namespace = "leases")]
pub fn slots(lease: Held<'_, Lease>) -> Vec<u32> {
    lease.slots().iter().map(|slot| slot.number).collect()
}

/// The fencing tokens of its slots.
#[napi(namespace = "leases")]
pub fn tokens(lease: Held<'_, Lease>) -> Vec<u64> {
    lease.slots().iter().map(|slot| slot.token).collect()
}

/// Whether the lock is held, right now.
#[napi(namespace = "leases")]
pub fn held(lease: Held<'_, Lease>) -> bool {
    lease.held()
}

/// Why it was lost, if it was.
#[napi(namespace = "leases")]
pub fn lost_reason(lease: Held<'_, Lease>) -> Option<&'static str> {
    lease.lost_reason().map(redlock::LostReason::as_str)
}

/// Milliseconds for which it is held unless it is renewed.
#[napi(namespace = "leases")]
pub fn remaining(lease: Held<'_, Lease>) -> f64 {
    NODE.number(lease.remaining())
}

/// Fails after a loss, a release or `detach()`.
#[napi(namespace = "leases")]
pub fn check(env: &Env, lease: Held<'_, Lease>) -> Result<()> {
    lease.check().or_throw(env)
}

/// For drop-in shims: stops everything about it and leaves the key alone.
#[napi(namespace = "leases")]
pub fn let_go(env: &Env, lease: Held<'_, Lease>) -> Result<()> {
    lease.let_go().or_throw(env)
}

/// Lets go of the lock without releasing it.
#[napi(namespace = "leases")]
pub fn detach(env: &Env, lease: Held<'_, Lease>) -> Result<String> {
    lease.detach().or_throw(env)
}
