//! Converts the core's errors into Python's exceptions. The classes are declared in `redlock/errors.py`, since only
//! Python can derive from two exceptions. The error's code picks the class.

use pyo3::{
    prelude::*,
    types::{PyDict, PyType},
};
use redlock::{LockError, ffi::Idiom::SnakeSeconds};

use crate::cached::Cached;

/// Why a call failed: an error of the core, or an exception of Python, such as one that a signal handler raised.
pub(crate) enum Failure {
    Lock(LockError),
    Python(PyErr),
}

/// The result of a method.
pub(crate) type Fallible<T> = Result<T, Failure>;

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lock(error) => raised(&error),
            Failure::Python(error) => error,
        }
    }
}

/// Converts an error of the core into the exception with its code.
pub(crate) fn raised(error: &LockError) -> PyErr {
    Python::attach(|py| instance(py, error).map_or_else(|error| error, PyErr::from_value))
}

/// The exception object for an error of the core.
pub(crate) fn instance<'py>(py: Python<'py>, error: &LockError) -> PyResult<Bound<'py, PyAny>> {
    let failure = SnakeSeconds.failure(error);
    let class = class(py, failure.code)?;
    match (failure.reason, error) {
        (Some(reason), _) => class.call1((failure.message, reason)),
        (_, LockError::Unavailable { .. }) => {
            let by_node = PyDict::new(py);
            for (node, cause) in failure.causes {
                by_node.set_item(node, cause)?;
            }
            class.call1((failure.message, by_node))
        }
        _ => class.call1((failure.message,)),
    }
}

fn class<'py>(py: Python<'py>, code: &str) -> PyResult<Bound<'py, PyType>> {
    static CLASSES: Cached = Cached::new();
    Ok(CLASSES.import(py, "redlock.errors", "BY_CODE")?.get_item(code)?.cast_into()?)
}
