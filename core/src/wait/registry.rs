//! The holders and waiters of this client: for each lock its tenures, by owner, and the queue of its waiters. It
//! decides nesting, local exclusion and the order of waiters without a round trip.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    error::NodeCause,
    owner::OwnerKey,
    process::runtime,
    protocol::admission::Admission,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    wait::{listener::Listener, placed_waiters::PlacedWaiters, queued_waiter::QueuedWaiter},
};

/// How long a lock's listener is kept after its last waiter left: under contention the next one comes soon.
const LINGER: Duration = Duration::from_secs(1);

/// A holding of a lock by an owner: a tenure, or its stand-in in a test.
pub(crate) trait Holding: Send + Sync + 'static {
    /// The lock's key in the registry.
    fn key(&self) -> &str;

    fn owner(&self) -> &OwnerKey;

    fn admission(&self) -> Admission;

    /// Whether it is held. Must not change or notify anything: it is called with the registry locked.
    fn is_live(&self) -> bool;

    /// Whether its owner may still refer to it after its end.
    fn is_remembered(&self) -> bool;
}

pub(crate) struct Registry<T> {
    locks: Mutex<Locks<T>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { locks: Mutex::new(Locks { entries: BTreeMap::new(), listeners: BTreeMap::new(), added_since_sweep: 0 }) }
    }
}

struct Locks<T> {
    // Ordered, so that a simulation can be repeated.
    entries: BTreeMap<String, Entry<T>>,
    listeners: BTreeMap<String, Listening>,
    /// The number of tenures added since the last sweep.
    added_since_sweep: usize,
}

impl<T: Holding> Locks<T> {
    /// Removes ended tenures that nobody can refer to any more. Runs once as many tenures were added as there are
    /// entries, so that the cost for each added tenure is small.
    fn sweep(&mut self) {
        self.added_since_sweep += 1;
        if self.added_since_sweep <= self.entries.len() + SWEEP_LEAST {
            return;
        }
        self.added_since_sweep = 0;
        self.entries.retain(|_, entry| {
            entry.tenures.retain(|tenure| tenure.is_live() || tenure.is_remembered());
            !entry.tenures.is_empty() || !entry.queue.is_empty()
        });
    }
}

impl<T> Locks<T> {
    /// The entry of a lock's listener, which `make` creates if there is none.
    fn entry_of_listener(&mut self, key: &str, make: impl FnOnce() -> Arc<Listener>) -> &mut Listening {
        self.listeners.entry(key.to_owned()).or_insert_with(|| Listening {
            listener: make(),
            placed: [Arc::default(), Arc::default()],
            used: Instant::now(),
            ending: false,
        })
    }
}

const SWEEP_LEAST: usize = 64;

struct Entry<T> {
    tenures: Vec<Arc<T>>,
    queue: VecDeque<Arc<QueuedWaiter>>,
    outage: Option<Outage>,
    /// Whether a quorum has answered any acquire since this entry was created.
    answered: bool,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self { tenures: Vec::new(), queue: VecDeque::new(), outage: None, answered: false }
    }
}

impl<T: Holding> Entry<T> {
    /// Adds a tenure, and wakes waiters of the same owner, so that they nest.
    fn add_tenure(&mut self, tenure: Arc<T>) {
        for waiter in self.queue.iter().filter(|waiter| waiter.owner == *tenure.owner()) {
            waiter.wake.notify_one();
        }
        self.tenures.push(tenure);
    }
}

/// The listener of a lock, which successive waiters share.
struct Listening {
    listener: Arc<Listener>,
    /// This client's waiters with a place in the lock's queue on the server. A name may have two queues: `[1]` is that
    /// of waiters that are all admitted together, such as readers, and `[0]` that of the others.
    placed: [Arc<PlacedWaiters>; 2],
    /// When a waiter last left.
    used: Instant,
    /// Whether a task to end it runs.
    ending: bool,
}

/// An outage, as the waiters of a lock see it: fewer nodes than a quorum answer.
#[derive(Clone)]
pub(crate) struct Outage {
    pub(crate) since: Instant,
    pub(crate) causes: Vec<NodeCause>,
}

/// The state of a lock in this client, for one owner.
pub(crate) enum Local<T> {
    /// The owner holds it, or held it and has not noticed the loss.
    Own(Arc<T>),
    /// Another owner of this client holds it.
    Other(Arc<T>),
    /// Nobody here holds it, but others of this client wait for it.
    Waited,
    Free,
}

impl<T: Holding> Registry<T> {
    /// The state of a lock in this client, for `owner`.
    pub(crate) fn lookup(&self, key: &str, owner: &OwnerKey) -> Local<T> {
        let locks = &mut self.locks.lock().entries;
        let Some(entry) = locks.get_mut(key) else { return Local::Free };
        // Ended tenures that nobody can refer to any more are removed.
        entry.tenures.retain(|tenure| tenure.is_live() || tenure.is_remembered());
        // The newest: a lost one may still be referred to after its owner has acquired the lock again.
        if let Some(own) = entry.tenures.iter().rev().find(|tenure| *tenure.owner() == *owner) {
            return Local::Own(own.clone());
        }
        if let Some(other) = entry.tenures.iter().find(|tenure| tenure.is_live()) {
            return Local::Other(other.clone());
        }
        if !entry.queue.is_empty() {
            return Local::Waited;
        }
        if entry.tenures.is_empty() {
            locks.remove(key);
        }
        Local::Free
    }

    /// Adds a tenure, and wakes waiters of the same owner, so that they nest.
    pub(crate) fn insert(&self, tenure: Arc<T>) {
        let mut locks = self.locks.lock();
        locks.sweep();
        locks.entries.entry(tenure.key().to_owned()).or_default().add_tenure(tenure);
    }

    /// Adds a tenure as `insert` does, unless its owner may have only one and holds the lock here already. Returns
    /// whether it added the tenure.
    pub(crate) fn admit(&self, tenure: &Arc<T>) -> bool {
        let mut locks = self.locks.lock();
        locks.sweep();
        let entry = locks.entries.entry(tenure.key().to_owned()).or_default();
        let holds = |other: &Arc<T>| *other.owner() == *tenure.owner() && other.is_live();
        let admitted = tenure.admission().is_counted() || !entry.tenures.iter().any(holds);
        if admitted {
            entry.add_tenure(tenure.clone());
        }
        admitted
    }

    /// Removes a tenure whose last lease was released.
    pub(crate) fn remove(&self, tenure: &Arc<T>) {
        let locks = &mut self.locks.lock().entries;
        let Some(entry) = locks.get_mut(tenure.key()) else { return };
        entry.tenures.retain(|other| !Arc::ptr_eq(other, tenure));
        if entry.tenures.is_empty() && entry.queue.is_empty() {
            locks.remove(tenure.key());
        }
    }

    /// The newest tenure of a lock that `wanted` accepts.
    pub(crate) fn newest(&self, key: &str, wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.locks.lock().entries.get(key)?.tenures.iter().rev().find(|tenure| wanted(tenure)).cloned()
    }

    /// All tenures.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.locks.lock().entries.values().flat_map(|entry| &entry.tenures).cloned().collect()
    }

    /// Adds a waiter at the end of a lock's queue. A blocked thread goes ahead of its own tasks: these could not use
    /// the lock while the thread is blocked.
    pub(crate) fn enqueue(
        &self,
        key: &str,
        (owner, admission): (OwnerKey, Admission),
        thread: Option<u64>,
        blocked: bool,
    ) -> Arc<QueuedWaiter> {
        let locks = &mut self.locks.lock().entries;
        let queue = &mut locks.entry(key.to_owned()).or_default().queue;
        let stuck = |other: &Arc<QueuedWaiter>| blocked && !other.blocked && thread.is_some() && other.thread == thread;
        let index = queue.iter().position(stuck).unwrap_or(queue.len());
        let waiter = Arc::new(QueuedWaiter {
            owner,
            admission,
            thread,
            blocked,
            wake: Arc::default(),
            denied: AtomicBool::new(false),
            first: AtomicBool::new(index == 0),
        });
        if let (0, Some(second)) = (index, queue.front()) {
            second.first.store(false, SeqCst);
        }
        queue.insert(index, waiter.clone());
        waiter
    }

    /// Whether this waiter and all before it may hold the lock at the same time, and none of those was denied its units.
    pub(crate) fn may_share(&self, key: &str, waiter: &Arc<QueuedWaiter>) -> bool {
        let locks = &self.locks.lock().entries;
        let mut queue = locks.get(key).into_iter().flat_map(|entry| &entry.queue);
        let is_it = |other: &Arc<QueuedWaiter>| Arc::ptr_eq(other, waiter);
        let stops =
            |other: &&Arc<QueuedWaiter>| is_it(other) || !other.admission.is_shared() || other.denied.load(SeqCst);
        waiter.admission.is_shared() && queue.find(stops).is_some_and(is_it)
    }

    /// Whether a waiter of this client was denied its units and still waits.
    pub(crate) fn is_denied(&self, key: &str) -> bool {
        let locks = &self.locks.lock().entries;
        locks.get(key).is_some_and(|entry| entry.queue.iter().any(|waiter| waiter.denied.load(SeqCst)))
    }

    /// Whether a thread is blocked until it is granted the lock.
    pub(crate) fn is_blocked(&self, key: &str, thread: u64) -> bool {
        let locks = &self.locks.lock().entries;
        let mut queue = locks.get(key).into_iter().flat_map(|entry| &entry.queue);
        queue.any(|waiter| waiter.blocked && waiter.thread == Some(thread))
    }

    /// Removes a waiter from the queue, and wakes the next one.
    pub(crate) fn leave(self: &Arc<Self>, key: &str, waiter: &Arc<QueuedWaiter>) {
        let mut locks = self.locks.lock();
        let Some(entry) = locks.entries.get_mut(key) else { return };
        if entry.queue.front().is_some_and(|first| Arc::ptr_eq(first, waiter)) {
            entry.queue.pop_front();
        } else {
            entry.queue.retain(|other| !Arc::ptr_eq(other, waiter));
        }
        #[cfg(all(test, feature = "shuttle"))]
        if crate::faults::broken("nobody is woken") {
            return;
        }
        if let Some(next) = entry.queue.front() {
            if !next.first.swap(true, SeqCst) {
                next.wake.notify_one();
            }
            return;
        }
        entry.outage = None;
        if entry.tenures.is_empty() {
            locks.entries.remove(key);
        }
        if let Some(listening) = locks.listeners.get_mut(key) {
            listening.used = Instant::now();
            if !listening.ending && !cfg!(all(test, feature = "shuttle")) {
                listening.ending = true;
                let (registry, key) = (Arc::downgrade(self), key.to_owned());
                runtime::spawn(async move {
                    loop {
                        sleep(LINGER).await;
                        if registry.upgrade().is_none_or(|registry| registry.stop_listening(&key)) {
                            return;
                        }
                    }
                });
            }
        }
    }

    /// Ends a listener that no waiter has used for `LINGER`. Returns whether it did.
    fn stop_listening(&self, key: &str) -> bool {
        let mut locks = self.locks.lock();
        let waited_for = locks.entries.get(key).is_some_and(|entry| !entry.queue.is_empty());
        let idle = !waited_for && locks.listeners.get(key).is_none_or(|known| known.used.elapsed() >= LINGER);
        if idle {
            locks.listeners.remove(key);
        }
        idle
    }

    /// Wakes every waiter.
    pub(crate) fn wake_all(&self) {
        let locks = &self.locks.lock().entries;
        locks.values().flat_map(|entry| &entry.queue).for_each(|waiter| waiter.wake.notify_one());
    }

    /// The listener of a lock, if there is one.
    pub(crate) fn existing_listener(&self, key: &str) -> Option<Arc<Listener>> {
        Some(self.locks.lock().listeners.get(key)?.listener.clone())
    }

    /// Records how many races for the lock a waiter had lost (`missed`) before it was granted the lock.
    pub(crate) fn note_lost_races(&self, key: &str, missed: u32) {
        if let Some(known) = self.locks.lock().listeners.get(key) {
            known.listener.note_lost_races(missed);
        }
    }

    /// The listener of a lock, which the first waiter that needs it creates.
    pub(crate) fn listener(&self, key: &str, make: impl FnOnce() -> Arc<Listener>) -> Arc<Listener> {
        self.locks.lock().entry_of_listener(key, make).listener.clone()
    }

    /// Returns a lock's listener, and this client's waiters with a place on the server. Replaces a listener that is not
    /// subscribed to the channel that wakes this client alone.
    pub(crate) fn placed_waiters(
        &self,
        key: &str,
        admission: Admission,
        make: impl Fn() -> Arc<Listener>,
    ) -> (Arc<Listener>, Arc<PlacedWaiters>) {
        let mut locks = self.locks.lock();
        let listening = locks.entry_of_listener(key, &make);
        if !listening.listener.is_queued() {
            listening.listener = make();
        }
        (listening.listener.clone(), listening.placed[usize::from(admission.admits_all())].clone())
    }

    /// Records that fewer nodes than a quorum answered. Returns when the outage started.
    pub(crate) fn note_outage(&self, key: &str, causes: Vec<NodeCause>) -> Instant {
        let since = Instant::now();
        let locks = &mut self.locks.lock().entries;
        let Some(entry) = locks.get_mut(key) else { return since };
        let since = entry.outage.as_ref().map_or(since, |outage| outage.since);
        entry.outage = Some(Outage { since, causes });
        since
    }

    /// Records that a quorum answered.
    pub(crate) fn end_outage(&self, key: &str) {
        if let Some(entry) = self.locks.lock().entries.get_mut(key) {
            if entry.outage.is_some() {
                // Waiters without a place in the server's queue can request one again.
                entry.queue.iter().for_each(|waiter| waiter.wake.notify_one());
            }
            (entry.outage, entry.answered) = (None, true);
        }
    }

    /// Whether its waiters know nothing of a lock: nobody holds it here, and no quorum has answered yet.
    pub(crate) fn is_unknown(&self, key: &str) -> bool {
        let locks = &self.locks.lock().entries;
        locks.get(key).is_some_and(|entry| !entry.answered && !entry.tenures.iter().any(|tenure| tenure.is_live()))
    }

    /// The outage that waiters of a lock see.
    pub(crate) fn outage(&self, key: &str) -> Option<Outage> {
        self.locks.lock().entries.get(key)?.outage.clone()
    }
}
