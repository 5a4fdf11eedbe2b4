//! A value in a lock's key, for drop-in shims of libraries that identify a hold by its value alone.

use pyo3::prelude::*;
use redlock::ffi::Operation::{IsValueThere, ReleaseValue, RetimeValue};

use crate::{errors::Fallible, waiting::run};

/// A value that the key of a lock may hold, whoever wrote it.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct HeldValue {
    pub(crate) core: redlock::HeldValue,
}

#[pymethods]
impl HeldValue {
    /// Frees the lock if its key holds the value. Returns whether it did.
    fn release(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, ReleaseValue(&self.core))
    }

    /// Lets the key expire `millis` later ("add"), or `millis` from now ("replace", "set"). A key without a ttl needs
    /// "set".
    fn retime(&self, py: Python<'_>, how: &str, millis: i64) -> Fallible<Py<PyAny>> {
        run(py, RetimeValue(&self.core, how.parse()?, millis))
    }

    /// Whether the key holds the value.
    fn is_there(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, IsValueThere(&self.core))
    }
}
