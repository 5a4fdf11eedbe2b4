//! The connections of a node: the driver of each, and the requests on it.

use std::{
    future::{Future, pending},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{Shared, WeakShared},
};
use redis::{RedisError, Value, aio::MultiplexedConnection};
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use super::{Inner, State, batch::Batches, errors::broken_connection_error, identify::Facts, room::Room};
#[cfg(target_os = "linux")]
use crate::process::host_io;
use crate::{
    process::{driver::Driver, fork::Tied, runtime},
    server::{BoxFuture, ConnectionId, NodeError},
    sync::Mutex,
    url::Address,
};

/// The maximum of unanswered requests on a connection. Clean-ups must not be lost, so they may use twice as many.
pub(super) const MOST_UNANSWERED: usize = 1024;
/// The idle time after which the connection of a lane other than the background's is checked before use: if no caller
/// drove it, its end is still unread.
pub(super) const CHECKED_AFTER_IDLE: Duration = Duration::from_millis(10);

/// Identifies a connection of a node, which has at most one for each lane. The background's lane is
/// `Of(Driver::Background)`: the reviver makes its connection. The connections of all other lanes are made by the
/// requests that need them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// For all requests with this driver.
    Of(Driver),
    /// For requests that replicas must acknowledge: requests behind them wait, too. The background drives it.
    Replicated,
}

impl Lane {
    /// The driver of the lane's connection.
    pub(super) fn driver(self) -> Driver {
        match self {
            Self::Of(driver) => driver,
            Self::Replicated => Driver::Background,
        }
    }
}

/// The state of a lane other than the background's.
#[derive(Default)]
pub(super) struct LaneState {
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) attempt: Option<Attempt>,
}

/// The work of an attempt to connect.
type Making = BoxFuture<Result<Arc<Connection>, NodeError>>;

/// A connection that is being made.
pub(super) type Connecting = Shared<Making>;

/// An attempt to connect. Every waiter polls it, so that it does not depend on one of them; it ends with the last one.
pub(super) struct Attempt {
    pub(super) began: Instant,
    connecting: Option<WeakShared<Making>>,
}

impl Attempt {
    pub(super) fn new(connecting: &Connecting, began: Instant) -> Self {
        Self { began, connecting: connecting.downgrade() }
    }

    /// Returns the attempt if it still has a waiter.
    pub(super) fn connecting(&self) -> Option<Connecting> {
        self.connecting.as_ref()?.upgrade()
    }
}

/// A connection after its handshake.
pub(super) struct Connection {
    pub(super) lane: Lane,
    pub(super) id: ConnectionId,
    pub(super) facts: Facts,
    pub(super) redis: MultiplexedConnection,
    /// The master that it leads to, if Sentinels named it, and how many elections were known before they were asked.
    pub(super) master: Option<(Address, u64)>,
    /// Set when the server closed it.
    pub(super) dead: Arc<AtomicBool>,
    /// Set when no request may use it any more.
    pub(super) retired: AtomicBool,
    pub(super) unanswered: AtomicUsize,
    /// The number of unanswered requests whose callers gave up; a probe finds out when they were answered.
    pub(super) abandoned: AtomicUsize,
    pub(super) probing: AtomicBool,
    pub(super) room: Room,
    pub(super) batches: Batches,
    pub(super) made: Instant,
    /// The time of the last request.
    used: Mutex<Instant>,
    /// Clean-ups and the probe: they outlive their callers, but not the connection.
    tasks: Mutex<JoinSet<()>>,
}

impl Connection {
    pub(super) fn new(
        lane: Lane,
        id: ConnectionId,
        facts: Facts,
        redis: MultiplexedConnection,
        master: Option<(Address, u64)>,
        dead: Arc<AtomicBool>,
    ) -> Self {
        Self {
            lane,
            id,
            facts,
            redis,
            master,
            dead,
            retired: AtomicBool::new(false),
            unanswered: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            probing: AtomicBool::new(false),
            room: Room::default(),
            batches: Batches::default(),
            made: Instant::now(),
            used: Mutex::new(Instant::now()),
            tasks: Mutex::new(JoinSet::new()),
        }
    }

    /// Whether it leads to another server than this master.
    pub(super) fn leads_elsewhere(&self, master: &Address) -> bool {
        self.master.as_ref().is_some_and(|(own, _)| own != master)
    }

    /// Whether the Sentinels have elected another master since they were asked for that of this connection.
    pub(super) fn is_deposed(&self, state: &State) -> bool {
        let is_news = self.master.as_ref().is_some_and(|(_, known)| *known < state.elections);
        is_news && state.elected.as_ref().is_some_and(|elected| self.leads_elsewhere(elected))
    }

    /// Takes the connection out of use and aborts its tasks. The socket closes with the last request on it.
    pub(super) fn retire(&self) {
        self.retired.store(true, SeqCst);
        self.send_next();
        self.tasks.lock().abort_all();
    }

    /// Whether a request must wait until others are answered.
    pub(super) fn is_full(&self) -> bool {
        self.unanswered.load(SeqCst) >= MOST_UNANSWERED || self.room.is_waited_for()
    }

    /// Sends the calls for which there is room. Those of a retired connection fail.
    pub(super) fn send_next(&self) {
        self.room.send_next(|| self.unanswered.load(SeqCst) < MOST_UNANSWERED || self.retired.load(SeqCst));
    }

    /// Runs a task in the background, until it ends or the connection is retired.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        // Checked under the lock, so that no task slips in behind `retire`.
        if !self.retired.load(SeqCst) {
            tasks.spawn_on(task.boxed(), &runtime::background());
        }
    }

    /// Calls `act` when `runtime`, which drives the connection, ends; also when the connection is retired.
    pub(super) fn ends_with(&self, runtime: &Handle, act: impl FnOnce() + Send + 'static) {
        let end = Ended::new(act);
        self.tasks.lock().spawn_on(
            async move {
                let _end = end;
                pending::<()>().await;
            },
            runtime,
        );
    }

    /// Whether the connection is still usable. After `CHECKED_AFTER_IDLE` without a request its end may be unread,
    /// because nothing drove it.
    pub(super) async fn is_alive_after_idle(&self) -> bool {
        let was_idle = self.used.lock().elapsed() >= CHECKED_AFTER_IDLE;
        if !was_idle {
            return true;
        }
        // Yields a few times, so that a pending end is read. Otherwise this request would be lost with the connection.
        #[cfg(target_os = "linux")]
        if let (Driver::Host(_), Some(host)) = (self.id.driver, host_io::current()) {
            host.poll_sockets();
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        !self.retired.load(SeqCst) && !self.dead.load(SeqCst)
    }

    /// The connection's number, unique within this process.
    pub(super) fn number(&self) -> u64 {
        self.id.number
    }
}

/// Calls a function when it is dropped.
pub(super) struct Ended<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Ended<F> {
    pub(super) fn new(call: F) -> Self {
        Self(Some(call))
    }
}

impl<F: FnOnce()> Drop for Ended<F> {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            call();
        }
    }
}

/// A request without a reply so far. Dropped unanswered, it probes its connection, or retires it if callers drive it.
pub(super) struct Outstanding<'a> {
    of: Tied<(&'a Arc<Inner>, &'a Arc<Connection>)>,
    pub(super) since: Instant,
    answered: bool,
}

impl<'a> Outstanding<'a> {
    /// Counts the request as unanswered.
    pub(super) fn new(inner: &'a Arc<Inner>, connection: &'a Arc<Connection>) -> Self {
        connection.unanswered.fetch_add(1, SeqCst);
        let since = Instant::now();
        *connection.used.lock() = since;
        Self { of: Tied::new((inner, connection)), since, answered: false }
    }

    /// Ends the request with what came back. An error ends the connection.
    pub(super) fn ended(mut self, value: Result<Value, RedisError>) -> Result<Value, NodeError> {
        self.answered = value.is_ok();
        value.map_err(|error| {
            let error = broken_connection_error(&error);
            if let Some((inner, connection)) = self.of.get() {
                inner.broke(connection.number(), &error.detail);
            }
            error
        })
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        let Some((inner, connection)) = self.of.get() else { return };
        if self.answered {
            connection.unanswered.fetch_sub(1, SeqCst);
            connection.send_next();
        } else if connection.id.driver == Driver::Caller {
            // Perhaps no caller drives it for a long time: it must not carry further requests.
            inner.retire(connection.number());
        } else {
            connection.abandoned.fetch_add(1, SeqCst);
            inner.probe(connection, self.since);
        }
    }
}
