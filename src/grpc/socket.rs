//! What carries a connection: TCP or a Unix socket, with TLS or without, told apart once an IO and never by a request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::{net, os::unix};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// An accepted connection, which is of no runtime yet; non-blocking.
#[derive(Debug)]
pub enum Accepted {
    /// From an address.
    Tcp(net::TcpStream),
    /// From a path.
    Unix(unix::net::UnixStream),
}

/// A connection of this runtime.
pub(super) type Socket = Either<TcpStream, UnixStream>;

/// The same with what is on top of it.
pub(super) type Stream = Either<Socket, TlsStream<Socket>>;

impl Accepted {
    /// Registers it with the runtime that this is called in.
    pub(super) fn register(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Either::Left(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Either::Right(UnixStream::from_std(stream)?),
        })
    }
}

/// A stream that tells how often something was read from it.
#[derive(Debug)]
pub(super) struct Audible {
    stream: Stream,
    heard: Arc<Heard>,
}

/// How often something was heard from a client. Read and written on one thread; only the compiler does not know that.
#[derive(Debug, Default)]
pub(super) struct Heard(AtomicU32);

impl Heard {
    /// A number that is another one after each time.
    pub(super) fn times(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
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
            self.heard.0.store(self.heard.times().wrapping_add(1), Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Audible {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
