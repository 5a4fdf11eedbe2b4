//! The operations that a host can request. Each runs in one of two ways: started, so that its result comes out of the
//! host's queue ([`Calls::start`](super::Calls::start)), or blocking the caller's thread ([`Operation::block`]).

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

/// An operation on a lock, a lease, a value or a client. Each says which [`Value`] it results in.
pub enum Operation<'a> {
    /// Acquires the lock: a `Lease`.
    Acquire(&'a Lock, Request),
    /// `lock.release()`: `Released`.
    ReleaseNewest(&'a Lock, Owner),
    /// Releases the newest lease of this owner at the end of a block, and fails if the lock was lost: `Nothing`.
    LeaveNewest(&'a Lock, Owner),
    /// `lock.locked()`: a `Flag`.
    Locked(&'a Lock),
    /// `lock.inspect()`: an `Info`.
    Inspect(&'a Lock),
    /// How many slots of a semaphore are free: a `Count`.
    Available(&'a Lock),
    /// `lease.release()`: `Released`.
    Release(&'a Lease),
    /// Releases a lease at the end of its block, and fails if the lock was lost: `Nothing`.
    Leave(&'a Lease),
    /// `lease.extend()`: `Nothing`.
    Extend(&'a Lease, Duration),
    /// `lease.downgrade()`: `Nothing`.
    Downgrade(&'a Lease),
    /// `lease.try_upgrade()`: a `Flag`.
    TryUpgrade(&'a Lease),
    /// Waits for the end of a lease, for the given time at most: `Lost`. Giving it up ends only the waiting.
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
    /// Waits for events: `Events`.
    Events(&'a Events),
}

impl<'a> Operation<'a> {
    /// The name of its lock; empty if it has none.
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

    /// Runs it and blocks until it is done. `check` runs every 50 ms, and its error ends the call: an acquire then
    /// leaves no lock behind, a release continues in the background.
    pub fn block<E: From<LockError>>(self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<Value, E> {
        let name = self.name();
        match self {
            Self::Acquire(lock, request) => {
                lock.acquire_interruptible(Request { blocking: true, ..request }, check).map(Value::Lease)
            }
            Self::ReleaseNewest(lock, owner) => lock.release_interruptible(&owner, check).map(Value::from),
            Self::LeaveNewest(lock, owner) => lock.leave_interruptible(&owner, check).map(Value::from),
            Self::Locked(lock) => block_on(name, lock.locked().map_ok(Value::Flag), check),
            Self::Inspect(lock) => block_on(name, lock.inspect().map_ok(Value::from), check),
            Self::Available(lock) => block_on(name, lock.available().map_ok(Value::Count), check),
            Self::Release(lease) => lease.release_interruptible(check).map(Value::from),
            Self::Leave(lease) => lease.leave_interruptible(check).map(Value::from),
            Self::Extend(lease, ttl) => lease.extend_interruptible(ttl, check).map(Value::from),
            Self::Downgrade(lease) => lease.downgrade_interruptible(check).map(Value::from),
            Self::TryUpgrade(lease) => lease.try_upgrade_interruptible(check).map(Value::Flag),
            Self::Lost(lease, limit) => block_on(name, lost(lease, limit), check),
            Self::ReleaseValue(value) => value.release_interruptible(check).map(Value::Flag),
            Self::RetimeValue(value, how, millis) => value.retime_interruptible(how, millis, check).map(Value::Flag),
            Self::IsValueThere(value) => value.is_there_interruptible(check).map(Value::Flag),
            Self::Ping(client) => block_on(name, client.ping().map_ok(Value::from), check),
            Self::ForceRelease(client, lock) => block_on(name, client.force_release(lock).map_ok(Value::Flag), check),
            Self::InitNodes(client) => block_on(name, client.init_nodes().map_ok(Value::from), check),
            Self::Attach(client, text, owner) => block_on(name, client.attach(text, owner).map_ok(Value::Lease), check),
            Self::Close(client) => block_on(name, close(client), check),
            Self::Events(events) => block_on(name, happened(events), check),
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

/// The error in a child of a fork for a call on this lock that was started in the parent.
pub fn forked(name: &str) -> LockError {
    LockError::forked(name)
}

fn block_on<E: From<LockError>>(
    name: &str,
    future: impl Future<Output = Outcome>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<Value, E> {
    Ok(until(name, future, check)??)
}

/// Blocks until a future is done. `check` runs every 50 ms, and its error ends that. `name`: the lock that the error
/// names if the process forks meanwhile.
pub fn until<T, E: From<LockError>>(
    name: &str,
    future: impl Future<Output = T>,
    check: &mut dyn FnMut() -> Result<(), E>,
) -> Result<T, E> {
    runtime::block(Driver::Background, future, check).map_err(|interrupted| interrupted.error(name))
}

/// Closes every client of the process; blocks for one second at most. `check` runs every 50 ms, and its error ends
/// that.
pub fn close_all<E: From<LockError>>(check: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
    if !runtime::thread_has_ended() {
        return until("", exit::close_all(), check);
    }
    // This thread can run no future any more, so another one does. If none can be started, the locks end with their
    // ttl.
    if let Ok(closing) = thread::Builder::new().spawn(|| block(exit::close_all())) {
        let _ = closing.join();
    }
    Ok(())
}

/// Blocks until a future is done, without a check: for the end of the process. `None` in a child of a fork, and on a
/// thread whose local values are gone.
pub fn block<T>(future: impl Future<Output = T>) -> Option<T> {
    until("", future, &mut || Ok::<_, LockError>(())).ok()
}
