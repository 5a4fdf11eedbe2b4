//! The node behind `memory://`: a Redis inside this process, for tests and for programs that need no server. This file
//! gives a client access to a store. `store` keeps the stores, `faults` breaks them on purpose, and `scripts` runs each
//! script as a function over a store, with the commands in `commands`.

use std::{
    future::{pending, ready},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::{
    select,
    sync::{oneshot, watch},
    time::sleep,
};

use self::store::{State, Status, Store, Subscriber, Unsubscribe, find};
use crate::{
    event::{Event, EventSink},
    identity::Identity,
    process::{
        driver::Driver,
        fork::{self, Tied},
    },
    protocol::script::{Reply, ScriptCall},
    server::{
        BoxFuture, ConnectionId, NamedConnection, Node, NodeError, NodeErrorKind, NodeInfo, SentOn, Subscription,
        Traits,
    },
};

mod commands;
mod faults;
mod scripts;
mod store;

pub use self::faults::Memory;

/// A client's access to a store in memory.
pub struct MemoryNode {
    name: Arc<str>,
    /// The store belongs to this process: a forked child has no access.
    access: Tied<Arc<Access>>,
}

impl MemoryNode {
    /// Opens the store behind `memory://name`, and creates it if needed. Several clients share it. `events` receives an
    /// event when the store stops answering this client, and when it answers again.
    pub fn open(name: &str, events: Option<EventSink>) -> Arc<Self> {
        Self::open_as(None, name, events)
    }

    /// [`open`](Self::open) for a client that the store lists until `identity` is dropped.
    pub(crate) fn open_as(identity: Option<&Arc<Identity>>, name: &str, events: Option<EventSink>) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (store, name) = (find(fork::generation(), name), Arc::<str>::from(format!("memory://{name}")));
        let number = NEXT.fetch_add(1, Relaxed);
        if let Some(identity) = identity {
            store.join(number, identity);
        }
        let access = Access {
            name: Arc::clone(&name),
            number,
            store,
            events,
            down: AtomicBool::new(false),
            closed: watch::Sender::new(false),
        };
        Arc::new(Self { name, access: Tied::new(Arc::new(access)) })
    }

    /// Runs `work` on the store. Fails in a forked child.
    fn request<T: Send + 'static>(
        &self,
        sent: Option<(Driver, SentOn)>,
        timeout: Option<Duration>,
        work: impl FnOnce(&mut State) -> Result<T, NodeError> + Send + 'static,
    ) -> BoxFuture<Result<T, NodeError>> {
        match self.access.get() {
            Some(access) => Box::pin(Arc::clone(access).request(sent, timeout, work)),
            None => forked(),
        }
    }
}

/// The error in a forked child of the process that opened the store.
fn forked<T: Send + 'static>() -> BoxFuture<Result<T, NodeError>> {
    Box::pin(ready(Err(NodeError::new(NodeErrorKind::NotRun, "opened before a fork"))))
}

impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn eval(
        &self,
        driver: Driver,
        call: ScriptCall,
        timeout: Duration,
        sent: SentOn,
    ) -> BoxFuture<Result<Reply, NodeError>> {
        at_once(self.request(Some((driver, sent)), Some(timeout), |state| state.run_script(call)))
    }

    fn eval_after(&self, _: ConnectionId, call: ScriptCall, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        // A store has one queue: earlier requests run earlier.
        at_once(self.request(None, Some(timeout), |state| state.run_script(call)))
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        let Some(access) = self.access.get() else { return forked() };
        let (store, node) = (Arc::clone(&access.store), access.number);
        self.request(None, None, move |state| {
            state.last_subscriber += 1;
            let number = state.last_subscriber;
            let (sender, messages) = watch::channel(0);
            let all = state.subscribers.entry(channel.clone()).or_default();
            all.push(Subscriber { number, node, sender });
            Ok(Subscription { messages, guard: Box::new(Unsubscribe { store: Tied::new(store), channel, number }) })
        })
    }

    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        self.request(None, Some(timeout), |state| Ok(NodeInfo::new(Some(state.run.clone()), None)))
    }

    fn clients(&self, timeout: Duration) -> BoxFuture<Result<Vec<NamedConnection>, NodeError>> {
        let Some(access) = self.access.get() else { return forked() };
        let store = Arc::clone(&access.store);
        let named = |identity: Arc<Identity>| NamedConnection { identity: (*identity).clone(), address: None };
        self.request(None, Some(timeout), move |_| Ok(store.clients().into_iter().map(named).collect()))
    }

    fn traits(&self) -> Traits {
        Traits { lists_clients: true, ..Traits::default() }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        // A forked child must not use the parent's channel: it contains a mutex that may be held.
        self.access.get().map_or_else(|| watch::channel(0).1, |access| access.store.changes.subscribe())
    }

    fn close(&self) {
        let Some(access) = self.access.get() else { return };
        access.closed.send_replace(true);
        access.store.leave(access.number);
        access.store.state.lock().subscribers.retain(|_, all| {
            all.retain(|subscriber| subscriber.node != access.number);
            !all.is_empty()
        });
    }
}

/// Polls a request once, so that it is sent when it is made and not when its caller first polls it. As on a network,
/// all nodes then have it by the time a quorum has answered.
fn at_once<T: Send + 'static>(mut request: BoxFuture<T>) -> BoxFuture<T> {
    match request.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Box::pin(std::future::ready(answer)),
        Poll::Pending => request,
    }
}

/// The state of a client's node; a request keeps it alive.
struct Access {
    name: Arc<str>,
    number: u64,
    store: Arc<Store>,
    events: Option<EventSink>,
    /// Whether the last request found the store stopped or frozen.
    down: AtomicBool,
    closed: watch::Sender<bool>,
}

impl Access {
    /// Runs `work` on the store: now, after a thaw, or never. Sets `sent` once it may run.
    async fn request<T: Send + 'static>(
        self: Arc<Self>,
        sent: Option<(Driver, SentOn)>,
        timeout: Option<Duration>,
        work: impl FnOnce(&mut State) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<T, NodeError> {
        let mut closed = self.closed.subscribe();
        if *closed.borrow_and_update() {
            return Err(NodeError::new(NodeErrorKind::NotRun, "closed"));
        }
        let mut reply = match self.submit(sent, work) {
            Ok(Submitted::Done(result)) => {
                self.answers();
                return result;
            }
            Ok(Submitted::Waits(reply)) => reply,
            Err(error) => {
                self.fails(&error);
                return Err(error);
            }
        };
        let expired = async {
            match timeout {
                Some(timeout) => sleep(timeout).await,
                None => pending().await,
            }
        };
        let error = select! {
            biased;
            result = &mut reply => match result {
                Ok(result) => {
                    self.answers();
                    return result;
                }
                Err(_) => "stopped before it answered".to_owned(),
            },
            _ = closed.wait_for(|closed| *closed) => {
                return Err(NodeError::new(NodeErrorKind::Unknown, "closed before it answered"));
            }
            () = expired => format!("no reply within {:?}", timeout.unwrap_or_default()),
        };
        let error = NodeError::new(NodeErrorKind::Unknown, error);
        self.fails(&error);
        Err(error)
    }

    /// Runs or queues a request, under the store's mutex.
    fn submit<T: Send + 'static>(
        &self,
        sent: Option<(Driver, SentOn)>,
        work: impl FnOnce(&mut State) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<Submitted<T>, NodeError> {
        let mut state = self.store.state.lock();
        if matches!(state.status, Status::Stopped) {
            return Err(NodeError::new(NodeErrorKind::NotRun, "stopped"));
        }
        if let Some((driver, sent)) = sent {
            let run = Some(state.run.as_str().into());
            sent.set(ConnectionId { driver, number: self.number, peer: None, run, server: None })?;
        }
        if let Status::Frozen(waiting) = &mut state.status {
            let (sender, reply) = oneshot::channel();
            waiting.push(Box::new(move |state| {
                let result = work(state);
                Box::new(move || drop(sender.send(result)))
            }));
            return Ok(Submitted::Waits(reply));
        }
        Ok(Submitted::Done(work(&mut state)))
    }

    fn answers(&self) {
        if self.down.swap(false, Relaxed) {
            self.emit(&Event::NodeUp { node: self.name.to_string() });
        }
    }

    fn fails(&self, error: &NodeError) {
        if !self.down.swap(true, Relaxed) {
            let (node, cause) = (self.name.to_string(), error.detail.clone());
            self.emit(&Event::NodeDown { node, cause });
        }
    }

    fn emit(&self, event: &Event) {
        if let Some(events) = &self.events {
            events(event);
        }
    }
}

/// A request that ran, or that waits for a thaw.
enum Submitted<T> {
    Done(Result<T, NodeError>),
    Waits(oneshot::Receiver<Result<T, NodeError>>),
}

#[cfg(test)]
#[path = "../../testing/memory.rs"]
mod tests;
