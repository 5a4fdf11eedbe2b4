//! The holder of a lock as `ls`, `inspect` and `release --force` show it. All that is known of a holder comes in here.

use redlock::LockInfo;
use serde_json::{Map, Value, json};

use crate::duration;

/// The headings of the columns of a holder.
pub(crate) const COLUMNS: [&str; 3] = ["HELD BY", "TTL", "TOKEN"];

/// The columns of a holder; of a free lock, empty.
pub(crate) fn columns(info: Option<&LockInfo>) -> [String; 3] {
    info.map_or_else(Default::default, |info| {
        [holders(&info.owners), info.ttl.map_or_else(|| "-".to_owned(), duration::show), token(info.token)]
    })
}

/// The holder in a sentence.
pub(crate) fn sentence(info: &LockInfo) -> String {
    let ttl =
        info.ttl.map_or_else(|| "without a ttl".to_owned(), |ttl| format!("its lease ends in {}", duration::show(ttl)));
    let token = if info.token > 0 { format!(", token {}", info.token) } else { String::new() };
    format!("{} ({}{token}, {ttl})", holders(&info.owners), info.kind.as_str())
}

/// The members of a holder's JSON object; of a free lock, all null.
pub(crate) fn json(info: Option<&LockInfo>) -> Map<String, Value> {
    let members = [
        ("kind", info.map(|info| json!(info.kind.as_str()))),
        ("owner", info.map(|info| json!(info.owner))),
        ("owners", Some(json!(info.map(|info| info.owners.clone()).unwrap_or_default()))),
        ("ttl", info.and_then(|info| info.ttl).map(|ttl| json!(ttl.as_secs_f64()))),
        ("token", info.filter(|info| info.token > 0).map(|info| json!(info.token.to_string()))),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value.unwrap_or_default())).collect()
}

/// The holders as one text.
pub(crate) fn holders(owners: &[String]) -> String {
    match owners {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [first, others @ ..] => format!("{first} and {} more", others.len()),
    }
}

/// A token for a table.
pub(crate) fn token(token: u64) -> String {
    if token == 0 { "-".to_owned() } else { token.to_string() }
}
