//! Sends requests on a connection: a limited number at once, none of them twice, each with a time limit.

use std::{
    pin::{Pin, pin},
    sync::{Arc, OnceLock, atomic::Ordering::SeqCst},
    time::Duration,
};

use futures_util::FutureExt;
use redis::{Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection};
use tokio::{task::coop::unconstrained, time::Instant};

use super::{
    Inner,
    batch::Way,
    connection::{Connection, Lane, MOST_UNANSWERED, Outstanding},
    deferred::Input,
    errors::{
        closed_error, error_from_reply, not_run_error, redirect_error, reply_timeout_error, too_many_unanswered_error,
    },
    identify::Facts,
    replies::{reply_to_call, script_reply},
    room::Turn,
    within_limit,
};
use crate::{
    process::{driver::Driver, runtime},
    protocol::{
        calls::Identity,
        reply::is_grant,
        script::{Reply, ScriptCall},
    },
    server::{Hint, NodeError, NodeErrorKind, NodeInfo, SentOn},
};

/// The commands that are pipelined with a request: all go out in one write, so that nothing comes between.
#[derive(Clone, Copy, Default)]
pub(super) struct Pipelined {
    /// Whether ASKING precedes the request. Without it, the server to which a slot migrates would redirect the request
    /// back.
    pub(super) asking: bool,
    /// If set, WAIT follows the request, with this number of replicas and this time limit.
    pub(super) wait_for_replicas: Option<(u32, Duration)>,
}

impl Pipelined {
    fn is_empty(self) -> bool {
        !self.asking && self.wait_for_replicas.is_none()
    }
}

impl Inner {
    /// Runs a script. `redirected_by_ask`: whether -ASK redirected the request here, during the migration of its slot.
    pub(super) async fn run(
        self: &Arc<Self>,
        driver: Driver,
        call: &ScriptCall,
        timeout: Duration,
        sent: &SentOn,
        redirected_by_ask: bool,
    ) -> Result<Reply, NodeError> {
        let pipelined = Pipelined { asking: redirected_by_ask, wait_for_replicas: None };
        if call.replicas == 0 {
            let connection = self.connection(driver.usable_now(), timeout).await?;
            return self.eval(&connection, call, timeout, sent, pipelined).await;
        }
        Box::pin(self.replicated(call, timeout, sent, pipelined)).await
    }

    /// Runs a script that replicas must acknowledge. It runs in a background task, so that the next such script can run
    /// even if this future is no longer polled.
    async fn replicated(
        self: &Arc<Self>,
        call: &ScriptCall,
        timeout: Duration,
        sent: &SentOn,
        pipelined: Pipelined,
    ) -> Result<Reply, NodeError> {
        let mut caller = GivenUp::new(sent);
        let (inner, call, sent) = (Arc::clone(self), call.clone(), sent.clone());
        let run = async move { inner.run_after_earlier(&call, timeout, &sent, pipelined).await };
        let reply = runtime::spawn_in_background(run).await.unwrap_or_else(|| Err(closed_error()));
        caller.ended();
        reply
    }

    /// Waits until earlier such scripts are acknowledged, then runs this one.
    async fn run_after_earlier(
        self: &Arc<Self>,
        call: &ScriptCall,
        timeout: Duration,
        sent: &SentOn,
        mut pipelined: Pipelined,
    ) -> Result<Reply, NodeError> {
        let started = Instant::now();
        let Some(_guard) = within_limit(Lane::Replicated.driver(), timeout, pin!(self.replicated.lock())).await else {
            return Err(not_run_error("replicas have not acknowledged earlier locks yet"));
        };
        let left = timeout.saturating_sub(started.elapsed());
        let connection = self.lane_connection(Lane::Replicated, left).await?;
        // Shorter than the reply time-out: a server that waits for replicas must not count as down.
        let limit = left.min(self.reply_timeout) / 2;
        pipelined.wait_for_replicas = Some((call.replicas, limit));
        self.eval(&connection, call, left, sent, pipelined).await
    }

    /// Returns the connection for requests with this driver.
    async fn connection(self: &Arc<Self>, driver: Driver, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
        if driver != Driver::Background {
            let connected = self.lane_connection(Lane::Of(driver), timeout).await;
            // The attempt may have shown that the runtime cannot drive connections; then the background does.
            if connected.is_ok() || driver.usable_now() == driver {
                return connected;
            }
        }
        self.background(timeout).await
    }

    /// Sends PING on the background connection, and returns the facts known of the server.
    pub(super) async fn ping(self: &Arc<Self>, timeout: Duration) -> Result<NodeInfo, NodeError> {
        let connection = self.background(timeout).await?;
        match self.request(&connection, &ping(), None, timeout, Pipelined::default()).await? {
            // NOPERM is a reply, too: the node answers, only the right to PING is missing. NOAUTH does not get here.
            Value::ServerError(error) if error.code() != "NOPERM" => Err(error_from_reply(&error)),
            _ => {
                Ok(NodeInfo::new(connection.facts.run.as_deref().map(str::to_owned), connection.facts.version.clone()))
            }
        }
    }

    /// Sends a call on a connection, and returns the script's reply.
    async fn eval(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        call: &ScriptCall,
        timeout: Duration,
        sent: &SentOn,
        pipelined: Pipelined,
    ) -> Result<Reply, NodeError> {
        self.check_identity(connection, call)?;
        let reply = if connection.is_full() {
            Box::pin(self.reply_in_turn(connection, call, timeout, sent, pipelined)).await
        } else {
            self.reply_at_once(connection, call, timeout, sent, pipelined).await
        };
        let reply = self.check_reply(connection, reply);
        if let Err(error) = &reply
            && error.kind == NodeErrorKind::Forbidden
            && call.script.ends_tenure()
        {
            self.warn("release".to_owned(), || format!("cannot release locks, which stay until their ttl: {error}"));
        }
        reply
    }

    /// Sends a call alone or together with others, and waits for the reply.
    async fn reply_at_once(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        call: &ScriptCall,
        timeout: Duration,
        sent: &SentOn,
        pipelined: Pipelined,
    ) -> Result<Reply, NodeError> {
        match self.way(connection, call, sent, pipelined) {
            Way::Alone(_under_way) => {
                let command = command("EVALSHA", &call.script.sha, call, &connection.facts);
                sent.set(connection.id.clone())?;
                let whole = Whole { call, sent: Some(sent) };
                let value = self.request(connection, &command, Some(whole), timeout, pipelined).await?;
                reply_to_call(value, call)
            }
            Way::Together(place) => Box::pin(self.reply_in_batch(connection, place, timeout, sent)).await,
        }
    }

    /// Decides whether a call goes alone, or together with others.
    fn way<'a>(
        self: &Arc<Self>,
        connection: &'a Arc<Connection>,
        call: &ScriptCall,
        sent: &SentOn,
        pipelined: Pipelined,
    ) -> Way<'a> {
        if call.batch.is_none() || !pipelined.is_empty() {
            connection.batches.send_before(call);
            return Way::Alone(None);
        }
        connection.batches.way(call, sent, |collected| {
            Arc::clone(self).send_batch(Arc::clone(connection), call.clone(), collected).boxed()
        })
    }

    /// Checks a reply. If it shows that the server is no longer a master, ends the connection.
    pub(super) fn check_reply(
        self: &Arc<Self>,
        connection: &Connection,
        reply: Result<Reply, NodeError>,
    ) -> Result<Reply, NodeError> {
        match reply {
            Err(error) if error.hint == Some(Hint::Replica) && self.target.can_fail_over() => {
                self.broke(connection.number(), "became a replica");
                Err(not_run_error("became a replica"))
            }
            Err(error) if error.hint == Some(Hint::Replica) && !self.in_cluster => {
                self.leave_replica(connection);
                Err(error)
            }
            Err(error) if !self.in_cluster => Err(redirect_error(error)),
            other => other,
        }
    }

    /// Waits until a call's turn to be sent comes, and for the reply. A healthy host may make thousands of calls at once.
    async fn reply_in_turn(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        call: &ScriptCall,
        timeout: Duration,
        sent: &SentOn,
        pipelined: Pipelined,
    ) -> Result<Reply, NodeError> {
        let mut caller = GivenUp::new(sent);
        connection.batches.send_before(call);
        let began = Arc::new(OnceLock::new());
        let turn = Turn::new(|turn| {
            let (inner, connection, began) = (Arc::clone(self), Arc::clone(connection), Arc::clone(&began));
            let (call, sent) = (call.clone(), sent.clone());
            let send = async move { inner.send_in_turn(connection, call, sent, pipelined, turn, &began).await };
            send.boxed()
        });
        let mut reply = turn.output().clone();
        connection.room.wait(turn);
        connection.send_next();
        let (driver, timeout) = (connection.id.driver, timeout.min(self.reply_timeout));
        let mut outcome = within_limit(driver, timeout, Pin::new(&mut reply)).await;
        if outcome.is_none() {
            let Some(began) = began.get() else {
                // Another thread may be about to send it.
                let was_sent = sent.close().is_some();
                let unsent = too_many_unanswered_error(MOST_UNANSWERED);
                return Err(if was_sent { reply_timeout_error(timeout) } else { unsent });
            };
            let left = timeout.saturating_sub(began.elapsed());
            outcome = within_limit(driver, left, Pin::new(&mut reply)).await;
            if outcome.is_none() && timeout == self.reply_timeout {
                self.late(connection, *began);
            }
        }
        if outcome.is_some() {
            // It may be redirected, and sent again.
            caller.ended();
        }
        outcome.unwrap_or_else(|| Err(reply_timeout_error(timeout)))
    }

    /// Sends a call once its turn has come, and returns the reply. `began`: receives the time when it was sent.
    async fn send_in_turn(
        self: Arc<Self>,
        connection: Arc<Connection>,
        call: ScriptCall,
        sent: SentOn,
        pipelined: Pipelined,
        turn: Input<()>,
        began: &OnceLock<Instant>,
    ) -> Result<Reply, NodeError> {
        // Not later because a task has used up its budget: the next call's turn comes right after.
        if unconstrained(turn).await.is_err() || connection.retired.load(SeqCst) {
            return Err(not_run_error("connection replaced"));
        }
        let command = command("EVALSHA", &call.script.sha, &call, &connection.facts);
        sent.set(connection.id.clone())?;
        let outstanding = Outstanding::new(&self, &connection);
        let _ = began.set(outstanding.since);
        let whole = Whole { call: &call, sent: Some(&sent) };
        let value = exchange(&connection, &command, Some(whole), pipelined).await;
        reply_to_call(outstanding.ended(value)?, &call)
    }

    /// Fails if a call needs the server's identity and INFO did not report it.
    pub(super) fn check_identity(&self, connection: &Connection, call: &ScriptCall) -> Result<(), NodeError> {
        if call.identify && self.guarded && connection.facts.run.is_none() {
            return Err(NodeError::new(NodeErrorKind::Forbidden, "needs the right to run INFO"));
        }
        Ok(())
    }

    /// Sends one request. With `whole`, sends the whole script if the server does not know it. Gives up after `timeout`,
    /// and then sends nothing more.
    pub(super) async fn request(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        command: &Cmd,
        whole: Option<Whole<'_>>,
        timeout: Duration,
        pipelined: Pipelined,
    ) -> Result<Value, NodeError> {
        // After `reply_timeout` the node counts as down.
        let timeout = timeout.min(self.reply_timeout);
        let outstanding = Outstanding::new(self, connection);
        let since = outstanding.since;
        let exchange = pin!(exchange(connection, command, whole, pipelined));
        let reply = within_limit(connection.id.driver, timeout, exchange).await;
        let Some(value) = reply else {
            if timeout == self.reply_timeout {
                self.late(connection, since);
            }
            return Err(reply_timeout_error(timeout));
        };
        outstanding.ended(value)
    }

    /// The reply to a request of this time did not come within the reply time-out.
    pub(super) fn late(self: &Arc<Self>, connection: &Connection, since: Instant) {
        match connection.lane {
            Lane::Of(Driver::Background) => self.overdue(connection.number(), since),
            Lane::Of(_) | Lane::Replicated => self.lane_overdue(since),
        }
    }
}

/// Gives up a request, if it is still unsent, when its caller is dropped.
pub(super) struct GivenUp(Option<SentOn>);

impl GivenUp {
    pub(super) fn new(sent: &SentOn) -> Self {
        Self(Some(sent.clone()))
    }

    /// The request has ended.
    pub(super) fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        if let Some(sent) = self.0.take() {
            sent.close();
        }
    }
}

/// The call whose whole script is sent if the server does not know it.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a> {
    pub(super) call: &'a ScriptCall,
    /// If this is closed, requests are ordered behind the call: the whole script would run after them, and is not sent.
    pub(super) sent: Option<&'a SentOn>,
}

/// Sends a command. If the server does not know the script that it names, sends the whole script.
pub(super) async fn exchange(
    connection: &Connection,
    request: &Cmd,
    whole: Option<Whole<'_>>,
    pipelined: Pipelined,
) -> Result<Value, RedisError> {
    let mut redis = connection.redis.clone();
    let value = send(&mut redis, request, pipelined).await?;
    match (&value, whole) {
        (Value::ServerError(error), Some(Whole { call, sent }))
            if error.code() == "NOSCRIPT" && !sent.is_some_and(SentOn::is_closed) =>
        {
            let request = command("EVAL", &call.script.source, call, &connection.facts);
            Box::pin(send(&mut redis, &request, pipelined)).await
        }
        _ => Ok(value),
    }
}

async fn send(redis: &mut MultiplexedConnection, request: &Cmd, pipelined: Pipelined) -> Result<Value, RedisError> {
    if pipelined.is_empty() {
        // A task that has used up its budget of cooperative scheduling would send the request in a later turn, behind
        // requests of calls that it made later.
        return unconstrained(redis.send_packed_command(request)).await;
    }
    Box::pin(send_pipelined(redis, request, pipelined)).await
}

async fn send_pipelined(
    redis: &mut MultiplexedConnection,
    request: &Cmd,
    pipelined: Pipelined,
) -> Result<Value, RedisError> {
    let mut pipeline = Pipeline::new();
    if pipelined.asking {
        pipeline.cmd("ASKING");
    }
    pipeline.add_command(request.clone());
    if let Some((replicas, limit)) = pipelined.wait_for_replicas {
        pipeline.cmd("WAIT").arg(replicas).arg(limit.as_millis().max(1) as u64);
    }
    let mut values = redis.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
    let acknowledged = pipelined.wait_for_replicas.and_then(|_| values.pop());
    let value = values.pop().unwrap_or(Value::Nil);
    Ok(match (pipelined.wait_for_replicas, acknowledged) {
        // Only a grant needs an acknowledgement.
        (Some((needed, limit)), Some(acknowledged)) if granted(&value) => {
            shortfall(needed, limit, acknowledged).map_or(value, |(code, text)| error_reply(&code, &text))
        }
        _ => value,
    })
}

/// Whether the reply to an acquire is a grant.
fn granted(value: &Value) -> bool {
    script_reply(value.clone()).is_ok_and(|reply| is_grant(&reply))
}

/// Returns an error's code and text if too few replicas acknowledged, otherwise `None`.
pub(super) fn shortfall(needed: u32, limit: Duration, reply: Value) -> Option<(String, String)> {
    let failed = |text| Some(("ERR".to_owned(), text));
    match reply {
        Value::Int(count) if count >= i64::from(needed) => None,
        Value::Int(count) => {
            let limit = limit.as_millis();
            failed(format!("only {count} of {needed} replicas acknowledged the lock within {limit} ms"))
        }
        Value::ServerError(error) => {
            let details = error.details().unwrap_or_default().trim_end();
            match error.code() {
                "NOPERM" => Some(("NOPERM".to_owned(), format!("WAIT: {details}"))),
                // Of other codes, such as BUSY, some say that the request did not run. The script did.
                code => failed(format!("WAIT: {code} {details}")),
            }
        }
        _ => failed("WAIT: unexpected kind of reply".to_owned()),
    }
}

/// Builds an error reply from its code and text, as a server sends it.
fn error_reply(code: &str, text: &str) -> Value {
    // The crate has no other way to make one.
    let error = redis::parse_redis_value(format!("-{code} {text}\r\n").as_bytes());
    error.unwrap_or(Value::Nil)
}

/// Builds the command for a call: `name` is EVALSHA or EVAL, `body` the SHA-1 or the source of the script.
pub(super) fn command(name: &str, body: &str, call: &ScriptCall, facts: &Facts) -> Cmd {
    let size = name.len() + body.len() + call.keys.iter().chain(call.args.iter()).map(String::len).sum::<usize>() + 72;
    let mut command = Cmd::with_capacity(6 + call.keys.len() + call.args.len(), size);
    command.arg(name).arg(body).arg(call.keys.len());
    for part in call.keys.iter().chain(call.args.iter()) {
        command.arg(part.as_str());
    }
    if call.identify {
        let (run, lost_at) = (facts.run.as_deref().unwrap_or_default(), facts.lost_at.to_string());
        let durable = if facts.durable { "1" } else { "0" };
        let [_, identity] = Identity { run, lost_at: &lost_at, durable }.lists();
        for part in identity {
            command.arg(part);
        }
    }
    command
}

/// Builds PING.
pub(super) fn ping() -> Cmd {
    let mut command = Cmd::with_capacity(1, 4);
    command.arg("PING");
    command
}
