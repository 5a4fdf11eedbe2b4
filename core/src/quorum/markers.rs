//! Who may vote: each node's marker, written once for a new deployment, tells whether it kept its keys since; and whether
//! two names lead to one server, which would have two votes.

use std::{sync::Arc, time::Duration};

use futures_util::{
    StreamExt,
    future::join_all,
    stream::{self},
};

use super::{Answer, Quorum, clean_up::changed};
use crate::{
    clock,
    error::{LockError, NodeCause},
    process::driver::Driver,
    protocol::{
        names::Names,
        reply::{self, Vote},
        script::Reply,
    },
    server::{NodeError, SentOn},
};

/// Markers written at once; a cluster has thousands.
const PROVISIONS_AT_ONCE: usize = 256;

impl Quorum {
    /// Finds out, once and in the background, whether all nodes are servers of their own: two names of one server
    /// would count as two votes.
    pub(super) fn tell_apart(self: &Arc<Self>) {
        if self.nodes.len() == 1 || std::mem::replace(&mut self.runs.lock().1, true) {
            return;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let (quorum, mut changes, limit) =
                (Arc::downgrade(self), node.changes(), self.settings.config.reply_timeout);
            self.spawn(async move {
                while let Some(pong) = quorum.upgrade().map(|quorum| quorum.nodes[index].ping(limit)) {
                    if let Ok(info) = pong.await {
                        if let Some(quorum) = quorum.upgrade() {
                            quorum.compare(index, info.run);
                        }
                        return;
                    }
                    changed(&mut changes, Duration::from_secs(5)).await;
                }
            });
        }
    }

    fn compare(&self, node: usize, run: Option<String>) {
        let runs = &mut self.runs.lock().0;
        if let Some(twin) = runs.iter().position(|known| known.is_some() && *known == run) {
            // The first pair found says enough.
            let _ = self.twins.set((twin, node));
        }
        runs[node] = run;
    }

    /// Vouches for every node: all vote at once, whatever they went through.
    pub(crate) async fn provision_all(&self) -> Result<(), LockError> {
        let limit = self.settings.config.reply_timeout;
        let markers = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, one)| one.traits().parts.markers().into_iter().map(move |marker| (node, marker)));
        let written = markers.map(|(node, marker)| {
            self.ask_one(node, Driver::Background, self.protocol.provision(marker, "init", 0), limit, SentOn::default())
        });
        let mut answers = stream::iter(written.collect::<Vec<_>>()).buffer_unordered(PROVISIONS_AT_ONCE);
        let mut causes: Vec<NodeCause> = Vec::new();
        while let Some((node, answer)) = answers.next().await {
            if let Some(error) = unwritten(answer) {
                let cause = self.cause(node, error);
                if !causes.contains(&cause) {
                    causes.push(cause);
                }
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(self.unavailable(causes)) }
    }

    /// A node without a marker answered after others, which have one, had granted.
    pub(crate) async fn late_unmarked(&self, names: &Names, node: usize, reply: &Reply) {
        if let Some((Vote::Unmarked, time)) = reply::vote(reply) {
            self.provision(names, &[(node, time)], false).await;
        }
    }

    /// Writes the markers of all parts, in the background, where the whole deployment is new. That is known only beside a
    /// node of one part: it had no marker, so nobody has locked anything yet.
    pub(super) fn provision_parts(self: &Arc<Self>, missing: &[(usize, i64)]) {
        if self.nodes.iter().all(|node| node.traits().parts.are_several()) {
            return;
        }
        let parted = missing.iter().copied().filter(|(node, _)| self.nodes[*node].traits().parts.are_several());
        for (node, time) in parted.collect::<Vec<_>>() {
            let (quorum, seen) = (self.clone(), clock::now());
            self.spawn_pending(async move {
                let markers = stream::iter(quorum.nodes[node].traits().parts.markers());
                let write = |marker| {
                    // The node's time by now: each write must be a fresh one.
                    let now = time + seen.elapsed().as_micros() as i64;
                    let (call, limit) =
                        (quorum.protocol.provision(marker, "new", now), quorum.settings.config.reply_timeout);
                    quorum.ask_one(node, Driver::Background, call, limit, SentOn::default())
                };
                // What fails is taken for a part that lost its keys, when it is first used.
                markers.map(write).buffer_unordered(PROVISIONS_AT_ONCE).for_each(|_| async {}).await;
            });
        }
    }

    /// Writes markers on the nodes that lack one; returns what failed. `fresh`: no node has one, so this is a new
    /// deployment.
    pub(super) async fn provision(
        &self,
        names: &Names,
        missing: &[(usize, i64)],
        fresh: bool,
    ) -> Vec<(usize, NodeError)> {
        let how = if fresh { "new" } else { "lost" };
        let written = missing.iter().map(|(node, seen)| {
            let call = self.protocol.provision(self.nodes[*node].traits().parts.marker(&names.lock), how, *seen);
            self.ask_one(*node, Driver::Background, call, self.settings.config.reply_timeout, SentOn::default())
        });
        let failed = |(node, answer): Answer| unwritten(answer).map(|error| (node, error));
        join_all(written).await.into_iter().filter_map(failed).collect()
    }
}

/// Why a marker is not there.
fn unwritten(answer: Result<Reply, NodeError>) -> Option<NodeError> {
    match answer {
        Ok(reply) if reply::done(&reply).is_some() => None,
        Ok(_) => Some(NodeError::no_answer()),
        Err(error) => Some(error),
    }
}
