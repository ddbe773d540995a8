//! Properties of the encoder and the decoder, over random inputs.

use proptest::collection::vec;
use proptest::prelude::*;

use super::reference::{
    LiteralKind, LiteralName, LiteralText, ReferenceDecoder, Representation, huffman_decode,
    huffman_encode,
};
use super::{Decoder, Encoder, HpackError, OwnedField, decode, entries, huffman, size};

static LONG: [u8; 1500] = [b'v'; 1500];

/// Fields that an encoder may repeat. Not all of them fit into half of a table.
const REPEATED: [(&[u8], &[u8]); 8] = [
    (b":status", b"200"),
    (b"content-type", b"application/grpc"),
    (b"grpc-status", b"0"),
    (b"server", b"tollgate"),
    (b"x", b""),
    (b"x", b"y"),
    (b"long", &LONG),
    (b"longer", &LONG),
];

/// A field of a block written by an encoder.
#[derive(Clone, Debug)]
pub(super) enum EncodedField {
    Once(OwnedField),
    Repeated(usize),
}

/// Generates names of few and of many distinct values, some of them in the static table.
fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b":status".to_vec()),
        Just(b"content-type".to_vec()),
        "[a-c]{0,2}".prop_map(String::into_bytes),
        "[a-z-]{1,40}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..20),
    ]
}

fn short_values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(b"200".to_vec()),
        "[a-c]{0,2}".prop_map(String::into_bytes),
        "[ -~]{0,40}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..40),
    ]
}

/// Generates values; some fill a table, and a few exceed it.
fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![40 => short_values(), 4 => vec(any::<u8>(), 0..1500), 1 => vec(any::<u8>(), 3000..5000)]
}

pub(super) fn written() -> impl Strategy<Value = EncodedField> {
    prop_oneof![
        (names(), values()).prop_map(EncodedField::Once),
        (0..REPEATED.len()).prop_map(EncodedField::Repeated)
    ]
}

pub(super) fn sizes() -> impl Strategy<Value = u32> {
    prop_oneof![0..200_u32, 0..5000_u32, Just(4096), Just(u32::MAX)]
}

fn texts(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = LiteralText> {
    (bytes, any::<bool>()).prop_map(|(bytes, is_huffman)| LiteralText { bytes, is_huffman })
}

/// Generates indices of the static table and, mostly, of the start of the dynamic one.
fn indices() -> impl Strategy<Value = usize> {
    prop_oneof![0..62_usize, 60..70_usize, 60..70_usize, 60..200_usize]
}

fn literals(values: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Representation> {
    let kinds = prop_oneof![
        Just(LiteralKind::Inserted),
        Just(LiteralKind::Inserted),
        Just(LiteralKind::NotInserted),
        Just(LiteralKind::NeverIndexed)
    ];
    // Index 0 has another meaning.
    let names = prop_oneof![
        indices().prop_map(|index| LiteralName::Index(index.max(1))),
        texts(names()).prop_map(LiteralName::New)
    ];
    (kinds, names, texts(values)).prop_map(|(kind, name, value)| Representation::Literal {
        kind,
        name,
        value,
    })
}

fn steps() -> impl Strategy<Value = Vec<Representation>> {
    let updates = vec((0..5000_usize).prop_map(Representation::SizeUpdate), 0..2);
    let rest = prop_oneof![
        8 => literals(values()),
        4 => indices().prop_map(Representation::Indexed),
        1 => (0..5000_usize).prop_map(Representation::SizeUpdate)
    ];
    (updates, vec(rest, 0..12)).prop_map(|(updates, rest)| [updates, rest].concat())
}

fn maxima() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), Just(40), Just(256), Just(4096), Just(4096), Just(8192)]
}

/// Writes a block. Returns it and its fields.
pub(super) fn write(
    encoder: &mut Encoder,
    fields: Vec<EncodedField>,
) -> (Vec<u8>, Vec<OwnedField>) {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    let write = |field| match field {
        EncodedField::Once((name, value)) => {
            encoder.field(&name, &value, &mut block);
            (name, value)
        }
        EncodedField::Repeated(number) => {
            let (name, value) = REPEATED[number];
            encoder.repeated(name, value, &mut block);
            (name.to_vec(), value.to_vec())
        }
    };
    let list = fields.into_iter().map(write).collect();
    (block, list)
}

/// Feeds a block to both decoders, which must agree in all that is observable.
fn agree(
    decoder: &mut Decoder,
    reference: &mut ReferenceDecoder,
    block: &[u8],
) -> Result<(), HpackError> {
    let before = entries(decoder);
    let expected = reference.decode(block);
    let decoded = decode(decoder, block);
    assert_eq!(decoded, expected);
    let entries = entries(decoder);
    assert!(size(&entries) <= reference.limit);
    // After an error, the fast decoder may have inserted less or more.
    let (_, is_unchanged) = decoded?;
    assert_eq!(entries, reference.entries);
    assert!(!is_unchanged || entries == before);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn what_is_encoded_is_decoded_whatever_sizes_the_peer_sends(
        blocks in vec((vec(sizes(), 0..4), vec(written(), 0..8)), 1..20)
    ) {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new(4096);
        let mut peer = ReferenceDecoder::new(4096);
        for (sizes, fields) in blocks {
            let limit_before = peer.limit;
            for size in &sizes {
                encoder.set_max_table(*size);
                peer.max = usize::try_from(*size).unwrap();
            }
            let (block, list) = write(&mut encoder, fields);
            prop_assert_eq!(&peer.decode(&block).unwrap().0, &list);
            prop_assert_eq!(decode(&mut decoder, &block).unwrap().0, list);
            prop_assert!(peer.limit <= peer.max);
            // RFC 7541 4.2: a smaller table is announced even if it has grown again.
            let smallest = sizes.iter().map(|size| usize::try_from(*size).unwrap()).min().unwrap_or(usize::MAX);
            prop_assert!(smallest >= limit_before || peer.updates.first() == Some(&smallest));
            prop_assert_eq!(entries(&mut decoder), std::mem::take(&mut peer.entries.clone()));
        }
    }

    #[test]
    fn the_decoder_is_the_reference_for_blocks_of_representations(max in maxima(), blocks in vec(steps(), 1..8)) {
        let mut decoder = Decoder::new(max);
        let mut reference = ReferenceDecoder::new(max);
        for steps in blocks {
            let mut block = Vec::new();
            steps.iter().for_each(|step| step.write(&mut block));
            if agree(&mut decoder, &mut reference, &block).is_err() {
                // A connection would end here.
                (decoder, reference) = (Decoder::new(max), ReferenceDecoder::new(max));
            }
        }
    }

    #[test]
    fn the_decoder_is_the_reference_for_random_bytes(blocks in vec(vec(any::<u8>(), 0..40), 1..20)) {
        let mut decoder = Decoder::new(4096);
        let mut reference = ReferenceDecoder::new(4096);
        for block in blocks {
            if agree(&mut decoder, &mut reference, &block).is_err() {
                (decoder, reference) = (Decoder::new(4096), ReferenceDecoder::new(4096));
            }
        }
    }

    #[test]
    fn a_block_cut_inside_a_field_is_truncated_and_one_cut_between_fields_has_those_before(
        literals in vec(literals(short_values()), 1..6)
    ) {
        let mut block = Vec::new();
        let mut ends = vec![0];
        for literal in literals {
            let mut longer = block.clone();
            literal.write(&mut longer);
            // Names of missing entries are left out.
            if ReferenceDecoder::new(4096).decode(&longer).is_ok() {
                block = longer;
                ends.push(block.len());
            }
        }
        let whole = decode(&mut Decoder::new(4096), &block).unwrap().0;
        for length in 0..block.len() {
            let result = decode(&mut Decoder::new(4096), &block[..length]).map(|(fields, _)| fields);
            match ends.iter().position(|end| *end == length) {
                Some(fields) => prop_assert_eq!(result, Ok(whole[..fields].to_vec())),
                None => prop_assert_eq!(result, Err(HpackError::Truncated)),
            }
        }
    }

    #[test]
    fn huffman_codes_are_those_of_the_symbols(bytes in vec(any::<u8>(), 0..200)) {
        let mut decoded = b"before".to_vec();
        huffman::decode(&huffman_encode(&bytes), &mut decoded).unwrap();
        prop_assert_eq!(decoded, [b"before", &bytes[..]].concat());
    }

    #[test]
    fn any_bytes_are_decoded_as_bit_by_bit(
        prefix in "[a-z0-9]{0,12}", bytes in vec(prop_oneof![any::<u8>(), Just(0xff), 0xf0..=0xff_u8], 0..30)
    ) {
        let bytes = [huffman_encode(prefix.as_bytes()), bytes].concat();
        let mut decoded = Vec::new();
        let result = huffman::decode(&bytes, &mut decoded).map(|()| decoded);
        prop_assert_eq!(result, huffman_decode(&bytes));
    }
}

#[test]
fn every_symbol_is_decoded_with_every_padding() {
    for symbol in 0..=u8::MAX {
        for before in 0..8 {
            let bytes = [vec![b'0'; before], vec![symbol]].concat();
            let mut decoded = Vec::new();
            huffman::decode(&huffman_encode(&bytes), &mut decoded).unwrap();
            assert_eq!(decoded, bytes);
        }
    }
}
