//! Calls that run in the background, or in turns of their host, and end in a host's event loop.

use std::{future::Future, sync::Arc};

use futures_util::FutureExt;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, poll};

#[cfg(target_os = "linux")]
use crate::ffi::reactor::Turns;
use crate::{
    error::LockError,
    event::Event,
    ffi::{
        completions::{Begun, Bridge, Entry},
        operations::{self, Operation},
        outcome::{Outcome, Value},
    },
    offer::Offer,
    process::{
        driver::{Caller, Polled},
        fork::Tied,
    },
    server::BoxFuture,
};

/// A call that began: its end, if it needed no waiting, or its number.
pub type Call = Begun<Outcome>;

/// The end of a call, as it waits in the queue.
enum Ended {
    Outcome(Outcome),
    /// A lease, until its host takes it.
    Offer(Offer),
}

impl Entry for Ended {
    type Taken = Outcome;

    fn queued(&self) {
        if let Self::Offer(offer) = self {
            offer.hold_out();
        }
    }

    fn take(self) -> Result<Outcome, BoxFuture<Self>> {
        match self {
            Self::Outcome(outcome) => Ok(outcome),
            Self::Offer(offer) => match offer.take() {
                Ok(lease) => {
                    // The host now owns it: collecting it releases nothing.
                    lease.keep();
                    Ok(Ok(Value::Lease(lease)))
                }
                Err(again) => Err(Box::pin(again.start().map(offered))),
            },
        }
    }
}

fn offered(offer: Result<Offer, LockError>) -> Ended {
    offer.map_or_else(|error| Ended::Outcome(Err(error)), Ended::Offer)
}

fn ended<T>(end: Result<T, LockError>, value: impl FnOnce(T) -> Value) -> Ended {
    Ended::Outcome(end.map(value))
}

/// The calls of one event loop. Each starts at once and returns its number; its end comes out of [`Calls::drain`],
/// and `wake` tells once that there is something to drain. They belong to the process that made them: in a child of a
/// fork every call fails with `closed`.
pub struct Calls {
    bridge: Tied<Arc<Bridge<Ended>>>,
    /// Where a thread that fetches waits, unless it watches a descriptor.
    woken: Option<std::sync::Mutex<std::sync::mpsc::Receiver<()>>>,
}

impl Calls {
    /// Calls whose `wake` runs on the library's threads: it must return at once and run nothing of the host's.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { bridge: Tied::new(Bridge::new(wake)), woken: None }
    }

    /// Calls of an event loop that watches [`Calls::fd`], and drains whenever that is readable. Their round trips to a
    /// single server are made by the loop's own thread. Fails when the process has no descriptor left.
    #[cfg(target_os = "linux")]
    pub fn hosted() -> std::io::Result<Self> {
        Ok(Self { bridge: Tied::new(Bridge::hosted(Turns::of_event_loop()?)), woken: None })
    }

    /// Calls that any thread begins, and that one thread of the host's, which does nothing else, fetches the ends of
    /// ([`Calls::fetch`]). On Linux these threads make the round trips to a single server.
    pub fn fetched() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(turns) = Turns::attended() {
            return Self { bridge: Tied::new(Bridge::hosted(turns)), woken: None };
        }
        let (wake, woken) = std::sync::mpsc::channel();
        // The receiver is kept beside it.
        let bridge = Bridge::new(move || wake.send(()).unwrap_or_default());
        Self { bridge: Tied::new(bridge), woken: Some(woken.into()) }
    }

    /// Blocks until calls ended, for the thread that fetches: see [`Calls::drain`].
    pub fn fetch(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        loop {
            if let Some(woken) = &self.woken {
                let woken = woken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                woken.recv().map_err(|_| LockError::Closed)?;
            }
            #[cfg(target_os = "linux")]
            if let Some(fd) = self.fd() {
                // Interrupted by a signal it looks, and waits again.
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
            }
            let ended = self.drain()?;
            if !ended.is_empty() {
                return Ok(ended);
            }
        }
    }

    /// What an event loop watches for readability, if it takes turns.
    #[cfg(target_os = "linux")]
    pub fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.bridge.get()?.turns().map(|turns| turns.fd())
    }

    /// Sends what was begun while other calls were under way. A host that takes turns does so soon after each call that
    /// is pending: at the end of the turn in which it was made, so that calls made together are sent together.
    #[cfg(target_os = "linux")]
    pub fn flush(&self) {
        if let Some(bridge) = self.bridge.get() {
            bridge.turn();
        }
    }

    /// Gives up every call, since the event loop runs no more. What must not be cut short goes on in the background.
    pub fn end(&self) {
        #[cfg(target_os = "linux")]
        if let Some(turns) = self.bridge.get().and_then(|bridge| bridge.turns()) {
            turns.close();
        }
    }

    fn bridge(&self) -> Result<&Arc<Bridge<Ended>>, LockError> {
        self.bridge.get().ok_or(LockError::Closed)
    }

    /// Begins a call where it is polled: in the host's turns, else in the background, to its end unless it `may_be_cut`.
    fn begin<F>(
        &self,
        may_be_cut: bool,
        polled: impl FnOnce(Caller) -> Polled,
        call: impl FnOnce(Polled) -> F,
    ) -> Result<Call, LockError>
    where
        F: Future<Output = Ended> + Send + 'static,
    {
        let bridge = self.bridge()?;
        #[cfg(not(target_os = "linux"))]
        let _ = polled;
        #[cfg(target_os = "linux")]
        if let Some(turns) = bridge.turns()
            && let polled @ Polled::Here(_) = polled(Caller::Host(turns.id()))
        {
            return Ok(bridge.begin(turns, call(polled)));
        }
        let call = call(Polled::Behind);
        Ok(Begun::Pending(if may_be_cut { bridge.watch(call) } else { bridge.run(call) }))
    }

    /// `start`, for a host to which nothing but a number can be returned: negative if the call ended already, so that
    /// [`Calls::take`] has its end.
    pub fn start_numbered(&self, operation: Operation<'_>) -> Result<i64, LockError> {
        Ok(match self.start(operation)? {
            Begun::Pending(id) => id.cast_signed(),
            Begun::Done(outcome) => -self.bridge()?.keep(outcome).cast_signed(),
        })
    }

    /// The end of a call whose number is negative; fails with `closed` if it was taken before.
    pub fn take(&self, number: i64) -> Outcome {
        self.bridge()?.take(number.unsigned_abs()).unwrap_or(Err(LockError::Closed))
    }

    /// The calls that ended since the last time. The host now owns their leases: collecting one releases nothing.
    pub fn drain(&self) -> Result<Vec<(u64, Outcome)>, LockError> {
        Ok(self.bridge()?.drain())
    }

    /// Gives up a call that was not drained. An acquire leaves nothing behind; what must not be cut short, such as a
    /// release, goes on. False: it was drained before.
    pub fn abandon(&self, id: u64) -> bool {
        self.bridge.get().is_some_and(|bridge| bridge.abandon(id))
    }

    /// Starts an operation. Its end is the host's as [`Calls::drain`] says, also if it came at once.
    pub fn start(&self, operation: Operation<'_>) -> Result<Call, LockError> {
        use Operation as Do;
        let pending = |id| Ok(Begun::Pending(id));
        let bridge = self.bridge()?;
        match operation {
            Do::Acquire(lock, request) => {
                let call = |polled| lock.offer(polled, request).map(offered);
                self.begin(true, |caller| lock.polled(caller), call)
            }
            Do::ReleaseNewest(lock, owner) => {
                let call = |polled| lock.release_in(polled, &owner).map(|end| ended(end, Value::from));
                self.begin(false, |caller| lock.polled(caller), call)
            }
            Do::LeaveNewest(lock, owner) => {
                let call = |polled| lock.leave_in(polled, &owner).map(|end| ended(end, Value::from));
                self.begin(false, |caller| lock.polled(caller), call)
            }
            Do::Release(lease) => {
                let call = |polled| lease.release_in(polled).map(|end| ended(end, Value::from));
                self.begin(false, |caller| lease.polled(caller), call)
            }
            Do::Leave(lease) => {
                let call = |polled| lease.leave_in(polled).map(|end| ended(end, Value::from));
                self.begin(false, |caller| lease.polled(caller), call)
            }
            Do::Extend(lease, ttl) => {
                let call = |polled| lease.extend_in(polled, ttl).map(|end| ended(end, Value::from));
                self.begin(false, |caller| lease.polled(caller), call)
            }
            Do::Lost(lease, limit) => pending(bridge.listen(operations::lost(lease, limit).map(Ended::Outcome))),
            Do::Events(events) => pending(bridge.watch(operations::happened(events).map(Ended::Outcome))),
            Do::Locked(lock) => Ok(Self::run(bridge, lock.locked(), Value::Flag)),
            Do::Inspect(lock) => Ok(Self::run(bridge, lock.inspect(), Value::Info)),
            Do::ReleaseValue(value) => Ok(Self::run(bridge, value.release(), Value::Flag)),
            Do::RetimeValue(value, how, millis) => Ok(Self::run(bridge, value.retime(how, millis), Value::Flag)),
            Do::IsValueThere(value) => Ok(Self::run(bridge, value.is_there(), Value::Flag)),
            Do::Ping(client) => Ok(Self::run(bridge, client.ping(), Value::from)),
            Do::ForceRelease(client, name) => Ok(Self::run(bridge, client.force_release(name), Value::Flag)),
            Do::InitNodes(client) => Ok(Self::run(bridge, client.init_nodes(), Value::from)),
            Do::Attach(client, text, owner) => pending(bridge.run(client.offer_attached(text, owner).map(offered))),
            Do::Close(client) => pending(bridge.run(operations::close(client).map(Ended::Outcome))),
        }
    }

    /// Begins a call in the background, to its end.
    fn run<T>(
        bridge: &Arc<Bridge<Ended>>,
        call: impl Future<Output = Result<T, LockError>> + Send + 'static,
        value: impl FnOnce(T) -> Value + Send + 'static,
    ) -> Call {
        Begun::Pending(bridge.run(call.map(|end| ended(end, value))))
    }

    /// Starts to wait for events that a host fetches in a way of its own.
    pub fn events_of(&self, next: impl Future<Output = Vec<Event>> + Send + 'static) -> Result<Call, LockError> {
        let next = next.map(|events| Ended::Outcome(Ok(Value::Events(events))));
        Ok(Begun::Pending(self.bridge()?.watch(next)))
    }
}
