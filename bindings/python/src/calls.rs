//! [`Calls`]: the calls of one event loop. [`Pending`]: one call, which a coroutine awaits. `starters.rs` has the
//! functions that start calls, `pending.rs` the methods by which asyncio awaits them.
//!
//! ```text
//! waiting ─the call ended─▶ ended ─result returned─▶ over
//!         ─cancel─▶ cancelled ─CancelledError raised─▶ over
//!         ─close─▶ over
//! ```
//! No lock stays held if the call is given up before it ends, or dropped before its lease is returned.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use pyo3::{PyTraverseError, PyVisit, prelude::*, types::IntoPyDict};
use redlock::{
    ffi::{self, Operation, Outcome, Value, completions::Started},
    process::fork,
};

use crate::{
    cached::{Cached, name},
    errors::Fallible,
    owner,
};

/// Starts the calls of one event loop, and knows the tasks that await them.
#[pyclass(frozen, subclass, weakref, module = "redlock._native")]
pub(crate) struct Calls {
    core: Arc<ffi::Calls>,
    generation: u64,
    waiting: Mutex<HashMap<u64, Py<Pending>>>,
    /// Calls that have ended, and whose tasks are not resumed yet.
    ready: Mutex<VecDeque<(Waiting, Py<Pending>)>>,
    /// Whether `flush` is scheduled for the end of this turn of the loop.
    unsent: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Calls {
    pub(crate) fn new(core: Arc<ffi::Calls>) -> Self {
        Self {
            core,
            generation: fork::generation(),
            waiting: Mutex::default(),
            ready: Mutex::default(),
            unsent: AtomicBool::new(false),
        }
    }

    /// The running event loop of this thread, and its calls. Raises `NoEventLoop`.
    fn current(py: Python<'_>) -> PyResult<(Bound<'_, PyAny>, Bound<'_, Self>)> {
        static RUNNING_LOOP: Cached = Cached::new();
        static BEGIN: Cached = Cached::new();
        let running = match owner::running_loop(py)? {
            Some(running) => running,
            None => RUNNING_LOOP.import(py, "redlock.asyncio", "running_loop")?.call0()?,
        };
        if let Some(calls) = running.getattr_opt(name!(py, "_redlock_calls")?)? {
            let calls = calls.cast_into::<Self>()?;
            if calls.get().generation == fork::generation() {
                return Ok((running, calls));
            }
        }
        let calls = BEGIN.import(py, "redlock.asyncio", "_begin")?.call1((&running,))?.cast_into()?;
        Ok((running, calls))
    }

    /// Starts a call that a coroutine awaits.
    pub(crate) fn start<'py>(py: Python<'py>, operation: Operation<'_>) -> Fallible<Bound<'py, Pending>> {
        let (running, slf) = Self::current(py)?;
        let calls = slf.get();
        let id = match calls.core.start(operation)? {
            Started::Done(outcome) => return Ok(Bound::new(py, Pending::ended(outcome))?),
            Started::Pending(id) => id,
        };
        let pending = Bound::new(py, Pending::new(slf.clone().unbind(), id, running.clone().unbind()))?;
        let alone = {
            let mut waiting = locked(&calls.waiting);
            waiting.insert(id, pending.clone().unbind());
            waiting.len() == 1
        };
        // The core sent this call at once if no other was pending. Else it is sent at the end of this turn of the loop,
        // in one write with all other calls of the turn.
        if !alone && !calls.unsent.swap(true, Relaxed) {
            call_soon(&running, slf.getattr(name!(py, "flush")?)?)?;
        }
        Ok(pending)
    }

    /// Stores the results of ended calls and resumes the tasks that await them. Runs in a callback of their loop.
    pub(crate) fn end(slf: &Bound<'_, Self>, ended: Vec<(u64, Outcome)>) -> PyResult<()> {
        let (py, calls) = (slf.py(), slf.get());
        for (id, outcome) in ended {
            let pending = locked(&calls.waiting).remove(&id);
            match pending {
                Some(pending) => {
                    let waiting = pending.get().end(outcome);
                    locked(&calls.ready).extend(waiting.map(|waiting| (waiting, pending)));
                }
                None => discard(&outcome),
            }
        }
        // `resume` below resumes all tasks, one after another. But the first one may stop the loop or run it
        // re-entrantly: then the callback resumes the others.
        let others = locked(&calls.ready).get(1).map(|(waiting, _)| waiting.event_loop.clone_ref(py));
        if let Some(event_loop) = others {
            call_soon(event_loop.bind(py), slf.getattr(name!(py, "go_on")?)?)?;
        }
        calls.resume(py)
    }

    /// Sends the calls that were started in this turn.
    pub(crate) fn send(&self) {
        self.unsent.store(false, Relaxed);
        #[cfg(target_os = "linux")]
        self.core.flush();
    }

    /// Resumes all tasks whose calls have ended.
    pub(crate) fn resume(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let next = locked(&self.ready).pop_front();
            let Some((waiting, pending)) = next else { return Ok(()) };
            waiting.wake(pending.bind(py))?;
        }
    }

    /// A locked mutex means that the calls are in use, and so not garbage.
    pub(crate) fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let (Ok(waiting), Ok(ready)) = (self.waiting.try_lock(), self.ready.try_lock()) else { return Ok(()) };
        waiting.values().try_for_each(|pending| visit.call(pending))?;
        ready.iter().try_for_each(|(waiting, pending)| {
            visit.call(pending)?;
            waiting.traverse(visit)
        })
    }

    pub(crate) fn clear(&self) {
        let waiting = mem::take(&mut *locked(&self.waiting));
        let ready = mem::take(&mut *locked(&self.ready));
        drop((waiting, ready));
    }

    pub(crate) fn abandon(&self, id: u64) {
        let pending = locked(&self.waiting).remove(&id);
        drop(pending);
        self.core.abandon(id);
    }
}

fn call_soon(event_loop: &Bound<'_, PyAny>, function: Bound<'_, PyAny>) -> PyResult<()> {
    event_loop.call_method1(name!(event_loop.py(), "call_soon")?, (function,)).map(drop)
}

/// A call of an event loop.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Pending {
    state: Mutex<State>,
    /// asyncio sets and reads it to distinguish an `await` from a plain `yield`.
    pub(crate) blocking: AtomicBool,
}

pub(crate) enum State {
    Waiting(Waiting),
    Ended(Outcome),
    /// With the message that was passed to `cancel`.
    Cancelled(Option<Py<PyAny>>),
    Over,
}

pub(crate) struct Waiting {
    pub(crate) calls: Py<Calls>,
    pub(crate) id: u64,
    pub(crate) event_loop: Py<PyAny>,
    /// The callback that resumes the task, and the context in which to call it.
    pub(crate) wakeup: Option<(Py<PyAny>, Py<PyAny>)>,
}

impl Waiting {
    fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.calls)?;
        visit.call(&self.event_loop)?;
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        visit.call(wakeup)?;
        visit.call(context)
    }

    /// Resumes the task at once. Called in a callback of its loop.
    fn wake(&self, pending: &Bound<'_, Pending>) -> PyResult<()> {
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        context.call_method1(pending.py(), name!(pending.py(), "run")?, (wakeup, pending)).map(drop)
    }

    /// Resumes the task in a later callback of its loop.
    pub(crate) fn wake_soon(&self, pending: &Bound<'_, Pending>) -> PyResult<()> {
        let Some((wakeup, context)) = &self.wakeup else { return Ok(()) };
        let keywords = [("context", context)].into_py_dict(pending.py())?;
        self.event_loop.call_method(pending.py(), "call_soon", (wakeup, pending), Some(&keywords)).map(drop)
    }
}

/// Releases a lease that no caller will receive.
fn discard(outcome: &Outcome) {
    if let Ok(Value::Lease(lease)) = outcome {
        lease.abandon();
    }
}

impl Pending {
    /// A call that is pending.
    fn new(calls: Py<Calls>, id: u64, event_loop: Py<PyAny>) -> Self {
        Self::of(State::Waiting(Waiting { calls, id, event_loop, wakeup: None }))
    }

    /// A call that ended at once.
    fn ended(outcome: Outcome) -> Self {
        Self::of(State::Ended(outcome))
    }

    fn of(state: State) -> Self {
        Self { state: Mutex::new(state), blocking: AtomicBool::new(false) }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Changes the state from waiting to `next`. Any other state it leaves unchanged, and returns `next`.
    pub(crate) fn stop_waiting(&self, next: State) -> Result<Waiting, State> {
        let mut state = self.state();
        match mem::replace(&mut *state, next) {
            State::Waiting(waiting) => Ok(waiting),
            other => Err(mem::replace(&mut *state, other)),
        }
    }

    /// Stores the outcome of the call and returns its waiter. Discards the outcome if no task waits any more: without a
    /// GIL another thread may cancel or close the call in this moment.
    fn end(&self, outcome: Outcome) -> Option<Waiting> {
        match self.stop_waiting(State::Ended(outcome)) {
            Ok(waiting) => Some(waiting),
            Err(State::Ended(outcome)) => {
                discard(&outcome);
                None
            }
            Err(_) => None,
        }
    }

    /// A locked mutex means that the state is in use, and so not garbage.
    pub(crate) fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.state.try_lock().as_deref() {
            Ok(State::Waiting(waiting)) => waiting.traverse(visit),
            _ => Ok(()),
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
