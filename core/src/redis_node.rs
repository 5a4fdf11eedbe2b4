//! A node that is a Redis or Valkey server: its connections, its health, and what its errors mean. The only file that
//! knows the `redis` crate, which here multiplexes requests on a connection and parses replies; it never repeats a
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
//! dead node costs nothing. The caller lane has a connection of its own but no health of its own.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    future::Future,
    io,
    pin::pin,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use crate::sync::Mutex;
use futures_util::{StreamExt, poll, stream::FuturesUnordered};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, ServerError, TlsCertificates, Value,
    aio::{MultiplexedConnection, SendError},
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
    time::{Instant, Sleep},
};

use crate::{
    config::{Endpoint, Settings, Tls, Transport},
    error::LockError,
    event::{Event, EventSink},
    node::{BoxFuture, Lane, Link, Node, NodeError, NodeErrorKind, NodeInfo, Sent, Subscription},
    runtime,
    script::{Call, Reply},
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
        let config = &settings.config;
        let inner = Inner {
            name: endpoint.transport.to_string(),
            client: client(endpoint, &config.tls, ProtocolVersion::RESP3)?,
            plain_client: client(endpoint, &config.tls, ProtocolVersion::RESP2)?,
            connect_timeout: config.connect_timeout,
            reply_timeout: config.reply_timeout,
            guarded: settings.guarded(),
            events,
            generation: runtime::generation(),
            state: Mutex::new(State::default()),
            caller_attempt: tokio::sync::Mutex::new(()),
            changes: watch::Sender::new(0),
            news: watch::Sender::new(()),
            kick: Notify::new(),
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
        Box::pin(async move {
            let connection = match lane {
                Lane::Background => inner.background(timeout).await?,
                Lane::Caller => inner.caller(timeout).await?,
            };
            inner.eval(&connection, &call, timeout, &sent).await
        })
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
            match inner.request(&connection, &ping(), None, timeout).await? {
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
}

/// What the node and its tasks share. Tasks hold it strongly; `close` ends them.
struct Inner {
    name: String,
    /// RESP3: the server's goodbye is seen at once.
    client: Client,
    /// RESP2: for servers without HELLO, and for pub/sub.
    plain_client: Client,
    connect_timeout: Duration,
    reply_timeout: Duration,
    guarded: bool,
    events: EventSink,
    /// The fork generation it belongs to.
    generation: u64,
    state: Mutex<State>,
    /// Held by the one caller that connects the caller lane.
    caller_attempt: tokio::sync::Mutex<()>,
    changes: watch::Sender<u64>,
    /// Tells those who wait for a connection to look again.
    news: watch::Sender<()>,
    /// Ends the reviver's pause.
    kick: Notify,
}

#[derive(Default)]
struct State {
    health: Health,
    /// There exactly while `Up` or `Silent`.
    background: Option<Arc<Connection>>,
    caller: Option<Arc<Connection>>,
    /// Connects the background lane; there while `Connecting`, `Silent` or `Failing`.
    reviver: Option<Task>,
    /// Whether the reviver is connecting, not pausing.
    attempting: bool,
    listener: Option<Listener>,
    /// Whether `NodeDown` was reported and `NodeUp` is due.
    reported: bool,
    closed: bool,
    /// What was warned of, once each.
    warned: HashSet<String>,
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
            tasks.spawn_on(task, runtime::background());
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
            self.inner.retire_caller(self.connection.number());
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
        let (background, caller, reviver, listener);
        {
            let mut state = self.state.lock();
            state.closed = true;
            state.health = Health::Idle;
            background = state.background.take();
            caller = state.caller.take();
            reviver = state.reviver.take();
            listener = state.listener.take();
        }
        for connection in [background, caller].into_iter().flatten() {
            connection.retire();
        }
        drop((reviver, listener));
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
            self.emit(&Event::NodeDown { node: self.name.clone(), cause });
        }
    }

    /// Takes a new background connection into use, in place of one that may still hang.
    fn install(&self, connection: &Arc<Connection>) -> Result<(), NodeError> {
        let (old, came_back);
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
            old = state.background.replace(Arc::clone(connection));
            state.health = Health::Up;
            state.attempting = false;
            // This is called by the reviver as its last step; aborting it does nothing any more.
            state.reviver = None;
            came_back = std::mem::take(&mut state.reported);
        }
        if let Some(old) = old {
            old.retire();
        }
        self.report_up(came_back);
        self.news.send_replace(());
        self.warn_of_eviction(&connection.facts);
        Ok(())
    }

    fn report_up(&self, came_back: bool) {
        if came_back {
            self.emit(&Event::NodeUp { node: self.name.clone() });
            self.changed();
        }
    }

    /// Warns once of each `what`.
    fn warn(&self, what: String, detail: impl FnOnce() -> String) {
        if self.state.lock().warned.insert(what) {
            self.emit(&Event::NodeWarning { node: self.name.clone(), detail: detail() });
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
        if lane == Lane::Caller {
            if self.retire_caller(number) {
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

    /// Forgets the caller lane's connection, if it is this one.
    fn retire_caller(&self, number: u64) -> bool {
        let gone = self.state.lock().caller.take_if(|c| c.number() == number);
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

    /// A reply in the caller lane is overdue: the background finds out when the node is back.
    fn caller_overdue(self: &Arc<Self>, since: Instant) {
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
                    inner.broke(Lane::Background, number, &failure(&error).detail);
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

    /// The caller lane's connection; made here and now, by one caller at a time, since nothing else drives it.
    async fn caller(self: &Arc<Self>, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
        // `None`: wait for the background to try first. `Some(Ok(None))`: connect.
        let look = || {
            let mut state = self.state.lock();
            if state.closed {
                return Some(Err(closed()));
            }
            match state.health {
                // The caller lane does not need the background's connection, only a node not known to be down.
                Health::Idle | Health::Up => Some(Ok(state.caller.clone())),
                Health::Connecting if !state.reported => Some(Ok(state.caller.clone())),
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
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            if !connection.retired.load(SeqCst) && !connection.dead.load(SeqCst) {
                return Ok(connection);
            }
        }
        let limit = timeout.min(self.connect_timeout);
        let attempt = async {
            let _only_one = self.caller_attempt.lock().await;
            // Another caller may have connected, or failed, in the meantime.
            if let Some(connection) = self.look_again(look).await? {
                return Ok(connection);
            }
            let connection = match self.connect(Lane::Caller).await {
                Ok(connection) => connection,
                Err(error) => {
                    self.caller_attempt_failed(&error);
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
            state.caller = Some(Arc::clone(&connection));
            drop(state);
            self.warn_of_eviction(&connection.facts);
            Ok(connection)
        };
        let result = patient(Lane::Caller, limit, attempt).await;
        result.unwrap_or_else(|| {
            let error = no_connection(limit);
            if limit == self.connect_timeout {
                self.caller_attempt_failed(&error);
            }
            Err(error)
        })
    }

    /// The caller lane could not connect: others need not try as well, the reviver does.
    fn caller_attempt_failed(self: &Arc<Self>, error: &NodeError) {
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
        tokio::time::timeout(self.connect_timeout, self.handshake(lane))
            .await
            .unwrap_or_else(|_| Err(no_connection(self.connect_timeout)))
    }

    async fn handshake(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, SeqCst);
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
        let connected = self.client.get_multiplexed_async_connection_with_config(&watched).await;
        let connected = match connected {
            Err(error) if lacks_hello(&error) => {
                self.plain_client.get_multiplexed_async_connection_with_config(&config).await
            }
            other => other,
        };
        let redis = connected.map_err(|error| refused_connection(&error))?;
        let facts = identify(&redis).await?;
        let link = Link { lane, number, peer: facts.peer.clone(), run: facts.run.clone() };
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

    async fn eval(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        call: &Call,
        timeout: Duration,
        sent: &Sent,
    ) -> Result<Reply, NodeError> {
        self.check_identity(connection, call)?;
        if connection.unanswered.load(SeqCst) >= MOST_UNANSWERED {
            self.room(connection, timeout).await?;
        }
        let command = command("EVALSHA", &call.script.sha, call, &connection.facts);
        sent.set(connection.link.clone());
        reply(self.request(connection, &command, Some(call), timeout).await?)
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
    ) -> Result<Value, NodeError> {
        let lane = connection.link.lane;
        // What takes longer takes the node down.
        let timeout = timeout.min(self.reply_timeout);
        let outstanding = Outstanding::new(self, connection);
        let since = outstanding.since;
        let reply = patient(lane, timeout, exchange(connection, command, call)).await;
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
                        Lane::Caller => self.caller_overdue(since),
                    }
                }
                Err(no_answer(timeout))
            }
        }
    }

    async fn eval_after(self: &Arc<Self>, link: Link, call: Call, timeout: Duration) -> Result<Reply, NodeError> {
        let current = self.state.lock().background.clone();
        let mut kill = None;
        let mut ordered = true;
        let connection = if let Some(same) = current.filter(|c| c.number() == link.number) {
            same
        } else {
            // Nobody may use a connection that is about to be killed.
            self.retire_caller(link.number);
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
        let (ordered, mut value) = tokio::join!(biased; killing, exchange(connection, &command, Some(call)));
        if !ordered {
            // What the old connection still carries runs about when this did, since the server reads all of them in
            // turn: a little later it has run.
            for pause in WITHOUT_BARRIER {
                if value != Ok(Value::Int(0)) {
                    break;
                }
                tokio::time::sleep(pause).await;
                value = exchange(connection, &command, Some(call)).await;
            }
        }
        match value {
            Ok(value) => {
                outstanding.answered();
                reply(value)
            }
            Err(error) => {
                let error = failure(&error);
                self.broke(Lane::Background, connection.number(), &error.detail);
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
            client: self.plain_client.clone(),
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

/// The pub/sub connection of a node and the task that owns it.
struct Listener {
    requests: mpsc::UnboundedSender<Request>,
    _task: Task,
}

enum Request {
    Join { channel: String, answer: Answer },
    Leave { channel: String },
}

type Answer = oneshot::Sender<Result<Subscription, NodeError>>;

/// A change of a channel that the server is asked for, and how it ended.
type Asked = BoxFuture<(String, bool, Result<(), NodeError>)>;

/// A channel on the server: it has at most one request under way, so that SUBSCRIBE and UNSUBSCRIBE of one channel
/// cannot overtake each other.
struct Channel {
    messages: watch::Sender<u64>,
    /// Guards that exist, or will once the server acknowledged.
    users: usize,
    waiting: Vec<Answer>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Joining,
    Joined,
    Leaving,
}

/// Subscriptions of one node. Ends with its connection; that closes every receiver.
struct Actor {
    client: Client,
    connect_timeout: Duration,
    reply_timeout: Duration,
    generation: u64,
    requests: mpsc::WeakUnboundedSender<Request>,
    channels: HashMap<String, Channel>,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Request>) {
        let error = self.listen(&mut inbox).await;
        inbox.close();
        let waiting = self.channels.drain().flat_map(|(_, channel)| channel.waiting);
        for answer in waiting {
            let _ = answer.send(Err(error.clone()));
        }
        while let Some(request) = inbox.recv().await {
            if let Request::Join { answer, .. } = request {
                let _ = answer.send(Err(error.clone()));
            }
        }
    }

    /// Serves until the connection ends; returns why it did.
    async fn listen(&mut self, inbox: &mut mpsc::UnboundedReceiver<Request>) -> NodeError {
        let connecting = self.client.get_async_pubsub();
        let (sink, mut messages) = match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connection)) => connection.split(),
            Ok(Err(error)) => return refused_connection(&error),
            Err(_) => return no_connection(self.connect_timeout),
        };
        let mut asked = FuturesUnordered::<Asked>::new();
        loop {
            tokio::select! {
                request = inbox.recv() => {
                    let ask = match request {
                        Some(Request::Join { channel, answer }) => self.join(channel, answer),
                        Some(Request::Leave { channel }) => self.leave(channel),
                        None => return closed(),
                    };
                    asked.extend(ask.map(|(channel, join)| self.ask(&sink, channel, join)));
                }
                Some((channel, join, result)) = asked.next() => {
                    match result {
                        // Unanswered: everything behind it on this connection would be, too.
                        Err(error) if error.kind == NodeErrorKind::Unknown => return error,
                        result => {
                            let ask = self.done(channel, join, result);
                            asked.extend(ask.map(|(channel, join)| self.ask(&sink, channel, join)));
                        }
                    }
                }
                message = messages.next() => {
                    let Some(message) = message else { return not_run(CLOSED_BY_SERVER) };
                    if let Some(channel) = self.channels.get(message.get_channel_name()) {
                        channel.messages.send_modify(|count| *count += 1);
                    }
                }
            }
        }
    }

    fn ask(&self, sink: &redis::aio::PubSubSink, channel: String, join: bool) -> Asked {
        let (mut sink, timeout) = (sink.clone(), self.reply_timeout);
        Box::pin(async move {
            let asked = async { if join { sink.subscribe(&channel).await } else { sink.unsubscribe(&channel).await } };
            let result = match tokio::time::timeout(timeout, asked).await {
                Ok(result) => result.map_err(|error| {
                    let text = server_text(&error);
                    text.map_or_else(|| failure(&error), |text| refusal_text(&text))
                }),
                Err(_) => Err(no_answer(timeout)),
            };
            (channel, join, result)
        })
    }

    /// These three return what to ask the server for: a channel, and whether to join it.
    fn join(&mut self, name: String, answer: Answer) -> Option<(String, bool)> {
        if let Some(channel) = self.channels.get_mut(&name) {
            channel.users += 1;
            channel.waiting.push(answer);
            if channel.phase == Phase::Joined {
                self.admit(&name);
            }
            return None;
        }
        let messages = watch::Sender::new(0);
        let channel = Channel { messages, users: 1, waiting: vec![answer], phase: Phase::Joining };
        self.channels.insert(name.clone(), channel);
        Some((name, true))
    }

    fn leave(&mut self, name: String) -> Option<(String, bool)> {
        let channel = self.channels.get_mut(&name)?;
        channel.users -= 1;
        if channel.users > 0 || channel.phase != Phase::Joined {
            return None;
        }
        channel.phase = Phase::Leaving;
        Some((name, false))
    }

    fn done(&mut self, name: String, joined: bool, result: Result<(), NodeError>) -> Option<(String, bool)> {
        let channel = self.channels.get_mut(&name)?;
        match result {
            Ok(()) if joined => {
                channel.phase = Phase::Joined;
                self.admit(&name);
                None
            }
            Err(error) if joined => {
                let channel = self.channels.remove(&name)?;
                for answer in channel.waiting {
                    let _ = answer.send(Err(error.clone()));
                }
                None
            }
            // Left; somebody may have come in the meantime.
            _ if channel.users > 0 => {
                channel.phase = Phase::Joining;
                Some((name, true))
            }
            _ => {
                self.channels.remove(&name);
                None
            }
        }
    }

    /// Answers those who waited for the server's acknowledgement. Who does not listen any more drops the guard, and
    /// with it leaves.
    fn admit(&mut self, name: &str) {
        let (Some(channel), Some(requests)) = (self.channels.get_mut(name), self.requests.upgrade()) else {
            return;
        };
        for answer in channel.waiting.drain(..) {
            let guard = Guard { generation: self.generation, leave: Some((requests.clone(), name.to_owned())) };
            let messages = channel.messages.subscribe();
            let _ = answer.send(Ok(Subscription { messages, guard: Box::new(guard) }));
        }
    }
}

/// One user of a channel.
struct Guard {
    generation: u64,
    leave: Option<(mpsc::UnboundedSender<Request>, String)>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some((requests, channel)) = self.leave.take() else { return };
        if self.generation == runtime::generation() {
            // Fails when the connection is gone, and the subscription with it.
            let _ = requests.send(Request::Leave { channel });
        } else {
            // The other end is the parent's.
            std::mem::forget(requests);
        }
    }
}

// ---- waiting --------------------------------------------------------------------------------------------------------

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
        Lane::Background => {
            let _inside = runtime::background().enter();
            tokio::time::sleep(limit)
        }
        Lane::Caller => tokio::time::sleep(limit),
    }
}

// ---- requests and replies -------------------------------------------------------------------------------------------

/// Sends a command and, when it names a script that the server does not know, the whole script.
async fn exchange(connection: &Connection, request: &Cmd, call: Option<&Call>) -> Result<Value, RedisError> {
    let mut redis = connection.redis.clone();
    let value = redis.send_packed_command(request).await?;
    match (&value, call) {
        (Value::ServerError(error), Some(call)) if error.code() == "NOSCRIPT" => {
            let request = command("EVAL", &call.script.source, call, &connection.facts);
            redis.send_packed_command(&request).await
        }
        _ => Ok(value),
    }
}

fn command(name: &str, body: &str, call: &Call, facts: &Facts) -> Cmd {
    let size = name.len() + body.len() + call.keys.iter().chain(&call.args).map(String::len).sum::<usize>() + 72;
    let mut command = Cmd::with_capacity(6 + call.keys.len() + call.args.len(), size);
    command.arg(name).arg(body).arg(call.keys.len());
    for part in call.keys.iter().chain(&call.args) {
        command.arg(part.as_str());
    }
    if call.identify {
        let run = facts.run.as_deref().unwrap_or_default();
        command.arg(run).arg(facts.lost_at).arg(if facts.durable { "1" } else { "0" });
    }
    command
}

fn ping() -> Cmd {
    let mut command = Cmd::with_capacity(1, 4);
    command.arg("PING");
    command
}

fn reply(value: Value) -> Result<Reply, NodeError> {
    Ok(match value {
        Value::Int(number) => Reply::Int(number),
        Value::Boolean(truth) => Reply::Int(i64::from(truth)),
        Value::BulkString(bytes) => Reply::Text(into_text(bytes)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Reply::Text(text),
        Value::Okay => Reply::Text("OK".to_owned()),
        Value::Nil => Reply::List(Vec::new()),
        Value::Array(values) | Value::Set(values) => {
            Reply::List(values.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        Value::Attribute { data, .. } => reply(*data)?,
        Value::ServerError(error) => return Err(refusal(&error)),
        _ => return Err(NodeError::new(NodeErrorKind::Refused, "unexpected kind of reply")),
    })
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

// ---- who the server is ----------------------------------------------------------------------------------------------

/// Asks a server who it is and what it thinks of this connection. What it refuses to say stays unknown.
async fn identify(redis: &MultiplexedConnection) -> Result<Facts, NodeError> {
    let ask = |parts: &'static [&'static str]| {
        let mut redis = redis.clone();
        async move {
            let mut command = Cmd::with_capacity(parts.len(), 32);
            for part in parts {
                command.arg(*part);
            }
            match redis.send_packed_command(&command).await {
                Ok(Value::ServerError(error)) if matches!(error.code(), "NOAUTH" | "DENIED") => Err(refusal(&error)),
                Ok(value) => Ok(value),
                Err(error) => Err(refused_connection(&error)),
            }
        }
    };
    let (client, info, time, sync) = tokio::try_join!(
        ask(&["CLIENT", "INFO"]),
        ask(&["INFO"]),
        ask(&["TIME"]),
        ask(&["CONFIG", "GET", "appendfsync"]),
    )?;
    let mut facts = Facts::default();
    if let Reply::Text(text) = reply(client).unwrap_or(Reply::Int(0)) {
        let field = |name| text.split_whitespace().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        facts.peer = field("id").and_then(|id| id.parse().ok()).zip(field("addr").map(str::to_owned));
    } else if let Value::Int(id) = ask(&["CLIENT", "ID"]).await? {
        // Before 6.2.
        facts.peer = Some((id, String::new()));
    }
    if let Reply::Text(text) = reply(info).unwrap_or(Reply::Int(0)) {
        let field = |name| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        let number = |name| field(name).and_then(|value| value.parse::<i64>().ok());
        facts.run = field("run_id").filter(|run| !run.is_empty()).map(str::to_owned);
        facts.version = field("valkey_version").or_else(|| field("redis_version")).map(str::to_owned);
        facts.evicts = field("maxmemory_policy")
            .filter(|policy| *policy != "noeviction" && number("maxmemory").is_some_and(|m| m > 0))
            .map(str::to_owned);
        // A server that was a replica of another may lack that one's last writes, whenever it was started.
        let never_promoted = field("master_replid2").is_some_and(|id| !id.is_empty() && id.bytes().all(|b| b == b'0'));
        if never_promoted && let (Some(now), Some(uptime)) = (micros(time), number("uptime_in_seconds")) {
            facts.lost_at = now - uptime * 1_000_000;
            facts.durable = number("aof_enabled") == Some(1) && always(&sync);
        }
    }
    Ok(facts)
}

/// Whether the reply to CONFIG GET appendfsync says "always".
fn always(value: &Value) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == b"always",
        Value::SimpleString(text) => text == "always",
        Value::Array(values) => values.iter().any(always),
        Value::Map(pairs) => pairs.iter().any(|(_, value)| always(value)),
        _ => false,
    }
}

/// The reply to TIME, µs.
fn micros(value: Value) -> Option<i64> {
    let reply = reply(value).ok()?;
    let part = |index: usize| match reply.list()?.get(index)? {
        Reply::Text(text) => text.parse::<i64>().ok(),
        Reply::Int(number) => Some(*number),
        Reply::List(_) => None,
    };
    Some(part(0)? * 1_000_000 + part(1)?)
}

// ---- what errors mean -----------------------------------------------------------------------------------------------

fn not_run(detail: impl Into<String>) -> NodeError {
    NodeError::new(NodeErrorKind::NotRun, detail)
}

fn permanent(detail: impl Into<String>) -> NodeError {
    NodeError::new(NodeErrorKind::Permanent, detail)
}

fn closed() -> NodeError {
    not_run("closed")
}

fn no_connection(limit: Duration) -> NodeError {
    not_run(format!("no answer to the connection within {limit:.1?}"))
}

fn no_answer(limit: Duration) -> NodeError {
    NodeError::new(NodeErrorKind::Unknown, format!("no answer within {limit:.1?}"))
}

fn unanswered(count: usize) -> NodeError {
    not_run(format!("{count} requests unanswered"))
}

/// What a server's error reply means.
fn refusal(error: &ServerError) -> NodeError {
    let details = error.details().unwrap_or_default();
    refusal_text(&format!("{} {details}", error.code()))
}

fn refusal_text(text: &str) -> NodeError {
    let (text, in_script) = without_place(text);
    let code = text.split(' ').next().unwrap_or_default();
    let lower = text.to_ascii_lowercase();
    let has = |part: &str| lower.contains(part);
    let kind = if has("wrongtype") {
        NodeErrorKind::WrongType
    } else if matches!(code, "WRONGPASS" | "NOAUTH" | "NOPERM" | "DENIED" | "CROSSSLOT")
        // Raised inside a script, where the code is ERR: Redis 7.0, and those that still wrap the text.
        || has("the user executing the script can't")
        || has("-noperm")
        || has("unknown command")
        || has("unknown redis command")
        || has("unknown subcommand")
        || has("db index")
        || has("without any password configured")
    {
        NodeErrorKind::Permanent
    } else if !in_script
        && matches!(code, "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK")
    {
        NodeErrorKind::NotRun
    } else {
        NodeErrorKind::Refused
    };
    let shown = text.strip_prefix("ERR ").unwrap_or(text).trim_end();
    // A server's errors are one short line; whatever else answers need not fill a log.
    NodeError::new(kind, shown.chars().take(200).collect::<String>())
}

/// An error's text without where in a script it was raised, and whether it was raised in one.
fn without_place(text: &str) -> (&str, bool) {
    if let Some((before, after)) = text.rsplit_once(" script: ")
        && let Some((sha, _)) = after.split_at_checked(40)
        && sha.bytes().all(|byte| byte.is_ascii_hexdigit())
    {
        return (before.trim_end_matches(','), true);
    }
    (text, text.contains("rror running script"))
}

/// The server's own words, if it was the server that refused.
fn server_text(error: &RedisError) -> Option<String> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            Some(format!("{} {}", error.code().unwrap_or("ERR"), error.detail().unwrap_or_default()))
        }
        _ => None,
    }
}

fn lacks_hello(error: &RedisError) -> bool {
    if error.kind() == ErrorKind::RESP3NotSupported {
        return true;
    }
    server_text(error).is_some_and(|text| {
        let lower = text.to_ascii_lowercase();
        lower.starts_with("noproto")
            || (lower.contains("hello") && (lower.contains("unknown command") || lower.starts_with("noperm")))
    })
}

/// Why a connection could not be made. Nothing was sent on it, so nothing ran.
fn refused_connection(error: &RedisError) -> NodeError {
    if let Some(text) = server_text(error) {
        let error = refusal_text(&text);
        return if error.is_permanent() { error } else { not_run(error.detail) };
    }
    match error.kind() {
        ErrorKind::AuthenticationFailed => permanent("wrong user or password"),
        ErrorKind::Parse => permanent("does not speak Redis' protocol"),
        ErrorKind::InvalidClientConfig => permanent(error.to_string()),
        _ => {
            let io = source::<io::Error>(error);
            let tls = io
                .and_then(|io| io.get_ref()?.downcast_ref::<rustls::Error>())
                .or_else(|| source::<rustls::Error>(error));
            match tls {
                Some(tls) => permanent(format!("TLS: {tls}")),
                None => not_run(io.map_or_else(|| error.to_string(), io_text)),
            }
        }
    }
}

/// Why a connection broke under a request.
fn failure(error: &RedisError) -> NodeError {
    let detail = match source::<io::Error>(error) {
        Some(io) => io_text(io),
        None if error.kind() == ErrorKind::Parse => "does not speak Redis' protocol".to_owned(),
        None => CLOSED_BY_SERVER.to_owned(),
    };
    NodeError::new(NodeErrorKind::Unknown, detail)
}

/// What `redis` wrapped.
fn source<T: Error + 'static>(error: &RedisError) -> Option<&T> {
    error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?.downcast_ref()
}

fn io_text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::NotFound => "no such socket".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission to open the socket".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the server".to_owned(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => CLOSED_BY_SERVER.to_owned(),
        _ => error.to_string(),
    }
}

// ---- preparing ------------------------------------------------------------------------------------------------------

fn client(endpoint: &Endpoint, tls: &Tls, protocol: ProtocolVersion) -> Result<Client, LockError> {
    let invalid = |error: RedisError| LockError::invalid("nodes", error.to_string());
    let address = match &endpoint.transport {
        Transport::Tcp { host, port } => ConnectionAddr::Tcp(host.clone(), *port),
        Transport::Unix { path } => ConnectionAddr::Unix(path.into()),
        Transport::Tls { host, port } => {
            ServerName::try_from(host.as_str())
                .map_err(|_| LockError::invalid("nodes", format!("{host:?} is no host name for TLS")))?;
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        Transport::Memory { .. } => {
            return Err(LockError::invalid("nodes", "memory:// is no server"));
        }
    };
    let mut login = RedisConnectionInfo::default()
        .set_db(endpoint.db)
        .set_protocol(protocol)
        .set_lib_name("redlock", env!("CARGO_PKG_VERSION"));
    if let Some(username) = &endpoint.username {
        // Without a password the crate would not log in at all, and act as the default user.
        login = login.set_username(username).set_password("");
    }
    if let Some(password) = &endpoint.password {
        login = login.set_password(password);
    }
    let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(TcpKeepalive::new().with_time(KEEPALIVE));
    let info = address.into_connection_info().map_err(invalid)?.set_tcp_settings(tcp).set_redis_settings(login);
    if matches!(endpoint.transport, Transport::Tls { .. }) {
        Client::build_with_tls(info, certificates(tls)?).map_err(invalid)
    } else {
        Client::open(info).map_err(invalid)
    }
}

/// Reads and checks the TLS settings, so that a mistake shows here and not as a node that is down.
fn certificates(tls: &Tls) -> Result<TlsCertificates, LockError> {
    static PROVIDER: OnceLock<()> = OnceLock::new();
    PROVIDER.get_or_init(|| {
        // Fails if the program has chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    let ca = tls.ca.as_deref().map(|ca| pem("ca", ca)).transpose()?;
    let mut roots = rustls::RootCertStore::empty();
    if let Some(ca) = &ca {
        for certificate in chain("ca", ca)? {
            roots.add(certificate).map_err(|error| LockError::invalid("ca", error.to_string()))?;
        }
    }
    let client = match (&tls.cert, &tls.key) {
        (Some(cert), Some(key)) => {
            let (cert, key) = (pem("cert", cert)?, pem("key", key)?);
            let parsed =
                PrivateKeyDer::from_pem_slice(&key).map_err(|error| LockError::invalid("key", error.to_string()))?;
            rustls::ClientConfig::builder()
                .with_root_certificates(roots)
                .with_client_auth_cert(chain("cert", &cert)?, parsed)
                .map_err(|error| LockError::invalid("cert", error.to_string()))?;
            Some(ClientTlsConfig { client_cert: cert, client_key: key })
        }
        _ => None,
    };
    Ok(TlsCertificates { client_tls: client, root_cert: ca })
}

/// PEM text, given as such or as the path of a file.
fn pem(argument: &'static str, text: &str) -> Result<Vec<u8>, LockError> {
    if text.trim_start().starts_with("-----BEGIN") {
        return Ok(text.as_bytes().to_vec());
    }
    std::fs::read(text).map_err(|error| LockError::invalid(argument, format!("{text}: {error}")))
}

fn chain(argument: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, LockError> {
    let chain = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| LockError::invalid(argument, error.to_string()))?;
    if chain.is_empty() {
        return Err(LockError::invalid(argument, "holds no certificate"));
    }
    Ok(chain)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::{
        fs,
        net::TcpListener,
        path::PathBuf,
        process::{Child, Command, Stdio},
        thread,
    };

    use sha1_smol::Sha1;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{
        config::{Config, Wire},
        script::Script,
    };

    /// Far more than anything here takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// The reply time-out where one is waited for.
    const SHORT: Duration = Duration::from_millis(500);

    /// A real server in a directory of its own; killed and removed on drop.
    struct Server {
        port: u16,
        dir: PathBuf,
        options: Vec<String>,
        child: Child,
    }

    /// A port below those that the system gives to outgoing connections: a client that connects to one of those on
    /// its own machine while nobody listens may end up connected to itself.
    fn free_port() -> u16 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        loop {
            let next = u64::from(std::process::id()) * 64 + NEXT.fetch_add(1, SeqCst);
            let port = 20_000 + (next % 10_000) as u16;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return port;
            }
        }
    }

    impl Server {
        fn start(options: &[&str]) -> Self {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let port = free_port();
            let number = COUNT.fetch_add(1, SeqCst);
            let dir = std::env::temp_dir().join(format!("redlock-node-{}-{number}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            let options: Vec<_> = options
                .iter()
                .map(|o| o.replace("{dir}", dir.to_str().unwrap()).replace("{port}", &port.to_string()))
                .collect();
            let child = Self::spawn(port, &dir, &options);
            Self { port, dir, options, child }
        }

        /// Returns once it answers.
        fn spawn(port: u16, dir: &PathBuf, options: &[String]) -> Child {
            let mut server = Command::new("redis-server");
            if !options.iter().any(|option| option == "--port") {
                server.args(["--port", &port.to_string()]);
            }
            let child = server
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
                .arg(dir)
                .args(options)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let socket = dir.join("redis.sock");
            let deadline = std::time::Instant::now() + PATIENCE;
            while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() && !socket.exists() {
                assert!(std::time::Instant::now() < deadline, "redis-server did not start");
                thread::yield_now();
            }
            child
        }

        fn kill(&mut self) {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }

        fn restart(&mut self) {
            self.child = Self::spawn(self.port, &self.dir, &self.options);
        }

        fn signal(&self, name: &str) {
            let pid = self.child.id().to_string();
            assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
        }

        fn url(&self) -> String {
            format!("redis://127.0.0.1:{}", self.port)
        }

        /// Runs a command over a connection of the test's own.
        fn run(&self, words: &str) -> Value {
            let mut connection = Client::open(self.url()).unwrap().get_connection().unwrap();
            let mut command = Cmd::new();
            for word in words.split(' ') {
                command.arg(word);
            }
            command.query(&mut connection).unwrap()
        }

        fn exists(&self, key: &str) -> bool {
            self.run(&format!("EXISTS {key}")) == Value::Int(1)
        }
    }

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    /// A node, and what it reported.
    struct Tested {
        node: RedisNode,
        events: mpsc::UnboundedReceiver<Event>,
        changes: watch::Receiver<u64>,
    }

    impl Tested {
        fn new(url: &str) -> Self {
            Self::with(url, |_| {})
        }

        fn hasty(url: &str) -> Self {
            Self::with(url, |config| config.reply_timeout = SHORT)
        }

        fn with(url: &str, change: impl FnOnce(&mut Config)) -> Self {
            let mut config = Config::new([url]);
            config.connect_timeout = PATIENCE;
            config.reply_timeout = PATIENCE;
            change(&mut config);
            let settings = config.validate().unwrap();
            let (sink, events) = mpsc::unbounded_channel();
            let sink: EventSink = Arc::new(move |event| {
                let _ = sink.send(event.clone());
            });
            let node = RedisNode::new(&settings.endpoints[0], &settings, sink).unwrap();
            let changes = node.changes();
            Self { node, events, changes }
        }

        async fn eval(&self, call: Call) -> Result<Reply, NodeError> {
            self.node.eval(Lane::Background, call, PATIENCE, Sent::default()).await
        }

        async fn changed(&mut self) {
            tokio::time::timeout(PATIENCE, self.changes.changed()).await.unwrap().unwrap();
        }

        async fn event(&mut self) -> Event {
            tokio::time::timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap()
        }
    }

    fn call(source: &str, keys: &[&str], args: &[&str]) -> Call {
        let script = Script {
            name: "test",
            wire: Wire::Redisson,
            source: source.to_owned(),
            sha: Sha1::from(source).digest().to_string(),
        };
        let own = |parts: &[&str]| parts.iter().map(ToString::to_string).collect();
        Call::new(Box::leak(Box::new(script)), own(keys), own(args))
    }

    fn set(key: &str) -> Call {
        call("redis.call('SET', KEYS[1], '1') return 1", &[key], &[])
    }

    fn del(key: &str) -> Call {
        call("return redis.call('DEL', KEYS[1])", &[key], &[])
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_script_is_loaded_when_the_server_forgot_it() {
        let server = Server::start(&[]);
        let tested = Tested::new(&server.url());
        let echo = call("return {1, ARGV[1], {KEYS[1]}, false}", &["k"], &["v"]);
        let text = |text: &str| Reply::Text(text.to_owned());
        let expected = Reply::List(vec![Reply::Int(1), text("v"), Reply::List(vec![text("k")]), Reply::List(vec![])]);
        assert_eq!(tested.eval(echo.clone()).await, Ok(expected.clone()));
        server.run("SCRIPT FLUSH");
        assert_eq!(tested.eval(echo.clone()).await, Ok(expected.clone()));
        assert_eq!(tested.eval(echo).await, Ok(expected));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_server_is_identified() {
        let server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
        let tested = Tested::new(&server.url());
        let mut call = call("return ARGV", &[], &["own"]);
        call.identify = true;
        let Reply::List(args) = tested.eval(call).await.unwrap() else { panic!("no list") };
        let info = tested.node.ping(PATIENCE).await.unwrap();
        assert!(info.version.is_some());
        assert_eq!(args[1], Reply::Text(info.run.unwrap()));
        let Reply::Text(lost_at) = &args[2] else { panic!("no text") };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_micros() as i64 - lost_at.parse::<i64>().unwrap();
        assert!((0..60_000_000).contains(&age), "{age}");
        assert_eq!(args[3], Reply::Text("1".to_owned()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_frozen_node_fails_fast_and_keeps_the_order_of_requests() {
        let server = Server::start(&[]);
        let mut tested = Tested::hasty(&server.url());
        tested.eval(set("x")).await.unwrap();
        tested.eval(del("x")).await.unwrap();
        server.signal("-STOP");
        let sent = Sent::default();
        let error = tested.node.eval(Lane::Background, set("lock"), SHORT, sent.clone()).await;
        assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
        assert!(matches!(tested.event().await, Event::NodeDown { .. }));

        let before = Instant::now();
        let unsent = Sent::default();
        let error = tested.node.eval(Lane::Background, set("y"), SHORT, unsent.clone()).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind, NodeErrorKind::NotRun);
        assert!(error.detail.starts_with("no answer for "), "{error}");
        assert!(before.elapsed() < SHORT / 2);
        assert!(unsent.get().is_none());

        let link = sent.get().unwrap().clone();
        let after = tested.node.eval_after(link, del("lock"), SHORT).await;
        assert_eq!(after.unwrap_err().kind, NodeErrorKind::Unknown);
        server.signal("-CONT");
        tested.changed().await;
        assert!(matches!(tested.event().await, Event::NodeUp { .. }));
        assert_eq!(tested.eval(call("return 5", &[], &[])).await, Ok(Reply::Int(5)));
        assert!(!server.exists("lock"));
        assert!(!server.exists("y"));
    }

    /// Forwards to a server; holds requests back on as many of its first connections as it is told to.
    struct Proxy {
        port: u16,
        frozen: watch::Sender<u64>,
        /// Raised when a request held back went on, or its connection ended.
        settled: watch::Receiver<u64>,
        _task: Task,
    }

    impl Proxy {
        async fn start(server: u16) -> Self {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", free_port())).await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let frozen = watch::Sender::new(0);
            let (settle, settled) = watch::channel(0);
            let freezer = frozen.clone();
            let task = async move {
                let mut connections = JoinSet::new();
                for number in 1.. {
                    let (mut near, _) = listener.accept().await.unwrap();
                    let (mut frozen, settle) = (freezer.subscribe(), settle.clone());
                    connections.spawn(async move {
                        let far = tokio::net::TcpStream::connect(("127.0.0.1", server)).await;
                        let mut far = far.unwrap();
                        let (mut from_near, mut to_near) = near.split();
                        let (mut from_far, mut to_far) = far.split();
                        let requests = async {
                            let mut buffer = vec![0; 65536];
                            while let Ok(length @ 1..) = from_near.read(&mut buffer).await {
                                let held = *frozen.borrow() >= number;
                                frozen.wait_for(|frozen| *frozen < number).await.map(drop).unwrap();
                                to_far.write_all(&buffer[..length]).await.unwrap();
                                if held {
                                    settle.send_modify(|count| *count += 1);
                                }
                            }
                        };
                        tokio::select! {
                            () = requests => {}
                            _ = tokio::io::copy(&mut from_far, &mut to_near) => {}
                        }
                        settle.send_modify(|count| *count += 1);
                    });
                }
            };
            Self { port, frozen, settled, _task: Task(tokio::spawn(task)) }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_barrier_holds_against_a_request_under_way() {
        let server = Arc::new(Server::start(&[]));
        let mut proxy = Proxy::start(server.port).await;
        let tested = Arc::new(Tested::new(&format!("redis://127.0.0.1:{}", proxy.port)));
        let (caller, freeze) = (Arc::clone(&tested), proxy.frozen.clone());
        let give_up = move || {
            runtime::caller().block_on(async {
                let eval = |call, sent| caller.node.eval(Lane::Caller, call, PATIENCE, sent);
                eval(set("x"), Sent::default()).await.unwrap();
                freeze.send_replace(1);
                let sent = Sent::default();
                let mut eval = eval(set("lock"), sent.clone());
                // Several turns, so that its bytes leave.
                for _ in 0..10 {
                    assert!(poll!(&mut eval).is_pending());
                    tokio::task::yield_now().await;
                }
                sent.get().unwrap().clone()
            })
        };
        let link = tokio::task::spawn_blocking(give_up).await.unwrap();
        tested.node.eval_after(link, del("lock"), PATIENCE).await.unwrap();
        proxy.frozen.send_replace(0);
        let settled = proxy.settled.wait_for(|count| *count > 0);
        tokio::time::timeout(PATIENCE, settled).await.unwrap().map(drop).unwrap();
        assert!(!server.exists("lock"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_hung_connection_is_replaced() {
        let server = Server::start(&[]);
        let proxy = Proxy::start(server.port).await;
        let mut tested = Tested::hasty(&format!("redis://127.0.0.1:{}", proxy.port));
        tested.eval(set("x")).await.unwrap();
        proxy.frozen.send_replace(1);
        let sent = Sent::default();
        let error = tested.node.eval(Lane::Background, set("lock"), PATIENCE, sent.clone()).await;
        assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
        assert!(matches!(tested.event().await, Event::NodeDown { .. }));
        let link = sent.get().unwrap().clone();
        let behind = tested.node.eval_after(link.clone(), del("lock"), PATIENCE);
        let mut behind = tokio::spawn(behind);
        tested.changed().await;
        assert!(matches!(tested.event().await, Event::NodeUp { .. }));
        tested.eval(set("x")).await.unwrap();
        // What was queued on the old one is lost with it, if it came before the change.
        if let Err(error) = (&mut behind).await.unwrap() {
            assert_eq!(error.kind, NodeErrorKind::Unknown, "{error}");
        }
        let clients = server.run("CLIENT LIST");
        tested.node.eval_after(link, del("lock"), PATIENCE).await.unwrap();
        assert_ne!(server.run("CLIENT LIST"), clients);
        assert!(!server.exists("lock"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_short_timeout_alone_does_not_condemn_a_node() {
        let server = Server::start(&[]);
        let mut tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        server.signal("-STOP");
        let short = Duration::from_millis(20);
        let error = tested.node.eval(Lane::Background, set("x"), short, Sent::default()).await;
        assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
        // Not refused: still waits for its own reply.
        let error = tested.node.eval(Lane::Background, set("x"), short, Sent::default()).await;
        assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
        server.signal("-CONT");
        tested.eval(set("x")).await.unwrap();
        assert!(tested.events.try_recv().is_err());
        assert_eq!(*tested.changes.borrow_and_update(), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unanswered_requests_are_bounded() {
        let server = Server::start(&[]);
        let tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        server.signal("-STOP");
        for _ in 0..MOST_UNANSWERED {
            let give_up = Duration::ZERO;
            let error = tested.node.eval(Lane::Background, set("x"), give_up, Sent::default()).await;
            assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
        }
        let soon = Duration::from_millis(50);
        let error = tested.node.eval(Lane::Background, set("x"), soon, Sent::default()).await.unwrap_err();
        assert_eq!(error, not_run("1024 requests unanswered"));
        server.signal("-CONT");
        // A clean-up queues behind them all, and so does the probe that counts them.
        let link = tested.node.inner.state.lock().background.clone().unwrap().link.clone();
        tested.node.eval_after(link, del("x"), PATIENCE).await.unwrap();
        let connection = tested.node.inner.state.lock().background.clone().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while connection.unanswered.load(SeqCst) > 0 {
            assert!(Instant::now() < deadline);
            tested.node.ping(PATIENCE).await.unwrap();
        }
        tested.eval(set("x")).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_killed_node_fails_fast_and_comes_back() {
        let mut server = Server::start(&[]);
        let mut tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        server.kill();
        // Seen without a request.
        tested.changed().await;
        assert!(matches!(tested.event().await, Event::NodeDown { .. }));
        assert_eq!(tested.eval(set("x")).await.unwrap_err().kind, NodeErrorKind::NotRun);
        let before = Instant::now();
        for _ in 0..100 {
            assert_eq!(tested.eval(set("x")).await.unwrap_err().kind, NodeErrorKind::NotRun);
        }
        assert!(before.elapsed() < Duration::from_secs(2));
        server.restart();
        tested.changed().await;
        assert!(matches!(tested.event().await, Event::NodeUp { .. }));
        tested.eval(set("x")).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_that_was_never_there_is_found_later() {
        let mut server = Server::start(&[]);
        server.kill();
        let mut tested = Tested::new(&server.url());
        let error = tested.eval(set("x")).await.unwrap_err();
        assert_eq!(error, not_run("connection refused"));
        assert!(matches!(tested.event().await, Event::NodeDown { .. }));
        server.restart();
        tested.changed().await;
        tested.eval(set("x")).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_lost_with_its_connection_is_unknown() {
        let mut server = Server::start(&[]);
        let mut tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        server.signal("-STOP");
        let mut eval = tested.node.eval(Lane::Background, set("x"), PATIENCE, Sent::default());
        assert!(poll!(&mut eval).is_pending());
        server.kill();
        let error = eval.await.unwrap_err();
        assert_eq!(error.kind, NodeErrorKind::Unknown, "{error}");
        tested.changed().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_caller_that_gave_up_is_cleaned_up_behind_a_barrier() {
        let server = Arc::new(Server::start(&[]));
        let mut tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        for round in 0..6 {
            let node = Arc::new(Tested::new(&server.url()));
            let (frozen, caller) = (Arc::clone(&server), Arc::clone(&node));
            let give_up = move || {
                runtime::caller().block_on(async {
                    let eval = |sent| caller.node.eval(Lane::Caller, set("lock"), PATIENCE, sent);
                    eval(Sent::default()).await.unwrap();
                    frozen.run("DEL lock");
                    frozen.signal("-STOP");
                    let sent = Sent::default();
                    let mut eval = eval(sent.clone());
                    while sent.get().is_none() {
                        assert!(poll!(&mut eval).is_pending());
                        tokio::task::yield_now().await;
                    }
                    // In every second round its bytes leave, in the others they never do.
                    if round % 2 == 0 {
                        tokio::task::yield_now().await;
                    }
                    drop(eval);
                    sent.get().unwrap().clone()
                })
            };
            let link = tokio::task::spawn_blocking(give_up).await.unwrap();
            assert_eq!(link.lane, Lane::Caller);
            assert!(node.node.inner.state.lock().caller.is_none());
            let clean_up = node.node.eval_after(link, del("lock"), PATIENCE);
            let clean_up = tokio::spawn(clean_up);
            server.signal("-CONT");
            clean_up.await.unwrap().unwrap();
            // Whatever was on its way on other connections has been read by now.
            tested.eval(set("x")).await.unwrap();
            assert!(!server.exists("lock"), "round {round}");
        }
        assert!(tested.events.try_recv().is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn callers_share_a_connection_and_a_slow_reply_takes_the_node_down() {
        let server = Arc::new(Server::start(&[]));
        let mut tested = Tested::hasty(&server.url());
        let node = Arc::new(RedisNode { inner: Arc::clone(&tested.node.inner) });
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let node = Arc::clone(&node);
                tokio::task::spawn_blocking(move || {
                    let sent = Sent::default();
                    let eval = node.eval(Lane::Caller, set("x"), SHORT, sent.clone());
                    runtime::caller().block_on(eval).unwrap();
                    sent.get().unwrap().number
                })
            })
            .collect();
        let mut numbers = Vec::new();
        for caller in callers {
            numbers.push(caller.await.unwrap());
        }
        numbers.dedup();
        assert_eq!(numbers.len(), 1, "{numbers:?}");

        server.signal("-STOP");
        let caller = Arc::clone(&node);
        let errors = tokio::task::spawn_blocking(move || {
            [0, 1].map(|_| {
                let eval = caller.eval(Lane::Caller, set("x"), SHORT, Sent::default());
                runtime::caller().block_on(eval).unwrap_err().kind
            })
        });
        assert_eq!(errors.await.unwrap(), [NodeErrorKind::Unknown, NodeErrorKind::NotRun]);
        assert!(matches!(tested.event().await, Event::NodeDown { .. }));
        server.signal("-CONT");
        tested.changed().await;
        assert!(matches!(tested.event().await, Event::NodeUp { .. }));
        let caller = Arc::clone(&node);
        let again = tokio::task::spawn_blocking(move || {
            runtime::caller().block_on(caller.eval(Lane::Caller, set("x"), SHORT, Sent::default()))
        });
        again.await.unwrap().unwrap();
    }

    #[test]
    fn a_caller_notices_that_its_connection_ended_meanwhile() {
        let server = Server::start(&[]);
        let tested = Tested::new(&server.url());
        let eval = || {
            let eval = tested.node.eval(Lane::Caller, set("x"), PATIENCE, Sent::default());
            runtime::caller().block_on(eval)
        };
        eval().unwrap();
        for _ in 0..10 {
            let number = tested.node.inner.state.lock().caller.as_ref().unwrap().number();
            server.run("CLIENT KILL TYPE normal");
            let killed = Instant::now();
            while killed.elapsed() < RESTED {
                thread::yield_now();
            }
            eval().unwrap();
            assert_ne!(tested.node.inner.state.lock().caller.as_ref().unwrap().number(), number);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn subscriptions_get_messages_and_end_with_their_connection() {
        let mut server = Server::start(&[]);
        let tested = Tested::new(&server.url());
        let subscribe = |channel: &str| tested.node.subscribe(channel.to_owned());
        let mut first = subscribe("a").await.unwrap();
        let mut second = subscribe("a").await.unwrap();
        let other = subscribe("b").await.unwrap();
        server.run("PUBLISH a 0");
        for subscription in [&mut first, &mut second] {
            let changed = subscription.messages.changed();
            tokio::time::timeout(PATIENCE, changed).await.unwrap().unwrap();
            assert_eq!(*subscription.messages.borrow(), 1);
        }
        drop(first);
        assert_eq!(server.run("PUBLISH a 0"), Value::Int(1));
        // The last one leaves; whoever comes right after is subscribed all the same.
        for _ in 0..100 {
            drop(second);
            second = subscribe("a").await.unwrap();
            assert_eq!(server.run("PUBLISH a 0"), Value::Int(1));
            let changed = second.messages.changed();
            tokio::time::timeout(PATIENCE, changed).await.unwrap().unwrap();
        }
        thread::spawn(move || drop(second)).join().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while server.run("PUBLISH a 0") != Value::Int(0) {
            assert!(Instant::now() < deadline);
        }
        assert_eq!(*other.messages.borrow(), 0);
        server.kill();
        let mut other = other;
        let ended = tokio::time::timeout(PATIENCE, other.messages.changed()).await.unwrap();
        assert!(ended.is_err());
        server.restart();
        let mut again = subscribe("a").await.unwrap();
        server.run("PUBLISH a 0");
        tokio::time::timeout(PATIENCE, again.messages.changed()).await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rights_are_checked() {
        let server = Server::start(&[]);
        server.run("ACL SETUSER bob on >hunter2 ~own* &own* +@all -set -client|kill");
        let url = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port);

        for login in ["bob:hunter3", "nobody:hunter2"] {
            let tested = Tested::new(&url(login));
            for result in [
                tested.eval(set("own")).await.map(drop),
                tested.node.subscribe("own".to_owned()).await.map(drop),
                tested.node.ping(PATIENCE).await.map(drop),
            ] {
                let error = result.unwrap_err();
                assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
                assert!(error.detail.starts_with("WRONGPASS"), "{error}");
                assert!(!error.detail.contains("hunter"), "{error}");
            }
        }

        let mut bob = Tested::new(&url("bob:hunter2"));
        for call in [
            // The command, a key by name, and a key that the script makes up.
            set("own"),
            del("other"),
            call("return redis.call('DEL', 'other')", &["own"], &[]),
        ] {
            let error = bob.eval(call).await.unwrap_err();
            assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
            assert!(!error.detail.contains("script: "), "{error}");
        }
        assert_eq!(bob.eval(del("own")).await, Ok(Reply::Int(0)));
        let error = bob.node.subscribe("other".to_owned()).await.map(drop).unwrap_err();
        assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
        bob.node.subscribe("own".to_owned()).await.map(drop).unwrap();

        // Without the right to KILL the clean-up runs all the same, and says so.
        let current = bob.node.inner.state.lock().background.clone().unwrap().link.clone();
        let link = Link { number: 0, ..current };
        assert_eq!(bob.node.eval_after(link, del("own"), PATIENCE).await, Ok(Reply::Int(0)));
        assert!(matches!(bob.event().await, Event::NodeWarning { .. }));

        let plain = server.url();
        server.run("CONFIG SET requirepass secret");
        let error = Tested::new(&plain).eval(set("x")).await.unwrap_err();
        assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_a_server_refuses_is_told_apart() {
        let server = Server::start(&[]);
        let tested = Tested::new(&server.url());
        server.run("RPUSH list 1");
        let kind = async |call| tested.eval(call).await.unwrap_err();
        let hget = call("return redis.call('HGET', KEYS[1], 'f')", &["list"], &[]);
        assert_eq!(kind(hget).await.kind, NodeErrorKind::WrongType);
        server.run("CONFIG SET maxmemory 1");
        let error = kind(set("x")).await;
        assert_eq!(error.kind, NodeErrorKind::Refused);
        assert!(error.detail.starts_with("OOM ") && !error.detail.contains("script"), "{error}");
        server.run("CONFIG SET maxmemory 0");
        server.run("REPLICAOF 127.0.0.1 1");
        assert_eq!(kind(set("x")).await.kind, NodeErrorKind::Refused);
        server.run("CONFIG SET replica-serve-stale-data no");
        assert_eq!(kind(set("x")).await.kind, NodeErrorKind::NotRun);

        let wrapped = "ERR Error running script (call to f_0): @user_script:1: -WRONGTYPE Operation";
        assert_eq!(refusal_text(wrapped).kind, NodeErrorKind::WrongType);
        let noperm = "NOPERM User bob has no permissions to run the 'set' command";
        assert_eq!(refusal_text(noperm), permanent(noperm));
        assert_eq!(refusal_text("BUSY Redis is busy").kind, NodeErrorKind::NotRun);
        assert_eq!(refusal_text("LOADING Redis is loading").kind, NodeErrorKind::NotRun);
        assert_eq!(refusal_text("ERR boom").detail, "boom");

        let error = Tested::new(&format!("{}/99", server.url())).eval(set("x")).await.unwrap_err();
        assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn eviction_is_warned_of_once() {
        let server = Server::start(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]);
        let mut tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        let Event::NodeWarning { detail, .. } = tested.event().await else { panic!("no warning") };
        assert!(detail.contains("volatile-lru"), "{detail}");
        server.run("CLIENT KILL TYPE normal");
        tested.changed().await;
        tested.changed().await;
        tested.eval(set("x")).await.unwrap();
        assert!(matches!(tested.event().await, Event::NodeDown { .. }));
        assert!(matches!(tested.event().await, Event::NodeUp { .. }));
        assert!(tested.events.try_recv().is_err());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_quorum_needs_to_know_the_run() {
        let server = Server::start(&[]);
        server.run("ACL SETUSER eve on nopass ~* +@all -info");
        let url = format!("redis://eve@127.0.0.1:{}", server.port);
        let tested = Tested::with(&url, |config| {
            config.nodes.extend((1..3).map(|port| format!("redis://127.0.0.1:{port}")));
        });
        let mut call = set("x");
        tested.eval(call.clone()).await.unwrap();
        call.identify = true;
        assert_eq!(tested.eval(call).await, Err(permanent("needs the right to run INFO")));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_without_hello_is_spoken_to_in_resp2() {
        let mut server = Server::start(&["--rename-command", "HELLO", "NOHELLO"]);
        let mut tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        assert!(tested.node.ping(PATIENCE).await.unwrap().run.is_some());
        server.kill();
        // Seen at the next use.
        tested.eval(set("x")).await.unwrap_err();
        server.restart();
        tested.changed().await;
        tested.changed().await;
        tested.eval(set("x")).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_closed_node_refuses() {
        let server = Server::start(&[]);
        let tested = Tested::new(&server.url());
        tested.eval(set("x")).await.unwrap();
        tested.node.close();
        assert_eq!(tested.eval(set("x")).await, Err(not_run("closed")));
        let subscription = tested.node.subscribe("a".to_owned()).await;
        assert_eq!(subscription.map(drop), Err(not_run("closed")));
        let deadline = Instant::now() + PATIENCE;
        while !matches!(server.run("CLIENT LIST"), Value::BulkString(list)
            if String::from_utf8_lossy(&list).lines().count() == 1)
        {
            assert!(Instant::now() < deadline);
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_socket_file_works() {
        let server = Server::start(&["--port", "0", "--unixsocket", "{dir}/redis.sock"]);
        let url = format!("unix://{}/redis.sock", server.dir.display());
        let tested = Tested::new(&url);
        tested.eval(set("x")).await.unwrap();
        let missing = Tested::new("unix:///nonexistent/redis.sock");
        let error = missing.eval(set("x")).await.unwrap_err();
        assert_eq!(error, not_run("no such socket"));
    }

    fn openssl(dir: &std::path::Path, arguments: &str) {
        let output = Command::new("openssl").current_dir(dir).args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn tls_is_checked() {
        let dir = std::env::temp_dir().join(format!("redlock-tls-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["ca", "other"] {
            openssl(
                &dir,
                &format!(
                    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name} -keyout \
                 {name}.key -out {name}.crt"
                ),
            );
        }
        openssl(
            &dir,
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -keyout \
                       server.key -out server.csr",
        );
        fs::write(dir.join("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        openssl(
            &dir,
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out \
                       server.crt",
        );
        let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let server = Server::start(&[
            "--port",
            "0",
            "--tls-port",
            "{port}",
            "--tls-cert-file",
            &path("server.crt"),
            "--tls-key-file",
            &path("server.key"),
            "--tls-ca-cert-file",
            &path("ca.crt"),
        ]);
        let url = format!("rediss://127.0.0.1:{}", server.port);
        let tested = Tested::with(&url, |config| {
            config.tls.ca = Some(path("ca.crt"));
            config.tls.cert = Some(path("server.crt"));
            config.tls.key = Some(path("server.key"));
        });
        let eval = |tested: &Tested| tested.node.eval(Lane::Background, set("x"), PATIENCE, Sent::default());
        eval(&tested).await.unwrap();
        tested.node.subscribe("a".to_owned()).await.map(drop).unwrap();

        // Given as text, but without the certificate that this server asks for.
        let text = fs::read_to_string(path("ca.crt")).unwrap();
        let anonymous = Tested::with(&url, |config| {
            config.tls.ca = Some(text);
        });
        let error = eval(&anonymous).await.unwrap_err();
        assert!(error.detail.contains("ertificate"), "{error}");
        let stranger = Tested::with(&url, |config| {
            config.tls.ca = Some(path("other.crt"));
        });
        let error = eval(&stranger).await.unwrap_err();
        assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
        assert!(error.detail.starts_with("TLS: invalid peer certificate"), "{error}");

        for (change, argument) in [
            (("ca", "/nonexistent"), "ca"),
            (("ca", "-----BEGIN CERTIFICATE-----\nx"), "ca"),
            (("key", "ca.key"), "cert"),
            (("key", "ca.crt"), "key"),
        ] {
            let mut config = Config::new([&url]);
            match change {
                ("ca", ca) => config.tls.ca = Some(ca.to_owned()),
                (_, key) => {
                    config.tls.cert = Some(path("server.crt"));
                    config.tls.key = Some(path(key));
                }
            }
            let settings = config.validate().unwrap();
            let node = RedisNode::new(&settings.endpoints[0], &settings, Arc::new(|_| {}));
            let error = node.err().unwrap();
            let LockError::Invalid { argument: found, .. } = error else { panic!("{error}") };
            assert_eq!(found, argument);
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
