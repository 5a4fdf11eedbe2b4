//! Libraries that write a lock as a string, and ours with `wire="token"`: no two hold the lock at once, and no release,
//! extension or renewal of one side changes a lock that the other holds. These libraries announce no release, so both
//! sides poll.

use std::{thread::scope, time::Duration};

use redlock::{Client, LockError, LostReason, ReleaseOutcome, Ttl, Wire};
use redlock_tests::{peer::Peer, server::Server};

use crate::{
    Check, Party, client,
    fight::{Fight, fight},
    handoffs, lock,
    place::Place,
    resting, run,
};

const LONG: Duration = Duration::from_secs(30);
/// The same lease for a peer, in ms.
const LEASE: &str = "30000";

/// A check without hand-offs.
type Plain = fn(&Party);

/// All checks of one library.
pub(crate) fn checks(peer: &Party, ours: &[Party]) -> Vec<Check> {
    let plain: [(&str, Plain); 4] = [
        ("sees our lock, and we see its", |peer| run(each_sees_the_other(peer))),
        ("cannot end or extend our lock", |peer| run(it_does_not_touch_ours(peer))),
        ("keeps its lock from us", |peer| run(we_do_not_touch_its(peer))),
        ("waits for the rest of our min_hold", |peer| run(it_waits_for_the_rest(peer))),
    ];
    let mut all: Vec<Check> = Vec::new();
    for (what, check) in plain {
        let peer = peer.clone();
        all.push((
            format!("{}: {what}", peer.0),
            Box::new(move || {
                check(&peer);
                Vec::new()
            }),
        ));
    }
    let (peer, ours) = (peer.clone(), ours.to_vec());
    all.push((
        format!("{}: all of ours take turns with it", peer.0),
        Box::new(move || {
            // Both sides poll and mostly sleep, so all languages run at once.
            let against = |ours: &Party| {
                fight(&Fight {
                    place: &Place::server(),
                    theirs: &peer,
                    action: "fight",
                    ours,
                    wire: Wire::Token,
                    prefix: prefix(&peer),
                    handoffs: handoffs(100, 5),
                    least: 25,
                    shares: [0.75, 3.0],
                    hold: 5,
                    // Longer than the other side's poll interval, or that side would never find the lock free.
                    pauses: [100, 10],
                })
            };
            scope(|scope| {
                let all: Vec<_> = ours.iter().map(|one| scope.spawn(|| against(one))).collect();
                all.into_iter().flat_map(|one| one.join().unwrap()).collect()
            })
        }),
    ));
    all
}

/// The prefix that the library adds to every name.
fn prefix((name, _): &Party) -> &'static str {
    if name.starts_with("redis-semaphore") { "mutex:" } else { "" }
}

/// A server with a peer and a client of ours, and the key of the lock that both call `x`.
fn both(peer: &Party) -> (Server, Peer, Client, String) {
    let server = Server::start();
    let theirs = Peer::start(&peer.0, &peer.1, &[&server.url()]);
    let ours = client(&server.url(), |config| {
        config.wire = Wire::Token;
        prefix(peer).clone_into(&mut config.prefix);
    });
    (server, theirs, ours, format!("{}x", prefix(peer)))
}

/// The value and the ttl of the key.
fn there(server: &Server, key: &str) -> (String, u64) {
    (server.command(&["GET", key]), server.command(&["PTTL", key]))
}

/// Checks that nobody has written the key in the meantime.
fn untouched(server: &Server, key: &str, (value, ttl): &(String, u64)) {
    let now = there(server, key);
    assert!(now.0 == *value && now.1 <= *ttl && now.1 + 10_000 > *ttl, "{now:?} was {value}, {ttl}");
}

async fn each_sees_the_other(peer: &Party) {
    let (server, theirs, ours, key) = both(peer);
    let x = lock(&ours, "x", Ttl::Fixed(LONG));
    let lease = x.acquire().await.unwrap();
    assert_eq!(there(&server, &key).0, lease.owner(), "a string, as theirs");
    assert_eq!(theirs.ask("a", &format!("acquire x {LEASE} 0")).value(), "none");
    assert_eq!(theirs.ask("a", &format!("acquire x {LEASE} 100")).value(), "none");
    if peer.0.starts_with("redis-py") {
        assert_eq!(theirs.ask("a", "locked x").value(), "true");
    }
    assert!(lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    if peer.0.starts_with("redis-py") {
        assert_eq!(theirs.ask("a", "locked x").value(), "false");
    }

    let value = theirs.ask("a", &format!("acquire x {LEASE} 0")).value();
    assert_eq!(there(&server, &key).0, value);
    assert!(x.locked().await.unwrap());
    let info = x.inspect().await.unwrap().unwrap();
    assert_eq!(info.owner, value);
    let ttl = info.ttl.unwrap();
    assert!(ttl <= LONG && ttl > LONG / 2, "{ttl:?}");
    assert!(x.try_acquire().await.unwrap().is_none());
    // The peer releases without an announcement, and our poll finds the lock free.
    let pending = tokio::spawn(x.acquire());
    theirs.ask("a", "release x").value();
    let lease = pending.await.unwrap().unwrap();
    lease.release().await.unwrap();
    assert!(!x.locked().await.unwrap());
    assert_eq!(x.inspect().await.unwrap(), None);

    if peer.0.starts_with("redis-py") {
        // By default its locks never expire.
        let value = theirs.ask("a", "acquire x 0 0").value();
        let info = x.inspect().await.unwrap().unwrap();
        assert_eq!((info.owner, info.ttl), (value, None));
        assert!(x.try_acquire().await.unwrap().is_none());
        theirs.ask("a", "release x").value();
        assert!(x.try_acquire().await.unwrap().is_some());
    }
}

/// The peer held the lock and lost it; now we hold it.
async fn it_does_not_touch_ours(peer: &Party) {
    let (server, theirs, ours, key) = both(peer);
    let lock = lock(&ours, "x", Ttl::Fixed(LONG));
    assert_ne!(theirs.ask("a", "acquire x 60000 0").value(), "none");
    let _: () = server.command(&["DEL", &key]);
    let lease = lock.acquire().await.unwrap();
    let before = there(&server, &key);
    let mut orders = vec!["extend x 60000", "release x"];
    if peer.0.starts_with("redis-py") {
        orders.insert(0, "reacquire x");
        assert_eq!(theirs.ask("a", "owned x").value(), "false");
    }
    for order in orders {
        let end = theirs.ask("a", order).end;
        println!("  {}: {order}: {end:?}", peer.0);
        assert_ne!(end.as_deref(), Ok("true"), "{order}: it does not hold the lock");
        untouched(&server, &key, &before);
    }
    assert!(lease.held());
    lease.extend(LONG).await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

/// We released the lock before its `min_hold` was over: to the peer it is taken, until the ttl of the rest is over.
async fn it_waits_for_the_rest(peer: &Party) {
    let (server, theirs, ours, key) = both(peer);
    let lease = resting(&ours, "x", Duration::from_secs(4)).acquire().await.unwrap();
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(theirs.ask("a", &format!("acquire x {LEASE} 0")).value(), "none");
    if peer.0.starts_with("redis-py") {
        assert_eq!(theirs.ask("a", "locked x").value(), "true");
    }
    assert_eq!(there(&server, &key).0, format!("~{}", lease.owner()));
    let value = theirs.ask("a", &format!("acquire x {LEASE} 10000")).value();
    assert_eq!(there(&server, &key).0, value, "once the rest is over");
    theirs.ask("a", "release x").value();
}

/// We held the lock and lost it; now the peer holds it.
async fn we_do_not_touch_its(peer: &Party) {
    let (server, theirs, ours, key) = both(peer);
    for extends in [true, false] {
        let lease = lock(&ours, "x", Ttl::Fixed(LONG)).acquire().await.unwrap();
        let _: () = server.command(&["DEL", &key]);
        assert_ne!(theirs.ask("a", &format!("acquire x {LEASE} 0")).value(), "none");
        let before = there(&server, &key);
        if extends {
            match lease.extend(LONG * 2).await {
                Err(LockError::Lost { reason: LostReason::Taken, .. }) => {}
                other => panic!("{other:?}"),
            }
            untouched(&server, &key, &before);
        }
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
        untouched(&server, &key, &before);
        assert_eq!(theirs.ask("a", &format!("extend x {LEASE}")).value(), "true");
        theirs.ask("a", "release x").value();
        assert_eq!(server.command::<u64>(&["EXISTS", &key]), 0);
    }

    // A renewal finds the lock lost, and does not change the key.
    let short = client(&server.url(), |config| {
        config.wire = Wire::Token;
        prefix(peer).clone_into(&mut config.prefix);
        config.watchdog = Duration::from_millis(1500);
    });
    let lease = lock(&short, "x", Ttl::Watchdog).acquire().await.unwrap();
    let _: () = server.command(&["DEL", &key]);
    assert_ne!(theirs.ask("a", &format!("acquire x {LEASE} 0")).value(), "none");
    let before = there(&server, &key);
    let reason = lease.lost().await;
    // A renewal may have run between the two.
    assert!(matches!(reason, Some(LostReason::Taken | LostReason::Deleted)), "{reason:?}");
    untouched(&server, &key, &before);

    // We may release by force: then the peer's extension fails.
    assert!(ours.force_release("x").await.unwrap());
    assert_eq!(server.command::<u64>(&["EXISTS", &key]), 0);
    assert_ne!(theirs.ask("a", &format!("extend x {LEASE}")).end.as_deref(), Ok("true"));
}
