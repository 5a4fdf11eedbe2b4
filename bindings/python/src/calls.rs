//! The calls of the core that a loop may begin, one line for each, and how they end. They return their end or an id.

use std::sync::Arc;

use pyo3::{IntoPyObjectExt, prelude::*};
use redlock::ffi::{
    self,
    Operation::{
        self, Acquire, Attach, Close, Extend, ForceRelease, InitNodes, Inspect, IsValueThere, Leave, Locked, Lost,
        Ping, Release, ReleaseNewest, ReleaseValue, RetimeValue,
    },
    Outcome, Value,
    completions::Started,
};

use crate::{
    arguments,
    client::Client,
    errors::{Fallible, instance},
    events,
    info::{LockInfo, NodeStatus},
    lease::Lease,
    lock::{Lock, Request},
    owner::Caller,
    value::HeldValue,
};

/// The value of a call, and the exception it ended with instead.
pub(crate) type End = (Option<Py<PyAny>>, Option<Py<PyAny>>);

pub(crate) fn python(py: Python<'_>, value: Value) -> PyResult<Py<PyAny>> {
    match value {
        Value::Flag(flag) => flag.into_py_any(py),
        Value::Lease(lease) => Lease::new(lease).into_py_any(py),
        Value::Released(how) => how.into_py_any(py),
        Value::Info(Some(known)) => LockInfo::from(known).into_py_any(py),
        Value::Nodes(nodes) => nodes.into_iter().map(NodeStatus::from).collect::<Vec<_>>().into_py_any(py),
        Value::Lost(reason) => reason.is_some().into_py_any(py),
        Value::Nothing | Value::Info(None) | Value::Events(_) => Ok(py.None()),
    }
}

/// What cannot be made ends its own call, and no other.
pub(crate) fn end(py: Python<'_>, outcome: Outcome) -> End {
    let made = match outcome {
        Ok(value) => python(py, value).map(|value| (Some(value), None)),
        Err(error) => instance(py, &error).map(|error| (None, Some(error.unbind()))),
    };
    made.unwrap_or_else(|error| (None, Some(error.into_value(py).into_any())))
}

/// Where calls begin.
#[pyclass(frozen, subclass, module = "redlock._native")]
pub(crate) struct Calls {
    pub(crate) core: Arc<ffi::Calls>,
}

impl Calls {
    fn start(&self, py: Python<'_>, operation: Operation<'_>) -> Fallible<Py<PyAny>> {
        events::attend_to(py, &operation)?;
        Ok(match self.core.start(operation)? {
            Started::Pending(id) => id.into_py_any(py)?,
            Started::Done(outcome) => end(py, outcome).into_py_any(py)?,
        })
    }
}

/// Methods that start a call: what each is given, and which operation that makes.
macro_rules! starters {
    ($py:ident: $($name:ident($($given:tt)*) => $operation:expr;)*) => {
        #[pymethods]
        impl Calls {
            $(
                fn $name(&self, $py: Python<'_>, $($given)*) -> Fallible<Py<PyAny>> {
                    self.start($py, $operation)
                }
            )*
        }
    };
}

starters! {
    py:
    acquire(lock: &Lock, request: &Request) => Acquire(lock.core(py)?, request.for_loop(py)?);
    release_newest(lock: &Lock) => ReleaseNewest(lock.core(py)?, Caller::current(py)?.owner);
    locked(lock: &Lock) => Locked(lock.core(py)?);
    inspect(lock: &Lock) => Inspect(lock.core(py)?);
    release(lease: &Lease) => Release(&lease.core);
    leave(lease: &Lease) => Leave(&lease.core);
    extend(lease: &Lease, ttl: &Bound<'_, PyAny>) => Extend(&lease.core, arguments::duration("ttl", ttl)?);
    lost(lease: &Lease) => Lost(&lease.core, None);
    release_value(value: &HeldValue) => ReleaseValue(&value.core);
    retime_value(value: &HeldValue, how: &str, millis: i64) => RetimeValue(&value.core, how.parse()?, millis);
    is_value_there(value: &HeldValue) => IsValueThere(&value.core);
    ping(client: &Client) => Ping(&client.core);
    force_release(client: &Client, name: &Bound<'_, PyAny>) => ForceRelease(&client.core, &arguments::name(name)?);
    init_nodes(client: &Client) => InitNodes(&client.core);
    attach(client: &Client, text: &str) => Attach(&client.core, text, Caller::current(py)?.owner);
    close(client: &Client) => Close(&client.core);
}
