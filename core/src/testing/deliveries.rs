//! Tests of permits that a release of the same client lets in, on a node whose replies the test supplies. No request of a
//! waiter is ever granted a permit there: each permit of a waiter comes from the reply to a release.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use redlock_servers::{PATIENCE, until};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    client::Client,
    clock::{self, Stamp},
    config::{Config, LockOptions},
    lease::Lease,
    owner::OwnerKey,
    process::driver::Driver,
    protocol::{
        calls::QueueEntry,
        names::Names,
        primitive::{Family, Primitive},
        reply::Slot,
        script::{Reply, ScriptCall},
        subject::Subject,
    },
    quorum::{PLACE_TTL, Place, Quorum},
    semaphore::Semaphore,
    server::{Node, NodeError, NodeErrorKind},
    sync::Mutex,
    tenure::ReleaseOutcome,
    testing::scripted::Scripted,
};

const TTL: Duration = Duration::from_secs(30);
const DELIVERED: Slot = Slot { number: 0, token: 8 };

/// A client, and its only node: a semaphore with one slot.
struct Scene {
    client: Client,
    /// The fields of the requests for a permit.
    asked: Arc<Mutex<Vec<String>>>,
    /// The senders that releases named, and when each release ran.
    released: Arc<Mutex<Vec<(String, Stamp)>>>,
    /// Whether releases reach the node.
    reachable: watch::Sender<bool>,
    /// Whether the reply to a release arrives.
    answers: watch::Sender<bool>,
}

impl Scene {
    fn new() -> Self {
        let (asked, released) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (reachable, answers) = (watch::Sender::new(true), watch::Sender::new(true));
        let answer = {
            let (asked, released, answers) = (asked.clone(), released.clone(), answers.clone());
            move |call: &ScriptCall| {
                let mut asked = asked.lock();
                let field = call.args[0].clone();
                Ok(match call.script.name {
                    "semaphore/acquire" => {
                        let ticket = asked.iter().position(|other| *other == field).unwrap_or(asked.len());
                        if !asked.contains(&field) {
                            asked.push(field);
                        }
                        Reply::Text(if ticket == 0 { "1 0:7 9".into() } else { format!("0 -1 9 {ticket} 0") })
                    }
                    "semaphore/leave" if call.args[5].is_empty() => {
                        let sender = call.args[6].clone();
                        released.lock().push((sender.clone(), clock::now()));
                        if !*answers.borrow() {
                            return Err(NodeError::new(NodeErrorKind::Unknown, "the reply is lost"));
                        }
                        match asked.get(1).filter(|_| !sender.is_empty()) {
                            Some(next) => {
                                let granted = format!("{}:{}", DELIVERED.number, DELIVERED.token);
                                Reply::List(vec![Reply::Int(1), Reply::Text(next.clone()), Reply::Text(granted)])
                            }
                            None => Reply::Int(1),
                        }
                    }
                    _ => Reply::Int(1),
                })
            }
        };
        let gate = reachable.clone();
        let waiting = move |call: &ScriptCall| {
            let (waits, mut gate) = (call.script.name == "semaphore/leave", gate.subscribe());
            async move {
                if waits {
                    let _ = gate.wait_for(|open| *open).await;
                }
            }
            .boxed()
        };
        let node: Arc<dyn Node> = Scripted::waiting("deliveries", answer, waiting);
        let config = Config::new(["memory://deliveries"]);
        let client = Client::with_nodes(config, Arc::new(|_| {}), vec![node]).unwrap();
        Self { client, asked, released, reachable, answers }
    }

    fn semaphore(&self) -> Semaphore {
        self.client.semaphore("x", 1, LockOptions::default()).unwrap()
    }

    /// Acquires in the background. Its request has been sent when this returns.
    async fn waits(&self) -> JoinHandle<Lease> {
        let (semaphore, before) = (self.semaphore(), self.asked.lock().len());
        let waiter = tokio::spawn(async move { semaphore.acquire().await.unwrap() });
        until(PATIENCE, "it asked", || self.asked.lock().len() > before).await;
        waiter
    }
}

async fn got(waiter: JoinHandle<Lease>) -> Lease {
    timeout(PATIENCE, waiter).await.expect("it comes in").unwrap()
}

/// A waiter gets its permit with the reply to a release of its client. Its lease counts from before that release was sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_needs_no_request_of_its_own() {
    let scene = Scene::new();
    let held = scene.semaphore().acquire().await.unwrap();
    let waiter = scene.waits().await;
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released);
    let permit = got(waiter).await;
    assert_eq!(permit.slots(), [DELIVERED]);
    let (sender, ran) = scene.released.lock()[0].clone();
    assert!(scene.asked.lock()[1].starts_with(&sender), "{sender} is the client");
    assert!(!ran.is_before(permit.terms.right.since), "the lease counts from before the release");
    assert_eq!(permit.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(scene.released.lock()[1].0, "", "nobody waits");
}

/// Whether a release is cancelled before its reply or is given up, a waiter that it may have let in knows to ask.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_reply_waiters_are_in_doubt() {
    for cancelled in [false, true] {
        let scene = Scene::new();
        let held = scene.semaphore().acquire().await.unwrap();
        let quorum = scene.client.inner().session().unwrap().quorum.clone();
        let (mut place, wake) = place(&quorum);
        if cancelled {
            scene.reachable.send_replace(false);
            let release = tokio::spawn(held.release());
            tokio::task::yield_now().await;
            release.abort();
            assert!(release.await.unwrap_err().is_cancelled());
            scene.answers.send_replace(false);
            scene.reachable.send_replace(true);
        } else {
            scene.answers.send_replace(false);
            assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Unconfirmed);
        }
        timeout(PATIENCE, wake.notified()).await.expect("it is notified");
        assert!(place.is_in_doubt() && !place.is_delivered());
        scene.answers.send_replace(true);
        let is_sent_again = || scene.released.lock().last().is_some_and(|(sender, _)| sender.is_empty());
        until(PATIENCE, "the release is sent again", is_sent_again).await;
        assert!(place.take_delivered().is_none());
        assert!(!place.is_in_doubt());
    }
}

/// A release is sent again when its caller, an event loop, no longer reads the reply to the first one. That reply may have
/// had permits.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_second_release_waiters_are_in_doubt() {
    let scene = Scene::new();
    let held = scene.semaphore().acquire().await.unwrap();
    let (tenure, session) = held.tenure_and_session().unwrap();
    assert_eq!(tenure.clone().release(Driver::Background).await, ReleaseOutcome::Released);
    let (place, wake) = place(&session.quorum);
    tenure.clone().release(Driver::Background).await;
    timeout(PATIENCE, wake.notified()).await.expect("it is notified");
    assert!(place.is_in_doubt());
}

/// A place in a queue of a semaphore with one slot, and its notification of news.
fn place(quorum: &Arc<Quorum>) -> (Place, Arc<Notify>) {
    let names = Arc::new(Names::of_family(Family::Semaphore, "x".to_owned(), &quorum.settings));
    let subject = Subject::new(Primitive::Permits { count: 1, of: 1 }, names);
    let entry = QueueEntry { field: "u:9".to_owned(), ttl: TTL, client: "u".to_owned() };
    let mut place = Place::new(quorum, &subject, entry, OwnerKey::Explicit("me".to_owned()));
    let wake = Arc::new(Notify::new());
    place.expect_delivery(wake.clone());
    (place, wake)
}

/// A place needs a request for its permit if what was delivered is not its permit or comes late, or if a request may
/// still run.
#[tokio::test]
async fn not_every_delivery_is_a_permit() {
    let quorum = Scene::new().client.inner().session().unwrap().quorum.clone();
    let (mut place, _) = place(&quorum);
    let key = "x";
    assert_eq!(quorum.deliveries.client_waiting(key).as_deref(), Some("u"));
    let deliver = |slots: &str, ago: Duration| quorum.deliveries.deliver(key, "u:9", slots, clock::now().back(ago));

    deliver("0:8", Duration::from_secs(1));
    assert!(place.is_delivered());
    let (since, granted) = place.take_delivered().unwrap();
    assert_eq!(granted.slots, [DELIVERED]);
    assert!(since.elapsed() >= Duration::from_secs(1));
    for (slots, ago) in [("0:8", TTL / 2), ("1:8", Duration::ZERO), ("0:8,0:9", Duration::ZERO), ("", Duration::ZERO)] {
        deliver(slots, ago);
        assert!(place.take_delivered().is_none(), "{slots:?} from {ago:?} ago");
        assert!(!place.is_delivered());
    }
    // A doubt is no reason to forget a permit.
    deliver("0:8", Duration::ZERO);
    quorum.deliveries.doubt(key);
    assert!(place.is_delivered() && place.take_delivered().is_some());
    // Its own request settles what it was told before.
    quorum.deliveries.doubt(key);
    assert!(place.enter(Driver::Background, PLACE_TTL).await.1.is_ok());
    assert!(!place.is_in_doubt());

    drop(place);
    assert_eq!(quorum.deliveries.client_waiting(key), None);
    deliver("0:8", Duration::ZERO);
    quorum.deliveries.doubt(key);
}

/// After a request that may still run, a permit is confirmed by another one: the first would take a place for nobody after
/// the permit's end.
#[tokio::test]
async fn a_permit_is_confirmed_behind_a_request_that_may_still_run() {
    let node = Scripted::new("unanswered", |_| Err(NodeError::new(NodeErrorKind::Unknown, "no reply")));
    let settings = Config::new(["memory://unanswered"]).validate().unwrap();
    let quorum = Arc::new(Quorum::new(vec![node as Arc<dyn Node>], Arc::new(settings)));
    let (mut place, _) = place(&quorum);
    assert!(place.enter(Driver::Background, PLACE_TTL).await.1.is_err());
    quorum.deliveries.deliver("x", "u:9", "0:8", clock::now());
    assert!(place.take_delivered().is_none());
}
