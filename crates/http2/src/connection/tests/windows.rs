//! Flow control in both directions.

use super::*;

/// Returns the number of bytes of DATA on a stream.
fn data(sent: &[SentFrame], stream: u32) -> usize {
    sent.iter()
        .map(|sent| {
            if let SentFrame::Data(of, data, _) = sent {
                if *of == stream { data.len() } else { 0 }
            } else {
                0
            }
        })
        .sum()
}

fn widen(peer: &mut TestPeer, stream: u32, bytes: u32) {
    peer.frame(kind::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
}

#[test]
fn an_answer_waits_for_both_windows_and_goes_on_as_they_widen() {
    let mut peer = TestPeer::new();
    peer.call(1, "/big", b"100000");
    let sent = peer.sent();
    assert_eq!((sent.first(), data(&sent, 1)), (Some(&head(1)), 65_535));
    widen(&mut peer, 1, 20_000);
    assert!(peer.sent().is_empty(), "the connection has no window");
    widen(&mut peer, 0, 15_000);
    assert_eq!(data(&peer.sent(), 1), 15_000);
    widen(&mut peer, 0, 100_000);
    assert_eq!(data(&peer.sent(), 1), 5_000);
    widen(&mut peer, 1, 100_000);
    let sent = peer.sent();
    assert_eq!((data(&sent, 1), sent.last()), (100_000 - 85_535, Some(&trailers(1))));
    assert_eq!(peer.connection.account.used(), 0);
}

#[test]
fn settings_change_the_windows_of_streams_that_wait() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    assert_eq!(peer.sent(), [SentFrame::SettingsAck]);
    peer.call(1, "/echo", b"abc");
    assert_eq!(peer.sent(), [head(1)]);
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 2]);
    assert_eq!(peer.sent(), [SentFrame::SettingsAck, SentFrame::Data(1, b"ab".to_vec(), false)]);
    widen(&mut peer, 1, 1);
    assert_eq!(peer.sent(), [SentFrame::Data(1, b"c".to_vec(), false), trailers(1)]);
}

#[test]
fn an_answer_that_finds_no_window_is_reset_in_time() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    peer.call(1, "/echo", b"abc");
    peer.sent();
    peer.pass(LIMITS.message_timeout - Duration::from_millis(1));
    assert!(peer.sent().is_empty());
    peer.pass(Duration::from_millis(1));
    assert_eq!(peer.sent(), [SentFrame::Reset(1, code(Reason::CANCEL))]);
    assert_eq!(peer.connection.account.used(), 0);
}

#[test]
fn the_clients_windows_are_given_back() {
    let mut peer = TestPeer::new();
    let mut bytes = 0;
    for number in 0..100u32 {
        peer.call(1 + 2 * number, "/echo", &[0; 10_000]);
        widen(&mut peer, 0, 10_000);
        bytes += peer
            .sent()
            .iter()
            .map(|sent| if let SentFrame::WindowUpdate(0, bytes) = sent { *bytes } else { 0 })
            .sum::<u32>();
    }
    assert!(bytes >= 500_000, "{bytes} of 1,000,000");
}

#[test]
fn a_client_that_sends_beyond_its_window_is_cut_off() {
    let mut peer = TestPeer::new();
    peer.open(1, "/unread", false);
    // Nothing reads the body: only the stream's window, 1 MiB, and the budget bound it.
    for _ in 0..70 {
        peer.frame(kind::DATA, 0, 1, &[0; 16_384]);
    }
    let sent = peer.sent();
    let is_cut = |sent: &SentFrame| {
        matches!(sent, SentFrame::Reset(1, _) | SentFrame::GoAway(..))
            || *sent == refusal(1, Refusal::BudgetExceeded)
    };
    assert!(sent.iter().any(is_cut), "{sent:?}");
}

#[test]
fn more_than_the_socket_takes_waits_in_its_stream() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    widen(&mut peer, 0, (1 << 31) - 1 - 65_535);
    for number in 0..9u32 {
        peer.call(1 + 2 * number, "/big", b"50000");
    }
    assert!(peer.connection.out().len() < 300 << 10, "{}", peer.connection.out().len());
    assert!(!peer.connection.wants_bytes());
    let sent = peer.sent();
    assert_eq!((0..9).map(|number| data(&sent, 1 + 2 * number)).sum::<usize>(), 9 * 50_000);
}

#[test]
fn answers_that_wait_leave_no_trace_in_lists_when_they_are_reset() {
    let mut peer = TestPeer::new();
    peer.call(1, "/big", b"70000");
    peer.sent();
    let lengths = (1..1_000u32).map(|number| {
        let stream = 1 + 2 * number;
        peer.call(stream, "/big", b"1");
        peer.frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        peer.connection.blocked.len()
    });
    assert_eq!(lengths.max(), Some(2 * 2 + 64), "twice the streams, and 64");
}

#[test]
fn an_answer_waits_once_for_the_window_of_the_connection() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]);
    peer.call(1, "/big", b"65536");
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]);
    for _ in 0..20 {
        widen(&mut peer, 1, 1);
    }
    assert_eq!(peer.connection.blocked, [1]);
    widen(&mut peer, 0, 1);
    peer.sent();
    // Now another answer waits for its own window only.
    widen(&mut peer, 0, 1_000);
    peer.call(3, "/big", b"20");
    assert_eq!((data(&peer.sent(), 3), peer.connection.blocked.len()), (10, 0));
}

#[test]
fn answers_that_waited_leave_the_queue_though_there_are_fewer_streams_than_before() {
    for before in [8, 80] {
        let mut peer = TestPeer::with(Limits { max_streams: 100, ..LIMITS }, 1 << 20);
        peer.call(1, "/big", b"70000");
        (1..=before).for_each(|number| peer.call(1 + 2 * number, "/big", b"1"));
        let mut stream = 201;
        let mut reset_some = |peer: &mut TestPeer, count| {
            for _ in 0..count {
                peer.call(stream, "/big", b"1");
                peer.frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
                stream += 2;
            }
        };
        reset_some(&mut peer, 70);
        let reset = |number| peer.frame(kind::RST_STREAM, 0, 1 + 2 * number, &[0, 0, 0, 8]);
        (1..=before).for_each(reset);
        reset_some(&mut peer, 500);
        assert!(peer.connection.blocked.len() < 100, "{}", peer.connection.blocked.len());
    }
}

#[test]
fn a_window_that_is_too_wide_is_an_error_without_streams_too() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]);
    assert_eq!(peer.goaway(), Some(code(Reason::FLOW_CONTROL_ERROR)));
}

#[test]
fn windows_that_widen_by_a_byte_cost_no_more_than_that_byte() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for stream in [1, 3, 5] {
        peer.call(stream, "/big", b"50000");
    }
    for number in 0..3_000u32 {
        widen(&mut peer, 1 + 2 * (number % 3), 1);
        peer.now += Duration::from_micros(1);
        assert!(peer.connection.timers.deadlines() < 200, "{number}");
    }
    assert_eq!(data(&peer.sent(), 1), 1_000);
}

#[test]
fn the_last_window_of_a_settings_frame_counts() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0, 0, 4, 0, 0, 0, 3]);
    peer.call(1, "/echo", b"abcd");
    assert_eq!(
        peer.sent(),
        [SentFrame::SettingsAck, head(1), SentFrame::Data(1, b"abc".to_vec(), false)]
    );
}

#[test]
fn windows_are_given_back_by_halves_and_end_where_they_were_announced() {
    // Of a stream that is read, and one that is not, with little padding and with much.
    for (path, data, returned) in [
        ("/stream", 16_000, true),
        ("/unread", 16_000, false),
        ("/unread", 16_200, false),
        ("/unread", 1, true),
    ] {
        let mut peer = TestPeer::with(LIMITS, 16 << 20);
        peer.open(1, path, false);
        let padding = (16_383 - data).min(255);
        let payload = vec![u8::try_from(padding).unwrap(); 1 + data + padding];
        let mut given = [0; 2];
        let mut was_reset = false;
        let mut counted = 0;
        while counted < 3 << 20 && !was_reset {
            peer.frame(kind::DATA, flag::PADDED, 1, &payload);
            counted += payload.len();
            for sent in peer.sent() {
                if let SentFrame::WindowUpdate(stream, bytes) = sent {
                    assert!((512 << 10..(512 << 10) + 2 * 16_384).contains(&bytes), "{bytes}");
                    given[stream as usize] += bytes as usize;
                } else {
                    assert_eq!(sent, SentFrame::Reset(1, code(Reason::FLOW_CONTROL_ERROR)));
                    was_reset = true;
                }
            }
            assert!(given[0] <= counted && counted - given[0] < 512 << 10, "{path} {given:?}");
            let is_beyond = counted > given[1] + (1 << 20);
            assert_eq!(was_reset, is_beyond, "{path} {counted} {given:?}");
        }
        assert_eq!(was_reset, !returned, "{path}");
    }
}

#[test]
fn answers_have_the_window_of_the_connection_in_turn() {
    let mut peer = TestPeer::new();
    peer.call(1, "/big", b"65535");
    [3, 5, 7].into_iter().for_each(|stream| peer.call(stream, "/big", b"1000"));
    peer.sent();
    for stream in [3, 5, 7, 3, 5, 7] {
        widen(&mut peer, 0, 100);
        let sent = peer.sent();
        assert_eq!((sent.len(), data(&sent, stream)), (1, 100), "{stream}: {sent:?}");
    }
}
