//! What a line of an access log is as a request: which of its fields become which entries of which descriptors.
//!
//! Values only: who reads lines has JSON.

use super::{Report, Source, document};

/// What a line is as a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The field that says when the request came.
    pub time: String,
    /// Microseconds in one of what it counts, where it is a number.
    pub scale: u64,
    /// The domain.
    pub domain: From,
    /// Of each descriptor the entries, key and value.
    pub descriptors: Vec<Vec<(String, From)>>,
    /// How much is wanted; `None`: 1.
    pub hits: Option<From>,
}

/// Where a text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// It is this one.
    Literal(String),
    /// A field of the line.
    Field {
        /// Its name; dots lead into objects.
        name: String,
        /// What is cut off.
        without: Option<Without>,
    },
}

/// What is cut off a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// The port of an address: `203.0.113.7:4711`, `[2001:db8::1]:4711`.
    Port,
    /// Of a path all from the question mark on.
    Query,
}

/// The words for what is cut off.
pub const WITHOUT: [(&str, Without); 2] = [("port", Without::Port), ("query", Without::Query)];

/// The words for what a number counts since 1970, in microseconds.
pub const SCALES: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1_000), ("us", 1)];

impl Without {
    /// A text without it.
    pub fn cut(self, text: &str) -> &str {
        match self {
            Self::Query => text.split_once('?').map_or(text, |(path, _)| path),
            Self::Port => {
                let (address, port) = text.rsplit_once(':').unwrap_or((text, ""));
                // What is left of an IPv6 address without brackets is no address.
                let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                match address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                    Some(inner) if is_port => inner,
                    None if is_port && !address.contains(':') => address,
                    Some(_) | None => text,
                }
            }
        }
    }
}

/// Reads a map.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(source: &Source) -> Result<Map, Report> {
    document::access_log::read(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_cut_off_addresses_that_have_one() {
        let cases = [
            ("203.0.113.7:4711", "203.0.113.7"),
            ("203.0.113.7", "203.0.113.7"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("host:", "host:"),
        ];
        for (text, cut) in cases {
            assert_eq!(Without::Port.cut(text), cut);
        }
        assert_eq!(["/a?b=c?", "/a"].map(|path| Without::Query.cut(path)), ["/a", "/a"]);
    }
}
