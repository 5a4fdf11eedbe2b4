//! Calls that the host's own threads send and poll, on a connection that they own: no thread of the library is woken
//! between a call and its reply. One descriptor is readable whenever there is something to go on with, and whoever
//! watches it calls [`Reactor::run_once`]:
//!
//! - an event loop, for the calls that its own thread makes; or
//! - a thread that does little else, for the calls of all others.
//!
//! ```text
//! a call is started ─decided at once─▶ done
//!                   ─has to wait─▶ the next run polls it: at once and here if it is alone, else with all others that
//!                                  the event loop starts in its turn, or that the reactor's thread finds
//! a socket is ready, a timer is over, another thread wakes a call ─▶ readable ─▶ run
//! ```
//! Timers, subscriptions and whatever must go on without the host stay with the background runtime.

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

/// A task that wakes itself so often in a run waits for the next: the host has other things to do.
const MOST_ROUNDS: usize = 64;

/// How often a thread that only starts a call goes on with what was woken by that.
const FEW_ROUNDS: usize = 4;

/// How many requests are worth a write of their own.
const WORTH_A_WRITE: usize = 16;

/// The calls of one event loop, or of all threads that leave theirs to one of them, and their sockets.
pub struct Reactor {
    id: u64,
    /// A thread that ends with the process waits for the descriptor; not an event loop.
    has_thread: bool,
    tasks: Mutex<FuturesUnordered<BoxFuture<()>>>,
    /// What was added since the last run, or in it.
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

/// The signal's key among those of sockets.
const SIGNAL: u64 = 0;

impl Reactor {
    /// That of an event loop. Fails when the process has no descriptor left.
    pub fn of_event_loop() -> io::Result<Arc<Self>> {
        Self::new(false)
    }

    /// That of a thread, which calls [`run_once`](Self::run_once) whenever the descriptor is readable, to the end of the
    /// process; any thread may start calls. Fails when the process has no descriptor left.
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

    /// Whether a thread runs it that ends with the process.
    pub(crate) fn has_thread(&self) -> bool {
        self.has_thread
    }

    /// What the host watches for readability.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn make_readable(&self) {
        self.signal.raise();
    }

    /// Polls a call for the first time: it may need nothing that has to be waited for.
    pub(crate) fn poll_first<T>(self: &Arc<Self>, call: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        let _here = Here::enter(self);
        self.signal.running.store(true, SeqCst);
        let polled = call.poll(&mut Context::from_waker(noop_waker_ref()));
        self.signal.running.store(false, SeqCst);
        // What was woken meanwhile goes on when this call does.
        if polled.is_ready() && self.signal.woken.load(SeqCst) {
            self.signal.raise();
        }
        polled
    }

    /// Takes in a call, for the next run. Says whether an event loop should run now: for a call that is alone, and for as
    /// many as are worth a write, so that the server need not wait for the host to start all others. Where there is a
    /// thread, a call that is alone was run when this returns.
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

    /// A short run by a thread that has other things to do; false if another thread is at it.
    pub(crate) fn try_run_once(self: &Arc<Self>) -> bool {
        let Some(mut tasks) = self.tasks.try_lock() else { return false };
        if self.run(&mut tasks, FEW_ROUNDS, Self::note_readiness) {
            // It was for the reactor's thread, for which there may be results.
            self.signal.raise();
        }
        true
    }

    /// Has whoever is at it, or else the reactor's thread, see to what was added.
    fn wake_thread(&self) {
        self.signal.woken.store(true, SeqCst);
        if !self.signal.running.load(SeqCst) {
            self.signal.raise();
        }
    }

    /// Says how many wait for the next run.
    fn enqueue(&self, task: BoxFuture<()>) -> usize {
        let mut added = self.added.lock();
        if !self.closed.load(SeqCst) {
            added.push(task);
        }
        added.len()
    }

    /// Goes on with everything that can go on.
    pub fn run_once(self: &Arc<Self>) {
        self.run(&mut self.tasks.lock(), MOST_ROUNDS, Self::note_readiness);
    }

    /// Goes on with what was added and woken. What came in stays for the next run: the descriptor tells of it, and the
    /// results of all that came until then are handed over together.
    pub(crate) fn send(self: &Arc<Self>) {
        self.run(&mut self.tasks.lock(), MOST_ROUNDS, |_| ());
    }

    /// Looks first, and says what was seen.
    fn run<Seen>(
        self: &Arc<Self>,
        tasks: &mut FuturesUnordered<BoxFuture<()>>,
        most_rounds: usize,
        look: impl FnOnce(&Self) -> Seen,
    ) -> Seen {
        let _here = Here::enter(self);
        self.signal.running.store(true, SeqCst);
        let seen = look(self);
        let mut context = Context::from_waker(&self.waker);
        for round in 1.. {
            self.signal.woken.store(false, SeqCst);
            tasks.extend(self.added.lock().drain(..));
            while let Poll::Ready(Some(())) = tasks.poll_next_unpin(&mut context) {}
            if round < most_rounds && self.signal.woken.load(SeqCst) {
                continue;
            }
            self.signal.running.store(false, SeqCst);
            // Checked again, since whoever wakes from now on signals, and whoever did before relied on this run.
            if !self.signal.woken.load(SeqCst) {
                break;
            }
            if round >= most_rounds {
                self.signal.raise();
                break;
            }
            self.signal.running.store(true, SeqCst);
        }
        seen
    }

    /// Notes which sockets are ready; says whether there was a signal, which is taken.
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

    /// Drops every call and connection, now and from now on. What must not be cut short goes on in the background.
    pub(crate) fn close(self: &Arc<Self>) {
        let added = {
            let mut added = self.added.lock();
            self.closed.store(true, SeqCst);
            std::mem::take(&mut *added)
        };
        let tasks = std::mem::take(&mut *self.tasks.lock());
        if runtime::thread_has_ended() {
            // The end of the process ends them.
            std::mem::forget((added, tasks));
            return;
        }
        let _here = Here::enter(self);
        drop((added, tasks));
    }
}

impl HostIo for Reactor {
    fn poll_sockets(&self) {
        // A signal stays for the next run.
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
        // A thread runs it to the end of the process.
        if !self.has_thread {
            self.close();
        }
    }
}

/// While it lives, this thread polls these calls, with the background runtime's timers.
struct Here<'a> {
    _host: host_io::Entered,
    _timers: tokio::runtime::EnterGuard<'a>,
}

impl Here<'_> {
    fn enter(reactor: &Arc<Reactor>) -> Self {
        Self { _host: host_io::enter(reactor.clone()), _timers: runtime::enter() }
    }
}

#[cfg(test)]
#[path = "../testing/reactor.rs"]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests;
