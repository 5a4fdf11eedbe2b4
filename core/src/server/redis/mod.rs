//! A node that is a Redis or Valkey server: its connections, its health, and what its errors mean. It and its submodules
//! alone know the `redis` crate, which here multiplexes requests on a connection and parses replies; it never repeats a
//! request, and when to connect, to wait and to give up is decided below.
//!
//! Health of a node, as its background connection shows it:
//!
//! ```text
//! Idle ──first use──▶ Connecting ──▶ Up ──a reply is overdue──▶ Silent ──a reply, or a newer connection──▶ Up
//!                      │     ▲        └──────connection broke──────┤
//!                failed│     └──────────────────────◀──────────────┘
//!                      ▼     │ asked for after a pause
//!                     Failing ──the reviver connects──▶ Up
//! ```
//!
//! Requests wait while `Connecting` (first use, or just lost) and fail at once while `Silent` or `Failing`, so that a
//! dead node costs nothing. The caller lane and each event loop have a connection of their own but no health of their own.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use crate::sync::Mutex;
use futures_util::poll;
use redis::{
    AsyncConnectionConfig, Client, Cmd, PushInfo, PushKind, RedisResult, ServerError, Value,
    aio::{MultiplexedConnection, SendError},
};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, Sleep},
};

#[cfg(target_os = "linux")]
use crate::ffi::reactor;
use crate::{
    config::{Endpoint, Settings},
    error::LockError,
    event::{Event, EventSink},
    process::runtime,
    protocol::script::{Call, Reply},
    server::{BoxFuture, Hint, Lane, Link, Node, NodeError, NodeErrorKind, NodeInfo, Sent, Subscription},
};

mod cluster;
#[cfg(test)]
#[path = "../../testing/fuzz_replies.rs"]
mod fuzz;
#[cfg(target_os = "linux")]
mod hosted;
mod pubsub;
mod replies;
mod sentinel;
mod setup;

pub(crate) use self::cluster::ClusterNode;
use self::{
    pubsub::{Actor, Listener, Request},
    replies::{
        With, answer, closed, command, exchange, failure, identify, lacks_hello, misplaced, no_answer, no_connection,
        not_run, ping, refusal, refused_connection, unanswered,
    },
    setup::Target,
};

/// Requests that may be unanswered on a connection; clean-ups, which must not be lost, may queue twice as deep.
const MOST_UNANSWERED: usize = 1024;
/// The pause after a failed attempt to connect; doubled after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a failure that waiting does not mend.
const PERMANENT_PAUSE: Duration = Duration::from_secs(5);
/// When a clean-up is repeated that could not be ordered after what it cleans up.
const WITHOUT_BARRIER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// When TCP asks an idle peer whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// After this long nobody may have driven the caller lane, and its connection may have ended unnoticed.
const RESTED: Duration = Duration::from_millis(10);

const CLOSED_BY_SERVER: &str = "connection closed by the server";

/// A server that is reached over the network or a socket file.
pub(crate) struct RedisNode {
    inner: Arc<Inner>,
}

impl RedisNode {
    /// Prepares the node; connects at first use.
    pub(crate) fn new(endpoint: &Endpoint, settings: &Settings, events: EventSink) -> Result<Self, LockError> {
        Self::in_cluster(endpoint, settings, events, false)
    }

    /// The same for a server that is one of a cluster.
    fn in_cluster(
        endpoint: &Endpoint,
        settings: &Settings,
        events: EventSink,
        in_cluster: bool,
    ) -> Result<Self, LockError> {
        let config = &settings.config;
        let inner = Inner {
            name: endpoint.transport.to_string().into(),
            target: Arc::new(Target::new(endpoint, config)?),
            in_cluster,
            connect_timeout: config.connect_timeout,
            reply_timeout: config.reply_timeout,
            guarded: settings.guarded(),
            events,
            generation: runtime::generation(),
            state: Mutex::new(State::default()),
            changes: watch::Sender::new(0),
            news: watch::Sender::new(()),
            kick: Notify::new(),
            replicated: tokio::sync::Mutex::new(()),
        };
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        if self.inner.forked() {
            // The sockets and the runtime are the parent's: closing them here would talk to the server, and a lock
            // may have been held by a thread that does not exist in this process. Leaked instead.
            std::mem::forget(Arc::clone(&self.inner));
        } else {
            self.inner.close();
        }
    }
}

impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn eval(&self, lane: Lane, call: Call, timeout: Duration, sent: Sent) -> BoxFuture<Result<Reply, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.run(lane, &call, timeout, &sent, false).await })
    }

    fn eval_after(&self, link: Link, call: Call, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.eval_after(link, call, timeout).await })
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move { inner.subscribe(channel).await })
    }

    fn ping(&self, timeout: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        let inner = Arc::clone(&self.inner);
        Box::pin(async move {
            let connection = inner.background(timeout).await?;
            match inner.request(&connection, &ping(), None, timeout, With::default()).await? {
                // A node that is loading or lacks the right to PING answers all the same; NOAUTH does not get here.
                Value::ServerError(error) if error.code() != "NOPERM" => Err(refusal(&error)),
                _ => {
                    let facts = &connection.facts;
                    Ok(NodeInfo::new(facts.run.clone(), facts.version.clone()))
                }
            }
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    fn close(&self) {
        if !self.inner.forked() {
            self.inner.close();
        }
    }

    fn is_hostable(&self) -> bool {
        cfg!(target_os = "linux") && self.inner.target.is_hostable()
    }
}

/// What the node and its tasks share. Tasks hold it strongly; `close` ends them.
struct Inner {
    name: Arc<str>,
    target: Arc<Target>,
    in_cluster: bool,
    connect_timeout: Duration,
    reply_timeout: Duration,
    guarded: bool,
    events: EventSink,
    /// The fork generation it belongs to.
    generation: u64,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    /// Tells those who wait for a connection to look again.
    news: watch::Sender<()>,
    /// Ends the reviver's pause.
    kick: Notify,
    /// Held by the one whose request waits for replicas, and makes the others wait.
    replicated: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    health: Health,
    /// There exactly while `Up` or `Silent`.
    background: Option<Arc<Connection>>,
    /// Of the caller lane and of event loops.
    own: HashMap<Lane, Own>,
    /// Connects the background lane; there while `Connecting`, `Silent` or `Failing`.
    reviver: Option<Task>,
    /// Whether the reviver is connecting, not pausing.
    attempting: bool,
    listener: Option<Listener>,
    /// Hears of new masters.
    follower: Option<Task>,
    /// Whether `NodeDown` was reported and `NodeUp` is due.
    reported: bool,
    closed: bool,
    /// What was warned of, once each.
    warned: HashSet<String>,
}

/// The connection of a lane that is driven by those who use it.
#[derive(Default)]
struct Own {
    connection: Option<Arc<Connection>>,
    /// Held by the one that connects.
    attempt: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
enum Health {
    #[default]
    Idle,
    Connecting,
    Up,
    Silent {
        since: Instant,
    },
    Failing {
        error: NodeError,
        at: Instant,
    },
}

/// What a request finds.
enum Standing {
    Go,
    Wait,
    Fail(NodeError),
}

/// A task that ends with its owner.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection with its handshake done.
struct Connection {
    link: Link,
    facts: Facts,
    redis: MultiplexedConnection,
    /// Set when the server closed it.
    dead: Arc<AtomicBool>,
    /// Set when nobody may use it any more.
    retired: AtomicBool,
    unanswered: AtomicUsize,
    /// How many of the unanswered nobody waits for; a probe finds out when they were answered.
    abandoned: AtomicUsize,
    probing: AtomicBool,
    /// How many requests wait for others to be answered.
    queued: AtomicUsize,
    answers: Notify,
    /// When the last request was sent.
    used: Mutex<Instant>,
    /// Clean-ups and the probe: they outlive whoever asked for them, but not the connection.
    tasks: Mutex<JoinSet<()>>,
}

impl Connection {
    /// Stops its tasks. The socket closes with the last request on it.
    fn retire(&self) {
        self.retired.store(true, SeqCst);
        self.answers.notify_waiters();
        self.tasks.lock().abort_all();
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        // Checked under the lock, so that no task slips in behind `retire`.
        if !self.retired.load(SeqCst) {
            tasks.spawn_on(task, &runtime::background());
        }
    }

    fn number(&self) -> u64 {
        self.link.number
    }
}

/// What a server said of itself when the connection was made.
#[derive(Debug, Default)]
struct Facts {
    peer: Option<(i64, String)>,
    run: Option<String>,
    version: Option<String>,
    /// Since when its keys may be incomplete, µs on its own clock; 0 for unknown.
    lost_at: i64,
    /// Whether every write is on disk before its reply.
    durable: bool,
    /// Whether it is the replica of another.
    replica: bool,
    /// The eviction policy, if it can evict.
    evicts: Option<String>,
}

/// A request on its way. Dropped unanswered, it leaves the connection to a probe or, in the caller lane, retires it.
struct Outstanding<'a> {
    inner: &'a Arc<Inner>,
    connection: &'a Arc<Connection>,
    since: Instant,
    answered: bool,
}

impl<'a> Outstanding<'a> {
    fn new(inner: &'a Arc<Inner>, connection: &'a Arc<Connection>) -> Self {
        connection.unanswered.fetch_add(1, SeqCst);
        let since = Instant::now();
        *connection.used.lock() = since;
        Self { inner, connection, since, answered: false }
    }

    fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        if self.inner.forked() {
            return;
        }
        if self.answered {
            self.connection.unanswered.fetch_sub(1, SeqCst);
            // Each answer lets one in, whose own answer lets in the next.
            if self.connection.queued.load(SeqCst) > 0 {
                self.connection.answers.notify_one();
            }
        } else if self.connection.link.lane == Lane::Caller {
            // Nobody may drive it for a long time: it must not be trusted with anything more.
            self.inner.retire(self.connection.link.lane, self.connection.number());
        } else {
            self.connection.abandoned.fetch_add(1, SeqCst);
            self.inner.probe(self.connection, self.since);
        }
    }
}

impl Inner {
    fn forked(&self) -> bool {
        self.generation != runtime::generation()
    }

    fn emit(&self, event: &Event) {
        (self.events)(event);
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn close(&self) {
        let (background, own, reviver, listener, follower);
        {
            let mut state = self.state.lock();
            state.closed = true;
            state.health = Health::Idle;
            background = state.background.take();
            own = std::mem::take(&mut state.own);
            reviver = state.reviver.take();
            listener = state.listener.take();
            follower = state.follower.take();
        }
        for connection in background.into_iter().chain(own.into_values().filter_map(|own| own.connection)) {
            connection.retire();
        }
        drop((reviver, listener, follower));
        self.news.send_replace(());
    }

    // ---- health -----------------------------------------------------------------------------------------------

    /// Whether a request may go on; wakes the reviver where that is due.
    fn standing(self: &Arc<Self>, state: &mut State) -> Standing {
        if state.closed {
            return Standing::Fail(closed());
        }
        match &state.health {
            Health::Up => Standing::Go,
            Health::Connecting => Standing::Wait,
            Health::Silent { since } => Standing::Fail(not_run(format!("no answer for {:.1?}", since.elapsed()))),
            Health::Failing { error, at } => {
                if state.attempting || at.elapsed() <= LONGEST_PAUSE {
                    return Standing::Fail(error.clone());
                }
                state.health = Health::Connecting;
                self.revive(state, Duration::ZERO);
                Standing::Wait
            }
            Health::Idle => {
                state.health = Health::Connecting;
                self.revive(state, Duration::ZERO);
                Standing::Wait
            }
        }
    }

    /// Sees to it that something connects: at once, or after a first pause.
    fn revive(self: &Arc<Self>, state: &mut State, pause: Duration) {
        if state.reviver.is_some() {
            if pause.is_zero() {
                self.kick.notify_one();
            }
            return;
        }
        let inner = Arc::clone(self);
        let reviver = async move {
            let mut next = FIRST_PAUSE;
            tokio::time::sleep(pause).await;
            loop {
                inner.state.lock().attempting = true;
                let connected = inner.connect(Lane::Background).await;
                let Err(error) = connected.and_then(|connection| inner.install(&connection)) else {
                    return;
                };
                let pause = if error.is_permanent() { PERMANENT_PAUSE } else { next };
                next = (next * 2).min(LONGEST_PAUSE);
                inner.attempt_failed(error);
                let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
                let _ = tokio::time::timeout(pause, inner.kick.notified()).await;
            }
        };
        state.reviver = Some(Task(runtime::background().spawn(reviver)));
    }

    /// Whether requests fail, and the reviver is at work.
    fn is_troubled(&self) -> bool {
        let state = self.state.lock();
        !state.closed && !matches!(state.health, Health::Idle | Health::Up)
    }

    fn attempt_failed(&self, error: NodeError) {
        let report = {
            let mut state = self.state.lock();
            state.attempting = false;
            if state.closed || matches!(state.health, Health::Up | Health::Silent { .. }) {
                return;
            }
            let report = !std::mem::replace(&mut state.reported, true);
            let cause = error.detail.clone();
            state.health = Health::Failing { error, at: Instant::now() };
            report.then_some(cause)
        };
        self.report_down(report);
        self.news.send_replace(());
    }

    fn report_down(&self, cause: Option<String>) {
        if let Some(cause) = cause {
            self.emit(&Event::NodeDown { node: self.name.to_string(), cause });
        }
    }

    /// Takes a new background connection into use, in place of one that may still hang.
    fn install(&self, connection: &Arc<Connection>) -> Result<(), NodeError> {
        let (old, came_back);
        let mut former = Vec::new();
        {
            let mut state = self.state.lock();
            if state.closed {
                return Ok(());
            }
            if matches!(state.health, Health::Up) {
                // The silent connection answered just now.
                return Ok(());
            }
            if connection.dead.load(SeqCst) {
                return Err(not_run(CLOSED_BY_SERVER));
            }
            if self.target.follows() {
                // Those of other lanes lead to the former master.
                let led_elsewhere = |own: &mut Own| own.connection.take_if(|c| c.link.run != connection.link.run);
                former.extend(state.own.values_mut().filter_map(led_elsewhere));
            }
            old = state.background.replace(Arc::clone(connection));
            state.health = Health::Up;
            state.attempting = false;
            // This is called by the reviver as its last step; aborting it does nothing any more.
            state.reviver = None;
            came_back = std::mem::take(&mut state.reported);
        }
        for old in old.into_iter().chain(former) {
            old.retire();
        }
        self.report_up(came_back);
        self.news.send_replace(());
        self.warn_of_eviction(&connection.facts);
        Ok(())
    }

    fn report_up(&self, came_back: bool) {
        if came_back {
            self.emit(&Event::NodeUp { node: self.name.to_string() });
            self.changed();
        }
    }

    /// Warns once of each `what`.
    fn warn(&self, what: String, detail: impl FnOnce() -> String) {
        if self.state.lock().warned.insert(what) {
            self.emit(&Event::NodeWarning { node: self.name.to_string(), detail: detail() });
        }
    }

    fn warn_of_eviction(&self, facts: &Facts) {
        if let Some(policy) = &facts.evicts {
            self.warn(format!("eviction {}", facts.run.as_deref().unwrap_or_default()), || {
                format!("maxmemory-policy {policy} may evict held locks; use noeviction")
            });
        }
    }

    /// A connection broke. Does nothing if it is not in use any more.
    fn broke(self: &Arc<Self>, lane: Lane, number: u64, cause: &str) {
        if lane != Lane::Background {
            if self.retire(lane, number) {
                self.changed();
            }
            return;
        }
        let (gone, report);
        {
            let mut state = self.state.lock();
            let Some(connection) = state.background.take_if(|c| c.number() == number) else {
                return;
            };
            gone = connection;
            state.health = Health::Connecting;
            report = !std::mem::replace(&mut state.reported, true);
            self.revive(&mut state, Duration::ZERO);
        }
        gone.retire();
        self.report_down(report.then(|| cause.to_owned()));
        self.changed();
    }

    /// Leaves a master as soon as the Sentinels elect another, even if it still answers.
    fn hear_elections(self: &Arc<Self>) {
        let Target::Followed(sentinels) = &*self.target else { return };
        let mut state = self.state.lock();
        if state.closed || state.follower.is_some() {
            return;
        }
        let (mut elections, inner) = (sentinels.elections(), Arc::downgrade(self));
        state.follower = Some(Task(runtime::background().spawn(async move {
            while let Some(master) = elections.recv().await {
                let Some(inner) = inner.upgrade() else { return };
                if let Target::Followed(sentinels) = &*inner.target
                    && !sentinels.knows(&master)
                {
                    inner.abandon("the Sentinels elected another master");
                }
            }
        })));
    }

    /// Breaks all connections.
    fn abandon(self: &Arc<Self>, cause: &str) {
        let connections: Vec<_> = {
            let state = self.state.lock();
            let own = state.own.values().filter_map(|own| own.connection.as_ref());
            state.background.iter().chain(own).map(|connection| connection.link.clone()).collect()
        };
        // Its channel ends, and waiters subscribe anew.
        let listener = self.state.lock().listener.take();
        drop(listener);
        for link in connections {
            self.broke(link.lane, link.number, cause);
        }
    }

    /// Forgets the connection of a lane of its own, if it is this one.
    fn retire(&self, lane: Lane, number: u64) -> bool {
        let gone = {
            let mut state = self.state.lock();
            let own = state.own.get_mut(&lane);
            own.and_then(|own| own.connection.take_if(|c| c.number() == number))
        };
        gone.is_some_and(|connection| {
            connection.retire();
            true
        })
    }

    /// A reply on the background connection is overdue.
    fn overdue(self: &Arc<Self>, number: u64, since: Instant) {
        let mut state = self.state.lock();
        let current = state.background.as_ref().is_some_and(|c| c.number() == number);
        if !current || !matches!(state.health, Health::Up) {
            return;
        }
        let report = self.fall_silent(&mut state, since);
        drop(state);
        self.report_down(report);
    }

    fn fall_silent(self: &Arc<Self>, state: &mut State, since: Instant) -> Option<String> {
        state.health = Health::Silent { since };
        // Not at once: a reply that is merely late is on its way already.
        self.revive(state, FIRST_PAUSE);
        let report = !std::mem::replace(&mut state.reported, true);
        report.then(|| format!("no answer for {:.1?}", since.elapsed()))
    }

    /// A reply in a lane of its own is overdue: the background finds out when the node is back.
    fn own_overdue(self: &Arc<Self>, since: Instant) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let silence = || format!("no answer for {:.1?}", since.elapsed());
        match (&state.health, state.background.clone()) {
            (Health::Up, Some(connection)) => {
                let report = self.fall_silent(&mut state, since);
                drop(state);
                self.report_down(report);
                self.probe(&connection, since);
            }
            (Health::Idle, _) => {
                state.health = Health::Failing { error: not_run(silence()), at: Instant::now() };
                self.revive(&mut state, Duration::ZERO);
                let report = !std::mem::replace(&mut state.reported, true);
                drop(state);
                self.report_down(report.then(silence));
            }
            // Known already, or about to be.
            _ => {}
        }
    }

    /// A reply came on the background connection.
    fn answered(&self, number: u64) {
        {
            let mut state = self.state.lock();
            let current = state.background.as_ref().is_some_and(|c| c.number() == number);
            if !current || !matches!(state.health, Health::Silent { .. }) {
                return;
            }
            state.health = Health::Up;
            state.reviver = None;
            state.attempting = false;
            state.reported = false;
        }
        self.report_up(true);
        self.news.send_replace(());
    }

    /// Sends PING behind requests that nobody waits for any more: its reply tells that they were answered, and its
    /// absence that the node is down. One probe a connection.
    fn probe(self: &Arc<Self>, connection: &Arc<Connection>, since: Instant) {
        if connection.retired.load(SeqCst) || connection.probing.swap(true, SeqCst) {
            return;
        }
        let (inner, probed) = (Arc::clone(self), Arc::clone(connection));
        let mut since = since;
        connection.spawn(async move {
            let number = probed.number();
            loop {
                let abandoned = probed.abandoned.swap(0, SeqCst);
                let (ping, mut redis) = (ping(), probed.redis.clone());
                let mut reply = pin!(redis.send_packed_command(&ping));
                let due = since + inner.reply_timeout;
                let reply = if let Ok(reply) = tokio::time::timeout_at(due, &mut reply).await {
                    reply
                } else {
                    inner.overdue(number, since);
                    reply.await
                };
                // A refusal is an answer too.
                if let Err(error) = reply {
                    inner.broke(probed.link.lane, number, &failure(&error).detail);
                    return;
                }
                probed.unanswered.fetch_sub(abandoned, SeqCst);
                probed.answers.notify_waiters();
                inner.answered(number);
                since = Instant::now();
                probed.probing.store(false, SeqCst);
                let more = probed.abandoned.load(SeqCst) > 0;
                if !more || probed.probing.swap(true, SeqCst) {
                    return;
                }
            }
        });
    }

    // ---- connections ------------------------------------------------------------------------------------------

    /// The background connection, once there is one. Waits no longer than a connection may take, nor than `timeout`.
    async fn background(self: &Arc<Self>, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
        let look = || {
            let mut state = self.state.lock();
            match self.standing(&mut state) {
                Standing::Go => state.background.clone().map(Ok),
                Standing::Wait => None,
                Standing::Fail(error) => Some(Err(error)),
            }
        };
        if let Some(found) = look() {
            return found;
        }
        let limit = timeout.min(self.connect_timeout);
        patient(Lane::Background, limit, self.look_again(look)).await.unwrap_or_else(|| Err(no_connection(limit)))
    }

    /// Looks each time there is news.
    async fn look_again<T>(&self, look: impl Fn() -> Option<T>) -> T {
        let mut news = self.news.subscribe();
        loop {
            news.mark_unchanged();
            if let Some(found) = look() {
                return found;
            }
            // The sender is in `self`.
            let _ = news.changed().await;
        }
    }

    /// A lane's own connection; made here and now, by one at a time, since nothing else drives it.
    async fn own(self: &Arc<Self>, lane: Lane, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
        let known = |state: &State| state.own.get(&lane).and_then(|own| own.connection.clone());
        // `None`: wait for the background to try first. `Some(Ok(None))`: connect.
        let look = || {
            let mut state = self.state.lock();
            if state.closed {
                return Some(Err(closed()));
            }
            match state.health {
                // It does not need the background's connection, only a node not known to be down.
                Health::Idle | Health::Up => Some(Ok(known(&state))),
                Health::Connecting if !state.reported => Some(Ok(known(&state))),
                _ => match self.standing(&mut state) {
                    Standing::Fail(error) => Some(Err(error)),
                    Standing::Go | Standing::Wait => None,
                },
            }
        };
        if let Some(found) = look()
            && let Some(connection) = found?
        {
            let rested = connection.used.lock().elapsed() >= RESTED;
            if !rested {
                return Ok(connection);
            }
            // A few turns, in which its end, if it came, is read: else this request would be lost with it.
            #[cfg(target_os = "linux")]
            if let (Lane::Host(_), Some(turns)) = (lane, reactor::current()) {
                turns.peek();
            }
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            if !connection.retired.load(SeqCst) && !connection.dead.load(SeqCst) {
                return Ok(connection);
            }
        }
        let limit = timeout.min(self.connect_timeout);
        let attempt = async {
            let only_one = self.state.lock().own.entry(lane).or_default().attempt.clone();
            let _only_one = only_one.lock().await;
            // Another caller may have connected, or failed, in the meantime.
            if let Some(connection) = self.look_again(look).await? {
                return Ok(connection);
            }
            let connection = match self.connect(lane).await {
                Ok(connection) => connection,
                Err(error) => {
                    self.own_attempt_failed(&error);
                    return Err(error);
                }
            };
            let mut state = self.state.lock();
            if state.closed {
                return Err(closed());
            }
            if connection.dead.load(SeqCst) {
                return Err(not_run(CLOSED_BY_SERVER));
            }
            // Event loops come and go.
            state.own.retain(|_, own| own.connection.is_some() || Arc::strong_count(&own.attempt) > 1);
            state.own.entry(lane).or_default().connection = Some(Arc::clone(&connection));
            drop(state);
            self.warn_of_eviction(&connection.facts);
            Ok(connection)
        };
        let result = patient(lane, limit, attempt).await;
        result.unwrap_or_else(|| {
            let error = no_connection(limit);
            if limit == self.connect_timeout {
                self.own_attempt_failed(&error);
            }
            Err(error)
        })
    }

    /// A lane of its own could not connect: others need not try as well, the reviver does.
    fn own_attempt_failed(self: &Arc<Self>, error: &NodeError) {
        let mut state = self.state.lock();
        if state.closed || !matches!(state.health, Health::Idle) {
            return;
        }
        state.health = Health::Failing { error: error.clone(), at: Instant::now() };
        let report = !std::mem::replace(&mut state.reported, true);
        self.revive(&mut state, FIRST_PAUSE);
        drop(state);
        self.report_down(report.then(|| error.detail.clone()));
    }

    /// Connects and asks the server who it is. The connection is driven by the runtime this runs on.
    async fn connect(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        if lane == Lane::Replicated {
            // Whoever asks may not drive it; the background does.
            let inner = Arc::clone(self);
            let connected = runtime::detached(async move { inner.connect_here(lane).await }).await;
            return connected.unwrap_or_else(|| Err(closed()));
        }
        self.connect_here(lane).await
    }

    async fn connect_here(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        tokio::time::timeout(self.connect_timeout, self.handshake(lane))
            .await
            .unwrap_or_else(|_| Err(no_connection(self.connect_timeout)))
    }

    async fn handshake(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, SeqCst);
        let clients = self.target.clients().await?;
        let dead = Arc::new(AtomicBool::new(false));
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(MOST_UNANSWERED);
        let on_push = {
            // Not strong: the connection, and so this closure, belongs to the node.
            let (inner, dead): (Weak<Self>, _) = (Arc::downgrade(self), Arc::clone(&dead));
            move |push: PushInfo| -> Result<(), SendError> {
                if push.kind == PushKind::Disconnection {
                    dead.store(true, SeqCst);
                    if let Some(inner) = inner.upgrade() {
                        inner.broke(lane, number, CLOSED_BY_SERVER);
                    }
                }
                Ok(())
            }
        };
        let watched = config.clone().set_push_sender(on_push);
        let ended = {
            let inner = Arc::downgrade(self);
            move || {
                if let Some(inner) = inner.upgrade() {
                    inner.broke(lane, number, "its event loop ended");
                }
            }
        };
        let connected = match &clients.resp3 {
            None => open(&clients.resp2, lane, config, ended).await,
            Some(client) => match open(client, lane, watched, ended.clone()).await {
                Err(error) if lacks_hello(&error) => open(&clients.resp2, lane, config, ended).await,
                other => other,
            },
        };
        let redis = connected.map_err(|error| refused_connection(&error))?;
        let mut facts = identify(&redis).await?;
        if facts.replica && self.target.follows() {
            return Err(not_run("the master that the Sentinels name is a replica yet, or by now"));
        }
        self.hear_elections();
        if self.in_cluster {
            // A slot comes from another server, whose restarts are not this one's.
            (facts.lost_at, facts.durable) = (0, false);
        }
        let server = self.in_cluster.then(|| Arc::clone(&self.name));
        let link = Link { lane, number, peer: facts.peer.clone(), run: facts.run.clone(), server };
        Ok(Arc::new(Connection {
            link,
            facts,
            redis,
            dead,
            retired: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            probing: AtomicBool::new(false),
            queued: AtomicUsize::new(0),
            answers: Notify::new(),
            used: Mutex::new(Instant::now()),
            tasks: Mutex::new(JoinSet::new()),
        }))
    }

    // ---- requests ---------------------------------------------------------------------------------------------

    /// Runs a script. `asking`: whether it was sent here by a server that is giving its slot away.
    async fn run(
        self: &Arc<Self>,
        lane: Lane,
        call: &Call,
        timeout: Duration,
        sent: &Sent,
        asking: bool,
    ) -> Result<Reply, NodeError> {
        let mut with = With { asking, replicas: None };
        if call.replicas == 0 {
            let connection = match lane {
                Lane::Background => self.background(timeout).await?,
                Lane::Caller | Lane::Host(_) | Lane::Replicated => self.own(lane, timeout).await?,
            };
            return self.eval(&connection, call, timeout, sent, with).await;
        }
        let started = Instant::now();
        let Some(_turn) = patient(Lane::Replicated, timeout, self.replicated.lock()).await else {
            return Err(not_run("replicas have not acknowledged earlier locks yet"));
        };
        let left = timeout.saturating_sub(started.elapsed());
        let connection = self.own(Lane::Replicated, left).await?;
        // Shorter than a reply may take: a server that waits for replicas is not silent.
        let limit = left.min(self.reply_timeout) / 2;
        with.replicas = Some((call.replicas, limit));
        self.eval(&connection, call, left, sent, with).await
    }

    async fn eval(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        call: &Call,
        timeout: Duration,
        sent: &Sent,
        with: With,
    ) -> Result<Reply, NodeError> {
        self.check_identity(connection, call)?;
        if connection.unanswered.load(SeqCst) >= MOST_UNANSWERED {
            self.room(connection, timeout).await?;
        }
        let command = command("EVALSHA", &call.script.sha, call, &connection.facts);
        sent.set(connection.link.clone());
        let value = self.request(connection, &command, Some(call), timeout, with).await?;
        self.understand(connection, answer(value, call))
    }

    /// A reply; one that says that the server is no master any more ends its connection.
    fn understand(
        self: &Arc<Self>,
        connection: &Connection,
        reply: Result<Reply, NodeError>,
    ) -> Result<Reply, NodeError> {
        match reply {
            Err(error) if error.hint == Some(Hint::Replica) && self.target.follows() => {
                self.broke(connection.link.lane, connection.number(), "became a replica");
                Err(not_run("became a replica"))
            }
            Err(error) if !self.in_cluster => Err(misplaced(error)),
            other => other,
        }
    }

    /// Waits until the connection takes a further request: thousands may be made at once by a healthy host.
    async fn room(&self, connection: &Connection, timeout: Duration) -> Result<(), NodeError> {
        let room = async {
            loop {
                let answered = connection.answers.notified();
                if connection.retired.load(SeqCst) {
                    return Err(not_run("connection replaced"));
                }
                if connection.unanswered.load(SeqCst) < MOST_UNANSWERED {
                    return Ok(());
                }
                answered.await;
            }
        };
        connection.queued.fetch_add(1, SeqCst);
        let room = patient(connection.link.lane, timeout.min(self.reply_timeout), room).await;
        connection.queued.fetch_sub(1, SeqCst);
        room.unwrap_or_else(|| Err(unanswered(MOST_UNANSWERED)))
    }

    fn check_identity(&self, connection: &Connection, call: &Call) -> Result<(), NodeError> {
        if call.identify && self.guarded && connection.facts.run.is_none() {
            return Err(NodeError::new(NodeErrorKind::Permanent, "needs the right to run INFO"));
        }
        Ok(())
    }

    /// One request; with a call, it is sent again in full when the server does not know its script. Gives up after
    /// `timeout`, and then sends nothing more.
    async fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        command: &Cmd,
        call: Option<&Call>,
        timeout: Duration,
        with: With,
    ) -> Result<Value, NodeError> {
        let lane = connection.link.lane;
        // What takes longer takes the node down.
        let timeout = timeout.min(self.reply_timeout);
        let outstanding = Outstanding::new(self, connection);
        let since = outstanding.since;
        let reply = patient(lane, timeout, exchange(connection, command, call, with)).await;
        match reply {
            Some(Ok(value)) => {
                outstanding.answered();
                Ok(value)
            }
            Some(Err(error)) => {
                let error = failure(&error);
                self.broke(lane, connection.number(), &error.detail);
                Err(error)
            }
            None => {
                if timeout == self.reply_timeout {
                    match lane {
                        Lane::Background => self.overdue(connection.number(), since),
                        Lane::Caller | Lane::Host(_) | Lane::Replicated => self.own_overdue(since),
                    }
                }
                Err(no_answer(timeout))
            }
        }
    }

    async fn eval_after(self: &Arc<Self>, link: Link, call: Call, timeout: Duration) -> Result<Reply, NodeError> {
        let current = {
            let state = self.state.lock();
            match link.lane {
                Lane::Background => state.background.clone(),
                Lane::Host(_) | Lane::Replicated => state.own.get(&link.lane).and_then(|own| own.connection.clone()),
                // Nobody may drive it.
                Lane::Caller => None,
            }
        };
        let mut kill = None;
        let mut ordered = true;
        let connection = if let Some(same) = current.filter(|c| c.number() == link.number) {
            same
        } else {
            // Nobody may use a connection that is about to be killed.
            self.retire(link.lane, link.number);
            let other = self.settled(timeout).await?;
            ordered = matches!((&link.run, &other.facts.run), (Some(old), Some(new)) if old != new);
            kill = link.peer.filter(|(_, address)| match (&link.run, &other.facts.run) {
                // Of another run is nothing left, and the id may be somebody else's by now.
                (Some(old), Some(new)) => old == new,
                // Unknown: id and address together are as good as unique.
                _ => !address.is_empty(),
            });
            other
        };
        self.check_identity(&connection, &call)?;
        if connection.unanswered.load(SeqCst) >= 2 * MOST_UNANSWERED {
            return Err(unanswered(2 * MOST_UNANSWERED));
        }
        let since = Instant::now();
        let (done, result) = oneshot::channel();
        let (inner, carrier) = (Arc::clone(self), Arc::clone(&connection));
        // A task, because the request must stay queued when nobody waits for it any more.
        connection.spawn(async move {
            let _ = done.send(inner.follow(&carrier, kill, ordered, &call).await);
        });
        let mut result = pin!(result);
        let usual = timeout.min(self.reply_timeout);
        let mut reply = patient(Lane::Background, usual, &mut result).await;
        if reply.is_none() {
            if let Lane::Host(_) = link.lane {
                // Perhaps its event loop stands still: the next try does without it.
                self.retire(link.lane, link.number);
            }
            if usual == self.reply_timeout {
                self.overdue(connection.number(), since);
            }
            self.probe(&connection, since);
            reply = patient(Lane::Background, timeout.saturating_sub(usual), &mut result).await;
        }
        match reply {
            Some(Ok(result)) => result,
            // The task was aborted with its connection.
            Some(Err(_)) => Err(NodeError::new(NodeErrorKind::Unknown, "connection replaced")),
            None => Err(no_answer(timeout)),
        }
    }

    /// The background connection, be it silent or not, once there is one.
    async fn settled(self: &Arc<Self>, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
        let look = || {
            let mut state = self.state.lock();
            if state.closed {
                return Some(Err(closed()));
            }
            if state.background.is_none() {
                // Called for its effect on the reviver; a failing node is waited for.
                let _ = self.standing(&mut state);
            }
            state.background.clone().map(Ok)
        };
        let found = patient(Lane::Background, timeout, self.look_again(look)).await;
        found.unwrap_or_else(|| match &self.state.lock().health {
            Health::Failing { error, .. } => Err(error.clone()),
            _ => Err(no_connection(timeout)),
        })
    }

    /// Runs a call behind everything on this connection and, if asked to, behind the death of another.
    async fn follow(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        kill: Option<(i64, String)>,
        ordered: bool,
        call: &Call,
    ) -> Result<Reply, NodeError> {
        let outstanding = Outstanding::new(self, connection);
        let killing = async {
            if let Some((id, address)) = kill {
                let mut kill = Cmd::with_capacity(6, 64);
                kill.arg("CLIENT").arg("KILL").arg("ID").arg(id);
                if !address.is_empty() {
                    kill.arg("ADDR").arg(address);
                }
                let reply = connection.redis.clone().send_packed_command(&kill).await;
                // The server answers 0 when that client is gone already.
                if let Ok(Value::ServerError(error)) = reply {
                    self.warn_of_kill(&error);
                    return false;
                }
                return true;
            }
            ordered
        };
        let command = command("EVALSHA", &call.script.sha, call, &connection.facts);
        // Both are sent at once, in this order.
        let (ordered, mut value) =
            tokio::join!(biased; killing, exchange(connection, &command, Some(call), With::default()));
        if !ordered {
            // What the old connection still carries runs about when this did, since the server reads all of them in
            // turn: a little later it has run.
            for pause in WITHOUT_BARRIER {
                if value != Ok(Value::Int(0)) {
                    break;
                }
                tokio::time::sleep(pause).await;
                value = exchange(connection, &command, Some(call), With::default()).await;
            }
        }
        match value {
            Ok(value) => {
                outstanding.answered();
                self.understand(connection, answer(value, call))
            }
            Err(error) => {
                let error = failure(&error);
                self.broke(connection.link.lane, connection.number(), &error.detail);
                Err(error)
            }
        }
    }

    fn warn_of_kill(&self, error: &ServerError) {
        self.warn("kill".to_owned(), || {
            format!(
                "cannot close a connection of its own ({}); a lock that nobody waits for any more may stay until its \
                 ttl",
                refusal(error).detail
            )
        });
    }

    // ---- subscriptions ----------------------------------------------------------------------------------------

    async fn subscribe(self: &Arc<Self>, channel: String) -> Result<Subscription, NodeError> {
        // Twice, since a listener may end between being looked up and being asked.
        for _ in 0..2 {
            let (answer, answered) = oneshot::channel();
            let join = Request::Join { channel: channel.clone(), answer };
            if self.listener()?.send(join).is_ok() {
                let subscribed = answered.await.unwrap_or_else(|_| Err(not_run(CLOSED_BY_SERVER)));
                if let Err(error) = &subscribed
                    && error.is_permanent()
                {
                    self.warn("subscribe".to_owned(), || {
                        format!("cannot subscribe to release messages, polls instead: {error}")
                    });
                }
                return subscribed;
            }
        }
        Err(not_run(CLOSED_BY_SERVER))
    }

    fn listener(self: &Arc<Self>) -> Result<mpsc::UnboundedSender<Request>, NodeError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        if matches!(state.health, Health::Silent { .. } | Health::Failing { .. })
            && let Standing::Fail(error) = self.standing(&mut state)
        {
            return Err(error);
        }
        if let Some(listener) = &state.listener
            && !listener.requests.is_closed()
        {
            return Ok(listener.requests.clone());
        }
        let (requests, inbox) = mpsc::unbounded_channel();
        let actor = Actor {
            target: Arc::clone(&self.target),
            sharded: self.in_cluster,
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
            generation: self.generation,
            requests: requests.downgrade(),
            channels: HashMap::new(),
        };
        let task = Task(runtime::background().spawn(actor.run(inbox)));
        state.listener = Some(Listener { requests: requests.clone(), _task: task });
        Ok(requests)
    }
}

/// Connects. The connection is driven by the runtime or the event loop this runs on; `ended` tells when that loop ends.
async fn open(
    client: &Client,
    lane: Lane,
    config: AsyncConnectionConfig,
    ended: impl FnOnce() + Send + 'static,
) -> RedisResult<MultiplexedConnection> {
    #[cfg(target_os = "linux")]
    if let Lane::Host(_) = lane {
        return hosted::open(client, config, ended).await;
    }
    let _ = (lane, ended);
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Waits for `future`, but no longer than `limit`.
async fn patient<F: Future>(lane: Lane, limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // Most futures here need no timer at all.
    if let Poll::Ready(output) = poll!(&mut future) {
        return Some(output);
    }
    let mut timer = pin!(timer(lane, limit));
    let output = tokio::select! {
        biased;
        output = &mut future => Some(output),
        () = &mut timer => None,
    };
    if output.is_some() {
        return output;
    }
    // After a pause of this process, or of the thread that drives the caller lane, the reply and the timer are due in
    // the same turn of the event loop, and the timer is seen first. Let the connection's task run before giving up.
    for _ in 0..3 {
        tokio::task::yield_now().await;
        if let Poll::Ready(output) = poll!(&mut future) {
            return Some(output);
        }
    }
    None
}

/// A timer on the runtime that drives the lane: the future may be polled by another one, or by none.
fn timer(lane: Lane, limit: Duration) -> Sleep {
    match lane {
        Lane::Background | Lane::Host(_) | Lane::Replicated => {
            let background = runtime::background();
            let _inside = background.enter();
            tokio::time::sleep(limit)
        }
        Lane::Caller => tokio::time::sleep(limit),
    }
}

#[cfg(test)]
#[path = "../../testing/redis.rs"]
mod tests;
