//! Caches Python objects that are looked up once. pyo3's own `import`, `get_or_init` and `intern!` release the GIL
//! while they initialise a value. If another thread forks in that moment, no thread of the child ever finishes the
//! value.

use pyo3::{prelude::*, sync::PyOnceLock};

/// A Python object that is looked up when it is first needed, and kept.
pub(crate) struct Cached<T = PyAny>(PyOnceLock<Py<T>>);

impl<T> Cached<T> {
    pub(crate) const fn new() -> Self {
        Self(PyOnceLock::new())
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, T>> {
        self.0.get(py).map(|known| known.bind(py).clone())
    }

    /// The object, which `find` looks up the first time. Several threads may run `find` at once: all must find the
    /// same.
    pub(crate) fn get_or_find<'py>(
        &self,
        py: Python<'py>,
        find: impl FnOnce() -> PyResult<Bound<'py, T>>,
    ) -> PyResult<Bound<'py, T>> {
        if let Some(known) = self.get(py) {
            return Ok(known);
        }
        let found = find()?;
        // This never detaches from the interpreter.
        let _ = self.0.set(py, found.clone().unbind());
        Ok(found)
    }
}

impl Cached {
    /// An attribute of a module.
    pub(crate) fn import<'py>(&self, py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.get_or_find(py, || py.import(module)?.getattr(name))
    }
}

/// An interned string.
macro_rules! name {
    ($py:expr, $text:literal) => {{
        static NAME: $crate::cached::Cached<pyo3::types::PyString> = $crate::cached::Cached::new();
        NAME.get_or_find($py, || Ok(pyo3::types::PyString::intern($py, $text)))
    }};
}

pub(crate) use name;
