//! What carries a connection: TCP or a Unix socket, with TLS or without, told apart once an IO and never by a request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::{net, os::unix};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::places::Place;

/// An accepted connection, which is of no runtime yet, with its place among all that there may be.
#[derive(Debug)]
pub struct Accepted {
    /// What carries it.
    pub carrier: Carrier,
    /// Kept as long as it is.
    pub place: Place,
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

/// A stream that tells how often something was read from it, and whether its client reads what is written.
#[derive(Debug)]
pub(super) struct Audible {
    stream: Stream,
    heard: Arc<Heard>,
}

/// How often something was heard from a client, and taken by it. Read and written on one thread; only the compiler does not
/// know that.
#[derive(Debug, Default)]
pub(super) struct Heard {
    times: AtomicU32,
    taken: AtomicU32,
    is_full: AtomicBool,
}

impl Heard {
    /// A number that is another one after each time.
    pub(super) fn times(&self) -> u32 {
        self.times.load(Ordering::Relaxed)
    }

    /// Where the client has to read before more can be written: a number that is another one after it has read.
    pub(super) fn waits(&self) -> Option<u32> {
        self.is_full.load(Ordering::Relaxed).then(|| self.taken.load(Ordering::Relaxed))
    }

    fn note_write<T>(&self, written: &Poll<T>) {
        self.is_full.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            add_one(&self.taken);
        }
    }
}

fn add_one(count: &AtomicU32) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

impl Audible {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, heard: Arc::default() }
    }

    /// For who has to know whether the client is there still.
    pub(super) fn heard(&self) -> Arc<Heard> {
        Arc::clone(&self.heard)
    }
}

impl AsyncRead for Audible {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if read.is_ready() {
            add_one(&self.heard.times);
        }
        read
    }
}

impl AsyncWrite for Audible {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.heard.note_write(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.heard.note_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
