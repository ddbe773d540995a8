//! Identities of counters, and the version of a policy set.
//!
//! A counter keeps its state as long as it counts the same thing in the same way: its identity
//! covers the path as written and the shape of the limit, but not the amounts, modes and name. The
//! version covers all of them.

use sha2::{Digest, Sha256};
use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::parameter::ParameterKind;
use tollgate_core::descriptor::Identity;

use crate::document::written;
use crate::rule::{Extras, Imposes, LeaseHolders, LeaseSize, Rule, RuleModes};

/// The path from the top of a policy to a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    text: String,
    /// The kind of rules and the domain, then for each step how it compares, its key and its value.
    parts: Vec<Vec<u8>>,
}

impl Path {
    /// Returns the top of a domain's rules. `are_candidates`: the rules are on trial, with counters
    /// of their own.
    pub(super) fn of(domain: &str, are_candidates: bool) -> Self {
        let mark: &[u8] = if are_candidates { b"candidates" } else { b"rule" };
        Self { text: String::new(), parts: vec![mark.to_vec(), domain.as_bytes().to_vec()] }
    }

    /// Returns the path of the candidate limit of the rule at this path.
    pub(super) fn of_candidate(&self) -> Self {
        let mut path = self.clone();
        path.parts.first_mut().into_iter().for_each(|mark| mark.extend(b" candidate"));
        path
    }

    /// Returns the path of a rule below this one. `is_shared`: all matching values share one
    /// counter.
    pub(super) fn below(&self, rule: &written::WrittenRule, is_shared: bool) -> Self {
        let value = rule.value_text();
        let compares = match value {
            None => b'k',
            Some(value) if value.contains('*') => b'w',
            Some(_) => b'v',
        };
        let key_compares = if rule.key.value.contains('*') { b'w' } else { b'v' };
        let mut parts = self.parts.clone();
        let rest =
            [rule.key.value.as_bytes(), value.unwrap_or_default().as_bytes()].map(<[u8]>::to_vec);
        // A shared counter counts something else, under a key of fewer parts.
        parts.push(vec![compares, key_compares, u8::from(is_shared)]);
        parts.extend(rest);
        Self { text: self.readable(rule), parts }
    }

    /// Returns the path of a rule below this one, in readable form.
    pub(super) fn readable(&self, rule: &written::WrittenRule) -> String {
        let step = rule.step();
        if self.text.is_empty() { step } else { format!("{} > {step}", self.text) }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the identity of the counters of a rule at this path.
    pub(super) fn identity(&self, algorithm: &str, imposes: &Imposes) -> Identity {
        let shape = match imposes {
            Imposes::Limit(limit) => shape(algorithm, limit),
            Imposes::Nothing | Imposes::Unlimited => Vec::new(),
        };
        // The depth marks where the path ends and the shape begins, whatever the keys are called.
        let depth = self.parts.len().to_be_bytes();
        let parts = self.parts.iter().map(Vec::as_slice);
        let shape = shape.iter().map(String::as_bytes);
        Identity::of(std::iter::once(depth.as_slice()).chain(parts).chain(shape))
    }
}

/// Returns the identity of limits that requests bring along (overrides).
pub(super) fn of_overrides(domain: &str) -> Identity {
    Identity::of([b"override".as_slice(), domain.as_bytes()])
}

/// Returns the shape of a limit: how it counts, without the amounts.
fn shape(algorithm: &str, limit: &Limit) -> Vec<String> {
    let mut shape = vec![algorithm.to_owned()];
    for window in limit.windows() {
        shape.push(window.period().get().to_string());
        let calendar = window.calendar();
        shape.push(calendar.map_or(String::new(), |calendar| calendar.unit().word().to_owned()));
        shape.push(calendar.map_or(String::new(), |calendar| calendar.zone_name().to_owned()));
    }
    shape.extend(values(limit, ParameterKind::Shape));
    shape
}

/// Returns the values of a limit's parameters of a kind.
fn values(limit: &Limit, kind: ParameterKind) -> impl Iterator<Item = String> {
    let parameters = limit.algorithm().parameters().filter(move |parameter| parameter.kind == kind);
    parameters.map(|parameter| parameter.value.to_string())
}

/// Returns the switches of a rule as versions contain them. The text is part of every version, and
/// does not follow the names in the code.
fn modes_text(modes: RuleModes) -> String {
    let RuleModes {
        shadow,
        quota,
        inherits_override,
        detailed_metric,
        value_to_metric,
        share_threshold,
    } = modes;
    format!(
        "Modes {{ shadow: {shadow}, quota: {quota}, inherits_override: {inherits_override}, \
         detailed_metric: {detailed_metric}, value_to_metric: {value_to_metric}, share_threshold: {share_threshold} }}"
    )
}

/// A digest of the meaning of a policy set.
#[derive(Default)]
pub(super) struct Version(Sha256);

impl Version {
    /// Adds a text to the digest.
    pub(super) fn add(&mut self, text: &str) {
        self.part(text.as_bytes());
    }

    /// Adds a rule. Its identity covers its path and the shape of its limit.
    pub(super) fn rule(&mut self, rule: &Rule) {
        self.add("rule");
        self.add(&format!("{:?}{}", rule.identity(), modes_text(rule.modes)));
        self.imposes(rule);
        let Some(extras) = &rule.extras else { return };
        // The identity has the algorithm, and `imposes` adds `hash_values`.
        let Extras {
            name,
            algorithm: _,
            replaces,
            record,
            hashes_values: _,
            lease: _,
            metadata,
            candidate,
        } = &**extras;
        // Added even if they are unset, since versions always had them. A new option is added only
        // if it is set: the versions of policies without it stay the same.
        self.add(name.as_deref().unwrap_or_default());
        self.list(replaces.iter().map(|name| name.as_bytes()));
        self.list(record.iter().map(|key| &**key));
        self.lease(rule);
        self.add(&metadata.as_ref().map_or(String::new(), serde_json::Value::to_string));
        if let Some(candidate) = candidate {
            self.add(&format!("candidate{:?}", candidate.identity()));
            self.imposes(candidate);
            self.lease(candidate);
        }
    }

    fn imposes(&mut self, rule: &Rule) {
        match rule.imposes() {
            Imposes::Nothing => self.add("nothing"),
            Imposes::Unlimited => self.add("unlimited"),
            Imposes::Limit(limit) => self.amounts(limit),
        }
        if rule.hashes_values() {
            self.add("hash_values");
        }
    }

    fn lease(&mut self, rule: &Rule) {
        let Some(lease) = rule.lease() else { return self.add("") };
        self.add(&match lease.size {
            LeaseSize::BasisPoints(part) => format!("{part}%{}", lease.ttl.get()),
            LeaseSize::Hits(hits) => format!("{hits}#{}", lease.ttl.get()),
        });
        if lease.holders != LeaseHolders::default() {
            self.add(&format!("holders {}", lease.holders.text()));
        }
        if let Some(quota) = lease.quota {
            self.add(&format!("rlqs {:?} {}", quota.size, quota.ttl.get()));
        }
    }

    /// Returns the version as 16 hexadecimal digits.
    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    fn amounts(&mut self, limit: &Limit) {
        self.list(limit.windows().iter().map(|window| window.limit().to_string()));
        let amounts: Vec<_> = values(limit, ParameterKind::Amount).collect();
        if !amounts.is_empty() {
            self.add(&amounts.join("/"));
        }
        if let Some(hold) = limit.hold() {
            self.add(&format!("hold/{}/{}", hold.ttl.get(), hold.on_settle.word()));
        }
        self.add(limit.charge_mode().word());
        self.add(limit.on_store_error().word());
    }

    fn list<T: AsRef<[u8]>>(&mut self, items: impl ExactSizeIterator<Item = T>) {
        self.0.update(items.len().to_be_bytes());
        items.for_each(|item| self.part(item.as_ref()));
    }

    fn part(&mut self, part: &[u8]) {
        self.0.update(part.len().to_be_bytes());
        self.0.update(part);
    }
}
