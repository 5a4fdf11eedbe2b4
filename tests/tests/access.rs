//! Rights and transports on real servers: users with exactly the documented rights, and with one less; RESP2 and RESP3;
//! TLS to clusters and Sentinels; socket files. The tests read the rules from `docs/deployments.md`, so that they test
//! what is documented.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use redlock::{
    Client, Config, Event, Lease, LockError, Owner, ReleaseOutcome, TokenKey, Ttl, Wire, protocol::script::scripts,
};
use redlock_tests::{
    clients::{client_with, options},
    deployments::{Cluster, Watched},
    locked,
    server::{SOCKET, Server},
    tls::Certificates,
};

const LONG: Duration = Duration::from_secs(60);
/// How long to wait for a lock that another client holds. If a busy server did not answer within that time, the acquire
/// would fail with `unavailable` instead of `timeout`.
const BRIEF: Duration = Duration::from_millis(500);

async fn until(what: &str, happened: impl FnMut() -> bool) {
    redlock_tests::until(LONG, what, happened).await;
}

async fn renewed(lease: &Lease) {
    redlock_tests::renewed(LONG, "the lease is renewed", lease).await;
}

/// The documented rules: for every server, and in addition for a cluster, for `min_replicas`, for fair locks, for
/// read/write locks, for semaphores and for a Sentinel.
struct Rules {
    server: Vec<String>,
    cluster: Vec<String>,
    replicas: Vec<String>,
    fair: Vec<String>,
    read_write: Vec<String>,
    semaphore: Vec<String>,
    sentinel: Vec<String>,
}

fn documented() -> Rules {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/deployments.md");
    let page = fs::read_to_string(page).unwrap();
    let rules = page.lines().filter_map(|line| line.strip_prefix("ACL SETUSER locks "));
    let rules: Vec<Vec<String>> = rules.map(|rule| rule.split(' ').map(str::to_owned).collect()).collect();
    let [server, cluster, replicas, fair, read_write, semaphore, sentinel] = rules.try_into().expect("seven rules");
    Rules { server, cluster, replicas, fair, read_write, semaphore, sentinel }
}

/// Gives the user these rights on a server, and clears the server's log of denials.
fn permit(server: &Server, rules: &[String]) {
    let rules = rules.iter().map(String::as_str);
    let words: Vec<&str> = ["ACL", "SETUSER", "locks"].into_iter().chain(rules).collect();
    let _: () = server.command(&words);
    let _: () = server.command(&["ACL", "LOG", "RESET"]);
}

/// What a server has denied to a user.
fn denied(server: &Server) -> BTreeSet<String> {
    let log: Vec<Vec<redis::Value>> = server.command(&["ACL", "LOG", "128"]);
    let text = |value: &redis::Value| redis::from_redis_value_ref::<String>(value).unwrap_or_default();
    log.iter()
        .filter_map(|entry| entry.iter().position(|name| text(name) == "object").map(|at| text(&entry[at + 1])))
        // Names of the library and of the client, and the names of others. Nothing is lost if they are denied.
        .filter(|object| !["client|setinfo", "client|setname", "client|list"].contains(&object.as_str()))
        .collect()
}

fn as_user(url: &str) -> String {
    url.replacen("://", "://locks:secret@", 1)
}

type Warnings = Arc<Mutex<Vec<String>>>;

fn watched(urls: &[String], change: impl FnOnce(&mut Config)) -> (Client, Warnings) {
    let warnings = Warnings::default();
    let mut config = Config::new(urls.iter().cloned());
    config.prefix = "app:".into();
    config.watchdog = Duration::from_secs(2);
    config.max_ttl = Duration::from_secs(20);
    change(&mut config);
    let seen = Arc::clone(&warnings);
    let sink = move |event: &Event| {
        if matches!(event, Event::NodeWarning { .. } | Event::NodeDown { .. } | Event::Lost { .. }) {
            locked(&seen).push(event.to_string());
        }
    };
    (Client::with_events(config, Arc::new(sink)).unwrap(), warnings)
}

/// Does everything that a client can do, as far as its rights matter.
async fn everything(client: &Client, other: &Client) -> Result<(), LockError> {
    let lock = client.lock("x", options(|_| {}))?;
    let lease = lock.acquire_as(lock.request(Owner::Explicit("me".into()))).await?;
    let nested = lock.acquire_as(lock.request(Owner::Explicit("me".into()))).await?;
    assert_eq!(nested.token(), lease.token());
    nested.release().await?;
    lease.extend(Duration::from_secs(10)).await?;
    assert!(lock.locked().await? && lock.inspect().await?.is_some());
    assert!(other.lock("x", options(|_| {}))?.try_acquire().await?.is_none());
    lease.release().await?;

    // The watchdog renews the lease, another client waits for it, and a message hands it over.
    let lease = lock.acquire().await?;
    renewed(&lease).await;
    let waiting = tokio::spawn(other.lock("x", options(|options| options.wait = Some(LONG)))?.acquire());
    let token = lease.token();
    lease.release().await?;
    let next = waiting.await.unwrap()?;
    assert!(next.token() > token);
    next.release().await?;

    let adaptive = client.lock("adaptive", options(|options| options.ttl = Ttl::Adaptive))?;
    for _ in 0..2 {
        adaptive.acquire().await?.release().await?;
    }
    let fixed = client.lock("fixed", options(|options| options.ttl = Ttl::Fixed(Duration::from_secs(10))))?;
    let text = fixed.acquire().await?.detach()?;
    let attached = client.attach(&text, Owner::Fresh).await?;
    attached.release().await?;
    let owned = client.lock("owned", options(|options| options.owner = Some("me".into())))?;
    let _first = owned.acquire().await?;
    let same = other.lock("owned", options(|options| options.owner = Some("me".into())))?;
    // A key of this wire is a string, which has room for one tenure.
    if client.config().wire != Wire::Token {
        same.acquire().await?.release().await?;
    }
    assert_eq!(same.release(&Owner::Fresh).await?, ReleaseOutcome::Released);
    let forced = client.lock("forced", options(|_| {}))?.acquire().await?;
    assert!(other.force_release("forced").await?);
    tokio::time::timeout(LONG, forced.lost()).await.unwrap();
    let pongs = client.ping().await?;
    assert!(pongs.iter().all(|pong| pong.state.is_ok()), "{pongs:?}");
    Ok(())
}

/// Does everything that a client can do with a read/write lock.
async fn everything_inside(client: &Client, other: &Client) -> Result<(), LockError> {
    let long = || options(|options| options.wait = Some(LONG));
    let (lock, there) = (client.read_write_lock("x", long())?, other.read_write_lock("x", long())?);
    let reading = lock.read().acquire().await?;
    let too = there.read().acquire().await?;
    // On a quorum a slow node may have started its count later.
    let alike =
        if client.config().urls.len() == 1 { too.token() == reading.token() } else { too.token() >= reading.token() };
    assert!(alike, "{} after {}", too.token(), reading.token());
    assert!(there.write().try_acquire().await?.is_none());
    assert_eq!(other.lock("x", options(|_| {}))?.inspect().await?.unwrap().owners.len(), 2);
    too.release().await?;
    assert!(reading.try_upgrade().await?);
    renewed(&reading).await;
    reading.downgrade().await?;
    renewed(&reading).await;

    // Both wait, and both get the lock in the end.
    let writing = tokio::spawn(there.write().acquire());
    while !writing.is_finished() && lock.read().try_acquire().await?.is_some() {
        tokio::task::yield_now().await;
    }
    reading.release().await?;
    let writing = writing.await.unwrap()?;
    let waiting = tokio::spawn(lock.read().acquire());
    writing.release().await?;
    waiting.await.unwrap()?.release().await?;

    let fixed = client.read_write_lock("x", options(|options| options.ttl = Ttl::Fixed(Duration::from_secs(10))))?;
    let text = fixed.read().acquire().await?.detach()?;
    client.attach(&text, Owner::Fresh).await?.release().await?;
    let forced = lock.write().acquire().await?;
    assert!(other.force_release("x").await?);
    tokio::time::timeout(LONG, forced.lost()).await.unwrap();
    Ok(())
}

/// Does everything that a client can do with a semaphore.
async fn everything_permitted(client: &Client, other: &Client) -> Result<(), LockError> {
    let long = || options(|options| options.wait = Some(LONG));
    let (here, there) = (client.semaphore("x", 2, long())?, other.semaphore("x", 2, long())?);
    let (one, two) = (here.acquire().await?, there.acquire().await?);
    assert!(there.try_acquire().await?.is_none());
    assert_eq!(here.available().await?, 0);
    assert_eq!(other.lock("x", options(|_| {}))?.inspect().await?.unwrap().owners.len(), 2);
    one.extend(Duration::from_secs(2)).await?;
    renewed(&one).await;
    two.release().await?;

    // A waiter for both slots gets them when the last one is released. A try of its client is refused once it waits, also
    // on a quorum, where no server knows of it.
    let waiting = tokio::spawn({
        let there = there.clone();
        async move { there.acquire_many(2).await }
    });
    while !waiting.is_finished() && there.try_acquire().await?.is_some() {
        tokio::task::yield_now().await;
    }
    one.release().await?;
    waiting.await.unwrap()?.release().await?;

    // A permit that nobody releases ends with its lease, and then another one gets its slot. A permit that stays keeps the
    // keys: alone, those of the first would expire soon after its lease.
    let stays = here.acquire().await?;
    let brief = client.semaphore("x", 2, options(|options| options.ttl = Ttl::Fixed(Duration::from_millis(200))))?;
    brief.acquire().await?.detach()?;
    there.acquire().await?.release().await?;
    stays.release().await?;

    let fixed = client.semaphore("x", 2, options(|options| options.ttl = Ttl::Fixed(Duration::from_secs(10))))?;
    let text = fixed.acquire().await?.detach()?;
    client.attach(&text, Owner::Fresh).await?.release().await?;
    let forced = here.acquire().await?;
    assert!(other.force_release("x").await?);
    tokio::time::timeout(LONG, forced.lost()).await.unwrap();
    Ok(())
}

/// Does everything as the user, and checks that the servers denied nothing.
async fn suffices(what: &str, urls: &[String], servers: &[&Server], change: impl Fn(&mut Config)) {
    all_of(what, urls, servers, change, everything).await;
}

/// As [`suffices`], with read/write locks.
async fn suffices_inside(what: &str, urls: &[String], servers: &[&Server], change: impl Fn(&mut Config)) {
    all_of(what, urls, servers, change, everything_inside).await;
}

/// As [`suffices`], with semaphores.
async fn suffices_permitted(what: &str, urls: &[String], servers: &[&Server], change: impl Fn(&mut Config)) {
    all_of(what, urls, servers, change, everything_permitted).await;
}

async fn all_of(
    what: &str,
    urls: &[String],
    servers: &[&Server],
    change: impl Fn(&mut Config),
    everything: impl AsyncFn(&Client, &Client) -> Result<(), LockError>,
) {
    let user: Vec<String> = urls.iter().map(|url| as_user(url)).collect();
    let ((one, warned), (other, warned_too)) = (watched(&user, &change), watched(&user, &change));
    everything(&one, &other).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    // The first renewal of an attached lease prolongs its counter.
    let text = one.lock("attached", options(|_| {})).unwrap().acquire().await.unwrap().detach().unwrap();
    let attached = other.attach(&text, Owner::Fresh).await.unwrap();
    renewed(&attached).await;
    attached.release().await.unwrap();
    for warned in [warned, warned_too] {
        let lost = |line: &String| ["forced", "owned", "x"].iter().any(|name| line.contains(&format!("{name:?}")));
        assert_eq!(locked(&warned).iter().filter(|line| !lost(line)).count(), 0, "{what}: {warned:?}");
    }
    nothing_left_nothing_denied(what, servers).await;
}

/// Fair locks: one client holds the lock, another waits, a third gives up.
async fn in_turn(what: &str, url: &str, servers: &[&Server], change: impl Fn(&mut Config)) {
    let new = || watched(&[as_user(url)], &change);
    let ((one, warned), (other, warned_too)) = (new(), new());
    let fair = |client: &Client, wait: Option<Duration>| {
        client.lock("x", options(|options| (options.fair, options.wait) = (true, wait))).unwrap()
    };
    let held = fair(&one, None).acquire().await.unwrap();
    assert!(fair(&other, None).try_acquire().await.unwrap().is_none(), "{what}");
    let brief = fair(&other, Some(BRIEF)).acquire().await;
    assert!(matches!(brief, Err(LockError::Timeout { .. })), "{what}: {brief:?}");
    let waiting = tokio::spawn(fair(&other, None).acquire());
    let queued = || -> usize {
        servers.iter().map(|server| server.command::<Vec<String>>(&["KEYS", "redlock_queue:*"]).len()).sum()
    };
    until(&format!("{what}: it has a place"), || queued() == 1).await;
    assert_eq!(held.release().await.unwrap(), ReleaseOutcome::Released, "{what}");
    assert_eq!(waiting.await.unwrap().unwrap().release().await.unwrap(), ReleaseOutcome::Released, "{what}");
    for warned in [warned, warned_too] {
        assert_eq!(*locked(&warned), Vec::<String>::new(), "{what}");
    }
    nothing_left_nothing_denied(what, servers).await;
}

/// Waits for the keys to go: a quorum's slowest nodes may still be at work when the call returns.
async fn nothing_left_nothing_denied(what: &str, servers: &[&Server]) {
    for server in servers {
        let left = || server.command::<Vec<String>>(&["KEYS", "app:*"]);
        until(&format!("{what}: nothing is left behind"), || left().is_empty()).await;
        assert_eq!(denied(server), BTreeSet::new(), "{what}");
    }
}

#[tokio::test]
async fn the_documented_rights_suffice() {
    let rules = documented();
    let servers = [Server::start(), Server::start(), Server::start()];
    for server in &servers {
        permit(server, &rules.server);
    }
    for wire in [Wire::Redisson, Wire::Token] {
        let one = [servers[0].url()];
        suffices("one server", &one, &[&servers[0]], |config| config.wire = wire).await;
        permit(&servers[0], &rules.fair);
        in_turn("fair locks", &one[0], &[&servers[0]], |config| config.wire = wire).await;
        let three: Vec<String> = servers.iter().map(Server::url).collect();
        suffices("three servers", &three, &servers.iter().collect::<Vec<_>>(), |config| config.wire = wire).await;

        // No client has a majority: the attempt releases what it got, without a message to waiters.
        let alone = |url: &str| watched(&[as_user(url)], |config| config.wire = wire).0.lock("x", options(|_| {}));
        let held =
            [alone(&three[0]).unwrap().acquire().await.unwrap(), alone(&three[1]).unwrap().acquire().await.unwrap()];
        let all: Vec<String> = three.iter().map(|url| as_user(url)).collect();
        let (client, _) = watched(&all, |config| config.wire = wire);
        client.ping().await.unwrap();
        let brief = client.lock("x", options(|options| options.wait = Some(BRIEF))).unwrap().acquire().await;
        assert!(matches!(brief, Err(LockError::Timeout { .. })), "{brief:?}");
        for lease in held {
            lease.release().await.unwrap();
        }
        nothing_left_nothing_denied("a split", &servers.iter().collect::<Vec<_>>()).await;
    }
    for server in &servers {
        permit(server, &rules.read_write);
    }
    let three: Vec<String> = servers.iter().map(Server::url).collect();
    suffices_inside("read/write locks", &three[..1], &[&servers[0]], |_| {}).await;
    suffices_inside("read/write locks on a quorum", &three, &servers.iter().collect::<Vec<_>>(), |_| {}).await;

    let alone = [rules.server.clone(), rules.semaphore].concat();
    permit(&servers[0], &alone);
    suffices_permitted("semaphores", &three[..1], &[&servers[0]], |_| {}).await;
    for server in &servers {
        permit(server, &alone);
    }
    suffices_permitted("semaphores on a quorum", &three, &servers.iter().collect::<Vec<_>>(), |_| {}).await;
    // On one node alone, others have slot 0: it grants another slot than the others do, and the permit is moved.
    let foreign = watched(&[as_user(&three[1])], |_| {}).0.semaphore("x", 1, options(|_| {})).unwrap();
    let foreign = foreign.acquire().await.unwrap();
    let (client, _) = watched(&three.iter().map(|url| as_user(url)).collect::<Vec<_>>(), |_| {});
    for _ in 0..8 {
        let both = client.semaphore("x", 2, options(|_| {})).unwrap();
        let (one, two) = (both.acquire().await.unwrap(), both.acquire().await.unwrap());
        one.release().await.unwrap();
        two.release().await.unwrap();
    }
    foreign.release().await.unwrap();
    nothing_left_nothing_denied("moved permits", &servers.iter().collect::<Vec<_>>()).await;

    let mut shared = rules.server.clone();
    shared.push("~redisson_lock_token:*".to_owned());
    permit(&servers[0], &shared);
    suffices("Redisson's tokens", &[servers[0].url()], &[&servers[0]], |config| {
        config.token_key = TokenKey::Redisson;
    })
    .await;
}

#[tokio::test]
async fn the_documented_rights_suffice_on_a_cluster() {
    let rules = documented();
    let cluster = Cluster::start(3, 1);
    for server in cluster.servers() {
        permit(server, &rules.server);
        permit(server, &rules.cluster);
        permit(server, &rules.replicas);
        permit(server, &rules.fair);
    }
    let all: Vec<&Server> = cluster.servers().iter().collect();
    let masters: Vec<&Server> = vec![&cluster.servers()[cluster.owner("app:x")]];
    in_turn("fair locks on a cluster", &cluster.url(), &masters, |_| {}).await;
    in_turn("fair locks with min_replicas", &cluster.url(), &masters, |config| config.min_replicas = 1).await;
    suffices("a cluster", &[cluster.url()], &all, |_| {}).await;
    suffices("a cluster with min_replicas", &[cluster.url()], &all, |config| config.min_replicas = 1).await;
    for server in cluster.servers() {
        permit(server, &rules.read_write);
    }
    suffices_inside("read/write locks on a cluster", &[cluster.url()], &all, |_| {}).await;
    suffices_inside("such with min_replicas", &[cluster.url()], &all, |config| config.min_replicas = 1).await;
    for server in cluster.servers() {
        for rules in [&rules.server, &rules.cluster, &rules.replicas, &rules.semaphore] {
            permit(server, rules);
        }
    }
    suffices_permitted("semaphores on a cluster", &[cluster.url()], &all, |_| {}).await;
    suffices_permitted("such with min_replicas", &[cluster.url()], &all, |config| config.min_replicas = 1).await;
    let single = Server::start();
    permit(&single, &rules.server);
    let quorum = [cluster.url(), single.url()];
    suffices("a quorum with a cluster", &quorum, &all, |_| {}).await;

    // A lock whose key moved ahead of its slot: the server serves it after `ASKING`.
    let (client, _) = watched(&[as_user(&cluster.url())], |config| config.watchdog = Duration::from_secs(20));
    let lease = client.lock("x", options(|_| {})).unwrap().acquire().await.unwrap();
    let (from, to) = (cluster.owner("app:x"), cluster.another("app:x"));
    cluster.begin_move("app:x", to);
    cluster.move_key("app:x", from, to);
    lease.extend(Duration::from_secs(20)).await.unwrap();
    cluster.end_move("app:x", from, to);
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    for server in cluster.servers() {
        assert_eq!(denied(server), BTreeSet::new());
    }
}

#[tokio::test]
async fn the_documented_rights_suffice_with_sentinels() {
    let rules = documented();
    let mut deployment = Watched::start(1);
    for server in deployment.servers() {
        permit(server, &rules.server);
        permit(server, &rules.replicas);
    }
    let url = format!("{}?sentinel_username=locks&sentinel_password=secret", deployment.url());
    for index in 0..3 {
        permit(deployment.sentinel(index), &rules.sentinel);
    }
    let all: Vec<&Server> = deployment.servers().iter().collect();
    suffices("Sentinels", std::slice::from_ref(&url), &all, |config| config.min_replicas = 1).await;
    for index in 0..3 {
        assert_eq!(denied(deployment.sentinel(index)), BTreeSet::new());
        permit(deployment.sentinel(index), &["-sentinel|master".to_owned()]);
    }
    let (client, _) = watched(&[as_user(&url)], |_| {});
    let error = client.lock("x", options(|_| {})).unwrap().acquire().await.unwrap_err();
    assert_eq!(error.code(), "unavailable");
    assert!(error.to_string().contains("NOPERM") && error.to_string().contains("sentinel|master"), "{error}");
}

/// The rights in the documented rules, one by one.
fn single_rights(rules: &[String]) -> Vec<String> {
    rules.iter().filter(|right| right.starts_with(['+', '~', '&'])).cloned().collect()
}

/// Rights without which every call still succeeds, as the documentation says.
const SPARED: [&str; 10] = [
    "+eval",
    "+publish",
    "+subscribe",
    "&redisson_lock__channel:*",
    "+unsubscribe",
    "+ping",
    "+info",
    "+client|info",
    "+config|get",
    "~redlock_hold:*",
];
/// A right without which some calls succeed and others name it. The release of an explicit owner ends the lock, but
/// does not announce it.
const PARTLY: &str = "+exists";
/// Rights that these tests do not need: for cleaning up behind a broken connection, and for a quorum.
const UNUSED: [&str; 2] = ["+client|kill", "~redlock_node"];

/// Does everything with each right withdrawn in turn.
async fn names_what_is_missing(wire: Wire, of_the_other: &[&str]) {
    let rules = documented().server;
    let rights: Vec<String> = single_rights(&rules);
    let rights =
        rights.iter().map(String::as_str).filter(|right| !of_the_other.contains(right) && !UNUSED.contains(right));
    each_is_missed(wire, &rules, &rights.collect::<Vec<_>>(), &SPARED, everything).await;
}

/// Tests several rights at a time, each group on a server of its own, since most of the time is waiting.
async fn each_is_missed(
    wire: Wire,
    rules: &[String],
    rights: &[&str],
    spared: &[&str],
    everything: impl AsyncFn(&Client, &Client) -> Result<(), LockError>,
) {
    let parts = rights.chunks(rights.len().div_ceil(4));
    let parts = parts.map(|rights| wrong_without(wire, rules, rights, spared, &everything));
    let wrong: Vec<String> = futures_util::future::join_all(parts).await.concat();
    assert!(wrong.is_empty(), "{wire:?} without {}", wrong.join("\n  "));
}

/// Withdraws each right in turn, and returns what did not go as documented.
async fn wrong_without(
    wire: Wire,
    rules: &[String],
    rights: &[&str],
    spared: &[&str],
    everything: impl AsyncFn(&Client, &Client) -> Result<(), LockError>,
) -> Vec<String> {
    let server = Server::start();
    let user = [as_user(&server.url())];
    let clients = || {
        let set = |config: &mut Config| config.wire = wire;
        (watched(&user, set), watched(&user, set))
    };
    // Loads the scripts first, since loading needs `EVAL`.
    permit(&server, rules);
    let ((one, _), (other, _)) = clients();
    everything(&one, &other).await.unwrap();
    let mut wrong = Vec::new();
    for &right in rights {
        let less = ["reset".to_owned()].into_iter().chain(rules.iter().filter(|one| *one != right).cloned());
        permit(&server, &less.collect::<Vec<_>>());
        let ((one, warned), (other, _)) = clients();
        let done = tokio::time::timeout(LONG, everything(&one, &other)).await;
        let named = &right[1..];
        match done {
            Err(_) => wrong.push(format!("{right}: hangs")),
            Ok(Ok(())) if spared.contains(&right) => {
                let warnings = locked(&warned).iter().filter(|line| line.contains("cannot")).count();
                if warnings > 1 {
                    wrong.push(format!("{right}: {:?}", locked(&warned)));
                }
            }
            Ok(Ok(())) if right == PARTLY => {}
            Ok(Ok(())) => wrong.push(format!("{right}: nothing is refused")),
            Ok(Err(error)) => {
                let text = error.to_string();
                println!("| {wire:?} | {right} | {text} |");
                let name = if right.starts_with('+') { format!("'{named}'") } else { named.replace('*', "") };
                // The server does not name a key that the script computes.
                let named = text.contains(&name) || right.contains("rwlock_timeout") && text.contains("keys");
                if error.code() != "unavailable" || !named || spared.contains(&right) {
                    wrong.push(format!("{right}: {text}"));
                }
            }
        }
        let eternal = server.command::<Vec<String>>(&["KEYS", "*"]).into_iter().filter(|key| {
            // A key that expired meanwhile gives -2.
            server.command::<i64>(&["PTTL", key]) == -1
        });
        wrong.extend(eternal.map(|key| format!("{right}: {key} has no ttl")));
        let _: () = server.command(&["FLUSHALL"]);
    }
    wrong
}

#[tokio::test]
async fn a_right_that_is_missing_is_named() {
    names_what_is_missing(Wire::Redisson, &["+del"]).await;
}

#[tokio::test]
async fn a_right_that_is_missing_is_named_for_strings() {
    names_what_is_missing(Wire::Token, &["+hset", "+hexists", "+hkeys", "+hdel"]).await;
}

/// Withdraws the rights that only a read/write lock needs, and those without which it could leave a key behind for
/// ever. `HGETALL` is left out: only a key with readers of Redisson needs it.
#[tokio::test]
async fn a_right_that_is_missing_is_named_for_read_write_locks() {
    let Rules { server, read_write, .. } = documented();
    let rights = single_rights(&read_write);
    let missed = ["+hgetall"];
    let rights = rights.iter().map(String::as_str).filter(|right| !missed.contains(right)).chain(["+pexpire", "+set"]);
    let spared = ["&redlock_wake:*", "&redisson_rwlock:*"];
    let (rights, rules) = (rights.collect::<Vec<_>>(), [server.clone(), read_write.clone()].concat());
    each_is_missed(Wire::Redisson, &rules, &rights, &spared, everything_inside).await;
}

/// Withdraws the rights that only a semaphore needs. `HGETALL` is left out: only a semaphore that lost a key needs it.
#[tokio::test]
async fn a_right_that_is_missing_is_named_for_semaphores() {
    let Rules { server, semaphore, .. } = documented();
    let rights = single_rights(&semaphore);
    let missed = ["+hgetall"];
    let rights = rights.iter().map(String::as_str).filter(|right| !missed.contains(right)).chain(["+pexpire"]);
    let spared = ["&redlock_wake:*", "&redlock_semaphore:*"];
    let (rights, rules) = (rights.collect::<Vec<_>>(), [server.clone(), semaphore.clone()].concat());
    each_is_missed(Wire::Redisson, &rules, &rights, &spared, everything_permitted).await;
}

/// A client that attaches a lease draws no token, and may lack the right to the counter.
#[tokio::test]
async fn a_lease_is_renewed_even_if_the_user_may_not_prolong_its_counter() {
    let server = Server::start();
    let rules = documented().server;
    permit(&server, &rules.into_iter().filter(|rule| rule != "~redlock_token:*").collect::<Vec<_>>());
    let holder = watched(&[server.url()], |_| {}).0;
    let text = holder.lock("x", options(|_| {})).unwrap().acquire().await.unwrap().detach().unwrap();
    let (client, warned) = watched(&[as_user(&server.url())], |_| {});
    let lease = client.attach(&text, Owner::Fresh).await.unwrap();
    until("it may not", || denied(&server).contains("redlock_token:{app:x}")).await;
    for _ in 0..2 {
        renewed(&lease).await;
    }
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(locked(&warned).clone(), Vec::<String>::new());
}

/// From Redis 7.0 on the script asks the server whether it has the right. Before, it tries the command on a key that
/// does not exist.
#[test]
fn a_user_that_may_not_set_a_ttl_writes_no_lock() {
    let server = Server::start();
    let acquire = &scripts(Wire::Redisson).acquire.source;
    for source in [acquire.clone(), acquire.replace("redis.acl_check_cmd", "redis.is_not_there_yet")] {
        let acquire = || -> redis::RedisResult<String> {
            let user = redis::Client::open(as_user(&server.url())).unwrap();
            let mut call = redis::cmd("EVAL");
            call.arg(&source).arg(2).arg("app:x").arg("redlock_token:app:x").arg(&["u:1", "", "60000", "60000", "0"]);
            call.query(&mut user.get_connection().unwrap())
        };
        permit(&server, &documented().server);
        permit(&server, &["-pexpire".to_owned()]);
        assert!(acquire().is_err());
        assert!(!server.command::<bool>(&["EXISTS", "app:x"]));
        permit(&server, &["+pexpire".to_owned()]);
        assert!(acquire().unwrap().starts_with("1 "));
        assert!(server.command::<i64>(&["PTTL", "app:x"]) > 0);
        let _: () = server.command(&["FLUSHALL"]);
    }
}

#[tokio::test]
async fn waiters_are_woken_again_once_the_server_lets_their_user_in_again() {
    let server = Server::start();
    let mut rules = documented().server;
    rules.push("~x".to_owned());
    permit(&server, &rules);
    let holder = client_with([server.url()], |_| {}).lock("x", options(|_| {})).unwrap().acquire().await.unwrap();
    let lock = client_with([as_user(&server.url())], |_| {}).lock("x", options(|_| {})).unwrap();
    let first = tokio::spawn(lock.acquire());
    until("it waits", || server.waiting("x") == 1).await;
    let _: () = server.command(&["ACL", "DELUSER", "locks"]);
    assert!(matches!(first.await.unwrap(), Err(LockError::Unavailable { .. })));
    permit(&server, &rules);
    let next = tokio::spawn(async move {
        loop {
            match lock.acquire().await {
                Err(LockError::Unavailable { .. }) => tokio::task::yield_now().await,
                other => return other,
            }
        }
    });
    until("the next one waits, too", || server.waiting("x") == 1).await;
    holder.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_that_is_denied_is_warned_of_once() {
    let rules = documented();
    let server = Server::start();
    let less = ["reset".to_owned()].into_iter().chain(rules.server.iter().filter(|one| *one != "+hdel").cloned());
    permit(&server, &less.collect::<Vec<_>>());
    let (client, warned) = watched(&[as_user(&server.url())], |_| {});
    for name in ["x", "y"] {
        let lease = client.lock(name, options(|_| {})).unwrap().acquire().await.unwrap();
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Unconfirmed);
    }
    let warnings = locked(&warned).clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("cannot release locks") && warnings[0].contains("hdel"), "{warnings:?}");
}

/// Not until `patience` is over, like a replica that is down.
#[tokio::test]
async fn a_grant_that_may_not_wait_for_replicas_fails_at_once() {
    let rules = documented();
    let server = Server::start();
    permit(&server, &["reset".to_owned()].into_iter().chain(rules.server).collect::<Vec<_>>());
    let (client, _) = watched(&[as_user(&server.url())], |config| {
        config.min_replicas = 1;
        config.patience = LONG * 60;
    });
    let lock = client.lock("x", options(|_| {})).unwrap();
    let failed = tokio::time::timeout(LONG, lock.acquire()).await.expect("it does not wait").unwrap_err();
    let LockError::Unavailable { causes, .. } = failed else { panic!("{failed}") };
    assert!(causes[0].forbidden && causes[0].cause.contains("WAIT"), "{causes:?}");
}

#[tokio::test]
async fn a_subscription_that_is_denied_is_warned_of_once() {
    let rules = documented();
    let server = Server::start();
    for right in ["+subscribe", "&redisson_lock__channel:*"] {
        let less = ["reset".to_owned()].into_iter().chain(rules.server.iter().filter(|one| *one != right).cloned());
        permit(&server, &less.collect::<Vec<_>>());
        let holder = watched(&[server.url()], |_| {}).0;
        let (limited, warned) = watched(&[as_user(&server.url())], |_| {});
        for _ in 0..2 {
            let lease = holder.lock("x", options(|_| {})).unwrap().acquire().await.unwrap();
            let waiting = tokio::spawn(limited.lock("x", options(|_| {})).unwrap().acquire());
            until("it is told", || !locked(&warned).is_empty()).await;
            lease.release().await.unwrap();
            waiting.await.unwrap().unwrap().release().await.unwrap();
        }
        let warnings = locked(&warned).clone();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("polls instead") && warnings[0].contains("NOPERM"), "{warnings:?}");
    }
}

// ---- protocols ----------------------------------------------------------------------------------------------------

fn protocols(server: &Server) -> BTreeSet<String> {
    let list: String = server.command(&["CLIENT", "LIST"]);
    // Without this test's own connection and those that subscribe.
    let other = list.lines().filter(|line| !line.contains("cmd=client|list") && !line.contains("subscribe"));
    other.filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("resp="))).map(str::to_owned).collect()
}

#[tokio::test]
async fn both_protocols_do_everything() {
    let server = Server::start();
    let cluster = Cluster::start(3, 0);
    for (url, servers) in [(server.url(), vec![&server]), (cluster.url(), cluster.servers().iter().collect())] {
        for (protocol, query) in [("2", "?protocol=2"), ("3", "?protocol=3"), ("3", "")] {
            let url = [format!("{url}{query}")];
            let ((one, warned), (other, _)) = (watched(&url, |_| {}), watched(&url, |_| {}));
            everything(&one, &other).await.unwrap();
            let spoken: BTreeSet<String> = servers.iter().flat_map(|server| protocols(server)).collect();
            assert_eq!(spoken, BTreeSet::from([protocol.to_owned()]), "{url:?}");
            assert!(!locked(&warned).iter().any(|line| line.contains("cannot")), "{warned:?}");
            one.close().await;
            other.close().await;
            until("the connections are closed", || servers.iter().all(|server| protocols(server).is_empty())).await;
        }
    }
}

// ---- TLS and sockets ----------------------------------------------------------------------------------------------

fn trusting(files: &Certificates) -> impl Fn(&mut Config) {
    |config| {
        // A handshake takes long while the machine is busy.
        config.connect_timeout = Duration::from_secs(10);
        config.tls.ca = Some(files.path("ca.crt"));
        config.tls.cert = Some(files.path("client.crt"));
        config.tls.key = Some(files.path("client.key"));
    }
}

#[tokio::test]
async fn a_cluster_with_tls() {
    let files = Certificates::make();
    let arguments = files.arguments("server");
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--tls-cluster", "yes", "--tls-replication", "yes"]);
    let mut cluster = Cluster::with_args(3, 1, &arguments);
    assert!(cluster.url().starts_with("rediss+cluster://"));
    let set = trusting(&files);
    let (one, other) = (watched(&[cluster.url()], &set).0, watched(&[cluster.url_of(1)], &set).0);
    everything(&one, &other).await.unwrap();
    // The client follows redirections and failovers as without TLS.
    let steady = |config: &mut Config| {
        set(config);
        config.watchdog = Duration::from_secs(20);
    };
    let client = watched(&[cluster.url()], steady).0;
    let lease = client.lock("x", options(|_| {})).unwrap().acquire().await.unwrap();
    let owner = cluster.owner("app:x");
    let _: i64 = cluster.servers()[owner].command(&["WAIT", "1", "5000"]);
    cluster.server(owner).stop();
    renewed(&lease).await;
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn sentinels_with_tls() {
    let files = Certificates::make();
    let arguments = files.arguments("server");
    let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    arguments.extend(["--tls-replication", "yes"]);
    let lines = files.options("server").map(|(name, value)| format!("{name} {value}")).join("\n");
    let mut deployment = Watched::with_args(1, &arguments, &format!("{lines}\ntls-replication yes"));
    assert!(deployment.url().starts_with("rediss+sentinel://"));
    let set = trusting(&files);
    let (one, other) = (watched(&[deployment.url()], &set).0, watched(&[deployment.url()], &set).0);
    everything(&one, &other).await.unwrap();
    let steady = |config: &mut Config| {
        set(config);
        config.watchdog = Duration::from_secs(20);
    };
    let client = watched(&[deployment.url()], steady).0;
    let lease = client.lock("x", options(|_| {})).unwrap().acquire().await.unwrap();
    let _: i64 = deployment.servers()[0].command(&["WAIT", "1", "5000"]);
    deployment.server(0).stop();
    renewed(&lease).await;
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_socket_file_with_a_user() {
    let rules = documented();
    let server = Server::with_args(&["--unixsocket", SOCKET]);
    permit(&server, &rules.server);
    let set = |config: &mut Config| {
        config.username = Some("locks".into());
        config.password = Some("secret".into());
    };
    let url = [format!("unix://{}", server.socket().display())];
    let (one, other) = (watched(&url, set).0, watched(&url, set).0);
    everything(&one, &other).await.unwrap();
    assert_eq!(denied(&server), BTreeSet::new());
    let (wrong, _) = watched(&url, |config| {
        set(config);
        config.password = Some("hunter2".into());
    });
    let error = wrong.lock("x", options(|_| {})).unwrap().acquire().await.unwrap_err();
    assert!(error.to_string().contains("WRONGPASS") && !error.to_string().contains("hunter"), "{error}");
}
