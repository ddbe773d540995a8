//! Arbitrary blocks through a decoder, and header lists through an encoder and a decoder.

use super::FuzzInput;
use crate::hpack::{Decoder, Encoder};

/// Fields that the encoder may insert. Their addresses are stable, as it requires.
const REPEATED: [(&[u8], &[u8]); 4] = [
    (b"content-type", b"application/grpc"),
    (b"grpc-status", b"0"),
    (b"x-long", &[b'l'; 900]),
    (b"x-huge", &[b'h'; 2100]),
];

/// Runs an input; its first byte selects decoding or encoding.
pub fn run(bytes: &[u8]) {
    let mut input = FuzzInput(bytes);
    if input.u8().is_multiple_of(2) { decode(input) } else { encode(input) }
}

/// Decodes blocks, each preceded by its length.
fn decode(mut input: FuzzInput<'_>) {
    let max = [0, 64, 4096, 65_536][usize::from(input.u8() % 4)];
    let mut decoder = Decoder::new(max);
    let mut twin = Decoder::new(max);
    while !input.is_empty() {
        let length = usize::from(input.u16() % 2048);
        let block = input.bytes(length);
        let mut fields = Vec::new();
        let mut others = Vec::new();
        let decoded =
            decoder.decode(block, |name, value| fields.push((name.to_vec(), value.to_vec())));
        let again = twin.decode(block, |name, value| others.push((name.to_vec(), value.to_vec())));
        assert_eq!((decoded, &fields), (again, &others));
        match decoded {
            // The same block decodes to the same fields.
            Ok(true) => {
                others.clear();
                let again =
                    twin.decode(block, |name, value| others.push((name.to_vec(), value.to_vec())));
                assert_eq!((again, fields), (Ok(true), others));
            }
            Ok(false) => {}
            Err(_) => return,
        }
    }
}

fn encode(mut input: FuzzInput<'_>) {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(4096);
    while !input.is_empty() {
        let mut block = Vec::new();
        let mut sent = Vec::new();
        let mut received = Vec::new();
        for _ in 0..input.u8() % 4 {
            encoder.set_max_table(input.u16().into());
        }
        encoder.begin(&mut block);
        for _ in 0..input.u8() % 16 {
            let choice = usize::from(input.u8());
            if let Some((name, value)) = REPEATED.get(choice) {
                encoder.repeated(name, value, &mut block);
                sent.push((name.to_vec(), value.to_vec()));
            } else {
                let name = input.bytes(choice % 16).to_vec();
                let value = input.bytes(choice).to_vec();
                encoder.field(&name, &value, &mut block);
                sent.push((name, value));
            }
        }
        decoder
            .decode(&block, |name, value| received.push((name.to_vec(), value.to_vec())))
            .expect("a block");
        assert_eq!(sent, received);
    }
}
