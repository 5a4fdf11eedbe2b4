//! A client: configuration, and what is done with nodes rather than with one lock.

use pyo3::{prelude::*, types::PyDict};
use redlock::{
    Config,
    ffi::{
        self,
        Operation::{Attach, Close, ForceRelease, InitNodes, Ping},
    },
};

use crate::{
    arguments,
    errors::Fallible,
    events,
    lock::Lock,
    owner::Caller,
    value::HeldValue,
    waiting::{blocking, run},
};

/// Nodes, and how to use them.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Client {
    pub(crate) core: redlock::Client,
}

impl Client {
    fn of(config: Config) -> Fallible<Self> {
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
        self.core.config().urls.clone()
    }

    /// The nodes' addresses, without credentials.
    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.core.nodes()
    }

    /// Asks every node for a sign of life.
    fn ping(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Ping(&self.core))
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
        run(py, ForceRelease(&self.core, &arguments::name(name)?))
    }

    /// Vouches for all nodes of a quorum.
    fn init_nodes(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, InitNodes(&self.core))
    }

    /// Takes over a detached lease.
    fn attach(&self, py: Python<'_>, text: &str) -> Fallible<Py<PyAny>> {
        run(py, Attach(&self.core, text, Caller::current(py)?.owner))
    }

    /// Releases what this client holds, and disconnects.
    fn close(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Close(&self.core))
    }
}

/// Closes every client of this process: releases what they hold, within a second. Greenlets go on after it only: the
/// process ends.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) -> Fallible<()> {
    blocking(py, |check| ffi::close_all(check))
}
