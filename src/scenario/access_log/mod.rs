//! The mapping from a line of an access log to a request: which fields become which entries of
//! which descriptors.
//!
//! | file | contents |
//! |---|---|
//! | `vocabulary` | the words of a map |
//! | `parser` | YAML to a map |
//! | `line` | the request and the time of a line |
//! | `http` | lines as HTTP requests, for the mappings of policies |

#![warn(clippy::arithmetic_side_effects)]

mod http;
mod line;
mod parser;
mod vocabulary;

use serde_json::{Map, Value};

pub use self::http::{HttpFields, LoggedHttp};
pub use self::line::{LineContents, LineRequest, LogLineError, instant};
use self::vocabulary::AccessLogLevel;
use crate::yaml::report::ProblemReport;
use crate::yaml::vocabulary::VocabularyLevel;
use crate::yaml::{Source, schema};

/// A mapping from log lines to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLogMap {
    /// Name of the field with the time of the request.
    pub time: String,
    /// Microseconds per unit of the time field, if it is a number.
    pub scale: u64,
    /// Sources of the request.
    pub mapping: LineMapping,
}

/// The sources of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineMapping {
    /// Descriptors, by the map itself.
    Descriptors {
        /// Source of the domain.
        domain: TextSource,
        /// Entries of each descriptor: the key and the source of the value.
        descriptors: Vec<Vec<(String, TextSource)>>,
        /// Source of the hits; `None` for 1.
        hits: Option<TextSource>,
    },
    /// An HTTP request, by a mapping of the policies.
    Http(HttpFields),
}

/// The source of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextSource {
    /// A fixed text.
    Literal(String),
    /// A field of the line.
    Field {
        /// Name of the field; dots separate the keys of nested objects.
        name: String,
        /// Part of the value that is removed.
        without: Option<Without>,
    },
}

/// A part of a field that is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Without {
    /// The port of an address: `203.0.113.7:4711`, `[2001:db8::1]:4711`.
    Port,
    /// The query of a path, from the question mark on.
    Query,
}

/// Names of the parts that can be removed.
pub const WITHOUT: [(&str, Without); 2] = [("port", Without::Port), ("query", Without::Query)];

/// Units of a numeric time since 1970, in microseconds.
pub const SCALES: [(&str, u64); 3] = [("s", 1_000_000), ("ms", 1_000), ("us", 1)];

impl Without {
    /// Returns `text` without this part.
    pub fn cut(self, text: &str) -> &str {
        match self {
            Self::Query => text.split_once('?').map_or(text, |(path, _)| path),
            Self::Port => {
                let (address, port) = text.rsplit_once(':').unwrap_or((text, ""));
                // An IPv6 address without brackets has no port: cutting at its last colon would
                // break it.
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

/// Reads a mapping.
///
/// # Errors
/// Returns all problems of the file.
pub fn read(source: &Source) -> Result<AccessLogMap, ProblemReport> {
    parser::read(source)
}

/// Returns the JSON Schema of a mapping: the definitions of its mappings.
pub(super) fn definitions() -> Map<String, Value> {
    schema::definitions(AccessLogLevel::ALL.iter().copied())
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
