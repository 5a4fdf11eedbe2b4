//! Facts about the nodes, for `redlock doctor`: what each server says of itself, on connections of their own. The
//! caller judges them. Nothing here is on the path of an acquire, and nothing is written.

mod discovery;
mod facts;
mod info;
mod rights;
mod server;

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

pub use self::{
    facts::{
        ClockReading, ClusterFacts, DeniedCommand, Examination, Marker, NodeFacts, NodeKind, NotTold, SentinelFacts,
        SentinelState, ServerConfig, ServerFacts, ServerState, SlowCommand, Spike, Told,
    },
    info::{Product, ReplicaInfo, ServerInfo},
};
use crate::{client::Client, config::Settings, error::LockError, server::redis::Probe, session::run_to_completion};

/// An examination under way.
struct Examined<'a> {
    settings: &'a Settings,
    began: Instant,
}

/// The facts about a server, and the connection to it if there is one.
struct Looked {
    facts: ServerFacts,
    probe: Option<Probe>,
}

impl Client {
    /// Asks each node, and each server of a node, for facts: its replicas, the masters and replicas of a cluster, and
    /// the Sentinels. Reads each clock twice, `interval` apart; with zero, once. Writes nothing.
    ///
    /// A server has `connect_timeout` for the connection, `reply_timeout` for each reply, and five times that for all;
    /// after a missing reply it is not asked again. So this takes at most three times their sum, and `interval`:
    /// Sentinels, their master and its replicas are asked one after the other. What a server does not tell is part of
    /// the result. Fails only with `closed`.
    #[doc(hidden)]
    pub fn examine(&self, interval: Duration) -> impl Future<Output = Result<Examination, LockError>> + Send + use<> {
        let session = self.inner().session();
        async move {
            let session = session?;
            run_to_completion(async move {
                let start = SystemTime::now();
                let examined = Examined { settings: &session.settings, began: Instant::now() };
                let nodes = session.settings.endpoints.iter().map(|endpoint| discovery::node(&examined, endpoint));
                let mut nodes: Vec<discovery::Node> = join_all(nodes).await;
                if !interval.is_zero() {
                    sleep(interval).await;
                    let servers = nodes.iter_mut().flat_map(|node| &mut node.servers);
                    join_all(servers.map(|looked| server::read_clock_again(&examined, looked))).await;
                }
                Ok(Examination { start, nodes: nodes.into_iter().map(discovery::Node::into_facts).collect() })
            })
            .await
        }
    }
}
