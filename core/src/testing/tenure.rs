//! A tenure on five nodes, told by hand what the nodes answer.

use super::{renewal::FIRST_PAUSE, *};
use crate::{
    clock::Deadline,
    config::Config,
    event,
    process::driver::Driver,
    protocol::{
        reply::{Renewed, TOKENS},
        script::Reply,
    },
    quorum::{Asked, FanOut, Presence},
    server::{ConnectionId, Node, NodeError, NodeErrorKind, SentOn},
    testing::scripted::Scripted,
    wait::registry::{Local, Registry},
};

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(30);

/// Five nodes, the first of which extend what they are asked to.
fn quorum(extending: usize) -> Arc<Quorum> {
    let urls = (0..NODES).map(|node| format!("memory://tenure-{node}"));
    let settings = Config::new(urls).validate().unwrap();
    let node = |node| -> Arc<dyn Node> {
        Scripted::new(format!("tenure-{node}"), move |_| {
            let silent = || NodeError::new(NodeErrorKind::NotRun, "down");
            if node < extending { Ok(Reply::List(vec![Reply::Int(1)])) } else { Err(silent()) }
        })
    };
    Arc::new(Quorum::new((0..NODES).map(node).collect(), Arc::new(settings)))
}

/// A tenure that was granted so long ago that a renewal is due.
fn tenure(quorum: &Arc<Quorum>, presence: impl Fn(usize, Deadline) -> Presence) -> Arc<Tenure> {
    tenure_for(quorum, None, presence)
}

/// The same, which is held no longer than `max_hold`.
fn tenure_for(
    quorum: &Arc<Quorum>,
    max_hold: Option<Duration>,
    presence: impl Fn(usize, Deadline) -> Presence,
) -> Arc<Tenure> {
    let since = clock::now().back(TTL * 2 / 5);
    let deadline = Deadline::new(since, quorum.settings.validity(TTL));
    let terms = Terms {
        names: Arc::new(Names::new("x".to_owned(), &quorum.settings)),
        owner: OwnerKey::Explicit("me".to_owned()),
        field: "=me:1".to_owned(),
        primitive: Primitive::Lock,
        slots: Vec::new(),
        ttl: TTL,
        fixed: false,
        adaptive: false,
        max_hold,
        thread: None,
        identity: Weak::new(),
    };
    let presences = (0..NODES).map(|node| presence(node, deadline)).collect();
    let grant = Grant { token: 1, slots: Vec::new(), since, presences, late: FanOut::default(), sent: sent() };
    let tenure = Tenure::new(terms, grant, Claim::new(Some(TTL)), Weak::new(), quorum.clone(), event::trace());
    // Somebody refers to it.
    tenure.handles.fetch_add(1, Relaxed);
    tenure
}

fn sent() -> Vec<SentOn> {
    let connection = ConnectionId { driver: Driver::Background, number: 1, peer: None, run: None, server: None };
    let sent: Vec<SentOn> = (0..NODES).map(|_| SentOn::default()).collect();
    for sent in &sent {
        sent.set(connection.clone()).unwrap();
    }
    sent
}

/// Begins a round of renewal.
fn round(tenure: &Tenure) -> (Vec<usize>, Stamp) {
    let Plan::Renew { nodes, sent, .. } = tenure.look(clock::now(), &[]) else {
        panic!("a third of the lease is over")
    };
    (nodes, sent)
}

/// A round in which two of five nodes have answered, and an extension that the same two have: no quorum renewed the
/// lease, so the round goes on.
#[tokio::test]
async fn what_is_extended_is_no_answer_to_a_renewal() {
    let tenure = tenure(&quorum(2), |_, deadline| Presence::Held(deadline));
    let (nodes, sent) = round(&tenure);
    assert_eq!(nodes.len(), NODES);
    for node in 0..2 {
        tenure.renewed(node, Renewed::Extended, TTL, sent);
    }
    assert!(matches!(tenure.clone().extend(Driver::Background, TTL).await, Err(Fallen::Unanswered(_))));
    for node in 2..NODES {
        tenure.renewal_failed(node);
    }
    assert!(tenure.patience() <= FIRST_PAUSE, "the round is tried on soon, not in {:?}", tenure.patience());
    tenure.renewed(2, Renewed::Extended, TTL, sent);
    assert!(tenure.patience() > FIRST_PAUSE * 10, "a third node renewed it: the round is over");
}

/// An answer to the acquire that comes late says less than a renewal that has been answered since.
#[tokio::test]
async fn a_late_grant_moves_no_deadline_back() {
    for late in [
        Ok(Reply::Text(format!("1 {} 1", TOKENS.start()))),
        Err(NodeError::new(NodeErrorKind::NotRun, "down")),
        Err(NodeError::new(NodeErrorKind::Unknown, "silent")),
    ] {
        let tenure = tenure(&quorum(NODES), |node, deadline| match node {
            0..3 => Presence::Held(deadline),
            3 => Presence::Absent,
            _ => Presence::Unknown(None),
        });
        let (_, sent_at) = round(&tenure);
        for node in [0, 1, 4] {
            tenure.renewed(node, Renewed::Extended, TTL, sent_at);
        }
        let renewed = tenure.remaining();
        let answer = late.clone();
        let answers = FanOut::new([Asked::new(4, Box::pin(async move { answer }))]);
        tenure.clone().absorb_late_grants(answers, sent(), tenure.since).await;
        assert!(tenure.remaining() > renewed.saturating_sub(TTL / 10), "{late:?}: {:?}", tenure.remaining());
    }
}

/// The watchdog looks again when the tenure must end, whatever else is due later.
#[tokio::test]
async fn max_hold_ends_a_tenure_when_it_is_over() {
    let left = Duration::from_millis(100);
    let tenure = tenure_for(&quorum(NODES), Some(TTL * 2 / 5 + left), |_, deadline| Presence::Held(deadline));
    let (nodes, sent) = round(&tenure);
    for node in nodes {
        tenure.renewed(node, Renewed::Extended, TTL, sent);
    }
    assert!(tenure.patience() <= left, "left alone for {:?}", tenure.patience());
}

/// An owner's tenure ends in one thread while another nests in it.
#[tokio::test]
async fn nobody_nests_in_a_tenure_that_ended() {
    let tenure = tenure(&quorum(NODES), |_, deadline| Presence::Held(deadline));
    let claim = || Claim::new(Some(TTL));
    assert_eq!(tenure.claim(&claim(), Weak::new(), TTL), Ok(None));
    tenure.give_back();
    assert_eq!(tenure.claim(&claim(), Weak::new(), TTL), Err(Fate::Released));
}

/// Two calls of one owner, each with a grant of its own since the first was lost in between: the owner has the lock.
#[tokio::test]
async fn the_newest_tenure_of_an_owner_counts() {
    let (registry, quorum) = (Registry::default(), quorum(NODES));
    let (lost, held) = (
        tenure(&quorum, |_, deadline| Presence::Held(deadline)),
        tenure(&quorum, |_, deadline| Presence::Held(deadline)),
    );
    assert!(registry.insert_first(&lost));
    lost.lose(LostReason::Deleted);
    assert!(registry.insert_first(&held));
    let Local::Own(own) = registry.look("x", &held.terms.owner) else { panic!("nobody has it") };
    assert!(Arc::ptr_eq(&own, &held));
    registry.remove(&held);
    let Local::Own(own) = registry.look("x", &held.terms.owner) else { panic!("the loss is forgotten") };
    assert!(Arc::ptr_eq(&own, &lost));
}
