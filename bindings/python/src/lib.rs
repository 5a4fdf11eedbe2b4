//! The Python layer: `redlock._native`. It turns Python's arguments, owners, errors and waiting into the core's; what a
//! lock does is decided in the core, how Python spells it in the package `python/redlock`.
//!
//! The library's own threads never run Python: results go through a
//! [`CompletionQueue`](redlock::ffi::completions::CompletionQueue), events through a queue of their own, and blocking calls
//! wait detached from the interpreter.

mod arguments;
mod calls;
mod client;
mod errors;
mod event_loop;
mod events;
mod greenlets;
mod info;
mod interpreter;
mod known;
mod lease;
mod lock;
mod owner;
mod pending;
mod value;
mod waiting;

/// `redlock._native`, the core as the Python package uses it. Not an interface: it changes without notice.
#[pyo3::pymodule(name = "_native", gil_used = false)]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        calls::Calls,
        client::{Client, close_all},
        event_loop::{Loop, Pipe},
        events::{end_events, next_events},
        info::{LockInfo, NodeStatus},
        interpreter::is_main_interpreter,
        lease::{Lease, Lost},
        lock::{Lock, Request},
        owner::Identity,
        pending::Pending,
        value::HeldValue,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::interpreter::claim(module.py())?;
        // Forks are counted from here on.
        redlock::process::fork::generation();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
