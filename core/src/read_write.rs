//! A read/write lock: several readers at once, or one writer. Each of the two ways to hold it is a [`Lock`].

use std::{future::Future, sync::Arc};

use crate::{
    client::Client,
    config::LockOptions,
    error::LockError,
    lease::{Lease, explained},
    lock::Lock,
    process::{driver::Driver, runtime},
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
    },
    session::{ClientInner, run_to_completion},
    tenure::Fate,
};

/// A read/write lock by name: many may read at once, or one may write. Cheap to clone.
///
/// On one server, cluster or Sentinel service it is phase-fair: as soon as a writer waits, new readers wait behind it; when it
/// ends, all readers that wait by then come in, and then the next writer. So a reader waits for one writer at most, and nobody
/// starves. On a quorum a writer that waits holds new readers back, and no order is promised.
#[derive(Clone)]
pub struct ReadWriteLock {
    read: Lock,
    write: Lock,
}

impl ReadWriteLock {
    fn new(client: &Arc<ClientInner>, name: &str, options: LockOptions) -> Result<Self, LockError> {
        let names = Arc::new(Names::of_family(
            Family::ReadWrite,
            client.settings.check_read_write(name, &options)?,
            &client.settings,
        ));
        let options = Arc::new(options);
        let half = |primitive| Lock::of(client.clone(), primitive, names.clone(), options.clone(), Arc::new(()));
        Ok(Self { read: half(Primitive::Read), write: half(Primitive::Write) })
    }

    /// The name, without the client's prefix.
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// What readers take. Its owner, once it writes, has this, too, without a round trip.
    pub fn read(&self) -> &Lock {
        &self.read
    }

    /// What a writer takes. For an owner that reads this fails with `deadlock` at once, since it would wait for itself:
    /// [`Lease::try_upgrade`] is for that.
    pub fn write(&self) -> &Lock {
        &self.write
    }
}

impl Client {
    /// A read/write lock by name. Fails with `invalid` when the name or an option is wrong; sends nothing.
    pub fn read_write_lock(&self, name: &str, options: LockOptions) -> Result<ReadWriteLock, LockError> {
        ReadWriteLock::new(self.inner(), name, options)
    }

    /// One of its two, for a host.
    pub(crate) fn part(&self, name: &str, options: LockOptions, primitive: Primitive) -> Result<Lock, LockError> {
        let ReadWriteLock { read, write } = self.read_write_lock(name, options)?;
        Ok(if primitive.reads() { read } else { write })
    }
}

impl Lease {
    /// Makes a reader of a writer, without anybody else writing in between: readers that wait come in, and the token becomes a
    /// reader's. Does nothing for one that reads. Fails with `lost` after a loss, and with `unavailable` while too few nodes
    /// answer: then this one reads, and others may still be kept out until it is called again, or the lease is released. Fails
    /// with `invalid` for a lease of another lock.
    pub fn downgrade(&self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let work = self.changing("downgrade").map(|(session, tenure, name)| {
            run_to_completion(async move {
                tenure.clone().downgrade().await.map_err(|fallen| explained(&session, &tenure, &name, fallen))
            })
        });
        async move { work?.await }
    }

    /// Makes a writer of a reader that is alone: says whether it is one now, with a new token. Never waits: while others read
    /// it says no. A writer is one already. Fails with `lost` after a loss, with `unavailable` while too few nodes answer, with
    /// `invalid` for a lease of another lock.
    pub fn try_upgrade(&self) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let work = self.changing("try_upgrade").map(|(session, tenure, name)| {
            run_to_completion(async move {
                let upgraded = tenure.clone().upgrade().await;
                session.watchdog.reconsider(&tenure);
                upgraded.map_err(|fallen| explained(&session, &tenure, &name, fallen))
            })
        });
        async move { work?.await }
    }

    /// `downgrade`, blocking; `check` runs every 50 ms and may end the call. Not for async code: it panics there.
    pub fn downgrade_blocking<E: From<LockError>>(&self, check: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        let done = runtime::block(Driver::Background, self.downgrade(), check);
        Ok(done.map_err(|interrupted| interrupted.error(self.name()))??)
    }

    /// `try_upgrade`, blocking; `check` as for `downgrade_blocking`. Not for async code: it panics there.
    pub fn try_upgrade_blocking<E: From<LockError>>(
        &self,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<bool, E> {
        let done = runtime::block(Driver::Background, self.try_upgrade(), check);
        Ok(done.map_err(|interrupted| interrupted.error(self.name()))??)
    }

    /// What changes how the lock is held.
    fn changing(
        &self,
        call: &'static str,
    ) -> Result<(Arc<crate::session::Session>, Arc<crate::tenure::Tenure>, String), LockError> {
        if !self.terms.primitive.is_read_write() {
            return Err(LockError::invalid("lease", format!("is not of a read/write lock: {call} is for those")));
        }
        self.check()?;
        match self.parts() {
            Some((tenure, session)) => Ok((session.clone(), tenure.clone(), self.name().to_owned())),
            None => Err(self.ended(Fate::Lost(crate::error::LostReason::Forked))),
        }
    }
}
