//! The methods of `Calls`: one for each call of the core that an event loop can start.

use pyo3::{PyTraverseError, PyVisit, prelude::*};
use redlock::ffi::Operation::{
    self, Acquire, Attach, Available, Close, Downgrade, Extend, ForceRelease, InitNodes, Inspect, IsValueThere, Leave,
    Locked, Lost, Ping, Release, ReleaseNewest, ReleaseValue, RetimeValue, TryUpgrade,
};

use crate::{
    arguments,
    calls::{Calls, Pending},
    errors::Fallible,
    events,
    handles::{Client, Lease},
    lock::{Lock, Request},
    owner::Caller,
    value::HeldValue,
};

/// Starts a call that a coroutine awaits.
fn start<'py>(py: Python<'py>, operation: Operation<'_>) -> Fallible<Bound<'py, Pending>> {
    events::ensure_logging(py, &operation)?;
    Calls::start(py, operation)
}

/// Defines the methods of `Calls`. Each line defines a method that starts a call: its name, its arguments, and the
/// operation that it starts.
macro_rules! starters {
    ($py:ident: $($name:ident($($given:tt)*) => $operation:expr;)*) => {
        #[pymethods]
        impl Calls {
            $(
                #[staticmethod]
                fn $name<'py>($py: Python<'py>, $($given)*) -> Fallible<Bound<'py, Pending>> {
                    start($py, $operation)
                }
            )*

            /// Sends the calls that were started in this turn.
            fn flush(&self) {
                self.send();
            }

            /// Resumes all tasks whose calls have ended.
            fn go_on(&self, py: Python<'_>) -> PyResult<()> {
                self.resume(py)
            }

            fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
                self.traverse(visit)
            }

            fn __clear__(&self) {
                self.clear();
            }
        }
    };
}

starters! {
    py:
    acquire(lock: &Lock, request: &Request) => Acquire(lock.core(py)?, request.for_loop(py)?);
    release_newest(lock: &Lock, request: &Request) => ReleaseNewest(lock.core(py)?, request.for_loop(py)?.owner);
    locked(lock: &Lock) => Locked(lock.core(py)?);
    inspect(lock: &Lock) => Inspect(lock.core(py)?);
    available(lock: &Lock) => Available(lock.core(py)?);
    release(lease: &Lease) => Release(&lease.core);
    leave(lease: &Lease) => Leave(&lease.core);
    extend(lease: &Lease, ttl: &Bound<'_, PyAny>) => Extend(&lease.core, arguments::duration("ttl", ttl)?);
    downgrade(lease: &Lease) => Downgrade(&lease.core);
    try_upgrade(lease: &Lease) => TryUpgrade(&lease.core);
    lost(lease: &Lease) => Lost(&lease.core, None);
    release_value(value: &HeldValue) => ReleaseValue(&value.core);
    retime_value(value: &HeldValue, how: &str, millis: i64) => RetimeValue(&value.core, how.parse()?, millis);
    is_value_there(value: &HeldValue) => IsValueThere(&value.core);
    ping(client: &Client) => Ping(&client.core);
    force_release(client: &Client, name: &Bound<'_, PyAny>) => ForceRelease(&client.core, &arguments::name(name)?);
    init_nodes(client: &Client) => InitNodes(&client.core);
    attach(client: &Client, text: &Bound<'_, PyAny>) => Attach(
        &client.core, &arguments::text(text)?, Caller::current(py)?.owner
    );
    close(client: &Client) => Close(&client.core);
}
