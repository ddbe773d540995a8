//! Compiled rules: the patterns they match, the limits they impose, and the identity of their
//! counters.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use hashbrown::HashTable;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::words;
use tollgate_core::algorithm::{Limit, lease};
use tollgate_core::descriptor::Identity;

use super::pattern::Pattern;
use super::wildcards::WildcardIndex;

/// The effect of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Imposes {
    /// The rule has no limit: descriptors that end here are admitted.
    #[default]
    Nothing,
    /// `unlimited: true`.
    Unlimited,
    /// A limit.
    Limit(Limit),
}

/// A lease: the part of a limit that a replica may charge to a shared store in advance, and for how
/// long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLease {
    /// Size of a block.
    pub size: LeaseSize,
    /// Time for which unused hits are kept.
    pub ttl: Micros,
    /// The kinds of holders of blocks.
    pub holders: LeaseHolders,
    /// The hits that each proxy may hold by RLQS.
    pub quota: Option<RuleQuota>,
}

/// The hits that each proxy may hold by RLQS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleQuota {
    /// Maximum hits.
    pub size: LeaseSize,
    /// Maximum time for which they can be admitted: whole seconds.
    pub ttl: Micros,
}

words! {
    /// A kind of holder of leased hits.
    pub enum LeaseHolder {
        /// The processes of the service.
        Process = "process",
        /// Callers of `LeaseService`.
        Client = "client",
    }
}

/// The kinds of holders that a lease permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseHolders {
    /// Only the processes of the service.
    #[default]
    Process,
    /// Only callers of `LeaseService`.
    Client,
    /// Both.
    ProcessAndClient,
}

impl LeaseHolders {
    /// Returns the holders of a list; `None` for an empty one.
    pub(super) fn of(list: &[LeaseHolder]) -> Option<Self> {
        let [process, client] =
            [LeaseHolder::Process, LeaseHolder::Client].map(|holder| list.contains(&holder));
        match (process, client) {
            (true, true) => Some(Self::ProcessAndClient),
            (true, false) => Some(Self::Process),
            (false, true) => Some(Self::Client),
            (false, false) => None,
        }
    }

    /// Returns `true` if holders of this kind may hold blocks.
    pub fn include(self, holder: LeaseHolder) -> bool {
        match (self, holder) {
            (Self::Process, LeaseHolder::Process) | (Self::Client, LeaseHolder::Client) => true,
            (Self::Process, LeaseHolder::Client) | (Self::Client, LeaseHolder::Process) => false,
            (Self::ProcessAndClient, LeaseHolder::Process | LeaseHolder::Client) => true,
        }
    }

    /// Returns the words of the kinds, separated by commas.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Client => "client",
            Self::ProcessAndClient => "process, client",
        }
    }
}

/// The size of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseSize {
    /// Hundredths of a percent of the limit, up to 10,000.
    BasisPoints(NonZeroU16),
    /// Hits.
    Hits(NonZeroU32),
}

impl LeaseSize {
    /// Returns the hits of a limit.
    pub(super) fn of(self, limit: &Limit) -> u32 {
        match self {
            Self::BasisPoints(part) => limit.part(part.get()),
            Self::Hits(hits) => hits.get(),
        }
    }
}

impl RuleLease {
    /// Returns the lease in hits of a limit.
    pub fn of(&self, limit: &Limit) -> lease::Lease {
        lease::Lease { hits: self.size.of(limit), ttl: self.ttl }
    }
}

/// A rule of a policy.
#[derive(Debug)]
pub struct Rule {
    pub(super) id: usize,
    pub(super) domain: Arc<str>,
    pub(super) path: Box<str>,
    pub(super) key: Pattern,
    /// Pattern of the value; `None` for any value.
    pub(super) value: Option<Pattern>,
    pub(super) identity: Identity,
    pub(super) imposes: Imposes,
    pub(super) modes: RuleModes,
    pub(super) extras: Option<Box<Extras>>,
    pub(super) children: Level,
}

/// The rules of one level, as indexes into the rules of the policy.
#[derive(Debug, Default)]
pub(super) struct Level {
    /// Rules by key and value, or by key alone if a rule has no value. Contains wildcards too, by
    /// their own text.
    pub(super) fixed: HashTable<u32>,
    /// Rules with `*`, in the order in which they are written.
    pub(super) wildcards: Box<[u32]>,
    /// Index of `wildcards`, if there are many.
    pub(super) index: Option<Box<WildcardIndex>>,
}

/// Switches of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RuleModes {
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) inherits_override: bool,
    pub(super) detailed_metric: bool,
    /// Set if metric names contain the value of this level.
    pub(super) value_to_metric: bool,
    /// Set if all values that match the wildcard share one counter.
    pub(super) share_threshold: bool,
}

/// Properties of a rule with a limit, boxed so that a million rules without one stay small.
#[derive(Debug, Default)]
pub(super) struct Extras {
    pub(super) name: Option<Box<str>>,
    pub(super) algorithm: &'static str,
    pub(super) replaces: Box<[Box<str>]>,
    pub(super) record: Box<[Box<[u8]>]>,
    pub(super) hashes_values: bool,
    pub(super) lease: Option<RuleLease>,
    pub(super) metadata: Option<serde_json::Value>,
    pub(super) candidate: Option<Box<Rule>>,
}

/// Words in a key or name, between separators, that suggest a cost which is known only afterwards.
/// Plural forms: `token` is as often the key of a login.
const COSTS: [&str; 6] = ["tokens", "cost", "costs", "credits", "bytes", "spend"];

impl Imposes {
    /// Returns `true` if the limit looks post-paid, that is, its hits become known afterwards, but
    /// it is charged only when they are admitted, without holds to correct them.
    pub(super) fn looks_postpaid(&self, key: &str, name: Option<&str>) -> bool {
        let texts = [Some(key), name];
        let words = texts
            .into_iter()
            .flatten()
            .flat_map(|text| text.split(|letter: char| !letter.is_alphanumeric()));
        match self {
            Self::Limit(limit)
                if !limit.charge_mode().counts_denied()
                    && limit.hold().is_none()
                    && !limit.is_ban() =>
            {
                words.map(str::to_lowercase).any(|word| COSTS.contains(&word.as_str()))
            }
            Self::Limit(_) | Self::Nothing | Self::Unlimited => false,
        }
    }
}

impl Rule {
    /// Returns the ID of the rule, dense from 0 over all policies of a set.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns the domain of the rule.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the path of the rule in its policy, in readable form: `plan=free > user`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the last step of the path: the rule's own key and value, such as `plan=free`.
    pub fn step(&self) -> String {
        let value = self.value.as_ref().map(|value| String::from_utf8_lossy(value.text()));
        step(&String::from_utf8_lossy(self.key.text()), value.as_deref())
    }

    /// Returns `true` if the limit looks post-paid, that is, its hits become known afterwards, but
    /// it is charged only when they are admitted. A guess from the words in key and name.
    pub(crate) fn looks_postpaid(&self) -> bool {
        let key = String::from_utf8_lossy(self.key.text());
        self.imposes.looks_postpaid(&key, self.name())
    }

    /// Returns the effect of the rule on descriptors that end here.
    pub fn imposes(&self) -> &Imposes {
        &self.imposes
    }

    /// Returns the limit; `None` if the rule imposes none.
    pub fn limit(&self) -> Option<&Limit> {
        match &self.imposes {
            Imposes::Limit(limit) => Some(limit),
            Imposes::Nothing | Imposes::Unlimited => None,
        }
    }

    /// Returns the common part of its counters' keys: a digest of the domain, the path as written,
    /// and the limit's shape.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns `true` if the counters of an earlier rule at this path continue: they count the same
    /// under the same keys.
    pub(super) fn has_counters_of(&self, before: &Self) -> bool {
        self.identity == before.identity && self.hashes_values() == before.hashes_values()
    }

    /// Returns the name of the limit in the policy.
    pub fn name(&self) -> Option<&str> {
        self.extras.as_ref()?.name.as_deref()
    }

    /// Returns the algorithm under its name in the policy, such as `token_bucket`; empty without a
    /// limit.
    pub fn algorithm(&self) -> &'static str {
        self.extras.as_ref().map_or("", |extras| extras.algorithm)
    }

    /// Returns the names of limits that do not count in a request to which this rule applies.
    pub fn replaces(&self) -> &[Box<str>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.replaces)
    }

    /// Returns `true` if the limit is judged and counted, but never denies.
    pub fn shadow_mode(&self) -> bool {
        self.modes.shadow
    }

    /// Returns `true` if the limit only votes: the request is denied if all limits in quota mode
    /// deny it.
    pub fn quota_mode(&self) -> bool {
        self.modes.quota
    }

    /// Returns `true` if a limit in the request replaces only this limit's amount and period
    /// (`override: inherit`).
    pub fn inherits_override(&self) -> bool {
        self.modes.inherits_override
    }

    /// Returns `true` if metric names contain the values of the request.
    pub fn detailed_metric(&self) -> bool {
        self.modes.detailed_metric
    }

    /// Returns the entry keys whose values are tallied for each counter.
    pub fn record(&self) -> &[Box<[u8]>] {
        self.extras.as_ref().map_or(&[], |extras| &extras.record)
    }

    /// Returns `true` if the values of its counters must not be readable outside of the process.
    pub(crate) fn hashes_values(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.hashes_values)
    }

    /// Returns the lease, if hits may be charged to a shared store in advance.
    pub fn lease(&self) -> Option<&RuleLease> {
        self.extras.as_ref()?.lease.as_ref()
    }

    /// Returns the lease for holders of this kind, if the rule permits them.
    pub fn lease_for(&self, holder: LeaseHolder) -> Option<&RuleLease> {
        self.lease().filter(|lease| lease.holders.include(holder))
    }

    /// Returns the candidate limit as a rule of its own: with the same ID and path, and other
    /// counters.
    pub fn candidate(&self) -> Option<&Rule> {
        self.extras.as_ref()?.candidate.as_deref()
    }

    /// Returns the metadata that responses contain.
    pub fn metadata(&self) -> Option<&serde_json::Value> {
        self.extras.as_ref()?.metadata.as_ref()
    }
}

/// Returns a step of a rule's path, `plan=free` or `user`.
pub(crate) fn step(key: &str, value: Option<&str>) -> String {
    match value {
        Some(value) => format!("{key}={value}"),
        None => key.to_owned(),
    }
}
