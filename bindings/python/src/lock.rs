//! A lock as Python uses it: `acquire`, `release` and `with` blocks of threads, greenlets and tasks. These are the hot
//! path, so they are here and not in Python.

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
    client::Client,
    errors::{Failure, Fallible},
    known::Known,
    lease::Lease,
    owner::Caller,
    waiting::{run, value},
};

/// A lock by name.
#[pyclass(frozen, subclass, weakref, module = "redlock._native")]
pub(crate) struct Lock {
    /// Its name and options.
    known: Unbound,
    /// Made with the lock, or, on the default client, at its first use.
    core: OnceLock<redlock::Lock>,
    entered: Entered,
}

/// An acquire that was asked for: who asked, and how long it waits. Made when `acquire()` is called; an asyncio task
/// created for the call would be another owner.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Request {
    caller: Option<Caller>,
    wait: Option<Duration>,
}

impl Request {
    fn caller(&self, py: Python<'_>) -> PyResult<Caller> {
        self.caller.as_ref().map_or_else(|| Caller::current(py), |caller| Ok(caller.clone()))
    }

    /// As the core takes it, on behalf of an event loop.
    pub(crate) fn for_loop(&self, py: Python<'_>) -> Fallible<redlock::Request> {
        let caller = self.caller(py)?;
        Ok(redlock::Request { owner: caller.owner, wait: self.wait, thread: Some(caller.thread), blocking: false })
    }
}

/// The leases that `with` blocks took and have not given back.
#[derive(Default)]
struct Entered(Mutex<Vec<(u64, Py<Lease>)>>);

impl Entered {
    /// Only ever locked by threads that are attached to the interpreter and stay so: never for long, and by nobody
    /// while the process forks.
    fn stack(&self) -> MutexGuard<'_, Vec<(u64, Py<Lease>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest lease of this caller. A block may end elsewhere than it began, as that of a collected generator
    /// does: then it is the newest of whoever has been inside for longest.
    fn pop(&self, caller: u64) -> Option<Py<Lease>> {
        let mut stack = self.stack();
        let newest = |of: u64| stack.iter().rposition(|(number, _)| *number == of);
        let index = newest(caller).or_else(|| newest(stack.first()?.0))?;
        Some(stack.remove(index).1)
    }
}

impl Lock {
    /// The core's lock; finds the default client when it is needed for the first time.
    pub(crate) fn core(&self, py: Python<'_>) -> Fallible<&redlock::Lock> {
        static DEFAULT_CLIENT: Known = Known::new();
        if let Some(core) = self.core.get() {
            return Ok(core);
        }
        let default_client = DEFAULT_CLIENT.import(py, "redlock._client", "default_client")?;
        let client: Py<Client> = default_client.call0()?.extract().map_err(PyErr::from)?;
        let core = self.known.of(&client.get().core)?;
        Ok(self.core.get_or_init(|| core))
    }

    /// A lock of a client.
    pub(crate) fn of(client: &redlock::Client, name: &str, options: LockOptions) -> Fallible<Self> {
        let known = Unbound { name: name.to_owned(), options, part: Part::Whole };
        Ok(Self { core: OnceLock::from(known.of(client)?), known, entered: Entered::default() })
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
    /// A lock of a client, or of the default client, with the options of `LockOptions`. Nothing is sent here. `part`: "read" or
    /// "write" of a read/write lock, or (n, k): n slots of a semaphore that has k.
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
            // Bad options are refused now, not when the default client is known.
            None => known.check().map(|()| OnceLock::new())?,
        };
        Ok(Self { known, core, entered: Entered::default() })
    }

    /// The name, without the client's prefix.
    #[getter]
    fn name(&self) -> &str {
        &self.known.name
    }

    /// Takes the lock, blocking the calling thread or greenlet. `timeout`, in seconds or as a `timedelta`: None waits
    /// as long as the lock's own `wait`, -1 for ever, 0 tries once, as `blocking=False` does. Returns a `Lease`, or
    /// None when somebody else holds the lock to the end.
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

    /// Releases the newest lease of the calling thread, greenlet or task. Returns "released", "lost" or "unconfirmed",
    /// as `Lease.release()` does. A lock with an explicit owner and no lease in this process ends that owner's tenures
    /// wherever they were taken. Raises `NotHeld` when there is nothing to release.
    fn release(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, ReleaseNewest(self.core(py)?, Caller::current(py)?.owner))
    }

    /// Whether the calling thread, greenlet or task holds the lock. Asks nobody.
    fn owned(&self, py: Python<'_>) -> Fallible<bool> {
        Ok(self.core(py)?.owned(&Caller::current(py)?.owner))
    }

    /// Whether anybody holds the lock. Raises `Unavailable` when too few nodes answer.
    fn locked(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Locked(self.core(py)?))
    }

    /// Who holds the lock, as a `LockInfo`; None when nobody does. Raises `Unavailable` when too few nodes answer.
    fn inspect(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Inspect(self.core(py)?))
    }

    /// How many slots of its semaphore are free.
    #[pyo3(name = "_available")]
    fn available(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Available(self.core(py)?))
    }

    fn __enter__(&self, py: Python<'_>) -> Fallible<Py<Lease>> {
        let caller = Caller::current(py)?;
        let lease = self.take(py, &caller, self.known.options.wait)?;
        self.entered.stack().push((caller.number, lease.clone_ref(py)));
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
        match self.entered.pop(Caller::current(py)?.number) {
            Some(lease) => lease.get().leave_block(py, !kind.is_none()),
            None => Ok(()),
        }
    }

    /// For asyncio: what `acquire()` was asked for, and by whom.
    #[pyo3(signature = (blocking=None, timeout=None))]
    fn request(
        &self,
        py: Python<'_>,
        blocking: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> Fallible<Request> {
        Ok(Request { caller: Caller::task(py)?, wait: arguments::wait(blocking, timeout, self.known.options.wait)? })
    }

    /// For asyncio: notes the lease of an `async with` block, and whose it is.
    fn entered(&self, py: Python<'_>, request: &Request, lease: Py<Lease>) -> Fallible<()> {
        self.entered.stack().push((request.caller(py)?.number, lease));
        Ok(())
    }

    /// For asyncio: the lease of the `async with` block that ends.
    fn left(&self, py: Python<'_>) -> Fallible<Option<Py<Lease>>> {
        Ok(self.entered.pop(Caller::current(py)?.number))
    }
}
