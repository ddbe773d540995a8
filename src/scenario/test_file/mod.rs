//! Tests of policies: requests at given times, and the expected responses.
//!
//! | file | contents |
//! |---|---|
//! | `vocabulary` | the words of a test file |
//! | `parser` | YAML to tests |
//! | `execution` | the first mismatch of a test |

mod execution;
mod parser;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fmt;

pub use self::execution::{Mismatch, PendingTest, TestOutcome, UnlimitedStep};

use serde_json::{Map, Value};

use self::vocabulary::TestLevel;
use crate::algorithm::judge::Hits;
use crate::algorithm::time::{Micros, Timestamp};
use crate::yaml::report::ProblemReport;
use crate::yaml::vocabulary::VocabularyLevel;
use crate::yaml::{Source, schema};

/// The tests of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestFile {
    /// Tested policies: files and directories, relative to the file of tests.
    pub policies: Vec<String>,
    /// The tests.
    pub cases: Vec<Case>,
}

/// A test. It starts without counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name of the test: the behavior that it shows.
    pub name: String,
    /// Domain of its requests; `None` for the only domain of the policies.
    pub domain: Option<String>,
    /// Start of the test.
    pub at: Timestamp,
    /// Requests, in order.
    pub steps: Vec<TestStep>,
}

/// A request or several equal ones, and the expected response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestStep {
    /// Line of the step in the file, from 1.
    pub line: usize,
    /// Time of the request.
    pub when: When,
    /// Number of requests; at least 1.
    pub times: u64,
    /// Time between the requests.
    pub every: Micros,
    /// Entries of each descriptor: keys and values.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// Hits of each descriptor.
    pub hits: Hits,
    /// Cost of each commit; `None` if the step sets no hits, so that its commits are settles.
    pub cost: Option<u32>,
    /// The expected response; only its code if there are several descriptors.
    pub expected: Expected,
    /// The expected status of each descriptor; empty if not given.
    pub each: Vec<Expected>,
}

/// The time of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// A point in time.
    At(Timestamp),
    /// A time since the previous step.
    After(Micros),
}

/// An expected response; a field that is `None` is not checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The code.
    pub code: Code,
    /// Remaining hits.
    pub remaining: Option<u64>,
    /// Time until a denied request may be retried.
    pub retry_after: Option<Wait>,
    /// Time until the counter resets.
    pub reset_after: Option<Wait>,
    /// Path of the rule; empty for no rule.
    pub rule: Option<String>,
}

/// The code of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// OK.
    Ok,
    /// OVER_LIMIT.
    OverLimit,
}

/// Names of the codes.
pub const CODES: [(&str, Code); 2] = [("ok", Code::Ok), ("over_limit", Code::OverLimit)];

/// A time to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// This long.
    For(Micros),
    /// Forever, or absent from the response.
    Never,
}

impl Code {
    /// Returns the code of a response by whether the request is over limit.
    pub fn of(is_over_limit: bool) -> Self {
        if is_over_limit { Self::OverLimit } else { Self::Ok }
    }

    /// Returns the name of the code.
    pub fn word(self) -> &'static str {
        CODES.iter().find(|(_, code)| *code == self).map_or("", |(word, _)| word)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(length) => write!(f, "{length}"),
            Self::Never => f.write_str("never"),
        }
    }
}

/// Reads a file of tests.
///
/// # Errors
/// Returns all problems of the file.
pub fn read(source: &Source) -> Result<TestFile, ProblemReport> {
    parser::read(source)
}

/// Returns the JSON Schema of a file of tests: the definitions of its mappings.
pub(super) fn definitions() -> Map<String, Value> {
    schema::definitions(TestLevel::ALL.iter().copied())
}
