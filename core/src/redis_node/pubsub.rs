//! Release messages: one pub/sub connection for all channels of a node, owned by one task, so that a subscription and
//! the end of another cannot overtake each other.

use std::{collections::HashMap, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::Client;
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    CLOSED_BY_SERVER, Task,
    replies::{closed, failure, no_answer, no_connection, not_run, refusal_text, refused_connection, server_text},
};
use crate::{
    node::{BoxFuture, NodeError, NodeErrorKind, Subscription},
    runtime,
};

/// The pub/sub connection of a node and the task that owns it.
pub(super) struct Listener {
    pub(super) requests: mpsc::UnboundedSender<Request>,
    pub(super) _task: Task,
}

pub(super) enum Request {
    Join { channel: String, answer: Answer },
    Leave { channel: String },
}

type Answer = oneshot::Sender<Result<Subscription, NodeError>>;

/// A change of a channel that the server is asked for, and how it ended.
type Asked = BoxFuture<(String, bool, Result<(), NodeError>)>;

/// A channel on the server: it has at most one request under way, so that SUBSCRIBE and UNSUBSCRIBE of one channel
/// cannot overtake each other.
pub(super) struct Channel {
    messages: watch::Sender<u64>,
    /// Guards that exist, or will once the server acknowledged.
    users: usize,
    waiting: Vec<Answer>,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Joining,
    Joined,
    Leaving,
}

/// Subscriptions of one node. Ends with its connection; that closes every receiver.
pub(super) struct Actor {
    pub(super) client: Client,
    pub(super) connect_timeout: Duration,
    pub(super) reply_timeout: Duration,
    pub(super) generation: u64,
    pub(super) requests: mpsc::WeakUnboundedSender<Request>,
    pub(super) channels: HashMap<String, Channel>,
}

impl Actor {
    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Request>) {
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
pub(super) struct Guard {
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
