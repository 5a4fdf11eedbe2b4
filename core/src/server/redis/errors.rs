//! Maps errors to their meaning for a request and to a text for people: error replies, broken connections, and failed
//! attempts to connect.

use std::{error::Error, io, sync::Arc, time::Duration};

use redis::{ErrorKind, RedisError, ServerError};

use super::CLOSED_BY_SERVER;
use crate::server::{Hint, NodeError, NodeErrorKind};

const CLOSED_EARLY: &str =
    "connection closed by the server at once; has it reached maxclients, or has the port TLS (rediss://)?";
const NO_REDIS: &str =
    "does not speak Redis' protocol; is it the right port, and if it has TLS, is it a rediss:// URL?";

/// An error after which the request is known not to have run.
pub(super) fn not_run_error(detail: impl Into<String>) -> NodeError {
    NodeError::new(NodeErrorKind::NotRun, detail)
}

/// An error that a later try meets again.
pub(super) fn permanent_error(detail: impl Into<String>) -> NodeError {
    NodeError::new(NodeErrorKind::Permanent, detail)
}

/// The error of a user, a password or a right that the server refuses.
pub(super) fn forbidden_error(detail: impl Into<String>) -> NodeError {
    NodeError::new(NodeErrorKind::Forbidden, detail)
}

/// The error if each of several servers failed with one of these.
pub(super) fn joint_error<'a>(mut errors: impl Iterator<Item = &'a NodeError> + Clone, detail: String) -> NodeError {
    if errors.clone().all(|error| error.kind == NodeErrorKind::Forbidden) {
        forbidden_error(detail)
    } else if errors.all(NodeError::is_permanent) {
        permanent_error(detail)
    } else {
        not_run_error(detail)
    }
}

/// The error of a node that was closed.
pub(super) fn closed_error() -> NodeError {
    not_run_error("closed")
}

/// The error in a forked child: the node belongs to the parent.
pub(super) fn forked_error() -> NodeError {
    not_run_error("made before a fork")
}

/// The error of an attempt to connect that timed out.
pub(super) fn connect_timeout_error(limit: Duration) -> NodeError {
    not_run_error(format!("no answer to the connection within {limit:.1?}"))
}

/// The error of a request that timed out: it may have run.
pub(super) fn reply_timeout_error(limit: Duration) -> NodeError {
    NodeError::new(NodeErrorKind::Unknown, format!("no answer within {limit:.1?}"))
}

/// The error of a request that was not sent, because too many others are unanswered.
pub(super) fn too_many_unanswered_error(count: usize) -> NodeError {
    not_run_error(format!("{count} requests unanswered"))
}

/// Maps a server's error reply.
pub(super) fn error_from_reply(error: &ServerError) -> NodeError {
    let details = error.details().unwrap_or_default();
    error_from_reply_text(&format!("{} {details}", error.code()))
}

/// Maps the text of an error reply, which begins with its code.
pub(super) fn error_from_reply_text(text: &str) -> NodeError {
    let (text, in_script) = without_place(text);
    let code = text.split(' ').next().unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    let kind = if has("wrongtype") {
        NodeErrorKind::WrongType
    } else if matches!(code, "WRONGPASS" | "NOAUTH" | "NOPERM")
        // Raised inside a script, where the code is ERR: by Redis 7.0, and by servers that still wrap the text.
        || has("the user executing the script can't")
        || has("-noperm")
        || has("authentication required")
    {
        NodeErrorKind::Forbidden
    } else if matches!(code, "DENIED" | "CROSSSLOT")
        || has("unknown command")
        || has("unknown redis command")
        || has("unknown subcommand")
        || has("db index")
        || has("without any password configured")
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
        // Redis before 7.0 wraps the text so.
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

/// Joins two texts, cut to 200 characters. A server's errors are one short line; another peer's must not fill a log.
pub(super) fn shortened(text: &str, behind: &str) -> String {
    const MOST: usize = 200;
    let behind: String = behind.chars().take(MOST).collect();
    let room = MOST - behind.chars().count();
    text.chars().take(room).chain(behind.chars()).collect()
}

/// Advice to the user, shown with a server's error.
enum Advice {
    /// Appended to the server's text.
    Behind(&'static str),
    /// Shown instead of the server's text, which addresses authors of clients.
    Instead(&'static str),
}

/// Says what to do, if the server's text does not.
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
            Advice::Instead("the server is too old: Redis 6.2 or newer is needed")
        }
        _ if has("max number of clients reached") => Advice::Behind("; raise maxclients, or close some"),
        _ => return None,
    })
}

/// Makes a redirection a permanent error: the URL does not say that the server belongs to a cluster.
pub(super) fn redirect_error(error: NodeError) -> NodeError {
    match error.hint {
        Some(Hint::Moved(_) | Hint::Ask(_)) => {
            permanent_error(shortened(&error.detail, "; it is a server of a Redis Cluster: use redis+cluster://"))
        }
        _ => error,
    }
}

/// Removes the place in the script from an error's text. Also returns whether a script raised the error.
fn without_place(text: &str) -> (&str, bool) {
    if let Some((before, after)) = text.rsplit_once(" script: ")
        && let Some((sha, _)) = after.split_at_checked(40)
        && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return (before.trim_end_matches(','), true);
    }
    (text, text.contains("rror running script"))
}

/// The text of the server's error reply, if the error is one.
pub(super) fn server_text(error: &RedisError) -> Option<String> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            Some(format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default()))
        }
        _ => None,
    }
}

/// Whether the server does not support HELLO, or the user lacks the right to it.
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

/// Maps the error of a failed attempt to connect. No request was sent, so none ran.
pub(super) fn connect_error(error: &RedisError) -> NodeError {
    if let Some(text) = server_text(error) {
        let error = error_from_reply_text(&text);
        return if error.is_permanent() { error } else { not_run_error(error.detail) };
    }
    match error.kind() {
        // The crate drops the server's text.
        ErrorKind::AuthenticationFailed => forbidden_error("wrong user or password, or the server has none"),
        ErrorKind::Parse if is_cut_short(error) => not_run_error(CLOSED_EARLY),
        ErrorKind::Parse => permanent_error(NO_REDIS),
        ErrorKind::InvalidClientConfig => permanent_error(error.to_string()),
        _ => {
            let io = source::<io::Error>(error);
            let tls = io
                .and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>())
                .or_else(|| source::<rustls::Error>(error));
            match tls {
                Some(tls) => permanent_error(format!("TLS: {tls}{}", tls_advice(tls))),
                None => not_run_error(match io {
                    Some(io) if is_closed(io) => CLOSED_EARLY.to_owned(),
                    Some(io) => io_text(io),
                    None => error.to_string(),
                }),
            }
        }
    }
}

/// Says what to do about a TLS error, if the library's text does not.
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

/// Maps the error of a connection that broke during a request.
pub(super) fn broken_connection_error(error: &RedisError) -> NodeError {
    let detail = match source::<io::Error>(error) {
        Some(io) => io_text(io),
        None if error.kind() == ErrorKind::Parse && !is_cut_short(error) => NO_REDIS.to_owned(),
        None => CLOSED_BY_SERVER.to_owned(),
    };
    NodeError::new(NodeErrorKind::Unknown, detail)
}

/// Whether a connection ended in the middle of a reply. `redis` reports that as a parse error; only the error's text
/// distinguishes it from bytes of another protocol.
fn is_cut_short(error: &RedisError) -> bool {
    error.to_string().contains("end of input")
}

/// The error that `redis` wrapped, if it has this type.
fn source<T: Error + 'static>(error: &RedisError) -> Option<&T> {
    error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?.downcast_ref()
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NotFound => "no such socket".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission to open the socket".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the server".to_owned(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => CLOSED_BY_SERVER.to_owned(),
        _ => error.to_string(),
    }
}
