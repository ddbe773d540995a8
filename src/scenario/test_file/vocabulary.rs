//! Every word of a test file, once: its level, its form and its meaning.

use serde_json::{Value, json};

use super::CODES;
use crate::yaml::schema::text_types;
use crate::yaml::vocabulary::{Form, VocabularyLevel, Word, may, must, names};
use Form::{Count, Maps, OneOf, Other, Text, Texts};
use TestLevel::{Expectation, File, Step, Test};

/// The kind of mapping that a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestLevel {
    File,
    Test,
    /// A request.
    Step,
    /// The expected status of one of several descriptors.
    Expectation,
}

/// All words, in the order in which a schema shows them.
#[rustfmt::skip]
static WORDS: &[Word<TestLevel>] = &[
    must("policies", &[File], Texts, "the policies under test: files or directories, relative to this file"),
    must("tests", &[File], Maps(Test), "the tests; each starts without counters"),
    must("test", &[Test], Text, "the name of the test: the behavior that it shows, as a sentence"),
    may("domain", &[Test], Text, "the domain of the requests; default: the domain of the policies, if there is only one"),
    may("at", &[Test, Step], Other(instant), "the time, such as 2026-11-21T12:00:00Z; default for a test: 2026-01-01T00:00:00Z"),
    must("steps", &[Test], Maps(Step), "the requests, in order"),
    must("hit", &[Step], Other(descriptors), "the descriptor: key=value,key=value, or a mapping; a list for a request with several descriptors"),
    may("hits", &[Step], Count(u32::MAX as u64), "the number of hits; 0 is a peek; default: 1"),
    may("refund", &[Step], Count(u32::MAX as u64), "the number of hits to refund; cannot be combined with `hits`"),
    may("after", &[Step], Other(length), "the time since the previous step"),
    may("times", &[Step], Count(MAX_TIMES), "the number of requests; the code must match for each, the other values only for the last; default: 1"),
    may("every", &[Step], Other(length), "the time between the requests; default: none"),
    must("expect", ANSWER, OneOf(|| names(&CODES)), "the expected code"),
    may("remaining", ANSWER, Count(u64::MAX), "the expected number of remaining hits"),
    may("retry_after", ANSWER, Other(length), "the expected time until a denied request may be retried, or never"),
    may("reset_after", ANSWER, Other(length), "the expected time until the counter resets, or never"),
    may("rule", ANSWER, Text, "the expected path of the rule, as in the output of `tollgate explain`; none if no rule matches"),
    may("each", &[Step], Maps(Expectation), "the expected result of each of several descriptors, in order"),
];

const ANSWER: &[TestLevel] = &[Step, Expectation];
/// Maximum number of requests of one step: a policy test is not a load test.
const MAX_TIMES: u64 = 1_000_000;

impl VocabularyLevel for TestLevel {
    const ALL: &'static [Self] = &[File, Test, Step, Expectation];

    fn vocabulary() -> &'static [Word<Self>] {
        WORDS
    }

    fn texts(self) -> [&'static str; 3] {
        match self {
            File => ["a test file", "at the top level of a test file", "tests"],
            Test => ["an item of `tests`", "in an item of `tests`", "test"],
            Step => ["an item of `steps`", "in an item of `steps`", "step"],
            Expectation => ["an item of `each`", "in an item of `each`", "each"],
        }
    }
}

/// Returns the schema of a duration down to microseconds, or `never`.
fn length() -> Value {
    json!({ "type": "string", "pattern": "^([0-9]+(us|ms|s|m|h|d)|never)$" })
}

/// Returns the schema of a point in time.
fn instant() -> Value {
    json!({ "type": "string" })
}

/// Returns the schema of one descriptor or several, each as `key=value,key=value` or as a mapping.
fn descriptors() -> Value {
    let text = text_types();
    let one = json!([
        { "type": text },
        { "type": "object", "additionalProperties": { "type": text } },
    ]);
    json!({ "anyOf": [{ "type": "array", "items": { "anyOf": one } }, { "anyOf": one }] })
}

#[cfg(test)]
mod tests {
    use crate::yaml::schema::faults;

    #[test]
    fn every_word_is_in_the_schema_with_its_meaning() {
        assert_eq!(faults::<super::TestLevel>(), [""; 0]);
    }
}
