//! The task of a connection: moves bytes between its socket and its [`Connection`], and runs its
//! timers.

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::Sleep;

use super::connection::{Connection, ConnectionEnd};
use super::frame;
use super::now;
use super::registry::Usage;
use super::service::Service;

/// Bytes read at once: some 90 calls. More would be faster for one connection, but delay others:
/// with 128 KiB, while 50 connections sent calls without pause, the calls of another took 250 ms.
const READ_BYTES: usize = 8 << 10;
/// Reads in one turn, before other connections get theirs. The second one usually finds nothing,
/// and ends the turn.
const READS_AT_ONCE: usize = 2;
/// Time for a client to read why its connection ends, and bytes that it may send meanwhile. Closing
/// a socket with unread bytes resets the connection, and loses what was sent last.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1 << 20;

thread_local! {
    /// Read buffer of all connections of a thread, so that an idle one holds none. A partial frame
    /// may precede the bytes read.
    static INPUT: RefCell<Box<[u8]>> = RefCell::new(vec![0; frame::HEAD + frame::MAX_PAYLOAD + READ_BYTES].into());
}

/// A connection with its socket.
pub(super) struct Driver<S: Service, IO> {
    connection: Connection<S>,
    usage: Usage,
    io: IO,
    /// Bytes of a partial frame.
    partial: Vec<u8>,
    /// `true` if TLS holds bytes that the socket has not accepted.
    needs_flush: bool,
    timer: Pin<Box<Sleep>>,
    timer_at: Instant,
}

impl<S: Service, IO: AsyncRead + AsyncWrite + Unpin> Driver<S, IO> {
    pub(super) fn new(connection: Connection<S>, usage: Usage, io: IO) -> Self {
        let at = now();
        let timer = Box::pin(tokio::time::sleep_until(at.into()));
        Self { connection, usage, io, partial: Vec::new(), needs_flush: false, timer, timer_at: at }
    }

    /// Runs until the connection ends or `interrupt` completes, which is polled along with it.
    ///
    /// # Errors
    /// If the socket fails.
    pub(super) async fn run<I: Future>(
        &mut self,
        mut interrupt: Pin<&mut I>,
    ) -> io::Result<DriverResult<I::Output>> {
        poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(end) => Poll::Ready(end.map(DriverResult::Ended)),
            Poll::Pending => {
                interrupt.as_mut().poll(cx).map(|output| Ok(DriverResult::Interrupted(output)))
            }
        })
        .await
    }

    /// Runs until the client has completed the HTTP/2 handshake. Returns `None` if the connection
    /// goes on. `interrupt` ends it before that.
    ///
    /// # Errors
    /// If the socket fails.
    pub(super) async fn handshake(
        &mut self,
        mut interrupt: Pin<&mut impl Future<Output = ()>>,
    ) -> io::Result<Option<ConnectionEnd>> {
        poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(end) => Poll::Ready(end.map(Some)),
            Poll::Pending if self.connection.has_completed_handshake() => Poll::Ready(Ok(None)),
            Poll::Pending => {
                interrupt.as_mut().poll(cx).map(|()| Ok(Some(ConnectionEnd::HandshakeTimeout)))
            }
        })
        .await
    }

    /// Begins a graceful shutdown, see [`Connection::shut_down`].
    pub(super) fn shut_down(&mut self, grace: Option<Duration>) {
        self.connection.shut_down(grace, now());
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ConnectionEnd>> {
        let now = now();
        for _ in 0..READS_AT_ONCE {
            let may_read = self.connection.wants_bytes();
            let is_read = may_read && self.poll_read(cx)?.is_ready();
            self.connection.poll_calls(cx, now);
            self.poll_timer(cx, now);
            let is_written = self.poll_write(cx, now)?.is_ready();
            self.connection.charge_buffers(self.partial.len());
            self.connection.end_if_finished();
            self.usage.record(self.connection.load(), now);
            if let Some(end) = self.connection.end() {
                return Poll::Ready(Ok(end));
            }
            // The bytes written may have unblocked answers, which must be written too, or reading:
            // without another turn, nothing would wake this task for that.
            if self.connection.is_behind() && self.connection.wants_bytes() {
                break;
            }
            let is_idle = !is_read && (!is_written || self.connection.out().is_empty());
            if is_idle && may_read == self.connection.wants_bytes() {
                return self.arm_timer(cx, now);
            }
        }
        // A current-thread runtime wakes a task that yields after it has polled sockets (a detail
        // of tokio, which a test pins). A waker would let it run up to 61 turns of busy connections
        // first: tens of milliseconds for the bytes of an idle one.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        self.arm_timer(cx, now)
    }

    /// Reads once, and handles all complete frames.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        INPUT.with_borrow_mut(|input| {
            let kept = self.partial.len();
            let Some((place, free)) = input.split_at_mut_checked(kept) else {
                return Ok(Poll::Pending);
            };
            let Some(free) = free.get_mut(..READ_BYTES) else { return Ok(Poll::Pending) };
            // Bytes left for this turn precede those of the socket.
            let read = if self.connection.is_behind() {
                0
            } else {
                let mut buffer = ReadBuf::new(free);
                match Pin::new(&mut self.io).poll_read(cx, &mut buffer)? {
                    Poll::Ready(()) => {}
                    Poll::Pending => return Ok(Poll::Pending),
                }
                let read = buffer.filled().len();
                if read == 0 {
                    self.connection.on_closed();
                    return Ok(Poll::Ready(()));
                }
                read
            };
            place.copy_from_slice(&self.partial);
            let bytes = input.get(..kept.saturating_add(read)).unwrap_or_default();
            // Not earlier than the read: an acknowledgement must not seem to be in time.
            let taken = self.connection.receive(bytes, now());
            let rest = bytes.get(taken..).unwrap_or_default();
            if rest.is_empty() {
                self.partial = Vec::new();
            } else {
                self.partial.clear();
                self.partial.extend_from_slice(rest);
            }
            Ok(Poll::Ready(()))
        })
    }

    /// Writes pending output. Ready once all of it, or as much as the socket accepts at once, is
    /// written.
    fn poll_write(&mut self, cx: &mut Context<'_>, now: Instant) -> io::Result<Poll<()>> {
        if self.needs_flush {
            self.needs_flush = Pin::new(&mut self.io).poll_flush(cx)?.is_pending();
        }
        if self.connection.out().is_empty() {
            return Ok(Poll::Pending);
        }
        let written = match Pin::new(&mut self.io).poll_write(cx, self.connection.out())? {
            Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(written) => written,
            Poll::Pending => {
                self.connection.on_written(0, now);
                return Ok(Poll::Pending);
            }
        };
        self.connection.on_written(written, now);
        self.needs_flush = Pin::new(&mut self.io).poll_flush(cx)?.is_pending();
        Ok(Poll::Ready(()))
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>, now: Instant) {
        if self.timer.as_mut().poll(cx).is_ready() {
            self.connection.on_time(now);
            self.timer_at = now;
        }
    }

    /// Sets the timer if it would fire too late. A timer that is early is left alone, and moved
    /// when it fires, which saves a busy connection an update in each turn.
    fn arm_timer(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<io::Result<ConnectionEnd>> {
        let Some(next) = self.connection.next_time() else { return Poll::Pending };
        let has_gone_off = self.timer_at <= now;
        if has_gone_off || next < self.timer_at {
            self.timer_at = next;
            self.timer.as_mut().reset(next.into());
            if self.timer.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    /// Closes the socket so that the client can read what was sent last.
    ///
    /// # Errors
    /// If the socket fails.
    pub(super) async fn close(mut self) -> io::Result<()> {
        let closing = async {
            self.io.write_all(self.connection.out()).await?;
            self.io.shutdown().await?;
            let mut read = 0usize;
            while read < LINGER_BYTES {
                match poll_fn(|cx| self.poll_discard(cx)).await? {
                    0 => break,
                    more => read = read.saturating_add(more),
                }
            }
            Ok(())
        };
        tokio::time::timeout(LINGER, closing).await.unwrap_or(Ok(()))
    }

    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        INPUT.with_borrow_mut(|input| {
            let mut buffer = ReadBuf::new(input);
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer))?;
            Poll::Ready(Ok(buffer.filled().len()))
        })
    }
}

/// The result of [`Driver::run`].
#[derive(Debug)]
pub(super) enum DriverResult<T> {
    /// The connection has ended.
    Ended(ConnectionEnd),
    /// The other future completed first.
    Interrupted(T),
}
