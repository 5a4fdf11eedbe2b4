//! A node that is a Redis or Valkey server. Only this folder uses the `redis` crate, which multiplexes requests on a
//! connection and parses replies; it never resends a request. This folder decides when to connect, wait and give up:
//! `health` decides whether requests are sent at all, `connection` has the connections, `request` sends requests,
//! `room` keeps them in order while a connection has too many, `batch` and `together` make one of many, and `order` runs
//! clean-ups after them.

use std::{
    collections::{HashMap, HashSet},
    future::{Future, ready},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures_util::poll;
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::Sleep,
};

use crate::{
    config::Settings,
    error::LockError,
    event::{Event, EventSink},
    process::{driver::Driver, fork::Tied, runtime},
    protocol::{
        script::{Reply, ScriptCall},
        sharding::Sharding,
    },
    server::{BoxFuture, ConnectionId, NamedConnection, Node, NodeError, NodeInfo, SentOn, Subscription, Traits},
    sync::Mutex,
    url::{Address, Endpoint},
};

mod batch;
mod cluster;
mod connect;
mod connection;
mod deferred;
mod errors;
#[cfg(test)]
#[path = "../../testing/fuzz_replies.rs"]
mod fuzz;
mod health;
#[cfg(target_os = "linux")]
mod hosted;
mod identify;
mod naming;
mod order;
mod probe;
mod pubsub;
mod replies;
mod request;
mod room;
mod sentinel;
mod setup;
mod target;
mod together;

pub(crate) use self::{cluster::ClusterNode, probe::Probe};
use self::{
    connection::{Connection, Lane, LaneState},
    errors::forked_error,
    health::Health,
    identify::Facts,
    naming::Naming,
    pubsub::PubSubConnection,
    target::Target,
};

/// The idle time after which TCP sends keep-alive probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

const CLOSED_BY_SERVER: &str = "connection closed by the server";

/// A server that is reached over the network or a socket file.
pub(crate) struct RedisNode {
    name: Arc<str>,
    hostable: bool,
    /// Sockets and tasks of this process. A forked child must not close them: that would write to the parent's
    /// connection, and a mutex may be held by a thread that does not exist in the child.
    inner: Tied<Arc<Inner>>,
}

impl RedisNode {
    /// Creates the node; it connects at first use. `connection_name`: the name of its connections, if they get one.
    pub(crate) fn new(
        endpoint: &Endpoint,
        settings: &Settings,
        events: EventSink,
        connection_name: Option<Arc<str>>,
    ) -> Result<Self, LockError> {
        Self::in_cluster(endpoint, settings, events, connection_name, false)
    }

    /// Creates the node, which may be a server of a cluster.
    fn in_cluster(
        endpoint: &Endpoint,
        settings: &Settings,
        events: EventSink,
        connection_name: Option<Arc<str>>,
        in_cluster: bool,
    ) -> Result<Self, LockError> {
        let config = &settings.config;
        let name: Arc<str> = endpoint.transport.to_string().into();
        let target = Arc::new(Target::new(endpoint, config)?);
        let hostable = cfg!(target_os = "linux") && target.is_hostable();
        let inner = Inner {
            name: Arc::clone(&name),
            target,
            naming: Arc::new(Naming::new(connection_name)),
            in_cluster,
            connect_timeout: config.connect_timeout,
            reply_timeout: config.reply_timeout,
            guarded: settings.uses_markers(),
            events,
            state: Mutex::new(State::default()),
            changes: watch::Sender::new(0),
            news: watch::Sender::new(()),
            kick: Notify::new(),
            replicated: tokio::sync::Mutex::new(()),
        };
        Ok(Self { name, hostable, inner: Tied::new(Arc::new(inner)) })
    }

    fn inner(&self) -> Result<&Arc<Inner>, NodeError> {
        self.inner.get().ok_or_else(forked_error)
    }

    /// Runs `act` with the state of this process. Fails in a forked child.
    fn with<T: Send + 'static, F: Future<Output = Result<T, NodeError>> + Send + 'static>(
        &self,
        act: impl FnOnce(Arc<Inner>) -> F,
    ) -> BoxFuture<Result<T, NodeError>> {
        match self.inner() {
            Ok(inner) => Box::pin(act(Arc::clone(inner))),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        self.close();
    }
}

impl Node for RedisNode {
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
        self.with(move |inner| async move { inner.run(driver, &call, timeout, &sent, false).await })
    }

    fn eval_after(&self, id: ConnectionId, call: ScriptCall, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        self.with(move |inner| async move { inner.eval_after(id, call, timeout).await })
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        self.with(move |inner| async move { inner.subscribe(channel).await })
    }

    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        self.with(move |inner| async move { inner.ping(timeout).await })
    }

    fn clients(&self, timeout: Duration) -> BoxFuture<Result<Vec<NamedConnection>, NodeError>> {
        self.with(move |inner| async move { inner.clients(timeout).await })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.get().map_or_else(|| watch::channel(0).1, |inner| inner.changes.subscribe())
    }

    fn close(&self) {
        if let Some(inner) = self.inner.get() {
            inner.close();
        }
    }

    fn traits(&self) -> Traits {
        Traits { sharding: Sharding::None, hostable: self.hostable, lists_clients: true }
    }
}

/// The state that the node and its tasks share. Tasks hold it strongly; `close` ends them.
struct Inner {
    name: Arc<str>,
    target: Arc<Target>,
    naming: Arc<Naming>,
    in_cluster: bool,
    connect_timeout: Duration,
    reply_timeout: Duration,
    guarded: bool,
    events: EventSink,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// Notifies requests that wait for a connection.
    news: watch::Sender<()>,
    /// Ends the reviver's pause.
    kick: Notify,
    /// Held by the request that waits for replicas; the others wait for it. Only background tasks lock it: a caller
    /// could stop polling and block all others.
    replicated: tokio::sync::Mutex<()>,
}

/// The mutable state of a node.
#[derive(Default)]
struct State {
    health: Health,
    /// The connection of the background's lane. Present exactly while `Up` or `Unresponsive`.
    background: Option<Arc<Connection>>,
    /// All lanes but the background's.
    lanes: HashMap<Lane, LaneState>,
    /// The task that makes the background connection; runs while `Connecting`, `Unresponsive` or `Failing`.
    reviver: Option<Task>,
    /// True while the reviver connects, false while it pauses.
    attempting: bool,
    subscriber: Option<PubSubConnection>,
    /// The task that receives the masters that the Sentinels name.
    follower: Option<Task>,
    /// How many masters it has received, and the last one.
    elections: u64,
    elected: Option<Address>,
    /// Whether `NodeDown` was emitted and `NodeUp` is due.
    reported: bool,
    closed: bool,
    /// The run id of the server that the last connection of any lane led to.
    run: Option<Arc<str>>,
    /// The subjects of all warnings so far: each is emitted once.
    warned: HashSet<String>,
}

impl State {
    /// Whether a new connection leads to another run of the server than the last one did. Then all tenures must be
    /// checked: the connection of a caller that blocks breaks unnoticed while no call uses it.
    fn is_another_run(&mut self, facts: &Facts) -> bool {
        let Some(run) = &facts.run else { return false };
        self.run.replace(Arc::clone(run)).is_some_and(|last| last != *run)
    }
}

/// A task that is aborted when its owner is dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Inner {
    fn emit(&self, event: &Event) {
        (self.events)(event);
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn close(&self) {
        let (background, lanes, reviver, subscriber, follower);
        {
            let mut state = self.state.lock();
            state.closed = true;
            state.health = Health::Idle;
            background = state.background.take();
            lanes = std::mem::take(&mut state.lanes);
            reviver = state.reviver.take();
            subscriber = state.subscriber.take();
            follower = state.follower.take();
        }
        for connection in background.into_iter().chain(lanes.into_values().filter_map(|lane| lane.connection)) {
            connection.retire();
        }
        drop((reviver, subscriber, follower));
        self.news.send_replace(());
    }

    /// Emits a warning, once for each `what`.
    fn warn(&self, what: String, detail: impl FnOnce() -> String) {
        if self.state.lock().warned.insert(what) {
            self.emit(&Event::NodeWarning { node: self.name.to_string(), detail: detail() });
        }
    }
}

/// Waits for `future`, for `limit` at most; then returns `None`.
async fn within_limit<F: Future>(driver: Driver, limit: Duration, mut future: Pin<&mut F>) -> Option<F::Output> {
    // Most futures here need no timer at all.
    if let Poll::Ready(output) = poll!(&mut future) {
        return Some(output);
    }
    let mut timer = pin!(timer(driver, limit));
    let output = tokio::select! {
        biased;
        output = &mut future => Some(output),
        () = &mut timer => None,
    };
    if output.is_some() {
        return output;
    }
    // After a pause of this process or of the driving thread, the reply and the timer are due in the same turn of the
    // event loop, and the timer fires first. Let the connection's task run before giving up.
    for _ in 0..3 {
        tokio::task::yield_now().await;
        if let Poll::Ready(output) = poll!(&mut future) {
            return Some(output);
        }
    }
    None
}

/// Creates a timer on the runtime that drives the request: another runtime, or none, may poll the future.
fn timer(driver: Driver, limit: Duration) -> Sleep {
    match driver {
        Driver::Background | Driver::Host(_) | Driver::Program(_) => {
            let background = runtime::background();
            let _inside = background.enter();
            tokio::time::sleep(limit)
        }
        Driver::Caller => tokio::time::sleep(limit),
    }
}

#[cfg(test)]
#[path = "../../testing/redis.rs"]
mod tests;
