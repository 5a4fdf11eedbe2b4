//! Calls that run in the background, or in turns of their host, and end in a host's event loop.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::FutureExt;
#[cfg(target_os = "linux")]
use rustix::event::{PollFd, PollFlags, poll};

#[cfg(target_os = "linux")]
use crate::ffi::reactor::Turns;
use crate::{
    acquire::Request,
    client::{Client, NodeStatus},
    compat::{HeldValue, Retime},
    error::{LockError, LostReason, NodeCause},
    event::Event,
    ffi::{
        completions::{Begun, Bridge, within},
        events::Events,
    },
    lease::Lease,
    lock::{Lock, LockInfo},
    owner::Owner,
    process::runtime::Tied,
    server::Lane,
    tenure::ReleaseOutcome,
};

/// An error, flat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The code, which is the contract.
    pub code: &'static str,
    /// The text for people.
    pub message: String,
    /// Why the lock was lost; only with code `lost`.
    pub reason: Option<&'static str>,
    /// What each node said; only with code `unavailable`.
    pub causes: Vec<NodeCause>,
}

/// What a call resulted in.
#[derive(Debug)]
pub enum Value {
    /// It is done.
    Nothing,
    /// Yes or no.
    Flag(bool),
    /// A lease. Dropping it releases nothing once it was drained.
    Lease(Lease),
    /// How a release ended.
    Outcome(ReleaseOutcome),
    /// Who holds a lock.
    Info(Option<LockInfo>),
    /// What the nodes say of themselves.
    Nodes(Vec<NodeStatus>),
    /// Why a lease was lost; `None` when it ended otherwise.
    Lost(Option<LostReason>),
    /// What happened since the last time; empty when nothing will happen any more.
    Events(Vec<Event>),
}

/// The end of a call.
pub type Outcome = Result<Value, LockError>;

/// A call that began: its end, if it needed no waiting, or its number.
pub type Call = Begun<Outcome>;

/// The host now owns the lease: collecting it releases nothing.
fn keep(outcome: &Outcome) {
    if let Ok(Value::Lease(lease)) = outcome {
        lease.keep();
    }
}

/// The calls of one event loop. Each starts at once and returns its number; its end comes out of [`Calls::drain`],
/// and `wake` tells once that there is something to drain. They belong to the process that made them: in a child of a
/// fork every call fails with `closed`.
pub struct Calls {
    bridge: Tied<Arc<Bridge<Outcome>>>,
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

    fn bridge(&self) -> Result<&Arc<Bridge<Outcome>>, LockError> {
        self.bridge.get().ok_or(LockError::Closed)
    }

    /// Begins a call in the lane of the host if there is one, else in the background: to its end, unless it
    /// `may_be_cut`.
    fn begin<F>(
        &self,
        may_be_cut: bool,
        lane: impl FnOnce(u64) -> Lane,
        call: impl FnOnce(Lane) -> F,
    ) -> Result<Call, LockError>
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let bridge = self.bridge()?;
        #[cfg(not(target_os = "linux"))]
        let _ = lane;
        #[cfg(target_os = "linux")]
        if let Some(turns) = bridge.turns()
            && let lane @ Lane::Host(_) = lane(turns.id())
        {
            let begun = bridge.begin(turns, call(lane));
            if let Begun::Done(outcome) = &begun {
                keep(outcome);
            }
            return Ok(begun);
        }
        let call = call(Lane::Background);
        Ok(Begun::Pending(if may_be_cut { bridge.watch(call) } else { bridge.run(call) }))
    }

    fn run(&self, future: impl Future<Output = Outcome> + Send + 'static) -> Result<u64, LockError> {
        Ok(self.bridge()?.run(future))
    }

    /// The number of a call, for a host to which nothing else can be returned: negative if it ended already, so that
    /// [`Calls::take`] has its end.
    pub fn number(&self, call: Call) -> Result<i64, LockError> {
        Ok(match call {
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
        let ended = self.bridge()?.drain();
        for (_, outcome) in &ended {
            keep(outcome);
        }
        Ok(ended)
    }

    /// Gives up a call that was not drained. An acquire leaves nothing behind; what must not be cut short, such as a
    /// release, goes on. False: it was drained before.
    pub fn abandon(&self, id: u64) -> bool {
        self.bridge.get().is_some_and(|bridge| bridge.abandon(id))
    }

    /// Starts an acquire: a `Lease`.
    pub fn acquire(&self, lock: &Lock, request: Request) -> Result<Call, LockError> {
        let call = |lane| lock.acquire_in(lane, request).map(|lease| lease.map(Value::Lease));
        self.begin(true, |host| lock.host_lane(host), call)
    }

    /// Starts `lock.release()`: an `Outcome`.
    pub fn release_newest(&self, lock: &Lock, owner: &Owner) -> Result<Call, LockError> {
        let call = |lane| lock.release_in(lane, owner).map(|outcome| outcome.map(Value::Outcome));
        self.begin(false, |host| lock.host_lane(host), call)
    }

    /// Starts to end a block of this owner: `Nothing`.
    pub fn leave_newest(&self, lock: &Lock, owner: &Owner) -> Result<Call, LockError> {
        let call = |lane| lock.leave_in(lane, owner).map(|left| left.map(|()| Value::Nothing));
        self.begin(false, |host| lock.host_lane(host), call)
    }

    /// Starts `lock.locked()`: a `Flag`.
    pub fn locked(&self, lock: &Lock) -> Result<u64, LockError> {
        let locked = lock.locked();
        self.run(async move { locked.await.map(Value::Flag) })
    }

    /// Starts `lock.inspect()`: an `Info`.
    pub fn inspect(&self, lock: &Lock) -> Result<u64, LockError> {
        let info = lock.inspect();
        self.run(async move { info.await.map(Value::Info) })
    }

    /// Starts `lease.release()`: an `Outcome`.
    pub fn release(&self, lease: &Lease) -> Result<Call, LockError> {
        let call = |lane| lease.release_in(lane).map(|outcome| outcome.map(Value::Outcome));
        self.begin(false, |host| lease.host_lane(host), call)
    }

    /// Starts to end the block of a lease: `Nothing`.
    pub fn leave(&self, lease: &Lease) -> Result<Call, LockError> {
        let call = |lane| lease.leave_in(lane).map(|left| left.map(|()| Value::Nothing));
        self.begin(false, |host| lease.host_lane(host), call)
    }

    /// Starts `lease.extend()`: `Nothing`.
    pub fn extend(&self, lease: &Lease, ttl: Duration) -> Result<Call, LockError> {
        let call = |lane| lease.extend_in(lane, ttl).map(|extended| extended.map(|()| Value::Nothing));
        self.begin(false, |host| lease.host_lane(host), call)
    }

    /// Waits for the end of a lease: `Lost`. Giving it up ends the waiting and nothing else.
    pub fn lost(&self, lease: &Lease) -> Result<u64, LockError> {
        self.lost_within(lease, None)
    }

    /// `lost`, but for no longer than `limit`.
    pub fn lost_within(&self, lease: &Lease, limit: Option<Duration>) -> Result<u64, LockError> {
        let lost = lease.lost();
        Ok(self.bridge()?.listen(async move { Ok(Value::Lost(within(limit, lost).await.flatten())) }))
    }

    /// Starts `value.release()`: a `Flag`.
    pub fn release_value(&self, value: &HeldValue) -> Result<u64, LockError> {
        let released = value.release();
        self.run(async move { released.await.map(Value::Flag) })
    }

    /// Starts `value.retime()`: a `Flag`.
    pub fn retime_value(&self, value: &HeldValue, how: Retime, millis: i64) -> Result<u64, LockError> {
        let changed = value.retime(how, millis);
        self.run(async move { changed.await.map(Value::Flag) })
    }

    /// Starts `value.is_there()`: a `Flag`.
    pub fn is_value_there(&self, value: &HeldValue) -> Result<u64, LockError> {
        let there = value.is_there();
        self.run(async move { there.await.map(Value::Flag) })
    }

    /// Starts `client.ping()`: `Nodes`.
    pub fn ping(&self, client: &Client) -> Result<u64, LockError> {
        let pinged = client.ping();
        self.run(async move { pinged.await.map(Value::Nodes) })
    }

    /// Starts `client.force_release()`: a `Flag`.
    pub fn force_release(&self, client: &Client, name: &str) -> Result<u64, LockError> {
        let released = client.force_release(name);
        self.run(async move { released.await.map(Value::Flag) })
    }

    /// Starts `client.init_nodes()`: `Nothing`.
    pub fn init_nodes(&self, client: &Client) -> Result<u64, LockError> {
        let provisioned = client.init_nodes();
        self.run(async move { provisioned.await.map(|()| Value::Nothing) })
    }

    /// Starts `client.attach()`: a `Lease`.
    pub fn attach(&self, client: &Client, text: &str, owner: Owner) -> Result<u64, LockError> {
        let attached = client.attach_unseen(text, owner);
        self.run(async move { attached.await.map(Value::Lease) })
    }

    /// Starts `client.close()`: `Nothing`.
    pub fn close(&self, client: &Client) -> Result<u64, LockError> {
        let closed = client.close();
        self.run(async move {
            closed.await;
            Ok(Value::Nothing)
        })
    }

    /// Waits until something happened: `Events`.
    pub fn events(&self, events: &Events) -> Result<u64, LockError> {
        let events = events.clone();
        self.events_of(async move { events.next().await })
    }

    /// `events`, for a host that fetches them in a way of its own.
    pub fn events_of(&self, next: impl Future<Output = Vec<Event>> + Send + 'static) -> Result<u64, LockError> {
        Ok(self.bridge()?.watch(async move { Ok(Value::Events(next.await)) }))
    }
}
