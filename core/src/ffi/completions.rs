//! The queue of results from the library's threads to a host. No code of the host runs on the library's threads: a
//! finished call is queued as `(id, result)`, and the host is woken once to drain the queue, however many results are
//! in it. An event loop takes the results that it drains. A thread that fetches for others announces the results; each
//! caller takes its grant when it runs.
//!
//! ```text
//! started ─result─▶ queued ─announce─▶ announced ─take─▶ taken by the host
//!                                                ─take, too late─▶ started again    (drain: announce, take)
//! started ─abandon─▶ aborted    queued, announced ─abandon, or the queue is dropped─▶ dropped
//! ```
//! A result that nobody takes is dropped here, which releases a lease. A grant that is given back before it is taken is
//! no result: its call starts over.

#[cfg(target_os = "linux")]
use std::task::Poll;
use std::{
    collections::HashMap,
    future::Future,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

#[cfg(target_os = "linux")]
use futures_util::{FutureExt, future};

use tokio::{task::AbortHandle, time::timeout};

#[cfg(target_os = "linux")]
use crate::{ffi::reactor::Reactor, process::host_io::HostIo};
use crate::{process::runtime, server::BoxFuture, sync::Mutex};

/// The result of a call, as the queue holds it.
pub trait Entry: Sized + Send + 'static {
    /// The form in which the host receives it.
    type Taken: Send;

    /// Called when it is queued. It may stay queued for long, since the host's event loop may be blocked.
    fn queued(&self) {}

    /// Splits it into what is announced to the host and the part that its caller must still take, if any.
    fn tell(self) -> (Self::Taken, Option<Self>);

    /// Hands it to the host. If its grant was given back before, returns the call that starts over.
    fn take(self) -> Result<Self::Taken, BoxFuture<Self>>;
}

/// The calls of one host, and their results.
pub struct CompletionQueue<T: Entry> {
    state: Mutex<State<T>>,
    wake: Box<dyn Fn() + Send + Sync>,
    #[cfg(target_os = "linux")]
    reactor: Option<Arc<Reactor>>,
    /// The host drains right after the current run of its reactor, so it needs no wake-up.
    draining: AtomicBool,
}

/// A call that was started.
#[derive(Debug)]
pub enum Started<T> {
    /// It ended at once.
    Done(T),
    /// Its result comes out of the queue under this number.
    Pending(u64),
}

impl<T> Started<T> {
    /// Its result, if it has ended.
    pub fn done(self) -> Option<T> {
        match self {
            Self::Done(result) => Some(result),
            Self::Pending(_) => None,
        }
    }
}

/// How to stop a call.
pub(crate) enum Stop {
    Task(AbortHandle),
    #[cfg(target_os = "linux")]
    Call(future::AbortHandle),
}

impl Stop {
    fn stop(self) {
        match self {
            Self::Task(task) => task.abort(),
            #[cfg(target_os = "linux")]
            Self::Call(call) => call.abort(),
        }
    }
}

struct State<T: Entry> {
    last: u64,
    /// Calls whose result is still wanted, and how to stop those that may be stopped.
    wanted: HashMap<u64, Option<Stop>>,
    done: Vec<(u64, T)>,
    /// Results that were announced to the host and not taken yet.
    announced: HashMap<u64, T>,
}

impl<T: Entry> State<T> {
    fn new() -> Self {
        Self { last: 0, wanted: HashMap::new(), done: Vec::new(), announced: HashMap::new() }
    }
}

/// The place for one call's result.
pub struct Completion<T: Entry> {
    queue: Weak<CompletionQueue<T>>,
    id: u64,
}

impl<T: Entry> Completion<T> {
    /// Queues the result and wakes the host, unless an earlier result already did.
    pub fn complete(self, result: T) {
        let Some(queue) = self.queue.upgrade() else { return };
        result.queued();
        #[cfg(all(test, feature = "shuttle"))]
        if crate::faults::broken("two steps to queue a result") {
            let first = queue.state.lock().done.is_empty();
            queue.state.lock().done.push((self.id, result));
            if first {
                (queue.wake)();
            }
            return;
        }
        let first = {
            let mut state = queue.state.lock();
            state.done.push((self.id, result));
            state.done.len() == 1
        };
        if first && !queue.draining.load(SeqCst) {
            (queue.wake)();
        }
    }
}

impl<T: Entry> CompletionQueue<T> {
    /// A queue that calls `wake` when the host should drain it. `wake` runs on the library's threads: it must return at
    /// once and run no code of the host.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new()),
            wake: Box::new(wake),
            #[cfg(target_os = "linux")]
            reactor: None,
            draining: AtomicBool::new(false),
        })
    }

    /// A queue for a host whose own threads run this reactor.
    #[cfg(target_os = "linux")]
    pub fn with_reactor(reactor: Arc<Reactor>) -> Arc<Self> {
        let woken = reactor.clone();
        Arc::new(Self {
            state: Mutex::new(State::new()),
            wake: Box::new(move || woken.make_readable()),
            reactor: Some(reactor),
            draining: AtomicBool::new(false),
        })
    }

    /// The reactor of its host, if it has one.
    #[cfg(target_os = "linux")]
    pub fn reactor(&self) -> Option<&Arc<Reactor>> {
        self.reactor.as_ref()
    }

    /// Starts a future in the host's reactor. It is dropped if the call is abandoned.
    #[cfg(target_os = "linux")]
    pub fn run_in(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Started<T> {
        let mut future = Box::pin(future);
        if let Poll::Ready(result) = reactor.poll_first(future.as_mut()) {
            return Started::Done(result);
        }
        let mut now = false;
        let id = self.start(|completion| {
            let (call, stop) = future::abortable(async move { completion.complete(future.await) });
            now = reactor.add(call.map(drop));
            Some(Stop::Call(stop))
        });
        if now {
            self.run_once();
        }
        Started::Pending(id)
    }

    /// Runs the host's reactor, so that it sends the waiting requests. `drain` still returns the results.
    #[cfg(target_os = "linux")]
    pub fn run_once(&self) {
        let Some(reactor) = &self.reactor else { return };
        if reactor.has_thread() {
            reactor.try_run_once();
            return;
        }
        reactor.send();
        // A call can end without incoming data; then the descriptor does not wake the host.
        if !self.state.lock().done.is_empty() {
            (self.wake)();
        }
    }

    /// Starts a call: `start` gets the place for its result and may return how to stop it.
    pub(crate) fn start(self: &Arc<Self>, start: impl FnOnce(Completion<T>) -> Option<Stop>) -> u64 {
        let id = {
            let mut state = self.state.lock();
            state.last += 1;
            let id = state.last;
            state.wanted.insert(id, None);
            id
        };
        if let Some(stop) = start(Completion { queue: Arc::downgrade(self), id })
            && let Some(wanted) = self.state.lock().wanted.get_mut(&id)
        {
            *wanted = Some(stop);
        }
        id
    }

    /// Runs a future in the background to its end, even if the call is abandoned.
    pub fn run(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        self.start(|completion| {
            runtime::background().spawn(async move { completion.complete(future.await) });
            None
        })
    }

    /// Runs a future in the background until the call is abandoned.
    pub fn watch(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        self.start(|completion| {
            let task = runtime::background().spawn(async move { completion.complete(future.await) });
            Some(Stop::Task(task.abort_handle()))
        })
    }

    /// Gives a call up and drops its result, wherever that is. Does nothing if the result was taken. True if the host
    /// was not notified of the result and never will be.
    pub fn abandon(&self, id: u64) -> bool {
        let (wanted, announced) = {
            let mut state = self.state.lock();
            (state.wanted.remove(&id), state.announced.remove(&id))
        };
        drop(announced);
        let unheard = wanted.is_some();
        if let Some(Some(stop)) = wanted {
            stop.stop();
            // The reactor drops the call in this run.
            #[cfg(target_os = "linux")]
            self.run_once();
        }
        unheard
    }

    /// Runs a future that waits for an event of this process, until the call is abandoned. It runs in the host's
    /// reactor if there is one, so that an event that arises there wakes no other thread; else in the background.
    pub fn listen(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        #[cfg(target_os = "linux")]
        if let Some(reactor) = &self.reactor {
            return self.start(|completion| {
                let (call, stop) = future::abortable(async move { completion.complete(future.await) });
                reactor.spawn(Box::pin(call.map(drop)));
                Some(Stop::Call(stop))
            });
        }
        self.watch(future)
    }

    /// Keeps the result of a call that ended at once as if it had been announced. Returns its number.
    pub fn keep(&self, result: T) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        state.announced.insert(id, result);
        id
    }

    /// Passes the calls that ended since the last time, oldest first, to `then`, under the lock.
    fn ended<R>(&self, then: impl FnOnce(&mut State<T>, Vec<(u64, T)>) -> R) -> R {
        #[cfg(target_os = "linux")]
        if let Some(reactor) = &self.reactor {
            self.draining.store(true, SeqCst);
            reactor.run_once();
            self.draining.store(false, SeqCst);
        }
        let mut state = self.state.lock();
        let done = std::mem::take(&mut state.done);
        let (wanted, abandoned): (Vec<_>, Vec<_>) =
            done.into_iter().partition(|(id, _)| state.wanted.remove(id).is_some());
        #[cfg(all(test, feature = "shuttle"))]
        if crate::faults::broken("two steps to announce a result") {
            drop(state);
            state = self.state.lock();
        }
        let seen_to = then(&mut state, wanted);
        drop(state);
        // Not under the lock: dropping a lease does work of its own.
        drop(abandoned);
        seen_to
    }

    /// Announces the calls that ended since the last time, oldest first. A result that its caller must take stays here
    /// until then.
    pub fn announce(&self) -> Vec<(u64, T::Taken)> {
        self.ended(|state, ended| {
            let told = ended.into_iter().map(|(id, result)| {
                let (told, rest) = result.tell();
                state.announced.extend(rest.map(|rest| (id, rest)));
                (id, told)
            });
            told.collect()
        })
    }

    /// Takes the result of a call that was announced or kept. If its grant was given back before, the call starts over
    /// and is announced again. `None` if the result was taken, if the call was given up, or if there is none.
    pub fn take(self: &Arc<Self>, id: u64) -> Option<Started<T::Taken>> {
        let result = self.state.lock().announced.remove(&id)?;
        Some(self.taken(id, result))
    }

    /// Takes the results that came since the last time, oldest first.
    pub fn drain(self: &Arc<Self>) -> Vec<(u64, T::Taken)> {
        let ended = self.ended(|_, ended| ended).into_iter();
        ended.filter_map(|(id, result)| Some((id, self.taken(id, result).done()?))).collect()
    }

    /// Takes a result, or starts its call over if the grant was given back.
    fn taken(self: &Arc<Self>, id: u64, result: T) -> Started<T::Taken> {
        match result.take() {
            Ok(taken) => Started::Done(taken),
            Err(further) => {
                self.resume_in_background(id, further);
                Started::Pending(id)
            }
        }
    }

    /// Continues a call in the background, under its number.
    fn resume_in_background(self: &Arc<Self>, id: u64, further: BoxFuture<T>) {
        let completion = Completion { queue: Arc::downgrade(self), id };
        let mut state = self.state.lock();
        // The result cannot arrive before the call is wanted again: that takes the lock.
        let task = runtime::background().spawn(async move { completion.complete(further.await) });
        state.wanted.insert(id, Some(Stop::Task(task.abort_handle())));
    }
}

impl<T: Entry> Drop for CompletionQueue<T> {
    fn drop(&mut self) {
        for stop in std::mem::take(&mut self.state.lock().wanted).into_values().flatten() {
            stop.stop();
        }
        #[cfg(target_os = "linux")]
        if let Some(reactor) = &self.reactor {
            reactor.close();
        }
    }
}

/// Waits for `future`, for `limit` at most: for hosts that wait with a time-out.
pub(crate) async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        None => Some(future.await),
        Some(limit) => timeout(limit, future).await.ok(),
    }
}

#[cfg(test)]
#[path = "../testing/completions.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
