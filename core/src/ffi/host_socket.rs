//! A socket that a host's own threads read and write. The host's [`Reactor`](super::reactor::Reactor) watches it, and
//! notes here what it is ready for.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, ready},
};

use futures_util::task::AtomicWaker;
use rustix::{
    event::epoll,
    net::{RecvFlags, SendFlags, recv, send},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a socket is known to be ready for.
#[derive(Default)]
pub(super) struct Readiness {
    /// The other side is done: there is an end to be read behind what there is now, and nothing else will tell of it.
    over: AtomicBool,
    readable: AtomicBool,
    writable: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl Readiness {
    pub(super) fn note(&self, flags: epoll::EventFlags) {
        let over = epoll::EventFlags::ERR | epoll::EventFlags::HUP | epoll::EventFlags::RDHUP;
        if flags.intersects(over) {
            self.over.store(true, SeqCst);
        }
        if flags.intersects(epoll::EventFlags::IN | over) {
            self.readable.store(true, SeqCst);
            self.reader.wake();
        }
        if flags.intersects(epoll::EventFlags::OUT | over) {
            self.writable.store(true, SeqCst);
            self.writer.wake();
        }
    }
}

/// A connected socket, registered edge-triggered. `forget` runs when it is dropped.
pub(super) struct HostSocket<F: FnMut()> {
    socket: OwnedFd,
    ready: Arc<Readiness>,
    forget: F,
}

impl<F: FnMut()> HostSocket<F> {
    pub(super) fn new(socket: OwnedFd, ready: Arc<Readiness>, forget: F) -> Self {
        Self { socket, ready, forget }
    }
}

impl<F: FnMut()> AsFd for HostSocket<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl<F: FnMut()> Drop for HostSocket<F> {
    fn drop(&mut self) {
        (self.forget)();
    }
}

/// Tries something as long as the socket is ready for it.
fn attempt<T>(
    context: &Context<'_>,
    (ready, waker): (&AtomicBool, &AtomicWaker),
    mut work: impl FnMut() -> rustix::io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        if !ready.load(SeqCst) {
            waker.register(context.waker());
            // It may have become ready before the waker was there.
            if !ready.load(SeqCst) {
                return Poll::Pending;
            }
        }
        match work() {
            Ok(done) => return Poll::Ready(Ok(done)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready.store(false, SeqCst),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}

impl<F: FnMut() + Unpin> AsyncRead for HostSocket<F> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = into.remaining();
        let ready = (&self.ready.readable, &self.ready.reader);
        let count = ready!(attempt(context, ready, || {
            recv(&self.socket, into.initialize_unfilled(), RecvFlags::empty()).map(|(_, count)| count)
        }))?;
        into.advance(count);
        if 0 < count && count < room && !self.ready.over.load(SeqCst) {
            // Drained; when more comes there is another event.
            self.ready.readable.store(false, SeqCst);
        }
        Poll::Ready(Ok(()))
    }
}

impl<F: FnMut() + Unpin> AsyncWrite for HostSocket<F> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let ready = (&self.ready.writable, &self.ready.writer);
        attempt(context, ready, || send(&self.socket, bytes, SendFlags::NOSIGNAL))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Closed with the descriptor.
        Poll::Ready(Ok(()))
    }
}
