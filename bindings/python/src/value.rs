//! A value that stands in a lock's key, for drop-in shims of libraries that know a hold by its value alone.

use pyo3::prelude::*;
use redlock::{
    Retime,
    ffi::{Calls, Value::Flag, completions::Begun::Pending},
};

use crate::{errors::Fallible, events, waiting::run};

/// A value that may stand in the key of a lock, whoever wrote it.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct HeldValue {
    pub(crate) core: redlock::HeldValue,
}

/// How a time is changed.
pub(crate) fn how(word: &str) -> Fallible<Retime> {
    Ok(word.parse()?)
}

#[pymethods]
impl HeldValue {
    /// Frees the lock if the value stands in its key; says whether it did.
    fn release(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        let begin = |calls: &Calls| calls.release_value(&self.core).map(Pending);
        run(py, self.core.name(), begin, |check| self.core.release_blocking(check).map(Flag))
    }

    /// Lets it end `millis` later ("add"), or `millis` from now ("replace"; "set" where there is no ttl, too).
    fn retime(&self, py: Python<'_>, how: &str, millis: i64) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        let how = self::how(how)?;
        let begin = |calls: &Calls| calls.retime_value(&self.core, how, millis).map(Pending);
        run(py, self.core.name(), begin, |check| self.core.retime_blocking(how, millis, check).map(Flag))
    }

    /// Whether the value stands in the key.
    fn is_there(&self, py: Python<'_>) -> Fallible<Py<PyAny>> {
        events::attend(py)?;
        let begin = |calls: &Calls| calls.is_value_there(&self.core).map(Pending);
        run(py, self.core.name(), begin, |check| self.core.is_there_blocking(check).map(Flag))
    }
}
