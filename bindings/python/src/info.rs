//! Information about locks and nodes: plain values, which are equal if their parts are. They are native classes because
//! Python's `dataclasses` would take longer to import than the rest of the package.

use pyo3::{
    prelude::*,
    types::{PyTuple, PyType},
};
use redlock::ffi::{self, Idiom::SnakeSeconds};

/// The repr of a value: the call that makes an equal one.
fn shown<const N: usize>(class: &str, names: [&str; N], parts: &Bound<'_, PyTuple>) -> PyResult<String> {
    let named = names.iter().zip(parts).map(|(name, part)| Ok(format!("{name}={}", part.repr()?)));
    Ok(format!("{class}({})", named.collect::<PyResult<Vec<_>>>()?.join(", ")))
}

/// A pickled value: the class and the arguments that make an equal one, in any process.
type Pickled<'py> = (Bound<'py, PyType>, Bound<'py, PyTuple>);

/// The holders of a lock, as a quorum of nodes reported them.
#[pyclass(frozen, eq, module = "redlock")]
#[derive(PartialEq)]
pub(crate) struct LockInfo {
    /// The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`. The first one of several.
    #[pyo3(get)]
    owner: String,
    /// Seconds until the key expires unless it is renewed; None if the key has no ttl.
    #[pyo3(get)]
    ttl: Option<f64>,
    /// The last fencing token; 0 for a semaphore, and if the holder draws none or the counter has expired.
    #[pyo3(get)]
    token: u64,
    /// The kind of hold: "lock", "read" or "write" for a read/write lock, "semaphore", or "rest".
    #[pyo3(get)]
    kind: String,
    owners: Vec<String>,
    /// The name of the holder's machine; None for other libraries, for explicit owners, and if the holder's connections
    /// have no name or this client may not read it. Of a detached lease, the machine that detached it.
    #[pyo3(get)]
    host: Option<String>,
    /// The number of the holder's process; None if `host` is.
    #[pyo3(get)]
    pid: Option<u32>,
    /// The name of the holder's program, its option `app`; None if `host` is.
    #[pyo3(get)]
    app: Option<String>,
    /// Since when the holder has the lock, in seconds since the epoch, by the clock of a node; None for readers, for
    /// permits, for other libraries and if it is not known.
    #[pyo3(get)]
    since: Option<f64>,
}

impl LockInfo {
    const PARTS: [&str; 9] = ["owner", "ttl", "token", "kind", "owners", "host", "pid", "app", "since"];

    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Self { owner, ttl, token, kind, host, pid, app, since, .. } = self;
        (owner, *ttl, *token, kind, self.owners(py)?, host, *pid, app, *since).into_pyobject(py)
    }
}

#[pymethods]
impl LockInfo {
    #[new]
    #[pyo3(signature = (
        owner, ttl, token, kind="lock".to_owned(), owners=None, host=None, pid=None, app=None, since=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "its parts, which Python names")]
    fn new(
        owner: String,
        ttl: Option<f64>,
        token: u64,
        kind: String,
        owners: Option<Vec<String>>,
        host: Option<String>,
        pid: Option<u32>,
        app: Option<String>,
        since: Option<f64>,
    ) -> Self {
        let owners = owners.unwrap_or_else(|| vec![owner.clone()]);
        Self { owner, ttl, token, kind, owners, host, pid, app, since }
    }

    /// All owners. There are several only for readers, and for permits of a semaphore.
    #[getter]
    fn owners<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.owners)
    }

    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, Self::PARTS)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.parts(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        shown("LockInfo", Self::PARTS, &self.parts(py)?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickled<'py>> {
        Ok((py.get_type::<Self>(), self.parts(py)?))
    }
}

/// The status of a node, as `ping()` returns it.
#[pyclass(frozen, eq, get_all, module = "redlock")]
#[derive(PartialEq)]
pub(crate) struct NodeStatus {
    /// Its address, without credentials.
    node: String,
    /// Whether the ping succeeded.
    ok: bool,
    /// The run id of the server, which changes with each restart.
    run: Option<String>,
    /// The version of the server.
    version: Option<String>,
    /// The reason if the ping failed, else None.
    cause: Option<String>,
}

impl NodeStatus {
    const PARTS: [&str; 5] = ["node", "ok", "run", "version", "cause"];

    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        (&self.node, self.ok, &self.run, &self.version, &self.cause).into_pyobject(py)
    }
}

#[pymethods]
impl NodeStatus {
    #[new]
    #[pyo3(signature = (node, ok, run=None, version=None, cause=None))]
    fn new(node: String, ok: bool, run: Option<String>, version: Option<String>, cause: Option<String>) -> Self {
        Self { node, ok, run, version, cause }
    }

    #[classattr]
    fn __match_args__(py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        PyTuple::new(py, Self::PARTS)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        self.parts(py)?.hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        shown("NodeStatus", Self::PARTS, &self.parts(py)?)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Pickled<'py>> {
        Ok((py.get_type::<Self>(), self.parts(py)?))
    }
}

impl From<redlock::LockInfo> for LockInfo {
    fn from(info: redlock::LockInfo) -> Self {
        let ttl = info.ttl.map(|ttl| SnakeSeconds.number(ttl));
        let (kind, since) = (info.kind.as_str().to_owned(), info.since_micros().map(|micros| micros as f64 / 1e6));
        let redlock::LockInfo { owner, owners, token, host, pid, app, .. } = info;
        Self { owner, ttl, token, kind, owners, host, pid, app, since }
    }
}

impl From<ffi::NodeStatus> for NodeStatus {
    fn from(ffi::NodeStatus { node, ok, run, version, cause }: ffi::NodeStatus) -> Self {
        Self { node, ok, run, version, cause }
    }
}
