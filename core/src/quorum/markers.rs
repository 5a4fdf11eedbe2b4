//! Which nodes may vote. A node's marker is written once, for a new deployment; a node that lacks it has lost its keys
//! since. This file also finds two names of one server, which would have two votes.

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
        calls::MarkerOrigin,
        names::Names,
        reply::{self, Vote},
        script::Reply,
    },
    server::{NodeError, SentOn},
    sync::notify,
};

/// How many markers are written concurrently; a cluster has thousands.
const PROVISIONS_AT_ONCE: usize = 256;

/// A guard that exists while all slots of a cluster get the markers of a new deployment.
pub(super) struct Provisioning(Arc<Quorum>);

impl Drop for Provisioning {
    fn drop(&mut self) {
        notify(&self.0.provisioning, |count| *count -= 1);
    }
}

impl Quorum {
    /// The error if two of the nodes are one server, which would count as two votes. The first call starts the search
    /// for such nodes in the background.
    pub(super) fn duplicate(self: &Arc<Self>) -> Option<NodeCause> {
        self.find_duplicate_nodes();
        let (one, other) = self.duplicates.get()?;
        let cause = format!("is the same server as {}; each vote needs a server of its own", self.nodes[*one].name());
        Some(self.cause(*other, cause))
    }

    fn find_duplicate_nodes(self: &Arc<Self>) {
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
        if let Some(other) = runs.iter().position(|known| known.is_some() && *known == run) {
            // The first two nodes found are enough for the error.
            let _ = self.duplicates.set((other, node));
        }
        runs[node] = run;
    }

    /// Writes the markers of all nodes for an operator who vouches for them: all vote immediately, even if they lost
    /// keys.
    pub(crate) async fn provision_all(&self) -> Result<(), LockError> {
        let limit = self.settings.config.reply_timeout;
        let markers = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, one)| one.traits().sharding.markers().into_iter().map(move |marker| (node, marker)));
        let written = markers.map(|(node, marker)| {
            self.ask_one(
                node,
                Driver::Background,
                self.protocol.provision(marker, MarkerOrigin::Init, 0),
                limit,
                SentOn::default(),
            )
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

    /// Writes the marker of a node that lacked it and answered only after a quorum of the others had granted.
    pub(crate) async fn late_unmarked(&self, names: &Names, node: usize, reply: &Reply) {
        if let Some((Vote::Unmarked, time)) = reply::vote(reply) {
            self.write_markers(names, &[(node, time)], MarkerOrigin::Lost).await;
        }
    }

    /// Writes the markers of a new deployment on all nodes: on a cluster that of the lock's slot, and then those of all
    /// slots in the background. Returns the failures. That all slots are new is certain only if some node is no
    /// cluster: that node had no marker, so no lock has been acquired yet.
    pub(super) async fn provision_deployment(
        self: &Arc<Self>,
        names: &Names,
        missing: &[(usize, i64)],
    ) -> Vec<(usize, NodeError)> {
        let is_surely_new = self.nodes.iter().any(|node| !node.traits().sharding.has_slots());
        let clusters =
            missing.iter().filter(|(node, _)| is_surely_new && self.nodes[*node].traits().sharding.has_slots());
        // Before the first marker is written: other acquires of this client take it as the sign that the deployment is
        // no longer new.
        let provisioning: Vec<_> = clusters.map(|(node, time)| (self.provisioning(), *node, *time)).collect();
        let failed = self.write_markers(names, missing, MarkerOrigin::New).await;
        if failed.len() <= self.spare() {
            for (provisioning, node, time) in provisioning {
                self.spawn_pending(self.clone().write_slot_markers(provisioning, node, time));
            }
        }
        failed
    }

    async fn write_slot_markers(self: Arc<Self>, provisioning: Provisioning, node: usize, time: i64) {
        let received = clock::now();
        let write = |marker| {
            // The node's time now: the script rejects a time that is older than a second.
            let now = time + received.elapsed().as_micros() as i64;
            let (call, limit) =
                (self.protocol.provision(marker, MarkerOrigin::New, now), self.settings.config.reply_timeout);
            self.ask_one(node, Driver::Background, call, limit, SentOn::default())
        };
        let markers = stream::iter(self.nodes[node].traits().sharding.markers());
        // A slot whose marker fails counts as one that lost its keys when it is first used.
        markers.map(write).buffer_unordered(PROVISIONS_AT_ONCE).for_each(|_| async {}).await;
        drop(provisioning);
    }

    fn provisioning(self: &Arc<Self>) -> Provisioning {
        notify(&self.provisioning, |count| *count += 1);
        Provisioning(self.clone())
    }

    /// Waits while the slots of clusters get the markers of a new deployment. Returns whether any did.
    pub(super) async fn wait_for_provisioning(&self) -> bool {
        let mut provisioning = self.provisioning.subscribe();
        let under_way = *provisioning.borrow() > 0;
        // Never an error: the sender is in `self`.
        let _ = provisioning.wait_for(|count| *count == 0).await;
        under_way
    }

    /// Writes markers on the nodes that lack one, and returns the failures. `missing`: these nodes, and the time of
    /// each when it replied so.
    pub(super) async fn write_markers(
        &self,
        names: &Names,
        missing: &[(usize, i64)],
        origin: MarkerOrigin,
    ) -> Vec<(usize, NodeError)> {
        // While all slots get the markers of a new deployment, a slot without one has lost nothing.
        let skips_clusters = origin == MarkerOrigin::Lost && *self.provisioning.borrow() > 0;
        let lacking =
            missing.iter().filter(|(node, _)| !skips_clusters || !self.nodes[*node].traits().sharding.has_slots());
        let written = lacking.map(|(node, time)| {
            let call = self.protocol.provision(self.nodes[*node].traits().sharding.marker(&names.lock), origin, *time);
            self.ask_one(*node, Driver::Background, call, self.settings.config.reply_timeout, SentOn::default())
        });
        let failed = |(node, answer): Answer| unwritten(answer).map(|error| (node, error));
        join_all(written).await.into_iter().filter_map(failed).collect()
    }
}

/// Why a marker could not be written; `None` if it exists.
fn unwritten(answer: Result<Reply, NodeError>) -> Option<NodeError> {
    match answer {
        Ok(reply) if reply::done(&reply).is_some() => None,
        Ok(_) => Some(NodeError::no_answer()),
        Err(error) => Some(error),
    }
}
