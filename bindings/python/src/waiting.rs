//! Calls that wait for their result. A greenlet waits in its hub. Any other caller blocks, detached from the
//! interpreter so that other threads run; it handles signals every 50 ms.

use pyo3::prelude::*;
use redlock::ffi::{Operation, Value};

use crate::{
    errors::{Failure, Fallible},
    events,
    hub::Hub,
    owner,
    results::python,
};

/// The function that the core calls every 50 ms of a blocking call. Its error ends the call.
pub(crate) type Check<'a> = &'a mut dyn FnMut() -> Fallible<()>;

/// Runs a blocking call of the core.
pub(crate) fn blocking<T: Send>(py: Python<'_>, call: impl FnOnce(Check<'_>) -> Fallible<T> + Send) -> Fallible<T> {
    let main = owner::is_main_thread(py)?;
    py.detach(|| {
        call(&mut || {
            #[allow(clippy::redundant_closure_for_method_calls, reason = "the method alone is not general enough")]
            // Only the main thread runs signal handlers. Other threads do not attach before the call ends: they may be
            // daemon threads that are still in here when the interpreter ends.
            if main { Python::attach(|py| py.check_signals()).map_err(Failure::Python) } else { Ok(()) }
        })
    })
}

/// Makes a call of the core and waits for its result: a greenlet in its hub, any other caller blocked.
pub(crate) fn value(py: Python<'_>, operation: Operation<'_>) -> Fallible<Value> {
    events::ensure_logging(py, &operation)?;
    let value = match Hub::current(py)? {
        Some(hub) => hub.run(operation),
        None => blocking(py, |check| operation.block(check)),
    }?;
    if let Value::Lease(lease) = &value {
        // A signal may have come after the last check. Python would raise the exception of its handler once this call
        // has returned, and the caller would never receive the lease.
        py.check_signals().inspect_err(|_| lease.abandon())?;
    }
    Ok(value)
}

/// As `value`, with the result as a Python object.
pub(crate) fn run(py: Python<'_>, operation: Operation<'_>) -> Fallible<Py<PyAny>> {
    Ok(python(py, value(py, operation)?)?)
}
