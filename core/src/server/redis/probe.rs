//! A connection of its own to one server, on which an examination sends commands. It shares nothing with the
//! connections of a node: it also leads to replicas and Sentinels, and a failure on it is no failure of the node.

use std::{sync::OnceLock, time::Duration};

use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, aio::MultiplexedConnection};
use tokio::time::{Instant, timeout};

use super::{
    errors::{broken_connection_error, connect_error, connect_timeout_error, permanent_error, reply_timeout_error},
    naming::named,
    replies::reply,
    setup::client,
};
use crate::{
    config::Config,
    protocol::script::Reply,
    server::{NamedConnection, NodeError},
    sync::Mutex,
    url::{Endpoint, Transport},
};

/// How many times `reply_timeout` a server may take for all replies.
const ALL_REPLIES: u32 = 5;

/// A connection to a server. It speaks RESP2, in which every reply is a number, a text or a list.
pub(crate) struct Probe {
    redis: MultiplexedConnection,
    /// The time limit of one reply.
    limit: Duration,
    /// How much longer the server may take for all replies.
    left: Mutex<Duration>,
    /// Why the server gives no more replies.
    silent: OnceLock<NodeError>,
}

impl Probe {
    /// Connects and logs in. Fails after `connect_timeout`. A server that asks for a login refuses the first command.
    ///
    /// A server without TLS waits for the end of what it takes for a command, and never answers. So if TLS fails, a
    /// connection without it and without a login shows the mistake, and may take the same time again.
    pub(crate) async fn connect(endpoint: &Endpoint, config: &Config) -> Result<Self, NodeError> {
        match Self::open(endpoint, config).await {
            Err(error) if !error.is_permanent() && Self::lacks_tls(endpoint, config).await => {
                Err(permanent_error("TLS: the port has no TLS, it seems: use redis://"))
            }
            opened => opened,
        }
    }

    /// Whether the endpoint has TLS, and its server answers without.
    async fn lacks_tls(endpoint: &Endpoint, config: &Config) -> bool {
        let Transport::Tls { host, port } = &endpoint.transport else { return false };
        let transport = Transport::Tcp { host: host.clone(), port: *port };
        let plain = Endpoint { transport, db: 0, username: None, password: None, resp2: true };
        let Ok(probe) = Self::open(&plain, config).await else { return false };
        // An error reply is an answer, too.
        probe.ask(&["PING"]).await.is_ok() || probe.silent.get().is_none()
    }

    async fn open(endpoint: &Endpoint, config: &Config) -> Result<Self, NodeError> {
        let client = client(endpoint, &config.tls, ProtocolVersion::RESP2);
        let client = client.map_err(|error| permanent_error(error.to_string()))?;
        let options = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let connecting = client.get_multiplexed_async_connection_with_config(&options);
        let Ok(connected) = timeout(config.connect_timeout, connecting).await else {
            return Err(connect_timeout_error(config.connect_timeout));
        };
        let redis = connected.map_err(|error| connect_error(&error))?;
        let limit = config.reply_timeout;
        Ok(Self { redis, limit, left: Mutex::new(limit * ALL_REPLIES), silent: OnceLock::new() })
    }

    /// Sends a command. Fails after `reply_timeout`, or once all replies took five times that; later commands then fail
    /// at once.
    pub(crate) async fn ask(&self, words: &[&str]) -> Result<Reply, NodeError> {
        if let Some(error) = self.silent.get() {
            return Err(error.clone());
        }
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        let (mut redis, sent, left) = (self.redis.clone(), Instant::now(), *self.left.lock());
        let limit = self.limit.min(left);
        let answer = timeout(limit, redis.send_packed_command(&command)).await;
        *self.left.lock() = left.saturating_sub(sent.elapsed());
        let error = match answer {
            Ok(Ok(value)) => return reply(value),
            Ok(Err(error)) => broken_connection_error(&error),
            Err(_) => reply_timeout_error(limit),
        };
        Err(self.silent.get_or_init(|| error).clone())
    }

    /// The clients of this library that name their connections to the server, each once.
    pub(crate) async fn clients(&self) -> Result<Vec<NamedConnection>, NodeError> {
        match self.ask(&["CLIENT", "LIST", "TYPE", "normal"]).await? {
            Reply::Text(list) => Ok(named(&list)),
            Reply::Int(_) | Reply::List(_) => Err(NodeError::no_answer()),
        }
    }
}
