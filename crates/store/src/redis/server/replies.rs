//! The bound on the size of a reply: the `redis` crate reads any reply into memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum size of a reply: its bytes, and [`ELEMENT_BYTES`] for each value in it. The largest that
/// is asked for is the slot map of a Cluster in which every slot is a range of its own, 20 MB.
const MAX_REPLY_BYTES: u64 = 32 * 1024 * 1024;
/// Memory that a value takes in addition to its bytes.
const ELEMENT_BYTES: u64 = 64;

/// A stream from a server that fails once a reply is, or is announced to be, too large.
#[derive(Debug)]
pub(super) struct BoundedReplies<S> {
    stream: S,
    reply: ReplySize,
}

/// The size of the reply that is being read, in RESP2 or RESP3.
#[derive(Debug, Default)]
struct ReplySize {
    /// Size of what was read.
    read: u64,
    /// Number of its values that were announced and not begun.
    pending: u64,
    /// Bytes of the current string that were announced and not read.
    string: u64,
    /// First byte of the current line, and the number that follows it; 0 between lines.
    kind: u8,
    number: u64,
    /// `true` after a CR, without which LF ends no line.
    is_after_cr: bool,
}

impl<S> BoundedReplies<S> {
    /// Bounds the replies that a stream delivers.
    pub(super) fn of(stream: S) -> Self {
        Self { stream, reply: ReplySize::default() }
    }
}

impl ReplySize {
    /// Reads a part of the replies. Returns `false` if a reply exceeds the bound.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        while let Some((first, rest)) = bytes.split_first() {
            if self.string > 0 {
                let count = bytes.len().min(usize::try_from(self.string).unwrap_or(usize::MAX));
                bytes = bytes.get(count..).unwrap_or_default();
                self.string = self.string.saturating_sub(count as u64);
                self.read = self.read.saturating_add(count as u64);
                self.end_if_complete();
                continue;
            }
            bytes = rest;
            self.read_in_line(*first);
            if self.announced() > MAX_REPLY_BYTES {
                return false;
            }
        }
        true
    }

    /// Returns the size that the reply has at least.
    fn announced(&self) -> u64 {
        let pending = self.pending.saturating_mul(ELEMENT_BYTES);
        self.read.saturating_add(self.string).saturating_add(pending)
    }

    fn read_in_line(&mut self, byte: u8) {
        self.read = self.read.saturating_add(1);
        let is_after_cr = std::mem::replace(&mut self.is_after_cr, byte == b'\r');
        match (self.kind, byte) {
            (0, kind) => {
                self.kind = kind;
                self.number = 0;
                self.pending = self.pending.saturating_sub(1);
                self.read = self.read.saturating_add(ELEMENT_BYTES);
            }
            (_, b'\n') if is_after_cr => self.end_line(),
            (_, b'0'..=b'9') => {
                let digit = u64::from(byte.saturating_sub(b'0'));
                self.number = self.number.saturating_mul(10).saturating_add(digit);
            }
            // The crate reads a negative length of these as one without end.
            (b'!' | b'=', b'-') => self.string = u64::MAX,
            // Null: no string and no values follow.
            (_, b'-') => self.kind = b'_',
            _ => {}
        }
    }

    fn end_line(&mut self) {
        match self.kind {
            // With its line end.
            b'$' | b'!' | b'=' => self.string = self.number.saturating_add(2),
            b'*' | b'~' | b'>' => self.pending = self.pending.saturating_add(self.number),
            b'%' => self.pending = self.pending.saturating_add(self.number.saturating_mul(2)),
            // Attributes, before the value itself.
            b'|' => {
                let values = self.number.saturating_mul(2).saturating_add(1);
                self.pending = self.pending.saturating_add(values);
            }
            _ => {}
        }
        self.kind = 0;
        self.end_if_complete();
    }

    fn end_if_complete(&mut self) {
        if self.string == 0 && self.pending == 0 {
            *self = Self::default();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for BoundedReplies<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if self.reply.read(buffer.filled().get(before..).unwrap_or_default()) {
            return Poll::Ready(Ok(()));
        }
        // The kind after which the crate gives up the connection.
        let text = format!("the server's reply is larger than {MAX_REPLY_BYTES} bytes");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, text)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for BoundedReplies<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads in parts of every size, and returns whether the bound is kept.
    fn is_within(bytes: &[u8], parts: usize) -> (bool, ReplySize) {
        let mut reply = ReplySize::default();
        let is_within = bytes.chunks(parts).all(|part| reply.read(part));
        (is_within, reply)
    }

    #[test]
    fn complete_replies_leave_nothing_pending() {
        let replies =
            b"+OK\r\n-ERR $9 *3\r\n:-5\r\n$-1\r\n*-1\r\n$0\r\n\r\n$5\r\na\r\n*9\r\n*0\r\n\
            *2\r\n*1\r\n$1\r\nx\r\n:7\r\n%1\r\n+a\r\n_\r\n>2\r\n+a\r\n,1.5\r\n=5\r\ntxt:a\r\n";
        for parts in 1..replies.len() {
            let (is_within, reply) = is_within(replies, parts);
            assert!(is_within && reply.kind == 0 && reply.announced() == 0, "{parts}: {reply:?}");
        }
        let many = b"$100\r\n".iter().chain(&[b'x'; 100]).chain(b"\r\n").copied();
        let many: Vec<u8> = many.collect::<Vec<u8>>().repeat(400_000);
        assert!(is_within(&many, 8_192).0, "the bound is that of one reply");
    }

    #[test]
    fn a_reply_that_is_announced_or_grows_beyond_the_bound_fails() {
        for announced in [
            "$2000000000\r\n",
            "*2000000000\r\n",
            "%99999999999999999999\r\n",
            "!-1\r\n",
            "=-1\r\n",
        ] {
            assert!(!is_within(announced.as_bytes(), 3).0, "{announced}");
        }
        let nested = "*200\r\n*100000\r\n:1\r\n".as_bytes();
        assert!(is_within(nested, 4).0);
        let line = [b"+".as_slice(), &vec![b'x'; 33 << 20]].concat();
        assert!(!is_within(&line, 65_536).0, "a line without an end");
        let lines = [b"+".as_slice(), &b"a\n+".repeat(12 << 20)].concat();
        assert!(!is_within(&lines, 65_536).0, "LF alone ends no line");
        let nesting = "*1\r\n".repeat(1 << 20);
        assert!(!is_within(nesting.as_bytes(), 65_536).0, "arrays in arrays");
        let values = [b"*500000\r\n".as_slice(), b"$30\r\n"].concat();
        assert!(is_within(&values, 65_536).0, "500,000 values of 30 bytes");
    }
}
