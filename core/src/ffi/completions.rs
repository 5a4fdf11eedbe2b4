//! From the library's threads to a host's event loop. Foreign code never runs on the library's threads: a finished call
//! goes as `(id, result)` into a queue, and the host is woken once to drain it, however many results wait there.
//!
//! ```text
//! started ─result─▶ queued ─drain─▶ the host's
//! started ─abandon─▶ aborted         queued ─abandon, or the bridge is dropped─▶ dropped
//! ```
//! A result that nobody drains is dropped here. For a lease that means: released. One that is drained too late, when it
//! was given back meanwhile, is no result: its call goes on.

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

use crate::sync::Mutex;
use tokio::{task::AbortHandle, time::timeout};

#[cfg(target_os = "linux")]
use crate::{ffi::reactor::Turns, process::host_io::HostIo};
use crate::{process::runtime, server::BoxFuture};

/// The end of a call, as it waits in the queue.
pub trait Entry: Sized + Send + 'static {
    /// What the host gets of it.
    type Taken: Send;

    /// It goes into the queue, where it may wait for long: its host's event loop may stand still.
    fn queued(&self) {}

    /// The host takes it; or it came too late for that, and the call goes on.
    fn take(self) -> Result<Self::Taken, BoxFuture<Self>>;
}

/// The calls of one event loop, and their results.
pub struct Bridge<T: Entry> {
    state: Mutex<State<T>>,
    wake: Box<dyn Fn() + Send + Sync>,
    #[cfg(target_os = "linux")]
    turns: Option<Arc<Turns>>,
    /// The host takes the results right after this turn.
    draining: AtomicBool,
}

/// A call that began.
#[derive(Debug)]
pub enum Begun<T> {
    /// It ended at once.
    Done(T),
    /// Its result comes out of the queue under this number.
    Pending(u64),
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
    /// The results of calls that ended at once, for hosts that get them one by one.
    kept: HashMap<u64, T::Taken>,
}

impl<T: Entry> State<T> {
    fn new() -> Self {
        Self { last: 0, wanted: HashMap::new(), done: Vec::new(), kept: HashMap::new() }
    }
}

/// Where one call leaves its result.
pub struct Deliver<T: Entry> {
    bridge: Weak<Bridge<T>>,
    id: u64,
}

impl<T: Entry> Deliver<T> {
    /// Queues the result and wakes the host, unless an earlier result already did.
    pub fn send(self, result: T) {
        let Some(bridge) = self.bridge.upgrade() else { return };
        result.queued();
        #[cfg(all(test, feature = "shuttle"))]
        if crate::faults::broken("two steps to queue a result") {
            let first = bridge.state.lock().done.is_empty();
            bridge.state.lock().done.push((self.id, result));
            if first {
                (bridge.wake)();
            }
            return;
        }
        let first = {
            let mut state = bridge.state.lock();
            state.done.push((self.id, result));
            state.done.len() == 1
        };
        if first && !bridge.draining.load(SeqCst) {
            (bridge.wake)();
        }
    }
}

impl<T: Entry> Bridge<T> {
    /// A bridge that calls `wake` when the host should drain it. `wake` runs on the library's threads: it must return
    /// at once and run nothing of the host's.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new()),
            wake: Box::new(wake),
            #[cfg(target_os = "linux")]
            turns: None,
            draining: AtomicBool::new(false),
        })
    }

    /// A bridge for a host that takes `turns` on threads of its own.
    #[cfg(target_os = "linux")]
    pub fn hosted(turns: Arc<Turns>) -> Arc<Self> {
        let woken = turns.clone();
        Arc::new(Self {
            state: Mutex::new(State::new()),
            wake: Box::new(move || woken.signal()),
            turns: Some(turns),
            draining: AtomicBool::new(false),
        })
    }

    /// The turns of its host, if it takes them.
    #[cfg(target_os = "linux")]
    pub fn turns(&self) -> Option<&Arc<Turns>> {
        self.turns.as_ref()
    }

    /// Runs a future in the host's turns, from now on. It is dropped when the call is abandoned.
    #[cfg(target_os = "linux")]
    pub fn begin(
        self: &Arc<Self>,
        turns: &Arc<Turns>,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Begun<T::Taken> {
        let mut future = Box::pin(future);
        if let Poll::Ready(result) = turns.first(future.as_mut()) {
            return match result.take() {
                Ok(taken) => Begun::Done(taken),
                Err(further) => Begun::Pending(self.watch(further)),
            };
        }
        let mut now = false;
        let id = self.start(|deliver| {
            let (call, stop) = future::abortable(async move { deliver.send(future.await) });
            now = turns.begin(call.map(drop));
            Some(Stop::Call(stop))
        });
        if now {
            self.turn();
        }
        Begun::Pending(id)
    }

    /// Goes on with what the host's turns run. Results still come out of `drain`.
    #[cfg(target_os = "linux")]
    pub fn turn(&self) {
        let Some(turns) = &self.turns else { return };
        if turns.is_attended() {
            turns.help();
            return;
        }
        turns.turn();
        // The turn took the signal of results that came meanwhile.
        if !self.state.lock().done.is_empty() {
            (self.wake)();
        }
    }

    /// Starts a call: `begin` gets the place for its result and may return how to stop it.
    pub(crate) fn start(self: &Arc<Self>, begin: impl FnOnce(Deliver<T>) -> Option<Stop>) -> u64 {
        let id = {
            let mut state = self.state.lock();
            state.last += 1;
            let id = state.last;
            state.wanted.insert(id, None);
            id
        };
        if let Some(handle) = begin(Deliver { bridge: Arc::downgrade(self), id })
            && let Some(wanted) = self.state.lock().wanted.get_mut(&id)
        {
            *wanted = Some(handle);
        }
        id
    }

    /// Runs a future in the background to its end, even if the call is abandoned.
    pub fn run(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        self.start(|deliver| {
            runtime::background().spawn(async move { deliver.send(future.await) });
            None
        })
    }

    /// Runs a future in the background until the call is abandoned.
    pub fn watch(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        self.start(|deliver| {
            let task = runtime::background().spawn(async move { deliver.send(future.await) });
            Some(Stop::Task(task.abort_handle()))
        })
    }

    /// Gives a call up: its result is dropped, wherever it is. Does nothing for one that was drained; says whether it
    /// was not, so that nothing more comes of it.
    pub fn abandon(&self, id: u64) -> bool {
        let wanted = self.state.lock().wanted.remove(&id);
        let given_up = wanted.is_some();
        if let Some(Some(stop)) = wanted {
            stop.stop();
            // In which it is dropped.
            #[cfg(target_os = "linux")]
            self.turn();
        }
        given_up
    }

    /// Waits for something that happens in this process until the call is abandoned: in the host's turns if it takes them,
    /// so that no other thread is woken for what those bring about, else in the background.
    pub fn listen(self: &Arc<Self>, future: impl Future<Output = T> + Send + 'static) -> u64 {
        #[cfg(target_os = "linux")]
        if let Some(turns) = &self.turns {
            return self.start(|deliver| {
                let (call, stop) = future::abortable(async move { deliver.send(future.await) });
                turns.spawn(Box::pin(call.map(drop)));
                Some(Stop::Call(stop))
            });
        }
        self.watch(future)
    }

    /// Keeps the result of a call that ended at once; says under which number.
    pub fn keep(&self, result: T::Taken) -> u64 {
        let mut state = self.state.lock();
        state.last += 1;
        let id = state.last;
        state.kept.insert(id, result);
        id
    }

    /// Takes what is kept under a number.
    pub fn take(&self, id: u64) -> Option<T::Taken> {
        self.state.lock().kept.remove(&id)
    }

    /// Takes the results that came since the last time, oldest first.
    pub fn drain(self: &Arc<Self>) -> Vec<(u64, T::Taken)> {
        #[cfg(target_os = "linux")]
        if let Some(turns) = &self.turns {
            self.draining.store(true, SeqCst);
            turns.turn();
            self.draining.store(false, SeqCst);
        }
        let (wanted, abandoned): (Vec<_>, Vec<_>) = {
            let mut state = self.state.lock();
            let done = std::mem::take(&mut state.done);
            done.into_iter().partition(|(id, _)| state.wanted.remove(id).is_some())
        };
        // Dropping a lease does work of its own: not under the lock.
        drop(abandoned);
        let mut taken = Vec::with_capacity(wanted.len());
        for (id, result) in wanted {
            match result.take() {
                Ok(result) => taken.push((id, result)),
                Err(further) => self.go_on(id, further),
            }
        }
        taken
    }

    /// Goes on with a call in the background, under its number.
    fn go_on(self: &Arc<Self>, id: u64, further: BoxFuture<T>) {
        let deliver = Deliver { bridge: Arc::downgrade(self), id };
        let mut state = self.state.lock();
        // Its result cannot come before it is wanted again: that takes the lock.
        let task = runtime::background().spawn(async move { deliver.send(further.await) });
        state.wanted.insert(id, Some(Stop::Task(task.abort_handle())));
    }
}

impl<T: Entry> Drop for Bridge<T> {
    fn drop(&mut self) {
        for stop in std::mem::take(&mut self.state.lock().wanted).into_values().flatten() {
            stop.stop();
        }
        #[cfg(target_os = "linux")]
        if let Some(turns) = &self.turns {
            turns.close();
        }
    }
}

/// Waits for `future`, but no longer than `limit`: for hosts that wait with a time-out.
pub async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Option<T> {
    match limit {
        None => Some(future.await),
        Some(limit) => timeout(limit, future).await.ok(),
    }
}

/// A result that is taken as it is.
#[cfg(test)]
pub(crate) struct Plain<T>(pub(crate) T);

#[cfg(test)]
impl<T: Send + 'static> Entry for Plain<T> {
    type Taken = T;

    fn take(self) -> Result<T, BoxFuture<Self>> {
        Ok(self.0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    };

    use super::*;

    fn bridge<T: Send + 'static>() -> (Arc<Bridge<Plain<T>>>, mpsc::Receiver<()>) {
        let (wake, woken) = mpsc::channel();
        (Bridge::new(move || wake.send(()).unwrap()), woken)
    }

    /// Counts its drops.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn deliver<T: Send + 'static>(bridge: &Arc<Bridge<Plain<T>>>) -> (u64, Deliver<Plain<T>>) {
        let mut place = None;
        let id = bridge.start(|deliver| {
            place = Some(deliver);
            None
        });
        (id, place.unwrap())
    }

    #[test]
    fn wakes_once_for_many_results() {
        let (bridge, woken) = bridge();
        let (first, second) = (deliver(&bridge), deliver(&bridge));
        first.1.send(Plain("a"));
        second.1.send(Plain("b"));
        assert!(woken.try_recv().is_ok() && woken.try_recv().is_err());
        assert_eq!(bridge.drain(), [(first.0, "a"), (second.0, "b")]);
        assert!(bridge.drain().is_empty());
        let third = deliver(&bridge);
        third.1.send(Plain("c"));
        assert!(woken.try_recv().is_ok());
        assert_eq!(bridge.drain(), [(third.0, "c")]);
        assert!(!bridge.abandon(third.0));
    }

    #[test]
    fn results_come_from_the_background() {
        let (bridge, woken) = bridge();
        let id = bridge.run(async { Plain(7) });
        woken.recv().unwrap();
        assert_eq!(bridge.drain(), [(id, 7)]);
    }

    #[test]
    fn abandoned_results_are_dropped_before_and_after_they_are_queued() {
        let (bridge, _woken) = bridge();
        let dropped = Arc::new(AtomicUsize::new(0));
        let (early, late) = (deliver(&bridge), deliver(&bridge));
        assert!(bridge.abandon(early.0));
        early.1.send(Plain(Counted(dropped.clone())));
        late.1.send(Plain(Counted(dropped.clone())));
        assert!(bridge.abandon(late.0));
        assert!(bridge.drain().is_empty());
        assert_eq!(dropped.load(SeqCst), 2);
    }

    #[test]
    fn an_abandoned_call_stops_unless_it_must_finish() {
        let (bridge, woken) = bridge::<()>();
        let (signal, dropped) = mpsc::channel::<()>();
        let watched = bridge.watch(async move {
            let _signal = signal;
            std::future::pending::<()>().await;
            Plain(())
        });
        let (finish, finished) = mpsc::channel();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let running = bridge.run(async move {
            let _ = gone.await;
            finish.send(()).unwrap();
            Plain(())
        });
        bridge.abandon(watched);
        bridge.abandon(running);
        assert!(dropped.recv().is_err());
        go.send(()).unwrap();
        finished.recv().unwrap();
        woken.recv().unwrap();
        assert!(bridge.drain().is_empty());
    }

    #[test]
    fn a_dropped_bridge_drops_everything() {
        let (bridge, _woken) = bridge();
        let dropped = Arc::new(AtomicUsize::new(0));
        let (queued, pending) = (deliver(&bridge), deliver(&bridge));
        queued.1.send(Plain(Counted(dropped.clone())));
        let (signal, ended) = mpsc::channel::<()>();
        bridge.watch(async move {
            let _signal = signal;
            std::future::pending::<Plain<Counted>>().await
        });
        drop(bridge);
        pending.1.send(Plain(Counted(dropped.clone())));
        assert_eq!(dropped.load(SeqCst), 2);
        assert!(ended.recv().is_err());
    }
}
