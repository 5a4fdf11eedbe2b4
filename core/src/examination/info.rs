//! Reads the reply to INFO.

use std::time::Duration;

/// The fields of INFO that the checks need. `None`: the server does not have the field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of INFO")]
pub struct ServerInfo {
    /// Which program it is.
    pub product: Product,
    /// Its version; for Valkey, Valkey's own.
    pub version: Option<String>,
    /// `redis_mode`: `standalone`, `cluster` or `sentinel`.
    pub mode: Option<String>,
    /// A new one after each restart.
    pub run_id: Option<String>,
    /// How long it has run.
    pub uptime: Option<Duration>,
    /// Whether it loads its keys.
    pub loading: bool,
    /// Whether it is a replica.
    pub is_replica: bool,
    /// The address of its master, if it is a replica.
    pub master: Option<String>,
    /// Whether a replica is connected to its master.
    pub master_link_up: bool,
    /// Whether it was never promoted from a replica; false if it does not say.
    pub never_promoted: bool,
    /// Its replicas.
    pub replicas: Vec<ReplicaInfo>,
    /// In bytes; zero means no limit.
    pub maxmemory: Option<u64>,
    /// In bytes.
    pub used_memory: Option<u64>,
    /// `maxmemory_policy`.
    pub policy: Option<String>,
    /// How many keys it evicted since it started.
    pub evicted_keys: Option<u64>,
    /// Whether it writes an append-only file.
    pub aof: Option<bool>,
    /// Whether the last write to that file succeeded.
    pub aof_write_ok: bool,
    /// Whether the last snapshot succeeded.
    pub snapshot_ok: bool,
    /// How many clients are connected.
    pub connected_clients: Option<u64>,
    /// `maxclients`.
    pub max_clients: Option<u64>,
    /// How many clients wait in a blocking command.
    pub blocked_clients: Option<u64>,
    /// How many connections it refused since it started, because of `maxclients`.
    pub rejected_connections: Option<u64>,
}

/// The program that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Product {
    /// Redis, or a program that says that it is.
    #[default]
    Redis,
    /// Valkey.
    Valkey,
    /// Another one, with this name.
    Other(String),
}

/// A replica, as its master lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaInfo {
    /// Its address.
    pub address: String,
    /// `online`, or what it does until it is.
    pub state: String,
    /// The time since it acknowledged its master last.
    pub lag: Option<Duration>,
}

/// Other programs that speak the protocol, and a word that only their INFO has.
const OTHERS: [(&str, &str); 4] =
    [("DragonflyDB", "dragonfly_version:"), ("KeyDB", "keydb"), ("Garnet", "garnet_version:"), ("Kvrocks", "kvrocks")];

impl ServerInfo {
    /// Reads the reply to INFO.
    pub fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.map(str::trim).filter(|value| !value.is_empty())
        };
        let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
        let owned = |name: &str| field(name).map(str::to_owned);
        let is_replica = field("role") == Some("slave");
        let master = field("master_host").zip(field("master_port"));
        Self {
            product: product(text),
            version: owned("valkey_version").or_else(|| owned("redis_version")),
            mode: owned("redis_mode").or_else(|| owned("server_mode")),
            run_id: owned("run_id"),
            uptime: number("uptime_in_seconds").map(Duration::from_secs),
            loading: number("loading") == Some(1),
            is_replica,
            master: master.filter(|_| is_replica).map(|(host, port)| address(host, port)),
            master_link_up: field("master_link_status") == Some("up"),
            never_promoted: field("master_replid2").is_some_and(|id| id.bytes().all(|byte| byte == b'0')),
            replicas: text.lines().filter_map(replica).collect(),
            maxmemory: number("maxmemory"),
            used_memory: number("used_memory"),
            policy: owned("maxmemory_policy"),
            evicted_keys: number("evicted_keys"),
            aof: number("aof_enabled").map(|enabled| enabled == 1),
            aof_write_ok: field("aof_last_write_status").is_none_or(|status| status == "ok"),
            snapshot_ok: field("rdb_last_bgsave_status").is_none_or(|status| status == "ok"),
            connected_clients: number("connected_clients"),
            max_clients: number("maxclients"),
            blocked_clients: number("blocked_clients"),
            rejected_connections: number("rejected_connections"),
        }
    }

    /// The version as numbers: major and minor.
    pub fn release(&self) -> Option<(u32, u32)> {
        let mut parts = self.version.as_deref()?.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    }
}

fn product(text: &str) -> Product {
    let lower = text.to_ascii_lowercase();
    if let Some((name, _)) = OTHERS.iter().find(|(_, word)| lower.contains(word)) {
        return Product::Other((*name).to_owned());
    }
    if lower.contains("valkey_version:") { Product::Valkey } else { Product::Redis }
}

/// A line such as `slave0:ip=10.0.0.4,port=6379,state=online,offset=14,lag=1`.
fn replica(line: &str) -> Option<ReplicaInfo> {
    let (number, fields) = line.strip_prefix("slave")?.split_once(':')?;
    number.parse::<u32>().ok()?;
    let field = |name: &str| fields.trim().split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    Some(ReplicaInfo {
        address: address(field("ip")?, field("port")?),
        state: field("state").unwrap_or_default().to_owned(),
        lag: field("lag").and_then(|lag| lag.parse().ok()).map(Duration::from_secs),
    })
}

fn address(host: &str, port: &str) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASTER: &str = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:abc\r\n\
        uptime_in_seconds:90\r\n# Clients\r\nconnected_clients:3\r\nmaxclients:10000\r\nblocked_clients:1\r\n\
        # Memory\r\nused_memory:1000\r\nmaxmemory:2000\r\nmaxmemory_policy:allkeys-lru\r\n# Persistence\r\nloading:0\r\n\
        rdb_last_bgsave_status:err\r\naof_enabled:1\r\naof_last_write_status:ok\r\n# Stats\r\nevicted_keys:7\r\n\
        rejected_connections:2\r\n# Replication\r\nrole:master\r\nconnected_slaves:1\r\n\
        slave0:ip=::1,port=6380,state=online,offset=14,lag=1\r\nslave_expires_tracked_keys:0\r\n\
        master_replid2:0000000000000000000000000000000000000000\r\n";

    #[test]
    fn the_fields_of_a_master_are_read() {
        let info = ServerInfo::parse(MASTER);
        let replica =
            ReplicaInfo { address: "[::1]:6380".into(), state: "online".into(), lag: Some(Duration::from_secs(1)) };
        let expected = ServerInfo {
            product: Product::Redis,
            version: Some("7.0.15".into()),
            mode: Some("standalone".into()),
            run_id: Some("abc".into()),
            uptime: Some(Duration::from_secs(90)),
            loading: false,
            is_replica: false,
            master: None,
            master_link_up: false,
            never_promoted: true,
            replicas: vec![replica],
            maxmemory: Some(2000),
            used_memory: Some(1000),
            policy: Some("allkeys-lru".into()),
            evicted_keys: Some(7),
            aof: Some(true),
            aof_write_ok: true,
            snapshot_ok: false,
            connected_clients: Some(3),
            max_clients: Some(10_000),
            blocked_clients: Some(1),
            rejected_connections: Some(2),
        };
        assert_eq!(info, expected);
        assert_eq!(info.release(), Some((7, 0)));
    }

    #[test]
    fn a_replica_names_its_master() {
        let info = ServerInfo::parse(
            "role:slave\r\nmaster_host:10.0.0.4\r\nmaster_port:6379\r\nmaster_link_status:down\r\naof_enabled:0\r\n",
        );
        assert!(info.is_replica && !info.master_link_up && !info.never_promoted);
        assert_eq!((info.master.as_deref(), info.aof, info.release()), (Some("10.0.0.4:6379"), Some(false), None));
    }

    #[test]
    fn other_programs_are_recognised() {
        let product = |text| ServerInfo::parse(text).product;
        assert_eq!(product("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.8\r\n"), Product::Valkey);
        assert_eq!(ServerInfo::parse("redis_version:7.2.4\r\nvalkey_version:8.1.8\r\n").release(), Some((8, 1)));
        let dragonfly = product("redis_version:7.4.0\r\ndragonfly_version:df-v1.25.0\r\n");
        assert_eq!(dragonfly, Product::Other("DragonflyDB".into()));
        let key_db = product("redis_version:6.3.4\r\nexecutable:/usr/bin/keydb-server\r\n");
        assert_eq!(key_db, Product::Other("KeyDB".into()));
        assert_eq!(product("redis_version:7.0.15\r\n"), Product::Redis);
    }

    #[test]
    fn an_empty_reply_tells_nothing_and_fails_nothing() {
        let info = ServerInfo::parse("");
        assert_eq!((info.version, info.aof, info.policy), (None, None, None));
        assert!(info.aof_write_ok && info.snapshot_ok && info.replicas.is_empty());
    }
}
