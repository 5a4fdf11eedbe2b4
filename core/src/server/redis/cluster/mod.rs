//! A node that is a Redis Cluster, with a server for each range of slots. It learns the map of slots from any server,
//! and follows it as slots move and masters fail over. A request goes to the owner of its first key's slot; all its
//! keys share that slot.
//!
//! A server that does not serve a slot redirects a request instead of running it, so following the redirection runs
//! nothing twice. MOVED names the new owner, ASK the next owner while the slot moves, and TRYAGAIN means that only some
//! of the keys have moved. Source: the Redis Cluster specification, "Redirection and resharding".

use std::{future::ready, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use self::map::{Map, NOBODY};
use super::{
    RedisNode,
    errors::{closed_error, forked_error, not_run_error, permanent_error},
    naming::each_once,
    timer,
};
use crate::{
    config::Settings,
    error::LockError,
    event::EventSink,
    process::{driver::Driver, fork::Tied, runtime},
    protocol::{
        calls::MARKER,
        script::{Reply, ScriptCall, WhileMoving},
        sharding::{Sharding, slot},
    },
    server::{
        BoxFuture, ConnectionId, Hint, NamedConnection, Node, NodeError, NodeErrorKind, NodeInfo, SentOn, Subscription,
        Traits,
    },
    sync::Mutex,
    url::{Address, Endpoint, Transport},
};

mod map;

/// How many redirections a request follows without a pause. A cluster whose servers agree needs fewer. While a slot
/// moves, two servers may redirect to each other until their gossip has spread.
const HOPS_AT_ONCE: usize = 8;
/// The random pause before a retry, for a slot that moves or that no server claims: µs, from and to.
const TRY_AGAIN: (u64, u64) = (5_000, 25_000);
/// The time limit for the former owner of a slot to run a clean-up.
const FORMER_OWNER: Duration = Duration::from_millis(500);

/// A Redis Cluster.
pub(crate) struct ClusterNode {
    name: String,
    hostable: bool,
    /// The state of this process; see `RedisNode`.
    inner: Tied<Arc<Inner>>,
}

/// The state that the node and its tasks share.
struct Inner {
    seeds: Vec<Address>,
    /// The settings of connections to each server; its address is filled in.
    endpoint: Endpoint,
    tls: bool,
    settings: Settings,
    events: EventSink,
    /// The name of the connections to each server, if they get one.
    connection_name: Option<Arc<str>>,
    map: Mutex<Map>,
    /// Increases by one after each attempt to learn the map.
    learned: watch::Sender<u64>,
    changes: watch::Sender<u64>,
    /// Tasks that end with the node.
    tasks: Mutex<JoinSet<()>>,
}

impl ClusterNode {
    /// Creates the node; it connects at first use. `connection_name`: the name of its connections, if they get one.
    pub(crate) fn new(
        endpoint: &Endpoint,
        settings: &Settings,
        events: EventSink,
        connection_name: Option<Arc<str>>,
    ) -> Result<Self, LockError> {
        let Transport::Cluster { seeds, tls } = &endpoint.transport else {
            return Err(LockError::invalid("urls", "not the URL of a cluster"));
        };
        let inner = Arc::new(Inner {
            seeds: seeds.clone(),
            endpoint: endpoint.clone(),
            tls: *tls,
            settings: settings.clone(),
            events,
            connection_name,
            map: Mutex::new(Map::unknown()),
            learned: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            tasks: Mutex::new(JoinSet::new()),
        });
        // A mistake in the settings fails here, instead of looking like a node that is down.
        for seed in seeds {
            inner.member(&mut inner.map.lock(), seed)?;
        }
        Ok(Self {
            name: endpoint.transport.to_string(),
            hostable: cfg!(target_os = "linux") && !tls,
            inner: Tied::new(inner),
        })
    }

    /// Runs `act` with the state of this process. Fails in a forked child.
    fn with<T: Send + 'static, F: Future<Output = Result<T, NodeError>> + Send + 'static>(
        &self,
        act: impl FnOnce(Arc<Inner>) -> F,
    ) -> BoxFuture<Result<T, NodeError>> {
        match self.inner.get() {
            Some(inner) => Box::pin(act(Arc::clone(inner))),
            None => Box::pin(ready(Err(forked_error()))),
        }
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        self.close();
    }
}

impl Node for ClusterNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn eval(
        &self,
        driver: Driver,
        call: ScriptCall,
        timeout: Duration,
        sent: SentOn,
    ) -> BoxFuture<Result<Reply, NodeError>> {
        self.with(move |inner| async move { inner.eval(driver, call, timeout, sent).await })
    }

    fn eval_after(&self, id: ConnectionId, call: ScriptCall, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        self.with(move |inner| async move { inner.eval_after(id, call, timeout).await })
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        self.with(move |inner| async move { inner.subscribe(channel).await })
    }

    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        self.with(move |inner| async move { inner.ping(timeout).await })
    }

    fn clients(&self, timeout: Duration) -> BoxFuture<Result<Vec<NamedConnection>, NodeError>> {
        self.with(move |inner| async move { inner.clients(timeout).await })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.get().map_or_else(|| watch::channel(0).1, |inner| inner.changes.subscribe())
    }

    fn close(&self) {
        if let Some(inner) = self.inner.get() {
            inner.close();
        }
    }

    fn traits(&self) -> Traits {
        Traits { sharding: Sharding::HashSlots, hostable: self.hostable, lists_clients: true }
    }
}

impl Inner {
    fn close(&self) {
        let members = {
            let mut map = self.map.lock();
            map.closed = true;
            std::mem::take(&mut map.members)
        };
        self.tasks.lock().abort_all();
        for member in members.into_values() {
            member.close();
        }
        self.learned.send_modify(|count| *count += 1);
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(task.boxed(), &runtime::background());
    }

    async fn eval(
        self: &Arc<Self>,
        driver: Driver,
        mut call: ScriptCall,
        timeout: Duration,
        sent: SentOn,
    ) -> Result<Reply, NodeError> {
        if let Some(server) = &call.server {
            let member = self.map.lock().members.values().find(|member| member.name() == &**server).cloned();
            let member = member.ok_or_else(|| not_run_error(format!("{server} has left the cluster")))?;
            let reply = member.inner()?.run(driver, &call, timeout, &sent, false).await;
            return reply.map_err(|error| with_server_name(&member, error));
        }
        let deadline = Instant::now() + timeout;
        let slot = slot(call.keys.first().map_or("", String::as_str));
        if let [first, .., last] = &call.keys[..]
            && last == MARKER
        {
            let marker = Sharding::HashSlots.marker(first);
            if let Some(last) = Arc::make_mut(&mut call.keys).last_mut() {
                *last = marker;
            }
        }
        let member = self.owner(slot, timeout).await?;
        let mut trip = Trip { driver, call, slot, deadline, member, redirected_by_ask: false, hops: 0 };
        loop {
            let result = trip.member.inner()?.run(driver, &trip.call, trip.left(), &sent, trip.redirected_by_ask).await;
            let Err(error) = result else { return result };
            if sent.is_closed() {
                return Err(with_server_name(&trip.member, error));
            }
            trip.hops += 1;
            if trip.hops > HOPS_AT_ONCE {
                self.relearn();
                trip.pause().await;
                if trip.left().is_zero() {
                    let detail = format!("the cluster's servers disagree: {}", error.detail);
                    return Err(NodeError { detail, ..error });
                }
            }
            if trip.left().is_zero() {
                return Err(with_server_name(&trip.member, error));
            }
            (trip.member, trip.redirected_by_ask) = self.next(&mut trip, error).await?;
        }
    }

    /// Returns the next server for a request that did not run, and whether to send ASKING first. Returns the error if
    /// there is no such server.
    async fn next(self: &Arc<Self>, trip: &mut Trip, error: NodeError) -> Result<(Arc<RedisNode>, bool), NodeError> {
        match (&error.hint, error.kind) {
            (Some(Hint::Moved(address)), _) => Ok((self.moved(trip.slot, address, &trip.member)?, false)),
            (Some(Hint::Ask(address)), _) => Ok((self.named(address, &trip.member)?, true)),
            (Some(Hint::TryAgain), _) => {
                trip.wait_for_keys(error).await?;
                Ok((self.owner(trip.slot, trip.left()).await?, false))
            }
            (_, NodeErrorKind::NotRun) => {
                // Another server may have taken over the slot.
                let next = self.successor(trip.slot, &trip.member, trip.left()).await;
                next.map(|next| (next, false)).ok_or_else(|| with_server_name(&trip.member, error))
            }
            _ => {
                self.relearn();
                Err(with_server_name(&trip.member, error))
            }
        }
    }

    async fn eval_after(
        self: &Arc<Self>,
        id: ConnectionId,
        call: ScriptCall,
        timeout: Duration,
    ) -> Result<Reply, NodeError> {
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let slot = slot(call.keys.first().map_or("", String::as_str));
        let (owner, carrier) = {
            let map = self.map.lock();
            let carrier = map.members.values().find(|member| Some(member.name()) == id.server.as_deref()).cloned();
            (map.owner(slot), carrier)
        };
        if let Some(carrier) = carrier {
            let owns = owner.is_none_or(|owner| Arc::ptr_eq(&owner, &carrier));
            let limit = if owns { left() } else { left().min(FORMER_OWNER) };
            match carrier.eval_after(id, call.clone(), limit).await {
                // The carrier has run everything sent before, and keeps no keys of a slot that it does not serve.
                Err(NodeError { hint: Some(Hint::Moved(address)), .. }) => {
                    self.moved(slot, &address, &carrier)?;
                }
                Err(NodeError { hint: Some(_), .. }) => {}
                Err(error) if owns => {
                    self.relearn();
                    return Err(with_server_name(&carrier, error));
                }
                // Whatever the carrier may still run affects only its own data: the cluster chose another owner.
                Err(_) => {}
                done => return done,
            }
        }
        self.eval(Driver::Background, call, left(), SentOn::default()).await
    }

    async fn subscribe(self: &Arc<Self>, channel: String) -> Result<Subscription, NodeError> {
        let slot = slot(&channel);
        let mut member = self.owner(slot, self.settings.config.connect_timeout).await?;
        for _ in 0..HOPS_AT_ONCE {
            match member.subscribe(channel.clone()).await {
                Err(NodeError { hint: Some(Hint::Moved(address)), .. }) => {
                    member = self.moved(slot, &address, &member)?;
                }
                Err(error) => {
                    self.relearn();
                    return Err(with_server_name(&member, error));
                }
                done => return done,
            }
        }
        Err(not_run_error("the slot of the channel keeps moving"))
    }

    /// The masters of the cluster, as far as the map knows them.
    fn masters(&self) -> Vec<Arc<RedisNode>> {
        let map = self.map.lock();
        map.masters.iter().filter_map(|address| map.members.get(address).cloned()).collect()
    }

    /// Lists the clients that are connected to any of the masters that answer. Fails if none does.
    async fn clients(self: &Arc<Self>, timeout: Duration) -> Result<Vec<NamedConnection>, NodeError> {
        self.owner(0, timeout).await?;
        let lists = self.masters().into_iter().map(|member| async move {
            let list = member.inner()?.clients(timeout).await;
            list.map_err(|error| with_server_name(&member, error))
        });
        let (mut all, mut failed) = (None, None);
        for list in join_all(lists).await {
            match list {
                Ok(list) => all.get_or_insert_with(Vec::new).extend(list),
                Err(error) => failed = Some(error),
            }
        }
        all.map(each_once).ok_or_else(|| failed.unwrap_or_else(closed_error))
    }

    /// Pings all masters, each of which must answer. Returns the info of the owner of slot 0.
    async fn ping(self: &Arc<Self>, timeout: Duration) -> Result<NodeInfo, NodeError> {
        let first = self.owner(0, timeout).await?;
        if self.map.lock().owners.contains(&NOBODY) {
            return Err(not_run_error("nobody serves some of the cluster's slots"));
        }
        let masters = self.masters();
        let pongs = masters
            .iter()
            .map(|member| async move { member.ping(timeout).await.map_err(|error| with_server_name(member, error)) });
        let mut facts = NodeInfo::new(None, None);
        for (member, pong) in masters.iter().zip(join_all(pongs).await) {
            let pong = pong?;
            if Arc::ptr_eq(member, &first) {
                facts = pong;
            }
        }
        facts.servers = masters.iter().map(|member| member.name().to_owned()).collect();
        Ok(facts)
    }

    /// Returns the server at an address that server `by` named. Without a host, the host is that of `by`.
    fn named(self: &Arc<Self>, address: &str, by: &RedisNode) -> Result<Arc<RedisNode>, NodeError> {
        let mut map = self.map.lock();
        let wrong = || not_run_error(format!("the cluster sends to {address:?}, which is no address"));
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = if host.is_empty() || host == "?" {
            let known = map.members.iter().find(|(_, member)| std::ptr::eq(&raw const ***member, by));
            known.map(|(address, _)| address.host.clone()).ok_or_else(wrong)?
        } else {
            host.trim_start_matches('[').trim_end_matches(']').to_owned()
        };
        if map.closed {
            return Err(closed_error());
        }
        let made = self.member(&mut map, &Address { host, port });
        made.map_err(|error| permanent_error(error.to_string()))
    }

    /// Records the new owner of a slot, and learns those of the other slots in the background.
    fn moved(self: &Arc<Self>, slot: u16, address: &str, by: &RedisNode) -> Result<Arc<RedisNode>, NodeError> {
        let owner = self.named(address, by)?;
        {
            let mut map = self.map.lock();
            let address = map.members.iter().find(|(_, member)| Arc::ptr_eq(member, &owner)).map(|(a, _)| a.clone());
            if let Some(address) = address {
                map.assign(slot, slot, &address);
            }
        }
        self.relearn();
        Ok(owner)
    }
}

/// A request and its state between redirections.
struct Trip {
    driver: Driver,
    call: ScriptCall,
    slot: u16,
    deadline: Instant,
    /// The server that gets the request next.
    member: Arc<RedisNode>,
    /// Whether the request was redirected there by -ASK, during the migration of its slot. ASKING then precedes it.
    redirected_by_ask: bool,
    hops: usize,
}

impl Trip {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Handles keys that are on two servers, as the call demands: waits a little, takes the smaller call, or fails.
    async fn wait_for_keys(&mut self, error: NodeError) -> Result<(), NodeError> {
        match std::mem::take(&mut self.call.while_moving) {
            WhileMoving::Wait => {}
            WhileMoving::Fail => return Err(error),
            WhileMoving::Instead(smaller) => {
                self.call = *smaller;
                return Ok(());
            }
        }
        // Resets the count: a move may take many retries, until the deadline.
        self.hops = 0;
        self.pause().await;
        if self.left().is_zero() {
            return Err(NodeError { detail: "the lock's slot is moving to another server".into(), ..error });
        }
        Ok(())
    }

    async fn pause(&self) {
        let pause = Duration::from_micros(fastrand::u64(TRY_AGAIN.0..TRY_AGAIN.1));
        timer(self.driver, pause.min(self.left())).await;
    }
}

/// Returns the error with the server's name in front of its text.
fn with_server_name(member: &RedisNode, error: NodeError) -> NodeError {
    NodeError { detail: format!("{}: {}", member.name(), error.detail), ..error }
}
