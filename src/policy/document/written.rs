//! Policies as written: the content of a file, with positions, before the compiler checks it.

use crate::algorithm::hold::OnSettle;
use crate::algorithm::sliding_window::Estimate;
use crate::algorithm::{Charge, OnStoreError};
use crate::yaml::report::{SourceSpan, Spanned};

/// One document of a file.
#[derive(Debug)]
pub(in crate::policy) enum Root {
    Policy(Box<WrittenDocument>),
    Overlay(Vec<WrittenEntry>),
}

/// A policy: the rules of a domain.
#[derive(Debug)]
pub(in crate::policy) struct WrittenDocument {
    pub(in crate::policy) domain: Spanned<String>,
    pub(in crate::policy) atomicity: Option<Spanned<Atomicity>>,
    pub(in crate::policy) defaults: Options,
    pub(in crate::policy) rules: Vec<WrittenRule>,
}

/// A rule.
#[derive(Debug)]
pub(in crate::policy) struct WrittenRule {
    pub(in crate::policy) key: Spanned<String>,
    /// Never empty.
    pub(in crate::policy) value: Option<Spanned<String>>,
    pub(in crate::policy) limit: Option<WrittenLimit>,
    pub(in crate::policy) candidate: Option<WrittenLimit>,
    pub(in crate::policy) switches: Switches,
    /// Metadata without the options for Tollgate.
    pub(in crate::policy) metadata: Option<serde_json::Value>,
    /// Options for Tollgate in the metadata.
    pub(in crate::policy) layer: Option<Box<WrittenLayer>>,
    pub(in crate::policy) children: Vec<WrittenRule>,
}

/// The limit of a rule.
#[derive(Debug)]
pub(in crate::policy) struct WrittenLimit {
    pub(in crate::policy) span: SourceSpan,
    /// Set if all of it could be read. Otherwise the error is reported already, and the missing
    /// part must not be reported again.
    pub(in crate::policy) is_whole: bool,
    pub(in crate::policy) single: WrittenWindow,
    pub(in crate::policy) windows: Option<Spanned<Vec<WrittenWindow>>>,
    pub(in crate::policy) in_flight: Option<Spanned<u64>>,
    pub(in crate::policy) unlimited: Option<Spanned<bool>>,
    pub(in crate::policy) name: Option<Spanned<String>>,
    pub(in crate::policy) replaces: Vec<Spanned<String>>,
    pub(in crate::policy) options: Options,
}

/// An amount and a period.
#[derive(Debug)]
pub(in crate::policy) struct WrittenWindow {
    pub(in crate::policy) span: SourceSpan,
    pub(in crate::policy) requests_per_unit: Option<Spanned<u64>>,
    pub(in crate::policy) unit: Option<Spanned<String>>,
}

/// An item of an overlay: patterns, and options for the rules that they match.
#[derive(Debug)]
pub(in crate::policy) struct WrittenEntry {
    pub(in crate::policy) span: SourceSpan,
    pub(in crate::policy) domain: Option<Spanned<String>>,
    pub(in crate::policy) key: Option<Spanned<String>>,
    pub(in crate::policy) value: Option<Spanned<String>>,
    pub(in crate::policy) name: Option<Spanned<String>>,
    pub(in crate::policy) layer: WrittenLayer,
}

/// Options for a rule that are written elsewhere.
#[derive(Debug, Default)]
pub(in crate::policy) struct WrittenLayer {
    pub(in crate::policy) options: Options,
    pub(in crate::policy) switches: Switches,
}

/// Switches of a rule, beside its limit.
#[derive(Debug, Default)]
pub(in crate::policy) struct Switches {
    pub(in crate::policy) shadow_mode: Option<Spanned<bool>>,
    pub(in crate::policy) quota_mode: Option<Spanned<bool>>,
    pub(in crate::policy) share_threshold: Option<Spanned<bool>>,
    pub(in crate::policy) detailed_metric: Option<Spanned<bool>>,
    pub(in crate::policy) value_to_metric: Option<Spanned<bool>>,
}

/// Options shared by limits, the defaults of a file, and overlays.
#[derive(Clone, Debug, Default)]
pub(in crate::policy) struct Options {
    pub(in crate::policy) algorithm: Option<Spanned<AlgorithmWord>>,
    pub(in crate::policy) burst: Option<Spanned<u64>>,
    pub(in crate::policy) max_debt: Option<Spanned<u64>>,
    pub(in crate::policy) buckets: Option<Spanned<u64>>,
    pub(in crate::policy) estimate: Option<Spanned<Estimate>>,
    pub(in crate::policy) calendar: Option<Spanned<bool>>,
    pub(in crate::policy) time_zone: Option<Spanned<String>>,
    pub(in crate::policy) charge: Option<Spanned<Charge>>,
    pub(in crate::policy) inherit: Option<Spanned<OverrideWord>>,
    pub(in crate::policy) on_store_error: Option<Spanned<OnStoreError>>,
    pub(in crate::policy) record: Option<Spanned<Vec<String>>>,
    pub(in crate::policy) hash_values: Option<Spanned<bool>>,
    pub(in crate::policy) lease: Option<Spanned<WrittenLease>>,
    pub(in crate::policy) hold: Option<Spanned<WrittenHold>>,
}

/// The value of `hold`.
#[derive(Clone, Debug)]
pub(in crate::policy) struct WrittenHold {
    pub(in crate::policy) ttl: Option<Spanned<String>>,
    pub(in crate::policy) on_settle: Option<Spanned<OnSettle>>,
}

/// The value of `lease`.
#[derive(Clone, Debug)]
pub(in crate::policy) struct WrittenLease {
    pub(in crate::policy) size: Option<Spanned<String>>,
    pub(in crate::policy) ttl: Option<Spanned<String>>,
}

/// The value of `algorithm`, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum AlgorithmWord {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    Gcra,
    TokenBucket,
    Concurrency,
}

/// The value of `atomicity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum Atomicity {
    Limit,
    Domain,
}

pub(in crate::policy) const ATOMICITIES: [(&str, Atomicity); 2] =
    [("limit", Atomicity::Limit), ("domain", Atomicity::Domain)];

/// The value of `override`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy) enum OverrideWord {
    Inherit,
}

impl AlgorithmWord {
    /// Returns the word.
    pub(in crate::policy) const fn word(self) -> &'static str {
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

pub(in crate::policy) const ALGORITHMS: [(&str, AlgorithmWord); 6] = [
    AlgorithmWord::FixedWindow.entry(),
    AlgorithmWord::SlidingWindow.entry(),
    AlgorithmWord::SlidingLog.entry(),
    AlgorithmWord::Gcra.entry(),
    AlgorithmWord::TokenBucket.entry(),
    AlgorithmWord::Concurrency.entry(),
];

pub(in crate::policy) const ON_SETTLE: [(&str, OnSettle); 2] =
    [(OnSettle::Charge.word(), OnSettle::Charge), (OnSettle::Release.word(), OnSettle::Release)];

pub(in crate::policy) const ESTIMATES: [(&str, Estimate); 2] =
    [(Estimate::Strict.word(), Estimate::Strict), (Estimate::Weighted.word(), Estimate::Weighted)];

pub(in crate::policy) const CHARGES: [(&str, Charge); 4] = [
    (Charge::Admitted.word(), Charge::Admitted),
    (Charge::Blamed.word(), Charge::Blamed),
    (Charge::Always.word(), Charge::Always),
    (Charge::Afterwards.word(), Charge::Afterwards),
];

pub(in crate::policy) const OVERRIDES: [(&str, OverrideWord); 1] =
    [("inherit", OverrideWord::Inherit)];

pub(in crate::policy) const ON_STORE_ERROR: [(&str, OnStoreError); 4] = [
    ("error", OnStoreError::Error),
    ("allow", OnStoreError::Allow),
    ("deny", OnStoreError::Deny),
    ("local", OnStoreError::Local),
];

/// Returns the word for a value in a table.
pub(in crate::policy) fn word_of<T: PartialEq>(
    table: &[(&'static str, T)],
    value: &T,
) -> &'static str {
    table.iter().find(|(_, other)| other == value).map_or("", |(word, _)| word)
}

impl Options {
    /// Returns the options that are set, with their names and positions.
    pub(in crate::policy) fn written(&self) -> impl Iterator<Item = (&'static str, SourceSpan)> {
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
