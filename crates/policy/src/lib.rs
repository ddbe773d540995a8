//! Policies: YAML files compiled to rules, which determine the limit that applies to a descriptor
//! and the key of its counter.
//!
//! Knows the format, its vocabulary, and the matching of descriptors. Does not depend on stores, on
//! the hits of a request, or on the use of a decision. Reads no clock and, except for [`source`],
//! no files.
//!
//! | file | contents |
//! |---|---|
//! | `document` | parser: YAML to rules as written |
//! | `compile` | compiler: rules as written to rules, with warnings for probable mistakes |
//! | `pattern`, `rule`, `matcher`, `trace` | the compiled form, and matching |
//! | `wildcards`, `searcher` | many rules with `*` at one level, tried at once |
//! | `counter` | lookup of the counter of a descriptor |
//! | `loan` | rules from which hits are lent to clients |
//! | `quota` | rules from which hits are lent to proxies by RLQS; descriptors of buckets |
//! | [`explain`] | explanations of matches in words |
//! | [`diff`] | differences between two sets, and the descriptors they affect |
//! | [`requests`] | mappings of HTTP requests to descriptors |
//! | `listing` | all rules of a policy with their limits, as text |
//! | `metric_key` | names of rules in the statistics of envoyproxy/ratelimit |
//! | [`source`] | sources of policy texts |
//!
//! A [`PolicySet`] is immutable: a reload creates another one and swaps it in as a whole.

// Policies and requests come from outside: an overflow would be a panic by input, or lift a limit.
#![warn(clippy::arithmetic_side_effects)]

mod compile;
mod counter;
pub mod diff;
mod document;
pub mod explain;
mod listing;
mod loan;
mod matcher;
mod metric_key;
mod pattern;
mod quota;
pub mod requests;
mod rule;
mod searcher;
pub mod source;
mod trace;
mod wildcards;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

pub use compile::units::duration;
pub use counter::NoCounter;
pub use document::schema::json_schema;
pub use document::vocabulary::ENVOYPROXY_WORDS;
pub use loan::NoLoan;
pub use matcher::MatchedBy;
pub use metric_key::MetricKey;
pub use quota::{NoQuota, QUOTA_GUARD, QUOTA_TTL, UnsupportedQuota};
pub use rule::{Imposes, LeaseHolder, LeaseHolders, LeaseSize, Rule, RuleLease, RuleQuota};
use tollgate_core::algorithm::Charge;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::descriptor::{Entry, HashKey, Identity, KeyBuffer, KeyRange, Keyed};
pub use tollgate_yaml::Source;
pub use tollgate_yaml::report::ProblemReport;
pub use trace::MatchStep;

use self::pattern::Pattern;
use self::requests::RequestMapping;

/// Default of [`CompileOptions::memory_max`]: enough for 370,000 rules with short texts, or half as
/// many if they are to be replaced while they serve.
pub const MEMORY_MAX: usize = 1024 * 1024 * 1024;

/// Options of the compiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Set to merge the rules if several documents have the same domain, which otherwise is an
    /// error.
    pub merge_domains: bool,
    /// Treatment of words that have no meaning at their level.
    pub dialect: PolicyDialect,
    /// Charge mode of fixed windows that do not set their own; `None` for `always`.
    pub fixed_window_charge: Option<Charge>,
    /// The secret for limits that hash values. Without it such limits are an error.
    pub hash_key: Option<HashKey>,
    /// Set if the policies are tried out beside those in force: they have counters of their own.
    pub are_candidates: bool,
    /// Maximum bytes of memory that the policies may take while they are compiled, including
    /// `memory_held`; `None` for [`MEMORY_MAX`].
    pub memory_max: Option<usize>,
    /// Bytes that other policies of the process hold in the meantime.
    pub memory_held: usize,
}

impl CompileOptions {
    fn window_charge(&self) -> Charge {
        self.fixed_window_charge.unwrap_or(Charge::Always)
    }
}

/// The strictness of the parser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyDialect {
    /// Words without a meaning are errors.
    #[default]
    Tollgate,
    /// The strictness of envoyproxy/ratelimit: whatever that service silently ignores is a warning.
    /// This covers words of its format at another level, all but the last occurrence of a duplicate
    /// word, and all but the first document of a file.
    Envoyproxy,
}

/// The result of loading policies.
#[derive(Debug)]
pub struct Loaded {
    /// The compiled policies.
    pub policies: PolicySet,
    /// Warnings about probable mistakes.
    pub warnings: ProblemReport,
}

/// All policies, compiled and immutable.
#[derive(Debug, Default)]
pub struct PolicySet {
    version: String,
    /// Sorted by domain; rule IDs are assigned in this order.
    policies: Vec<Policy>,
    /// Sorted by name.
    mappings: Vec<RequestMapping>,
    memory: usize,
}

/// The rules of one domain.
#[derive(Debug)]
pub struct Policy {
    domain: Arc<str>,
    in_one_slot: bool,
    has_candidates: bool,
    override_identity: Identity,
    override_charge: Charge,
    unsupported_quota: UnsupportedQuota,
    /// The hasher of values, if a limit hashes them.
    keyed: Option<Keyed>,
    top: rule::Level,
    rules: Vec<Rule>,
}

/// Compiles policies.
///
/// # Errors
/// Returns all problems of all sources, including warnings, if at least one is an error.
pub fn load(sources: &[Source], options: &CompileOptions) -> Result<Loaded, ProblemReport> {
    compile::load(sources, *options)
}

impl PolicySet {
    /// Returns the policy of a domain.
    pub fn find(&self, domain: &str) -> Option<&Policy> {
        let index = self.policies.binary_search_by(|policy| (*policy.domain).cmp(domain)).ok()?;
        self.policies.get(index)
    }

    /// Returns the mapping of HTTP requests with this name.
    pub fn mapping(&self, name: &str) -> Option<&RequestMapping> {
        let index = self.mappings.binary_search_by(|mapping| (*mapping.name).cmp(name)).ok()?;
        self.mappings.get(index)
    }

    /// Returns the mappings of HTTP requests, sorted by name.
    pub fn mappings(&self) -> &[RequestMapping] {
        &self.mappings
    }

    /// Returns the version: 16 hexadecimal digits that change whenever the meaning of a rule does.
    /// File names, comments and layout do not affect it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the estimated bytes of memory that the policies took while they were compiled.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Returns the domain with the most limits whose last value clients can choose, and their
    /// number.
    pub fn most_open_limits(&self) -> Option<(&str, usize)> {
        let counts =
            self.policies.iter().map(|policy| (policy.domain(), policy.open_limits().count()));
        counts.max_by_key(|(_, count)| *count)
    }

    /// Returns the policies, sorted by domain.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// Returns all rules, in the order of their IDs.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.policies.iter().flat_map(|policy| &policy.rules)
    }
}

impl Policy {
    /// Returns the domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the rules with limits whose last value clients can choose.
    fn open_limits(&self) -> impl Iterator<Item = &Rule> {
        let limits = self.rules.iter().filter(|rule| rule.limit().is_some());
        limits.filter(|rule| rule.value.as_ref().is_none_or(Pattern::is_wild))
    }

    /// Returns the rule that `entries` match to their full depth, without allocation unless a level
    /// has many rules with `*`.
    ///
    /// Begins a key and adds the matched values; the caller [finishes](Self::finish) it. A rule
    /// without a limit matches too, and imposes [`Imposes::Nothing`].
    pub fn find<'p>(&'p self, entries: &[Entry<'_>], key: &mut KeyBuffer) -> Option<&'p Rule> {
        matcher::find(&self.top, &self.rules, entries, key)
    }

    /// Returns `true` if all counters of the domain are judged together, and so have to be in one
    /// slot.
    pub fn in_one_slot(&self) -> bool {
        self.in_one_slot
    }

    /// Returns `true` if any rule has a candidate limit.
    pub fn has_candidates(&self) -> bool {
        self.has_candidates
    }

    /// Returns the charge mode of limits that requests bring along.
    pub fn override_charge(&self) -> Charge {
        self.override_charge
    }

    /// Finishes the key of a rule's counter. `period`: the period of an override, if it differs
    /// from the rule's own.
    pub fn finish(&self, rule: &Rule, key: &mut KeyBuffer, period: Option<Micros>) -> KeyRange {
        key.finish_keyed(&rule.identity, period, self.keyed_for(rule))
    }

    /// Finishes the key of a limit that a request brings along.
    pub fn finish_override(&self, key: &mut KeyBuffer, period: Micros) -> KeyRange {
        key.finish_keyed(&self.override_identity, Some(period), self.keyed_for_overrides())
    }

    /// Returns a value of a request in the form in which tallies, logs and metric names may show it
    /// under this rule.
    pub fn shown<'v>(&self, rule: &Rule, value: &'v [u8]) -> Cow<'v, [u8]> {
        shown(self.keyed_for(rule), value)
    }

    /// Returns the hasher for the values of a rule's counters; `None` if they may be shown.
    pub fn keyed_for(&self, rule: &Rule) -> Option<&Keyed> {
        self.keyed.as_ref().filter(|_| rule.hashes_values())
    }

    /// Returns the hasher for the values of limits that requests bring along. If any limit of the
    /// domain hashes values, so do these, since theirs may be sensitive too.
    pub fn keyed_for_overrides(&self) -> Option<&Keyed> {
        self.keyed.as_ref()
    }
}

fn shown<'v>(keyed: Option<&Keyed>, value: &'v [u8]) -> Cow<'v, [u8]> {
    keyed.map_or(Cow::Borrowed(value), |keyed| Cow::Owned(keyed.shown(value).into_bytes()))
}
