//! One operation on all nodes: sends a request to every node at once, counts the replies, and decides as soon as they
//! allow it. A single server is a quorum of one, and takes the same path.

mod background;
mod ballot;
mod clean_up;
mod deliveries;
mod fan_out;
mod markers;
mod place;
mod right;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

pub(crate) use self::{
    background::PendingWork,
    ballot::{BELIEVED_ALONE, Ballot, Verdict},
    clean_up::{CLEANUP_LIMIT, clean_up, insist, retry},
    deliveries::Deliveries,
    fan_out::{Answer, Count, FanOut, MINORITY_GRACE, NodeRequest},
    place::{Intent, PLACE_TTL, Place},
    right::{Grant, Right, Spread},
};
use crate::{
    clock::{self, Deadline},
    config::Settings,
    error::{LockError, NodeCause},
    process::driver::{self, Caller, Driver, Polled},
    protocol::{
        calls::Protocol,
        names::Names,
        script::{Reply, ScriptCall},
        sharding::slot,
    },
    server::{BoxFuture, ConnectionId, Node, NodeError, NodeErrorKind, SentOn},
    sync::Mutex,
};

/// The nodes of a client and what it knows of them.
pub(crate) struct Quorum {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) protocol: Protocol,
    /// The nodes by name: all clients that use the same names have the same order.
    ordered: Vec<usize>,
    /// For each node, its time minus ours in µs; `i64::MIN` while unknown.
    offsets: Vec<AtomicI64>,
    /// The first time at which nodes lacked a marker while others were unreachable; `None` once markers were written.
    unmarked: Mutex<Option<Instant>>,
    /// The number of clusters whose slots are just getting the markers of a new deployment.
    provisioning: watch::Sender<usize>,
    /// For each node the run id of its server, `None` while unknown; and whether the search for duplicates has started.
    runs: Mutex<(Vec<Option<String>>, bool)>,
    /// Two nodes that are the same server.
    duplicates: OnceLock<(usize, usize)>,
    /// Grants on their way to waiters of this client.
    pub(crate) deliveries: Arc<Deliveries>,
    /// Whether the client is closed, and background work cancelled.
    closed: watch::Sender<bool>,
    /// The number of pending tasks: those that would leave something behind if the process ended now.
    pending: watch::Sender<usize>,
}

/// Whether a tenure is on one node, as far as known.
#[derive(Clone, Debug)]
pub(crate) enum Presence {
    /// Not there.
    Absent,
    /// The request that would write it there was not sent yet, and may never be.
    NotSent,
    /// A request was sent on this connection and not answered: the tenure may be there, or arrive later.
    Unknown(ConnectionId),
    /// There, at least until the deadline.
    Held(Deadline),
}

impl Presence {
    /// The presence after a request without a conclusive reply.
    pub(crate) fn unanswered(sent: &SentOn) -> Self {
        sent.get().map_or(Self::NotSent, Self::Unknown)
    }

    /// Gives up a request without a reply if it was not sent yet, and returns the presence then.
    pub(crate) fn given_up(sent: &SentOn) -> Self {
        sent.close().map_or(Self::Absent, Self::Unknown)
    }
}

/// Why a node does not count.
pub(crate) struct Why {
    cause: String,
    forbidden: bool,
}

impl From<NodeError> for Why {
    fn from(error: NodeError) -> Self {
        Self { forbidden: error.kind == NodeErrorKind::Forbidden, cause: error.detail }
    }
}

impl From<&str> for Why {
    fn from(cause: &str) -> Self {
        cause.to_owned().into()
    }
}

impl From<String> for Why {
    fn from(cause: String) -> Self {
        Self { cause, forbidden: false }
    }
}

impl Quorum {
    pub(crate) fn new(nodes: Vec<Arc<dyn Node>>, settings: Arc<Settings>) -> Self {
        Self {
            protocol: Protocol::new(settings.clone()),
            ordered: in_order(&nodes),
            offsets: nodes.iter().map(|_| AtomicI64::new(i64::MIN)).collect(),
            unmarked: Mutex::new(None),
            provisioning: watch::Sender::new(0),
            runs: Mutex::new((vec![None; nodes.len()], false)),
            duplicates: OnceLock::new(),
            deliveries: Arc::default(),
            closed: watch::Sender::new(false),
            pending: watch::Sender::new(0),
            nodes,
            settings,
        }
    }

    pub(crate) fn needed(&self) -> usize {
        self.settings.quorum
    }

    /// The nodes in the order in which competing acquires take them.
    pub(crate) fn order_of(&self, names: &Names) -> impl Iterator<Item = usize> + use<'_> {
        let first = usize::from(slot(&names.lock)) % self.ordered.len();
        self.ordered[first..].iter().chain(&self.ordered[..first]).copied()
    }

    /// The node to which competing acquires send their request first.
    fn first_node(&self, names: &Names) -> usize {
        self.order_of(names).next().unwrap_or_default()
    }

    /// How many nodes may fail while a quorum is still possible.
    pub(crate) fn spare(&self) -> usize {
        self.nodes.len() - self.settings.quorum
    }

    /// Where a call of this caller is polled.
    pub(crate) fn polled(&self, caller: Caller) -> Polled {
        driver::polled(caller, self.nodes.len(), self.nodes[0].traits().hostable)
    }

    /// Sends a call to all nodes. `sent` records the connection that carries each request.
    pub(crate) fn ask(&self, driver: Driver, call: &ScriptCall, limit: Duration, sent: &[SentOn]) -> FanOut {
        let asked = sent.iter().enumerate();
        FanOut::new(asked.map(|(node, sent)| self.ask_one(node, driver, call.clone(), limit, sent.clone())))
    }

    fn ask_all(&self, driver: Driver, call: &ScriptCall) -> FanOut {
        let sent: Vec<SentOn> = self.nodes.iter().map(|_| SentOn::default()).collect();
        self.ask(driver, call, self.settings.config.reply_timeout, &sent)
    }

    fn ask_one(&self, node: usize, driver: Driver, call: ScriptCall, limit: Duration, sent: SentOn) -> NodeRequest {
        NodeRequest::new(node, self.nodes[node].eval(driver, call, limit, sent))
    }

    pub(crate) fn cause(&self, node: usize, why: impl Into<Why>) -> NodeCause {
        let Why { cause, forbidden } = why.into();
        NodeCause { node: self.nodes[node].name().to_owned(), cause, forbidden }
    }

    /// The causes when no node has answered.
    pub(crate) fn unanswered_causes(&self) -> Vec<NodeCause> {
        (0..self.nodes.len()).map(|node| self.cause(node, "has not answered")).collect()
    }

    pub(crate) fn unavailable(&self, causes: Vec<NodeCause>) -> LockError {
        LockError::Unavailable { needed: self.needed(), nodes: self.nodes.len(), causes }
    }

    /// Sends a call to all nodes. Returns once `needed` of them ran the script, and fails once too few of them can. `read`
    /// parses a reply.
    pub(crate) async fn gather<T: Send + 'static>(
        self: &Arc<Self>,
        call: &ScriptCall,
        read: fn(&Reply) -> Option<T>,
    ) -> Result<Vec<(usize, T)>, LockError> {
        let ask = |node| -> BoxFuture<_> {
            let (quorum, call) = (self.clone(), call.clone());
            Box::pin(async move { quorum.run(node, call, read).await })
        };
        self.gather_with(ask, |_| true).await
    }

    /// Asks all nodes; `ask` makes the request to one. Returns once the answers are settled, or once `needed` nodes
    /// answered and the others had [`MINORITY_GRACE`] to do so, too. Fails once too many nodes failed. Answers are
    /// settled if those of other nodes would add nothing to them; `is_settled` gets at least `needed` of them.
    pub(crate) async fn gather_with<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl Fn(usize) -> BoxFuture<Result<T, NodeError>>,
        is_settled: impl Fn(&[(usize, T)]) -> bool,
    ) -> Result<Vec<(usize, T)>, LockError> {
        let mut answers = FanOut::new((0..self.nodes.len()).map(|node| NodeRequest::new(node, ask(node))));
        let (mut replies, mut causes) = (Vec::new(), Vec::new());
        let gathered = answers.tally(|node, answer| {
            match answer {
                Ok(reply) => replies.push((node, reply)),
                Err(error) => causes.push(self.cause(node, error)),
            }
            if replies.len() >= self.needed() {
                if is_settled(&replies) { Count::Decided(()) } else { Count::Soon(MINORITY_GRACE) }
            } else if causes.len() > self.spare() {
                Count::Decided(())
            } else {
                Count::More
            }
        });
        let _: Option<()> = gathered.await;
        if replies.len() < self.needed() {
            return Err(self.unavailable(causes));
        }
        // The other nodes must run it as well, even if the caller is gone.
        self.spawn_pending(answers.see_through());
        Ok(replies)
    }

    /// Whether a quorum of the nodes gave the same answer. `same` compares two.
    pub(crate) fn agrees<T>(&self, replies: &[(usize, T)], same: impl Fn(&T, &T) -> bool) -> bool {
        let agreeing = |one: &T| replies.iter().filter(|(_, other)| same(one, other)).count();
        replies.iter().any(|(_, one)| agreeing(one) >= self.needed())
    }

    /// Runs a call on one node, driven by the background.
    pub(crate) async fn run<T>(
        &self,
        node: usize,
        call: ScriptCall,
        read: impl FnOnce(&Reply) -> Option<T>,
    ) -> Result<T, NodeError> {
        let limit = self.settings.config.reply_timeout;
        let reply = self.nodes[node].eval(Driver::Background, call, limit, SentOn::default()).await?;
        read(&reply).ok_or_else(NodeError::no_answer)
    }

    /// Sends a call with a yes-or-no reply to all nodes. Returns once q nodes replied yes, or once q such replies are
    /// impossible: the result, the nodes that failed, and the requests without a reply so far. If the replies decide
    /// neither, the error has the nodes that failed and their causes.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        driver: Driver,
        call: &ScriptCall,
        read: impl Fn(&Reply) -> Option<bool>,
    ) -> Result<(bool, Vec<usize>, FanOut), (Vec<usize>, Vec<NodeCause>)> {
        let mut answers = self.ask_all(driver, call);
        let (mut yes, mut no, mut failed, mut causes) = (0, 0, Vec::new(), Vec::new());
        let decided = answers.count(read, |node, answer| {
            match answer {
                Ok(true) => yes += 1,
                Ok(false) => no += 1,
                Err(error) => {
                    failed.push(node);
                    causes.push(self.cause(node, error));
                }
            }
            let over = yes >= self.needed() || no > self.spare();
            if over { Count::Decided(yes >= self.needed()) } else { Count::More }
        });
        match decided.await {
            Some(decided) => Ok((decided, failed, answers)),
            None => Err((failed, causes)),
        }
    }

    /// The proposal for a token: the median of the nodes' times; zero if none is known, or for a single node.
    pub(crate) fn proposal(&self) -> i64 {
        let mut known: Vec<i64> =
            self.offsets.iter().map(|offset| offset.load(Relaxed)).filter(|offset| *offset != i64::MIN).collect();
        if self.nodes.len() == 1 || known.is_empty() {
            return 0;
        }
        known.sort_unstable();
        clock::now().micros() + known[known.len() / 2]
    }

    /// Records a node's time for the next proposal; of no use for a single node.
    fn learn_time(&self, node: usize, micros: i64) {
        if self.nodes.len() > 1 {
            self.offsets[node].store(micros - clock::now().micros(), Relaxed);
        }
    }
}

fn in_order(nodes: &[Arc<dyn Node>]) -> Vec<usize> {
    let mut ordered: Vec<usize> = (0..nodes.len()).collect();
    ordered.sort_by_key(|node| nodes[*node].name());
    ordered
}
