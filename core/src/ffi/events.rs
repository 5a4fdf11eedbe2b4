//! What happened in clients, on its way to a host's log or listeners. The library's threads only queue.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::{Mutex, mpsc};

use crate::event::{Event, EventSink};

/// What waits to be fetched at most; more than that is dropped.
const CAPACITY: usize = 10_000;

/// What happened, waiting for its host.
#[derive(Clone, Debug)]
pub struct Events {
    queue: Arc<Mutex<mpsc::Receiver<Event>>>,
    verbose: Arc<AtomicBool>,
}

impl Events {
    /// A sink for clients, and where the host fetches what went in. The library's threads only queue.
    pub fn queue() -> (EventSink, Self) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let verbose = Arc::new(AtomicBool::new(false));
        let wanted = verbose.clone();
        let sink: EventSink = Arc::new(move |event| {
            if event.is_warning() || wanted.load(Relaxed) {
                // A host that fetches nothing gets no more than the first ones.
                let _ = sender.try_send(event.clone());
            }
        });
        (sink, Self { queue: Arc::new(Mutex::new(receiver)), verbose })
    }

    /// Whether events that are no warnings are wanted too. Each costs the host a wake-up, so at first they are not.
    pub fn set_verbose(&self, verbose: bool) {
        self.verbose.store(verbose, Relaxed);
    }

    /// Waits until something happened; nothing once no client uses the sink any more.
    pub async fn next(&self) -> Vec<Event> {
        let mut events = Vec::new();
        self.queue.lock().await.recv_many(&mut events, CAPACITY).await;
        events
    }
}
