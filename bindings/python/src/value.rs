//! A value that stands in a lock's key, for drop-in shims of libraries that know a hold by its value alone.

use pyo3::prelude::*;
use redlock::ffi::Operation::{IsValueThere, ReleaseValue, RetimeValue};

use crate::{errors::Fallible, waiting::run};

/// A value that may stand in the key of a lock, whoever wrote it.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct HeldValue {
    pub(crate) core: redlock::HeldValue,
}

#[pymethods]
impl HeldValue {
    /// Frees the lock if the value stands in its key; says whether it did.
    fn release(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, ReleaseValue(&self.core))
    }

    /// Lets it end `millis` later ("add"), or `millis` from now ("replace"; "set" where there is no ttl, too).
    fn retime(&self, py: Python<'_>, how: &str, millis: i64) -> Fallible<Py<PyAny>> {
        run(py, RetimeValue(&self.core, how.parse()?, millis))
    }

    /// Whether the value stands in the key.
    fn is_there(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        run(py, IsValueThere(&self.core))
    }
}
