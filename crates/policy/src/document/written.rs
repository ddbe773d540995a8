//! Policies as written: the content of a file, with positions, before the compiler checks it.

use tollgate_core::algorithm::hold::OnSettle;
use tollgate_core::algorithm::sliding_window::Estimate;
use tollgate_core::algorithm::{Charge, OnStoreError};
use tollgate_yaml::report::{SourceSpan, Spanned};

use super::step;
use crate::quota::UnsupportedQuota;
use crate::requests::IfUndecided;
use crate::rule::LeaseHolder;

/// One document of a file.
#[derive(Debug)]
pub(crate) enum Root {
    Policy(Box<WrittenDocument>),
    Overlay(Vec<WrittenEntry>),
}

/// A policy: the rules of a domain.
#[derive(Debug)]
pub(crate) struct WrittenDocument {
    pub(crate) domain: Spanned<String>,
    pub(crate) atomicity: Option<Spanned<Atomicity>>,
    pub(crate) unsupported_quota: Option<Spanned<UnsupportedQuota>>,
    pub(crate) defaults: Options,
    pub(crate) rules: Vec<WrittenRule>,
    pub(crate) mappings: Vec<WrittenMapping>,
}

/// A rule.
#[derive(Debug)]
pub(crate) struct WrittenRule {
    pub(crate) key: Spanned<String>,
    /// Never empty.
    pub(crate) value: Option<Spanned<String>>,
    pub(crate) limit: Option<WrittenLimit>,
    pub(crate) candidate: Option<WrittenLimit>,
    pub(crate) switches: Switches,
    /// Metadata without the options for Tollgate.
    pub(crate) metadata: Option<serde_json::Value>,
    /// Options for Tollgate in the metadata.
    pub(crate) layer: Option<Box<WrittenLayer>>,
    pub(crate) children: Vec<WrittenRule>,
}

/// The limit of a rule.
#[derive(Debug)]
pub(crate) struct WrittenLimit {
    pub(crate) span: SourceSpan,
    /// Set if all of it could be read. Otherwise the error is reported already, and the missing
    /// part must not be reported again.
    pub(crate) is_whole: bool,
    pub(crate) single: WrittenWindow,
    pub(crate) windows: Option<Spanned<Vec<WrittenWindow>>>,
    pub(crate) in_flight: Option<Spanned<u64>>,
    pub(crate) unlimited: Option<Spanned<bool>>,
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) replaces: Vec<Spanned<String>>,
    pub(crate) options: Options,
}

/// An amount and a period.
#[derive(Debug)]
pub(crate) struct WrittenWindow {
    pub(crate) span: SourceSpan,
    pub(crate) requests_per_unit: Option<Spanned<u64>>,
    pub(crate) unit: Option<Spanned<String>>,
}

/// An item of an overlay: patterns, and options for the rules that they match.
#[derive(Debug)]
pub(crate) struct WrittenEntry {
    pub(crate) span: SourceSpan,
    pub(crate) domain: Option<Spanned<String>>,
    pub(crate) key: Option<Spanned<String>>,
    pub(crate) value: Option<Spanned<String>>,
    pub(crate) name: Option<Spanned<String>>,
    pub(crate) layer: WrittenLayer,
}

/// Options for a rule that are written elsewhere.
#[derive(Debug, Default)]
pub(crate) struct WrittenLayer {
    pub(crate) options: Options,
    pub(crate) switches: Switches,
}

/// Switches of a rule, beside its limit.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    pub(crate) shadow_mode: Option<Spanned<bool>>,
    pub(crate) quota_mode: Option<Spanned<bool>>,
    pub(crate) share_threshold: Option<Spanned<bool>>,
    pub(crate) detailed_metric: Option<Spanned<bool>>,
    pub(crate) value_to_metric: Option<Spanned<bool>>,
}

/// Options shared by limits, the defaults of a file, and overlays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) algorithm: Option<Spanned<AlgorithmWord>>,
    pub(crate) burst: Option<Spanned<u64>>,
    pub(crate) max_debt: Option<Spanned<u64>>,
    pub(crate) buckets: Option<Spanned<u64>>,
    pub(crate) estimate: Option<Spanned<Estimate>>,
    pub(crate) calendar: Option<Spanned<bool>>,
    pub(crate) time_zone: Option<Spanned<String>>,
    pub(crate) charge: Option<Spanned<Charge>>,
    pub(crate) inherit: Option<Spanned<OverrideWord>>,
    pub(crate) on_store_error: Option<Spanned<OnStoreError>>,
    pub(crate) record: Option<Spanned<Vec<String>>>,
    pub(crate) hash_values: Option<Spanned<bool>>,
    pub(crate) lease: Option<Spanned<WrittenLease>>,
    pub(crate) hold: Option<Spanned<WrittenHold>>,
}

/// The value of `hold`.
#[derive(Clone, Debug)]
pub(crate) struct WrittenHold {
    pub(crate) ttl: Option<Spanned<String>>,
    pub(crate) on_settle: Option<Spanned<OnSettle>>,
}

/// A text with its position.
pub(crate) type WrittenText = Spanned<String>;

/// An item of `requests`.
#[derive(Debug)]
pub(crate) struct WrittenMapping {
    pub(crate) name: WrittenText,
    pub(crate) trusted_hops: Option<Spanned<u64>>,
    pub(crate) undecided: Option<Spanned<IfUndecided>>,
    pub(crate) descriptors: Vec<WrittenMappedDescriptor>,
}

/// A descriptor of a mapping.
#[derive(Debug)]
pub(crate) struct WrittenMappedDescriptor {
    pub(crate) span: SourceSpan,
    pub(crate) matches: WrittenMatch,
    pub(crate) hits: Option<Spanned<u64>>,
    pub(crate) entries: Vec<WrittenEntrySource>,
}

/// The value of `match`.
#[derive(Debug, Default)]
pub(crate) struct WrittenMatch {
    pub(crate) methods: Vec<WrittenText>,
    pub(crate) hosts: Vec<WrittenText>,
    pub(crate) paths: Vec<WrittenText>,
}

/// An entry of a descriptor of a mapping.
#[derive(Debug)]
pub(crate) struct WrittenEntrySource {
    pub(crate) key: WrittenText,
    pub(crate) source: WrittenSource,
    pub(crate) default: Option<WrittenText>,
}

/// The source of a value.
#[derive(Debug)]
pub(crate) enum WrittenSource {
    Literal(WrittenText),
    Header(WrittenText),
    Query(WrittenText),
    Segment(Spanned<u64>),
    Metadata(Spanned<Vec<String>>),
    Attribute {
        attribute: AttributeWord,
        ipv4_prefix: Option<Spanned<u64>>,
        ipv6_prefix: Option<Spanned<u64>>,
    },
}

/// The value of `attribute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttributeWord {
    Method,
    Host,
    Path,
    ClientAddress,
    ClientCertificate,
}

pub(crate) const ATTRIBUTES: [(&str, AttributeWord); 5] = [
    ("method", AttributeWord::Method),
    ("host", AttributeWord::Host),
    ("path", AttributeWord::Path),
    ("client_address", AttributeWord::ClientAddress),
    ("client_certificate", AttributeWord::ClientCertificate),
];

pub(crate) const IF_UNDECIDED: [(&str, IfUndecided); 3] =
    [("error", IfUndecided::Error), ("allow", IfUndecided::Allow), ("deny", IfUndecided::Deny)];

/// The value of `lease`.
#[derive(Clone, Debug)]
pub(crate) struct WrittenLease {
    pub(crate) size: Option<Spanned<String>>,
    pub(crate) ttl: Option<Spanned<String>>,
    pub(crate) holders: Option<Spanned<Vec<String>>>,
    pub(crate) quota: Option<WrittenQuota>,
}

/// The value of `rlqs` in `lease`.
#[derive(Clone, Debug)]
pub(crate) struct WrittenQuota {
    pub(crate) size: Option<Spanned<String>>,
    pub(crate) ttl: Option<Spanned<String>>,
}

/// The value of `algorithm`, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlgorithmWord {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Gcra,
    TokenBucket,
    Concurrency,
}

/// The value of `atomicity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomicity {
    Limit,
    Domain,
}

pub(crate) const ATOMICITIES: [(&str, Atomicity); 2] =
    [("limit", Atomicity::Limit), ("domain", Atomicity::Domain)];

/// The value of `override`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverrideWord {
    Inherit,
}

impl AlgorithmWord {
    /// Returns the word.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed_window",
            Self::SlidingWindow => "sliding_window",
            Self::SlidingLog => "sliding_log",
            Self::Gcra => "gcra",
            Self::TokenBucket => "token_bucket",
            Self::Concurrency => "concurrency",
        }
    }

    /// Returns the word with its value.
    const fn entry(self) -> (&'static str, Self) {
        (self.word(), self)
    }
}

pub(crate) const ALGORITHMS: [(&str, AlgorithmWord); 6] = [
    AlgorithmWord::FixedWindow.entry(),
    AlgorithmWord::SlidingWindow.entry(),
    AlgorithmWord::SlidingLog.entry(),
    AlgorithmWord::Gcra.entry(),
    AlgorithmWord::TokenBucket.entry(),
    AlgorithmWord::Concurrency.entry(),
];

pub(crate) const HOLDERS: [(&str, LeaseHolder); 2] = [
    (LeaseHolder::Process.word(), LeaseHolder::Process),
    (LeaseHolder::Client.word(), LeaseHolder::Client),
];

pub(crate) const UNSUPPORTED: [(&str, UnsupportedQuota); 2] =
    [("deny", UnsupportedQuota::Deny), ("allow", UnsupportedQuota::Allow)];

pub(crate) const ON_SETTLE: [(&str, OnSettle); 2] =
    [(OnSettle::Charge.word(), OnSettle::Charge), (OnSettle::Release.word(), OnSettle::Release)];

pub(crate) const ESTIMATES: [(&str, Estimate); 2] =
    [(Estimate::Strict.word(), Estimate::Strict), (Estimate::Weighted.word(), Estimate::Weighted)];

pub(crate) const CHARGES: [(&str, Charge); 4] = [
    (Charge::Admitted.word(), Charge::Admitted),
    (Charge::Blamed.word(), Charge::Blamed),
    (Charge::Always.word(), Charge::Always),
    (Charge::Afterwards.word(), Charge::Afterwards),
];

pub(crate) const OVERRIDES: [(&str, OverrideWord); 1] = [("inherit", OverrideWord::Inherit)];

pub(crate) const ON_STORE_ERROR: [(&str, OnStoreError); 4] = [
    ("error", OnStoreError::Error),
    ("allow", OnStoreError::Allow),
    ("deny", OnStoreError::Deny),
    ("local", OnStoreError::Local),
];

/// Returns the word for a value in a table.
pub(crate) fn word_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word)
}

impl WrittenRule {
    /// Returns the last step of the rule's path, `plan=free` or `user`.
    pub(crate) fn step(&self) -> String {
        step(&self.key.value, self.value_text())
    }

    pub(crate) fn value_text(&self) -> Option<&str> {
        self.value.as_ref().map(|value| value.value.as_str())
    }
}

impl Options {
    /// Returns the options that are set, with their names and positions.
    pub(crate) fn written(&self) -> impl Iterator<Item = (&'static str, SourceSpan)> {
        fn at<T>(option: &Option<Spanned<T>>) -> Option<SourceSpan> {
            option.as_ref().map(|option| option.span)
        }
        // A new option has to be in this list: it decides which items of an overlay set nothing.
        let Options {
            algorithm,
            burst,
            max_debt,
            buckets,
            estimate,
            calendar,
            time_zone,
            charge,
            inherit,
            on_store_error,
            record,
            hash_values,
            lease,
            hold,
        } = self;
        let all = [
            ("algorithm", at(algorithm)),
            ("burst", at(burst)),
            ("max_debt", at(max_debt)),
            ("buckets", at(buckets)),
            ("estimate", at(estimate)),
            ("calendar", at(calendar)),
            ("time_zone", at(time_zone)),
            ("charge", at(charge)),
            ("override", at(inherit)),
            ("on_store_error", at(on_store_error)),
            ("record", at(record)),
            ("hash_values", at(hash_values)),
            ("lease", at(lease)),
            ("hold", at(hold)),
        ];
        all.into_iter().filter_map(|(word, span)| Some((word, span?)))
    }
}
