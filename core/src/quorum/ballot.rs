//! One ballot: requests to the nodes to grant a tenure, and then to agree on its token.
//!
//! The algorithm is "grant, take the maximum, bump by compare-and-set"; it is model-checked. Each node grants with a
//! token above all that it ever granted, and the quorum's token is the largest of these. Nodes that granted a smaller
//! one are bumped to it, unless they granted another tenure in between. Any two quorums share a node, on which one
//! tenure follows the other, so the later tenure has the larger token. Sources: M. Kleppmann, "How to do distributed
//! locking" (2016), for why tokens; Attiya, Bar-Noy and Dolev, "Sharing memory robustly in message-passing systems"
//! (1995), for why majorities keep a maximum without consensus.
//!
//! If several acquires compete, each sends its request to the same node first. Only the acquire that this node grants
//! sends requests to the other nodes, to all at once. If the first node does not answer within [`FIRST_GRACE`], the
//! acquire sends them anyway. Clients that collect the votes in the same order cannot split them (E. W. Dijkstra,
//! "Hierarchical ordering of sequential processes", 1971).
//!
//! A permit of a semaphore has numbered slots, and each slot is an exclusive lock: q nodes must grant the same slots.
//! An attempt draws the slot from which on the nodes look for free ones. Nodes in the same state grant the same slots.
//! If they granted different ones, the attempt chooses those of most nodes, and moves its permit to them on the others.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};

use super::{Count, FanOut, Grant, MINORITY_GRACE, NodeRequest, Presence, Quorum, Right, Spread};
use crate::{
    clock::{self, Deadline, Stamp},
    error::NodeCause,
    owner::OwnerKey,
    process::driver::Driver,
    protocol::{
        calls::{Label, MarkerOrigin, Taker},
        reply::{self, Granted, Vote},
        script::ScriptCall,
        subject::Subject,
    },
    server::{ConnectionId, NodeError, NodeErrorKind, SentOn},
};

/// The result of a ballot.
pub(crate) enum Verdict {
    Held(Grant),
    /// A quorum answered, but too few nodes granted. `free_in`: after which time enough nodes may be free. `split`:
    /// some nodes granted, so perhaps nobody holds the lock.
    Busy {
        free_in: Option<Duration>,
        split: bool,
    },
    /// The node that gets the request first denied it, so the others got none. `free_in`: after which time the lock may
    /// be free there.
    FirstNodeDenied {
        free_in: Duration,
    },
    /// On more nodes than `spare`, the key is not a lock of this kind.
    Conflict,
    /// No node could vote yet. The deployment is new, and its nodes have their markers now. `causes`: the error if the
    /// next ballot finds them missing again.
    Provisioned {
        causes: Vec<NodeCause>,
    },
    /// More nodes than `spare` cannot grant. `causes`: for each of them the reason. `permanent`: another attempt cannot
    /// succeed, because more nodes than `spare` refuse for good.
    Unavailable {
        causes: Vec<NodeCause>,
        permanent: bool,
    },
}

/// How long to wait for the first node before the others get the request all the same.
const FIRST_GRACE: Duration = Duration::from_millis(20);
/// For how long a denial of the first node alone is believed: that node may have missed the release.
pub(crate) const BELIEVED_ALONE: Duration = Duration::from_millis(150);

/// One attempt of an acquire to get a quorum. If it is dropped before it is settled, it releases what it may have
/// acquired.
pub(crate) struct Ballot {
    request: Arc<BallotRequest>,
    /// Whether the field is a chosen value.
    is_chosen_value: bool,
    /// For a read/write lock: the client, and for how long it keeps new readers out if it is not let in.
    read_write: Option<(String, Duration)>,
    /// For a permit: the slot from which on the nodes look for free ones.
    start: Option<u32>,
    /// Whether other acquires compete for the lock.
    contended: bool,
    ttl: Duration,
    /// Whether each node granted; `None` while unknown.
    granted: Vec<Option<bool>>,
    settled: bool,
}

/// The request of a ballot, and the connections that carried it.
struct BallotRequest {
    quorum: Arc<Quorum>,
    subject: Subject,
    field: String,
    sent: Vec<SentOn>,
}

impl BallotRequest {
    fn label(&self) -> Label<'_> {
        Label { primitive: self.subject.primitive, names: &self.subject.names, field: &self.field, slots: &[] }
    }
}

/// The replies so far.
#[derive(Default)]
struct Tally {
    /// The nodes that granted, each with its tokens.
    grants: Vec<(usize, Granted)>,
    /// The nodes that were asked to move a permit and have not answered. Their earlier grants do not count: it is unknown
    /// which slots the permit has there.
    moving: Vec<usize>,
    /// How many of them granted the same, in the largest such group: all of them for a lock, those with the same slots
    /// for a permit.
    united: usize,
    /// The number of nodes that have not answered.
    open: usize,
    /// For each node that denied, for how long the holder's lease lasts there; `None`: without end.
    denied: Vec<Option<Duration>>,
    /// The number of nodes on which the key is not a lock of this kind.
    conflicts: usize,
    /// The number of nodes that failed with an error that another attempt cannot mend.
    permanent: usize,
    /// Why nodes cannot grant: they failed, are in quarantine or lack a marker.
    causes: Vec<NodeCause>,
    /// Nodes without a marker, and their time when they replied so.
    missing: Vec<(usize, i64)>,
    /// Nodes that answered and have a marker.
    marked: usize,
}

impl Tally {
    /// Adds a node's grant.
    fn add_grant(&mut self, node: usize, granted: Granted) {
        let is_permit = !granted.slots.is_empty();
        self.grants.push((node, granted));
        self.united = if is_permit { self.count_largest() } else { self.grants.len() };
    }

    /// Removes the earlier grant of a node that a move has answered for.
    fn remove_grant(&mut self, node: usize) {
        if self.grants.iter().any(|(other, _)| *other == node) {
            self.grants.retain(|(other, _)| *other != node);
            self.united = self.count_largest();
        }
    }

    fn count_largest(&self) -> usize {
        self.largest_group().map_or(0, |group| self.count_in(group))
    }

    /// How many nodes granted the same slots as `group`.
    fn count_in(&self, group: &Granted) -> usize {
        self.grants.iter().filter(|(_, granted)| granted.same_slots(group)).count()
    }

    /// A grant of the slots that most nodes granted. Of several such groups, the one with the lowest slots: all
    /// attempts choose alike.
    fn largest_group(&self) -> Option<&Granted> {
        let lowest = |granted: &Granted| granted.slots.iter().map(|slot| slot.number).collect::<Vec<_>>();
        let each = self.grants.iter().map(|(_, granted)| granted);
        each.max_by_key(|granted| (self.count_in(granted), std::cmp::Reverse(lowest(granted))))
    }

    /// Whether the votes so far decide: no further reply can change the verdict.
    fn progress(&self, needed: usize, spare: usize) -> Count<()> {
        if self.united >= needed {
            return Count::Decided(());
        }
        let open = self.open;
        let cannot_grant = self.conflicts + self.causes.len();
        // Too many nodes cannot grant. Further replies do not change that.
        let outage = cannot_grant > spare;
        // Too many nodes denied for q grants, and too few are open to make it an outage.
        let busy = self.denied.len() > spare && cannot_grant + open <= spare;
        // If a marker is missing, only all replies together tell a new deployment from nodes that lost their keys.
        if (outage || busy) && self.missing.is_empty() {
            return Count::Decided(());
        }
        // Once q nodes answered, the others get little time: the votes that this ballot holds keep other acquires out,
        // and a hung minority must not delay their release.
        let answered = self.grants.len() + self.moving.len() + self.denied.len() + self.conflicts;
        if answered >= needed && self.missing.is_empty() { Count::Soon(MINORITY_GRACE) } else { Count::More }
    }
}

impl Ballot {
    pub(crate) fn new(quorum: &Arc<Quorum>, subject: &Subject, field: String, ttl: Duration) -> Self {
        let request = BallotRequest {
            quorum: quorum.clone(),
            subject: subject.clone(),
            field,
            sent: quorum.nodes.iter().map(|_| SentOn::default()).collect(),
        };
        let granted = vec![None; quorum.nodes.len()];
        Self {
            request: Arc::new(request),
            is_chosen_value: false,
            read_write: None,
            start: None,
            contended: false,
            ttl,
            granted,
            settled: false,
        }
    }

    /// Makes this a ballot for a read/write lock. `keeps_readers_out_for`: the time for which the nodes keep new
    /// readers out after this request if it is denied.
    pub(crate) fn of_read_write(mut self, client: &str, keeps_readers_out_for: Duration) -> Self {
        self.read_write = Some((client.to_owned(), keeps_readers_out_for));
        // All nodes get the request at once: each must keep new readers out, and readers do not split votes.
        self.contended = false;
        self
    }

    /// Makes this a ballot for a permit of a semaphore with `of` slots.
    pub(crate) fn of_permit(mut self, of: u32) -> Self {
        // At random: with the same start in every client, those that acquire at the same time want the same slot.
        self.start = Some(fastrand::u32(..of));
        self
    }

    /// A ballot that writes a chosen value, which must not be on any node.
    pub(crate) fn of_chosen_value(quorum: &Arc<Quorum>, subject: &Subject, value: String, ttl: Duration) -> Self {
        let mut ballot = Self::new(quorum, subject, value, ttl);
        ballot.is_chosen_value = true;
        ballot
    }

    /// Sets whether other acquires compete for the lock. If so, one node gets the request first.
    pub(crate) fn contended(mut self, contended: bool) -> Self {
        self.contended = contended && self.request.quorum.nodes.len() > 1;
        self
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// The nodes that have not answered.
    pub(crate) fn unanswered(&self) -> Vec<NodeCause> {
        let nodes = self.granted.iter().enumerate().filter(|(_, granted)| granted.is_none());
        nodes.map(|(node, _)| self.request.quorum.cause(node, "has not answered")).collect()
    }

    fn call(&self, owner: &OwnerKey) -> ScriptCall {
        let taker = match (&self.read_write, self.start) {
            (_, Some(start)) => Taker::Slots { start },
            (Some((client, duration)), None) => Taker::ReadWrite { client, keeps_readers_out_for: *duration },
            (None, None) if self.is_chosen_value => Taker::ChosenValue,
            (None, None) => Taker::Owner(owner),
        };
        self.request.quorum.protocol.acquire(self.request.label(), taker, self.ttl, self.request.quorum.proposal())
    }

    /// Sends the request to all nodes, unless the node that gets it first denies it. Returns at the q-th grant, or once
    /// q grants are impossible.
    pub(crate) async fn run(&mut self, driver: Driver, owner: &OwnerKey) -> Verdict {
        let quorum = self.request.quorum.clone();
        let (nodes, needed, spare) = (quorum.nodes.len(), quorum.needed(), quorum.spare());
        if let Some(cause) = quorum.duplicate() {
            return Verdict::Unavailable { causes: vec![cause], permanent: true };
        }
        let mut call = self.call(owner);
        let limit = quorum.settings.reply_timeout(self.ttl);
        let since = clock::now();
        let request = self.request.clone();
        let ask = |node: usize, call: &ScriptCall| {
            let answer = quorum.ask_one(node, driver, call.clone(), limit, request.sent[node].clone());
            #[cfg(feature = "simulation")]
            let answer = if mutant!(RetryUnknown) { quorum.insist(node, answer, call) } else { answer };
            answer
        };
        let mut first = self.contended.then(|| quorum.first_node(&request.subject.names));
        let mut answers = match first {
            Some(first) => FanOut::new([ask(first, &call)]).within(Some(FIRST_GRACE)),
            None => FanOut::new((0..nodes).map(|node| ask(node, &call))),
        };
        let mut tally = Tally { open: nodes, ..Tally::default() };
        let mut moved = false;
        loop {
            let counted = answers.count(
                |reply| reply::vote_for(request.subject.primitive, reply),
                |node, vote| {
                    tally.open -= 1;
                    self.tally_reply(&mut tally, node, vote);
                    tally.progress(needed, spare)
                },
            );
            // `None` after the last reply or at the time limit. The tally decides in any case.
            let _: Option<()> = counted.await;
            match (first.take(), tally.denied.first()) {
                // Another acquire has the first node's vote, and sends its request to the other nodes. This one stops.
                (Some(_), Some(left)) => {
                    let free_in = left.map_or(BELIEVED_ALONE, |left| left.min(BELIEVED_ALONE));
                    return Verdict::FirstNodeDenied { free_in };
                }
                (Some(first), None) => {
                    if let Some(slot) = tally.grants.first().and_then(|(_, granted)| granted.slots.first()) {
                        // The others grant the slots of the first node, if they can.
                        self.start = Some(slot.number);
                        call = self.call(owner);
                    }
                    answers.extend((0..nodes).filter(|node| *node != first).map(|node| ask(node, &call)));
                }
                (None, _) if !moved && tally.united < needed && tally.grants.len() >= needed => {
                    moved = true;
                    let moves = self.moves(driver, &tally);
                    tally.open += moves.len();
                    answers.extend(moves);
                    tally.moving = Self::keep_largest_group(&mut tally);
                    tally.united = tally.count_largest();
                }
                (None, _) => break,
            }
        }
        if tally.united < needed {
            return self.verdict_without_quorum(tally, spare).await;
        }
        let since = if mutant!(DeadlineFromReply) { clock::now() } else { since };
        if !tally.missing.is_empty() {
            let (quorum, names, missing) = (quorum.clone(), self.request.subject.names.clone(), tally.missing.clone());
            // If it fails, the next ballot tries again.
            self.request.quorum.spawn_pending(async move {
                quorum.write_markers(&names, &missing, MarkerOrigin::Lost).await;
            });
        }
        let mut others = std::mem::take(&mut tally.moving);
        if tally.united < tally.grants.len() {
            if !moved {
                answers.extend(self.moves(driver, &tally));
            }
            others.extend(Self::keep_largest_group(&mut tally));
        }
        let agreed = match quorum.agree(driver, self.request.label(), &tally.grants, self.ttl).await {
            Ok(agreed) => agreed,
            Err(causes) if causes.is_empty() => return Verdict::Busy { free_in: None, split: true },
            Err(causes) => return Verdict::Unavailable { causes, permanent: false },
        };
        self.conclude(agreed, since, (&tally, &others), answers)
    }

    /// Requests that move a permit to the slots of the largest group, on the nodes that granted others.
    fn moves(&self, driver: Driver, tally: &Tally) -> Vec<NodeRequest> {
        let quorum = &self.request.quorum;
        let Some(chosen) = tally.largest_group() else { return Vec::new() };
        let others = tally.grants.iter().filter(|(_, granted)| !granted.same_slots(chosen));
        let moved = others.map(|(node, _)| {
            let call = quorum.protocol.relocate_permit(self.request.label(), &chosen.slots, quorum.proposal());
            // A release that overtakes this request leaves nothing that it could move.
            quorum.ask_one(*node, driver, call, quorum.settings.reply_timeout(self.ttl), SentOn::default())
        });
        moved.collect()
    }

    /// Removes the grants of other slots than those of the largest group, and returns their nodes. The permit counts
    /// there only once it is moved.
    fn keep_largest_group(tally: &mut Tally) -> Vec<usize> {
        let Some(chosen) = tally.largest_group().cloned() else { return Vec::new() };
        let (kept, others) =
            std::mem::take(&mut tally.grants).into_iter().partition(|(_, granted)| granted.same_slots(&chosen));
        tally.grants = kept;
        let others: Vec<(usize, Granted)> = others;
        others.into_iter().map(|(node, _)| node).collect()
    }

    /// Makes the grant of a quorum that agreed on its token. The very last step: a grant that arrives with less than a
    /// twentieth of its ttl left does not count.
    /// `others`: the nodes that have the permit with other slots.
    fn conclude(
        &mut self,
        agreed: Granted,
        since: Stamp,
        (tally, others): (&Tally, &[usize]),
        late: FanOut,
    ) -> Verdict {
        let quorum = &self.request.quorum;
        let deadline = Deadline::new(since, quorum.settings.validity(self.ttl));
        if deadline.left() < self.ttl / 20 && !mutant!(NoCheckOnReturn) {
            let cause = format!("granted, but only after {:.1?} of a lease of {:?}", since.elapsed(), self.ttl);
            let causes = tally.grants.iter().map(|(node, _)| quorum.cause(*node, cause.as_str())).collect();
            return Verdict::Unavailable { causes, permanent: false };
        }
        self.settled = true;
        let presences = (0..quorum.nodes.len())
            .map(|node| match self.granted[node] {
                // It is there, but does not count: as if the node had not answered.
                Some(true) if others.contains(&node) => Presence::unanswered(&self.request.sent[node]),
                Some(true) => Presence::Held(deadline),
                Some(false) => Presence::Absent,
                None => Presence::unanswered(&self.request.sent[node]),
            })
            .collect();
        let (field, token, slots) = (self.request.field.clone(), agreed.token as u64, agreed.slots);
        let right = Right { field, token, slots, since, ttl: self.ttl };
        Verdict::Held(Grant { right, spread: Spread { presences, late, sent: self.request.sent.clone() } })
    }

    fn tally_reply(&mut self, tally: &mut Tally, node: usize, answer: Result<(Vote, i64), NodeError>) {
        let quorum = &self.request.quorum;
        let (vote, time) = match answer {
            Ok(vote) => vote,
            Err(error) if error.kind == NodeErrorKind::WrongType => {
                self.granted[node] = Some(false);
                tally.conflicts += 1;
                return;
            }
            Err(error) => {
                // If the request may have run, its effect stays unknown. A move that failed leaves the earlier grant.
                if !error.may_have_run() && self.granted[node] != Some(true) {
                    self.granted[node] = Some(false);
                }
                tally.permanent += usize::from(error.is_permanent());
                tally.causes.push(quorum.cause(node, error));
                return;
            }
        };
        quorum.learn_time(node, time);
        self.granted[node] = Some(matches!(vote, Vote::Granted(_)));
        tally.marked += usize::from(vote != Vote::Unmarked);
        tally.remove_grant(node);
        tally.moving.retain(|other| *other != node);
        match vote {
            Vote::Granted(granted) => tally.add_grant(node, granted),
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

    async fn verdict_without_quorum(&mut self, mut tally: Tally, spare: usize) -> Verdict {
        let quorum = self.request.quorum.clone();
        if !tally.missing.is_empty()
            && let Some(verdict) = Box::pin(self.handle_missing_markers(&mut tally, spare)).await
        {
            return verdict;
        }
        if tally.conflicts > spare {
            return Verdict::Conflict;
        }
        if tally.conflicts + tally.causes.len() > spare {
            return Verdict::Unavailable { permanent: tally.permanent > spare, causes: tally.causes };
        }
        // A quorum may be free once the q-th node in the order of these times is free. The nodes that granted are free
        // now: this ballot releases them.
        let mut free_in: Vec<Duration> = tally.denied.iter().flatten().copied().collect();
        let granted = tally.grants.len() + tally.moving.len();
        free_in.extend(std::iter::repeat_n(Duration::ZERO, granted));
        free_in.sort_unstable();
        let free_in = free_in.get(quorum.needed() - 1).or(free_in.last()).copied();
        Verdict::Busy { free_in, split: granted > 0 }
    }

    /// Writes the markers of nodes that lack them, if it is certain that the deployment is new or that they lost their
    /// keys. Returns the verdict if the ballot ends with that.
    async fn handle_missing_markers(&self, tally: &mut Tally, spare: usize) -> Option<Verdict> {
        let quorum = self.request.quorum.clone();
        if quorum.wait_for_provisioning().await {
            return Some(Verdict::Provisioned { causes: std::mem::take(&mut tally.causes) });
        }
        let everywhere = tally.missing.len() == quorum.nodes.len();
        if everywhere && quorum.settings.config.strict {
            let detail = "no node has a marker; call init_nodes() once for a new deployment \
                          (initNodes() in Node and on the JVM)";
            let causes = tally.missing.iter().map(|(node, _)| quorum.cause(*node, detail)).collect();
            return Some(Verdict::Unavailable { causes, permanent: true });
        }
        // While some nodes do not answer, it is unknown whether the others are new or have lost their keys. After
        // `patience` they count as having lost them, which is the safe assumption.
        let waited_enough = {
            let mut unmarked = quorum.unmarked.lock();
            unmarked.get_or_insert_with(Instant::now).elapsed() >= quorum.settings.config.patience
        };
        if everywhere || tally.marked > 0 || waited_enough {
            let (names, missing) = (self.request.subject.names.clone(), tally.missing.clone());
            let writing = quorum.clone();
            // Even if the caller is cancelled: with markers on some nodes only, the others would count as having
            // lost their keys.
            let written = quorum.run_to_completion(async move {
                if everywhere {
                    writing.provision_deployment(&names, &missing).await
                } else {
                    writing.write_markers(&names, &missing, MarkerOrigin::Lost).await
                }
            });
            let Some(failed) = written.await else {
                return Some(Verdict::Unavailable { causes: std::mem::take(&mut tally.causes), permanent: false });
            };
            *quorum.unmarked.lock() = None;
            if failed.len() > spare {
                let permanent = failed.iter().filter(|(_, error)| error.is_permanent()).count() > spare;
                let causes = failed.into_iter().map(|(node, error)| quorum.cause(node, error)).collect();
                return Some(Verdict::Unavailable { causes, permanent });
            }
        }
        if everywhere {
            quorum.wait_for_provisioning().await;
            return Some(Verdict::Provisioned { causes: std::mem::take(&mut tally.causes) });
        }
        if tally.marked > 0 || waited_enough {
            // Until now their cause was that they have no marker yet. Now it is certain that they lost their keys.
            let detail = format!("lost its keys, votes again in {} s", quorum.settings.quarantine().as_secs() + 1);
            for (node, _) in &tally.missing {
                let cause = quorum.cause(*node, detail.as_str());
                tally.causes.iter_mut().filter(|known| known.node == cause.node).for_each(|known| {
                    known.cause.clone_from(&cause.cause);
                });
            }
        }
        None
    }

    /// Marks the ballot as settled, and returns the nodes that may have granted: for each the connection that carried
    /// the request, and whether it confirmed the grant.
    fn take_leftovers(&mut self) -> Vec<(usize, ConnectionId, bool)> {
        self.settled = true;
        let unsettled = self.granted.iter().enumerate().filter(|(_, granted)| match granted {
            Some(granted) => *granted,
            None => !mutant!(ReleaseKnownOnly),
        });
        let known = unsettled.map(|(node, granted)| (node, granted.is_some()));
        known.filter_map(|(node, known)| Some((node, self.request.sent[node].get()?, known))).collect()
    }

    /// Returns a function that releases, in the background, what this ballot may have acquired by then. It does not
    /// need the ballot, which may still be running.
    pub(crate) fn undo_later(&self) -> impl FnOnce() + Send + use<> {
        let request = self.request.clone();
        move || {
            let sent = request.sent.iter().enumerate().filter_map(|(node, sent)| Some((node, sent.get()?, false)));
            let call = request.quorum.protocol.release(request.label(), true);
            drop(request.quorum.clean_up(sent, &call));
        }
    }

    /// Releases, in the background, what this ballot acquired. `announce`: notify waiters, since this process does not
    /// try again. If there was anything to release, the returned channel closes once that is done or given up.
    pub(crate) fn undo(&mut self, announce: bool) -> Option<mpsc::Receiver<()>> {
        if mutant!(KeepPartialVotes) {
            self.settled = true;
            return None;
        }
        let call = self.request.quorum.protocol.release(self.request.label(), announce);
        let leftovers = self.take_leftovers();
        let any = !leftovers.is_empty();
        let undone = self.request.quorum.clean_up(leftovers, &call);
        any.then_some(undone)
    }
}

impl Quorum {
    /// Bumps the counters of a quorum of nodes to the largest granted token, of a permit for each of its slots, and
    /// returns it. If too few nodes could be bumped, the error has the causes of those that failed. It has no causes if
    /// these nodes would not have been enough: other nodes have granted another tenure since.
    pub(crate) async fn agree(
        &self,
        driver: Driver,
        label: Label<'_>,
        grants: &[(usize, Granted)],
        ttl: Duration,
    ) -> Result<Granted, Vec<NodeCause>> {
        let mut each = grants.iter().map(|(_, granted)| granted);
        let first = each.next().cloned().unwrap_or_else(|| Granted::of_lock(0));
        let largest = each.fold(first, |largest, granted| largest.max(granted));
        let mut agreed = grants.iter().filter(|(_, granted)| *granted == largest).count();
        if agreed >= self.needed() || mutant!(NaiveMax) {
            return Ok(largest);
        }
        let mut causes = Vec::new();
        let behind = grants.iter().filter(|(_, granted)| *granted != largest);
        let mut bumps = FanOut::new(behind.map(|(node, granted)| {
            let call = self.protocol.bump(label, granted, &largest);
            self.ask_one(*node, driver, call, self.settings.reply_timeout(ttl), SentOn::default())
        }));
        let bumped = bumps.count(reply::done, |node, answer| {
            match answer {
                Ok(done) => agreed += usize::from(done),
                Err(error) => causes.push(self.cause(node, error)),
            }
            if agreed >= self.needed() { Count::Decided(()) } else { Count::More }
        });
        if bumped.await.is_some() {
            return Ok(largest);
        }
        if agreed + causes.len() < self.needed() {
            // Even if they had answered, no quorum would agree.
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
