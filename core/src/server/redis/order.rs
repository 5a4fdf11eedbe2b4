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
    connection::{Connection, Outstanding},
    errors::{closed, failure, no_answer, no_connection, refusal, unanswered},
    health::Health,
    patient,
    replies::answer,
    request::{MOST_UNANSWERED, With, command, exchange},
};
use crate::{
    process::driver::Driver,
    protocol::script::{Call, Reply},
    server::{ConnectionId, NodeError, NodeErrorKind},
};

/// When a clean-up is repeated that could not be ordered after what it cleans up.
const WITHOUT_BARRIER: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

impl Inner {
    pub(super) async fn eval_after(
        self: &Arc<Self>,
        id: ConnectionId,
        call: Call,
        timeout: Duration,
    ) -> Result<Reply, NodeError> {
        let current = {
            let state = self.state.lock();
            match id.driver {
                Driver::Background => state.background.clone(),
                Driver::Host(_) | Driver::Replicated => {
                    state.own.get(&id.driver).and_then(|own| own.connection.clone())
                }
                // Nobody may drive it.
                Driver::Caller => None,
            }
        };
        let mut kill = None;
        let mut ordered = true;
        let connection = if let Some(same) = current.filter(|c| c.number() == id.number) {
            same
        } else {
            // Nobody may use a connection that is about to be killed.
            self.retire(id.driver, id.number);
            let other = self.settled(timeout).await?;
            ordered = matches!((&id.run, &other.facts.run), (Some(old), Some(new)) if old != new);
            kill = id.peer.filter(|(_, address)| match (&id.run, &other.facts.run) {
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
        let mut reply = patient(Driver::Background, usual, &mut result).await;
        if reply.is_none() {
            if let Driver::Host(_) = id.driver {
                // Perhaps its event loop stands still: the next try does without it.
                self.retire(id.driver, id.number);
            }
            if usual == self.reply_timeout {
                self.overdue(connection.number(), since);
            }
            self.probe(&connection, since);
            reply = patient(Driver::Background, timeout.saturating_sub(usual), &mut result).await;
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
        let found = patient(Driver::Background, timeout, self.look_again(look)).await;
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
                self.broke(connection.id.driver, connection.number(), &error.detail);
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
}
