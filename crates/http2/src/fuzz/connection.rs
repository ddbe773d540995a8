//! A whole connection with a simulated clock: calls of every kind, windows, resets, a slow socket,
//! time, shutdown, arbitrary frames.

use std::time::Duration;

use super::FuzzInput;
use super::client::FuzzClient;
use super::service::Behaviour;
use super::wire::FuzzWire;
use crate::connection::ConnectionEnd;
use crate::frame::{self, flag, kind};

/// Maximum number of steps of one input.
const MAX_STEPS: usize = 400;
/// Number of gate openings after which the largest answer in pieces is complete.
const LAST_OPENINGS: usize = 20;

/// Runs an input: each step is a byte, followed by its parameters.
pub fn run(bytes: &[u8]) {
    let mut input = FuzzInput(bytes);
    let mut wire = FuzzWire::new();
    let mut client = FuzzClient::new();
    wire.send(&FuzzClient::preface());
    client.read(&wire.turn(usize::MAX));
    let mut held = Vec::new();
    for _ in 0..MAX_STEPS {
        if input.is_empty() || wire.end().is_some() {
            break;
        }
        let step = input.u8();
        if step % 16 == 8 {
            // Earlier bytes are answered first: a smaller window does not apply to them.
            wire.send(&std::mem::take(&mut held));
            client.read(&wire.turn(usize::MAX));
        }
        let sent = client_step(step % 16, &mut input, &mut client);
        held.extend_from_slice(&sent);
        let room = match step % 16 {
            11 => input.size(),
            12 => usize::MAX,
            _ => 0,
        };
        server_step(step % 16, &mut input, &mut wire);
        // Some steps arrive together with the next one, or stop within a frame.
        let kept = if step & 0xf0 == 0x70 { held.len() / 2 } else { 0 };
        if step & 0x80 == 0 || step % 16 == 8 {
            wire.send(&held);
            held.clear();
        } else if kept > 0 {
            wire.send(&held.drain(..kept).collect::<Vec<_>>());
        }
        client.read(&wire.turn(room));
    }
    wire.send(&held);
    client.read(&wire.turn(usize::MAX));
    finish(&mut wire, &mut client);
    wire.close();
}

/// Returns what the client sends in a step.
fn client_step(step: u8, input: &mut FuzzInput<'_>, client: &mut FuzzClient) -> Vec<u8> {
    match step {
        0..=3 => begin(step, input, client),
        4 => {
            let stream = stream(input, client);
            let length = input.size();
            client.data(stream, length, false)
        }
        5 => {
            let stream = stream(input, client);
            let length = input.size();
            client.data(stream, length, true)
        }
        6 => {
            let stream = stream(input, client);
            let mut bytes = Vec::new();
            if let Some(call) = client.calls.get_mut(&stream).filter(|call| !call.is_reset) {
                call.is_reset = true;
                frame::write(&mut bytes, kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
            }
            bytes
        }
        7 => {
            let stream = if input.u8().is_multiple_of(2) { 0 } else { stream(input, client) };
            let bytes = u32::try_from(input.size()).unwrap().max(1);
            client.widen(stream, bytes)
        }
        8 if input.u8().is_multiple_of(2) => {
            client.set_initial_window(u32::try_from(input.size()).unwrap())
        }
        8 => client.setting(1, u32::try_from(input.size()).unwrap()),
        13 => {
            let mut bytes = Vec::new();
            for ping in std::mem::take(&mut client.pings) {
                frame::write(&mut bytes, kind::PING, flag::ACK, 0, &ping);
            }
            bytes
        }
        15 => {
            client.is_wild = true;
            let kind = input.u8() % 12;
            let flags = input.u8();
            let stream = input.u32() % 64;
            let length = input.u8();
            let mut bytes = Vec::new();
            frame::write(&mut bytes, kind, flags, stream, input.bytes(length.into()));
            bytes
        }
        _ => Vec::new(),
    }
}

/// Begins a call: whole, only begun, or with its header block in pieces.
fn begin(step: u8, input: &mut FuzzInput<'_>, client: &mut FuzzClient) -> Vec<u8> {
    let behaviour = match input.u8() % 10 {
        0 | 1 => Behaviour::Echo,
        2 => Behaviour::Later,
        3 => Behaviour::Never,
        4 | 5 => Behaviour::Large(input.size()),
        6 => Behaviour::StreamEcho,
        7 => Behaviour::Status,
        8 => Behaviour::Pieces(input.size()),
        _ => Behaviour::Fail,
    };
    let inserted = input.u8() % 64;
    let length = input.size();
    let inserted = input.bytes(inserted.into());
    match step {
        0 | 1 => {
            let headers = client.begin(behaviour, inserted, false);
            let stream = client.last_stream;
            [headers, client.data(stream, length, true)].concat()
        }
        2 => client.begin(behaviour, inserted, false),
        _ => client.begin(behaviour, inserted, true),
    }
}

/// Returns the stream of a call, usually of a recent one.
fn stream(input: &mut FuzzInput<'_>, client: &FuzzClient) -> u32 {
    client.last_stream.saturating_sub(u32::from(input.u8() % 16) * 2)
}

fn server_step(step: u8, input: &mut FuzzInput<'_>, wire: &mut FuzzWire) {
    match step {
        9 => wire.pass(Duration::from_millis(1 << (input.u8() % 18))),
        10 => wire.gate.open(),
        14 if input.u8().is_multiple_of(4) => {
            let grace = input.u8();
            wire.shut_down((grace.is_multiple_of(2)).then(|| Duration::from_secs(grace.into())));
        }
        _ => {}
    }
}

/// Unblocks every call: each is answered or reset, and a client that followed the protocol receives
/// no error.
fn finish(wire: &mut FuzzWire, client: &mut FuzzClient) {
    if wire.end().is_none() && !client.is_wild {
        wire.send(&client.widen(0, 1 << 30));
        let streams: Vec<u32> = client.calls.keys().copied().collect();
        for stream in streams {
            wire.send(&client.widen(stream, 1 << 30));
            client.read(&wire.turn(usize::MAX));
        }
        for _ in 0..LAST_OPENINGS {
            wire.gate.open();
            client.read(&wire.turn(usize::MAX));
        }
    }
    if wire.end().is_none() && !client.is_wild {
        assert_eq!(client.unanswered(), [0; 0]);
    }
    assert!(
        client.is_wild || !matches!(wire.end(), Some(ConnectionEnd::Error(_))),
        "{:?}",
        wire.end()
    );
    wire.pass(Duration::from_secs(5));
    client.read(&wire.turn(usize::MAX));
}
