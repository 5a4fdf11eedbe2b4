//! The map of a cluster: which server serves which slot. Several servers are queried at once, and the newest map from a
//! healthy part of the cluster counts. It is learned again whenever a server's reply contradicts it.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Cmd, Value};
use tokio::{sync::watch, time::Instant};

use super::{Inner, with_server_name};
use crate::{
    error::LockError,
    process::driver::Driver,
    protocol::{script::Reply, sharding::SLOTS},
    server::{
        Node, NodeError,
        redis::{
            RedisNode,
            errors::{closed_error, error_from_reply, joint_error, not_run_error, permanent_error},
            replies::{into_text, reply},
            request::Pipelined,
            within_limit,
        },
    },
    url::{Address, Endpoint},
};

/// How many masters, and how many seeds, are queried for the map at once.
const MOST_QUERIED: usize = 5;
/// After the first map, how long to wait for a newer one from the other servers.
const WAIT_FOR_NEWER: Duration = Duration::from_millis(20);
/// The same after a map that says that the cluster is down.
const WAIT_FOR_HEALTHY: Duration = Duration::from_millis(200);
/// The minimum time between two attempts to learn the map.
const LEARNING_PAUSE: Duration = Duration::from_millis(100);
/// The pause between attempts while a master is down: it will come back or be replaced.
const TROUBLE_PAUSE: Duration = Duration::from_millis(250);
/// Marks a slot that no master serves: not an index into `Map::masters`.
pub(super) const NOBODY: u16 = u16::MAX;

/// The known servers of a cluster and the owner of each slot.
pub(super) struct Map {
    /// All servers that were needed so far and belong to the cluster, and the seeds.
    pub(super) members: BTreeMap<Address, Arc<RedisNode>>,
    /// For each slot, an index into `masters`, or `NOBODY`.
    pub(super) owners: Vec<u16>,
    pub(super) masters: Vec<Address>,
    /// The error of the last attempt to learn, if it failed.
    error: Option<NodeError>,
    learning: bool,
    /// The start of the last attempt.
    began: Option<Instant>,
    pub(super) closed: bool,
}

/// The map as one server reports it.
struct ClusterSlots {
    healthy: bool,
    epoch: u64,
    ranges: Vec<(u16, u16, Address)>,
    /// Masters and replicas.
    members: Vec<Address>,
}

impl Inner {
    /// Returns the owner of a slot. Learns the map if the owner is unknown.
    pub(super) async fn owner(self: &Arc<Self>, slot: u16, timeout: Duration) -> Result<Arc<RedisNode>, NodeError> {
        let mut learned = self.learned.subscribe();
        {
            let map = self.map.lock();
            if map.closed {
                return Err(closed_error());
            }
            if let Some(owner) = map.owner(slot) {
                return Ok(owner);
            }
        }
        learned.mark_unchanged();
        self.relearn();
        let attempt = within_limit(Driver::Background, timeout, pin!(learned.changed())).await;
        let map = self.map.lock();
        if map.closed {
            return Err(closed_error());
        }
        map.owner(slot).ok_or_else(|| match (&map.error, attempt) {
            (Some(error), _) => error.clone(),
            (None, Some(_)) => not_run_error(format!("nobody in the cluster serves slot {slot}")),
            (None, None) => not_run_error(format!("no server returned the slot map within {timeout:.1?}")),
        })
    }

    /// Returns the owner of a slot after `former`, or `None` if the cluster knows no other.
    pub(super) async fn successor(
        self: &Arc<Self>,
        slot: u16,
        former: &Arc<RedisNode>,
        timeout: Duration,
    ) -> Option<Arc<RedisNode>> {
        let other = || self.map.lock().owner(slot).filter(|owner| !Arc::ptr_eq(owner, former));
        if let Some(next) = other() {
            return Some(next);
        }
        let mut learned = self.learned.subscribe();
        learned.mark_unchanged();
        self.relearn();
        within_limit(Driver::Background, timeout, pin!(learned.changed())).await?.ok()?;
        other()
    }

    /// Learns the map again in the background, unless that is under way.
    pub(super) fn relearn(self: &Arc<Self>) {
        let pause = {
            let mut map = self.map.lock();
            if map.closed || std::mem::replace(&mut map.learning, true) {
                return;
            }
            map.began.map_or(Duration::ZERO, |began| LEARNING_PAUSE.saturating_sub(began.elapsed()))
        };
        let inner = Arc::clone(self);
        self.spawn(async move {
            tokio::time::sleep(pause).await;
            loop {
                inner.map.lock().began = Some(Instant::now());
                let slots = inner.query_servers().await;
                if !inner.install(slots) {
                    return;
                }
                // Without this repetition, perhaps nothing would learn the map until a renewal is due.
                tokio::time::sleep(TROUBLE_PAUSE).await;
                if std::mem::replace(&mut inner.map.lock().learning, true) {
                    return;
                }
            }
        });
    }

    /// Queries some servers for the map. Returns the newest one from a healthy part of the cluster.
    async fn query_servers(self: &Arc<Self>) -> Result<ClusterSlots, NodeError> {
        let servers = {
            let mut map = self.map.lock();
            let mut candidates: Vec<Address> = map.masters.clone();
            fastrand::shuffle(&mut candidates);
            candidates.truncate(MOST_QUERIED);
            let mut seeds = self.seeds.clone();
            fastrand::shuffle(&mut seeds);
            seeds.truncate(MOST_QUERIED);
            candidates.extend(seeds);
            candidates.sort();
            candidates.dedup();
            let members =
                candidates.into_iter().filter_map(|address| Some((self.member(&mut map, &address).ok()?, address)));
            members.collect::<Vec<_>>()
        };
        let limit = self.settings.config.reply_timeout.min(self.settings.config.connect_timeout);
        let mut answers: FuturesUnordered<_> = servers
            .iter()
            .map(|(member, address)| async move { (member, request_map(member, address, limit).await) })
            .collect();
        let (mut best, mut failed): (Option<ClusterSlots>, Vec<NodeError>) = (None, Vec::new());
        let mut until = None;
        loop {
            let next = match until {
                None => answers.next().await,
                Some(until) => tokio::time::timeout_at(until, answers.next()).await.unwrap_or_default(),
            };
            match next {
                None => break,
                Some((_, Ok(slots))) => {
                    // A server that hangs must not delay the result.
                    let over = Instant::now() + if slots.healthy { WAIT_FOR_NEWER } else { WAIT_FOR_HEALTHY };
                    until = Some(until.map_or(over, |until: Instant| until.min(over)));
                    let rank = |slots: &ClusterSlots| (slots.healthy, slots.epoch);
                    if best.as_ref().is_none_or(|best| rank(best) < rank(&slots)) {
                        best = Some(slots);
                    }
                }
                Some((member, Err(error))) => failed.push(with_server_name(member, error)),
            }
        }
        best.ok_or_else(|| {
            let each: Vec<_> = failed.iter().map(|error| error.detail.clone()).collect();
            joint_error(failed.iter(), format!("no server of the cluster answers: {}", each.join(", ")))
        })
    }

    /// Installs the map. Returns whether a master is in trouble, so that the map will change soon.
    fn install(self: &Arc<Self>, slots: Result<ClusterSlots, NodeError>) -> bool {
        let (failed_over, troubled) = {
            let mut map = self.map.lock();
            map.learning = false;
            if map.closed {
                return false;
            }
            let failed_over = match slots {
                Err(error) => {
                    map.error = Some(error);
                    false
                }
                // A server that left the cluster knows no master. Those that are known may be back.
                Ok(slots) if slots.ranges.is_empty() => {
                    map.error = Some(not_run_error("CLUSTERDOWN: the cluster is down"));
                    false
                }
                Ok(slots) => {
                    let before = std::mem::take(&mut map.masters);
                    map.error = (!slots.healthy).then(|| not_run_error("CLUSTERDOWN: the cluster is down"));
                    map.owners.fill(NOBODY);
                    for (first, last, address) in &slots.ranges {
                        if self.member(&mut map, address).is_ok() {
                            map.assign(*first, *last, address);
                        }
                    }
                    // Forgets servers that left. Seeds stay: they may be other addresses of servers in the map.
                    map.members.retain(|address, _| slots.members.contains(address) || self.seeds.contains(address));
                    // A slot that was moved brought its keys. A failed-over master may have left some behind.
                    before.iter().any(|master| !map.masters.contains(master))
                }
            };
            let masters = map.masters.iter().filter_map(|address| map.members.get(address));
            (failed_over, masters.into_iter().any(|master| master.inner().is_ok_and(|inner| inner.is_troubled())))
        };
        self.learned.send_modify(|count| *count += 1);
        if failed_over {
            self.changes.send_modify(|count| *count += 1);
        }
        troubled
    }

    /// Returns the server at an address; creates it if it is new.
    pub(super) fn member(self: &Arc<Self>, map: &mut Map, address: &Address) -> Result<Arc<RedisNode>, LockError> {
        if let Some(member) = map.members.get(address) {
            return Ok(Arc::clone(member));
        }
        let endpoint = Endpoint { transport: address.clone().transport(self.tls), ..self.endpoint.clone() };
        let (events, name) = (self.events.clone(), self.connection_name.clone());
        let member = Arc::new(RedisNode::in_cluster(&endpoint, &self.settings, events, name, true)?);
        map.members.insert(address.clone(), Arc::clone(&member));
        if !map.closed {
            self.spawn(forward(Arc::downgrade(self), member.changes()));
        }
        Ok(member)
    }
}

impl Map {
    /// Creates an empty map, which is learned at first use.
    pub(super) fn unknown() -> Self {
        Self {
            members: BTreeMap::new(),
            owners: vec![NOBODY; SLOTS],
            masters: Vec::new(),
            error: None,
            learning: false,
            began: None,
            closed: false,
        }
    }

    /// Returns the owner of a slot, if it is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<RedisNode>> {
        let master = self.masters.get(usize::from(self.owners[usize::from(slot)]))?;
        self.members.get(master).cloned()
    }

    /// Makes the server at `address` the owner of the slots from `first` to `last`.
    pub(super) fn assign(&mut self, first: u16, last: u16, address: &Address) {
        let index = self.masters.iter().position(|known| known == address).unwrap_or_else(|| {
            self.masters.push(address.clone());
            self.masters.len() - 1
        });
        if let Some(slots) = self.owners.get_mut(usize::from(first)..=usize::from(last)) {
            slots.fill(index as u16);
        }
    }
}

/// Forwards each change of a server to the node, and learns the map again.
async fn forward(inner: Weak<Inner>, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some(inner) = inner.upgrade() else { return };
        inner.changes.send_modify(|count| *count += 1);
        inner.relearn();
    }
}

/// Requests the map from one server.
async fn request_map(member: &RedisNode, address: &Address, limit: Duration) -> Result<ClusterSlots, NodeError> {
    let inner = member.inner()?;
    let connection = inner.background(limit).await?;
    let request = |subcommand: &'static str| {
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg(subcommand);
        let connection = &connection;
        async move { inner.request(connection, &command, None, limit, Pipelined::default()).await }
    };
    let (slots, info) = tokio::try_join!(request("SLOTS"), request("INFO"))?;
    let Reply::Text(info) = reply(info)? else { return Err(permanent_error("CLUSTER INFO: unexpected kind of reply")) };
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let (mut ranges, mut members) = (Vec::new(), Vec::new());
    let slots = match slots {
        Value::ServerError(error) => return Err(error_from_reply(&error)),
        other => list(other),
    };
    for range in slots {
        let mut range = list(range).into_iter();
        let (Some(Value::Int(first)), Some(Value::Int(last))) = (range.next(), range.next()) else { continue };
        for (index, server) in range.enumerate() {
            let mut server = list(server).into_iter();
            let host = match server.next() {
                Some(Value::BulkString(host)) if !host.is_empty() && host != b"?" => into_text(host),
                Some(Value::SimpleString(host)) if !host.is_empty() && host != "?" => host,
                // The server does not know its own host.
                _ => address.host.clone(),
            };
            let Some(Value::Int(port)) = server.next() else { continue };
            let Ok(port) = u16::try_from(port) else { continue };
            let server = Address { host, port };
            if index == 0
                && let (Ok(first), Ok(last)) = (u16::try_from(first), u16::try_from(last))
                && first <= last
                && usize::from(last) < SLOTS
            {
                ranges.push((first, last, server.clone()));
            }
            members.push(server);
        }
    }
    let healthy = field("cluster_state") == Some("ok");
    if ranges.is_empty() && healthy {
        return Err(not_run_error("has no slots yet"));
    }
    let epoch = field("cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
    Ok(ClusterSlots { healthy, epoch, ranges, members })
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}
