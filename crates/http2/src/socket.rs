//! Sockets of connections: TCP or Unix, with or without TLS; dispatched once per IO operation,
//! never per request.

use std::io;
use std::{net, os::unix};

use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::registry::Registration;

/// An accepted connection that belongs to no runtime yet.
#[derive(Debug)]
pub struct Accepted {
    /// Its socket.
    pub carrier: Carrier,
    /// Registration, which lasts as long as the connection.
    pub registration: Registration,
}

/// A non-blocking socket of the operating system.
#[derive(Debug)]
pub enum Carrier {
    /// A TCP socket.
    Tcp(net::TcpStream),
    /// A Unix socket.
    Unix(unix::net::UnixStream),
}

/// A socket of this runtime.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// A socket, with or without TLS on top.
pub(super) type SocketStream = Either<Socket, TlsStream<Socket>>;

impl Carrier {
    /// Returns the client's address; `None` for a Unix socket.
    ///
    /// # Errors
    /// The client has left.
    pub fn peer(&self) -> io::Result<Option<net::SocketAddr>> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().map(Some),
            Self::Unix(_) => Ok(None),
        }
    }

    /// Registers the socket with the current runtime.
    pub(super) fn register(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Either::Left(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Either::Right(UnixStream::from_std(stream)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_an_address_unless_its_socket_is_of_unix() {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let address = client.local_addr().unwrap();
        assert_eq!(Carrier::Tcp(accepted).peer().unwrap(), Some(address));
        let (_client, accepted) = unix::net::UnixStream::pair().unwrap();
        assert_eq!(Carrier::Unix(accepted).peer().unwrap(), None);
    }
}
