//! Tests of the completion queue: results are queued, drained, announced, taken, abandoned and dropped.

use std::sync::{
    atomic::{AtomicUsize, Ordering::SeqCst},
    mpsc,
};

use super::*;
use crate::testing::plain::Plain;

fn queue<T: Entry>() -> (Arc<CompletionQueue<T>>, mpsc::Receiver<()>) {
    let (wake, woken) = mpsc::channel();
    (CompletionQueue::new(move || wake.send(()).unwrap()), woken)
}

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn started<T: Entry>(queue: &Arc<CompletionQueue<T>>) -> (u64, Completion<T>) {
    let mut place = None;
    let id = queue.start(|completion| {
        place = Some(completion);
        None
    });
    (id, place.unwrap())
}

#[test]
fn wakes_once_for_many_results() {
    let (queue, woken) = queue();
    let (first, second) = (started(&queue), started(&queue));
    first.1.complete(Plain("a"));
    second.1.complete(Plain("b"));
    assert!(woken.try_recv().is_ok() && woken.try_recv().is_err());
    assert_eq!(queue.drain(), [(first.0, "a"), (second.0, "b")]);
    assert!(queue.drain().is_empty());
    let third = started(&queue);
    third.1.complete(Plain("c"));
    assert!(woken.try_recv().is_ok());
    assert_eq!(queue.drain(), [(third.0, "c")]);
    assert!(!queue.abandon(third.0));
}

#[test]
fn results_come_from_the_background() {
    let (queue, woken) = queue();
    let id = queue.start_unstoppable(async { Plain(7) });
    woken.recv().unwrap();
    assert_eq!(queue.drain(), [(id, 7)]);
}

#[test]
fn abandoned_results_are_dropped_before_and_after_they_are_queued() {
    let (queue, _woken) = queue();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (early, late) = (started(&queue), started(&queue));
    assert!(queue.abandon(early.0));
    early.1.complete(Plain(Counted(dropped.clone())));
    late.1.complete(Plain(Counted(dropped.clone())));
    assert!(queue.abandon(late.0));
    assert!(queue.drain().is_empty());
    assert_eq!(dropped.load(SeqCst), 2);
}

#[test]
fn an_abandoned_call_stops_unless_it_must_finish() {
    let (queue, woken) = queue::<Plain<()>>();
    let (signal, dropped) = mpsc::channel::<()>();
    let watched = queue.start_stoppable(async move {
        let _signal = signal;
        std::future::pending::<()>().await;
        Plain(())
    });
    let (finish, finished) = mpsc::channel();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let running = queue.start_unstoppable(async move {
        let _ = gone.await;
        finish.send(()).unwrap();
        Plain(())
    });
    queue.abandon(watched);
    queue.abandon(running);
    assert!(dropped.recv().is_err());
    go.send(()).unwrap();
    finished.recv().unwrap();
    woken.recv().unwrap();
    assert!(queue.drain().is_empty());
}

#[test]
fn a_dropped_queue_drops_everything() {
    let (queue, _woken) = queue();
    let dropped = Arc::new(AtomicUsize::new(0));
    let (queued, pending) = (started(&queue), started(&queue));
    queued.1.complete(Plain(Counted(dropped.clone())));
    let (signal, ended) = mpsc::channel::<()>();
    queue.start_stoppable(async move {
        let _signal = signal;
        std::future::pending::<Plain<Counted>>().await
    });
    drop(queue);
    pending.1.complete(Plain(Counted(dropped.clone())));
    assert_eq!(dropped.load(SeqCst), 2);
    assert!(ended.recv().is_err());
}

/// A result that its caller has to take. `missed` is the rest of the call if the caller takes it too late.
struct Offered {
    result: Counted,
    missed: Option<BoxFuture<Self>>,
}

impl Entry for Offered {
    type HostValue = Option<Counted>;

    fn announcement(self) -> (Option<Counted>, Option<Self>) {
        (None, Some(self))
    }

    fn take(self) -> Result<Option<Counted>, BoxFuture<Self>> {
        match self.missed {
            None => Ok(Some(self.result)),
            Some(further) => Err(further),
        }
    }
}

/// Announces results and returns their numbers; the callers still have to take them.
fn announced(queue: &CompletionQueue<Offered>) -> Vec<u64> {
    let announced = queue.announce();
    assert!(announced.iter().all(|(_, result)| result.is_none()));
    announced.into_iter().map(|(id, _)| id).collect()
}

#[test]
fn announced_offers_stay_until_they_are_taken() {
    let (queue, woken) = queue();
    let dropped = Arc::new(AtomicUsize::new(0));
    let offered = || Offered { result: Counted(dropped.clone()), missed: None };
    let (first, second) = (started(&queue), started(&queue));
    first.1.complete(offered());
    second.1.complete(offered());
    assert_eq!(announced(&queue), [first.0, second.0]);
    assert!(woken.try_recv().is_ok() && woken.try_recv().is_err());
    assert!(queue.announce().is_empty() && queue.drain().is_empty());
    let taken = [second.0, first.0].map(|id| queue.take(id).and_then(Started::done).flatten());
    assert!(taken.iter().all(Option::is_some) && dropped.load(SeqCst) == 0);
    assert!(queue.take(second.0).is_none());
    // A call that ended at once is not announced.
    let kept = queue.add_announced(offered());
    assert!(queue.announce().is_empty());
    assert!(queue.take(kept).and_then(Started::done).flatten().is_some());
}

#[test]
fn there_is_nothing_to_take_of_what_is_told() {
    let (queue, _woken) = queue();
    let call = started(&queue);
    call.1.complete(Plain("a"));
    assert_eq!(queue.announce(), [(call.0, "a")]);
    assert!(queue.take(call.0).is_none() && !queue.abandon(call.0));
}

#[test]
fn announced_offers_are_dropped_when_they_are_abandoned() {
    let (queue, _woken) = queue();
    let dropped = Arc::new(AtomicUsize::new(0));
    let offered = || Offered { result: Counted(dropped.clone()), missed: None };
    let call = started(&queue);
    call.1.complete(offered());
    assert_eq!(announced(&queue), [call.0]);
    assert!(!queue.abandon(call.0), "its host has heard of it");
    assert_eq!(dropped.load(SeqCst), 1);
    assert!(queue.take(call.0).is_none());
    let kept = queue.add_announced(offered());
    assert!(!queue.abandon(kept) && queue.take(kept).is_none());
    assert_eq!(dropped.load(SeqCst), 2);
    // A result that was taken belongs to its caller.
    let kept = queue.add_announced(offered());
    let taken = queue.take(kept);
    assert!(!queue.abandon(kept));
    assert_eq!(dropped.load(SeqCst), 2);
    drop(taken);
    let call = started(&queue);
    call.1.complete(offered());
    queue.announce();
    drop(queue);
    assert_eq!(dropped.load(SeqCst), 4);
}

#[test]
fn a_call_whose_result_was_missed_goes_on_under_its_number() {
    let (queue, woken) = queue();
    let dropped = Arc::new(AtomicUsize::new(0));
    let offered = |missed| Offered { result: Counted(dropped.clone()), missed };
    let in_time = offered(None);
    let call = started(&queue);
    call.1.complete(offered(Some(Box::pin(async { in_time }))));
    woken.recv().unwrap();
    assert_eq!(announced(&queue), [call.0]);
    assert!(matches!(queue.take(call.0), Some(Started::Pending(id)) if id == call.0));
    assert_eq!(dropped.load(SeqCst), 1);
    woken.recv().unwrap();
    assert_eq!(announced(&queue), [call.0]);
    assert!(matches!(queue.take(call.0), Some(Started::Done(_))));
    assert_eq!(dropped.load(SeqCst), 2);
    // Draining resumes the call, too; until it ends it can be abandoned.
    let (signal, given_up) = mpsc::channel::<()>();
    let call = started(&queue);
    call.1.complete(offered(Some(Box::pin(async move {
        let _signal = signal;
        std::future::pending().await
    }))));
    assert!(queue.drain().is_empty());
    assert!(queue.take(call.0).is_none(), "it has not ended");
    assert!(queue.abandon(call.0));
    assert!(given_up.recv().is_err());
}
