//! One operation on all nodes: ask every node at once, count the answers, decide as soon as they allow it. A single
//! server is a quorum of one; nothing here or above knows the difference.
//!
//! The acquisition is the model-checked "grant, take the maximum, raise by compare-and-set": each node grants with a
//! token above all it ever granted, the quorum's token is the largest, and nodes that granted a smaller one are raised
//! to it, provided nothing was granted there in between. Any two quorums share a node, on which the two tenures follow
//! each other, so the later token is the larger one. Sources: M. Kleppmann, "How to do distributed locking" (2016), for
//! why tokens; Attiya, Bar-Noy and Dolev, "Sharing memory robustly in message-passing systems" (1995), for why
//! majorities keep a maximum without consensus.

use std::{
    fmt::Display,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::sync::{Mutex, tell};
use futures_util::{
    StreamExt,
    future::join_all,
    stream::{self, FuturesUnordered},
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use crate::{
    clock::{self, Deadline, Stamp},
    config::{NEVER, Settings, TokenKey, wire_ttl},
    error::{LockError, NodeCause},
    owner::{OwnerKey, wire_owner},
    protocol::{
        reply::{self, Vote},
        script::{Call, Reply, Scripts, WhileMoving, scripts},
    },
    server::{BoxFuture, Lane, Link, MARKER, Node, NodeError, NodeErrorKind, Sent},
};

/// How far a node follows a proposed token away from its own clock.
const PROPOSAL_SLACK: Duration = Duration::from_millis(20);
/// How long a counter is kept after its last use; the clock then seeds the next one.
const COUNTER_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long the last nodes may keep a split vote, or the outcome of a release, open; at least, since three times the
/// others' answers is allowed too.
pub(crate) const GRACE: Duration = Duration::from_millis(5);
/// Markers written at once; a cluster has thousands.
const PROVISIONS_AT_ONCE: usize = 256;
/// How long a clean-up goes on for a node that does not come back.
pub(crate) const CLEANUP_LIMIT: Duration = Duration::from_secs(3600);

/// The names of one lock on the servers.
#[derive(Debug)]
pub(crate) struct Keys {
    /// Without the client's prefix.
    pub(crate) name: String,
    pub(crate) lock: String,
    pub(crate) channel: String,
    counter: String,
    ended: String,
    average: String,
}

impl Keys {
    pub(crate) fn new(name: &str, lock: String, settings: &Settings) -> Self {
        // Redisson's rule: braces are added only to a name that has none, so that all keys share a cluster slot.
        let of = |kind: &str| {
            if lock.contains('{') { format!("{kind}:{lock}") } else { format!("{kind}:{{{lock}}}") }
        };
        let counter = match settings.config.token_key {
            TokenKey::Redlock => of("redlock_token"),
            TokenKey::Redisson => of("redisson_lock_token"),
        };
        Self {
            name: name.to_owned(),
            channel: of("redisson_lock__channel"),
            counter,
            ended: of("redlock_ended"),
            average: of("redlock_hold"),
            lock,
        }
    }
}

/// The nodes of a client and what it knows of them.
pub(crate) struct Quorum {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) settings: Arc<Settings>,
    scripts: &'static Scripts,
    /// For each node, its time minus ours in µs; `i64::MIN` until it told.
    offsets: Vec<AtomicI64>,
    /// Since when nodes without a marker are seen while others are unreachable.
    unmarked: Mutex<Option<Instant>>,
    /// The run of each node's server, as far as known, and whether somebody finds out.
    runs: Mutex<(Vec<Option<String>>, bool)>,
    /// Two nodes that turned out to be one server.
    twins: OnceLock<(usize, usize)>,
    /// Whether the client is closed: nothing is tried any more.
    closed: watch::Sender<bool>,
    /// How much is under way that would leave something behind if the process ended now.
    chores: watch::Sender<usize>,
}

/// Something that should end before the process does. Ended by its drop.
pub(crate) struct Chore(Arc<Quorum>);

impl Drop for Chore {
    fn drop(&mut self) {
        tell(&self.0.chores, |count| *count -= 1);
    }
}

/// What became of an acquisition.
pub(crate) enum Verdict {
    Held(Grant),
    /// Somebody holds it. `free_in`: when enough nodes may be free; `split`: some nodes granted, so nobody may hold it.
    Busy {
        free_in: Option<Duration>,
        split: bool,
    },
    Conflict,
    /// Nobody could vote yet: the nodes of a new deployment have their markers now. `causes`: if they still lack them.
    Ready {
        causes: Vec<NodeCause>,
    },
    Unavailable {
        causes: Vec<NodeCause>,
        permanent: bool,
    },
}

/// A quorum's grant.
pub(crate) struct Grant {
    pub(crate) token: u64,
    /// Before the requests were sent.
    pub(crate) since: Stamp,
    /// For each node, what is known of the tenure there.
    pub(crate) places: Vec<Place>,
    /// Answers still to come, and the connections that carry them.
    pub(crate) late: Answers,
    pub(crate) sent: Vec<Sent>,
}

/// What is known of a tenure on one node.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// Not there.
    No,
    /// Asked, no answer: it may be there, or come there late.
    Maybe(Option<Link>),
    /// There, at least until the deadline.
    Yes(Deadline),
}

pub(crate) type Answer = (usize, Result<Reply, NodeError>);
pub(crate) type Answers = FuturesUnordered<BoxFuture<Answer>>;

impl Quorum {
    pub(crate) fn new(nodes: Vec<Arc<dyn Node>>, settings: Arc<Settings>) -> Self {
        Self {
            scripts: scripts(settings.config.wire),
            offsets: nodes.iter().map(|_| AtomicI64::new(i64::MIN)).collect(),
            unmarked: Mutex::new(None),
            runs: Mutex::new((vec![None; nodes.len()], false)),
            twins: OnceLock::new(),
            closed: watch::Sender::new(false),
            chores: watch::Sender::new(0),
            nodes,
            settings,
        }
    }

    /// Finds out, once and in the background, whether all nodes are servers of their own: two names of one server
    /// would count as two votes.
    fn tell_apart(self: &Arc<Self>) {
        if self.nodes.len() == 1 || std::mem::replace(&mut self.runs.lock().1, true) {
            return;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let (quorum, mut changes, limit) =
                (Arc::downgrade(self), node.changes(), self.settings.config.reply_timeout);
            self.spawn(async move {
                while let Some(pong) = quorum.upgrade().map(|quorum| quorum.nodes[index].ping(limit)) {
                    if let Ok(info) = pong.await {
                        if let Some(quorum) = quorum.upgrade() {
                            quorum.compare(index, info.run);
                        }
                        return;
                    }
                    pause(&mut changes, Duration::from_secs(5)).await;
                }
            });
        }
    }

    fn compare(&self, node: usize, run: Option<String>) {
        let runs = &mut self.runs.lock().0;
        if let Some(twin) = runs.iter().position(|known| known.is_some() && *known == run) {
            // The first pair found says enough.
            let _ = self.twins.set((twin, node));
        }
        runs[node] = run;
    }

    /// Begins something that should end before the process does.
    pub(crate) fn chore(self: &Arc<Self>) -> Chore {
        tell(&self.chores, |count| *count += 1);
        Chore(self.clone())
    }

    /// Does such a thing in the background, until the client is closed.
    pub(crate) fn spawn_chore(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let chore = self.chore();
        self.spawn(async move {
            work.await;
            drop(chore);
        });
    }

    /// Does something in the background, until the client is closed, which does not wait for it.
    pub(crate) fn spawn(self: &Arc<Self>, work: impl Future<Output = ()> + Send + 'static) {
        let mut closed = self.closed.subscribe();
        let work = async move {
            tokio::select! {
                biased;
                () = work => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        };
        #[cfg(not(all(test, feature = "shuttle")))]
        crate::process::runtime::background().spawn(work);
        #[cfg(all(test, feature = "shuttle"))]
        shuttle::future::spawn(work);
    }

    /// Has `call` undo in the background what the nodes may have done, each behind the connection that asked it to;
    /// the last of a place: whether the node is known to have done it. What it returns closes once that is done, or
    /// given up.
    pub(crate) fn clean_up(
        self: &Arc<Self>,
        places: impl IntoIterator<Item = (usize, Link, bool)>,
        call: &Call,
    ) -> mpsc::Receiver<()> {
        let (busy, done) = mpsc::channel(1);
        for (node, link, known) in places {
            let (work, busy) = (clean_up(self.nodes[node].clone(), link, call.clone(), known), busy.clone());
            self.spawn_chore(async move {
                work.await;
                drop(busy);
            });
        }
        done
    }

    /// Disconnects, and gives up whatever is under way.
    pub(crate) fn close(&self) {
        for node in &self.nodes {
            node.close();
        }
        self.closed.send_replace(true);
    }

    /// Resolves once nothing of the kind is under way.
    pub(crate) async fn idle(&self) {
        // The sender is in `self`.
        let _ = self.chores.subscribe().wait_for(|count| *count == 0).await;
    }

    pub(crate) fn needed(&self) -> usize {
        self.settings.quorum
    }

    /// How many failures make a quorum impossible.
    pub(crate) fn spare(&self) -> usize {
        self.nodes.len() - self.settings.quorum
    }

    /// The lane for a blocking caller. It drives its own round trips only when it waits for all of them, which is so
    /// for one node; answers that come after a quorum need the runtime that is always driven.
    pub(crate) fn caller_lane(&self) -> Lane {
        if self.nodes.len() == 1 { Lane::Caller } else { Lane::Background }
    }

    /// The lane for calls of an event loop that owns its connections. For one node only, as above.
    pub(crate) fn host_lane(&self, host: u64) -> Lane {
        if let [only] = &self.nodes[..]
            && only.is_hostable()
        {
            Lane::Host(host)
        } else {
            Lane::Background
        }
    }

    /// Asks all nodes; notes for each which connection carries the request.
    pub(crate) fn ask(&self, lane: Lane, call: &Call, limit: Duration, sent: &[Sent]) -> Answers {
        let asked = sent.iter().enumerate();
        asked.map(|(node, sent)| self.ask_one(node, lane, call.clone(), limit, sent.clone())).collect()
    }

    fn ask_all(&self, lane: Lane, call: &Call) -> Answers {
        let sent: Vec<Sent> = self.nodes.iter().map(|_| Sent::default()).collect();
        self.ask(lane, call, self.settings.config.reply_timeout, &sent)
    }

    fn ask_one(&self, node: usize, lane: Lane, call: Call, limit: Duration, sent: Sent) -> BoxFuture<Answer> {
        let answer = self.nodes[node].eval(lane, call, limit, sent);
        Box::pin(async move { (node, answer.await) })
    }

    /// A fault: sends a request again until it is answered.
    #[cfg(feature = "simulation")]
    fn insist(self: &Arc<Self>, node: usize, answer: BoxFuture<Answer>, call: &Call) -> BoxFuture<Answer> {
        let (quorum, call) = (self.clone(), call.clone());
        let answer = crate::process::runtime::detached(async move {
            let mut answer = answer.await;
            while matches!(&answer.1, Err(error) if error.kind == NodeErrorKind::Unknown) {
                let limit = quorum.settings.config.reply_timeout;
                answer = quorum.ask_one(node, Lane::Background, call.clone(), limit, Sent::default()).await;
            }
            answer
        });
        let gone = move || (node, Err(NodeError::new(NodeErrorKind::Unknown, "gone")));
        Box::pin(async move { answer.await.unwrap_or_else(gone) })
    }

    pub(crate) fn cause(&self, node: usize, cause: impl Display) -> NodeCause {
        NodeCause { node: self.nodes[node].name().to_owned(), cause: cause.to_string() }
    }

    /// That no node has answered.
    pub(crate) fn unheard(&self) -> Vec<NodeCause> {
        (0..self.nodes.len()).map(|node| self.cause(node, "has not answered")).collect()
    }

    pub(crate) fn unavailable(&self, causes: Vec<NodeCause>) -> LockError {
        LockError::Unavailable { needed: self.needed(), nodes: self.nodes.len(), causes }
    }

    /// Asks all nodes and returns once `needed` of them ran the script, or too few can. `read`: what a reply means.
    pub(crate) async fn gather<T>(
        self: &Arc<Self>,
        lane: Lane,
        call: &Call,
        read: impl Fn(&Reply) -> Option<T>,
    ) -> Result<Vec<(usize, T)>, LockError> {
        let mut answers = self.ask_all(lane, call);
        let (mut replies, mut causes, mut wrong) = (Vec::new(), Vec::new(), 0);
        while let Some((node, answer)) = answers.next().await {
            match answer.and_then(|reply| read(&reply).ok_or_else(reply::no_answer)) {
                Ok(meaning) => replies.push((node, meaning)),
                Err(error) => {
                    wrong += usize::from(error.kind == NodeErrorKind::WrongType);
                    causes.push(self.cause(node, error));
                }
            }
            if replies.len() >= self.needed() {
                // The other nodes are to run it as well, whether or not somebody waits.
                self.spawn_chore(answers.for_each(|_| async {}));
                return Ok(replies);
            }
            if wrong > self.spare() {
                return Err(LockError::Conflict { key: call.keys[0].clone() });
            }
            if causes.len() > self.spare() {
                break;
            }
        }
        Err(self.unavailable(causes))
    }

    /// Asks all nodes a question of yes or no, and returns once q nodes say yes, or cannot any more. Else which nodes did
    /// not answer, and why.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        lane: Lane,
        call: &Call,
        read: impl Fn(&Reply) -> Option<bool>,
    ) -> Result<bool, (Vec<usize>, Vec<NodeCause>)> {
        let mut answers = self.ask_all(lane, call);
        let (mut yes, mut no, mut silent, mut causes) = (0, 0, Vec::new(), Vec::new());
        while let Some((node, answer)) = answers.next().await {
            match answer.and_then(|reply| read(&reply).ok_or_else(reply::no_answer)) {
                Ok(true) => yes += 1,
                Ok(false) => no += 1,
                Err(error) => {
                    silent.push(node);
                    causes.push(self.cause(node, error));
                }
            }
            if yes >= self.needed() || no > self.spare() {
                // The other nodes are to run it as well, whether or not somebody waits.
                self.spawn_chore(answers.for_each(|_| async {}));
                return Ok(yes >= self.needed());
            }
        }
        Err((silent, causes))
    }

    /// The proposal for a token: the median of the nodes' times, zero when it is unknown or of no use.
    fn proposal(&self) -> i64 {
        let mut known: Vec<i64> =
            self.offsets.iter().map(|offset| offset.load(Relaxed)).filter(|offset| *offset != i64::MIN).collect();
        if self.nodes.len() == 1 || known.is_empty() {
            return 0;
        }
        known.sort_unstable();
        clock::now().micros() + known[known.len() / 2]
    }

    fn learn_time(&self, node: usize, micros: i64) {
        self.offsets[node].store(micros - clock::now().micros(), Relaxed);
    }

    fn counter_ttl(&self) -> u128 {
        match self.settings.config.token_key {
            TokenKey::Redlock => COUNTER_TTL.as_millis(),
            TokenKey::Redisson => 0,
        }
    }

    pub(crate) fn release_call(&self, keys: &Keys, field: &str, announce: bool) -> Call {
        let channel = if announce { keys.channel.clone() } else { String::new() };
        let mut args = vec![field.to_owned(), channel];
        args.extend(self.sharded());
        Call::new(&self.scripts.release, vec![keys.lock.clone()], args)
    }

    /// What has a script announce to the listeners of a cluster's shard, too.
    fn sharded(&self) -> Option<String> {
        self.settings.on_cluster().then(|| "1".to_owned())
    }

    /// One renewal of many tenures; a ttl of zero only checks that a tenure is there.
    pub(crate) fn renew_call<'a>(&self, tenures: impl Iterator<Item = (&'a Keys, &'a str, Duration)>) -> Call {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for (names, field, ttl) in tenures {
            keys.extend([names.lock.clone(), names.ended.clone()]);
            // To never end is nothing that could be asked for again.
            let ttl = if ttl == NEVER { Duration::ZERO } else { ttl };
            args.extend([field.to_owned(), ttl.as_millis().to_string()]);
        }
        let mut call = Call::new(&self.scripts.renew, keys, args);
        if self.settings.on_cluster() {
            call.while_moving = if call.keys.len() == 2 {
                let lock = call.keys[0].clone();
                WhileMoving::Instead(Box::new(Call { keys: vec![lock.clone(), lock], ..call.clone() }))
            } else {
                WhileMoving::Fail
            };
        }
        call
    }

    /// Has a node look at its marker first, where several vote; says whether it does.
    fn guard(&self, keys: &mut Vec<String>, args: &mut Vec<String>) -> bool {
        let guarded = self.settings.guarded();
        if guarded {
            keys.push(MARKER.to_owned());
            args.push(self.settings.quarantine().as_micros().to_string());
        }
        guarded
    }

    /// Writes a tenure again where it is missing.
    pub(crate) fn repair_call(&self, keys: &Keys, owner: &OwnerKey, field: &str, token: u64, ttl: Duration) -> Call {
        let mut names = vec![keys.lock.clone(), keys.counter.clone(), keys.ended.clone()];
        let mut args = vec![
            field.to_owned(),
            explicit_owner(owner),
            ttl.as_millis().to_string(),
            token.to_string(),
            self.counter_ttl().to_string(),
        ];
        let identify = self.guard(&mut names, &mut args);
        Call { identify, ..Call::new(&self.scripts.repair, names, args) }
    }

    pub(crate) fn end_call(&self, keys: &Keys, owner: Option<&str>) -> Call {
        let mut args = vec![owner.map(wire_owner).unwrap_or_default(), keys.channel.clone()];
        args.extend(self.sharded());
        Call::new(&self.scripts.end, vec![keys.lock.clone(), keys.ended.clone()], args)
    }

    pub(crate) fn inspect_call(&self, keys: &Keys) -> Call {
        Call::new(&self.scripts.inspect, vec![keys.lock.clone(), keys.counter.clone()], Vec::new())
    }

    pub(crate) fn attach_call(&self, keys: &Keys, old: &str, new: &str, ttl: Duration) -> Call {
        let args = vec![old.to_owned(), new.to_owned(), ttl.as_millis().to_string()];
        Call::new(&self.scripts.attach, vec![keys.lock.clone()], args)
    }

    pub(crate) fn retime_call(&self, keys: &Keys, value: &str, how: &str, millis: i64) -> Call {
        let args = vec![value.to_owned(), millis.to_string(), how.to_owned()];
        Call::new(&self.scripts.retime, vec![keys.lock.clone()], args)
    }

    /// Reads, or with a sample updates, the average hold of a lock.
    pub(crate) fn learn_call(&self, keys: &Keys, sample: Option<Duration>) -> Call {
        let sample = sample.map_or(-1, |hold| hold.as_micros().max(1) as i64);
        let args = vec![sample.to_string(), COUNTER_TTL.as_millis().to_string()];
        Call::new(&self.scripts.learn, vec![keys.average.clone()], args)
    }

    fn provision_call(&self, marker: String, how: &str, seen: i64) -> Call {
        let args = vec![how.to_owned(), seen.to_string()];
        Call { identify: true, ..Call::new(&self.scripts.provision, vec![marker], args) }
    }

    /// Vouches for every node: all vote at once, whatever they went through.
    pub(crate) async fn provision_all(&self) -> Result<(), LockError> {
        let limit = self.settings.config.reply_timeout;
        let markers = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(node, one)| one.markers().into_iter().map(move |marker| (node, marker)));
        let written = markers.map(|(node, marker)| {
            self.ask_one(node, Lane::Background, self.provision_call(marker, "init", 0), limit, Sent::default())
        });
        let mut answers = stream::iter(written.collect::<Vec<_>>()).buffer_unordered(PROVISIONS_AT_ONCE);
        let mut causes: Vec<NodeCause> = Vec::new();
        while let Some((node, answer)) = answers.next().await {
            if let Some(error) = unwritten(answer) {
                let cause = self.cause(node, error);
                if !causes.contains(&cause) {
                    causes.push(cause);
                }
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(self.unavailable(causes)) }
    }

    /// A node without a marker answered after others, which have one, had granted.
    pub(crate) async fn late_unmarked(&self, keys: &Keys, node: usize, reply: &Reply) {
        if let Some((Vote::Unmarked, time)) = reply::vote(reply) {
            self.provision(keys, &[(node, time)], false).await;
        }
    }

    /// Writes the markers of all parts, in the background, where the whole deployment is new. That is known only beside a
    /// node of one part: it had no marker, so nobody has locked anything yet.
    fn provision_parts(self: &Arc<Self>, missing: &[(usize, i64)]) {
        if self.nodes.iter().all(|node| node.has_parts()) {
            return;
        }
        let parted = missing.iter().copied().filter(|(node, _)| self.nodes[*node].has_parts());
        for (node, time) in parted.collect::<Vec<_>>() {
            let (quorum, seen) = (self.clone(), clock::now());
            self.spawn_chore(async move {
                let markers = stream::iter(quorum.nodes[node].markers());
                let write = |marker| {
                    // The node's time by now: each write must be a fresh one.
                    let now = time + seen.elapsed().as_micros() as i64;
                    let (call, limit) =
                        (quorum.provision_call(marker, "new", now), quorum.settings.config.reply_timeout);
                    quorum.ask_one(node, Lane::Background, call, limit, Sent::default())
                };
                // What fails is taken for a part that lost its keys, when it is first used.
                markers.map(write).buffer_unordered(PROVISIONS_AT_ONCE).for_each(|_| async {}).await;
            });
        }
    }

    /// Writes markers on the nodes that lack one; returns what failed. `fresh`: no node has one, so this is a new
    /// deployment.
    async fn provision(&self, keys: &Keys, missing: &[(usize, i64)], fresh: bool) -> Vec<(usize, NodeError)> {
        let how = if fresh { "new" } else { "lost" };
        let written = missing.iter().map(|(node, seen)| {
            let call = self.provision_call(self.nodes[*node].marker(&keys.lock), how, *seen);
            self.ask_one(*node, Lane::Background, call, self.settings.config.reply_timeout, Sent::default())
        });
        let failed = |(node, answer): Answer| unwritten(answer).map(|error| (node, error));
        join_all(written).await.into_iter().filter_map(failed).collect()
    }
}

/// Why a marker is not there.
fn unwritten(answer: Result<Reply, NodeError>) -> Option<NodeError> {
    match answer {
        Ok(reply) if reply::done(&reply).is_some() => None,
        Ok(_) => Some(reply::no_answer()),
        Err(error) => Some(error),
    }
}

/// An owner as the scripts know it; empty for one that nobody joins.
fn explicit_owner(owner: &OwnerKey) -> String {
    match owner {
        OwnerKey::Explicit(name) => wire_owner(name),
        OwnerKey::Ambient(_) => String::new(),
    }
}

/// One tenure's attempt to get a quorum. Dropped before it was settled, it takes back whatever it may have taken.
pub(crate) struct Attempt {
    quorum: Arc<Quorum>,
    keys: Arc<Keys>,
    field: String,
    /// Whether the field was chosen by the caller.
    is_value: bool,
    ttl: Duration,
    sent: Vec<Sent>,
    /// What each node is known to have done: `None` while unknown.
    granted: Vec<Option<bool>>,
    settled: bool,
}

/// The answers so far.
#[derive(Default)]
struct Tally {
    grants: Vec<(usize, i64)>,
    denied: Vec<Option<Duration>>,
    conflicts: usize,
    permanent: usize,
    causes: Vec<NodeCause>,
    /// Nodes without a marker, and their time when seen so.
    missing: Vec<(usize, i64)>,
    /// Nodes that answered and have a marker.
    marked: usize,
}

impl Attempt {
    pub(crate) fn new(quorum: &Arc<Quorum>, keys: &Arc<Keys>, field: String, ttl: Duration) -> Self {
        Self {
            quorum: quorum.clone(),
            keys: keys.clone(),
            field,
            is_value: false,
            ttl,
            sent: quorum.nodes.iter().map(|_| Sent::default()).collect(),
            granted: vec![None; quorum.nodes.len()],
            settled: false,
        }
    }

    /// An attempt to write what the caller chose. It was never on a node before, or is not there any more.
    pub(crate) fn of_value(quorum: &Arc<Quorum>, keys: &Arc<Keys>, value: String, ttl: Duration) -> Self {
        let mut attempt = Self::new(quorum, keys, value, ttl);
        attempt.is_value = true;
        attempt
    }

    pub(crate) fn field(&self) -> &str {
        &self.field
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The nodes that have not answered.
    pub(crate) fn silent(&self) -> Vec<NodeCause> {
        let silent = self.granted.iter().enumerate().filter(|(_, granted)| granted.is_none());
        silent.map(|(node, _)| self.quorum.cause(node, "has not answered")).collect()
    }

    fn call(&self, owner: &OwnerKey) -> Call {
        let quorum = &self.quorum;
        let mut keys = vec![self.keys.lock.clone(), self.keys.counter.clone()];
        let mut args = vec![
            self.field.clone(),
            if self.is_value { "!".to_owned() } else { explicit_owner(owner) },
            wire_ttl(self.ttl),
            quorum.proposal().to_string(),
            PROPOSAL_SLACK.as_micros().to_string(),
            quorum.counter_ttl().to_string(),
        ];
        let identify = quorum.guard(&mut keys, &mut args);
        let replicas = quorum.settings.config.min_replicas;
        Call { identify, replicas, ..Call::new(&quorum.scripts.acquire, keys, args) }
    }

    /// Asks all nodes; returns at the q-th grant, or when there cannot be one.
    pub(crate) async fn run(&mut self, lane: Lane, owner: &OwnerKey) -> Verdict {
        let quorum = self.quorum.clone();
        let (nodes, needed, spare) = (quorum.nodes.len(), quorum.needed(), quorum.spare());
        quorum.tell_apart();
        if let Some((one, other)) = quorum.twins.get() {
            let cause =
                format!("is the same server as {}; each vote needs a server of its own", quorum.nodes[*one].name());
            return Verdict::Unavailable { causes: vec![quorum.cause(*other, cause)], permanent: true };
        }
        let call = self.call(owner);
        let limit = quorum.settings.reply_timeout(self.ttl);
        let (since, began) = (clock::now(), Instant::now());
        let mut answers: Answers = (0..nodes)
            .map(|node| {
                let answer = quorum.ask_one(node, lane, call.clone(), limit, self.sent[node].clone());
                #[cfg(feature = "simulation")]
                let answer = if mutant!(RetryUnknown) { quorum.insist(node, answer, &call) } else { answer };
                answer
            })
            .collect();
        let mut tally = Tally::default();
        loop {
            // Once q nodes answered there is no outage. Without q grants the votes are split, and the others have a
            // little time to decide it: a hung minority is not waited for while others are kept out.
            let answered = tally.grants.len() + tally.denied.len() + tally.conflicts;
            let next = if answered >= needed && tally.missing.is_empty() {
                let grace = GRACE.max(began.elapsed() * 3);
                timeout(grace, answers.next()).await.unwrap_or_default()
            } else {
                answers.next().await
            };
            let Some((node, answer)) = next else { break };
            self.count(&mut tally, node, answer);
            if tally.grants.len() >= needed {
                break;
            }
            // Over once the answers to come cannot change the verdict: an outage stays one, and busy is only what
            // enough nodes denied to leave no room for an outage. A missing marker means different things when all
            // nodes lack one: then every answer is needed.
            let useless = tally.conflicts + tally.causes.len();
            let busy = tally.denied.len() > spare && useless + answers.len() <= spare;
            if (useless > spare || busy) && tally.missing.is_empty() {
                break;
            }
        }
        if tally.grants.len() < needed {
            return self.refused(tally, spare).await;
        }
        let since = if mutant!(DeadlineFromReply) { clock::now() } else { since };
        if !tally.missing.is_empty() {
            let (quorum, keys, missing) = (quorum.clone(), self.keys.clone(), tally.missing.clone());
            // A failure shows again in the next attempt.
            self.quorum.spawn_chore(async move {
                quorum.provision(&keys, &missing, false).await;
            });
        }
        let token = match self.agree(lane, &tally.grants).await {
            Ok(token) => token,
            Err(causes) if causes.is_empty() => return Verdict::Busy { free_in: None, split: true },
            Err(causes) => return Verdict::Unavailable { causes, permanent: false },
        };
        // The very last step: a grant whose time went by while it was fetched is none.
        let deadline = Deadline::new(since, quorum.settings.validity(self.ttl));
        if deadline.left() < self.ttl / 20 && !mutant!(NoCheckOnReturn) {
            let cause = format!("granted, but only after {:.1?} of a lease of {:?}", since.elapsed(), self.ttl);
            let causes = tally.grants.iter().map(|(node, _)| quorum.cause(*node, &cause)).collect();
            return Verdict::Unavailable { causes, permanent: false };
        }
        self.settled = true;
        let places = (0..nodes)
            .map(|node| match self.granted[node] {
                Some(true) => Place::Yes(deadline),
                Some(false) => Place::No,
                None => Place::Maybe(self.sent[node].get()),
            })
            .collect();
        Verdict::Held(Grant { token: token as u64, since, places, late: answers, sent: self.sent.clone() })
    }

    fn count(&mut self, tally: &mut Tally, node: usize, answer: Result<Reply, NodeError>) {
        let quorum = &self.quorum;
        let reply = match answer {
            Ok(reply) => reply,
            Err(error) if error.kind == NodeErrorKind::WrongType => {
                self.granted[node] = Some(false);
                tally.conflicts += 1;
                return;
            }
            Err(error) => {
                if !error.may_have_run() {
                    self.granted[node] = Some(false);
                }
                tally.permanent += usize::from(error.is_permanent());
                tally.causes.push(quorum.cause(node, error));
                return;
            }
        };
        let Some((vote, time)) = reply::vote(&reply) else {
            // What it did is unknown.
            tally.causes.push(quorum.cause(node, reply::no_answer()));
            return;
        };
        quorum.learn_time(node, time);
        self.granted[node] = Some(matches!(vote, Vote::Granted { .. }));
        tally.marked += usize::from(vote != Vote::Unmarked);
        match vote {
            Vote::Granted { token } => tally.grants.push((node, token)),
            Vote::Denied(left) => tally.denied.push(left),
            Vote::Conflict => tally.conflicts += 1,
            Vote::Quarantine(left) => {
                let ago = quorum.settings.quarantine().saturating_sub(left);
                let cause = format!(
                    "restarted or lost its keys {}, votes again in {}",
                    if ago.is_zero() { "just now".to_owned() } else { format!("{} s ago", ago.as_secs()) },
                    format_args!("{} s", left.as_secs() + 1),
                );
                tally.causes.push(quorum.cause(node, cause));
            }
            Vote::Unmarked => {
                tally.missing.push((node, time));
                tally.causes.push(quorum.cause(node, "has no marker of this deployment yet"));
            }
        }
    }

    async fn refused(&mut self, mut tally: Tally, spare: usize) -> Verdict {
        let quorum = self.quorum.clone();
        if !tally.missing.is_empty() {
            let everywhere = tally.missing.len() == quorum.nodes.len();
            if everywhere && quorum.settings.config.strict {
                let detail = "no node has a marker; call init_nodes() once for a new deployment";
                let causes = tally.missing.iter().map(|(node, _)| quorum.cause(*node, detail)).collect();
                return Verdict::Unavailable { causes, permanent: true };
            }
            // While some nodes are silent nobody knows whether the others are new or have lost their keys; after a
            // while the safe reading is taken.
            let waited_enough = {
                let mut unmarked = quorum.unmarked.lock();
                unmarked.get_or_insert_with(Instant::now).elapsed() >= quorum.settings.config.patience
            };
            if everywhere || tally.marked > 0 || waited_enough {
                let failed = quorum.provision(&self.keys, &tally.missing, everywhere).await;
                *quorum.unmarked.lock() = None;
                if failed.len() > spare {
                    let permanent = failed.iter().filter(|(_, error)| error.is_permanent()).count() > spare;
                    let causes = failed.into_iter().map(|(node, error)| quorum.cause(node, error)).collect();
                    return Verdict::Unavailable { causes, permanent };
                }
            }
            if everywhere {
                quorum.provision_parts(&tally.missing);
                return Verdict::Ready { causes: tally.causes };
            }
            if tally.marked > 0 || waited_enough {
                let detail = format!("lost its keys, votes again in {} s", quorum.settings.quarantine().as_secs() + 1);
                for (node, _) in &tally.missing {
                    let cause = quorum.cause(*node, &detail);
                    tally.causes.iter_mut().filter(|known| known.node == cause.node).for_each(|known| {
                        known.cause.clone_from(&cause.cause);
                    });
                }
            }
        }
        if tally.conflicts > spare {
            return Verdict::Conflict;
        }
        if tally.conflicts + tally.causes.len() > spare {
            return Verdict::Unavailable { permanent: tally.permanent > spare, causes: tally.causes };
        }
        let mut free_in: Vec<Duration> = tally.denied.iter().flatten().copied().collect();
        free_in.extend(tally.grants.iter().map(|_| Duration::ZERO));
        free_in.sort_unstable();
        let free_in = free_in.get(quorum.needed() - 1).or(free_in.last()).copied();
        Verdict::Busy { free_in, split: !tally.grants.is_empty() }
    }

    /// Makes a quorum of nodes hold the largest granted token. Returns it; or, when too few could be raised, why nodes
    /// that would have been enough did not answer: nothing if they did, and have moved on.
    async fn agree(&self, lane: Lane, grants: &[(usize, i64)]) -> Result<i64, Vec<NodeCause>> {
        let quorum = &self.quorum;
        let token = grants.iter().map(|(_, token)| *token).max().unwrap_or_default();
        let mut agreed = grants.iter().filter(|(_, granted)| *granted == token).count();
        if agreed >= quorum.needed() || mutant!(NaiveMax) {
            return Ok(token);
        }
        let mut causes = Vec::new();
        let mut bumps: Answers = grants
            .iter()
            .filter(|(_, granted)| *granted < token)
            .map(|(node, granted)| {
                let args =
                    vec![self.field.clone(), granted.to_string(), token.to_string(), quorum.counter_ttl().to_string()];
                let keys = vec![self.keys.lock.clone(), self.keys.counter.clone()];
                let call = Call::new(&quorum.scripts.bump, keys, args);
                quorum.ask_one(*node, lane, call, quorum.settings.reply_timeout(self.ttl), Sent::default())
            })
            .collect();
        while let Some((node, answer)) = bumps.next().await {
            match answer.and_then(|reply| reply::done(&reply).ok_or_else(reply::no_answer)) {
                Ok(done) => agreed += usize::from(done),
                Err(error) => causes.push(quorum.cause(node, error)),
            }
            if agreed >= quorum.needed() {
                return Ok(token);
            }
        }
        if agreed + causes.len() < quorum.needed() {
            causes.clear();
        }
        Err(causes)
    }

    /// The nodes that may hold something of this attempt, the connection that carried the request, and whether they
    /// said so.
    fn leftovers(&mut self) -> Vec<(usize, Link, bool)> {
        self.settled = true;
        let unsettled = self.granted.iter().enumerate().filter(|(_, granted)| match granted {
            Some(granted) => *granted,
            None => !mutant!(ReleaseKnownOnly),
        });
        let known = unsettled.map(|(node, granted)| (node, granted.is_some()));
        known.filter_map(|(node, known)| Some((node, self.sent[node].get()?, known))).collect()
    }

    /// Takes back what this attempt took, in the background. `announce`: tell waiters, since nobody here tries again.
    /// What it returns, if there was anything, closes once it is done or given up.
    pub(crate) fn undo(&mut self, announce: bool) -> Option<mpsc::Receiver<()>> {
        if mutant!(KeepPartialVotes) {
            self.settled = true;
            return None;
        }
        let call = self.quorum.release_call(&self.keys, &self.field, announce);
        let leftovers = self.leftovers();
        let any = !leftovers.is_empty();
        let undone = self.quorum.clean_up(leftovers, &call);
        any.then_some(undone)
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if !self.settled {
            self.undo(true);
        }
    }
}

/// Runs a script on a node, again and again until it answered or `limit` is over.
pub(crate) async fn insist(node: Arc<dyn Node>, call: Call, limit: Duration) {
    let mut changes = node.changes();
    let over = Instant::now() + limit;
    while Instant::now() < over {
        let limit = over.duration_since(Instant::now()).clamp(Duration::from_millis(1), Duration::from_secs(2));
        let answer = node.eval(Lane::Background, call.clone(), limit, Sent::default()).await;
        if !answer.is_err_and(|error| !error.is_permanent()) {
            return;
        }
        pause(&mut changes, over.duration_since(Instant::now()).min(Duration::from_secs(1))).await;
    }
}

/// Releases a tenure on one node, ordered after everything sent on `link`, until the node confirms. `known`: it is there.
pub(crate) async fn clean_up(node: Arc<dyn Node>, link: Link, call: Call, known: bool) {
    let began = Instant::now();
    let mut changes = node.changes();
    while began.elapsed() < CLEANUP_LIMIT {
        match node.eval_after(link.clone(), call.clone(), Duration::from_secs(2)).await {
            Err(error) if matches!(error.kind, NodeErrorKind::NotRun | NodeErrorKind::Unknown) => {}
            // Read-only by now, perhaps for a moment.
            Err(error) if error.kind == NodeErrorKind::Refused && known => {}
            // Done; or the server refuses to release, as it refused to acquire, and what is there dies by its ttl.
            _ => return,
        }
        pause(&mut changes, Duration::from_secs(1)).await;
    }
}

/// Waits until a node changes, and for `time` at most.
pub(crate) async fn pause(changes: &mut watch::Receiver<u64>, time: Duration) {
    // A closed channel never changes.
    let changed = async {
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    // Either is a reason to go on.
    let _ = timeout(time, changed).await;
}
