//! Requests and replies as the `redis` crate has them, and as the node does: what an error means for a request, and
//! what a server says of itself.

use std::{error::Error, io, sync::Arc, time::Duration};

use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerError, Value, aio::MultiplexedConnection};

use super::{CLOSED_BY_SERVER, Connection, Facts};
use crate::{
    protocol::script::{Call, Reply},
    server::{Hint, NodeError, NodeErrorKind},
};

/// What goes with a command in one write, so that nothing comes between.
#[derive(Clone, Copy, Default)]
pub(super) struct With {
    /// Before it: ASKING, to be served by a server that takes the slot over.
    pub(super) asking: bool,
    /// Behind it: WAIT, for so many replicas and so long.
    pub(super) replicas: Option<(u32, Duration)>,
}

/// Sends a command and, when it names a script that the server does not know, the whole script.
pub(super) async fn exchange(
    connection: &Connection,
    request: &Cmd,
    call: Option<&Call>,
    with: With,
) -> Result<Value, RedisError> {
    let mut redis = connection.redis.clone();
    let value = send(&mut redis, request, with).await?;
    match (&value, call) {
        (Value::ServerError(error), Some(call)) if error.code() == "NOSCRIPT" => {
            let request = command("EVAL", &call.script.source, call, &connection.facts);
            send(&mut redis, &request, with).await
        }
        _ => Ok(value),
    }
}

async fn send(redis: &mut MultiplexedConnection, request: &Cmd, with: With) -> Result<Value, RedisError> {
    if !with.asking && with.replicas.is_none() {
        return redis.send_packed_command(request).await;
    }
    let mut pipeline = Pipeline::new();
    if with.asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(request.clone());
    if let Some((replicas, limit)) = with.replicas {
        pipeline.cmd("WAIT").arg(replicas).arg(limit.as_millis().max(1) as u64);
    }
    let mut values = redis.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
    let acknowledged = with.replicas.and_then(|_| values.pop());
    let value = values.pop().unwrap_or(Value::Nil);
    Ok(match (with.replicas, acknowledged) {
        // A lock that was not taken needs no acknowledgement, nor does an error.
        (Some((needed, limit)), Some(acknowledged)) if granted(&value) => {
            lacking(needed, limit, acknowledged).map_or(value, |detail| failed(&detail))
        }
        _ => value,
    })
}

/// Whether the reply to an acquire is a grant.
fn granted(value: &Value) -> bool {
    matches!(value, Value::Array(parts) if parts.first() == Some(&Value::Int(1)))
}

/// What is missing of the replicas' acknowledgement.
fn lacking(needed: u32, limit: Duration, reply: Value) -> Option<String> {
    match reply {
        Value::Int(count) if count >= i64::from(needed) => None,
        Value::Int(count) => {
            let limit = limit.as_millis();
            Some(format!("only {count} of {needed} replicas acknowledged the lock within {limit} ms"))
        }
        Value::ServerError(error) => Some(format!("WAIT: {}", refusal(&error).detail)),
        _ => Some("WAIT: unexpected kind of reply".to_owned()),
    }
}

/// An error as a server sends it.
fn failed(detail: &str) -> Value {
    // The crate has no other way to make one.
    let error = redis::parse_redis_value(format!("-ERR {detail}\r\n").as_bytes());
    error.unwrap_or(Value::Nil)
}

pub(super) fn command(name: &str, body: &str, call: &Call, facts: &Facts) -> Cmd {
    let size = name.len() + body.len() + call.keys.iter().chain(&call.args).map(String::len).sum::<usize>() + 72;
    let mut command = Cmd::with_capacity(6 + call.keys.len() + call.args.len(), size);
    command.arg(name).arg(body).arg(call.keys.len());
    for part in call.keys.iter().chain(&call.args) {
        command.arg(part.as_str());
    }
    if call.identify {
        let run = facts.run.as_deref().unwrap_or_default();
        command.arg(run).arg(facts.lost_at).arg(if facts.durable { "1" } else { "0" });
    }
    command
}

pub(super) fn ping() -> Cmd {
    let mut command = Cmd::with_capacity(1, 4);
    command.arg("PING");
    command
}

/// A script's reply. No script sends what RESP3 added: a boolean is no number, a set no list.
pub(super) fn reply(value: Value) -> Result<Reply, NodeError> {
    Ok(match value {
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Text(into_text(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Text(text),
        Value::Okay => Reply::Text("OK".to_owned()),
        Value::Nil => Reply::List(Vec::new()),
        Value::Array(values) => Reply::List(values.into_iter().map(reply).collect::<Result<_, _>>()?),
        Value::ServerError(error) => return Err(refusal(&error)),
        _ => return Err(NodeError::new(NodeErrorKind::Refused, "unexpected kind of reply")),
    })
}

/// A call's reply. Servers of before 7.2 say of a script only that it lacks some right: the script, and the place that
/// they name, tell which.
pub(super) fn answer(value: Value, call: &Call) -> Result<Reply, NodeError> {
    let missing = match &value {
        Value::ServerError(error) => missing(error, call),
        _ => None,
    };
    reply(value).map_err(|error| match missing {
        Some(missing) => NodeError { detail: shortened(&error.detail, &missing), ..error },
        None => error,
    })
}

fn missing(error: &ServerError, call: &Call) -> Option<String> {
    let text = error.details().unwrap_or_default();
    if error.code() == "NOPERM" && text.contains("keys") {
        // It is the request that was refused, which names them all.
        return Some(format!(": {}", call.keys.join(", ")));
    }
    if !text.contains("The user executing the script can't") {
        return None;
    }
    let line: usize = text.rsplit_once("@user_script:")?.1.trim_end_matches(['.', ' ']).parse().ok()?;
    let line = call.script.source.lines().nth(line.checked_sub(1)?)?;
    let commands = line.split("call('").skip(1).filter_map(|rest| rest.split('\'').next());
    let mut names: Vec<_> = commands.map(|name| format!("'{}'", name.to_ascii_lowercase())).collect();
    names.dedup();
    (!names.is_empty()).then(|| format!(": {}", names.join(" or ")))
}

pub(super) fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Asks a server who it is and what it thinks of this connection. What it refuses to say stays unknown.
pub(super) async fn identify(redis: &MultiplexedConnection) -> Result<Facts, NodeError> {
    let ask = |parts: &'static [&'static str]| {
        let mut redis = redis.clone();
        async move {
            let mut command = Cmd::with_capacity(parts.len(), 32);
            for part in parts {
                command.arg(*part);
            }
            match redis.send_packed_command(&command).await {
                Ok(Value::ServerError(error)) if matches!(error.code(), "NOAUTH" | "DENIED") => Err(refusal(&error)),
                // Who it is it will say later.
                Ok(Value::ServerError(error)) if matches!(error.code(), "BUSY" | "LOADING" | "MASTERDOWN") => {
                    Err(not_run(refusal(&error).detail))
                }
                Ok(value) => Ok(value),
                Err(error) => Err(refused_connection(&error)),
            }
        }
    };
    let (client, info, time, sync) = tokio::try_join!(
        ask(&["CLIENT", "INFO"]),
        ask(&["INFO"]),
        ask(&["TIME"]),
        ask(&["CONFIG", "GET", "appendfsync"]),
    )?;
    let mut facts = Facts::default();
    if let Reply::Text(text) = reply(client).unwrap_or(Reply::Int(0)) {
        let field = |name| text.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        facts.peer = field("id").and_then(|id| id.parse().ok()).zip(field("addr").map(str::to_owned));
    } else if let Value::Int(id) = ask(&["CLIENT", "ID"]).await? {
        // Before 6.2.
        facts.peer = Some((id, String::new()));
    }
    if let Reply::Text(text) = reply(info).unwrap_or(Reply::Int(0)) {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name| field(name).and_then(|value| value.parse::<i64>().ok());
        if field("redis_mode") == Some("sentinel") {
            return Err(permanent(
                "is a Sentinel, which keeps no locks: use redis+sentinel://, with the master's name",
            ));
        }
        facts.replica = field("role") == Some("slave");
        facts.run = field("run_id").filter(|run| !run.is_empty()).map(str::to_owned);
        facts.version = field("valkey_version").or_else(|| field("redis_version")).map(str::to_owned);
        facts.evicts = field("maxmemory_policy")
            .filter(|policy| *policy != "noeviction" && number("maxmemory").is_some_and(|m| m > 0))
            .map(str::to_owned);
        // A server that was a replica of another may lack that one's last writes, whenever it was started.
        let never_promoted = field("master_replid2").is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b == b'0'));
        if never_promoted && let (Some(now), Some(uptime)) = (micros(time), number("uptime_in_seconds")) {
            facts.lost_at = now.saturating_sub(uptime.saturating_mul(1_000_000)).max(0);
            facts.durable = number("aof_enabled") == Some(1) && always(&sync);
        }
    }
    Ok(facts)
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

/// The reply to TIME, µs.
pub(super) fn micros(value: Value) -> Option<i64> {
    let reply = reply(value).ok()?;
    let part = |index: usize| match reply.list()?.get(index)? {
        Reply::Text(text) => text.parse::<i64>().ok(),
        Reply::Int(number) => Some(*number),
        Reply::List(_) => None,
    };
    part(0)?.checked_mul(1_000_000)?.checked_add(part(1)?)
}

pub(super) fn not_run(detail: impl Into<String>) -> NodeError {
    NodeError::new(NodeErrorKind::NotRun, detail)
}

pub(super) fn permanent(detail: impl Into<String>) -> NodeError {
    NodeError::new(NodeErrorKind::Permanent, detail)
}

pub(super) fn closed() -> NodeError {
    not_run("closed")
}

pub(super) fn no_connection(limit: Duration) -> NodeError {
    not_run(format!("no answer to the connection within {limit:.1?}"))
}

pub(super) fn no_answer(limit: Duration) -> NodeError {
    NodeError::new(NodeErrorKind::Unknown, format!("no answer within {limit:.1?}"))
}

pub(super) fn unanswered(count: usize) -> NodeError {
    not_run(format!("{count} requests unanswered"))
}

/// What a server's error reply means.
pub(super) fn refusal(error: &ServerError) -> NodeError {
    let details = error.details().unwrap_or_default();
    refusal_text(&format!("{} {details}", error.code()))
}

pub(super) fn refusal_text(text: &str) -> NodeError {
    let (text, in_script) = without_place(text);
    let code = text.split(' ').next().unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    let kind = if has("wrongtype") {
        NodeErrorKind::WrongType
    } else if matches!(code, "WRONGPASS" | "NOAUTH" | "NOPERM" | "DENIED" | "CROSSSLOT")
        // Raised inside a script, where the code is ERR: Redis 7.0, and those that still wrap the text.
        || has("the user executing the script can't")
        || has("-noperm")
        || has("unknown command")
        || has("unknown redis command")
        || has("unknown subcommand")
        || has("db index")
        || has("without any password configured")
        || has("authentication required")
        || has("cluster support disabled")
        || has("not allowed in cluster mode")
        || has("after non deterministic commands")
    {
        NodeErrorKind::Permanent
    } else if !in_script
        && matches!(code, "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK")
    {
        NodeErrorKind::NotRun
    } else {
        NodeErrorKind::Refused
    };
    let mut rest = text.split(' ').skip(1);
    let hint = match code {
        "MOVED" if !in_script => rest.nth(1).map(|address| Hint::Moved(address.to_owned())),
        "ASK" if !in_script => rest.nth(1).map(|address| Hint::Ask(address.to_owned())),
        "TRYAGAIN" => Some(Hint::TryAgain),
        "READONLY" | "MASTERDOWN" => Some(Hint::Replica),
        // As Redis before 7.0 wraps it.
        _ if has("-readonly ") => Some(Hint::Replica),
        _ => None,
    };
    let shown = text.strip_prefix("ERR ").unwrap_or(text).trim_end();
    let detail = match advice(code, &lower) {
        Some(Advice::Behind(advice)) => shortened(shown.trim_end_matches('.'), advice),
        Some(Advice::Instead(advice)) => advice.to_owned(),
        None => shortened(shown, ""),
    };
    NodeError::new(kind, detail).with_hint(hint)
}

/// A text with something behind it. A server's errors are one short line; whatever else answers need not fill a log.
fn shortened(text: &str, behind: &str) -> String {
    const MOST: usize = 200;
    let behind: String = behind.chars().take(MOST).collect();
    let room = MOST - behind.chars().count();
    text.chars().take(room).chain(behind.chars()).collect()
}

enum Advice {
    /// Behind the server's own words.
    Behind(&'static str),
    /// Instead of them, where they speak to whoever writes a client.
    Instead(&'static str),
}

/// What to do, where the server's words leave that open.
fn advice(code: &str, lower: &str) -> Option<Advice> {
    const REPLICA: Advice = Advice::Behind("; it is a replica: use its master, or redis+sentinel:// to follow that");
    let has = |part: &str| lower.contains(part);
    Some(match code {
        "NOAUTH" => {
            Advice::Instead("NOAUTH: the server asks for a password; give it, and the user, in the URL or as options")
        }
        "OOM" => Advice::Behind("; free memory, or raise maxmemory"),
        "MISCONF" => Advice::Instead(
            "MISCONF: the server cannot save to disk, and so refuses to write (stop-writes-on-bgsave-error); see its log",
        ),
        "NOREPLICAS" => Advice::Behind("; it needs more of them (min-replicas-to-write)"),
        "READONLY" | "MASTERDOWN" => REPLICA,
        _ if has("-readonly ") => REPLICA,
        _ if has("authentication required") => return advice("NOAUTH", ""),
        _ if has("without any password configured") => {
            Advice::Instead("the server has no password: leave it out of the URL")
        }
        _ if has("db index") => Advice::Behind("; the server has fewer databases than the URL asks for"),
        _ if has("not allowed in cluster mode") => {
            Advice::Behind("; a cluster has database 0 only: use redis+cluster://")
        }
        _ if has("cluster support disabled") => Advice::Behind("; it is no Redis Cluster: use redis://"),
        _ if has("unknown command") && has("sentinel") => Advice::Behind("; it is no Sentinel: use redis://"),
        _ if has("after non deterministic commands") => {
            Advice::Instead("the server is too old: Redis 5.0 or newer is needed")
        }
        _ if has("max number of clients reached") => Advice::Behind("; raise maxclients, or close some"),
        _ => return None,
    })
}

/// What a server of a cluster refuses that was not addressed as one: it has no slot for the key.
pub(super) fn misplaced(error: NodeError) -> NodeError {
    match error.hint {
        Some(Hint::Moved(_) | Hint::Ask(_)) => {
            permanent(shortened(&error.detail, "; it is a server of a Redis Cluster: use redis+cluster://"))
        }
        _ => error,
    }
}

/// An error's text without where in a script it was raised, and whether it was raised in one.
pub(super) fn without_place(text: &str) -> (&str, bool) {
    if let Some((before, after)) = text.rsplit_once(" script: ")
        && let Some((sha, _)) = after.split_at_checked(40)
        && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return (before.trim_end_matches(','), true);
    }
    (text, text.contains("rror running script"))
}

/// The server's own words, if it was the server that refused.
pub(super) fn server_text(error: &RedisError) -> Option<String> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            Some(format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default()))
        }
        _ => None,
    }
}

pub(super) fn lacks_hello(error: &RedisError) -> bool {
    if error.kind() == ErrorKind::RESP3NotSupported {
        return true;
    }
    server_text(error).is_some_and(|text| {
        let lower = text.to_ascii_lowercase();
        lower.starts_with("noproto")
            || (lower.contains("hello") && (lower.contains("unknown command") || lower.starts_with("noperm")))
    })
}

/// Why a connection could not be made. Nothing was sent on it, so nothing ran.
pub(super) fn refused_connection(error: &RedisError) -> NodeError {
    if let Some(text) = server_text(error) {
        let error = refusal_text(&text);
        return if error.is_permanent() { error } else { not_run(error.detail) };
    }
    match error.kind() {
        // Its words are lost.
        ErrorKind::AuthenticationFailed => permanent("wrong user or password, or the server has none"),
        ErrorKind::Parse if is_cut_short(error) => not_run(CLOSED_EARLY),
        ErrorKind::Parse => permanent(NO_REDIS),
        ErrorKind::InvalidClientConfig => permanent(error.to_string()),
        _ => {
            let io = source::<io::Error>(error);
            let tls = io
                .and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>())
                .or_else(|| source::<rustls::Error>(error));
            match tls {
                Some(tls) => permanent(format!("TLS: {tls}{}", tls_advice(tls))),
                None => not_run(match io {
                    Some(io) if is_closed(io) => CLOSED_EARLY.to_owned(),
                    Some(io) => io_text(io),
                    None => error.to_string(),
                }),
            }
        }
    }
}

const CLOSED_EARLY: &str =
    "connection closed by the server at once; has it reached maxclients, or has the port TLS (rediss://)?";
const NO_REDIS: &str =
    "does not speak Redis' protocol; is it the right port, and if it has TLS, is it a rediss:// URL?";

/// What to do, where the TLS library's words leave that open.
fn tls_advice(error: &rustls::Error) -> &'static str {
    use rustls::{AlertDescription, CertificateError};
    match error {
        rustls::Error::InvalidMessage(_) => "; the port has no TLS, it seems: use redis://",
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "; give the certificate of the authority that signed it (ca)"
        }
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure | AlertDescription::UnknownCA,
        ) => "; the server asks for a client certificate that it trusts (cert, key)",
        _ => "",
    }
}

/// Why a connection broke under a request.
pub(super) fn failure(error: &RedisError) -> NodeError {
    let detail = match source::<io::Error>(error) {
        Some(io) => io_text(io),
        None if error.kind() == ErrorKind::Parse && !is_cut_short(error) => NO_REDIS.to_owned(),
        None => CLOSED_BY_SERVER.to_owned(),
    };
    NodeError::new(NodeErrorKind::Unknown, detail)
}

/// Whether a connection ended within a reply. `redis` reports that as a reply it cannot parse, and tells it from bytes
/// of another protocol only in its text.
fn is_cut_short(error: &RedisError) -> bool {
    error.to_string().contains("end of input")
}

/// What `redis` wrapped.
pub(super) fn source<T: Error + 'static>(error: &RedisError) -> Option<&T> {
    error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?.downcast_ref()
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}

pub(super) fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NotFound => "no such socket".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission to open the socket".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the server".to_owned(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => CLOSED_BY_SERVER.to_owned(),
        _ => error.to_string(),
    }
}
