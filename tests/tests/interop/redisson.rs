//! Redisson's locks and ours on the same names: what each sees of the other's, who is woken by whom, what becomes of a
//! lock that the other side takes away, and fencing tokens drawn by both.
//!
//! Not shared are `RReadWriteLock`, whose fields are no owners of ours, and the queue of `RFairLock`: it excludes us as we
//! exclude it, but we neither wake its waiters nor queue with them.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::Write,
    time::{Duration, Instant},
};

use redlock::{LockError, LostReason, ReleaseOutcome, TokenKey, Ttl, Wire};
use redlock_tests::{
    contender::{Contender, until},
    history::{self, Findings},
    peer::{Answer, Peer},
    process::monotonic,
    server::Server,
};

use crate::{
    Check, Party, Plain, client,
    fight::{Fight, Row, fight, waits},
    handoffs, lock, run,
};

/// A lease that ends long after whatever happens in a test.
const LONG: Duration = Duration::from_secs(30);
/// The watchdog's lease of those whose renewals matter.
const SHORT: Duration = Duration::from_millis(1500);

/// All checks of one version; only the current one fights for long, and with every language.
pub(crate) fn checks(peer: &Party, ours: &[Party], current: bool) -> Vec<Check> {
    let mut all: Vec<Check> = Vec::new();
    let mut add = |what: &str, check: Box<dyn FnOnce() -> Vec<Row>>| all.push((format!("{}: {what}", peer.0), check));
    let plain: [(&str, Plain); 7] = [
        ("is seen by us, and we by it", |peer| run(each_sees_the_other(peer))),
        ("is held until its last unlock", |peer| run(its_reentrant_holds(peer))),
        ("is kept by its watchdog, and freed when it dies", |peer| run(its_watchdog(peer))),
        ("waits for our watchdog", |peer| run(our_watchdog(peer))),
        ("takes locks away, and we from it", |peer| run(locks_are_taken_away(peer))),
        ("leases expire", |peer| run(leases_expire(peer))),
        ("draws fencing tokens with us", |peer| run(tokens_go_on(peer))),
    ];
    for (what, check) in plain {
        let peer = peer.clone();
        add(
            what,
            Box::new(move || {
                check(&peer);
                Vec::new()
            }),
        );
    }
    let same = peer.clone();
    add("wakes us, and we it", Box::new(move || run(wake_ups(&same))));
    let same = peer.clone();
    add("and we draw tokens at once", Box::new(move || fenced_fight(&same)));
    for one in ours.iter().take(if current { ours.len() } else { 1 }) {
        let (peer, one) = (peer.clone(), one.clone());
        add(
            &format!("and {} take turns", one.0),
            Box::new(move || {
                let rows = fight(&Fight {
                    theirs: &peer,
                    action: "fight",
                    ours: &one,
                    wire: Wire::Redisson,
                    prefix: "",
                    handoffs: if current { handoffs(2000, 1) } else { handoffs(500, 4) },
                    shares: [0.65, 0.65],
                    hold: 2,
                    pauses: [2, 2],
                });
                for row in &rows {
                    // Without messages a waiter would sleep for our 2 s, or for Redisson's 30 s.
                    assert!(row.quantile(0.5) < 500.0, "woken by a message");
                }
                rows
            }),
        );
    }
    all
}

fn serve((name, command): &Party, server: &Server, watchdog: Duration) -> Peer {
    Peer::start(name, command, &[&server.url(), &watchdog.as_millis().to_string()])
}

/// What Redisson throws at one who does not hold what he unlocks.
fn not_the_holder(answer: Answer) {
    let said = answer.end.expect_err("an unlock of what is not held");
    assert!(said.starts_with("IllegalMonitorStateException"), "{said}");
}

/// The keys of a lock, without counters.
fn keys(server: &Server) -> Vec<String> {
    let mut keys: Vec<String> = server.command(&["KEYS", "*"]);
    // Redisson takes its note of an unlock away a moment after it, or leaves it for some seconds.
    keys.retain(|key| !key.contains("_token:") && !key.starts_with("redisson_unlock_latch:"));
    keys
}

async fn each_sees_the_other(peer: &Party) {
    let server = Server::start();
    let (redisson, ours) = (serve(peer, &server, LONG), client(&server, |_| {}));
    let (one, two) = (lock(&ours, "x", Ttl::Watchdog), lock(&ours, "y", Ttl::Watchdog));

    let lease = one.acquire().await.unwrap();
    assert_eq!(redisson.ask("a", "locked x").value(), "true");
    assert_eq!(redisson.ask("a", "held x").value(), "false");
    assert_eq!(redisson.ask("a", "count x").value(), "0");
    let ttl: u64 = redisson.ask("a", "ttl x").value().parse().unwrap();
    assert!((25_000..=30_000).contains(&ttl), "{ttl}");
    assert_eq!(redisson.ask("a", "try x 0").value(), "false");
    // Waits for a while and gives up.
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
    let before: u64 = server.command(&["PTTL", "y"]);
    assert_eq!(two.release(&redlock::Owner::Fresh).await.unwrap_err().code(), "not_held");
    let after: u64 = server.command(&["PTTL", "y"]);
    assert!(after <= before && server.command::<Vec<String>>(&["HVALS", "y"]) == ["1"], "untouched");
    redisson.ask("a", "unlock y").value();
    assert!(!two.locked().await.unwrap());
    assert_eq!(two.inspect().await.unwrap(), None);
    assert_eq!(keys(&server), Vec::<String>::new());
}

async fn its_reentrant_holds(peer: &Party) {
    let server = Server::start();
    let (redisson, ours) = (serve(peer, &server, LONG), client(&server, |_| {}));
    let lock = lock(&ours, "x", Ttl::Watchdog);
    redisson.ask("a", "lock x").value();
    redisson.ask("a", "lock x").value();
    assert_eq!(redisson.ask("a", "count x").value(), "2");
    assert!(lock.try_acquire().await.unwrap().is_none());
    redisson.ask("a", "unlock x").value();
    assert_eq!(redisson.ask("a", "count x").value(), "1");
    assert!(lock.try_acquire().await.unwrap().is_none());
    // Another thread of it is somebody else, too.
    assert_eq!(redisson.ask("b", "try x 0").value(), "false");
    redisson.ask("a", "unlock x").value();
    assert!(lock.try_acquire().await.unwrap().is_some());
}

async fn its_watchdog(peer: &Party) {
    let server = Server::start();
    let (mut redisson, ours) = (serve(peer, &server, SHORT), client(&server, |_| {}));
    redisson.ask("a", "lock x").value();
    let mut options = redlock::LockOptions::default();
    options.wait = Some(SHORT * 4);
    let waits = ours.lock("x", options).unwrap();
    assert_eq!(waits.acquire().await.unwrap_err().code(), "timeout");
    assert_eq!(redisson.ask("a", "held x").value(), "true");
    let lock = lock(&ours, "x", Ttl::Watchdog);
    let (pending, dies) = (lock.acquire(), Instant::now());
    redisson.kill();
    let lease = pending.await.unwrap();
    // Its lease ran out and we noticed; our own poll for lost messages would come after 2 s and more.
    let took = dies.elapsed();
    assert!(took < SHORT * 2, "{took:?}");
    println!("  killed under a lease of {SHORT:?}; ours {took:.1?} later");
    assert!(lease.held());
}

async fn our_watchdog(peer: &Party) {
    let server = Server::start();
    let redisson = serve(peer, &server, LONG);
    let ours = client(&server, |config| config.watchdog = Duration::from_millis(600));
    let lease = lock(&ours, "x", Ttl::Watchdog).acquire().await.unwrap();
    // Several leases of ours long.
    assert_eq!(redisson.ask("a", "try x 3000").value(), "false");
    assert!(lease.held());
    lease.check().unwrap();
    let ttl: i64 = redisson.ask("a", "ttl x").value().parse().unwrap();
    assert!((1..=600).contains(&ttl), "{ttl}");
}

async fn locks_are_taken_away(peer: &Party) {
    let server = Server::start();
    let redisson = serve(peer, &server, LONG);
    let ours = client(&server, |config| config.watchdog = Duration::from_millis(600));

    // Ours by it: the next renewal finds nothing.
    let lease = lock(&ours, "x", Ttl::Watchdog).acquire().await.unwrap();
    assert_eq!(redisson.ask("a", "force x").value(), "true");
    assert_eq!(lease.lost().await, Some(LostReason::Deleted));
    assert!(!lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    assert_eq!(redisson.ask("a", "force x").value(), "false");

    // And taken by it, before we look again.
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

    // A waiter of ours gets what it takes from another of ours.
    let lease = lock(&ours, "x", Ttl::Fixed(LONG)).acquire().await.unwrap();
    let second = client(&server, |_| {});
    let pending = lock(&second, "x", Ttl::Watchdog).acquire();
    listeners(&server, "x", 1);
    redisson.ask("a", "force x").value();
    pending.await.unwrap().release().await.unwrap();
    assert!(lease.extend(LONG).await.is_err());

    // Its by us: its unlock throws, and its next waiter gets the lock.
    redisson.ask("a", "lock y").value();
    redisson.tell("b", "lock y");
    listeners(&server, "y", 1);
    assert!(ours.force_release("y").await.unwrap());
    redisson.answer("b").value();
    assert_eq!(redisson.ask("a", "held y").value(), "false");
    not_the_holder(redisson.ask("a", "unlock y"));
    assert_eq!(redisson.ask("b", "held y").value(), "true");
    redisson.ask("b", "unlock y").value();
    assert!(!ours.force_release("y").await.unwrap());
}

async fn leases_expire(peer: &Party) {
    let server = Server::start();
    let (redisson, ours) = (serve(peer, &server, LONG), client(&server, |_| {}));
    let short = Duration::from_millis(400);

    redisson.ask("a", "lock x 400").value();
    let lease = lock(&ours, "x", Ttl::Watchdog).acquire().await.unwrap();
    not_the_holder(redisson.ask("a", "unlock x"));
    assert!(lease.held());
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);

    let lease = lock(&ours, "x", Ttl::Fixed(short)).acquire().await.unwrap();
    redisson.ask("a", "lock x").value();
    // A lease of ours ends before its key does.
    assert!(!lease.held());
    assert_eq!(lease.lost_reason(), Some(LostReason::Expired));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Lost);
    assert_eq!(redisson.ask("a", "held x").value(), "true");
    redisson.ask("a", "unlock x").value();
}

/// Waits until so many listen for a release.
fn listeners(server: &Server, name: &str, count: usize) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    until("waiters listen", || server.command::<(String, usize)>(&["PUBSUB", "NUMSUB", &channel]).1 >= count);
}

/// How often scripts were called so far.
fn scripts(server: &Server) -> u64 {
    let text: String = server.command(&["INFO", "commandstats"]);
    let all: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(":calls=")).collect();
    let calls = ["cmdstat_evalsha", "cmdstat_eval"].map(|name| all.get(name).map_or("0", |rest| rest));
    calls.iter().map(|rest| rest.split(',').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Both hold under 30 s: a waiter that heard no message would sleep until our poll of 2 s, or Redisson until the lease
/// ends.
async fn wake_ups(peer: &Party) -> Vec<Row> {
    const ROUNDS: usize = 40;
    let server = Server::start();
    let (redisson, ours) = (serve(peer, &server, LONG), client(&server, |_| {}));
    let lock = lock(&ours, "x", Ttl::Fixed(LONG));
    // Scripts are known from here on, and connections are there.
    lock.acquire().await.unwrap().release().await.unwrap();
    redisson.ask("a", "lock x").value();
    redisson.ask("a", "unlock x").value();
    let (mut to_it, mut to_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let lease = lock.acquire().await.unwrap();
        let calls = scripts(&server);
        redisson.tell("a", "lock x");
        // It tries, listens, and tries once more before it sleeps.
        until("it sleeps", || scripts(&server) >= calls + 2);
        listeners(&server, "x", 1);
        let released = monotonic();
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        let granted = redisson.answer("a");
        to_it.push(granted.at.saturating_sub(released));
        granted.value();

        let calls = scripts(&server);
        let pending = lock.acquire();
        // With the subscription of the round before, one try is enough.
        until("we sleep", || scripts(&server) > calls);
        listeners(&server, "x", 1);
        let released = monotonic();
        redisson.ask("a", "unlock x").value();
        let lease = pending.await.unwrap();
        to_us.push(monotonic() - released);
        lease.release().await.unwrap();
    }
    let rows = vec![Row::new("ours, asleep", &peer.0, to_it, 0), Row::new(&peer.0, "ours, asleep", to_us, 0)];
    assert!(rows[0].quantile(1.0) < LONG.as_millis() as f64 / 10.0, "every wake-up of it came by a message");
    assert!(rows.iter().all(|row| row.quantile(0.5) < 500.0), "wake-ups come by message");
    rows
}

/// Tokens of both sides in one row, one after the other.
async fn tokens_go_on(peer: &Party) {
    let server = Server::start();
    let redisson = serve(peer, &server, LONG);
    let ours = client(&server, |config| config.token_key = TokenKey::Redisson);
    let lock = lock(&ours, "x", Ttl::Watchdog);
    let fenced = || redisson.ask("a", "fenced-lock x").value().parse::<u64>().unwrap();
    let unlock = || redisson.ask("a", "fenced-unlock x").value();
    // It began first, as in a fleet that moves: its counter counts from 1.
    assert_eq!(fenced(), 1);
    unlock();
    let mut last = 1;
    for _ in 0..50 {
        let lease = lock.acquire().await.unwrap();
        assert!(lease.token() > last, "{} after {last}", lease.token());
        last = lease.token();
        lease.release().await.unwrap();
        // Exactly: it adds one, whatever is there.
        let theirs = fenced();
        assert_eq!(theirs, last + 1);
        last = theirs;
        unlock();
    }
    // Without us it counts on, also for each re-entry.
    assert_eq!([fenced(), fenced()], [last + 1, last + 2]);
    assert_eq!(redisson.ask("a", "token x").value(), (last + 2).to_string());
    unlock();
    assert!(lock.try_acquire().await.unwrap().is_none());
    unlock();
    assert!(lock.acquire().await.unwrap().token() > last + 2);
    assert_eq!(server.command::<i64>(&["PTTL", "redisson_lock_token:{x}"]), -1);
}

/// The same at once, while both want it.
fn fenced_fight((name, command): &Party) -> Vec<Row> {
    const TIMES: usize = 300;
    let server = Server::start();
    let folder = std::env::temp_dir().join(format!("redlock-interop-fenced-{}", server.port()));
    std::fs::create_dir_all(&folder).unwrap();
    let words = [&server.url(), "x", &TIMES.to_string()];
    let mut theirs = Contender::start(name, &format!("{command} fenced"), words, &["1", "1"], &folder);
    until("it began", || theirs.progress() > 0);
    let log = folder.join("ours.log");
    let ours = client(&server, |config| config.token_key = TokenKey::Redisson);
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
