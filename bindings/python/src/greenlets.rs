//! Greenlets of gevent and eventlet. A greenlet that makes a call waits in the hub of its thread, so that others run
//! meanwhile. In a thread without a hub a call blocks, as in every program that has imported neither library.

use pyo3::{call::PyCallArgs, prelude::*, types::PyString};
use redlock::{
    LockError,
    ffi::{Call, Calls, Operation, Value, completions::Started, forked},
};

use crate::{
    errors::{Failure, Fallible},
    event_loop::Loop,
    known::{Known, name},
    owner::Identity,
};

/// Whether the program has imported a module.
pub(crate) fn is_imported(py: Python<'_>, module: &Bound<'_, PyString>) -> PyResult<bool> {
    static MODULES: Known = Known::new();
    MODULES.import(py, "sys", "modules")?.contains(module)
}

/// Calls a function of `redlock/_greenlets.py`. `None` if there can be no greenlets, or if it returns None.
fn ask<'py>(
    py: Python<'py>,
    known: &'static Known,
    name: &str,
    arguments: impl PyCallArgs<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let can_be = is_imported(py, &name!(py, "greenlet")?)?
        && (is_imported(py, &name!(py, "gevent.hub")?)? || is_imported(py, &name!(py, "eventlet.hubs")?)?);
    if !can_be {
        return Ok(None);
    }
    let answer = known.import(py, "redlock._greenlets", name)?.call1(arguments)?;
    Ok(Some(answer).filter(|answer| !answer.is_none()))
}

/// The identity of the current greenlet. `None` if it has its thread's, as the only or the first one of the thread.
pub(crate) fn identity(py: Python<'_>) -> PyResult<Option<Bound<'_, Identity>>> {
    static IDENTITY: Known = Known::new();
    Ok(ask(py, &IDENTITY, "identity", ())?.map(Bound::cast_into).transpose()?)
}

/// Whether an asyncio loop drives the hub of this thread, and the current greenlet is none of the loop's tasks.
pub(crate) fn is_run_by(py: Python<'_>, running: &Bound<'_, PyAny>) -> PyResult<bool> {
    static IS_RUN_BY: Known = Known::new();
    ask(py, &IS_RUN_BY, "is_run_by", (running,))?.map_or(Ok(false), |answer| answer.is_truthy())
}

/// The hub in which the current greenlet can wait.
pub(crate) struct Hub<'py> {
    bridge: Bound<'py, PyAny>,
    native: Bound<'py, Loop>,
}

impl<'py> Hub<'py> {
    /// The hub of this thread. `None` if the caller must block.
    pub(crate) fn current(py: Python<'py>) -> PyResult<Option<Self>> {
        static BRIDGE: Known = Known::new();
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
    pub(crate) fn attend(&self, begin: impl FnOnce(&Calls) -> Result<Call, LockError>) -> Fallible<Value> {
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
