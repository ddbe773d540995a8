//! The encoder: the representation of each field, and changes of the table.

use super::{Decoder, Encoder, block_of, decode, entries, field, hex};

static LONG: [u8; 2048] = [b'v'; 2048];

/// Returns a value that makes an entry of `size` bytes with a name of one octet.
fn value(size: usize) -> &'static [u8] {
    &LONG[..size - 33]
}

fn repeated(encoder: &mut Encoder, name: &'static [u8], value: &'static [u8]) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    encoder.repeated(name, value, &mut block);
    block
}

#[test]
fn a_field_is_an_index_a_literal_with_an_index_or_a_literal() {
    let mut encoder = Encoder::new();
    assert_eq!(block_of(&mut encoder, b":status", b"200"), hex("88"));
    assert_eq!(block_of(&mut encoder, b":status", b"500"), hex("8e"));
    assert_eq!(block_of(&mut encoder, b"www-authenticate", b""), hex("bd"));
    assert_eq!(block_of(&mut encoder, b":status", b"201"), hex("08 03 323031"));
    assert_eq!(block_of(&mut encoder, b"content-type", b"a"), hex("0f10 01 61"));
    assert_eq!(block_of(&mut encoder, b"x", b""), hex("00 01 78 00"));
    assert_eq!(block_of(&mut encoder, b"", b""), hex("00 00 00"));
}

#[test]
fn a_repeated_field_is_inserted_once_unless_it_is_in_the_static_table_and_an_index_from_then_on() {
    let mut encoder = Encoder::new();
    assert_eq!(repeated(&mut encoder, b":status", b"200"), hex("88"));
    assert_eq!(repeated(&mut encoder, b"content-type", b"a"), hex("5f 01 61"));
    assert_eq!(repeated(&mut encoder, b"content-type", b"a"), hex("be"));
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("40 01 78 01 79"));
    assert_eq!(repeated(&mut encoder, b"content-type", b"a"), hex("bf"));
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("be"));
}

#[test]
fn a_repeated_field_is_known_by_its_bytes_wherever_they_are() {
    let mut encoder = Encoder::new();
    repeated(&mut encoder, b"x", b"y");
    let copy: &'static [u8] = b"yy".to_vec().leak();
    assert_eq!(repeated(&mut encoder, b"x", &copy[1..]), hex("be"));
    assert_eq!(
        repeated(&mut encoder, b"x", copy),
        hex("40 01 78 02 79 79"),
        "same address, other length"
    );
}

#[test]
fn repeated_fields_take_at_most_half_of_the_table() {
    let mut encoder = Encoder::new();
    assert_eq!(repeated(&mut encoder, b"a", value(2049))[0], 0x00);
    assert_eq!(repeated(&mut encoder, b"a", value(2000))[0], 0x40);
    assert_eq!(repeated(&mut encoder, b"b", value(49))[0], 0x00);
    assert_eq!(repeated(&mut encoder, b"b", value(48))[0], 0x40);
    assert_eq!(repeated(&mut encoder, b"a", value(2000)), hex("bf"));
}

#[test]
fn the_smallest_and_the_last_of_changed_sizes_are_written_at_the_beginning_of_the_next_block() {
    type SizedBlock<'a> = (&'a [u32], &'a str);
    let connections: [&[SizedBlock<'_>]; 3] = [
        &[(&[100], "3f 45 82"), (&[], "82")],
        &[(&[100, 20, 30], "34 3e 82"), (&[30, 10, 10, 10], "2a 82")],
        // A size that does not change, or exceeds the default, is not written.
        &[
            (&[4096], "82"),
            (&[65536], "82"),
            (&[u32::MAX], "82"),
            (&[10, u32::MAX], "2a 3f e1 1f 82"),
        ],
    ];
    for blocks in connections {
        let mut encoder = Encoder::new();
        for (sizes, block) in blocks {
            sizes.iter().for_each(|bytes| encoder.set_max_table(*bytes));
            assert_eq!(block_of(&mut encoder, b":method", b"GET"), hex(block), "{sizes:?}");
        }
    }
}

#[test]
fn a_table_of_nothing_makes_every_field_a_literal_until_it_grows_again() {
    let mut encoder = Encoder::new();
    repeated(&mut encoder, b"x", b"y");
    encoder.set_max_table(0);
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("20 00 01 78 01 79"));
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("00 01 78 01 79"));
    encoder.set_max_table(4096);
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("3f e1 1f 40 01 78 01 79"));
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("be"));
}

#[test]
fn a_field_that_fills_a_smaller_table_stays_in_it() {
    let mut encoder = Encoder::new();
    repeated(&mut encoder, b"x", b"y");
    encoder.set_max_table(34);
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("3f 03 be"));
    encoder.set_max_table(33);
    assert_eq!(repeated(&mut encoder, b"x", b"y"), hex("3f 02 00 01 78 01 79"));
}

#[test]
fn a_smaller_table_evicts_the_oldest_fields_in_both_tables() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new(4096);
    for name in [b"a", b"b", b"c"] {
        decode(&mut decoder, &repeated(&mut encoder, name, b"")).unwrap();
    }
    encoder.set_max_table(70);
    let block = repeated(&mut encoder, b"b", b"");
    assert_eq!(block, hex("3f 27 bf"));
    assert_eq!(decode(&mut decoder, &block).unwrap().0, [field("b", "")]);
    assert_eq!(entries(&mut decoder), [field("c", ""), field("b", "")]);
    let block = repeated(&mut encoder, b"a", b"");
    assert_eq!(decode(&mut decoder, &block).unwrap().0, [field("a", "")]);
    assert_eq!(entries(&mut decoder).len(), 2, "more than half of the table is taken");
}
