//! Redisson's locks and ours on the same names: what each side sees of the other's locks, wake-ups in both directions,
//! locks that the other side takes away, and fencing tokens drawn by both.
//!
//! The queue of `RFairLock` is not shared: it excludes us as we exclude it, but we neither wake its waiters nor queue
//! with them.

use std::{
    fs::OpenOptions,
    io::Write,
    rc::Rc,
    time::{Duration, Instant},
};

use redlock::{Kind, LockError, LostReason, ReleaseOutcome, TokenKey, Ttl, Wire};
use redlock_tests::{
    contender::{Contender, until},
    history::{self, Findings},
    peer::{Answer, Peer},
    process::monotonic,
};

use crate::{
    Check, Party, client,
    fight::{Fight, Row, fight, waits},
    lock,
    place::Place,
    resting, run,
};

/// A lease that is longer than any test.
const LONG: Duration = Duration::from_secs(30);
/// The watchdog's lease in tests where renewals matter.
const SHORT: Duration = Duration::from_millis(1500);

/// The deployment on which a version is checked, and how thoroughly.
pub(crate) struct Ground {
    /// Appended to the version's name.
    pub(crate) label: &'static str,
    /// Makes an empty place for each check.
    pub(crate) place: Rc<dyn Fn() -> Rc<Place>>,
    /// Whether to run the checks that wait for watchdogs.
    pub(crate) patient: bool,
    /// How many of our languages take turns with Redisson, and how often.
    pub(crate) languages: usize,
    pub(crate) handoffs: usize,
}

type OfRedisson = Box<dyn FnOnce(&Party, &Place) -> Vec<Row>>;

/// All checks of one version on one place.
pub(crate) fn checks((version, command): &Party, ours: &[Party], ground: &Ground) -> Vec<Check> {
    let mut all: Vec<Check> = Vec::new();
    let peer = (format!("{version}{}", ground.label), command.clone());
    let mut add = |what: &str, check: OfRedisson| {
        let (peer, place) = (peer.clone(), ground.place.clone());
        all.push((format!("{}: {what}", peer.0), Box::new(move || check(&peer, &place()))));
    };
    add("is seen by us, and we by it", Box::new(|peer, place| quiet(each_sees_the_other(peer, place))));
    add("is held until its last unlock", Box::new(|peer, place| quiet(its_reentrant_holds(peer, place))));
    if ground.patient {
        add("is kept by its watchdog", Box::new(|peer, place| quiet(its_watchdog(peer, place))));
        add("waits for our watchdog", Box::new(|peer, place| quiet(our_watchdog(peer, place))));
    }
    add("takes locks away, as we do", Box::new(|peer, place| quiet(locks_are_taken_away(peer, place))));
    add("has leases that expire", Box::new(|peer, place| quiet(leases_expire(peer, place))));
    add("waits for the rest of our min_hold", Box::new(|peer, place| quiet(it_waits_for_the_rest(peer, place))));
    add("draws fencing tokens with us", Box::new(|peer, place| quiet(tokens_go_on(peer, place))));
    add("draws them at the same time", Box::new(fenced_fight));
    add("wakes us, and we it", Box::new(|peer, place| run(wake_ups(peer, place))));
    add("reads and writes with us", Box::new(|peer, place| quiet(readers_and_writers(peer, place))));
    add("has readers that die, as we do", Box::new(|peer, place| quiet(readers_die(peer, place))));
    add(
        "wakes our readers and writers, and we its",
        Box::new(|peer, place| run(readers_and_writers_wake(peer, place))),
    );
    for one in ours.iter().take(ground.languages) {
        let (one, handoffs) = (one.clone(), ground.handoffs);
        add(
            &format!("takes turns with {}", one.0),
            Box::new(move |peer, place| takes_turns(peer, &one, place, handoffs)),
        );
    }
    all
}

/// A check without hand-offs.
fn quiet(check: impl Future<Output = ()>) -> Vec<Row> {
    run(check);
    Vec::new()
}

/// A further check on a cluster: whether messages also reach older versions, which know no sharded channels.
pub(crate) fn without_shards((version, command): &Party, ground: &Ground) -> Check {
    let peer = (format!("{version} without shards"), format!("env REDISSON_SHARDED=OFF {command}"));
    let place = ground.place.clone();
    let name = format!("{}: wakes us, and we it", peer.0);
    let check = move || {
        let place = place();
        run(async {
            let redisson = serve(&peer, &place, LONG);
            let lease = lock(&client(&place.url(), |_| {}), "x", Ttl::Watchdog).acquire().await.unwrap();
            redisson.tell("a", "lock x");
            place.somebody_listens("x");
            assert_eq!(place.listeners_of_shards("x"), 0);
            lease.release().await.unwrap();
            redisson.answer("a").value();
            redisson.ask("a", "unlock x").value();
        });
        run(wake_ups(&peer, &place))
    };
    (name, Box::new(check))
}

fn takes_turns(peer: &Party, ours: &Party, place: &Place, handoffs: usize) -> Vec<Row> {
    let rows = fight(&Fight {
        place,
        theirs: peer,
        action: "fight",
        ours,
        wire: Wire::Redisson,
        prefix: "",
        handoffs,
        least: 400,
        shares: [0.65, 0.65],
        hold: 2,
        pauses: [2, 2],
    });
    for row in &rows {
        // Without a message our waiter would sleep for 2 s, and Redisson's for 30 s.
        assert!(row.quantile(0.5) < 500.0, "woken by a message");
    }
    rows
}

fn serve((name, command): &Party, place: &Place, watchdog: Duration) -> Peer {
    Peer::start(name, command, &[&place.url(), &watchdog.as_millis().to_string()])
}

/// Waits until a session sleeps and its client listens. A message that wakes all waiters has no effect on one whose try
/// has failed and who does not sleep yet.
fn sleeps(redisson: &Peer, session: &str) {
    until("it sleeps", || redisson.ask("watcher", &format!("asleep {session}")).value() == "true");
}

/// Checks for the exception that Redisson throws if a session unlocks what it does not hold.
fn not_the_holder(answer: Answer) {
    let said = answer.end.expect_err("an unlock of what is not held");
    assert!(said.starts_with("IllegalMonitorStateException"), "{said}");
}

async fn each_sees_the_other(peer: &Party, place: &Place) {
    let (redisson, ours) = (serve(peer, place, LONG), client(&place.url(), |_| {}));
    let (one, two) = (lock(&ours, "x", Ttl::Watchdog), lock(&ours, "y", Ttl::Watchdog));

    let lease = one.acquire().await.unwrap();
    assert_eq!(redisson.ask("a", "locked x").value(), "true");
    assert_eq!(redisson.ask("a", "held x").value(), "false");
    assert_eq!(redisson.ask("a", "count x").value(), "0");
    let ttl: u64 = redisson.ask("a", "ttl x").value().parse().unwrap();
    assert!((15_000..=30_000).contains(&ttl), "{ttl}");
    assert_eq!(redisson.ask("a", "try x 0").value(), "false");
    // This try waits for a while and then gives up.
    assert_eq!(redisson.ask("a", "try x 200").value(), "false");
    not_the_holder(redisson.ask("a", "unlock x"));
    assert!(lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(redisson.ask("a", "locked x").value(), "false");
    assert_eq!(redisson.ask("a", "ttl x").value(), "-2");

    redisson.ask("a", "lock y").value();
    assert!(two.locked().await.unwrap());
    let info = two.inspect().await.unwrap().unwrap();
    assert_eq!(info.owner, redisson.ask("a", "id y").value());
    let ttl = info.ttl.unwrap();
    assert!(ttl <= LONG && ttl > LONG / 2, "{ttl:?}");
    assert_eq!(info.token, 0, "it draws none");
    assert!(two.try_acquire().await.unwrap().is_none());
    let before: u64 = place.ask("PTTL", "y");
    assert_eq!(two.release(&redlock::Owner::Fresh).await.unwrap_err().code(), "not_held");
    let after: u64 = place.ask("PTTL", "y");
    assert!(after <= before && place.ask::<Vec<String>>("HVALS", "y") == ["1"], "untouched");
    redisson.ask("a", "unlock y").value();
    assert!(!two.locked().await.unwrap());
    assert_eq!(two.inspect().await.unwrap(), None);
    assert_eq!(place.keys(), Vec::<String>::new());
}

async fn its_reentrant_holds(peer: &Party, place: &Place) {
    let (redisson, ours) = (serve(peer, place, LONG), client(&place.url(), |_| {}));
    let lock = lock(&ours, "x", Ttl::Watchdog);
    redisson.ask("a", "lock x").value();
    redisson.ask("a", "lock x").value();
    assert_eq!(redisson.ask("a", "count x").value(), "2");
    assert!(lock.try_acquire().await.unwrap().is_none());
    redisson.ask("a", "unlock x").value();
    assert_eq!(redisson.ask("a", "count x").value(), "1");
    assert!(lock.try_acquire().await.unwrap().is_none());
    // Another thread of Redisson is another owner.
    assert_eq!(redisson.ask("b", "try x 0").value(), "false");
    redisson.ask("a", "unlock x").value();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

async fn its_watchdog(peer: &Party, place: &Place) {
    let (mut redisson, ours) = (serve(peer, place, SHORT), client(&place.url(), |_| {}));
    redisson.ask("a", "lock x").value();
    let mut options = redlock::LockOptions::default();
    options.wait = Some(SHORT * 4);
    let waits = ours.lock("x", options).unwrap();
    assert_eq!(waits.acquire().await.unwrap_err().code(), "timeout");
    assert_eq!(redisson.ask("a", "held x").value(), "true");
    let lock = lock(&ours, "x", Ttl::Watchdog);
    let (pending, dies) = (tokio::spawn(lock.acquire()), Instant::now());
    redisson.kill();
    let lease = pending.await.unwrap().unwrap();
    // The waiter noticed that the key expired; our own poll for lost messages would come after 2 s and more.
    let took = dies.elapsed();
    assert!(took < SHORT * 2, "{took:?}");
    println!("  killed under a lease of {SHORT:?}; ours {took:.1?} later");
    assert!(lease.held());
}

async fn our_watchdog(peer: &Party, place: &Place) {
    let redisson = serve(peer, place, LONG);
    let ours = client(&place.url(), |config| config.watchdog = Duration::from_millis(1500));
    let lease = lock(&ours, "x", Ttl::Watchdog).acquire().await.unwrap();
    // As long as two of our leases.
    assert_eq!(redisson.ask("a", "try x 3000").value(), "false");
    assert!(lease.held());
    lease.check().unwrap();
    let ttl: i64 = redisson.ask("a", "ttl x").value().parse().unwrap();
    assert!((1..=1500).contains(&ttl), "{ttl}");
}

async fn locks_are_taken_away(peer: &Party, place: &Place) {
    let redisson = serve(peer, place, LONG);
    let ours = client(&place.url(), |config| config.watchdog = Duration::from_millis(1500));

    // Redisson releases our lock by force: our next renewal does not find it.
    let lease = lock(&ours, "x", Ttl::Watchdog).acquire().await.unwrap();
    assert_eq!(redisson.ask("a", "force x").value(), "true");
    assert_eq!(lease.lost().await, Some(LostReason::Deleted));
    assert!(!lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    assert_eq!(redisson.ask("a", "force x").value(), "false");

    // Redisson releases our lock by force and acquires it, before our next request.
    let lease = lock(&ours, "x", Ttl::Fixed(LONG)).acquire().await.unwrap();
    assert_eq!(redisson.ask("a", "force x").value(), "true");
    assert_eq!(redisson.ask("a", "try x 0").value(), "true");
    match lease.extend(LONG).await {
        Err(LockError::Lost { reason: LostReason::Taken, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    assert_eq!(redisson.ask("a", "held x").value(), "true");
    redisson.ask("a", "unlock x").value();

    // Redisson releases our lock by force, and a waiter of ours gets it.
    let lease = lock(&ours, "x", Ttl::Fixed(LONG)).acquire().await.unwrap();
    let second = client(&place.url(), |_| {});
    let pending = tokio::spawn(lock(&second, "x", Ttl::Watchdog).acquire());
    place.somebody_listens("x");
    redisson.ask("a", "force x").value();
    pending.await.unwrap().unwrap().release().await.unwrap();
    assert!(lease.extend(LONG).await.is_err());

    // We release Redisson's lock by force: its unlock throws, and its next waiter gets the lock.
    redisson.ask("a", "lock y").value();
    redisson.tell("b", "lock y");
    place.somebody_listens("y");
    assert!(ours.force_release("y").await.unwrap());
    redisson.answer("b").value();
    assert_eq!(redisson.ask("a", "held y").value(), "false");
    not_the_holder(redisson.ask("a", "unlock y"));
    assert_eq!(redisson.ask("b", "held y").value(), "true");
    redisson.ask("b", "unlock y").value();
    assert!(!ours.force_release("y").await.unwrap());
}

async fn leases_expire(peer: &Party, place: &Place) {
    let (redisson, ours) = (serve(peer, place, LONG), client(&place.url(), |_| {}));
    let short = Duration::from_millis(400);

    redisson.ask("a", "lock x 400").value();
    let lease = lock(&ours, "x", Ttl::Watchdog).acquire().await.unwrap();
    not_the_holder(redisson.ask("a", "unlock x"));
    assert!(lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);

    let lease = lock(&ours, "x", Ttl::Fixed(short)).acquire().await.unwrap();
    redisson.ask("a", "lock x").value();
    // Our lease ends before its key expires.
    assert!(!lease.held());
    assert_eq!(lease.lost_reason(), Some(LostReason::Expired));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    assert_eq!(redisson.ask("a", "held x").value(), "true");
    redisson.ask("a", "unlock x").value();
}

async fn it_waits_for_the_rest(peer: &Party, place: &Place) {
    let (redisson, ours) = (serve(peer, place, LONG), client(&place.url(), |_| {}));
    // Longer than the steps up to `locked` take on a busy machine: it begins with the grant.
    let lease = resting(&ours, "x", Duration::from_secs(8)).acquire().await.unwrap();
    redisson.tell("a", "lock x");
    place.somebody_listens("x");
    sleeps(&redisson, "a");
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    let released = Instant::now();
    assert_eq!(redisson.ask("b", "try x 0").value(), "false");
    assert_eq!(redisson.ask("b", "locked x").value(), "true");
    redisson.answer("a").value();
    // Without the new ttl it would sleep for what was left of our lease of 30 s.
    let took = released.elapsed();
    assert!(took < LONG / 2, "{took:?}");
    redisson.ask("a", "unlock x").value();

    let mut options = redlock::LockOptions::default();
    options.min_hold = Some(Duration::from_secs(4));
    let config = ours.read_write_lock("x", options).unwrap();
    let writing = config.write().acquire().await.unwrap();
    assert_eq!(writing.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(redisson.ask("a", "read-try x 0").value(), "false");
    assert_eq!(redisson.ask("a", "write-try x 0").value(), "false");
    assert_eq!(redisson.ask("a", "write-try x 15000").value(), "true", "once the rest is over");
    redisson.ask("a", "write-unlock x").value();
}

async fn readers_and_writers(peer: &Party, place: &Place) {
    let (redisson, ours) = (serve(peer, place, LONG), client(&place.url(), |_| {}));
    let config = ours.read_write_lock("x", redlock::LockOptions::default()).unwrap();
    let java = redisson.ask("a", "id x").value();
    let can = |session: &str, order: &str| redisson.ask(session, &format!("{order}-try x 0")).value() == "true";

    // Readers of both sides are inside together, and nobody writes.
    let reading = config.read().acquire().await.unwrap();
    assert!(can("a", "read") && !can("b", "write"));
    assert!(config.write().try_acquire().await.unwrap().is_none() && !reading.try_upgrade().await.unwrap());
    let info = config.read().inspect().await.unwrap().unwrap();
    assert!(info.kind == Kind::Read && info.owners.len() == 2 && info.owners.contains(&java), "{info:?}");
    assert_eq!(redisson.ask("b", "try x 0").value(), "false", "its exclusive lock is excluded");
    // A reader that leaves does not end the other side's lock.
    redisson.ask("a", "read-unlock x").value();
    assert!(!can("b", "write"));
    reading.check().unwrap();
    assert!(can("a", "read") && can("a", "read"));
    assert_eq!(reading.release().await.unwrap(), ReleaseOutcome::Released);
    redisson.ask("a", "read-unlock x").value();
    assert!(config.write().try_acquire().await.unwrap().is_none(), "it reads twice");
    redisson.ask("a", "read-unlock x").value();

    // Our writer becomes a reader.
    let writing = config.write().acquire().await.unwrap();
    assert!(!can("a", "read") && !can("a", "write"));
    writing.downgrade().await.unwrap();
    assert!(can("a", "read") && !can("b", "write"));
    redisson.ask("a", "read-unlock x").value();
    assert!(writing.try_upgrade().await.unwrap() && !can("a", "read"));
    assert_eq!(writing.release().await.unwrap(), ReleaseOutcome::Released);

    // Redisson's writer becomes a reader.
    assert!(can("a", "write") && can("a", "write"));
    assert!(config.read().try_acquire().await.unwrap().is_none());
    let info = config.write().inspect().await.unwrap().unwrap();
    assert_eq!((info.kind, info.owners), (Kind::Write, vec![java]));
    redisson.ask("a", "write-unlock x").value();
    assert!(can("a", "read"));
    redisson.ask("a", "write-unlock x").value();
    let reading = config.read().try_acquire().await.unwrap().unwrap();
    assert!(config.write().try_acquire().await.unwrap().is_none());
    redisson.ask("a", "read-unlock x").value();
    assert_eq!(reading.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(place.keys(), Vec::<String>::new());
    assert!(can("a", "write"));
    assert!(ours.force_release("x").await.unwrap());
    assert_eq!(redisson.ask("a", "write-held x").value(), "false");
    config.write().acquire().await.unwrap().release().await.unwrap();

    // `docs/interop.md` warns of this: Redisson's reader enters beside an exclusive lock.
    let plain = lock(&ours, "y", Ttl::Watchdog).acquire().await.unwrap();
    assert!(
        ours.read_write_lock("y", redlock::LockOptions::default())
            .unwrap()
            .read()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(redisson.ask("a", "read-try y 0").value(), "true");
    plain.check().unwrap();
}

/// Readers that died, while others renew the hash.
async fn readers_die(peer: &Party, place: &Place) {
    let (mut dies, redisson) = (serve(peer, place, SHORT), serve(peer, place, LONG));
    let ours = client(&place.url(), |_| {});
    let with = |ttl: Ttl| {
        let mut options = redlock::LockOptions::default();
        options.ttl = ttl;
        ours.read_write_lock("x", options).unwrap()
    };
    let config = with(Ttl::Watchdog);
    let reading = config.read().acquire().await.unwrap();
    dies.ask("a", "read-lock x").value();
    dies.kill();
    let writing = tokio::spawn(config.write().acquire());
    place.somebody_listens("x");
    let left = Instant::now();
    reading.release().await.unwrap();
    let writing = writing.await.unwrap().unwrap();
    assert!(left.elapsed() < SHORT * 2, "its lease is over: {:?}", left.elapsed());
    writing.release().await.unwrap();

    // Our reader's lease is over while Redisson's reader stays; the last reader that leaves leaves nothing behind.
    let expires = with(Ttl::Fixed(Duration::from_millis(200))).read().acquire().await.unwrap();
    redisson.ask("a", "read-lock x").value();
    assert_eq!(expires.lost().await, Some(LostReason::Expired));
    let note = format!("{{x}}:{}:rwlock_timeout:1", expires.owner());
    until("its key ends", || place.ask::<i64>("PTTL", &note) == -2);
    redisson.ask("a", "read-unlock x").value();
    assert_eq!(redisson.ask("b", "write-try x 0").value(), "true");
    redisson.ask("b", "write-unlock x").value();
    assert_eq!(expires.release().await.unwrap(), ReleaseOutcome::Lost);
}

/// As [`wake_ups`], for readers that wait for a writer and writers that wait for a reader.
async fn readers_and_writers_wake(peer: &Party, place: &Place) -> Vec<Row> {
    const ROUNDS: usize = 10;
    let (redisson, ours) = (serve(peer, place, LONG), client(&place.url(), |_| {}));
    let mut options = redlock::LockOptions::default();
    options.ttl = Ttl::Fixed(LONG);
    let config = ours.read_write_lock("x", options).unwrap();
    for (order, lock) in [("read", config.read()), ("write", config.write())] {
        lock.acquire().await.unwrap().release().await.unwrap();
        redisson.ask("a", &format!("{order}-lock x")).value();
        redisson.ask("a", &format!("{order}-unlock x")).value();
    }
    let (mut to_it, mut to_us) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for (holds, waits, waits_here) in
            [(config.write(), "read", config.write()), (config.read(), "write", config.read())]
        {
            let lease = holds.acquire().await.unwrap();
            redisson.tell("a", &format!("{waits}-lock x"));
            sleeps(&redisson, "a");
            let released = monotonic();
            if waits == "read" && round % 2 == 0 {
                // Redisson's reader enters beside our reader.
                lease.downgrade().await.unwrap();
            } else {
                lease.release().await.unwrap();
            }
            let granted = redisson.answer("a");
            to_it.push(granted.at.saturating_sub(released));
            granted.value();
            lease.release().await.unwrap();

            let calls = place.scripts();
            let pending = tokio::spawn(waits_here.acquire());
            until("we sleep", || place.scripts() > calls);
            place.somebody_listens("x");
            let released = monotonic();
            redisson.ask("a", &format!("{waits}-unlock x")).value();
            let lease = pending.await.unwrap().unwrap();
            to_us.push(monotonic() - released);
            lease.release().await.unwrap();
        }
    }
    let label = format!("{}, read/write", peer.0);
    let rows = vec![Row::new("ours, asleep", &label, to_it, 0), Row::new(&label, "ours, asleep", to_us, 0)];
    assert!(rows[0].quantile(1.0) < LONG.as_millis() as f64 / 10.0, "every wake-up of it came by a message");
    assert!(rows.iter().all(|row| row.quantile(0.5) < 500.0), "wake-ups come by message");
    rows
}

/// Both sides hold with leases of 30 s. Without a message our waiter would sleep until its poll after 2 s, and
/// Redisson's until the lease ends.
async fn wake_ups(peer: &Party, place: &Place) -> Vec<Row> {
    const ROUNDS: usize = 40;
    let (redisson, ours) = (serve(peer, place, LONG), client(&place.url(), |_| {}));
    let lock = lock(&ours, "x", Ttl::Fixed(LONG));
    // Loads the scripts and makes the connections.
    lock.acquire().await.unwrap().release().await.unwrap();
    redisson.ask("a", "lock x").value();
    redisson.ask("a", "unlock x").value();
    let (mut to_it, mut to_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let lease = lock.acquire().await.unwrap();
        redisson.tell("a", "lock x");
        sleeps(&redisson, "a");
        let released = monotonic();
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        let granted = redisson.answer("a");
        to_it.push(granted.at.saturating_sub(released));
        granted.value();

        let calls = place.scripts();
        let pending = tokio::spawn(lock.acquire());
        // The subscription of the round before still exists, so one try is enough.
        until("we sleep", || place.scripts() > calls);
        place.somebody_listens("x");
        let released = monotonic();
        redisson.ask("a", "unlock x").value();
        let lease = pending.await.unwrap().unwrap();
        to_us.push(monotonic() - released);
        lease.release().await.unwrap();
    }
    let rows = vec![Row::new("ours, asleep", &peer.0, to_it, 0), Row::new(&peer.0, "ours, asleep", to_us, 0)];
    assert!(rows[0].quantile(1.0) < LONG.as_millis() as f64 / 10.0, "every wake-up of it came by a message");
    assert!(rows.iter().all(|row| row.quantile(0.5) < 500.0), "wake-ups come by message");
    rows
}

/// Both sides draw their tokens from one sequence, one after the other.
async fn tokens_go_on(peer: &Party, place: &Place) {
    let redisson = serve(peer, place, LONG);
    let ours = client(&place.url(), |config| config.token_key = TokenKey::Redisson);
    let lock = lock(&ours, "x", Ttl::Watchdog);
    let fenced = || redisson.ask("a", "fenced-lock x").value().parse::<u64>().unwrap();
    let unlock = || redisson.ask("a", "fenced-unlock x").value();
    // Redisson draws first, as in a fleet that migrates: its counter counts from 1.
    assert_eq!(fenced(), 1);
    unlock();
    let mut last = 1;
    for _ in 0..50 {
        let lease = lock.acquire().await.unwrap();
        assert!(lease.token() > last, "{} after {last}", lease.token());
        last = lease.token();
        lease.release().await.unwrap();
        // Exactly one more: Redisson increments the counter, whatever its value.
        let theirs = fenced();
        assert_eq!(theirs, last + 1);
        last = theirs;
        unlock();
    }
    // Without us it continues to count, for each re-entry too.
    assert_eq!([fenced(), fenced()], [last + 1, last + 2]);
    assert_eq!(redisson.ask("a", "token x").value(), (last + 2).to_string());
    unlock();
    assert!(lock.try_acquire().await.unwrap().is_none());
    unlock();
    assert!(lock.acquire().await.unwrap().token() > last + 2);
    assert_eq!(place.ask::<i64>("PTTL", "redisson_lock_token:{x}"), -1);
}

/// As above, while both sides compete for the lock.
fn fenced_fight((name, command): &Party, place: &Place) -> Vec<Row> {
    const TIMES: usize = 300;
    let folder = std::env::temp_dir().join(format!("redlock-interop-fenced-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let words = [&place.url(), "x", &TIMES.to_string()];
    let mut theirs = Contender::start(name, &format!("{command} fenced"), words, &["1", "1"], &folder);
    until("it began", || theirs.progress() > 0);
    let log = folder.join("ours.log");
    let ours = client(&place.url(), |config| config.token_key = TokenKey::Redisson);
    run(async {
        let mut file = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let lock = lock(&ours, "x", Ttl::Watchdog);
        while theirs.child.try_wait().unwrap().is_none() {
            let called = monotonic();
            let lease = lock.acquire().await.unwrap();
            let (token, from) = (lease.token(), monotonic());
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1000))).await;
            let until = monotonic();
            assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
            writeln!(file, "grant {token} {from} {called}\nrelease {token} {until}").unwrap();
            tokio::time::sleep(Duration::from_micros(fastrand::u64(0..1000))).await;
        }
    });
    assert!(theirs.child.wait().unwrap().success());
    let logs = [&theirs.log, &log].map(|log| history::read([log]).unwrap());
    assert_eq!(logs[0].len(), TIMES);
    assert_eq!(history::check(logs.concat()), Findings::default(), "logs in {}", folder.display());
    let (to_theirs, to_ours) = (waits(&logs, 0), waits(&logs, 1));
    assert!(to_theirs.len() > TIMES / 10, "they took turns");
    std::fs::remove_dir_all(folder).unwrap();
    let fenced = format!("{name}, fenced");
    vec![Row::new(&fenced, "ours", to_ours, 0), Row::new("ours", &fenced, to_theirs, 0)]
}
