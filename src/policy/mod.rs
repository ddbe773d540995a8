//! Policies: from YAML files to rules that answer "which limit applies to this descriptor, and under which key".
//!
//! Knows the format, its words, and how descriptors are matched. Does not know that stores exist, what a request wants, or
//! where a decision goes; touches no clock and, but for [`source`], no file.
//!
//! | file | what it knows |
//! |---|---|
//! | `document` | YAML and the words of the format: text to rules as written |
//! | `compile` | what can work: rules as written to rules, with warnings for what is probably not meant |
//! | [`report`] | problems with places, and how they are shown |
//! | `rule`, `matcher`, `trace` | the compiled form, and the walk down it |
//! | `wildcards`, `searcher` | many rules with `*` side by side, tried at once |
//! | `counter` | which counter a descriptor leads to |
//! | [`explain`] | why a rule is hit, in words |
//! | [`diff`] | what differs between two sets, and for whom |
//! | `listing` | all rules of a policy, and their limits as text |
//! | `metric_key` | what a rule is called in the statistics of envoyproxy/ratelimit |
//! | [`trial`] | tests of policies, as somebody writes them |
//! | [`access_log`] | what a line of an access log is as a request |
//! | [`source`] | where the text comes from |
//!
//! A [`PolicySet`] is immutable: a reload makes another one and swaps it in whole.

pub mod access_log;
mod compile;
mod counter;
pub mod diff;
mod document;
pub mod explain;
mod listing;
mod matcher;
mod metric_key;
pub mod report;
mod rule;
mod searcher;
pub mod source;
mod trace;
pub mod trial;
mod wildcards;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

pub use counter::NoCounter;
pub use document::scalar::integer as whole_number;
pub use document::schema::json_schema;
pub use matcher::Taken;
pub use metric_key::MetricKey;
pub use report::Report;
pub use rule::{Imposes, Lease, LeaseSize, Rule};
pub use trace::Step;

use crate::algorithm::Charge;
use crate::algorithm::time::Micros;
use crate::descriptor::{Entry, HashKey, Identity, KeyBuffer, KeyRange, Keyed};
use matcher::Level;

/// The text of one policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's path, as messages show it.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// The default of [`Options::memory_max`]: 90,000 rules with short texts.
pub const MEMORY_MAX: usize = 256 * 1024 * 1024;

/// How sources are compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether a domain that stands in several documents is the sum of them; otherwise that is an error.
    pub merge_domains: bool,
    /// What becomes of words that mean nothing where they stand.
    pub dialect: Dialect,
    /// When hits are written of fixed windows that do not say so themselves; `None`: `always`.
    pub fixed_window_charge: Option<Charge>,
    /// The secret that values are hashed with where a limit says so; without one no limit may.
    pub hash_key: Option<HashKey>,
    /// Whether the policies are tried out beside those in force: their counters are others.
    pub are_candidates: bool,
    /// Bytes of memory that the policies may take while they are compiled; `None`: [`MEMORY_MAX`].
    pub memory_max: Option<usize>,
}

impl Options {
    fn window_charge(&self) -> Charge {
        self.fixed_window_charge.unwrap_or(Charge::Always)
    }
}

/// How strictly policies are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// What means nothing is an error.
    #[default]
    Tollgate,
    /// As envoyproxy/ratelimit reads them: what that service passes over in silence is a warning. That is a word of its format
    /// in another place, all but the last of a word that stands twice, and all but the first document of a file.
    Envoyproxy,
}

/// What came of loading policies.
#[derive(Debug)]
pub struct Loaded {
    /// The policies.
    pub policies: PolicySet,
    /// What is probably not meant.
    pub warnings: Report,
}

/// All policies, compiled and immutable.
#[derive(Debug, Default)]
pub struct PolicySet {
    version: String,
    /// Sorted by domain; their rules are numbered in this order.
    policies: Vec<Policy>,
}

/// The rules of one domain.
#[derive(Debug)]
pub struct Policy {
    domain: Arc<str>,
    in_one_slot: bool,
    has_candidates: bool,
    override_identity: Identity,
    override_charge: Charge,
    /// Where a limit hashes values.
    keyed: Option<Keyed>,
    top: Level,
    rules: Vec<Rule>,
}

/// Compiles policies.
///
/// # Errors
/// All problems of all sources, warnings included, where there is at least one error among them.
pub fn load(sources: &[Source], options: &Options) -> Result<Loaded, Report> {
    compile::load(sources, *options)
}

impl PolicySet {
    /// The policy of a domain.
    pub fn find(&self, domain: &str) -> Option<&Policy> {
        let index = self.policies.binary_search_by(|policy| (*policy.domain).cmp(domain)).ok()?;
        self.policies.get(index)
    }

    /// 16 hexadecimal digits that are others whenever a rule is: of the meaning, not of file names, comments or layout.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The policies, sorted by domain.
    pub fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter()
    }

    /// All rules, in the order of their numbers.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> + Clone {
        self.policies.iter().flat_map(|policy| &policy.rules)
    }
}

impl Policy {
    /// The domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The rule that `entries` hit to their full depth, without allocation unless many rules with `*` stand side by side.
    ///
    /// Begins a key and adds the matched values; the caller [finishes](Self::finish) it. A rule without a limit is a hit too, and
    /// imposes [`Imposes::Nothing`].
    pub fn find<'p>(&'p self, entries: &[Entry<'_>], key: &mut KeyBuffer) -> Option<&'p Rule> {
        matcher::find(&self.top, &self.rules, entries, key)
    }

    /// Whether all counters of the domain are to be judged together, wherever they live.
    pub fn in_one_slot(&self) -> bool {
        self.in_one_slot
    }

    /// Whether any of its rules tries a limit out.
    pub fn has_candidates(&self) -> bool {
        self.has_candidates
    }

    /// When the hits of limits that requests bring along are written.
    pub fn override_charge(&self) -> Charge {
        self.override_charge
    }

    /// Ends the key of a rule's counter. `period`: that of an override which is not the rule's own.
    pub fn finish(&self, rule: &Rule, key: &mut KeyBuffer, period: Option<Micros>) -> KeyRange {
        key.finish_keyed(&rule.identity, period, self.keyed_for(rule))
    }

    /// Ends the key of a limit that a request brings along.
    pub fn finish_override(&self, key: &mut KeyBuffer, period: Micros) -> KeyRange {
        key.finish_keyed(&self.override_identity, Some(period), self.keyed_for_overrides())
    }

    /// A value of a request as it may be shown where this rule applies: in tallies, logs, names of series.
    pub fn shown<'v>(&self, rule: &Rule, value: &'v [u8]) -> Cow<'v, [u8]> {
        shown(self.keyed_for(rule), value)
    }

    /// What hashes the values that a rule's counters are of; `None`: they may be read.
    pub fn keyed_for(&self, rule: &Rule) -> Option<&Keyed> {
        self.keyed.as_ref().filter(|_| rule.hashes_values())
    }

    /// The same of limits that requests bring along. Where any limit of the domain hashes values, so do these: whose they are,
    /// nobody says.
    pub fn keyed_for_overrides(&self) -> Option<&Keyed> {
        self.keyed.as_ref()
    }
}

fn shown<'v>(keyed: Option<&Keyed>, value: &'v [u8]) -> Cow<'v, [u8]> {
    keyed.map_or(Cow::Borrowed(value), |keyed| Cow::Owned(keyed.shown(value).into_bytes()))
}
