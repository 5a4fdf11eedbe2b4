//! One asyncio event loop's side of the core. Calls start here and return an id; their results come through a bridge
//! and a pipe that the loop watches, all that are there at once. No Python object leaves the loop's thread.

use std::{
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use pyo3::{IntoPyObjectExt, prelude::*};
use redlock::host::{Calls, Value};

use crate::{
    arguments,
    client::{Client, status},
    errors::{Fallible, instance},
    events,
    lease::Lease,
    lock::{Lock, Request, info},
    owner::Caller,
};

/// A call, its value, and the exception it ended with instead.
type Drained = (u64, Option<Py<PyAny>>, Option<Py<PyAny>>);

fn python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Flag(flag) => flag.into_py_any(py),
        Value::Lease(lease) => Lease::new(lease).into_py_any(py),
        Value::Outcome(outcome) => outcome.as_str().into_py_any(py),
        Value::Info(Some(known)) => info(py, &known),
        Value::Nodes(nodes) => nodes.iter().map(|node| status(py, node)).collect::<PyResult<Vec<_>>>()?.into_py_any(py),
        Value::Lost(reason) => reason.is_some().into_py_any(py),
        Value::Nothing | Value::Info(None) | Value::Events(_) => Ok(py.None()),
    }
}

/// The calls of one event loop. The loop calls `drain` whenever `fileno()` is readable.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Loop {
    calls: Calls,
    woken: PipeReader,
    wake: Arc<PipeWriter>,
    stopped: AtomicBool,
}

#[pymethods]
impl Loop {
    #[new]
    fn new() -> Fallible<Self> {
        let (woken, wake) = pipe().map_err(PyErr::from)?;
        let wake = Arc::new(wake);
        let waker = wake.clone();
        let calls = Calls::new(move || {
            // One byte for each time the queue fills: the pipe is never full. It breaks when the loop is gone.
            let _ = (&*waker).write(&[1]);
        });
        Ok(Self { calls, woken, wake, stopped: AtomicBool::new(false) })
    }

    /// What to watch for readability.
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        self.woken.as_raw_fd()
    }

    /// The results that came. Empties the pipe, unless `wait` does.
    fn drain(&self, py: Python<'_>, emptied: bool) -> Fallible<Vec<Drained>> {
        if !emptied {
            // Not blocking: the event loop set it so.
            let _ = (&self.woken).read(&mut [0; 64]);
        }
        let results = self.calls.drain()?.into_iter().map(|(id, result)| {
            Ok(match result {
                Ok(value) => (id, Some(python(py, value)?), None),
                Err(error) => (id, None, Some(instance(py, &error)?.unbind())),
            })
        });
        results.collect()
    }

    /// Blocks until there is something to drain, for loops that cannot watch a pipe. False after `stop`.
    fn wait(&self, py: Python<'_>) -> bool {
        let read = py.detach(|| (&self.woken).read(&mut [0; 64]));
        read.is_ok() && !self.stopped.load(SeqCst)
    }

    /// Ends `wait`.
    fn stop(&self) {
        self.stopped.store(true, SeqCst);
        let _ = (&*self.wake).write(&[1]);
    }

    /// Gives up a call whose result was not drained. An acquire leaves nothing behind; what must not be cut short, such
    /// as a release, goes on.
    fn abandon(&self, id: u64) {
        self.calls.abandon(id);
    }

    /// Starts an acquire.
    fn acquire(&self, py: Python<'_>, lock: &Lock, request: &Request) -> Fallible<u64> {
        events::attend(py)?;
        Ok(self.calls.acquire(lock.core(py)?, request.for_loop(py)?)?)
    }

    /// Starts `lock.release()`.
    fn release_newest(&self, py: Python<'_>, lock: &Lock) -> Fallible<u64> {
        Ok(self.calls.release_newest(lock.core(py)?, &Caller::current(py)?.owner)?)
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
    fn release(&self, lease: &Lease) -> Fallible<u64> {
        Ok(self.calls.release(&lease.core)?)
    }

    /// Starts to end the block of a lease.
    fn leave(&self, lease: &Lease) -> Fallible<u64> {
        Ok(self.calls.leave(&lease.core)?)
    }

    /// Starts `lease.extend()`.
    fn extend(&self, lease: &Lease, ttl: &Bound<'_, PyAny>) -> Fallible<u64> {
        Ok(self.calls.extend(&lease.core, arguments::duration("ttl", ttl)?)?)
    }

    /// Waits for the end of a lease: whether it was lost.
    fn lost(&self, lease: &Lease) -> Fallible<u64> {
        Ok(self.calls.lost(&lease.core)?)
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
