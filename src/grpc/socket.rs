//! What carries a connection: TCP or a Unix socket, with TLS or without, told apart once an IO and never by a request.

use std::io::{self, Error, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::{net, os::unix};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
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

/// What a client of HTTP/2 says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A stream whose client has said that it speaks HTTP/2, and that is read from its beginning nevertheless.
///
/// hyper would wait for the preface as long as it takes, and a connection that waits for it cannot be told to go.
#[derive(Debug)]
pub(super) struct Prefaced {
    /// What of the preface is not read again yet.
    preface: &'static [u8],
    stream: Stream,
    heard: Arc<AtomicBool>,
}

impl Prefaced {
    /// Waits for the preface.
    ///
    /// # Errors
    /// Where something else comes, or nothing any more.
    pub(super) async fn read(mut stream: Stream) -> io::Result<Self> {
        let (mut awaited, mut space) = (PREFACE, [0; PREFACE.len()]);
        while !awaited.is_empty() {
            // Not a byte more: what follows is for hyper.
            let space = space.get_mut(..awaited.len()).unwrap_or_default();
            let count = stream.read(space).await?;
            let came = space.get(..count).unwrap_or_default();
            if came.is_empty() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            awaited = awaited
                .strip_prefix(came)
                .ok_or_else(|| Error::new(ErrorKind::InvalidData, "a client that does not begin as HTTP/2 does"))?;
        }
        Ok(Self { preface: PREFACE, stream, heard: Arc::default() })
    }

    /// Set to true whenever something is read, for who has to know whether the client is there still.
    pub(super) fn heard(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.heard)
    }
}

impl AsyncRead for Prefaced {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.preface.is_empty() {
            let read = Pin::new(&mut self.stream).poll_read(cx, buf);
            if read.is_ready() {
                self.heard.store(true, Ordering::Relaxed);
            }
            return read;
        }
        let (now, later) = self.preface.split_at(self.preface.len().min(buf.remaining()));
        buf.put_slice(now);
        self.preface = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefaced {
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
