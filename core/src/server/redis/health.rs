//! The health of a node, as its background connection shows it, and the reviver: the task that reconnects.
//!
//! ```text
//! Idle         ──first use──▶ Connecting
//! Connecting   ──connected──▶ Up
//! Connecting   ──failed─────▶ Failing
//! Up           ──a reply is overdue──▶ Unresponsive
//! Up           ──connection broke──▶ Connecting
//! Unresponsive ──a reply, or a newer connection──▶ Up
//! Unresponsive ──connection broke──▶ Connecting
//! Failing      ──the reviver connects──▶ Up
//! Failing      ──a request after a pause──▶ Connecting
//! ```
//!
//! Requests wait while `Connecting` (first use, or just lost). They fail at once while `Unresponsive` or `Failing`, so
//! that a dead node costs no time. Callers and event loops have their own connections, but share this health.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    CLOSED_BY_SERVER, Inner, State, Task,
    connection::{Connection, Lane, LaneState},
    errors::{broken_connection_error, closed_error, not_run_error},
    identify::Facts,
    request::ping,
    target::Target,
};
use crate::{
    event::Event,
    process::{driver::Driver, runtime},
    server::NodeError,
    url::Address,
};

/// The pause after the first failed attempt to connect; it doubles after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a permanent failure.
const PERMANENT_PAUSE: Duration = Duration::from_secs(5);
/// Why a connection to a former master ends.
pub(super) const DEPOSED: &str = "the Sentinels elected another master";

/// The health of a node; the header of this file draws the transitions.
#[derive(Default)]
pub(super) enum Health {
    #[default]
    Idle,
    Connecting,
    Up,
    /// A reply is overdue since then, on a connection that is still open.
    Unresponsive {
        since: Instant,
    },
    Failing {
        error: NodeError,
        at: Instant,
    },
}

/// Whether a request may be sent now.
pub(super) enum SendDecision {
    Send,
    /// Until the background connection is made.
    Wait,
    Fail(NodeError),
}

impl Inner {
    /// Decides whether a request may be sent. Starts or wakes the reviver if the node needs a connection.
    pub(super) fn decide_send(self: &Arc<Self>, state: &mut State) -> SendDecision {
        if state.closed {
            return SendDecision::Fail(closed_error());
        }
        match &state.health {
            Health::Up => SendDecision::Send,
            Health::Connecting => SendDecision::Wait,
            Health::Unresponsive { since } => {
                SendDecision::Fail(not_run_error(format!("no answer for {:.1?}", since.elapsed())))
            }
            Health::Failing { error, at } => {
                if state.attempting || at.elapsed() <= LONGEST_PAUSE {
                    return SendDecision::Fail(error.clone());
                }
                state.health = Health::Connecting;
                self.revive(state, Duration::ZERO);
                SendDecision::Wait
            }
            Health::Idle => {
                state.health = Health::Connecting;
                self.revive(state, Duration::ZERO);
                SendDecision::Wait
            }
        }
    }

    /// Starts the reviver, which connects after `pause`. If it runs already and `pause` is zero, ends its pause.
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
                let connected = inner.connect(Lane::Of(Driver::Background)).await;
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
        state.reviver = Some(Task(runtime::spawn(reviver)));
    }

    /// Whether the node is `Connecting`, `Unresponsive` or `Failing`.
    pub(super) fn is_troubled(&self) -> bool {
        let state = self.state.lock();
        !state.closed && !matches!(state.health, Health::Idle | Health::Up)
    }

    fn attempt_failed(&self, error: NodeError) {
        let report = {
            let mut state = self.state.lock();
            state.attempting = false;
            if state.closed || matches!(state.health, Health::Up | Health::Unresponsive { .. }) {
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

    /// Handles a failed attempt to connect a lane other than the background's. From now on the reviver tries, so that
    /// the lanes need not.
    pub(super) fn lane_attempt_failed(self: &Arc<Self>, error: &NodeError) {
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

    fn report_down(&self, cause: Option<String>) {
        if let Some(cause) = cause {
            self.emit(&Event::NodeDown { node: self.name.to_string(), cause });
        }
    }

    /// Installs a new background connection, in place of one that may still hang.
    fn install(&self, connection: &Arc<Connection>) -> Result<(), NodeError> {
        let (old, came_back, is_another_run);
        let mut former = Vec::new();
        {
            let mut state = self.state.lock();
            if state.closed {
                return Ok(());
            }
            if matches!(state.health, Health::Up) {
                // The old connection answered meanwhile.
                return Ok(());
            }
            if connection.dead.load(SeqCst) {
                return Err(not_run_error(CLOSED_BY_SERVER));
            }
            if connection.is_deposed(&state) {
                return Err(not_run_error(DEPOSED));
            }
            if self.target.can_fail_over() {
                // Connections of other lanes to another run lead to the former master.
                let led_elsewhere = |lane: &mut LaneState| lane.connection.take_if(|c| c.id.run != connection.id.run);
                former.extend(state.lanes.values_mut().filter_map(led_elsewhere));
            }
            old = state.background.replace(Arc::clone(connection));
            state.health = Health::Up;
            state.attempting = false;
            // The reviver calls this as its last step: dropping its task here aborts nothing.
            state.reviver = None;
            came_back = std::mem::take(&mut state.reported);
            is_another_run = state.is_another_run(&connection.facts);
        }
        for old in old.into_iter().chain(former) {
            old.retire();
        }
        self.report_up(came_back);
        if is_another_run && !came_back {
            self.changed();
        }
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

    /// Warns if the server can evict held locks, once for each run of it.
    pub(super) fn warn_of_eviction(&self, facts: &Facts) {
        if let Some(policy) = &facts.evicts {
            self.warn(format!("eviction {}", facts.run.as_deref().unwrap_or_default()), || {
                format!("maxmemory-policy {policy} may evict held locks; use noeviction")
            });
        }
    }

    /// Handles a broken connection. Does nothing if it is no longer in use.
    pub(super) fn broke(self: &Arc<Self>, number: u64, cause: &str) {
        if self.retire(number) {
            self.changed();
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

    /// Watches the Sentinels' elections, if there are Sentinels. The node leaves a master as soon as they
    /// elect another, even if the old one still answers.
    pub(super) fn watch_elections(self: &Arc<Self>) {
        let Target::Followed(sentinels) = &*self.target else { return };
        let mut state = self.state.lock();
        if state.closed || state.follower.is_some() {
            return;
        }
        let (mut elections, inner) = (sentinels.elections(), Arc::downgrade(self));
        state.follower = Some(Task(runtime::spawn(async move {
            while let Some(master) = elections.recv().await {
                let Some(inner) = inner.upgrade() else { return };
                inner.leave_others(master);
            }
        })));
    }

    /// Drops all connections that lead to other servers than this master, as if they broke.
    fn leave_others(self: &Arc<Self>, master: Address) {
        let (connections, report): (Vec<_>, _) = {
            let mut state = self.state.lock();
            let others = state.lanes.values().filter_map(|lane| lane.connection.as_ref());
            let all = state.background.iter().chain(others);
            let connections: Vec<_> =
                all.filter(|one| one.leads_elsewhere(&master)).map(|connection| connection.number()).collect();
            state.elections += 1;
            let former = state.elected.replace(master);
            if connections.is_empty() && (former.is_none() || former == state.elected) {
                return;
            }
            let mut report = false;
            if !connections.is_empty() && !state.closed && matches!(state.health, Health::Idle) {
                // Only other lanes are connected. From now on they wait for the background connection.
                state.health = Health::Connecting;
                report = !std::mem::replace(&mut state.reported, true);
                self.revive(&mut state, Duration::ZERO);
            }
            (connections, report)
        };
        self.report_down(report.then(|| DEPOSED.to_owned()));
        // Its channels close, and waiters subscribe again.
        let subscriber = self.state.lock().subscriber.take();
        drop(subscriber);
        for number in connections {
            self.broke(number, DEPOSED);
        }
    }

    /// Leaves a server that refuses a write as a replica: its address, such as the name of a managed service, may lead to
    /// the new master by now. But not sooner than a pause after this connection was made: if the address leads to a
    /// replica, connections would follow each other without end.
    pub(super) fn leave_replica(self: &Arc<Self>, connection: &Connection) {
        let pause = if connection.facts.replica { PERMANENT_PAUSE } else { LONGEST_PAUSE };
        if connection.retired.load(SeqCst) || connection.made.elapsed() < pause {
            return;
        }
        let same_run = |other: &mut Arc<Connection>| other.id.run == connection.id.run;
        let (left, subscriber) = {
            let mut state = self.state.lock();
            let lanes = state.lanes.values_mut().filter_map(|lane| lane.connection.take_if(same_run));
            let mut left: Vec<_> = lanes.collect();
            if let Some(background) = state.background.take_if(same_run) {
                left.push(background);
                state.health = Health::Connecting;
                self.revive(&mut state, Duration::ZERO);
            }
            (left, state.subscriber.take())
        };
        for connection in left {
            connection.retire();
        }
        // Its channels close, and waiters subscribe again.
        drop(subscriber);
    }

    /// Handles an overdue reply on the background connection.
    pub(super) fn overdue(self: &Arc<Self>, number: u64, since: Instant) {
        let mut state = self.state.lock();
        let current = state.background.as_ref().is_some_and(|c| c.number() == number);
        if !current || !matches!(state.health, Health::Up) {
            return;
        }
        let report = self.mark_unresponsive(&mut state, since);
        drop(state);
        self.report_down(report);
    }

    fn mark_unresponsive(self: &Arc<Self>, state: &mut State, since: Instant) -> Option<String> {
        state.health = Health::Unresponsive { since };
        // Not at once: the reply may merely be late.
        self.revive(state, FIRST_PAUSE);
        let report = !std::mem::replace(&mut state.reported, true);
        report.then(|| format!("no answer for {:.1?}", since.elapsed()))
    }

    /// Handles an overdue reply in a lane other than the background's. The background connection finds out when the
    /// node answers again.
    pub(super) fn lane_overdue(self: &Arc<Self>, since: Instant) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let cause = || format!("no answer for {:.1?}", since.elapsed());
        match (&state.health, state.background.clone()) {
            (Health::Up, Some(connection)) => {
                let report = self.mark_unresponsive(&mut state, since);
                drop(state);
                self.report_down(report);
                self.probe(&connection, since);
            }
            (Health::Idle, _) => {
                state.health = Health::Failing { error: not_run_error(cause()), at: Instant::now() };
                self.revive(&mut state, Duration::ZERO);
                let report = !std::mem::replace(&mut state.reported, true);
                drop(state);
                self.report_down(report.then(cause));
            }
            // The node is known to be down, or the reviver is about to find out.
            _ => {}
        }
    }

    /// Handles a reply on the background connection.
    fn answered(&self, number: u64) {
        {
            let mut state = self.state.lock();
            let current = state.background.as_ref().is_some_and(|c| c.number() == number);
            if !current || !matches!(state.health, Health::Unresponsive { .. }) {
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

    /// Sends PING after requests whose callers gave up. Its reply shows that they were answered, a missing reply that
    /// the node is down. A connection has one probe at a time.
    pub(super) fn probe(self: &Arc<Self>, connection: &Arc<Connection>, since: Instant) {
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
                // An error reply is a reply, too.
                if let Err(error) = reply {
                    inner.broke(number, &broken_connection_error(&error).detail);
                    return;
                }
                probed.unanswered.fetch_sub(abandoned, SeqCst);
                probed.send_next();
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
}
