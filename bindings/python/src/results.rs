//! Converts the results of calls into Python objects.

use pyo3::{IntoPyObjectExt, prelude::*};
use redlock::ffi::Value;

use crate::{
    handles::Lease,
    info::{LockInfo, NodeStatus},
};

/// Converts the result of a call.
pub(crate) fn python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Flag(flag) => flag.into_py_any(py),
        Value::Count(count) => count.into_py_any(py),
        Value::Lease(lease) => Lease::new(lease).into_py_any(py),
        Value::Released(how) => how.into_py_any(py),
        Value::Info(Some(known)) => LockInfo::from(*known).into_py_any(py),
        Value::Nodes(nodes) => nodes.into_iter().map(NodeStatus::from).collect::<Vec<_>>().into_py_any(py),
        Value::Lost(reason) => reason.is_some().into_py_any(py),
        Value::Nothing | Value::Info(None) | Value::Events(_) => Ok(py.None()),
    }
}
