//! Which interpreter of this process is served: the one that imported the library first. What is kept in statics, here and
//! in pyo3, are objects of one interpreter; in another its exceptions would not be caught, its tasks not be known.
#![allow(unsafe_code, reason = "pyo3 has no safe function for the number of an interpreter")]

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use pyo3::{exceptions::PyImportError, ffi, prelude::*};

/// Its number. That of the main one is 0.
static SERVED: AtomicI64 = AtomicI64::new(-1);

/// Refuses every interpreter but the first. There is no second one after it, either: what it left stays.
pub(crate) fn claim(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached to an interpreter.
    let current = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match SERVED.compare_exchange(-1, current, SeqCst, SeqCst) {
        Err(served) if served != current => Err(PyImportError::new_err(
            "redlock serves one interpreter of a process, and another has imported it: let this one be the main \
             interpreter (mod_wsgi: WSGIApplicationGroup %{GLOBAL}), or give it a process of its own",
        )),
        _ => Ok(()),
    }
}

/// Whether that is the main one.
#[pyfunction]
pub(crate) fn is_main_interpreter() -> bool {
    SERVED.load(SeqCst) == 0
}
