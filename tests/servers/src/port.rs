//! Free ports of 127.0.0.1. A test needs its port for longer than a program listens on it: a server that is stopped
//! must come back on the same port, and nobody may listen on the port of a server that is gone.
//!
//! So the owner of a TCP port holds the UDP port with the same number, which nobody uses. The tests of all languages do
//! the same, and thus never take each other's ports.

use std::net::{TcpListener, UdpSocket};

/// Below the ports that the kernel takes for outgoing connections. It could take a port in that range while the server
/// is stopped, a client could connect to itself there, and thousands of ended connections can use up the range.
const RANGE: std::ops::Range<u16> = 10_000..32_000;

/// A port that no other test uses until this value is dropped.
#[derive(Debug)]
pub struct Port {
    number: u16,
    /// The claim.
    _beside: UdpSocket,
}

impl Port {
    /// Claims a port on which nobody listens.
    pub fn free() -> Self {
        Self::listen().0
    }

    /// Claims a port, and listens on it.
    pub fn listen() -> (Self, TcpListener) {
        loop {
            let number = fastrand::u16(RANGE);
            // Other programs listen without a claim.
            if let Ok(beside) = UdpSocket::bind(("127.0.0.1", number))
                && let Ok(listener) = TcpListener::bind(("127.0.0.1", number))
            {
                return (Self { number, _beside: beside }, listener);
            }
        }
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_port_is_free_for_its_owner_only() {
        let port = Port::free();
        assert!(UdpSocket::bind(("127.0.0.1", port.number())).is_err());
        assert!(TcpListener::bind(("127.0.0.1", port.number())).is_ok());
    }
}
