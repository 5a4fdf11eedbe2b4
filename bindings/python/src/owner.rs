//! The caller of an operation: the thread, or its current task or greenlet if an event loop or a hub runs in it.
//!
//! The identity of a thread is in thread-local storage and ends with the thread. The identity of a task is an attribute
//! of the task and ends with it; `redlock/_tasks.py` keeps it for tasks that accept no attributes. The identity of a
//! greenlet is an attribute as well, set by `redlock/_greenlets.py`.

use std::cell::Cell;

use pyo3::prelude::*;
use redlock::{Owner, process::fork};

use crate::{
    cached::{Cached, name},
    greenlets,
    identity::Identity,
};

/// The identity of a task, which keeps it in an attribute until it is done.
fn identify<'py>(task: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Identity>> {
    static IDENTIFY: Cached = Cached::new();
    let py = task.py();
    let attribute = name!(py, "_redlock_identity")?;
    if let Some(known) = task.getattr_opt(&attribute)? {
        return Ok(known.cast_into()?);
    }
    let identity = Bound::new(py, Identity::new())?;
    if task.setattr(&attribute, &identity).is_err() {
        return Ok(IDENTIFY.import(py, "redlock._tasks", "identify")?.call1((task,))?.cast_into()?);
    }
    task.call_method1(name!(py, "add_done_callback")?, (&identity,))?;
    Ok(identity)
}

thread_local! {
    static THREAD: Identity = Identity::new();
    /// Whether this is the main thread, and the fork generation in which that was looked up.
    static MAIN: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
}

/// The caller of an operation.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The number of its identity.
    pub(crate) number: u64,
    pub(crate) owner: Owner,
    /// The number of its thread's identity.
    pub(crate) thread: u64,
}

impl Caller {
    fn new(identity: &Identity, thread: u64) -> Self {
        Self { number: identity.number, owner: Owner::Ambient(identity.identity.clone()), thread }
    }

    /// The current task, or else the greenlet, or else the thread.
    pub(crate) fn current(py: Python<'_>) -> PyResult<Self> {
        if let Some(task) = Self::task(py)? {
            return Ok(task);
        }
        let greenlet = greenlets::identity(py)?;
        Ok(THREAD.with(|thread| Self::new(greenlet.as_ref().map_or(thread, Bound::get), thread.number)))
    }

    /// The current task, if there is one.
    pub(crate) fn task(py: Python<'_>) -> PyResult<Option<Self>> {
        static CURRENT_TASK: Cached = Cached::new();
        let Some(running) = running_loop(py)? else { return Ok(None) };
        if greenlets::is_run_by(py, &running)? {
            return Ok(None);
        }
        let task = CURRENT_TASK.import(py, "asyncio", "current_task")?.call1((running,))?;
        if task.is_none() {
            // In a callback of the loop.
            return Ok(None);
        }
        let identity = identify(&task)?;
        Ok(Some(Self::new(identity.get(), THREAD.with(|thread| thread.number))))
    }
}

/// The event loop that runs in this thread. Costs one call of a C function, and less where asyncio is not used.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static RUNNING_LOOP: Cached = Cached::new();
    // No loop can run before asyncio is imported, and importing it takes longer than an acquire.
    if RUNNING_LOOP.get(py).is_none() && !greenlets::is_imported(py, &name!(py, "asyncio.events")?)? {
        return Ok(None);
    }
    let running_loop = RUNNING_LOOP.import(py, "asyncio", "_get_running_loop")?;
    Ok(Some(running_loop.call0()?).filter(|running| !running.is_none()))
}

/// Whether this is the main thread, which handles signals. Looked up once in each thread, and again after a fork.
pub(crate) fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let generation = fork::generation();
    if let Some((known, main)) = MAIN.get()
        && known == generation
    {
        return Ok(main);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let main = main.eq(threading.call_method0("get_ident")?)?;
    MAIN.set(Some((generation, main)));
    Ok(main)
}
