//! The list of what a host may ask for. It is driven in one of two ways: started, so that it ends in the host's queue
//! ([`Calls::start`](super::Calls::start)), or blocking the caller's thread ([`Operation::block`]).

use std::{future::Future, thread, time::Duration};

use futures_util::{FutureExt, TryFutureExt};

use crate::{
    acquire::claimant::Request,
    client::Client,
    compat::{HeldValue, Retime},
    error::{LockError, LostReason},
    ffi::{
        completions::within,
        events::Events,
        outcome::{Outcome, Value},
    },
    lease::Lease,
    lock::Lock,
    owner::Owner,
    process::{driver::Driver, exit, runtime},
};

/// What is done with a lock, a lease, a value or a client, and what it results in.
pub enum Operation<'a> {
    /// Takes the lock: a `Lease`.
    Acquire(&'a Lock, Request),
    /// `lock.release()`: `Released`.
    ReleaseNewest(&'a Lock, Owner),
    /// Ends a block of this owner: `Nothing`.
    LeaveNewest(&'a Lock, Owner),
    /// `lock.locked()`: a `Flag`.
    Locked(&'a Lock),
    /// `lock.inspect()`: an `Info`.
    Inspect(&'a Lock),
    /// How many slots of a semaphore are free: a `Count`.
    Available(&'a Lock),
    /// `lease.release()`: `Released`.
    Release(&'a Lease),
    /// Ends the block of a lease: `Nothing`.
    Leave(&'a Lease),
    /// `lease.extend()`: `Nothing`.
    Extend(&'a Lease, Duration),
    /// `lease.downgrade()`: `Nothing`.
    Downgrade(&'a Lease),
    /// `lease.try_upgrade()`: a `Flag`.
    TryUpgrade(&'a Lease),
    /// Waits for the end of a lease, no longer than that: `Lost`. Giving it up ends the waiting and nothing else.
    Lost(&'a Lease, Option<Duration>),
    /// `value.release()`: a `Flag`.
    ReleaseValue(&'a HeldValue),
    /// `value.retime()`: a `Flag`.
    RetimeValue(&'a HeldValue, Retime, i64),
    /// `value.is_there()`: a `Flag`.
    IsValueThere(&'a HeldValue),
    /// `client.ping()`: `Nodes`.
    Ping(&'a Client),
    /// `client.force_release()`: a `Flag`.
    ForceRelease(&'a Client, &'a str),
    /// `client.init_nodes()`: `Nothing`.
    InitNodes(&'a Client),
    /// `client.attach()`: a `Lease`.
    Attach(&'a Client, &'a str, Owner),
    /// `client.close()`: `Nothing`.
    Close(&'a Client),
    /// Waits until something happened: `Events`.
    Events(&'a Events),
}

impl<'a> Operation<'a> {
    /// The lock that it is about; empty if it is about none.
    pub fn name(&self) -> &'a str {
        match self {
            Self::Acquire(lock, _)
            | Self::ReleaseNewest(lock, _)
            | Self::LeaveNewest(lock, _)
            | Self::Locked(lock)
            | Self::Inspect(lock)
            | Self::Available(lock) => lock.name(),
            Self::Release(lease)
            | Self::Leave(lease)
            | Self::Extend(lease, _)
            | Self::Downgrade(lease)
            | Self::TryUpgrade(lease)
            | Self::Lost(lease, _) => lease.name(),
            Self::ReleaseValue(value) | Self::RetimeValue(value, ..) | Self::IsValueThere(value) => value.name(),
            Self::ForceRelease(_, name) => name,
            Self::Ping(_) | Self::InitNodes(_) | Self::Attach(..) | Self::Close(_) | Self::Events(_) => "",
        }
    }

    /// Does it and blocks until it is done. `check` runs every 50 ms and may end the call: an acquire then leaves nothing
    /// behind, a release goes on.
    pub fn block<E: From<LockError>>(self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<Value, E> {
        let name = self.name();
        match self {
            Self::Acquire(lock, request) => {
                lock.acquire_blocking(Request { blocking: true, ..request }, check).map(Value::Lease)
            }
            Self::ReleaseNewest(lock, owner) => lock.release_blocking(&owner, check).map(Value::from),
            Self::LeaveNewest(lock, owner) => lock.leave_blocking(&owner, check).map(Value::from),
            Self::Locked(lock) => see(name, lock.locked().map_ok(Value::Flag), check),
            Self::Inspect(lock) => see(name, lock.inspect().map_ok(Value::Info), check),
            Self::Available(lock) => see(name, lock.available().map_ok(Value::Count), check),
            Self::Release(lease) => lease.release_blocking(check).map(Value::from),
            Self::Leave(lease) => lease.leave_blocking(check).map(Value::from),
            Self::Extend(lease, ttl) => lease.extend_blocking(ttl, check).map(Value::from),
            Self::Downgrade(lease) => lease.downgrade_blocking(check).map(Value::from),
            Self::TryUpgrade(lease) => lease.try_upgrade_blocking(check).map(Value::Flag),
            Self::Lost(lease, limit) => see(name, lost(lease, limit), check),
            Self::ReleaseValue(value) => value.release_blocking(check).map(Value::Flag),
            Self::RetimeValue(value, how, millis) => value.retime_blocking(how, millis, check).map(Value::Flag),
            Self::IsValueThere(value) => value.is_there_blocking(check).map(Value::Flag),
            Self::Ping(client) => see(name, client.ping().map_ok(Value::from), check),
            Self::ForceRelease(client, lock) => see(name, client.force_release(lock).map_ok(Value::Flag), check),
            Self::InitNodes(client) => see(name, client.init_nodes().map_ok(Value::from), check),
            Self::Attach(client, text, owner) => see(name, client.attach(text, owner).map_ok(Value::Lease), check),
            Self::Close(client) => see(name, close(client), check),
            Self::Events(events) => see(name, happened(events), check),
        }
    }
}

pub(super) fn lost(lease: &Lease, limit: Option<Duration>) -> impl Future<Output = Outcome> + Send + use<> {
    let lost = lease.lost();
    async move { Ok(Value::Lost(within(limit, lost).await.flatten().map(LostReason::as_str))) }
}

pub(super) fn close(client: &Client) -> impl Future<Output = Outcome> + Send + use<> {
    let closed = client.close();
    closed.map(|()| Ok(Value::Nothing))
}

pub(super) fn happened(events: &Events) -> impl Future<Output = Outcome> + Send + use<> {
    let events = events.clone();
    async move { Ok(Value::Events(events.next().await)) }
}

/// What is told of a lock in a child of a fork, to who waited for it in the parent.
pub fn forked(name: &str) -> LockError {
    LockError::forked(name)
}

fn see<E: From<LockError>>(
    name: &str,
    future: impl Future<Output = Outcome>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Value, E> {
    Ok(until(name, future, check)??)
}

/// Blocks until a future is done; `check` runs every 50 ms and may end that. `name` is what it is about, should the
/// process fork meanwhile.
pub fn until<T, E: From<LockError>>(
    name: &str,
    future: impl Future<Output = T>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<T, E> {
    runtime::block(Driver::Background, future, check).map_err(|interrupted| interrupted.error(name))
}

/// Closes every client of the process within a second, and blocks meanwhile. `check` runs every 50 ms and may end that.
pub fn close_all<E: From<LockError>>(check: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
    if !runtime::thread_has_ended() {
        return until("", exit::close_all(), check);
    }
    // Where no thread can be started, locks end with their leases.
    if let Ok(closing) = thread::Builder::new().spawn(|| block(exit::close_all())) {
        let _ = closing.join();
    }
    Ok(())
}

/// Blocks until a future is done, whatever happens meanwhile: for what comes last. `None` in a child of a fork.
pub fn block<T>(future: impl Future<Output = T>) -> Option<T> {
    until("", future, &mut || Ok::<_, LockError>(())).ok()
}
