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

use crate::{
    calls::{Calls, End, end},
    errors::Fallible,
};

/// The calls of one event loop. The loop calls `drain` whenever `fileno()` is readable, and `flush` at the end of each
/// of its turns that made a call which is pending.
#[pyclass(frozen, extends = Calls, module = "redlock._native")]
pub(crate) struct Loop {
    calls: Arc<ffi::Calls>,
    /// For loops that do no round trips of their own.
    pipe: Option<Pipe>,
    /// How calls of greenlets ended, until these go on.
    ended: Mutex<HashMap<u64, Outcome>>,
}

struct Pipe {
    woken: PipeReader,
    wake: Arc<PipeWriter>,
    stopped: AtomicBool,
}

impl Loop {
    /// With the calls that begin at it.
    fn of(calls: ffi::Calls, pipe: Option<Pipe>) -> PyClassInitializer<Self> {
        let calls = Arc::new(calls);
        let own = Self { calls: calls.clone(), pipe, ended: Mutex::default() };
        PyClassInitializer::from(Calls { core: calls }).add_subclass(own)
    }

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
            let _ = (&pipe.woken).read(&mut [0; 64]);
        }
    }
}

#[pymethods]
impl Loop {
    /// `hosted`: the loop watches `fileno()` itself, and so can do round trips of its own.
    #[new]
    fn new(hosted: bool) -> Fallible<PyClassInitializer<Self>> {
        #[cfg(target_os = "linux")]
        if hosted {
            return Ok(Self::of(ffi::Calls::hosted().map_err(PyErr::from)?, None));
        }
        let _ = hosted;
        let (woken, wake) = pipe().map_err(PyErr::from)?;
        let wake = Arc::new(wake);
        let waker = wake.clone();
        let calls = ffi::Calls::new(move || {
            // One byte for each time the queue fills: the pipe is never full. It breaks when the loop is gone.
            let _ = (&*waker).write(&[1]);
        });
        Ok(Self::of(calls, Some(Pipe { woken, wake, stopped: AtomicBool::new(false) })))
    }

    /// What to watch for readability.
    #[cfg(unix)]
    fn fileno(&self) -> i32 {
        use std::os::fd::AsRawFd;
        #[cfg(target_os = "linux")]
        if let Some(fd) = self.calls.fd() {
            return fd.as_raw_fd();
        }
        self.pipe.as_ref().map_or(-1, |pipe| pipe.woken.as_raw_fd())
    }

    /// Nothing: loops elsewhere watch sockets alone, as far as they watch anything.
    #[cfg(not(unix))]
    fn fileno(&self) -> PyResult<i32> {
        let _ = self;
        Err(pyo3::exceptions::PyNotImplementedError::new_err("a pipe cannot be watched here"))
    }

    /// Sends what was started.
    fn flush(&self) {
        #[cfg(not(target_os = "linux"))]
        let _ = self;
        #[cfg(target_os = "linux")]
        self.calls.flush();
    }

    /// The results that came. Empties the pipe, unless `wait` does.
    fn drain(&self, py: Python<'_>, emptied: bool) -> Fallible<Vec<(u64, End)>> {
        if !emptied {
            self.empty();
        }
        Ok(self.calls.drain()?.into_iter().map(|(id, outcome)| (id, end(py, outcome))).collect())
    }

    /// For greenlets: the calls that ended. Whoever made them takes the results.
    fn ended(&self) -> Fallible<Vec<u64>> {
        self.empty();
        let results = self.calls.drain()?;
        let ids = results.iter().map(|(id, _)| *id).collect();
        self.kept().extend(results);
        Ok(ids)
    }

    /// Blocks until there is something to drain, for loops that cannot watch a pipe. False after `stop`.
    fn wait(&self, py: Python<'_>) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let read = py.detach(|| (&pipe.woken).read(&mut [0; 64]));
        read.is_ok() && !pipe.stopped.load(SeqCst)
    }

    /// Ends `wait`.
    fn stop(&self) {
        if let Some(pipe) = &self.pipe {
            pipe.stopped.store(true, SeqCst);
            let _ = (&*pipe.wake).write(&[1]);
        }
    }

    /// Gives up a call whose result was not drained. An acquire leaves nothing behind; what must not be cut short, such
    /// as a release, goes on.
    fn abandon(&self, id: u64) {
        self.calls.abandon(id);
    }
}
