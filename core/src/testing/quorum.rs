//! Tests of quorums in which some nodes answer late.

use std::{
    sync::{Arc, OnceLock},
    task::Context,
    time::Duration,
};

use futures_util::{
    FutureExt,
    task::{ArcWake, waker},
};
use tokio::sync::watch;

use super::{gated::Gated, scripted::Scripted};
use crate::{
    client::Client,
    config::{Config, LockOptions, Ttl},
    event,
    owner::OwnerKey,
    process::driver::Driver,
    protocol::{
        names::Names,
        primitive::{Family, Primitive},
        script::{Reply, ScriptCall},
        subject::Subject,
    },
    quorum::{Ballot, Presence, Quorum, Verdict},
    server::{BoxFuture, Node, NodeError, NodeErrorKind, memory::Memory},
    sync::Mutex,
    tenure::ReleaseOutcome,
};

const LONG: Duration = Duration::from_secs(20);

fn urls(name: &str, nodes: usize) -> Vec<String> {
    (0..nodes).map(|node| format!("memory://{name}-{node}")).collect()
}

/// A client of these nodes.
fn client(name: &str, nodes: &[Arc<Gated>]) -> Client {
    let nodes_of: Vec<Arc<dyn Node>> = nodes.iter().cloned().map(|node| -> Arc<dyn Node> { node }).collect();
    Client::with_nodes(Config::new(urls(name, nodes.len())), event::trace(), nodes_of).expect("a valid configuration")
}

fn gated(name: &str, held_back: &[&'static [&'static str]], is_mute: bool) -> Vec<Arc<Gated>> {
    let nodes = held_back.iter().enumerate();
    nodes.map(|(node, scripts)| Gated::new(&format!("{name}-{node}"), scripts, is_mute)).collect()
}

fn fixed() -> LockOptions {
    LockOptions { ttl: Ttl::Fixed(Duration::from_secs(60)), wait: Some(LONG), ..LockOptions::default() }
}

/// Two of three nodes grant. The lease is released before the acquire is sent to the third node.
#[tokio::test]
async fn an_acquire_that_was_not_sent_yet_is_not_sent_after_the_release() {
    let nodes = gated("unsent", &[&[], &[], &["acquire"]], true);
    let client = client("unsent", &nodes);
    client.init_nodes().await.expect("three nodes that answer");
    let lease = client.lock("x", fixed()).expect("a valid lock").acquire().await.expect("two of three grant");
    assert_eq!(lease.release().await.expect("a lease"), ReleaseOutcome::Released);
    nodes[2].open();
    nodes[2].has_passed("acquire").await;
    client.close().await;
    for node in 0..3 {
        assert!(!Memory::named(&format!("unsent-{node}")).exists("x"), "node {node} keeps the key");
    }
}

/// Two of three nodes grant. The third one answers another request of the tenure before it gets the acquire, and grants
/// that after all.
#[tokio::test]
async fn a_late_grant_ends_with_its_tenure_whatever_the_node_answered_before() {
    let changes: [(&str, &str); 4] = [
        ("acquire", "renew"),
        ("read_write/write", "read_write/downgrade"),
        ("read_write/write", "read_write/renew"),
        ("read_write/read", "read_write/upgrade"),
    ];
    for (acquire, change) in changes {
        let name = format!("late-{}", change.replace('/', "-"));
        let held_back: &'static [&'static str] = Box::leak(Box::new([acquire]));
        let nodes = gated(&name, &[&[], &[], held_back], false);
        let client = client(&name, &nodes);
        client.init_nodes().await.expect("three nodes that answer");
        let (lock, both) = (client.lock("x", fixed()), client.read_write_lock("x", fixed()).expect("a valid lock"));
        let acquired = match acquire {
            "acquire" => lock.expect("a valid lock").acquire().await,
            "read_write/write" => both.write().acquire().await,
            _ => both.read().acquire().await,
        };
        let lease = acquired.expect("two of three grant");
        match change {
            "read_write/downgrade" => lease.downgrade().await.expect("two of three do it"),
            "read_write/upgrade" => assert!(lease.try_upgrade().await.expect("two of three do it")),
            _ => lease.extend(LONG).await.expect("two of three do it"),
        }
        if change != "read_write/upgrade" {
            // An upgrade does not wait for the third node, and may not be sent there.
            nodes[2].has_passed(change).await;
        }
        nodes[2].open();
        nodes[2].has_passed(acquire).await;
        assert_eq!(lease.release().await.expect("a lease"), ReleaseOutcome::Released);
        client.close().await;
        for node in 0..3 {
            assert!(!Memory::named(&format!("{name}-{node}")).exists("x"), "{change}: node {node} keeps the key");
        }
    }
}

/// Polls `idle` in the thread that wakes it, so between any two drops of that thread.
struct IdleWatch {
    idle: Mutex<BoxFuture<()>>,
    node: Arc<Gated>,
    /// Whether the place had been given up when `idle` resolved.
    had_left: OnceLock<bool>,
}

impl ArcWake for IdleWatch {
    fn wake_by_ref(watch: &Arc<Self>) {
        let waker = waker(watch.clone());
        if watch.had_left.get().is_none()
            && watch.idle.lock().as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
        {
            let _ = watch.had_left.set(watch.node.did_pass("leave"));
        }
    }
}

/// A client that closes waits for its pending work, and then cancels what is left.
#[tokio::test]
async fn an_acquire_that_is_dropped_is_pending_until_its_place_is_given_up() {
    let (holding, nodes) = (gated("place", &[&[]], false), gated("place", &[&[]], false));
    let fair = || LockOptions { fair: true, ..fixed() };
    let holder = client("place", &holding).lock("x", fair()).expect("a valid lock").acquire().await.expect("a lease");
    let client = client("place", &nodes);
    let lock = client.lock("x", fair()).expect("a valid lock");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    nodes[0].has_passed("enter").await;
    let quorum = client.inner().session().expect("an open client").quorum.clone();
    let idle: BoxFuture<()> = Box::pin(async move { quorum.idle().await });
    let watch = Arc::new(IdleWatch { idle: Mutex::new(idle), node: nodes[0].clone(), had_left: OnceLock::new() });
    ArcWake::wake_by_ref(&watch);
    assert_eq!(watch.had_left.get(), None, "it waits");
    waiting.abort();
    client.close().await;
    assert_eq!(watch.had_left.get(), Some(&true));
    holder.release().await.expect("a lease");
}

/// The first acquire of a new deployment is cancelled when one of five nodes has its marker.
#[tokio::test]
async fn all_nodes_of_a_new_deployment_get_their_markers_whoever_waits() {
    let late: &[&str] = &["provision"];
    let nodes = gated("fresh", &[&[], late, late, late, late], false);
    let client = client("fresh", &nodes);
    let first = client.lock("x", fixed()).expect("a valid lock");
    let given_up = tokio::spawn(async move { first.acquire().await });
    nodes[0].has_passed("provision").await;
    given_up.abort();
    assert!(given_up.await.is_err_and(|error| error.is_cancelled()));
    for node in &nodes {
        node.open();
    }
    // Nodes in quarantine would not vote for more than a minute.
    let lease = client.lock("y", fixed()).expect("a valid lock").acquire().await.expect("a new deployment votes");
    lease.release().await.expect("a lease");
    client.close().await;
}

/// Two of three nodes are down. The third denies the lock to an acquire under contention, which tries one node first.
#[tokio::test]
async fn a_denial_by_one_node_is_no_answer_of_a_quorum() {
    let settings = Arc::new(Config::new(urls("denial", 3)).validate().expect("valid"));
    let subject = Subject::new(Primitive::Lock, Arc::new(Names::new("x".to_owned(), &settings)));
    for denies in 0..3 {
        let node = |node| -> Arc<dyn Node> {
            Scripted::new(format!("denial-{node}"), move |_| {
                let down = NodeError::new(NodeErrorKind::NotRun, "down");
                if node == denies { Ok(Reply::Text("0 30000 1".to_owned())) } else { Err(down) }
            })
        };
        let quorum = Arc::new(Quorum::new((0..3).map(node).collect(), settings.clone()));
        let owner = OwnerKey::Explicit("me".to_owned());
        let mut ballot = Ballot::new(&quorum, &subject, "=me:1".to_owned(), Duration::from_secs(30)).contended(true);
        match ballot.run(Driver::Background, &owner).await {
            Verdict::FirstNodeDenied { .. } | Verdict::Unavailable { .. } => {}
            _ => panic!("an outage counts as an answer"),
        }
    }
}

/// Runs a ballot for one of three slots on three nodes. Each replies to `take` and to `relocate` with these texts. Returns
/// the verdict, and the requests of each node, of those that this test is about: the script and its ARGV from the 6th on.
async fn ballot_for_a_slot(replies: [[&'static str; 2]; 3]) -> (Verdict, [Vec<String>; 3]) {
    ballot_in_order(replies, |_, _| async {}.boxed()).await
}

/// The same. The third node grants only once the first one has been asked to move its permit, and that one is moved after
/// this grant.
async fn ballot_with_a_late_grant(replies: [[&'static str; 2]; 3]) -> (Verdict, [Vec<String>; 3]) {
    let (asked, granted) = (watch::Sender::new(false), watch::Sender::new(false));
    let on = |event: &watch::Sender<bool>| {
        let mut event = event.subscribe();
        async move { assert!(event.wait_for(|happened| *happened).await.is_ok()) }
    };
    ballot_in_order(replies, move |node, script| match (node, script) {
        (0, "semaphore/relocate") => {
            asked.send_replace(true);
            on(&granted).boxed()
        }
        (2, "semaphore/take") => {
            let (asked, granted) = (on(&asked), granted.clone());
            async move {
                asked.await;
                granted.send_replace(true);
            }
            .boxed()
        }
        _ => async {}.boxed(),
    })
    .await
}

/// The same, with an order: `turn` returns for a node and a script when the node runs it.
async fn ballot_in_order(
    replies: [[&'static str; 2]; 3],
    turn: impl Fn(usize, &'static str) -> BoxFuture<()> + Clone + Send + Sync + 'static,
) -> (Verdict, [Vec<String>; 3]) {
    let settings = Arc::new(Config::new(urls("slots", 3)).validate().expect("valid"));
    let names = Arc::new(Names::of_family(Family::Semaphore, "x".to_owned(), &settings));
    let seen: Arc<Mutex<[Vec<String>; 3]>> = Arc::default();
    let node = |node: usize| -> Arc<dyn Node> {
        let (seen, turn) = (seen.clone(), turn.clone());
        let answer = move |call: &ScriptCall| {
            let (name, from, reply) = match call.script.name {
                "semaphore/take" => ("take", 5, Reply::Text(replies[node][0].to_owned())),
                "semaphore/relocate" => ("relocate", 5, Reply::Text(replies[node][1].to_owned())),
                "semaphore/bump" => ("bump", 2, Reply::Int(1)),
                "semaphore/leave" => ("leave", 7, Reply::Int(1)),
                _ => return Ok(Reply::Int(1)),
            };
            if name != "take" {
                let words = call.args[from..].iter().take(if name == "relocate" { 1 } else { 2 });
                seen.lock()[node]
                    .push([&[name.to_owned()], &words.cloned().collect::<Vec<_>>()[..]].concat().join(" "));
            }
            Ok(reply)
        };
        Scripted::waiting(format!("slots-{node}"), answer, move |call| turn(node, call.script.name))
    };
    let quorum = Arc::new(Quorum::new((0..3).map(node).collect(), settings.clone()));
    let permits = Primitive::Permits { count: 1, of: 3 };
    let subject = Subject::new(permits, names);
    let mut ballot = Ballot::new(&quorum, &subject, "u:1".to_owned(), Duration::from_secs(30)).of_permit(3);
    let mut verdict = ballot.run(Driver::Background, &OwnerKey::Explicit("me".to_owned())).await;
    if let Verdict::Held(grant) = &mut verdict {
        while grant.spread.late.late().await.is_some() {}
    } else if let Some(mut undone) = ballot.undo(true) {
        assert!(undone.recv().await.is_none());
    }
    let seen = seen.lock().clone();
    (verdict, seen)
}

/// The majority's slot counts at once. Its tokens are raised to the largest of them, and the third node is moved.
#[tokio::test]
async fn slots_of_a_majority_need_no_move() {
    let replies = [["1 0:300 9", "1 1:400 9"], ["1 1:101 9", ""], ["1 1:90 9", ""]];
    let (verdict, seen) = ballot_for_a_slot(replies).await;
    let Verdict::Held(grant) = verdict else { panic!("a majority granted slot 1") };
    assert_eq!((grant.right.token, grant.right.slots.len(), grant.right.slots[0].number), (101, 1, 1));
    // The node with the other slot counts once it is moved.
    assert!(matches!(grant.spread.presences[..], [Presence::Unknown(_), Presence::Held(_), Presence::Held(_)]));
    assert_eq!(seen, [vec!["relocate 1".to_owned()], vec![], vec!["bump 1:90 1:101".to_owned()]]);
}

/// Three nodes grant three slots: one set is chosen, and the other nodes are moved to it.
#[tokio::test]
async fn slots_that_differ_everywhere_are_moved_to_one_of_them() {
    let replies = [["1 2:70 9", "1 0:80 9"], ["1 1:101 9", "0 0 9"], ["1 0:90 9", ""]];
    let (verdict, seen) = ballot_for_a_slot(replies).await;
    let Verdict::Held(grant) = verdict else { panic!("one node was moved") };
    assert_eq!((grant.right.token, grant.right.slots[0].number), (90, 0));
    assert!(
        matches!(grant.spread.presences[0], Presence::Held(_))
            && matches!(grant.spread.presences[2], Presence::Held(_))
    );
    assert!(!matches!(grant.spread.presences[1], Presence::Held(_)));
    assert_eq!(seen[0], ["relocate 0", "bump 0:80 0:90"]);
    assert_eq!(seen[1], ["relocate 0"]);
}

/// No node can be moved: nothing is held, and the node that still has a permit gets a release.
#[tokio::test]
async fn slots_that_cannot_be_moved_are_given_back() {
    let replies = [["1 2:70 9", "0 0 9"], ["1 1:101 9", "0 0 9"], ["1 0:90 9", ""]];
    let (verdict, seen) = ballot_for_a_slot(replies).await;
    assert!(matches!(verdict, Verdict::Busy { split: true, .. }));
    assert_eq!(
        seen,
        [vec!["relocate 0"], vec!["relocate 0"], vec!["leave"]]
            .map(|all| all.into_iter().map(str::to_owned).collect::<Vec<_>>())
    );
}

/// The first node is asked to give up the slot that the third one grants later, so the two are no majority for it.
#[tokio::test]
async fn a_grant_that_is_being_moved_away_does_not_count() {
    let moved = [["1 2:70 9", "1 1:80 9"], ["1 1:101 9", ""], ["1 2:90 9", "1 1:91 9"]];
    let (verdict, seen) = ballot_with_a_late_grant(moved).await;
    let Verdict::Held(grant) = verdict else { panic!("the first node was moved to slot 1") };
    assert_eq!((grant.right.slots.len(), grant.right.slots[0].number), (1, 1));
    assert_eq!(seen[0][0], "relocate 1");
    let denied = [["1 2:70 9", "0 0 9"], ["1 1:101 9", ""], ["1 2:90 9", ""]];
    assert!(matches!(ballot_with_a_late_grant(denied).await.0, Verdict::Busy { split: true, .. }));
}

/// Three nodes are clusters with three masters each. Of the first cluster the second master fails in the middle of a scan.
#[tokio::test]
async fn a_scan_visits_all_servers_of_the_nodes_after_one_that_fails() {
    let visited = Arc::new(Mutex::new(Vec::new()));
    let cluster = |node| -> Arc<dyn Node> {
        let masters = ["a", "b", "c"].map(|master| format!("{node}{master}")).to_vec();
        let visited = visited.clone();
        Scripted::cluster(masters, move |call| {
            if call.script.name != "survey/scan" {
                return Ok(Reply::Int(1));
            }
            let server = call.server.as_deref().unwrap_or("any").to_owned();
            visited.lock().push(server.clone());
            match server.as_str() {
                "0b" => Err(NodeError::new(NodeErrorKind::NotRun, "down")),
                _ => Ok(Reply::List(vec![Reply::Text("0".to_owned()), Reply::Int(1), Reply::Text(server)])),
            }
        })
    };
    let nodes = (0..3).map(cluster).collect();
    let client = Client::with_nodes(Config::new(urls("clusters", 3)), event::trace(), nodes).expect("valid");
    let (mut scan, mut names) = (client.scan(), Vec::new());
    while let Some(page) = scan.next_page().await.expect("two nodes answer") {
        names.extend(page.names);
    }
    assert_eq!(names, ["0a", "1a", "1b", "1c", "2a", "2b", "2c"]);
    assert_eq!(*visited.lock(), ["0a", "0b", "1a", "1b", "1c", "2a", "2b", "2c"]);
    client.close().await;
}
