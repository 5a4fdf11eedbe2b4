//! A program that listens on a port and is no Redis.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::{AbortHandle, JoinSet},
};

use crate::{RUNTIME, port::Port};

/// The answer of a web server to a request of another protocol.
pub const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";

/// A listener with one answer to everything. Dropping it ends all its connections.
#[derive(Debug)]
pub struct Stub {
    port: Port,
    task: AbortHandle,
}

impl Stub {
    /// Sends `answer` in reply to the first request of each connection, and closes the connection. Without an answer it
    /// never sends anything, and leaves connections open.
    pub fn start(answer: Option<&'static [u8]>) -> Self {
        let (port, listener) = Port::listen();
        listener.set_nonblocking(true).expect("a listener for tokio");
        let task = RUNTIME.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("a listener for tokio");
            // They end with this task.
            let (mut answered, mut silent) = (JoinSet::new(), Vec::new());
            while let Ok((mut stream, _)) = listener.accept().await {
                if let Some(answer) = answer {
                    answered.spawn(async move {
                        // With unread bytes the close would be a reset.
                        let _ = stream.read(&mut [0; 4096]).await;
                        // The client may be gone.
                        let _ = stream.write_all(answer).await;
                    });
                } else {
                    silent.push(stream);
                }
            }
        });
        Self { port, task: task.abort_handle() }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its URL with this scheme.
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.port())
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}
