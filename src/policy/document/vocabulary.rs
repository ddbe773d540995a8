//! Every word of a policy, once: its level, its form and its meaning.
//!
//! The errors for unknown and misplaced words, "did you mean", and the JSON Schema are derived from
//! this table. A new option takes a line here, a field in [`written`](super::written), and its use
//! in the compiler.

use super::written::{ALGORITHMS, ATOMICITIES, CHARGES, ESTIMATES, ON_STORE_ERROR, OVERRIDES};
use crate::policy::access_log::{SCALES, WITHOUT};
use crate::policy::trial::CODES;
use DocumentLevel::{
    AccessLog, Candidate, Case, Defaults, Entry, Expected, Field, File, Lease, Limit, Overlaid, Overlay,
};
use DocumentLevel::{Replaced, Rule, Step, Time, Tollgate, Trials, Window};
use Form::{
    Anything, Count, Descriptors, Instant, Length, Map, Maps, OneOf, Size, Source, Sources, Text, Texts, Truth, Unit,
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
    /// A document of options for rules that are written elsewhere.
    Overlay,
    /// An item of an overlay.
    Entry,
    /// The options in an overlay or in metadata.
    Overlaid,
    /// The options for Tollgate in the metadata of a rule.
    Tollgate,
    /// A file of policy tests.
    Trials,
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
    must("domain", &[File], Text, "the namespace of these rules: the first field of a request"),
    may("atomicity", &[File], OneOf(|| names(&ATOMICITIES)), "domain: in a Redis Cluster all counters in one slot, every request one atomic call, at the price of one hot slot; limit (each where it falls) unless given"),
    may("defaults", &[File], Map(Defaults), "options for all limits of this document; an option of a rule wins"),
    may("descriptors", &[File, Rule], Maps(Rule), "the rules; below a rule those for the next entry of the descriptor"),

    must("key", &[Rule], Text, "the entry's key; `*` stands for any text, as often as wanted"),
    may("value", &[Rule], Text, "the entry's value; without it any value, each counted on its own; `*` stands for any text"),
    may("rate_limit", &[Rule], Map(Limit), "what the rule imposes on descriptors that end here"),
    may("candidate", &[Rule], Map(Candidate), "a limit that is tried out: judged and counted beside the one that applies, without a part in the answer"),
    may("shadow_mode", SWITCH, Truth, "judge and count, never deny"),
    may("quota_mode", SWITCH, Truth, "a vote: a request is denied where all limits in this mode deny"),
    may("share_threshold", SWITCH, Truth, "one counter for all values that match the wildcard"),
    may("detailed_metric", SWITCH, Truth, "name the values of the request in this rule's metrics"),
    may("value_to_metric", SWITCH, Truth, "name this entry's value in metrics"),
    may("metadata", &[Rule], Anything, "any content; given to the caller as dynamic metadata, without `tollgate`: options as an item of an overlay has them"),

    may("requests_per_unit", AMOUNT, Count(u32::MAX as u64), "hits per unit; 0 is a ban"),
    may("unit", AMOUNT, Unit, "the period: second, minute, hour, day, week, month, year, or a length such as 250ms, 10s, 15m, 6h, 7d"),
    may("unlimited", &[Limit], Truth, "no limit, without a unit"),
    may("name", &[Limit], Text, "what answers call the limit, and what `replaces` names"),
    may("replaces", &[Limit], Maps(Replaced), "limits that do not count in a request that this one applies to"),
    may("windows", &[Limit, Candidate], Maps(Window), "several amounts and periods at once, all of which must allow"),
    may("algorithm", OPTION, OneOf(|| names(&ALGORITHMS)), "how hits are counted; fixed_window unless given"),
    may("burst", OPTION, Count(u32::MAX as u64), "gcra and token_bucket: hits that a rested counter admits at once; requests_per_unit unless given"),
    may("max_debt", OPTION, Count(u64::MAX), "gcra and token_bucket: hits past the limit that are remembered; ten times burst unless given"),
    may("buckets", OPTION, Count(u32::MAX as u64), "sliding_window: parts that a period is counted in; 60 unless given"),
    may("estimate", OPTION, OneOf(|| names(&ESTIMATES)), "sliding_window: how the oldest bucket counts; strict (whole) unless given"),
    may("calendar", OPTION, Truth, "fixed_window of a day, week, month or year: begin at local midnight"),
    may("time_zone", OPTION, Text, "the IANA time zone of a calendar; UTC unless given"),
    may("charge", OPTION, OneOf(|| names(&CHARGES)), "when hits are written; always for fixed_window, admitted for others, unless given"),
    may("override", OWN, OneOf(|| names(&OVERRIDES)), "inherit: a limit that a request brings along replaces amount and period of this one only"),
    may("on_store_error", OWN, OneOf(|| names(&ON_STORE_ERROR)), "the answer where the store cannot decide; error unless given"),
    may("record", OWN, Texts, "entry keys whose values are tallied per counter: who used it up"),
    may("hash_values", OPTION, Truth, "hash the values that counters are of, with the key of the process, before they are stored or shown: for what people are known by"),
    may("lease", OPTION, Map(Lease), "hits that a process may take of a shared store in advance, and then admit in memory"),

    must("name", &[Replaced], Text, "the name of a limit"),

    must("overlay", &[Overlay], Maps(Entry), "options for rules that stand elsewhere; the first item that matches a rule and says an option is heard"),
    may("domain", &[Entry], Text, "of these rules; `*` stands for any text; without it any domain"),
    may("key", &[Entry], Text, "of the rule itself, as it is written; `*` stands for any text"),
    may("value", &[Entry], Text, "of the rule itself, as it is written; empty where the rule has none; `*` stands for any text"),
    may("name", &[Entry], Text, "of the rule's limit; empty where it has none; `*` stands for any text"),
    may("rate_limit", &[Entry, Tollgate], Map(Overlaid), "options of the limit, but for amounts and periods"),

    must("size", &[Lease], Size, "how much at once, at most: a part of the limit such as 1%, or hits"),
    must("ttl", &[Lease], Unit, "how long they are kept; what is not used goes back"),

    must("policies", &[Trials], Texts, "what is tested: policy files or directories, from where this file is"),
    must("tests", &[Trials], Maps(Case), "the tests; each begins without counters"),
    must("test", &[Case], Text, "what it shows, in a sentence"),
    may("domain", &[Case], Text, "the domain of its requests; that of the policies where they have only one"),
    may("at", &[Case, Step], Instant, "when it begins, as 2026-11-21T12:00:00Z; a test unless given at 2026-01-01T00:00:00Z"),
    must("steps", &[Case], Maps(Step), "what is asked, in order"),
    must("hit", &[Step], Descriptors, "the descriptor: key=value,key=value, or a mapping; a list of them for a request with several"),
    may("hits", &[Step], Count(u32::MAX as u64), "how much is wanted; 1 unless given, 0 is a peek"),
    may("refund", &[Step], Count(u32::MAX as u64), "how much is given back, in the place of hits"),
    may("after", &[Step], Length, "how long after the step before"),
    may("times", &[Step], Count(MAX_TIMES), "how often; each time the code has to be the expected one, the rest the last time"),
    may("every", &[Step], Length, "how long between them; no time unless given"),
    must("expect", ANSWER, OneOf(|| names(&CODES)), "the code of the answer"),
    may("remaining", ANSWER, Count(u64::MAX), "hits that are left"),
    may("retry_after", ANSWER, Length, "the wait of who is denied, or never"),
    may("reset_after", ANSWER, Length, "the time until the counter is as if never used, or never"),
    may("rule", ANSWER, Text, "the path of the rule that is hit, as tollgate explain tells it; none where there is none"),
    may("each", &[Step], Maps(Expected), "what is expected of each of several descriptors, in order"),

    must("time", &[AccessLog], Map(Time), "when the request came"),
    must("domain", &[AccessLog], Source, "the domain of the request: a text, or { field: NAME }"),
    must("descriptors", &[AccessLog], Sources, "its descriptors, each a mapping of keys to a text or { field: NAME }; one whose field is not there is left out"),
    may("hits", &[AccessLog], Source, "how much it wants; 1 unless given"),
    must("field", &[Time, Field], Text, "the name of a field; dots lead into objects"),
    may("unit", &[Time], OneOf(|| names(&SCALES)), "what a number counts since 1970: s, ms, us; s unless given"),
    may("without", &[Field], OneOf(|| names(&WITHOUT)), "what is cut off: port, the port of an address; query, all of a path from the question mark"),
];

const ANSWER: &[DocumentLevel] = &[Step, Expected];
/// Maximum number of requests of one step: a policy test is not a load test.
const MAX_TIMES: u64 = 1_000_000;

const AMOUNT: &[DocumentLevel] = &[Limit, Candidate, Window];
const OPTION: &[DocumentLevel] = &[Limit, Candidate, Defaults, Overlaid];
/// Levels of options that take part in the response, which excludes candidates.
const OWN: &[DocumentLevel] = &[Limit, Defaults, Overlaid];
const SWITCH: &[DocumentLevel] = &[Rule, Entry, Tollgate];

const fn may(name: &'static str, levels: &'static [DocumentLevel], form: Form, meaning: &'static str) -> Word {
    Word { name, levels, form, required: false, meaning }
}

const fn must(name: &'static str, levels: &'static [DocumentLevel], form: Form, meaning: &'static str) -> Word {
    Word { name, levels, form, required: true, meaning }
}

/// Returns the words of a table of choices.
fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

/// Words of envoyproxy/ratelimit, including those without effect there.
const THEIRS: [&str; 16] = [
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
    pub(super) fn is_theirs(&self) -> bool {
        THEIRS.contains(&self.name)
    }
}

impl DocumentLevel {
    /// All levels.
    pub(in crate::policy) const ALL: [Self; 19] = [
        File, Defaults, Rule, Limit, Candidate, Window, Replaced, Lease, Overlay, Entry, Overlaid, Tollgate, Trials,
        Case, Step, Expected, AccessLog, Time, Field,
    ];

    fn kind(self) -> DocumentKind {
        match self {
            File | Defaults | Rule | Limit | Candidate | Window | Replaced | Lease => DocumentKind::Policy,
            Overlay | Entry | Overlaid | Tollgate => DocumentKind::Policy,
            Trials | Case | Step | Expected => DocumentKind::Tests,
            AccessLog | Time | Field => DocumentKind::AccessLog,
        }
    }

    /// Returns the other levels of this kind of file at which a word is allowed.
    pub(super) fn elsewhere(self, name: &str) -> impl Iterator<Item = Self> {
        let places = WORDS.iter().filter(move |word| word.name == name).flat_map(|word| word.levels);
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
            Overlay => "an overlay",
            Entry => "an item of `overlay`",
            Overlaid => "`rate_limit`",
            Tollgate => "`tollgate`",
            Trials => "a file of tests",
            Case => "an item of `tests`",
            Step => "an item of `steps`",
            Expected => "an item of `each`",
            AccessLog => "a map of an access log",
            Time => "`time`",
            Field => "a field",
        }
    }

    /// Returns the position of such a mapping, as a phrase for messages.
    pub(super) fn place(self) -> &'static str {
        match self {
            File => "at the top of the file",
            Defaults => "in defaults",
            Rule => "in an item of descriptors",
            Limit => "in rate_limit",
            Candidate => "in candidate",
            Window => "in an item of windows",
            Replaced => "in an item of replaces",
            Lease => "in lease",
            Overlay => "at the top of an overlay",
            Entry => "in an item of overlay",
            Overlaid => "in rate_limit of an overlay",
            Tollgate => "in tollgate of metadata",
            Trials => "at the top of a file of tests",
            Case => "in an item of tests",
            Step => "in an item of steps",
            Expected => "in an item of each",
            AccessLog => "at the top of the map",
            Time => "in time",
            Field => "beside a field",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_stands_twice_in_one_place() {
        for level in DocumentLevel::ALL {
            let mut names: Vec<_> = level.words().map(|word| word.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{level:?}");
        }
    }
}
