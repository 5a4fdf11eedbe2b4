//! Brings the core's events to Python's log. The core's threads only queue events. A Python thread, started with the
//! first call of each process, waits here and logs them; it is a greenlet if the program made greenlets of threads.
//! Where no such thread can run, each call logs the events before it.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
    },
    task::{Context, Poll, Waker},
};

use pyo3::prelude::*;
use redlock::{
    Event, EventSink,
    ffi::{Events, Operation, Value},
    process::{fork, runtime},
};

use crate::{
    cached::{Cached, name},
    errors::{Failure, Fallible},
    greenlets::is_imported,
    hub::Hub,
};

/// `logging.DEBUG`.
const DEBUG: i32 = 10;

/// The events of one process. A child of a fork has its own, linked from its parent's: the parent's may contain a mutex
/// that another thread had locked when the process forked.
struct Process {
    started: AtomicBool,
    /// Whether no thread waits for events any more.
    ended: AtomicBool,
    queue: OnceLock<(EventSink, Events)>,
    /// The waker of the thread that waits for events.
    waiting: Mutex<Option<Waker>>,
    child: OnceLock<Box<Process>>,
}

impl Process {
    const fn new() -> Self {
        Self {
            started: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            queue: OnceLock::new(),
            waiting: Mutex::new(None),
            child: OnceLock::new(),
        }
    }

    fn current() -> &'static Self {
        static FIRST: Process = Process::new();
        (0..fork::generation()).fold(&FIRST, |parent, _| parent.child())
    }

    fn child(&self) -> &Self {
        loop {
            if let Some(child) = self.child.get() {
                return child;
            }
            // Not `get_or_init`: if the process forked while that allocates, the child would wait for it for ever.
            let _ = self.child.set(Box::new(Self::new()));
        }
    }

    fn queue(&self) -> &(EventSink, Events) {
        self.queue.get_or_init(Events::queue)
    }

    /// The queued events, without waiting.
    fn now(&self) -> Vec<Event> {
        match pin!(self.queue().1.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(events) => events,
            Poll::Pending => Vec::new(),
        }
    }

    /// Waits for events and returns them. Returns none after `end`, once the queue is empty.
    async fn next(&self) -> Vec<Event> {
        let mut next = pin!(self.queue().1.next());
        poll_fn(|context| {
            *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            let ended = self.ended.load(SeqCst);
            match next.as_mut().poll(context) {
                Poll::Pending if ended => Poll::Ready(Vec::new()),
                events => events,
            }
        })
        .await
    }

    fn end(&self) {
        self.ended.store(true, SeqCst);
        if let Some(waker) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take() {
            waker.wake();
        }
    }
}

/// The sink for the events of clients.
pub(crate) fn sink() -> EventSink {
    Arc::new(|event| (Process::current().queue().0)(event))
}

/// An event: whether it is a warning, whether it is about an orphan, and its text.
type Line = (bool, bool, String);

fn lines(events: &[Event]) -> Vec<Line> {
    let line = |event: &Event| (event.is_warning(), matches!(event, Event::Orphaned { .. }), event.to_string());
    events.iter().map(line).collect()
}

/// Reads the log's level. The first time in a process, starts the thread that logs and registers the release at exit.
/// After `end_events` logs the queued events.
fn update_logging(py: Python<'_>) -> PyResult<()> {
    let process = Process::current();
    if !process.started.swap(true, Relaxed) {
        py.import("redlock._process")?.call_method0("start")?;
    }
    if let Some(logs) = logs(py)? {
        process.queue().1.set_verbose(logs.call1((DEBUG,))?.is_truthy()?);
    }
    if process.ended.load(Relaxed) {
        let events = process.now();
        if !events.is_empty() {
            py.import("redlock._process")?.call_method1("log", (lines(&events),))?;
        }
    }
    Ok(())
}

/// The function that returns whether a level is logged. `None` while `logging` is not imported: no level is set then.
fn logs(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static LOGS: Cached = Cached::new();
    if let Some(known) = LOGS.get(py) {
        return Ok(Some(known));
    }
    if !is_imported(py, &name!(py, "logging")?)? {
        return Ok(None);
    }
    let logs = py.import("redlock._process")?.call_method0("logs")?;
    if logs.is_none() {
        return Ok(None);
    }
    LOGS.get_or_find(py, || Ok(logs)).map(Some)
}

/// Makes sure that events are logged, before an operation. Does nothing for one that follows an earlier operation, such
/// as the release after an acquire.
pub(crate) fn ensure_logging(py: Python<'_>, operation: &Operation<'_>) -> PyResult<()> {
    use Operation::{Close, Extend, Leave, Lost, Release, ReleaseNewest};
    match operation {
        ReleaseNewest(..) | Release(_) | Leave(_) | Extend(..) | Lost(..) | Close(_) => Ok(()),
        _ => update_logging(py),
    }
}

/// Blocks until there are events. After `end_events` returns the queued ones without waiting.
#[pyfunction]
pub(crate) fn next_events(py: Python<'_>) -> Fallible<Vec<Line>> {
    let process = Process::current();
    if process.ended.load(SeqCst) {
        return Ok(lines(&process.now()));
    }
    let Some(hub) = Hub::current(py)? else {
        return Ok(py.detach(|| lines(&runtime::background().block_on(process.next()))));
    };
    match hub.run_idle(|calls| calls.events_of(process.next())) {
        Ok(Value::Events(events)) => Ok(lines(&events)),
        // In a child of a fork, the parent's greenlet that logs has to end.
        Ok(_) | Err(Failure::Lock(_)) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// Ends the waiting for events: from now on each call logs the events before it.
#[pyfunction]
pub(crate) fn end_events() {
    Process::current().end();
}
