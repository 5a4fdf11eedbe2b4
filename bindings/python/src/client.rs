//! A client as a Python object: its configuration, and the operations that concern nodes rather than one lock.

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
    handles::Client,
    lock::Lock,
    owner::Caller,
    value::HeldValue,
    waiting::{blocking, run},
};

impl Client {
    fn of(config: Config) -> Fallible<Self> {
        Ok(Self { core: redlock::Client::with_events(config, events::sink())? })
    }
}

#[pymethods]
impl Client {
    /// Makes a client of one URL or several, with the options of `ClientOptions`. Sends nothing.
    #[new]
    #[pyo3(signature = (urls, **options))]
    fn new(urls: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> Fallible<Self> {
        Self::of(arguments::config(urls, options)?)
    }

    /// Makes a client of the nodes in the environment variable `REDLOCK_URL`, or else of `redis://127.0.0.1:6379`.
    #[staticmethod]
    #[pyo3(signature = (**options))]
    fn from_env(options: Option<&Bound<'_, PyDict>>) -> Fallible<Self> {
        Self::of(arguments::config_from_env(options)?)
    }

    /// The URLs, with their credentials.
    #[getter]
    fn urls(&self) -> Vec<String> {
        self.core.config().urls.clone()
    }

    /// The nodes' addresses, without credentials.
    #[getter]
    fn nodes(&self) -> Vec<String> {
        self.core.nodes()
    }

    /// Pings every node and returns the status of each.
    fn ping(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Ping(&self.core))
    }

    /// For drop-in shims: a lock whose key gets this value. The key expires after `ttl` ms; without `ttl`, never.
    #[pyo3(signature = (name, value, ttl))]
    fn shim_lock(&self, name: &str, value: String, ttl: Option<u64>) -> Fallible<Lock> {
        Lock::of(&self.core, name, ffi::shim_options(value, ttl))
    }

    /// For drop-in shims: a value that the key of a lock may hold.
    fn value(&self, name: &str, value: &str) -> Fallible<HeldValue> {
        Ok(HeldValue { core: self.core.value(name, value)? })
    }

    /// Frees a lock, whoever holds it. Returns whether it was held.
    fn force_release(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> Fallible<Py<PyAny>> {
        run(py, ForceRelease(&self.core, &arguments::name(name)?))
    }

    /// Lets all nodes of a quorum vote at once, including restarted ones.
    fn init_nodes(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, InitNodes(&self.core))
    }

    /// Takes over a detached lease.
    fn attach(&self, py: Python<'_>, text: &Bound<'_, PyAny>) -> Fallible<Py<PyAny>> {
        run(py, Attach(&self.core, &arguments::text(text)?, Caller::current(py)?.owner))
    }

    /// Releases all locks of this client, within a second, and disconnects.
    fn close(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, Close(&self.core))
    }
}

/// Closes every client of this process and releases its locks, within a second. Blocks all greenlets of the thread
/// meanwhile, since the process ends.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) -> Fallible<()> {
    blocking(py, |check| ffi::close_all(check))
}
