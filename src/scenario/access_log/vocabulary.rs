//! Every word of an access log map, once: its level, its form and its meaning.

use serde_json::{Value, json};

use super::{SCALES, WITHOUT};
use crate::yaml::schema::{reference, text_types};
use crate::yaml::vocabulary::{Form, VocabularyLevel, Word, may, must, names};
use AccessLogLevel::{Field, File, Http, Time};
use Form::{Map, OneOf, Other, Text};

/// The kind of mapping that a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessLogLevel {
    File,
    /// The time of the request in a line.
    Time,
    /// A field of a line.
    Field,
    /// The HTTP request of a line.
    Http,
}

/// All words, in the order in which a schema shows them.
#[rustfmt::skip]
static WORDS: &[Word<AccessLogLevel>] = &[
    must("time", &[File], Map(Time), "the time of the request"),
    may("domain", &[File], Other(source), "the domain of the request: text, or { field: NAME }; not with `http`"),
    may("descriptors", &[File], Other(sources), "the descriptors, each a mapping of keys to text or { field: NAME }; a descriptor whose field is missing is omitted"),
    may("hits", &[File], Other(source), "the number of hits; default: 1"),
    may("http", &[File], Map(Http), "the HTTP request; a mapping in `requests` of the policies makes its descriptors"),
    must("mapping", &[Http], Text, "the name of the mapping"),
    must("method", &[Http], Other(source), "the method"),
    must("target", &[Http], Other(source), "the request target: path and query"),
    may("host", &[Http], Other(source), "the host"),
    may("client_address", &[Http], Other(source), "the address from which the gateway received the request"),
    may("headers", &[Http], Other(entries), "headers, a mapping of names to text or { field: NAME }"),
    must("field", &[Time, Field], Text, "the name of a field; dots separate the keys of nested objects"),
    may("unit", &[Time], OneOf(|| names(&SCALES)), "the unit of a numeric time since 1970: s, ms or us; default: s"),
    may("without", &[Field], OneOf(|| names(&WITHOUT)), "the part of the value to remove: port (of an address), or query (of a path, from the question mark on)"),
];

impl VocabularyLevel for AccessLogLevel {
    const ALL: &'static [Self] = &[File, Time, Field, Http];

    fn vocabulary() -> &'static [Word<Self>] {
        WORDS
    }

    fn texts(self) -> [&'static str; 3] {
        match self {
            File => {
                ["an access log mapping", "at the top level of an access log mapping", "access_log"]
            }
            Time => ["`time`", "in `time`", "time"],
            Field => ["a field", "beside `field`", "field"],
            Http => ["`http`", "in `http`", "http"],
        }
    }
}

/// Returns the schema of a text, or a field of a line.
fn source() -> Value {
    json!({ "anyOf": [{ "type": text_types() }, reference(Field)] })
}

/// Returns the schema of descriptors, each a mapping of keys to sources.
fn sources() -> Value {
    json!({ "type": "array", "items": entries() })
}

/// Returns the schema of a mapping of names to sources.
fn entries() -> Value {
    json!({ "type": "object", "additionalProperties": source() })
}

#[cfg(test)]
mod tests {
    use crate::yaml::schema::faults;

    #[test]
    fn every_word_is_in_the_schema_with_its_meaning() {
        assert_eq!(faults::<super::AccessLogLevel>(), [""; 0]);
    }
}
