//! Makes the connection of a lane: one attempt for all that wait, its limits, and the log-in.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::FutureExt;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, PushInfo, PushKind, RedisError, RedisResult,
    aio::{MultiplexedConnection, SendError},
};
use tokio::{runtime::Id, time::Instant};

#[cfg(target_os = "linux")]
use super::hosted;
use super::{
    CLOSED_BY_SERVER, Inner,
    connection::{Attempt, Connecting, Connection, Lane, MOST_UNANSWERED},
    errors::{closed_error, connect_error, connect_timeout_error, lacks_hello, not_run_error},
    health::{DEPOSED, Health, SendDecision},
    identify::identify,
    setup::Clients,
    within_limit,
};
use crate::{
    process::{driver::Driver, program, runtime},
    server::{BoxFuture, ConnectionId, NodeError},
};

/// The state of a lane other than the background's, as a request finds it.
enum LaneLookup {
    Connection(Arc<Connection>),
    /// The request must make the connection.
    Unconnected,
    /// The background must connect first.
    Wait,
    Fail(NodeError),
}

impl Inner {
    /// Returns the background connection. Waits for it for the connect time-out or `timeout`, whichever is shorter.
    pub(super) async fn background(self: &Arc<Self>, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
        let connection = || {
            let mut state = self.state.lock();
            match self.decide_send(&mut state) {
                SendDecision::Send => state.background.clone().map(Ok),
                SendDecision::Wait => None,
                SendDecision::Fail(error) => Some(Err(error)),
            }
        };
        if let Some(found) = connection() {
            return found;
        }
        let limit = timeout.min(self.connect_timeout);
        // Boxed, because it is seldom needed: otherwise the future of every request would contain it.
        let mut waiting = Box::pin(self.wait_until(connection));
        within_limit(Driver::Background, limit, waiting.as_mut())
            .await
            .unwrap_or_else(|| Err(connect_timeout_error(limit)))
    }

    /// Calls `find` now and after each notification of `news`, until it returns a value.
    pub(super) async fn wait_until<T>(&self, find: impl Fn() -> Option<T>) -> T {
        let mut news = self.news.subscribe();
        loop {
            news.mark_unchanged();
            if let Some(found) = find() {
                return found;
            }
            // The sender is in `self`.
            let _ = news.changed().await;
        }
    }

    /// Returns the connection of a lane other than the background's. Its waiters drive the attempt to connect together,
    /// since nothing else does.
    pub(super) async fn lane_connection(
        self: &Arc<Self>,
        lane: Lane,
        timeout: Duration,
    ) -> Result<Arc<Connection>, NodeError> {
        match self.look_up(lane) {
            LaneLookup::Connection(connection) if connection.is_alive_after_idle().await => return Ok(connection),
            LaneLookup::Fail(error) => return Err(error),
            // A connection that died while it was idle has left the lane by now, so that `make` connects anew.
            LaneLookup::Connection(_) | LaneLookup::Unconnected | LaneLookup::Wait => {}
        }
        let limit = timeout.min(self.connect_timeout);
        within_limit(lane.driver(), limit, Box::pin(self.make(lane)).as_mut()).await.unwrap_or_else(|| {
            let error = connect_timeout_error(limit);
            // A shorter limit of the caller says nothing about the node.
            if limit == self.connect_timeout {
                self.lane_attempt_failed(&error);
            }
            Err(error)
        })
    }

    fn look_up(self: &Arc<Self>, lane: Lane) -> LaneLookup {
        let mut state = self.state.lock();
        if state.closed {
            return LaneLookup::Fail(closed_error());
        }
        // The lane needs no background connection, only a node that is not known to be down.
        let known_to_be_down = match state.health {
            Health::Idle | Health::Up => false,
            Health::Connecting => state.reported,
            Health::Unresponsive { .. } | Health::Failing { .. } => true,
        };
        if !known_to_be_down {
            let known = state.lanes.get(&lane).and_then(|lane| lane.connection.clone());
            return known.map_or(LaneLookup::Unconnected, LaneLookup::Connection);
        }
        match self.decide_send(&mut state) {
            SendDecision::Fail(error) => LaneLookup::Fail(error),
            SendDecision::Send | SendDecision::Wait => LaneLookup::Wait,
        }
    }

    /// Makes the connection of a lane, joins the attempt under way, or returns the connection that others made.
    async fn make(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        let found = || Some(self.look_up(lane)).filter(|found| !matches!(found, LaneLookup::Wait));
        match self.wait_until(found).await {
            LaneLookup::Connection(connection) => return Ok(connection),
            LaneLookup::Fail(error) => return Err(error),
            LaneLookup::Unconnected | LaneLookup::Wait => {}
        }
        let connection = self.attempt(lane).await?;
        // It may have broken meanwhile, if this was not polled for a while.
        if connection.retired.load(SeqCst) { Err(not_run_error("connection replaced")) } else { Ok(connection) }
    }

    /// Returns the attempt under way to connect a lane, or starts one. Ignores an attempt older than the connect
    /// time-out: it was not polled, and its limits have passed.
    fn attempt(self: &Arc<Self>, lane: Lane) -> Connecting {
        let mut state = self.state.lock();
        let is_young = |attempt: &Attempt| attempt.began.elapsed() < self.connect_timeout;
        state.lanes.retain(|_, lane| lane.connection.is_some() || lane.attempt.as_ref().is_some_and(is_young));
        let lane_state = state.lanes.entry(lane).or_default();
        if let Some(known) = lane_state.attempt.as_ref().filter(|known| is_young(known)).and_then(Attempt::connecting) {
            return known;
        }
        let (inner, began) = (Arc::clone(self), Instant::now());
        let making: BoxFuture<_> = Box::pin(async move { inner.make_anew(lane, began).await });
        let connecting = making.shared();
        lane_state.attempt = Some(Attempt::new(&connecting, began));
        connecting
    }

    /// Performs one attempt to connect.
    async fn make_anew(self: &Arc<Self>, lane: Lane, began: Instant) -> Result<Arc<Connection>, NodeError> {
        let made = self.connect(lane).await.inspect_err(|error| self.lane_attempt_failed(error));
        let (connection, is_another_run) = {
            let mut state = self.state.lock();
            let is_closed = state.closed;
            let is_deposed = made.as_ref().is_ok_and(|made| made.is_deposed(&state));
            let lane_state = state.lanes.entry(lane).or_default();
            lane_state.attempt.take_if(|attempt| attempt.began == began);
            // Only borrowed: `made` must be dropped after the mutex is released.
            let made = made.as_ref().map_err(NodeError::clone)?;
            if is_closed {
                return Err(closed_error());
            }
            if made.dead.load(SeqCst) {
                return Err(not_run_error(CLOSED_BY_SERVER));
            }
            if is_deposed {
                return Err(not_run_error(DEPOSED));
            }
            // A later attempt may have been faster.
            let connection = lane_state.connection.get_or_insert_with(|| made.clone()).clone();
            (connection, state.is_another_run(&made.facts))
        };
        if is_another_run {
            self.changed();
        }
        self.warn_of_eviction(&connection.facts);
        Ok(connection)
    }

    /// Removes and retires the connection with this number. Returns false if only the background lane may have it.
    pub(super) fn retire(&self, number: u64) -> bool {
        let gone = {
            let mut state = self.state.lock();
            state.lanes.values_mut().find_map(|lane| lane.connection.take_if(|known| known.number() == number))
        };
        gone.is_some_and(|connection| {
            connection.retire();
            true
        })
    }

    /// Connects and identifies the server. The runtime that polls this drives the connection.
    pub(super) async fn connect(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        if lane == Lane::Replicated {
            // The background drives this lane: the caller might stop polling.
            let inner = Arc::clone(self);
            let connected = runtime::spawn_in_background(async move { inner.connect_here(lane).await }).await;
            return connected.unwrap_or_else(|| Err(closed_error()));
        }
        self.connect_here(lane).await
    }

    async fn connect_here(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        tokio::time::timeout(self.connect_timeout, self.handshake(lane))
            .await
            .unwrap_or_else(|_| Err(connect_timeout_error(self.connect_timeout)))
    }

    async fn handshake(self: &Arc<Self>, lane: Lane) -> Result<Arc<Connection>, NodeError> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, SeqCst);
        let dead = Arc::new(AtomicBool::new(false));
        let elections = self.state.lock().elections;
        let clients = self.target.clients().await?;
        let redis = self.log_in(&clients, lane.driver(), number, &dead).await?;
        let master = clients.master.clone().map(|master| (master, elections));
        let ((), facts) = tokio::join!(self.naming.apply(redis.clone()), identify(&redis));
        let mut facts = facts?;
        if facts.replica && self.target.can_fail_over() {
            return Err(not_run_error("the master that the Sentinels name is a replica yet, or by now"));
        }
        self.watch_elections();
        if self.in_cluster {
            // A slot may come from another server: restarts of this one say nothing about its keys.
            (facts.lost_at, facts.durable) = (0, false);
        }
        let id = ConnectionId {
            driver: lane.driver(),
            number,
            peer: facts.peer.clone(),
            run: facts.run.clone(),
            server: self.in_cluster.then(|| Arc::clone(&self.name)),
        };
        let connection = Arc::new(Connection::new(lane, id, facts, redis, master, Arc::clone(&dead)));
        if let Driver::Program(id) = lane.driver()
            && let Some(runtime) = program::current(id)
        {
            let inner = Arc::downgrade(self);
            connection.ends_with(&runtime, move || {
                dead.store(true, SeqCst);
                if let Some(inner) = inner.upgrade() {
                    inner.broke(number, "its runtime ended");
                }
            });
        }
        Ok(connection)
    }

    /// Connects with the newest protocol that the server speaks. The end of the connection calls `Inner::broke` with
    /// the cause, and sets `dead` if the server closed it.
    async fn log_in(
        self: &Arc<Self>,
        clients: &Clients,
        driver: Driver,
        number: u64,
        dead: &Arc<AtomicBool>,
    ) -> Result<MultiplexedConnection, NodeError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(MOST_UNANSWERED);
        // Weak: the node owns the connection, and so these closures.
        let inner = Arc::downgrade(self);
        let broke = move |cause: &str| {
            if let Some(inner) = inner.upgrade() {
                inner.broke(number, cause);
            }
        };
        let ended = {
            let broke = broke.clone();
            move || broke("its event loop ended")
        };
        let dead = Arc::clone(dead);
        let on_push = move |push: PushInfo| -> Result<(), SendError> {
            if push.kind == PushKind::Disconnection {
                dead.store(true, SeqCst);
                broke(CLOSED_BY_SERVER);
            }
            Ok(())
        };
        let connected = match &clients.resp3 {
            None => open(&clients.resp2, driver, config, ended).await,
            Some(client) => match open(client, driver, config.clone().set_push_sender(on_push), ended.clone()).await {
                Err(error) if lacks_hello(&error) => open(&clients.resp2, driver, config, ended).await,
                other => other,
            },
        };
        connected.map_err(|error| connect_error(&error))
    }
}

/// Connects. The runtime or event loop that polls this drives the connection; `ended` is called when that loop ends.
async fn open(
    client: &Client,
    driver: Driver,
    config: AsyncConnectionConfig,
    ended: impl FnOnce() + Send + 'static,
) -> RedisResult<MultiplexedConnection> {
    #[cfg(target_os = "linux")]
    if let Driver::Host(_) = driver {
        return hosted::open(client, config, ended).await;
    }
    if let Driver::Program(id) = driver {
        return on_runtime(client, id, config).await;
    }
    let _ = ended;
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Connects on one of the program's own runtimes.
async fn on_runtime(client: &Client, id: Id, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
    let gone = || RedisError::from((ErrorKind::Io, "no runtime runs this"));
    let client = client.clone();
    let connecting = async move { client.get_multiplexed_async_connection_with_config(&config).await };
    let connected = program::current(id).ok_or_else(gone)?.spawn(connecting).await;
    connected.unwrap_or_else(|ended| {
        if ended.is_panic() {
            // The runtime has no I/O driver.
            program::exclude_from_driving(id);
        }
        Err(gone())
    })
}
