//! What a live view shows of a node beyond its answers: its role, its clock, and whether it votes.

use std::fmt::{Display, Formatter, Result};

pub(crate) use super::checks::markers::Vote;
use super::{
    checks::{clocks, markers},
    facts::Facts,
};

/// The role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A master with this number of replicas.
    Master(usize),
    /// A replica, which grants no lock.
    Replica,
    /// A cluster.
    Cluster,
    /// A Sentinel, which grants no lock.
    Sentinel,
}

impl Role {
    /// The role in one word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Master(_) => "master",
            Self::Replica => "replica",
            Self::Cluster => "cluster",
            Self::Sentinel => "sentinel",
        }
    }

    /// The number of replicas of a master.
    pub(crate) fn replicas(self) -> Option<usize> {
        if let Self::Master(replicas) = self { Some(replicas) } else { None }
    }

    /// Whether a server with this role can be a node.
    pub(crate) fn grants(self) -> bool {
        matches!(self, Self::Master(_) | Self::Cluster)
    }
}

impl Display for Role {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> Result {
        match self {
            Self::Master(1) => formatter.write_str("master, 1 replica"),
            Self::Master(replicas @ 2..) => write!(formatter, "master, {replicas} replicas"),
            _ => formatter.write_str(self.as_str()),
        }
    }
}

/// What is known of a node. `None`: it does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outlook {
    pub(crate) role: Option<Role>,
    /// How far its clock is before those of the others, in seconds.
    pub(crate) clock: Option<f64>,
    /// Whether that is more than NTP would leave.
    pub(crate) is_off: bool,
    /// Whether it votes; only on a quorum that was in use.
    pub(crate) vote: Option<Vote>,
}

impl Outlook {
    /// The outlooks of all nodes, in their order. Of a cluster the first master counts.
    pub(crate) fn of_all(facts: &Facts) -> Vec<Self> {
        let mut outlooks = vec![Self::default(); facts.nodes.len()];
        let (offsets, votes) = (clocks::offsets(facts), markers::votes(facts));
        for one in facts.masters() {
            let outlook = &mut outlooks[one.number];
            if outlook.role.is_some() {
                continue;
            }
            outlook.role = one.info().map(|info| match info.mode.as_deref() {
                Some("cluster") => Role::Cluster,
                Some("sentinel") => Role::Sentinel,
                _ if info.is_replica => Role::Replica,
                _ => Role::Master(info.replicas.len()),
            });
            if let Some(offset) = offsets.iter().find(|offset| offset.address == one.address()) {
                (outlook.clock, outlook.is_off) = (Some(offset.seconds), offset.is_large());
            }
            outlook.vote = votes.iter().find(|(voter, _)| voter.number == one.number).map(|(_, vote)| *vote);
        }
        outlooks
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redlock::examination::Marker;

    use super::*;
    use crate::doctor::checks::made::{Made, NOW};

    #[test]
    fn each_node_has_its_role_its_clock_and_its_vote() {
        let mut made = Made::quorum(4).info(0, "role:slave").down(3, "connection refused", false);
        for node in 0..3 {
            made.state(node).marker = Ok(Some(Marker { run: format!("run-{node}"), lost_at: Duration::ZERO }));
        }
        made.state(1).marker =
            Ok(Some(Marker { run: "run-1".to_owned(), lost_at: NOW.saturating_sub(Duration::from_secs(6)) }));
        if let Ok(readings) = &mut made.state(2).clocks {
            readings[0].time += Duration::from_secs(3);
        }
        let outlooks = Outlook::of_all(&made.facts);
        assert_eq!(outlooks[0].role, Some(Role::Replica));
        assert_eq!(outlooks[0].vote, None, "a replica has no vote");
        assert_eq!(outlooks[1].vote, Some(Vote::After(Duration::from_secs(60))));
        assert_eq!((outlooks[2].vote, outlooks[2].is_off), (Some(Vote::Votes), true));
        assert!((outlooks[2].clock.expect("a clock") - 3.0).abs() < 0.01);
        assert_eq!(outlooks[3], Outlook::default());
    }

    #[test]
    fn a_new_deployment_and_a_single_node_have_no_votes() {
        for nodes in [1, 3] {
            let outlooks = Outlook::of_all(&Made::quorum(nodes).facts);
            assert!(outlooks.iter().all(|outlook| outlook.vote.is_none() && outlook.role == Some(Role::Master(0))));
        }
    }
}
