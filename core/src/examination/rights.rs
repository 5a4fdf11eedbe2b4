//! Which commands of locks the user may not run, by ACL DRYRUN (Redis 7.0). `docs/deployments.md` lists the rights.

use super::{Examined, facts::DeniedCommand};
use crate::{
    config::Wire,
    protocol::{calls::MARKER, names::Names, script::Reply, sharding::Sharding},
    server::{NodeError, redis::Probe},
};

/// A command to try, and how rules spell its command and its pattern.
struct Tried {
    command: &'static str,
    pattern: String,
    words: Vec<String>,
}

/// The name of a lock that nobody uses.
const NAME: &str = "redlock_doctor";

/// The commands that `user` may not run. Fails if the server does not tell.
pub(super) async fn denied(
    examined: &Examined<'_>,
    probe: &Probe,
    user: &str,
    on_cluster: bool,
) -> Result<Vec<DeniedCommand>, NodeError> {
    let mut denied = Vec::new();
    for Tried { command, pattern, words } in commands(examined, on_cluster) {
        let words: Vec<&str> = ["ACL", "DRYRUN", user].into_iter().chain(words.iter().map(String::as_str)).collect();
        match probe.ask(&words).await? {
            Reply::Text(text) if text == "OK" => {}
            Reply::Text(why) => denied.push(DeniedCommand { command: command.to_owned(), pattern, why }),
            Reply::Int(_) | Reply::List(_) => return Err(NodeError::no_answer()),
        }
    }
    Ok(denied)
}

/// The commands that locks need, with the keys and channels of a lock that nobody uses.
fn commands(examined: &Examined<'_>, on_cluster: bool) -> Vec<Tried> {
    let settings = examined.settings;
    let prefix = &settings.config.prefix;
    let lock = format!("{prefix}{NAME}");
    let names = Names::new(lock.clone(), settings);
    let kind = |name: &str| format!("~{}:*", name.split(':').next().unwrap_or_default());
    let (counter, ended) = (names.counter(), names.ended());
    let (own, counters, notes) = (format!("~{prefix}*"), kind(&counter), kind(&ended));
    let mut all: Vec<(&'static str, String, Vec<&str>)> = Vec::new();
    for (command, words) in [
        ("eval", &["EVAL", "return 1", "0"][..]),
        ("evalsha", &["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
        ("time", &["TIME"]),
        ("ping", &["PING"]),
        ("info", &["INFO"]),
        ("client|info", &["CLIENT", "INFO"]),
        ("client|kill", &["CLIENT", "KILL", "ID", "1"]),
        ("config|get", &["CONFIG", "GET", "appendfsync"]),
        ("unsubscribe", &["UNSUBSCRIBE"]),
    ] {
        all.push((command, String::new(), words.to_vec()));
    }
    for (command, words) in
        [("exists", &["EXISTS", &lock][..]), ("pttl", &["PTTL", &lock]), ("pexpire", &["PEXPIRE", &lock, "1"])]
    {
        all.push((command, own.clone(), words.to_vec()));
    }
    let of_wire: &[(&'static str, &[&str])] = match settings.config.wire {
        Wire::Redisson => &[
            ("hset", &["HSET", &lock, "f", "1"]),
            ("hexists", &["HEXISTS", &lock, "f"]),
            ("hkeys", &["HKEYS", &lock]),
            ("hdel", &["HDEL", &lock, "f"]),
        ],
        Wire::Token => &[("get", &["GET", &lock]), ("set", &["SET", &lock, "v"]), ("del", &["DEL", &lock])],
    };
    all.extend(of_wire.iter().map(|(command, words)| (*command, own.clone(), words.to_vec())));
    all.push(("get", counters.clone(), vec!["GET", &counter]));
    all.push(("set", counters, vec!["SET", &counter, "1"]));
    all.push(("get", notes.clone(), vec!["GET", &ended]));
    all.push(("set", notes, vec!["SET", &ended, "1"]));
    let marker = if on_cluster { Sharding::HashSlots.marker(&lock) } else { MARKER.to_owned() };
    if settings.uses_markers() {
        let pattern = format!("~{MARKER}{}", if on_cluster { ":*" } else { "" });
        all.push(("get", pattern.clone(), vec!["GET", &marker]));
        all.push(("set", pattern, vec!["SET", &marker, "1"]));
    }
    let channel = names.channel();
    let channels = format!("&{}:*", channel.split(':').next().unwrap_or_default());
    all.push(("publish", channels.clone(), vec!["PUBLISH", &channel, "1"]));
    all.push(("subscribe", channels.clone(), vec!["SUBSCRIBE", &channel]));
    if on_cluster {
        all.push(("spublish", channels.clone(), vec!["SPUBLISH", &channel, "1"]));
        all.push(("ssubscribe", channels, vec!["SSUBSCRIBE", &channel]));
        for (command, words) in [
            ("sunsubscribe", &["SUNSUBSCRIBE"][..]),
            ("cluster|slots", &["CLUSTER", "SLOTS"]),
            ("cluster|info", &["CLUSTER", "INFO"]),
            ("asking", &["ASKING"]),
        ] {
            all.push((command, String::new(), words.to_vec()));
        }
    }
    if settings.config.min_replicas > 0 {
        all.push(("wait", String::new(), vec!["WAIT", "1", "1"]));
    }
    let owned = |words: Vec<&str>| words.into_iter().map(str::to_owned).collect();
    all.into_iter().map(|(command, pattern, words)| Tried { command, pattern, words: owned(words) }).collect()
}
