//! Clean-ups, which take effect behind what they clean up: on the connection that carried it while that lives, else on
//! another, once the server confirmed that the first is closed.

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
    errors::{closed, failure, no_answer, no_connection, refusal, unanswered},
    health::Health,
    patient,
    replies::answer,
    request::{With, command, exchange},
};
use crate::{
    process::driver::Driver,
    protocol::script::{Reply, ScriptCall},
    server::{ConnectionId, NodeError, NodeErrorKind},
};

/// When a clean-up is repeated that could not be ordered after what it cleans up.
const WITHOUT_BARRIER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// What keeps a clean-up behind a request that another connection carried.
enum Barrier {
    /// Nothing need: both go the same way, or the run of the server that had the request is over.
    Unneeded,
    /// The other connection, of this id and address, is closed first, and the server confirms it.
    Kill(i64, Arc<str>),
    /// Nothing can: it is repeated until the request has run, if it ever does.
    Missing,
}

impl Barrier {
    /// Between a connection and another, to a server whose run is `run`.
    fn between(former: ConnectionId, run: Option<&str>) -> Self {
        match (former.run.as_deref(), run, former.peer) {
            // Of another run is nothing left, and the id may be somebody else's by now.
            (Some(old), Some(new), _) if old != new => Self::Unneeded,
            (Some(_), Some(_), Some((id, address))) => Self::Kill(id, address),
            // Unknown: id and address together are as good as unique.
            (_, _, Some((id, address))) if !address.is_empty() => Self::Kill(id, address),
            _ => Self::Missing,
        }
    }
}

impl Inner {
    pub(super) async fn eval_after(
        self: &Arc<Self>,
        id: ConnectionId,
        call: ScriptCall,
        timeout: Duration,
    ) -> Result<Reply, NodeError> {
        let host = matches!(id.driver, Driver::Host(_) | Driver::Program(_)).then_some(id.number);
        let (connection, barrier) = self.behind(id, timeout).await?;
        self.check_identity(&connection, &call)?;
        if connection.unanswered.load(SeqCst) >= 2 * MOST_UNANSWERED {
            return Err(unanswered(2 * MOST_UNANSWERED));
        }
        let since = Instant::now();
        let (done, result) = oneshot::channel();
        let (inner, carrier) = (Arc::clone(self), Arc::clone(&connection));
        // A task, because the request must stay queued when nobody waits for it any more.
        connection.spawn(async move {
            let _ = done.send(inner.follow(&carrier, barrier, &call).await);
        });
        let mut result = pin!(result);
        let usual = timeout.min(self.reply_timeout);
        let mut reply = patient(Driver::Background, usual, result.as_mut()).await;
        if reply.is_none() {
            if let Some(number) = host {
                // Perhaps its event loop or runtime stands still: the next try does without it.
                self.retire(number);
            }
            if usual == self.reply_timeout {
                self.overdue(connection.number(), since);
            }
            self.probe(&connection, since);
            reply = patient(Driver::Background, timeout.saturating_sub(usual), result.as_mut()).await;
        }
        match reply {
            Some(Ok(result)) => result,
            // The task was aborted with its connection.
            Some(Err(_)) => Err(NodeError::new(NodeErrorKind::Unknown, "connection replaced")),
            None => Err(no_answer(timeout)),
        }
    }

    /// The connection for what shall run behind all that another carried: the same one, if somebody drives it.
    async fn behind(
        self: &Arc<Self>,
        former: ConnectionId,
        timeout: Duration,
    ) -> Result<(Arc<Connection>, Barrier), NodeError> {
        if let Some(same) = self.driven(&former) {
            return Ok((same, Barrier::Unneeded));
        }
        // Nobody may use a connection that is about to be killed.
        self.retire(former.number);
        let other = self.at_hand(timeout).await?;
        let barrier = Barrier::between(former, other.facts.run.as_deref());
        Ok((other, barrier))
    }

    /// A connection that is still in use, and driven whoever waits.
    fn driven(&self, id: &ConnectionId) -> Option<Arc<Connection>> {
        if id.driver == Driver::Caller {
            return None;
        }
        let state = self.state.lock();
        let own = state.own.values().filter_map(|own| own.connection.as_ref());
        state.background.iter().chain(own).find(|known| known.number() == id.number).cloned()
    }

    /// The background connection, be it silent or not, once there is one.
    async fn at_hand(self: &Arc<Self>, timeout: Duration) -> Result<Arc<Connection>, NodeError> {
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
        let found = patient(Driver::Background, timeout, pin!(self.look_again(look))).await;
        found.unwrap_or_else(|| match &self.state.lock().health {
            Health::Failing { error, .. } => Err(error.clone()),
            _ => Err(no_connection(timeout)),
        })
    }

    /// Runs a call behind everything on this connection, and behind a barrier.
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
        // Both are sent at once, in this order.
        let (ordered, mut value) =
            tokio::join!(biased; ordered, exchange(connection, &command, Some(call), With::default()));
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
                self.broke(connection.number(), &error.detail);
                Err(error)
            }
        }
    }

    /// Has the server close a connection; false if it refuses. Without an answer there is none to what is behind
    /// it either.
    async fn kill(&self, connection: &Connection, id: i64, address: &str) -> bool {
        let mut kill = Cmd::with_capacity(6, 64);
        kill.arg("CLIENT").arg("KILL").arg("ID").arg(id);
        if !address.is_empty() {
            kill.arg("ADDR").arg(address);
        }
        // The server answers 0 when that client is gone already.
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
                refusal(error).detail
            )
        });
    }
}
