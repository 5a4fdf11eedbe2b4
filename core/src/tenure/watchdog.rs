//! The watchdog: renews tenures, and ends them at their deadlines where it could not. One task of each client checks
//! all tenures at least once a second: a suspended machine, or a wall clock set forward, moves deadlines without a
//! timer noticing. Renewals are batched for each node, so that a slow node delays no other. The same task takes over
//! supervised calls that are overdue (`supervisor.rs`).

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::FutureExt;
use slab::Slab;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    Plan, Tenure,
    batches::{Renewal, renew, repair},
    supervisor::{Supervised, Supervisor},
};
use crate::{
    clock,
    process::runtime,
    quorum::Quorum,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

const TICK: Duration = Duration::from_secs(1);
/// How long the task sleeps while there is no tenure.
const IDLE: Duration = Duration::from_secs(3600);
/// How long the task keeps ticking after the last tenure was added, so that short tenures do not wake it each time.
const LINGER: Duration = Duration::from_secs(10);
/// The least pause between two passes, for each tenure: many tenures make passes rarer instead of using more of a core.
const SPACING_PER_TENURE: Duration = Duration::from_micros(4);

/// The tenures of one client that the watchdog checks, and its tasks.
pub(crate) struct Watchdog {
    list: Arc<List>,
    /// Dropped with the client: ends the tasks.
    _tasks: JoinSet<()>,
}

struct List {
    tenures: Mutex<Slab<Arc<Tenure>>>,
    supervisor: Arc<Supervisor>,
    /// Notified when a pass is due before `planned`.
    wake: Notify,
    /// When the next pass starts.
    planned: Mutex<Instant>,
    /// Whether a tenure or a supervised call was added since the last pass.
    added: AtomicBool,
    /// Nodes that broke or came back since the last pass.
    changed: Mutex<Vec<usize>>,
}

impl Watchdog {
    pub(crate) fn start(quorum: &Arc<Quorum>) -> Self {
        let list = Arc::new(List {
            tenures: Mutex::new(Slab::new()),
            supervisor: Arc::default(),
            wake: Notify::new(),
            planned: Mutex::new(Instant::now()),
            added: AtomicBool::new(false),
            changed: Mutex::new(Vec::new()),
        });
        let mut tasks = JoinSet::new();
        // Interleavings are tested without its tasks: they would run outside of the scheduler.
        if !cfg!(all(test, feature = "shuttle")) {
            for (index, node) in quorum.nodes.iter().enumerate() {
                let watching = watch_node(Arc::downgrade(&list), index, node.changes());
                tasks.spawn_on(watching.boxed(), &runtime::background());
            }
            tasks.spawn_on(run_for_ever(list.clone(), quorum.clone()).boxed(), &runtime::background());
        }
        Self { list, _tasks: tasks }
    }

    /// Adds a tenure, to check it until it ends.
    pub(crate) fn add(&self, tenure: &Arc<Tenure>) {
        if mutant!(RenewalByLock) && self.list.tenures.lock().iter().any(|(_, known)| known.same_lock(tenure)) {
            return;
        }
        let index = self.list.tenures.lock().insert(tenure.clone());
        self.list.added.store(true, Relaxed);
        tenure.set_watchdog_index(Some(index));
        self.reconsider(tenure);
    }

    /// Starts a pass now if the tenure needs a check before the next one.
    pub(crate) fn reconsider(&self, tenure: &Tenure) {
        self.list.reconsider(tenure);
    }

    /// Supervises a call whose last reply is due after `last_reply`. `take_over` takes it over if it does not end soon
    /// after.
    pub(crate) fn supervise(&self, last_reply: Duration, take_over: impl FnOnce() + Send + 'static) -> Supervised {
        let supervised = self.list.supervisor.supervise(last_reply, take_over);
        self.list.added.store(true, Relaxed);
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

    /// Starts a pass now if the next one is planned after `time`.
    fn check_by(&self, time: Instant) {
        if time < *self.planned.lock() {
            self.wake.notify_one();
        }
    }

    /// Starts a pass now if replies planned a check before the next one.
    fn reconsider_all(&self, tenures: &[Arc<Tenure>]) {
        for tenure in tenures {
            self.reconsider(tenure);
        }
    }

    fn forget(&self, index: usize, tenure: &Tenure) {
        let mut tenures = self.tenures.lock();
        // The release and the task may both remove it. Its index may belong to another tenure by then.
        if tenures.get(index).is_some_and(|known| std::ptr::eq(&raw const **known, tenure)) {
            tenures.remove(index);
        }
    }
}

/// Runs the watchdog for ever, even after a panic: without it the client would lose every lock, one after another.
async fn run_for_ever(list: Arc<List>, quorum: Arc<Quorum>) {
    loop {
        // A panic leaves one pass unfinished. The next pass checks everything again.
        let _ = AssertUnwindSafe(run(list.clone(), quorum.clone())).catch_unwind().await;
        tracing::error!(target: "redlock", "the watchdog panicked, and goes on");
        sleep(TICK).await;
    }
}

async fn run(list: Arc<List>, quorum: Arc<Quorum>) {
    let mut last_added = Instant::now();
    loop {
        // A tenure that is added during this pass requests another one.
        *list.planned.lock() = Instant::now() + IDLE;
        if list.added.swap(false, Relaxed) {
            last_added = Instant::now();
        }
        let (tenures, pause) = pass(&list, &quorum, last_added);
        let spacing = SPACING_PER_TENURE * tenures as u32;
        let planned = Instant::now() + pause.max(spacing).max(Duration::from_millis(1));
        *list.planned.lock() = planned;
        tokio::select! {
            biased;
            () = list.wake.notified() => sleep(spacing).await,
            () = sleep_until(planned) => {}
        }
    }
}

/// Checks every tenure once, starts what is due, and takes over overdue calls. Returns the number of tenures and the
/// pause until the next pass.
fn pass(list: &Arc<List>, quorum: &Arc<Quorum>, last_added: Instant) -> (usize, Duration) {
    let changed = std::mem::take(&mut *list.changed.lock());
    let tenures: Vec<(usize, Arc<Tenure>)> =
        list.tenures.lock().iter().map(|(index, tenure)| (index, tenure.clone())).collect();
    let now = clock::now();
    let mut pause = if tenures.is_empty() && last_added.elapsed() > LINGER { IDLE } else { TICK };
    let mut renewals: Vec<Vec<Renewal>> = quorum.nodes.iter().map(|_| Vec::new()).collect();
    let mut repairs = renewals.clone();
    for (index, tenure) in &tenures {
        match tenure.plan(now, &changed) {
            Plan::Forget => list.forget(*index, tenure),
            Plan::Release => {
                list.forget(*index, tenure);
                tenure.release_in_background();
            }
            Plan::Wait(time) => pause = pause.min(time),
            Plan::Renew { nodes, repairs: missing, ttl, sent } => {
                for node in missing {
                    repairs[node].push(Renewal { tenure: tenure.clone(), ttl, sent });
                }
                for node in nodes {
                    renewals[node].push(Renewal { tenure: tenure.clone(), ttl, sent });
                }
                pause = pause.min(tenure.time_to_check());
            }
        }
    }
    if let Some(next) = list.supervisor.take_over_overdue() {
        pause = pause.min(next.duration_since(Instant::now()));
    }
    send_requests(list, quorum, renewals, repairs);
    (tenures.len(), pause)
}

/// Sends the renewals and repairs of each node, without waiting for their replies.
fn send_requests(list: &Arc<List>, quorum: &Arc<Quorum>, renewals: Vec<Vec<Renewal>>, repairs: Vec<Vec<Renewal>>) {
    let tenures_of = |batch: &[Renewal]| -> Vec<_> { batch.iter().map(|renewal| renewal.tenure.clone()).collect() };
    for (node, batch) in renewals.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
        let (list, quorum) = (list.clone(), quorum.clone());
        let owner = quorum.clone();
        owner.spawn(async move {
            let tenures = tenures_of(&batch);
            renew(&quorum, node, batch).await;
            list.reconsider_all(&tenures);
        });
    }
    for (node, batch) in repairs.into_iter().enumerate().filter(|(_, batch)| !batch.is_empty()) {
        let list = list.clone();
        quorum.spawn_pending(async move {
            repair(node, &batch).await;
            list.reconsider_all(&tenures_of(&batch));
        });
    }
}

/// Starts a pass whenever the node broke or came back.
async fn watch_node(list: Weak<List>, node: usize, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some(list) = list.upgrade() else { return };
        list.changed.lock().push(node);
        list.wake.notify_one();
    }
}
