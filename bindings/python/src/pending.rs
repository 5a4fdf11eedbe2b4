//! The methods of a pending call, which a coroutine awaits. To a task of asyncio it is a future (`asyncio.isfuture`): the
//! task adds its wake-up as a callback, and cancels the call when it is cancelled itself.

use std::{mem, sync::atomic::Ordering::Relaxed};

use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyRuntimeError, PyStopIteration},
    prelude::*,
};

use crate::{
    cached::Cached,
    calls::{Pending, State},
    errors::Fallible,
    results::python,
};

#[pymethods]
impl Pending {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Yields itself while the call is pending. Then it ends the await: with the result, or by raising.
    fn __next__(slf: Bound<'_, Self>) -> Fallible<Bound<'_, Self>> {
        static CANCELLED: Cached = Cached::new();
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
            Some(_) => Err(PyRuntimeError::new_err("this call has already been awaited or closed").into()),
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

    /// Returns None. A task of asyncio calls this when it resumes and ignores the value: `__next__` returns the result,
    /// or raises.
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

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.traverse(visit)
    }

    fn __clear__(&self) {
        drop(self.stop_waiting(State::Over));
    }
}
