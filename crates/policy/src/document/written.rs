//! Policies as written: the content of a file, with positions, before the compiler checks it.

use tollgate_core::algorithm::hold::OnSettle;
use tollgate_core::algorithm::sliding_window::Estimate;
use tollgate_core::algorithm::words;
use tollgate_core::algorithm::{Charge, OnStoreError};
use tollgate_yaml::report::{SourceSpan, Spanned};

use crate::quota::UnsupportedQuota;
use crate::requests::{IfUndecided, Repeated};
use crate::rule::step;

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
    Header(WrittenText, Repeated),
    Query(WrittenText, Repeated),
    Segment(Spanned<u64>),
    Metadata(Spanned<Vec<String>>),
    Attribute {
        attribute: AttributeWord,
        ipv4_prefix: Option<Spanned<u64>>,
        ipv6_prefix: Option<Spanned<u64>>,
    },
}

words! {
    /// The value of `attribute`.
    pub(crate) enum AttributeWord {
        Method = "method",
        Host = "host",
        Path = "path",
        ClientAddress = "client_address",
        ClientCertificate = "client_certificate",
    }
}

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

words! {
    /// The value of `algorithm`, as written.
    pub(crate) enum AlgorithmWord {
        FixedWindow = "fixed_window",
        SlidingWindow = "sliding_window",
        SlidingLog = "sliding_log",
        Gcra = "gcra",
        TokenBucket = "token_bucket",
        Concurrency = "concurrency",
    }
}

words! {
    /// The value of `atomicity`.
    pub(crate) enum Atomicity {
        Limit = "limit",
        Domain = "domain",
    }
}

words! {
    /// The value of `override`.
    pub(crate) enum OverrideWord {
        Inherit = "inherit",
    }
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
