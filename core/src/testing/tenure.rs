//! A tenure on five nodes, told by hand what the nodes answer.

use super::*;
use crate::{
    config::Config,
    event,
    owner::OwnerKey,
    protocol::{reply::TOKENS, script::Reply},
    server::{Link, NodeError},
    testing::scripted::Scripted,
    wait::registry::{Local, Table},
};

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(30);

/// Five nodes, the first of which extend what they are asked to.
fn quorum(extending: usize) -> Arc<Quorum> {
    let urls = (0..NODES).map(|node| format!("memory://hold-{node}"));
    let settings = Config::new(urls).validate().unwrap();
    let node = |node| -> Arc<dyn Node> {
        Scripted::new(format!("hold-{node}"), move |_| {
            let silent = || NodeError::new(NodeErrorKind::NotRun, "down");
            if node < extending { Ok(Reply::List(vec![Reply::Int(1)])) } else { Err(silent()) }
        })
    };
    Arc::new(Quorum::new((0..NODES).map(node).collect(), Arc::new(settings)))
}

/// A tenure that was granted so long ago that a renewal is due.
fn hold(quorum: &Arc<Quorum>, place: impl Fn(usize, Deadline) -> Place) -> Arc<Hold> {
    let since = clock::now().back(TTL * 2 / 5);
    let deadline = Deadline::new(since, quorum.settings.validity(TTL));
    let terms = Terms {
        names: Arc::new(Names::new("x", "x".to_owned(), &quorum.settings)),
        owner: OwnerKey::Explicit("me".to_owned()),
        field: "=me:1".to_owned(),
        ttl: TTL,
        fixed: false,
        adaptive: false,
        max_hold: None,
        thread: None,
        identity: Weak::new(),
    };
    let places = (0..NODES).map(|node| place(node, deadline)).collect();
    let grant = Grant { token: 1, since, places, late: Answers::new(), sent: sent() };
    let hold = Hold::new(terms, grant, Claim::new(Some(TTL)), Weak::new(), quorum.clone(), event::trace());
    // Somebody refers to it.
    hold.handles.fetch_add(1, Relaxed);
    hold
}

fn sent() -> Vec<Sent> {
    let link = Link { lane: Lane::Background, number: 1, peer: None, run: None, server: None };
    let sent: Vec<Sent> = (0..NODES).map(|_| Sent::default()).collect();
    for sent in &sent {
        sent.set(link.clone());
    }
    sent
}

/// Begins a round of renewal.
fn round(hold: &Hold) -> (Vec<usize>, Stamp) {
    let Task::Renew { nodes, sent, .. } = hold.look(clock::now(), &[]) else { panic!("a third of the lease is over") };
    (nodes, sent)
}

/// A round in which two of five nodes have answered, and an extension that the same two have: no quorum renewed the
/// lease, so the round goes on.
#[tokio::test]
async fn what_is_extended_is_no_answer_to_a_renewal() {
    let hold = hold(&quorum(2), |_, deadline| Place::Yes(deadline));
    let (nodes, sent) = round(&hold);
    assert_eq!(nodes.len(), NODES);
    for node in 0..2 {
        hold.renewed(node, Renewed::Extended, TTL, sent);
    }
    assert!(matches!(hold.clone().extend(Lane::Background, TTL).await, Err(Fallen::Unanswered(_))));
    for node in 2..NODES {
        hold.renewal_failed(node);
    }
    assert!(hold.patience() <= FIRST_PAUSE, "the round is tried on soon, not in {:?}", hold.patience());
    hold.renewed(2, Renewed::Extended, TTL, sent);
    assert!(hold.patience() > FIRST_PAUSE * 10, "a third node renewed it: the round is over");
}

/// An answer to the acquire that comes late says less than a renewal that has been answered since.
#[tokio::test]
async fn a_late_grant_moves_no_deadline_back() {
    for late in [
        Ok(Reply::List(vec![Reply::Int(1), Reply::Int(*TOKENS.start()), Reply::Int(1)])),
        Err(NodeError::new(NodeErrorKind::NotRun, "down")),
        Err(NodeError::new(NodeErrorKind::Unknown, "silent")),
    ] {
        let hold = hold(&quorum(NODES), |node, deadline| match node {
            0..3 => Place::Yes(deadline),
            3 => Place::No,
            _ => Place::Maybe(None),
        });
        let (_, sent_at) = round(&hold);
        for node in [0, 1, 4] {
            hold.renewed(node, Renewed::Extended, TTL, sent_at);
        }
        let renewed = hold.remaining();
        let answers = Answers::new();
        let answer = late.clone();
        answers.push(Box::pin(async move { (4, answer) }));
        hold.clone().welcome(answers, sent(), hold.since).await;
        assert!(hold.remaining() > renewed.saturating_sub(TTL / 10), "{late:?}: {:?}", hold.remaining());
    }
}

/// Two calls of one owner, each with a grant of its own since the first was lost in between: the owner has the lock.
#[tokio::test]
async fn the_newest_tenure_of_an_owner_counts() {
    let (table, quorum) = (Table::default(), quorum(NODES));
    let (lost, held) =
        (hold(&quorum, |_, deadline| Place::Yes(deadline)), hold(&quorum, |_, deadline| Place::Yes(deadline)));
    assert!(table.insert_first(&lost));
    lost.lose(LostReason::Deleted);
    assert!(table.insert_first(&held));
    let Local::Own(own) = table.look("x", &held.terms.owner) else { panic!("nobody has it") };
    assert!(Arc::ptr_eq(&own, &held));
    table.remove(&held);
    let Local::Own(own) = table.look("x", &held.terms.owner) else { panic!("the loss is forgotten") };
    assert!(Arc::ptr_eq(&own, &lost));
}
