//! The types of the facts.

use std::time::{Duration, SystemTime};

use super::info::ServerInfo;
use crate::{
    identity::Identity,
    server::{NodeError, NodeErrorKind},
};

/// A fact, or why the server did not tell it.
pub type Told<T> = Result<T, NotTold>;

/// Why a server did not tell a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTold {
    /// The cause, for people.
    pub cause: String,
    /// Whether it refused the user, the password or a right.
    pub forbidden: bool,
}

impl From<NodeError> for NotTold {
    fn from(error: NodeError) -> Self {
        Self { forbidden: error.kind == NodeErrorKind::Forbidden, cause: error.detail }
    }
}

/// The facts about all nodes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Examination {
    /// When it began, by this machine's wall clock.
    pub start: SystemTime,
    /// The nodes, in the order of the URLs.
    pub nodes: Vec<NodeFacts>,
}

/// The facts about one node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// The node's address, without credentials.
    pub node: String,
    /// What the URL says that the node is.
    pub kind: NodeKind,
    /// Why the servers of the node could not be found: no Sentinel names a master, no server of the cluster answers.
    pub error: Option<NotTold>,
    /// Its servers, masters first.
    pub servers: Vec<ServerFacts>,
    /// Its Sentinels, for [`NodeKind::Sentinel`].
    pub sentinels: Vec<SentinelFacts>,
    /// The state of the cluster, for [`NodeKind::Cluster`], if a server told.
    pub cluster: Option<ClusterFacts>,
}

/// What a URL says that a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeKind {
    /// One server.
    Server,
    /// The master that Sentinels name.
    Sentinel,
    /// A cluster.
    Cluster,
    /// A store in memory, which has no facts.
    Memory,
}

/// The facts about one server.
#[derive(Clone, Debug)]
pub struct ServerFacts {
    /// Its address.
    pub address: String,
    /// Whether it was found as a replica of another server of the node.
    pub as_replica: bool,
    /// What it tells, or why it does not answer.
    pub state: Told<ServerState>,
}

/// What a server tells.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// How long it took to connect and to log in.
    pub connect: Duration,
    /// The round trips of five PINGs.
    pub round_trips: Vec<Duration>,
    /// INFO.
    pub info: Told<ServerInfo>,
    /// CONFIG GET.
    pub config: Told<ServerConfig>,
    /// TIME: a reading, and another one after the interval.
    pub clocks: Told<Vec<ClockReading>>,
    /// Whether it runs Lua.
    pub lua: Told<()>,
    /// The node's marker, if it has one. Only on quorums, and not of clusters, whose slots have markers of their own.
    pub marker: Told<Option<Marker>>,
    /// LATENCY LATEST.
    pub latency: Told<Vec<Spike>>,
    /// SLOWLOG GET.
    pub slow: Told<Vec<SlowCommand>>,
    /// ACL WHOAMI: the user of the connection.
    pub user: Told<String>,
    /// The commands of locks that this user may not run, by ACL DRYRUN.
    pub denied: Told<Vec<DeniedCommand>>,
    /// The clients of this library that name their connections, by CLIENT LIST.
    pub clients: Told<Vec<Identity>>,
}

/// The settings of a server. A setting that it does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerConfig {
    /// `appendfsync`: `always`, `everysec` or `no`.
    pub appendfsync: Option<String>,
    /// `min-replicas-to-write`.
    pub min_replicas_to_write: Option<u64>,
    /// `maxclients`.
    pub max_clients: Option<u64>,
}

/// A reading of a server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// When it was read: the middle of the round trip, counted from the start of the examination.
    pub at: Duration,
    /// The server's time, counted from 1970.
    pub time: Duration,
    /// How wrong it may be: half of the round trip.
    pub error: Duration,
}

/// The marker of a node of a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The run id of the server that was seen last.
    pub run: String,
    /// Since when its keys are incomplete, by its clock, counted from 1970; zero if they are complete.
    pub lost_at: Duration,
}

/// An event that LATENCY LATEST lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spike {
    /// Its name, such as `command` or `fork`.
    pub event: String,
    /// When it happened last, counted from 1970.
    pub at: Duration,
    /// How long it took then.
    pub latest: Duration,
}

/// A command that SLOWLOG lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowCommand {
    /// Its name.
    pub name: String,
    /// When it ran, counted from 1970.
    pub at: Duration,
    /// How long it took.
    pub took: Duration,
}

/// A command that the user may not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedCommand {
    /// The command, as rules of ACLs spell it: `config|get`.
    pub command: String,
    /// The pattern of keys or channels in the command, as rules spell it: `~redlock_token:*`; empty if it has none.
    pub pattern: String,
    /// What ACL DRYRUN says.
    pub why: String,
}

/// The facts about one Sentinel.
#[derive(Clone, Debug)]
pub struct SentinelFacts {
    /// Its address.
    pub address: String,
    /// What it tells of the service, or why it does not.
    pub state: Told<SentinelState>,
}

/// What a Sentinel tells of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelState {
    /// The address of the master that it names.
    pub master: String,
    /// `config-epoch`: the election that chose this master.
    pub epoch: u64,
    /// After how long without a reply it counts the master as down.
    pub down_after: Duration,
    /// How many Sentinels must count it as down.
    pub quorum: u64,
    /// How many other Sentinels it knows.
    pub others: u64,
}

/// The state of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Whether it serves requests: `cluster_state`.
    pub ok: bool,
    /// How many of its slots no master serves.
    pub orphaned_slots: usize,
}
