//! HTTP/2 by hand, for what no client library shows.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::PATIENCE;

const SETTINGS: u8 = 4;
/// The frame that asks for a sign of life.
pub(crate) const PING: u8 = 6;
/// The frame that tells a client to go.
pub(crate) const GOAWAY: u8 = 7;
const ACK: u8 = 1;

/// A client that only keeps its connection alive.
pub(crate) struct Http2(TcpStream);

impl Http2 {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let mut connection = Self(TcpStream::connect(address).await.unwrap());
        connection.0.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        connection.send(SETTINGS, 0, &[]).await;
        assert_eq!(connection.answer_frame().await, Some(SETTINGS));
        connection
    }

    /// Answers what comes, and tells which frames that were.
    pub(crate) async fn frames_until_the_end(&mut self) -> Vec<u8> {
        let mut frames = Vec::new();
        while let Some(frame) = tokio::time::timeout(PATIENCE, self.answer_frame()).await.expect("it is closed") {
            frames.push(frame);
        }
        frames
    }

    /// Answers what comes until a frame of this kind is among it.
    pub(crate) async fn frame(&mut self, kind: u8) {
        let frame = async { while self.answer_frame().await.expect("it is kept") != kind {} };
        tokio::time::timeout(PATIENCE, frame).await.expect("the frame comes");
    }

    /// Reads a frame, answers it where it asks for that, and says what it was; nothing at the end.
    async fn answer_frame(&mut self) -> Option<u8> {
        // Length 3, type 1, flags 1, stream 4.
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, ..] = head;
        let mut body = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.0.read_exact(&mut body).await.unwrap();
        match (kind, flags & ACK) {
            (SETTINGS, 0) => self.send(SETTINGS, ACK, &[]).await,
            (PING, 0) => self.send(PING, ACK, &body).await,
            (_, _) => {}
        }
        Some(kind)
    }

    async fn send(&mut self, kind: u8, flags: u8, body: &[u8]) {
        let [_, length @ ..] = u32::try_from(body.len()).unwrap().to_be_bytes();
        let frame = [&length, &[kind, flags, 0, 0, 0, 0][..], body].concat();
        self.0.write_all(&frame).await.unwrap();
    }
}
