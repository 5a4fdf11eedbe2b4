//! Keeps tenures alive, and tells their holders at the deadline when it could not. One task a client looks at all of
//! them at least once a second, since a suspended machine or a wall clock set forward moves deadlines that no timer
//! knows of; renewals are batched for each node, so that a slow node delays nobody else. The same task sees to calls that
//! their callers left (`attended.rs`).

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream};
use slab::Slab;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    clock::{self, Stamp},
    config::Settings,
    process::{driver::Driver, runtime},
    protocol::reply,
    quorum::Quorum,
    server::{
        Hint,
        NodeErrorKind::{Permanent, Refused, WrongType},
        SentOn,
    },
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    tenure::{
        Plan, Tenure,
        supervisor::{Supervised, Supervisor},
        upkeep::prolong,
    },
};

/// Tenures in one renewal request: enough to halve the server's work, few enough to delay other clients by 0.3 ms.
const BATCH: usize = 100;
/// Requests under way for different slots of a cluster.
const PARTS_AT_ONCE: usize = 64;
/// Repairs under way on one node; far below what a connection takes.
const REPAIRS_AT_ONCE: usize = 64;
const TICK: Duration = Duration::from_secs(1);
/// How long the task sleeps while there is nothing to look after.
const IDLE: Duration = Duration::from_secs(3600);
/// How long it goes on ticking after the last tenure came in: short ones that come and go must not wake it each time.
const RESTLESS: Duration = Duration::from_secs(10);
/// Looking takes time; with very many tenures it is done less often instead of taking more of a core.
const SPACING_PER_TENURE: Duration = Duration::from_micros(4);

/// The tenures the watchdog looks after, and its task.
pub(crate) struct Watchdog {
    list: Arc<List>,
    /// Dropped with the client: ends the tasks.
    _tasks: JoinSet<()>,
}

struct List {
    tenures: Mutex<Slab<Arc<Tenure>>>,
    calls: Arc<Supervisor>,
    /// Something must be looked at before `planned`.
    hurry: Notify,
    planned: Mutex<Instant>,
    /// A tenure came in since the last look.
    busy: AtomicBool,
    /// Nodes that broke or came back since the last look.
    returned: Mutex<Vec<usize>>,
}

impl Watchdog {
    pub(crate) fn start(quorum: &Arc<Quorum>) -> Self {
        let list = Arc::new(List {
            tenures: Mutex::new(Slab::new()),
            calls: Arc::default(),
            hurry: Notify::new(),
            planned: Mutex::new(Instant::now()),
            busy: AtomicBool::new(false),
            returned: Mutex::new(Vec::new()),
        });
        let mut tasks = JoinSet::new();
        // Interleavings are tested without its tasks: they would run outside of the scheduler.
        if !cfg!(all(test, feature = "shuttle")) {
            for (index, node) in quorum.nodes.iter().enumerate() {
                tasks.spawn_on(notice(Arc::downgrade(&list), index, node.changes()), &runtime::background());
            }
            tasks.spawn_on(keep_up(list.clone(), quorum.clone()), &runtime::background());
        }
        Self { list, _tasks: tasks }
    }

    /// Looks after a tenure until it ends.
    pub(crate) fn add(&self, tenure: &Arc<Tenure>) {
        if mutant!(RenewalByLock) && self.list.tenures.lock().iter().any(|(_, known)| known.same_lock(tenure)) {
            return;
        }
        let index = self.list.tenures.lock().insert(tenure.clone());
        self.list.busy.store(true, Relaxed);
        tenure.set_watchdog_index(Some(index));
        self.reconsider(tenure);
    }

    /// A tenure may need a look earlier than it did.
    pub(crate) fn reconsider(&self, tenure: &Tenure) {
        self.list.reconsider(tenure);
    }

    /// Does something about a call that its caller polls, if it does not end soon after its last reply is due.
    pub(crate) fn supervise(&self, last_reply: Duration, overdue: impl FnOnce() + Send + 'static) -> Supervised {
        let supervised = self.list.calls.supervise(last_reply, overdue);
        self.list.busy.store(true, Relaxed);
        self.list.check_by(supervised.due());
        supervised
    }

    /// Forgets a tenure that ended.
    pub(crate) fn remove(&self, tenure: &Tenure) {
        if let Some(index) = tenure.watchdog_index() {
            tenure.set_watchdog_index(None);
            self.list.forget(index, tenure);
        }
    }
}

impl List {
    fn reconsider(&self, tenure: &Tenure) {
        if mutant!(RenewalByLock) && !tenure.is_held() {
            return;
        }
        self.check_by(Instant::now() + tenure.time_to_check());
    }

    /// Something must be looked at by then.
    fn check_by(&self, time: Instant) {
        if time < *self.planned.lock() {
            self.hurry.notify_one();
        }
    }

    /// What the answers planned may be due before the next look.
    fn reconsider_all(&self, tenures: &[Arc<Tenure>]) {
        for tenure in tenures {
            self.reconsider(tenure);
        }
    }

    fn forget(&self, index: usize, tenure: &Tenure) {
        let mut tenures = self.tenures.lock();
        // Both the release and the task may forget it, and the index may have a new tenant.
        if tenures.get(index).is_some_and(|known| std::ptr::eq(&raw const **known, tenure)) {
            tenures.remove(index);
        }
    }
}

/// Runs for ever, whatever happens in there: without it every lock of the client would be lost, one after another.
async fn keep_up(list: Arc<List>, quorum: Arc<Quorum>) {
    loop {
        // What a panic leaves half done is one pass; the next looks at everything again.
        let _ = AssertUnwindSafe(run(list.clone(), quorum.clone())).catch_unwind().await;
        tracing::error!(target: "redlock", "the watchdog panicked, and goes on");
        sleep(TICK).await;
    }
}

async fn run(list: Arc<List>, quorum: Arc<Quorum>) {
    let mut last_busy = Instant::now();
    loop {
        // Until the end of this pass every tenure that comes in asks for another.
        *list.planned.lock() = Instant::now() + IDLE;
        let returned = std::mem::take(&mut *list.returned.lock());
        let tenures: Vec<(usize, Arc<Tenure>)> =
            list.tenures.lock().iter().map(|(index, tenure)| (index, tenure.clone())).collect();
        let now = clock::now();
        if list.busy.swap(false, Relaxed) {
            last_busy = Instant::now();
        }
        let mut wake = if tenures.is_empty() && last_busy.elapsed() > RESTLESS { IDLE } else { TICK };
        let mut batches: Vec<Vec<Renewal>> = quorum.nodes.iter().map(|_| Vec::new()).collect();
        let mut repairs: Vec<Vec<Renewal>> = quorum.nodes.iter().map(|_| Vec::new()).collect();
        for (index, tenure) in &tenures {
            match tenure.plan(now, &returned) {
                Plan::Forget => list.forget(*index, tenure),
                Plan::Release => {
                    list.forget(*index, tenure);
                    tenure.release_in_background();
                }
                Plan::Wait(time) => wake = wake.min(time),
                Plan::Renew { nodes, repairs: missing, ttl, sent } => {
                    for node in missing {
                        repairs[node].push(Renewal { tenure: tenure.clone(), ttl, sent });
                    }
                    for node in nodes {
                        batches[node].push(Renewal { tenure: tenure.clone(), ttl, sent });
                    }
                    wake = wake.min(tenure.time_to_check());
                }
            }
        }
        if let Some(next) = list.calls.take_over_overdue() {
            wake = wake.min(next.duration_since(Instant::now()));
        }
        for (node, batch) in batches.into_iter().enumerate() {
            if !batch.is_empty() {
                let (list, quorum) = (list.clone(), quorum.clone());
                let owner = quorum.clone();
                owner.spawn(async move {
                    let tenures: Vec<_> = batch.iter().map(|renewal| renewal.tenure.clone()).collect();
                    renew(&quorum, node, batch).await;
                    list.reconsider_all(&tenures);
                });
            }
        }
        for (node, batch) in repairs.into_iter().enumerate() {
            if !batch.is_empty() {
                let list = list.clone();
                quorum.spawn_pending(async move {
                    let tenures: Vec<_> = batch.iter().map(|renewal| renewal.tenure.clone()).collect();
                    repair(node, &batch).await;
                    list.reconsider_all(&tenures);
                });
            }
        }
        let spacing = SPACING_PER_TENURE * tenures.len() as u32;
        let planned = Instant::now() + wake.max(spacing).max(Duration::from_millis(1));
        drop(tenures);
        *list.planned.lock() = planned;
        tokio::select! {
            biased;
            () = list.hurry.notified() => sleep(spacing).await,
            () = sleep_until(planned) => {}
        }
    }
}

/// Has everything looked at again whenever a node broke or came back.
async fn notice(list: Weak<List>, node: usize, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some(list) = list.upgrade() else { return };
        list.returned.lock().push(node);
        list.hurry.notify_one();
    }
}

struct Renewal {
    tenure: Arc<Tenure>,
    ttl: Duration,
    sent: Stamp,
}

/// Renews on one node, a batch at a time; on a cluster, where a request is for one slot, several at a time.
async fn renew(quorum: &Arc<Quorum>, node: usize, mut batch: Vec<Renewal>) {
    let parts = quorum.nodes[node].traits().parts;
    // A request is about one family of locks, too.
    let part =
        |renewal: &Renewal| (parts.of(&renewal.tenure.terms.names.lock), renewal.tenure.terms.primitive.family());
    batch.sort_by_cached_key(part);
    let parts = batch.chunk_by(|one, next| part(one) == part(next));
    let batches: Vec<&[Renewal]> = parts.flat_map(|part| part.chunks(BATCH)).collect();
    let at_once = if batches.len() > batch.len().div_ceil(BATCH) { PARTS_AT_ONCE } else { 1 };
    stream::iter(batches)
        .for_each_concurrent(at_once, |batch| async move {
            renew_batch(quorum, node, batch).await;
        })
        .await;
}

/// Says whether the node renewed what there is to be renewed.
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
            let each: Vec<_> = batch.chunks(1).map(|one| Box::pin(renew_batch(quorum, node, one))).collect();
            let renewed: Vec<bool> = stream::iter(each).buffer_unordered(PARTS_AT_ONCE).collect().await;
            return renewed.into_iter().all(|renewed| renewed);
        }
        if matches!(error.kind, Refused | Permanent | WrongType) {
            return Box::pin(renew_apart(quorum, node, batch)).await;
        }
    }
    let inside = batch.iter().any(|renewal| renewal.tenure.terms.primitive.is_read_write());
    let Some(found) = answer.ok().and_then(|reply| reply::renewals(&reply, batch.len(), inside)) else {
        fail(node, batch);
        return false;
    };
    let mut due = Vec::new();
    for (renewal, found) in batch.iter().zip(found) {
        if let Some(counter_ttl) = renewal.tenure.renewed(node, found, renewal.ttl, renewal.sent) {
            due.push((renewal.tenure.clone(), counter_ttl));
        }
    }
    if !due.is_empty() {
        quorum.spawn(prolong(quorum.clone(), node, due));
    }
    true
}

/// Renews what a node refused to renew together: one that cannot be renewed must not take the others with it. Any of
/// them is asked for first, since a node that refuses everything is not to be asked for each.
async fn renew_apart(quorum: &Arc<Quorum>, node: usize, batch: &[Renewal]) -> bool {
    let (before, rest) = batch.split_at(fastrand::usize(..batch.len()));
    let (any, after) = rest.split_at(1);
    if !renew_batch(quorum, node, any).await {
        fail(node, before);
        fail(node, after);
        return false;
    }
    let mut renewed = true;
    for part in [before, after] {
        renewed &= part.is_empty() || renew_batch(quorum, node, part).await;
    }
    renewed
}

fn fail(node: usize, batch: &[Renewal]) {
    for renewal in batch {
        renewal.tenure.renewal_failed(node);
    }
}

/// Has a node take in again what it lacks: a few at a time, since a node that lost its keys lacks everything.
async fn repair(node: usize, batch: &[Renewal]) {
    let repairs = batch.iter().map(|repair| repair.tenure.clone().repair(node, repair.ttl, repair.sent));
    let repairs: Vec<_> = repairs.collect();
    stream::iter(repairs).buffer_unordered(REPAIRS_AT_ONCE).for_each(|()| async {}).await;
}

/// An answer that comes after the deadline is of no use; one that comes before it counts, however late.
fn renewal_limit(settings: &Settings, batch: &[Renewal]) -> Duration {
    let left = batch.iter().map(|renewal| renewal.tenure.remaining()).max().unwrap_or_default();
    settings.reply_within(left)
}
