//! Which server of a cluster serves which slot: asked of several at once, the newest word of a healthy part counts, and
//! asked anew whenever a server's answer is at odds with it.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Cmd, Value};
use tokio::{sync::watch, time::Instant};

use super::{Inner, blame};
use crate::{
    error::LockError,
    process::driver::Driver,
    protocol::{parts::SLOTS, script::Reply},
    server::{
        Node, NodeError,
        redis::{
            RedisNode,
            errors::{closed, not_run, permanent, refusal},
            patient,
            replies::{into_text, reply},
            request::With,
        },
    },
    url::{Address, Endpoint},
};

/// How many servers are asked for the map at once.
const ASKED: usize = 5;
/// How long the others have, once one told the map, to tell a newer one.
const SECOND_OPINION: Duration = Duration::from_millis(20);
/// The same once one told that the cluster is down.
const BETTER_NEWS: Duration = Duration::from_millis(200);
/// The map is asked for no more often than this.
const LEARNING_PAUSE: Duration = Duration::from_millis(100);
/// How often to ask while a master is down: it will come back, or be replaced.
const TROUBLE_PAUSE: Duration = Duration::from_millis(250);
/// Nobody's slot.
pub(super) const NOBODY: u16 = u16::MAX;

pub(super) struct Map {
    /// Every server that was ever needed and is part of the cluster.
    pub(super) members: BTreeMap<Address, Arc<RedisNode>>,
    /// For each slot, an index of `masters`, or `NOBODY`.
    pub(super) owners: Vec<u16>,
    pub(super) masters: Vec<Address>,
    /// Why the last attempt to learn failed.
    error: Option<NodeError>,
    learning: bool,
    /// When the last attempt began.
    began: Option<Instant>,
    pub(super) closed: bool,
}

/// The map as one server tells it.
struct ClusterSlots {
    healthy: bool,
    epoch: u64,
    ranges: Vec<(u16, u16, Address)>,
    /// Masters and replicas.
    members: Vec<Address>,
}

impl Inner {
    /// The owner of a slot; learns the map where it is missing.
    pub(super) async fn owner(self: &Arc<Self>, slot: u16, timeout: Duration) -> Result<Arc<RedisNode>, NodeError> {
        let mut learned = self.learned.subscribe();
        {
            let map = self.map.lock();
            if map.closed {
                return Err(closed());
            }
            if let Some(owner) = map.owner(slot) {
                return Ok(owner);
            }
        }
        learned.mark_unchanged();
        self.doubt();
        let attempt = patient(Driver::Background, timeout, pin!(learned.changed())).await;
        let map = self.map.lock();
        if map.closed {
            return Err(closed());
        }
        map.owner(slot).ok_or_else(|| match (&map.error, attempt) {
            (Some(error), _) => error.clone(),
            (None, Some(_)) => not_run(format!("nobody in the cluster serves slot {slot}")),
            (None, None) => not_run(format!("nobody told where the cluster's slots are within {timeout:.1?}")),
        })
    }

    /// Who serves a slot now that `former` does not; nothing if the cluster knows nobody else.
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
        self.doubt();
        patient(Driver::Background, timeout, pin!(learned.changed())).await?.ok()?;
        other()
    }

    /// Has the map learned anew, unless that is under way.
    pub(super) fn doubt(self: &Arc<Self>) {
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
                let slots = inner.ask().await;
                if !inner.install(slots) {
                    return;
                }
                // Nobody else may ask before a renewal is due.
                tokio::time::sleep(TROUBLE_PAUSE).await;
                if std::mem::replace(&mut inner.map.lock().learning, true) {
                    return;
                }
            }
        });
    }

    /// Asks some servers for the map; the newest that a healthy part of the cluster tells counts.
    async fn ask(self: &Arc<Self>) -> Result<ClusterSlots, NodeError> {
        let candidates = {
            let mut map = self.map.lock();
            let mut others: Vec<Address> = map.masters.clone();
            fastrand::shuffle(&mut others);
            others.truncate(ASKED);
            let mut seeds = self.seeds.clone();
            fastrand::shuffle(&mut seeds);
            seeds.truncate(ASKED);
            others.extend(seeds);
            others.sort();
            others.dedup();
            let members =
                others.into_iter().filter_map(|address| Some((self.member(&mut map, &address).ok()?, address)));
            members.collect::<Vec<_>>()
        };
        let limit = self.settings.config.reply_timeout.min(self.settings.config.connect_timeout);
        let mut answers: FuturesUnordered<_> = candidates
            .iter()
            .map(|(member, address)| async move { (member, tell(member, address, limit).await) })
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
                    // Those that hang must not keep the others' word back.
                    let over = Instant::now() + if slots.healthy { SECOND_OPINION } else { BETTER_NEWS };
                    until = Some(until.map_or(over, |until: Instant| until.min(over)));
                    let rank = |slots: &ClusterSlots| (slots.healthy, slots.epoch);
                    if best.as_ref().is_none_or(|best| rank(best) < rank(&slots)) {
                        best = Some(slots);
                    }
                }
                Some((member, Err(error))) => failed.push(blame(member, error)),
            }
        }
        best.ok_or_else(|| {
            let each: Vec<_> = failed.iter().map(|error| error.detail.clone()).collect();
            let detail = format!("no server of the cluster answers: {}", each.join(", "));
            if failed.iter().all(NodeError::is_permanent) { permanent(detail) } else { not_run(detail) }
        })
    }

    /// Takes the map over; says whether it is of a cluster in trouble, and will change soon.
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
                Ok(slots) => {
                    let before = std::mem::take(&mut map.masters);
                    map.error = (!slots.healthy).then(|| not_run("CLUSTERDOWN: the cluster is down"));
                    map.owners.fill(NOBODY);
                    for (first, last, address) in &slots.ranges {
                        if self.member(&mut map, address).is_ok() {
                            map.assign(*first, *last, address);
                        }
                    }
                    // Servers that left are forgotten; seeds may be addresses that only lead to some.
                    map.members.retain(|address, _| slots.members.contains(address) || self.seeds.contains(address));
                    // A slot that was moved brought its keys. A master that is none any more may have left some behind.
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

    /// The server at an address, known or new.
    pub(super) fn member(self: &Arc<Self>, map: &mut Map, address: &Address) -> Result<Arc<RedisNode>, LockError> {
        if let Some(member) = map.members.get(address) {
            return Ok(Arc::clone(member));
        }
        let endpoint = Endpoint { transport: address.clone().transport(self.tls), ..self.endpoint.clone() };
        let member = Arc::new(RedisNode::in_cluster(&endpoint, &self.settings, self.events.clone(), true)?);
        map.members.insert(address.clone(), Arc::clone(&member));
        if !map.closed {
            self.spawn(forward(Arc::downgrade(self), member.changes()));
        }
        Ok(member)
    }
}

impl Map {
    /// To be learned when it is first needed.
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

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<RedisNode>> {
        let master = self.masters.get(usize::from(self.owners[usize::from(slot)]))?;
        self.members.get(master).cloned()
    }

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

/// Passes on that a server broke or came back, and has the map looked at.
async fn forward(inner: Weak<Inner>, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some(inner) = inner.upgrade() else { return };
        inner.changes.send_modify(|count| *count += 1);
        inner.doubt();
    }
}

/// Asks one server for the map.
async fn tell(member: &RedisNode, address: &Address, limit: Duration) -> Result<ClusterSlots, NodeError> {
    let inner = member.inner()?;
    let connection = inner.background(limit).await?;
    let ask = |what: &'static str| {
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg(what);
        let connection = &connection;
        async move { inner.request(connection, &command, None, limit, With::default()).await }
    };
    let (slots, info) = tokio::try_join!(ask("SLOTS"), ask("INFO"))?;
    let Reply::Text(info) = reply(info)? else { return Err(permanent("CLUSTER INFO: unexpected kind of reply")) };
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let (mut ranges, mut members) = (Vec::new(), Vec::new());
    let slots = match slots {
        Value::ServerError(error) => return Err(refusal(&error)),
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
                // It does not know its own.
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
        return Err(not_run("has no slots yet"));
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
