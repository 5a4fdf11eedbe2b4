//! What wakes the waiters of one lock from outside: the release messages of all nodes, for all waiters of this client.
//! Messages can be lost; it tells when one may have been, and how often the lock went to somebody else after one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{process::runtime, quorum::Quorum};

/// Listens to the release messages of one lock on all nodes.
pub(crate) struct Listener {
    /// How many nodes acknowledged the subscription.
    acknowledged: watch::Receiver<usize>,
    /// How many nodes must be listened to for no release of a quorum to go unheard.
    enough: usize,
    /// Counts messages, and interruptions in which one may have been missed.
    news: watch::Receiver<u64>,
    /// How many races waiters of this client lost of late before they won one, in sixteenths.
    lost_races: AtomicU32,
    /// Dropped with the listener: ends the subscriptions.
    _tasks: JoinSet<()>,
}

impl Listener {
    pub(crate) fn start(quorum: &Arc<Quorum>, channel: &str) -> Arc<Self> {
        let (count, acknowledged) = watch::channel(0);
        let (heard, news) = watch::channel(0);
        let mut tasks = JoinSet::new();
        // Interleavings are tested without messages from servers: the tests wake waiters themselves.
        let listened = if cfg!(all(test, feature = "shuttle")) { 0 } else { quorum.nodes.len() };
        for node in 0..listened {
            let (quorum, channel) = (quorum.clone(), channel.to_owned());
            let (count, heard) = (count.clone(), heard.clone());
            tasks.spawn_on(listen(quorum, node, channel, count, heard), &runtime::background());
        }
        Arc::new(Self { acknowledged, enough: quorum.spare() + 1, news, lost_races: AtomicU32::new(0), _tasks: tasks })
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

    /// How many messages came, if none can be missed.
    pub(crate) fn heard(&self) -> Option<u64> {
        (*self.acknowledged.borrow() >= self.enough).then(|| *self.news.borrow())
    }

    /// Resolves once no message can be missed.
    pub(crate) async fn ready(&self) {
        let mut acknowledged = self.acknowledged.clone();
        if acknowledged.wait_for(|count| *count >= self.enough).await.is_err() {
            // Every subscription was refused for good: polling does the work.
            std::future::pending::<()>().await;
        }
    }

    /// Resolves once so many messages came after the first `known`.
    pub(crate) async fn news(&self, known: u64, count: u64) {
        let mut news = self.news.clone();
        if news.wait_for(|heard| heard.wrapping_sub(known) >= count).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn listen(
    quorum: Arc<Quorum>,
    node: usize,
    channel: String,
    acknowledged: watch::Sender<usize>,
    heard: watch::Sender<u64>,
) {
    let target = &quorum.nodes[node];
    let mut interrupted = false;
    loop {
        match target.subscribe(channel.clone()).await {
            Ok(mut subscription) => {
                acknowledged.send_modify(|count| *count += 1);
                if interrupted {
                    // Messages may have been missed.
                    heard.send_modify(|count| *count += 1);
                }
                while subscription.messages.changed().await.is_ok() {
                    heard.send_modify(|count| *count += 1);
                }
                acknowledged.send_modify(|count| *count -= 1);
                interrupted = true;
            }
            // The node warned of it; polling does the work.
            Err(error) if error.is_permanent() => return,
            Err(_) => {
                let mut changes = target.changes();
                let _ = timeout(Duration::from_secs(1), changes.changed()).await;
            }
        }
        // A node that accepts and drops subscriptions must not be asked in a tight loop.
        sleep(Duration::from_millis(20)).await;
    }
}
