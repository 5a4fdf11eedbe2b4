//! Upgrade and downgrade: a tenure of a read/write lock changes between reader and writer. It never claims more here
//! than a quorum of its nodes knows. A downgrade makes it a reader before any request is sent; an upgrade makes it a
//! writer only after a quorum confirmed.

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use tokio::{sync::mpsc, time::timeout};

use super::{ExtendError, Tenure, state::State};
use crate::{
    clock::{self, Deadline, Stamp},
    process::driver::Driver,
    protocol::{
        calls::Label,
        primitive::Primitive,
        reply::{self, Renewed, Vote},
    },
    quorum::{Count, FanOut, NodeRequest, Presence},
    server::{ConnectionId, NodeError, NodeErrorKind, SentOn},
};

/// Closes once no downgrade can reach a node any more. An upgrade waits for that: a downgrade that arrived later would
/// turn the new writer into a reader.
type OnTheWay = mpsc::Receiver<()>;

#[derive(Default)]
pub(super) struct Mode {
    /// The time of the last upgrade.
    upgraded: Option<Stamp>,
    on_the_way: Option<OnTheWay>,
    /// Held during a change. Leases of one tenure may change it at the same time: the end of one change, such as an
    /// upgrade that undoes itself, must not fall into another.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Tenure {
    /// Interprets a node's reply to a renewal for the tenure as it is now, reader or writer. `None` if the reply says
    /// nothing: the node replied that it is a reader, to a renewal that was sent before the last upgrade.
    pub(super) fn interpret(&self, found: Renewed, sent: Stamp) -> Option<Renewed> {
        if found != Renewed::Reads {
            return Some(found);
        }
        if self.primitive().reads() {
            return Some(Renewed::Extended);
        }
        let earlier = self.mode.lock().upgraded.is_some_and(|upgraded| sent.is_before(upgraded));
        (!earlier).then_some(Renewed::Taken)
    }

    /// False while a tenure that was acquired as a reader is a writer. Late replies to its acquire then say nothing
    /// about it.
    pub(super) fn has_acquired_mode(&self) -> bool {
        !self.terms.subject.primitive.reads() || self.primitive().reads()
    }

    /// Waits until no other change of it is under way. Each of those ends within the time limit of its requests.
    async fn turn_to_change(&self) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = self.mode.lock().turn.clone();
        turn.lock_owned().await
    }

    /// The nodes that may have it.
    fn may_be_on(&self) -> Vec<(usize, Presence)> {
        self.state.lock().may_be_on()
    }

    /// Downgrades a writer to a reader.
    pub(crate) async fn downgrade(self: Arc<Self>) -> Result<(), ExtendError> {
        let _turn = self.turn_to_change().await;
        if !self.reads.swap(true, SeqCst) {
            // Readers use the token above the last writer's, which no writer draws.
            self.token.fetch_add(1, SeqCst);
        }
        let (call, since) = (self.quorum.protocol.downgrade(self.label()), clock::now());
        let limit = self.quorum.settings.reply_within(self.remaining());
        let sent: Vec<SentOn> = self.quorum.nodes.iter().map(|_| SentOn::default()).collect();
        let mut answers = FanOut::new(self.may_be_on().into_iter().map(|(node, presence)| {
            let target = &self.quorum.nodes[node];
            let answer = match presence {
                // Ordered after the unanswered request that may still make it a writer there.
                Presence::Unknown(connection) => target.eval_after(connection, call.clone(), limit),
                _ => target.eval(Driver::Background, call.clone(), limit, sent[node].clone()),
            };
            NodeRequest::new(node, answer)
        }));
        let (mut done, mut failures) = (0, Vec::new());
        let counted = answers.count(reply::done, |node, answer| {
            match answer {
                Ok(true) => done += 1,
                Ok(false) => self.apply_reply(node, Renewed::Gone, since),
                Err(error) => failures.push((node, error)),
            }
            let over = done >= self.quorum.needed() || !self.is_held();
            if over { Count::Decided(()) } else { Count::More }
        });
        let _: Option<()> = counted.await;
        // Wakes waiting readers of this client.
        self.status.change(|_| {});
        let enough = done >= self.quorum.needed();
        let unanswered: Vec<usize> =
            failures.iter().filter(|(_, error)| error.may_have_run()).map(|(node, _)| *node).collect();
        self.complete_downgrade(answers, sent, unanswered);
        if enough { Ok(()) } else { Err(self.extend_error(failures)) }
    }

    /// Completes a downgrade in the background: awaits late replies, and sends the downgrade again to nodes that did
    /// not answer. The next upgrade waits until that is done.
    fn complete_downgrade(self: &Arc<Self>, mut answers: FanOut, sent: Vec<SentOn>, mut unanswered: Vec<usize>) {
        let (busy, on_the_way) = mpsc::channel(1);
        self.mode.lock().on_the_way = Some(on_the_way);
        let tenure = self.clone();
        self.quorum.spawn_pending(async move {
            while let Some((node, answer)) = answers.late().await {
                if answer.is_err_and(|error| error.may_have_run()) {
                    unanswered.push(node);
                }
            }
            let behind: Vec<(usize, ConnectionId, bool)> =
                unanswered.into_iter().filter_map(|node| Some((node, sent[node].get()?, false))).collect();
            tenure.downgrade_in_background(behind).recv().await;
            drop(busy);
        });
    }

    /// Downgrades it in the background on nodes where it may be a writer, ordered after the requests on these
    /// connections.
    fn downgrade_in_background(&self, behind: Vec<(usize, ConnectionId, bool)>) -> OnTheWay {
        self.quorum.clean_up(behind, &self.quorum.protocol.downgrade(self.label()))
    }

    /// Applies a reply that belongs to no renewal, to a request sent at `sent`.
    fn apply_reply(&self, node: usize, found: Renewed, sent: Stamp) {
        self.change(|state, effects| {
            state.apply_reply(node, found, (Duration::ZERO, sent), clock::now(), effects);
        });
    }

    fn extend_error(&self, failures: Vec<(usize, NodeError)>) -> ExtendError {
        match self.current_fate() {
            super::Fate::Held => ExtendError::Unanswered(failures),
            fate => ExtendError::Ended(fate),
        }
    }

    /// Waits until no downgrade can reach a node any more. Fails if a node does not answer in time.
    async fn until_downgrades_ended(&self) -> Result<(), ExtendError> {
        let on_the_way = self.mode.lock().on_the_way.take();
        let Some(mut on_the_way) = on_the_way else { return Ok(()) };
        let limit = self.quorum.settings.reply_within(self.remaining());
        if timeout(limit, on_the_way.recv()).await.is_ok() {
            return Ok(());
        }
        self.mode.lock().on_the_way = Some(on_the_way);
        let unanswered = |node| (node, NodeError::new(NodeErrorKind::Unknown, "has not confirmed the last change yet"));
        Err(self.extend_error((0..self.quorum.nodes.len()).map(unanswered).collect()))
    }

    /// Upgrades a reader to a writer if no other owner reads. Returns whether it is a writer now.
    pub(crate) async fn upgrade(self: Arc<Self>) -> Result<bool, ExtendError> {
        let _turn = self.turn_to_change().await;
        if !self.primitive().reads() {
            return Ok(true);
        }
        self.until_downgrades_ended().await?;
        let (ttl, since) = (self.terms.right.ttl, clock::now());
        let quorum = &self.quorum;
        let call = quorum.protocol.upgrade(self.label(), ttl, quorum.proposal());
        let limit = quorum.settings.reply_within(self.remaining());
        let sent: Vec<SentOn> = quorum.nodes.iter().map(|_| SentOn::default()).collect();
        let mut found: Vec<Option<Vote>> = vec![None; quorum.nodes.len()];
        self.state.lock().note_requested_ttl(ttl, since);
        let asked = self.may_be_on();
        let mut possible = asked.len();
        let mut answers = FanOut::new(asked.into_iter().map(|(node, _)| {
            NodeRequest::new(node, quorum.nodes[node].eval(Driver::Background, call.clone(), limit, sent[node].clone()))
        }));
        let (mut granted, mut failures) = (Vec::new(), Vec::new());
        let counted = answers.count(reply::vote, |node, answer| {
            match answer {
                Ok((vote, _)) => {
                    match &vote {
                        Vote::Granted(tokens) => granted.push((node, tokens.clone())),
                        Vote::Conflict => self.apply_reply(node, Renewed::Gone, since),
                        Vote::Denied(_) => {}
                        Vote::Quarantine(_) | Vote::Unmarked => {
                            failures.push((node, NodeError::new(NodeErrorKind::NotRun, "does not vote yet")));
                        }
                    }
                    possible -= usize::from(!matches!(vote, Vote::Granted(_)));
                    found[node] = Some(vote);
                }
                Err(error) => {
                    possible -= 1;
                    failures.push((node, error));
                }
            }
            let over = granted.len() >= quorum.needed() || possible < quorum.needed() || !self.is_held();
            if over { Count::Decided(()) } else { Count::More }
        });
        let _: Option<()> = counted.await;
        // Upgrades that were not sent yet must not follow the request that undoes the others.
        answers.retain(|node| sent[node].get().is_some());
        let writer = Label { primitive: Primitive::Write, ..self.label() };
        let agreed = if granted.len() >= quorum.needed() && self.is_held() {
            quorum.agree(Driver::Background, writer, &granted, ttl).await
        } else {
            Err(Vec::new())
        };
        let alive = !Deadline::new(since, quorum.settings.validity(ttl)).left().is_zero();
        let Some(agreed) = agreed.ok().filter(|_| alive && self.is_held()) else {
            if granted.len() >= quorum.needed() {
                let unconfirmed =
                    |(node, _)| (node, NodeError::new(NodeErrorKind::Unknown, "has not confirmed in time"));
                failures.extend(granted.into_iter().map(unconfirmed));
            }
            // Nodes that did not deny the upgrade may have made it a writer, or still may.
            let undecided = |node: &usize| !matches!(&found[*node], Some(vote) if !matches!(vote, Vote::Granted(_)));
            let behind = (0..quorum.nodes.len()).filter(undecided);
            let behind = behind.filter_map(|node| Some((node, sent[node].get()?, found[node].is_some()))).collect();
            self.mode.lock().on_the_way = Some(self.downgrade_in_background(behind));
            let denied = found.iter().flatten().any(|vote| matches!(vote, Vote::Denied(_)));
            return if denied && self.is_held() { Ok(false) } else { Err(self.extend_error(failures)) };
        };
        let before = self.become_writer(&found, &sent, (ttl, since), agreed.token);
        if !answers.is_over() {
            let late = self.clone().absorb_late_upgrades(answers, (ttl, since), before);
            quorum.spawn_pending(late);
        }
        Ok(true)
    }

    /// Makes it a writer here, after a quorum confirmed. Returns what was known of the reader on each node.
    fn become_writer(
        self: &Arc<Self>,
        found: &[Option<Vote>],
        sent: &[SentOn],
        (ttl, since): (Duration, Stamp),
        token: i64,
    ) -> Vec<Presence> {
        let (deadline, now) = (Deadline::new(since, self.quorum.settings.validity(ttl)), clock::now());
        let (reading, before) = {
            let mut state = self.state.lock();
            state.give_up_unsent();
            let before = state.presences.clone();
            state.presences = found
                .iter()
                .zip(sent)
                .zip(&before)
                .map(|((vote, sent), before)| match (vote, sent.get()) {
                    (Some(Vote::Granted(_)), _) => upgraded(before, deadline, now),
                    (None, Some(connection)) => Presence::Unknown(connection),
                    (Some(_), _) | (None, None) => Presence::Absent,
                })
                .collect();
            self.mode.lock().upgraded = Some(clock::now());
            if let Some(min_hold) = &mut state.min_hold {
                min_hold.restart(clock::now());
            }
            self.token.store(token as u64, SeqCst);
            self.reads.store(false, SeqCst);
            (still_reading(&state, &before), before)
        };
        // On these nodes the reader would only keep others out.
        self.release_later(reading);
        before
    }

    /// Applies replies to the upgrade that arrive after a quorum confirmed. `before`: what was known of the reader on
    /// each node.
    pub(super) async fn absorb_late_upgrades(
        self: Arc<Self>,
        mut late: FanOut,
        (ttl, since): (Duration, Stamp),
        before: Vec<Presence>,
    ) {
        while let Some((node, answer)) = late.late().await {
            let granted = answer.is_ok_and(|reply| matches!(reply::vote(&reply), Some((Vote::Granted(_), _))));
            if granted && !self.primitive().reads() {
                let (deadline, now) = (Deadline::new(since, self.quorum.settings.validity(ttl)), clock::now());
                let presence = upgraded(&before[node], deadline, now);
                self.change(|state, effects| state.absorb_late_grant(node, presence, now, effects));
            }
        }
    }
}

/// The presence on a node that granted an upgrade with this deadline. It was a reader until `before`, and an upgrade
/// shortens no lease.
fn upgraded(before: &Presence, deadline: Deadline, now: Stamp) -> Presence {
    Presence::Held(match before {
        Presence::Held(known) => deadline.later_at(*known, now),
        Presence::NotSent | Presence::Unknown(_) | Presence::Absent => deadline,
    })
}

/// The nodes where it is still a reader although a quorum has it as a writer.
fn still_reading(state: &State, before: &[Presence]) -> Vec<(usize, Presence)> {
    let absent = |node: usize| matches!(state.presences[node], Presence::Absent);
    let nodes = before.iter().enumerate().filter(|(node, known)| absent(*node) && !matches!(known, Presence::Absent));
    nodes.map(|(node, known)| (node, known.clone())).collect()
}
