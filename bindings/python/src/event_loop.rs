//! One event loop's side of the core: asyncio's, or the hub of greenlets. Calls start here and return their end or an
//! id; the others' ends come when a descriptor that the loop watches is readable, all that are there at once. No Python
//! object leaves the loop's thread.

use std::{
    collections::HashMap,
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use pyo3::{IntoPyObjectExt, prelude::*};
use redlock::ffi::{Call, Calls, Outcome, Value, completions::Begun};

use crate::{
    arguments,
    client::Client,
    errors::{Fallible, instance},
    events, info,
    lease::Lease,
    lock::{Lock, Request},
    owner::Caller,
    value::{self, HeldValue},
};

/// The value of a call, and the exception it ended with instead.
type End = (Option<Py<PyAny>>, Option<Py<PyAny>>);

pub(crate) fn python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Flag(flag) => flag.into_py_any(py),
        Value::Lease(lease) => Lease::new(lease).into_py_any(py),
        Value::Outcome(outcome) => outcome.as_str().into_py_any(py),
        Value::Info(Some(known)) => info::lock(py, &known),
        Value::Nodes(nodes) => info::nodes(py, nodes),
        Value::Lost(reason) => reason.is_some().into_py_any(py),
        Value::Nothing | Value::Info(None) | Value::Events(_) => Ok(py.None()),
    }
}

/// What cannot be made ends its own call, and no other.
fn end(py: Python<'_>, outcome: Outcome) -> End {
    let made = match outcome {
        Ok(value) => python(py, value).map(|value| (Some(value), None)),
        Err(error) => instance(py, &error).map(|error| (None, Some(error.unbind()))),
    };
    made.unwrap_or_else(|error| (None, Some(error.into_value(py).into_any())))
}

/// The number of a call, or its end.
fn begun(py: Python<'_>, call: Call) -> Fallible<Py<PyAny>> {
    Ok(match call {
        Begun::Pending(id) => id.into_py_any(py)?,
        Begun::Done(outcome) => end(py, outcome).into_py_any(py)?,
    })
}

/// The calls of one event loop. The loop calls `drain` whenever `fileno()` is readable, and `flush` at the end of each
/// of its turns that made a call which is pending.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Loop {
    calls: Calls,
    /// For loops that do no round trips of their own.
    pipe: Option<Pipe>,
    /// How calls of greenlets ended, until these go on.
    ended: Mutex<HashMap<u64, Outcome>>,
}

struct Pipe {
    woken: PipeReader,
    wake: Arc<PipeWriter>,
    stopped: AtomicBool,
}

impl Loop {
    pub(crate) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// How a greenlet's call ended; nothing before it did.
    pub(crate) fn take(&self, id: u64) -> Option<Outcome> {
        self.kept().remove(&id)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Outcome>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty(&self) {
        if let Some(pipe) = &self.pipe {
            // Not blocking: the event loop set it so.
            let _ = (&pipe.woken).read(&mut [0; 64]);
        }
    }
}

#[pymethods]
impl Loop {
    /// `hosted`: the loop watches `fileno()` itself, and so can do round trips of its own.
    #[new]
    fn new(hosted: bool) -> Fallible<Self> {
        #[cfg(target_os = "linux")]
        if hosted {
            return Ok(Self { calls: Calls::hosted().map_err(PyErr::from)?, pipe: None, ended: Mutex::default() });
        }
        let _ = hosted;
        let (woken, wake) = pipe().map_err(PyErr::from)?;
        let wake = Arc::new(wake);
        let waker = wake.clone();
        let calls = Calls::new(move || {
            // One byte for each time the queue fills: the pipe is never full. It breaks when the loop is gone.
            let _ = (&*waker).write(&[1]);
        });
        let pipe = Pipe { woken, wake, stopped: AtomicBool::new(false) };
        Ok(Self { calls, pipe: Some(pipe), ended: Mutex::default() })
    }

    /// What to watch for readability.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        #[cfg(target_os = "linux")]
        if let Some(fd) = self.calls.fd() {
            return fd.as_raw_fd();
        }
        self.pipe.as_ref().map_or(-1, |pipe| pipe.woken.as_raw_fd())
    }

    /// Nothing: loops elsewhere watch sockets alone, as far as they watch anything.
    #[cfg(not(unix))]
    fn fileno(&self) -> PyResult<i32> {
        let _ = self;
        Err(pyo3::exceptions::PyNotImplementedError::new_err("a pipe cannot be watched here"))
    }

    /// Sends what was begun.
    fn flush(&self) {
        #[cfg(not(target_os = "linux"))]
        let _ = self;
        #[cfg(target_os = "linux")]
        self.calls.flush();
    }

    /// The results that came. Empties the pipe, unless `wait` does.
    fn drain(&self, py: Python<'_>, emptied: bool) -> Fallible<Vec<(u64, End)>> {
        if !emptied {
            self.empty();
        }
        Ok(self.calls.drain()?.into_iter().map(|(id, outcome)| (id, end(py, outcome))).collect())
    }

    /// For greenlets: the calls that ended. Whoever made them takes the results.
    fn ended(&self) -> Fallible<Vec<u64>> {
        self.empty();
        let results = self.calls.drain()?;
        let ids = results.iter().map(|(id, _)| *id).collect();
        self.kept().extend(results);
        Ok(ids)
    }

    /// Blocks until there is something to drain, for loops that cannot watch a pipe. False after `stop`.
    fn wait(&self, py: Python<'_>) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let read = py.detach(|| (&pipe.woken).read(&mut [0; 64]));
        read.is_ok() && !pipe.stopped.load(SeqCst)
    }

    /// Ends `wait`.
    fn stop(&self) {
        if let Some(pipe) = &self.pipe {
            pipe.stopped.store(true, SeqCst);
            let _ = (&*pipe.wake).write(&[1]);
        }
    }

    /// Gives up a call whose result was not drained. An acquire leaves nothing behind; what must not be cut short, such
    /// as a release, goes on.
    fn abandon(&self, id: u64) {
        self.calls.abandon(id);
    }

    /// Starts an acquire.
    fn acquire(&self, py: Python<'_>, lock: &Lock, request: &Request) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        begun(py, self.calls.acquire(lock.core(py)?, request.for_loop(py)?)?)
    }

    /// Starts `lock.release()`.
    fn release_newest(&self, py: Python<'_>, lock: &Lock) -> Fallible<Py<PyAny>> {
        begun(py, self.calls.release_newest(lock.core(py)?, &Caller::current(py)?.owner)?)
    }

    /// Starts `lock.locked()`.
    fn locked(&self, py: Python<'_>, lock: &Lock) -> Fallible<u64> {
        Ok(self.calls.locked(lock.core(py)?)?)
    }

    /// Starts `lock.inspect()`.
    fn inspect(&self, py: Python<'_>, lock: &Lock) -> Fallible<u64> {
        Ok(self.calls.inspect(lock.core(py)?)?)
    }

    /// Starts `lease.release()`.
    fn release(&self, py: Python<'_>, lease: &Lease) -> Fallible<Py<PyAny>> {
        begun(py, self.calls.release(&lease.core)?)
    }

    /// Starts to end the block of a lease.
    fn leave(&self, py: Python<'_>, lease: &Lease) -> Fallible<Py<PyAny>> {
        begun(py, self.calls.leave(&lease.core)?)
    }

    /// Starts `lease.extend()`.
    fn extend(&self, py: Python<'_>, lease: &Lease, ttl: &Bound<'_, PyAny>) -> Fallible<Py<PyAny>> {
        begun(py, self.calls.extend(&lease.core, arguments::duration("ttl", ttl)?)?)
    }

    /// Waits for the end of a lease: whether it was lost.
    fn lost(&self, lease: &Lease) -> Fallible<u64> {
        Ok(self.calls.lost(&lease.core)?)
    }

    /// Starts `value.release()`.
    fn release_value(&self, py: Python<'_>, value: &HeldValue) -> Fallible<u64> {
        events::attend(py)?;
        Ok(self.calls.release_value(&value.core)?)
    }

    /// Starts `value.retime()`.
    fn retime_value(&self, py: Python<'_>, value: &HeldValue, how: &str, millis: i64) -> Fallible<u64> {
        events::attend(py)?;
        Ok(self.calls.retime_value(&value.core, value::how(how)?, millis)?)
    }

    /// Starts `value.is_there()`.
    fn is_value_there(&self, py: Python<'_>, value: &HeldValue) -> Fallible<u64> {
        events::attend(py)?;
        Ok(self.calls.is_value_there(&value.core)?)
    }

    /// Starts `client.ping()`.
    fn ping(&self, client: &Client) -> Fallible<u64> {
        Ok(self.calls.ping(&client.core)?)
    }

    /// Starts `client.force_release()`.
    fn force_release(&self, client: &Client, name: &Bound<'_, PyAny>) -> Fallible<u64> {
        Ok(self.calls.force_release(&client.core, &arguments::name(name)?)?)
    }

    /// Starts `client.init_nodes()`.
    fn init_nodes(&self, client: &Client) -> Fallible<u64> {
        Ok(self.calls.init_nodes(&client.core)?)
    }

    /// Starts `client.attach()`.
    fn attach(&self, py: Python<'_>, client: &Client, text: &str) -> Fallible<u64> {
        events::attend(py)?;
        Ok(self.calls.attach(&client.core, text, Caller::current(py)?.owner)?)
    }

    /// Starts `client.close()`.
    fn close(&self, client: &Client) -> Fallible<u64> {
        Ok(self.calls.close(&client.core)?)
    }
}
