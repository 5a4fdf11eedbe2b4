//! What happens inside the core, on its way to Python's log. The core's threads only queue; a Python thread, started
//! with the first call of each process, waits here and logs.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use pyo3::{prelude::*, sync::PyOnceLock};
use redlock::{Event, EventSink, runtime};

/// `logging.DEBUG`.
const DEBUG: i32 = 10;
/// What waits to be logged at most; more than that is dropped.
const CAPACITY: usize = 10_000;

/// The events of one process. A fork may happen while another thread holds the lock, so a child has its own, linked
/// from its parent's.
struct Process {
    started: AtomicBool,
    /// Whether anybody wants to know about events that are no warnings.
    debug: AtomicBool,
    queue: Mutex<VecDeque<Event>>,
    arrived: Condvar,
    child: OnceLock<Box<Process>>,
}

impl Process {
    const fn new() -> Self {
        Self {
            started: AtomicBool::new(false),
            debug: AtomicBool::new(false),
            queue: Mutex::new(VecDeque::new()),
            arrived: Condvar::new(),
            child: OnceLock::new(),
        }
    }

    fn current() -> &'static Self {
        static FIRST: Process = Process::new();
        (0..runtime::generation()).fold(&FIRST, |parent, _| parent.child.get_or_init(|| Box::new(Self::new())))
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where clients put their events.
pub(crate) fn sink() -> EventSink {
    Arc::new(|event| {
        let process = Process::current();
        if !event.is_warning() && !process.debug.load(Relaxed) {
            return;
        }
        let mut queue = process.queue();
        if queue.len() < CAPACITY {
            queue.push_back(event.clone());
            process.arrived.notify_one();
        }
    })
}

/// Notes the log's level, and starts what a process needs once: the thread that logs, and the clean-up at exit.
pub(crate) fn attend(py: Python<'_>) -> PyResult<()> {
    static LOGS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let process = Process::current();
    if !process.started.swap(true, Relaxed) {
        py.import("redlock._process")?.call_method0("start")?;
    }
    let logs = LOGS.import(py, "redlock._process", "logs")?;
    let debug = logs.call1((DEBUG,))?.is_truthy()?;
    process.debug.store(debug, Relaxed);
    Ok(())
}

/// Blocks until something happened: for each event whether it is a warning, whether it is about a forgotten lock,
/// and a line for people.
#[pyfunction]
pub(crate) fn next_events(py: Python<'_>) -> Vec<(bool, bool, String)> {
    py.detach(|| {
        let process = Process::current();
        let arrived = process.arrived.wait_while(process.queue(), |queue| queue.is_empty());
        let events = std::mem::take(&mut *arrived.unwrap_or_else(PoisonError::into_inner));
        let line = |event: &Event| (event.is_warning(), matches!(event, Event::Orphaned { .. }), event.to_string());
        events.iter().map(line).collect()
    })
}
