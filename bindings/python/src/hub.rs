//! The hub of a thread with greenlets. A greenlet that makes a call waits in the hub, so that others run meanwhile. In a
//! thread without a hub a call blocks, as in every program that has imported neither gevent nor eventlet.

use pyo3::{prelude::*, types::PyString};
use redlock::{
    LockError,
    ffi::{Call, Calls, Operation, Value, completions::Started, forked},
};

use crate::{
    cached::{Cached, name},
    errors::{Failure, Fallible},
    event_loop::Loop,
    greenlets::ask,
};

/// The hub in which the current greenlet can wait.
pub(crate) struct Hub<'py> {
    bridge: Bound<'py, PyAny>,
    native: Bound<'py, Loop>,
}

impl<'py> Hub<'py> {
    /// The hub of this thread. `None` if the caller must block.
    pub(crate) fn current(py: Python<'py>) -> PyResult<Option<Self>> {
        static BRIDGE: Cached = Cached::new();
        let Some(bridge) = ask(py, &BRIDGE, "bridge", ())? else { return Ok(None) };
        let native = bridge.getattr(name!(py, "native")?)?.cast_into::<Loop>()?;
        Ok(Some(Self { bridge, native }))
    }

    /// Makes a call of the core and waits for its result. An exception that ends the wait gives the call up: an acquire
    /// leaves no lock behind, a release continues in the background.
    pub(crate) fn run(&self, operation: Operation<'_>) -> Fallible<Value> {
        self.run_in(&name!(self.bridge.py(), "wait")?, operation.name(), |calls| calls.start(operation))
    }

    /// As `run`, but does not keep the hub from ending.
    pub(crate) fn run_idle(&self, begin: impl FnOnce(&Calls) -> Result<Call, LockError>) -> Fallible<Value> {
        self.run_in(&name!(self.bridge.py(), "idle")?, "", begin)
    }

    /// `name` is the lock that the error names if the process forks meanwhile.
    fn run_in(
        &self,
        how: &Bound<'_, PyString>,
        name: &str,
        begin: impl FnOnce(&Calls) -> Result<Call, LockError>,
    ) -> Fallible<Value> {
        let native = self.native.get();
        let id = match begin(native.calls())? {
            Started::Done(outcome) => return Ok(outcome?),
            Started::Pending(id) => id,
        };
        let waited = self.bridge.call_method1(how, (id,));
        let outcome = native.take(id);
        match (waited, outcome) {
            (Ok(_), Some(outcome)) => Ok(outcome?),
            (Ok(_), None) => Err(forked(name).into()),
            (Err(given_up), outcome) => {
                native.calls().abandon(id);
                if let Some(Ok(Value::Lease(lease))) = outcome {
                    lease.abandon();
                }
                Err(Failure::Python(given_up))
            }
        }
    }
}
