//! Sockets of connections: TCP or Unix, with TLS or without, told apart once an IO and never by a request.

use std::io;
use std::{net, os::unix};

use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::permits::Permit;

/// An accepted connection, which is of no runtime yet, with its permit.
#[derive(Debug)]
pub struct Accepted {
    /// Its socket.
    pub carrier: Carrier,
    /// Kept as long as the connection is.
    pub permit: Permit,
}

/// A connection of the system; non-blocking.
#[derive(Debug)]
pub enum Carrier {
    /// From an address.
    Tcp(net::TcpStream),
    /// From a path.
    Unix(unix::net::UnixStream),
}

/// A connection of this runtime.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// The same with what is on top of it.
pub(super) type Stream = Either<Socket, TlsStream<Socket>>;

impl Carrier {
    /// Where its client is, where that has an address.
    pub(super) fn peer(&self) -> Option<net::SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Registers it with the runtime that this is called in.
    pub(super) fn register(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Either::Left(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Either::Right(UnixStream::from_std(stream)?),
        })
    }
}
