//! A session: the state that all locks of a client share within one process. It has the nodes, the registry of tenures
//! and waiters, and the watchdog.

mod attaches;
mod averages;
mod client_inner;

use std::{
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};

pub(crate) use self::client_inner::ClientInner;
use self::{
    attaches::{AttachGuard, Attaches},
    averages::Averages,
};
use crate::{
    config::{NEVER, Settings, Ttl},
    error::{LockError, LostReason},
    event::EventSink,
    identity::{self, Identity},
    owner::{Fields, OwnerKey},
    process::{
        driver::Driver,
        exit::{self, EndsWithProcess},
        runtime,
    },
    protocol::{admission::Admission, names::Names, reply},
    quorum::Quorum,
    server::{
        BoxFuture, Node,
        memory::MemoryNode,
        redis::{ClusterNode, RedisNode},
    },
    sync::Mutex,
    tenure::{Fate, Tenure, watchdog::Watchdog},
    url::Transport,
    wait::registry::{Holding, Registry},
};

/// The time limit of `close()`, and of closing all clients at exit.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);
/// How many releases a closing client sends at once: fewer than a connection takes.
const RELEASES_AT_ONCE: usize = 512;
/// How many acquires at once search for the holder when their waits are over.
const SEARCHES_AT_ONCE: usize = 16;
/// The shortest adaptive ttl.
const ADAPTIVE_MIN: Duration = Duration::from_secs(2);

/// The state that all locks of a client share in this process.
pub(crate) struct Session {
    pub(crate) settings: Arc<Settings>,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) registry: Arc<Registry<Tenure>>,
    pub(crate) watchdog: Watchdog,
    pub(crate) fields: Fields,
    /// What other clients may know of this one. Its UUID is that of `fields`.
    pub(crate) identity: Arc<Identity>,
    pub(crate) events: EventSink,
    /// The average hold of locks with an adaptive ttl, as the nodes last reported it.
    averages: Mutex<Averages>,
    attaches: Arc<Attaches>,
    /// Admits searches for the holder of a lock after a time-out.
    pub(crate) searches: Arc<Semaphore>,
    closed: AtomicBool,
}

impl Session {
    pub(crate) fn new(settings: &Arc<Settings>, events: &EventSink) -> Result<Arc<Self>, LockError> {
        let fields = Fields::new();
        let identity = Arc::new(Identity::new(settings, fields.client()));
        let shown = settings.config.identify.then(|| identity.clone());
        let name: Option<Arc<str>> = shown.as_ref().map(|identity| identity.to_name().into());
        let nodes = settings
            .endpoints
            .iter()
            .map(|endpoint| -> Result<Arc<dyn Node>, LockError> {
                Ok(match &endpoint.transport {
                    Transport::Memory { name } => MemoryNode::open_as(shown.as_ref(), name, Some(events.clone())),
                    Transport::Cluster { .. } => {
                        Arc::new(ClusterNode::new(endpoint, settings, events.clone(), name.clone())?)
                    }
                    _ => Arc::new(RedisNode::new(endpoint, settings, events.clone(), name.clone())?),
                })
            })
            .collect::<Result<_, _>>()?;
        if let Some(identity) = &shown {
            identity::announce(identity);
        }
        let session = Self::assemble(settings, events, nodes, fields, identity);
        let known: Weak<Self> = Arc::downgrade(&session);
        exit::register(known);
        Ok(session)
    }

    pub(crate) fn with_nodes(settings: &Arc<Settings>, events: &EventSink, nodes: Vec<Arc<dyn Node>>) -> Arc<Self> {
        let fields = Fields::new();
        let identity = Arc::new(Identity::new(settings, fields.client()));
        Self::assemble(settings, events, nodes, fields, identity)
    }

    fn assemble(
        settings: &Arc<Settings>,
        events: &EventSink,
        nodes: Vec<Arc<dyn Node>>,
        fields: Fields,
        identity: Arc<Identity>,
    ) -> Arc<Self> {
        let quorum = Arc::new(Quorum::new(nodes, settings.clone()));
        Arc::new(Self {
            settings: settings.clone(),
            watchdog: Watchdog::start(&quorum),
            quorum,
            registry: Arc::default(),
            fields,
            identity,
            events: events.clone(),
            averages: Mutex::default(),
            attaches: Arc::default(),
            searches: Arc::new(Semaphore::new(SEARCHES_AT_ONCE)),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// The ttl to request, or `None` if only the nodes know it.
    pub(crate) fn known_ttl(&self, names: &Names, ttl: Ttl) -> Option<Duration> {
        match ttl {
            Ttl::Watchdog => Some(self.settings.config.watchdog),
            Ttl::Fixed(ttl) => Some(ttl),
            Ttl::Never => Some(NEVER),
            Ttl::Adaptive => self.averages.lock().get(&names.lock).map(|average| self.adaptive(average)),
        }
    }

    /// The ttl to request. An adaptive one may need a round trip.
    pub(crate) async fn ttl(&self, names: &Names, ttl: Ttl) -> Duration {
        match self.known_ttl(names, ttl) {
            Some(ttl) => ttl,
            None => self.adaptive(self.learn(names, None).await.unwrap_or_default()),
        }
    }

    fn adaptive(&self, average: Duration) -> Duration {
        let longest = self.settings.config.watchdog;
        if average.is_zero() { longest } else { (average * 4).clamp(ADAPTIVE_MIN.min(longest), longest) }
    }

    /// Adds a sample, if there is one, to the average hold of a lock on the nodes. Returns the average that the nodes
    /// report.
    pub(crate) async fn learn(&self, names: &Names, sample: Option<Duration>) -> Option<Duration> {
        let call = self.quorum.protocol.learn(names, sample);
        let replies = self.quorum.gather(&call, reply::average).await.ok()?;
        let mut averages: Vec<Duration> = replies.into_iter().map(|(_, average)| average).collect();
        averages.sort_unstable();
        let average = *averages.get(averages.len() / 2)?;
        self.averages.lock().insert(&names.lock, average);
        Some(average)
    }

    /// Adds a new tenure to the registry and to the watchdog.
    pub(crate) fn register(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        tenure.keep_session(self.clone());
        self.registry.insert(tenure.clone());
        self.watchdog.add(tenure);
    }

    /// Adds a new tenure to the registry and to the watchdog, unless its owner may have only one and already holds the
    /// lock in this process. True if the tenure was added.
    pub(crate) fn admit(self: &Arc<Self>, tenure: &Arc<Tenure>) -> bool {
        tenure.keep_session(self.clone());
        let admitted = self.registry.admit(tenure);
        if admitted {
            self.watchdog.add(tenure);
        } else {
            tenure.drop_session();
        }
        admitted
    }

    /// Notes that an attach is being undone. `done` closes when that is over.
    pub(crate) fn note_undo(&self, field: &str, done: mpsc::Receiver<()>) {
        self.attaches.note_undo(field, done);
    }

    /// Waits for the previous attach of the same detached tenure by this client, and for its undoing if it failed.
    /// Fails with `unavailable` after `reply_timeout`.
    pub(crate) async fn wait_for_previous_attach(&self, field: &str) -> Result<AttachGuard, LockError> {
        let limit = self.settings.config.reply_timeout;
        let guard = self.attaches.wait_for_previous(&self.quorum, field, limit).await;
        guard.ok_or_else(|| self.quorum.unavailable(self.quorum.unanswered_causes()))
    }

    /// Removes a tenure whose last lease has ended.
    pub(crate) fn forget(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        self.registry.remove(tenure);
        self.watchdog.remove(tenure);
        tenure.drop_session();
        if tenure.terms.adaptive {
            let (session, names, sample) =
                (self.clone(), tenure.terms.subject.names.clone(), tenure.terms.right.since.elapsed());
            self.quorum.spawn_pending(async move {
                // One sample more or less does not matter.
                session.learn(&names, Some(sample)).await;
            });
        }
    }

    /// Marks every held lease lost, then tries for up to a second to release them, except fixed leases of explicit
    /// owners. Those stay on the nodes until their ttl is over. Detached leases are not touched. A second call waits
    /// for the first one: an exiting process waits only for its own call.
    pub(crate) async fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            let _ = timeout(CLOSE_LIMIT, self.quorum.until_closed()).await;
            return;
        }
        let keeps_keys = |tenure: &Tenure| tenure.terms.fixed && matches!(tenure.terms.owner, OwnerKey::Explicit(_));
        let held = self.registry.all().into_iter().filter(|tenure| tenure.is_held());
        let (kept, ending): (Vec<_>, Vec<_>) = held.partition(|tenure| keeps_keys(tenure));
        for tenure in kept.iter().chain(&ending) {
            tenure.lose(LostReason::Closed);
        }
        self.registry.wake_all();
        let ended = |tenure: &Tenure| tenure.status.get().fate == Fate::Lost(LostReason::Closed);
        let releases =
            ending.into_iter().filter(|tenure| ended(tenure)).map(|tenure| tenure.release(Driver::Background));
        let releases = stream::iter(releases).buffer_unordered(RELEASES_AT_ONCE).for_each(|_| async {});
        // Acquires that were just given up clean up first. Whatever is not confirmed in time expires by its ttl.
        let all = async { tokio::join!(releases, self.quorum.idle()) };
        let _ = timeout(CLOSE_LIMIT, all).await;
        self.quorum.close();
    }
}

impl Holding for Tenure {
    fn key(&self) -> &str {
        self.terms.subject.names.local()
    }

    fn owner(&self) -> &OwnerKey {
        &self.terms.owner
    }

    fn admission(&self) -> Admission {
        self.primitive().admission()
    }

    fn is_live(&self) -> bool {
        Self::is_live(self)
    }

    fn is_remembered(&self) -> bool {
        Self::is_remembered(self)
    }
}

impl EndsWithProcess for Session {
    fn end(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move { self.close().await })
    }
}

/// Runs a call to its end in the background, whether or not its caller waits. Fails with `closed` if the background is
/// gone before that.
pub(crate) fn run_to_completion<T: Send + 'static>(
    call: impl Future<Output = Result<T, LockError>> + Send + 'static,
) -> impl Future<Output = Result<T, LockError>> + Send + 'static {
    let task = runtime::spawn_in_background(call);
    async move { task.await.unwrap_or(Err(LockError::Closed)) }
}
