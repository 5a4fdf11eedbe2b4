//! Decides whether the caller already holds the lock (nest) or must acquire it. Nesting sends nothing, unless a fixed
//! ttl is longer than what is left of the lease.

use std::{sync::Arc, time::Duration};

use crate::{
    config::{LockOptions, NEVER, Ttl},
    lease::Lease,
    owner::{Owner, OwnerKey},
    protocol::subject::Subject,
    session::Session,
    tenure::{Claim, Fate, Tenure},
    wait::registry::Local,
};

/// The parameters of one acquire.
#[derive(Clone, Debug)]
pub struct Request {
    /// The owner. An `owner` in the lock's options takes precedence.
    pub owner: Owner,
    /// How long to wait: `None` waits without a limit, zero makes one attempt.
    pub wait: Option<Duration>,
    /// The host's thread, if it has one: waiting in it for a tenure of the same thread is a deadlock.
    pub thread: Option<u64>,
    /// Whether waiting blocks `thread`.
    pub blocking: bool,
}

/// An owner that wants a lock, and everything that the acquire needs.
pub(crate) struct Claimant {
    pub(crate) session: Arc<Session>,
    pub(crate) subject: Subject,
    pub(crate) options: Arc<LockOptions>,
    /// Alive as long as the lock object, or this acquire, is.
    pub(crate) handle: Arc<()>,
    /// The owner, as the registry knows it.
    pub(crate) key: OwnerKey,
    pub(crate) request: Request,
}

/// A further lease of a tenure that the owner holds.
pub(crate) struct Nested {
    pub(crate) lease: Lease,
    pub(crate) tenure: Arc<Tenure>,
    /// The ttl to extend the tenure to, if its lease is too short.
    pub(crate) extend: Option<Duration>,
}

impl Claimant {
    pub(crate) fn name(&self) -> String {
        self.subject.names.name().to_owned()
    }

    /// Nests, if the owner holds the lock and the lock is re-entrant.
    pub(crate) fn nested(&self) -> Option<Nested> {
        match self.session.registry.lookup(self.subject.names.local(), &self.key) {
            Local::Own(tenure) if self.options.reentrant && self.is_included(&tenure) => self.nest(&tenure).ok(),
            _ => None,
        }
    }

    /// Whether a tenure of the same owner includes what is wanted: a writer may read.
    pub(crate) fn is_included(&self, tenure: &Tenure) -> bool {
        tenure.primitive().includes(self.subject.primitive)
    }

    /// Nests in a tenure of its owner. Fails with the tenure's fate if it has ended, perhaps just now in another
    /// thread.
    pub(crate) fn nest(&self, tenure: &Arc<Tenure>) -> Result<Nested, Fate> {
        let ttl = match self.options.ttl {
            Ttl::Fixed(ttl) => ttl,
            Ttl::Never => NEVER,
            Ttl::Watchdog | Ttl::Adaptive if !tenure.terms.fixed => tenure.terms.right.ttl,
            Ttl::Watchdog | Ttl::Adaptive => self.session.settings.config.watchdog,
        };
        let claim = self.claim_for(ttl);
        let extend = tenure.claim(&claim, Arc::downgrade(&self.handle), ttl)?;
        // A fixed lease, too, may bring back an orphan whose earlier lease is renewed.
        if claim.renews.is_some() || !tenure.terms.fixed {
            self.session.watchdog.reconsider(tenure);
        }
        Ok(Nested { lease: Lease::new(&self.session, tenure.clone(), claim), tenure: tenure.clone(), extend })
    }

    /// Whether a server keeps the queue.
    pub(crate) fn has_queue(&self) -> bool {
        self.subject.has_queue(self.session.quorum.nodes.len())
    }

    /// A claim to a lease of `ttl`.
    pub(crate) fn claim_for(&self, ttl: Duration) -> Arc<Claim> {
        Claim::new((!self.options.ttl.is_fixed()).then_some(ttl))
    }
}
