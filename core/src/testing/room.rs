//! Tests of calls that wait for room on their connection. The script appends its argument to a list, which shows in which
//! order they ran.

use std::{ops::Range, sync::Arc};

use super::{
    batches::{ALONE, Setting, batches, list, push, replies, text},
    connection::MOST_UNANSWERED,
};
use crate::{
    protocol::script::ScriptCall,
    server::{NodeError, NodeErrorKind},
};

/// A call that goes alone.
fn single(what: usize) -> ScriptCall {
    ScriptCall { batch: None, ..push(what, "") }
}

/// The calls `0..count`, one after another.
fn singles(count: usize) -> Vec<ScriptCall> {
    (0..count).map(single).collect()
}

/// How many calls wait in these tests.
const WAITING: usize = 300;
const ALL: usize = MOST_UNANSWERED + WAITING;

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_room_keep_their_order() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let mut made = setting.make_all(singles(ALL));
    assert!(made[MOST_UNANSWERED - 1].sent.get().is_some());
    assert!(made[MOST_UNANSWERED].sent.get().is_none());
    setting.server.thaw();
    // They make room for as many others, which nobody polls.
    let rest = made.split_off(10);
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert!(rest[MOST_UNANSWERED - 1].sent.get().is_some());
    assert!(rest[MOST_UNANSWERED].sent.get().is_none());
    // There is room now, but not for this one. The last ones are polled first.
    let mut rest: Vec<_> = rest.into_iter().rev().collect();
    rest.insert(0, setting.make(single(ALL)));
    assert!(replies(rest).await.iter().all(Result::is_ok));
    assert_eq!(list(&setting.server), (0..=ALL).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_while_it_waits_is_not_sent() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let mut made = setting.make_all(singles(ALL));
    let given_up = made.split_off(ALL - 2).remove(0);
    drop(given_up.reply);
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert!(given_up.sent.get().is_none());
    assert_eq!(setting.tested.eval(single(ALL)).await, Ok(text(ALL)));
    let ran: Vec<_> = (0..ALL - 2).chain([ALL]).collect();
    assert_eq!(list(&setting.server), ran);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_wait_for_room_end_with_their_connection() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let made = setting.make_all(singles(ALL));
    setting.server.stop();
    let kind = |reply: Result<_, NodeError>| reply.unwrap_err().kind;
    let kinds: Vec<_> = replies(made).await.into_iter().map(kind).collect();
    assert_eq!(kinds[MOST_UNANSWERED..], [NodeErrorKind::NotRun; WAITING]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_stays_before_later_calls_that_wait_for_room() {
    let mut setting = Setting::new().await;
    setting.server.freeze();
    let others = MOST_UNANSWERED - ALONE;
    let like = |numbers: Range<usize>| numbers.map(|what| push(what, "like")).collect();
    // Some go alone, the others are collected.
    let mut made = setting.make_all(like(0..ALONE + 3));
    let other = |_| ScriptCall { keys: Arc::new(vec!["other".to_owned()]), ..single(0) };
    made.extend(setting.make_all((0..others).map(other).collect()));
    made.extend(setting.make_all(like(ALONE + 3..ALONE + 6)));
    setting.server.thaw();
    assert!(replies(made).await.iter().all(Result::is_ok));
    assert_eq!(list(&setting.server), (0..ALONE + 6).collect::<Vec<_>>());
    assert_eq!(batches(&setting.server), 1);
}
