//! Tests of a redis node on real servers that are frozen, killed, full or refuse commands.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    sync::{
        Mutex,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
    thread,
};

use redis::Value;
use redlock_servers::{
    PATIENCE, locked,
    port::Port,
    proxy::{Direction::Requests, Proxy},
    server::{SOCKET, Server},
    stub::{HTTP, Stub},
    tls::Certificates,
    until,
};
use sha1_smol::Sha1;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::Instant,
};

use super::{
    connection::CHECKED_AFTER_IDLE,
    connection::MOST_UNANSWERED,
    errors::{error_from_reply_text, forbidden_error, not_run_error},
    request::shortfall,
    sentinel::Sentinels,
    *,
};
use crate::{
    config::{Config, Wire},
    protocol::script::Script,
    quorum::insist,
    server::NodeErrorKind,
};

mod batches;
mod room;

/// The reply time-out in tests that wait for it.
const SHORT: Duration = Duration::from_millis(500);

/// Runs a command over a new connection.
fn run(server: &Server, words: &str) -> Value {
    server.command(&words.split(' ').collect::<Vec<_>>())
}

fn exists(server: &Server, key: &str) -> bool {
    server.command(&["EXISTS", key])
}

/// A listener on a port of its own.
fn listener() -> (Port, TcpListener) {
    let (port, listener) = Port::listen();
    listener.set_nonblocking(true).unwrap();
    (port, TcpListener::from_std(listener).unwrap())
}

/// A node and its events.
struct Tested {
    node: RedisNode,
    events: mpsc::UnboundedReceiver<Event>,
    changes: watch::Receiver<u64>,
}

impl Tested {
    fn new(url: &str) -> Self {
        Self::with(url, |_| {})
    }

    fn hasty(url: &str) -> Self {
        Self::with(url, |config| config.reply_timeout = SHORT)
    }

    fn with(url: &str, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new([url]);
        config.connect_timeout = PATIENCE;
        config.reply_timeout = PATIENCE;
        change(&mut config);
        let settings = config.validate().unwrap();
        let (sink, events) = mpsc::unbounded_channel();
        let sink: EventSink = Arc::new(move |event| {
            let _ = sink.send(event.clone());
        });
        let node = RedisNode::new(&settings.endpoints[0], &settings, sink, None).unwrap();
        let changes = node.changes();
        Self { node, events, changes }
    }

    async fn eval(&self, call: ScriptCall) -> Result<Reply, NodeError> {
        self.node.eval(Driver::Background, call, PATIENCE, SentOn::default()).await
    }

    async fn changed(&mut self) {
        tokio::time::timeout(PATIENCE, self.changes.changed()).await.unwrap().unwrap();
    }

    async fn event(&mut self) -> Event {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.unwrap().unwrap()
    }
}

fn call(source: &str, keys: &[&str], args: &[&str]) -> ScriptCall {
    let script = Script {
        name: "test",
        wire: Wire::Redisson,
        source: source.to_owned(),
        sha: Sha1::from(source).digest().to_string(),
    };
    let own = |parts: &[&str]| parts.iter().map(ToString::to_string).collect();
    ScriptCall::new(Box::leak(Box::new(script)), own(keys), own(args))
}

fn set(key: &str) -> ScriptCall {
    call("redis.call('SET', KEYS[1], '1') return 1", &[key], &[])
}

fn del(key: &str) -> ScriptCall {
    call("return redis.call('DEL', KEYS[1])", &[key], &[])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_loaded_when_the_server_forgot_it() {
    let server = Server::start();
    let tested = Tested::new(&server.url());
    let echo = call("return {1, ARGV[1], {KEYS[1]}, false}", &["k"], &["v"]);
    let text = |text: &str| Reply::Text(text.to_owned());
    let expected = Reply::List(vec![Reply::Int(1), text("v"), Reply::List(vec![text("k")]), Reply::List(vec![])]);
    assert_eq!(tested.eval(echo.clone()).await, Ok(expected.clone()));
    run(&server, "SCRIPT FLUSH");
    assert_eq!(tested.eval(echo.clone()).await, Ok(expected.clone()));
    assert_eq!(tested.eval(echo).await, Ok(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_identified() {
    let server = Server::with_args(&["--appendonly", "yes", "--appendfsync", "always"]);
    let tested = Tested::new(&server.url());
    let mut call = call("return ARGV", &[], &["own"]);
    call.identify = true;
    let Reply::List(args) = tested.eval(call).await.unwrap() else { panic!("no list") };
    let info = tested.node.ping(PATIENCE).await.unwrap();
    assert!(info.version.is_some());
    assert_eq!(args[1], Reply::Text(info.run.unwrap()));
    let Reply::Text(lost_at) = &args[2] else { panic!("no text") };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = now.as_micros() as i64 - lost_at.parse::<i64>().unwrap();
    assert!((0..60_000_000).contains(&age), "{age}");
    assert_eq!(args[3], Reply::Text("1".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_node_fails_fast_and_keeps_the_order_of_requests() {
    let mut server = Server::start();
    let mut tested = Tested::hasty(&server.url());
    tested.eval(set("x")).await.unwrap();
    tested.eval(del("x")).await.unwrap();
    server.freeze();
    let sent = SentOn::default();
    let error = tested.node.eval(Driver::Background, set("lock"), SHORT, sent.clone()).await;
    assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
    assert!(matches!(tested.event().await, Event::NodeDown { .. }));

    let before = Instant::now();
    let unsent = SentOn::default();
    let error = tested.node.eval(Driver::Background, set("y"), SHORT, unsent.clone()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, NodeErrorKind::NotRun);
    assert!(error.detail.starts_with("no answer for "), "{error}");
    assert!(before.elapsed() < SHORT / 2);
    assert!(unsent.get().is_none());

    let connection = sent.get().unwrap();
    let after = tested.node.eval_after(connection, del("lock"), SHORT).await;
    assert_eq!(after.unwrap_err().kind, NodeErrorKind::Unknown);
    server.thaw();
    tested.changed().await;
    assert!(matches!(tested.event().await, Event::NodeUp { .. }));
    assert_eq!(tested.eval(call("return 5", &[], &[])).await, Ok(Reply::Int(5)));
    assert!(!exists(&server, "lock"));
    assert!(!exists(&server, "y"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_barrier_holds_against_a_request_under_way() {
    let server = Server::start();
    let proxy = Arc::new(Proxy::start(server.port()));
    let tested = Arc::new(Tested::new(&proxy.url()));
    let (caller, freeze) = (Arc::clone(&tested), Arc::clone(&proxy));
    let give_up = move || {
        runtime::caller().block_on(async {
            let eval = |call, sent| caller.node.eval(Driver::Caller, call, PATIENCE, sent);
            eval(set("x"), SentOn::default()).await.unwrap();
            freeze.hold_first(Requests, 1);
            let sent = SentOn::default();
            let mut eval = eval(set("lock"), sent.clone());
            // Polls several times, so that its bytes are sent.
            for _ in 0..10 {
                assert!(poll!(&mut eval).is_pending());
                tokio::task::yield_now().await;
            }
            sent.get().unwrap()
        })
    };
    let connection = tokio::task::spawn_blocking(give_up).await.unwrap();
    tested.node.eval_after(connection, del("lock"), PATIENCE).await.unwrap();
    let settled = proxy.settled();
    proxy.hold_first(Requests, 0);
    until(PATIENCE, "the request arrives or its connection ends", || proxy.settled() > settled).await;
    assert!(!exists(&server, "lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_is_cut_short_is_not_another_protocol() {
    for (bytes, kind) in [
        (&b"%7\r\n$6\r\nserver\r\n$5\r\nre"[..], NodeErrorKind::NotRun),
        (b"%", NodeErrorKind::NotRun),
        (b"+O", NodeErrorKind::NotRun),
        (HTTP, NodeErrorKind::Permanent),
    ] {
        let stub = Stub::start(Some(bytes));
        let tested = Tested::new(&stub.url("redis"));
        let error = tested.eval(set("x")).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error} after {bytes:?}");
        let error = tested.node.subscribe("a".to_owned()).await.map(drop).unwrap_err();
        assert_eq!(error.kind, kind, "{error} after {bytes:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_connection_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let mut tested = Tested::hasty(&proxy.url());
    tested.eval(set("x")).await.unwrap();
    proxy.hold_first(Requests, 1);
    let sent = SentOn::default();
    let error = tested.node.eval(Driver::Background, set("lock"), PATIENCE, sent.clone()).await;
    assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
    assert!(matches!(tested.event().await, Event::NodeDown { .. }));
    let connection = sent.get().unwrap();
    let behind = tested.node.eval_after(connection.clone(), del("lock"), PATIENCE);
    let mut behind = tokio::spawn(behind);
    tested.changed().await;
    assert!(matches!(tested.event().await, Event::NodeUp { .. }));
    tested.eval(set("x")).await.unwrap();
    // The clean-up may have been queued on the old connection, and is then lost with it.
    if let Err(error) = (&mut behind).await.unwrap() {
        assert_eq!(error.kind, NodeErrorKind::Unknown, "{error}");
    }
    let clients = run(&server, "CLIENT LIST");
    tested.node.eval_after(connection, del("lock"), PATIENCE).await.unwrap();
    assert_ne!(run(&server, "CLIENT LIST"), clients);
    assert!(!exists(&server, "lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_of_acknowledged_requests_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let tested = Tested::hasty(&proxy.url());
    let acknowledged = |key| {
        let mut call = set(key);
        call.replicas = 1;
        call
    };
    // A server that does not know the script would wait for replicas twice.
    Tested::new(&server.url()).eval(set("x")).await.unwrap();
    // The first connection is that of such requests, the second is the background's.
    tested.eval(acknowledged("x")).await.unwrap();
    tested.eval(set("x")).await.unwrap();
    proxy.hold_first(Requests, 1);
    let sent = SentOn::default();
    let error = tested.node.eval(Driver::Background, acknowledged("lock"), SHORT, sent.clone()).await;
    assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
    let error = tested.node.eval_after(sent.get().unwrap(), del("lock"), SHORT).await;
    assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
    tested.eval(acknowledged("x")).await.unwrap();
    tested.node.eval_after(sent.get().unwrap(), del("lock"), PATIENCE).await.unwrap();
    assert!(!exists(&server, "lock"));
}

#[test]
fn a_refused_wait_never_says_that_its_script_did_not_run() {
    let refused = |text: &str| {
        let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap();
        let (code, text) = shortfall(1, SHORT, reply).unwrap();
        error_from_reply_text(&format!("{code} {text}"))
    };
    for text in ["BUSY Redis is busy", "LOADING Redis is loading", "MASTERDOWN Link is down", "READONLY a replica"] {
        let error = refused(text);
        assert_eq!((error.kind, error.hint), (NodeErrorKind::Refused, None), "{text}");
        assert_eq!(error.detail, format!("WAIT: {text}"));
    }
    assert_eq!(refused("NOPERM no permissions to run the 'wait' command").kind, NodeErrorKind::Forbidden);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_be_undone_waits_until_the_server_lets_its_user_in_again() {
    let server = Server::start();
    let permit = || run(&server, "ACL SETUSER app on >secret ~* &* +@all");
    permit();
    let mut tested = Tested::new(&server.url().replace("://", "://app:secret@"));
    let sent = SentOn::default();
    tested.node.eval(Driver::Background, set("x"), PATIENCE, sent.clone()).await.unwrap();
    run(&server, "ACL DELUSER app");
    assert!(matches!(tested.event().await, Event::NodeDown { .. }));
    assert!(tested.eval(set("y")).await.unwrap_err().is_permanent());
    let behind = tested.node.eval_after(sent.get().unwrap(), del("x"), SHORT).await;
    assert_eq!(behind.unwrap_err().kind, NodeErrorKind::NotRun);
    let node: Arc<dyn Node> = Arc::new(tested.node);
    let mut insisting = pin!(insist(node, || del("x"), PATIENCE));
    assert!(poll!(&mut insisting).is_pending(), "it was refused, and will try again");
    permit();
    insisting.await;
    assert!(!exists(&server, "x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_timeout_alone_does_not_condemn_a_node() {
    let mut server = Server::start();
    let mut tested = Tested::new(&server.url());
    tested.eval(set("x")).await.unwrap();
    server.freeze();
    let short = Duration::from_millis(20);
    let error = tested.node.eval(Driver::Background, set("x"), short, SentOn::default()).await;
    assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
    // The second request is sent, too, and waits for its own reply.
    let error = tested.node.eval(Driver::Background, set("x"), short, SentOn::default()).await;
    assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
    server.thaw();
    tested.eval(set("x")).await.unwrap();
    assert!(tested.events.try_recv().is_err());
    assert_eq!(*tested.changes.borrow_and_update(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn unanswered_requests_are_bounded() {
    let mut server = Server::start();
    let tested = Tested::new(&server.url());
    tested.eval(set("x")).await.unwrap();
    server.freeze();
    for _ in 0..MOST_UNANSWERED {
        let give_up = Duration::ZERO;
        let error = tested.node.eval(Driver::Background, set("x"), give_up, SentOn::default()).await;
        assert_eq!(error.unwrap_err().kind, NodeErrorKind::Unknown);
    }
    let soon = Duration::from_millis(50);
    let error = tested.node.eval(Driver::Background, set("x"), soon, SentOn::default()).await.unwrap_err();
    assert_eq!(error, not_run_error("1024 requests unanswered"));
    server.thaw();
    // A clean-up waits behind all of them, and so does the ping.
    let connection = tested.node.inner().unwrap().state.lock().background.clone().unwrap().id.clone();
    tested.node.eval_after(connection, del("x"), PATIENCE).await.unwrap();
    let connection = tested.node.inner().unwrap().state.lock().background.clone().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while connection.unanswered.load(SeqCst) > 0 {
        assert!(Instant::now() < deadline);
        tested.node.ping(PATIENCE).await.unwrap();
    }
    tested.eval(set("x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_fails_fast_and_comes_back() {
    let mut server = Server::start();
    let mut tested = Tested::new(&server.url());
    tested.eval(set("x")).await.unwrap();
    server.stop();
    // The node detects it without a request.
    tested.changed().await;
    assert!(matches!(tested.event().await, Event::NodeDown { .. }));
    assert_eq!(tested.eval(set("x")).await.unwrap_err().kind, NodeErrorKind::NotRun);
    let before = Instant::now();
    for _ in 0..100 {
        assert_eq!(tested.eval(set("x")).await.unwrap_err().kind, NodeErrorKind::NotRun);
    }
    assert!(before.elapsed() < Duration::from_secs(2));
    server.restart();
    tested.changed().await;
    assert!(matches!(tested.event().await, Event::NodeUp { .. }));
    tested.eval(set("x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_never_there_is_found_later() {
    let mut server = Server::start();
    server.stop();
    let mut tested = Tested::new(&server.url());
    let error = tested.eval(set("x")).await.unwrap_err();
    assert_eq!(error, not_run_error("connection refused"));
    assert!(matches!(tested.event().await, Event::NodeDown { .. }));
    server.restart();
    tested.changed().await;
    tested.eval(set("x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_lost_with_its_connection_is_unknown() {
    let mut server = Server::start();
    let mut tested = Tested::new(&server.url());
    tested.eval(set("x")).await.unwrap();
    server.freeze();
    let mut eval = tested.node.eval(Driver::Background, set("x"), PATIENCE, SentOn::default());
    assert!(poll!(&mut eval).is_pending());
    server.stop();
    let error = eval.await.unwrap_err();
    assert_eq!(error.kind, NodeErrorKind::Unknown, "{error}");
    tested.changed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_gave_up_is_cleaned_up_behind_a_barrier() {
    let server = Arc::new(Mutex::new(Server::start()));
    let url = locked(&server).url();
    let mut tested = Tested::new(&url);
    tested.eval(set("x")).await.unwrap();
    for round in 0..6 {
        let node = Arc::new(Tested::new(&url));
        let (frozen, caller) = (Arc::clone(&server), Arc::clone(&node));
        let give_up = move || {
            runtime::caller().block_on(async {
                let eval = |sent| caller.node.eval(Driver::Caller, set("lock"), PATIENCE, sent);
                eval(SentOn::default()).await.unwrap();
                run(&locked(&frozen), "DEL lock");
                locked(&frozen).freeze();
                let sent = SentOn::default();
                let mut eval = eval(sent.clone());
                while sent.get().is_none() {
                    assert!(poll!(&mut eval).is_pending());
                    tokio::task::yield_now().await;
                }
                // In every second round its bytes are sent, in the others they never are.
                if round % 2 == 0 {
                    tokio::task::yield_now().await;
                }
                drop(eval);
                sent.get().unwrap()
            })
        };
        let connection = tokio::task::spawn_blocking(give_up).await.unwrap();
        assert_eq!(connection.driver, Driver::Caller);
        assert!(node.node.inner().unwrap().state.lock().lanes.values().all(|lane| lane.connection.is_none()));
        let clean_up = node.node.eval_after(connection, del("lock"), PATIENCE);
        let clean_up = tokio::spawn(clean_up);
        locked(&server).thaw();
        clean_up.await.unwrap().unwrap();
        // By now the server has read all earlier requests on other connections.
        tested.eval(set("x")).await.unwrap();
        assert!(!exists(&locked(&server), "lock"), "round {round}");
    }
    assert!(tested.events.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_share_a_connection_and_a_slow_reply_takes_the_node_down() {
    let mut server = Server::start();
    let mut tested = Tested::hasty(&server.url());
    let node = Arc::new(RedisNode { name: tested.node.name.clone(), hostable: true, inner: tested.node.inner.clone() });
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let node = Arc::clone(&node);
            tokio::task::spawn_blocking(move || {
                let sent = SentOn::default();
                let eval = node.eval(Driver::Caller, set("x"), SHORT, sent.clone());
                runtime::caller().block_on(eval).unwrap();
                sent.get().unwrap().number
            })
        })
        .collect();
    let mut numbers = Vec::new();
    for caller in callers {
        numbers.push(caller.await.unwrap());
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 1, "{numbers:?}");

    server.freeze();
    let caller = Arc::clone(&node);
    let errors = tokio::task::spawn_blocking(move || {
        [0, 1].map(|_| {
            let eval = caller.eval(Driver::Caller, set("x"), SHORT, SentOn::default());
            runtime::caller().block_on(eval).unwrap_err().kind
        })
    });
    assert_eq!(errors.await.unwrap(), [NodeErrorKind::Unknown, NodeErrorKind::NotRun]);
    assert!(matches!(tested.event().await, Event::NodeDown { .. }));
    server.thaw();
    tested.changed().await;
    assert!(matches!(tested.event().await, Event::NodeUp { .. }));
    let caller = Arc::clone(&node);
    let again = tokio::task::spawn_blocking(move || {
        runtime::caller().block_on(caller.eval(Driver::Caller, set("x"), SHORT, SentOn::default()))
    });
    again.await.unwrap().unwrap();
}

#[test]
fn a_caller_notices_that_its_connection_ended_meanwhile() {
    let server = Server::start();
    let tested = Tested::new(&server.url());
    let eval = || {
        let eval = tested.node.eval(Driver::Caller, set("x"), PATIENCE, SentOn::default());
        runtime::caller().block_on(eval)
    };
    eval().unwrap();
    for _ in 0..10 {
        let number = tested.node.inner().unwrap().state.lock().lanes[&Lane::Of(Driver::Caller)]
            .connection
            .as_ref()
            .unwrap()
            .number();
        run(&server, "CLIENT KILL TYPE normal");
        let killed = Instant::now();
        while killed.elapsed() < CHECKED_AFTER_IDLE {
            thread::yield_now();
        }
        eval().unwrap();
        assert_ne!(
            tested.node.inner().unwrap().state.lock().lanes[&Lane::Of(Driver::Caller)]
                .connection
                .as_ref()
                .unwrap()
                .number(),
            number
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_get_messages_and_end_with_their_connection() {
    let mut server = Server::start();
    let tested = Tested::new(&server.url());
    let subscribe = |channel: &str| tested.node.subscribe(channel.to_owned());
    let mut first = subscribe("a").await.unwrap();
    let mut second = subscribe("a").await.unwrap();
    let other = subscribe("b").await.unwrap();
    run(&server, "PUBLISH a 0");
    for subscription in [&mut first, &mut second] {
        let changed = subscription.messages.changed();
        tokio::time::timeout(PATIENCE, changed).await.unwrap().unwrap();
        assert_eq!(*subscription.messages.borrow(), 1);
    }
    drop(first);
    assert_eq!(run(&server, "PUBLISH a 0"), Value::Int(1));
    // A new subscriber gets messages, even if the last one leaves right before it.
    for _ in 0..100 {
        drop(second);
        second = subscribe("a").await.unwrap();
        assert_eq!(run(&server, "PUBLISH a 0"), Value::Int(1));
        let changed = second.messages.changed();
        tokio::time::timeout(PATIENCE, changed).await.unwrap().unwrap();
    }
    thread::spawn(move || drop(second)).join().unwrap();
    until(PATIENCE, "nobody listens", || run(&server, "PUBLISH a 0") == Value::Int(0)).await;
    assert_eq!(*other.messages.borrow(), 0);
    server.stop();
    let mut other = other;
    let ended = tokio::time::timeout(PATIENCE, other.messages.changed()).await.unwrap();
    assert!(ended.is_err());
    server.restart();
    let mut again = subscribe("a").await.unwrap();
    run(&server, "PUBLISH a 0");
    tokio::time::timeout(PATIENCE, again.messages.changed()).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_are_checked() {
    let server = Server::start();
    run(&server, "ACL SETUSER bob on >hunter2 ~own* &own* +@all -set -client|kill");
    let url = |login: &str| format!("redis://{login}@127.0.0.1:{}", server.port());

    for login in ["bob:hunter3", "nobody:hunter2"] {
        let tested = Tested::new(&url(login));
        for result in [
            tested.eval(set("own")).await.map(drop),
            tested.node.subscribe("own".to_owned()).await.map(drop),
            tested.node.ping(PATIENCE).await.map(drop),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.kind, NodeErrorKind::Forbidden, "{error}");
            assert!(error.detail.starts_with("WRONGPASS"), "{error}");
            assert!(!error.detail.contains("hunter"), "{error}");
        }
    }

    let mut bob = Tested::new(&url("bob:hunter2"));
    for call in [
        // Without the right to the command, to a key in KEYS, and to a key that the script names itself.
        set("own"),
        del("other"),
        call("return redis.call('DEL', 'other')", &["own"], &[]),
    ] {
        let error = bob.eval(call).await.unwrap_err();
        assert_eq!(error.kind, NodeErrorKind::Forbidden, "{error}");
        assert!(!error.detail.contains("script: "), "{error}");
    }
    assert_eq!(bob.eval(del("own")).await, Ok(Reply::Int(0)));
    let error = bob.node.subscribe("other".to_owned()).await.map(drop).unwrap_err();
    assert_eq!(error.kind, NodeErrorKind::Forbidden, "{error}");
    bob.node.subscribe("own".to_owned()).await.map(drop).unwrap();

    // Without the right to CLIENT KILL the clean-up runs all the same, with a warning.
    let current = bob.node.inner().unwrap().state.lock().background.clone().unwrap().id.clone();
    let connection = ConnectionId { number: 0, ..current };
    assert_eq!(bob.node.eval_after(connection, del("own"), PATIENCE).await, Ok(Reply::Int(0)));
    assert!(matches!(bob.event().await, Event::NodeWarning { .. }));

    let plain = server.url();
    run(&server, "CONFIG SET requirepass secret");
    let error = Tested::new(&plain).eval(set("x")).await.unwrap_err();
    assert_eq!(error.kind, NodeErrorKind::Forbidden, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_refuses_is_told_apart() {
    let server = Server::start();
    let tested = Tested::new(&server.url());
    run(&server, "RPUSH list 1");
    let kind = async |call| tested.eval(call).await.unwrap_err();
    let hget = call("return redis.call('HGET', KEYS[1], 'f')", &["list"], &[]);
    assert_eq!(kind(hget).await.kind, NodeErrorKind::WrongType);
    run(&server, "CONFIG SET maxmemory 1");
    let error = kind(set("x")).await;
    assert_eq!(error.kind, NodeErrorKind::Refused);
    assert!(error.detail.starts_with("OOM ") && !error.detail.contains("script"), "{error}");
    run(&server, "CONFIG SET maxmemory 0");
    run(&server, "REPLICAOF 127.0.0.1 1");
    assert_eq!(kind(set("x")).await.kind, NodeErrorKind::Refused);
    run(&server, "CONFIG SET replica-serve-stale-data no");
    assert_eq!(kind(set("x")).await.kind, NodeErrorKind::NotRun);

    let wrapped = "ERR Error running script (call to f_0): @user_script:1: -WRONGTYPE Operation";
    assert_eq!(error_from_reply_text(wrapped).kind, NodeErrorKind::WrongType);
    let noperm = "NOPERM User bob has no permissions to run the 'set' command";
    assert_eq!(error_from_reply_text(noperm), forbidden_error(noperm));
    assert_eq!(error_from_reply_text("BUSY Redis is busy").kind, NodeErrorKind::NotRun);
    assert_eq!(error_from_reply_text("LOADING Redis is loading").kind, NodeErrorKind::NotRun);
    assert_eq!(error_from_reply_text("ERR boom").detail, "boom");

    let error = Tested::new(&format!("{}/99", server.url())).eval(set("x")).await.unwrap_err();
    assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn eviction_is_warned_of_once() {
    let server = Server::with_args(&["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"]);
    let mut tested = Tested::new(&server.url());
    tested.eval(set("x")).await.unwrap();
    let Event::NodeWarning { detail, .. } = tested.event().await else { panic!("no warning") };
    assert!(detail.contains("volatile-lru"), "{detail}");
    run(&server, "CLIENT KILL TYPE normal");
    tested.changed().await;
    tested.changed().await;
    tested.eval(set("x")).await.unwrap();
    assert!(matches!(tested.event().await, Event::NodeDown { .. }));
    assert!(matches!(tested.event().await, Event::NodeUp { .. }));
    assert!(tested.events.try_recv().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_needs_to_know_the_run() {
    let server = Server::start();
    run(&server, "ACL SETUSER eve on nopass ~* +@all -info");
    let url = format!("redis://eve@127.0.0.1:{}", server.port());
    let tested = Tested::with(&url, |config| {
        config.urls.extend((1..3).map(|port| format!("redis://127.0.0.1:{port}")));
    });
    let mut call = set("x");
    tested.eval(call.clone()).await.unwrap();
    call.identify = true;
    assert_eq!(tested.eval(call).await, Err(forbidden_error("needs the right to run INFO")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_hello_is_spoken_to_in_resp2() {
    let mut server = Server::with_args(&["--rename-command", "HELLO", "NOHELLO"]);
    let mut tested = Tested::new(&server.url());
    tested.eval(set("x")).await.unwrap();
    assert!(tested.node.ping(PATIENCE).await.unwrap().run.is_some());
    server.stop();
    // The node detects it at its next request.
    tested.eval(set("x")).await.unwrap_err();
    server.restart();
    tested.changed().await;
    tested.changed().await;
    tested.eval(set("x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_node_refuses() {
    let server = Server::start();
    let tested = Tested::new(&server.url());
    tested.eval(set("x")).await.unwrap();
    tested.node.close();
    assert_eq!(tested.eval(set("x")).await, Err(not_run_error("closed")));
    let subscription = tested.node.subscribe("a".to_owned()).await;
    assert_eq!(subscription.map(drop), Err(not_run_error("closed")));
    until(PATIENCE, "its connections are closed", || {
        server.command::<String>(&["CLIENT", "LIST"]).lines().count() == 1
    })
    .await;
}

/// Waits until the peer closes this connection.
async fn closed(mut stream: TcpStream) {
    let rest = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await;
    rest.expect("the connection is never closed").unwrap();
}

/// A Sentinel service with one Sentinel at this port.
fn sentinels_at(port: u16, connect_timeout: Duration) -> Sentinels {
    let mut config = Config::new([format!("redis+sentinel://127.0.0.1:{port}/main")]);
    config.connect_timeout = connect_timeout;
    let settings = config.validate().unwrap();
    Sentinels::new(&settings.endpoints[0], &settings.config).unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_never_answers_is_left_with_its_last_listener() {
    let (port, listener) = listener();
    let sentinels = sentinels_at(port.number(), PATIENCE * 100);
    let elections = sentinels.elections();
    let (stream, _) = listener.accept().await.unwrap();
    stream.readable().await.unwrap();
    drop(elections);
    closed(stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_does_not_answer_in_time_is_tried_again() {
    let (port, listener) = listener();
    let sentinels = sentinels_at(port.number(), Duration::from_millis(50));
    let _elections = sentinels.elections();
    for _ in 0..2 {
        let (stream, _) = tokio::time::timeout(PATIENCE, listener.accept()).await.expect("it tries once").unwrap();
        closed(stream).await;
    }
}

/// A Sentinel that names a master, as a real one does in two replies. It passes the connections of subscribers to the
/// test.
struct FakeSentinel {
    port: Port,
    /// The port in the replies to `MASTER` and to `GET-MASTER-ADDR-BY-NAME`.
    named: Arc<[AtomicU16; 2]>,
    subscribers: mpsc::UnboundedReceiver<TcpStream>,
    _task: Task,
}

impl FakeSentinel {
    fn start(master: u16) -> Self {
        let (port, listener) = listener();
        let (hand_out, subscribers) = mpsc::unbounded_channel();
        let named = Arc::new([AtomicU16::new(master), AtomicU16::new(master)]);
        let names = Arc::clone(&named);
        let task = async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let (hand_out, names) = (hand_out.clone(), Arc::clone(&names));
                connections.spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        let request = String::from_utf8_lossy(&buffer[..length]);
                        if request.contains("SUBSCRIBE") {
                            let _ = hand_out.send(stream);
                            return;
                        }
                        let answer = if request.contains("MASTER") {
                            let [first, second] = [&names[0], &names[1]].map(|port| port.load(SeqCst).to_string());
                            format!(
                                "*4\r\n$2\r\nip\r\n$9\r\n127.0.0.1\r\n$4\r\nport\r\n${}\r\n{first}\r\n\
                                 *2\r\n$9\r\n127.0.0.1\r\n${}\r\n{second}\r\n",
                                first.len(),
                                second.len()
                            )
                        } else {
                            "+OK\r\n".repeat(request.matches("SETINFO").count())
                        };
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                });
            }
        };
        Self { port, named, subscribers, _task: Task(tokio::spawn(task)) }
    }

    fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main", self.port.number())
    }

    /// Names another master from now on, and announces it to nobody.
    fn elect(&self, master: u16) {
        self.named.iter().for_each(|port| port.store(master, SeqCst));
    }

    /// The connection of the next subscriber.
    async fn subscriber(&mut self) -> TcpStream {
        tokio::time::timeout(PATIENCE, self.subscribers.recv()).await.unwrap().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_a_failover_names_the_new_master_in_its_second_reply() {
    let [old, new] = [Server::start(), Server::start()];
    let sentinel = FakeSentinel::start(old.port());
    sentinel.named[1].store(new.port(), SeqCst);
    let tested = Tested::new(&sentinel.url());
    tested.eval(set("x")).await.unwrap();
    assert_eq!((old.command::<i64>(&["DBSIZE"]), new.command::<i64>(&["DBSIZE"])), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_to_a_former_master_ends_when_another_is_announced() {
    let [old, new] = [Server::start(), Server::start()];
    let mut sentinel = FakeSentinel::start(old.port());
    let tested = Tested::new(&sentinel.url());
    tested.eval(set("x")).await.unwrap();
    let mut subscriber = sentinel.subscriber().await;
    subscriber.write_all(b"*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n").await.unwrap();
    sentinel.elect(new.port());
    // A connection for another kind of caller is made before the announcement, and leads to the new master.
    thread::scope(|scope| {
        let other = tested.node.eval(Driver::Caller, set("y"), PATIENCE, SentOn::default());
        scope.spawn(|| runtime::caller().block_on(other).unwrap());
    });
    assert_eq!(new.command::<i64>(&["DBSIZE"]), 1);
    let text = format!("main 127.0.0.1 {} 127.0.0.1 {}", old.port(), new.port());
    let message = format!("*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n${}\r\n{text}\r\n", text.len());
    subscriber.write_all(message.as_bytes()).await.unwrap();
    until(PATIENCE, "the node has left the old master", || {
        let clients: String = old.command(&["CLIENT", "LIST"]);
        clients.lines().count() == 1
    })
    .await;
    tested.eval(set("z")).await.unwrap();
    assert_eq!(new.command::<i64>(&["DBSIZE"]), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_node_leaves_a_sentinel_that_does_not_answer() {
    let server = Server::start();
    let mut sentinel = FakeSentinel::start(server.port());
    let tested = Tested::with(&sentinel.url(), |config| config.connect_timeout = PATIENCE * 100);
    tested.eval(set("x")).await.unwrap();
    let stream = sentinel.subscriber().await;
    tested.node.close();
    closed(stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_file_works() {
    let server = Server::with_args(&["--unixsocket", SOCKET]);
    let url = format!("unix://{}", server.socket().display());
    let tested = Tested::new(&url);
    tested.eval(set("x")).await.unwrap();
    let missing = Tested::new("unix:///nonexistent/redis.sock");
    let error = missing.eval(set("x")).await.unwrap_err();
    assert_eq!(error, not_run_error("no such socket"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_checked() {
    let certificates = Certificates::make();
    let path = |file| certificates.path(file);
    let options = certificates.arguments("server");
    let server = Server::with_args(&options.iter().map(String::as_str).collect::<Vec<_>>());
    let url = server.url();
    let tested = Tested::with(&url, |config| {
        config.tls.ca = Some(path("ca.crt"));
        config.tls.cert = Some(path("server.crt"));
        config.tls.key = Some(path("server.key"));
    });
    let eval = |tested: &Tested| tested.node.eval(Driver::Background, set("x"), PATIENCE, SentOn::default());
    eval(&tested).await.unwrap();
    tested.node.subscribe("a".to_owned()).await.map(drop).unwrap();

    // The CA certificate as text, but without the client certificate that this server requires.
    let text = fs::read_to_string(path("ca.crt")).unwrap();
    let anonymous = Tested::with(&url, |config| {
        config.tls.ca = Some(text);
    });
    let error = eval(&anonymous).await.unwrap_err();
    assert!(error.detail.contains("ertificate"), "{error}");
    let stranger = Tested::with(&url, |config| {
        config.tls.ca = Some(path("other.crt"));
    });
    let error = eval(&stranger).await.unwrap_err();
    assert_eq!(error.kind, NodeErrorKind::Permanent, "{error}");
    assert!(error.detail.starts_with("TLS: invalid peer certificate"), "{error}");

    for (change, argument) in [
        (("ca", "/nonexistent"), "ca"),
        (("ca", "-----BEGIN CERTIFICATE-----\nx"), "ca"),
        (("key", "ca.key"), "cert"),
        (("key", "ca.crt"), "key"),
    ] {
        let mut config = Config::new([&url]);
        match change {
            ("ca", ca) => config.tls.ca = Some(ca.to_owned()),
            (_, key) => {
                config.tls.cert = Some(path("server.crt"));
                config.tls.key = Some(path(key));
            }
        }
        let settings = config.validate().unwrap();
        let node = RedisNode::new(&settings.endpoints[0], &settings, Arc::new(|_| {}), None);
        let error = node.err().unwrap();
        let LockError::Invalid { argument: found, .. } = error else { panic!("{error}") };
        assert_eq!(found, argument);
    }
}
