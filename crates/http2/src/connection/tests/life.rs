//! Keepalive, deadlines, shutdown.

use super::super::ConnectionEnd;
use super::*;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_silent_client_is_pinged_and_closed_without_an_answer() {
    let mut peer = TestPeer::new();
    assert_eq!(
        peer.connection.next_time(),
        Some(peer.now + Duration::from_secs(1)),
        "memory is given back"
    );
    peer.pass(LIMITS.keepalive_interval);
    let sent = peer.sent();
    let [SentFrame::Ping(payload, false)] = sent.as_slice() else { panic!("{sent:?}") };
    peer.frame(kind::PING, flag::ACK, 0, payload);
    peer.pass(LIMITS.keepalive_timeout);
    assert_eq!((peer.sent(), peer.connection.end()), (vec![], None));
    peer.pass(LIMITS.keepalive_interval);
    peer.sent();
    peer.ends_after(LIMITS.keepalive_timeout, ConnectionEnd::Silent);
}

#[test]
fn a_message_that_does_not_come_is_refused_in_time() {
    for path in ["/echo", "/stream"] {
        let mut peer = TestPeer::new();
        peer.open(1, path, false);
        peer.frame(kind::DATA, 0, 1, b"ab");
        assert!(peer.connection.next_time() <= Some(peer.now + LIMITS.message_timeout));
        peer.pass(LIMITS.message_timeout);
        assert_eq!(
            peer.sent(),
            [refusal(1, Refusal::BodyTooSlow), SentFrame::Reset(1, 0)],
            "{path}"
        );
        assert_eq!(peer.connection.account.used(), 0);
    }
}

#[test]
fn a_client_that_reads_nothing_is_closed() {
    let mut peer = TestPeer::new();
    peer.call(1, "/echo", b"abc");
    peer.connection.on_written(0, peer.now);
    peer.pass(LIMITS.keepalive_interval);
    peer.frame(kind::PING, 0, 0, b"talks on");
    peer.connection.on_written(0, peer.now);
    peer.ends_after(LIMITS.keepalive_interval, ConnectionEnd::Unread);
}

#[test]
fn a_client_that_does_not_speak_in_time_is_closed() {
    for begun in [&b""[..], b"PRI * HTTP", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let (mut connection, now) = fresh();
        connection.receive(begun, now);
        connection.on_time(now + Duration::from_secs(10) - MS);
        assert_eq!(connection.end(), None);
        connection.on_time(now + Duration::from_secs(10));
        assert_eq!(connection.end(), Some(ConnectionEnd::HandshakeTimeout), "{begun:?}");
    }
}

#[test]
fn a_shutdown_answers_calls_sent_before_goaway_arrived_and_no_later_ones() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    peer.connection.shut_down(None, peer.now);
    let sent = peer.sent();
    let [SentFrame::GoAway(0x7fff_ffff, 0), SentFrame::Ping(payload, false)] = sent.as_slice()
    else {
        panic!("{sent:?}")
    };
    peer.call(3, "/echo", b"sent before");
    assert_eq!(peer.sent(), echo(3, b"sent before"));
    peer.frame(kind::PING, flag::ACK, 0, payload);
    assert_eq!(peer.sent(), [SentFrame::GoAway(3, 0)]);
    peer.call(5, "/echo", b"sent after");
    peer.connection.end_if_finished();
    assert_eq!((peer.sent(), peer.connection.end()), (vec![], None));
    peer.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    peer.connection.end_if_finished();
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::Finished));
}

#[test]
fn only_the_ping_after_goaway_and_only_in_a_shutdown_ends_it() {
    let mut peer = TestPeer::new();
    peer.frame(kind::PING, flag::ACK, 0, b"goaway\0\0");
    assert_eq!(peer.sent(), []);
    peer.connection.shut_down(None, peer.now);
    peer.sent();
    peer.frame(kind::PING, flag::ACK, 0, b"tollgate");
    assert_eq!(peer.sent(), []);
    peer.frame(kind::PING, flag::ACK, 0, b"goaway\0\0");
    assert_eq!(peer.sent(), [SentFrame::GoAway(0, 0)]);
}

#[test]
fn a_socket_that_accepts_nothing_is_no_sign_of_the_client() {
    let mut peer = TestPeer::new();
    peer.call(1, "/echo", b"");
    peer.now += LIMITS.keepalive_interval / 2;
    peer.connection.on_written(0, peer.now);
    let pending = peer.connection.out().len();
    peer.pass(LIMITS.keepalive_interval / 2);
    assert_eq!(peer.connection.out().len(), pending + HEAD + 8, "a PING");
}

#[test]
fn a_client_that_acknowledges_no_goaway_is_gone() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    peer.connection.shut_down(None, peer.now);
    peer.pass(Duration::from_secs(3));
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::Finished));
}

#[test]
fn calls_have_the_grace_period_and_no_longer() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    peer.connection.shut_down(Some(Duration::from_secs(30)), peer.now);
    peer.frame(kind::PING, flag::ACK, 0, b"goaway\0\0");
    peer.ends_after(Duration::from_secs(30), ConnectionEnd::GraceExceeded);
}

#[test]
fn a_client_that_sends_goaway_is_answered_until_it_has_no_calls() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    peer.frame(kind::GOAWAY, 0, 0, &[0; 8]);
    peer.call(3, "/echo", b"abc");
    assert_eq!(peer.sent(), echo(3, b"abc"));
    peer.connection.end_if_finished();
    assert_eq!(peer.connection.end(), None);
    peer.frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    peer.connection.end_if_finished();
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::Finished));
}

#[test]
fn a_client_that_reads_slowly_is_not_silent() {
    let mut peer = TestPeer::new();
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    peer.frame(kind::WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes());
    (0..9).for_each(|number| peer.call(1 + 2 * number, "/big", b"50000"));
    for _ in 0..20 {
        peer.pass(LIMITS.keepalive_interval / 2);
        peer.connection.on_written(1_000, peer.now);
        assert_eq!(peer.connection.end(), None);
    }
}

#[test]
fn memory_is_given_back_beside_a_call_that_stays() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    (1..9).for_each(|number| peer.call(1 + 2 * number, "/echo", b"abc"));
    peer.sent();
    assert!(peer.connection.known.is_some() && !peer.connection.spare.is_empty());
    peer.pass(Duration::from_secs(1));
    assert!(peer.connection.known.is_none() && peer.connection.spare.is_empty());
    assert_eq!(peer.connection.out.capacity(), 0);
}

#[test]
fn calls_finish_though_others_of_the_connection_are_reset_without_end() {
    let mut peer = TestPeer::new();
    let mut stream = 3;
    let mut reset_some = |peer: &mut TestPeer, count: u32| {
        for _ in 0..count {
            peer.open(stream, "/wait", true);
            peer.frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
            stream += 2;
        }
    };
    peer.open(1, "/echo", false);
    reset_some(&mut peer, 2_048);
    assert_eq!(peer.sent(), []);
    reset_some(&mut peer, 1);
    let goaway = [
        SentFrame::GoAway(0x7fff_ffff, code(Reason::NO_ERROR)),
        SentFrame::Ping(b"goaway\0\0".to_vec(), false),
    ];
    assert_eq!(peer.sent(), goaway);
    // The client does not heed it.
    reset_some(&mut peer, 2_049);
    let last = 1 + 2 * 2 * 2_049;
    assert_eq!(peer.sent(), [SentFrame::GoAway(last, code(Reason::ENHANCE_YOUR_CALM))]);
    reset_some(&mut peer, 1_000);
    assert_eq!(peer.sent(), [], "new streams are ignored");
    peer.frame(kind::DATA, flag::END_STREAM, 1, b"in peace");
    assert_eq!(peer.sent(), echo(1, b"in peace"));
    peer.connection.end_if_finished();
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::ResetFlood));
}

#[test]
fn callers_that_are_too_impatient_do_not_end_their_connection() {
    let mut peer = TestPeer::new();
    // 30,000 a second.
    for stream in (0..60_000).map(|number| 1 + 2 * number) {
        peer.open(stream, "/wait", true);
        peer.frame(kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        peer.now += Duration::from_micros(33);
    }
    assert_eq!(peer.sent(), []);
}

#[test]
fn abuse_that_does_not_stop_ends_the_connection_at_once_and_at_the_latest_with_the_grace() {
    let goaway = |peer: &mut TestPeer| {
        peer.call(1, "/wait", b"");
        (0..100).for_each(|_| peer.frame(kind::SETTINGS, 0, 0, &[]));
        peer.frame(kind::PING, flag::ACK, 0, b"goaway\0\0");
        assert_eq!(peer.connection.end(), None);
    };
    let mut peer = TestPeer::new();
    goaway(&mut peer);
    (0..200).for_each(|_| peer.frame(kind::SETTINGS, 0, 0, &[]));
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::Flood));
    let mut peer = TestPeer::new();
    goaway(&mut peer);
    peer.ends_after(Duration::from_secs(30), ConnectionEnd::Flood);
}

#[test]
fn an_error_after_the_last_goaway_names_no_later_stream() {
    let mut peer = TestPeer::new();
    peer.call(1, "/echo", b"");
    peer.connection.shut_down(None, peer.now);
    peer.frame(kind::PING, flag::ACK, 0, b"goaway\0\0");
    peer.call(3, "/echo", b"too late");
    peer.sent();
    peer.frame(kind::PING, 0, 0, b"short");
    assert_eq!(peer.sent(), [SentFrame::GoAway(1, code(Reason::FRAME_SIZE_ERROR))]);
}

#[test]
fn nothing_is_sent_after_the_goaway_that_ends_the_connection() {
    let mut peer = TestPeer::new();
    peer.connection.shut_down(None, peer.now);
    peer.frame(kind::PING, 0, 0, b"short");
    let sent = peer.connection.out().len();
    peer.pass(Duration::from_secs(60));
    assert_eq!(peer.connection.out().len(), sent);
}

#[test]
fn a_client_that_speaks_after_goaway_but_acknowledges_none_may_finish_its_calls() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    peer.connection.shut_down(None, peer.now);
    peer.sent();
    peer.now += MS;
    peer.frame(kind::PING, flag::ACK, 0, b"whatever");
    peer.pass(Duration::from_secs(3));
    assert_eq!((peer.sent(), peer.connection.end()), (vec![SentFrame::GoAway(1, 0)], None));
}

#[test]
fn a_refusal_with_a_body_is_an_answer_beside_which_the_rest_of_the_request_is_not_wanted() {
    let mut peer = TestPeer::new();
    peer.connection.service.refusal.set("slow");
    peer.frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    peer.open(1, "/echo", false);
    peer.sent();
    peer.pass(LIMITS.message_timeout);
    assert!(matches!(peer.sent().as_slice(), [SentFrame::Headers(1, _, false)]));
    peer.frame(kind::DATA, flag::END_STREAM, 1, b"late");
    assert_eq!(peer.sent(), []);
    let answer =
        [SentFrame::Data(1, b"slow".to_vec(), false), SentFrame::Data(1, Vec::new(), true)];
    peer.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 4]);
    assert_eq!(peer.sent(), answer);
    assert_eq!(peer.connection.account.used(), 0);
    // A request that has arrived needs no reset after its answer.
    let mut peer = TestPeer::with(LIMITS, 0);
    peer.connection.service.refusal.set("slow");
    let future = size_of::<super::super::CallFuture<Echo>>();
    let most = crate::account::OWN - crate::stream::STREAM_COST - future;
    peer.open(1, "/echo", false);
    peer.frame(kind::DATA, 0, 1, &vec![0; most]);
    peer.frame(kind::DATA, flag::END_STREAM, 1, b"x");
    let sent = peer.sent();
    assert!(matches!(sent.first(), Some(SentFrame::Headers(1, _, false))), "{sent:?}");
    assert_eq!(sent[1..], answer);
}

#[test]
fn a_client_that_only_reads_is_pinged_too() {
    let mut peer = TestPeer::new();
    peer.open(1, "/echo", false);
    peer.pass(LIMITS.message_timeout);
    assert_eq!(peer.sent(), [refusal(1, Refusal::BodyTooSlow), SentFrame::Reset(1, 0)]);
    peer.pass(LIMITS.keepalive_interval - LIMITS.message_timeout);
    assert_eq!(peer.sent(), [SentFrame::Ping(b"tollgate".to_vec(), false)]);
}

#[test]
fn a_second_shutdown_shortens_the_grace_period_and_sends_nothing() {
    let mut peer = TestPeer::new();
    peer.call(1, "/wait", b"");
    peer.connection.shut_down(None, peer.now);
    assert_eq!(peer.sent().len(), 2);
    peer.connection.shut_down(Some(LIMITS.keepalive_timeout), peer.now);
    assert_eq!(peer.sent(), []);
    peer.frame(kind::PING, flag::ACK, 0, b"goaway\0\0");
    assert_eq!(peer.sent(), [SentFrame::GoAway(1, 0)]);
    peer.connection.shut_down(Some(LIMITS.keepalive_interval), peer.now);
    peer.pass(LIMITS.keepalive_timeout);
    assert_eq!(peer.connection.end(), Some(ConnectionEnd::GraceExceeded));
    let mut peer = TestPeer::new();
    peer.frame(kind::PING, 0, 0, b"short");
    assert!(peer.connection.end().is_some());
    peer.sent();
    peer.connection.shut_down(None, peer.now);
    assert_eq!(peer.sent(), []);
}
