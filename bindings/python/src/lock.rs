//! A lock as a Python object: `acquire`, `release` and `with` blocks of threads, greenlets and tasks. They are the hot
//! path, so they are written in Rust.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use pyo3::{PyTraverseError, PyVisit, prelude::*, types::PyDict};
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
    /// The default client at the first use of this lock, or of another lock of the same read/write lock or semaphore.
    /// Empty for a lock of another client.
    default_client: Arc<OnceLock<redlock::Client>>,
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

/// A `with` block that has not ended.
struct OpenBlock {
    /// The frame that began the block; `None` without any Python frame. The reference keeps its address from being
    /// reused.
    frame: Option<Py<PyAny>>,
    /// The number of the caller that began the block.
    caller: u64,
    lease: Py<Lease>,
}

impl OpenBlock {
    fn is_of(&self, frame: &Bound<'_, PyAny>) -> bool {
        self.frame.as_ref().is_some_and(|own| own.is(frame))
    }

    /// Whether its frame has ended. Such a block began in a helper, such as `ExitStack.enter_context`: the frame of a
    /// `with` statement ends after its block.
    fn outlived_its_frame(&self) -> bool {
        #[allow(unsafe_code, reason = "pyo3 has no safe function for the number of references")]
        // SAFETY: the pointer is of an object to which this block has a reference.
        let references = |frame: &Py<PyAny>| unsafe { pyo3::ffi::Py_REFCNT(frame.as_ptr()) };
        // The interpreter has another reference to a frame that runs or is suspended.
        self.frame.as_ref().is_some_and(|frame| references(frame) == 1)
    }
}

/// The `with` blocks of a lock that have not ended. Python does not tell `__exit__` which block ends, so the frame that
/// calls it does: it is the frame that called `__enter__`, whatever thread or task runs the end of the block.
#[derive(Default)]
struct OpenBlocks(Mutex<Vec<OpenBlock>>);

impl OpenBlocks {
    /// Only threads that are attached to the interpreter lock it, and they stay attached. So it is never locked for
    /// long, and not while the process forks.
    fn stack(&self) -> MutexGuard<'_, Vec<OpenBlock>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, frame: Option<Bound<'_, PyAny>>, caller: u64, lease: Py<Lease>) {
        self.stack().push(OpenBlock { frame: frame.map(Bound::unbind), caller, lease });
    }

    /// Removes the newest block of this frame. If there is none, a helper such as `ExitStack` ends the block. Then it
    /// removes, among the blocks that outlived their frames, the newest one of this caller, or else the newest one of
    /// the caller whose block began first. If no block outlived its frame, it does so among all blocks.
    fn pop(&self, frame: Option<&Bound<'_, PyAny>>, caller: u64) -> Option<OpenBlock> {
        let mut stack = self.stack();
        let newest = |among: fn(&OpenBlock) -> bool| {
            let of = |caller| stack.iter().rposition(|block| among(block) && block.caller == caller);
            of(caller).or_else(|| of(stack.iter().find(|block| among(block))?.caller))
        };
        let index = frame
            .and_then(|frame| stack.iter().rposition(|block| block.is_of(frame)))
            .or_else(|| newest(OpenBlock::outlived_its_frame))
            .or_else(|| newest(|_| true))?;
        Some(stack.remove(index))
    }

    /// A locked mutex means that the blocks are in use, and so not garbage.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(stack) = self.0.try_lock() else { return Ok(()) };
        stack.iter().try_for_each(|block| visit.call(&block.frame))
    }
}

/// The Python frame that calls a method of this module.
fn calling_frame(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static FRAME: Cached = Cached::new();
    // Fails only without any frame, in a program that embeds Python.
    Ok(FRAME.import(py, "sys", "_getframe")?.call0().ok())
}

impl Lock {
    /// The core's lock. A lock of the default client looks the client up at its first use.
    pub(crate) fn core(&self, py: Python<'_>) -> Fallible<&redlock::Lock> {
        static DEFAULT_CLIENT: Cached = Cached::new();
        if let Some(core) = self.core.get() {
            return Ok(core);
        }
        if self.default_client.get().is_none() {
            let default_client = DEFAULT_CLIENT.import(py, "redlock._client", "default_client")?;
            let client: Py<Client> = default_client.call0()?.extract().map_err(PyErr::from)?;
            // If several threads get here at once, all get the client that was stored first.
            let _ = self.default_client.set(client.get().core.clone());
        }
        let client = self.default_client.get().ok_or(LockError::Closed)?;
        let core = self.known.of(client)?;
        Ok(self.core.get_or_init(|| core))
    }

    /// Makes a lock of a client.
    pub(crate) fn of(client: &redlock::Client, name: &str, options: LockOptions) -> Fallible<Self> {
        let known = Unbound { name: name.to_owned(), options, part: Part::Whole };
        let core = OnceLock::from(known.of(client)?);
        Ok(Self { known, default_client: Arc::default(), core, open_blocks: OpenBlocks::default() })
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
    /// "read" or "write" of a read/write lock, or `(n, permits)` for n slots of a semaphore. `sibling`: another lock of
    /// the same read/write lock or semaphore, which has the same default client.
    #[new]
    #[pyo3(signature = (client, name, part=None, sibling=None, **options))]
    fn new(
        client: Option<&Client>,
        name: &Bound<'_, PyAny>,
        part: Option<&Bound<'_, PyAny>>,
        sibling: Option<&Self>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Fallible<Self> {
        let (name, part) = (arguments::name(name)?, arguments::part(part)?);
        let known = Unbound { name, options: arguments::lock_options(part, options)?, part };
        let core = match client {
            Some(client) => OnceLock::from(known.of(&client.core)?),
            // Invalid options fail now, not at the first use.
            None => known.check().map(|()| OnceLock::new())?,
        };
        let default_client = sibling.map_or_else(Arc::default, |sibling| sibling.default_client.clone());
        Ok(Self { known, default_client, core, open_blocks: OpenBlocks::default() })
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
    /// Raises `Unavailable`, `KeyConflict`, `WouldDeadlock` (another owner in this thread holds it, such as a task, or
    /// this owner does and the lock is not re-entrant), `LockLost` (this owner held it and lost it), `InvalidArgument`
    /// and `Closed`.
    ///
    /// ```python
    /// if lease := client.lock("report").acquire(timeout=2.5):
    ///     lease.release()
    /// ```
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
    ///
    /// ```python
    /// if info := client.lock("report").inspect():
    ///     print(info.app, info.pid, info.host, info.since)
    /// ```
    fn inspect(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Inspect(self.core(py)?))
    }

    /// The number of free slots of its semaphore.
    #[pyo3(name = "_available")]
    fn available(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Available(self.core(py)?))
    }

    fn __enter__(&self, py: Python<'_>) -> Fallible<Py<Lease>> {
        let (frame, caller) = (calling_frame(py)?, Caller::current(py)?);
        let lease = self.take(py, &caller, self.known.options.wait)?;
        self.open_blocks.push(frame, caller.number, lease.clone_ref(py));
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
        match self.open_blocks.pop(calling_frame(py)?.as_ref(), Caller::current(py)?.number) {
            Some(block) => block.lease.get().leave_block(py, !kind.is_none()),
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

    /// For asyncio: stores the lease of an `async with` block that begins. `frame`: of its coroutine.
    fn begin_block(
        &self,
        py: Python<'_>,
        request: &Request,
        frame: Bound<'_, PyAny>,
        lease: Py<Lease>,
    ) -> Fallible<()> {
        self.open_blocks.push(Some(frame), request.caller(py)?.number, lease);
        Ok(())
    }

    /// For asyncio: removes the lease of the `async with` block that ends. `frame`: of its coroutine.
    fn end_block(&self, py: Python<'_>, frame: &Bound<'_, PyAny>) -> Fallible<Option<Py<Lease>>> {
        let block = self.open_blocks.pop(Some(frame), Caller::current(py)?.number);
        Ok(block.map(|block| block.lease.clone_ref(py)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.open_blocks.traverse(&visit)
    }

    fn __clear__(&self) {
        let blocks = mem::take(&mut *self.open_blocks.stack());
        drop(blocks);
    }
}

/// The base class of semaphores for threads. Their `with` blocks are those of a lock for one slot. It is written in
/// Rust so that no signal handler can raise between the grant and the block.
#[pyclass(frozen, subclass, weakref, module = "redlock._native")]
pub(crate) struct Blocks {
    one: Py<Lock>,
}

#[pymethods]
impl Blocks {
    #[new]
    fn new(one: Py<Lock>) -> Self {
        Self { one }
    }

    /// The lock for one slot.
    #[getter(_one)]
    fn one(&self, py: Python<'_>) -> Py<Lock> {
        self.one.clone_ref(py)
    }

    fn __enter__(&self, py: Python<'_>) -> Fallible<Py<Lease>> {
        self.one.get().__enter__(py)
    }

    #[pyo3(signature = (kind, error, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> Fallible<()> {
        self.one.get().__exit__(py, kind, error, traceback)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.one)
    }
}
