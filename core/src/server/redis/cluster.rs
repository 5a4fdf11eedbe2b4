//! A node that is a Redis Cluster: a server for each range of slots, found by asking any of them, and followed as slots
//! move and masters fail over. A request goes to the owner of its first key's slot; all its keys share that slot.
//!
//! A server that does not serve a slot says so instead of running a request, so following its word repeats nothing:
//! MOVED names the new owner, ASK the next one while the slot is on its way, TRYAGAIN says that some of the keys have
//! gone there and some not. Source: the Redis Cluster specification, "Redirection and resharding".

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use crc::{CRC_16_XMODEM, Crc};
use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use once_cell::race::OnceBox;
use redis::{Cmd, Value};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::{
    RedisNode,
    replies::{With, closed, into_text, not_run, permanent, reply},
    timer,
};
use crate::{
    config::{Address, Endpoint, Settings, Transport},
    error::LockError,
    event::EventSink,
    process::runtime,
    protocol::script::{Call, Reply, WhileMoving},
    server::{BoxFuture, Hint, Lane, Link, MARKER, Node, NodeError, NodeErrorKind, NodeInfo, Sent, Subscription},
    sync::Mutex,
};

const SLOTS: usize = 16_384;
/// How often a request follows redirections; each cluster settles in fewer.
const MOST_HOPS: usize = 8;
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
/// How long to wait for a slot that is on its way: µs, from and to.
const TRY_AGAIN: (u64, u64) = (5_000, 25_000);
/// How long a server that owns a slot no more may take to confirm what was sent to it.
const FORMER_OWNER: Duration = Duration::from_millis(500);
/// Nobody's slot.
const NOBODY: u16 = u16::MAX;

/// A Redis Cluster.
pub(crate) struct ClusterNode {
    inner: Arc<Inner>,
}

struct Inner {
    name: String,
    seeds: Vec<Address>,
    /// How each server is spoken to; its address is filled in.
    endpoint: Endpoint,
    tls: bool,
    settings: Settings,
    events: EventSink,
    generation: u64,
    map: Mutex<Map>,
    /// Raised by one with each attempt to learn the map that ended.
    learned: watch::Sender<u64>,
    changes: watch::Sender<u64>,
    /// Ended with the node.
    tasks: Mutex<JoinSet<()>>,
}

struct Map {
    /// Every server that was ever needed and is part of the cluster.
    members: BTreeMap<Address, Arc<RedisNode>>,
    /// For each slot, an index of `masters`, or `NOBODY`.
    owners: Vec<u16>,
    masters: Vec<Address>,
    /// Why the last attempt to learn failed.
    error: Option<NodeError>,
    learning: bool,
    /// When the last attempt began.
    began: Option<Instant>,
    closed: bool,
}

/// The map as one server tells it.
struct Told {
    healthy: bool,
    epoch: u64,
    ranges: Vec<(u16, u16, Address)>,
    /// Masters and replicas.
    members: Vec<Address>,
}

impl ClusterNode {
    /// Prepares the node; connects at first use.
    pub(crate) fn new(endpoint: &Endpoint, settings: &Settings, events: EventSink) -> Result<Self, LockError> {
        let Transport::Cluster { seeds, tls } = &endpoint.transport else {
            return Err(LockError::invalid("nodes", "not the URL of a cluster"));
        };
        let inner = Arc::new(Inner {
            name: endpoint.transport.to_string(),
            seeds: seeds.clone(),
            endpoint: endpoint.clone(),
            tls: *tls,
            settings: settings.clone(),
            events,
            generation: runtime::generation(),
            map: Mutex::new(Map {
                members: BTreeMap::new(),
                owners: vec![NOBODY; SLOTS],
                masters: Vec::new(),
                error: None,
                learning: false,
                began: None,
                closed: false,
            }),
            learned: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            tasks: Mutex::new(JoinSet::new()),
        });
        // A mistake in the settings shows here, not as a node that is down.
        for seed in seeds {
            inner.member(&mut inner.map.lock(), seed)?;
        }
        Ok(Self { inner })
    }
}

impl Drop for ClusterNode {
    fn drop(&mut self) {
        if self.inner.forked() {
            // As with a server: what it refers to is the parent's.
            std::mem::forget(Arc::clone(&self.inner));
        } else {
            self.inner.close();
        }
    }
}

impl Node for ClusterNode {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn eval(&self, lane: Lane, call: Call, timeout: Duration, sent: Sent) -> BoxFuture<Result<Reply, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.eval(lane, call, timeout, sent).await })
    }

    fn eval_after(&self, link: Link, call: Call, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.eval_after(link, call, timeout).await })
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.subscribe(channel).await })
    }

    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.ping(timeout).await })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    fn close(&self) {
        if !self.inner.forked() {
            self.inner.close();
        }
    }

    fn part(&self, key: &str) -> u16 {
        slot(key)
    }

    fn marker(&self, key: &str) -> String {
        marker(slot(key))
    }

    fn has_parts(&self) -> bool {
        true
    }

    fn markers(&self) -> Vec<String> {
        (0..SLOTS).map(|slot| marker(slot as u16)).collect()
    }

    fn is_hostable(&self) -> bool {
        cfg!(target_os = "linux") && !self.inner.tls
    }
}

impl Inner {
    fn forked(&self) -> bool {
        self.generation != runtime::generation()
    }

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
        tasks.spawn_on(task, &runtime::background());
    }

    // ---- requests ---------------------------------------------------------------------------------------------

    async fn eval(
        self: &Arc<Self>,
        lane: Lane,
        mut call: Call,
        timeout: Duration,
        sent: Sent,
    ) -> Result<Reply, NodeError> {
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let slot = slot(call.keys.first().map_or("", String::as_str));
        if let Some(last) = call.keys.last_mut().filter(|last| *last == MARKER) {
            *last = marker(slot);
        }
        let mut member = self.owner(slot, left()).await?;
        let (mut asking, mut hops) = (false, 0);
        loop {
            let result = member.inner.run(lane, &call, left(), &sent, asking).await;
            let Err(error) = result else { return result };
            hops += 1;
            if hops > MOST_HOPS {
                self.doubt();
                return Err(NodeError { detail: format!("the cluster's servers disagree: {}", error.detail), ..error });
            }
            if left().is_zero() {
                return Err(blame(&member, error));
            }
            match (&error.hint, error.kind) {
                (Some(Hint::Moved(address)), _) => {
                    (member, asking) = (self.moved(slot, address, &member)?, false);
                }
                (Some(Hint::Ask(address)), _) => (member, asking) = (self.named(address, &member)?, true),
                (Some(Hint::TryAgain), _) => {
                    match std::mem::take(&mut call.while_moving) {
                        WhileMoving::Wait => {}
                        WhileMoving::Fail => return Err(error),
                        WhileMoving::Instead(smaller) => {
                            call = *smaller;
                            (member, asking) = (self.owner(slot, left()).await?, false);
                            continue;
                        }
                    }
                    // As long as it takes: the slot is on its way.
                    hops = 0;
                    let pause = Duration::from_micros(fastrand::u64(TRY_AGAIN.0..TRY_AGAIN.1));
                    timer(lane, pause.min(left())).await;
                    if left().is_zero() {
                        return Err(NodeError {
                            detail: "the lock's slot is moving to another server".into(),
                            ..error
                        });
                    }
                    (member, asking) = (self.owner(slot, left()).await?, false);
                }
                (_, NodeErrorKind::NotRun) => {
                    // Another server may have taken over.
                    let next = self.successor(slot, &member, left()).await;
                    let Some(next) = next else { return Err(blame(&member, error)) };
                    (member, asking) = (next, false);
                }
                _ => {
                    self.doubt();
                    return Err(blame(&member, error));
                }
            }
        }
    }

    async fn eval_after(self: &Arc<Self>, link: Link, call: Call, timeout: Duration) -> Result<Reply, NodeError> {
        let deadline = Instant::now() + timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let slot = slot(call.keys.first().map_or("", String::as_str));
        let (owner, carrier) = {
            let map = self.map.lock();
            let carrier = map.members.values().find(|member| Some(member.name()) == link.server.as_deref()).cloned();
            (map.owner(slot), carrier)
        };
        if let Some(carrier) = carrier {
            let owns = owner.is_none_or(|owner| Arc::ptr_eq(&owner, &carrier));
            let limit = if owns { left() } else { left().min(FORMER_OWNER) };
            match carrier.eval_after(link, call.clone(), limit).await {
                // It has answered all that came before; what it has no slot for it has not kept.
                Err(NodeError { hint: Some(Hint::Moved(address)), .. }) => {
                    self.moved(slot, &address, &carrier)?;
                }
                Err(NodeError { hint: Some(_), .. }) => {}
                Err(error) if owns => {
                    self.doubt();
                    return Err(blame(&carrier, error));
                }
                // What it may still run it runs for itself: the cluster made another one the slot's owner.
                Err(_) => {}
                done => return done,
            }
        }
        self.eval(Lane::Background, call, left(), Sent::default()).await
    }

    async fn subscribe(self: &Arc<Self>, channel: String) -> Result<Subscription, NodeError> {
        let slot = slot(&channel);
        let mut member = self.owner(slot, self.settings.config.connect_timeout).await?;
        for _ in 0..MOST_HOPS {
            match member.subscribe(channel.clone()).await {
                Err(NodeError { hint: Some(Hint::Moved(address)), .. }) => {
                    member = self.moved(slot, &address, &member)?;
                }
                Err(error) => {
                    self.doubt();
                    return Err(blame(&member, error));
                }
                done => return done,
            }
        }
        Err(not_run("the slot of the channel keeps moving"))
    }

    /// All masters must answer.
    async fn ping(self: &Arc<Self>, timeout: Duration) -> Result<NodeInfo, NodeError> {
        let first = self.owner(0, timeout).await?;
        let masters: Vec<_> = {
            let map = self.map.lock();
            if map.owners.contains(&NOBODY) {
                return Err(not_run("nobody serves some of the cluster's slots"));
            }
            map.masters.iter().filter_map(|address| map.members.get(address).cloned()).collect()
        };
        let pongs = masters
            .iter()
            .map(|member| async move { member.ping(timeout).await.map_err(|error| blame(member, error)) });
        let mut facts = NodeInfo::new(None, None);
        for (member, pong) in masters.iter().zip(join_all(pongs).await) {
            let pong = pong?;
            if Arc::ptr_eq(member, &first) {
                facts = pong;
            }
        }
        Ok(facts)
    }

    // ---- the map ----------------------------------------------------------------------------------------------

    /// The server for an address as another server names it: without a host, that server's own.
    fn named(self: &Arc<Self>, address: &str, by: &RedisNode) -> Result<Arc<RedisNode>, NodeError> {
        let mut map = self.map.lock();
        let wrong = || not_run(format!("the cluster sends to {address:?}, which is no address"));
        let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().map_err(|_| wrong())?;
        let host = if host.is_empty() || host == "?" {
            let known = map.members.iter().find(|(_, member)| std::ptr::eq(&raw const ***member, by));
            known.map(|(address, _)| address.host.clone()).ok_or_else(wrong)?
        } else {
            host.trim_start_matches('[').trim_end_matches(']').to_owned()
        };
        if map.closed {
            return Err(closed());
        }
        let made = self.member(&mut map, &Address { host, port });
        made.map_err(|error| permanent(error.to_string()))
    }

    /// Notes the new owner of a slot; the others' are asked for.
    fn moved(self: &Arc<Self>, slot: u16, address: &str, by: &RedisNode) -> Result<Arc<RedisNode>, NodeError> {
        let owner = self.named(address, by)?;
        {
            let mut map = self.map.lock();
            let address = map.members.iter().find(|(_, member)| Arc::ptr_eq(member, &owner)).map(|(a, _)| a.clone());
            if let Some(address) = address {
                map.assign(slot, slot, &address);
            }
        }
        self.doubt();
        Ok(owner)
    }

    /// The owner of a slot; learns the map where it is missing.
    async fn owner(self: &Arc<Self>, slot: u16, timeout: Duration) -> Result<Arc<RedisNode>, NodeError> {
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
        let attempt = super::patient(Lane::Background, timeout, learned.changed()).await;
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
    async fn successor(
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
        super::patient(Lane::Background, timeout, learned.changed()).await?.ok()?;
        other()
    }

    /// Has the map learned anew, unless that is under way.
    fn doubt(self: &Arc<Self>) {
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
                let told = inner.ask().await;
                if !inner.install(told) {
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
    async fn ask(self: &Arc<Self>) -> Result<Told, NodeError> {
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
        let (mut best, mut failed): (Option<Told>, Vec<NodeError>) = (None, Vec::new());
        let mut until = None;
        loop {
            let next = match until {
                None => answers.next().await,
                Some(until) => tokio::time::timeout_at(until, answers.next()).await.unwrap_or_default(),
            };
            match next {
                None => break,
                Some((_, Ok(told))) => {
                    // Those that hang must not keep the others' word back.
                    let over = Instant::now() + if told.healthy { SECOND_OPINION } else { BETTER_NEWS };
                    until = Some(until.map_or(over, |until: Instant| until.min(over)));
                    let rank = |told: &Told| (told.healthy, told.epoch);
                    if best.as_ref().is_none_or(|best| rank(best) < rank(&told)) {
                        best = Some(told);
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
    fn install(self: &Arc<Self>, told: Result<Told, NodeError>) -> bool {
        let (failed_over, troubled) = {
            let mut map = self.map.lock();
            map.learning = false;
            if map.closed {
                return false;
            }
            let failed_over = match told {
                Err(error) => {
                    map.error = Some(error);
                    false
                }
                Ok(told) => {
                    let before = std::mem::take(&mut map.masters);
                    map.error = (!told.healthy).then(|| not_run("CLUSTERDOWN: the cluster is down"));
                    map.owners.fill(NOBODY);
                    for (first, last, address) in &told.ranges {
                        if self.member(&mut map, address).is_ok() {
                            map.assign(*first, *last, address);
                        }
                    }
                    // Servers that left are forgotten; seeds may be addresses that only lead to some.
                    map.members.retain(|address, _| told.members.contains(address) || self.seeds.contains(address));
                    // A slot that was moved brought its keys. A master that is none any more may have left some behind.
                    before.iter().any(|master| !map.masters.contains(master))
                }
            };
            let masters = map.masters.iter().filter_map(|address| map.members.get(address));
            (failed_over, masters.into_iter().any(|master| master.inner.is_troubled()))
        };
        self.learned.send_modify(|count| *count += 1);
        if failed_over {
            self.changes.send_modify(|count| *count += 1);
        }
        troubled
    }

    /// The server at an address, known or new.
    fn member(self: &Arc<Self>, map: &mut Map, address: &Address) -> Result<Arc<RedisNode>, LockError> {
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

/// An error of one of many servers.
fn blame(member: &RedisNode, error: NodeError) -> NodeError {
    NodeError { detail: format!("{}: {}", member.name(), error.detail), ..error }
}

impl Map {
    fn owner(&self, slot: u16) -> Option<Arc<RedisNode>> {
        let master = self.masters.get(usize::from(self.owners[usize::from(slot)]))?;
        self.members.get(master).cloned()
    }

    fn assign(&mut self, first: u16, last: u16, address: &Address) {
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
async fn tell(member: &RedisNode, address: &Address, limit: Duration) -> Result<Told, NodeError> {
    let connection = member.inner.background(limit).await?;
    let ask = |what: &'static str| {
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg(what);
        let (connection, inner) = (&connection, &member.inner);
        async move { inner.request(connection, &command, None, limit, With::default()).await }
    };
    let (slots, info) = tokio::try_join!(ask("SLOTS"), ask("INFO"))?;
    let Reply::Text(info) = reply(info)? else { return Err(permanent("CLUSTER INFO: unexpected kind of reply")) };
    let field = |name| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let (mut ranges, mut members) = (Vec::new(), Vec::new());
    let slots = match slots {
        Value::ServerError(error) => return Err(super::refusal(&error)),
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
    Ok(Told { healthy, epoch, ranges, members })
}

fn list(value: Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values,
        _ => Vec::new(),
    }
}

/// The slot of a key: of its hash tag, what stands between the first brace and the next closing one, if that is not
/// nothing.
pub(super) fn slot(key: &str) -> u16 {
    const XMODEM: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    XMODEM.checksum(hashed.as_bytes()) % SLOTS as u16
}

/// The marker of a slot. Its tag is the smallest number that leads there.
fn marker(slot: u16) -> String {
    static TAGS: OnceBox<Vec<u32>> = OnceBox::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![u32::MAX; SLOTS];
        let (mut missing, mut number) = (SLOTS, 0);
        while missing > 0 {
            let tag = &mut tags[usize::from(self::slot(&number.to_string()))];
            if *tag == u32::MAX {
                *tag = number;
                missing -= 1;
            }
            number += 1;
        }
        Box::new(tags)
    });
    format!("{MARKER}:{{{}}}", tags[usize::from(slot)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // From the specification, and from CLUSTER KEYSLOT.
        assert_eq!(slot("123456789"), 0x31c3 % SLOTS as u16);
        assert_eq!(slot("somekey"), 11_058);
        assert_eq!(slot("foo{hash_tag}"), slot("bar{hash_tag}"));
        assert_eq!(slot("foo{}{bar}"), 8_363);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    }

    #[test]
    fn each_slot_has_a_marker_of_its_own() {
        for number in [0, 1, 7_777, 16_383] {
            assert_eq!(slot(&marker(number)), number);
        }
    }
}
