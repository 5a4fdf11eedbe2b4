//! Clean-ups: scripts that must take effect after an earlier request. A clean-up goes on the connection that carried
//! the request, while that lives; otherwise on another, once the server confirmed that the first is closed.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use redis::{Cmd, ServerError, Value};
use tokio::{sync::oneshot, time::Instant};

use super::{
    Inner,
    connection::{Connection, MOST_UNANSWERED, Outstanding},
    errors::{closed_error, connect_timeout_error, error_from_reply, reply_timeout_error, too_many_unanswered_error},
    health::Health,
    replies::reply_to_call,
    request::{Pipelined, Whole, command, exchange},
    within_limit,
};
use crate::{
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall},
    server::{ConnectionId, NodeError, NodeErrorKind},
};

/// The pauses before a clean-up is repeated that could not be ordered after its request.
const WITHOUT_BARRIER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// How a clean-up on one connection is ordered after a request on another.
enum Barrier {
    /// No barrier is needed: both use the same connection, or the request was for another run of a server.
    Unneeded,
    /// The server first closes the other connection, which has this id and address, and confirms that.
    Kill(i64, Arc<str>),
    /// No barrier is possible: the clean-up is repeated, twice at most, until it finds the effect of the request.
    Missing,
}

impl Barrier {
    /// Chooses the barrier between `former` and a connection to a server whose run is `run`.
    fn between(former: ConnectionId, run: Option<&str>) -> Self {
        match (former.run.as_deref(), run, former.peer) {
            // Nothing is left of another run, and another client may have the id by now.
            (Some(old), Some(new), _) if old != new => Self::Unneeded,
            (Some(_), Some(_), Some((id, address))) => Self::Kill(id, address),
            // The run is unknown, but id and address together are as good as unique.
            (_, _, Some((id, address))) if !address.is_empty() => Self::Kill(id, address),
            _ => Self::Missing,
        }
    }
}

impl Inner {
    /// Runs a call after everything that was sent on connection `id`; see `Node::eval_after`.
    pub(super) async fn eval_after(
        self: &Arc<Self>,
        id: ConnectionId,
        call: ScriptCall,
        timeout: Duration,
    ) -> Result<Reply, NodeError> {
        let (connection, barrier) = self.behind(id, timeout).await?;
        self.check_identity(&connection, &call)?;
        if connection.unanswered.load(SeqCst) >= 2 * MOST_UNANSWERED {
            return Err(too_many_unanswered_error(2 * MOST_UNANSWERED));
        }
        let since = Instant::now();
        let (done, result) = oneshot::channel();
        let (inner, carrier) = (Arc::clone(self), Arc::clone(&connection));
        // A task, because the request must stay queued even if its caller gives up.
        connection.spawn(async move {
            let _ = done.send(inner.follow(&carrier, barrier, &call).await);
        });
        let mut result = pin!(result);
        let usual = timeout.min(self.reply_timeout);
        let mut reply = within_limit(Driver::Background, usual, result.as_mut()).await;
        if reply.is_none() {
            // Perhaps nothing drives it any more, or the network has lost it: the next try uses another connection. That
            // of the background is replaced by the reviver.
            self.retire(connection.number());
            if usual == self.reply_timeout {
                self.overdue(connection.number(), since);
            }
            self.probe(&connection, since);
            reply = within_limit(Driver::Background, timeout.saturating_sub(usual), result.as_mut()).await;
        }
        match reply {
            Some(Ok(result)) => result,
            // The task was aborted with its connection.
            Some(Err(_)) => Err(NodeError::new(NodeErrorKind::Unknown, "connection replaced")),
            None => Err(reply_timeout_error(timeout)),
        }
    }

    /// Returns the connection for a call after everything on `former`, and the barrier. It is `former` itself, if that
    /// is in use and no blocking caller has to drive it.
    async fn behind(
        self: &Arc<Self>,
        former: ConnectionId,
        timeout: Duration,
    ) -> Result<(Arc<Connection>, Barrier), NodeError> {
        if let Some(same) = self.driven(&former) {
            return Ok((same, Barrier::Unneeded));
        }
        // No request may use a connection that is about to be killed.
        self.retire(former.number);
        let other = self.background_for_clean_up(timeout).await?;
        let barrier = Barrier::between(former, other.facts.run.as_deref());
        Ok((other, barrier))
    }

    /// Returns the connection with this id, if it is still in use and no blocking caller has to drive it.
    fn driven(&self, id: &ConnectionId) -> Option<Arc<Connection>> {
        if id.driver == Driver::Caller {
            return None;
        }
        let state = self.state.lock();
        let others = state.lanes.values().filter_map(|lane| lane.connection.as_ref());
        state.background.iter().chain(others).find(|known| known.number() == id.number).cloned()
    }

    /// Returns the background connection, even if the node does not answer on it. Waits until there is one.
    async fn background_for_clean_up(self: &Arc<Self>, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
        let connection = || {
            let mut state = self.state.lock();
            if state.closed {
                return Some(Err(closed_error()));
            }
            if state.background.is_none() {
                // Called only to wake the reviver: unlike a request, a clean-up waits for a failing node.
                let _ = self.decide_send(&mut state);
            }
            state.background.clone().map(Ok)
        };
        let found = within_limit(Driver::Background, timeout, pin!(self.wait_until(connection))).await;
        found.unwrap_or_else(|| match &self.state.lock().health {
            // Also if connecting fails for good, as with a wrong password: it did not when the request was sent.
            Health::Failing { error, .. } => Err(NodeError { kind: NodeErrorKind::NotRun, ..error.clone() }),
            _ => Err(connect_timeout_error(timeout)),
        })
    }

    /// Runs a call after everything on this connection and after a barrier.
    async fn follow(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        barrier: Barrier,
        call: &ScriptCall,
    ) -> Result<Reply, NodeError> {
        let outstanding = Outstanding::new(self, connection);
        let ordered = async {
            match barrier {
                Barrier::Unneeded => true,
                Barrier::Kill(id, address) => self.kill(connection, id, &address).await,
                Barrier::Missing => false,
            }
        };
        let command = command("EVALSHA", &call.script.sha, call, &connection.facts);
        let whole = Whole { call, sent: None };
        // Sends both at once, in this order.
        let (ordered, mut value) =
            tokio::join!(biased; ordered, exchange(connection, &command, Some(whole), Pipelined::default()));
        if !ordered {
            // A request that is still on the old connection runs at about the same time as this call, since the server
            // reads all connections in turn: a little later it has run.
            for pause in WITHOUT_BARRIER {
                if value != Ok(Value::Int(0)) {
                    break;
                }
                tokio::time::sleep(pause).await;
                value = exchange(connection, &command, Some(whole), Pipelined::default()).await;
            }
        }
        let value = outstanding.ended(value)?;
        self.check_reply(connection, reply_to_call(value, call))
    }

    /// Requests the server to close a connection; returns false if it refuses. Returns true without a reply: the call
    /// that follows on the same connection then gets none either.
    async fn kill(&self, connection: &Connection, id: i64, address: &str) -> bool {
        let mut kill = Cmd::with_capacity(6, 64);
        kill.arg("CLIENT").arg("KILL").arg("ID").arg(id);
        if !address.is_empty() {
            kill.arg("ADDR").arg(address);
        }
        // The server replies 0 if that client is gone already.
        if let Ok(Value::ServerError(error)) = connection.redis.clone().send_packed_command(&kill).await {
            self.warn_of_kill(&error);
            return false;
        }
        true
    }

    fn warn_of_kill(&self, error: &ServerError) {
        self.warn("kill".to_owned(), || {
            format!(
                "cannot close a connection of its own ({}); a lock that nobody waits for any more may stay until its \
                 ttl",
                error_from_reply(error).detail
            )
        });
    }
}
