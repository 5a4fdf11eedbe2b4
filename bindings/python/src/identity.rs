//! The identity of a thread, a task or a greenlet, by which the core knows an owner. `owner.rs` finds that of the caller.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pyo3::prelude::*;

use crate::cached::name;

/// The identity of a thread, a task or a greenlet. The locks that it holds are renewed while this object lives.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Identity {
    pub(crate) number: u64,
    pub(crate) identity: redlock::Identity,
}

#[pymethods]
impl Identity {
    #[new]
    pub(crate) fn new() -> Self {
        // Never reused, unlike a thread's id.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, Relaxed), identity: redlock::Identity::new() }
    }

    /// Called when its task is done. A task that has ended owns nothing, even while the program keeps it for its
    /// result.
    #[allow(clippy::unused_self, reason = "a method of Python's")]
    #[pyo3(signature = (task, /))]
    fn __call__(&self, task: &Bound<'_, PyAny>) -> PyResult<()> {
        task.delattr(name!(task.py(), "_redlock_identity")?)
    }
}
