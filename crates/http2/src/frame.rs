//! Reads and writes HTTP/2 frames and their headers (RFC 9113, sections 4 and 6).

/// Length of a frame header, in bytes.
pub(super) const HEAD: usize = 9;
/// Maximum payload of a frame in either direction, in bytes: the protocol's initial value, which no
/// peer can lower.
pub(super) const MAX_PAYLOAD: usize = 16_384;

/// Frame types.
pub(super) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Frame flags. The meaning of a bit depends on the frame's type.
pub(super) mod flag {
    /// Flag of SETTINGS and PING.
    pub(crate) const ACK: u8 = 0x1;
    /// Flag of DATA and HEADERS.
    pub(crate) const END_STREAM: u8 = 0x1;
    /// Flag of HEADERS and CONTINUATION.
    pub(crate) const END_HEADERS: u8 = 0x4;
    /// Flag of DATA and HEADERS.
    pub(crate) const PADDED: u8 = 0x8;
    /// Flag of HEADERS.
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// An error code of RST_STREAM and GOAWAY (RFC 9113, section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reason(pub(super) u32);

#[allow(missing_docs, reason = "the protocol's words")]
impl Reason {
    pub(super) const NO_ERROR: Self = Self(0);
    pub(super) const PROTOCOL_ERROR: Self = Self(1);
    pub(super) const INTERNAL_ERROR: Self = Self(2);
    pub(super) const FLOW_CONTROL_ERROR: Self = Self(3);
    pub(super) const STREAM_CLOSED: Self = Self(5);
    pub(super) const FRAME_SIZE_ERROR: Self = Self(6);
    pub(super) const REFUSED_STREAM: Self = Self(7);
    pub(super) const CANCEL: Self = Self(8);
    pub(super) const COMPRESSION_ERROR: Self = Self(9);
    pub(super) const ENHANCE_YOUR_CALM: Self = Self(11);
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    /// Length of the payload in bytes, 24 bits.
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// Stream identifier, 31 bits; 0 is the connection.
    pub(super) stream: u32,
}

impl FrameHead {
    pub(super) fn read(bytes: &[u8; HEAD]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & MAX_STREAM,
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// The largest stream identifier.
pub(super) const MAX_STREAM: u32 = (1 << 31) - 1;

/// Writes a frame header. `length` is that of the payload, at most [`MAX_PAYLOAD`].
pub(super) fn write_head(out: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    let [.., l0, l1, l2] = length.to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    out.extend_from_slice(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]);
}

/// Writes a whole frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    write_head(out, payload.len(), kind, flags, stream);
    out.extend_from_slice(payload);
}

/// Writes a header block that `block` encodes, as HEADERS and as many CONTINUATION frames as
/// needed. `flags` are those of HEADERS, except END_HEADERS.
pub(super) fn write_block(
    out: &mut Vec<u8>,
    flags: u8,
    stream: u32,
    block: impl FnOnce(&mut Vec<u8>),
) {
    let begin = out.len();
    write_head(out, 0, kind::HEADERS, flags | flag::END_HEADERS, stream);
    let payload = out.len();
    block(out);
    let length = out.len().saturating_sub(payload);
    if length <= MAX_PAYLOAD {
        set_length(out, begin, length);
        return;
    }
    let block = out.split_off(payload);
    out.truncate(begin);
    let pieces = block.len().div_ceil(MAX_PAYLOAD);
    for (number, piece) in block.chunks(MAX_PAYLOAD).enumerate() {
        let (kind, flags) =
            if number == 0 { (kind::HEADERS, flags) } else { (kind::CONTINUATION, 0) };
        let is_last = number.saturating_add(1) == pieces;
        write(out, kind, if is_last { flags | flag::END_HEADERS } else { flags }, stream, piece);
    }
}

/// Sets the length in the frame header that begins at `at`.
fn set_length(out: &mut [u8], at: usize, length: usize) {
    let [.., l0, l1, l2] = length.to_be_bytes();
    if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<3>) {
        *place = [l0, l1, l2];
    }
}

/// Strips the padding of a payload if the flag is set. Returns `None` if it exceeds the payload.
pub(super) fn unpad(head: FrameHead, payload: &[u8]) -> Option<&[u8]> {
    if !head.has(flag::PADDED) {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let mut out = Vec::new();
        write_head(&mut out, 0x01_02_03, kind::PING, flag::ACK, MAX_STREAM);
        let read = FrameHead::read(out.first_chunk().unwrap());
        assert_eq!(
            read,
            FrameHead {
                length: 0x01_02_03,
                kind: kind::PING,
                flags: flag::ACK,
                stream: MAX_STREAM
            }
        );
    }

    #[test]
    fn the_reserved_bit_of_a_stream_is_ignored() {
        assert_eq!(FrameHead::read(&[0, 0, 0, 0, 0, 0x80, 0, 0, 7]).stream, 7);
    }

    #[test]
    fn a_long_block_is_continued() {
        let mut out = Vec::new();
        write_block(&mut out, flag::END_STREAM, 5, |out| {
            out.extend(std::iter::repeat_n(7, MAX_PAYLOAD * 2 + 1))
        });
        let mut rest = out.as_slice();
        let mut found = Vec::new();
        while let Some(head) = rest.first_chunk().map(FrameHead::read) {
            found.push((head.kind, head.flags, head.length, head.stream));
            rest = &rest[HEAD + head.length..];
        }
        assert_eq!(
            found,
            [
                (kind::HEADERS, flag::END_STREAM, MAX_PAYLOAD, 5),
                (kind::CONTINUATION, 0, MAX_PAYLOAD, 5),
                (kind::CONTINUATION, flag::END_HEADERS, 1, 5)
            ]
        );
    }

    #[test]
    fn padding_is_taken_off_and_never_more_than_there_is() {
        let padded = FrameHead { length: 0, kind: kind::DATA, flags: flag::PADDED, stream: 1 };
        assert_eq!(unpad(padded, &[2, 9, 0, 0]), Some(&[9][..]));
        assert_eq!(unpad(padded, &[3, 0, 0, 0]), Some(&[][..]));
        assert_eq!(unpad(padded, &[4, 0, 0, 0]), None);
        assert_eq!(unpad(padded, &[]), None);
    }
}
