//! Finds the master of a service. Each Sentinel names one by itself, and the latest election counts. The Sentinels are
//! queried at each connect, so that a broken connection is always followed by one to the current master.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, RedisResult, Value, aio::PubSub};
use tokio::sync::mpsc;

use super::{
    errors::{connect_error, error_from_reply, joint_error, not_run_error, permanent_error},
    replies::into_text,
    setup::{Clients, client},
};
use crate::{
    config::{Config, Tls},
    error::LockError,
    process::runtime,
    server::NodeError,
    sync::Mutex,
    url::{Address, Endpoint, Transport},
};

/// The first and the longest pause between attempts to subscribe to a Sentinel.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The Sentinels of a service.
pub(super) struct Sentinels {
    group: Vec<Arc<Sentinel>>,
    service: Arc<str>,
    /// The settings of connections to the master; its address is filled in.
    master: Endpoint,
    tls: bool,
    material: Tls,
    connect_timeout: Duration,
    known: Mutex<Option<(Address, Arc<Clients>)>>,
}

/// One Sentinel, and the client that connects to it.
struct Sentinel {
    address: Address,
    client: Client,
}

/// A master, as one Sentinel reports it.
struct Master {
    /// The epoch of the election that chose it.
    epoch: u64,
    address: Address,
}

impl Sentinels {
    /// Creates the group if the endpoint is a service of Sentinels, otherwise returns `None`.
    pub(super) fn new(endpoint: &Endpoint, config: &Config) -> Result<Option<Self>, LockError> {
        let Transport::Sentinel { sentinels, service, tls, username, password } = &endpoint.transport else {
            return Ok(None);
        };
        let connected = sentinels.iter().map(|address| {
            let login = Endpoint {
                transport: address.clone().transport(*tls),
                db: 0,
                username: username.clone(),
                password: password.clone(),
                resp2: true,
            };
            let client = client(&login, &config.tls, ProtocolVersion::RESP2)?;
            Ok(Arc::new(Sentinel { address: address.clone(), client }))
        });
        Ok(Some(Self {
            group: connected.collect::<Result<_, LockError>>()?,
            service: service.as_str().into(),
            master: endpoint.clone(),
            tls: *tls,
            material: config.tls.clone(),
            connect_timeout: config.connect_timeout,
            known: Mutex::new(None),
        }))
    }

    /// Whether the master is reached with TLS.
    pub(super) fn tls(&self) -> bool {
        self.tls
    }

    /// Returns a receiver of the masters that the Sentinels name: when they elect one, and whenever a subscription to a
    /// Sentinel begins. The subscriptions last as long as the receiver.
    pub(super) fn elections(&self) -> mpsc::UnboundedReceiver<Address> {
        let (sender, receiver) = mpsc::unbounded_channel();
        for one in &self.group {
            let watching =
                watch_elections(Arc::clone(one), Arc::clone(&self.service), self.connect_timeout, sender.clone());
            runtime::spawn(watching);
        }
        receiver
    }

    /// Queries the Sentinels and returns the clients of the current master.
    pub(super) async fn master(&self) -> Result<Arc<Clients>, NodeError> {
        // Leaves half of the time for the connection to the master.
        let limit = self.connect_timeout / 2;
        // In the background, which alone can wait for a socket, whatever drives the caller.
        let query = query_all(self.group.clone(), Arc::clone(&self.service), limit);
        let masters = runtime::spawn_in_background(query).await.unwrap_or_else(|| Err(not_run_error("closed")))?;
        if let Some((address, clients)) = &*self.known.lock()
            && *address == masters.address
        {
            return Ok(Arc::clone(clients));
        }
        let endpoint = Endpoint { transport: masters.address.clone().transport(self.tls), ..self.master.clone() };
        let clients = Clients::new(&endpoint, &self.material).map_err(|error| permanent_error(error.to_string()))?;
        let clients = Arc::new(Clients { master: Some(masters.address.clone()), ..clients });
        *self.known.lock() = Some((masters.address, Arc::clone(&clients)));
        Ok(clients)
    }
}

/// Reports each master that a Sentinel names, until the receiver is dropped. Without this, a client that still
/// reaches the old master would not notice. `limit` is the time limit of one attempt to subscribe.
async fn watch_elections(
    sentinel: Arc<Sentinel>,
    service: Arc<str>,
    limit: Duration,
    elected: mpsc::UnboundedSender<Address>,
) {
    tokio::select! {
        // Drops the other branch in any state, such as while it connects to a Sentinel that never answers.
        () = elected.closed() => {}
        () = follow(&sentinel, &service, limit, &elected) => {}
    }
}

/// Subscribes and reports masters. Subscribes again whenever the connection ends or cannot be made.
async fn follow(sentinel: &Sentinel, service: &str, limit: Duration, elected: &mpsc::UnboundedSender<Address>) {
    let mut pause = FIRST_PAUSE;
    loop {
        if let Ok(Ok(mut subscription)) = tokio::time::timeout(limit, subscribe(&sentinel.client)).await {
            pause = FIRST_PAUSE;
            // An election before the subscription was announced to nobody here.
            if let Ok(Ok(master)) = tokio::time::timeout(limit, query_one(sentinel, service)).await {
                let _ = elected.send(master.address);
            }
            let mut messages = subscription.on_message();
            while let Some(message) = messages.next().await {
                let text = message.get_payload::<String>().unwrap_or_default();
                // The service, the old host and port, the new host and port.
                if let [name, _, _, host, port] = text.split(' ').collect::<Vec<_>>()[..]
                    && name == service
                    && let Ok(port) = port.parse()
                {
                    let _ = elected.send(Address { host: host.to_owned(), port });
                }
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn subscribe(client: &Client) -> RedisResult<PubSub> {
    let mut subscription = client.get_async_pubsub().await?;
    subscription.subscribe("+switch-master").await?;
    Ok(subscription)
}

/// Queries all Sentinels and waits for a majority: a dead one must not cost its time-out at every failover.
async fn query_all(sentinels: Vec<Arc<Sentinel>>, service: Arc<str>, limit: Duration) -> Result<Master, NodeError> {
    let majority = sentinels.len() / 2 + 1;
    let mut answers: FuturesUnordered<_> = sentinels
        .iter()
        .map(|one| {
            let query = tokio::time::timeout(limit, query_one(one, &service));
            async move {
                let answer =
                    query.await.unwrap_or_else(|_| Err(not_run_error(format!("no answer within {limit:.1?}"))));
                answer.map_err(|error| (one.address.to_string(), error))
            }
        })
        .collect();
    let (mut masters, mut failed) = (Vec::<Master>::new(), Vec::new());
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(one) => masters.push(one),
            Err(one) => failed.push(one),
        }
        if masters.len() >= majority {
            break;
        }
    }
    if let Some(latest) = masters.into_iter().max_by_key(|one| one.epoch) {
        return Ok(latest);
    }
    let each: Vec<_> = failed.iter().map(|(address, error)| format!("{address}: {error}")).collect();
    let detail = format!("no Sentinel names a master: {}", each.join(", "));
    Err(joint_error(failed.iter().map(|(_, error)| error), detail))
}

/// Queries one Sentinel for the master of the service.
async fn query_one(sentinel: &Sentinel, service: &str) -> Result<Master, NodeError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connection = sentinel.client.get_multiplexed_async_connection_with_config(&config).await;
    let mut connection = connection.map_err(|error| connect_error(&error))?;
    // The Sentinel that leads a failover goes on naming the old master in the first reply, with the new epoch. In the
    // second one it names the new master from that epoch on. A Sentinel runs both commands without a pause between them.
    let mut commands = redis::pipe();
    commands.cmd("SENTINEL").arg("MASTER").arg(service);
    commands.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service);
    let replies = connection.send_packed_commands(&commands, 0, 2).await.map_err(|error| connect_error(&error))?;
    let mut replies = replies.into_iter();
    let (value, address) = (replies.next().unwrap_or(Value::Nil), replies.next().and_then(read_address));
    match value {
        Value::ServerError(error) => {
            let error = error_from_reply(&error);
            let unknown = error.detail.contains("No such master");
            Err(if unknown { permanent_error(format!("knows no master {service:?}")) } else { error })
        }
        Value::Array(parts) => {
            let mut texts = parts.into_iter().map(|part| match part {
                Value::BulkString(bytes) => into_text(bytes),
                Value::SimpleString(text) => text,
                _ => String::new(),
            });
            let (mut host, mut port, mut epoch) = (None, None, 0);
            while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
                match name.as_str() {
                    "ip" => host = Some(value).filter(|host| !host.is_empty()),
                    "port" => port = value.parse().ok(),
                    "config-epoch" => epoch = value.parse().unwrap_or(0),
                    _ => {}
                }
            }
            let (Some(host), Some(port)) = (host, port) else { return Err(permanent_error("is no Sentinel")) };
            Ok(Master { epoch, address: address.unwrap_or(Address { host, port }) })
        }
        _ => Err(permanent_error("is no Sentinel")),
    }
}

/// Reads the reply to `GET-MASTER-ADDR-BY-NAME`; `None` if the user lacks that right.
fn read_address(reply: Value) -> Option<Address> {
    let Value::Array(parts) = reply else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = <[Value; 2]>::try_from(parts).ok()? else { return None };
    Some(Address { host: into_text(host), port: into_text(port).parse().ok()? })
}
