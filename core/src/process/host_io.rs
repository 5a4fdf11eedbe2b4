//! A host's event loop as servers see it: something that can own a socket, and run the task that reads it. Whoever drives
//! such a loop says so while its thread is inside.

use std::{cell::RefCell, io, os::fd::OwnedFd, sync::Arc};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connected socket that an event loop owns.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// An event loop that owns connections.
pub(crate) trait HostIo: Send + Sync {
    /// Notes which sockets are ready, also in the middle of a run.
    fn poll_sockets(&self);

    /// Owns a connected socket from now on.
    fn adopt(self: Arc<Self>, socket: OwnedFd) -> io::Result<Box<dyn Socket>>;

    /// Runs something until it ends, or the event loop does.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

thread_local! { static CURRENT: RefCell<Option<Arc<dyn HostIo>>> = const { RefCell::new(None) }; }

/// Whose calls this thread polls.
pub(crate) fn current() -> Option<Arc<dyn HostIo>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Has it poll those of this one, until what this returns is dropped.
pub(crate) fn enter(host: Arc<dyn HostIo>) -> Entered {
    Entered { before: CURRENT.replace(Some(host)) }
}

/// While it lives, this thread polls the calls of an event loop.
pub(crate) struct Entered {
    before: Option<Arc<dyn HostIo>>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}
