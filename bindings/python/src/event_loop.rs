//! One event loop's side of the core: asyncio's, or the hub of greenlets. The ends of calls come when a descriptor that
//! the loop watches is readable, all that are there at once. No Python object leaves the loop's thread.

use std::{
    collections::HashMap,
    io::{PipeReader, PipeWriter, Read, Write, pipe},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use pyo3::prelude::*;
use redlock::ffi::{self, Outcome};

use crate::{calls::Calls, errors::Fallible};

/// The calls of one event loop. A loop of asyncio calls `drain` whenever `fileno()` is readable, a hub `ended`.
#[pyclass(frozen, extends = Calls, module = "redlock._native")]
pub(crate) struct Loop {
    calls: Arc<ffi::Calls>,
    /// For loops that do no round trips of their own.
    pipe: Option<Py<Pipe>>,
    /// How calls of greenlets ended, until these go on.
    ended: Mutex<HashMap<u64, Outcome>>,
}

/// Where a loop that does no round trips of its own is told that there is something to drain.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Pipe {
    woken: PipeReader,
    wake: Arc<PipeWriter>,
    stopped: AtomicBool,
}

#[pymethods]
impl Pipe {
    /// Blocks until there is something to drain, for loops that cannot watch a pipe. False after `stop`.
    fn wait(&self, py: Python<'_>) -> bool {
        let read = py.detach(|| (&self.woken).read(&mut [0; 64]));
        read.is_ok() && !self.stopped.load(SeqCst)
    }

    /// Ends `wait`.
    fn stop(&self) {
        self.stopped.store(true, SeqCst);
        let _ = (&*self.wake).write(&[1]);
    }
}

impl Loop {
    pub(crate) fn calls(&self) -> &ffi::Calls {
        &self.calls
    }

    /// How a greenlet's call ended; nothing before it did.
    pub(crate) fn take(&self, id: u64) -> Option<Outcome> {
        self.kept().remove(&id)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Outcome>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty(&self) {
        if let Some(pipe) = &self.pipe {
            // Not blocking: the event loop set it so.
            let _ = (&pipe.get().woken).read(&mut [0; 64]);
        }
    }
}

#[pymethods]
impl Loop {
    /// `hosted`: the loop watches `fileno()` itself, and so can do round trips of its own.
    #[new]
    fn new(py: Python<'_>, hosted: bool) -> Fallible<PyClassInitializer<Self>> {
        let (calls, pipe) = begin(hosted)?;
        let calls = Arc::new(calls);
        let pipe = pipe.map(|pipe| Py::new(py, pipe)).transpose()?;
        let own = Self { calls: calls.clone(), pipe, ended: Mutex::default() };
        Ok(PyClassInitializer::from(Calls::new(calls)).add_subclass(own))
    }

    /// What to watch for readability.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        #[cfg(target_os = "linux")]
        if let Some(fd) = self.calls.fd() {
            return fd.as_raw_fd();
        }
        self.pipe.as_ref().map_or(-1, |pipe| pipe.get().woken.as_raw_fd())
    }

    /// Nothing: loops elsewhere watch sockets alone, as far as they watch anything.
    #[cfg(not(unix))]
    fn fileno(&self) -> PyResult<i32> {
        let _ = self;
        Err(pyo3::exceptions::PyNotImplementedError::new_err("a pipe cannot be watched here"))
    }

    /// What tells that there is something to drain, for loops that cannot watch `fileno()`.
    #[getter]
    fn pipe(&self, py: Python<'_>) -> Option<Py<Pipe>> {
        Some(self.pipe.as_ref()?.clone_ref(py))
    }

    /// Has the tasks go on whose calls ended. Empties the pipe, unless who waits for it did.
    fn drain(slf: &Bound<'_, Self>, emptied: bool) -> Fallible<()> {
        let native = slf.get();
        if !emptied {
            native.empty();
        }
        let ended = native.calls.drain()?;
        Ok(Calls::end(slf.as_super(), ended)?)
    }

    /// For greenlets: the calls that ended. Whoever made them takes the results.
    fn ended(&self) -> Fallible<Vec<u64>> {
        self.empty();
        let results = self.calls.drain()?;
        let ids = results.iter().map(|(id, _)| *id).collect();
        self.kept().extend(results);
        Ok(ids)
    }
}

/// Calls, and what tells of their ends where the loop does no round trips of its own.
fn begin(hosted: bool) -> PyResult<(ffi::Calls, Option<Pipe>)> {
    #[cfg(target_os = "linux")]
    if hosted {
        return Ok((ffi::Calls::hosted()?, None));
    }
    let _ = hosted;
    let (woken, wake) = pipe()?;
    let wake = Arc::new(wake);
    let waker = wake.clone();
    let calls = ffi::Calls::new(move || {
        // One byte for each time the queue fills: the pipe is never full. It breaks when the loop is gone.
        let _ = (&*waker).write(&[1]);
    });
    Ok((calls, Some(Pipe { woken, wake, stopped: AtomicBool::new(false) })))
}
