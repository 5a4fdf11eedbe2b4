//! What is looked up in Python once. pyo3's own `import`, `get_or_init` and `intern!` let go of the interpreter in the
//! middle of it: a thread that forks then leaves its child a value that nobody will ever finish.

use pyo3::{prelude::*, sync::PyOnceLock};

/// Something of Python's, from when it was first needed.
pub(crate) struct Known<T = PyAny>(PyOnceLock<Py<T>>);

impl<T> Known<T> {
    pub(crate) const fn new() -> Self {
        Self(PyOnceLock::new())
    }

    pub(crate) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, T>> {
        self.0.get(py).map(|known| known.bind(py).clone())
    }

    /// `find` may run in several threads at once, and finds the same in all of them.
    pub(crate) fn or_find<'py>(
        &self,
        py: Python<'py>,
        find: impl FnOnce() -> PyResult<Bound<'py, T>>,
    ) -> PyResult<Bound<'py, T>> {
        if let Some(known) = self.get(py) {
            return Ok(known);
        }
        let found = find()?;
        // Attached from the beginning to the end.
        let _ = self.0.set(py, found.clone().unbind());
        Ok(found)
    }
}

impl Known {
    /// What a module has under a name.
    pub(crate) fn import<'py>(&self, py: Python<'py>, module: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.or_find(py, || py.import(module)?.getattr(name))
    }
}

/// A string as Python keeps it.
macro_rules! name {
    ($py:expr, $text:literal) => {{
        static NAME: $crate::known::Known<pyo3::types::PyString> = $crate::known::Known::new();
        NAME.or_find($py, || Ok(pyo3::types::PyString::intern($py, $text)))
    }};
}

pub(crate) use name;
