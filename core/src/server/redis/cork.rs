//! Requests that are made at about the same time leave in one write. The driver of a connection is woken by the first of
//! them, and would write it at once: a system call for each, and one more for the server to read it. So it lets every
//! task run first that is ready to.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use redis::{AsyncConnectionConfig, Client, ConnectionAddr, RedisResult, aio::MultiplexedConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::dial;

/// Connects and logs in; driven by the runtime this runs on. TLS gathers what it writes by itself.
pub(super) async fn open(client: &Client, config: AsyncConnectionConfig) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info();
    let stream: Box<dyn Stream> = match info.addr() {
        ConnectionAddr::Tcp(host, port) => Box::new(dial::tcp(host, *port).await?),
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Box::new(dial::unix(path).await?),
        _ => return client.get_multiplexed_async_connection_with_config(&config).await,
    };
    let (connection, driver) =
        MultiplexedConnection::new_with_config(info.redis_settings(), Corked::new(stream), config).await?;
    // Ends with the last handle of the connection.
    tokio::spawn(driver);
    Ok(connection)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that writes what was written to it when it is flushed, one scheduler pass later.
pub(super) struct Corked<S> {
    stream: S,
    gathered: Vec<u8>,
    /// How much of it is written.
    written: usize,
    /// Whether all others that were ready have run since there was something to write.
    yielded: bool,
}

impl<S: AsyncWrite + Unpin> Corked<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, gathered: Vec::new(), written: 0, yielded: false }
    }

    fn poll_write_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.gathered.len() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.gathered[self.written..]))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += written;
        }
        self.gathered.clear();
        (self.written, self.yielded) = (0, false);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Corked<S> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // Bounded by how many requests may be unanswered.
        self.gathered.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.gathered.is_empty() && !self.yielded {
            self.yielded = true;
            // A task that wakes itself gets behind all others.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_write_out(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_out(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Corked<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Keeps each write apart, and takes a few bytes at a time.
    #[derive(Clone, Default)]
    struct Socket(Arc<Mutex<Vec<Vec<u8>>>>);

    impl AsyncWrite for Socket {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let some = bytes.len().min(8);
            self.0.lock().unwrap().push(bytes[..some].to_vec());
            Poll::Ready(Ok(some))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_others_write_meanwhile_leaves_with_it_and_in_order() {
        let socket = Socket::default();
        let corked = Arc::new(tokio::sync::Mutex::new(Corked::new(socket.clone())));
        let writers: Vec<_> = (0..3)
            .map(|number| {
                let corked = corked.clone();
                tokio::spawn(async move { corked.lock().await.write_all(&[b'a' + number; 2]).await.unwrap() })
            })
            .collect();
        // It is polled first, and lets the others run before it writes.
        corked.lock().await.write_all(b"-").await.unwrap();
        let flushed = std::future::poll_fn(|cx| {
            let Ok(mut corked) = corked.try_lock() else { return Poll::Pending };
            Pin::new(&mut *corked).poll_flush(cx)
        });
        flushed.await.unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(*socket.0.lock().unwrap(), [b"-aabbcc".to_vec()]);

        // More than a socket takes at once.
        let mut corked = corked.lock().await;
        corked.write_all(b"0123456789").await.unwrap();
        corked.flush().await.unwrap();
        assert_eq!(socket.0.lock().unwrap()[1..], [b"01234567".to_vec(), b"89".to_vec()]);
        corked.write_all(b"end").await.unwrap();
        corked.shutdown().await.unwrap();
        assert_eq!(socket.0.lock().unwrap().last().unwrap(), b"end");
    }
}
