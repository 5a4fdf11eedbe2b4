//! Tests of the in-memory node: its stores, their faults, and how they end.

use futures_util::poll;

use super::{
    commands::Commands,
    store::{SWEEP_AT_LEAST, Value},
    *,
};
use crate::{
    clock::{self, Deadline},
    config::Wire,
    protocol::script::scripts,
    sync::Mutex,
};

const LONG: Duration = Duration::from_secs(60);

fn store(name: &str) -> (Memory, Arc<MemoryNode>) {
    (Memory::named(name), MemoryNode::open(name, None))
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(ToString::to_string).collect()
}

fn acquire(field: &str) -> ScriptCall {
    let args = texts(&[field, "", "60000", "0", "0"]);
    ScriptCall::new(&scripts(Wire::Redisson).acquire, texts(&["lock", "counter"]), args)
}

fn release(field: &str) -> ScriptCall {
    ScriptCall::new(&scripts(Wire::Redisson).release, texts(&["lock"]), texts(&[field, "channel"]))
}

fn eval(node: &MemoryNode, call: ScriptCall, timeout: Duration) -> BoxFuture<Result<Reply, NodeError>> {
    node.eval(Driver::Background, call, timeout, SentOn::default())
}

/// The first number of an acquire's reply: its result.
fn code(result: Result<Reply, NodeError>) -> i64 {
    let Ok(Reply::Text(text)) = result else { panic!("no vote: {result:?}") };
    text.split(' ').next().and_then(|code| code.parse().ok()).expect("it begins with a number")
}

#[tokio::test]
async fn clients_share_a_store_by_name() {
    let (memory, node) = store("shared");
    let (_, other) = store("shared");
    let (_, apart) = store("not shared");
    assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 1);
    assert_eq!(code(eval(&other, acquire("b:1"), LONG).await), 0);
    assert_eq!(code(eval(&apart, acquire("b:1"), LONG).await), 1);
    assert_eq!(memory.commands(), 2);
    assert!(memory.delete("lock") && !memory.delete("lock"));
    assert_eq!(code(eval(&other, acquire("b:1"), LONG).await), 1);
}

#[tokio::test]
async fn a_key_expires() {
    let (memory, node) = store("expires");
    assert!(!memory.expire("lock", LONG));
    assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 1);
    assert!(memory.expire("lock", Duration::from_millis(1)));
    while memory.exists("lock") {
        tokio::task::yield_now().await;
    }
    assert_eq!(code(eval(&node, acquire("b:1"), LONG).await), 1);
    assert!(memory.expire("lock", Duration::ZERO) && !memory.exists("lock"));
}

#[test]
fn time_stands_still_in_a_script_and_ends_a_key_at_its_deadline() {
    let mut state = State::new();
    let now = clock::now();
    let mut commands = Commands { state: &mut state, now };
    assert!(commands.set_px("key", String::new(), 50).is_ok());
    assert_eq!(commands.pttl("key"), 50);
    commands.state.keys.get_mut("key").expect("set above").expires = Some(Deadline::new(now, Duration::ZERO));
    assert_eq!(commands.pttl("key"), -2);
    assert!(commands.state.keys.is_empty());
}

#[test]
fn expired_keys_do_not_pile_up() {
    let mut state = State::new();
    let mut commands = Commands { state: &mut state, now: clock::now() };
    for i in 0..10 * SWEEP_AT_LEAST {
        let expires = Some(Deadline::new(commands.now, Duration::ZERO));
        commands.insert(&i.to_string(), Value::Text(String::new()), expires);
    }
    assert!(state.keys.len() <= SWEEP_AT_LEAST);
}

#[tokio::test]
async fn a_key_of_another_type_is_a_conflict() {
    let (memory, node) = store("conflict");
    memory.set("lock", "a string");
    let error = eval(&node, acquire("a:1"), LONG).await.expect_err("a string is no lock");
    assert_eq!(error.kind, NodeErrorKind::WrongType);
    assert!(!memory.hset("lock", "field"));
    memory.flush();
    assert!(memory.hset("lock", "field"));
    assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 2);
}

#[tokio::test]
async fn a_stopped_store_refuses_and_comes_back_empty() {
    let (memory, node) = store("stopped");
    let mut changes = node.changes();
    let run = node.ping(LONG).await.expect("up").run;
    assert_eq!(code(eval(&node, acquire("a:1"), LONG).await), 1);
    let mut broken = node.subscribe("channel".into()).await.expect("up");

    memory.stop();
    assert!(changes.changed().await.is_ok());
    assert!(broken.messages.changed().await.is_err());
    let sent = SentOn::default();
    let refused = node.eval(Driver::Caller, acquire("a:1"), LONG, sent.clone()).await;
    assert_eq!(refused.expect_err("stopped").kind, NodeErrorKind::NotRun);
    assert!(sent.get().is_none());
    assert!(node.subscribe("channel".into()).await.is_err());

    memory.start();
    assert!(changes.changed().await.is_ok());
    assert!(!memory.exists("lock"));
    let again = node.ping(LONG).await.expect("up").run;
    assert_ne!(run, again);
    let mut fresh = node.subscribe("channel".into()).await.expect("up");
    // Dropping a subscription of the old run does not affect the new one.
    drop(broken);
    assert_eq!(code(node.eval(Driver::Caller, acquire("a:1"), LONG, sent.clone()).await), 1);
    assert_eq!(sent.get().and_then(|connection| connection.run.as_deref().map(str::to_owned)), again);
    assert_eq!(eval(&node, release("a:1"), LONG).await, Ok(Reply::Int(1)));
    assert!(fresh.messages.changed().await.is_ok());
    assert_eq!(*fresh.messages.borrow(), 1);
}

#[tokio::test]
async fn a_frozen_store_runs_what_waited_in_order_also_what_timed_out() {
    let (memory, node) = store("frozen");
    memory.freeze();
    let short = Duration::from_millis(1);
    let late = eval(&node, acquire("a:1"), short).await.expect_err("frozen");
    assert_eq!(late.kind, NodeErrorKind::Unknown);
    let mut second = eval(&node, acquire("b:1"), LONG);
    assert!(poll!(&mut second).is_pending());
    let mut dropped = eval(&node, release("a:1"), LONG);
    assert!(poll!(&mut dropped).is_pending());
    drop(dropped);
    // The request is sent when the future is made, as on a network.
    drop(eval(&node, release("a:1"), LONG));
    let mut subscription = node.subscribe("channel".into());
    assert!(poll!(&mut subscription).is_pending());
    let mut given_up = node.subscribe("channel".into());
    assert!(poll!(&mut given_up).is_pending());
    drop(given_up);
    assert_eq!(memory.commands(), 0);

    memory.thaw();
    assert_eq!(memory.commands(), 4);
    assert_eq!(code(second.await), 0);
    let subscription = subscription.await.expect("thawed");
    assert_eq!(*subscription.messages.borrow(), 0);
    // The release ran although its caller had dropped it: the lock is free again.
    assert_eq!(code(eval(&node, acquire("c:1"), LONG).await), 1);
    drop(subscription);
    assert!(node.access.get().expect("no fork").store.state.lock().subscribers.is_empty());
}

#[tokio::test]
async fn a_store_that_is_stopped_while_frozen_forgets_what_waited() {
    let (memory, node) = store("frozen and stopped");
    memory.freeze();
    let mut waits = eval(&node, acquire("a:1"), LONG);
    assert!(poll!(&mut waits).is_pending());
    memory.stop();
    assert_eq!(waits.await.expect_err("stopped").kind, NodeErrorKind::Unknown);
    memory.thaw();
    assert!(node.ping(LONG).await.is_err());
    memory.start();
    assert_eq!(memory.commands(), 0);
}

#[tokio::test]
async fn a_closed_node_fails_alone() {
    let (_, node) = store("closed");
    let (_, other) = store("closed");
    let mut ends = node.subscribe("channel".into()).await.expect("up");
    let mut stays = other.subscribe("channel".into()).await.expect("up");
    node.close();
    assert!(ends.messages.changed().await.is_err());
    let error = eval(&node, acquire("a:1"), LONG).await.expect_err("closed");
    assert_eq!(error.kind, NodeErrorKind::NotRun);
    assert_eq!(code(eval(&other, acquire("a:1"), LONG).await), 1);
    assert_eq!(eval(&other, release("a:1"), LONG).await, Ok(Reply::Int(1)));
    assert!(stays.messages.changed().await.is_ok());
}

#[tokio::test]
async fn it_identifies_itself() {
    let (memory, node) = store("marked");
    let started = node.access.get().expect("no fork").store.state.lock().started;
    let mark = |kind: &str| {
        let args = texts(&[kind, &clock::now().wall_micros().to_string()]);
        let keys = texts(&["marker"]);
        ScriptCall { identify: true, ..ScriptCall::new(&scripts(Wire::Token).provision, keys, args) }
    };
    let vote = || {
        let call = acquire("a:1").with(texts(&["marker"]), texts(&["60000000"]));
        ScriptCall { identify: true, ..call }
    };
    assert_eq!(code(eval(&node, vote(), LONG).await), 4);
    assert_eq!(eval(&node, mark("new"), LONG).await, Ok(Reply::Int(1)));
    assert_eq!(eval(&node, mark("new"), LONG).await, Ok(Reply::Int(0)));
    assert_eq!(code(eval(&node, vote(), LONG).await), 1);
    memory.set("marker", "another-run 0");
    assert_eq!(code(eval(&node, vote(), LONG).await), 3);
    let mut state = node.access.get().expect("no fork").store.state.lock();
    let expected = format!("{} {started}", state.run);
    let mut commands = Commands { state: &mut state, now: clock::now() };
    assert!(matches!(commands.get("marker"), Ok(Some(mark)) if mark == expected));
}

#[tokio::test]
async fn outages_are_reported_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let memory = Memory::named("events");
    let events: EventSink = Arc::new(move |event| sink.lock().push(event.to_string()));
    let node = MemoryNode::open("events", Some(events));
    memory.stop();
    assert!(node.ping(LONG).await.is_err() && node.ping(LONG).await.is_err());
    memory.start();
    assert!(node.ping(LONG).await.is_ok() && node.ping(LONG).await.is_ok());
    let expected = ["node memory://events does not answer: stopped", "node memory://events answers again"];
    assert_eq!(*seen.lock(), expected);
}

#[test]
fn each_process_has_its_own_stores() {
    let parent = find(0, "forked");
    parent.state.lock().commands = 7;
    // A child finds its own store, although the parent's registry and store stay locked for ever.
    let held = parent.state.lock();
    let child = find(3, "forked");
    assert_eq!(child.state.lock().commands, 0);
    assert!(Arc::ptr_eq(&child, &find(3, "forked")));
    drop(held);
    assert!(Arc::ptr_eq(&parent, &find(0, "forked")));
}
