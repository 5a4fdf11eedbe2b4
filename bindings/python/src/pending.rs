//! A pending call of the core, which a coroutine awaits. To a task of asyncio it is a future (`asyncio.isfuture`): the
//! task adds its wake-up as a callback, and cancels the call when it is cancelled itself.
//!
//! ```text
//! waiting ─the call ended─▶ ended ─result returned─▶ over
//!         ─cancel─▶ cancelled ─CancelledError raised─▶ over
//!         ─close─▶ over
//! ```
//! No lock stays held if the call is given up before it ends, or dropped before its lease is returned.

use std::{
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyRuntimeError, PyStopIteration},
    prelude::*,
    types::IntoPyDict,
};
use redlock::ffi::{Outcome, Value};

use crate::{
    calls::{Calls, python},
    errors::Fallible,
    known::{Known, name},
};

/// A call of an event loop.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Pending {
    state: Mutex<State>,
    /// asyncio sets and reads it to distinguish an `await` from a plain `yield`.
    blocking: AtomicBool,
}

enum State {
    Waiting(Waiting),
    Ended(Outcome),
    /// With the message that was passed to `cancel`.
    Cancelled(Option<Py<PyAny>>),
    Over,
}

pub(crate) struct Waiting {
    calls: Py<Calls>,
    id: u64,
    pub(crate) event_loop: Py<PyAny>,
    /// The callback that resumes the task, and the context in which to call it.
    wakeup: Option<(Py<PyAny>, Py<PyAny>)>,
}

impl Waiting {
    pub(crate) fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.calls)?;
        visit.call(&self.event_loop)?;
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        visit.call(wakeup)?;
        visit.call(context)
    }

    /// Resumes the task at once. Called in a callback of its loop.
    pub(crate) fn wake(&self, pending: &Bound<'_, Pending>) -> PyResult<()> {
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        context.call_method1(pending.py(), name!(pending.py(), "run")?, (wakeup, pending)).map(drop)
    }

    /// Resumes the task in a later callback of its loop.
    fn wake_soon(&self, pending: &Bound<'_, Pending>) -> PyResult<()> {
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        let keywords = [("context", context)].into_py_dict(pending.py())?;
        self.event_loop.call_method(pending.py(), "call_soon", (wakeup, pending), Some(&keywords)).map(drop)
    }
}

/// Releases a lease that no caller will receive.
pub(crate) fn discard(outcome: &Outcome) {
    if let Ok(Value::Lease(lease)) = outcome {
        lease.abandon();
    }
}

impl Pending {
    /// A call that is pending.
    pub(crate) fn new(calls: Py<Calls>, id: u64, event_loop: Py<PyAny>) -> Self {
        Self::of(State::Waiting(Waiting { calls, id, event_loop, wakeup: None }))
    }

    /// A call that ended at once.
    pub(crate) fn ended(outcome: Outcome) -> Self {
        Self::of(State::Ended(outcome))
    }

    fn of(state: State) -> Self {
        Self { state: Mutex::new(state), blocking: AtomicBool::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state from waiting to `next`. Any other state it leaves unchanged, and returns `next`.
    fn stop_waiting(&self, next: State) -> Result<Waiting, State> {
        let mut state = self.state();
        match mem::replace(&mut *state, next) {
            State::Waiting(waiting) => Ok(waiting),
            other => Err(mem::replace(&mut *state, other)),
        }
    }

    /// Stores the outcome of the call and returns its waiter. Discards the outcome if no task waits any more: without a
    /// GIL another thread may cancel or close the call in this moment.
    pub(crate) fn end(&self, outcome: Outcome) -> Option<Waiting> {
        match self.stop_waiting(State::Ended(outcome)) {
            Ok(waiting) => Some(waiting),
            Err(State::Ended(outcome)) => {
                discard(&outcome);
                None
            }
            Err(_) => None,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let State::Ended(outcome) = self.state.get_mut().unwrap_or_else(PoisonError::into_inner) {
            discard(outcome);
        }
    }
}

#[pymethods]
impl Pending {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Yields itself while the call is pending. Then it ends the await: with the result, or by raising.
    fn __next__(slf: Bound<'_, Self>) -> Fallible<Bound<'_, Self>> {
        static CANCELLED: Known = Known::new();
        let py = slf.py();
        let state = {
            let mut state = slf.get().state();
            if matches!(*state, State::Waiting(_)) { None } else { Some(mem::replace(&mut *state, State::Over)) }
        };
        match state {
            Some(State::Ended(outcome)) => {
                let end = py.get_type::<PyStopIteration>().call1((python(py, outcome?)?,))?;
                Err(PyErr::from_value(end).into())
            }
            Some(State::Cancelled(message)) => {
                let class = CANCELLED.import(py, "asyncio", "CancelledError")?;
                Err(PyErr::from_value(message.map_or_else(|| class.call0(), |message| class.call1((message,)))?).into())
            }
            Some(_) => Err(PyRuntimeError::new_err("awaited twice").into()),
            None => {
                slf.get().blocking.store(true, Relaxed);
                Ok(slf)
            }
        }
    }

    #[getter(_asyncio_future_blocking)]
    fn blocking(&self) -> bool {
        self.blocking.load(Relaxed)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        self.blocking.store(blocking, Relaxed);
    }

    /// The event loop while the call is pending, then None.
    fn get_loop(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.state() {
            State::Waiting(waiting) => Some(waiting.event_loop.clone_ref(py)),
            _ => None,
        }
    }

    /// Sets the callback that resumes the task. One is enough, since only that task sees this object.
    #[pyo3(signature = (function, *, context))]
    fn add_done_callback(&self, function: Py<PyAny>, context: Py<PyAny>) {
        if let State::Waiting(waiting) = &mut *self.state() {
            waiting.wakeup = Some((function, context));
        }
    }

    /// Returns nothing: the await returns the result, or raises.
    #[allow(clippy::unused_self, reason = "a method of Python's")]
    fn result(&self) {}

    /// Gives the call up, unless it has ended.
    #[pyo3(signature = (msg=None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let Ok(waiting) = slf.get().stop_waiting(State::Cancelled(msg)) else { return Ok(false) };
        waiting.calls.get().abandon(waiting.id);
        waiting.wake_soon(slf)?;
        Ok(true)
    }

    /// Gives the call up, since the coroutine that awaits it is closed.
    fn close(&self) {
        if let Ok(waiting) = self.stop_waiting(State::Over) {
            waiting.calls.get().abandon(waiting.id);
        }
    }

    /// A locked mutex means that the state is in use, and so not garbage.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.state.try_lock().as_deref() {
            Ok(State::Waiting(waiting)) => waiting.traverse(visit),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        drop(self.stop_waiting(State::Over));
    }
}
