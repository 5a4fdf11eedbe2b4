//! A client: nodes, and the locks on them. Plain configuration until it is first used; a fork starts it afresh in the
//! child, with nothing held.

use std::{future::Future, sync::Arc};

use crate::{
    acquire::pending_grant::{PendingGrant, Requeue},
    compat::HeldValue,
    config::{Config, LockOptions},
    detached::{Attach, Detached},
    error::LockError,
    event::{self, EventSink},
    holders::end_by_force,
    lease::Lease,
    lock::Lock,
    owner::Owner,
    process::runtime,
    protocol::names::Names,
    server::{Node, NodeInfo},
    session::{ClientInner, run_to_completion},
};

/// A client of one or several nodes. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

/// What one node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's address, without credentials.
    pub node: String,
    /// What it answered, or why it did not.
    pub state: Result<NodeInfo, String>,
}

impl Client {
    /// A client with this configuration. No I/O happens before the first call that needs it.
    pub fn new(config: Config) -> Result<Self, LockError> {
        Self::with_events(config, event::trace())
    }

    /// A client whose events go to `events` instead of `tracing`.
    pub fn with_events(config: Config, events: EventSink) -> Result<Self, LockError> {
        Ok(Self { inner: Arc::new(ClientInner::new(config.validate()?, events)) })
    }

    /// A client on nodes of the caller's making, for simulations. The configuration's URLs only count and name them.
    #[doc(hidden)]
    pub fn with_nodes(config: Config, events: EventSink, nodes: Vec<Arc<dyn Node>>) -> Result<Self, LockError> {
        let client = Self::with_events(config, events)?;
        client.inner.install(nodes);
        Ok(client)
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.inner.settings.config
    }

    /// The nodes' addresses, without credentials.
    pub fn nodes(&self) -> Vec<String> {
        self.inner.settings.endpoints.iter().map(|endpoint| endpoint.transport.to_string()).collect()
    }

    /// A lock by name. Fails with `invalid` when the name or an option is wrong; sends nothing.
    pub fn lock(&self, name: &str, options: LockOptions) -> Result<Lock, LockError> {
        Lock::new(self.inner.clone(), name, options)
    }

    /// Asks every node for a sign of life.
    pub fn ping(&self) -> impl Future<Output = Result<Vec<NodeStatus>, LockError>> + Send + use<> {
        let session = self.inner.session();
        async move {
            let session = session?;
            let limit = session.settings.config.reply_timeout;
            let pings = session.quorum.nodes.iter().map(|node| {
                let (name, pong) = (node.name().to_owned(), node.ping(limit));
                async move { NodeStatus { node: name, state: pong.await.map_err(|error| error.to_string()) } }
            });
            let all = futures_util::future::join_all(pings.collect::<Vec<_>>());
            run_to_completion(async { Ok(all.await) }).await
        }
    }

    /// Frees a lock whoever holds it; says whether anybody did. Its holder learns of it at its next renewal, so for a
    /// while two may believe that they hold it: only fencing tokens protect from that.
    pub fn force_release(&self, name: &str) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let begun = self.names(name).and_then(|names| Ok((self.inner.session()?, names)));
        async move {
            let (session, names) = begun?;
            run_to_completion(async move { end_by_force(&session, &names).await }).await
        }
    }

    /// Vouches for all nodes of a quorum: they vote at once, even those in quarantine. Only right when no lock can be
    /// held, as in a new deployment.
    pub fn init_nodes(&self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let session = self.inner.session();
        async move {
            let session = session?;
            run_to_completion(async move { session.quorum.provision_all().await }).await
        }
    }

    fn names(&self, name: &str) -> Result<Arc<Names>, LockError> {
        let settings = &self.inner.settings;
        Ok(Arc::new(Names::new(settings.check_lock(name, &LockOptions::default())?, settings)))
    }

    pub(crate) fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }

    fn names_of(&self, detached: &Detached) -> Result<Arc<Names>, LockError> {
        let names = self.names(&detached.name)?;
        let (family, lock) = (detached.primitive.family(), names.lock.clone());
        Ok(Arc::new(Names::of_family(family, lock, &self.inner.settings)))
    }

    /// A value that may stand in the key of a lock, whoever wrote it: for drop-in shims. Needs [`crate::Wire::Token`].
    #[doc(hidden)]
    pub fn value(&self, name: &str, value: &str) -> Result<HeldValue, LockError> {
        HeldValue::new(self.inner.clone(), name, value)
    }

    /// Takes over a detached lease. Works once: a second attach, or one after the lease ended, fails with `lost`. One that
    /// fails otherwise, or whose future is dropped, leaves the text as it was.
    pub fn attach(&self, text: &str, owner: Owner) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        let attached = PendingGrant::collected(self.attach_for_queue(text, owner));
        async move { Ok(attached.await?.seen()) }
    }

    /// `attach` for a host's queue.
    pub(crate) fn attach_for_queue(
        &self,
        text: &str,
        owner: Owner,
    ) -> impl Future<Output = Result<PendingGrant, LockError>> + Send + use<> {
        let attach = Detached::parse(text, &self.inner.settings).and_then(|detached| {
            Ok(Attach { names: self.names_of(&detached)?, session: self.inner.session()?, detached, owner })
        });
        async move { Box::new(attach?).requeue().await }
    }

    /// Marks every lease of this client lost, releases them within a second, and disconnects. Detached leases and
    /// fixed leases of explicit owners live on. Later calls fail with `closed`.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let session = self.inner.close();
        async move {
            if let Ok(session) = session {
                runtime::detached(async move { session.close().await }).await;
            }
        }
    }
}
