//! The completion queue alone: results that are queued, drained, abandoned and dropped.

use std::sync::{
    atomic::{AtomicUsize, Ordering::SeqCst},
    mpsc,
};

use super::*;

fn queue<T: Send + 'static>() -> (Arc<CompletionQueue<Plain<T>>>, mpsc::Receiver<()>) {
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

fn started<T: Send + 'static>(queue: &Arc<CompletionQueue<Plain<T>>>) -> (u64, Completion<Plain<T>>) {
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
    let id = queue.run(async { Plain(7) });
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
    let (queue, woken) = queue::<()>();
    let (signal, dropped) = mpsc::channel::<()>();
    let watched = queue.watch(async move {
        let _signal = signal;
        std::future::pending::<()>().await;
        Plain(())
    });
    let (finish, finished) = mpsc::channel();
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    let running = queue.run(async move {
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
    queue.watch(async move {
        let _signal = signal;
        std::future::pending::<Plain<Counted>>().await
    });
    drop(queue);
    pending.1.complete(Plain(Counted(dropped.clone())));
    assert_eq!(dropped.load(SeqCst), 2);
    assert!(ended.recv().is_err());
}
