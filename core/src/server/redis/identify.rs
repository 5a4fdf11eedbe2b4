//! Reads facts about a server and about the connection to it: ids, version, and since when its keys may be incomplete.

use std::sync::Arc;

use redis::{Cmd, Value, aio::MultiplexedConnection};

use super::{
    errors::{connect_error, error_from_reply, not_run_error, permanent_error},
    replies::{client_field, reply},
};
use crate::{protocol::script::Reply, server::NodeError};

/// Facts that a server reported when the connection was made.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) peer: Option<(i64, Arc<str>)>,
    pub(super) run: Option<Arc<str>>,
    pub(super) version: Option<String>,
    /// The time since which its keys may be incomplete, in µs on its own clock; 0 if unknown.
    pub(super) lost_at: i64,
    /// Whether every write is on disk before its reply.
    pub(super) durable: bool,
    /// Whether it is a replica.
    pub(super) replica: bool,
    /// The eviction policy, if the server can evict keys.
    pub(super) evicts: Option<String>,
}

/// Requests the facts of a server and of this connection. Facts that it refuses to report stay unknown.
pub(super) async fn identify(redis: &MultiplexedConnection) -> Result<Facts, NodeError> {
    let (client, info, time, sync) = tokio::try_join!(
        request(redis, &["CLIENT", "INFO"]),
        request(redis, &["INFO"]),
        request(redis, &["TIME"]),
        request(redis, &["CONFIG", "GET", "appendfsync"]),
    )?;
    let mut facts = Facts::default();
    if let Reply::Text(text) = reply(client).unwrap_or(Reply::Int(0)) {
        let field = |name| client_field(&text, name);
        facts.peer = field("id").and_then(|id| id.parse().ok()).zip(field("addr").map(Arc::from));
    } else if let Value::Int(id) = request(redis, &["CLIENT", "ID"]).await? {
        // Servers before 6.2 lack CLIENT INFO.
        facts.peer = Some((id, "".into()));
    }
    if let Reply::Text(text) = reply(info).unwrap_or(Reply::Int(0)) {
        facts.read_info(&text, micros(time), always(&sync))?;
    }
    Ok(facts)
}

impl Facts {
    /// Reads the reply to INFO. `now`: the server's clock; `always`: whether it syncs its append-only file with every write.
    fn read_info(&mut self, text: &str, now: Option<i64>, always: bool) -> Result<(), NodeError> {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name| field(name).and_then(|value| value.parse::<i64>().ok());
        if field("loading") == Some("1") {
            // While it loads, it reports that it has no append-only file.
            return Err(not_run_error("LOADING Redis is loading the dataset in memory"));
        }
        if field("redis_mode") == Some("sentinel") {
            return Err(permanent_error(
                "is a Sentinel, which keeps no locks: use redis+sentinel://, with the master's name",
            ));
        }
        self.replica = field("role") == Some("slave");
        self.run = field("run_id").filter(|run| !run.is_empty()).map(Arc::from);
        self.version = field("valkey_version").or_else(|| field("redis_version")).map(str::to_owned);
        self.evicts = field("maxmemory_policy")
            .filter(|policy| *policy != "noeviction" && number("maxmemory").is_some_and(|m| m > 0))
            .map(str::to_owned);
        // A promoted replica may lack the last writes of its former master, whenever it was started. A replica may be
        // promoted while this connection lasts.
        let never_promoted = field("master_replid2").is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b == b'0'));
        if never_promoted
            && !self.replica
            && let (Some(now), Some(uptime)) = (now, number("uptime_in_seconds"))
        {
            self.lost_at = now.saturating_sub(uptime.saturating_mul(1_000_000)).max(0);
            self.durable = number("aof_enabled") == Some(1) && always;
        }
        Ok(())
    }
}

/// Sends one command. A command that the server refuses to run is a reply; a server that is busy or loads is an error.
async fn request(redis: &MultiplexedConnection, parts: &[&str]) -> Result<Value, NodeError> {
    let mut command = Cmd::with_capacity(parts.len(), 32);
    for part in parts {
        command.arg(*part);
    }
    match redis.clone().send_packed_command(&command).await {
        Ok(Value::ServerError(error)) if matches!(error.code(), "NOAUTH" | "DENIED") => Err(error_from_reply(&error)),
        // Temporary: a later attempt gets the facts.
        Ok(Value::ServerError(error)) if matches!(error.code(), "BUSY" | "LOADING" | "MASTERDOWN") => {
            Err(not_run_error(error_from_reply(&error).detail))
        }
        Ok(value) => Ok(value),
        Err(error) => Err(connect_error(&error)),
    }
}

/// Whether the reply to CONFIG GET appendfsync says "always".
pub(super) fn always(value: &Value) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == b"always",
        Value::SimpleString(text) => text == "always",
        Value::Array(values) => values.iter().any(always),
        Value::Map(pairs) => pairs.iter().any(|(_, value)| always(value)),
        _ => false,
    }
}

/// Converts the reply to TIME to µs.
pub(super) fn micros(value: Value) -> Option<i64> {
    let reply = reply(value).ok()?;
    let part = |index: usize| match reply.list()?.get(index)? {
        Reply::Text(text) => text.parse::<i64>().ok(),
        Reply::Int(number) => Some(*number),
        Reply::List(_) => None,
    };
    part(0)?.checked_mul(1_000_000)?.checked_add(part(1)?)
}
