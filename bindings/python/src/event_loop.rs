//! Connects an event loop to the core: a loop of asyncio, or a hub of greenlets. The loop watches one descriptor. When
//! it is readable, the loop takes the results of all calls that have ended. No Python object leaves the loop's thread.

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

/// The calls of one event loop. When `fileno()` is readable, a loop of asyncio calls `drain`, and a hub calls `ended`.
#[pyclass(frozen, extends = Calls, module = "redlock._native")]
pub(crate) struct Loop {
    calls: Arc<ffi::Calls>,
    /// Readable when there are results, for loops that make no round trips themselves.
    pipe: Option<Py<Pipe>>,
    /// The results of greenlets' calls, until the greenlets take them.
    ended: Mutex<HashMap<u64, Outcome>>,
}

/// Wakes a loop that makes no round trips itself, when there are results to drain.
#[pyclass(frozen, module = "redlock._native")]
pub(crate) struct Pipe {
    woken: PipeReader,
    wake: Arc<PipeWriter>,
    stopped: AtomicBool,
}

#[pymethods]
impl Pipe {
    /// Blocks until there are results to drain, for loops that cannot watch a pipe. Returns False after `stop`.
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

    /// Takes the result of a greenlet's call; `None` if it has not ended.
    pub(crate) fn take(&self, id: u64) -> Option<Outcome> {
        self.kept().remove(&id)
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<u64, Outcome>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty(&self) {
        if let Some(pipe) = &self.pipe {
            // Does not block: the event loop made the descriptor non-blocking.
            let _ = (&pipe.get().woken).read(&mut [0; 64]);
        }
    }
}

#[pymethods]
impl Loop {
    /// `hosted`: the loop watches `fileno()` itself, and so can make round trips itself.
    #[new]
    fn new(py: Python<'_>, hosted: bool) -> Fallible<PyClassInitializer<Self>> {
        let (calls, pipe) = begin(hosted)?;
        let calls = Arc::new(calls);
        let pipe = pipe.map(|pipe| Py::new(py, pipe)).transpose()?;
        let own = Self { calls: calls.clone(), pipe, ended: Mutex::default() };
        Ok(PyClassInitializer::from(Calls::new(calls)).add_subclass(own))
    }

    /// The descriptor that the loop watches for readability.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        #[cfg(target_os = "linux")]
        if let Some(fd) = self.calls.fd() {
            return fd.as_raw_fd();
        }
        self.pipe.as_ref().map_or(-1, |pipe| pipe.get().woken.as_raw_fd())
    }

    /// Raises `NotImplementedError`: outside Unix, loops watch sockets at most.
    #[cfg(not(unix))]
    fn fileno(&self) -> PyResult<i32> {
        let _ = self;
        Err(pyo3::exceptions::PyNotImplementedError::new_err("a pipe cannot be watched here"))
    }

    /// The pipe to wait for, for loops that cannot watch `fileno()`.
    #[getter]
    fn pipe(&self, py: Python<'_>) -> Option<Py<Pipe>> {
        Some(self.pipe.as_ref()?.clone_ref(py))
    }

    /// Resumes the tasks whose calls have ended. Empties the pipe, unless `Pipe.wait` has `emptied` it.
    fn drain(slf: &Bound<'_, Self>, emptied: bool) -> Fallible<()> {
        let native = slf.get();
        if !emptied {
            native.empty();
        }
        let ended = native.calls.drain()?;
        Ok(Calls::end(slf.as_super(), ended)?)
    }

    /// For greenlets: the ids of the calls that have ended. The greenlets that made them take the results.
    fn ended(&self) -> Fallible<Vec<u64>> {
        self.empty();
        let results = self.calls.drain()?;
        let ids = results.iter().map(|(id, _)| *id).collect();
        self.kept().extend(results);
        Ok(ids)
    }
}

/// Makes the calls of a loop, and the pipe of a loop that makes no round trips itself.
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
        // One byte each time the queue is no longer empty, so the pipe is never full. Fails if the loop is gone.
        let _ = (&*waker).write(&[1]);
    });
    Ok((calls, Some(Pipe { woken, wake, stopped: AtomicBool::new(false) })))
}
