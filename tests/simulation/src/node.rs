//! A client's connection to a simulated server. It promises what `RedisNode` promises of a real server: it keeps one
//! connection, makes another when that breaks, orders a request that undoes another one behind it, and fails at once
//! while the server does not answer.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock::{
    process::{driver::Driver, runtime},
    protocol::script::{Reply, ScriptCall},
    server::{BoxFuture, ConnectionId, Node, NodeError, NodeErrorKind, NodeInfo, SentOn, Subscription},
};
use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::world::{self, Answer, Ask, Notice};
use redlock_servers::locked;

/// The server `server` as seen by the client on `host`.
pub struct SimNode {
    shared: Arc<Shared>,
}

struct Shared {
    host: usize,
    server: usize,
    name: String,
    connect_timeout: Duration,
    state: Mutex<State>,
    news: Notify,
    notices: mpsc::UnboundedSender<Notice>,
}

struct State {
    health: Health,
    /// The server's run, as the connection reported it.
    run: Option<String>,
    changes: Vec<watch::Sender<u64>>,
    /// Receives notices, until a background task takes it.
    inbox: Option<mpsc::UnboundedReceiver<Notice>>,
    /// All background tasks.
    tasks: JoinSet<()>,
    reviving: bool,
    closed: bool,
}

#[derive(Clone, Debug)]
enum Health {
    Idle,
    Connecting,
    Up(u64),
    Silent(u64),
    Failing(NodeError),
}

fn not_run(detail: &str) -> NodeError {
    NodeError::new(NodeErrorKind::NotRun, detail)
}

fn unknown(detail: &str) -> NodeError {
    NodeError::new(NodeErrorKind::Unknown, detail)
}

impl SimNode {
    /// A node that connects on first use.
    pub fn new(host: usize, server: usize, connect_timeout: Duration) -> Arc<Self> {
        let (notices, inbox) = mpsc::unbounded_channel();
        let state = State {
            health: Health::Idle,
            run: None,
            changes: Vec::new(),
            inbox: Some(inbox),
            tasks: JoinSet::new(),
            reviving: false,
            closed: false,
        };
        let name = format!("sim://{server}");
        let state = Mutex::new(state);
        Arc::new(Self {
            shared: Arc::new(Shared { host, server, name, connect_timeout, state, news: Notify::new(), notices }),
        })
    }
}

impl Drop for SimNode {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn close(&self) {
        let mut state = locked(&self.state);
        state.closed = true;
        if let Health::Up(conn) | Health::Silent(conn) = state.health {
            world::with(|world| world.close(conn));
        }
        state.health = Health::Idle;
        state.tasks.abort_all();
        state.inbox = None;
        state.changes.clear();
        drop(state);
        self.news.notify_waiters();
    }

    fn spawn(state: &mut State, task: impl Future<Output = ()> + Send + 'static) {
        while state.tasks.try_join_next().is_some() {}
        if !state.closed {
            state.tasks.spawn_on(task, &runtime::background());
        }
    }

    fn changed(state: &mut State) {
        state.changes.retain(|changes| !changes.is_closed());
        for changes in &state.changes {
            changes.send_modify(|count| *count += 1);
        }
    }

    /// Starts a task that connects, unless one runs.
    fn revive(self: &Arc<Self>, state: &mut State, pause: Duration) {
        if std::mem::replace(&mut state.reviving, true) {
            return;
        }
        if let Some(mut inbox) = state.inbox.take() {
            let shared = Arc::downgrade(self);
            Self::spawn(state, async move {
                while let Some(notice) = inbox.recv().await {
                    let Some(shared) = shared.upgrade() else { return };
                    shared.notice(notice);
                }
            });
        }
        let shared = self.clone();
        Self::spawn(state, async move {
            let mut next = Duration::from_millis(50);
            sleep(pause).await;
            while !shared.connect().await {
                sleep(next.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                next = (next * 2).min(Duration::from_secs(1));
            }
        });
    }

    /// Makes one attempt to connect. Returns true if no further attempt is needed.
    async fn connect(self: &Arc<Self>) -> bool {
        if matches!(locked(&self.state).health, Health::Up(_)) {
            locked(&self.state).reviving = false;
            return true;
        }
        let Some((conn, reply)) = world::with(|world| {
            let conn = world.open(self.host, self.server, self.notices.clone());
            (conn, world.ask(conn, Ask::Hello))
        }) else {
            return true;
        };
        let closing = Closing(conn);
        let error = match timeout(self.connect_timeout, reply).await {
            // The connection may be gone before a process that was stopped receives the reply.
            Ok(Ok(Answer::Facts { run })) if world::with(|world| world.is_open(conn)) == Some(true) => {
                let mut state = locked(&self.state);
                if state.closed {
                    return true;
                }
                std::mem::forget(closing);
                state.reviving = false;
                // The new connection replaces the old one, whose requests are still executed.
                if let Health::Silent(old) | Health::Up(old) = state.health {
                    world::with(|world| world.close(old));
                }
                state.health = Health::Up(conn);
                state.run = Some(run);
                Self::changed(&mut state);
                drop(state);
                self.news.notify_waiters();
                return true;
            }
            Ok(_) => not_run("connection refused"),
            Err(_) => not_run("no answer to the connection"),
        };
        drop(closing);
        let mut state = locked(&self.state);
        if matches!(state.health, Health::Connecting | Health::Failing(_)) {
            state.health = Health::Failing(error);
        }
        drop(state);
        self.news.notify_waiters();
        false
    }

    fn notice(self: &Arc<Self>, notice: Notice) {
        let mut state = locked(&self.state);
        match (notice, &state.health) {
            (Notice::Heard(conn), Health::Silent(silent)) if conn == *silent => {
                state.health = Health::Up(conn);
                Self::changed(&mut state);
            }
            (Notice::Broken(conn), Health::Up(current) | Health::Silent(current)) if conn == *current => {
                state.health = Health::Connecting;
                Self::changed(&mut state);
                self.revive(&mut state, Duration::ZERO);
            }
            _ => return,
        }
        drop(state);
        self.news.notify_waiters();
    }

    /// A request has timed out: the node is down until it answers.
    fn overdue(self: &Arc<Self>, conn: u64) {
        let mut state = locked(&self.state);
        if matches!(state.health, Health::Up(current) if current == conn) {
            state.health = Health::Silent(conn);
            self.revive(&mut state, Duration::from_millis(50));
        }
    }

    /// Returns the connection for a request. With `settled`, for a request that must be ordered behind others, a
    /// connection that does not answer will do.
    async fn connection(self: &Arc<Self>, limit: Duration, settled: bool) -> Result<u64, NodeError> {
        let deadline = Instant::now() + limit;
        loop {
            let mut news = std::pin::pin!(self.news.notified());
            // No notification is missed from here on.
            news.as_mut().enable();
            {
                let mut state = locked(&self.state);
                if state.closed {
                    return Err(not_run("closed"));
                }
                match &state.health {
                    Health::Up(conn) => return Ok(*conn),
                    Health::Silent(conn) if settled => return Ok(*conn),
                    Health::Silent(_) => return Err(not_run("no answer for a while")),
                    Health::Failing(error) if !settled => return Err(error.clone()),
                    Health::Idle => {
                        state.health = Health::Connecting;
                        self.revive(&mut state, Duration::ZERO);
                    }
                    Health::Connecting | Health::Failing(_) => {}
                }
            }
            if timeout_at(deadline, news).await.is_err() {
                return Err(not_run("no answer to the connection"));
            }
        }
    }

    async fn request(self: &Arc<Self>, conn: u64, ask: Ask, limit: Duration) -> Result<Answer, NodeError> {
        let Some(reply) = world::with(|world| world.ask(conn, ask)) else { return Err(not_run("the end")) };
        match timeout(limit, reply).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(unknown("connection closed")),
            Err(_) => {
                self.overdue(conn);
                Err(unknown("no answer"))
            }
        }
    }

    async fn script(self: &Arc<Self>, conn: u64, call: ScriptCall, limit: Duration) -> Result<Reply, NodeError> {
        match self.request(conn, Ask::Script(call), limit).await? {
            Answer::Script(result, _) => result,
            _ => Err(unknown("another answer")),
        }
    }

    async fn script_after(
        self: &Arc<Self>,
        connection: ConnectionId,
        call: ScriptCall,
        limit: Duration,
    ) -> Result<Reply, NodeError> {
        let carrier = match locked(&self.state).health {
            Health::Up(conn) | Health::Silent(conn) if conn == connection.number => Some(conn),
            _ => None,
        };
        if let Some(conn) = carrier {
            return self.script(conn, call, limit).await;
        }
        let conn = self.connection(limit, true).await?;
        let same_run = locked(&self.state).run.as_deref() == connection.run.as_deref();
        if !same_run {
            return self.script(conn, call, limit).await;
        }
        match self.request(conn, Ask::ScriptAfter(connection.number, call.clone()), limit).await? {
            Answer::Script(result, ordered) => {
                // As the real node does: a reply of 0 says that the call found nothing yet.
                if !ordered && result == Ok(Reply::Int(0)) {
                    let shared = self.clone();
                    Self::spawn(&mut locked(&self.state), async move {
                        for pause in [Duration::from_millis(50), Duration::from_secs(1)] {
                            sleep(pause).await;
                            // A key that is left after that expires by its ttl.
                            let again = shared.script(conn, call.clone(), Duration::from_secs(2)).await;
                            if again.is_ok_and(|reply| reply != Reply::Int(0)) {
                                return;
                            }
                        }
                    });
                }
                result
            }
            _ => Err(unknown("another answer")),
        }
    }
}

impl Node for SimNode {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn eval(
        &self,
        driver: Driver,
        call: ScriptCall,
        limit: Duration,
        sent: SentOn,
    ) -> BoxFuture<Result<Reply, NodeError>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let conn = shared.connection(limit, false).await?;
            let run = locked(&shared.state).run.as_deref().map(Arc::from);
            sent.set(ConnectionId { driver, number: conn, peer: None, run, server: None })?;
            shared.script(conn, call, limit).await
        })
    }

    fn eval_after(
        &self,
        connection: ConnectionId,
        call: ScriptCall,
        limit: Duration,
    ) -> BoxFuture<Result<Reply, NodeError>> {
        let shared = self.shared.clone();
        Box::pin(async move { shared.script_after(connection, call, limit).await })
    }

    fn subscribe(&self, channel: String) -> BoxFuture<Result<Subscription, NodeError>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let limit = shared.connect_timeout;
            let Some((guard, messages, reply)) = world::with(|world| {
                let conn = world.open(shared.host, shared.server, mpsc::unbounded_channel().0);
                let (sub, messages) = world.subscriber(shared.host);
                let reply = world.ask(conn, Ask::Subscribe(channel, sub));
                (Listening { server: shared.server, sub, conn }, messages, reply)
            }) else {
                return Err(not_run("the end"));
            };
            match timeout(limit, reply).await {
                Ok(Ok(_)) => Ok(Subscription { messages, guard: Box::new(guard) }),
                _ => Err(not_run("no subscription")),
            }
        })
    }

    fn ping(&self, limit: Duration) -> BoxFuture<Result<NodeInfo, NodeError>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let conn = shared.connection(limit, false).await?;
            match shared.request(conn, Ask::Ping, limit).await? {
                Answer::Facts { run } => Ok(NodeInfo::new(Some(run), None)),
                _ => Err(unknown("another answer")),
            }
        })
    }

    fn changes(&self) -> watch::Receiver<u64> {
        // One channel for each receiver: the receivers of one channel are woken in no fixed order.
        let (sender, receiver) = watch::channel(0);
        let mut state = locked(&self.shared.state);
        if !state.closed {
            state.changes.push(sender);
        }
        receiver
    }

    fn close(&self) {
        self.shared.close();
    }
}

/// A client's subscription, which ends when dropped.
struct Listening {
    server: usize,
    sub: u64,
    conn: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        world::with(|world| {
            world.leave(self.server, self.sub);
            world.close(self.conn);
        });
    }
}

/// Closes a connection when dropped, unless the attempt to connect succeeded.
struct Closing(u64);

impl Drop for Closing {
    fn drop(&mut self) {
        world::with(|world| world.close(self.0));
    }
}
