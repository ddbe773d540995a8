//! HPACK (RFC 7541): header compression in HTTP/2, as a server needs it.
//!
//! [`Decoder`] reads the header blocks of requests, [`Encoder`] writes those of responses; each has
//! the state of one direction of one connection. Names and values are bytes: the caller checks
//! whether HTTP permits them, and bounds blocks and lists.

mod decoder;
mod dynamic_table;
mod encoder;
mod huffman;
mod integer;
mod static_table;

#[cfg(test)]
mod tests;

pub(crate) use self::decoder::Decoder;
pub(crate) use self::encoder::Encoder;

/// Initial SETTINGS_HEADER_TABLE_SIZE (RFC 9113 6.5.2), in bytes.
pub(crate) const DEFAULT_MAX_TABLE: usize = 4096;

/// Bytes that an entry of a dynamic table counts in addition to its name and value (RFC 7541 4.1).
const ENTRY_OVERHEAD: usize = 32;

/// A fault in a header block. The connection must end with COMPRESSION_ERROR: the two dynamic
/// tables may differ from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HpackError {
    /// The block ends within a field or a size update.
    #[error("header block is truncated")]
    Truncated,
    /// An integer is longer than any value needs, RFC 7541 5.1.
    #[error("integer has more than 5 continuation octets")]
    IntegerTooLong,
    /// An integer exceeds any valid index, length or size, RFC 7541 5.1.
    #[error("integer exceeds 2^32 - 1")]
    IntegerOverflow,
    /// An indexed field has the index 0, RFC 7541 6.1.
    #[error("field index is 0")]
    IndexZero,
    /// An index refers to no entry, RFC 7541 2.3.3.
    #[error("field index is beyond the dynamic table")]
    IndexOutOfRange,
    /// A size update follows a field, RFC 7541 4.2.
    #[error("dynamic table size update after a field")]
    LateSizeUpdate,
    /// A block has more than two size updates, RFC 7541 4.2.
    #[error("more than two dynamic table size updates in a header block")]
    TooManySizeUpdates,
    /// A size update exceeds the size that the decoder advertises, RFC 7541 6.3.
    #[error("dynamic table size update exceeds SETTINGS_HEADER_TABLE_SIZE")]
    SizeUpdateTooLarge,
    /// A string contains the code of EOS, RFC 7541 5.2.
    #[error("Huffman-coded string contains EOS")]
    HuffmanEos,
    /// A string ends with 8 or more bits of EOS, RFC 7541 5.2.
    #[error("padding of a Huffman-coded string is longer than 7 bits")]
    HuffmanPaddingTooLong,
    /// A string ends with bits that are neither a code nor the beginning of EOS, RFC 7541 5.2.
    #[error("padding of a Huffman-coded string is not all ones")]
    HuffmanPaddingNotOnes,
}
