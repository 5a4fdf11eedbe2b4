//! Who calls: the thread, or, when an event loop or a hub runs in it, its current task or greenlet.
//!
//! A thread's identity lives in thread-local storage and ends with the thread. A task's is an attribute of it, given by
//! `redlock/_tasks.py`, and ends with the task; so is a greenlet's, given by `redlock/_greenlets.py`.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use pyo3::prelude::*;
use redlock::{Owner, process::fork};

use crate::{
    greenlets,
    known::{Known, name},
};

/// The identity of a thread, a task or a greenlet. Whatever it holds is renewed for as long as this object lives.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Identity {
    number: u64,
    identity: redlock::Identity,
}

#[pymethods]
impl Identity {
    #[new]
    fn new() -> Self {
        // Never used twice, unlike a thread's id.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, Relaxed), identity: redlock::Identity::new() }
    }

    /// Its task is done: it owns nothing, even while somebody keeps it for its result.
    #[allow(clippy::unused_self, reason = "a method of Python's")]
    #[pyo3(signature = (task, /))]
    fn __call__(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        task.delattr(name!(task.py(), "_redlock_identity")?)
    }
}

/// The identity of a task, which keeps it in an attribute until it is done.
fn identify<'py>(task: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Identity>> {
    static IDENTIFY: Known = Known::new();
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
    /// Whether this is the main thread, as far as known in this fork generation.
    static MAIN: Cell<Option<(u64, bool)>> = const { Cell::new(None) };
}

/// Who makes a call.
#[derive(Clone)]
pub(crate) struct Caller {
    /// Tells callers apart.
    pub(crate) number: u64,
    pub(crate) owner: Owner,
    /// Its thread.
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
        static CURRENT_TASK: Known = Known::new();
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
    static RUNNING_LOOP: Known = Known::new();
    // No loop can run before asyncio was imported, and importing it takes longer than a lock.
    if RUNNING_LOOP.get(py).is_none() && !greenlets::is_imported(py, &name!(py, "asyncio.events")?)? {
        return Ok(None);
    }
    let running_loop = RUNNING_LOOP.import(py, "asyncio", "_get_running_loop")?;
    Ok(Some(running_loop.call0()?).filter(|running| !running.is_none()))
}

/// Whether this thread handles signals. Asked once a thread.
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
