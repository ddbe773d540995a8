//! A non-blocking client connection: the subset of HTTP/2 that calls of one method need.
//!
//! The server's compressed headers are not decoded: a frame's flags show that a call is complete,
//! and the first bytes of its message contain the result.

use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use foldhash::fast::FixedState;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// `ACK` flag of `SETTINGS` and `PING`.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Length of a frame header: length (3 bytes), type (1), flags (1), stream (4).
const FRAME_HEADER: usize = 9;
/// Default flow-control window of a connection, in bytes.
const WINDOW: i64 = 65_535;
/// Receive window advertised to the server.
const OUR_WINDOW: u32 = 1 << 30;
/// HPACK index of the most recently added header: the dynamic table starts here, after the static
/// table. Earlier headers have higher indices.
const LAST_OWN: u8 = 62;

/// Offset and tag of the overall code in a response: the first field, a varint, after the 5-byte
/// gRPC prefix.
const CODE_FIELD: (usize, u8) = (5, 1 << 3);
const CODE: usize = 6;

pub(super) struct Connection {
    pub(super) stream: TcpStream,
    authority: String,
    to_send: Vec<u8>,
    /// Number of bytes of `to_send` that are already sent.
    sent: usize,
    received: Vec<u8>,
    next_stream: u32,
    under_way: HashMap<u32, Call, FixedState>,
    /// Remaining send window in bytes.
    window: i64,
    /// Received bytes of messages that no `WINDOW_UPDATE` has acknowledged yet.
    taken: u32,
}

struct Call {
    due: Instant,
    /// The first field of the response, once received.
    code: Option<u8>,
}

/// A completed call.
pub(super) struct Done {
    pub(super) due: Instant,
    /// Overall code of the response: 1 is OK, 2 is OVER_LIMIT; `None` for a gRPC error.
    pub(super) code: Option<u8>,
}

impl Connection {
    pub(super) fn open(service: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(service)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut connection = Self {
            stream,
            authority: service.to_string(),
            to_send: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            sent: 0,
            received: Vec::new(),
            next_stream: 1,
            under_way: HashMap::default(),
            window: WINDOW,
            taken: 0,
        };
        connection.frame(SETTINGS, 0, 0, &[]);
        connection.frame(WINDOW_UPDATE, 0, 0, &OUR_WINDOW.to_be_bytes());
        Ok(connection)
    }

    pub(super) fn calls_under_way(&self) -> usize {
        self.under_way.len()
    }

    fn wants_to_write(&self) -> bool {
        self.sent < self.to_send.len()
    }

    /// Queues a call. Returns `false` if the server's window is exhausted.
    pub(super) fn call(&mut self, message: &[u8], due: Instant) -> bool {
        if self.window < message.len() as i64 {
            return false;
        }
        self.window -= message.len() as i64;
        let stream = self.next_stream;
        let headers = self.headers();
        self.next_stream += 2;
        self.frame(HEADERS, END_HEADERS, stream, &headers);
        self.frame(DATA, END_STREAM, stream, message);
        self.under_way.insert(stream, Call { due, code: None });
        true
    }

    /// Encodes the headers of a call: as literals with indexing in the first call, then as indices.
    fn headers(&self) -> Vec<u8> {
        const POST_BY_HTTP: [u8; 2] = [0x83, 0x86];
        // Index of the name in HPACK's static table; 0 if it is not there.
        let ours: [(u8, &str, &str); 4] = [
            (4, "", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
            (1, "", &self.authority),
            (31, "", "application/grpc"),
            (0, "te", "trailers"),
        ];
        let mut block = POST_BY_HTTP.to_vec();
        let text = |block: &mut Vec<u8>, text: &str| {
            block.push(text.len() as u8);
            block.extend_from_slice(text.as_bytes());
        };
        for (later, (name, own_name, value)) in (0..ours.len() as u8).rev().zip(ours) {
            if self.next_stream > 1 {
                block.push(0x80 | (LAST_OWN + later));
                continue;
            }
            block.push(0x40 | name);
            if name == 0 {
                text(&mut block, own_name);
            }
            text(&mut block, value);
        }
        block
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
        self.to_send.extend_from_slice(&length);
        self.to_send.extend_from_slice(&[kind, flags]);
        self.to_send.extend_from_slice(&stream.to_be_bytes());
        self.to_send.extend_from_slice(payload);
    }

    /// Sends as much as the socket accepts.
    pub(super) fn flush(&mut self) -> Result<()> {
        while self.wants_to_write() {
            match self.stream.write(&self.to_send[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.to_send.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads the available data, and passes each completed call to `done`.
    pub(super) fn read(&mut self, buffer: &mut [u8], mut done: impl FnMut(Done)) -> Result<()> {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.received.extend_from_slice(&buffer[..count]);
            let received = std::mem::take(&mut self.received);
            let mut rest = received.as_slice();
            while let Some((&[a, b, c, kind, flags, ref stream @ ..], after)) =
                rest.split_first_chunk::<FRAME_HEADER>()
            {
                let Some((payload, after)) =
                    after.split_at_checked(u32::from_be_bytes([0, a, b, c]) as usize)
                else {
                    break;
                };
                self.take(
                    kind,
                    flags,
                    u32::from_be_bytes(*stream) & !(1 << 31),
                    payload,
                    &mut done,
                )?;
                rest = after;
            }
            let left = rest.len();
            self.received = received;
            let gone = self.received.len() - left;
            self.received.drain(..gone);
            if count < buffer.len() {
                return Ok(());
            }
        }
    }

    fn take(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        done: &mut impl FnMut(Done),
    ) -> Result<()> {
        match kind {
            DATA => {
                self.taken += payload.len() as u32;
                if self.taken > OUR_WINDOW / 2 {
                    let taken = std::mem::take(&mut self.taken);
                    self.frame(WINDOW_UPDATE, 0, 0, &taken.to_be_bytes());
                }
                let call = self.under_way.get_mut(&stream);
                let (place, field) = CODE_FIELD;
                if let Some(call) = call
                    && payload.get(place) == Some(&field)
                {
                    call.code = payload.get(CODE).copied();
                }
            }
            HEADERS | RESET if kind == RESET || flags & END_STREAM != 0 => {
                if let Some(Call { due, code }) = self.under_way.remove(&stream) {
                    done(Done { due, code: code.filter(|_| kind == HEADERS) });
                }
            }
            SETTINGS if flags & ACK == 0 => self.frame(SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => {
                let more = payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
                self.window += i64::from(more);
            }
            GOAWAY => {
                return Err(Error::other(format!(
                    "it ends the connection: {}",
                    payload.escape_ascii()
                )));
            }
            _ => {}
        }
        Ok(())
    }
}
