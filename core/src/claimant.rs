//! Who wants which lock, and how. A claimant who has it already nests: that is decided here, and asks no server unless a
//! fixed ttl outlives the lease.

use std::{sync::Arc, time::Duration};

use crate::{
    config::{LockOptions, NEVER, Ttl},
    lease::Lease,
    owner::{Owner, OwnerKey},
    protocol::{names::Names, primitive::Primitive},
    session::Session,
    tenure::{Claim, Fate, Tenure},
    wait::registry::Local,
};

/// One acquire, as a host asks for it.
#[derive(Clone, Debug)]
pub struct Request {
    /// Who acquires. An owner in the lock's options comes first.
    pub owner: Owner,
    /// How long to wait: `None` for ever, zero for one try.
    pub wait: Option<Duration>,
    /// The host's thread, if a blocked acquire blocks it: waiting for a tenure of the same thread is a deadlock.
    pub thread: Option<u64>,
    /// Whether waiting blocks `thread`.
    pub blocking: bool,
}

pub(crate) struct Claimant {
    pub(crate) session: Arc<Session>,
    pub(crate) primitive: Primitive,
    pub(crate) names: Arc<Names>,
    pub(crate) options: Arc<LockOptions>,
    /// Alive as long as the lock object is, and this acquire of it.
    pub(crate) handle: Arc<()>,
    /// Who the request's owner is here.
    pub(crate) key: OwnerKey,
    pub(crate) request: Request,
}

/// A further lease of a tenure that its owner has.
pub(crate) struct Nested {
    pub(crate) lease: Lease,
    pub(crate) tenure: Arc<Tenure>,
    /// How long the tenure must be extended to, if it must.
    pub(crate) extend: Option<Duration>,
}

impl Claimant {
    pub(crate) fn name(&self) -> String {
        self.names.name().to_owned()
    }

    /// Nests, if the lock can be.
    pub(crate) fn nested(&self) -> Option<Nested> {
        match self.session.registry.look(self.names.local(), &self.key) {
            Local::Own(tenure) if self.options.reentrant && self.is_included(&tenure) => self.nest(&tenure).ok(),
            _ => None,
        }
    }

    /// Whether a tenure of the same owner is enough.
    pub(crate) fn is_included(&self, tenure: &Tenure) -> bool {
        tenure.primitive().includes(self.primitive)
    }

    /// Nests in a tenure of its owner. Fails with the tenure's fate if it has ended, perhaps just now in another thread.
    pub(crate) fn nest(&self, tenure: &Arc<Tenure>) -> Result<Nested, Fate> {
        let ttl = match self.options.ttl {
            Ttl::Fixed(ttl) => ttl,
            Ttl::Never => NEVER,
            Ttl::Watchdog | Ttl::Adaptive if !tenure.terms.fixed => tenure.terms.ttl,
            Ttl::Watchdog | Ttl::Adaptive => self.session.settings.config.watchdog,
        };
        let claim = self.claim_for(ttl);
        let extend = tenure.claim(&claim, Arc::downgrade(&self.handle), ttl)?;
        if claim.renews.is_some() {
            self.session.watchdog.reconsider(tenure);
        }
        Ok(Nested { lease: Lease::new(&self.session, tenure.clone(), claim), tenure: tenure.clone(), extend })
    }

    /// Whether a server keeps a queue of those who want it, and decides whose turn it is: several would differ.
    pub(crate) fn has_queue(&self) -> bool {
        self.primitive.has_queue() && self.session.quorum.nodes.len() == 1
    }

    /// A claim to a lease of `ttl`.
    pub(crate) fn claim_for(&self, ttl: Duration) -> Arc<Claim> {
        Claim::new((!self.options.ttl.is_fixed()).then_some(ttl))
    }
}
