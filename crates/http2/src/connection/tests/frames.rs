//! Frames that a client may send, and frames that end its stream or its connection.

use proptest::prelude::*;

use super::*;

const TOO_LARGE: Refusal = Refusal::MessageTooLarge { max: 99_995 };

#[test]
fn a_call_in_one_piece_is_answered_at_once() {
    let mut peer = TestPeer::new();
    peer.call(1, "/echo", b"abc");
    assert_eq!(peer.sent(), echo(1, b"abc"));
    peer.call(3, "/echo", b"");
    assert_eq!(peer.sent(), echo(3, b""));
    assert!(peer.connection.streams.is_empty());
}

#[test]
fn a_warm_connection_allocates_nothing() {
    let mut peer = TestPeer::new();
    let call = |peer: &mut TestPeer, stream: u32| {
        let mut bytes = peer.headers(stream, "/echo", false);
        write(&mut bytes, kind::DATA, flag::END_STREAM, stream, b"abc");
        bytes
    };
    let calls: Vec<Vec<u8>> = (0..20).map(|number| call(&mut peer, 1 + 2 * number)).collect();
    let (first, others) = calls.split_at(3);
    first.iter().for_each(|call| peer.bytes(call));
    peer.sent();
    peer.connection.out.reserve(4096);
    let count = allocation_counter::measure(|| {
        for call in others {
            peer.connection.receive(call, peer.now);
        }
    });
    assert_eq!(count.count_total, 0);
    assert_eq!(peer.sent().len(), others.len() * 3);
}

proptest! {
    /// Answers to unary and to other calls do not depend on the points at which bytes are split.
    #[test]
    fn answers_do_not_depend_on_where_bytes_are_cut(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        pieces in prop::collection::vec((0usize..20, 0u8..4), 1..6),
    ) {
        let mut peer = TestPeer::new();
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for (number, (length, shape)) in pieces.iter().enumerate() {
            let stream = 1 + 2 * u32::try_from(number).unwrap();
            let body = vec![b'b'; *length];
            bytes.extend(peer.headers(stream, "/echo", false));
            match shape {
                0 => write(&mut bytes, kind::DATA, flag::END_STREAM, stream, &body),
                1 => {
                    let padded = [&[3][..], &body, &[0; 3]].concat();
                    write(&mut bytes, kind::DATA, flag::END_STREAM | flag::PADDED, stream, &padded);
                }
                2 => {
                    body.iter().for_each(|byte| write(&mut bytes, kind::DATA, 0, stream, &[*byte]));
                    write(&mut bytes, kind::DATA, flag::END_STREAM, stream, &[]);
                }
                _ => {
                    write(&mut bytes, kind::DATA, 0, stream, &body);
                    bytes.extend(peer.list(stream, &[("x", "trailer")], true));
                }
            }
            expected.extend(echo(stream, &body));
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        cuts.windows(2).for_each(|cut| peer.bytes(&bytes[cut[0]..cut[1]]));
        prop_assert_eq!(peer.sent(), expected);
        prop_assert_eq!(peer.connection.account.used(), 0);
    }
}

#[test]
fn answers_have_no_more_of_a_table_than_the_client_allows() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
    peer.sent();
    peer.call(1, "/echo", b"");
    // The block begins with a size update to 0.
    assert_eq!(peer.connection.out()[HEAD], 0x20);
    assert_eq!(peer.sent(), echo(1, b""));
}

#[test]
fn a_header_block_in_pieces_is_read_as_one() {
    let mut peer = TestPeer::new();
    let whole = peer.headers(1, "/echo", true);
    let (block, last) = whole[HEAD..].split_at(7);
    peer.frame(kind::HEADERS, flag::END_STREAM, 1, block);
    peer.frame(kind::CONTINUATION, flag::END_HEADERS, 1, last);
    assert_eq!(peer.sent(), echo(1, b""));
    assert_eq!(peer.connection.account.used(), 0);
}

#[test]
fn a_stream_error_leaves_other_calls_alone() {
    for fields in [
        &[(":method", "POST"), (":scheme", "http")][..],
        &[(":method", "POST"), (":scheme", "http"), (":path", "/echo"), ("connection", "close")],
        &[(":method", "POST"), (":scheme", "http"), (":path", "/echo"), ("content-length", "2")],
        &[(":method", "POST"), (":scheme", "http"), (":path", "/stream"), ("content-length", "2")],
    ] {
        let mut peer = TestPeer::new();
        peer.open_with(1, fields, true);
        assert_eq!(peer.sent(), [SentFrame::Reset(1, code(Reason::PROTOCOL_ERROR))], "{fields:?}");
        peer.call(3, "/echo", b"a");
        assert_eq!(peer.sent(), echo(3, b"a"));
    }
}

#[test]
fn a_call_whose_client_resets_it_is_dropped() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    assert_eq!(peer.connection.streams.len(), 1);
    peer.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    assert_eq!((peer.connection.streams.len(), peer.connection.account.used()), (0, 0));
    assert!(peer.sent().is_empty());
}

#[test]
fn who_resets_calls_that_are_answered_early_is_cut_off() {
    let mut peer = TestPeer::new();
    let mut stream = 1;
    while peer.connection.end().is_none() {
        assert!(stream < 2 * 10_000, "it goes on for ever");
        peer.open(stream, "/early", false);
        peer.frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        peer.connection.on_written(usize::MAX, peer.now);
        stream += 2;
    }
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::ResetFlood));
    assert!(stream > 2 * 2_000);
}

#[test]
fn calls_by_the_general_way_leave_turns_to_other_connections() {
    let mut peer = TestPeer::new();
    let begun: Vec<u8> =
        (0..10).flat_map(|number| peer.headers(1 + 2 * number, "/stream", true)).collect();
    let taken = peer.connection.receive(&begun, peer.now);
    assert!(taken < begun.len() && peer.connection.is_behind());
    assert_eq!(peer.connection.receive(&begun[taken..], peer.now), begun.len() - taken);
    assert!(!peer.connection.is_behind());
    peer.bytes(&[]);
    let answers = peer.sent().iter().filter(|sent| matches!(sent, SentFrame::Headers(..))).count();
    assert_eq!(answers, 10);
}

#[test]
fn others_have_their_turn_after_as_much_work_as_is_read_at_once() {
    let mut peer = TestPeer::new();
    let mut calls = Vec::new();
    for stream in [1, 3, 5] {
        calls.extend(peer.headers(stream, "/work", false));
        write(&mut calls, kind::DATA, flag::END_STREAM, stream, b"compressed");
    }
    let taken = peer.connection.receive(&calls, peer.now);
    assert!(taken < calls.len() && peer.connection.is_behind());
    assert_eq!(peer.sent(), [echo(1, b"compressed"), echo(3, b"compressed")].concat());
    peer.connection.receive(&calls[taken..], peer.now);
    assert_eq!((peer.connection.is_behind(), peer.sent()), (false, echo(5, b"compressed")));
}

#[test]
fn streams_beyond_the_bound_are_refused() {
    let mut peer = TestPeer::new();
    (0..LIMITS.max_streams).for_each(|number| peer.call(1 + 2 * number, "/wait", b""));
    assert!(peer.sent().is_empty());
    peer.call(101, "/echo", b"");
    assert_eq!(peer.sent(), [SentFrame::Reset(101, code(Reason::REFUSED_STREAM))]);
}

#[test]
fn a_client_that_does_not_wait_for_a_stalled_server_keeps_its_connection() {
    let mut peer = TestPeer::new();
    (0..2_000).for_each(|number| peer.call(1 + 2 * number, "/wait", b""));
    let refused = SentFrame::Reset(3_999, code(Reason::REFUSED_STREAM));
    assert_eq!(peer.sent().last(), Some(&refused));
    assert_eq!(peer.connection.end(), None);
}

#[test]
fn late_data_of_refused_streams_is_no_error() {
    let mut peer = TestPeer::new();
    for number in 0..2_000 {
        peer.open(1 + 2 * number, "/wait", false);
    }
    (0..2_000).for_each(|number| peer.frame(kind::DATA, flag::END_STREAM, 1 + 2 * number, b"late"));
    let resets =
        peer.sent().into_iter().filter(|sent| matches!(sent, SentFrame::Reset(..))).count();
    assert_eq!(resets, 1_990);
    assert_eq!(peer.connection.end(), None);
}

#[test]
fn a_list_that_is_too_large_is_refused_alone() {
    let mut peer = TestPeer::new();
    let long = "v".repeat(17 << 10);
    let usual = [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), ("x", &long)];
    peer.open_with(1, &usual, true);
    assert_eq!(
        peer.sent(),
        [SentFrame::Headers(1, vec![(":status".to_owned(), "431".to_owned())], true)]
    );
    peer.call(3, "/echo", b"a");
    assert_eq!(peer.sent(), echo(3, b"a"));
}

#[test]
fn a_body_longer_than_its_route_allows_is_refused() {
    let mut peer = TestPeer::new();
    peer.open(1, "/echo", false);
    for _ in 0..7 {
        peer.frame(kind::DATA, 0, 1, &[0; 15_000]);
    }
    assert_eq!(peer.sent(), [refusal(1, TOO_LARGE), SentFrame::Reset(1, 0)]);
    peer.frame(kind::DATA, flag::END_STREAM, 1, b"late");
    assert!(peer.sent().is_empty(), "what was under way is passed over");
}

#[test]
fn a_body_in_one_piece_is_no_longer_than_its_route_allows() {
    let mut peer = TestPeer::new();
    peer.call(1, "/small", b"ten bytes.");
    assert_eq!(peer.sent(), echo(1, b"ten bytes."));
    peer.call(3, "/small", b"more bytes.");
    assert_eq!(
        peer.sent(),
        [refusal(3, Refusal::MessageTooLarge { max: 5 }), SentFrame::Reset(3, 0)]
    );
}

#[test]
fn a_body_in_pieces_may_be_as_long_as_its_route_allows() {
    for (length, is_refused) in [(100_000, false), (100_001, true)] {
        let mut peer = TestPeer::new();
        let mut bytes = peer.headers(1, "/wait", false);
        let body = vec![0; length];
        body.chunks(15_000).for_each(|piece| write(&mut bytes, kind::DATA, 0, 1, piece));
        peer.bytes(&bytes);
        assert_eq!(peer.sent().contains(&refusal(1, TOO_LARGE)), is_refused);
    }
}

#[test]
fn calls_that_wait_are_refused_when_memory_is_used_up() {
    let mut peer = TestPeer::with(LIMITS, 400_000);
    for stream in [1, 3] {
        peer.open(stream, "/echo", false);
        (0..4).for_each(|_| peer.frame(kind::DATA, 0, stream, &[0; 15_000]));
    }
    assert_eq!(peer.sent(), [refusal(3, Refusal::BudgetExceeded), SentFrame::Reset(3, 0)]);
    peer.frame(kind::DATA, flag::END_STREAM, 1, b"");
    assert_eq!(peer.sent().len(), 2 + 4, "60,000 bytes in four frames");
}

#[test]
fn calls_of_others_leave_a_connection_its_own_share() {
    let budget = Arc::new(Budget::new(100_000));
    let mut hogs: Vec<_> = (0..4).map(|_| TestPeer::of(LIMITS, Arc::clone(&budget))).collect();
    for hog in &mut hogs {
        hog.open(1, "/echo", false);
        (0..20).for_each(|_| hog.frame(kind::DATA, 0, 1, &[0; 1_000]));
    }
    let mut peer = TestPeer::of(LIMITS, Arc::clone(&budget));
    peer.call(1, "/wait", b"abc");
    peer.connection.charge_buffers(16_000);
    assert_eq!(
        (peer.sent(), peer.connection.end(), peer.connection.streams.len()),
        (vec![], None, 1)
    );
}

#[test]
fn a_block_that_changes_the_table_is_decoded_each_time() {
    let mut peer = TestPeer::new();
    let inserted = [&[0x83, 0x86, 0x44, 5][..], b"/echo"].concat();
    // The entry of the first block, by its index after the second.
    for (stream, block) in [(1, &inserted[..]), (3, &inserted), (5, &[0x83, 0x86, 0x80 | 63])] {
        peer.frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, block);
        assert_eq!(peer.sent(), echo(stream, b""));
    }
}

#[test]
fn a_block_that_is_remembered_is_decoded_again_after_one_that_changes_the_table() {
    let mut peer = TestPeer::new();
    let inserted = |path: &str| [&[0x83, 0x86, 0x44, 5][..], path.as_bytes()].concat();
    let newest = vec![0x83, 0x86, 0x80 | 62];
    for (stream, block, is_echo) in [
        (1, inserted("/echo"), true),
        (3, newest.clone(), true),
        (5, inserted("/wait"), false),
        (7, newest, false),
    ] {
        peer.frame(kind::HEADERS, flag::END_STREAM | flag::END_HEADERS, stream, &block);
        assert_eq!(peer.sent(), if is_echo { echo(stream, b"") } else { vec![] }, "{stream}");
    }
}

#[test]
fn a_block_is_remembered_unless_it_is_long() {
    let usual = [(":method", "POST"), (":scheme", "http"), (":path", "/echo")];
    let block = |length: usize| {
        let mut peer = TestPeer::new();
        let value = "v".repeat(length);
        let headers = peer.list(1, &[&usual[..], &[("x", &value)]].concat(), true);
        peer.bytes(&headers);
        (headers.len() - HEAD, peer.connection.known.is_some())
    };
    let others = block(1_900).0 - 1_900;
    assert_eq!(block(2_048 - others), (2_048, true));
    assert_eq!(block(2_049 - others), (2_049, false));
}
