//! A socket to a server, as all connections have it.

use std::io;
#[cfg(unix)]
use std::path::Path;

use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::KEEPALIVE;

pub(super) async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    SockRef::from(&stream).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE))?;
    Ok(stream)
}

#[cfg(unix)]
pub(super) async fn unix(path: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(path).await
}
