//! Arbitrary blocks through a decoder. The laws of `hpack` compare an encoder with a reference.

use super::FuzzInput;
use crate::hpack::Decoder;

/// Decodes blocks, each preceded by its length.
pub fn run(bytes: &[u8]) {
    let mut input = FuzzInput(bytes);
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
