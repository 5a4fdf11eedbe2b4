//! A session: what all locks of a client share within one process. It has the nodes, the registry of tenures and
//! waiters, and the watchdog.

use std::{
    collections::HashMap,
    future::Future,
    ptr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicPtr, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, stream};
use tokio::{sync::mpsc, time::timeout};

use crate::{
    config::{NEVER, Settings, Ttl},
    error::{LockError, LostReason},
    event::{EventSink, contained},
    owner::{Fields, OwnerKey},
    process::{
        driver::Driver,
        exit::{self, EndsWithProcess},
        fork::Tied,
        runtime,
    },
    protocol::{names::Names, reply},
    quorum::Quorum,
    server::{
        BoxFuture, Node,
        memory::MemoryNode,
        redis::{ClusterNode, RedisNode},
    },
    sync::Mutex,
    tenure::{Fate, Tenure, watchdog::Watchdog},
    url::Transport,
    wait::registry::{Held, Registry},
};

/// The time limit of `close()`, and of closing all clients at exit.
const FAREWELL: Duration = Duration::from_secs(1);
/// How many releases a closing client sends at once: fewer than a connection takes.
const FAREWELL_WINDOW: usize = 512;
/// The shortest adaptive ttl.
const ADAPTIVE_MIN: Duration = Duration::from_secs(2);

/// A client: its configuration, and its session in this process.
pub(crate) struct ClientInner {
    pub(crate) settings: Arc<Settings>,
    events: EventSink,
    /// This process's session, made at the first use. A child of a fork replaces its parent's and leaks it.
    session: AtomicPtr<Tied<Arc<Session>>>,
    closed: AtomicBool,
}

impl ClientInner {
    pub(crate) fn new(settings: Settings, events: EventSink) -> Self {
        Self {
            settings: Arc::new(settings),
            events: contained(events),
            session: AtomicPtr::new(ptr::null_mut()),
            closed: AtomicBool::new(false),
        }
    }

    /// Uses these nodes instead of those in the configuration. Only before the first use.
    pub(crate) fn install(&self, nodes: Vec<Arc<dyn Node>>) {
        let session = Session::with_nodes(&self.settings, &self.events, nodes);
        self.session.store(Box::into_raw(Box::new(Tied::new(session))), Ordering::Release);
    }

    /// Makes later calls fail with `closed`. Returns the session, for the caller to close.
    pub(crate) fn close(&self) -> Result<Arc<Session>, LockError> {
        let session = self.session();
        self.closed.store(true, Ordering::Release);
        session
    }

    pub(crate) fn session(&self) -> Result<Arc<Session>, LockError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(LockError::Closed);
        }
        let mut current = self.session.load(Ordering::Acquire);
        loop {
            // SAFETY: the pointer is null or from `Box::into_raw` below; what is replaced is leaked, and the last is
            // freed only in `drop`, when nobody refers to `self` any more.
            #[allow(unsafe_code)]
            if let Some(session) = unsafe { current.as_ref() }.and_then(Tied::get) {
                return Ok(session.clone());
            }
            let fresh = Session::new(&self.settings, &self.events)?;
            let fresh = Box::into_raw(Box::new(Tied::new(fresh)));
            match self.session.compare_exchange(current, fresh, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => current = fresh,
                Err(other) => {
                    // SAFETY: `fresh` was not published.
                    #[allow(unsafe_code)]
                    drop(unsafe { Box::from_raw(fresh) });
                    current = other;
                }
            }
        }
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        let session = *self.session.get_mut();
        if !session.is_null() {
            // SAFETY: from `Box::into_raw`, and nobody else refers to it. `Tied` does not drop a parent's session.
            #[allow(unsafe_code)]
            drop(unsafe { Box::from_raw(session) });
        }
    }
}

pub(crate) struct Session {
    pub(crate) settings: Arc<Settings>,
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) registry: Arc<Registry<Tenure>>,
    pub(crate) watchdog: Watchdog,
    pub(crate) fields: Fields,
    pub(crate) events: EventSink,
    /// The average hold of locks with an adaptive ttl, as the nodes last reported it.
    averages: Mutex<Averages>,
    /// The attaches under way, by the field of the detached tenure. Each channel closes when its attach ends.
    attaching: Mutex<HashMap<String, mpsc::Receiver<()>>>,
    /// The renamings back after an attach that failed or was given up, by the field of the detached tenure. Each
    /// channel closes when its renaming is done or given up.
    given_back: Mutex<HashMap<String, mpsc::Receiver<()>>>,
    closed: AtomicBool,
}

impl Session {
    pub(crate) fn new(settings: &Arc<Settings>, events: &EventSink) -> Result<Arc<Self>, LockError> {
        let nodes = settings
            .endpoints
            .iter()
            .map(|endpoint| -> Result<Arc<dyn Node>, LockError> {
                Ok(match &endpoint.transport {
                    Transport::Memory { name } => MemoryNode::open(name, Some(events.clone())),
                    Transport::Cluster { .. } => Arc::new(ClusterNode::new(endpoint, settings, events.clone())?),
                    _ => Arc::new(RedisNode::new(endpoint, settings, events.clone())?),
                })
            })
            .collect::<Result<_, _>>()?;
        let session = Self::with_nodes(settings, events, nodes);
        let known: Weak<Self> = Arc::downgrade(&session);
        exit::register(known);
        Ok(session)
    }

    pub(crate) fn with_nodes(settings: &Arc<Settings>, events: &EventSink, nodes: Vec<Arc<dyn Node>>) -> Arc<Self> {
        let quorum = Arc::new(Quorum::new(nodes, settings.clone()));
        Arc::new(Self {
            settings: settings.clone(),
            watchdog: Watchdog::start(&quorum),
            quorum,
            registry: Arc::default(),
            fields: Fields::new(),
            events: events.clone(),
            averages: Mutex::default(),
            attaching: Mutex::default(),
            given_back: Mutex::default(),
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
        let replies = self.quorum.gather(Driver::Background, &call, reply::average).await.ok()?;
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

    /// Does the same unless the owner already holds the lock in this process. True if the tenure was added.
    pub(crate) fn register_first(self: &Arc<Self>, tenure: &Arc<Tenure>) -> bool {
        tenure.keep_session(self.clone());
        let first = self.registry.insert_first(tenure);
        if first {
            self.watchdog.add(tenure);
        } else {
            tenure.drop_session();
        }
        first
    }

    /// Notes that a detached tenure is being renamed back. `done` closes when that is over.
    pub(crate) fn giving_back(&self, field: &str, done: mpsc::Receiver<()>) {
        let mut given_back = self.given_back.lock();
        given_back.retain(|_, done| !done.is_closed());
        given_back.insert(field.to_owned(), done);
    }

    /// Waits for the attaches of the same tenure by this client, and for the renaming back if one failed. Later
    /// attaches wait until the returned sender is dropped. Fails with `unavailable` after `reply_timeout`.
    pub(crate) async fn given_back(self: &Arc<Self>, field: &str) -> Result<mpsc::Sender<()>, LockError> {
        let (turn, done) = mpsc::channel(1);
        let before = {
            let mut attaching = self.attaching.lock();
            attaching.retain(|_, done| !done.is_closed());
            attaching.insert(field.to_owned(), done)
        };
        let (session, field) = (Arc::downgrade(self), field.to_owned());
        let mut free = Box::pin(async move {
            if let Some(mut before) = before {
                before.recv().await;
            }
            let done = session.upgrade().and_then(|session| session.given_back.lock().remove(&field));
            if let Some(mut done) = done {
                done.recv().await;
            }
        });
        if timeout(self.settings.config.reply_timeout, &mut free).await.is_ok() {
            return Ok(turn);
        }
        self.quorum.spawn(async move {
            free.await;
            drop(turn);
        });
        Err(self.quorum.unavailable(self.quorum.unanswered_causes()))
    }

    /// Removes a tenure whose last lease has ended.
    pub(crate) fn forget(self: &Arc<Self>, tenure: &Arc<Tenure>) {
        self.registry.remove(tenure);
        self.watchdog.remove(tenure);
        tenure.drop_session();
        if tenure.terms.adaptive {
            let (session, names, sample) = (self.clone(), tenure.terms.names.clone(), tenure.since.elapsed());
            self.quorum.spawn_pending(async move {
                // One sample more or less does not matter.
                session.learn(&names, Some(sample)).await;
            });
        }
    }

    /// Marks every lease lost, then releases the locks, within one second. Detached leases, and fixed leases of
    /// explicit owners, stay on the nodes until their ttl is over.
    pub(crate) async fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        let survives = |tenure: &Tenure| tenure.terms.fixed && matches!(tenure.terms.owner, OwnerKey::Explicit(_));
        let held = self.registry.all().into_iter().filter(|tenure| tenure.is_held());
        let (left, ending): (Vec<_>, Vec<_>) = held.partition(|tenure| survives(tenure));
        for tenure in left.iter().chain(&ending) {
            tenure.lose(LostReason::Closed);
        }
        self.registry.wake_all();
        let ended = |tenure: &Tenure| tenure.status.borrow().fate == Fate::Lost(LostReason::Closed);
        let releases =
            ending.into_iter().filter(|tenure| ended(tenure)).map(|tenure| tenure.release(Driver::Background));
        let releases = stream::iter(releases).buffer_unordered(FAREWELL_WINDOW).for_each(|_| async {});
        // Acquires that were just given up clean up first. Whatever is not confirmed in time expires by its ttl.
        let all = async { tokio::join!(releases, self.quorum.idle()) };
        let _ = timeout(FAREWELL, all).await;
        self.quorum.close();
    }
}

impl Held for Tenure {
    fn key(&self) -> &str {
        self.terms.names.local()
    }

    fn owner(&self) -> &OwnerKey {
        &self.terms.owner
    }

    fn is_live(&self) -> bool {
        Self::is_live(self)
    }

    fn is_remembered(&self) -> bool {
        Self::is_remembered(self)
    }
}

/// A cache of averages. It is bounded, since a client may use any number of names: two generations, the recent and the
/// older.
#[derive(Default)]
struct Averages {
    recent: HashMap<String, Duration>,
    older: HashMap<String, Duration>,
}

impl Averages {
    /// The size of a generation: the cache keeps at least so many of the names that were used last, and at most twice
    /// as many. The nodes know the others.
    const RECENT: usize = 4096;

    fn get(&mut self, key: &str) -> Option<Duration> {
        if let Some(average) = self.recent.get(key) {
            return Some(*average);
        }
        let average = self.older.remove(key)?;
        self.insert(key, average);
        Some(average)
    }

    fn insert(&mut self, key: &str, average: Duration) {
        self.recent.insert(key.to_owned(), average);
        if self.recent.len() >= Self::RECENT {
            self.older = std::mem::take(&mut self.recent);
        }
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
    let task = runtime::detached(call);
    async move { task.await.unwrap_or(Err(LockError::Closed)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_names_without_number_are_not_all_remembered() {
        let mut averages = Averages::default();
        for order in 0..1_000_000_u64 {
            averages.insert(&format!("order-{order}"), Duration::from_millis(order));
            // This name is used all the time, so it is remembered.
            averages.insert("report", Duration::from_secs(1));
        }
        assert!(averages.recent.len() + averages.older.len() <= 2 * Averages::RECENT);
        assert_eq!(averages.get("report"), Some(Duration::from_secs(1)));
        assert_eq!(averages.get("order-999999"), Some(Duration::from_millis(999_999)));
        assert_eq!(averages.get("order-1"), None);
    }
}
