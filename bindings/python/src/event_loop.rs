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
use redlock::{Lease as CoreLease, LockError, LockInfo, NodeStatus, ReleaseOutcome, bridge::Bridge, runtime::Tied};

use crate::{
    arguments,
    client::{Client, status},
    errors::{Failure, Fallible, instance},
    events,
    lease::Lease,
    lock::{Lock, Request, info},
    owner::Caller,
};

/// What calls result in.
enum Value {
    Nothing,
    Flag(bool),
    Lease(CoreLease),
    Outcome(ReleaseOutcome),
    Info(LockInfo),
    Nodes(Vec<NodeStatus>),
}

/// A call, its value, and the exception it ended with instead.
type Drained = (u64, Option<Py<PyAny>>, Option<Py<PyAny>>);

type Outcome = Result<Value, LockError>;

impl Value {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self {
            Self::Nothing => Ok(py.None()),
            Self::Flag(flag) => flag.into_py_any(py),
            Self::Lease(lease) => Lease::new(lease).into_py_any(py),
            Self::Outcome(outcome) => outcome.as_str().into_py_any(py),
            Self::Info(known) => info(py, &known),
            Self::Nodes(nodes) => {
                nodes.iter().map(|node| status(py, node)).collect::<PyResult<Vec<_>>>()?.into_py_any(py)
            }
        }
    }
}

/// The calls of one event loop. The loop calls `drain` whenever `fileno()` is readable.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Loop {
    /// Belongs to the process that made it; a child's is never used.
    bridge: Tied<Arc<Bridge<Outcome>>>,
    woken: PipeReader,
    wake: Arc<PipeWriter>,
    stopped: AtomicBool,
}

impl Loop {
    fn bridge(&self) -> Fallible<&Arc<Bridge<Outcome>>> {
        self.bridge.get().ok_or(Failure::Lock(LockError::Closed))
    }
}

#[pymethods]
impl Loop {
    #[new]
    fn new() -> Fallible<Self> {
        let (woken, wake) = pipe().map_err(PyErr::from)?;
        let wake = Arc::new(wake);
        let waker = wake.clone();
        let bridge = Bridge::new(move || {
            // One byte for each time the queue fills: the pipe is never full. It breaks when the loop is gone.
            let _ = (&*waker).write(&[1]);
        });
        Ok(Self { bridge: Tied::new(bridge), woken, wake, stopped: AtomicBool::new(false) })
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
        let results = self.bridge()?.drain().into_iter().map(|(id, result)| {
            Ok(match result {
                Ok(value) => (id, Some(value.into_python(py)?), None),
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
        if let Some(bridge) = self.bridge.get() {
            bridge.abandon(id);
        }
    }

    /// Starts an acquire.
    fn acquire(&self, py: Python<'_>, lock: &Lock, request: &Request) -> Fallible<u64> {
        events::attend(py)?;
        let (lock, request) = (lock.core(py)?, request.for_loop(py)?);
        Ok(self
            .bridge()?
            .start(|deliver| Some(lock.start(request, move |lease| deliver.send(lease.map(Value::Lease))))))
    }

    /// Starts `lock.release()`.
    fn release_newest(&self, py: Python<'_>, lock: &Lock) -> Fallible<u64> {
        let released = lock.core(py)?.release(&Caller::current(py)?.owner);
        Ok(self.bridge()?.run(async move { released.await.map(Value::Outcome) }))
    }

    /// Starts `lock.locked()`.
    fn locked(&self, py: Python<'_>, lock: &Lock) -> Fallible<u64> {
        let locked = lock.core(py)?.locked();
        Ok(self.bridge()?.run(async move { locked.await.map(Value::Flag) }))
    }

    /// Starts `lock.inspect()`.
    fn inspect(&self, py: Python<'_>, lock: &Lock) -> Fallible<u64> {
        let info = lock.core(py)?.inspect();
        Ok(self.bridge()?.run(async move { Ok(info.await?.map_or(Value::Nothing, Value::Info)) }))
    }

    /// Starts `lease.release()`.
    fn release(&self, lease: &Lease) -> Fallible<u64> {
        let released = lease.core.release();
        Ok(self.bridge()?.run(async move { released.await.map(Value::Outcome) }))
    }

    /// Starts to end the block of a lease.
    fn leave(&self, lease: &Lease) -> Fallible<u64> {
        let left = lease.core.leave();
        Ok(self.bridge()?.run(async move { left.await.map(|()| Value::Nothing) }))
    }

    /// Starts `lease.extend()`.
    fn extend(&self, lease: &Lease, ttl: &Bound<'_, PyAny>) -> Fallible<u64> {
        let extended = lease.core.extend(arguments::duration("ttl", ttl)?);
        Ok(self.bridge()?.run(async move { extended.await.map(|()| Value::Nothing) }))
    }

    /// Waits for the end of a lease: whether it was lost.
    fn lost(&self, lease: &Lease) -> Fallible<u64> {
        let lost = lease.core.lost();
        Ok(self.bridge()?.watch(async move { Ok(Value::Flag(lost.await.is_some())) }))
    }

    /// Starts `client.ping()`.
    fn ping(&self, client: &Client) -> Fallible<u64> {
        let pinged = client.core.ping();
        Ok(self.bridge()?.run(async move { pinged.await.map(Value::Nodes) }))
    }

    /// Starts `client.force_release()`.
    fn force_release(&self, client: &Client, name: &Bound<'_, PyAny>) -> Fallible<u64> {
        let released = client.core.force_release(&arguments::name(name)?);
        Ok(self.bridge()?.run(async move { released.await.map(Value::Flag) }))
    }

    /// Starts `client.init_nodes()`.
    fn init_nodes(&self, client: &Client) -> Fallible<u64> {
        let provisioned = client.core.init_nodes();
        Ok(self.bridge()?.run(async move { provisioned.await.map(|()| Value::Nothing) }))
    }

    /// Starts `client.attach()`.
    fn attach(&self, py: Python<'_>, client: &Client, text: &str) -> Fallible<u64> {
        events::attend(py)?;
        let attached = client.core.attach(text, Caller::current(py)?.owner);
        Ok(self.bridge()?.run(async move { attached.await.map(Value::Lease) }))
    }

    /// Starts `client.close()`.
    fn close(&self, client: &Client) -> Fallible<u64> {
        let closed = client.core.close();
        Ok(self.bridge()?.run(async move {
            closed.await;
            Ok(Value::Nothing)
        }))
    }
}
