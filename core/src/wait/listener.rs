//! Subscribes to the release messages of one lock, for all waiters of this client, on so many nodes that every quorum
//! includes one of them. Messages can be lost: the listener reports when one may have been missed. It also records how
//! many races the waiters lost after a message.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{process::runtime, protocol::names::Names, quorum::Quorum, server::Node, sync::OrderedWatch};

/// How long to wait for enough subscriptions before the other nodes get one, too.
const STAND_IN: Duration = Duration::from_millis(200);

/// The pause after a subscription that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a subscription that the node refuses for good. It has warned of that.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Counts release messages, and interruptions in which one may have been missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageCounts {
    all: u64,
    /// Those of the node to which contended acquires are sent first.
    first: u64,
}

/// Listens to the release messages of one lock.
pub(crate) struct Listener {
    /// Whether it also subscribes to the channel that wakes this client alone.
    queued: bool,
    reports: Arc<Reports>,
    /// The number of subscriptions that misses no release on a quorum.
    enough: usize,
    /// How many races waiters of this client lost before they won one: a moving average, in sixteenths.
    lost_races: AtomicU32,
    /// Dropped with the listener: ends the subscriptions.
    _tasks: JoinSet<()>,
}

impl Listener {
    /// `client`: this client's name in the lock's queue, if a server keeps one.
    pub(crate) fn start(quorum: &Arc<Quorum>, names: &Names, client: Option<&str>) -> Arc<Self> {
        let mut enough = quorum.spare() + 1;
        let reports = Arc::<Reports>::default();
        let mut listened: Vec<NodeListener> = quorum
            .order_of(names)
            .enumerate()
            .map(|(position, node)| NodeListener {
                node: quorum.nodes[node].clone(),
                channel: names.channel(),
                is_first: position == 0,
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
            // A waiter gets its place on the server before the subscription exists, and may miss a message.
            tasks.spawn_on(node.listen(client.is_some()).boxed(), &background);
        }
        if !others.is_empty() {
            tasks.spawn_on(stand_in(others, reports.clone(), enough).boxed(), &background);
        }
        Arc::new(Self { queued: client.is_some(), reports, enough, lost_races: AtomicU32::new(0), _tasks: tasks })
    }

    /// Records how many races for the lock a waiter had lost (`missed`) before it was granted the lock.
    pub(crate) fn note_lost_races(&self, missed: u32) {
        let so_far = self.lost_races.load(Relaxed);
        self.lost_races.store((so_far * 3 + missed.min(8) * 16) / 4, Relaxed);
    }

    /// Whether clients other than the holder's and this one have wanted the lock recently.
    pub(crate) fn has_rivals(&self) -> bool {
        self.lost_races.load(Relaxed) > 5
    }

    /// The counts; `None` if a message can be missed.
    pub(crate) fn counts(&self) -> Option<MessageCounts> {
        (self.reports.acknowledged.get() >= self.enough).then(|| self.reports.counts.get())
    }

    /// Resolves once no message can be missed; never if servers refuse subscriptions for good. Waiters then poll.
    pub(crate) async fn ready(&self) {
        self.reports.acknowledged.until(|count| *count >= self.enough).await;
    }

    /// Resolves once any count has changed since `known`.
    pub(crate) async fn news(&self, known: MessageCounts) {
        self.reports.counts.until(|counts| counts.all != known.all).await;
    }

    /// Resolves once the count of the node to which contended acquires are sent first has changed since `known`.
    pub(crate) async fn news_of_first(&self, known: MessageCounts) {
        self.reports.counts.until(|counts| counts.first != known.first).await;
    }

    /// Whether it also subscribes to the channel that wakes this client alone.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued
    }

    /// The number of all messages. A subscription that starts counts as one if a message may have been missed before.
    pub(crate) fn total(&self) -> u64 {
        self.reports.counts.get().all
    }

    /// Resolves once the total exceeds `total`.
    pub(crate) async fn more_than(&self, total: u64) {
        self.reports.counts.until(|counts| counts.all > total).await;
    }
}

/// The reports of the node listeners of one lock.
#[derive(Default)]
struct Reports {
    /// How many subscriptions are acknowledged now.
    acknowledged: OrderedWatch<usize>,
    counts: OrderedWatch<MessageCounts>,
    /// Notified when a subscription breaks.
    fewer: Notify,
}

/// Subscribes on these nodes, too, once the others do not suffice.
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

/// A subscription to one channel on one node, which is renewed whenever it breaks.
struct NodeListener {
    node: Arc<dyn Node>,
    channel: String,
    /// Whether contended acquires are sent to this node first.
    is_first: bool,
    reports: Arc<Reports>,
}

impl NodeListener {
    /// `late`: whether messages may have been missed before.
    async fn listen(self, late: bool) {
        let mut interrupted = late;
        loop {
            let mut changes = self.node.changes();
            match self.node.subscribe(self.channel.clone()).await {
                Ok(mut subscription) => {
                    self.reports.acknowledged.change(|count| *count += 1);
                    if interrupted {
                        self.count_message();
                    }
                    while subscription.messages.changed().await.is_ok() {
                        self.count_message();
                    }
                    self.reports.acknowledged.change(|count| *count -= 1);
                    self.reports.fewer.notify_one();
                    interrupted = true;
                }
                Err(error) => {
                    // Meanwhile waiters poll. A node that changes may be back, or have got the missing right.
                    let pause = if error.is_permanent() { REFUSED_PAUSE } else { PAUSE };
                    let _ = timeout(pause, changes.changed()).await;
                }
            }
            // A node that accepts and drops subscriptions must not cause a tight loop.
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn count_message(&self) {
        self.reports.counts.change(|counts| {
            counts.all += 1;
            counts.first += u64::from(self.is_first);
        });
    }
}
