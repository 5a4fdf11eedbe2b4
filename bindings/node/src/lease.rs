//! The functions of a lease. Collecting a lease releases nothing, since the garbage collector may do so at any time.

use napi::{Env, Result};
use napi_derive::napi;
use redlock::Lease;

use crate::{
    handle::Borrowed,
    values::{NODE, OrThrow},
};

/// The lock's name, without the client's prefix.
#[napi(namespace = "leases")]
pub fn name(lease: Borrowed<'_, Lease>) -> String {
    lease.name().to_owned()
}

/// The explicit owner, or `uuid:tenure`.
#[napi(namespace = "leases")]
pub fn owner(lease: Borrowed<'_, Lease>) -> String {
    lease.owner().to_owned()
}

/// The fencing token.
#[napi(namespace = "leases")]
pub fn token(lease: Borrowed<'_, Lease>) -> u64 {
    lease.token()
}

/// The numbers of a permit's slots; empty for a lock.
#[napi(namespace = "leases")]
pub fn slots(lease: Borrowed<'_, Lease>) -> Vec<u32> {
    lease.slots().iter().map(|slot| slot.number).collect()
}

/// The fencing tokens of a permit's slots; empty for a lock.
#[napi(namespace = "leases")]
pub fn tokens(lease: Borrowed<'_, Lease>) -> Vec<u64> {
    lease.slots().iter().map(|slot| slot.token).collect()
}

/// Whether the lock is held now.
#[napi(namespace = "leases")]
pub fn held(lease: Borrowed<'_, Lease>) -> bool {
    lease.held()
}

/// Why it was lost, if it was.
#[napi(namespace = "leases")]
pub fn lost_reason(lease: Borrowed<'_, Lease>) -> Option<&'static str> {
    lease.lost_reason().map(redlock::LostReason::as_str)
}

/// Milliseconds until the lease ends, unless it is renewed.
#[napi(namespace = "leases")]
pub fn remaining(lease: Borrowed<'_, Lease>) -> f64 {
    NODE.number(lease.remaining())
}

/// Fails after a loss, a release or `detach()`.
#[napi(namespace = "leases")]
pub fn check(env: &Env, lease: Borrowed<'_, Lease>) -> Result<()> {
    lease.check().or_throw(env)
}

/// For drop-in shims: ends the lease here and leaves its key on the nodes.
#[napi(namespace = "leases")]
pub fn let_go(env: &Env, lease: Borrowed<'_, Lease>) -> Result<()> {
    lease.let_go().or_throw(env)
}

/// Ends the lease without releasing the lock; returns the text for `attach`.
#[napi(namespace = "leases")]
pub fn detach(env: &Env, lease: Borrowed<'_, Lease>) -> Result<String> {
    lease.detach().or_throw(env)
}
