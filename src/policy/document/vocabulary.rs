//! Every word of a policy, once: where it stands, what it takes and what it means.
//!
//! From this table come the errors for unknown and misplaced words, "did you mean", and the JSON Schema of the format. A new
//! option is a line here, a field in [`written`](super::written), and what the compiler makes of it.

use super::written::{ALGORITHMS, ATOMICITIES, CHARGES, ESTIMATES, ON_STORE_ERROR, OVERRIDES};
use Form::{Anything, Count, Map, Maps, OneOf, Size, Text, Texts, Truth, Unit};
use Level::{Defaults, Entry, File, Lease, Limit, Overlaid, Overlay, Replaced, Rule, Tollgate, Window};

/// What kind of mapping a word stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::policy) enum Level {
    File,
    Defaults,
    Rule,
    Limit,
    Window,
    Replaced,
    Lease,
    /// A document that speaks of rules which stand elsewhere,
    Overlay,
    /// an item of it,
    Entry,
    /// and the options there.
    Overlaid,
    /// What the metadata of a rule says to us.
    Tollgate,
}

/// What a word takes.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy) enum Form {
    Text,
    Texts,
    Truth,
    /// A whole number up to this one.
    Count(u64),
    /// One of a few words.
    OneOf(fn() -> Vec<&'static str>),
    /// A word for a length of time, or a length.
    Unit,
    /// A percentage or a count.
    Size,
    Map(Level),
    Maps(Level),
    /// A mapping with any content.
    Anything,
}

/// A word.
#[derive(Debug)]
pub(in crate::policy) struct Word {
    pub(in crate::policy) name: &'static str,
    pub(in crate::policy) levels: &'static [Level],
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
    may("shadow_mode", SWITCH, Truth, "judge and count, never deny"),
    may("quota_mode", SWITCH, Truth, "a vote: a request is denied where all limits in this mode deny"),
    may("share_threshold", SWITCH, Truth, "one counter for all values that match the wildcard"),
    may("detailed_metric", SWITCH, Truth, "name the values of the request in this rule's metrics"),
    may("value_to_metric", SWITCH, Truth, "name this entry's value in metrics"),
    may("metadata", &[Rule], Anything, "any content; given to the caller as dynamic metadata, without `tollgate`: options as an item of an overlay has them"),

    may("requests_per_unit", &[Limit, Window], Count(u32::MAX as u64), "hits per unit; 0 is a ban"),
    may("unit", &[Limit, Window], Unit, "the period: second, minute, hour, day, week, month, year, or a length such as 250ms, 10s, 15m, 6h, 7d"),
    may("unlimited", &[Limit], Truth, "no limit, without a unit"),
    may("name", &[Limit], Text, "what answers call the limit, and what `replaces` names"),
    may("replaces", &[Limit], Maps(Replaced), "limits that do not count in a request that this one applies to"),
    may("windows", &[Limit], Maps(Window), "several amounts and periods at once, all of which must allow"),
    may("algorithm", OPTION, OneOf(|| names(&ALGORITHMS)), "how hits are counted; fixed_window unless given"),
    may("burst", OPTION, Count(u32::MAX as u64), "gcra and token_bucket: hits that a rested counter admits at once; requests_per_unit unless given"),
    may("max_debt", OPTION, Count(u64::MAX), "gcra and token_bucket: hits past the limit that are remembered; ten times burst unless given"),
    may("buckets", OPTION, Count(u32::MAX as u64), "sliding_window: parts that a period is counted in; 60 unless given"),
    may("estimate", OPTION, OneOf(|| names(&ESTIMATES)), "sliding_window: how the oldest bucket counts; strict (whole) unless given"),
    may("calendar", OPTION, Truth, "fixed_window of a day, week, month or year: begin at local midnight"),
    may("time_zone", OPTION, Text, "the IANA time zone of a calendar; UTC unless given"),
    may("charge", OPTION, OneOf(|| names(&CHARGES)), "when hits are written; always for fixed_window, admitted for others, unless given"),
    may("override", OPTION, OneOf(|| names(&OVERRIDES)), "inherit: a limit that a request brings along replaces amount and period of this one only"),
    may("on_store_error", OPTION, OneOf(|| names(&ON_STORE_ERROR)), "the answer where the store cannot decide; error unless given"),
    may("record", OPTION, Texts, "entry keys whose values are tallied per counter: who used it up"),
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
];

const OPTION: &[Level] = &[Limit, Defaults, Overlaid];
const SWITCH: &[Level] = &[Rule, Entry, Tollgate];

const fn may(name: &'static str, levels: &'static [Level], form: Form, meaning: &'static str) -> Word {
    Word { name, levels, form, required: false, meaning }
}

const fn must(name: &'static str, levels: &'static [Level], form: Form, meaning: &'static str) -> Word {
    Word { name, levels, form, required: true, meaning }
}

/// The words of a table of choices.
fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

/// The words that envoyproxy/ratelimit knows, whatever they are worth there.
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
    /// Whether envoyproxy/ratelimit knows it too.
    pub(super) fn is_theirs(&self) -> bool {
        THEIRS.contains(&self.name)
    }
}

impl Level {
    /// The words that may stand here.
    pub(in crate::policy) fn words(self) -> impl Iterator<Item = &'static Word> + Clone {
        WORDS.iter().filter(move |word| word.levels.contains(&self))
    }

    /// The word of this name, where it may stand here.
    pub(super) fn word(self, name: &str) -> Option<&'static Word> {
        self.words().find(|word| word.name == name)
    }

    /// What a message calls such a mapping.
    pub(super) fn name(self) -> &'static str {
        match self {
            File => "a policy",
            Defaults => "`defaults`",
            Rule => "an item of `descriptors`",
            Limit => "`rate_limit`",
            Window => "an item of `windows`",
            Replaced => "an item of `replaces`",
            Lease => "`lease`",
            Overlay => "an overlay",
            Entry => "an item of `overlay`",
            Overlaid => "`rate_limit`",
            Tollgate => "`tollgate`",
        }
    }

    /// Where this is, as a sentence says it.
    pub(super) fn place(self) -> &'static str {
        match self {
            File => "at the top of the file",
            Defaults => "in defaults",
            Rule => "in an item of descriptors",
            Limit => "in rate_limit",
            Window => "in an item of windows",
            Replaced => "in an item of replaces",
            Lease => "in lease",
            Overlay => "at the top of an overlay",
            Entry => "in an item of overlay",
            Overlaid => "in rate_limit of an overlay",
            Tollgate => "in tollgate of metadata",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_stands_twice_in_one_place() {
        for level in [File, Defaults, Rule, Limit, Window, Replaced, Lease, Overlay, Entry, Overlaid, Tollgate] {
            let mut names: Vec<_> = level.words().map(|word| word.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{level:?}");
        }
    }
}
