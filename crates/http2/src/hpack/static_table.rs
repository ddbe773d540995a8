//! The static table (RFC 7541 Appendix A) and the lookup of fields in it.

/// Number of entries; the first index of the dynamic table is one higher.
pub(super) const LEN: usize = 61;

/// Length of the longest name, `access-control-allow-origin`.
const LONGEST_NAME: usize = 27;

/// Returns the field at an index, counted from 1.
#[inline]
pub(super) fn get(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    FIELDS.get(index.checked_sub(1)?).copied()
}

/// The best match for a field in the static table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StaticMatch {
    /// Index of an entry with this name and value.
    Field(usize),
    /// Index of the first entry with this name.
    Name(usize),
    /// No entry has this name.
    Nothing,
}

/// Finds a field by comparing it with the entries whose names have the same length.
pub(super) fn find(name: &[u8], value: &[u8]) -> StaticMatch {
    let mut found = StaticMatch::Nothing;
    let mut index = LENGTH_CHAINS.first.get(name.len()).copied().unwrap_or(0);
    while let Some((known_name, known_value)) = get(usize::from(index)) {
        // The last octet distinguishes most names of one length without a call.
        if known_name.last() == name.last() && known_name == name {
            if known_value == value {
                return StaticMatch::Field(usize::from(index));
            }
            if found == StaticMatch::Nothing {
                found = StaticMatch::Name(usize::from(index));
            }
        }
        index = LENGTH_CHAINS.next.get(usize::from(index)).copied().unwrap_or(0);
    }
    found
}

/// Lists of the entries whose names have the same length, in ascending order of index; 0 ends a
/// list.
struct LengthChains {
    /// First entry for each length of a name.
    first: [u8; LONGEST_NAME + 1],
    /// Next entry for each index.
    next: [u8; LEN + 1],
}

static LENGTH_CHAINS: LengthChains = length_chains();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]
const fn length_chains() -> LengthChains {
    // Evaluated only at compile time: a wrong index fails the build.
    let mut chains = LengthChains { first: [0; LONGEST_NAME + 1], next: [0; LEN + 1] };
    let mut index = LEN;
    while index > 0 {
        let length = FIELDS[index - 1].0.len();
        chains.next[index] = chains.first[length];
        chains.first[length] = index as u8;
        index -= 1;
    }
    chains
}

const FIELDS: [(&[u8], &[u8]); LEN] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];
