//! Tests of calls that go together. The scripts append their first arguments to a list, which shows in which order they
//! ran.

use std::sync::OnceLock;

use futures_util::future::join_all;
use redlock_servers::{PATIENCE, server::Server, until};

use super::{Tested, call, exists, run};
use crate::{
    process::driver::Driver,
    protocol::script::{Reply, Script, ScriptCall},
    server::{BoxFuture, Node, NodeError, NodeErrorKind, SentOn},
};

/// As many calls as go alone before others are collected.
pub(super) const ALONE: usize = 8;

const ONE: &str = "redis.call('RPUSH', KEYS[1], ARGV[1]) return ARGV[1]";
/// Behind the first two arguments are the first arguments of the other calls.
const MANY: &str = "local all = { ARGV[1] } for i = 3, #ARGV do all[i - 1] = ARGV[i] end
    redis.call('INCR', 'batches') redis.call('RPUSH', KEYS[1], unpack(all)) return all";

/// The scripts for one call and for several.
fn scripts() -> [&'static Script; 2] {
    static MADE: OnceLock<[&Script; 2]> = OnceLock::new();
    *MADE.get_or_init(|| [ONE, MANY].map(|source| call(source, &[], &[]).script))
}

/// A call for the list `lock`. Calls of the same `like` may go together.
pub(super) fn push(what: usize, like: &str) -> ScriptCall {
    let [one, many] = scripts();
    let args = vec![what.to_string(), like.to_owned()];
    ScriptCall { batch: Some(many), ..ScriptCall::new(one, vec!["lock".to_owned()], args) }
}

/// The calls `0..count`, which are all alike.
fn calls(count: usize) -> Vec<ScriptCall> {
    (0..count).map(|what| push(what, "like")).collect()
}

pub(super) fn text(number: usize) -> Reply {
    Reply::Text(number.to_string())
}

pub(super) fn list(server: &Server) -> Vec<usize> {
    let all: Vec<String> = server.command(&["LRANGE", "lock", "0", "-1"]);
    all.iter().map(|text| text.parse().unwrap()).collect()
}

/// How many batches ran.
pub(super) fn batches(server: &Server) -> usize {
    let count: Option<usize> = server.command(&["GET", "batches"]);
    count.unwrap_or_default()
}

pub(super) type Pending = BoxFuture<Result<Reply, NodeError>>;

/// A call that was made, and on which connection it was sent.
pub(super) struct Made {
    pub(super) reply: Pending,
    pub(super) sent: SentOn,
}

/// A server, and a node that is connected to it.
pub(super) struct Setting {
    pub(super) server: Server,
    pub(super) tested: Tested,
}

impl Setting {
    pub(super) async fn new() -> Self {
        let server = Server::start();
        let tested = Tested::new(&server.url());
        for script in [ONE, MANY] {
            let _: String = server.command(&["SCRIPT", "LOAD", script]);
        }
        tested.eval(call("return 1", &[], &[])).await.unwrap();
        Self { server, tested }
    }

    /// Makes a call, and polls it once.
    pub(super) fn make(&self, call: ScriptCall) -> Made {
        let sent = SentOn::default();
        let mut reply = self.tested.node.eval(Driver::Background, call, PATIENCE, sent.clone());
        assert!(futures_util::FutureExt::now_or_never(&mut reply).is_none(), "the server is frozen");
        Made { reply, sent }
    }

    pub(super) fn make_all(&self, calls: Vec<ScriptCall>) -> Vec<Made> {
        calls.into_iter().map(|call| self.make(call)).collect()
    }
}

pub(super) async fn replies(made: Vec<Made>) -> Vec<Result<Reply, NodeError>> {
    join_all(made.into_iter().map(|made| made.reply)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_make_few_requests_and_each_gets_its_reply() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let made = setting.make_all(calls(ALONE + 64 + 28));
    setting.server.thaw();
    let expected: Vec<_> = (0..made.len()).map(|number| Ok(text(number))).collect();
    assert_eq!(replies(made).await, expected);
    assert_eq!(batches(&setting.server), 2);
    assert_eq!(list(&setting.server), (0..ALONE + 64 + 28).collect::<Vec<_>>());
}

/// A cluster sends a call again that another server redirects.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_has_its_reply_may_be_sent_again() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let made = setting.make_all(calls(ALONE + 3));
    let sent: Vec<_> = made.iter().map(|made| made.sent.clone()).collect();
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert!(sent.iter().all(|sent| sent.get().is_some() && !sent.is_closed()));
}

#[tokio::test(flavor = "multi_thread")]
async fn few_calls_go_alone() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let made = setting.make_all(calls(ALONE));
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert_eq!(batches(&setting.server), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_for_the_same_lock_stay_in_their_order() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let mut made = setting.make_all(calls(ALONE + 2));
    // Not alike, and not in a batch at all.
    made.push(setting.make(push(ALONE + 2, "other")));
    made.push(setting.make(push(ALONE + 3, "other")));
    made.push(setting.make(ScriptCall { batch: None, ..push(ALONE + 4, "") }));
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert_eq!(list(&setting.server), (0..ALONE + 5).collect::<Vec<_>>());
    assert_eq!(batches(&setting.server), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_for_other_locks_do_not_send_a_batch() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let made = setting.make_all(calls(ALONE + 2));
    let other = setting.make(call("return 1", &["other"], &[]));
    assert!(other.sent.get().is_some());
    assert!(made.iter().take(ALONE).all(|made| made.sent.get().is_some()));
    assert!(made.iter().skip(ALONE).all(|made| made.sent.get().is_none()));
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_before_it_is_sent_does_not_run() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let mut made = setting.make_all(calls(ALONE + 3));
    let given_up = made.remove(ALONE + 1);
    drop(given_up.reply);
    assert!(given_up.sent.is_closed());
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert!(given_up.sent.get().is_none());
    assert!(!list(&setting.server).contains(&(ALONE + 1)));
    assert_eq!(batches(&setting.server), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_everybody_gave_up_is_not_sent() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let mut made = setting.make_all(calls(ALONE + 3));
    drop(made.split_off(ALONE));
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert_eq!(list(&setting.server).len(), ALONE);
    assert_eq!(setting.tested.eval(push(5, "like")).await, Ok(text(5)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_whole_script_is_not_sent_for_calls_that_were_given_up_meanwhile() {
    let mut setting = Setting::new().await;
    run(&setting.server, "SCRIPT FLUSH");
    setting.server.freeze();
    let mut made = setting.make_all(calls(ALONE + 3));
    // Sends the batch.
    made.push(setting.make(ScriptCall { batch: None, ..push(ALONE + 3, "") }));
    let given_up = made.remove(ALONE + 1);
    assert!(given_up.sent.close().is_some(), "it is sent");
    setting.server.thaw();
    let replies = replies(made).await;
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    assert!(!list(&setting.server).contains(&(ALONE + 1)));
    assert_eq!(batches(&setting.server), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_does_not_need_its_callers() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let mut made = setting.make_all(calls(ALONE + 3));
    let first = made.remove(0);
    setting.server.thaw();
    assert_eq!(first.reply.await, Ok(text(0)));
    // The others are not polled.
    until(PATIENCE, "all ran", || list(&setting.server).len() == ALONE + 3).await;
    assert!(replies(made).await.iter().all(Result::is_ok));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_of_a_batch_gets_its_error() {
    let mut setting = Setting::new().await;
    run(&setting.server, "SET lock text");
    setting.server.freeze();
    let made = setting.make_all(calls(ALONE + 3));
    setting.server.thaw();
    let kind = |reply: Result<Reply, NodeError>| reply.map_err(|error| error.kind);
    let kinds: Vec<_> = replies(made).await.into_iter().map(kind).collect();
    assert_eq!(kinds, vec![Err(NodeErrorKind::WrongType); ALONE + 3]);
    assert!(exists(&setting.server, "lock"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_of_a_batch_end_with_their_connection() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let made = setting.make_all(calls(ALONE + 3));
    setting.server.stop();
    let kind = |reply: Result<Reply, NodeError>| reply.unwrap_err().kind;
    for kind in replies(made).await.into_iter().map(kind) {
        assert!(matches!(kind, NodeErrorKind::Unknown | NodeErrorKind::NotRun), "{kind:?}");
    }
}
