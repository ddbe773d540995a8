//! A rule as it is compiled: what it matches, what it imposes, and how its counters are told from others.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use super::document::step;
use super::matcher::{Level, Pattern};
use crate::algorithm::time::Micros;
use crate::algorithm::{Charge, Limit, lease};
use crate::descriptor::Identity;

/// What a rule imposes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imposes {
    /// No limit is written: descriptors that end here are let through.
    Nothing,
    /// `unlimited: true`.
    Unlimited,
    /// A limit.
    Limit(Limit),
}

/// How much of a limit an instance may take from a shared store in advance, and how long it may keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How much.
    pub size: LeaseSize,
    /// How long hits that were not used are kept.
    pub ttl: Micros,
}

/// The size of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSize {
    /// Hundredths of a percent of the limit, up to 10,000.
    BasisPoints(NonZeroU16),
    /// Hits.
    Hits(NonZeroU32),
}

impl Lease {
    /// The same, in hits of a limit.
    pub fn of(&self, limit: &Limit) -> lease::Lease {
        let hits = match self.size {
            LeaseSize::BasisPoints(part) => limit.part(part.get()),
            LeaseSize::Hits(hits) => hits.get(),
        };
        lease::Lease { hits, ttl: self.ttl }
    }
}

/// A rule of a policy.
#[derive(Debug)]
pub struct Rule {
    pub(super) id: usize,
    pub(super) domain: Arc<str>,
    pub(super) path: Box<str>,
    pub(super) key: Pattern,
    /// `None`: any value.
    pub(super) value: Option<Pattern>,
    pub(super) identity: Identity,
    pub(super) imposes: Imposes,
    pub(super) modes: Modes,
    pub(super) extras: Option<Box<Extras>>,
    pub(super) children: Level,
}

/// What a rule switches on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Modes {
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) inherits_override: bool,
    pub(super) detailed_metric: bool,
    pub(super) value_to_metric: bool,
    pub(super) share_threshold: bool,
}

/// What few rules have, kept apart so that a million rules without it are small.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) name: Option<Box<str>>,
    pub(super) algorithm: &'static str,
    pub(super) replaces: Box<[Box<str>]>,
    pub(super) record: Box<[Box<[u8]>]>,
    pub(super) hashes_values: bool,
    pub(super) lease: Option<Lease>,
    pub(super) metadata: Option<serde_json::Value>,
    pub(super) candidate: Option<Box<Rule>>,
}

/// Words, between separators, by which a key or a name says that its hits are a cost which is known afterwards. In the plural:
/// `token` is as often the key of a login.
const COSTS: [&str; 6] = ["tokens", "cost", "costs", "credits", "bytes", "spend"];

impl Imposes {
    /// Whether a limit looks as if its hits became known afterwards, while it is charged only when they are admitted.
    pub(super) fn looks_postpaid(&self, key: &str, name: Option<&str>) -> bool {
        let texts = [Some(key), name];
        let words = texts.into_iter().flatten().flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()));
        match self {
            Self::Limit(limit) if limit.charge_mode() == Charge::Admitted && !limit.is_ban() => {
                words.map(str::to_lowercase).any(|word| COSTS.contains(&word.as_str()))
            }
            Self::Limit(_) | Self::Nothing | Self::Unlimited => false,
        }
    }
}

impl Rule {
    /// The rule's number, dense from 0 over all policies of a set.
    pub fn id(&self) -> usize {
        self.id
    }

    /// The domain it belongs to.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Where it stands in its policy, to read: `plan=free > user`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last step of its path: what the rule itself compares with, such as `plan=free`.
    pub fn step(&self) -> String {
        let text = |pattern: &Pattern| String::from_utf8_lossy(pattern.text()).into_owned();
        step(&text(&self.key), self.value.as_ref().map(text).as_deref())
    }

    /// Whether the limit looks as if its hits became known afterwards, while it is charged only when they are admitted. A
    /// guess by the words in key and name.
    pub fn looks_postpaid(&self) -> bool {
        let key = String::from_utf8_lossy(self.key.text());
        self.imposes.looks_postpaid(&key, self.name())
    }

    /// What it imposes on descriptors that end here.
    pub fn imposes(&self) -> &Imposes {
        &self.imposes
    }

    /// What its counters have in common: a digest of the domain, the path as written, and the limit's shape.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether its counters go on where another rule stood here before: they count the same under the same keys.
    pub(super) fn has_counters_of(&self, before: &Self) -> bool {
        self.identity == before.identity && self.hashes_values() == before.hashes_values()
    }

    /// What the policy calls the limit.
    pub fn name(&self) -> Option<&str> {
        self.extras.as_ref()?.name.as_deref()
    }

    /// The algorithm in the policy's word for it, such as `token_bucket`; empty without a limit.
    pub fn algorithm(&self) -> &'static str {
        self.extras.as_ref().map_or("", |extras| extras.algorithm)
    }

    /// Names of limits that do not count in a request that this rule applies to.
    pub fn replaces(&self) -> &[Box<str>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.replaces)
    }

    /// Judged and counted, and never denies.
    pub fn shadow_mode(&self) -> bool {
        self.modes.shadow
    }

    /// A vote: the request is denied where all that vote deny.
    pub fn quota_mode(&self) -> bool {
        self.modes.quota
    }

    /// Whether a limit that a request brings along replaces only this limit's amount and period (`override: inherit`).
    pub fn inherits_override(&self) -> bool {
        self.modes.inherits_override
    }

    /// Whether metrics name the values of the request.
    pub fn detailed_metric(&self) -> bool {
        self.modes.detailed_metric
    }

    /// Whether metrics name this level's value.
    pub fn value_to_metric(&self) -> bool {
        self.modes.value_to_metric
    }

    /// Whether all values that match the wildcard share one counter.
    pub fn share_threshold(&self) -> bool {
        self.modes.share_threshold
    }

    /// Entry keys whose values are tallied for each counter.
    pub fn record(&self) -> &[Box<[u8]>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.record)
    }

    /// Whether the values that its counters are of must not be read outside of the process.
    pub fn hashes_values(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.hashes_values)
    }

    /// What may be taken from a shared store in advance.
    pub fn lease(&self) -> Option<&Lease> {
        self.extras.as_ref()?.lease.as_ref()
    }

    /// The limit that is tried out here, as a rule of its own: with the same number and path, and other counters.
    pub fn candidate(&self) -> Option<&Rule> {
        self.extras.as_ref()?.candidate.as_deref()
    }

    /// What the caller is told besides.
    pub fn metadata(&self) -> Option<&serde_json::Value> {
        self.extras.as_ref()?.metadata.as_ref()
    }
}
