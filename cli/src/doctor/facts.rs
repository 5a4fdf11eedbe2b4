//! What the checks know: what the servers say of themselves, a trial of a lock on each node, and the client's settings.

use std::time::{Duration, SystemTime};

use redlock::{
    Config,
    examination::{Examination, NodeFacts, ServerConfig, ServerFacts, ServerInfo, ServerState},
};

use super::trial::{self, Trial};
use crate::{block::block, connect::ConnectOptions, failure::Failure, talk::Talk};

/// All facts.
#[derive(Debug)]
pub(crate) struct Facts {
    /// When the servers were asked.
    pub(crate) start: SystemTime,
    pub(crate) nodes: Vec<NodeFacts>,
    /// For each node a trial; `None` if there was none.
    pub(crate) trials: Vec<Option<Trial>>,
    pub(crate) settings: Settings,
}

/// The settings of the client that the checks compare with.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) quorum: usize,
    pub(crate) max_ttl: Duration,
    pub(crate) drift: f64,
    pub(crate) watchdog: Duration,
    pub(crate) reply_timeout: Duration,
    pub(crate) prefix: String,
}

impl Settings {
    /// The settings of a configuration with this number of nodes.
    pub(crate) fn of(config: &Config, nodes: usize) -> Self {
        Self {
            quorum: config.quorum.unwrap_or(nodes / 2 + 1),
            max_ttl: config.max_ttl,
            drift: config.drift,
            watchdog: config.watchdog,
            reply_timeout: config.reply_timeout,
            prefix: config.prefix.clone(),
        }
    }

    /// How long a node that lost its keys does not vote.
    pub(crate) fn quarantine(&self) -> Duration {
        self.max_ttl.mul_f64(1.0 + self.drift)
    }
}

/// A server that answers, and its node.
#[derive(Clone, Copy)]
pub(crate) struct Answering<'a> {
    /// The number of the node.
    pub(crate) number: usize,
    pub(crate) node: &'a NodeFacts,
    pub(crate) server: &'a ServerFacts,
    pub(crate) state: &'a ServerState,
}

impl<'a> Answering<'a> {
    pub(crate) fn address(&self) -> &'a str {
        &self.server.address
    }

    pub(crate) fn info(&self) -> Option<&'a ServerInfo> {
        self.state.info.as_ref().ok()
    }

    pub(crate) fn config(&self) -> Option<&'a ServerConfig> {
        self.state.config.as_ref().ok()
    }
}

impl Facts {
    /// Asks the servers, and tries a lock on each node that answers, if `tries`.
    pub(crate) fn collect(
        servers: &ConnectOptions,
        talk: &Talk,
        interval: Duration,
        tries: bool,
    ) -> Result<Self, Failure> {
        let config = servers.config()?;
        let client = servers.client(talk)?;
        let examination = block(client.examine(interval))?;
        client.close_blocking();
        let mut facts = Self::of(examination, &config);
        facts.trials = (0..facts.nodes.len())
            .map(|node| if tries && facts.grants(node) { trial::of_node(&config, node).map(Some) } else { Ok(None) })
            .collect::<Result<_, _>>()?;
        Ok(facts)
    }

    /// The facts of an examination by a client with this configuration, without a trial.
    pub(crate) fn of(Examination { start, nodes, .. }: Examination, config: &Config) -> Self {
        Self { start, settings: Settings::of(config, nodes.len()), trials: vec![None; nodes.len()], nodes }
    }

    /// Whether several nodes vote.
    pub(crate) fn is_quorum(&self) -> bool {
        self.nodes.len() > 1
    }

    /// All servers that answer.
    pub(crate) fn answering(&self) -> impl Iterator<Item = Answering<'_>> {
        self.nodes.iter().enumerate().flat_map(|(number, node)| {
            node.servers.iter().filter_map(move |server| {
                let state = server.state.as_ref().ok()?;
                Some(Answering { number, node, server, state })
            })
        })
    }

    /// The servers that answer and were not found as replicas.
    pub(crate) fn masters(&self) -> impl Iterator<Item = Answering<'_>> {
        self.answering().filter(|one| !one.server.as_replica)
    }

    /// Whether all masters of a node answer, and have their keys.
    pub(crate) fn is_up(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        let mut masters = node.servers.iter().filter(|server| !server.as_replica);
        let loads = |state: &ServerState| state.info.as_ref().is_ok_and(|info| info.loading);
        node.error.is_none() && masters.all(|server| server.state.as_ref().is_ok_and(|state| !loads(state)))
    }

    /// Whether a node is up, and no replica or Sentinel, which grant no lock.
    pub(crate) fn grants(&self, node: usize) -> bool {
        let mut infos = self.masters().filter(|one| one.number == node).filter_map(|one| one.state.info.as_ref().ok());
        self.is_up(node) && infos.all(|info| !info.is_replica && info.mode.as_deref() != Some("sentinel"))
    }

    /// How many nodes are up.
    pub(crate) fn up(&self) -> usize {
        (0..self.nodes.len()).filter(|node| self.is_up(*node)).count()
    }
}
