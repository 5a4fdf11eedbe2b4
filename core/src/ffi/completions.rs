//! The queue of results from the library's threads to a host. No code of the host runs on the library's threads: a
//! finished call is queued as `(id, result)`, and the host is woken once to drain the queue, however many results are
//! in it. An event loop calls `drain`, which takes the results. Where one thread of the host fetches the results of all its
//! threads, it calls `announce`, and the thread that made a call calls `take` for its grant.
//!
//! ```text
//! complete: started ──▶ queued
//! drain:    queued ──▶ taken
//! announce: queued ──▶ announced, or taken if its caller need not take anything
//! take:     announced ──▶ taken
//! abandon:  started ──▶ stopped, or runs on and its result is dropped; queued, announced ──▶ dropped
//! ```
//! `drain` and `take` start a call over if its grant was given back before they could take it. Dropping the queue drops
//! all results in it; dropping a result that holds a lease releases the lock.

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
    type HostValue: Send;

    /// Called when it is queued. It may stay queued for long, since the host's event loop may be blocked.
    fn queued(&self) {}

    /// Splits it into the value that is announced to the host, and the part that its caller must still take, if any.
    fn announcement(self) -> (Self::HostValue, Option<Self>);

    /// Hands it to the host. If its grant was given back before, returns the call that starts over.
    fn take(self) -> Result<Self::HostValue, BoxFuture<Self>>;
}

/// The calls of one host, and their results.
pub struct CompletionQueue<T: Entry> {
    state: Mutex<State<T>>,
    wake: Box<dyn Fn() + Send + Sync>,
    #[cfg(target_os = "linux")]
    reactor: Option<Arc<Reactor>>,
    /// True while the host runs its reactor in order to drain right afterwards: it needs no wake-up then.
    will_drain: AtomicBool,
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
    /// Runs the call in the background.
    fn follow(self, call: impl Future<Output = T> + Send + 'static) -> AbortHandle {
        runtime::spawn(async move { self.complete(call.await) }).abort_handle()
    }

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
        if first && !queue.will_drain.load(SeqCst) {
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
            will_drain: AtomicBool::new(false),
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
            will_drain: AtomicBool::new(false),
        })
    }

    /// The reactor of its host, if it has one.
    #[cfg(target_os = "linux")]
    pub fn reactor(&self) -> Option<&Arc<Reactor>> {
        self.reactor.as_ref()
    }

    /// Starts a call in the host's reactor. `abandon` stops it. Returns the result if the call ends at its first poll.
    #[cfg(target_os = "linux")]
    pub fn start_in_reactor(
        self: &Arc<Self>,
        reactor: &Arc<Reactor>,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Started<T> {
        let mut future = Box::pin(future);
        if let Poll::Ready(result) = reactor.poll_first(future.as_mut()) {
            return Started::Done(result);
        }
        let mut run_at_once = false;
        let id = self.start(|completion| {
            let (call, stop) = future::abortable(async move { completion.complete(future.await) });
            run_at_once = reactor.add(call.map(drop));
            Some(Stop::Call(stop))
        });
        if run_at_once {
            self.run_reactor();
        }
        Started::Pending(id)
    }

    /// Runs the host's reactor once, so that it sends the waiting requests. Calls that end in this run stay queued
    /// until `drain` or `announce`.
    #[cfg(target_os = "linux")]
    pub fn run_reactor(&self) {
        let Some(reactor) = &self.reactor else { return };
        if reactor.has_thread() {
            reactor.try_run_once();
            return;
        }
        reactor.send();
        // A call may have ended in `send`, without incoming data: then the descriptor does not wake the host.
        if !self.state.lock().done.is_empty() {
            (self.wake)();
        }
    }

    /// Starts a call and returns its number. `start` gets the place for the result. It returns how `abandon` stops the
    /// call, or `None` if the call runs to its end.
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

    /// Starts a call in the background. It runs to its end: `abandon` drops only its result.
    pub fn start_unstoppable(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        self.start(|completion| {
            completion.follow(future);
            None
        })
    }

    /// Starts a call in the background. `abandon` stops it.
    pub fn start_stoppable(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        self.start(|completion| Some(Stop::Task(completion.follow(future))))
    }

    /// Gives a call up, and drops its result if that is queued or announced. Does nothing if the result was taken. True
    /// if the host has not received the result and never will.
    pub fn abandon(&self, id: u64) -> bool {
        let (wanted, announced) = {
            let mut state = self.state.lock();
            (state.wanted.remove(&id), state.announced.remove(&id))
        };
        drop(announced);
        let was_pending = wanted.is_some();
        if let Some(Some(stop)) = wanted {
            stop.stop();
            // A stopped call is dropped at its next poll, which this run makes.
            #[cfg(target_os = "linux")]
            self.run_reactor();
        }
        was_pending
    }

    /// Starts a call that waits for an event of this process. `abandon` stops it. It runs in the host's reactor if
    /// there is one, so that an event that arises there wakes no other thread; else in the background.
    pub fn start_waiting(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        #[cfg(target_os = "linux")]
        if let Some(reactor) = &self.reactor {
            return self.start(|completion| {
                let (call, stop) = future::abortable(async move { completion.complete(future.await) });
                reactor.spawn(Box::pin(call.map(drop)));
                Some(Stop::Call(stop))
            });
        }
        self.start_stoppable(future)
    }

    /// Adds the result of a call that ended at once, as an announced one. Returns its number, for `take`.
    pub fn add_announced(&self, result: T) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        state.announced.insert(id, result);
        id
    }

    /// Runs the reactor, then passes the calls that ended since the last time to `handle`, oldest first. `handle` runs
    /// under the lock: `abandon` finds a call in `wanted` or, once it is announced, in `announced`. Abandoned calls are
    /// left out.
    fn with_ended<R>(&self, handle: impl FnOnce(&mut State<T>, Vec<(u64, T)>) -> R) -> R {
        #[cfg(target_os = "linux")]
        if let Some(reactor) = &self.reactor {
            self.will_drain.store(true, SeqCst);
            reactor.run_once();
            self.will_drain.store(false, SeqCst);
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
        let result = handle(&mut state, wanted);
        drop(state);
        // Not under the lock: dropping a lease does work of its own.
        drop(abandoned);
        result
    }

    /// Announces the calls that ended since the last time, oldest first. A result that its caller must take stays here
    /// until then.
    pub fn announce(&self) -> Vec<(u64, T::HostValue)> {
        self.with_ended(|state, ended| {
            let announcements = ended.into_iter().map(|(id, result)| {
                let (value, rest) = result.announcement();
                state.announced.extend(rest.map(|rest| (id, rest)));
                (id, value)
            });
            announcements.collect()
        })
    }

    /// Takes the result of a call that was announced or kept. If its grant was given back before, the call starts over
    /// and is announced again. `None` if the result was taken, if the call was given up, or if there is none.
    pub fn take(self: &Arc<Self>, id: u64) -> Option<Started<T::HostValue>> {
        let result = self.state.lock().announced.remove(&id)?;
        Some(self.take_or_restart(id, result))
    }

    /// Takes the results that came since the last time, oldest first.
    pub fn drain(self: &Arc<Self>) -> Vec<(u64, T::HostValue)> {
        let ended = self.with_ended(|_, ended| ended).into_iter();
        ended.filter_map(|(id, result)| Some((id, self.take_or_restart(id, result).done()?))).collect()
    }

    /// Takes a result for the host, or starts its call over if the grant was given back.
    fn take_or_restart(self: &Arc<Self>, id: u64, result: T) -> Started<T::HostValue> {
        match result.take() {
            Ok(taken) => Started::Done(taken),
            Err(restarted) => {
                self.resume_in_background(id, restarted);
                Started::Pending(id)
            }
        }
    }

    /// Continues a call in the background, under its number. `abandon` stops it.
    fn resume_in_background(self: &Arc<Self>, id: u64, restarted: BoxFuture<T>) {
        let completion = Completion { queue: Arc::downgrade(self), id };
        let mut state = self.state.lock();
        // `complete` needs the lock, so the result cannot be queued before the call is in `wanted`.
        state.wanted.insert(id, Some(Stop::Task(completion.follow(restarted))));
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

/// Waits for `future`, for `limit` at most; then returns `None`. Without a limit waits until it is done.
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
