//! Differences between two policy sets: which descriptors they affect, and which counters restart.
//!
//! Compares compiled rules, so that defaults, overlays and layout alone make no difference.
//! Two rules are the same if they have the same domain and path: keys and values as written. A
//! counter continues if its identity is the same, and values are hashed as before.

mod features;
mod mappings;
mod text;

use std::collections::{BTreeMap, HashMap};

pub use self::features::candidate_text;
pub(super) use self::features::{amounts, in_flight_text};
use tollgate_core::descriptor::{Entry, KeyBuffer};

use self::features::{features, limit_of};
pub use self::text::text_of;
use super::pattern::Pattern;
use super::rule::Rule;
use super::{Policy, PolicySet};

/// Placeholder for a value that no rule names, for looking up the descriptors of a rule.
const ANY_VALUE: &str = "\u{2026}";

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Domain of the rule.
    pub domain: String,
    /// Path of the rule; empty for the domain as a whole.
    pub rule: String,
    /// Descriptors that are affected, such as `plan=free,user=(any)`.
    pub who: String,
    /// Settings that differ.
    pub details: Vec<Detail>,
    /// Effect on the counters.
    pub counters: CounterEffect,
    /// For a rule that is added or removed, the rule that its descriptors match in the other set.
    /// Otherwise a note.
    pub instead: Option<String>,
}

/// The kind of a change to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The rule is new.
    Added,
    /// The rule is removed.
    Removed,
    /// The rule was at another path, in the same domain or another.
    Moved {
        /// The old path.
        from: String,
    },
    /// The settings of the rule differ.
    Changed,
}

/// The effect of a change on counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterEffect {
    /// There are no counters, before or after.
    None,
    /// Counters continue: used hits count against the new limit.
    Kept,
    /// Counters start at zero.
    Anew,
    /// Counters are no longer used.
    Dropped,
}

/// A setting of a rule that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Name of the setting in a policy.
    pub what: &'static str,
    /// Old value; `None` if it was not set.
    pub old: Option<String>,
    /// New value; `None` if it is not set.
    pub new: Option<String>,
}

impl Change {
    /// Creates a change of one setting, without effect on counters.
    fn changed(domain: &str, rule: &str, who: &str, detail: Detail) -> Self {
        Self {
            kind: ChangeKind::Changed,
            domain: domain.to_owned(),
            rule: rule.to_owned(),
            who: who.to_owned(),
            details: vec![detail],
            counters: CounterEffect::None,
            instead: None,
        }
    }
}

/// A rule with its policy and the rules on its path.
struct PlacedRule<'p> {
    rule: &'p Rule,
    policy: &'p Policy,
    steps: Vec<&'p Rule>,
}

/// The position of a rule: the domain, and key and value of each step.
type RulePosition<'p> = (&'p str, Vec<(&'p [u8], Option<&'p [u8]>)>);

/// Compares two policy sets. Returns the differences by domain, then in the order in which the
/// rules are written; removed rules come last.
pub fn diff(old: &PolicySet, new: &PolicySet) -> Vec<Change> {
    let before = placed(old);
    let after = placed(new);
    let old_rules: HashMap<_, _> = before.iter().map(|rule| (rule.position(), rule)).collect();
    let new_rules: HashMap<_, _> = after.iter().map(|rule| (rule.position(), rule)).collect();
    let mut gone: HashMap<_, Vec<_>> = HashMap::new();
    for rule in before.iter().rev().filter(|rule| !new_rules.contains_key(&rule.position())) {
        gone.entry(rule.fingerprint()).or_default().push(rule);
    }
    let mut changes = Vec::new();
    for rule in &after {
        match old_rules.get(&rule.position()) {
            Some(was) => changes.extend(rule.changed(was)),
            None => {
                let was = gone
                    .get_mut(&rule.fingerprint())
                    .filter(|_| rule.rule.limit().is_some())
                    .and_then(Vec::pop);
                changes.push(was.map_or_else(|| rule.added(old), |was| rule.moved(was)));
            }
        }
    }
    let mut gone: Vec<_> = gone.into_values().flatten().collect();
    gone.sort_by_key(|rule| rule.rule.id());
    changes.extend(gone.into_iter().map(|rule| rule.removed(new)));
    for policy in new.policies() {
        let Some(old) = old.find(policy.domain()) else { continue };
        changes.extend(of_domain(old, policy));
        changes.extend(reordered(old, policy));
    }
    changes.extend(mappings::changes(old, new));
    changes.sort_by(|one, other| one.domain.cmp(&other.domain));
    changes
}

fn placed(set: &PolicySet) -> Vec<PlacedRule<'_>> {
    let mut all = Vec::new();
    for policy in set.policies() {
        // Rules are in depth-first order. For each rule above the current one: how many children
        // are still to come.
        let mut above: Vec<(&Rule, usize)> = Vec::new();
        for rule in &policy.rules {
            while above.pop_if(|(_, to_come)| *to_come == 0).is_some() {}
            if let Some((_, to_come)) = above.last_mut() {
                *to_come = to_come.saturating_sub(1);
            }
            above.push((rule, rule.children.len()));
            let steps = above.iter().map(|(rule, _)| *rule).collect();
            all.push(PlacedRule { rule, policy, steps });
        }
    }
    all
}

impl<'p> PlacedRule<'p> {
    fn position(&self) -> RulePosition<'p> {
        let steps = self.steps.iter();
        let steps = steps.map(|rule| (rule.key.text(), rule.value.as_ref().map(Pattern::text)));
        (self.policy.domain(), steps.collect())
    }

    /// Returns the descriptors that lead to the rule.
    fn who(&self) -> String {
        let steps = self.steps.iter().map(|rule| match &rule.value {
            Some(_) => rule.step(),
            None => format!("{}=(any)", rule.step()),
        });
        steps.collect::<Vec<_>>().join(",")
    }

    fn change(
        &self,
        kind: ChangeKind,
        details: Vec<Detail>,
        counters: CounterEffect,
        instead: Option<String>,
    ) -> Change {
        let domain = self.policy.domain().to_owned();
        let rule = self.rule.path().to_owned();
        Change { kind, domain, rule, who: self.who(), details, counters, instead }
    }

    fn changed(&self, was: &Self) -> Option<Change> {
        let details = details(&features(was.rule), &features(self.rule));
        let had_counters = was.rule.limit().is_some();
        let counters = if self.rule.limit().is_none() {
            if had_counters { CounterEffect::Dropped } else { CounterEffect::None }
        } else if had_counters && self.rule.has_counters_of(was.rule) {
            CounterEffect::Kept
        } else {
            CounterEffect::Anew
        };
        (!details.is_empty()).then(|| self.change(ChangeKind::Changed, details, counters, None))
    }

    fn added(&self, old: &PolicySet) -> Change {
        let counters =
            if self.rule.limit().is_some() { CounterEffect::Anew } else { CounterEffect::None };
        let details = details(&[], &features(self.rule));
        self.change(ChangeKind::Added, details, counters, Some(self.hit_in(old)))
    }

    fn removed(&self, new: &PolicySet) -> Change {
        let counters =
            if self.rule.limit().is_some() { CounterEffect::Dropped } else { CounterEffect::None };
        let details = details(&features(self.rule), &[]);
        self.change(ChangeKind::Removed, details, counters, Some(self.hit_in(new)))
    }

    /// Returns a text that identifies a moved rule: its settings, and its name or, without one, its
    /// last step.
    fn fingerprint(&self) -> String {
        let handle = self.rule.name().map_or_else(|| self.rule.step(), str::to_owned);
        format!("{handle:?} {:?}", features(self.rule))
    }

    fn moved(&self, was: &Self) -> Change {
        let domain = if was.policy.domain() == self.policy.domain() {
            String::new()
        } else {
            format!("{}: ", was.policy.domain())
        };
        let from = format!("{domain}{}", was.rule.path());
        self.change(ChangeKind::Moved { from }, Vec::new(), CounterEffect::Anew, None)
    }

    /// Describes the rule that the descriptors of this rule match in another set.
    fn hit_in(&self, set: &PolicySet) -> String {
        let Some(policy) = set.find(self.policy.domain()) else {
            return "no policy for the domain: OK, no limit".to_owned();
        };
        let pairs: Vec<_> = self
            .steps
            .iter()
            .map(|rule| [Some(&rule.key), rule.value.as_ref()].map(example_of))
            .collect();
        let entries =
            pairs.iter().map(|[key, value]| Entry { key: key.as_bytes(), value: value.as_bytes() });
        match policy.find(&entries.collect::<Vec<_>>(), &mut KeyBuffer::default()) {
            None => "no rule: OK, no limit".to_owned(),
            Some(rule) => {
                let below = "; longer descriptors match the rules below it";
                let longer = if rule.children.len() > 0 { below } else { "" };
                format!("rule `{}`: {}{longer}", rule.path(), limit_of(rule))
            }
        }
    }
}

/// Returns a text that a pattern matches.
fn example_of(pattern: Option<&Pattern>) -> String {
    let text = pattern.map_or(ANY_VALUE.into(), |pattern| String::from_utf8_lossy(pattern.text()));
    text.replace('*', ANY_VALUE)
}

fn details(old: &[(&'static str, String)], new: &[(&'static str, String)]) -> Vec<Detail> {
    let mut all: Vec<Detail> = Vec::new();
    all.extend(new.iter().map(|(what, text)| Detail { what, old: None, new: Some(text.clone()) }));
    for (what, text) in old {
        match all.iter_mut().find(|detail| detail.what == *what) {
            Some(detail) => detail.old = Some(text.clone()),
            None => all.push(Detail { what, old: Some(text.clone()), new: None }),
        }
    }
    all.retain(|detail| detail.old != detail.new);
    all
}

/// Returns the difference for a domain as a whole.
fn of_domain(old: &Policy, new: &Policy) -> Option<Change> {
    let [was, is] = [old, new]
        .map(|policy| Some(if policy.in_one_slot() { "domain" } else { "limit" }.to_owned()));
    let detail = Detail { what: "atomicity", old: was, new: is };
    let has_any = new.rules.iter().any(|rule| rule.limit().is_some());
    let note = "counters in Redis restart, since their keys change; counters in memory continue";
    (detail.old != detail.new).then(|| Change {
        counters: if has_any { CounterEffect::Anew } else { CounterEffect::None },
        instead: Some(note.to_owned()),
        ..Change::changed(new.domain(), "", "all descriptors", detail)
    })
}

/// Returns a change for each level whose rules with `*` are in another order, in which they are
/// tried.
fn reordered(old: &Policy, new: &Policy) -> Vec<Change> {
    let before = orders(old);
    let after = orders(new);
    let changes = after.iter().filter_map(|(path, order)| {
        let was = before.get(path)?;
        let is = common(order, was);
        let was = common(was, order);
        let who = "descriptors that match several of these rules";
        let [old, next] = [&was, &is].map(|order| Some(order.join(", ")));
        let detail = Detail { what: "order", old, new: next };
        (was != is).then(|| Change::changed(new.domain(), path, who, detail))
    });
    changes.collect()
}

/// Returns the steps with `*` of each level that has several, in order, by the path of the level.
fn orders(policy: &Policy) -> BTreeMap<&str, Vec<String>> {
    let levels = policy.rules.iter().map(|rule| (rule.path(), &rule.children));
    levels
        .chain([("", &policy.top)])
        .map(|(path, level)| (path, level.wildcards(&policy.rules).map(Rule::step).collect()))
        .filter(|(_, order): &(&str, Vec<String>)| order.len() > 1)
        .collect()
}

/// Returns the steps of `order` that `other` has as well.
fn common(order: &[String], other: &[String]) -> Vec<String> {
    order.iter().filter(|step| other.contains(step)).cloned().collect()
}
