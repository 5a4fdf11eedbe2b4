//! What all locks of a client share within one process: its nodes, its tenures and waiters, its watchdog.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::sync::Mutex;
use futures_util::{StreamExt, stream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tokio::time::timeout;

use crate::{
    config::{Settings, Transport, Ttl},
    error::{LockError, LostReason},
    event::EventSink,
    hold::{Fate, Hold},
    memory_node::MemoryNode,
    node::{Lane, Node},
    owner::{OwnerKey, Tenures},
    quorum::{Keys, Quorum},
    redis_node::RedisNode,
    runtime,
    script::Reply,
    table::Table,
    watchdog::Watchdog,
};

/// How long exit and `close()` may take.
const FAREWELL: Duration = Duration::from_secs(1);
/// Releases under way at once when a client closes; below what a connection takes.
const FAREWELL_WINDOW: usize = 512;
/// The shortest adaptive lease.
const ADAPTIVE_MIN: Duration = Duration::from_secs(2);

pub(crate) struct Home {
    pub(crate) settings: Arc<Settings>,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) table: Arc<Table>,
    pub(crate) watchdog: Watchdog,
    pub(crate) tenures: Tenures,
    pub(crate) events: EventSink,
    /// How long locks with adaptive leases are held on average, as last told by the nodes.
    averages: Mutex<HashMap<String, Duration>>,
    closed: AtomicBool,
}

impl Home {
    pub(crate) fn new(settings: &Arc<Settings>, events: &EventSink) -> Result<Arc<Self>, LockError> {
        let nodes = settings
            .endpoints
            .iter()
            .map(|endpoint| -> Result<Arc<dyn Node>, LockError> {
                Ok(match &endpoint.transport {
                    Transport::Memory { name } => MemoryNode::open(name, Some(events.clone())),
                    _ => Arc::new(RedisNode::new(endpoint, settings, events.clone())?),
                })
            })
            .collect::<Result<_, _>>()?;
        let home = Self::with_nodes(settings, events, nodes);
        let weak: std::sync::Weak<dyn std::any::Any + Send + Sync> = Arc::<Self>::downgrade(&home);
        runtime::register(weak);
        Ok(home)
    }

    pub(crate) fn with_nodes(settings: &Arc<Settings>, events: &EventSink, nodes: Vec<Arc<dyn Node>>) -> Arc<Self> {
        let quorum = Arc::new(Quorum::new(nodes, settings.clone()));
        Arc::new(Self {
            settings: settings.clone(),
            watchdog: Watchdog::start(&quorum),
            quorum,
            table: Arc::default(),
            tenures: Tenures::new(),
            events: events.clone(),
            averages: Mutex::new(HashMap::new()),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// The lease to ask for, when that needs no round trip.
    pub(crate) fn ttl_at_hand(&self, keys: &Keys, ttl: Ttl) -> Option<Duration> {
        match ttl {
            Ttl::Watchdog => Some(self.settings.config.watchdog),
            Ttl::Fixed(ttl) => Some(ttl),
            Ttl::Adaptive => self.averages.lock().get(&keys.lock).map(|average| self.adaptive(*average)),
        }
    }

    /// The lease to ask for.
    pub(crate) async fn ttl(&self, keys: &Keys, ttl: Ttl) -> Duration {
        match self.ttl_at_hand(keys, ttl) {
            Some(ttl) => ttl,
            None => self.adaptive(self.learn(keys, None).await.unwrap_or_default()),
        }
    }

    fn adaptive(&self, average: Duration) -> Duration {
        let longest = self.settings.config.watchdog;
        if average.is_zero() { longest } else { (average * 4).clamp(ADAPTIVE_MIN.min(longest), longest) }
    }

    /// Asks the nodes for the average hold of a lock, after adding a sample to it if there is one.
    pub(crate) async fn learn(&self, keys: &Keys, sample: Option<Duration>) -> Option<Duration> {
        let replies = self.quorum.gather(Lane::Background, &self.quorum.learn_call(keys, sample)).await.ok()?;
        let mut averages: Vec<i64> = replies.iter().filter_map(|(_, reply)| Reply::int(reply)).collect();
        averages.sort_unstable();
        let average = Duration::from_micros(u64::try_from(*averages.get(averages.len() / 2)?).ok()?);
        self.averages.lock().insert(keys.lock.clone(), average);
        Some(average)
    }

    /// Takes in a new tenure.
    pub(crate) fn settle(&self, hold: &Arc<Hold>) {
        self.table.insert(hold.clone());
        self.watchdog.add(hold);
    }

    /// Forgets a tenure whose last lease was released.
    pub(crate) fn forget(self: &Arc<Self>, hold: &Arc<Hold>) {
        self.table.remove(hold);
        self.watchdog.remove(hold);
        if hold.terms.adaptive {
            let (home, keys, sample) = (self.clone(), hold.terms.keys.clone(), hold.since.elapsed());
            runtime::background().spawn(async move { home.learn(&keys, Some(sample)).await });
        }
    }

    /// Marks every lease lost, then releases what may be released, within one second. Detached leases and fixed
    /// leases of explicit owners go on without their process.
    pub(crate) async fn close(&self) {
        if self.closed.swap(true, SeqCst) {
            return;
        }
        let survives = |hold: &Hold| hold.terms.fixed && matches!(hold.terms.owner, OwnerKey::Explicit(_));
        let (left, ending): (Vec<_>, Vec<_>) = self.table.held().into_iter().partition(|hold| survives(hold));
        for hold in left.iter().chain(&ending) {
            hold.lose(LostReason::Closed);
        }
        self.table.wake_all();
        let ended = |hold: &Hold| *hold.fate.borrow() == Fate::Lost(LostReason::Closed);
        let releases = ending.into_iter().filter(|hold| ended(hold)).map(|hold| hold.release(Lane::Background));
        let all = stream::iter(releases).buffer_unordered(FAREWELL_WINDOW).for_each(|_| async {});
        // What is not confirmed by then dies with its ttl.
        let _ = timeout(FAREWELL, all).await;
        for node in &self.quorum.nodes {
            node.close();
        }
    }
}

/// Closes every client of this process, all at once. Hosts call it when the process ends.
pub async fn close_all() {
    let homes = runtime::registered().into_iter().filter_map(|home| home.downcast::<Home>().ok());
    futures_util::future::join_all(homes.map(|home| async move { home.close().await })).await;
}
