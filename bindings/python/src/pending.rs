//! What a coroutine awaits: a call of the core that is under way. A task of asyncio takes it for a future that somebody
//! else made (`asyncio.isfuture`): it leaves its wake-up there, and cancels it when it is cancelled itself.
//!
//! ```text
//! waiting ─the call ended─▶ ended ─taken─▶ over
//!         ─cancel─▶ cancelled ─told─▶ over
//!         ─close─▶ over
//! ```
//! One that is given up before its call ended leaves nothing behind, and neither does one that is dropped before its lease
//! was taken.

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
    /// How asyncio tells `await` from a mere `yield`.
    blocking: AtomicBool,
}

enum State {
    Waiting(Waiting),
    Ended(Outcome),
    /// With what the caller of `cancel` has to say.
    Cancelled(Option<Py<PyAny>>),
    Over,
}

pub(crate) struct Waiting {
    calls: Py<Calls>,
    id: u64,
    pub(crate) event_loop: Py<PyAny>,
    /// How the task goes on, and the context in which it does.
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

    /// Has the task go on, in a callback of its loop.
    pub(crate) fn wake(&self, pending: &Bound<'_, Pending>) -> PyResult<()> {
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        context.call_method1(pending.py(), name!(pending.py(), "run")?, (wakeup, pending)).map(drop)
    }

    /// Has it go on soon.
    fn wake_soon(&self, pending: &Bound<'_, Pending>) -> PyResult<()> {
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        let keywords = [("context", context)].into_py_dict(pending.py())?;
        self.event_loop.call_method(pending.py(), "call_soon", (wakeup, pending), Some(&keywords)).map(drop)
    }
}

/// Releases a lease that nobody gets to see.
pub(crate) fn discard(outcome: &Outcome) {
    if let Ok(Value::Lease(lease)) = outcome {
        lease.abandon();
    }
}

impl Pending {
    /// A call that is under way.
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

    /// Goes from waiting to the next state. If it does not wait it stays as it is, and returns what would have been next.
    fn stop_waiting(&self, next: State) -> Result<Waiting, State> {
        let mut state = self.state();
        match mem::replace(&mut *state, next) {
            State::Waiting(waiting) => Ok(waiting),
            other => Err(mem::replace(&mut *state, other)),
        }
    }

    /// Notes the outcome of the call and returns its waiter. Discards the outcome if there is none any more: without a GIL
    /// another thread may cancel or close this while the loop takes the outcome in.
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

    /// Itself as long as it waits, then its end.
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

    /// The loop, while it waits.
    fn get_loop(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        match &*self.state() {
            State::Waiting(waiting) => Some(waiting.event_loop.clone_ref(py)),
            _ => None,
        }
    }

    /// How the task goes on. There is only one: nobody else gets to see this object.
    #[pyo3(signature = (function, *, context))]
    fn add_done_callback(&self, function: Py<PyAny>, context: Py<PyAny>) {
        if let State::Waiting(waiting) = &mut *self.state() {
            waiting.wakeup = Some((function, context));
        }
    }

    /// Nothing, and no error: these come where it is awaited.
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

    /// The coroutine that awaits it is closed.
    fn close(&self) {
        if let Ok(waiting) = self.stop_waiting(State::Over) {
            waiting.calls.get().abandon(waiting.id);
        }
    }

    /// A state that is being used is not garbage.
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
