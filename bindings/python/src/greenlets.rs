//! Greenlets of gevent and eventlet: whether there are any, and their identities. `hub.rs` makes them wait.

use pyo3::{call::PyCallArgs, prelude::*, types::PyString};

use crate::{
    cached::{Cached, name},
    identity::Identity,
};

/// Whether the program has imported a module.
pub(crate) fn is_imported(py: Python<'_>, module: &Bound<'_, PyString>) -> PyResult<bool> {
    static MODULES: Cached = Cached::new();
    MODULES.import(py, "sys", "modules")?.contains(module)
}

/// Calls a function of `redlock/_greenlets.py`. `None` if there can be no greenlets, or if it returns None.
pub(crate) fn ask<'py>(
    py: Python<'py>,
    known: &'static Cached,
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
    static IDENTITY: Cached = Cached::new();
    Ok(ask(py, &IDENTITY, "identity", ())?.map(Bound::cast_into).transpose()?)
}

/// Whether an asyncio loop drives the hub of this thread, and the current greenlet is none of the loop's tasks.
pub(crate) fn is_run_by(py: Python<'_>, running: &Bound<'_, PyAny>) -> PyResult<bool> {
    static IS_RUN_BY: Cached = Cached::new();
    ask(py, &IS_RUN_BY, "is_run_by", (running,))?.map_or(Ok(false), |answer| answer.is_truthy())
}
