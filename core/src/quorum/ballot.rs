//! One ballot: the nodes are asked to grant a tenure, and to agree on its token.
//!
//! It is the model-checked "grant, take the maximum, raise by compare-and-set": each node grants with a token above all
//! it ever granted, the quorum's token is the largest, and nodes that granted a smaller one are raised to it, provided
//! nothing was granted there in between. Any two quorums share a node, on which the two tenures follow each other, so the
//! later token is the larger one. Sources: M. Kleppmann, "How to do distributed locking" (2016), for why tokens; Attiya,
//! Bar-Noy and Dolev, "Sharing memory robustly in message-passing systems" (1995), for why majorities keep a maximum
//! without consensus.
//!
//! Several that want a lock at the same time ask the same node first, and go on to the others in the order in which it
//! granted: resources that are taken in one order (E. W. Dijkstra, "Hierarchical ordering of sequential processes", 1971)
//! are never split among those who take them.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};

use super::{Count, FanOut, MINORITY_GRACE, Presence, Quorum};
use crate::{
    clock::{self, Deadline, Stamp},
    error::NodeCause,
    owner::OwnerKey,
    process::driver::Driver,
    protocol::{
        calls::{Label, Taker},
        names::Names,
        primitive::Primitive,
        reply::{self, Slot, Vote},
        script::ScriptCall,
    },
    server::{ConnectionId, NodeError, NodeErrorKind, SentOn},
};

/// What became of a ballot.
pub(crate) enum Verdict {
    Held(Grant),
    /// Somebody holds it, as a quorum says. `free_in`: when enough nodes may be free; `split`: some nodes granted, so nobody
    /// may hold it.
    Busy {
        free_in: Option<Duration>,
        split: bool,
    },
    /// The node that is asked first denied it; the others were not request. `free_in`: when it may be free there.
    FirstNodeDenied {
        free_in: Duration,
    },
    Conflict,
    /// Nobody could vote yet: the nodes of a new deployment have their markers now. `causes`: if they still lack them.
    Provisioned {
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
    /// Of a permit.
    pub(crate) slots: Vec<Slot>,
    /// Before the requests were sent.
    pub(crate) since: Stamp,
    /// For each node, what is known of the tenure there.
    pub(crate) presences: Vec<Presence>,
    /// Answers still to come, and the connections that carry them.
    pub(crate) late: FanOut,
    pub(crate) sent: Vec<SentOn>,
}

/// How long the node that is asked first is waited for before the others are asked all the same.
const FIRST_GRACE: Duration = Duration::from_millis(20);
/// How long it is believed alone: it may have missed the release.
pub(crate) const BELIEVED_ALONE: Duration = Duration::from_millis(150);

/// One tenure's attempt to get a quorum. Dropped before it was settled, it takes back whatever it may have taken.
pub(crate) struct Ballot {
    request: Arc<BallotRequest>,
    /// Whether the field was chosen by the caller.
    is_value: bool,
    /// Of a read/write lock: the client, and for how long it holds new readers back if it is not let in.
    inside: Option<(String, Duration)>,
    /// Whether others want the lock at the same time.
    contended: bool,
    ttl: Duration,
    /// What each node is known to have done: `None` while unknown.
    granted: Vec<Option<bool>>,
    settled: bool,
}

/// What was request, and on which connections.
struct BallotRequest {
    quorum: Arc<Quorum>,
    primitive: Primitive,
    names: Arc<Names>,
    field: String,
    sent: Vec<SentOn>,
}

impl BallotRequest {
    fn label(&self) -> Label<'_> {
        Label { primitive: self.primitive, names: &self.names, field: &self.field }
    }
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

impl Tally {
    /// Whether the votes so far decide. `open`: how many are still to come.
    fn stands(&self, needed: usize, spare: usize, open: usize) -> Count<()> {
        if self.grants.len() >= needed {
            return Count::Decided(());
        }
        // Over once the answers to come cannot change the verdict: an outage stays one, and busy is only what enough nodes
        // denied to leave no room for an outage. A missing marker means different things when all nodes lack one: then
        // every answer is needed.
        let useless = self.conflicts + self.causes.len();
        let busy = self.denied.len() > spare && useless + open <= spare;
        if (useless > spare || busy) && self.missing.is_empty() {
            return Count::Decided(());
        }
        // Once q nodes answered there is no outage. Without q grants the votes are split, and the others have a little
        // time to decide it: a hung minority is not waited for while others are kept out.
        let answered = self.grants.len() + self.denied.len() + self.conflicts;
        if answered >= needed && self.missing.is_empty() { Count::Soon(MINORITY_GRACE) } else { Count::More }
    }
}

impl Ballot {
    pub(crate) fn new(quorum: &Arc<Quorum>, names: &Arc<Names>, field: String, ttl: Duration) -> Self {
        let request = BallotRequest {
            quorum: quorum.clone(),
            primitive: Primitive::Lock,
            names: names.clone(),
            field,
            sent: quorum.nodes.iter().map(|_| SentOn::default()).collect(),
        };
        let granted = vec![None; quorum.nodes.len()];
        Self {
            request: Arc::new(request),
            is_value: false,
            inside: None,
            contended: false,
            ttl,
            granted,
            settled: false,
        }
    }

    /// A ballot for one of the two ways to hold a read/write lock. `holds_back`: for how long a client holds new readers back
    /// if it is not let in.
    pub(crate) fn inside(mut self, primitive: Primitive, client: &str, holds_back: Duration) -> Self {
        if let Some(request) = Arc::get_mut(&mut self.request) {
            request.primitive = primitive;
        }
        self.inside = Some((client.to_owned(), holds_back));
        // Each node is to hold new readers back, and readers do not split votes.
        self.contended = false;
        self
    }

    /// A ballot that writes what the caller chose. It was never on a node before, or is not there any more.
    pub(crate) fn of_value(quorum: &Arc<Quorum>, names: &Arc<Names>, value: String, ttl: Duration) -> Self {
        let mut ballot = Self::new(quorum, names, value, ttl);
        ballot.is_value = true;
        ballot
    }

    /// The same if others want the lock at the same time: one node is asked first.
    pub(crate) fn contended(mut self, contended: bool) -> Self {
        self.contended = contended && self.request.quorum.nodes.len() > 1;
        self
    }

    pub(crate) fn field(&self) -> &str {
        &self.request.field
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The nodes that have not answered.
    pub(crate) fn silent(&self) -> Vec<NodeCause> {
        let silent = self.granted.iter().enumerate().filter(|(_, granted)| granted.is_none());
        silent.map(|(node, _)| self.request.quorum.cause(node, "has not answered")).collect()
    }

    fn call(&self, owner: &OwnerKey) -> ScriptCall {
        let taker = match &self.inside {
            Some((client, lease)) => Taker::Inside { client, lease: *lease },
            None if self.is_value => Taker::Chosen,
            None => Taker::Owner(owner),
        };
        self.request.quorum.protocol.acquire(self.request.label(), taker, self.ttl, self.request.quorum.proposal())
    }

    /// Asks all nodes, unless one that was to be asked first denies it; returns at the q-th grant, or when there cannot be
    /// one.
    pub(crate) async fn run(&mut self, driver: Driver, owner: &OwnerKey) -> Verdict {
        let quorum = self.request.quorum.clone();
        let (nodes, needed, spare) = (quorum.nodes.len(), quorum.needed(), quorum.spare());
        quorum.find_duplicate_nodes();
        if let Some((one, other)) = quorum.duplicates.get() {
            let cause =
                format!("is the same server as {}; each vote needs a server of its own", quorum.nodes[*one].name());
            return Verdict::Unavailable { causes: vec![quorum.cause(*other, cause)], permanent: true };
        }
        let call = self.call(owner);
        let limit = quorum.settings.reply_timeout(self.ttl);
        let since = clock::now();
        let request = self.request.clone();
        let ask = |node: usize| {
            let answer = quorum.ask_one(node, driver, call.clone(), limit, request.sent[node].clone());
            #[cfg(feature = "simulation")]
            let answer = if mutant!(RetryUnknown) { quorum.insist(node, answer, &call) } else { answer };
            answer
        };
        let mut first = self.contended.then(|| quorum.first_asked(&request.names));
        let mut answers = match first {
            Some(first) => FanOut::new([ask(first)]).within(Some(FIRST_GRACE)),
            None => FanOut::new((0..nodes).map(ask)),
        };
        let (mut tally, mut open) = (Tally::default(), nodes);
        loop {
            let counted = answers.count(reply::vote, |node, vote| {
                self.count(&mut tally, node, vote);
                open -= 1;
                tally.stands(needed, spare, open)
            });
            // Without a decision every answer was counted.
            let _: Option<()> = counted.await;
            match (first.take(), tally.denied.first()) {
                (None, _) => break,
                // Somebody else goes on to the others.
                (Some(_), Some(left)) => {
                    let free_in = left.map_or(BELIEVED_ALONE, |left| left.min(BELIEVED_ALONE));
                    return Verdict::FirstNodeDenied { free_in };
                }
                (Some(first), None) => answers.extend((0..nodes).filter(|node| *node != first).map(ask)),
            }
        }
        if tally.grants.len() < needed {
            return self.refused(tally, spare).await;
        }
        let since = if mutant!(DeadlineFromReply) { clock::now() } else { since };
        if !tally.missing.is_empty() {
            let (quorum, names, missing) = (quorum.clone(), self.request.names.clone(), tally.missing.clone());
            // A failure shows again in the next ballot.
            self.request.quorum.spawn_pending(async move {
                quorum.provision(&names, &missing, false).await;
            });
        }
        let token = match quorum.agree(driver, self.request.label(), &tally.grants, self.ttl).await {
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
        let presences = (0..nodes)
            .map(|node| match self.granted[node] {
                Some(true) => Presence::Held(deadline),
                Some(false) => Presence::Absent,
                None => Presence::Unknown(self.request.sent[node].get()),
            })
            .collect();
        Verdict::Held(Grant {
            token: token as u64,
            slots: Vec::new(),
            since,
            presences,
            late: answers,
            sent: self.request.sent.clone(),
        })
    }

    fn count(&mut self, tally: &mut Tally, node: usize, answer: Result<(Vote, i64), NodeError>) {
        let quorum = &self.request.quorum;
        let (vote, time) = match answer {
            Ok(vote) => vote,
            Err(error) if error.kind == NodeErrorKind::WrongType => {
                self.granted[node] = Some(false);
                tally.conflicts += 1;
                return;
            }
            Err(error) => {
                // Of an answer that is none it is unknown what it did.
                if !error.may_have_run() {
                    self.granted[node] = Some(false);
                }
                tally.permanent += usize::from(error.is_permanent());
                tally.causes.push(quorum.cause(node, error));
                return;
            }
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
        let quorum = self.request.quorum.clone();
        if !tally.missing.is_empty() {
            if quorum.parts_provisioned().await {
                return Verdict::Provisioned { causes: tally.causes };
            }
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
                let (names, missing) = (self.request.names.clone(), tally.missing.clone());
                let writing = quorum.clone();
                // A caller that gives up must not leave markers on some nodes only: the others would count as emptied.
                let written = quorum.run_to_completion(async move {
                    if everywhere {
                        writing.provision_new(&names, &missing).await
                    } else {
                        writing.provision(&names, &missing, false).await
                    }
                });
                let Some(failed) = written.await else {
                    return Verdict::Unavailable { causes: tally.causes, permanent: false };
                };
                *quorum.unmarked.lock() = None;
                if failed.len() > spare {
                    let permanent = failed.iter().filter(|(_, error)| error.is_permanent()).count() > spare;
                    let causes = failed.into_iter().map(|(node, error)| quorum.cause(node, error)).collect();
                    return Verdict::Unavailable { causes, permanent };
                }
            }
            if everywhere {
                quorum.parts_provisioned().await;
                return Verdict::Provisioned { causes: tally.causes };
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

    /// The nodes that may hold something of this ballot, the connection that carried the request, and whether they
    /// said so.
    fn leftovers(&mut self) -> Vec<(usize, ConnectionId, bool)> {
        self.settled = true;
        let unsettled = self.granted.iter().enumerate().filter(|(_, granted)| match granted {
            Some(granted) => *granted,
            None => !mutant!(ReleaseKnownOnly),
        });
        let known = unsettled.map(|(node, granted)| (node, granted.is_some()));
        known.filter_map(|(node, known)| Some((node, self.request.sent[node].get()?, known))).collect()
    }

    /// What takes back, in the background, whatever this ballot may have taken by then, while somebody else has it.
    pub(crate) fn undo_later(&self) -> impl FnOnce() + Send + use<> {
        let request = self.request.clone();
        move || {
            let sent = request.sent.iter().enumerate().filter_map(|(node, sent)| Some((node, sent.get()?, false)));
            let call = request.quorum.protocol.release(request.label(), true);
            drop(request.quorum.clean_up(sent, &call));
        }
    }

    /// Takes back what this ballot took, in the background. `announce`: tell waiters, since nobody here tries again.
    /// What it returns, if there was anything, closes once it is done or given up.
    pub(crate) fn undo(&mut self, announce: bool) -> Option<mpsc::Receiver<()>> {
        if mutant!(KeepPartialVotes) {
            self.settled = true;
            return None;
        }
        let call = self.request.quorum.protocol.release(self.request.label(), announce);
        let leftovers = self.leftovers();
        let any = !leftovers.is_empty();
        let undone = self.request.quorum.clean_up(leftovers, &call);
        any.then_some(undone)
    }
}

impl Quorum {
    /// Makes a quorum of nodes hold the largest granted token. Returns it; or, when too few could be raised, why nodes
    /// that would have been enough did not answer: nothing if they did, and have moved on.
    pub(crate) async fn agree(
        &self,
        driver: Driver,
        label: Label<'_>,
        grants: &[(usize, i64)],
        ttl: Duration,
    ) -> Result<i64, Vec<NodeCause>> {
        let token = grants.iter().map(|(_, token)| *token).max().unwrap_or_default();
        let mut agreed = grants.iter().filter(|(_, granted)| *granted == token).count();
        if agreed >= self.needed() || mutant!(NaiveMax) {
            return Ok(token);
        }
        let mut causes = Vec::new();
        let behind = grants.iter().filter(|(_, granted)| *granted < token);
        let mut bumps = FanOut::new(behind.map(|(node, granted)| {
            let call = self.protocol.bump(label, *granted, token);
            self.ask_one(*node, driver, call, self.settings.reply_timeout(ttl), SentOn::default())
        }));
        let raised = bumps.count(reply::done, |node, answer| {
            match answer {
                Ok(done) => agreed += usize::from(done),
                Err(error) => causes.push(self.cause(node, error)),
            }
            if agreed >= self.needed() { Count::Decided(()) } else { Count::More }
        });
        if raised.await.is_some() {
            return Ok(token);
        }
        if agreed + causes.len() < self.needed() {
            causes.clear();
        }
        Err(causes)
    }
}

impl Drop for Ballot {
    fn drop(&mut self) {
        if !self.settled {
            self.undo(true);
        }
    }
}

#[cfg(feature = "simulation")]
#[path = "../testing/retry_unknown.rs"]
mod retry_unknown;
