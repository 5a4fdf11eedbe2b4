//! Waiting for a lock that somebody else holds: woken by the release message, by the end of the lease that was seen,
//! and, since messages can be lost, by a jittered poll.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::{
    config::Wire,
    event::{Event, EventSink},
    quorum::Quorum,
    runtime,
};

/// Listens to the release messages of one lock on all nodes, for as long as somebody of this client waits for it.
pub(crate) struct Listener {
    /// How many nodes acknowledged the subscription.
    acknowledged: watch::Receiver<usize>,
    /// A lock was released, or listening was interrupted and something may have been missed.
    pub(crate) news: Arc<Notify>,
    /// Dropped with the listener: ends the subscriptions.
    _tasks: JoinSet<()>,
}

impl Listener {
    pub(crate) fn start(quorum: &Arc<Quorum>, channel: &str, events: &EventSink) -> Arc<Self> {
        let (count, acknowledged) = watch::channel(0_usize);
        let news = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        for node in 0..quorum.nodes.len() {
            let (quorum, channel, events) = (quorum.clone(), channel.to_owned(), events.clone());
            let (count, news) = (count.clone(), news.clone());
            tasks.spawn_on(listen(quorum, node, channel, count, news, events), runtime::background());
        }
        Arc::new(Self { acknowledged, news, _tasks: tasks })
    }

    /// Resolves once enough nodes are listened to that no release of a quorum goes unheard.
    pub(crate) async fn ready(&self, quorum: &Quorum) {
        let enough = quorum.spare() + 1;
        let mut acknowledged = self.acknowledged.clone();
        if acknowledged.wait_for(|count| *count >= enough).await.is_err() {
            // Every subscription was refused for good: polling does the work.
            std::future::pending().await
        }
    }
}

async fn listen(
    quorum: Arc<Quorum>,
    node: usize,
    channel: String,
    acknowledged: watch::Sender<usize>,
    news: Arc<Notify>,
    events: EventSink,
) {
    let target = &quorum.nodes[node];
    let mut interrupted = false;
    loop {
        match target.subscribe(channel.clone()).await {
            Ok(mut subscription) => {
                acknowledged.send_modify(|count| *count += 1);
                if interrupted {
                    // Messages may have been missed.
                    news.notify_one();
                }
                while subscription.messages.changed().await.is_ok() {
                    news.notify_one();
                }
                acknowledged.send_modify(|count| *count -= 1);
                interrupted = true;
            }
            Err(error) if error.is_permanent() => {
                let detail = format!("cannot subscribe to release messages, polls instead: {error}");
                events(&Event::NodeWarning { node: target.name().to_owned(), detail });
                return;
            }
            Err(_) => {
                let mut changes = target.changes();
                let _ = timeout(Duration::from_secs(1), changes.changed()).await;
            }
        }
        // A node that accepts and drops subscriptions must not be asked in a tight loop.
        sleep(Duration::from_millis(20)).await;
    }
}

/// How long to wait for news before trying all the same.
pub(crate) fn patience(wire: Wire, free_in: Option<Duration>) -> Duration {
    let poll = match wire {
        Wire::Redisson => Duration::from_millis(2000 + fastrand::u64(0..500)),
        // Peers that write strings announce no release.
        Wire::Token => Duration::from_millis(100 + fastrand::u64(0..100)),
    };
    // The key ends when its ttl ran out on the node; a little later nobody has to be asked twice.
    free_in.map_or(poll, |free_in| poll.min(free_in + Duration::from_millis(1 + fastrand::u64(0..5))))
}

/// How long to stay away after the votes were split for the `times`-th time in a row.
pub(crate) fn backoff(times: u32) -> Duration {
    Duration::from_micros(fastrand::u64(500..2000 << times.min(6)))
}
