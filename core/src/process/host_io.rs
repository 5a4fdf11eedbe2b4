//! The interface between a host's event loop and the connections: it can own a socket, and run the task that reads it.
//! A thread that runs such a loop makes it the current one, so that connections find it.

use std::{cell::RefCell, io, os::fd::OwnedFd, sync::Arc};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connected socket that an event loop owns.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// An event loop that owns connections.
pub(crate) trait HostIo: Send + Sync {
    /// Notes which sockets are ready. May be called in the middle of a run.
    fn poll_sockets(&self);

    /// Takes over a connected socket.
    fn adopt(self: Arc<Self>, socket: OwnedFd) -> io::Result<Box<dyn Socket>>;

    /// Runs a task until it or the event loop ends.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

thread_local! { static CURRENT: RefCell<Option<Arc<dyn HostIo>>> = const { RefCell::new(None) }; }

/// The event loop whose calls this thread polls.
pub(crate) fn current() -> Option<Arc<dyn HostIo>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Notes that this thread polls the calls of `host`, until the returned guard is dropped.
pub(crate) fn set_current(host: Arc<dyn HostIo>) -> CurrentGuard {
    CurrentGuard { before: CURRENT.replace(Some(host)) }
}

/// Restores the previous state of the thread when it is dropped.
pub(crate) struct CurrentGuard {
    before: Option<Arc<dyn HostIo>>,
}

impl Drop for CurrentGuard {
    fn drop(&mut self) {
        CURRENT.replace(self.before.take());
    }
}
