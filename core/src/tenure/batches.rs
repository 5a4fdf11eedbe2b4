//! The requests of the watchdog: renewals and repairs, batched for each node.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};

use super::{Tenure, upkeep::prolong};
use crate::{
    clock::Stamp,
    config::Settings,
    process::driver::Driver,
    protocol::reply,
    quorum::Quorum,
    server::{
        Hint,
        NodeErrorKind::{Refused, WrongType},
        SentOn,
    },
};

/// Tenures in one renewal request: enough to halve the server's work, few enough to delay other clients by 0.3 ms.
const BATCH: usize = 100;
/// Requests under way for different slots of a cluster.
const SLOTS_AT_ONCE: usize = 64;
/// Tenures of a refused batch that are tried by themselves. While fewer cannot be renewed, all others are.
const TRIED_APART: usize = 8;
/// Repairs under way on one node; far below what a connection takes.
const REPAIRS_AT_ONCE: usize = 64;

/// A tenure to renew or repair on a node.
#[derive(Clone)]
pub(super) struct Renewal {
    pub(super) tenure: Arc<Tenure>,
    pub(super) ttl: Duration,
    pub(super) sent: Stamp,
}

/// Renews on one node, a batch at a time; on a cluster, where a request is for one slot, several batches at a time.
pub(super) async fn renew(quorum: &Arc<Quorum>, node: usize, mut batch: Vec<Renewal>) {
    let sharding = quorum.nodes[node].traits().sharding;
    // A request is for one slot, and for one family of locks.
    let group = |renewal: &Renewal| {
        (sharding.slot_of(&renewal.tenure.terms.subject.names.lock), renewal.tenure.terms.subject.primitive.family())
    };
    batch.sort_by_cached_key(group);
    let groups = batch.chunk_by(|one, next| group(one) == group(next));
    let batches: Vec<&[Renewal]> = groups.flat_map(|group| group.chunks(BATCH)).collect();
    let at_once = if batches.len() > batch.len().div_ceil(BATCH) { SLOTS_AT_ONCE } else { 1 };
    stream::iter(batches)
        .for_each_concurrent(at_once, |batch| async move {
            renew_batch(quorum, node, batch).await;
        })
        .await;
}

/// Renews one batch on one node. Returns whether the node answered for all of it.
async fn renew_batch(quorum: &Arc<Quorum>, node: usize, batch: &[Renewal]) -> bool {
    let tenures = batch.iter().map(|renewal| (renewal.tenure.label(), renewal.ttl));
    let limit = renewal_limit(&quorum.settings, batch);
    let answer =
        quorum.nodes[node].eval(Driver::Background, quorum.protocol.renew(tenures), limit, SentOn::default()).await;
    if let Err(error) = &answer
        && batch.len() > 1
    {
        if error.hint == Some(Hint::TryAgain) {
            // Some of these locks have moved to another server, and some not yet.
            return renew_each(quorum, node, batch).await.into_iter().all(|renewed| renewed);
        }
        if error.is_permanent() || matches!(error.kind, Refused | WrongType) {
            return Box::pin(renew_apart(quorum, node, batch)).await;
        }
    }
    let inside = batch.iter().any(|renewal| renewal.tenure.terms.subject.primitive.is_read_write());
    let Some(found) = answer.ok().and_then(|reply| reply::renewals(&reply, batch.len(), inside)) else {
        fail(node, batch);
        return false;
    };
    let mut due = Vec::new();
    for (renewal, found) in batch.iter().zip(found) {
        if let Some(counter_ttl) = renewal.tenure.renewal_answered(node, found, renewal.ttl, renewal.sent) {
            due.push((renewal.tenure.clone(), counter_ttl));
        }
    }
    if !due.is_empty() {
        quorum.spawn(prolong(quorum.clone(), node, due));
    }
    true
}

/// Renews each tenure of a batch with a request of its own. Returns for each, in any order, whether the node answered.
async fn renew_each(quorum: &Arc<Quorum>, node: usize, batch: &[Renewal]) -> Vec<bool> {
    let each: Vec<_> = batch.chunks(1).map(|one| Box::pin(renew_batch(quorum, node, one))).collect();
    stream::iter(each).buffer_unordered(SLOTS_AT_ONCE).collect().await
}

/// Splits a batch that a node refused, so that tenures that cannot be renewed do not cost the others. Tries some by
/// themselves, at random. If the node refuses all of these, the rest counts as failed and gets no requests.
async fn renew_apart(quorum: &Arc<Quorum>, node: usize, batch: &[Renewal]) -> bool {
    let mut batch = batch.to_vec();
    fastrand::shuffle(&mut batch);
    let (some, rest) = batch.split_at(TRIED_APART.min(batch.len()));
    let answered = renew_each(quorum, node, some).await;
    if !answered.contains(&true) {
        fail(node, rest);
        return false;
    }
    let mut renewed = !answered.contains(&false);
    let (half, other) = rest.split_at(rest.len() / 2);
    for half in [half, other] {
        renewed &= half.is_empty() || renew_batch(quorum, node, half).await;
    }
    renewed
}

fn fail(node: usize, batch: &[Renewal]) {
    for renewal in batch {
        renewal.tenure.renewal_failed(node);
    }
}

/// Repairs one node. The number of requests at once is limited, since a node that lost its keys lacks all tenures.
pub(super) async fn repair(node: usize, batch: &[Renewal]) {
    let repairs = batch.iter().map(|repair| repair.tenure.clone().repair(node, repair.ttl, repair.sent));
    let repairs: Vec<_> = repairs.collect();
    stream::iter(repairs).buffer_unordered(REPAIRS_AT_ONCE).for_each(|()| async {}).await;
}

/// The time-out of a batch, from the longest time left. A reply before the deadline counts, however late; one after it
/// is useless.
fn renewal_limit(settings: &Settings, batch: &[Renewal]) -> Duration {
    let left = batch.iter().map(|renewal| renewal.tenure.remaining()).max().unwrap_or_default();
    settings.reply_within(left)
}
