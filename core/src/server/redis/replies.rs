//! Converts values of the `redis` crate to replies as the callers of scripts expect them.

use redis::{ServerError, Value};

use super::errors::{error_from_reply, shortened};
use crate::{
    protocol::script::{Reply, ScriptCall},
    server::{NodeError, NodeErrorKind},
};

/// Converts a value to a reply. Of the types that RESP3 added it accepts only verbatim strings, since no request here
/// gets another: a boolean is no number, a set no list.
pub(super) fn reply(value: Value) -> Result<Reply, NodeError> {
    Ok(match value {
        Value::Int(number) => Reply::Int(number),
        Value::BulkString(bytes) => Reply::Text(into_text(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Text(text),
        Value::Okay => Reply::Text("OK".to_owned()),
        Value::Nil => Reply::List(Vec::new()),
        Value::Array(values) => Reply::List(values.into_iter().map(reply).collect::<Result<_, _>>()?),
        Value::ServerError(error) => return Err(error_from_reply(&error)),
        _ => return Err(unexpected()),
    })
}

/// A field of a line of the reply to CLIENT INFO or CLIENT LIST.
pub(super) fn client_field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn unexpected() -> NodeError {
    NodeError::new(NodeErrorKind::Refused, "unexpected kind of reply")
}

/// Converts a script's reply, which is never a status.
pub(super) fn script_reply(value: Value) -> Result<Reply, NodeError> {
    match value {
        Value::SimpleString(_) | Value::VerbatimString { .. } | Value::Okay => Err(unexpected()),
        value => reply(value),
    }
}

/// Converts the reply to a call. If a right is missing, adds which one: servers before 7.2 name only the line of the
/// script, in which `missing` finds the commands.
pub(super) fn reply_to_call(value: Value, call: &ScriptCall) -> Result<Reply, NodeError> {
    let missing = match &value {
        Value::ServerError(error) => missing(error, call),
        _ => None,
    };
    script_reply(value).map_err(|error| match missing {
        Some(missing) => NodeError { detail: shortened(&error.detail, &missing), ..error },
        None => error,
    })
}

/// Names the keys or the commands to which the user lacks the right, if the error is about that.
fn missing(error: &ServerError, call: &ScriptCall) -> Option<String> {
    let text = error.details().unwrap_or_default();
    if error.code() == "NOPERM" && text.contains("keys") {
        // The server refused the request itself, which names all keys.
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

/// Decodes UTF-8; replaces invalid bytes.
pub(super) fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
