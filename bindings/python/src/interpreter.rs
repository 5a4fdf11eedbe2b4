//! Restricts the library to one interpreter of the process: the first that imports it. Statics, here and in pyo3, hold
//! objects of one interpreter. In another interpreter `except` would not match their exceptions, and tasks would not be
//! recognised.
#![allow(unsafe_code, reason = "pyo3 has no safe function for the number of an interpreter")]

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use pyo3::{exceptions::PyImportError, prelude::*};

/// The id of that interpreter; -1 before the first import. The main interpreter has 0.
static SERVED: AtomicI64 = AtomicI64::new(-1);

/// Refuses every interpreter but the first, even after the first has ended: its objects stay in the statics.
pub(crate) fn claim(_attached: Python<'_>) -> PyResult<()> {
    let current = current_interpreter();
    match SERVED.compare_exchange(-1, current, SeqCst, SeqCst) {
        Err(served) if served != current => Err(PyImportError::new_err(
            "redlock serves one interpreter of a process, and another has imported it: let this one be the main \
             interpreter (mod_wsgi: WSGIApplicationGroup %{GLOBAL}), or give it a process of its own",
        )),
        _ => Ok(()),
    }
}

/// The id of the interpreter that this thread is attached to; on `PyPy` the only one.
fn current_interpreter() -> i64 {
    #[cfg(PyPy)]
    return 0;
    // SAFETY: the caller is attached to an interpreter.
    #[cfg(not(PyPy))]
    return unsafe { pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) };
}

/// Whether the library was imported by the main interpreter.
#[pyfunction]
pub(crate) fn is_main_interpreter() -> bool {
    SERVED.load(SeqCst) == 0
}
