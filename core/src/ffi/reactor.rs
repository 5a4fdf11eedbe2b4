//! Calls that the host's own threads send and poll, on a connection that they own: no thread of the library is woken
//! between a call and its reply. One descriptor is readable whenever there is something to go on with, and whoever
//! watches it calls [`Turns::turn`]:
//!
//! - an event loop, for the calls that its own thread makes; or
//! - an attendant, a thread that does little else, for the calls of all others.
//!
//! ```text
//! a call begins ─decided at once─▶ done
//!               ─has to wait─▶ the next turn polls it: at once and here if it is alone, else with all others that
//!                              the event loop makes in its turn, or that the attendant finds
//! a socket is ready, a timer is over, another thread wakes a call ─▶ readable ─▶ turn
//! ```
//! Timers, subscriptions and whatever must go on without the host stay with the background runtime.

use std::{
    collections::HashMap,
    future::Future,
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker, ready},
};

use futures_util::{
    StreamExt,
    stream::FuturesUnordered,
    task::{AtomicWaker, noop_waker_ref},
};
use rustix::{
    event::{EventfdFlags, Timespec, epoll, eventfd},
    net::{RecvFlags, SendFlags, recv, send},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::{
    process::{
        exit::{self, EndsWithProcess},
        host_io::{self, HostIo, Socket},
        runtime,
    },
    server::BoxFuture,
    sync::Mutex,
};

/// A task that wakes itself so often in a turn waits for the next: the host has other things to do.
const MOST_ROUNDS: usize = 64;

/// How often a thread that only begins a call goes on with what was woken by that.
const FEW_ROUNDS: usize = 4;

/// How many requests are worth a write of their own.
const WORTH_A_WRITE: usize = 16;

/// The calls of one event loop, or of the threads that share an attendant, and their sockets.
pub struct Turns {
    id: u64,
    attended: bool,
    tasks: Mutex<FuturesUnordered<BoxFuture<()>>>,
    /// What began since the last turn, or in it.
    begun: Mutex<Vec<BoxFuture<()>>>,
    calls: Arc<AtomicUsize>,
    nudge: Arc<Nudge>,
    waker: Waker,
    epoll: OwnedFd,
    sockets: Mutex<HashMap<u64, Arc<Readiness>>>,
    closed: AtomicBool,
}

/// Makes the descriptor readable when something is woken outside of a turn.
struct Nudge {
    event: OwnedFd,
    woken: AtomicBool,
    /// A turn is under way, or sure to come.
    attended: AtomicBool,
}

impl Nudge {
    fn signal(&self) {
        // Fails only if it was signalled 2^64 times and never read.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, SeqCst) && !self.attended.load(SeqCst) {
            self.signal();
        }
    }
}

/// The nudge's key among those of sockets.
const NUDGE: u64 = 0;

impl Turns {
    /// Those of an event loop. Fails when the process has no descriptor left.
    pub fn of_event_loop() -> io::Result<Arc<Self>> {
        Self::new(false)
    }

    /// Those that a thread attends to, which calls [`turn`](Self::turn) whenever the descriptor is readable, to the end
    /// of the process; any thread may begin calls. Fails when the process has no descriptor left.
    pub fn attended() -> io::Result<Arc<Self>> {
        Self::new(true)
    }

    fn new(attended: bool) -> io::Result<Arc<Self>> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge-triggered, so that it need not be read.
        epoll::add(&epoll, &event, epoll::EventData::new_u64(NUDGE), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let nudge = Arc::new(Nudge { event, woken: AtomicBool::new(false), attended: AtomicBool::new(false) });
        let turns = Arc::new(Self {
            id: LAST.fetch_add(1, SeqCst),
            attended,
            tasks: Mutex::default(),
            begun: Mutex::default(),
            calls: Arc::default(),
            waker: nudge.clone().into(),
            nudge,
            epoll,
            sockets: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        let known: Weak<Self> = Arc::downgrade(&turns);
        exit::register(known);
        Ok(turns)
    }

    /// Unique within this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether a thread attends to it that ends with the process.
    pub(crate) fn is_attended(&self) -> bool {
        self.attended
    }

    /// What the host watches for readability.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Makes the descriptor readable.
    pub(crate) fn signal(&self) {
        self.nudge.signal();
    }

    /// Polls a call for the first time: it may need nothing that has to be waited for.
    pub(crate) fn first<T>(self: &Arc<Self>, call: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        let _here = Here::enter(self);
        self.nudge.attended.store(true, SeqCst);
        let polled = call.poll(&mut Context::from_waker(noop_waker_ref()));
        self.nudge.attended.store(false, SeqCst);
        // What was woken meanwhile has its turn when this call has.
        if polled.is_ready() && self.nudge.woken.load(SeqCst) {
            self.signal();
        }
        polled
    }

    /// Takes in a call, for the next turn. Says whether an event loop should make that now: for a call that is alone,
    /// and for as many as are worth a write, so that the server need not wait for the host to begin all others. Beside an
    /// attendant, a call that is alone had its turn when this returns.
    pub(crate) fn begin(self: &Arc<Self>, call: impl Future<Output = ()> + Send + 'static) -> bool {
        /// Counts a call while it lives.
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_sub(1, SeqCst);
            }
        }
        let alone = self.calls.fetch_add(1, SeqCst) == 0;
        let counted = Counted(self.calls.clone());
        let waiting = self.add(Box::pin(async move {
            let _counted = counted;
            call.await;
        }));
        if self.attended {
            if !alone || !self.help() {
                self.call_attendant();
            }
            return false;
        }
        alone || waiting >= WORTH_A_WRITE
    }

    /// A short turn by a thread that has other things to do; false if another thread is at it.
    pub(crate) fn help(self: &Arc<Self>) -> bool {
        let Some(mut tasks) = self.tasks.try_lock() else { return false };
        if self.go_on(&mut tasks, FEW_ROUNDS) {
            // It was for the attendant, for whom there may be results.
            self.signal();
        }
        true
    }

    /// Has whoever is at it, or else the attendant, see to what began.
    fn call_attendant(&self) {
        self.nudge.woken.store(true, SeqCst);
        if !self.nudge.attended.load(SeqCst) {
            self.signal();
        }
    }

    /// Says how many wait for the next turn.
    fn add(&self, task: BoxFuture<()>) -> usize {
        let mut begun = self.begun.lock();
        if !self.closed.load(SeqCst) {
            begun.push(task);
        }
        begun.len()
    }

    /// Goes on with everything that can go on.
    pub fn turn(self: &Arc<Self>) {
        self.go_on(&mut self.tasks.lock(), MOST_ROUNDS);
    }

    /// Says whether it took a signal.
    fn go_on(self: &Arc<Self>, tasks: &mut FuturesUnordered<BoxFuture<()>>, most_rounds: usize) -> bool {
        let _here = Here::enter(self);
        self.nudge.attended.store(true, SeqCst);
        let signalled = self.look();
        let mut context = Context::from_waker(&self.waker);
        for round in 1.. {
            self.nudge.woken.store(false, SeqCst);
            tasks.extend(self.begun.lock().drain(..));
            while let Poll::Ready(Some(())) = tasks.poll_next_unpin(&mut context) {}
            if round < most_rounds && self.nudge.woken.load(SeqCst) {
                continue;
            }
            self.nudge.attended.store(false, SeqCst);
            // Checked again, since whoever wakes from now on signals, and whoever did before relied on this turn.
            if !self.nudge.woken.load(SeqCst) {
                break;
            }
            if round >= most_rounds {
                self.signal();
                break;
            }
            self.nudge.attended.store(true, SeqCst);
        }
        signalled
    }

    /// Notes which sockets are ready; says whether there was a signal, which is taken.
    fn look(&self) -> bool {
        let mut signalled = false;
        let mut events = [const { std::mem::MaybeUninit::<epoll::Event>::uninit() }; 16];
        loop {
            let now = Timespec::default();
            let Ok((ready, _)) = epoll::wait(&self.epoll, &mut events, Some(&now)) else { return signalled };
            let count = ready.len();
            for event in ready {
                let key = event.data.u64();
                signalled |= key == NUDGE;
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
        let begun = {
            let mut begun = self.begun.lock();
            self.closed.store(true, SeqCst);
            std::mem::take(&mut *begun)
        };
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let _here = Here::enter(self);
        drop((begun, tasks));
    }
}

impl HostIo for Turns {
    fn peek(&self) {
        // A signal stays for the next turn.
        if self.look() {
            self.signal();
        }
    }

    fn adopt(self: Arc<Self>, socket: OwnedFd) -> io::Result<Box<dyn Socket>> {
        static LAST: AtomicU64 = AtomicU64::new(NUDGE);
        let key = LAST.fetch_add(1, SeqCst) + 1;
        rustix::io::ioctl_fionbio(&socket, true)?;
        let ready = Arc::new(Readiness::default());
        self.sockets.lock().insert(key, ready.clone());
        let hosted = Hosted { socket, key, ready, turns: Arc::downgrade(&self) };
        let wanted = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &hosted.socket, epoll::EventData::new_u64(key), wanted)?;
        Ok(Box::new(hosted))
    }

    fn spawn(&self, task: BoxFuture<()>) {
        self.add(task);
        self.nudge.wake_by_ref();
    }
}

impl EndsWithProcess for Turns {
    fn stop(self: Arc<Self>) {
        // Else a thread attends to it, to the end of the process.
        if !self.attended {
            self.close();
        }
    }
}

/// While it lives, this thread polls these calls, with the background runtime's timers.
struct Here<'a> {
    _turn: host_io::Entered,
    _timers: tokio::runtime::EnterGuard<'a>,
}

impl Here<'_> {
    fn enter(turns: &Arc<Turns>) -> Self {
        Self { _turn: host_io::enter(turns.clone()), _timers: runtime::enter() }
    }
}

/// What a socket is known to be ready for.
#[derive(Default)]
struct Readiness {
    /// The other side is done: there is an end to be read behind what there is now, and nothing else will tell of it.
    over: AtomicBool,
    readable: AtomicBool,
    writable: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Readiness {
    fn note(&self, flags: epoll::EventFlags) {
        let over = epoll::EventFlags::ERR | epoll::EventFlags::HUP | epoll::EventFlags::RDHUP;
        if flags.intersects(over) {
            self.over.store(true, SeqCst);
        }
        if flags.intersects(epoll::EventFlags::IN | over) {
            self.readable.store(true, SeqCst);
            self.reader.wake();
        }
        if flags.intersects(epoll::EventFlags::OUT | over) {
            self.writable.store(true, SeqCst);
            self.writer.wake();
        }
    }
}

/// A socket of such calls.
struct Hosted {
    socket: OwnedFd,
    key: u64,
    ready: Arc<Readiness>,
    turns: Weak<Turns>,
}

impl Drop for Hosted {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.upgrade() {
            turns.sockets.lock().remove(&self.key);
        }
    }
}

/// Tries something as long as the socket is ready for it.
fn attempt<T>(
    context: &Context<'_>,
    (ready, waker): (&AtomicBool, &AtomicWaker),
    mut work: impl FnMut() -> rustix::io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        if !ready.load(SeqCst) {
            waker.register(context.waker());
            // It may have become ready before the waker was there.
            if !ready.load(SeqCst) {
                return Poll::Pending;
            }
        }
        match work() {
            Ok(done) => return Poll::Ready(Ok(done)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready.store(false, SeqCst),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}

impl AsyncRead for Hosted {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = into.remaining();
        let ready = (&self.ready.readable, &self.ready.reader);
        let count = ready!(attempt(context, ready, || {
            recv(&self.socket, into.initialize_unfilled(), RecvFlags::empty()).map(|(_, count)| count)
        }))?;
        into.advance(count);
        if 0 < count && count < room && !self.ready.over.load(SeqCst) {
            // Drained; when more comes there is another event.
            self.ready.readable.store(false, SeqCst);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Hosted {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let ready = (&self.ready.writable, &self.ready.writer);
        attempt(context, ready, || send(&self.socket, bytes, SendFlags::NOSIGNAL))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Closed with the descriptor.
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::{
        future::poll_fn,
        io::Write,
        net::{TcpListener, TcpStream},
        sync::mpsc,
        thread,
        time::Duration,
    };

    use rustix::event::{PollFd, PollFlags, poll};
    use tokio::{sync::oneshot, task::yield_now};

    use super::*;
    use crate::ffi::completions::{Begun, Bridge, Plain};

    fn is_readable(turns: &Turns, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).unwrap();
        poll(&mut [PollFd::new(&turns.fd(), PollFlags::IN)], Some(&limit)).unwrap() > 0
    }

    /// Whoever begins a call takes no signal of a result that is not its own.
    #[test]
    fn results_are_not_hidden_by_calls_that_begin() {
        for ends_at_once in [true, false] {
            let turns = Turns::attended().unwrap();
            let bridge = Bridge::hosted(turns.clone());
            let id = bridge.run(async { Plain(()) });
            assert!(is_readable(&turns, Duration::from_secs(30)));
            let _ = bridge.begin(&turns, async move {
                host_io::current().unwrap().peek();
                if !ends_at_once {
                    std::future::pending::<()>().await;
                }
                Plain(())
            });
            assert!(is_readable(&turns, Duration::ZERO), "the attendant sleeps, ends at once: {ends_at_once}");
            assert_eq!(bridge.drain(), [(id, ())]);
        }
    }

    /// The peer answered and closed, in one event: the end is read behind the answer, without a further event.
    #[test]
    fn an_end_behind_an_answer_is_seen() {
        let turns = Turns::attended().unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut theirs, _) = listener.accept().unwrap();
        theirs.write_all(b"+OK\r\n").unwrap();
        drop(theirs);
        // Both are there before anybody watches.
        let mut all = [0; 64];
        while ours.peek(&mut all).unwrap() < 5 {}
        let mut hosted = turns.clone().adopt(ours.into()).unwrap();
        let bridge = Bridge::hosted(turns.clone());
        let Begun::Pending(id) = bridge.begin(&turns, async move {
            let mut read = [Vec::new(), Vec::new()];
            for read in &mut read {
                let mut bytes = [0; 64];
                let mut into = ReadBuf::new(&mut bytes);
                poll_fn(|context| Pin::new(&mut hosted).poll_read(context, &mut into)).await.unwrap();
                read.extend_from_slice(into.filled());
            }
            Plain(read)
        }) else {
            panic!("nobody has looked for the answer yet")
        };
        let mut ended = Vec::new();
        while ended.is_empty() {
            assert!(is_readable(&turns, Duration::from_secs(30)), "the end is forgotten");
            ended = bridge.drain();
        }
        assert_eq!(ended, [(id, [b"+OK\r\n".to_vec(), Vec::new()])]);
    }

    /// Threads begin calls that another thread ends, early or late. A wake-up that nobody acts on shows as a call that
    /// does not end: the attendant looks only when it is told to.
    #[test]
    fn no_call_of_many_threads_is_forgotten() {
        let turns = Turns::attended().unwrap();
        let bridge = Bridge::hosted(turns.clone());
        let (ask, asked) = mpsc::channel::<oneshot::Sender<()>>();
        thread::spawn(move || asked.iter().for_each(|answer| answer.send(()).unwrap_or_default()));
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let (turns, bridge, ask) = (turns.clone(), bridge.clone(), ask.clone());
                thread::spawn(move || {
                    for call in 0..10_000 {
                        let (answer, answered) = oneshot::channel();
                        let (end, ended) = mpsc::channel();
                        let ask = ask.clone();
                        let _ = bridge.begin(&turns, async move {
                            // As for a connection that has rested.
                            if call % 5 == caller {
                                host_io::current().unwrap().peek();
                            }
                            // Some end at once, and some are woken in the middle of a turn, or in more than one.
                            if call % 7 != caller {
                                ask.send(answer).unwrap();
                                for _ in 0..(call + caller) % (2 * FEW_ROUNDS) {
                                    yield_now().await;
                                }
                                answered.await.unwrap();
                            }
                            end.send(()).unwrap();
                            Plain(())
                        });
                        ended.recv_timeout(Duration::from_secs(30)).expect("a call is forgotten");
                    }
                })
            })
            .collect();
        while callers.iter().any(|caller| !caller.is_finished()) {
            if is_readable(&turns, Duration::from_millis(100)) {
                bridge.drain();
            }
        }
        for caller in callers {
            caller.join().unwrap();
        }
    }
}
