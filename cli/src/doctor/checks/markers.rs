//! Which nodes of a quorum vote. A node that restarted, lost its keys or was promoted does not vote for a while: it is
//! in quarantine. Its marker and its run id tell.

use std::time::Duration;

use redlock::examination::{Marker, NodeKind, ServerInfo};

use crate::{
    doctor::{
        facts::{Answering, Facts},
        finding::{Report, Severity},
    },
    duration,
};

/// Whether a node votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    Votes,
    /// In quarantine, for so long.
    After(Duration),
    /// Without a marker: its quarantine begins with the next acquire, or all nodes are new.
    Unmarked,
}

pub(crate) fn check(facts: &Facts) -> Report {
    let mut report = Report::default();
    if !facts.is_quorum() {
        report.remark("there is one node, which always votes");
        return report;
    }
    let mut votes: Vec<(Answering<'_>, Vote)> = Vec::new();
    for (one, vote) in told(facts) {
        match vote {
            Ok(vote) => votes.push((one, vote)),
            Err(why) => report.skip(one.address(), why),
        }
    }
    // Clusters, and nodes that tell too little to judge, count as nodes that vote.
    let others = granting(facts).saturating_sub(votes.len());
    if are_new(facts, &votes) {
        report.remark("no node has a marker: the first acquire writes them");
        return report;
    }
    let voting = others + votes.iter().filter(|(_, vote)| *vote == Vote::Votes).count();
    let severity = if voting < facts.settings.quorum { Severity::Critical } else { Severity::Warning };
    let quarantine = duration::show(facts.settings.quarantine());
    for (one, vote) in votes {
        let (found, advice) = match vote {
            Vote::Votes => {
                report.remark(format!("{}: votes", one.address()));
                continue;
            }
            Vote::After(left) => (
                format!("restarted or lost its keys, and votes in {}", duration::show(left)),
                "Wait; restart nodes one after another.",
            ),
            Vote::Unmarked => (
                format!("has lost its keys, and votes {quarantine} after the next acquire"),
                "Wait; if no lock can be held anywhere, init_nodes() lets all nodes vote.",
            ),
        };
        let found = format!("{found} ({voting} of {} nodes vote, {} must)", facts.nodes.len(), facts.settings.quorum);
        report.add(severity, Some(one.address()), found, advice);
    }
    report
}

/// Whether each node of a quorum votes, of those that tell it; none of a deployment that is new.
pub(crate) fn votes(facts: &Facts) -> Vec<(Answering<'_>, Vote)> {
    let votes: Vec<_> = told(facts).filter_map(|(one, vote)| Some((one, vote.ok()?))).collect();
    if !facts.is_quorum() || are_new(facts, &votes) { Vec::new() } else { votes }
}

/// For each node that grants locks and is no cluster, whether it votes, or why it does not tell.
fn told(facts: &Facts) -> impl Iterator<Item = (Answering<'_>, Result<Vote, &str>)> {
    let judged = facts.masters().filter(|one| facts.grants(one.number) && one.node.kind != NodeKind::Cluster);
    judged.map(|one| {
        let vote = match (one.info(), &one.state.marker) {
            (Some(info), Ok(marker)) => Ok(vote(facts, &one, info, marker.as_ref())),
            (None, _) => Err("INFO is not told"),
            (_, Err(why)) => Err(why.cause.as_str()),
        };
        (one, vote)
    })
}

/// How many nodes grant locks.
fn granting(facts: &Facts) -> usize {
    (0..facts.nodes.len()).filter(|node| facts.grants(*node)).count()
}

/// Whether no node has a marker: the first acquire writes them.
fn are_new(facts: &Facts, votes: &[(Answering<'_>, Vote)]) -> bool {
    granting(facts) <= votes.len() && !votes.is_empty() && votes.iter().all(|(_, vote)| *vote == Vote::Unmarked)
}

/// Whether a node votes, as the scripts decide it.
fn vote(facts: &Facts, one: &Answering<'_>, info: &ServerInfo, marker: Option<&Marker>) -> Vote {
    let Some(marker) = marker else { return Vote::Unmarked };
    let Some(now) = one.state.clocks.as_ref().ok().and_then(|clocks| clocks.last()).map(|clock| clock.time) else {
        return Vote::Votes;
    };
    let is_same_run = info.run_id.as_deref() == Some(marker.run.as_str());
    let always = one.config().is_some_and(|config| config.appendfsync.as_deref() == Some("always"));
    let is_durable = info.aof == Some(true) && always && info.never_promoted;
    let lost_at = match (is_same_run || is_durable, info.uptime.filter(|_| info.never_promoted)) {
        (true, _) => marker.lost_at,
        (false, Some(uptime)) => now.saturating_sub(uptime),
        // A promoted server lacks keys since a time that it does not know: since a client sees it.
        (false, None) => now,
    };
    let left = (lost_at + facts.settings.quarantine()).saturating_sub(now);
    if left.is_zero() { Vote::Votes } else { Vote::After(left) }
}

#[cfg(test)]
mod tests {
    use redlock::examination::ServerConfig;

    use super::*;
    use crate::doctor::{
        checks::made::{Made, NOW, severities},
        finding::Severity::{Critical, Warning},
    };

    const NEVER_PROMOTED: &str = "master_replid2:0000000000000000000000000000000000000000";

    fn marked(made: &mut Made, node: usize, run: &str, ago: Option<u64>) {
        let lost_at = ago.map_or(Duration::ZERO, |ago| NOW.saturating_sub(Duration::from_secs(ago)));
        made.state(node).marker = Ok(Some(Marker { run: run.to_owned(), lost_at }));
    }

    /// Three nodes that vote.
    fn voting() -> Made {
        let mut made = Made::quorum(3);
        for node in 0..3 {
            marked(&mut made, node, &format!("run-{node}"), None);
        }
        made
    }

    #[test]
    fn nodes_with_the_marker_of_their_run_vote_and_a_new_deployment_too() {
        assert_eq!(severities(&check(&voting().facts)), []);
        assert_eq!(severities(&check(&Made::quorum(3).facts)), [], "no node has a marker");
        assert_eq!(severities(&check(&Made::one().facts)), []);
    }

    #[test]
    fn a_node_that_lost_its_keys_does_not_vote_for_max_ttl_and_drift() {
        let lost = |ago| {
            let mut made = voting();
            marked(&mut made, 1, "run-1", Some(ago));
            check(&made.facts)
        };
        assert_eq!(severities(&lost(10)), [Warning]);
        assert!(lost(10).findings[0].found.contains("votes in 56s (2 of 3 nodes vote, 2 must)"), "{:?}", lost(10));
        assert_eq!(severities(&lost(67)), []);
        let mut made = voting();
        for node in [0, 2] {
            made.state(node).marker = Ok(None);
        }
        assert_eq!(severities(&check(&made.facts)), [Critical; 2]);
    }

    #[test]
    fn a_restart_counts_unless_the_server_keeps_every_write() {
        let restarted = |info: &str, how: &str| {
            let mut made = voting().info(1, &format!("run_id:new\naof_enabled:1\n{info}"));
            marked(&mut made, 1, "old", None);
            made.state(1).config = Ok(ServerConfig { appendfsync: Some(how.to_owned()), ..ServerConfig::default() });
            severities(&check(&made.facts))
        };
        assert_eq!(restarted(&format!("{NEVER_PROMOTED}\nuptime_in_seconds:10"), "everysec"), [Warning]);
        assert_eq!(restarted(&format!("{NEVER_PROMOTED}\nuptime_in_seconds:70"), "everysec"), []);
        assert_eq!(restarted(&format!("{NEVER_PROMOTED}\nuptime_in_seconds:10"), "always"), []);
        assert_eq!(restarted("master_replid2:abc\nuptime_in_seconds:70", "always"), [Warning], "it was promoted");
    }
}
