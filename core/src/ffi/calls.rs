//! Calls that run in the background, or in the reactor of their host, and end in a host's event loop.

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
    acquire::pending_grant::PendingGrant,
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

/// A call that began: its end, if it needed no waiting, or its number.
pub type Call = Started<Outcome>;

/// The end of a call, as it waits in the queue.
enum QueuedResult {
    Outcome(Outcome),
    /// A lease, until its host takes it.
    Grant(PendingGrant),
}

impl Entry for QueuedResult {
    type Taken = Outcome;

    fn queued(&self) {
        if let Self::Grant(grant) = self {
            grant.mark_uncollected();
        }
    }

    fn tell(self) -> (Outcome, Option<Self>) {
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
                    // The host now owns it: collecting it releases nothing.
                    lease.disable_release_on_drop();
                    Ok(Ok(Value::Lease(lease)))
                }
                Err(again) => Err(Box::pin(again.requeue().map(queued_grant))),
            },
        }
    }
}

fn queued_grant(grant: Result<PendingGrant, LockError>) -> QueuedResult {
    grant.map_or_else(|error| QueuedResult::Outcome(Err(error)), QueuedResult::Grant)
}

fn ended<T>(end: Result<T, LockError>, value: impl FnOnce(T) -> Value) -> QueuedResult {
    QueuedResult::Outcome(end.map(value))
}

/// The calls of one event loop. Each starts at once and returns its number; its end comes out of [`Calls::drain`],
/// and `wake` tells once that there is something to drain. They belong to the process that made them: in a child of a
/// fork every call fails with `closed`.
pub struct Calls {
    queue: Tied<Arc<CompletionQueue<QueuedResult>>>,
    /// Where a thread waits for results, unless it watches a descriptor.
    results: Option<Results>,
    /// The event loop ended.
    has_ended: AtomicBool,
}

/// Wakes a thread that waits for results.
struct Results {
    sender: mpsc::Sender<()>,
    receiver: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Calls {
    /// Calls whose `wake` runs on the library's threads: it must return at once and run nothing of the host's.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self::with(CompletionQueue::new(wake), None)
    }

    fn with(queue: Arc<CompletionQueue<QueuedResult>>, results: Option<Results>) -> Self {
        Self { queue: Tied::new(queue), results, has_ended: AtomicBool::new(false) }
    }

    /// Calls of an event loop that watches [`Calls::fd`], and drains whenever that is readable. Their round trips to a
    /// single server are made by the loop's own thread. Fails when the process has no descriptor left.
    #[cfg(target_os = "linux")]
    pub fn hosted() -> std::io::Result<Self> {
        Ok(Self::with(CompletionQueue::with_reactor(Reactor::of_event_loop()?), None))
    }

    /// Calls of an event loop that cannot watch a descriptor. A thread of the host waits for results ([`Calls::wait`]) and
    /// wakes the loop, which drains. On Linux the loop's own thread makes the round trips to a single server.
    pub fn watched() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(calls) = Self::hosted() {
            return calls;
        }
        Self::waited_for()
    }

    /// Calls whose results a thread waits for, with round trips in the background.
    pub(super) fn waited_for() -> Self {
        let (sender, receiver) = mpsc::channel();
        let wakes = sender.clone();
        // The receiver is kept beside it.
        let queue = CompletionQueue::new(move || wakes.send(()).unwrap_or_default());
        Self::with(queue, Some(Results { sender, receiver: receiver.into() }))
    }

    /// Calls that any thread starts ([`Calls::start_numbered`]), and of whose ends one thread of the host's, which does
    /// nothing else, tells those who wait ([`Calls::fetch`]). On Linux these threads make the round trips to a single server.
    pub fn fetched() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(reactor) = Reactor::of_thread() {
            return Self::with(CompletionQueue::with_reactor(reactor), None);
        }
        Self::waited_for()
    }

    /// Blocks until there may be results, for the one thread that waits for them. False once the event loop ended.
    pub fn wait(&self) -> bool {
        if let Some(Results { receiver, .. }) = &self.results {
            // The sender is kept beside it.
            let _ = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
        #[cfg(target_os = "linux")]
        if let Some(fd) = self.fd() {
            // A signal interrupts it: then there are no results.
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        }
        !self.has_ended()
    }

    /// Whether the event loop ended.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }

    /// Blocks until calls ended, for the thread that fetches. Whoever waits for a lease takes it when it runs
    /// ([`Calls::take`]): until then it is offered.
    pub fn fetch(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        loop {
            self.wait();
            let ended = self.queue()?.announce();
            if !ended.is_empty() {
                return Ok(ended);
            }
        }
    }

    /// What an event loop watches for readability, if it has a reactor.
    #[cfg(target_os = "linux")]
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.queue.get()?.reactor().map(|reactor| reactor.fd())
    }

    /// Sends what was started while other calls were under way. An event loop does so soon after each call that is
    /// pending: at the end of the turn in which it was made, so that calls made together are sent together.
    #[cfg(target_os = "linux")]
    pub fn flush(&self) {
        if let Some(queue) = self.queue.get() {
            queue.run_once();
        }
    }

    /// Gives up every call, since the event loop runs no more. What must not be cut short goes on in the background.
    pub fn end(&self) {
        self.has_ended.store(true, SeqCst);
        if let Some(Results { sender, .. }) = &self.results {
            sender.send(()).unwrap_or_default();
        }
        #[cfg(target_os = "linux")]
        if let Some(reactor) = self.queue.get().and_then(|queue| queue.reactor()) {
            reactor.close();
            reactor.make_readable();
        }
    }

    fn queue(&self) -> Result<&Arc<CompletionQueue<QueuedResult>>, LockError> {
        self.queue.get().ok_or(LockError::Closed)
    }

    /// Starts a call where it is polled: in the host's reactor, else in the background, to its end unless it `may_be_cut`.
    fn start_where_polled<F>(
        &self,
        may_be_cut: bool,
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
            return Ok(queue.run_in(reactor, call(polled)));
        }
        let call = call(Polled::InBackground);
        Ok(Started::Pending(if may_be_cut { queue.watch(call) } else { queue.run(call) }))
    }

    /// `start`, for a host to which nothing but a number can be returned: negative if the call ended already, so that
    /// [`Calls::end_of`] has its end.
    pub fn start_numbered(&self, operation: Operation<'_>) -> Result<i64, LockError> {
        Ok(match self.begin(operation)? {
            Started::Pending(id) => id.cast_signed(),
            Started::Done(ended) => -self.queue()?.keep(ended).cast_signed(),
        })
    }

    /// The end of a call whose number is negative. `None`: its lease is over already; the call goes on, and its number
    /// without the sign is fetched. Fails with `closed` if it was asked for before.
    pub fn end_of(&self, number: i64) -> Option<Outcome> {
        match self.queue().map(|queue| queue.take(number.unsigned_abs())) {
            Ok(Some(taken)) => taken.done(),
            Ok(None) => Some(Err(LockError::Closed)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Whoever waited takes the lease that was fetched under this number. False: it was given back, since that took too
    /// long; the call goes on, and is fetched again.
    pub fn take(&self, id: u64) -> bool {
        let taken = self.queue().ok().and_then(|queue| queue.take(id));
        !matches!(taken, Some(Started::Pending(_)))
    }

    /// The calls that ended since the last time. The host now owns their leases: collecting one releases nothing.
    pub fn drain(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        Ok(self.queue()?.drain())
    }

    /// Gives up a call that was not drained, or taken. An acquire leaves nothing behind; what must not be cut short, such as
    /// a release, goes on. False: it was drained, or fetched, before.
    pub fn abandon(&self, id: u64) -> bool {
        self.queue.get().is_some_and(|queue| queue.abandon(id))
    }

    /// Starts an operation. Its end is the host's as [`Calls::drain`] says, also if it came at once.
    pub fn start(&self, operation: Operation<'_>) -> Result<Call, LockError> {
        Ok(match self.begin(operation)? {
            Started::Pending(id) => Started::Pending(id),
            Started::Done(ended) => match ended.take() {
                Ok(outcome) => Started::Done(outcome),
                Err(further) => Started::Pending(self.queue()?.watch(further)),
            },
        })
    }

    fn begin(&self, operation: Operation<'_>) -> Result<Started<QueuedResult>, LockError> {
        use Operation as Do;
        let pending = |id| Ok(Started::Pending(id));
        let queue = self.queue()?;
        match operation {
            Do::Acquire(lock, request) => {
                let call = |polled| lock.acquire_for_queue(polled, request).map(queued_grant);
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
            Do::Downgrade(lease) => Ok(Self::run(queue, lease.downgrade(), Value::from)),
            Do::TryUpgrade(lease) => Ok(Self::run(queue, lease.try_upgrade(), Value::Flag)),
            Do::Lost(lease, limit) => pending(queue.listen(operations::lost(lease, limit).map(QueuedResult::Outcome))),
            Do::Events(events) => pending(queue.watch(operations::happened(events).map(QueuedResult::Outcome))),
            Do::Locked(lock) => Ok(Self::run(queue, lock.locked(), Value::Flag)),
            Do::Inspect(lock) => Ok(Self::run(queue, lock.inspect(), Value::Info)),
            Do::Available(lock) => Ok(Self::run(queue, lock.available(), Value::Count)),
            Do::ReleaseValue(value) => Ok(Self::run(queue, value.release(), Value::Flag)),
            Do::RetimeValue(value, how, millis) => Ok(Self::run(queue, value.retime(how, millis), Value::Flag)),
            Do::IsValueThere(value) => Ok(Self::run(queue, value.is_there(), Value::Flag)),
            Do::Ping(client) => Ok(Self::run(queue, client.ping(), Value::from)),
            Do::ForceRelease(client, name) => Ok(Self::run(queue, client.force_release(name), Value::Flag)),
            Do::InitNodes(client) => Ok(Self::run(queue, client.init_nodes(), Value::from)),
            Do::Attach(client, text, owner) => {
                pending(queue.run(client.attach_for_queue(text, owner).map(queued_grant)))
            }
            Do::Close(client) => pending(queue.run(operations::close(client).map(QueuedResult::Outcome))),
        }
    }

    /// Starts a call in the background, to its end.
    fn run<T>(
        queue: &Arc<CompletionQueue<QueuedResult>>,
        call: impl Future<Output = Result<T, LockError>> + Send + 'static,
        value: impl FnOnce(T) -> Value + Send + 'static,
    ) -> Started<QueuedResult> {
        Started::Pending(queue.run(call.map(|end| ended(end, value))))
    }

    /// Starts to wait for events that a host fetches in a way of its own.
    pub fn events_of(&self, next: impl Future<Output = Vec<Event>> + Send + 'static) -> Result<Call, LockError> {
        let next = next.map(|events| QueuedResult::Outcome(Ok(Value::Events(events))));
        Ok(Started::Pending(self.queue()?.watch(next)))
    }
}
