//! Sends the calls that go together, and gives each its reply.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use redis::Value;
use tokio::{task::coop::unconstrained, time::Instant};

use super::{
    Inner,
    batch::{Collected, LONGEST_COLLECTION, Member, Place, Replies},
    connection::{Connection, Outstanding},
    errors::{not_run_error, reply_timeout_error},
    replies::reply_to_call,
    request::{GivenUp, Pipelined, command, exchange},
    within_limit,
};
use crate::{
    protocol::script::{Reply, ScriptCall},
    server::{NodeError, SentOn},
};

impl Inner {
    /// Waits for the reply to a call in a batch, for `timeout` at most.
    pub(super) async fn reply_in_batch(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        place: Place<'_>,
        timeout: Duration,
        sent: &SentOn,
    ) -> Result<Reply, NodeError> {
        let mut caller = GivenUp::new(sent);
        let (driver, since) = (connection.id.driver, Instant::now());
        let timeout = timeout.min(self.reply_timeout);
        let collection = timeout.min(LONGEST_COLLECTION);
        let mut replies = place.replies.clone();
        let mut outcome = within_limit(driver, collection, Pin::new(&mut replies)).await;
        if outcome.is_none() {
            place.send();
            outcome = within_limit(driver, timeout.saturating_sub(collection), Pin::new(&mut replies)).await;
        }
        if outcome.is_some() {
            // It may be redirected, and sent again.
            caller.ended();
        }
        match outcome {
            Some(Ok(replies)) => {
                replies[place.index].clone().ok_or_else(|| not_run_error("given up before it was sent"))
            }
            Some(Err(error)) => Err(error),
            None => {
                if timeout == self.reply_timeout {
                    self.late(connection, since);
                }
                Err(reply_timeout_error(timeout))
            }
        }
    }

    /// Sends a batch once it is collected, and returns the reply to each call. `like`: a call of the batch.
    pub(super) async fn send_batch(
        self: Arc<Self>,
        connection: Arc<Connection>,
        like: ScriptCall,
        collected: Collected,
    ) -> Replies {
        // Not later because a task has used up its budget: a call that must stay behind may follow.
        let Ok(members) = unconstrained(collected).await else { return Err(not_run_error("given up")) };
        let _under_way = connection.batches.under_way(&like);
        if connection.retired.load(SeqCst) {
            return Err(not_run_error("connection replaced"));
        }
        let mut sent = sendable(&members, &connection);
        if sent.is_empty() {
            return Ok(Arc::new(vec![None; members.len()]));
        }
        let outstanding = Outstanding::new(&self, &connection);
        let mut call = batch_of(&members, &sent);
        let sha = command("EVALSHA", &call.script.sha, &call, &connection.facts);
        let mut value = exchange(&connection, &sha, None, Pipelined::default()).await;
        if matches!(&value, Ok(Value::ServerError(error)) if error.code() == "NOSCRIPT") {
            // The clean-ups of calls that were given up meanwhile ran already.
            sent = sendable(&members, &connection);
            if !sent.is_empty() {
                call = batch_of(&members, &sent);
                let whole = command("EVAL", &call.script.source, &call, &connection.facts);
                value = exchange(&connection, &whole, None, Pipelined::default()).await;
            }
        }
        let value = outstanding.ended(value)?;
        let mut replies = vec![None; members.len()];
        if sent.is_empty() {
            return Ok(Arc::new(replies));
        }
        let answers = match reply_to_call(value, &call)? {
            Reply::List(answers) if sent.len() > 1 && answers.len() == sent.len() => answers,
            answer if sent.len() == 1 => vec![answer],
            _ => return Err(NodeError::no_answer()),
        };
        for (index, answer) in sent.into_iter().zip(answers) {
            replies[index] = Some(answer);
        }
        Ok(Arc::new(replies))
    }
}

/// Records the connection for the members that were not given up. Returns their indices.
fn sendable(members: &[Member], connection: &Connection) -> Vec<usize> {
    let wanted = |index: &usize| members[*index].sent.set(connection.id.clone()).is_ok();
    (0..members.len()).filter(wanted).collect()
}

/// The call for these members.
fn batch_of(members: &[Member], sent: &[usize]) -> ScriptCall {
    let firsts: Vec<&str> =
        sent.iter().filter_map(|index| members[*index].call.args.first()).map(String::as_str).collect();
    members[sent[0]].call.batch_of(&firsts)
}
