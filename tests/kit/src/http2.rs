//! A minimal HTTP/2 client, for frames that no client library sends or exposes.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::TEST_TIMEOUT;

/// A part of a body.
pub const DATA: u8 = 0;
/// Headers that open a stream.
pub const HEADERS: u8 = 1;
/// Priority of a stream; deprecated by RFC 9113.
pub const PRIORITY: u8 = 2;
/// RST_STREAM: cancels a stream.
pub const RESET: u8 = 3;
/// Continues a header block.
pub const CONTINUATION: u8 = 9;
pub const SETTINGS: u8 = 4;
/// A ping, which the peer must acknowledge.
pub const PING: u8 = 6;
/// Shuts a connection down.
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
/// On DATA and HEADERS: the last frame of the stream. END_HEADERS on HEADERS: the block is
/// complete.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
/// Error code for a peer with excessive or abusive behavior.
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// Error code of RST_STREAM for a call that is cancelled.
pub const CANCEL: [u8; 4] = [0, 0, 0, 8];
/// Header block of a call in HPACK (RFC 7541, appendix A): POST, http, and the two latest entries
/// of the dynamic table, which [`indexing`] inserts.
pub const INDEXED: [u8; 4] = [0x83, 0x86, 0x80 | 63, 0x80 | 62];
pub const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length, &[kind, flags][..], &stream.to_be_bytes(), body].concat()
}

/// Returns the frames that begin calls on these streams, without their messages.
pub fn opened(streams: &[u32]) -> Vec<u8> {
    let headers = headers(PATH);
    streams.iter().flat_map(|stream| frame(HEADERS, END_HEADERS, *stream, &headers)).collect()
}

/// Returns a message with its gRPC prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// Encodes the headers of a call in HPACK without tables.
pub fn headers(path: &str) -> Vec<u8> {
    fields(&[
        (":method", b"POST"),
        (":scheme", b"http"),
        (":path", path.as_bytes()),
        (":authority", b"tollgate"),
        ("content-type", b"application/grpc"),
    ])
}

/// Encodes a header list in HPACK without tables, in this order. Values may have any bytes and
/// length.
pub fn fields(list: &[(&str, &[u8])]) -> Vec<u8> {
    let literal = |(name, value): &(&str, &[u8])| {
        [&[0], &string(name.as_bytes())[..], &string(value)].concat()
    };
    list.iter().flat_map(literal).collect()
}

/// Returns a header block for [`INDEXED`] to refer to: it inserts `:path` and `content-type` into
/// the dynamic table.
pub fn indexing(path: &str) -> Vec<u8> {
    const INSERT: u8 = 0x40;
    let path = [&[INSERT | 4], &string(path.as_bytes())[..]].concat();
    let content_type = [&[INSERT | 31], &string(b"application/grpc")[..]].concat();
    [&INDEXED[..2], &path, &content_type].concat()
}

/// Returns the frames of a call that is reset at once.
pub fn opened_and_reset(stream: u32, block: &[u8]) -> Vec<u8> {
    [frame(HEADERS, END_HEADERS, stream, block), frame(RESET, 0, stream, &CANCEL)].concat()
}

/// Moves whole frames to the streams that `stream_of` returns for their numbers: faster than
/// encoding them again.
pub fn move_frames(frames: &mut [u8], stream_of: impl Fn(u32) -> u32) {
    let mut at = 0;
    for number in 0.. {
        let Some([a, b, c]) = frames[at..].first_chunk().copied() else { return };
        frames[at + 5..at + 9].copy_from_slice(&stream_of(number).to_be_bytes());
        at += 9 + u32::from_be_bytes([0, a, b, c]) as usize;
    }
}

/// Encodes an HPACK string literal (RFC 7541, 5.2) without Huffman coding.
pub fn string(bytes: &[u8]) -> Vec<u8> {
    // The length is an integer with a prefix of 7 bits (5.1).
    const PREFIX: usize = 0x7f;
    let mut encoded = vec![u8::try_from(bytes.len().min(PREFIX)).unwrap()];
    if let Some(mut rest) = bytes.len().checked_sub(PREFIX) {
        while rest >= 0x80 {
            encoded.push(u8::try_from(rest % 0x80).unwrap() | 0x80);
            rest /= 0x80;
        }
        encoded.push(u8::try_from(rest).unwrap());
    }
    encoded.extend(bytes);
    encoded
}

/// A client that answers SETTINGS and PING, and sends arbitrary frames.
pub struct Http2(TcpStream);

impl Http2 {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::dial(address).await.shake_hands().await
    }

    /// Connects without sending anything.
    pub async fn dial(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub fn into_split(self) -> (tokio::net::tcp::OwnedReadHalf, tokio::net::tcp::OwnedWriteHalf) {
        self.0.into_split()
    }

    pub async fn shake_hands(self) -> Self {
        let mut connection = self;
        connection.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        connection.send(SETTINGS, 0, &[]).await;
        assert_eq!(connection.answer_frame().await, Some(SETTINGS));
        connection
    }

    /// Sends bytes, which need not be valid frames.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// Waits until the server has processed all sent frames. Returns `true` if the connection is
    /// still open.
    pub async fn is_seen(&mut self) -> bool {
        self.write(&frame(PING, 0, 0, b"are seen")).await.is_ok() && self.pong().await
    }

    async fn pong(&mut self) -> bool {
        let pong = async {
            while let Some((kind, flags, _)) = self.read_frame().await {
                match (kind, flags & ACK) {
                    (PING, ACK) => return true,
                    (GOAWAY, _) => return false,
                    (_, _) => {}
                }
            }
            false
        };
        tokio::time::timeout(TEST_TIMEOUT, pong).await.expect("it is answered or closed")
    }

    /// Reads until GOAWAY, and returns its error code.
    pub async fn goaway(&mut self) -> u32 {
        let goaway = async {
            loop {
                let (kind, _, body) = self.read_frame().await.expect("GOAWAY precedes the end");
                if kind == GOAWAY {
                    return u32::from_be_bytes(body[4..8].try_into().unwrap());
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, goaway).await.expect("GOAWAY arrives")
    }

    /// Writes a flood while reading, until GOAWAY with the code for abuse arrives.
    pub async fn gets_enhance_your_calm(&mut self, flood: &[u8]) {
        self.gets_enhance_your_calm_by(std::iter::once(flood.to_vec())).await;
    }

    /// Writes the parts of a flood while reading, until GOAWAY with the code for abuse arrives; one
    /// that asks the client to leave precedes it. Reads through a buffer, since the service does
    /// not wait long for a slow reader. Nothing can be read from the connection afterwards.
    pub async fn gets_enhance_your_calm_by(&mut self, flood: impl Iterator<Item = Vec<u8>>) {
        let (reader, mut writer) = self.0.split();
        let mut reader = BufReader::with_capacity(64 << 10, reader);
        let received = async {
            loop {
                let (kind, _, body) =
                    read_frame(&mut reader).await.expect("GOAWAY precedes the end");
                if kind == GOAWAY && body[4..8] == ENHANCE_YOUR_CALM.to_be_bytes() {
                    return;
                }
            }
        };
        let written = async {
            for part in flood {
                // Fails if the service has closed the connection.
                if writer.write_all(&part).await.is_err() {
                    break;
                }
            }
            std::future::pending().await
        };
        let flooded = async {
            tokio::select! { () = received => {}, () = written => {} }
        };
        tokio::time::timeout(TEST_TIMEOUT, flooded).await.expect("ENHANCE_YOUR_CALM arrives");
    }

    /// Reads until a frame of type `wanted`, and returns its payload.
    pub async fn body_of(&mut self, wanted: u8) -> Vec<u8> {
        let found = async {
            loop {
                let (kind, _, body) = self.read_frame().await.expect("it is kept");
                if kind == wanted {
                    return body;
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, found).await.expect("the frame comes")
    }

    /// Reads until DATA, and returns it; `None` if the stream or the connection ends before.
    pub async fn data(&mut self) -> Option<Vec<u8>> {
        let found = async {
            loop {
                match self.read_frame().await? {
                    (DATA, _, body) => return Some(body),
                    (RESET | GOAWAY, ..) => return None,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, found).await.expect("the call is answered or refused")
    }

    /// Answers frames until the connection is closed, and returns their types.
    pub async fn frames_until_the_end(&mut self) -> Vec<u8> {
        let mut frames = Vec::new();
        while let Some(frame) =
            tokio::time::timeout(TEST_TIMEOUT, self.answer_frame()).await.expect("it is closed")
        {
            frames.push(frame);
        }
        frames
    }

    /// Answers frames until one of type `kind` arrives.
    pub async fn frame(&mut self, kind: u8) {
        let comes = async { while self.answer_frame().await.expect("it is kept") != kind {} };
        tokio::time::timeout(TEST_TIMEOUT, comes).await.expect("the frame comes");
    }

    /// Reads a frame, acknowledges it if it is SETTINGS or PING, and returns its type; `None` at
    /// the end.
    async fn answer_frame(&mut self) -> Option<u8> {
        let (kind, flags, body) = self.read_frame().await?;
        match (kind, flags & ACK) {
            (SETTINGS, 0) => self.send(SETTINGS, ACK, &[]).await,
            (PING, 0) => self.send(PING, ACK, &body).await,
            (_, _) => {}
        }
        Some(kind)
    }

    async fn read_frame(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        read_frame(&mut self.0).await
    }

    async fn send(&mut self, kind: u8, flags: u8, body: &[u8]) {
        self.0.write_all(&frame(kind, flags, 0, body)).await.unwrap();
    }
}

/// Reads the type, flags and payload of a frame; `None` at the end.
async fn read_frame(reader: &mut (impl AsyncRead + Unpin)) -> Option<(u8, u8, Vec<u8>)> {
    // Length (3 bytes), type (1), flags (1), stream (4).
    let mut head = [0; 9];
    reader.read_exact(&mut head).await.ok()?;
    let [a, b, c, kind, flags, ..] = head;
    let mut body = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    reader.read_exact(&mut body).await.ok()?;
    Some((kind, flags, body))
}
