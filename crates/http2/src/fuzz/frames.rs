//! Arbitrary bytes from a client, in pieces of any size.

use super::FuzzInput;
use super::client::FuzzClient;
use super::wire::FuzzWire;

/// Runs an input. Its first byte selects whether the client completes the handshake first, its
/// second byte the size of the pieces.
pub fn run(bytes: &[u8]) {
    let mut input = FuzzInput(bytes);
    let begin = input.u8();
    let piece = usize::from(input.u8()).pow(2).max(1);
    let mut wire = FuzzWire::new();
    let mut client = FuzzClient::new();
    client.is_wild = true;
    if begin % 4 != 0 {
        wire.send(&FuzzClient::preface());
    }
    while !input.is_empty() && wire.end().is_none() {
        wire.send(input.bytes(piece));
        client.read(&wire.turn(usize::MAX));
    }
    client.read(&wire.turn(usize::MAX));
    wire.pass(std::time::Duration::from_secs(30));
    client.read(&wire.turn(usize::MAX));
    wire.close();
}
