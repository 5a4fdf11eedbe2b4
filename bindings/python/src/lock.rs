//! A lock as a Python object: `acquire`, `release` and `with` blocks of threads, greenlets and tasks. They are the hot
//! path, so they are written in Rust.

use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use pyo3::{prelude::*, types::PyDict};
use redlock::{
    LockError, LockOptions,
    ffi::{
        Operation::{Acquire, Available, Inspect, Locked, ReleaseNewest},
        Part, Unbound, Value,
    },
};

use crate::{
    arguments,
    cached::Cached,
    errors::{Failure, Fallible},
    handles::{Client, Lease},
    owner::Caller,
    waiting::{run, value},
};

/// A lock by name.
#[pyclass(frozen, subclass, weakref, module = "redlock._native")]
pub(crate) struct Lock {
    /// Its name and options.
    known: Unbound,
    /// The core's lock. A lock of the default client gets it at its first use.
    core: OnceLock<redlock::Lock>,
    open_blocks: OpenBlocks,
}

/// The caller and the wait of an acquire. Made when `acquire()` is called: if the caller wraps the await in a new
/// asyncio task, that task would be another owner.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Request {
    caller: Option<Caller>,
    wait: Option<Duration>,
}

impl Request {
    fn caller(&self, py: Python<'_>) -> PyResult<Caller> {
        self.caller.as_ref().map_or_else(|| Caller::current(py), |caller| Ok(caller.clone()))
    }

    /// Converts it into the core's request, for a call of an event loop.
    pub(crate) fn for_loop(&self, py: Python<'_>) -> Fallible<redlock::Request> {
        let caller = self.caller(py)?;
        Ok(redlock::Request { owner: caller.owner, wait: self.wait, thread: Some(caller.thread), blocking: false })
    }
}

/// The leases of `with` blocks that have not ended, each with the number of its caller.
#[derive(Default)]
struct OpenBlocks(Mutex<Vec<(u64, Py<Lease>)>>);

impl OpenBlocks {
    /// Only threads that are attached to the interpreter lock it, and they stay attached. So it is never locked for
    /// long, and not while the process forks.
    fn stack(&self) -> MutexGuard<'_, Vec<(u64, Py<Lease>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the newest lease of this caller. A block may end in another thread or task than it began, as in a
    /// generator that is collected. Then it removes the newest lease of the caller whose block began first.
    fn pop(&self, caller: u64) -> Option<Py<Lease>> {
        let mut stack = self.stack();
        let newest = |of: u64| stack.iter().rposition(|(number, _)| *number == of);
        let index = newest(caller).or_else(|| newest(stack.first()?.0))?;
        Some(stack.remove(index).1)
    }
}

impl Lock {
    /// The core's lock. A lock of the default client looks the client up at its first use.
    pub(crate) fn core(&self, py: Python<'_>) -> Fallible<&redlock::Lock> {
        static DEFAULT_CLIENT: Cached = Cached::new();
        if let Some(core) = self.core.get() {
            return Ok(core);
        }
        let default_client = DEFAULT_CLIENT.import(py, "redlock._client", "default_client")?;
        let client: Py<Client> = default_client.call0()?.extract().map_err(PyErr::from)?;
        let core = self.known.of(&client.get().core)?;
        Ok(self.core.get_or_init(|| core))
    }

    /// Makes a lock of a client.
    pub(crate) fn of(client: &redlock::Client, name: &str, options: LockOptions) -> Fallible<Self> {
        let known = Unbound { name: name.to_owned(), options, part: Part::Whole };
        Ok(Self { core: OnceLock::from(known.of(client)?), known, open_blocks: OpenBlocks::default() })
    }

    fn take(&self, py: Python<'_>, caller: &Caller, wait: Option<Duration>) -> Fallible<Py<Lease>> {
        let (owner, thread) = (caller.owner.clone(), Some(caller.thread));
        let request = redlock::Request { owner, wait, thread, blocking: false };
        match value(py, Acquire(self.core(py)?, request))? {
            Value::Lease(lease) => Ok(Py::new(py, Lease::new(lease))?),
            _ => Err(LockError::Closed.into()),
        }
    }
}

#[pymethods]
impl Lock {
    /// Makes a lock of a client, or of the default client, with the options of `LockOptions`. Sends nothing. `part`:
    /// "read" or "write" of a read/write lock, or `(n, permits)` for n slots of a semaphore.
    #[new]
    #[pyo3(signature = (client, name, part=None, **options))]
    fn new(
        client: Option<&Client>,
        name: &Bound<'_, PyAny>,
        part: Option<&Bound<'_, PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Fallible<Self> {
        let (name, options) = (arguments::name(name)?, arguments::lock_options(options)?);
        let known = Unbound { name, options, part: arguments::part(part)? };
        let core = match client {
            Some(client) => OnceLock::from(known.of(&client.core)?),
            // Invalid options fail now, not at the first use.
            None => known.check().map(|()| OnceLock::new())?,
        };
        Ok(Self { known, core, open_blocks: OpenBlocks::default() })
    }

    /// The name, without the client's prefix.
    #[getter]
    fn name(&self) -> &str {
        &self.known.name
    }

    /// Acquire the lock, blocking the calling thread or greenlet.
    ///
    /// `timeout` is in seconds or a `timedelta`: None, the default, waits for the lock's own `wait`, -1 without limit,
    /// 0 tries once, as `blocking=False` does, which allows no `timeout`. Returns a `Lease`, or None if another owner
    /// still holds the lock by then.
    ///
    /// Raises `Unavailable`, `KeyConflict`, `WouldDeadlock` (another task of this thread holds it, or this owner does
    /// and the lock is not re-entrant), `LockLost` (this owner held it and lost it), `InvalidArgument` and `Closed`.
    #[pyo3(signature = (blocking=None, timeout=None), text_signature = "($self, blocking=True, timeout=None)")]
    fn acquire(
        &self,
        py: Python<'_>,
        blocking: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Fallible<Option<Py<Lease>>> {
        let wait = arguments::wait(blocking, timeout, self.known.options.wait)?;
        match self.take(py, &Caller::current(py)?, wait) {
            Err(Failure::Lock(LockError::Timeout { .. })) => Ok(None),
            taken => Ok(Some(taken?)),
        }
    }

    /// Release the newest lease of the calling thread, greenlet or task.
    ///
    /// Returns "released", "lost" or "unconfirmed", as `Lease.release()` does. If the lock has an explicit owner and
    /// this process has no lease of it, the release ends all tenures of that owner, in every process; only then it
    /// raises `Unavailable` if too few nodes answer. Raises `NotHeld` if there is nothing to release, and `Closed`.
    fn release(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, ReleaseNewest(self.core(py)?, Caller::current(py)?.owner))
    }

    /// Whether the calling thread, greenlet or task holds the lock. Sends nothing.
    fn owned(&self, py: Python<'_>) -> Fallible<bool> {
        Ok(self.core(py)?.owned(&Caller::current(py)?.owner))
    }

    /// Whether anybody holds the lock, in any process.
    ///
    /// Raises `Unavailable` if too few nodes answer, `KeyConflict` and `Closed`.
    fn locked(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Locked(self.core(py)?))
    }

    /// Return who holds the lock, or None if it is free.
    ///
    /// Raises `Unavailable` if too few nodes answer, `KeyConflict` and `Closed`.
    fn inspect(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Inspect(self.core(py)?))
    }

    /// The number of free slots of its semaphore.
    #[pyo3(name = "_available")]
    fn available(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Available(self.core(py)?))
    }

    fn __enter__(&self, py: Python<'_>) -> Fallible<Py<Lease>> {
        let caller = Caller::current(py)?;
        let lease = self.take(py, &caller, self.known.options.wait)?;
        self.open_blocks.stack().push((caller.number, lease.clone_ref(py)));
        Ok(lease)
    }

    #[pyo3(signature = (kind, error, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> Fallible<()> {
        let _ = (error, traceback);
        match self.open_blocks.pop(Caller::current(py)?.number) {
            Some(lease) => lease.get().leave_block(py, !kind.is_none()),
            None => Ok(()),
        }
    }

    /// For asyncio: the caller and the wait of an `acquire()`.
    #[pyo3(signature = (blocking=None, timeout=None))]
    fn request(
        &self,
        py: Python<'_>,
        blocking: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Fallible<Request> {
        Ok(Request { caller: Caller::task(py)?, wait: arguments::wait(blocking, timeout, self.known.options.wait)? })
    }

    /// For asyncio: stores the lease of an `async with` block that begins.
    fn begin_block(&self, py: Python<'_>, request: &Request, lease: Py<Lease>) -> Fallible<()> {
        self.open_blocks.stack().push((request.caller(py)?.number, lease));
        Ok(())
    }

    /// For asyncio: removes the lease of the `async with` block that ends.
    fn end_block(&self, py: Python<'_>) -> Fallible<Option<Py<Lease>>> {
        Ok(self.open_blocks.pop(Caller::current(py)?.number))
    }
}
