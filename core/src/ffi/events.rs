//! The queue of clients' events for a host's log or listeners. The library's threads only add to it.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
};

use tokio::sync::{Mutex, mpsc};

use crate::event::{Event, EventSink};

/// How many events may wait for the host. Further ones are counted and dropped.
const CAPACITY: usize = 10_000;

/// Events that wait for their host.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Arc<Mutex<mpsc::Receiver<Event>>>,
    /// How many events were dropped and not reported yet.
    dropped: Arc<AtomicU64>,
    verbose: Arc<AtomicBool>,
}

impl Events {
    /// Makes a sink for clients, and the queue from which the host fetches the events.
    pub fn queue() -> (EventSink, Self) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let verbose = Arc::new(AtomicBool::new(false));
        let dropped = Arc::new(AtomicU64::new(0));
        let (wanted, unreported) = (verbose.clone(), dropped.clone());
        let sink: EventSink = Arc::new(move |event| {
            if (event.is_warning() || wanted.load(Relaxed)) && sender.try_send(event.clone()).is_err() {
                unreported.fetch_add(1, SeqCst);
            }
        });
        (sink, Self { queue: Arc::new(Mutex::new(receiver)), dropped, verbose })
    }

    /// Sets whether events that are not warnings are queued, too. Default: false, since each costs the host a wake-up.
    pub fn set_verbose(&self, verbose: bool) {
        self.verbose.store(verbose, Relaxed);
    }

    /// Waits for events, and returns all that are queued; none once no client uses the sink any more. If events were
    /// dropped, the last one of the batch says how many.
    pub async fn next(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.queue.lock().await.recv_many(&mut events, CAPACITY).await;
        // An event that is being dropped at this moment may be counted after this; then the next batch reports it.
        let count = self.dropped.swap(0, SeqCst);
        if count > 0 {
            events.push(Event::EventsDropped { count });
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn node_up() -> Event {
        Event::NodeUp { node: "a".to_owned() }
    }

    fn fetch(events: &Events) -> Vec<Event> {
        events.next().now_or_never().expect("there is something to fetch")
    }

    #[test]
    fn dropped_events_are_reported_at_the_end_of_the_batch() {
        let (sink, events) = Events::queue();
        // No warning, and the queue is not verbose: the event is ignored, which does not count as dropped.
        sink(&node_up());
        events.set_verbose(true);
        for _ in 0..CAPACITY + 3 {
            sink(&node_up());
        }
        let mut fetched = fetch(&events);
        let last = fetched.pop().expect("the last one");
        assert!(matches!(last, Event::EventsDropped { count: 3 }), "{last}");
        assert!(last.is_warning());
        assert_eq!(fetched.len(), CAPACITY);
        assert!(fetched.iter().all(|event| event.kind() == "node_up"));
        // The queue has room again, and reports no drop twice.
        sink(&node_up());
        assert!(matches!(fetch(&events)[..], [Event::NodeUp { .. }]));
        drop(sink);
        assert!(fetch(&events).is_empty());
    }

    #[test]
    fn dropped_events_are_reported_when_the_last_client_is_gone() {
        let (sink, events) = Events::queue();
        events.set_verbose(true);
        for _ in 0..=CAPACITY {
            sink(&node_up());
        }
        drop(sink);
        assert_eq!(fetch(&events).len(), CAPACITY + 1);
        assert!(fetch(&events).is_empty());
    }
}
