//! What the views show of each node: its answer to a ping, and its role, its clock and its vote. These change less often
//! than locks, so an [`Examiner`] asks for them from time to time, beside the looks.

use std::time::{Duration, Instant, SystemTime};

use futures_util::future::{Either, select};
use redlock::{Client, LockError, NodeStatus, examination::Examination, process::runtime};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use super::LOOK_LIMIT;
use crate::{
    doctor::{Facts, Outlook, Role, Vote},
    duration,
};

/// The time between two examinations, unless a node fails or comes back.
const EXAMINED_EVERY: Duration = Duration::from_secs(30);
/// How the library begins the cause of a node that gave no answer in time.
const NO_ANSWER: &str = "no answer";

/// A node at the moment of a look.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its answer to a ping.
    pub(crate) status: NodeStatus,
    /// What the last examination found.
    outlook: Outlook,
    /// How long before the look that was.
    age: Duration,
}

/// Whether a node takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition<'a> {
    Up,
    /// It answers, and votes after so long.
    InQuarantine(Duration),
    /// It answers, and does not vote: it has lost its keys, and no client has noticed.
    Unmarked,
    /// It gave no answer in time: it is frozen, or the network drops packets.
    NoAnswer(&'a str),
    /// It refused, or nobody listens there.
    Down(&'a str),
}

impl Node {
    /// A node that was not examined.
    pub(crate) fn new(status: NodeStatus) -> Self {
        Self { status, outlook: Outlook::default(), age: Duration::ZERO }
    }

    /// The node with what an examination found so long before.
    pub(crate) fn with_outlook(self, outlook: Outlook, age: Duration) -> Self {
        Self { outlook, age, ..self }
    }

    pub(crate) fn condition(&self) -> Condition<'_> {
        match (&self.status.state, self.outlook.vote) {
            (Err(why), _) if why.starts_with(NO_ANSWER) => Condition::NoAnswer(why),
            (Err(why), _) => Condition::Down(why),
            (Ok(_), Some(Vote::After(left))) if left > self.age => {
                Condition::InQuarantine(left.saturating_sub(self.age))
            }
            (Ok(_), Some(Vote::Unmarked)) => Condition::Unmarked,
            _ => Condition::Up,
        }
    }

    /// Whether it votes; `None` if that is not known, or there is no quorum.
    pub(crate) fn votes(&self) -> Option<bool> {
        let known = self.outlook.vote.is_some() && self.status.state.is_ok();
        known.then(|| self.condition() == Condition::Up)
    }

    /// Its role; `None` if it does not answer or does not tell.
    pub(crate) fn role(&self) -> Option<Role> {
        self.outlook.role.filter(|_| self.status.state.is_ok())
    }

    /// How far its clock is before those of the others, in seconds; `None` if it does not answer or does not tell.
    pub(crate) fn clock(&self) -> Option<f64> {
        self.outlook.clock.filter(|_| self.status.state.is_ok())
    }

    /// Whether its clock is off by more than NTP would leave.
    pub(crate) fn is_clock_off(&self) -> bool {
        self.clock().is_some() && self.outlook.is_off
    }

    /// Its JSON object.
    pub(crate) fn json(&self) -> Value {
        let (state, votes_in) = match self.condition() {
            Condition::Up => ("up", None),
            Condition::InQuarantine(left) => ("quarantine", Some(left.as_secs_f64())),
            Condition::Unmarked => ("unmarked", None),
            Condition::NoAnswer(_) => ("no_answer", None),
            Condition::Down(_) => ("down", None),
        };
        json!({
            "node": self.status.node,
            "state": state,
            "text": self.condition().to_string(),
            "error": self.status.state.as_ref().err(),
            "votes": self.votes(),
            "votes_in": votes_in,
            "role": self.role().map(Role::as_str),
            "replicas": self.role().and_then(Role::replicas),
            "clock": self.clock(),
            "clock_off": self.is_clock_off(),
            "version": self.status.state.as_ref().ok().and_then(|info| info.version.clone()),
            "round_trip": self.status.round_trip.as_secs_f64(),
        })
    }
}

impl std::fmt::Display for Condition<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Up => formatter.write_str("up"),
            Self::InQuarantine(left) => write!(formatter, "in quarantine, votes in {}", duration::show(*left)),
            Self::Unmarked => formatter.write_str("has lost its keys, does not vote"),
            Self::NoAnswer(why) => write!(formatter, "frozen or out of reach: {why}"),
            Self::Down(why) => write!(formatter, "down: {why}"),
        }
    }
}

/// What an examination found of each node, and when.
#[derive(Debug)]
struct Examined {
    when: SystemTime,
    outlooks: Vec<Outlook>,
}

/// An examination under way. Dropping it ends it.
#[derive(Debug)]
struct Running {
    when: SystemTime,
    task: JoinHandle<Result<Examination, LockError>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Examines the nodes beside the looks, so that a frozen one does not hold up a look.
pub(crate) struct Examiner {
    client: Client,
    last: Option<Examined>,
    running: Option<Running>,
    /// When the last one began.
    began: Option<Instant>,
    /// Which nodes answered the last look.
    answered: Vec<bool>,
}

impl Examiner {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, last: None, running: None, began: None, answered: Vec::new() }
    }

    /// Begins an examination if it is time for one.
    pub(crate) fn begin(&mut self) {
        if self.running.is_none() && self.began.is_none_or(|began| began.elapsed() >= EXAMINED_EVERY) {
            let task = runtime::background().spawn(self.client.examine(Duration::ZERO));
            self.began = Some(Instant::now());
            self.running = Some(Running { when: SystemTime::now(), task });
        }
    }

    /// The nodes with what is known of them. Waits for an examination that has just begun, for as long as a node may
    /// take to answer.
    pub(crate) async fn nodes(&mut self, pinged: Vec<NodeStatus>) -> Vec<Node> {
        self.end().await;
        let answered: Vec<bool> = pinged.iter().map(|node| node.state.is_ok()).collect();
        if self.answered != answered {
            // The next look begins one. The first look has begun its own.
            self.began = self.began.filter(|_| self.answered.is_empty());
            self.answered = answered;
        }
        let Some(Examined { when, outlooks }) = &self.last else { return pinged.into_iter().map(Node::new).collect() };
        let age = when.elapsed().unwrap_or_default();
        let known = outlooks.iter().cloned().chain(std::iter::repeat(Outlook::default()));
        pinged.into_iter().zip(known).map(|(status, outlook)| Node::new(status).with_outlook(outlook, age)).collect()
    }

    /// Takes the result of the examination under way, if it comes in time.
    async fn end(&mut self) {
        let (Some(mut running), Some(began)) = (self.running.take(), self.began) else { return };
        // A timer needs the runtime, which the caller may not be on.
        let limit = runtime::background().spawn(sleep(LOOK_LIMIT.saturating_sub(began.elapsed())));
        match select(&mut running.task, limit).await {
            Either::Left((examined, limit)) => {
                limit.abort();
                // It fails if the client was closed. Then the view ends.
                if let Ok(Ok(examination)) = examined {
                    let outlooks = Outlook::of_all(&Facts::of(examination, self.client.config()));
                    self.last = Some(Examined { when: running.when, outlooks });
                }
            }
            Either::Right(_) => self.running = Some(running),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::top::made;

    fn node(name: &str, vote: Option<Vote>) -> Node {
        let outlook = Outlook { role: Some(Role::Master(2)), clock: Some(1.5), is_off: true, vote };
        made::node(name).with_outlook(outlook, Duration::from_secs(3))
    }

    #[test]
    fn a_node_that_answers_has_all_that_is_known() {
        let waits = node("one", Some(Vote::After(Duration::from_secs(43))));
        assert_eq!(waits.condition(), Condition::InQuarantine(Duration::from_secs(40)));
        let json = waits.json();
        assert_eq!(
            (&json["state"], &json["votes"], &json["votes_in"]),
            (&"quarantine".into(), &false.into(), &40.0.into())
        );
        assert_eq!((&json["role"], &json["replicas"]), (&"master".into(), &2.into()));
        assert_eq!((&json["clock"], &json["clock_off"]), (&1.5.into(), &true.into()));
        for (vote, state, votes) in [
            (None, "up", Value::Null),
            (Some(Vote::Votes), "up", true.into()),
            (Some(Vote::Unmarked), "unmarked", false.into()),
            // Its time is over since the examination.
            (Some(Vote::After(Duration::from_secs(2))), "up", true.into()),
        ] {
            let json = node("one", vote).json();
            assert_eq!((&json["state"], &json["votes"]), (&state.into(), &votes), "{vote:?}");
        }
    }

    #[test]
    fn a_node_that_gives_no_answer_has_only_that() {
        let mut frozen = node("one", Some(Vote::Votes));
        frozen.status.state = Err("no answer within 1.0s".to_owned());
        for (node, state) in [(frozen, "no_answer"), (node("-one", Some(Vote::Votes)), "down")] {
            let json = node.json();
            assert_eq!(json["state"], state);
            for member in ["role", "clock", "votes", "version"] {
                assert!(json[member].is_null(), "{json}");
            }
        }
    }
}
