//! Facts for unit tests: healthy nodes, which a test then changes.

use std::time::{Duration, UNIX_EPOCH};

use redlock::examination::{
    ClockReading, NodeFacts, NodeKind, NotTold, ServerConfig, ServerFacts, ServerInfo, ServerState,
};

use crate::doctor::{
    facts::{Facts, Settings},
    finding::{Report, Severity},
};

/// The time at which all servers were asked, counted from 1970.
pub(crate) const NOW: Duration = Duration::from_secs(1_700_000_000);

/// Facts that a test changes.
pub(crate) struct Made {
    pub(crate) facts: Facts,
}

impl Made {
    /// One healthy server.
    pub(crate) fn one() -> Self {
        Self::quorum(1)
    }

    /// So many healthy servers: 127.0.0.1:1000, with the run id `run-0`, and so on.
    pub(crate) fn quorum(count: usize) -> Self {
        let nodes = (0..count).map(|number| {
            let node = format!("127.0.0.1:{}", 1000 + number);
            NodeFacts {
                kind: NodeKind::Server,
                error: None,
                servers: vec![ServerFacts { address: node.clone(), as_replica: false, state: Ok(healthy(number)) }],
                sentinels: Vec::new(),
                cluster: None,
                node,
            }
        });
        let settings = Settings {
            quorum: count / 2 + 1,
            max_ttl: Duration::from_secs(60),
            drift: 0.1,
            watchdog: Duration::from_secs(30),
            reply_timeout: Duration::from_secs(2),
            prefix: String::new(),
        };
        let facts = Facts { start: UNIX_EPOCH + NOW, nodes: nodes.collect(), trials: Vec::new(), settings };
        Self { facts }
    }

    /// What the master of a node says.
    pub(crate) fn state(&mut self, node: usize) -> &mut ServerState {
        self.facts.nodes[node].servers[0].state.as_mut().expect("it answers")
    }

    /// What the replica of a node says.
    pub(crate) fn replica_state(&mut self, node: usize) -> &mut ServerState {
        self.facts.nodes[node].servers[1].state.as_mut().expect("it answers")
    }

    /// Gives a node another INFO.
    pub(crate) fn info(mut self, node: usize, text: &str) -> Self {
        self.state(node).info = Ok(ServerInfo::parse(text));
        self
    }

    /// Adds a replica of a node, with this INFO.
    pub(crate) fn replica(mut self, node: usize, text: &str) -> Self {
        let state = ServerState { info: Ok(ServerInfo::parse(text)), ..healthy(100 + node) };
        let address = format!("127.0.0.1:{}", 2000 + node);
        self.facts.nodes[node].servers.push(ServerFacts { address, as_replica: true, state: Ok(state) });
        self
    }

    /// Makes a node give no answer.
    pub(crate) fn down(mut self, node: usize, cause: &str, forbidden: bool) -> Self {
        self.facts.nodes[node].servers[0].state = Err(NotTold { cause: cause.to_owned(), forbidden });
        self
    }
}

fn healthy(number: usize) -> ServerState {
    let info = format!(
        "redis_version:7.0.15\nredis_mode:standalone\nrun_id:run-{number}\nuptime_in_seconds:100000\nrole:master\n\
         aof_enabled:1\nmaster_replid2:0000000000000000000000000000000000000000\nconnected_clients:3\nmaxclients:10000"
    );
    let reading = ClockReading { at: Duration::ZERO, time: NOW, error: Duration::from_millis(1) };
    ServerState {
        connect: Duration::from_millis(1),
        round_trips: vec![Duration::from_millis(1); 5],
        info: Ok(ServerInfo::parse(&info)),
        config: Ok(ServerConfig { appendfsync: Some("everysec".to_owned()), ..ServerConfig::default() }),
        clocks: Ok(vec![reading]),
        lua: Ok(()),
        marker: Ok(None),
        latency: Ok(Vec::new()),
        slow: Ok(Vec::new()),
        user: Ok("bob".to_owned()),
        denied: Ok(Vec::new()),
        clients: Ok(Vec::new()),
    }
}

/// The severities of all findings.
pub(crate) fn severities(report: &Report) -> Vec<Severity> {
    report.findings.iter().map(|finding| finding.severity).collect()
}
