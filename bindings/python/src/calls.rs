//! The calls of the core that an event loop can start, one line for each in `starters!`, and the delivery of results.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit, prelude::*};
use redlock::{
    ffi::{
        self,
        Operation::{
            self, Acquire, Attach, Available, Close, Downgrade, Extend, ForceRelease, InitNodes, Inspect, IsValueThere,
            Leave, Locked, Lost, Ping, Release, ReleaseNewest, ReleaseValue, RetimeValue, TryUpgrade,
        },
        Outcome, Value,
        completions::Started,
    },
    process::fork,
};

use crate::{
    arguments,
    client::Client,
    errors::Fallible,
    events,
    info::{LockInfo, NodeStatus},
    known::{Known, name},
    lease::Lease,
    lock::{Lock, Request},
    owner::{self, Caller},
    pending::{Pending, Waiting, discard},
    value::HeldValue,
};

pub(crate) fn python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Flag(flag) => flag.into_py_any(py),
        Value::Count(count) => count.into_py_any(py),
        Value::Lease(lease) => Lease::new(lease).into_py_any(py),
        Value::Released(how) => how.into_py_any(py),
        Value::Info(Some(known)) => LockInfo::from(known).into_py_any(py),
        Value::Nodes(nodes) => nodes.into_iter().map(NodeStatus::from).collect::<Vec<_>>().into_py_any(py),
        Value::Lost(reason) => reason.is_some().into_py_any(py),
        Value::Nothing | Value::Info(None) | Value::Events(_) => Ok(py.None()),
    }
}

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
        static RUNNING_LOOP: Known = Known::new();
        static BEGIN: Known = Known::new();
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
    fn start<'py>(py: Python<'py>, operation: Operation<'_>) -> Fallible<Bound<'py, Pending>> {
        events::attend_to(py, &operation)?;
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
        // Calls of one turn are sent with one write. A call was sent at once if no other was pending.
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
        // The first task may stop the loop, or run it re-entrantly: a callback resumes the others in any case.
        let others = locked(&calls.ready).get(1).map(|(waiting, _)| waiting.event_loop.clone_ref(py));
        if let Some(event_loop) = others {
            call_soon(event_loop.bind(py), slf.getattr(name!(py, "go_on")?)?)?;
        }
        calls.go_on(py)
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

/// The methods of `Calls`. Each line of its input is one that starts a call: its arguments, and the operation.
macro_rules! starters {
    ($py:ident: $($name:ident($($given:tt)*) => $operation:expr;)*) => {
        #[pymethods]
        impl Calls {
            $(
                #[staticmethod]
                fn $name<'py>($py: Python<'py>, $($given)*) -> Fallible<Bound<'py, Pending>> {
                    Self::start($py, $operation)
                }
            )*

            /// Sends the calls that were started in this turn.
            fn flush(&self) {
                self.unsent.store(false, Relaxed);
                #[cfg(target_os = "linux")]
                self.core.flush();
            }

            /// Resumes all tasks whose calls have ended.
            fn go_on(&self, py: Python<'_>) -> PyResult<()> {
                loop {
                    let next = locked(&self.ready).pop_front();
                    let Some((waiting, pending)) = next else { return Ok(()) };
                    waiting.wake(pending.bind(py))?;
                }
            }

            /// A locked mutex means that the calls are in use, and so not garbage.
            fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
                let (Ok(waiting), Ok(ready)) = (self.waiting.try_lock(), self.ready.try_lock()) else { return Ok(()) };
                waiting.values().try_for_each(|pending| visit.call(pending))?;
                ready.iter().try_for_each(|(waiting, pending)| {
                    visit.call(pending)?;
                    waiting.traverse(visit)
                })
            }

            fn __clear__(&self) {
                let waiting = mem::take(&mut *locked(&self.waiting));
                let ready = mem::take(&mut *locked(&self.ready));
                drop((waiting, ready));
            }
        }
    };
}

starters! {
    py:
    acquire(lock: &Lock, request: &Request) => Acquire(lock.core(py)?, request.for_loop(py)?);
    release_newest(lock: &Lock) => ReleaseNewest(lock.core(py)?, Caller::current(py)?.owner);
    locked(lock: &Lock) => Locked(lock.core(py)?);
    inspect(lock: &Lock) => Inspect(lock.core(py)?);
    available(lock: &Lock) => Available(lock.core(py)?);
    release(lease: &Lease) => Release(&lease.core);
    leave(lease: &Lease) => Leave(&lease.core);
    extend(lease: &Lease, ttl: &Bound<'_, PyAny>) => Extend(&lease.core, arguments::duration("ttl", ttl)?);
    downgrade(lease: &Lease) => Downgrade(&lease.core);
    try_upgrade(lease: &Lease) => TryUpgrade(&lease.core);
    lost(lease: &Lease) => Lost(&lease.core, None);
    release_value(value: &HeldValue) => ReleaseValue(&value.core);
    retime_value(value: &HeldValue, how: &str, millis: i64) => RetimeValue(&value.core, how.parse()?, millis);
    is_value_there(value: &HeldValue) => IsValueThere(&value.core);
    ping(client: &Client) => Ping(&client.core);
    force_release(client: &Client, name: &Bound<'_, PyAny>) => ForceRelease(&client.core, &arguments::name(name)?);
    init_nodes(client: &Client) => InitNodes(&client.core);
    attach(client: &Client, text: &str) => Attach(&client.core, text, Caller::current(py)?.owner);
    close(client: &Client) => Close(&client.core);
}
