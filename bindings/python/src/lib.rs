//! The native module `redlock._native`. It converts arguments, owners, errors and waiting between Python and the core.
//! The core decides what a lock does; the package `python/redlock` defines Python's API.
//!
//! The library's own threads never run Python: results go through a
//! [`CompletionQueue`](redlock::ffi::completions::CompletionQueue), events through a queue of their own, and blocking
//! calls wait detached from the interpreter.

mod arguments;
mod cached;
mod calls;
mod client;
mod errors;
mod event_loop;
mod events;
mod greenlets;
mod handles;
mod hub;
mod identity;
mod info;
mod interpreter;
mod lease;
mod lock;
mod owner;
mod pending;
mod results;
mod starters;
mod value;
mod waiting;

/// The native module of the package `redlock`. It is private, and changes without notice.
#[pyo3::pymodule(name = "_native", gil_used = false)]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::{
        calls::{Calls, Pending},
        client::close_all,
        event_loop::{Loop, Pipe},
        events::{end_events, next_events},
        handles::{Client, Lease},
        identity::Identity,
        info::{LockInfo, NodeStatus},
        interpreter::is_main_interpreter,
        lease::Lost,
        lock::{Blocks, Lock, Request},
        value::HeldValue,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::interpreter::claim(module.py())?;
        // Starts counting forks.
        redlock::process::fork::generation();
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
