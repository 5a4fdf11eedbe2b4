//! A lease as Python holds it. Python's garbage collector decides when a lease object ends, so that releases nothing;
//! only an explicit release does, or `abandon` for one that nobody got to see.

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyString, PyTuple},
};
use redlock::ffi::{
    Idiom::SnakeSeconds,
    Operation::{self, Downgrade, Extend, Leave, Release, TryUpgrade},
};

use crate::{
    arguments,
    errors::{Failure, Fallible},
    waiting::run,
};

/// A held lock.
#[pyclass(frozen, weakref, module = "redlock")]
pub(crate) struct Lease {
    pub(crate) core: redlock::Lease,
}

impl Lease {
    pub(crate) fn new(lease: redlock::Lease) -> Self {
        lease.keep();
        Self { core: lease }
    }

    /// Ends the block that took it: `failed` when the block raised an error of its own, which no other may mask.
    pub(crate) fn leave_block(&self, py: Python<'_>, failed: bool) -> Fallible<()> {
        match run(py, Leave(&self.core)) {
            Err(Failure::Lock(_)) if failed => Ok(()),
            left => left.map(|_| ()),
        }
    }
}

#[pymethods]
impl Lease {
    /// The lock's name, without the client's prefix.
    #[getter]
    fn name(&self) -> &str {
        self.core.name()
    }

    /// The explicit owner, or `uuid:tenure`.
    #[getter]
    fn owner(&self) -> &str {
        self.core.owner()
    }

    /// The fencing token, in µs: larger than that of every earlier holder. Needs 64 bits.
    #[getter]
    fn token(&self) -> u64 {
        self.core.token()
    }

    /// The slots that it has of a semaphore; empty for a lock.
    #[getter]
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.slots().iter().map(|slot| slot.number))
    }

    /// The fencing tokens of its slots, in their order; empty for a lock.
    #[getter]
    fn tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.slots().iter().map(|slot| slot.token))
    }

    /// Whether the lock is held, right now. Reads a clock and nothing else; once False it stays False.
    #[getter]
    fn held(&self) -> bool {
        self.core.held()
    }

    /// Seconds for which it is held unless it is renewed; 0 once it is not.
    fn remaining(&self) -> f64 {
        SnakeSeconds.number(self.core.remaining())
    }

    /// Raises `LockLost` after a loss, `NotHeld` after a release or `detach()`.
    fn check(&self) -> Fallible<()> {
        Ok(self.core.check()?)
    }

    /// Lets the lock end `ttl` (seconds or a `timedelta`) from now, never earlier than it would have. A renewed lease
    /// is renewed on. Raises `LockLost` after a loss, and `Unavailable`, nothing changed, in an outage.
    fn extend(&self, py: Python<'_>, ttl: &Bound<'_, PyAny>) -> Fallible<Py<PyAny>> {
        run(py, Extend(&self.core, arguments::duration("ttl", ttl)?))
    }

    /// Makes a reader of a writer of a read/write lock, without anybody else writing in between: readers that wait come in, and
    /// the token becomes a reader's. Does nothing for one that reads. Raises `LockLost` after a loss, `Unavailable` while too
    /// few nodes answer (it reads then, and others may be kept out until it is called again), and `InvalidArgument` for a
    /// lease of another lock.
    fn downgrade(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Downgrade(&self.core))
    }

    /// Makes a writer of a reader of a read/write lock if nobody else reads, and tells whether it is one now; then it has a new
    /// token. Never waits. Raises as `downgrade()` does.
    fn try_upgrade(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, TryUpgrade(&self.core))
    }

    /// Ends this lease; the last one of its owner frees the lock. Returns "released", "lost" (it had been lost before)
    /// or "unconfirmed" (too few nodes answered; they are asked again until the lease ends by itself), and the same
    /// when called again. Raises `NotHeld` after `detach()`.
    fn release(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Release(&self.core))
    }

    /// Stops renewing and lets go of the lock without releasing it. The text is a bearer secret: `attach` of a client
    /// with the same nodes takes the lock over from it, once, in this process or another.
    fn detach(&self) -> Fallible<String> {
        Ok(self.core.detach()?)
    }

    /// For drop-in shims: stops everything about it and leaves the key alone.
    #[pyo3(name = "_let_go")]
    fn let_go(&self) -> Fallible<()> {
        Ok(self.core.let_go()?)
    }

    /// Tells of a loss; used like a `threading.Event`.
    #[getter]
    fn lost(slf: Py<Self>) -> Lost {
        Lost { lease: slf }
    }

    /// Releases, in the background, a lease that its acquirer never got.
    fn abandon(&self) {
        self.core.abandon();
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = PyString::new(py, self.core.name()).repr()?;
        let state = match (self.core.held(), self.core.lost_reason()) {
            (true, _) => "held".to_owned(),
            (_, Some(reason)) => format!("lost: {reason}"),
            _ => "released".to_owned(),
        };
        Ok(format!("<redlock.Lease {name} token={} {state}>", self.core.token()))
    }

    #[allow(clippy::unused_self, reason = "a method of Python's")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "a Lease cannot be pickled: it belongs to this process. Send the text of lease.detach() instead and pass \
             it to client.attach() on the other side",
        ))
    }
}

/// Tells whether, and when, a lease is lost; used like a `threading.Event`. A released lease is not lost.
#[pyclass(frozen, module = "redlock")]
pub(crate) struct Lost {
    lease: Py<Lease>,
}

#[pymethods]
impl Lost {
    /// Whether the lock was lost.
    fn is_set(&self) -> bool {
        self.reason().is_some()
    }

    /// Why it was lost, or None.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.lease.get().core.lost_reason().map(redlock::LostReason::as_str)
    }

    /// Blocks until the lease ends, for `timeout` seconds at most (None: for as long as it takes). True when it was
    /// lost, False when it was released, or still is held.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<&Bound<'_, PyAny>>) -> Fallible<Py<PyAny>> {
        let limit = timeout.map(|timeout| arguments::duration("timeout", timeout)).transpose()?;
        run(py, Operation::Lost(&self.lease.get().core, limit))
    }

    fn __bool__(&self) -> bool {
        self.is_set()
    }

    fn __repr__(&self) -> String {
        format!("<redlock.Lost {}>", self.reason().unwrap_or("not set"))
    }
}
