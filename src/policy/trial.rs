//! Tests of policies, as somebody writes them: what is asked at which time, and what the answer has to be.
//!
//! Values only: who runs them has a store, and a clock that is told.

use std::fmt;

use super::{Report, Source, document};
use crate::algorithm::judge::Hits;
use crate::algorithm::time::{Micros, Timestamp};

/// The tests of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trials {
    /// What is tested: files and directories, from where the file of tests is.
    pub policies: Vec<String>,
    /// The tests.
    pub cases: Vec<Case>,
}

/// A test. It begins without counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What it shows.
    pub name: String,
    /// The domain of its requests; `None`: the only one of the policies.
    pub domain: Option<String>,
    /// When it begins.
    pub at: Timestamp,
    /// What is asked, in order.
    pub steps: Vec<Step>,
}

/// A request, or some that are alike, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The line that it stands in, from 1.
    pub line: usize,
    /// When it is asked.
    pub when: When,
    /// How often; at least once.
    pub times: u64,
    /// How long between them.
    pub every: Micros,
    /// Of each descriptor the entries, key and value.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// What is wanted of each.
    pub hits: Hits,
    /// What the answer has to be; of several descriptors the code alone.
    pub expected: Expected,
    /// What that to each descriptor has to be; empty where nobody says.
    pub each: Vec<Expected>,
}

/// When a step is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At this instant.
    At(Timestamp),
    /// So long after the step before.
    After(Micros),
}

/// What an answer has to be; what is `None` may be anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The code.
    pub code: Code,
    /// Hits that are left.
    pub remaining: Option<u64>,
    /// The wait of who is denied.
    pub retry_after: Option<Wait>,
    /// The time until the counter is as if never used.
    pub reset_after: Option<Wait>,
    /// The path of the rule; empty: no rule.
    pub rule: Option<String>,
}

/// The code of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// OK.
    Ok,
    /// OVER_LIMIT.
    OverLimit,
}

/// The words for them.
pub const CODES: [(&str, Code); 2] = [("ok", Code::Ok), ("over_limit", Code::OverLimit)];

/// A time to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// So long.
    For(Micros),
    /// For ever, or not to be told.
    Never,
}

impl Code {
    /// The code of what is over limit or not.
    pub fn of(is_over_limit: bool) -> Self {
        if is_over_limit { Self::OverLimit } else { Self::Ok }
    }

    /// Its word.
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
/// Everything that is wrong with it.
pub fn read(source: &Source) -> Result<Trials, Report> {
    document::trial::read(source)
}
