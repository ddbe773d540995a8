//! Edge cases of the decoder: each fault and each bound.

use super::{Decoder, HpackError, decode, entries, field, hex, indexed, size, write_integer};

fn fault(block: &str) -> HpackError {
    decode(&mut Decoder::new(4096), &hex(block)).unwrap_err()
}

#[test]
fn each_fault_has_its_error() {
    let faults = [
        ("40", HpackError::Truncated),
        ("00 01", HpackError::Truncated),
        ("00 01 61 02 62", HpackError::Truncated),
        ("04", HpackError::Truncated),
        ("ff", HpackError::Truncated),
        ("ff 80 80 80 80", HpackError::Truncated),
        ("3f", HpackError::Truncated),
        ("ff 80 80 80 80 80 00", HpackError::IntegerTooLong),
        ("3f ff ff ff ff ff ff", HpackError::IntegerTooLong),
        ("0f 80 80 80 80 80", HpackError::IntegerTooLong),
        ("00 7f ff ff ff ff 7f", HpackError::IntegerOverflow),
        ("ff 81 ff ff ff 0f", HpackError::IntegerOverflow),
        ("80", HpackError::IndexZero),
        ("be", HpackError::IndexOutOfRange),
        ("7e 00", HpackError::IndexOutOfRange),
        ("0f 2f 00", HpackError::IndexOutOfRange),
        ("ff ff fe ff ff 0f", HpackError::IndexOutOfRange),
        ("82 20", HpackError::LateSizeUpdate),
        ("20 82 20", HpackError::LateSizeUpdate),
        ("20 20 20", HpackError::TooManySizeUpdates),
        ("3f e2 1f", HpackError::SizeUpdateTooLarge),
        ("3f e0 ff ff ff 0f", HpackError::SizeUpdateTooLarge),
        ("04 84 ff ff ff ff", HpackError::HuffmanEos),
        ("04 85 1f ff ff ff ff", HpackError::HuffmanEos),
        ("04 81 ff", HpackError::HuffmanPaddingTooLong),
        ("04 83 1f ff ff", HpackError::HuffmanPaddingTooLong),
        ("04 83 ff ff ff", HpackError::HuffmanPaddingTooLong),
        ("04 81 18", HpackError::HuffmanPaddingNotOnes),
        ("04 81 1e", HpackError::HuffmanPaddingNotOnes),
        ("04 82 ff fe", HpackError::HuffmanPaddingNotOnes),
        ("00 81 18 00", HpackError::HuffmanPaddingNotOnes),
    ];
    for (block, error) in faults {
        assert_eq!(fault(block), error, "{block}");
    }
}

#[test]
fn fields_before_a_fault_are_shown() {
    let mut shown = Vec::new();
    let result = Decoder::new(4096)
        .decode(&hex("82 80"), |name, value| shown.push((name.to_vec(), value.to_vec())));
    assert_eq!(result, Err(HpackError::IndexZero));
    assert_eq!(shown, [field(":method", "GET")]);
}

#[test]
fn a_string_may_be_empty_and_an_integer_have_zeros_up_to_the_fifth_continuation_octet() {
    for (block, name) in [
        ("04 00", ":path"),
        // With Huffman coding.
        ("04 80", ":path"),
        ("0f 00 00", "accept-charset"),
        ("0f 80 00 00", "accept-charset"),
        ("0f 80 80 80 80 00 00", "accept-charset"),
    ] {
        assert_eq!(decode(&mut Decoder::new(4096), &hex(block)).unwrap().0, [field(name, "")]);
    }
}

#[test]
fn a_block_without_fields_changes_nothing() {
    assert_eq!(decode(&mut Decoder::new(4096), &[]), Ok((Vec::new(), true)));
}

#[test]
fn only_blocks_that_insert_nothing_and_resize_nothing_leave_the_table_unchanged() {
    let mut decoder = Decoder::new(4096);
    for (block, is_unchanged) in [
        ("82 86", true),
        ("00 01 61 01 62", true),
        ("10 01 61 01 62", true),
        ("40 01 61 01 62", false),
        ("be", true),
        ("be 41 00", false),
        ("3f e1 1f 82", false),
        ("20", false),
        ("82", true),
    ] {
        assert_eq!(decode(&mut decoder, &hex(block)).unwrap().1, is_unchanged, "{block}");
    }
}

#[test]
fn never_indexed_literals_are_literals() {
    let mut decoder = Decoder::new(4096);
    let (fields, _) = decode(&mut decoder, &hex("10 01 61 01 62 1f 08 01 63")).unwrap();
    assert_eq!(fields, [field("a", "b"), field("authorization", "c")]);
    assert!(entries(&mut decoder).is_empty());
}

#[test]
fn the_name_of_an_entry_may_be_that_of_the_one_it_evicts() {
    // One entry of 32 + 10 + 0 bytes fits, two do not.
    let mut decoder = Decoder::new(64);
    decode(&mut decoder, &hex("40 0a 61 62 63 64 65 66 67 68 69 6a 00")).unwrap();
    let (fields, _) = decode(&mut decoder, &hex("7e 03 78 79 7a")).unwrap();
    assert_eq!(fields, [field("abcdefghij", "xyz")]);
    assert_eq!(entries(&mut decoder), fields);
}

#[test]
fn a_field_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(64);
    decode(&mut decoder, &hex("40 01 61 00")).unwrap();
    let mut block = hex("40 01 62 20");
    block.extend([b'c'; 32]);
    let (fields, is_unchanged) = decode(&mut decoder, &block).unwrap();
    assert_eq!(fields, [field("b", &"c".repeat(32))]);
    assert!(!is_unchanged);
    assert!(entries(&mut decoder).is_empty());
}

#[test]
fn a_size_update_evicts_the_oldest_entries_and_stays_in_force() {
    let mut decoder = Decoder::new(4096);
    decode(&mut decoder, &hex("40 01 61 00 40 01 62 00 40 01 63 00")).unwrap();
    // 66 bytes: two entries of 33.
    decode(&mut decoder, &hex("3f 23")).unwrap();
    assert_eq!(entries(&mut decoder), [field("c", ""), field("b", "")]);
    decode(&mut decoder, &hex("40 01 64 00")).unwrap();
    assert_eq!(entries(&mut decoder), [field("d", ""), field("c", "")]);
    decode(&mut decoder, &hex("20 3f e1 1f")).unwrap();
    assert!(entries(&mut decoder).is_empty());
    decode(&mut decoder, &hex("40 01 64 00 40 01 65 00 40 01 66 00")).unwrap();
    assert_eq!(entries(&mut decoder).len(), 3);
}

#[test]
fn a_table_larger_than_the_default_is_used_only_after_a_size_update() {
    let insert = |decoder: &mut Decoder| {
        for _ in 0..300 {
            decode(decoder, &hex("40 00 00")).unwrap();
        }
        size(&entries(decoder))
    };
    let mut decoder = Decoder::new(8192);
    assert_eq!(insert(&mut decoder), 4096);
    decode(&mut decoder, &hex("3f e1 3f")).unwrap();
    assert_eq!(insert(&mut decoder), 8192);
    assert_eq!(decode(&mut decoder, &hex("3f e2 3f")), Err(HpackError::SizeUpdateTooLarge));
}

#[test]
fn entries_are_found_by_indices_of_several_octets() {
    let mut decoder = Decoder::new(4096);
    for number in 0..100_u8 {
        decode(&mut decoder, &[0x40, 1, number, 0]).unwrap();
    }
    for (index, number) in (62..162).zip((0..100_u8).rev()) {
        assert_eq!(decode(&mut decoder, &indexed(index)).unwrap().0, [(vec![number], Vec::new())]);
        let mut literal = Vec::new();
        write_integer(index, 0x0f, 0, &mut literal);
        literal.push(0);
        assert_eq!(decode(&mut decoder, &literal).unwrap().0, [(vec![number], Vec::new())]);
    }
}
