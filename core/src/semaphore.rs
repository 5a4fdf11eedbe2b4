//! A semaphore: a number of permits, each with a slot of its own. A permit is a [`Lease`]; what it has is told by
//! [`Lease::slots`].

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    client::Client,
    config::{LockOptions, check_slots},
    error::LockError,
    holders,
    lease::Lease,
    lock::Lock,
    owner,
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
        reply::Permitted,
    },
    session::{ClientInner, run_to_completion},
};

/// A semaphore by name: at most so many slots of it are held at once, everywhere. Cheap to clone.
///
/// Slots are numbered from 0: while a permit is held nobody else has its slots. Permits go to those who want them in the order
/// in which they asked; one that wants several slots gets all of them at once, and is not overtaken by smaller ones. Clients
/// may have different numbers of permits for one name, as while a new number is rolled out: each takes only slots below its
/// own.
#[derive(Clone)]
pub struct Semaphore {
    client: Arc<ClientInner>,
    names: Arc<Names>,
    options: Arc<LockOptions>,
    permits: u32,
    /// Alive as long as this object is: a permit it took is renewed for that long.
    handle: Arc<()>,
}

/// Somebody's permit of a semaphore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitInfo {
    /// Whose it is: `uuid:permit`.
    pub owner: String,
    /// The slots that it has.
    pub slots: Vec<u32>,
    /// How long it counts unless it is renewed.
    pub ttl: Duration,
}

impl Semaphore {
    /// The name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.names.name()
    }

    /// How many slots it has.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// Takes one slot, waiting for it as long as the options say. Fails with `timeout`, `unavailable`, `conflict` or
    /// `closed`. Dropping the future gives up and leaves nothing behind.
    pub fn acquire(&self) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        self.acquire_many(1)
    }

    /// Takes `n` slots at once. Fails as `acquire` does, and with `invalid` unless `n` is from 1 to the number of permits.
    pub fn acquire_many(&self, n: u32) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        let pending = self.taking(n).map(|lock| lock.acquire());
        async move { pending?.await }
    }

    /// Takes one slot if one is free and nobody waits, in one round trip: `None` when not.
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Lease>, LockError>> + Send + use<> {
        self.try_acquire_many(1)
    }

    /// Takes `n` slots if so many are free and nobody waits, in one round trip: `None` when not. Fails with `invalid` as
    /// `acquire_many` does.
    pub fn try_acquire_many(&self, n: u32) -> impl Future<Output = Result<Option<Lease>, LockError>> + Send + use<> {
        let pending = self.taking(n).map(|lock| lock.try_acquire());
        async move { pending?.await }
    }

    /// What takes `n` slots: each acquire of it is a permit.
    pub fn taking(&self, n: u32) -> Result<Lock, LockError> {
        check_slots(n, self.permits)?;
        let (names, options, handle) = (self.names.clone(), self.options.clone(), self.handle.clone());
        Ok(Lock::of(self.client.clone(), Primitive::Permits { count: n, of: self.permits }, names, options, handle))
    }

    /// How many slots are free, by what the server says now. Others may wait for them.
    pub fn available(&self) -> impl Future<Output = Result<u32, LockError>> + Send + use<> {
        let one = self.taking(1);
        async move { one?.available().await }
    }

    /// Who has permits, those that end first before the others.
    pub fn inspect(&self) -> impl Future<Output = Result<Vec<PermitInfo>, LockError>> + Send + use<> {
        let (session, names) = (self.client.session(), self.names.clone());
        async move {
            let session = session?;
            let held = run_to_completion(async move { holders::permits(&session, &names).await }).await?;
            let info = |Permitted { field, slots, left }| {
                let owner = owner::shown(&field).to_owned();
                PermitInfo { owner, slots, ttl: left }
            };
            Ok(held.into_iter().map(info).collect())
        }
    }
}

impl Client {
    /// A semaphore by name, with 1 to 65 536 permits. Fails with `invalid` when the name, the number or an option is wrong,
    /// and on a quorum; sends nothing.
    pub fn semaphore(&self, name: &str, permits: u32, options: LockOptions) -> Result<Semaphore, LockError> {
        let client = self.inner().clone();
        let key = client.settings.check_semaphore(name, permits, &options)?;
        let names = Arc::new(Names::of_family(Family::Semaphore, key, &client.settings));
        Ok(Semaphore { client, names, options: Arc::new(options), permits, handle: Arc::new(()) })
    }
}
