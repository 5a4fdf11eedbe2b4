//! A client: nodes, and the locks on them. Plain configuration until it is first used; a fork starts it afresh in the
//! child, with nothing held.

use std::{
    future::Future,
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    answer::{self, Attached},
    clock::{self, Deadline},
    config::{Config, LockOptions},
    error::{LockError, LostReason},
    event::{self, EventSink},
    hold::{Claim, Hold, Terms},
    home::{Home, Shared},
    lease::{Detached, Kind, Lease},
    lock::{Lock, end},
    node::{Lane, Node, NodeInfo},
    owner::{Owner, OwnerKey},
    quorum::{Grant, Keys, Place},
    runtime,
    value::HeldValue,
};

/// A client of one or several nodes. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
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
        Ok(Self { shared: Arc::new(Shared::new(config.validate()?, events)) })
    }

    /// A client on nodes of the caller's making, for simulations. The configuration's URLs only count and name them.
    #[doc(hidden)]
    pub fn with_nodes(config: Config, events: EventSink, nodes: Vec<Arc<dyn Node>>) -> Result<Self, LockError> {
        let client = Self::with_events(config, events)?;
        client.shared.install(nodes);
        Ok(client)
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Config {
        &self.shared.settings.config
    }

    /// The nodes' addresses, without credentials.
    pub fn nodes(&self) -> Vec<String> {
        self.shared.settings.endpoints.iter().map(|endpoint| endpoint.transport.to_string()).collect()
    }

    /// A lock by name. Fails with `invalid` when the name or an option is wrong; sends nothing.
    pub fn lock(&self, name: &str, options: LockOptions) -> Result<Lock, LockError> {
        Lock::new(self.shared.clone(), name, options)
    }

    /// Asks every node for a sign of life.
    pub fn ping(&self) -> impl Future<Output = Result<Vec<NodeStatus>, LockError>> + Send + use<> {
        let home = self.shared.home();
        async move {
            let home = home?;
            let limit = home.settings.config.reply_timeout;
            let pings = home.quorum.nodes.iter().map(|node| {
                let (name, pong) = (node.name().to_owned(), node.ping(limit));
                async move { NodeStatus { node: name, state: pong.await.map_err(|error| error.to_string()) } }
            });
            let all = futures_util::future::join_all(pings.collect::<Vec<_>>());
            runtime::detached(all).await.ok_or(LockError::Closed)
        }
    }

    /// Frees a lock whoever holds it; says whether anybody did. Its holder learns of it at its next renewal, so for a
    /// while two may believe that they hold it: only fencing tokens protect from that.
    pub fn force_release(&self, name: &str) -> impl Future<Output = Result<bool, LockError>> + Send + use<> {
        let begun = self.keys(name).and_then(|keys| Ok((self.shared.home()?, keys)));
        async move {
            let (home, keys) = begun?;
            runtime::detached(async move { end(&home, &keys, None).await }).await.unwrap_or(Err(LockError::Closed))
        }
    }

    /// Vouches for all nodes of a quorum: they vote at once, even those in quarantine. Only right when no lock can be
    /// held, as in a new deployment.
    pub fn init_nodes(&self) -> impl Future<Output = Result<(), LockError>> + Send + use<> {
        let home = self.shared.home();
        async move {
            let home = home?;
            runtime::detached(async move { home.quorum.provision_all().await }).await.unwrap_or(Err(LockError::Closed))
        }
    }

    fn keys(&self, name: &str) -> Result<Arc<Keys>, LockError> {
        let settings = &self.shared.settings;
        Ok(Arc::new(Keys::new(name, settings.check_lock(name, &LockOptions::default())?, settings)))
    }

    /// A value that may stand in the key of a lock, whoever wrote it: for drop-in shims. Needs [`crate::Wire::Token`].
    #[doc(hidden)]
    pub fn value(&self, name: &str, value: &str) -> Result<HeldValue, LockError> {
        HeldValue::new(self.shared.clone(), name, value)
    }

    /// Takes over a detached lease. Works once: a second attach, or one after the lease ended, fails with `lost`.
    pub fn attach(&self, text: &str, owner: Owner) -> impl Future<Output = Result<Lease, LockError>> + Send + use<> {
        let begun = Detached::parse(text, &self.shared.settings)
            .and_then(|detached| Ok((self.keys(&detached.name)?, detached, self.shared.home()?)));
        async move {
            let (keys, detached, home) = begun?;
            let attached = async move { attach(home, keys, detached, owner).await };
            runtime::detached(attached).await.unwrap_or(Err(LockError::Closed))
        }
    }

    /// Marks every lease of this client lost, releases them within a second, and disconnects. Detached leases and
    /// fixed leases of explicit owners live on. Later calls fail with `closed`.
    pub fn close(&self) -> impl Future<Output = ()> + Send + use<> {
        let home = self.shared.close();
        async move {
            if let Ok(home) = home {
                runtime::detached(async move { home.close().await }).await;
            }
        }
    }
}

async fn attach(home: Arc<Home>, keys: Arc<Keys>, detached: Detached, owner: Owner) -> Result<Lease, LockError> {
    let explicit = detached.field.strip_prefix('=').and_then(|rest| rest.rsplit_once(':'));
    let (key, owner) = match explicit {
        Some((name, _)) => (OwnerKey::Explicit(name.to_owned()), Owner::Explicit(name.to_owned())),
        None => (owner.key(), owner),
    };
    let (ttl, renewed) = detached.kind.lease();
    let fixed = !renewed;
    let field = home.tenures.draw(&key);
    let quorum = home.quorum.clone();
    let since = clock::now();
    let wanted = if fixed { Duration::ZERO } else { ttl };
    let call = quorum.attach_call(&keys, &detached.field, &field, wanted);
    let replies = quorum.gather(Lane::Background, &call, answer::attached).await?;
    let mut places = vec![Place::Maybe(None); quorum.nodes.len()];
    let mut attached = 0;
    for (node, reply) in replies {
        places[node] = match reply {
            Attached::There(left) => Place::Yes(Deadline::new(since, home.settings.validity(left))),
            Attached::No => Place::No,
        };
        attached += usize::from(reply != Attached::No);
    }
    if attached < quorum.needed() {
        let call = quorum.release_call(&keys, &field, true);
        for (node, place) in places.iter().enumerate().filter(|(_, place)| !matches!(place, Place::No)) {
            let _ = place;
            let limit = home.settings.config.reply_timeout;
            let release = quorum.nodes[node].eval(Lane::Background, call.clone(), limit, <_>::default());
            quorum.spawn_chore(async move {
                // Not confirmed, it dies with its ttl.
                let _ = release.await;
            });
        }
        let name = keys.name.clone();
        return Err(LockError::Lost { name, reason: LostReason::Taken });
    }
    let claim = Claim::new((!fixed).then_some(ttl));
    let terms = Terms {
        keys,
        owner: key,
        field,
        ttl,
        fixed,
        adaptive: matches!(detached.kind, Kind::Adaptive(_)),
        max_hold: None,
        thread: None,
        identity: owner.watch(),
    };
    let grant = Grant { token: detached.token, since, places, late: <_>::default(), sent: Vec::new() };
    let hold = Hold::new(terms, grant, claim.clone(), Weak::new(), quorum, home.events.clone());
    let lease = Lease::new(&home, hold.clone(), claim);
    home.settle(&hold);
    lease.check()?;
    Ok(lease)
}
