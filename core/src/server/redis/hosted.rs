//! Connections that an event loop owns. The background makes them, since it can wait for a socket, and hands them over.

use std::{io, os::fd::OwnedFd, sync::Arc};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError, RedisResult,
    aio::MultiplexedConnection,
    io::tcp::socket2::{SockRef, TcpKeepalive},
};
use tokio::net::{TcpStream, UnixStream};

use super::{KEEPALIVE, connection::Ended};
use crate::process::{host_io, runtime};

/// Connects and logs in. Calls `ended` when the connection ends, at the latest when its event loop ends.
pub(super) async fn open(
    client: &Client,
    config: AsyncConnectionConfig,
    ended: impl FnOnce() + Send + 'static,
) -> RedisResult<MultiplexedConnection> {
    let info = client.get_connection_info();
    let connected = runtime::spawn_in_background(connect(info.addr().clone())).await;
    let gone = || RedisError::from((ErrorKind::Io, "no event loop runs this"));
    let socket = connected.ok_or_else(gone)??;
    let host = host_io::current().ok_or_else(gone)?;
    let stream = Arc::clone(&host).adopt(socket)?;
    let (connection, driver) = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await?;
    let ended = Ended::new(ended);
    host.spawn(Box::pin(async move {
        let _ended = ended;
        driver.await;
    }));
    Ok(connection)
}

async fn connect(address: ConnectionAddr) -> io::Result<OwnedFd> {
    match address {
        ConnectionAddr::Tcp(host, port) => {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
            Ok(stream.into_std()?.into())
        }
        ConnectionAddr::Unix(path) => Ok(UnixStream::connect(path).await?.into_std()?.into()),
        other => Err(io::Error::new(io::ErrorKind::Unsupported, other.to_string())),
    }
}
