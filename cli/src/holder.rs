//! The holder of a lock as `ls`, `inspect` and `release --force` show it. All that is known of a holder comes in here.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redlock::{Kind, LockInfo};
use serde_json::{Map, Value, json};

use crate::duration;

/// The headings of the columns of a holder.
pub(crate) const COLUMNS: [&str; 4] = ["HELD BY", "FOR", "TTL", "TOKEN"];

/// The columns of a holder; of a free lock, empty.
pub(crate) fn columns(info: Option<&LockInfo>) -> [String; 4] {
    info.map_or_else(Default::default, |info| {
        [who(info), held_for(info).map_or_else(dash, duration::show), ttl(info.ttl), token(info.token)]
    })
}

/// The holder in a sentence.
pub(crate) fn sentence(info: &LockInfo) -> String {
    if info.kind == Kind::Rest {
        return who(info);
    }
    let ends =
        info.ttl.map_or_else(|| "without a ttl".to_owned(), |ttl| format!("its lease ends in {}", duration::show(ttl)));
    let token = if info.token > 0 { format!(", token {}", info.token) } else { String::new() };
    format!("{} ({}{token}, {ends})", held_by(info), info.kind.as_str())
}

/// The holder, and for how long it has held the lock.
pub(crate) fn held_by(info: &LockInfo) -> String {
    let time = held_for(info).map_or_else(String::new, |time| format!(" for {}", duration::show(time)));
    who(info) + &time
}

/// The members of a holder's JSON object; of a free lock, all null.
pub(crate) fn json(info: Option<&LockInfo>) -> Map<String, Value> {
    let since = |since: SystemTime| since.duration_since(UNIX_EPOCH).ok().map(|since| json!(since.as_secs_f64()));
    let members = [
        ("kind", info.map(|info| json!(info.kind.as_str()))),
        ("owner", info.filter(|info| info.kind != Kind::Rest).map(|info| json!(info.owner))),
        ("owners", Some(json!(info.map(|info| info.owners.clone()).unwrap_or_default()))),
        ("host", info.map(|info| json!(info.host))),
        ("pid", info.map(|info| json!(info.pid))),
        ("app", info.map(|info| json!(info.app))),
        ("since", info.and_then(|info| info.since).and_then(since)),
        ("ttl", info.and_then(|info| info.ttl).map(|ttl| json!(ttl.as_secs_f64()))),
        ("token", info.filter(|info| info.token > 0).map(|info| json!(info.token.to_string()))),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value.unwrap_or_default())).collect()
}

/// Who holds a lock: the process if it is known, as the library's errors write it, or else the owner.
pub(crate) fn who(info: &LockInfo) -> String {
    if info.kind == Kind::Rest {
        return rest(info.ttl);
    }
    process(info.host.as_ref(), info.pid, info.app.as_ref())
        .map_or_else(|| holders(&info.owners), |process| with_others(&process, info.owners.len()))
}

/// A process, as the library's errors write it; `None` if it is not known.
pub(crate) fn process(host: Option<&String>, pid: Option<u32>, app: Option<&String>) -> Option<String> {
    Some(format!("pid {} ({}) on {}", pid?, app?, host?))
}

/// For how long the first holder has the lock, by the clock of this machine. A clock that is behind counts as no time.
fn held_for(info: &LockInfo) -> Option<Duration> {
    info.since.map(|since| since.elapsed().unwrap_or_default())
}

/// Nobody: a lock that was released before its `min_hold` was over.
pub(crate) fn rest(left: Option<Duration>) -> String {
    let free = left.map_or_else(String::new, |left| format!("; free in {}", duration::show(left)));
    format!("nobody{free}")
}

/// The holders as one text.
pub(crate) fn holders(owners: &[String]) -> String {
    owners.first().map_or_else(dash, |first| with_others(first, owners.len()))
}

fn with_others(first: &str, all: usize) -> String {
    match all {
        0 | 1 => first.to_owned(),
        _ => format!("{first} and {} more", all - 1),
    }
}

/// A ttl for a table.
pub(crate) fn ttl(ttl: Option<Duration>) -> String {
    ttl.map_or_else(dash, duration::show)
}

/// A token for a table.
pub(crate) fn token(token: u64) -> String {
    if token == 0 { dash() } else { token.to_string() }
}

/// The cell of a table for which there is nothing.
pub(crate) fn dash() -> String {
    "-".to_owned()
}
