//! A client: configuration, and what is done with nodes rather than with one lock.

use pyo3::{prelude::*, types::PyDict};
use redlock::{
    Config,
    ffi::{self, Calls, Value, completions::Begun::Pending},
};

use crate::{
    arguments,
    errors::Fallible,
    events,
    lock::Lock,
    owner::Caller,
    value::HeldValue,
    waiting::{blocking, run, until},
};

/// Nodes, and how to use them.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Client {
    pub(crate) core: redlock::Client,
}

impl Client {
    pub(crate) fn of(config: Config) -> Fallible<Self> {
        Ok(Self { core: redlock::Client::with_events(config, events::sink())? })
    }
}

#[pymethods]
impl Client {
    /// A client of one URL or several, with the options of `ClientOptions`. No I/O happens here.
    #[new]
    #[pyo3(signature = (urls, **options))]
    fn new(urls: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> Fallible<Self> {
        Self::of(arguments::config(urls, options)?)
    }

    /// A client of the nodes that the environment names.
    #[staticmethod]
    #[pyo3(signature = (**options))]
    fn from_env(options: Option<&Bound<'_, PyDict>>) -> Fallible<Self> {
        Self::of(arguments::config_from_env(options)?)
    }

    /// The URLs it was made of, with their credentials.
    #[getter]
    fn urls(&self) -> Vec<String> {
        self.core.config().nodes.clone()
    }

    /// The nodes' addresses, without credentials.
    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.core.nodes()
    }

    /// Asks every node for a sign of life.
    fn ping(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        let begin = |calls: &Calls| calls.ping(&self.core).map(Pending);
        run(py, "", begin, |check| Ok(Value::Nodes(until(check, "", self.core.ping())??)))
    }

    /// For drop-in shims: a lock taken with a value of their library's making, for `ttl` ms or, without it, for ever.
    #[pyo3(signature = (name, value, ttl))]
    fn shim_lock(&self, name: &str, value: String, ttl: Option<u64>) -> Fallible<Lock> {
        Lock::of(&self.core, name, ffi::shim_options(value, ttl))
    }

    /// For drop-in shims: a value that may stand in the key of a lock.
    fn value(&self, name: &str, value: &str) -> Fallible<HeldValue> {
        Ok(HeldValue { core: self.core.value(name, value)? })
    }

    /// Frees a lock whoever holds it; says whether anybody did.
    fn force_release(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        let name = arguments::name(name)?;
        let begin = |calls: &Calls| calls.force_release(&self.core, &name).map(Pending);
        run(py, &name, begin, |check| Ok(Value::Flag(until(check, &name, self.core.force_release(&name))??)))
    }

    /// Vouches for all nodes of a quorum.
    fn init_nodes(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        let begin = |calls: &Calls| calls.init_nodes(&self.core).map(Pending);
        run(py, "", begin, |check| Ok(until(check, "", self.core.init_nodes())?.map(|()| Value::Nothing)?))
    }

    /// Takes over a detached lease.
    fn attach(&self, py: Python<'_>, text: &str) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        let owner = Caller::current(py)?.owner;
        let begin = |calls: &Calls| calls.attach(&self.core, text, owner.clone()).map(Pending);
        run(py, "", begin, |check| Ok(Value::Lease(until(check, "", self.core.attach(text, owner.clone()))??)))
    }

    /// Releases what this client holds, and disconnects.
    fn close(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        let begin = |calls: &Calls| calls.close(&self.core).map(Pending);
        run(py, "", begin, |check| until(check, "", self.core.close()).map(|()| Value::Nothing))
    }
}

/// Closes every client of this process: releases what they hold, within a second. Greenlets go on after it only: the
/// process ends.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) -> Fallible<()> {
    blocking(py, |check| until(check, "", redlock::close_all()))
}
