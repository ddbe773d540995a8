//! Memory that clients can make a connection hold: each kind is charged or bounded.

use super::super::{ConnectionEnd, MAX_UNSENT};
use super::*;
use crate::stream::{STREAM_COST, Stream};

/// Opens the windows of the connection and of all streams to their maximum.
fn open_windows(peer: &mut TestPeer) {
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    peer.frame(kind::WINDOW_UPDATE, 0, 0, &((1u32 << 31) - 1 - 65_535).to_be_bytes());
}

#[test]
fn answers_that_waited_in_turn_and_were_reset_leave_nothing_behind() {
    let mut peer = TestPeer::new();
    peer.call(1, "/big", b"65535");
    for number in 0..1_500 {
        let stream = 3 + 4 * number;
        peer.call(stream, "/echo", b"waits for the window of the connection");
        peer.frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        peer.call(stream + 2, "/stream", b"");
        peer.sent();
        peer.connection.check();
    }
    assert_eq!(peer.connection.end(), None);
}

#[test]
fn a_stream_has_one_deadline_at_a_time() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    peer.call(1, "/big", b"5000");
    peer.call(3, "/big", b"5000");
    for number in 0..2_000 {
        peer.frame(kind::WINDOW_UPDATE, 0, 1 + number % 2 * 2, &[0, 0, 0, 1]);
        peer.connection.check();
    }
}

#[test]
fn deadlines_of_closed_streams_are_removed_when_there_are_64() {
    let mut peer = TestPeer::new();
    let lengths = (0..66).map(|number| {
        peer.open(1 + 2 * number, "/echo", false);
        peer.frame(kind::RST_STREAM, 0, 1 + 2 * number, &[0, 0, 0, 8]);
        peer.connection.timers.deadlines()
    });
    assert!(lengths.eq((1..=64).chain([1, 2])));
    let at = peer.now + LIMITS.message_timeout;
    let is_scheduled = |stream| peer.connection.timers.is_scheduled(at, stream);
    assert_eq!([127, 129, 131].map(is_scheduled), [false, true, true]);
}

#[test]
fn a_whole_call_that_is_refused_for_its_memory_is_not_reset() {
    for length in [0, 9, 10] {
        let mut peer = TestPeer::new();
        while peer.connection.account.charge(1).is_ok() {}
        peer.call(1, "/small", &vec![0; length]);
        assert_eq!(peer.sent(), [refusal(1, Refusal::BudgetExceeded)], "{length}");
    }
}

#[test]
fn nothing_is_read_while_as_much_output_is_pending_as_may_be() {
    let mut peer = TestPeer::new();
    for (bytes, wants_bytes) in [(MAX_UNSENT - 1, true), (MAX_UNSENT, false)] {
        peer.connection.out.resize(bytes, 0);
        assert_eq!(peer.connection.wants_bytes(), wants_bytes, "{bytes}");
    }
}

#[test]
fn bytes_that_the_socket_does_not_take_are_charged() {
    let mut peer = TestPeer::new();
    open_windows(&mut peer);
    peer.sent();
    peer.call(1, "/big", b"100000");
    peer.connection.charge_buffers(0);
    assert!(peer.connection.account.used() >= 100_000);
    peer.sent();
    peer.connection.charge_buffers(0);
    assert_eq!(peer.connection.account.used(), 0);
}

#[test]
fn a_client_that_reads_nothing_is_cut_off_when_memory_is_used_up() {
    let mut peer = TestPeer::with(LIMITS, 400_000);
    open_windows(&mut peer);
    peer.call(1, "/big", b"65000");
    peer.call(3, "/big", b"65000");
    peer.connection.charge_buffers(0);
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::Unread));
}

#[test]
fn a_call_that_waits_is_charged_with_its_message() {
    let future = size_of::<super::super::CallFuture<Echo>>();
    for pieces in [&[10_000][..], &[9_000, 1_000], &[10_000, 0]] {
        let mut peer = TestPeer::new();
        peer.open(1, "/wait", false);
        for (number, bytes) in pieces.iter().enumerate() {
            let is_last = number + 1 == pieces.len();
            let flags = if is_last { flag::END_STREAM } else { 0 };
            peer.frame(kind::DATA, flags, 1, &vec![0; *bytes]);
        }
        let used = peer.connection.account.used();
        assert_eq!(used, 10_000 + STREAM_COST + future, "{pieces:?}");
    }
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", &[0; 10_000]);
    assert_eq!(peer.connection.account.used(), 10_000 + STREAM_COST + future);
}

#[test]
fn a_call_that_a_service_reads_is_charged_with_its_header_list() {
    let long = "v".repeat(10_000);
    for path in ["/unread"] {
        for is_begun_only in [true, false] {
            let mut peer = TestPeer::new();
            let fields =
                [(":method", "POST"), (":scheme", "http"), (":path", path), ("x", long.as_str())];
            peer.open_with(1, &fields, !is_begun_only);
            assert!(peer.connection.account.used() >= 10_000, "{path} {is_begun_only}");
            // The same block again, which is now recognized.
            peer.open_with(3, &fields, !is_begun_only);
            assert!(peer.connection.account.used() >= 20_000, "{path} {is_begun_only}");
        }
    }
}

#[test]
fn each_header_field_of_a_stream_is_charged_as_a_map_holds_it() {
    let mut peer = TestPeer::new();
    let usual = [(":method", "POST"), (":scheme", "http"), (":path", "/unread")];
    let fields = [&usual[..], &[("x", "v"); 400]].concat();
    peer.open_with(1, &fields, false);
    assert!(peer.connection.account.used() >= 400 * 104, "{}", peer.connection.account.used());
}

#[test]
fn memory_of_a_burst_is_released_while_a_stream_stays_open() {
    let mut peer = TestPeer::new();
    open_windows(&mut peer);
    peer.call(1, "/unread", b"");
    let long = "v".repeat(15_000);
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", "/echo"), ("x", long.as_str())];
    peer.open_with(3, &fields, true);
    peer.call(5, "/big", b"100000");
    peer.sent();
    let kept = peer.connection.out.capacity() + peer.connection.fields.capacity();
    let known = peer.connection.known.as_ref().map_or(0, |known| known.block.capacity());
    assert!(kept + known <= 72 << 10, "{kept} {known}");
}

#[test]
fn the_buffer_of_usual_answers_is_kept() {
    let mut peer = TestPeer::new();
    peer.call(1, "/big", b"10000");
    peer.sent();
    assert!(peer.connection.out.capacity() >= 10_000, "{}", peer.connection.out.capacity());
}

#[test]
fn the_cost_of_a_stream_covers_its_state() {
    let mut peer = TestPeer::new();
    peer.open(1, "/echo", false);
    let state = size_of::<(u32, Stream<Echo>)>();
    assert!(peer.connection.account.used() >= state, "{state} bytes");
}

#[test]
fn unread_trailers_are_charged() {
    let mut peer = TestPeer::new();
    peer.open(1, "/unread", false);
    peer.open_with(1, &[("x", "v".repeat(10_000).as_str())], true);
    assert!(peer.connection.account.used() >= 10_000);
}

#[test]
fn buffers_of_finished_calls_are_kept_unless_they_are_large() {
    let mut peer = TestPeer::new();
    for (number, (bytes, kept)) in [(4_096, 1), (4_097, 0), (10, 1)].into_iter().enumerate() {
        peer.call(1 + 2 * u32::try_from(number).unwrap(), "/echo", &vec![b'a'; bytes]);
        assert_eq!(peer.connection.spare.len(), kept, "{bytes} bytes");
    }
    peer.connection.spare.clear();
    for number in 0..65 {
        peer.connection.recycle(Exchange::default());
        assert_eq!(peer.connection.spare.len(), 64.min(number + 1));
    }
}

#[test]
fn without_memory_some_output_pauses_reading_and_much_ends_the_connection() {
    let out = |bytes: usize| {
        let mut peer = TestPeer::with(LIMITS, 0);
        peer.call(1, "/big", bytes.to_string().as_bytes());
        peer.connection.charge_buffers(0);
        peer
    };
    assert!(out(5_000).connection.wants_bytes());
    let others = out(16_000).connection.out().len() - 16_000;
    let mut peer = out((16 << 10) - others);
    assert_eq!((peer.connection.out().len(), peer.connection.end()), (16 << 10, None));
    assert!(!peer.connection.wants_bytes());
    peer.sent();
    peer.connection.charge_buffers(0);
    assert!(peer.connection.wants_bytes());
    let peer = out((16 << 10) - others + 1);
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::Unread));
}
