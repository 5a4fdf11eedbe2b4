//! Calls that wait: a greenlet in its hub, everybody else blocked, which is detached from the interpreter, so that
//! other threads run, and deaf to signals for 50 ms at most.

use std::future::Future;

use pyo3::prelude::*;
use redlock::{
    LockError, LostReason,
    ffi::{Call, Calls, Value},
    process::{
        driver::Driver,
        runtime::{self, Interrupted},
    },
};

use crate::{
    errors::{Failure, Fallible},
    event_loop::python,
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

/// Blocks until a future of the core is done. `name` is what it is about, should the process fork meanwhile.
pub(crate) fn until<T>(check: Check<'_>, name: &str, future: impl Future<Output = T>) -> Fallible<T> {
    runtime::block(Driver::Background, future, check).map_err(|interrupted| match interrupted {
        Interrupted::Check(failure) => failure,
        Interrupted::Forked => LockError::Lost { name: name.to_owned(), reason: LostReason::Forked }.into(),
    })
}

/// Runs a call of the core to its end: begun for a greenlet, which waits in its hub, blocking for everybody else.
pub(crate) fn run(
    py: Python<'_>,
    name: &str,
    begin: impl FnOnce(&Calls) -> Result<Call, LockError>,
    block: impl FnOnce(Check<'_>) -> Fallible<Value> + Send,
) -> Fallible<Py<PyAny>> {
    let value = match Hub::current(py)? {
        Some(hub) => hub.run(name, begin)?,
        None => blocking(py, block)?,
    };
    Ok(python(py, value)?)
}
