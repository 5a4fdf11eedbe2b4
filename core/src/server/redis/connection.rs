//! The connections of a node: who drives which, and who has requests on it.

use std::{
    future::{Future, pending},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::{Shared, WeakShared};
use redis::aio::MultiplexedConnection;
use tokio::{runtime::Handle, sync::Notify, task::JoinSet, time::Instant};

use super::{Inner, identify::Facts};
#[cfg(target_os = "linux")]
use crate::process::host_io;
use crate::{
    process::{driver::Driver, fork::Tied, runtime},
    server::{BoxFuture, ConnectionId, NodeError},
    sync::Mutex,
};

/// Requests that may be unanswered on a connection; clean-ups, which must not be lost, may queue twice as deep.
pub(super) const MOST_UNANSWERED: usize = 1024;
/// After this long nobody may have driven a lane of its own, and its connection may have ended unnoticed.
pub(super) const RESTED: Duration = Duration::from_millis(10);

/// Which of a node's connections; it has one of each at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// Of all requests with this driver.
    Of(Driver),
    /// Of requests that replicas must acknowledge: whatever is behind them waits, too. The background drives it.
    Replicated,
}

impl Lane {
    pub(super) fn driver(self) -> Driver {
        match self {
            Self::Of(driver) => driver,
            Self::Replicated => Driver::Background,
        }
    }
}

/// The connection of a lane of its own: any but the background's, which `State` keeps.
#[derive(Default)]
pub(super) struct Own {
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) attempt: Option<Attempt>,
}

type Making = BoxFuture<Result<Arc<Connection>, NodeError>>;

/// A connection that is being made.
pub(super) type Connecting = Shared<Making>;

/// An attempt to connect. Everybody who waits for the connection polls it, so that it needs none of them in particular; it
/// ends with the last of them.
pub(super) struct Attempt {
    pub(super) began: Instant,
    connecting: Option<WeakShared<Making>>,
}

impl Attempt {
    pub(super) fn new(connecting: &Connecting, began: Instant) -> Self {
        Self { began, connecting: connecting.downgrade() }
    }

    /// The attempt, if somebody waits for it.
    pub(super) fn connecting(&self) -> Option<Connecting> {
        self.connecting.as_ref()?.upgrade()
    }
}

/// A connection with its handshake done.
pub(super) struct Connection {
    pub(super) lane: Lane,
    pub(super) id: ConnectionId,
    pub(super) facts: Facts,
    pub(super) redis: MultiplexedConnection,
    /// Set when the server closed it.
    pub(super) dead: Arc<AtomicBool>,
    /// Set when nobody may use it any more.
    pub(super) retired: AtomicBool,
    pub(super) unanswered: AtomicUsize,
    /// How many of the unanswered nobody waits for; a probe finds out when they were answered.
    pub(super) abandoned: AtomicUsize,
    pub(super) probing: AtomicBool,
    /// How many requests wait for others to be answered.
    pub(super) queued: AtomicUsize,
    pub(super) answers: Notify,
    /// When the last request was sent.
    used: Mutex<Instant>,
    /// Clean-ups and the probe: they outlive whoever asked for them, but not the connection.
    tasks: Mutex<JoinSet<()>>,
}

impl Connection {
    pub(super) fn new(
        lane: Lane,
        id: ConnectionId,
        facts: Facts,
        redis: MultiplexedConnection,
        dead: Arc<AtomicBool>,
    ) -> Self {
        Self {
            lane,
            id,
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
        }
    }

    /// Stops its tasks. The socket closes with the last request on it.
    pub(super) fn retire(&self) {
        self.retired.store(true, SeqCst);
        self.answers.notify_waiters();
        self.tasks.lock().abort_all();
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        // Checked under the lock, so that no task slips in behind `retire`.
        if !self.retired.load(SeqCst) {
            tasks.spawn_on(task, &runtime::background());
        }
    }

    /// Does something when a runtime ends that drives it, unless it was retired before.
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

    /// Whether it can be used again. Nobody may have driven it for a while, and read that it ended.
    pub(super) async fn outlived_its_rest(&self) -> bool {
        let rested = self.used.lock().elapsed() >= RESTED;
        if !rested {
            return true;
        }
        // A few turns, in which its end, if it came, is read: else this request would be lost with it.
        #[cfg(target_os = "linux")]
        if let (Driver::Host(_), Some(host)) = (self.id.driver, host_io::current()) {
            host.poll_sockets();
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        !self.retired.load(SeqCst) && !self.dead.load(SeqCst)
    }

    pub(super) fn number(&self) -> u64 {
        self.id.number
    }
}

/// Tells when it is dropped.
pub(super) struct Ended<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Ended<F> {
    pub(super) fn new(tell: F) -> Self {
        Self(Some(tell))
    }
}

impl<F: FnOnce()> Drop for Ended<F> {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell();
        }
    }
}

/// A request on its way. Dropped unanswered, it leaves the connection to a probe or, if callers drive it, retires it.
pub(super) struct Outstanding<'a> {
    of: Tied<(&'a Arc<Inner>, &'a Arc<Connection>)>,
    pub(super) since: Instant,
    answered: bool,
}

impl<'a> Outstanding<'a> {
    pub(super) fn new(inner: &'a Arc<Inner>, connection: &'a Arc<Connection>) -> Self {
        connection.unanswered.fetch_add(1, SeqCst);
        let since = Instant::now();
        *connection.used.lock() = since;
        Self { of: Tied::new((inner, connection)), since, answered: false }
    }

    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        let Some((inner, connection)) = self.of.get() else { return };
        if self.answered {
            connection.unanswered.fetch_sub(1, SeqCst);
            // Each answer lets one in, whose own answer lets in the next.
            if connection.queued.load(SeqCst) > 0 {
                connection.answers.notify_one();
            }
        } else if connection.id.driver == Driver::Caller {
            // Nobody may drive it for a long time: it must not be trusted with anything more.
            inner.retire(connection.number());
        } else {
            connection.abandoned.fetch_add(1, SeqCst);
            inner.probe(connection, self.since);
        }
    }
}
