//! Frames that end a stream or the connection, and the last ones that do not.

use super::*;

/// A frame, after the name of what it is: its type, flags, stream and payload.
type FrameCase = (&'static str, u8, u8, u32, &'static [u8]);

/// Returns a client with an open stream 5 and a complete one 7, both of which wait.
fn waiting() -> TestPeer {
    let mut peer = TestPeer::new();
    peer.open(5, "/unread", false);
    peer.call(7, "/wait", b"");
    peer.sent();
    peer
}

#[test]
fn frames_on_even_streams_are_errors_of_the_connection() {
    let frames: [(u8, &[u8]); 4] = [
        (kind::DATA, b"abc"),
        (kind::RST_STREAM, &[0, 0, 0, 8]),
        (kind::WINDOW_UPDATE, &[0, 0, 0, 1]),
        (kind::PRIORITY, &[0, 0, 0, 2, 0]),
    ];
    for (kind, payload) in frames {
        let mut peer = TestPeer::new();
        peer.call(5, "/wait", b"");
        peer.frame(kind, 0, 2, payload);
        assert_eq!(peer.goaway(), Some(code(Reason::PROTOCOL_ERROR)), "frame type {kind}");
    }
}

#[test]
fn a_connection_error_has_its_code() {
    let protocol: [FrameCase; 21] = [
        ("DATA of no stream", kind::DATA, 0, 0, b"a"),
        ("DATA of an idle stream", kind::DATA, 0, 9, b"a"),
        ("padding of DATA beyond the frame", kind::DATA, 8, 5, &[1]),
        ("HEADERS of an even stream", kind::HEADERS, 4, 10, b""),
        ("HEADERS of a stream that was passed over", kind::HEADERS, 4, 3, b""),
        ("padding beyond the frame", kind::HEADERS, 8 | 4, 9, &[9, 0]),
        ("PUSH_PROMISE", kind::PUSH_PROMISE, 4, 9, &[0; 4]),
        ("CONTINUATION of nothing", kind::CONTINUATION, 4, 9, b""),
        ("SETTINGS of a stream", kind::SETTINGS, 0, 1, &[]),
        ("a push that is neither on nor off", kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]),
        ("frames that are too small", kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]),
        ("frames that are too large", kind::SETTINGS, 0, 0, &[0, 5, 1, 0, 0, 0]),
        ("PING of a stream", kind::PING, 0, 5, &[0; 8]),
        ("GOAWAY of a stream", kind::GOAWAY, 0, 5, &[0; 8]),
        ("a window that is no wider", kind::WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 0]),
        ("the window of an idle stream", kind::WINDOW_UPDATE, 0, 9, &[0, 0, 0, 1]),
        ("PRIORITY of no stream", kind::PRIORITY, 0, 0, &[0; 5]),
        ("PRIORITY of an idle stream on itself", kind::PRIORITY, 0, 9, &[0x80, 0, 0, 9, 0]),
        ("RST_STREAM of no stream", kind::RST_STREAM, 0, 0, &[0; 4]),
        ("RST_STREAM of an idle stream", kind::RST_STREAM, 0, 9, &[0; 4]),
        ("RST_STREAM of an even stream", kind::RST_STREAM, 0, 4, &[0; 4]),
    ];
    let sizes: [FrameCase; 12] = [
        ("HEADERS without the whole priority", kind::HEADERS, 0x20 | 4, 9, &[0; 4]),
        ("SETTINGS of 5 bytes", kind::SETTINGS, 0, 0, &[0; 5]),
        ("an acknowledgement with settings", kind::SETTINGS, 1, 0, &[0; 6]),
        ("PING of 7 bytes", kind::PING, 0, 0, &[0; 7]),
        ("PING of 9 bytes", kind::PING, 0, 0, &[0; 9]),
        ("GOAWAY of 7 bytes", kind::GOAWAY, 0, 0, &[0; 7]),
        ("a window of 3 bytes", kind::WINDOW_UPDATE, 0, 0, &[0; 3]),
        ("a stream's window of 5 bytes", kind::WINDOW_UPDATE, 0, 5, &[0; 5]),
        ("PRIORITY of an idle stream in 4 bytes", kind::PRIORITY, 0, 9, &[0; 4]),
        ("RST_STREAM of 3 bytes", kind::RST_STREAM, 0, 5, &[0; 3]),
        ("RST_STREAM of 5 bytes", kind::RST_STREAM, 0, 5, &[0; 5]),
        ("a frame that is too large", kind::PING, 0, 0, &[0; 16_385]),
    ];
    let flow: [FrameCase; 2] = [
        ("a window too wide", kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 1]),
        ("windows too wide", kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]),
    ];
    let blocks: [FrameCase; 1] = [("a block that is none", kind::HEADERS, 4, 9, &[0x80])];
    for (cases, reason) in [
        (&protocol[..], Reason::PROTOCOL_ERROR),
        (&sizes, Reason::FRAME_SIZE_ERROR),
        (&flow, Reason::FLOW_CONTROL_ERROR),
        (&blocks, Reason::COMPRESSION_ERROR),
    ] {
        for (what, kind, flags, stream, payload) in cases {
            let mut peer = waiting();
            peer.frame(*kind, *flags, *stream, payload);
            assert_eq!(peer.goaway(), Some(code(reason)), "{what}");
        }
    }
}

#[test]
fn headers_of_the_last_stream_after_its_answer_are_an_error_of_the_connection() {
    let mut peer = TestPeer::new();
    peer.call(1, "/echo", b"");
    peer.sent();
    peer.frame(kind::HEADERS, flag::END_HEADERS, 1, b"");
    assert_eq!(peer.goaway(), Some(code(Reason::STREAM_CLOSED)));
}

#[test]
fn frames_at_the_bounds_of_the_protocol_are_no_errors() {
    let cases: [FrameCase; 13] = [
        ("no push", kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 0]),
        ("push", kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 1]),
        ("the smallest frames", kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x40, 0]),
        ("the largest frames", kind::SETTINGS, 0, 0, &[0, 5, 0, 0xff, 0xff, 0xff]),
        ("the widest windows", kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        ("an acknowledgement", kind::SETTINGS, 1, 0, &[]),
        ("the widest window", kind::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0, 0]),
        ("the widest window of a stream", kind::WINDOW_UPDATE, 0, 5, &[0x7f, 0xff, 0, 0]),
        ("the window of a closed stream", kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 0]),
        ("PRIORITY of an idle stream", kind::PRIORITY, 0, 9, &[0, 0, 0, 5, 0]),
        ("RST_STREAM of a closed stream", kind::RST_STREAM, 0, 3, &[0; 4]),
        ("an unknown frame", 0xfa, 0xff, 2, &[0; 16_384]),
        ("GOAWAY with a text", kind::GOAWAY, 0, 0, b"12345678text"),
    ];
    for (what, kind, flags, stream, payload) in cases {
        let mut peer = waiting();
        peer.frame(kind, flags, stream, payload);
        let sent = peer.sent();
        let is_error =
            |sent: &SentFrame| matches!(sent, SentFrame::Reset(..) | SentFrame::GoAway(..));
        assert!(!sent.iter().any(is_error), "{what}: {sent:?}");
        peer.call(9, "/echo", b"abc");
        assert_eq!(peer.sent(), echo(9, b"abc"), "{what}");
    }
}

#[test]
fn an_error_of_an_open_stream_has_its_code() {
    let cases: [(FrameCase, Reason); 7] = [
        (("no wider", kind::WINDOW_UPDATE, 0, 5, &[0x80, 0, 0, 0]), Reason::PROTOCOL_ERROR),
        (("too wide", kind::WINDOW_UPDATE, 0, 5, &[0x7f, 0xff, 0, 1]), Reason::FLOW_CONTROL_ERROR),
        (("on itself", kind::PRIORITY, 0, 5, &[0x80, 0, 0, 5, 0]), Reason::PROTOCOL_ERROR),
        (("PRIORITY of 6 bytes", kind::PRIORITY, 0, 5, &[0; 6]), Reason::FRAME_SIZE_ERROR),
        (("DATA after the end", kind::DATA, 0, 7, b"a"), Reason::STREAM_CLOSED),
        (("trailers after the end", kind::HEADERS, 5, 7, b""), Reason::STREAM_CLOSED),
        (("trailers that do not end", kind::HEADERS, 4, 5, b""), Reason::PROTOCOL_ERROR),
    ];
    for ((what, kind, flags, stream, payload), reason) in cases {
        let mut peer = waiting();
        peer.frame(kind, flags, stream, payload);
        assert_eq!(peer.sent(), [SentFrame::Reset(stream, code(reason))], "{what}");
        peer.call(9, "/echo", b"abc");
        assert_eq!(peer.sent(), echo(9, b"abc"), "{what}");
    }
}

#[test]
fn a_stream_that_begins_with_a_priority_must_not_depend_on_itself() {
    let error = vec![SentFrame::Reset(1, code(Reason::PROTOCOL_ERROR))];
    for (on, expected) in [(0, echo(1, b"")), (3, echo(1, b"")), (1, error)] {
        // With the bit of an exclusive dependency, and without.
        for exclusive in [0, 1 << 31] {
            let mut peer = TestPeer::new();
            let headers = peer.headers(1, "/echo", true);
            let priority = u32::to_be_bytes(exclusive | on);
            let payload = [&priority[..], &[16], &headers[HEAD..]].concat();
            let flags = flag::END_STREAM | flag::END_HEADERS | flag::PRIORITY;
            peer.frame(kind::HEADERS, flags, 1, &payload);
            assert_eq!(peer.sent(), expected, "{on}");
        }
    }
}

#[test]
fn a_body_has_the_length_that_was_announced() {
    let usual = [(":method", "POST"), (":scheme", "http"), (":path", "/echo")];
    let fields = [&usual[..], &[("content-length", "3")]].concat();
    let error = vec![SentFrame::Reset(1, code(Reason::PROTOCOL_ERROR))];
    for (pieces, expected) in [
        (&[&b"a"[..], b"bc"][..], echo(1, b"abc")),
        (&[b"abc", b""], echo(1, b"abc")),
        (&[b"abc"], echo(1, b"abc")),
        (&[b"a", b"b"], error.clone()),
        (&[b"ab"], error.clone()),
        (&[b"abcd"], error.clone()),
        (&[b"ab", b"cd"], error),
    ] {
        let mut peer = TestPeer::new();
        let mut bytes = peer.list(1, &fields, false);
        for (number, piece) in pieces.iter().enumerate() {
            let is_last = number + 1 == pieces.len();
            write(&mut bytes, kind::DATA, if is_last { flag::END_STREAM } else { 0 }, 1, piece);
        }
        peer.bytes(&bytes);
        assert_eq!(peer.sent(), expected, "{pieces:?}");
    }
    // What is too much is an error before the body ends.
    let mut peer = TestPeer::new();
    let mut bytes = peer.list(1, &fields, false);
    write(&mut bytes, kind::DATA, 0, 1, b"abcd");
    peer.bytes(&bytes);
    assert_eq!(peer.sent(), [SentFrame::Reset(1, code(Reason::PROTOCOL_ERROR))]);
}

#[test]
fn a_header_block_in_pieces_is_bounded_and_is_not_mixed_with_other_frames() {
    let begun = || {
        let mut peer = TestPeer::new();
        peer.frame(kind::HEADERS, flag::END_STREAM, 1, b"");
        peer
    };
    let max = 4 * LIMITS.max_header_list as usize;
    for (beyond, expected) in [(0, None), (1, Some(code(Reason::ENHANCE_YOUR_CALM)))] {
        let mut peer = begun();
        let mut left = max + beyond;
        while left > 0 {
            let piece = left.min(16_384);
            peer.frame(kind::CONTINUATION, 0, 1, &vec![0; piece]);
            left -= piece;
        }
        assert_eq!((peer.goaway(), peer.connection.end().is_some()), (expected, beyond > 0));
    }
    for (kind, stream) in [(kind::CONTINUATION, 3), (kind::DATA, 1), (kind::PING, 0), (0xfa, 1)] {
        let mut peer = begun();
        peer.frame(kind, flag::END_HEADERS, stream, &[0; 8]);
        assert_eq!(peer.goaway(), Some(code(Reason::PROTOCOL_ERROR)), "{kind} {stream}");
    }
}

#[test]
fn a_header_block_in_many_pieces_without_bytes_is_abuse_and_one_that_ends_so_is_not() {
    let mut peer = TestPeer::new();
    let block = peer.headers(1, "/echo", true)[HEAD..].to_vec();
    // 78 empty frames cost as much as is tolerated, with the SETTINGS of the handshake.
    for (stream, pieces, is_abuse) in [(1, 0, false), (3, 77, false), (5, 1, true)] {
        peer.frame(kind::HEADERS, flag::END_STREAM, stream, &block);
        (0..pieces).for_each(|_| peer.frame(kind::CONTINUATION, 0, stream, &[]));
        peer.frame(kind::CONTINUATION, flag::END_HEADERS, stream, &[]);
        let goaway = SentFrame::GoAway(0x7fff_ffff, code(Reason::NO_ERROR));
        assert_eq!(peer.sent().contains(&goaway), is_abuse, "{stream}");
    }
}

#[test]
fn data_without_bytes_is_abuse_unless_it_ends_its_call() {
    let goaway = SentFrame::GoAway(0x7fff_ffff, code(Reason::NO_ERROR));
    let mut peer = TestPeer::new();
    for number in 0..200 {
        peer.open(1 + 2 * number, "/echo", false);
        peer.frame(kind::DATA, flag::END_STREAM, 1 + 2 * number, &[]);
    }
    assert!(!peer.sent().contains(&goaway));
    peer.open(1_001, "/echo", false);
    (0..100).for_each(|_| peer.frame(kind::DATA, 0, 1_001, &[]));
    assert!(peer.sent().contains(&goaway));
}

#[test]
fn a_preface_may_arrive_in_pieces_and_has_no_wrong_byte() {
    let mut preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let length = preface.len();
    write(&mut preface, kind::SETTINGS, 0, 0, &[]);
    for wrong in (0..length).map(Some).chain([None]) {
        let (mut connection, now) = fresh();
        let mut bytes = preface.clone();
        wrong.into_iter().for_each(|at| bytes[at] ^= 1);
        let mut begin = 0;
        for end in 1..=bytes.len() {
            begin += connection.receive(&bytes[begin..end], now);
            assert_eq!(connection.end().is_some(), wrong.is_some_and(|at| at < end), "{wrong:?}");
            if connection.end().is_some() {
                break;
            }
        }
        assert_eq!(connection.has_completed_handshake(), wrong.is_none());
    }
}

#[test]
fn the_first_frame_is_settings() {
    for (kind, flags, is_error) in [
        (kind::SETTINGS, 0, false),
        (kind::SETTINGS, flag::ACK, true),
        (kind::PING, 0, true),
        (0xfa, 0, true),
    ] {
        let (mut connection, now) = fresh();
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let payload: &[u8] = if kind == kind::PING { &[0; 8] } else { &[] };
        write(&mut bytes, kind, flags, 0, payload);
        connection.receive(&bytes, now);
        let expected = is_error.then_some(ConnectionEnd::Error(Reason::PROTOCOL_ERROR));
        assert_eq!(connection.end(), expected, "{kind} {flags}");
    }
}
