//! The calls of a host. They run in the background or in the host's reactor, and the host's event loop or thread
//! collects their results.

use std::{
    future::Future,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
};

use futures_util::FutureExt;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, poll};

#[cfg(target_os = "linux")]
use crate::ffi::reactor::Reactor;
use crate::{
    acquire::uncollected_grant::UncollectedGrant,
    error::LockError,
    event::Event,
    ffi::{
        completions::{CompletionQueue, Entry, Started},
        operations::{self, Operation},
        outcome::{Outcome, Value},
    },
    process::{
        driver::{Caller, Polled},
        fork::Tied,
    },
    server::BoxFuture,
};

/// A started call: its result if it needed no waiting, else its number.
pub type Call = Started<Outcome>;

/// The result of a call, as the queue holds it.
enum QueuedResult {
    Outcome(Outcome),
    /// A lease that the host has not collected yet.
    Grant(UncollectedGrant),
}

impl Entry for QueuedResult {
    type HostValue = Outcome;

    fn queued(&self) {
        if let Self::Grant(grant) = self {
            grant.mark_uncollected();
        }
    }

    fn announcement(self) -> (Outcome, Option<Self>) {
        match self {
            Self::Outcome(outcome) => (outcome, None),
            Self::Grant(grant) => (Ok(Value::Lease(grant.preview())), Some(Self::Grant(grant))),
        }
    }

    fn take(self) -> Result<Outcome, BoxFuture<Self>> {
        match self {
            Self::Outcome(outcome) => Ok(outcome),
            Self::Grant(grant) => match grant.collect() {
                Ok(lease) => {
                    // The host owns the lease now: when its garbage collector frees it, the lock is not released.
                    lease.disable_release_on_drop();
                    Ok(Ok(Value::Lease(lease)))
                }
                Err(again) => Err(Box::pin(again.start().map(queued_grant))),
            },
        }
    }
}

fn queued_grant(grant: Result<UncollectedGrant, LockError>) -> QueuedResult {
    grant.map_or_else(|error| QueuedResult::Outcome(Err(error)), QueuedResult::Grant)
}

fn ended<T>(end: Result<T, LockError>, value: impl FnOnce(T) -> Value) -> QueuedResult {
    QueuedResult::Outcome(end.map(value))
}

/// The calls of one event loop, or of a thread that fetches results for others. Each call starts at once and returns a
/// number; [`Calls::drain`] returns the results. `wake` runs once when there are results to drain. The calls belong to
/// the process that made them: in a child of a fork every call fails with `closed`.
pub struct Calls {
    queue: Tied<Arc<CompletionQueue<QueuedResult>>>,
    /// Wakes a thread in [`Calls::wait`], unless that thread watches a descriptor.
    results: Option<Results>,
    /// The event loop has ended.
    has_ended: AtomicBool,
    /// The next [`Calls::fetch`] returns without results.
    is_interrupted: AtomicBool,
}

/// Wakes a thread that waits for results.
struct Results {
    sender: mpsc::Sender<()>,
    receiver: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Calls {
    /// Makes calls that run in the background. `wake` runs on the library's threads: it must return at once and run no
    /// code of the host.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(CompletionQueue::new(wake), None)
    }

    fn with(queue: Arc<CompletionQueue<QueuedResult>>, results: Option<Results>) -> Self {
        let queue = Tied::new(queue);
        Self { queue, results, has_ended: AtomicBool::new(false), is_interrupted: AtomicBool::new(false) }
    }

    /// Makes calls for an event loop that watches [`Calls::fd`] and drains whenever that is readable. The loop's own
    /// thread makes the round trips to a single server. Fails if the process has no file descriptor left.
    #[cfg(target_os = "linux")]
    pub fn hosted() -> std::io::Result<Self> {
        Ok(Self::with(CompletionQueue::with_reactor(Reactor::of_event_loop()?), None))
    }

    /// Makes calls for an event loop that cannot watch a descriptor. A thread of the host waits for results
    /// ([`Calls::wait`]) and wakes the loop, which drains. On Linux the loop's own thread makes the round trips to a
    /// single server.
    pub fn watched() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(calls) = Self::hosted() {
            return calls;
        }
        Self::waited_for()
    }

    /// Makes calls that run in the background, and whose results a thread waits for.
    pub(super) fn waited_for() -> Self {
        let (sender, receiver) = mpsc::channel();
        let wakes = sender.clone();
        // Cannot fail: the receiver is kept beside it.
        let queue = CompletionQueue::new(move || wakes.send(()).unwrap_or_default());
        Self::with(queue, Some(Results { sender, receiver: receiver.into() }))
    }

    /// Makes calls that any thread starts ([`Calls::start_numbered`]). One dedicated thread of the host fetches the
    /// results ([`Calls::fetch`]) and notifies the waiters. On Linux these threads make the round trips to a single
    /// server.
    pub fn fetched() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(reactor) = Reactor::of_thread() {
            return Self::with(CompletionQueue::with_reactor(reactor), None);
        }
        Self::waited_for()
    }

    /// Blocks until there may be results. Only one thread may wait. False once the event loop has ended.
    pub fn wait(&self) -> bool {
        if let Some(Results { receiver, .. }) = &self.results {
            // Cannot fail: a sender is kept beside it.
            let _ = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        #[cfg(target_os = "linux")]
        if let Some(fd) = self.fd() {
            // Interrupted by a signal, it returns although there are no results.
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        }
        !self.has_ended()
    }

    /// True once the event loop has ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    /// Blocks until calls have ended, and returns their numbers and results. A lease in them is a preview of an
    /// uncollected grant: its waiter takes it ([`Calls::take`]) when it runs. The result is empty once after
    /// [`Calls::interrupt`].
    pub fn fetch(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        loop {
            // Before the wait: an earlier round may have consumed the wake-up together with results.
            if self.is_interrupted.swap(false, SeqCst) {
                return Ok(Vec::new());
            }
            self.wait();
            let ended = self.queue()?.announce();
            if !ended.is_empty() {
                return Ok(ended);
            }
        }
    }

    /// Makes one [`Calls::fetch`] return without results: the one that blocks now, or else the next.
    pub fn interrupt(&self) {
        self.is_interrupted.store(true, SeqCst);
        self.wake_waiter();
    }

    /// Wakes the thread in [`Calls::wait`].
    fn wake_waiter(&self) {
        if let Some(Results { sender, .. }) = &self.results {
            sender.send(()).unwrap_or_default();
        }
        #[cfg(target_os = "linux")]
        if let Some(reactor) = self.queue.get().and_then(|queue| queue.reactor()) {
            reactor.make_readable();
        }
    }

    /// The descriptor that an event loop watches for readability, if it has a reactor.
    #[cfg(target_os = "linux")]
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.queue.get()?.reactor().map(|reactor| reactor.fd())
    }

    /// Sends the requests of calls that were started while others were under way. An event loop calls it soon after
    /// each call that is pending: at the end of the turn in which the call was started, so that calls started together
    /// are sent together.
    #[cfg(target_os = "linux")]
    pub fn flush(&self) {
        if let Some(queue) = self.queue.get() {
            queue.run_reactor();
        }
    }

    /// Gives up every call, since the event loop no longer runs. Calls that must not be cut short, such as releases,
    /// continue in the background.
    pub fn abandon_all(&self) {
        self.has_ended.store(true, SeqCst);
        #[cfg(target_os = "linux")]
        if let Some(reactor) = self.queue.get().and_then(|queue| queue.reactor()) {
            reactor.close();
        }
        self.wake_waiter();
    }

    fn queue(&self) -> Result<&Arc<CompletionQueue<QueuedResult>>, LockError> {
        self.queue.get().ok_or(LockError::Closed)
    }

    /// Starts a call in the host's reactor if it may be polled there, else in the background. `stoppable`: whether
    /// `abandon` stops it there; otherwise it runs to its end.
    fn start_where_polled<F>(
        &self,
        stoppable: bool,
        polled: impl FnOnce(Caller) -> Polled,
        call: impl FnOnce(Polled) -> F,
    ) -> Result<Started<QueuedResult>, LockError>
    where
        F: Future<Output = QueuedResult> + Send + 'static,
    {
        let queue = self.queue()?;
        #[cfg(not(target_os = "linux"))]
        let _ = polled;
        #[cfg(target_os = "linux")]
        if let Some(reactor) = queue.reactor()
            && let polled @ Polled::Here(_) = polled(Caller::Host(reactor.id()))
        {
            return Ok(queue.start_in_reactor(reactor, call(polled)));
        }
        let call = call(Polled::InBackground);
        Ok(Started::Pending(if stoppable { queue.start_stoppable(call) } else { queue.start_unstoppable(call) }))
    }

    /// [`Calls::start`] for a host that can receive only a number. The number is negative if the call has already
    /// ended; [`Calls::end_of`] then returns its result.
    pub fn start_numbered(&self, operation: Operation<'_>) -> Result<i64, LockError> {
        Ok(match self.begin(operation)? {
            Started::Pending(id) => id.cast_signed(),
            Started::Done(ended) => -self.queue()?.add_announced(ended).cast_signed(),
        })
    }

    /// The result of a call with a negative number. `None` if its lease was given back meanwhile: the call continues,
    /// and its result is fetched under the number without the sign. Fails with `closed` if the result was taken before.
    pub fn end_of(&self, number: i64) -> Option<Outcome> {
        match self.queue().map(|queue| queue.take(number.unsigned_abs())) {
            Ok(Some(taken)) => taken.done(),
            Ok(None) => Some(Err(LockError::Closed)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Takes the lease that was fetched under this number, for its waiter. False if that was too late and the grant was
    /// given back: the call continues, and its result is fetched again.
    pub fn take(&self, id: u64) -> bool {
        let taken = self.queue().ok().and_then(|queue| queue.take(id));
        !matches!(taken, Some(Started::Pending(_)))
    }

    /// Returns the calls that ended since the last drain. The host owns their leases from then on: when its garbage
    /// collector frees one, the lock is not released.
    pub fn drain(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        Ok(self.queue()?.drain())
    }

    /// Gives up a call whose result was not drained or taken. An acquire leaves no lock behind; a call that must not be
    /// cut short, such as a release, continues. False if the result was drained or fetched before.
    pub fn abandon(&self, id: u64) -> bool {
        self.queue.get().is_some_and(|queue| queue.abandon(id))
    }

    /// Starts an operation. If it ends at once with a lease, the host owns that as [`Calls::drain`] says.
    pub fn start(&self, operation: Operation<'_>) -> Result<Call, LockError> {
        Ok(match self.begin(operation)? {
            Started::Pending(id) => Started::Pending(id),
            Started::Done(ended) => match ended.take() {
                Ok(outcome) => Started::Done(outcome),
                Err(restarted) => Started::Pending(self.queue()?.start_stoppable(restarted)),
            },
        })
    }

    fn begin(&self, operation: Operation<'_>) -> Result<Started<QueuedResult>, LockError> {
        use Operation as Do;
        let pending = |id| Ok(Started::Pending(id));
        let queue = self.queue()?;
        match operation {
            Do::Acquire(lock, request) => {
                let call = |polled| lock.acquire_uncollected(polled, request).map(queued_grant);
                self.start_where_polled(true, |caller| lock.polled(caller), call)
            }
            Do::ReleaseNewest(lock, owner) => {
                let call = |polled| lock.release_in(polled, &owner).map(|end| ended(end, Value::from));
                self.start_where_polled(false, |caller| lock.polled(caller), call)
            }
            Do::LeaveNewest(lock, owner) => {
                let call = |polled| lock.leave_in(polled, &owner).map(|end| ended(end, Value::from));
                self.start_where_polled(false, |caller| lock.polled(caller), call)
            }
            Do::Release(lease) => {
                let call = |polled| lease.release_in(polled).map(|end| ended(end, Value::from));
                self.start_where_polled(false, |caller| lease.polled(caller), call)
            }
            Do::Leave(lease) => {
                let call = |polled| lease.leave_in(polled).map(|end| ended(end, Value::from));
                self.start_where_polled(false, |caller| lease.polled(caller), call)
            }
            Do::Extend(lease, ttl) => {
                let call = |polled| lease.extend_in(polled, ttl).map(|end| ended(end, Value::from));
                self.start_where_polled(false, |caller| lease.polled(caller), call)
            }
            Do::Downgrade(lease) => Ok(Self::start_unstoppable(queue, lease.downgrade(), Value::from)),
            Do::TryUpgrade(lease) => Ok(Self::start_unstoppable(queue, lease.try_upgrade(), Value::Flag)),
            Do::Lost(lease, limit) => {
                pending(queue.start_waiting(operations::lost(lease, limit).map(QueuedResult::Outcome)))
            }
            Do::Events(events) => {
                pending(queue.start_stoppable(operations::happened(events).map(QueuedResult::Outcome)))
            }
            Do::Locked(lock) => Ok(Self::start_unstoppable(queue, lock.locked(), Value::Flag)),
            Do::Inspect(lock) => Ok(Self::start_unstoppable(queue, lock.inspect(), Value::from)),
            Do::Available(lock) => Ok(Self::start_unstoppable(queue, lock.available(), Value::Count)),
            Do::ReleaseValue(value) => Ok(Self::start_unstoppable(queue, value.release(), Value::Flag)),
            Do::RetimeValue(value, how, millis) => {
                Ok(Self::start_unstoppable(queue, value.retime(how, millis), Value::Flag))
            }
            Do::IsValueThere(value) => Ok(Self::start_unstoppable(queue, value.is_there(), Value::Flag)),
            Do::Ping(client) => Ok(Self::start_unstoppable(queue, client.ping(), Value::from)),
            Do::ForceRelease(client, name) => {
                Ok(Self::start_unstoppable(queue, client.force_release(name), Value::Flag))
            }
            Do::InitNodes(client) => Ok(Self::start_unstoppable(queue, client.init_nodes(), Value::from)),
            Do::Attach(client, text, owner) => {
                pending(queue.start_unstoppable(client.attach_uncollected(text, owner).map(queued_grant)))
            }
            Do::Close(client) => pending(queue.start_unstoppable(operations::close(client).map(QueuedResult::Outcome))),
        }
    }

    /// Starts a call in the background, where it runs to its end.
    fn start_unstoppable<T>(
        queue: &Arc<CompletionQueue<QueuedResult>>,
        call: impl Future<Output = Result<T, LockError>> + Send + 'static,
        value: impl FnOnce(T) -> Value + Send + 'static,
    ) -> Started<QueuedResult> {
        Started::Pending(queue.start_unstoppable(call.map(|end| ended(end, value))))
    }

    /// Starts a wait for events from a source of the host's own.
    pub fn events_of(&self, next: impl Future<Output = Vec<Event>> + Send + 'static) -> Result<Call, LockError> {
        let next = next.map(|events| QueuedResult::Outcome(Ok(Value::Events(events))));
        Ok(Started::Pending(self.queue()?.start_stoppable(next)))
    }
}
