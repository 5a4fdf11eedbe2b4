//! Calls that wait: a greenlet in its hub, everybody else blocked, which is detached from the interpreter, so that
//! other threads run, and deaf to signals for 50 ms at most.

use pyo3::prelude::*;
use redlock::ffi::{Operation, Value};

use crate::{
    calls::python,
    errors::{Failure, Fallible},
    events,
    greenlets::Hub,
    owner,
};

/// What the core runs every 50 ms of a blocking call, and what may end it.
pub(crate) type Check<'a> = &'a mut dyn FnMut() -> Fallible<()>;

/// Runs a blocking call of the core.
pub(crate) fn blocking<T: Send>(py: Python<'_>, call: impl FnOnce(Check<'_>) -> Fallible<T> + Send) -> Fallible<T> {
    let main = owner::is_main_thread(py)?;
    py.detach(|| {
        call(&mut || {
            #[allow(clippy::redundant_closure_for_method_calls, reason = "the method alone is not general enough")]
            // Only the main thread runs signal handlers. Others do not come back to the interpreter before they are
            // done: daemon threads may be in here when it ends.
            if main { Python::attach(|py| py.check_signals()).map_err(Failure::Python) } else { Ok(()) }
        })
    })
}

/// Makes a call of the core and waits for its end: a greenlet in its hub, everybody else blocked.
pub(crate) fn value(py: Python<'_>, operation: Operation<'_>) -> Fallible<Value> {
    events::attend_to(py, &operation)?;
    match Hub::current(py)? {
        Some(hub) => hub.run(operation),
        None => blocking(py, |check| operation.block(check)),
    }
}

/// `value`, as Python's.
pub(crate) fn run(py: Python<'_>, operation: Operation<'_>) -> Fallible<Py<PyAny>> {
    Ok(python(py, value(py, operation)?)?)
}
