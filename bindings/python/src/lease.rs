//! A lease as a Python object. Python's garbage collector decides when it is dropped, so dropping it releases nothing.
//! Only an explicit release does, or `abandon` for a lease that its caller never received.

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
    handles::Lease,
    waiting::run,
};

impl Lease {
    /// Releases it at the end of its block. `failed`: the block raised an error, which the release's must not mask.
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

    /// The numbers of its semaphore slots; empty for a lock.
    #[getter]
    fn slots<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.slots().iter().map(|slot| slot.number))
    }

    /// The fencing tokens of its slots, in the same order; empty for a lock.
    #[getter]
    fn tokens<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.core.slots().iter().map(|slot| slot.token))
    }

    /// Whether the lock is held now. Reads a clock and sends nothing; once False it stays False.
    #[getter]
    fn held(&self) -> bool {
        self.core.held()
    }

    /// Return the seconds until the lease ends unless it is renewed; 0 once it has ended.
    fn remaining(&self) -> f64 {
        SnakeSeconds.number(self.core.remaining())
    }

    /// Raise `LockLost` after a loss, `NotHeld` after a release or `detach()`. Sends nothing.
    fn check(&self) -> Fallible<()> {
        Ok(self.core.check()?)
    }

    /// Let the lease end `ttl` (seconds or a `timedelta`) from now. Never shortens it.
    ///
    /// `ttl` is from 0.05 s to 10 years, and on a quorum at most the client's `max_ttl`. The watchdog keeps renewing a
    /// renewed lease. Raises `LockLost` after a loss, `NotHeld` after a release or `detach()`, `InvalidArgument`, and
    /// `Unavailable` if too few nodes answer; the lease is unchanged then.
    fn extend(&self, py: Python<'_>, ttl: &Bound<'_, PyAny>) -> Fallible<Py<PyAny>> {
        run(py, Extend(&self.core, arguments::duration("ttl", ttl)?))
    }

    /// Change a writer's lease of a read/write lock into a reader's. No other writer gets in between.
    ///
    /// Waiting readers acquire the lock, and the token becomes a reader's. Does nothing for a reader's lease. Raises
    /// `LockLost` after a loss, `NotHeld` after a release or `detach()`, and `InvalidArgument` for a lease of another
    /// kind of lock. Raises `Unavailable` if too few nodes answer: the lease is a reader's then, but others may be kept
    /// out until `downgrade()` is called again.
    fn downgrade(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Downgrade(&self.core))
    }

    /// Change a reader's lease of a read/write lock into a writer's if nobody else reads.
    ///
    /// Returns whether it is a writer's lease now; if so it has a new token. Never waits. Raises as `downgrade()` does.
    fn try_upgrade(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, TryUpgrade(&self.core))
    }

    /// Release this lease. The last lease of its owner frees the lock.
    ///
    /// Returns "released", "lost" (it had been lost before) or "unconfirmed" (too few nodes answered; the release is
    /// sent again in the background until the lease would have ended). A second call returns the same. Raises `NotHeld`
    /// after `detach()`.
    fn release(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Release(&self.core))
    }

    /// End this lease without releasing the lock. Return a text for `attach()`.
    ///
    /// A client with the same nodes, in this process or another, can attach the text once, before the ttl ends. Nobody
    /// renews the lock until then. The text is a secret: whoever has it can take the lock. Raises as `check()` does,
    /// and `InvalidArgument` for a lease with nested leases.
    fn detach(&self) -> Fallible<String> {
        Ok(self.core.detach()?)
    }

    /// For drop-in shims, not for programs: ends this lease and its renewal, and leaves the key unchanged.
    #[pyo3(name = "_let_go")]
    fn let_go(&self) -> Fallible<()> {
        Ok(self.core.let_go()?)
    }

    /// The event that is set when this lease is lost; used like a `threading.Event`.
    #[getter]
    fn lost(slf: Py<Self>) -> Lost {
        Lost { lease: slf }
    }

    /// For `redlock.asyncio`, not for programs: releases, in the background, a lease that its caller never received.
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

/// An event that is set when a lease is lost; used like a `threading.Event`. A release does not set it.
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

    /// The reason, as in `LockLost.reason`, or None.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.lease.get().core.lost_reason().map(redlock::LostReason::as_str)
    }

    /// Block until the lease ends, for at most `timeout`.
    ///
    /// `timeout` is 0 or more, in seconds or a `timedelta`; None, the default, waits without limit. Returns True if it
    /// was lost, False if it was released or detached, or is still held. Raises `InvalidArgument`.
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
