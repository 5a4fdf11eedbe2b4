//! Finds the servers of a node: the master that Sentinels name, the servers of a cluster, and replicas.

use std::time::Duration;

use futures_util::future::join_all;

use super::{
    Examined, Looked,
    facts::{ClusterFacts, NodeFacts, NodeKind, NotTold, SentinelFacts, SentinelState},
    server::{Found, look},
};
use crate::{
    protocol::{script::Reply, sharding::SLOTS},
    server::{NodeError, NodeErrorKind, redis::Probe},
    url::{Address, Endpoint, Transport},
};

/// The facts about a node, while the connections to its servers are open.
pub(super) struct Node {
    name: String,
    kind: NodeKind,
    error: Option<NodeError>,
    pub(super) servers: Vec<Looked>,
    sentinels: Vec<SentinelFacts>,
    cluster: Option<ClusterFacts>,
}

impl Node {
    fn new(name: String, kind: NodeKind) -> Self {
        Self { name, kind, error: None, servers: Vec::new(), sentinels: Vec::new(), cluster: None }
    }

    pub(super) fn into_facts(self) -> NodeFacts {
        let Self { name, kind, error, servers, sentinels, cluster } = self;
        NodeFacts {
            error: error.map(NotTold::from),
            servers: servers.into_iter().map(|looked| looked.facts).collect(),
            node: name,
            kind,
            sentinels,
            cluster,
        }
    }
}

/// Asks all servers of a node.
pub(super) async fn node(examined: &Examined<'_>, endpoint: &Endpoint) -> Node {
    let name = endpoint.transport.to_string();
    match &endpoint.transport {
        Transport::Memory { .. } => Node::new(name, NodeKind::Memory),
        Transport::Tcp { .. } | Transport::Tls { .. } | Transport::Unix { .. } => {
            let servers = with_replicas(examined, endpoint).await;
            Node { servers, ..Node::new(name, NodeKind::Server) }
        }
        Transport::Sentinel { sentinels, service, tls, username, password } => {
            let login = Endpoint { username: username.clone(), password: password.clone(), db: 0, ..endpoint.clone() };
            let asked = sentinels.iter().map(|address| sentinel(examined, &login, address, service, *tls));
            let sentinels: Vec<SentinelFacts> = join_all(asked).await;
            behind_sentinels(examined, endpoint, Node { sentinels, ..Node::new(name, NodeKind::Sentinel) }, *tls).await
        }
        Transport::Cluster { seeds, tls } => {
            let node = Node::new(name, NodeKind::Cluster);
            match cluster_map(examined, endpoint, seeds, *tls).await {
                Ok(map) => in_cluster(examined, endpoint, node, map, *tls).await,
                Err(error) => Node { error: Some(error), ..node },
            }
        }
    }
}

/// A server of a node, at this address.
fn at(endpoint: &Endpoint, address: &Address, tls: bool) -> Endpoint {
    Endpoint { transport: address.clone().transport(tls), ..endpoint.clone() }
}

/// `host:port`, as servers name each other.
fn address(text: &str) -> Option<Address> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(Address { host, port: port.parse().ok()? })
}

/// Asks a server, and then the replicas that it names.
async fn with_replicas(examined: &Examined<'_>, endpoint: &Endpoint) -> Vec<Looked> {
    let master = look(examined, endpoint, Found { as_replica: false, in_cluster: false }).await;
    let info = master.facts.state.as_ref().ok().and_then(|state| state.info.as_ref().ok());
    let named: Vec<Address> = info
        .map(|info| info.replicas.iter().filter_map(|replica| address(&replica.address)).collect())
        .unwrap_or_default();
    let tls = matches!(endpoint.transport, Transport::Tls { .. });
    let found = Found { as_replica: true, in_cluster: false };
    let replicas = named.iter().map(|replica| async move { look(examined, &at(endpoint, replica, tls), found).await });
    let replicas = join_all(replicas).await;
    [master].into_iter().chain(replicas).collect()
}

async fn behind_sentinels(examined: &Examined<'_>, endpoint: &Endpoint, node: Node, tls: bool) -> Node {
    let states = node.sentinels.iter().filter_map(|sentinel| sentinel.state.as_ref().ok());
    let latest = states.max_by_key(|state| state.epoch).and_then(|state| address(&state.master));
    let Some(master) = latest else {
        let all_forbid = node.sentinels.iter().all(|one| one.state.as_ref().is_err_and(|cause| cause.forbidden));
        let kind = if all_forbid { NodeErrorKind::Forbidden } else { NodeErrorKind::NotRun };
        let each = node.sentinels.iter().filter_map(|one| Some((&one.address, one.state.as_ref().err()?)));
        let each: Vec<String> = each.map(|(address, why)| format!("{address}: {}", why.cause)).collect();
        let error = NodeError::new(kind, format!("no Sentinel names a master: {}", each.join(", ")));
        return Node { error: Some(error), ..node };
    };
    let servers = with_replicas(examined, &at(endpoint, &master, tls)).await;
    Node { servers, ..node }
}

async fn sentinel(
    examined: &Examined<'_>,
    login: &Endpoint,
    address: &Address,
    service: &str,
    tls: bool,
) -> SentinelFacts {
    let told = async {
        let probe = Probe::connect(&at(login, address, tls), &examined.settings.config).await?;
        let reply = probe.ask(&["SENTINEL", "MASTER", service]).await?;
        sentinel_state(&reply).ok_or_else(NodeError::no_answer)
    };
    SentinelFacts { address: address.to_string(), state: told.await.map_err(NotTold::from) }
}

/// SENTINEL MASTER: names and values in turn.
fn sentinel_state(reply: &Reply) -> Option<SentinelState> {
    let list = reply.list()?;
    let field = |wanted: &str| {
        list.chunks(2).find_map(|pair| match pair {
            [Reply::Text(name), Reply::Text(value)] if name == wanted => Some(value.as_str()),
            _ => None,
        })
    };
    let number = |name: &str| field(name)?.parse::<u64>().ok();
    let master = Address { host: field("ip")?.to_owned(), port: field("port")?.parse().ok()? };
    Some(SentinelState {
        master: master.to_string(),
        epoch: number("config-epoch").unwrap_or_default(),
        down_after: Duration::from_millis(number("down-after-milliseconds")?),
        quorum: number("quorum").unwrap_or_default(),
        others: number("num-other-sentinels").unwrap_or_default(),
    })
}

/// The masters of a cluster, each with its replicas.
#[derive(Debug, PartialEq, Eq)]
struct ClusterMap {
    ok: bool,
    served: usize,
    masters: Vec<(Address, Vec<Address>)>,
}

/// The map of a cluster by the first server that tells.
async fn cluster_map(
    examined: &Examined<'_>,
    endpoint: &Endpoint,
    seeds: &[Address],
    tls: bool,
) -> Result<ClusterMap, NodeError> {
    let asked = seeds.iter().map(|seed| async move {
        let probe = Probe::connect(&at(endpoint, seed, tls), &examined.settings.config).await?;
        let slots = probe.ask(&["CLUSTER", "SLOTS"]).await?;
        let Reply::Text(info) = probe.ask(&["CLUSTER", "INFO"]).await? else { return Err(NodeError::no_answer()) };
        let mut map = read_slots(&slots, &seed.host).ok_or_else(NodeError::no_answer)?;
        map.ok = info.lines().any(|line| line.trim_end() == "cluster_state:ok");
        Ok(map)
    });
    let mut error = None;
    for (seed, told) in seeds.iter().zip(join_all(asked).await) {
        match told {
            Ok(map) => return Ok(map),
            Err(failed) => error = error.or(Some(NodeError { detail: format!("{seed}: {}", failed.detail), ..failed })),
        }
    }
    Err(error.unwrap_or_else(NodeError::no_answer))
}

/// CLUSTER SLOTS: for each range its first and last slot, its master, and its replicas. A server that does not know its
/// own host gives none: it is the host that was asked.
fn read_slots(reply: &Reply, asked: &str) -> Option<ClusterMap> {
    let mut map = ClusterMap { ok: false, served: 0, masters: Vec::new() };
    for range in reply.list()? {
        let [Reply::Int(first), Reply::Int(last), servers @ ..] = range.list()? else { return None };
        map.served += usize::try_from(last - first + 1).ok()?;
        let servers = servers.iter().map(|server| {
            let [host, Reply::Int(port), ..] = server.list()? else { return None };
            let host = match host {
                Reply::Text(host) if !host.is_empty() && host != "?" => host.clone(),
                _ => asked.to_owned(),
            };
            Some(Address { host, port: u16::try_from(*port).ok()? })
        });
        let mut servers = servers.collect::<Option<Vec<_>>>()?.into_iter();
        let master = servers.next()?;
        if !map.masters.iter().any(|(known, _)| *known == master) {
            map.masters.push((master, servers.collect()));
        }
    }
    Some(map)
}

async fn in_cluster(examined: &Examined<'_>, endpoint: &Endpoint, node: Node, map: ClusterMap, tls: bool) -> Node {
    let found = |as_replica| Found { as_replica, in_cluster: true };
    let masters = map.masters.iter().map(|(master, _)| (master, found(false)));
    let replicas = map.masters.iter().flat_map(|(_, replicas)| replicas).map(|replica| (replica, found(true)));
    let asked = masters
        .chain(replicas)
        .map(|(address, found)| async move { look(examined, &at(endpoint, address, tls), found).await });
    let facts = ClusterFacts { ok: map.ok, orphaned_slots: SLOTS.saturating_sub(map.served) };
    Node { servers: join_all(asked).await, cluster: Some(facts), ..node }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.to_owned())
    }

    #[test]
    fn the_map_of_a_cluster_is_read() {
        let server = |host: Reply, port| Reply::List(vec![host, Reply::Int(port), text("id")]);
        let range = |first, last, port| {
            let servers = vec![server(text("10.0.0.4"), port), server(Reply::List(Vec::new()), port + 1)];
            Reply::List([vec![Reply::Int(first), Reply::Int(last)], servers].concat())
        };
        let at = |host: &str, port| Address { host: host.to_owned(), port };
        let reply = Reply::List(vec![range(0, 9, 1), range(10, 19, 3), range(30, 30, 1)]);
        let masters = vec![(at("10.0.0.4", 1), vec![at("seed", 2)]), (at("10.0.0.4", 3), vec![at("seed", 4)])];
        assert_eq!(read_slots(&reply, "seed"), Some(ClusterMap { ok: false, served: 21, masters }));
        assert_eq!(read_slots(&text("x"), "seed"), None);
    }

    #[test]
    fn the_state_of_a_service_is_read() {
        let words = ["name", "main", "ip", "10.0.0.4", "port", "6379", "down-after-milliseconds", "700"];
        let reply = Reply::List(words.map(text).to_vec());
        let state = sentinel_state(&reply).expect("a state");
        assert_eq!((state.master.as_str(), state.down_after.as_millis(), state.epoch), ("10.0.0.4:6379", 700, 0));
        assert_eq!(sentinel_state(&Reply::List(Vec::new())), None);
        assert_eq!(address("[::1]:6379"), Some(Address { host: "::1".to_owned(), port: 6379 }));
    }
}
