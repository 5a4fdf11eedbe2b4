//! What happens inside the core, on its way to Python's log. The core's threads only queue; a Python thread, started
//! with the first call of each process, waits here and logs: a greenlet, where the program makes threads of these.
//! Where there can be none, each call logs what happened before.

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
    errors::{Failure, Fallible},
    greenlets::{Hub, is_imported},
    known::{Known, name},
};

/// `logging.DEBUG`.
const DEBUG: i32 = 10;

/// The events of one process. A fork may happen while another thread holds a lock in there, so a child has its own,
/// linked from its parent's.
struct Process {
    started: AtomicBool,
    /// Whether nobody waits for events.
    ended: AtomicBool,
    queue: OnceLock<(EventSink, Events)>,
    /// Of the thread that waits for events.
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
            // Not `get_or_init`: a fork must not catch it while it waits for memory.
            let _ = self.child.set(Box::new(Self::new()));
        }
    }

    fn queue(&self) -> &(EventSink, Events) {
        self.queue.get_or_init(Events::queue)
    }

    /// What happened, without waiting for it.
    fn now(&self) -> Vec<Event> {
        match pin!(self.queue().1.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(events) => events,
            Poll::Pending => Vec::new(),
        }
    }

    /// What happened, once something did; nothing at the end, after everything else.
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

/// Where clients put their events.
pub(crate) fn sink() -> EventSink {
    Arc::new(|event| (Process::current().queue().0)(event))
}

/// A warning or not, about a forgotten lock or not, and a line for people.
type Line = (bool, bool, String);

fn lines(events: &[Event]) -> Vec<Line> {
    let line = |event: &Event| (event.is_warning(), matches!(event, Event::Orphaned { .. }), event.to_string());
    events.iter().map(line).collect()
}

/// Notes the log's level, and starts what a process needs once: the thread that logs, and the clean-up at exit.
fn attend(py: Python<'_>) -> PyResult<()> {
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

/// What tells the log's level. None: nobody has set one, since nobody has imported `logging`.
fn logs(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static LOGS: Known = Known::new();
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
    LOGS.or_find(py, || Ok(logs)).map(Some)
}

/// `attend`, unless an operation ends what another began.
pub(crate) fn attend_to(py: Python<'_>, operation: &Operation<'_>) -> PyResult<()> {
    use Operation::{Close, Extend, Leave, Lost, Release, ReleaseNewest};
    match operation {
        ReleaseNewest(..) | Release(_) | Leave(_) | Extend(..) | Lost(..) | Close(_) => Ok(()),
        _ => attend(py),
    }
}

/// Blocks until something happened. After `end_events` it only fetches what is there.
#[pyfunction]
pub(crate) fn next_events(py: Python<'_>) -> Fallible<Vec<Line>> {
    let process = Process::current();
    if process.ended.load(SeqCst) {
        return Ok(lines(&process.now()));
    }
    let Some(hub) = Hub::current(py)? else {
        return Ok(py.detach(|| lines(&runtime::background().block_on(process.next()))));
    };
    match hub.attend(|calls| calls.events_of(process.next())) {
        Ok(Value::Events(events)) => Ok(lines(&events)),
        // A greenlet of the parent of this process ends with it.
        Ok(_) | Err(Failure::Lock(_)) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// Says that nobody waits for events, from now on.
#[pyfunction]
pub(crate) fn end_events() {
    Process::current().end();
}
