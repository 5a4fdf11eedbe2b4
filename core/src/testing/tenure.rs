//! Tests of a tenure on five nodes whose replies the test supplies.

use super::{
    batches::{Renewal, renew},
    renewal::FIRST_PAUSE,
    upkeep::prolong,
    *,
};
use crate::{
    clock::Deadline,
    config::{Config, TokenKey},
    event,
    process::driver::Driver,
    protocol::{
        names::Names,
        primitive::Primitive,
        reply::{Renewed, TOKENS},
        script::{Reply, ScriptCall},
        subject::Subject,
    },
    quorum::{FanOut, NodeRequest, Presence},
    server::{ConnectionId, Node, NodeError, NodeErrorKind, SentOn},
    testing::scripted::Scripted,
    wait::registry::{Local, Registry},
};

const NODES: usize = 5;
const TTL: Duration = Duration::from_secs(30);

/// Five nodes, of which the first `extending` extend every lease and the others are down.
fn quorum(extending: usize) -> Arc<Quorum> {
    quorum_of(
        |_| {},
        move |node, _| {
            let silent = || NodeError::new(NodeErrorKind::NotRun, "down");
            if node < extending { Ok(Reply::List(vec![Reply::Int(1)])) } else { Err(silent()) }
        },
    )
}

/// Five nodes that reply with `answer`.
fn quorum_of(
    change: impl FnOnce(&mut Config),
    answer: impl Fn(usize, &ScriptCall) -> Result<Reply, NodeError> + Clone + Send + Sync + 'static,
) -> Arc<Quorum> {
    let mut config = Config::new((0..NODES).map(|node| format!("memory://tenure-{node}")));
    change(&mut config);
    let settings = config.validate().unwrap();
    let node = |node| -> Arc<dyn Node> {
        let answer = answer.clone();
        Scripted::new(format!("tenure-{node}"), move |call| answer(node, call))
    };
    Arc::new(Quorum::new((0..NODES).map(node).collect(), Arc::new(settings)))
}

/// A tenure that was granted long enough ago that a renewal is due.
fn tenure(quorum: &Arc<Quorum>, presence: impl Fn(usize, Deadline) -> Presence) -> Arc<Tenure> {
    tenure_for(quorum, None, presence)
}

/// The same with a `max_hold`.
fn tenure_for(
    quorum: &Arc<Quorum>,
    max_hold: Option<Duration>,
    presence: impl Fn(usize, Deadline) -> Presence,
) -> Arc<Tenure> {
    named(quorum, "x", max_hold, presence)
}

fn named(
    quorum: &Arc<Quorum>,
    name: &str,
    max_hold: Option<Duration>,
    presence: impl Fn(usize, Deadline) -> Presence,
) -> Arc<Tenure> {
    let terms = Terms { max_hold, ..terms(quorum, name) };
    granted(quorum, terms, Claim::new(Some(TTL)), presence)
}

fn terms(quorum: &Quorum, name: &str) -> Terms {
    Terms {
        subject: Subject::new(Primitive::Lock, Arc::new(Names::new(name.to_owned(), &quorum.settings))),
        owner: OwnerKey::Explicit("me".to_owned()),
        right: Right {
            field: "=me:1".to_owned(),
            token: 1,
            slots: Vec::new(),
            // Long enough ago that a renewal is due.
            since: clock::now().back(TTL * 2 / 5),
            ttl: TTL,
        },
        fixed: false,
        adaptive: false,
        max_hold: None,
        min_hold: None,
        thread: None,
        identity: Weak::new(),
    }
}

fn granted(
    quorum: &Arc<Quorum>,
    terms: Terms,
    claim: Arc<Claim>,
    presence: impl Fn(usize, Deadline) -> Presence,
) -> Arc<Tenure> {
    let deadline = Deadline::new(terms.right.since, quorum.settings.validity(TTL));
    let presences = (0..NODES).map(|node| presence(node, deadline)).collect();
    let spread = Spread { presences, late: FanOut::default(), sent: sent() };
    let tenure = Tenure::new(terms, spread, claim, Weak::new(), quorum.clone(), event::trace());
    // A handle refers to it, so it is no orphan.
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

/// Starts a round of renewals.
fn round(tenure: &Tenure) -> (Vec<usize>, Stamp) {
    let Plan::Renew { nodes, sent, .. } = tenure.plan(clock::now(), &[]) else {
        panic!("a third of the lease is over")
    };
    (nodes, sent)
}

#[tokio::test]
async fn an_orphan_is_renewed_again_once_its_owner_is_back() {
    for nested in [Claim::new(Some(TTL)), Claim::new(None)] {
        let tenure = tenure(&quorum(NODES), |_, deadline| Presence::Held(deadline));
        tenure.handles.store(0, Relaxed);
        assert!(!matches!(tenure.plan(clock::now(), &[]), Plan::Renew { .. }), "nobody refers to it");
        let lock_object = Arc::new(());
        tenure.claim(&nested, Arc::downgrade(&lock_object), TTL).unwrap();
        tenure.handles.fetch_add(1, Relaxed);
        round(&tenure);
    }
}

/// Nodes in quarantine are an outage, and no conflict.
#[tokio::test]
async fn an_upgrade_says_which_nodes_do_not_vote() {
    let quorum = quorum_of(
        |_| {},
        |node, call| {
            Ok(match (call.script.name, node) {
                ("read_write/upgrade", 0) => Reply::Text(format!("1 {} 1", TOKENS.start())),
                ("read_write/upgrade", _) => Reply::Text("3 60000000 1".to_owned()),
                _ => Reply::Int(1),
            })
        },
    );
    let subject = Subject::new(Primitive::Read, Arc::new(Names::new("x".to_owned(), &quorum.settings)));
    let terms = Terms { subject, ..terms(&quorum, "x") };
    let tenure = granted(&quorum, terms, Claim::new(Some(TTL)), |_, deadline| Presence::Held(deadline));
    let Err(ExtendError::Unanswered(failures)) = tenure.upgrade().await else { panic!("too few nodes granted it") };
    assert!(failures.len() >= 3, "{failures:?}");
}

/// Nodes that confirm an upgrade after the others keep the later end of the reader, too.
#[tokio::test]
async fn a_late_upgrade_shortens_no_lease() {
    let quorum = quorum(NODES);
    let subject = Subject::new(Primitive::Write, Arc::new(Names::new("x".to_owned(), &quorum.settings)));
    let terms = Terms { subject, ..terms(&quorum, "x") };
    let extended = Deadline::new(clock::now(), TTL * 4);
    let unanswered = Presence::unanswered(&sent()[0]);
    let tenure = granted(&quorum, terms, Claim::new(None), |node, _| match node {
        0..3 => Presence::Held(extended),
        _ => unanswered.clone(),
    });
    let grant = || async { Ok(Reply::Text(format!("1 {} 1", TOKENS.start()))) };
    let late = FanOut::new((3..NODES).map(|node| NodeRequest::new(node, Box::pin(grant()))));
    let before = vec![Presence::Held(extended); NODES];
    tenure.clone().absorb_late_upgrades(late, (TTL, clock::now()), before).await;
    for known in &tenure.state.lock().presences {
        assert!(matches!(known, Presence::Held(until) if until.left() > TTL * 2), "{known:?}");
    }
}

/// Two of five nodes answered a round of renewals, and the same two an extension. No quorum renewed the lease, so the
/// round continues.
#[tokio::test]
async fn what_is_extended_is_no_answer_to_a_renewal() {
    let tenure = tenure(&quorum(2), |_, deadline| Presence::Held(deadline));
    let (nodes, sent) = round(&tenure);
    assert_eq!(nodes.len(), NODES);
    for node in 0..2 {
        tenure.renewal_answered(node, Renewed::Extended, TTL, sent);
    }
    assert!(matches!(tenure.clone().extend(Driver::Background, TTL).await, Err(ExtendError::Unanswered(_))));
    for node in 2..NODES {
        tenure.renewal_failed(node);
    }
    assert!(tenure.time_to_check() <= FIRST_PAUSE, "the round is tried on soon, not in {:?}", tenure.time_to_check());
    tenure.renewal_answered(2, Renewed::Extended, TTL, sent);
    assert!(tenure.time_to_check() > FIRST_PAUSE * 10, "a third node renewed it: the round is over");
}

/// A reply to a renewal after the deadline ends the tenure for the reason that no reply would.
#[tokio::test]
async fn a_renewal_that_is_answered_too_late_is_unanswered() {
    let quorum = quorum(NODES);
    let mut terms = terms(&quorum, "x");
    terms.right.since = clock::now().back(TTL * 7 / 5);
    let tenure = granted(&quorum, terms, Claim::new(Some(TTL)), |_, deadline| Presence::Held(deadline));
    let Plan::Renew { sent, .. } = tenure.plan(clock::now().back(TTL), &[]) else { panic!("it was due then") };
    for node in 1..NODES {
        tenure.renewal_failed(node);
    }
    tenure.renewal_answered(0, Renewed::Extended, TTL, sent);
    assert_eq!(tenure.current_fate(), Fate::Lost(LostReason::Unreachable));
}

/// A fixed lease ends when its time is over, whether or not a check of its nodes is answered.
#[tokio::test]
async fn a_fixed_lease_expires_while_it_is_checked() {
    let quorum = quorum(NODES);
    let mut terms = terms(&quorum, "x");
    terms.right.since = clock::now().back(TTL * 7 / 5);
    let tenure = granted(&quorum, terms, Claim::new(None), |_, deadline| Presence::Held(deadline));
    assert!(matches!(tenure.plan(clock::now().back(TTL), &[0]), Plan::Renew { .. }), "a node came back");
    assert!(matches!(tenure.plan(clock::now(), &[]), Plan::Forget));
    assert_eq!(tenure.current_fate(), Fate::Lost(LostReason::Expired));
}

/// A late reply to the acquire does not override a renewal that was answered before it.
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
            _ => Presence::NotSent,
        });
        let (_, sent_at) = round(&tenure);
        for node in [0, 1, 4] {
            tenure.renewal_answered(node, Renewed::Extended, TTL, sent_at);
        }
        let renewed = tenure.remaining();
        let answer = late.clone();
        let answers = FanOut::new([NodeRequest::new(4, Box::pin(async move { answer }))]);
        tenure.clone().absorb_late_grants(answers, sent()).await;
        assert!(tenure.remaining() > renewed.saturating_sub(TTL / 10), "{late:?}: {:?}", tenure.remaining());
    }
}

/// A node may run the acquire after a request that was sent later. Its reply to that one says nothing about the grant:
/// the release must go there.
#[tokio::test]
async fn a_reply_from_before_a_grant_does_not_deny_it() {
    for absent in [Renewed::Gone, Renewed::Ended, Renewed::Taken] {
        let tenure = tenure(&quorum(NODES), |node, deadline| match node {
            4 => Presence::NotSent,
            _ => Presence::Held(deadline),
        });
        let before = clock::now().back(Duration::from_millis(1));
        let grant = Ok(Reply::Text(format!("1 {} 1", TOKENS.start())));
        let answers = FanOut::new([NodeRequest::new(4, Box::pin(async move { grant }))]);
        tenure.clone().absorb_late_grants(answers, sent()).await;
        tenure.renewal_answered(4, absent, TTL, before);
        let releases = |tenure: &Tenure| tenure.state.lock().may_be_on().iter().any(|(node, _)| *node == 4);
        assert!(releases(&tenure), "{absent:?}");
        tenure.renewal_answered(4, absent, TTL, clock::now());
        assert!(!releases(&tenure), "{absent:?} of a request that was sent later");
    }
}

/// The watchdog wakes up when the tenure must end, even if its next other check is due later.
#[tokio::test]
async fn max_hold_ends_a_tenure_when_it_is_over() {
    let left = Duration::from_millis(100);
    let tenure = tenure_for(&quorum(NODES), Some(TTL * 2 / 5 + left), |_, deadline| Presence::Held(deadline));
    let (nodes, sent) = round(&tenure);
    for node in nodes {
        tenure.renewal_answered(node, Renewed::Extended, TTL, sent);
    }
    assert!(tenure.time_to_check() <= left, "left alone for {:?}", tenure.time_to_check());
}

/// Releases a tenure on five nodes. Returns the script and the arguments of each request.
async fn released(min_hold: Option<Duration>, collected: bool) -> Vec<(&'static str, Vec<String>)> {
    let requests = Arc::<Mutex<Vec<_>>>::default();
    let seen = requests.clone();
    let quorum = quorum_of(
        |_| {},
        move |_, call| {
            seen.lock().push((call.script.name, call.args.to_vec()));
            Ok(Reply::Int(1))
        },
    );
    let (mut terms, claim) = (Terms { min_hold, ..terms(&quorum, "x") }, Claim::new(Some(TTL)));
    "u:1".clone_into(&mut terms.right.field);
    let tenure = granted(&quorum, terms, claim.clone(), |_, deadline| Presence::Held(deadline));
    if collected {
        assert!(tenure.collect(&claim));
    }
    assert!(matches!(tenure.unclaim(&claim), Unclaimed::WasLast(Fate::Released)));
    assert_eq!(tenure.release(Driver::Background).await, ReleaseOutcome::Released);
    // The release returns at the quorum's replies.
    while requests.lock().len() < NODES {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    requests.lock().clone()
}

#[tokio::test]
async fn a_release_without_a_rest_is_the_plain_one() {
    let plain = vec![("release", vec!["u:1".to_owned(), "redisson_lock__channel:{x}".to_owned()]); NODES];
    assert_eq!(released(None, true).await, plain);
    assert_eq!(released(Some(Duration::ZERO), true).await, plain, "it is over");
    assert_eq!(released(Some(TTL), false).await, plain, "no caller had it");
}

#[tokio::test]
async fn a_release_before_min_hold_is_over_leaves_the_rest() {
    let requests = released(Some(TTL), true).await;
    assert_eq!(requests.len(), NODES);
    for (script, args) in requests {
        assert_eq!((script, &*args[0], &*args[1], &*args[3]), ("rest", "u:1", "~u:1", "redisson_lock__channel:{x}"));
        // It counts from when the grant was known, not from the request.
        let left: u64 = args[2].parse().unwrap();
        assert!((TTL.as_millis() as u64 * 3 / 4..=TTL.as_millis() as u64 + 1).contains(&left), "{left}");
    }
}

/// An owner's tenure ends in one thread while another thread nests in it.
#[tokio::test]
async fn nobody_nests_in_a_tenure_that_ended() {
    let tenure = tenure(&quorum(NODES), |_, deadline| Presence::Held(deadline));
    let claim = || Claim::new(Some(TTL));
    assert_eq!(tenure.claim(&claim(), Weak::new(), TTL), Ok(None));
    tenure.release_uncollected();
    assert_eq!(tenure.claim(&claim(), Weak::new(), TTL), Err(Fate::Released));
}

/// An owner got two grants, since the first was lost before the second: the owner holds the lock by the second.
#[tokio::test]
async fn the_newest_tenure_of_an_owner_counts() {
    let (registry, quorum) = (Registry::default(), quorum(NODES));
    let (lost, held) = (
        tenure(&quorum, |_, deadline| Presence::Held(deadline)),
        tenure(&quorum, |_, deadline| Presence::Held(deadline)),
    );
    assert!(registry.admit(&lost));
    lost.lose(LostReason::Deleted);
    assert!(registry.admit(&held));
    let Local::Own(own) = registry.lookup("x", &held.terms.owner) else { panic!("nobody has it") };
    assert!(Arc::ptr_eq(&own, &held));
    registry.remove(&held);
    let Local::Own(own) = registry.lookup("x", &held.terms.owner) else { panic!("the loss is forgotten") };
    assert!(Arc::ptr_eq(&own, &lost));
}

const MINUTE: Duration = Duration::from_secs(60);

/// A lease that is renewed for hours, with a `token_ttl` of one hour.
#[tokio::test]
async fn a_counter_is_due_on_each_node_once_half_of_its_ttl_is_over() {
    let tenure = tenure(&quorum(NODES), |_, deadline| Presence::Held(deadline));
    let end = clock::now();
    let at = |minute: u32| end.back((300 - minute) * MINUTE);
    let mut state = tenure.state.lock();
    // Pretends that it was granted at minute 0.
    for node in &mut state.round.nodes {
        node.counter = Deadline::new(at(0), 60 * MINUTE);
    }
    let mut due = |node, found, ttl, minute| state.prolong_counter(node, found, ttl, at(minute));
    let hour = Some(60 * MINUTE);
    assert_eq!(due(0, Renewed::Extended, TTL, 29), None);
    for found in [Renewed::Gone, Renewed::Taken, Renewed::Ended] {
        assert_eq!(due(0, found, TTL, 31), None);
    }
    assert_eq!(due(0, Renewed::Extended, Duration::ZERO, 31), None, "a check prolongs nothing");
    assert_eq!(due(0, Renewed::Extended, TTL, 31), hour);
    assert_eq!(due(0, Renewed::Extended, TTL, 60), None, "once every half");
    assert_eq!(due(1, Renewed::Extended, TTL, 60), hour, "another node has one of its own");
    assert_eq!(due(0, Renewed::Extended, TTL, 62), hour);
    // Extensions by the caller; the second is longer than the counter is kept.
    assert_eq!(due(0, Renewed::Extended, 59 * MINUTE, 63), None);
    assert_eq!(due(0, Renewed::Extended, 61 * MINUTE, 63), Some(122 * MINUTE));
    assert_eq!(due(0, Renewed::Extended, TTL, 120), None);
    state.mark_counter_due(0, at(121));
    assert_eq!(state.prolong_counter(0, Renewed::Extended, TTL, at(121)), hour);
    let mut effects = Effects::default();
    state.lose(LostReason::Deleted, &mut effects);
    assert_eq!(state.prolong_counter(2, Renewed::Extended, TTL, at(200)), None, "what is lost keeps nothing");
}

#[tokio::test]
async fn counters_of_redisson_are_never_due() {
    let quorum = quorum_of(|config| config.token_key = TokenKey::Redisson, |_, _| Ok(Reply::Int(1)));
    let tenure = tenure(&quorum, |_, deadline| Presence::Held(deadline));
    tenure.mark_counters_due();
    let (_, sent) = round(&tenure);
    assert_eq!(tenure.renewal_answered(0, Renewed::Extended, TTL, sent), None);
}

/// The requests to prolong counters on a node, each with its locks.
type Requests = Arc<Mutex<Vec<Vec<String>>>>;
/// The node's reply for these locks.
type Answer = fn(&[String]) -> Result<Reply, NodeError>;

/// Prolongs the due counters of two tenures on a node that replies with `answer`. Returns for each tenure whether its
/// counter is due again, and the requests.
async fn prolonged(answer: Answer) -> (Vec<bool>, Vec<Vec<String>>) {
    let requests = Requests::default();
    let seen = requests.clone();
    let quorum = quorum_of(
        |_| {},
        move |_, call| {
            assert_eq!(call.script.name, "prolong");
            let locks: Vec<String> = call.keys.iter().step_by(2).cloned().collect();
            assert!(call.args.chunks(3).all(|args| args == ["=me:1", "1", "3600000"]), "{:?}", call.args);
            seen.lock().push(locks.clone());
            answer(&locks)
        },
    );
    let tenures = ["x", "y"].map(|name| named(&quorum, name, None, |_, deadline| Presence::Held(deadline)));
    let mut due = Vec::new();
    for tenure in &tenures {
        tenure.mark_counters_due();
        let (_, sent) = round(tenure);
        let counter_ttl = tenure.renewal_answered(0, Renewed::Extended, TTL, sent).expect("it is due");
        due.push((tenure.clone(), counter_ttl));
    }
    prolong(quorum, 0, due).await;
    let again = tenures.map(|tenure| {
        let mut state = tenure.state.lock();
        state.prolong_counter(0, Renewed::Extended, TTL, clock::now()).is_some()
    });
    let requests = requests.lock().clone();
    (again.into(), requests)
}

#[tokio::test]
async fn what_a_node_did_not_prolong_is_due_again() {
    let both = || vec![vec!["x".to_owned(), "y".to_owned()]];
    // Either lock may have been lost on the node by then.
    let answers: [Answer; 3] = [|_| Ok(Reply::Int(0)), |_| Ok(Reply::Int(1)), |_| Ok(Reply::Int(2))];
    for answer in answers {
        assert_eq!(prolonged(answer).await, (vec![false, false], both()));
    }
    let no_answers: [Answer; 5] = [
        |_| Ok(Reply::Int(3)),
        |_| Ok(Reply::Int(-1)),
        |_| Ok(Reply::List(vec![Reply::Int(1)])),
        |_| Err(NodeError::new(NodeErrorKind::Unknown, "silent")),
        |_| Err(NodeError::new(NodeErrorKind::Refused, "OOM")),
    ];
    for answer in no_answers {
        assert_eq!(prolonged(answer).await, (vec![true, true], both()));
    }
}

/// Rights may differ between locks.
#[tokio::test]
async fn a_counter_that_may_not_be_prolonged_takes_no_other_with_it() {
    let (again, requests) = prolonged(|locks| {
        if locks.contains(&"y".to_owned()) {
            Err(NodeError::new(NodeErrorKind::Permanent, "NOPERM"))
        } else {
            Ok(Reply::Int(1))
        }
    })
    .await;
    assert_eq!(requests, [vec!["x", "y"], vec!["x"], vec!["y"]]);
    assert_eq!(again, [false, false], "nor is it asked for with every renewal");
}

/// Renews a batch of 100 tenures on a node that refuses each request for one of the first `refused` locks. Returns the
/// locks that were renewed, and the number of requests.
async fn renewed_beside(refused: usize) -> (Vec<String>, usize) {
    type Seen = Arc<Mutex<(Vec<String>, usize)>>;
    let seen = Seen::default();
    let known = seen.clone();
    let locks: Vec<String> = (0..100).map(|lock| format!("lock-{lock:02}")).collect();
    let refused = locks[..refused].to_vec();
    let quorum = quorum_of(
        |_| {},
        move |_, call| {
            let locks: Vec<String> = call.keys.iter().step_by(2).cloned().collect();
            let mut seen = known.lock();
            seen.1 += 1;
            if locks.iter().any(|lock| refused.contains(lock)) {
                return Err(NodeError::new(NodeErrorKind::Forbidden, "NOPERM"));
            }
            let extended = locks.iter().map(|_| Reply::Int(1)).collect();
            seen.0.extend(locks);
            Ok(Reply::List(extended))
        },
    );
    let mut batch = Vec::new();
    for lock in &locks {
        let tenure = named(&quorum, lock, None, |_, deadline| Presence::Held(deadline));
        let (_, sent) = round(&tenure);
        batch.push(Renewal { tenure, ttl: TTL, sent });
    }
    renew(&quorum, 0, batch.clone()).await;
    assert!(batch.iter().all(|renewal| !renewal.tenure.state.lock().round.nodes[0].in_flight), "each has its answer");
    let (mut renewed, requests) = std::mem::take(&mut *seen.lock());
    renewed.sort();
    (renewed, requests)
}

/// Whatever the order in which they are tried.
#[tokio::test]
async fn seven_tenures_that_cannot_be_renewed_take_no_other_with_them() {
    for refused in [1, 7] {
        let (renewed, _) = renewed_beside(refused).await;
        assert_eq!(renewed, (refused..100).map(|lock| format!("lock-{lock:02}")).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_node_that_refuses_everything_gets_few_requests() {
    assert_eq!(renewed_beside(100).await, (vec![], 1 + 8));
}
