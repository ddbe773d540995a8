//! The examples of RFC 7541 Appendix C.

use super::super::integer::{BlockReader, write_integer};
use super::{Decoder, Encoder, OwnedField, block_of, decode, entries, field, hex, size};

const DATES: [&str; 2] = ["Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT"];
const LOCATION: (&str, &str) = ("location", "https://www.example.com");
const COOKIE: (&str, &str) =
    ("set-cookie", "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1");

fn fields(pairs: &[(&str, &str)]) -> Vec<OwnedField> {
    pairs.iter().map(|(name, value)| field(name, value)).collect()
}

/// Decodes a block, and checks its fields, the resulting table, and the size of the table.
fn decodes(
    decoder: &mut Decoder,
    block: &str,
    list: &[(&str, &str)],
    table: &[(&str, &str)],
    bytes: usize,
) {
    assert_eq!(decode(decoder, &hex(block)).unwrap().0, fields(list), "{block}");
    let entries = entries(decoder);
    assert_eq!(entries, fields(table), "{block}");
    assert_eq!(size(&entries), bytes, "{block}");
}

#[test]
fn c_1_integers_are_written_and_read() {
    for (value, mask, octets) in [(10, 0x1f, "0a"), (1337, 0x1f, "1f 9a 0a"), (42, 0xff, "2a")] {
        let mut written = Vec::new();
        write_integer(value, mask, 0, &mut written);
        assert_eq!(written, hex(octets));
        let mut reader = BlockReader::new(&written);
        let first = reader.octet().unwrap();
        assert_eq!(reader.integer(first, mask), Ok(value));
        assert_eq!(reader.peek(), None);
    }
}

#[test]
fn c_2_each_representation_is_read() {
    let custom = ("custom-key", "custom-header");
    let inserted = "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572";
    decodes(&mut Decoder::new(4096), inserted, &[custom], &[custom], 55);
    let path = "040c 2f73 616d 706c 652f 7061 7468";
    decodes(&mut Decoder::new(4096), path, &[(":path", "/sample/path")], &[], 0);
    let never_indexed = "1008 7061 7373 776f 7264 0673 6563 7265 74";
    decodes(&mut Decoder::new(4096), never_indexed, &[("password", "secret")], &[], 0);
    decodes(&mut Decoder::new(4096), "82", &[(":method", "GET")], &[], 0);
}

#[test]
fn c_2_the_encoder_writes_the_same() {
    let mut encoder = Encoder::new();
    assert_eq!(
        block_of(&mut encoder, b":path", b"/sample/path"),
        hex("040c 2f73 616d 706c 652f 7061 7468")
    );
    assert_eq!(block_of(&mut encoder, b":method", b"GET"), hex("82"));
    let mut block = Vec::new();
    encoder.repeated(b"custom-key", b"custom-header", &mut block);
    assert_eq!(block, hex("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"));
}

#[test]
fn c_3_requests_without_huffman_coding_are_read() {
    requests([
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ]);
}

#[test]
fn c_4_requests_with_huffman_coding_are_read() {
    requests([
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ]);
}

fn requests([first, second, third]: [&str; 3]) {
    let mut decoder = Decoder::new(4096);
    let authority = (":authority", "www.example.com");
    let no_cache = ("cache-control", "no-cache");
    let custom = ("custom-key", "custom-value");
    let list = [(":method", "GET"), (":scheme", "http"), (":path", "/"), authority];
    decodes(&mut decoder, first, &list, &[authority], 57);
    let list = [(":method", "GET"), (":scheme", "http"), (":path", "/"), authority, no_cache];
    decodes(&mut decoder, second, &list, &[no_cache, authority], 110);
    let list =
        [(":method", "GET"), (":scheme", "https"), (":path", "/index.html"), authority, custom];
    decodes(&mut decoder, third, &list, &[custom, no_cache, authority], 164);
}

#[test]
fn c_5_responses_without_huffman_coding_are_read_and_entries_evicted() {
    responses([
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32
         3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970
         7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61
         6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
    ]);
}

#[test]
fn c_6_responses_with_huffman_coding_are_read_and_entries_evicted() {
    responses([
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad
         1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2
         e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ]);
}

fn responses([first, second, third]: [&str; 3]) {
    let mut decoder = Decoder::new(256);
    let [status, other_status] = ["302", "307"].map(|code| (":status", code));
    let private = ("cache-control", "private");
    let gzip = ("content-encoding", "gzip");
    let [date, later] = DATES.map(|date| ("date", date));
    let list = [status, private, date, LOCATION];
    decodes(&mut decoder, first, &list, &[LOCATION, date, private, status], 222);
    let list = [other_status, private, date, LOCATION];
    decodes(&mut decoder, second, &list, &[other_status, LOCATION, date, private], 222);
    let list = [(":status", "200"), private, later, LOCATION, gzip, COOKIE];
    decodes(&mut decoder, third, &list, &[COOKIE, gzip, later], 215);
}
