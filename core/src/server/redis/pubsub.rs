//! Release messages: one pub/sub connection for all channels of a node. One task owns it, so that a subscription and
//! the end of another cannot overtake each other.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Duration};

use futures_util::{
    StreamExt,
    future::{FusedFuture, FutureExt},
    stream::{self, BoxStream, FuturesUnordered},
};
use redis::{
    AsyncConnectionConfig, Client, PushInfo, PushKind, Value,
    aio::{MultiplexedConnection, PubSubSink, SendError},
};
use tokio::sync::{mpsc, oneshot, watch};

use super::{
    CLOSED_BY_SERVER, Inner, Task,
    errors::{
        broken_connection_error, closed_error, connect_error, connect_timeout_error, error_from_reply,
        error_from_reply_text, lacks_hello, not_run_error, reply_timeout_error, server_text,
    },
    health::{Health, SendDecision},
    naming::Naming,
    replies::into_text,
    setup::Clients,
    target::Target,
};
use crate::{
    process::{fork::Tied, runtime},
    server::{BoxFuture, NodeError, NodeErrorKind, Subscription},
};

/// The pub/sub connection of a node and the task that owns it.
pub(super) struct PubSubConnection {
    changes: mpsc::UnboundedSender<Change>,
    _task: Task,
}

/// A message to the task: join or leave a channel.
enum Change {
    Join { channel: String, admission: Admission },
    Leave { channel: String },
}

/// Passes the subscription to its waiter, once the server acknowledged it.
type Admission = oneshot::Sender<Result<Subscription, NodeError>>;

/// A request to the server: resolves to the channel, whether it was to join, and the result.
type PendingChange = BoxFuture<(String, bool, Result<(), NodeError>)>;

/// A channel on the server. At most one change of it is under way, so that SUBSCRIBE and UNSUBSCRIBE of one channel
/// cannot overtake each other.
struct Channel {
    messages: watch::Sender<u64>,
    /// The number of guards that exist, or will exist once the server acknowledges.
    users: usize,
    waiting: Vec<Admission>,
    phase: Phase,
}

/// The state of a channel on the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Joining,
    Joined,
    Leaving,
}

/// The sending half of a pub/sub connection.
#[derive(Clone)]
enum Sink {
    /// With RESP2 the connection takes no other commands.
    Resp2(PubSubSink),
    /// `sharded`: whether to subscribe to the slot's shard channel, too. All servers with shard channels speak RESP3.
    Resp3 { connection: MultiplexedConnection, sharded: bool },
}

/// An event from a pub/sub connection.
enum PubSubEvent {
    Message(String),
    /// The server ended a subscription, because the slot moved to another server.
    Ended(String),
}

impl Sink {
    async fn open(clients: &Clients, sharded: bool) -> Result<(Self, BoxStream<'static, PubSubEvent>), NodeError> {
        if let Some(client) = &clients.resp3 {
            match Self::open_resp3(client, sharded).await {
                Err(error) if lacks_hello(&error) => {}
                opened => return opened.map_err(|error| connect_error(&error)),
            }
        }
        let connection = clients.resp2.get_async_pubsub().await.map_err(|error| connect_error(&error))?;
        let (sink, messages) = connection.split();
        let events = messages.map(|message| PubSubEvent::Message(message.get_channel_name().to_owned()));
        Ok((Self::Resp2(sink), events.boxed()))
    }

    async fn open_resp3(client: &Client, sharded: bool) -> redis::RedisResult<(Self, BoxStream<'static, PubSubEvent>)> {
        let (push_sender, mut push_receiver) = mpsc::unbounded_channel();
        let on_push = move |push: PushInfo| push_sender.send(push).map_err(|_| SendError);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(on_push);
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let pushes = stream::poll_fn(move |context| push_receiver.poll_recv(context));
        let events = pushes
            .take_while(|push| std::future::ready(push.kind != PushKind::Disconnection))
            .filter_map(|push| std::future::ready(pub_sub_event(push)));
        Ok((Self::Resp3 { connection, sharded }, events.boxed()))
    }

    /// Names the connection, if it takes the command.
    async fn apply(self, naming: &Naming) {
        if let Self::Resp3 { connection, .. } = self {
            naming.apply(connection).await;
        }
    }

    async fn send(self, channel: &str, join: bool) -> Result<(), NodeError> {
        let (mut connection, sharded) = match self {
            Self::Resp2(mut sink) => {
                let sent = if join { sink.subscribe(channel).await } else { sink.unsubscribe(channel).await };
                return sent.map_err(|error| {
                    let text = server_text(&error);
                    text.map_or_else(|| broken_connection_error(&error), |text| error_from_reply_text(&text))
                });
            }
            Self::Resp3 { connection, sharded } => (connection, sharded),
        };
        let commands = if join { ["SSUBSCRIBE", "SUBSCRIBE"] } else { ["SUNSUBSCRIBE", "UNSUBSCRIBE"] };
        for name in commands.into_iter().skip(usize::from(!sharded)) {
            let mut command = redis::cmd(name);
            command.arg(channel);
            match connection.send_packed_command(&command).await.map_err(|error| broken_connection_error(&error))? {
                // Servers before 7.0 have no shard channels.
                Value::ServerError(error) if error_from_reply(&error).detail.starts_with("unknown command") => {}
                Value::ServerError(error) => return Err(error_from_reply(&error)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Converts a push message to an event, if it is one.
fn pub_sub_event(push: PushInfo) -> Option<PubSubEvent> {
    let name = match push.data.into_iter().next()? {
        Value::BulkString(name) => into_text(name),
        Value::SimpleString(name) => name,
        _ => return None,
    };
    match push.kind {
        PushKind::Message | PushKind::SMessage => Some(PubSubEvent::Message(name)),
        PushKind::SUnsubscribe => Some(PubSubEvent::Ended(name)),
        _ => None,
    }
}

impl Inner {
    /// Subscribes to a channel. Warns once if the error is permanent.
    pub(super) async fn subscribe(self: &Arc<Self>, channel: String) -> Result<Subscription, NodeError> {
        // Tries twice, since the subscriber may end between its lookup and the message to it.
        for _ in 0..2 {
            let (admission, admitted) = oneshot::channel();
            let join = Change::Join { channel: channel.clone(), admission };
            if self.subscriber()?.send(join).is_ok() {
                let subscribed = admitted.await.unwrap_or_else(|_| Err(not_run_error(CLOSED_BY_SERVER)));
                if let Err(error) = &subscribed
                    && error.is_permanent()
                {
                    self.warn("subscribe".to_owned(), || {
                        format!("cannot subscribe to release messages, polls instead: {error}")
                    });
                }
                return subscribed;
            }
        }
        Err(not_run_error(CLOSED_BY_SERVER))
    }

    fn subscriber(self: &Arc<Self>) -> Result<mpsc::UnboundedSender<Change>, NodeError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed_error());
        }
        if matches!(state.health, Health::Unresponsive { .. } | Health::Failing { .. })
            && let SendDecision::Fail(error) = self.decide_send(&mut state)
        {
            return Err(error);
        }
        if let Some(subscriber) = &state.subscriber
            && !subscriber.changes.is_closed()
        {
            return Ok(subscriber.changes.clone());
        }
        let (changes, inbox) = mpsc::unbounded_channel();
        let actor = Actor {
            target: Arc::clone(&self.target),
            naming: Arc::clone(&self.naming),
            sharded: self.in_cluster,
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
            changes: changes.downgrade(),
            channels: HashMap::new(),
        };
        let task = Task(runtime::spawn(actor.run(inbox)));
        state.subscriber = Some(PubSubConnection { changes: changes.clone(), _task: task });
        Ok(changes)
    }
}

/// The task that owns the subscriptions of a node. It ends with its connection, which closes every receiver.
struct Actor {
    target: Arc<Target>,
    naming: Arc<Naming>,
    /// Whether the server belongs to a cluster, where each channel also has a shard channel in its slot.
    sharded: bool,
    connect_timeout: Duration,
    reply_timeout: Duration,
    changes: mpsc::WeakUnboundedSender<Change>,
    channels: HashMap<String, Channel>,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Change>) {
        let error = self.listen(&mut inbox).await;
        inbox.close();
        let waiting = self.channels.drain().flat_map(|(_, channel)| channel.waiting);
        for admission in waiting {
            let _ = admission.send(Err(error.clone()));
        }
        while let Some(change) = inbox.recv().await {
            if let Change::Join { admission, .. } = change {
                let _ = admission.send(Err(error.clone()));
            }
        }
    }

    /// Serves until the connection ends; returns the reason.
    async fn listen(&mut self, inbox: &mut mpsc::UnboundedReceiver<Change>) -> NodeError {
        let connecting = async { Sink::open(&*self.target.clients().await?, self.sharded).await };
        let (sink, mut messages) = match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return error,
            Err(_) => return connect_timeout_error(self.connect_timeout),
        };
        let mut pending = FuturesUnordered::<PendingChange>::new();
        let naming = Arc::clone(&self.naming);
        let mut named = pin!(sink.clone().apply(&naming).fuse());
        loop {
            tokio::select! {
                () = &mut named, if !named.is_terminated() => {}
                change = inbox.recv() => {
                    let next = match change {
                        Some(Change::Join { channel, admission }) => self.join(channel, admission),
                        Some(Change::Leave { channel }) => self.leave(channel),
                        None => return closed_error(),
                    };
                    pending.extend(next.map(|(channel, join)| self.start_change(&sink, channel, join)));
                }
                Some((channel, join, result)) = pending.next() => {
                    match result {
                        // No reply: later requests on this connection would get none either.
                        Err(error) if error.kind == NodeErrorKind::Unknown => return error,
                        result => {
                            let next = self.done(channel, join, result);
                            pending.extend(next.map(|(channel, join)| self.start_change(&sink, channel, join)));
                        }
                    }
                }
                message = messages.next() => {
                    match message {
                        None => return not_run_error(CLOSED_BY_SERVER),
                        Some(PubSubEvent::Message(name)) => {
                            if let Some(channel) = self.channels.get(&name) {
                                channel.messages.send_modify(|count| *count += 1);
                            }
                        }
                        // The server ended it unrequested. All waiters subscribe again, at the new owners of the slots.
                        Some(PubSubEvent::Ended(name)) => {
                            if self.channels.get(&name).is_some_and(|channel| channel.phase != Phase::Leaving) {
                                return not_run_error("the slot of a channel went to another server");
                            }
                        }
                    }
                }
            }
        }
    }

    fn start_change(&self, sink: &Sink, channel: String, join: bool) -> PendingChange {
        let (sink, timeout) = (sink.clone(), self.reply_timeout);
        Box::pin(async move {
            let reply = tokio::time::timeout(timeout, sink.send(&channel, join)).await;
            let result = reply.unwrap_or_else(|_| Err(reply_timeout_error(timeout)));
            (channel, join, result)
        })
    }

    /// Adds a user. Like `leave` and `done`, returns the next request to the server: a channel, and whether to join it.
    fn join(&mut self, name: String, admission: Admission) -> Option<(String, bool)> {
        if let Some(channel) = self.channels.get_mut(&name) {
            channel.users += 1;
            channel.waiting.push(admission);
            if channel.phase == Phase::Joined {
                self.admit(&name);
            }
            return None;
        }
        let messages = watch::Sender::new(0);
        let channel = Channel { messages, users: 1, waiting: vec![admission], phase: Phase::Joining };
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
                for admission in channel.waiting {
                    let _ = admission.send(Err(error.clone()));
                }
                None
            }
            // Left; a user may have joined meanwhile.
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

    /// Passes the subscription to all that waited for the server's acknowledgement. A waiter that gave up drops its
    /// guard, and so leaves.
    fn admit(&mut self, name: &str) {
        let (Some(channel), Some(changes)) = (self.channels.get_mut(name), self.changes.upgrade()) else {
            return;
        };
        for admission in channel.waiting.drain(..) {
            let guard = Guard { changes: Tied::new(changes.clone()), channel: name.to_owned() };
            let messages = channel.messages.subscribe();
            let _ = admission.send(Ok(Subscription { messages, guard: Box::new(guard) }));
        }
    }
}

/// One user of a channel; its drop leaves the channel. In a forked child it does nothing: the task is the parent's.
struct Guard {
    changes: Tied<mpsc::UnboundedSender<Change>>,
    channel: String,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(changes) = self.changes.get() {
            // Fails if the connection is gone, and the subscription with it.
            let _ = changes.send(Change::Leave { channel: std::mem::take(&mut self.channel) });
        }
    }
}
