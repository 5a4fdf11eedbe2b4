//! A lock, for coroutines and for threads. For coroutines each acquire is an owner of its own; a thread is the owner of
//! what it acquires.
//!
//! A method that starts a call returns its number. The word behind the colon in its comment is the `Outcome` with which the
//! call ends.

use redlock::{
    Owner, Request,
    ffi::{
        self,
        Operation::{Acquire, Available, Inspect, LeaveNewest, Locked, ReleaseNewest},
        Setting,
    },
};

use crate::{
    calls::{check, start},
    values::{Fallible, IDIOM, Settings, options, wait},
};

/// A thread of the JVM as an owner. The thread refers to it; the thread's locks are renewed until it is collected.
#[derive(uniffi::Object)]
pub(crate) struct Identity(redlock::Identity);

#[uniffi::export]
impl Identity {
    /// A new identity, different from all others.
    #[uniffi::constructor]
    #[allow(clippy::new_without_default, reason = "each is different")]
    pub(crate) fn new() -> Self {
        Self(redlock::Identity::new())
    }
}

impl Identity {
    fn owner(&self) -> Owner {
        Owner::Ambient(self.0.clone())
    }
}

/// Fails if a client with the default options would refuse the name or an option. `part` as for [`unbound`].
#[uniffi::export]
pub(crate) fn check_lock(name: String, settings: Settings, part: &str) -> Fallible<()> {
    Ok(unbound(name, settings, part)?.check()?)
}

/// [`check_lock`] for `n` of the `of` slots of a semaphore.
#[uniffi::export]
pub(crate) fn check_permits(name: String, settings: Settings, n: i32, of: i32) -> Fallible<()> {
    Ok(permits(name, settings, n, of)?.check()?)
}

/// `n` of the `of` slots of a semaphore, not bound to a client yet.
pub(crate) fn permits(name: String, settings: Settings, n: i32, of: i32) -> Fallible<ffi::Unbound> {
    let part = ffi::Part::permits(&Setting::Number(n.into()), &Setting::Number(of.into()))?;
    Ok(ffi::Unbound { name, options: IDIOM.lock_options(options(settings))?, part })
}

/// A name and options, not bound to a client yet. `part` is "read" or "write" for a read/write lock, else empty.
pub(crate) fn unbound(name: String, settings: Settings, part: &str) -> Fallible<ffi::Unbound> {
    Ok(ffi::Unbound { name, options: IDIOM.lock_options(options(settings))?, part: ffi::Part::named(Some(part)) })
}

/// A lock by name.
#[derive(uniffi::Object)]
pub(crate) struct Lock {
    core: redlock::Lock,
}

impl From<redlock::Lock> for Lock {
    fn from(core: redlock::Lock) -> Self {
        Self { core }
    }
}

fn request(owner: Owner, wait_ms: f64, thread: Option<i64>) -> Fallible<Request> {
    let blocking = thread.is_some();
    Ok(Request { owner, wait: wait(wait_ms)?, thread: thread.map(i64::cast_unsigned), blocking })
}

#[uniffi::export]
impl Lock {
    /// Starts an acquire with an owner of its own: `Leased`.
    pub(crate) fn acquire(&self, wait_ms: f64) -> Fallible<i64> {
        start(Acquire(&self.core, request(Owner::Fresh, wait_ms, None)?))
    }

    /// Starts an acquire with an owner of its own, for a thread that blocks on it in Kotlin: `Leased`.
    pub(crate) fn acquire_blocking(&self, wait_ms: f64, thread: i64) -> Fallible<i64> {
        start(Acquire(&self.core, request(Owner::Fresh, wait_ms, Some(thread))?))
    }

    /// Starts an acquire owned by a thread that blocks on it in Kotlin: `Leased`.
    pub(crate) fn acquire_as(&self, owner: &Identity, wait_ms: f64, thread: i64) -> Fallible<i64> {
        start(Acquire(&self.core, request(owner.owner(), wait_ms, Some(thread))?))
    }

    /// Acquires the lock for a thread and blocks the thread until the grant. Returns no lease: the thread is the owner.
    pub(crate) fn lock(&self, owner: &Identity, wait_ms: f64, thread: i64, interruptible: bool) -> Fallible<()> {
        let request = request(owner.owner(), wait_ms, Some(thread))?;
        self.core.acquire_interruptible(request, &mut check(interruptible)).map(|lease| lease.disable_release_on_drop())
    }

    /// Releases the newest lease of a thread and blocks until it is released. Fails with `lost` if the lock was lost.
    pub(crate) fn unlock(&self, owner: &Identity) -> Fallible<()> {
        self.core.leave_interruptible(&owner.owner(), &mut check(false))
    }

    /// Starts `unlock`, for a thread that blocks on it in Kotlin: `Nothing`.
    pub(crate) fn unlock_as(&self, owner: &Identity) -> Fallible<i64> {
        start(LeaveNewest(&self.core, owner.owner()))
    }

    /// Whether a thread holds the lock. Sends nothing.
    pub(crate) fn owned_by(&self, owner: &Identity) -> bool {
        self.core.owned(&owner.owner())
    }

    /// The fencing token of a thread; `None` if it does not hold the lock. Sends nothing.
    pub(crate) fn token_of(&self, owner: &Identity) -> Option<i64> {
        self.core.token(&owner.owner()).map(u64::cast_signed)
    }

    /// Whether this lock object holds the lock. Sends nothing.
    pub(crate) fn owned(&self) -> bool {
        self.core.owned(&Owner::Fresh)
    }

    /// Starts to release the newest lease of this lock object: `Released`.
    pub(crate) fn release(&self) -> Fallible<i64> {
        start(ReleaseNewest(&self.core, Owner::Fresh))
    }

    /// Starts to read whether the lock has a holder: a `Flag`.
    pub(crate) fn locked(&self) -> Fallible<i64> {
        start(Locked(&self.core))
    }

    /// Starts to read how many slots of the semaphore are free: a `Count`.
    pub(crate) fn available(&self) -> Fallible<i64> {
        start(Available(&self.core))
    }

    /// Starts to read the holder: `Info`.
    pub(crate) fn inspect(&self) -> Fallible<i64> {
        start(Inspect(&self.core))
    }
}
