//! Every word of a policy, once: its level, its form and its meaning.
//!
//! The errors for unknown and misplaced words with "did you mean", and the JSON Schema (in
//! `schema`) are derived from this table. A new option takes a line here, a field in
//! [`written`](super::written), and its use in the compiler.

use serde_json::{Value, json};
use tollgate_core::algorithm::hold::OnSettle;
use tollgate_core::algorithm::quota::MAX_IN_FLIGHT;
use tollgate_core::algorithm::sliding_window::Estimate;
use tollgate_core::algorithm::{Charge, OnStoreError};
use tollgate_yaml::schema::{reference, text_types};
use tollgate_yaml::vocabulary::{Form, VocabularyLevel, Word, may, must, names};

use super::written::{AlgorithmWord, Atomicity, AttributeWord, OverrideWord};
use crate::quota::UnsupportedQuota;
use crate::requests::{IfUndecided, Repeated};
use crate::rule::LeaseHolder;
use DocumentLevel::{
    Candidate, Defaults, Entry, File, Hold, Lease, Limit, Mapped, Mapping, Match, Overlaid,
    Overlay, Quota, Quotas, Replaced, Rule, Source, Tollgate, Window,
};
use Form::{Count, Map, Maps, OneOf, Other, Text, Texts, Truth};

/// The kind of mapping that a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DocumentLevel {
    File,
    Defaults,
    Rule,
    Limit,
    /// A candidate limit, tried out beside `rate_limit`.
    Candidate,
    Window,
    Replaced,
    Lease,
    /// The hits of a lease that proxies may hold by RLQS.
    Quota,
    Hold,
    /// Options of RLQS for a domain.
    Quotas,
    /// A document of options for rules that are written elsewhere.
    Overlay,
    /// An item of an overlay.
    Entry,
    /// The options in an overlay or in metadata.
    Overlaid,
    /// The options for Tollgate in the metadata of a rule.
    Tollgate,
    /// A mapping of HTTP requests to descriptors.
    Mapping,
    /// A descriptor of a mapping.
    Mapped,
    /// The requests that a descriptor of a mapping is for.
    Match,
    /// The source of a value.
    Source,
}

/// All words, in the order in which a schema shows them.
#[rustfmt::skip]
pub(crate) static WORDS: &[Word<DocumentLevel>] = &[
    must("domain", &[File], Text, "the domain that the rules apply to: the `domain` field of a request"),
    may("atomicity", &[File], OneOf(|| names(Atomicity::WORDS)), "domain: all counters of the domain share one slot of a Redis Cluster, so that each request is one atomic call, but one slot takes all load; limit (default): each limit uses its own slot"),
    may("rlqs", &[File], Map(Quotas), "options of RLQS for the domain"),
    may("defaults", &[File], Map(Defaults), "default options for all limits of this document; options of a rule take precedence"),
    may("requests", &[File], Maps(Mapping), "how HTTP requests become descriptors of the domain, for gateways that call ext_authz or /auth/NAME"),
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
    may("metadata", &[Rule], Other(metadata), "any content; returned to the caller as dynamic metadata, except for the key `tollgate`, which sets options as an item of an overlay does"),

    may("requests_per_unit", AMOUNT, Count(u32::MAX as u64), "hits per unit; 0 denies all requests (a ban)"),
    may("unit", AMOUNT, Other(unit), "the period: second, minute, hour, day, week, month, year, or a duration such as 250ms, 10s, 15m, 6h, 7d"),
    may("in_flight", &[Limit, Candidate], Count(MAX_IN_FLIGHT as u64), "concurrency: maximum number of hits in flight; 0 denies all requests (a ban)"),
    may("unlimited", &[Limit], Truth, "no limit; cannot be combined with `unit`"),
    may("name", &[Limit], Text, "the name of the limit in responses and in `replaces`"),
    may("replaces", &[Limit], Maps(Replaced), "limits that are ignored in a request to which this limit applies"),
    may("windows", &[Limit, Candidate], Maps(Window), "several amounts and periods, all of which must admit the request"),
    may("algorithm", OPTION, OneOf(|| names(AlgorithmWord::WORDS)), "how hits are counted; default: fixed_window"),
    may("burst", OPTION, Count(u32::MAX as u64), "gcra and token_bucket: hits that an unused counter admits at once; default: requests_per_unit"),
    may("max_debt", OPTION, Count(u64::MAX), "gcra and token_bucket: maximum number of hits beyond the limit that are counted; default: ten times burst"),
    may("buckets", OPTION, Count(u32::MAX as u64), "sliding_window: number of buckets per period; default: 60"),
    may("estimate", OPTION, OneOf(|| names(Estimate::WORDS)), "sliding_window: how the oldest bucket is counted: strict (in full) or weighted; default: strict"),
    may("calendar", OPTION, Truth, "fixed_window of a day, week, month or year: start each window at local midnight"),
    may("time_zone", OPTION, Text, "the IANA time zone of a calendar; default: UTC"),
    may("charge", OPTION, OneOf(|| names(Charge::WORDS)), "when hits are charged; default: always for fixed_window, admitted for the others"),
    may("override", OWN, OneOf(|| names(OverrideWord::WORDS)), "inherit: a limit sent with a request replaces only the amount and the period of this limit"),
    may("on_store_error", OWN, OneOf(|| names(OnStoreError::WORDS)), "the decision if the store fails; default: error"),
    may("record", OWN, Texts, "entry keys whose values are tallied per counter, to show which callers used it"),
    may("hash_values", OPTION, Truth, "hash the values in counter keys, with the hash key of the process, before they are stored or shown; for personal data"),
    may("lease", OPTION, Map(Lease), "hits that a process may take from a shared store in advance and then admit in memory"),
    may("hold", OPTION, Map(Hold), "record charges under an ID (the entries tollgate.reserve, tollgate.commit, tollgate.settle), to be corrected when their cost is known; required for concurrency"),

    must("name", &[Replaced], Text, "the name of the limit that is replaced"),

    must("overlay", &[Overlay], Maps(Entry), "options for rules in other documents; for each option, the first item that matches the rule and sets the option applies"),
    may("domain", &[Entry], Text, "the domain of the rules; `*` matches any text; default: any domain"),
    may("key", &[Entry], Text, "the key of the rule itself, as written; `*` matches any text"),
    may("value", &[Entry], Text, "the value of the rule itself, as written; empty for rules without a value; `*` matches any text"),
    may("name", &[Entry], Text, "the name of the limit of the rule; empty for limits without a name; `*` matches any text"),
    may("rate_limit", &[Entry, Tollgate], Map(Overlaid), "options of the limit, except for amounts and periods"),

    must("size", &[Lease], Other(size), "maximum number of hits per lease: a percentage of the limit such as 1%, or a number of hits"),
    must("ttl", &[Lease], Other(unit), "how long leased hits are kept; unused hits are returned"),
    may("holders", &[Lease], Other(holders), "who may hold leased hits: process (the processes of the service), client (callers of LeaseService); default: [process]"),
    may("rlqs", &[Lease], Map(Quota), "hits that each proxy may hold by RLQS and admit in its own memory"),

    must("ttl", &[Quota], Other(unit), "the time for which a proxy may hold hits: whole seconds from 7s to 5m, shorter than the period by at least 2s"),
    must("size", &[Quota], Other(size), "maximum number of hits that one proxy may hold: a percentage of the limit such as 10%, or a number of hits"),
    may("unsupported", &[Quotas], OneOf(|| names(UnsupportedQuota::WORDS)), "the answer to buckets whose limit RLQS cannot enforce: deny or allow all requests; default: deny"),

    must("ttl", &[Hold], Other(unit), "the time after which a hold expires, from 1s to 24h"),
    may("on_settle", &[Hold], OneOf(|| names(OnSettle::WORDS)), "when a hold ends without a cost: charge (its estimate stays charged) or release (it is refunded); default: charge"),

    must("name", &[Mapping], Text, "the name of the mapping, which gateways use: letters, digits, `-`, `_` and `.`; unique in all files"),
    may("trusted_hops", &[Mapping], Count(MAX_TRUSTED_HOPS), "the number of trusted proxies before the gateway: the client address is that many entries before the last of X-Forwarded-For; default: 0"),
    may("undecided", &[Mapping], OneOf(|| names(IfUndecided::WORDS)), "the answer while there is no decision: error (the failure mode of the gateway applies), allow or deny; default: error"),
    must("descriptors", &[Mapping], Maps(Mapped), "the descriptors; a request has each that matches it and has all values"),

    may("match", &[Mapped], Map(Match), "the requests that have the descriptor; default: all"),
    must("entries", &[Mapped], Other(entries), "the entries, a mapping of keys to a text or a source, in order"),
    may("hits", &[Mapped], Count(u32::MAX as u64), "the number of hits; 0 is a peek; default: 1"),

    may("methods", &[Match], Texts, "methods, such as GET; one must be equal"),
    may("hosts", &[Match], Texts, "hosts, without port; `*` matches any text; one must match"),
    may("paths", &[Match], Texts, "normalized paths, without query; `*` matches any text, also with slashes; one must match"),

    may("header", &[Source], Text, "the value of a request header"),
    may("query", &[Source], Text, "the value of a query parameter, decoded"),
    may("repeated", &[Source], OneOf(|| names(Repeated::WORDS)), "header, query: what if it occurs several times, or has a comma where the gateway joins lines: refuse denies the request with 400, first takes the first, join all, joined by commas; default: refuse"),
    may("segment", &[Source], Count(MAX_SEGMENT), "a segment of the normalized path, by its number from 1"),
    may("metadata", &[Source], Texts, "a value in the metadata that the gateway sends by ext_authz, such as a claim of a verified token, by its keys from the outside in"),
    may("attribute", &[Source], OneOf(|| names(AttributeWord::WORDS)), "method, host or path, normalized; client_address; or client_certificate, the name in the client's verified certificate"),
    may("ipv4_prefix", &[Source], Count(32), "client_address: number of bits of an IPv4 address that are kept; default: 32"),
    may("ipv6_prefix", &[Source], Count(128), "client_address: number of bits of an IPv6 address that are kept; default: 128"),
    may("default", &[Source], Text, "the value if the request has none; without a default, such a request does not have the descriptor"),
];

/// Largest `trusted_hops`: more proxies in a row point to a mistake.
const MAX_TRUSTED_HOPS: u64 = 16;
/// Largest `segment`.
const MAX_SEGMENT: u64 = 64;
const AMOUNT: &[DocumentLevel] = &[Limit, Candidate, Window];
const OPTION: &[DocumentLevel] = &[Limit, Candidate, Defaults, Overlaid];
/// Levels of options that take part in the response, which excludes candidates.
const OWN: &[DocumentLevel] = &[Limit, Defaults, Overlaid];
const SWITCH: &[DocumentLevel] = &[Rule, Entry, Tollgate];

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

impl VocabularyLevel for DocumentLevel {
    const ALL: &'static [Self] = &[
        File, Quotas, Defaults, Rule, Limit, Candidate, Window, Replaced, Lease, Quota, Hold,
        Overlay, Entry, Overlaid, Tollgate, Mapping, Mapped, Match, Source,
    ];

    fn vocabulary() -> &'static [Word<Self>] {
        WORDS
    }

    fn texts(self) -> [&'static str; 3] {
        match self {
            File => ["a policy", "at the top level of a policy", "file"],
            Defaults => ["`defaults`", "in `defaults`", "defaults"],
            Rule => ["an item of `descriptors`", "in an item of `descriptors`", "rule"],
            Limit => ["`rate_limit`", "in `rate_limit`", "rate_limit"],
            Candidate => ["`candidate`", "in `candidate`", "candidate"],
            Window => ["an item of `windows`", "in an item of `windows`", "window"],
            Replaced => ["an item of `replaces`", "in an item of `replaces`", "replaced"],
            Lease => ["`lease`", "in `lease`", "lease"],
            Quota => ["`rlqs`", "in `rlqs` of `lease`", "quota"],
            Quotas => ["`rlqs`", "in `rlqs`", "quotas"],
            Hold => ["`hold`", "in `hold`", "hold"],
            Overlay => ["an overlay", "at the top level of an overlay", "overlay"],
            Entry => ["an item of `overlay`", "in an item of `overlay`", "entry"],
            Overlaid => ["`rate_limit`", "in `rate_limit` of an overlay", "overlaid"],
            Tollgate => ["`tollgate`", "in `metadata.tollgate`", "tollgate"],
            Mapping => ["an item of `requests`", "in an item of `requests`", "mapping"],
            Mapped => ["a descriptor of `requests`", "in a descriptor of `requests`", "mapped"],
            Match => ["`match`", "in `match`", "match"],
            Source => ["a source", "in a source of `entries`", "source"],
        }
    }
}

/// Returns the schema of a named period, or a duration.
fn unit() -> Value {
    json!({
        "type": ["string", "null"],
        "anyOf": [
            { "enum": ["second", "minute", "hour", "day", "week", "month", "year", null] },
            { "pattern": unit_pattern() },
        ],
    })
}

/// Returns a pattern for units in any case, in syntax that every regular expression dialect
/// supports.
fn unit_pattern() -> String {
    let words = ["second", "minute", "hour", "day", "week", "month", "year"];
    let words = words.map(|word| {
        let letters = word.chars();
        letters
            .map(|letter| format!("[{letter}{}]", letter.to_ascii_uppercase()))
            .collect::<String>()
    });
    format!("^([0-9]+(ms|s|m|h|d)|{})$", words.join("|"))
}

/// Returns the schema of a percentage or a count.
fn size() -> Value {
    json!({ "type": ["string", "integer"], "pattern": "^[0-9]+([.][0-9]{1,2})?%?$" })
}

/// Returns the schema of a list of the holders of leased hits.
fn holders() -> Value {
    json!({ "type": "array", "minItems": 1, "items": { "enum": names(LeaseHolder::WORDS) } })
}

/// Returns the schema of a mapping with any content, of which only `tollgate` is known.
fn metadata() -> Value {
    json!({ "type": ["object", "null"], "properties": { "tollgate": reference(Tollgate) } })
}

/// Returns the schema of entries: a mapping of keys to texts and sources.
fn entries() -> Value {
    let source = json!({ "anyOf": [{ "type": text_types() }, reference(Source)] });
    json!({ "type": "object", "additionalProperties": source })
}
