//! Whether each node is a master of its own: two names of one server would be two votes, and a replica has none.

use std::net::IpAddr;

use redlock::examination::NodeKind;

use crate::doctor::{
    facts::{Answering, Facts},
    finding::Report,
};

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for one in facts.masters().filter(|one| one.node.kind != NodeKind::Cluster) {
        replica(facts, &mut report, &one);
    }
    if facts.is_quorum() {
        twins(facts, &mut report);
        neighbours(facts, &mut report);
    } else {
        report.remark("there is one node");
    }
    report
}

/// A replica that is named as a node.
fn replica(facts: &Facts, report: &mut Report, one: &Answering<'_>) {
    let Some(info) = one.info().filter(|info| info.is_replica) else { return };
    let master = info.master.as_deref().unwrap_or("an unknown server");
    let other = facts.nodes.iter().any(|node| node.node == master);
    let also = if other { ", which is a node, too: they are one vote" } else { "" };
    report.critical(
        one.address(),
        format!("is a replica of {master}{also}"),
        "Name masters only, or redis+sentinel:// to follow a master; a replica grants no lock.",
    );
}

/// Two nodes that are one server, or share servers. Each pair of nodes is named once.
fn twins(facts: &Facts, report: &mut Report) {
    let all: Vec<(Answering<'_>, &str)> =
        facts.answering().filter_map(|one| Some((one, one.info()?.run_id.as_deref()?))).collect();
    let mut named: Vec<(usize, usize)> = Vec::new();
    for (index, (one, run)) in all.iter().enumerate() {
        for (other, _) in all[..index].iter().filter(|(other, known)| known == run && other.number != one.number) {
            let pair = (other.number, one.number);
            // A replica that is named as a node has a finding of its own.
            if named.contains(&pair) || one.server.as_replica != other.server.as_replica {
                continue;
            }
            named.push(pair);
            let found = format!("is the same server as {}: two names of one node", other.node.node);
            report.critical(&one.node.node, found, "Each vote needs a server of its own: name each node once.");
        }
    }
}

/// Nodes of one machine fail together. Those of this machine are a test.
fn neighbours(facts: &Facts, report: &mut Report) {
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for node in facts.nodes.iter().filter(|node| node.kind == NodeKind::Server) {
        let Some(host) = host(&node.node) else { continue };
        match seen.iter().find(|(known, _)| *known == host) {
            Some((_, other)) => report.warning(
                &node.node,
                format!("has the same machine as {other}"),
                "Use machines that fail independently, without a shared power supply.",
            ),
            None => seen.push((host, &node.node)),
        }
    }
}

/// The host of a node's address; `None` for this machine.
fn host(node: &str) -> Option<&str> {
    let (host, _) = node.rsplit_once("://").map_or(node, |(_, rest)| rest).rsplit_once(':')?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    (!is_local).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{
        checks::made::{Made, severities},
        finding::Severity::{Critical, Warning},
    };

    #[test]
    fn twins_replicas_and_neighbours_are_named() {
        assert_eq!(severities(&check(&Made::quorum(3).facts)), []);
        let twins = check(&Made::quorum(3).info(2, "run_id:run-0").facts);
        assert_eq!(severities(&twins), [Critical]);
        assert!(twins.findings[0].found.contains("is the same server as 127.0.0.1:1000"), "{twins:?}");
        let master = "run_id:run-1\nrole:slave\nmaster_host:127.0.0.1\nmaster_port:1000";
        let replica = check(&Made::quorum(3).info(1, master).facts);
        assert_eq!(severities(&replica), [Critical]);
        assert!(replica.findings[0].found.contains("of 127.0.0.1:1000, which is a node, too"), "{replica:?}");
        let mut made = Made::quorum(3);
        for (node, name) in ["10.0.0.1:6379", "10.0.0.1:6380", "10.0.0.2:6379"].into_iter().enumerate() {
            made.facts.nodes[node].node = name.to_owned();
        }
        assert_eq!(severities(&check(&made.facts)), [Warning]);
    }

    #[test]
    fn a_replica_is_no_node_of_its_own_either() {
        let alone = check(&Made::one().info(0, "role:slave\nmaster_host:10.0.0.9\nmaster_port:6379").facts);
        assert_eq!(severities(&alone), [Critical]);
        assert!(alone.findings[0].found.ends_with("is a replica of 10.0.0.9:6379"), "{alone:?}");
    }
}
