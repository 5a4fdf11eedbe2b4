//! Whether the clients that are connected have the same settings, by the names of their connections. Clients with other
//! nodes, another quorum, wire or `max_ttl` may hold the same lock as the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redlock::{Wire, identity::Identity};

use crate::doctor::{
    facts::Facts,
    finding::{Report, Severity},
};

/// A client, and the nodes that see it.
struct Seen<'a> {
    identity: &'a Identity,
    nodes: BTreeSet<usize>,
}

/// Clients that may use the same locks: the program, and the hash of the prefix.
type Groups<'a> = BTreeMap<(&'a str, u64), Vec<&'a Seen<'a>>>;

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    let (mut clients, mut telling) = (BTreeMap::<&str, Seen<'_>>::new(), BTreeSet::new());
    for one in facts.masters() {
        match &one.state.clients {
            Ok(listed) => {
                telling.insert(one.number);
                for identity in listed {
                    let seen = clients
                        .entry(identity.client.as_str())
                        .or_insert_with(|| Seen { identity, nodes: BTreeSet::new() });
                    seen.nodes.insert(one.number);
                }
            }
            Err(why) => report.skip(one.address(), &format!("CLIENT LIST is not told: {}", why.cause)),
        }
    }
    report.remark(format!("{} clients are connected and named", clients.len()));
    let mut groups = Groups::new();
    for seen in clients.values() {
        groups.entry((seen.identity.app.as_str(), seen.identity.prefix_hash)).or_default().push(seen);
    }
    for ((app, _), group) in &groups {
        odd_settings(&mut report, app, group);
        missing_nodes(facts, &mut report, app, group, &telling);
    }
    report
}

/// A setting as people read it.
type Shown = fn(&Identity) -> String;

/// The settings that all clients of a lock share.
const SETTINGS: [(&str, Shown); 4] = [
    ("number of nodes", |identity| identity.nodes.to_string()),
    ("quorum", |identity| identity.quorum.to_string()),
    ("wire", |identity| if identity.wire == Wire::Token { "token" } else { "redisson" }.to_owned()),
    // On one node it has no meaning.
    ("max_ttl", |identity| if identity.nodes > 1 { seconds(identity.max_ttl) } else { "unused".to_owned() }),
];

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Names the clients of a program whose settings differ from those of most of its clients.
fn odd_settings(report: &mut Report, app: &str, group: &[&Seen<'_>]) {
    for (setting, shown) in SETTINGS {
        let mut values = BTreeMap::<String, Vec<&Identity>>::new();
        for seen in group {
            values.entry(shown(seen.identity)).or_default().push(seen.identity);
        }
        let Some(usual) = values.iter().max_by_key(|(_, having)| having.len()).map(|(value, _)| value.clone()) else {
            continue;
        };
        for (value, having) in
            values.iter().filter(|(value, _)| **value != usual && *value != "unused" && usual != "unused")
        {
            report.add(
                Severity::Warning,
                None,
                format!("app {app} on {}: {setting} {value}, others {usual}", places(having)),
                "Give all clients of a lock the same settings: their locks may not exclude each other.",
            );
        }
    }
    versions(report, app, group);
}

/// Versions of a rolling upgrade may share locks; those of different major versions may not.
fn versions(report: &mut Report, app: &str, group: &[&Seen<'_>]) {
    let mut majors = BTreeMap::<&str, Vec<&Identity>>::new();
    for seen in group {
        let major = seen.identity.version.split('.').next().unwrap_or_default();
        majors.entry(major).or_default().push(seen.identity);
    }
    if let [(_, old), .., (_, new)] = &majors.iter().collect::<Vec<_>>()[..] {
        let (old_version, new_version) = (&old[0].version, &new[0].version);
        report.add(
            Severity::Warning,
            None,
            format!("app {app} on {}: redlock {old_version}, others {new_version}", places(old)),
            "Finish the upgrade: docs/upgrading.md says which versions can share a lock.",
        );
    }
}

/// Where clients run.
fn places(clients: &[&Identity]) -> String {
    const SHOWN: usize = 3;
    let all: BTreeSet<String> = clients.iter().map(|one| format!("{} (pid {})", one.host, one.pid)).collect();
    let first: Vec<&str> = all.iter().take(SHOWN).map(String::as_str).collect();
    let more = all.len().saturating_sub(SHOWN);
    if more == 0 { first.join(", ") } else { format!("{} and {more} more", first.join(", ")) }
}

/// Names clients that do not see all nodes, and clients with other nodes than those that were given.
fn missing_nodes(facts: &Facts, report: &mut Report, app: &str, group: &[&Seen<'_>], telling: &BTreeSet<usize>) {
    let given = facts.nodes.len();
    let others: Vec<&Identity> = group.iter().map(|seen| seen.identity).filter(|one| one.nodes != given).collect();
    if others.len() == group.len() {
        let nodes = others[0].nodes;
        report.add(
            Severity::Warning,
            None,
            format!("app {app} on {} has {nodes} nodes, and {given} were given here", places(&others)),
            "Give all nodes to this command; if you did, that client has another list of nodes.",
        );
    }
    for seen in group.iter().filter(|seen| seen.identity.nodes == given && given > 1) {
        let unseen: Vec<&str> =
            telling.difference(&seen.nodes).map(|number| facts.nodes[*number].node.as_str()).collect();
        if !unseen.is_empty() {
            report.add(
                Severity::Warning,
                None,
                format!(
                    "app {app} on {} is seen on {} of {} nodes, not on {}",
                    places(&[seen.identity]),
                    seen.nodes.len(),
                    telling.len(),
                    unseen.join(", ")
                ),
                "Check its list of nodes, and the network between it and these nodes.",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{
        checks::made::{Made, severities},
        finding::Severity::Warning,
    };

    fn client(number: usize, change: &str) -> Identity {
        let name = format!(
            "redlock/1.2.3;h:web-{number};a:billing;p:812;u:0f6b7d0e-9f3c-4b1e-8a53-6f1d2c3b4a5{number};n:3;q:2;w:r;\
             m:60000;f:1"
        );
        let (from, to) = change.split_once('>').unwrap_or_default();
        Identity::parse(&name.replacen(from, to, 1)).expect("a name")
    }

    /// Three clients on three nodes; the third one differs.
    fn with(change: &str) -> Report {
        let mut made = Made::quorum(3);
        for node in 0..3 {
            made.state(node).clients = Ok(vec![client(1, ""), client(2, ""), client(3, change)]);
        }
        check(&made.facts)
    }

    #[test]
    fn a_client_with_other_settings_is_named() {
        assert_eq!(severities(&with("")), []);
        for (change, found) in [
            ("m:60000>m:30000", "app billing on web-3 (pid 812): max_ttl 30 s, others 60 s"),
            ("q:2>q:3", "app billing on web-3 (pid 812): quorum 3, others 2"),
            ("w:r>w:t", "app billing on web-3 (pid 812): wire token, others redisson"),
            ("n:3>n:5", "app billing on web-3 (pid 812): number of nodes 5, others 3"),
            ("1.2.3>0.9.0", "app billing on web-3 (pid 812): redlock 0.9.0, others 1.2.3"),
        ] {
            let report = with(change);
            assert_eq!(severities(&report), [Warning], "{change}: {report:?}");
            assert_eq!(report.findings[0].found, found);
        }
        for change in ["a:billing>a:shop", "f:1>f:2", "1.2.3>1.9.0"] {
            assert_eq!(severities(&with(change)), [], "{change}");
        }
    }

    #[test]
    fn a_client_that_misses_a_node_is_named() {
        let mut made = Made::quorum(3);
        for node in 0..3 {
            made.state(node).clients =
                Ok(if node < 2 { vec![client(1, ""), client(2, "")] } else { vec![client(1, "")] });
        }
        let report = check(&made.facts);
        assert_eq!(severities(&report), [Warning]);
        let found = "app billing on web-2 (pid 812) is seen on 2 of 3 nodes, not on 127.0.0.1:1002";
        assert_eq!(report.findings[0].found, found);
        let mut made = Made::one();
        made.state(0).clients = Ok(vec![client(1, ""), client(2, "")]);
        let report = check(&made.facts);
        assert_eq!(severities(&report), [Warning]);
        assert!(report.findings[0].found.ends_with("has 3 nodes, and 1 were given here"), "{report:?}");
    }
}
