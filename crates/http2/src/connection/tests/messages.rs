//! General calls: begun with their body or first message, charged as bytes arrive, in time.

use super::*;
use crate::stream::STREAM_COST;

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

fn charged(peer: &TestPeer) -> usize {
    peer.connection.account.charged()
}

/// Opens a call, and returns what its header list and stream cost.
fn opened(peer: &mut TestPeer, path: &str) -> usize {
    peer.open(1, path, false);
    let charged = charged(peer);
    assert!((STREAM_COST..3 * STREAM_COST).contains(&charged), "{charged}");
    charged
}

#[test]
fn a_call_is_charged_as_its_bytes_arrive_and_its_cost_when_it_begins() {
    for (path, announced) in [("/messages", MAX_MESSAGE), ("/whole", 90_000)] {
        let mut peer = TestPeer::with(LIMITS, 16 << 20);
        let opened = opened(&mut peer, path);
        let prefix = u32::try_from(announced).unwrap().to_be_bytes();
        peer.frame(kind::DATA, 0, 1, &[&[0][..], &prefix].concat());
        assert_eq!(charged(&peer), opened + 5, "{path}: announced");
        peer.frame(kind::DATA, 0, 1, &[0; 1_000]);
        assert_eq!(charged(&peer), opened + 1_005, "{path}: arrived");
    }
    let mut peer = TestPeer::new();
    let opened = opened(&mut peer, "/whole");
    peer.frame(kind::DATA, 0, 1, &[0; 1_000]);
    assert_eq!(charged(&peer), opened + 1_000);
    peer.connection.end_input(1, None, peer.now).ok();
    peer.connection.poll_calls(&mut Context::from_waker(Waker::noop()), peer.now);
    assert_eq!(peer.sent().len(), 3, "an answer with a body");
}

#[test]
fn a_call_whose_cost_does_not_fit_is_refused_when_it_begins() {
    for (path, body) in [("/messages", framed(b"")), ("/whole", vec![0; 10_000])] {
        let mut peer = TestPeer::new();
        peer.open(1, path, false);
        while peer.connection.account.charge(1).is_ok() {}
        peer.connection.account.release(body.len() + 999);
        assert!(peer.sent().is_empty());
        peer.frame(kind::DATA, flag::END_STREAM, 1, &body);
        assert_eq!(peer.sent()[0], refusal(1, Refusal::BudgetExceeded), "{path}");
    }
}

#[test]
fn a_message_has_the_message_timeout_from_its_first_byte() {
    let half = &framed(b"message")[..9];
    let whole = framed(b"message");
    for (first, then, is_late) in [
        (&[][..], &[][..], true),
        (half, &[], true),
        (&whole, &[], false),
        (&whole, half, true),
        (&[&whole[..], half].concat(), &[&whole[9..], half].concat(), true),
    ] {
        let mut peer = TestPeer::new();
        peer.open(1, "/messages", false);
        if !first.is_empty() {
            peer.frame(kind::DATA, 0, 1, first);
        }
        peer.pass(LIMITS.message_timeout - Duration::from_secs(1));
        if !then.is_empty() {
            peer.frame(kind::DATA, 0, 1, then);
            assert!(peer.sent().is_empty());
            peer.pass(LIMITS.message_timeout - Duration::from_secs(1));
        }
        assert!(peer.sent().is_empty(), "in time");
        peer.pass(Duration::from_secs(2));
        let expected = [refusal(1, Refusal::BodyTooSlow), SentFrame::Reset(1, 0)];
        assert_eq!(peer.sent(), if is_late { &expected[..] } else { &[] }, "{first:?} {then:?}");
    }
}

#[test]
fn a_message_that_is_larger_than_a_window_arrives_and_a_larger_one_is_refused() {
    let mut peer = TestPeer::with(LIMITS, 64 << 20);
    peer.open(1, "/messages", false);
    for piece in framed(&vec![7; MAX_MESSAGE]).chunks(16_000) {
        peer.frame(kind::DATA, 0, 1, piece);
    }
    let sent = peer.sent();
    assert!(!sent.iter().any(|frame| matches!(frame, SentFrame::Reset(..))));
    let prefix = u32::try_from(MAX_MESSAGE + 1).unwrap().to_be_bytes();
    peer.frame(kind::DATA, 0, 1, &[&[0][..], &prefix].concat());
    let refused = refusal(1, Refusal::MessageTooLarge { max: MAX_MESSAGE });
    assert_eq!(peer.sent()[0], refused);
}

#[test]
fn many_small_messages_are_read_in_turns_of_the_connection() {
    let mut peer = TestPeer::new();
    peer.open(1, "/messages", false);
    let small = [0; 5].repeat(3_000);
    peer.frame(kind::DATA, flag::END_STREAM, 1, &small);
    let mut turns = 0;
    while peer.sent().is_empty() {
        peer.connection.poll_calls(&mut Context::from_waker(Waker::noop()), peer.now);
        turns += 1;
    }
    assert!((40..60).contains(&turns), "{turns} turns of 63 messages");
}
