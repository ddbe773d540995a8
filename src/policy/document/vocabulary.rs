//! Every word of a policy, once: its level, its form and its meaning.
//!
//! The errors for unknown and misplaced words and "did you mean" (in `fields`), and the JSON Schema
//! (in `schema`) are derived from this table. A new option takes a line here, a field in
//! [`written`](super::written), and its use in the compiler.

use super::written::{
    ALGORITHMS, ATOMICITIES, CHARGES, ESTIMATES, ON_SETTLE, ON_STORE_ERROR, OVERRIDES,
};
use crate::algorithm::concurrency::MAX_IN_FLIGHT;
use crate::policy::access_log::{SCALES, WITHOUT};
use crate::policy::test_file::CODES;
use DocumentLevel::{
    AccessLog, Candidate, Case, Defaults, Entry, Expected, Field, File, Hold, Lease, Limit,
    Overlaid, Overlay,
};
use DocumentLevel::{Replaced, Rule, Step, TestFile, Time, Tollgate, Window};
use Form::{
    Anything, Count, Descriptors, Instant, Length, Map, Maps, OneOf, Size, Source, Sources, Text,
    Texts, Truth, Unit,
};

/// The kind of mapping that a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::policy) enum DocumentLevel {
    File,
    Defaults,
    Rule,
    Limit,
    /// A candidate limit, tried out beside `rate_limit`.
    Candidate,
    Window,
    Replaced,
    Lease,
    Hold,
    /// A document of options for rules that are written elsewhere.
    Overlay,
    /// An item of an overlay.
    Entry,
    /// The options in an overlay or in metadata.
    Overlaid,
    /// The options for Tollgate in the metadata of a rule.
    Tollgate,
    /// A file of policy tests.
    TestFile,
    /// One test.
    Case,
    /// A request of a test.
    Step,
    /// The expected status of one of several descriptors.
    Expected,
    /// A mapping from lines of an access log to requests.
    AccessLog,
    /// The time of the request in a line.
    Time,
    /// A field of a line.
    Field,
}

/// The kind of file that a mapping belongs to. A word of one kind means nothing in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocumentKind {
    Policy,
    Tests,
    AccessLog,
}

/// The form of a word's value.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) enum Form {
    Text,
    Texts,
    Truth,
    /// A whole number up to this one.
    Count(u64),
    /// One of a few words.
    OneOf(fn() -> Vec<&'static str>),
    /// A named period, or a duration.
    Unit,
    /// A percentage or a count.
    Size,
    /// A duration down to microseconds, or `never`.
    Length,
    /// A point in time.
    Instant,
    /// One descriptor or several, each as `key=value,key=value` or as a mapping.
    Descriptors,
    /// A text, or a field of a line.
    Source,
    /// Descriptors, each a mapping of keys to sources.
    Sources,
    Map(DocumentLevel),
    Maps(DocumentLevel),
    /// A mapping with any content.
    Anything,
}

/// A word of the vocabulary.
#[derive(Debug)]
pub(in crate::policy) struct Word {
    pub(in crate::policy) name: &'static str,
    pub(in crate::policy) levels: &'static [DocumentLevel],
    pub(in crate::policy) form: Form,
    pub(in crate::policy) required: bool,
    pub(in crate::policy) meaning: &'static str,
}

/// All words, in the order in which a schema shows them.
#[rustfmt::skip]
pub(in crate::policy) static WORDS: &[Word] = &[
    must("domain", &[File], Text, "the domain that the rules apply to: the `domain` field of a request"),
    may("atomicity", &[File], OneOf(|| names(&ATOMICITIES)), "domain: all counters of the domain share one slot of a Redis Cluster, so that each request is one atomic call, but one slot takes all load; limit (default): each limit uses its own slot"),
    may("defaults", &[File], Map(Defaults), "default options for all limits of this document; options of a rule take precedence"),
    may("descriptors", &[File, Rule], Maps(Rule), "the rules; below a rule, the rules for the next entry of the descriptor"),

    must("key", &[Rule], Text, "the key of the descriptor entry; `*` matches any text and may occur more than once"),
    may("value", &[Rule], Text, "the value of the descriptor entry; if absent, matches any value, with a counter for each; `*` matches any text"),
    may("rate_limit", &[Rule], Map(Limit), "the limit of descriptors that end at this rule"),
    may("candidate", &[Rule], Map(Candidate), "a candidate limit: evaluated and counted beside the limit in force, without effect on the response"),
    may("shadow_mode", SWITCH, Truth, "evaluate and count, but never deny"),
    may("quota_mode", SWITCH, Truth, "deny a request only if all limits in quota mode deny it"),
    may("share_threshold", SWITCH, Truth, "one counter for all values that match the wildcard"),
    may("detailed_metric", SWITCH, Truth, "include the values of the request in the envoyproxy/ratelimit statistics of this rule"),
    may("value_to_metric", SWITCH, Truth, "include the value of this entry in the envoyproxy/ratelimit statistics of this rule"),
    may("metadata", &[Rule], Anything, "any content; returned to the caller as dynamic metadata, except for the key `tollgate`, which sets options as an item of an overlay does"),

    may("requests_per_unit", AMOUNT, Count(u32::MAX as u64), "hits per unit; 0 denies all requests (a ban)"),
    may("unit", AMOUNT, Unit, "the period: second, minute, hour, day, week, month, year, or a duration such as 250ms, 10s, 15m, 6h, 7d"),
    may("in_flight", &[Limit, Candidate], Count(MAX_IN_FLIGHT as u64), "concurrency: maximum number of hits in flight; 0 denies all requests (a ban)"),
    may("unlimited", &[Limit], Truth, "no limit; cannot be combined with `unit`"),
    may("name", &[Limit], Text, "the name of the limit in responses and in `replaces`"),
    may("replaces", &[Limit], Maps(Replaced), "limits that are ignored in a request to which this limit applies"),
    may("windows", &[Limit, Candidate], Maps(Window), "several amounts and periods, all of which must admit the request"),
    may("algorithm", OPTION, OneOf(|| names(&ALGORITHMS)), "how hits are counted; default: fixed_window"),
    may("burst", OPTION, Count(u32::MAX as u64), "gcra and token_bucket: hits that an unused counter admits at once; default: requests_per_unit"),
    may("max_debt", OPTION, Count(u64::MAX), "gcra and token_bucket: maximum number of hits beyond the limit that are counted; default: ten times burst"),
    may("buckets", OPTION, Count(u32::MAX as u64), "sliding_window: number of buckets per period; default: 60"),
    may("estimate", OPTION, OneOf(|| names(&ESTIMATES)), "sliding_window: how the oldest bucket is counted: strict (in full) or weighted; default: strict"),
    may("calendar", OPTION, Truth, "fixed_window of a day, week, month or year: start each window at local midnight"),
    may("time_zone", OPTION, Text, "the IANA time zone of a calendar; default: UTC"),
    may("charge", OPTION, OneOf(|| names(&CHARGES)), "when hits are charged; default: always for fixed_window, admitted for the others"),
    may("override", OWN, OneOf(|| names(&OVERRIDES)), "inherit: a limit sent with a request replaces only the amount and the period of this limit"),
    may("on_store_error", OWN, OneOf(|| names(&ON_STORE_ERROR)), "the decision if the store fails; default: error"),
    may("record", OWN, Texts, "entry keys whose values are tallied per counter, to show which callers used it"),
    may("hash_values", OPTION, Truth, "hash the values in counter keys, with the hash key of the process, before they are stored or shown; for personal data"),
    may("lease", OPTION, Map(Lease), "hits that a process may take from a shared store in advance and then admit in memory"),
    may("hold", OPTION, Map(Hold), "remember charges by an ID (the entries tollgate.reserve, tollgate.commit, tollgate.settle), to be corrected when their cost is known; required for concurrency"),

    must("name", &[Replaced], Text, "the name of the limit that is replaced"),

    must("overlay", &[Overlay], Maps(Entry), "options for rules in other documents; for each option, the first item that matches the rule and sets the option applies"),
    may("domain", &[Entry], Text, "the domain of the rules; `*` matches any text; default: any domain"),
    may("key", &[Entry], Text, "the key of the rule itself, as written; `*` matches any text"),
    may("value", &[Entry], Text, "the value of the rule itself, as written; empty for rules without a value; `*` matches any text"),
    may("name", &[Entry], Text, "the name of the limit of the rule; empty for limits without a name; `*` matches any text"),
    may("rate_limit", &[Entry, Tollgate], Map(Overlaid), "options of the limit, except for amounts and periods"),

    must("size", &[Lease], Size, "maximum number of hits per lease: a percentage of the limit such as 1%, or a number of hits"),
    must("ttl", &[Lease], Unit, "how long leased hits are kept; unused hits are returned"),

    must("ttl", &[Hold], Unit, "the time after which a hold ends by itself, from 1s to 24h"),
    may("on_settle", &[Hold], OneOf(|| names(&ON_SETTLE)), "when a hold ends without a cost: charge (its estimate stays) or release (it is taken back); default: charge"),

    must("policies", &[TestFile], Texts, "the policies under test: files or directories, relative to this file"),
    must("tests", &[TestFile], Maps(Case), "the tests; each starts without counters"),
    must("test", &[Case], Text, "the name of the test: the behavior that it shows, as a sentence"),
    may("domain", &[Case], Text, "the domain of the requests; default: the domain of the policies, if there is only one"),
    may("at", &[Case, Step], Instant, "the time, such as 2026-11-21T12:00:00Z; default for a test: 2026-01-01T00:00:00Z"),
    must("steps", &[Case], Maps(Step), "the requests, in order"),
    must("hit", &[Step], Descriptors, "the descriptor: key=value,key=value, or a mapping; a list for a request with several descriptors"),
    may("hits", &[Step], Count(u32::MAX as u64), "the number of hits; 0 is a peek; default: 1"),
    may("refund", &[Step], Count(u32::MAX as u64), "the number of hits to refund; cannot be combined with `hits`"),
    may("after", &[Step], Length, "the time since the previous step"),
    may("times", &[Step], Count(MAX_TIMES), "the number of requests; the code must match for each, the other values only for the last; default: 1"),
    may("every", &[Step], Length, "the time between the requests; default: none"),
    must("expect", ANSWER, OneOf(|| names(&CODES)), "the expected code"),
    may("remaining", ANSWER, Count(u64::MAX), "the expected number of remaining hits"),
    may("retry_after", ANSWER, Length, "the expected time until a denied request may be retried, or never"),
    may("reset_after", ANSWER, Length, "the expected time until the counter resets, or never"),
    may("rule", ANSWER, Text, "the expected path of the rule, as in the output of `tollgate explain`; none if no rule matches"),
    may("each", &[Step], Maps(Expected), "the expected result of each of several descriptors, in order"),

    must("time", &[AccessLog], Map(Time), "the time of the request"),
    must("domain", &[AccessLog], Source, "the domain of the request: text, or { field: NAME }"),
    must("descriptors", &[AccessLog], Sources, "the descriptors, each a mapping of keys to text or { field: NAME }; a descriptor whose field is missing is omitted"),
    may("hits", &[AccessLog], Source, "the number of hits; default: 1"),
    must("field", &[Time, Field], Text, "the name of a field; dots separate the keys of nested objects"),
    may("unit", &[Time], OneOf(|| names(&SCALES)), "the unit of a numeric time since 1970: s, ms or us; default: s"),
    may("without", &[Field], OneOf(|| names(&WITHOUT)), "the part of the value to remove: port (of an address), or query (of a path, from the question mark on)"),
];

const ANSWER: &[DocumentLevel] = &[Step, Expected];
/// Maximum number of requests of one step: a policy test is not a load test.
const MAX_TIMES: u64 = 1_000_000;

const AMOUNT: &[DocumentLevel] = &[Limit, Candidate, Window];
const OPTION: &[DocumentLevel] = &[Limit, Candidate, Defaults, Overlaid];
/// Levels of options that take part in the response, which excludes candidates.
const OWN: &[DocumentLevel] = &[Limit, Defaults, Overlaid];
const SWITCH: &[DocumentLevel] = &[Rule, Entry, Tollgate];

const fn may(
    name: &'static str,
    levels: &'static [DocumentLevel],
    form: Form,
    meaning: &'static str,
) -> Word {
    Word { name, levels, form, required: false, meaning }
}

const fn must(
    name: &'static str,
    levels: &'static [DocumentLevel],
    form: Form,
    meaning: &'static str,
) -> Word {
    Word { name, levels, form, required: true, meaning }
}

/// Returns the words of a table of choices.
fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

/// All keys that envoyproxy/ratelimit accepts, at any level, including those without effect there.
pub const ENVOYPROXY_WORDS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "shadow_mode",
    "quota_mode",
    "name",
    "replaces",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

impl Word {
    /// Returns `true` if envoyproxy/ratelimit has the word too.
    pub(super) fn is_of_envoyproxy(&self) -> bool {
        ENVOYPROXY_WORDS.contains(&self.name)
    }
}

impl DocumentLevel {
    /// All levels.
    pub(in crate::policy) const ALL: [Self; 20] = [
        File, Defaults, Rule, Limit, Candidate, Window, Replaced, Lease, Hold, Overlay, Entry,
        Overlaid, Tollgate, TestFile, Case, Step, Expected, AccessLog, Time, Field,
    ];

    fn kind(self) -> DocumentKind {
        match self {
            File | Defaults | Rule | Limit | Candidate | Window | Replaced | Lease | Hold => {
                DocumentKind::Policy
            }
            Overlay | Entry | Overlaid | Tollgate => DocumentKind::Policy,
            TestFile | Case | Step | Expected => DocumentKind::Tests,
            AccessLog | Time | Field => DocumentKind::AccessLog,
        }
    }

    /// Returns the other levels of this kind of file at which a word is allowed.
    pub(super) fn elsewhere(self, name: &str) -> impl Iterator<Item = Self> {
        let places =
            WORDS.iter().filter(move |word| word.name == name).flat_map(|word| word.levels);
        places.copied().filter(move |level| level.kind() == self.kind())
    }

    /// Returns the words of this level.
    pub(in crate::policy) fn words(self) -> impl Iterator<Item = &'static Word> + Clone {
        WORDS.iter().filter(move |word| word.levels.contains(&self))
    }

    /// Returns the word with this name, if it is allowed at this level.
    pub(super) fn word(self, name: &str) -> Option<&'static Word> {
        self.words().find(|word| word.name == name)
    }

    /// Returns the name of such a mapping in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            File => "a policy",
            Defaults => "`defaults`",
            Rule => "an item of `descriptors`",
            Limit => "`rate_limit`",
            Candidate => "`candidate`",
            Window => "an item of `windows`",
            Replaced => "an item of `replaces`",
            Lease => "`lease`",
            Hold => "`hold`",
            Overlay => "an overlay",
            Entry => "an item of `overlay`",
            Overlaid => "`rate_limit`",
            Tollgate => "`tollgate`",
            TestFile => "a test file",
            Case => "an item of `tests`",
            Step => "an item of `steps`",
            Expected => "an item of `each`",
            AccessLog => "an access log mapping",
            Time => "`time`",
            Field => "a field",
        }
    }

    /// Returns the position of such a mapping, as a phrase for messages.
    pub(super) fn place(self) -> &'static str {
        match self {
            File => "at the top level of a policy",
            Defaults => "in `defaults`",
            Rule => "in an item of `descriptors`",
            Limit => "in `rate_limit`",
            Candidate => "in `candidate`",
            Window => "in an item of `windows`",
            Replaced => "in an item of `replaces`",
            Lease => "in `lease`",
            Hold => "in `hold`",
            Overlay => "at the top level of an overlay",
            Entry => "in an item of `overlay`",
            Overlaid => "in `rate_limit` of an overlay",
            Tollgate => "in `metadata.tollgate`",
            TestFile => "at the top level of a test file",
            Case => "in an item of `tests`",
            Step => "in an item of `steps`",
            Expected => "in an item of `each`",
            AccessLog => "at the top level of an access log mapping",
            Time => "in `time`",
            Field => "beside `field`",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_level_has_a_word_twice() {
        for level in DocumentLevel::ALL {
            let mut names: Vec<_> = level.words().map(|word| word.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{level:?}");
        }
    }
}
