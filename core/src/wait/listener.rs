//! What wakes the waiters of one lock from outside: the release messages of as many nodes as share one with every quorum,
//! for all waiters of this client. Messages can be lost; it tells when one may have been, and how often the lock went to
//! somebody else after one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::ordered_watch::OrderedWatch;
use crate::{process::runtime, protocol::names::Names, quorum::Quorum, server::Node};

/// How long fewer nodes than needed may be listened to before others are listened to, too.
const STAND_IN: Duration = Duration::from_millis(200);

/// How many release messages came, and interruptions in which one may have been missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    all: u64,
    /// Of the node that is asked first.
    first: u64,
}

/// Listens to the release messages of one lock.
pub(crate) struct Listener {
    /// Whether it also hears what is told to this client alone.
    queued: bool,
    reports: Arc<Reports>,
    /// How many nodes must be listened to for no release of a quorum to go unheard.
    enough: usize,
    /// How many races waiters of this client lost of late before they won one, in sixteenths.
    lost_races: AtomicU32,
    /// Dropped with the listener: ends the subscriptions.
    _tasks: JoinSet<()>,
}

impl Listener {
    /// `client`: as the queue of the lock knows it, if there is one.
    pub(crate) fn start(quorum: &Arc<Quorum>, names: &Names, client: Option<&str>) -> Arc<Self> {
        let mut enough = quorum.spare() + 1;
        let reports = Arc::<Reports>::default();
        let mut listened: Vec<NodeListener> = quorum
            .order_of(names)
            .enumerate()
            .map(|(place, node)| NodeListener {
                node: quorum.nodes[node].clone(),
                channel: names.channel(),
                is_first: place == 0,
                reports: reports.clone(),
            })
            .collect();
        if let Some(client) = client {
            let channel = format!("{}:{client}", names.wake());
            listened.insert(
                0,
                NodeListener { node: listened[0].node.clone(), channel, is_first: true, reports: reports.clone() },
            );
            enough += 1;
        }
        // Interleavings are tested without messages from servers: the tests wake waiters themselves.
        if cfg!(all(test, feature = "shuttle")) {
            listened.clear();
        }
        let others = listened.split_off(enough.min(listened.len()));
        let (background, mut tasks) = (runtime::background(), JoinSet::new());
        for node in listened {
            // A place in the queue is taken before there is a subscription.
            tasks.spawn_on(node.listen(client.is_some()), &background);
        }
        if !others.is_empty() {
            tasks.spawn_on(stand_in(others, reports.clone(), enough), &background);
        }
        Arc::new(Self { queued: client.is_some(), reports, enough, lost_races: AtomicU32::new(0), _tasks: tasks })
    }

    /// Notes that a waiter has the lock, after losing so many races for it.
    pub(crate) fn won(&self, missed: u32) {
        let so_far = self.lost_races.load(Relaxed);
        self.lost_races.store((so_far * 3 + missed.min(8) * 16) / 4, Relaxed);
    }

    /// Whether others than the holder and this client have wanted the lock of late.
    pub(crate) fn has_rivals(&self) -> bool {
        self.lost_races.load(Relaxed) > 5
    }

    /// What was heard, if nothing can be missed.
    pub(crate) fn heard(&self) -> Option<Heard> {
        (self.reports.acknowledged.get() >= self.enough).then(|| self.reports.heard.get())
    }

    /// Resolves once no message can be missed; never if subscriptions are refused for good: polling does the work.
    pub(crate) async fn ready(&self) {
        self.reports.acknowledged.until(|count| *count >= self.enough).await;
    }

    /// Resolves once more was heard than this.
    pub(crate) async fn news(&self, known: Heard) {
        self.reports.heard.until(|heard| heard.all != known.all).await;
    }

    /// Resolves once more was heard than this of the node that is asked first.
    pub(crate) async fn news_of_first(&self, known: Heard) {
        self.reports.heard.until(|heard| heard.first != known.first).await;
    }

    /// Whether it also hears what is told to this client alone.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued
    }

    /// How much was heard. A subscription that begins, or begins again, counts.
    pub(crate) fn count(&self) -> u64 {
        self.reports.heard.get().all
    }

    /// Resolves once more was heard than this.
    pub(crate) async fn more_than(&self, count: u64) {
        self.reports.heard.until(|heard| heard.all > count).await;
    }
}

/// What those report that listen for one lock, each to one node.
#[derive(Default)]
struct Reports {
    /// How many nodes acknowledged the subscription.
    acknowledged: OrderedWatch<usize>,
    heard: OrderedWatch<Heard>,
    /// Notified when a subscription broke.
    fewer: Notify,
}

/// Listens to these nodes once others do not suffice.
async fn stand_in(others: Vec<NodeListener>, reports: Arc<Reports>, enough: usize) {
    loop {
        sleep(STAND_IN).await;
        if reports.acknowledged.get() < enough {
            break;
        }
        reports.fewer.notified().await;
    }
    join_all(others.into_iter().map(|node| node.listen(true))).await;
}

/// Listens to one node.
struct NodeListener {
    node: Arc<dyn Node>,
    channel: String,
    /// Whether it is the node that is asked first.
    is_first: bool,
    reports: Arc<Reports>,
}

impl NodeListener {
    /// `late`: messages may have been missed before.
    async fn listen(self, late: bool) {
        let mut interrupted = late;
        loop {
            match self.node.subscribe(self.channel.clone()).await {
                Ok(mut subscription) => {
                    self.reports.acknowledged.change(|count| *count += 1);
                    if interrupted {
                        self.hear();
                    }
                    while subscription.messages.changed().await.is_ok() {
                        self.hear();
                    }
                    self.reports.acknowledged.change(|count| *count -= 1);
                    self.reports.fewer.notify_one();
                    interrupted = true;
                }
                // The node warned of it; polling does the work.
                Err(error) if error.is_permanent() => return,
                Err(_) => {
                    let mut changes = self.node.changes();
                    let _ = timeout(Duration::from_secs(1), changes.changed()).await;
                }
            }
            // A node that accepts and drops subscriptions must not be asked in a tight loop.
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn hear(&self) {
        self.reports.heard.change(|heard| {
            heard.all += 1;
            heard.first += u64::from(self.is_first);
        });
    }
}
