//! A client that checks what it receives: frames, their order on each stream, windows, header
//! blocks, answers.

use std::collections::{BTreeMap, VecDeque};

use super::service::{Behaviour, FILL};
use crate::frame::{self, FrameHead, HEAD, MAX_PAYLOAD, flag, kind};
use crate::hpack::{Decoder, Encoder};

/// A message with its prefix.
const MESSAGE: &[u8] = b"\0\0\0\0\x0ba b c d e f";
/// Initial window of a connection and of each stream.
const DEFAULT_WINDOW: i64 = 65_535;

/// Progress of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AnswerProgress {
    #[default]
    Nothing,
    Head,
    All,
    Reset,
}

/// A call of this client.
#[derive(Debug)]
pub(super) struct ClientCall {
    pub(super) behaviour: Behaviour,
    /// The part of the body sent so far.
    body: Vec<u8>,
    pub(super) is_ended: bool,
    pub(super) is_reset: bool,
    answer: Vec<u8>,
    is_refused: bool,
    /// Bytes that the server may send; `send_window` has those that this client may send.
    window: i64,
    pub(super) send_window: i64,
}

pub(super) struct FuzzClient {
    encoder: Encoder,
    decoder: Decoder,
    unread: Vec<u8>,
    /// A continued header block: stream, end of stream, bytes.
    continued: Option<(u32, bool, Vec<u8>)>,
    pub(super) calls: BTreeMap<u32, ClientCall>,
    progress: BTreeMap<u32, AnswerProgress>,
    pub(super) last_stream: u32,
    /// Set when the client has sent arbitrary frames: answers and windows are no longer checked.
    pub(super) is_wild: bool,
    window: i64,
    pub(super) send_window: i64,
    initial_window: i64,
    /// Settings that the server has not acknowledged, including the preface's: the window of
    /// streams that each sets.
    unacknowledged: VecDeque<Option<u32>>,
    is_greeted: bool,
    /// The last stream that the server processes.
    pub(super) last_accepted: u32,
    errors: u32,
    /// Pings of the server that have no answer yet.
    pub(super) pings: Vec<Vec<u8>>,
}

impl FuzzClient {
    pub(super) fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            decoder: Decoder::new(4096),
            unread: Vec::new(),
            continued: None,
            calls: BTreeMap::new(),
            progress: BTreeMap::new(),
            last_stream: 0,
            is_wild: false,
            window: DEFAULT_WINDOW,
            send_window: DEFAULT_WINDOW,
            initial_window: DEFAULT_WINDOW,
            unacknowledged: [None].into(),
            is_greeted: false,
            last_accepted: u32::MAX,
            errors: 0,
            pings: Vec::new(),
        }
    }

    /// Returns the first bytes of a connection.
    pub(super) fn preface() -> Vec<u8> {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frame::write(&mut bytes, kind::SETTINGS, 0, 0, &[]);
        bytes
    }

    /// Returns the HEADERS of a new call, with a field that the server inserts into its table.
    pub(super) fn begin(&mut self, behaviour: Behaviour, inserted: &[u8], is_end: bool) -> Vec<u8> {
        self.last_stream = if self.last_stream == 0 { 1 } else { self.last_stream + 2 };
        let stream = self.last_stream;
        let path = behaviour.path();
        let encoder = &mut self.encoder;
        let mut bytes = Vec::new();
        frame::write_block(&mut bytes, if is_end { flag::END_STREAM } else { 0 }, stream, |out| {
            encoder.begin(out);
            for (name, value) in
                [(":method", "POST"), (":scheme", "http"), (":path", &path), (":authority", "a|b")]
            {
                encoder.field(name.as_bytes(), value.as_bytes(), out);
            }
            if let Ok(length) = u8::try_from(inserted.len())
                && length > 0
            {
                out.extend_from_slice(&[0x40, 1, b'x', length & 0x7f]);
                out.extend(
                    inserted.iter().take(usize::from(length & 0x7f)).map(|byte| b'a' + byte % 26),
                );
            }
        });
        let window = self.initial_window;
        let send_window = 1 << 20;
        let call = ClientCall {
            behaviour,
            body: Vec::new(),
            is_ended: is_end,
            is_reset: false,
            answer: Vec::new(),
            is_refused: false,
            window,
            send_window,
        };
        self.calls.insert(stream, call);
        bytes
    }

    /// Returns DATA of a call, as much as the windows allow.
    pub(super) fn data(&mut self, stream: u32, length: usize, is_end: bool) -> Vec<u8> {
        let Some(call) =
            self.calls.get_mut(&stream).filter(|call| !call.is_ended && !call.is_reset)
        else {
            return Vec::new();
        };
        let room = usize::try_from(self.send_window.min(call.send_window)).unwrap_or_default();
        let begin = call.body.len();
        let data: Vec<u8> = match call.behaviour {
            Behaviour::StreamEcho => {
                (begin..begin + length.min(room)).map(|at| MESSAGE[at % MESSAGE.len()]).collect()
            }
            _ => {
                (0..length.min(room)).map(|at| u8::try_from((at ^ begin) & 0x7f).unwrap()).collect()
            }
        };
        self.send_window -= i64::try_from(data.len()).unwrap();
        call.send_window -= i64::try_from(data.len()).unwrap();
        call.body.extend_from_slice(&data);
        call.is_ended = is_end;
        let mut bytes = Vec::new();
        let mut pieces = data.chunks(MAX_PAYLOAD).peekable();
        while let Some(piece) = pieces.next() {
            let is_last = is_end && pieces.peek().is_none();
            frame::write(
                &mut bytes,
                kind::DATA,
                if is_last { flag::END_STREAM } else { 0 },
                stream,
                piece,
            );
        }
        if data.is_empty() && is_end {
            frame::write(&mut bytes, kind::DATA, flag::END_STREAM, stream, &[]);
        }
        bytes
    }

    /// Widens the window of a stream or of the connection.
    pub(super) fn widen(&mut self, stream: u32, bytes: u32) -> Vec<u8> {
        match self.calls.get_mut(&stream) {
            Some(call) => call.window += i64::from(bytes),
            None => self.window += i64::from(bytes),
        }
        let mut out = Vec::new();
        let stream = if self.calls.contains_key(&stream) { stream } else { 0 };
        frame::write(&mut out, kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        out
    }

    /// Sets the window of streams. Frames in flight follow the previous one until the server
    /// acknowledges this.
    pub(super) fn set_initial_window(&mut self, bytes: u32) -> Vec<u8> {
        self.unacknowledged.push_back(Some(bytes));
        Self::setting_frame(4, bytes)
    }

    pub(super) fn setting(&mut self, name: u16, value: u32) -> Vec<u8> {
        self.unacknowledged.push_back(None);
        Self::setting_frame(name, value)
    }

    fn on_settings_ack(&mut self) {
        let acknowledged = self.unacknowledged.pop_front();
        assert!(self.is_wild || acknowledged.is_some(), "settings that were not sent");
        let Some(bytes) = acknowledged.flatten() else { return };
        let change = i64::from(bytes) - self.initial_window;
        self.initial_window = bytes.into();
        self.calls.values_mut().for_each(|call| call.window += change);
    }

    fn setting_frame(name: u16, value: u32) -> Vec<u8> {
        let [n0, n1] = name.to_be_bytes();
        let [v0, v1, v2, v3] = value.to_be_bytes();
        let mut out = Vec::new();
        frame::write(&mut out, kind::SETTINGS, 0, 0, &[n0, n1, v0, v1, v2, v3]);
        out
    }

    /// Reads and checks what the server wrote.
    pub(super) fn read(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        let unread = std::mem::take(&mut self.unread);
        let mut rest = unread.as_slice();
        while let Some(head) = rest.first_chunk::<HEAD>().map(FrameHead::read) {
            assert!(head.length <= MAX_PAYLOAD, "{head:?}");
            assert!(self.errors == 0, "a frame behind the last GOAWAY: {head:?}");
            self.frame(head, &rest[HEAD..HEAD + head.length]);
            rest = &rest[HEAD + head.length..];
        }
        assert!(rest.is_empty(), "the server writes whole frames");
    }

    fn frame(&mut self, head: FrameHead, payload: &[u8]) {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        assert!(self.is_greeted || head.kind == kind::SETTINGS, "the preface comes first");
        assert_eq!(self.continued.is_some(), head.kind == kind::CONTINUATION, "{head:?}");
        match head.kind {
            kind::SETTINGS => {
                assert!(
                    head.stream == 0
                        && if head.flags == 0 {
                            payload.len().is_multiple_of(6)
                        } else {
                            payload.is_empty()
                        }
                );
                self.is_greeted = true;
                if head.has(flag::ACK) {
                    self.on_settings_ack();
                }
            }
            kind::PING => {
                assert_eq!((head.stream, payload.len()), (0, 8));
                if head.flags == 0 {
                    self.pings.push(payload.to_vec());
                }
            }
            kind::GOAWAY => {
                assert!(
                    head.stream == 0 && number(0) <= self.last_accepted,
                    "no stream is accepted afterwards"
                );
                self.last_accepted = number(0);
                self.errors += u32::from(number(4) != 0);
            }
            kind::WINDOW_UPDATE => {
                assert!((1..=frame::MAX_STREAM).contains(&number(0)));
                match self.calls.get_mut(&head.stream) {
                    Some(call) => call.send_window += i64::from(number(0)),
                    None if head.stream == 0 => self.send_window += i64::from(number(0)),
                    None => assert!(self.is_wild, "{head:?}"),
                }
                assert!(
                    self.send_window <= 1 << 20 || self.is_wild,
                    "the server's window is what it was"
                );
            }
            kind::RST_STREAM => {
                assert!(
                    payload.len() == 4 && (self.is_wild || self.calls.contains_key(&head.stream)),
                    "{head:?}"
                );
                self.progress.insert(head.stream, AnswerProgress::Reset);
            }
            kind::DATA => self.on_data(head, payload),
            kind::HEADERS if !head.has(flag::END_HEADERS) => {
                self.continued = Some((head.stream, head.has(flag::END_STREAM), payload.to_vec()));
            }
            kind::HEADERS => self.on_headers(head.stream, head.has(flag::END_STREAM), payload),
            kind::CONTINUATION => {
                let (stream, is_end, mut block) = self.continued.take().unwrap();
                assert_eq!(stream, head.stream);
                block.extend_from_slice(payload);
                if head.has(flag::END_HEADERS) {
                    self.on_headers(stream, is_end, &block);
                } else {
                    self.continued = Some((stream, is_end, block));
                }
            }
            other => panic!("the server sent a frame of type {other}"),
        }
    }

    fn on_data(&mut self, head: FrameHead, payload: &[u8]) {
        let progress = self.progress.entry(head.stream).or_default();
        assert_eq!(*progress, AnswerProgress::Head, "DATA between HEADERS and the end: {head:?}");
        let Some(call) = self.calls.get_mut(&head.stream) else {
            return assert!(self.is_wild, "{head:?}");
        };
        let length = i64::try_from(payload.len()).unwrap();
        (self.window, call.window) = (self.window - length, call.window - length);
        assert!(
            self.is_wild || length == 0 || self.window >= 0 && call.window >= 0,
            "beyond a window: {head:?} {} {}",
            self.window,
            call.window
        );
        call.answer.extend_from_slice(payload);
        if head.has(flag::END_STREAM) {
            self.on_end(head.stream);
        }
    }

    fn on_headers(&mut self, stream: u32, is_end: bool, block: &[u8]) {
        let mut fields = Vec::new();
        self.decoder
            .decode(block, |name, value| fields.push((name.to_vec(), value.to_vec())))
            .expect("a block");
        let progress = self.progress.entry(stream).or_default();
        match *progress {
            AnswerProgress::Nothing => {
                assert!(
                    fields.first().is_some_and(|(name, _)| name == b":status"),
                    "{stream}: {fields:?}"
                );
                *progress = AnswerProgress::Head;
            }
            AnswerProgress::Head => {
                assert!(
                    is_end && fields.iter().all(|(name, _)| name.first() != Some(&b':')),
                    "{stream}: {fields:?}"
                );
            }
            AnswerProgress::All | AnswerProgress::Reset => {
                panic!("HEADERS on a stream that is over: {stream}")
            }
        }
        if fields.iter().any(|(name, _)| name == b"refused")
            && let Some(call) = self.calls.get_mut(&stream)
        {
            call.is_refused = true;
        }
        if is_end {
            self.on_end(stream);
        }
    }

    fn on_end(&mut self, stream: u32) {
        self.progress.insert(stream, AnswerProgress::All);
        let Some(call) = self.calls.get(&stream).filter(|call| !self.is_wild && !call.is_refused)
        else {
            return;
        };
        let expected = match call.behaviour {
            Behaviour::Echo | Behaviour::Later | Behaviour::StreamEcho => call.body.clone(),
            Behaviour::Large(bytes) | Behaviour::Pieces(bytes) => vec![FILL; bytes],
            Behaviour::Status => Vec::new(),
            Behaviour::Never | Behaviour::Fail => panic!("{stream} was answered: {call:?}"),
        };
        let needs_all = !matches!(call.behaviour, Behaviour::Pieces(_));
        assert!(
            (call.is_ended || !needs_all) && call.answer == expected,
            "{stream}: {:?}",
            call.behaviour
        );
    }

    /// Returns the streams of unfinished calls that wait only for the server.
    pub(super) fn unanswered(&self) -> Vec<u32> {
        let is_due = |call: &ClientCall| {
            !call.is_reset
                && (call.is_ended && call.behaviour != Behaviour::Never
                    || call.behaviour == Behaviour::Fail)
        };
        let is_over = |stream| {
            matches!(self.progress.get(stream), Some(AnswerProgress::All | AnswerProgress::Reset))
        };
        let due = self
            .calls
            .iter()
            .filter(|(stream, call)| is_due(call) && **stream <= self.last_accepted);
        due.filter(|(stream, _)| !is_over(stream)).map(|(stream, _)| *stream).collect()
    }
}
