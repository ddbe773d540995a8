//! Runs of each target for seconds, on valid and invalid frames and on arbitrary bytes.

use proptest::prelude::*;

use super::client::FuzzClient;
use super::service::Behaviour;
use super::wire::FuzzWire;
use super::{connection, frames, hpack};
use crate::frame;

/// Generates bytes as a client might send them: frames, some bytes of which are changed.
fn sent() -> impl Strategy<Value = Vec<u8>> {
    let one = (0u8..12, any::<u8>(), 0u32..32, prop::collection::vec(any::<u8>(), 0..60));
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (any::<[u8; 2]>(), prop::collection::vec(one, 1..60), changes).prop_map(
        |(begin, all, changes)| {
            let mut bytes = begin.to_vec();
            for (kind, flags, stream, payload) in all {
                frame::write(&mut bytes, kind, flags, stream, &payload);
            }
            changes.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
            bytes
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn any_bytes_of_a_client_leave_the_connection_within_its_bounds(bytes in sent()) {
        frames::run(&bytes);
    }

    #[test]
    fn any_header_blocks_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        hpack::run(&bytes);
    }

    #[test]
    fn every_call_of_a_connection_is_answered_or_reset(bytes in prop::collection::vec(any::<u8>(), 0..1_500)) {
        connection::run(&bytes);
    }

    #[test]
    fn every_call_of_a_client_that_keeps_to_the_protocol_is_answered_or_reset(
        // No wild frames: their lower half is 15.
        bytes in prop::collection::vec((0..240u8).prop_map(|byte| byte / 15 * 16 + byte % 15), 0..1_500),
    ) {
        connection::run(&bytes);
    }
}

#[test]
fn a_lowered_window_does_not_apply_to_bytes_in_flight() {
    connection::run(include_bytes!("../../../../fuzz/seeds/connection/window-lowered-under-way"));
}

#[test]
fn an_answer_that_has_begun_is_not_begun_again_when_memory_is_used_up() {
    let mut wire = FuzzWire::new();
    let mut client = FuzzClient::new();
    wire.send(&[FuzzClient::preface(), client.set_initial_window(0)].concat());
    wire.send(&client.begin(Behaviour::StreamEcho, &[], false));
    client.read(&wire.turn(usize::MAX));
    for _ in 0..10 {
        let data = client.data(1, 60_000, false);
        wire.send(&data);
        client.read(&wire.turn(usize::MAX));
    }
}
