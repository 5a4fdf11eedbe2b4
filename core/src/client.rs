//! A client: the nodes, and the locks on them. It connects on its first use. A forked child starts with a new session,
//! in which nothing is held.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    acquire::uncollected_grant::{Restart, UncollectedGrant},
    clock,
    compat::HeldValue,
    config::{Config, LockOptions},
    connected,
    detached::{Attach, Detached},
    error::LockError,
    event::{self, EventSink},
    holders::end_by_force,
    identity::ConnectedClient,
    lease::Lease,
    lock::Lock,
    owner::Owner,
    process::runtime,
    protocol::names::Names,
    server::{Node, NodeInfo},
    session::{ClientInner, run_to_completion},
};

/// A client of one or several nodes. Cheap to clone.
///
/// ```
/// # fn main() -> Result<(), redlock::LockError> {
/// use redlock::{Client, Config, LockOptions};
///
/// let client = Client::new(Config::new(["memory://client"]))?;
/// let lease = client.lock("report", LockOptions::default())?.acquire_blocking()?;
/// assert!(lease.held());
/// drop(lease);
/// client.close_blocking();
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client {
    inner: Arc<ClientInner>,
}

/// The reply of one node to a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The node's address, without credentials.
    pub node: String,
    /// What the node reports of itself, or why it did not answer.
    pub state: Result<NodeInfo, String>,
    /// The time until its answer, or until it failed.
    pub round_trip: Duration,
}

impl Client {
    /// Makes a client with this configuration, whose events go to `tracing`. It connects on its first use. Fails with
    /// `invalid` if an option is wrong.
    pub fn new(config: Config) -> Result<Self, LockError> {
        Self::with_events(config, event::trace())
    }

    /// Makes a client whose events go to `events` instead of `tracing`. Fails as [`new`](Client::new) does.
    ///
    /// ```
    /// # fn main() -> Result<(), redlock::LockError> {
    /// use std::sync::{Arc, mpsc};
    ///
    /// use redlock::{Client, Config, LockOptions};
    ///
    /// let (sender, events) = mpsc::channel();
    /// let sink = Arc::new(move |event: &redlock::Event| {
    ///     _ = sender.send(event.kind());
    /// });
    /// let client = Client::with_events(Config::new(["memory://with_events"]), sink)?;
    /// client.lock("report", LockOptions::default())?.acquire_blocking()?.release()?;
    /// assert_eq!([events.recv(), events.recv()], [Ok("acquired"), Ok("released")]);
    /// # Ok(()) }
    /// ```
    pub fn with_events(config: Config, events: EventSink) -> Result<Self, LockError> {
        Ok(Self { inner: Arc::new(ClientInner::new(config.validate()?, events)) })
    }

    /// Makes a client on the caller's own nodes, for simulations. The URLs of the configuration only count and name
    /// them.
    #[doc(hidden)]
    pub fn with_nodes(config: Config, events: EventSink, nodes: Vec<Arc<dyn Node>>) -> Result<Self, LockError> {
        let client = Self::with_events(config, events)?;
        client.inner.install(nodes);
        Ok(client)
    }

    /// The configuration that the client was made with.
    pub fn config(&self) -> &Config {
        &self.inner.settings.config
    }

    /// The nodes' addresses, without credentials, in the order of the URLs.
    pub fn nodes(&self) -> Vec<String> {
        self.inner.settings.endpoints.iter().map(|endpoint| endpoint.transport.to_string()).collect()
    }

    /// Makes a lock. Fails with `invalid` if the name or an option is wrong. Sends nothing.
    ///
    /// The name has at least 1 byte, together with the client's prefix at most 1024, and no NUL. On a cluster it may
    /// contain braces only as one non-empty `{tag}`.
    pub fn lock(&self, name: &str, options: LockOptions) -> Result<Lock, LockError> {
        Lock::new(self.inner.clone(), name, options)
    }

    /// Pings every node, waiting for `reply_timeout` (default: 2 s) at most. Returns the status of each, in the order
    /// of the URLs; a node that does not answer is no error. Fails only with `closed`.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, Memory};
    ///
    /// let client = Client::new(Config::new(["memory://up", "memory://down"]))?;
    /// Memory::named("down").stop();
    /// let nodes = client.ping().await?;
    /// assert!(nodes[0].state.is_ok() && nodes[1].state.is_err());
    /// # Ok(()) }
    /// ```
    pub fn ping(&self) -> impl Future<Output = Result<Vec<NodeStatus>, LockError>> + Send + use<> {
        let session = self.inner.session();
        async move {
            let session = session?;
            let limit = session.settings.config.reply_timeout;
            let pings = session.quorum.nodes.iter().map(|node| {
                let (name, pong, sent) = (node.name().to_owned(), node.ping(limit), clock::now());
                async move {
                    let state = pong.await.map_err(|error| error.to_string());
                    NodeStatus { node: name, state, round_trip: sent.elapsed() }
                }
            });
            let all = futures_util::future::join_all(pings.collect::<Vec<_>>());
            run_to_completion(async { Ok(all.await) }).await
        }
    }

    /// The clients of this library that are connected to the nodes and name their connections, as the nodes list them now.
    /// For ten seconds after it, `inspect` finds the processes of holders among them. Ordered by program, machine and
    /// process. Waits for `reply_timeout` (default: 2 s) at most. Fails with `unavailable` if no node lists its clients.
    #[doc(hidden)]
    pub fn connected_clients(&self) -> impl Future<Output = Result<Vec<ConnectedClient>, LockError>> + Send + use<> {
        let session = self.inner.session();
        async move {
            let session = session?;
            run_to_completion(async move { connected::list(&session).await }).await
        }
    }

    /// Frees a lock, whoever holds it. Returns whether anybody did. The holder notices at its next renewal. Until then
    /// it still believes that it holds the lock, while another owner may acquire it; only fencing tokens protect the
    /// resource.
    ///
    /// Fails with `unavailable` while too few nodes answer, with `conflict` if the key holds something else, with
    /// `invalid` if the name is wrong, and with `closed`.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions};
    ///
    /// let client = Client::new(Config::new(["memory://force_release"]))?;
    /// let lease = client.lock("report", LockOptions::default())?.acquire().await?;
    /// assert!(client.force_release("report").await?);
    /// assert!(!client.force_release("report").await?, "nobody holds it any more");
    /// # drop(lease);
    /// # Ok(()) }
    /// ```
    pub fn force_release(&self, name: &str) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let begun = self.names(name).and_then(|names| Ok((self.inner.session()?, names)));
        async move {
            let (session, names) = begun?;
            run_to_completion(async move { end_by_force(&session, &names).await }).await
        }
    }

    /// Writes the markers of all nodes, which then vote immediately, even those in quarantine. Only call it when no
    /// lock can be held, for example for a new deployment. Fails with `unavailable` if any node does not write its
    /// marker within `reply_timeout` (default: 2 s), and with `closed`.
    pub fn init_nodes(&self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let session = self.inner.session();
        async move {
            let session = session?;
            run_to_completion(async move { session.quorum.provision_all().await }).await
        }
    }

    pub(crate) fn names(&self, name: &str) -> Result<Arc<Names>, LockError> {
        let settings = &self.inner.settings;
        Ok(Arc::new(Names::new(settings.check_lock(name, &LockOptions::default())?, settings)))
    }

    pub(crate) fn inner(&self) -> &Arc<ClientInner> {
        &self.inner
    }

    fn names_of_detached(&self, detached: &Detached) -> Result<Arc<Names>, LockError> {
        let names = self.names(&detached.name)?;
        let (family, lock) = (detached.primitive.family(), names.lock.clone());
        Ok(Arc::new(Names::of_family(family, lock, &self.inner.settings)))
    }

    /// A value that may be in the key of a lock, for drop-ins. Needs [`crate::Wire::Token`].
    #[doc(hidden)]
    pub fn value(&self, name: &str, value: &str) -> Result<HeldValue, LockError> {
        HeldValue::new(self.inner.clone(), name, value)
    }

    /// Takes over a detached lease. `text` is what [`Lease::detach`] returned. The lease gets the owner `owner`, unless
    /// it had an explicit owner, which it keeps.
    ///
    /// A text can be attached once: a second attach, and one after the lease has ended, fails with `lost`. Fails with
    /// `unavailable` while too few nodes answer, with `invalid` if the text does not come from a client with the same
    /// wire and prefix, and with `closed`. After any failure but `lost`, and if the future is dropped, the text can
    /// still be attached.
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), redlock::LockError> {
    /// use redlock::{Client, Config, LockOptions, Owner};
    ///
    /// let client = Client::new(Config::new(["memory://attach"]))?;
    /// let lease = client.lock("report", LockOptions::default())?.acquire().await?;
    /// let text = lease.detach()?; // for another process, whose client has the same nodes
    /// let attached = client.attach(&text, Owner::Fresh).await?;
    /// assert_eq!(attached.token(), lease.token());
    /// assert_eq!(client.attach(&text, Owner::Fresh).await.unwrap_err().code(), "lost");
    /// # Ok(()) }
    /// ```
    pub fn attach(&self, text: &str, owner: Owner) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        let attached = UncollectedGrant::collected(self.attach_uncollected(text, owner));
        async move {
            let lease = attached.await?;
            lease.clear_instead_of_release();
            Ok(lease)
        }
    }

    /// `attach` for the completion queue of a host, which collects the grant later.
    pub(crate) fn attach_uncollected(
        &self,
        text: &str,
        owner: Owner,
    ) -> impl Future<Output = Result<UncollectedGrant, LockError>> + Send + use<> {
        let attach = Detached::parse(text, &self.inner.settings).and_then(|detached| {
            Ok(Attach { names: self.names_of_detached(&detached)?, session: self.inner.session()?, detached, owner })
        });
        async move { Box::new(attach?).start().await }
    }

    /// Marks every held lease of this client lost, then tries for up to a second to release them, except fixed leases
    /// of explicit owners, and disconnects. Detached leases are not touched. Later calls fail with `closed`.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let session = self.inner.close();
        async move {
            if let Some(session) = session {
                runtime::spawn_in_background(async move { session.close().await }).await;
            }
        }
    }
}
