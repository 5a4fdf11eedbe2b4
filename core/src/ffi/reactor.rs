//! Runs calls on the host's own threads and on connections that these threads own: no thread of the library is woken
//! between a request and its reply. The reactor's descriptor is readable whenever a call can continue. Its host then
//! calls [`Reactor::run_once`], from one of two places:
//!
//! - an event loop, for the calls that its own thread starts; or
//! - a dedicated thread, for the calls of all other threads.
//!
//! ```text
//! a call is started ─ends at its first poll─▶ done
//!                   ─must wait─▶ the next run polls it: at once and here if it is the only call, else with all others
//!                                that the event loop starts in its turn, or that the reactor's thread finds
//! a socket is ready, a timer fires, another thread wakes a call ─▶ descriptor readable ─▶ run
//! ```
//! The background runtime drives timers, subscriptions and everything that must continue without the host.

use std::{
    collections::HashMap,
    future::Future,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::{StreamExt, stream::FuturesUnordered, task::noop_waker_ref};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::{
    ffi::host_socket::{HostSocket, Readiness},
    process::{
        exit::{self, EndsWithProcess},
        host_io::{self, HostIo, Socket},
        runtime,
    },
    server::BoxFuture,
    sync::Mutex,
};

/// The most rounds of polling in one run. A task that still wakes itself then waits for the next run, since the host
/// has other work.
const MOST_ROUNDS: usize = 64;

/// The most rounds of polling in a run by a thread that only starts a call.
const FEW_ROUNDS: usize = 4;

/// The number of waiting calls from which on a write of their own pays off.
const WORTH_A_WRITE: usize = 16;

/// The calls and sockets of one event loop, or of one thread that polls the calls of all other threads.
pub struct Reactor {
    id: u64,
    /// True if a thread that lives as long as the process watches the descriptor; false for an event loop.
    has_thread: bool,
    tasks: Mutex<FuturesUnordered<BoxFuture<()>>>,
    /// Calls that were added since the last run, or during it.
    added: Mutex<Vec<BoxFuture<()>>>,
    calls: Arc<AtomicUsize>,
    signal: Arc<Signal>,
    waker: Waker,
    epoll: OwnedFd,
    sockets: Mutex<HashMap<u64, Arc<Readiness>>>,
    closed: AtomicBool,
}

/// Makes the descriptor readable when something is woken outside of a run.
struct Signal {
    event: OwnedFd,
    woken: AtomicBool,
    /// A run is under way, or sure to come.
    running: AtomicBool,
}

impl Signal {
    fn raise(&self) {
        // Fails only if it was signalled 2^64 times and never read.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, SeqCst) && !self.running.load(SeqCst) {
            self.raise();
        }
    }
}

/// The signal's key in epoll. Sockets have larger ones.
const SIGNAL: u64 = 0;

impl Reactor {
    /// Makes the reactor of an event loop. Fails if the process has no file descriptor left.
    pub fn of_event_loop() -> io::Result<Arc<Self>> {
        Self::new(false)
    }

    /// Makes the reactor of a thread that calls [`run_once`](Self::run_once) whenever the descriptor is readable, until
    /// the process ends. Any thread may start calls. Fails if the process has no file descriptor left.
    pub fn of_thread() -> io::Result<Arc<Self>> {
        Self::new(true)
    }

    fn new(has_thread: bool) -> io::Result<Arc<Self>> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge-triggered, so that it need not be read.
        epoll::add(&epoll, &event, epoll::EventData::new_u64(SIGNAL), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let signal = Arc::new(Signal { event, woken: AtomicBool::new(false), running: AtomicBool::new(false) });
        let reactor = Arc::new(Self {
            id: LAST.fetch_add(1, SeqCst),
            has_thread,
            tasks: Mutex::default(),
            added: Mutex::default(),
            calls: Arc::default(),
            waker: signal.clone().into(),
            signal,
            epoll,
            sockets: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let known: Weak<Self> = Arc::downgrade(&reactor);
        exit::register(known);
        Ok(reactor)
    }

    /// Unique within this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// True if a thread runs it until the process ends.
    pub(crate) fn has_thread(&self) -> bool {
        self.has_thread
    }

    /// The descriptor that the host watches for readability.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn make_readable(&self) {
        self.signal.raise();
    }

    /// Polls a call for the first time: it may end without waiting.
    pub(crate) fn poll_first<T>(self: &Arc<Self>, call: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        let _polling = PollingGuard::new(self);
        self.signal.running.store(true, SeqCst);
        let polled = call.poll(&mut Context::from_waker(noop_waker_ref()));
        self.signal.running.store(false, SeqCst);
        // If this call is pending, its next run polls what was woken meanwhile. Else the descriptor must report it.
        if polled.is_ready() && self.signal.woken.load(SeqCst) {
            self.signal.raise();
        }
        polled
    }

    /// Adds a call for the next run. True if the event loop should run now: if this is the only call, or if
    /// [`WORTH_A_WRITE`] calls wait, so that the server need not wait until the host has started all of them. With a
    /// reactor thread always false: this thread then polls an only call at once, unless another thread is running the
    /// reactor.
    pub(crate) fn add(self: &Arc<Self>, call: impl Future<Output = ()> + Send + 'static) -> bool {
        /// Counts a call while it lives.
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        let alone = self.calls.fetch_add(1, SeqCst) == 0;
        let counted = Counted(self.calls.clone());
        let waiting = self.enqueue(Box::pin(async move {
            let _counted = counted;
            call.await;
        }));
        if self.has_thread {
            if !alone || !self.try_run_once() {
                self.wake_thread();
            }
            return false;
        }
        alone || waiting >= WORTH_A_WRITE
    }

    /// Makes a short run, for a thread that has other work. False if another thread is running the reactor.
    pub(crate) fn try_run_once(self: &Arc<Self>) -> bool {
        let Some(mut tasks) = self.tasks.try_lock() else { return false };
        if self.run(&mut tasks, FEW_ROUNDS, Self::note_readiness) {
            // This run consumed the signal, which was for the reactor's thread: there may be results for it.
            self.signal.raise();
        }
        true
    }

    /// Makes the current run, or else the reactor's thread, poll the added calls.
    fn wake_thread(&self) {
        self.signal.woken.store(true, SeqCst);
        if !self.signal.running.load(SeqCst) {
            self.signal.raise();
        }
    }

    /// Adds a task for the next run. Returns how many tasks wait for that run.
    fn enqueue(&self, task: BoxFuture<()>) -> usize {
        let mut added = self.added.lock();
        if !self.closed.load(SeqCst) {
            added.push(task);
        }
        added.len()
    }

    /// Notes which sockets are ready, and polls every call that can continue.
    pub fn run_once(self: &Arc<Self>) {
        self.run(&mut self.tasks.lock(), MOST_ROUNDS, Self::note_readiness);
    }

    /// Polls the calls that were added or woken, without checking the sockets. Incoming data stays for the next run:
    /// the descriptor stays readable, and the host gets all results up to then together.
    pub(crate) fn send(self: &Arc<Self>) {
        self.run(&mut self.tasks.lock(), MOST_ROUNDS, |_| ());
    }

    /// Runs `read_events` first and returns its result. Then polls until no task is woken, for `most_rounds` at most.
    fn run<Read>(
        self: &Arc<Self>,
        tasks: &mut FuturesUnordered<BoxFuture<()>>,
        most_rounds: usize,
        read_events: impl FnOnce(&Self) -> Read,
    ) -> Read {
        let _polling = PollingGuard::new(self);
        self.signal.running.store(true, SeqCst);
        let read = read_events(self);
        let mut context = Context::from_waker(&self.waker);
        for round in 1.. {
            self.signal.woken.store(false, SeqCst);
            tasks.extend(self.added.lock().drain(..));
            while let Poll::Ready(Some(())) = tasks.poll_next_unpin(&mut context) {}
            if round < most_rounds && self.signal.woken.load(SeqCst) {
                continue;
            }
            self.signal.running.store(false, SeqCst);
            // Checked again: a wake-up before this relied on this run and raised no signal; a later one raises it.
            if !self.signal.woken.load(SeqCst) {
                break;
            }
            if round >= most_rounds {
                self.signal.raise();
                break;
            }
            self.signal.running.store(true, SeqCst);
        }
        read
    }

    /// Notes which sockets are ready. True if there was a signal, which this consumes.
    fn note_readiness(&self) -> bool {
        let mut signalled = false;
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 16];
        loop {
            let now = Timespec::default();
            let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else { return signalled };
            let count = ready.len();
            for event in ready {
                let key = event.data.u64();
                signalled |= key == SIGNAL;
                let socket = self.sockets.lock().get(&key).cloned();
                if let Some(socket) = socket {
                    socket.note(event.flags);
                }
            }
            if count < events.len() {
                return signalled;
            }
        }
    }

    /// Drops every call and connection, and those added later. Calls that must not be cut short continue in the
    /// background.
    pub(crate) fn close(self: &Arc<Self>) {
        let added = {
            let mut added = self.added.lock();
            self.closed.store(true, SeqCst);
            std::mem::take(&mut *added)
        };
        let tasks = std::mem::take(&mut *self.tasks.lock());
        if runtime::thread_has_ended() {
            // Dropping them needs this thread's local values, which are gone. The process is about to end.
            std::mem::forget((added, tasks));
            return;
        }
        let _polling = PollingGuard::new(self);
        drop((added, tasks));
    }
}

impl HostIo for Reactor {
    fn poll_sockets(&self) {
        // Raised again: the next run needs it.
        if self.note_readiness() {
            self.signal.raise();
        }
    }

    fn adopt(self: Arc<Self>, socket: OwnedFd) -> io::Result<Box<dyn Socket>> {
        static LAST: AtomicU64 = AtomicU64::new(SIGNAL);
        let key = LAST.fetch_add(1, SeqCst) + 1;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let ready = Arc::new(Readiness::default());
        self.sockets.lock().insert(key, ready.clone());
        let ours = Arc::downgrade(&self);
        let forget = move || {
            if let Some(reactor) = ours.upgrade() {
                reactor.sockets.lock().remove(&key);
            }
        };
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        let socket = HostSocket::new(socket, ready, forget);
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(key), wanted)?;
        Ok(Box::new(socket))
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.enqueue(task);
        self.signal.wake_by_ref();
    }
}

impl EndsWithProcess for Reactor {
    fn stop(self: Arc<Self>) {
        // A reactor thread runs it until the process ends.
        if !self.has_thread {
            self.close();
        }
    }
}

/// While it lives, this thread polls the reactor's calls, with the background runtime's timers.
struct PollingGuard<'a> {
    _host: host_io::CurrentGuard,
    _timers: tokio::runtime::EnterGuard<'a>,
}

impl PollingGuard<'_> {
    fn new(reactor: &Arc<Reactor>) -> Self {
        Self { _host: host_io::set_current(reactor.clone()), _timers: runtime::enter_background() }
    }
}

#[cfg(test)]
#[path = "../testing/reactor.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
