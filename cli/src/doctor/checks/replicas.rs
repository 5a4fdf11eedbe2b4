//! Whether replicas keep up, and whether one takes over before leases end.

use std::time::Duration;

use redlock::examination::{NodeFacts, NodeKind};

use crate::doctor::{
    facts::{Answering, Facts},
    finding::Report,
};

/// A replica acknowledges its master every second.
const LAG: Duration = Duration::from_secs(10);
/// Fewer Sentinels cannot elect a master once one of them is down.
const SENTINELS: u64 = 3;

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    for one in facts.masters() {
        behind(&mut report, &one);
        if !facts.is_quorum() && one.info().is_some_and(|info| !info.replicas.is_empty()) {
            report.remark(format!(
                "{}: a failover may forget a lock, see docs/quorums.md#one-server-or-five-failover",
                one.address()
            ));
        }
    }
    for node in &facts.nodes {
        match node.kind {
            NodeKind::Sentinel => sentinels(facts, &mut report, node),
            NodeKind::Cluster => cluster(&mut report, node),
            _ => {}
        }
    }
    report
}

/// The replicas of one master.
fn behind(report: &mut Report, one: &Answering<'_>) {
    let Some(info) = one.info() else { return };
    for replica in &info.replicas {
        if replica.state != "online" {
            report.warning(
                &replica.address,
                format!("is a replica of {} that is not in step: {}", one.address(), replica.state),
                "Wait until it is online, or look at its log.",
            );
        } else if let Some(lag) = replica.lag.filter(|lag| *lag > LAG) {
            report.warning(
                &replica.address,
                format!("is a replica of {} that acknowledged nothing for {lag:?}", one.address()),
                "Check the replica, and the network to its master.",
            );
        }
    }
    let online = info.replicas.iter().filter(|replica| replica.state == "online").count() as u64;
    let needed = one.config().and_then(|config| config.min_replicas_to_write).unwrap_or_default();
    if needed > online {
        report.critical(
            one.address(),
            format!("refuses to write: min-replicas-to-write is {needed}, and {online} replicas are online"),
            "Start replicas, or lower min-replicas-to-write.",
        );
    }
}

fn sentinels(facts: &Facts, report: &mut Report, node: &NodeFacts) {
    let masters = node.servers.iter().filter(|server| !server.as_replica);
    let infos = masters.filter_map(|server| server.state.as_ref().ok()?.info.as_ref().ok());
    for info in infos {
        if info.replicas.is_empty() && !info.is_replica {
            report.warning(&node.node, "has no replica that could take over", "Start a replica.");
        }
    }
    let states: Vec<_> = node.sentinels.iter().filter_map(|sentinel| sentinel.state.as_ref().ok()).collect();
    if let Some(most) = states.iter().map(|state| state.others + 1).max()
        && most < SENTINELS
    {
        report.warning(
            &node.node,
            format!("has {most} Sentinels: if one is down, no master is elected"),
            "Run three Sentinels, on machines that fail independently.",
        );
    }
    let watchdog = facts.settings.watchdog;
    if let Some(slowest) = states.iter().map(|state| state.down_after).max()
        && slowest * 2 > watchdog
    {
        report.warning(
            &node.node,
            format!("a failover begins after {slowest:?} (down-after-milliseconds), and leases last {watchdog:?}"),
            "Lower down-after-milliseconds below half of a lease, or raise `watchdog` in the clients.",
        );
    }
}

fn cluster(report: &mut Report, node: &NodeFacts) {
    let Some(cluster) = &node.cluster else { return };
    if cluster.orphaned_slots > 0 {
        report.critical(
            &node.node,
            format!("{} of the cluster's slots have no master", cluster.orphaned_slots),
            "Repair the cluster: redis-cli --cluster check.",
        );
    } else if !cluster.ok {
        report.critical(
            &node.node,
            "the cluster is down (cluster_state is not ok)",
            "Repair the cluster: redis-cli --cluster check.",
        );
    }
    let masters = node.servers.iter().filter(|server| !server.as_replica);
    let lone = masters.filter(|server| {
        let info = server.state.as_ref().ok().and_then(|state| state.info.as_ref().ok());
        info.is_some_and(|info| info.replicas.is_empty() && !info.is_replica)
    });
    for master in lone {
        report.warning(
            &master.address,
            "is a master of the cluster without a replica: nothing takes over its slots",
            "Add a replica.",
        );
    }
}

#[cfg(test)]
mod tests {
    use redlock::examination::{ClusterFacts, SentinelFacts, SentinelState, ServerConfig};

    use super::*;
    use crate::doctor::{
        checks::made::{Made, severities},
        finding::Severity::{Critical, Warning},
    };

    const ONLINE: &str = "role:master\nslave0:ip=10.0.0.4,port=6379,state=online,offset=1,lag=1";

    #[test]
    fn replicas_that_do_not_keep_up_are_named() {
        for (info, expected) in [
            ("role:master", &[][..]),
            (ONLINE, &[]),
            ("slave0:ip=10.0.0.4,port=6379,state=online,offset=1,lag=60", &[Warning]),
            ("slave0:ip=10.0.0.4,port=6379,state=wait_bgsave,offset=0,lag=0", &[Warning]),
        ] {
            assert_eq!(severities(&check(&Made::one().info(0, info).facts)), expected, "{info}");
        }
        for (needed, expected) in [(1, &[][..]), (2, &[Critical])] {
            let mut made = Made::one().info(0, ONLINE);
            made.state(0).config = Ok(ServerConfig { min_replicas_to_write: Some(needed), ..ServerConfig::default() });
            assert_eq!(severities(&check(&made.facts)), expected, "{needed}");
        }
    }

    #[test]
    fn sentinels_must_act_before_leases_end() {
        for (info, millis, others, expected) in [
            (ONLINE, 5000, 2, &[][..]),
            (ONLINE, 30_000, 2, &[Warning]),
            (ONLINE, 5000, 1, &[Warning]),
            ("role:master", 5000, 2, &[Warning]),
        ] {
            let mut made = Made::one().info(0, info);
            let node = &mut made.facts.nodes[0];
            node.kind = NodeKind::Sentinel;
            let state = SentinelState {
                master: "10.0.0.1:6379".to_owned(),
                epoch: 1,
                down_after: Duration::from_millis(millis),
                quorum: 2,
                others,
            };
            node.sentinels = vec![SentinelFacts { address: "10.0.0.2:26379".to_owned(), state: Ok(state) }];
            assert_eq!(severities(&check(&made.facts)), expected, "{millis} {others}");
        }
    }

    #[test]
    fn slots_without_a_master_are_critical() {
        let with = |ok, orphaned_slots, info| {
            let mut made = Made::one().info(0, info);
            made.facts.nodes[0].kind = NodeKind::Cluster;
            made.facts.nodes[0].cluster = Some(ClusterFacts { ok, orphaned_slots });
            severities(&check(&made.facts))
        };
        assert_eq!(with(true, 0, ONLINE), []);
        assert_eq!(with(false, 0, ONLINE), [Critical]);
        assert_eq!(with(false, 5461, ONLINE), [Critical]);
        assert_eq!(with(true, 0, "role:master"), [Warning]);
    }
}
