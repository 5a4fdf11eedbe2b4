//! Greenlets of gevent and eventlet. One that calls waits in the hub of its thread, so that others run meanwhile; who
//! has no hub, which is everybody where neither library was imported, blocks.

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

/// Whether a module was imported, by whomever.
pub(crate) fn is_imported(py: Python<'_>, module: &Bound<'_, PyString>) -> PyResult<bool> {
    static MODULES: Known = Known::new();
    MODULES.import(py, "sys", "modules")?.contains(module)
}

/// Calls a function of `redlock/_greenlets.py`, if there can be greenlets. None: it has nothing to say.
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

/// The identity of the current greenlet. None: it is its thread's only one, or the first.
pub(crate) fn identity(py: Python<'_>) -> PyResult<Option<Bound<'_, Identity>>> {
    static IDENTITY: Known = Known::new();
    Ok(ask(py, &IDENTITY, "identity", ())?.map(Bound::cast_into).transpose()?)
}

/// Whether a loop runs a hub, and with it greenlets that are none of its tasks, this one among them.
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
    /// None: this caller has to block.
    pub(crate) fn current(py: Python<'py>) -> PyResult<Option<Self>> {
        static BRIDGE: Known = Known::new();
        let Some(bridge) = ask(py, &BRIDGE, "bridge", ())? else { return Ok(None) };
        let native = bridge.getattr(name!(py, "native")?)?.cast_into::<Loop>()?;
        Ok(Some(Self { bridge, native }))
    }

    /// Makes a call of the core and waits for its end. What ends the waiting gives the call up: an acquire leaves nothing
    /// behind, a release goes on.
    pub(crate) fn run(&self, operation: Operation<'_>) -> Fallible<Value> {
        self.run_in(&name!(self.bridge.py(), "wait")?, operation.name(), |calls| calls.start(operation))
    }

    /// `run`, for what the process does not wait for: its hub may end before.
    pub(crate) fn attend(&self, begin: impl FnOnce(&Calls) -> Result<Call, LockError>) -> Fallible<Value> {
        self.run_in(&name!(self.bridge.py(), "idle")?, "", begin)
    }

    /// `name` is what it is about, should the process fork meanwhile.
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
