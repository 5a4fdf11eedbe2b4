//! A socket that a host's own threads read and write. The host's [`Reactor`](super::reactor::Reactor) watches it, and
//! notes its readiness here.

use std::{
    io::{self, ErrorKind},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::task::AtomicWaker;
use rustix::{
    event::epoll,
    net::{RecvFlags, SendFlags, recv, send},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The known readiness of a socket. Any thread may note readiness, also while another reads or writes.
#[derive(Default)]
pub(crate) struct Readiness {
    /// The peer has closed: an end of file or an error follows the bytes that are there now. epoll does not report it
    /// again.
    over: AtomicBool,
    read: Direction,
    write: Direction,
}

impl Readiness {
    pub(crate) fn note(&self, flags: epoll::EventFlags) {
        let over = epoll::EventFlags::ERR | epoll::EventFlags::HUP | epoll::EventFlags::RDHUP;
        if flags.intersects(over) {
            // Set first: the reader checks it as soon as it is woken.
            self.over.store(true, SeqCst);
        }
        if flags.intersects(epoll::EventFlags::IN | over) {
            self.read.note();
        }
        if flags.intersects(epoll::EventFlags::OUT | over) {
            self.write.note();
        }
    }
}

/// Reading or writing, for one task at a time.
#[derive(Default)]
struct Direction {
    ready: AtomicBool,
    waker: AtomicWaker,
}

impl Direction {
    fn note(&self) {
        self.ready.store(true, SeqCst);
        self.waker.wake();
    }

    /// Runs a system call if the socket is ready for it. `drained` is true if this result used the readiness up.
    ///
    /// Takes the readiness before the call and, unless the call used it up, puts it back. Clearing it after the call
    /// could erase a readiness that another thread noted in between, and epoll reports each one only once.
    fn attempt<T>(
        &self,
        context: &Context<'_>,
        mut call: impl FnMut() -> rustix::io::Result<T>,
        drained: impl Fn(&T) -> bool,
    ) -> Poll<io::Result<T>> {
        loop {
            if !self.ready.swap(false, SeqCst) {
                self.waker.register(context.waker());
                // It may have become ready before the waker was there.
                if !self.ready.swap(false, SeqCst) {
                    return Poll::Pending;
                }
            }
            let result = call();
            let drained = match &result {
                Ok(done) => drained(done),
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            };
            if !drained {
                self.ready.store(true, SeqCst);
            }
            match result {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                result => return Poll::Ready(result.map_err(Into::into)),
            }
        }
    }
}

/// A connected socket, registered edge-triggered. `forget` runs when it is dropped.
pub(crate) struct HostSocket<F: FnMut()> {
    socket: OwnedFd,
    ready: Arc<Readiness>,
    forget: F,
}

impl<F: FnMut()> HostSocket<F> {
    pub(crate) fn new(socket: OwnedFd, ready: Arc<Readiness>, forget: F) -> Self {
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

impl<F: FnMut() + Unpin> AsyncRead for HostSocket<F> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let room = into.remaining();
        let read = || recv(&self.socket, into.initialize_unfilled(), RecvFlags::empty()).map(|(_, count)| count);
        // After a short read epoll reports the next bytes, but not an end that it has reported already.
        let drained = |count: &usize| (1..room).contains(count) && !self.ready.over.load(SeqCst);
        let count = ready!(self.ready.read.attempt(context, read, drained))?;
        into.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<F: FnMut() + Unpin> AsyncWrite for HostSocket<F> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.ready.write.attempt(context, || send(&self.socket, bytes, SendFlags::NOSIGNAL), |_| false)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Dropping the descriptor closes the socket.
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use rustix::io::Errno;

    use super::*;

    const READABLE: epoll::EventFlags = epoll::EventFlags::IN;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    /// Another thread notes readiness after a read found nothing, but before that read returns.
    #[test]
    fn readiness_noted_during_a_call_in_vain_is_kept() {
        let ready = Readiness::default();
        ready.note(READABLE);
        let mut calls = 0;
        let read = ready.read.attempt(
            &context(),
            || {
                calls += 1;
                if calls == 1 {
                    ready.note(READABLE);
                    return Err(Errno::AGAIN);
                }
                Ok(())
            },
            |()| true,
        );
        assert!(matches!(read, Poll::Ready(Ok(()))), "the readiness is forgotten");
        assert_eq!(calls, 2);
    }

    /// The same with a read that did not fill its buffer.
    #[test]
    fn readiness_noted_during_a_short_read_is_kept() {
        let ready = Readiness::default();
        ready.note(READABLE);
        for noted in [true, false] {
            let read = ready.read.attempt(
                &context(),
                || {
                    if noted {
                        ready.note(READABLE);
                    }
                    Ok(())
                },
                |()| true,
            );
            assert!(read.is_ready(), "the readiness is forgotten");
        }
        let read = ready.read.attempt(&context(), || -> rustix::io::Result<()> { unreachable!() }, |()| true);
        assert!(read.is_pending(), "nothing was noted since the last read");
    }

    /// If a call leaves bytes to read or write, the next call runs without a further event.
    #[test]
    fn readiness_that_is_not_used_up_stays() {
        let ready = Readiness::default();
        ready.note(READABLE);
        let results = [Err(Errno::INTR), Ok(1), Err(Errno::CONNRESET), Ok(2), Err(Errno::AGAIN)];
        let mut results = results.into_iter();
        let mut read = || ready.read.attempt(&context(), || results.next().expect("one for each call"), |_| false);
        assert!(matches!(read(), Poll::Ready(Ok(1))));
        assert!(matches!(read(), Poll::Ready(Err(_))));
        assert!(matches!(read(), Poll::Ready(Ok(2))));
        assert!(read().is_pending());
    }
}
