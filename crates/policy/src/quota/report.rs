//! The report of `tollgate check --rlqs`: the limits that RLQS can enforce, and how, those that it
//! cannot, with what would help, and buckets that several rules could match.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use tollgate_core::algorithm::Limit;

use super::{NoQuota, QUOTA_GUARD};
use crate::rule::{Level, Rule};
use crate::{Policy, PolicySet};

/// Seconds that whole seconds can cut from an assignment.
const CUT: u64 = 1;
/// Basis points in a percent, and in 100 %.
const PERCENT: u64 = 100;
const WHOLE: u64 = 10_000;

/// Rules with the same keys, in any order.
type RulesByKeys<'p> = BTreeMap<Vec<&'p [u8]>, Vec<(Vec<&'p [u8]>, &'p Rule)>>;

impl PolicySet {
    /// Returns the report, and `true` if RLQS can enforce all limits and no bucket is ambiguous.
    pub fn quota_report(&self) -> (String, bool) {
        let mut text = String::new();
        let mut is_good = true;
        for policy in self.policies() {
            for rule in policy.rules.iter().filter(|rule| rule.limit().is_some()) {
                // Writing to a string cannot fail.
                is_good &= write_rule(&mut text, rule).unwrap_or_default();
            }
            let mut found = RulesByKeys::new();
            collect(policy, &policy.top, &mut Vec::new(), &mut found);
            is_good &= write_ambiguities(&mut text, policy, &found).unwrap_or_default();
            let mut unreached = UnreachedLimits { policy, found: &found, is_clear: true };
            // As above.
            let _ = unreached.write(&mut text, &policy.top, &mut Vec::new());
            is_good &= unreached.is_clear;
        }
        (text, is_good)
    }
}

/// Writes a limit, and returns `true` if RLQS can enforce it.
fn write_rule(text: &mut String, rule: &Rule) -> Result<bool, fmt::Error> {
    let domain = rule.domain();
    let path = rule.path();
    let (limit, lease) = match rule.quota() {
        Ok(quota) => quota,
        Err(None) => return Ok(true),
        Err(Some(reason)) => {
            writeln!(text, "{domain}: {path}: not supported: {}", reason.text())?;
            writeln!(text, "    help: {}", help(reason, rule))?;
            return Ok(false);
        }
    };
    if limit.is_ban() {
        writeln!(text, "{domain}: {path}: all requests are denied")?;
        return Ok(true);
    }
    writeln!(text, "{domain}: {path}: up to {} hits per proxy, for {}", lease.hits, lease.ttl)?;
    if limit.counts_per_window() {
        write_pause(text, limit)?;
    }
    Ok(true)
}

/// Writes the part of a fixed window in which proxies hold nothing.
fn write_pause(text: &mut String, limit: &Limit) -> fmt::Result {
    let period = limit.shortest_period().unwrap_or_default();
    let pause = QUOTA_GUARD.as_secs_ceil().saturating_add(CUT);
    let part = pause.saturating_mul(WHOLE).saturating_mul(1_000_000).checked_div(period.get());
    let part = part.unwrap_or_default();
    let whole = part / PERCENT;
    let rest = part % PERCENT;
    writeln!(
        text,
        "    note: in the last {QUOTA_GUARD} to {pause}s of each {period} ({whole}.{rest:02}%, --rlqs-guard {QUOTA_GUARD}), proxies hold nothing; limits with `algorithm: gcra` or `sliding_window` have no such pause"
    )
}

/// Returns what would help; for a short period in the numbers of the rule.
fn help(reason: NoQuota, rule: &Rule) -> String {
    let window = rule.limit().and_then(|limit| limit.windows().first());
    match window.filter(|_| reason == NoQuota::ShortPeriod) {
        Some(window) => {
            // 10 s of the rate, rounded up.
            let hits = u64::from(window.limit()).saturating_mul(10_000_000);
            let burst = hits.div_ceil(window.period().get().max(1));
            format!("{}, here {burst}", reason.help())
        }
        None => reason.help().to_owned(),
    }
}

/// Writes rules that the same bucket could match, of which one applies. Returns `true` if there are
/// none.
fn write_ambiguities(
    text: &mut String,
    policy: &Policy,
    found: &RulesByKeys<'_>,
) -> Result<bool, fmt::Error> {
    let mut is_clear = true;
    for rules in found.values() {
        let Some(((order, first), others)) = rules.split_first() else { continue };
        // Rules in one order exclude each other by their values, as those of descriptors do.
        let Some((_, other)) = others.iter().find(|(other, _)| other != order) else { continue };
        is_clear = false;
        write!(text, "{}: {} and {}: ", policy.domain(), first.path(), other.path())?;
        let what = "a bucket with these keys has one of the two limits; see `tollgate explain`";
        writeln!(text, "{what}")?;
        writeln!(text, "    help: use other keys, or one order of the keys")?;
    }
    Ok(is_clear)
}

fn collect<'p>(
    policy: &'p Policy,
    level: &'p Level,
    keys: &mut Vec<&'p [u8]>,
    found: &mut RulesByKeys<'p>,
) {
    for rule in level.rules(&policy.rules) {
        keys.push(rule.key.text());
        if rule.limit().is_some() {
            let mut sorted = keys.clone();
            sorted.sort_unstable();
            found.entry(sorted).or_default().push((keys.clone(), rule));
        }
        collect(policy, &rule.children, keys, found);
        keys.pop();
    }
}

/// Limits that some of their buckets do not reach: a rule beside their path is matched first.
struct UnreachedLimits<'p> {
    policy: &'p Policy,
    found: &'p RulesByKeys<'p>,
    is_clear: bool,
}

impl<'p> UnreachedLimits<'p> {
    /// Writes those below a level, to which a path of rules leads.
    fn write(
        &mut self,
        text: &mut String,
        level: &'p Level,
        path: &mut Vec<(&'p Level, &'p Rule)>,
    ) -> fmt::Result {
        for rule in level.rules(&self.policy.rules) {
            path.push((level, rule));
            let is_limit = rule.limit().is_some();
            let first = self.matched_first(path).filter(|_| is_limit && !self.is_ambiguous(path));
            if let Some(first) = first {
                self.is_clear = false;
                writeln!(
                    text,
                    "{}: {}: a bucket with these keys is matched by {} first, and then has no limit: all its requests are allowed",
                    self.policy.domain(),
                    rule.path(),
                    first.path(),
                )?;
                writeln!(text, "    help: use other keys, or one order of the keys")?;
            }
            self.write(text, &rule.children, path)?;
            path.pop();
        }
        Ok(())
    }

    /// Returns a rule beside the path that matches a later pair of its buckets before the path.
    fn matched_first(&self, path: &[(&'p Level, &'p Rule)]) -> Option<&'p Rule> {
        path.iter().enumerate().find_map(|(at, (level, rule))| {
            let later = path.get(at.saturating_add(1)..).unwrap_or_default();
            level.rules(&self.policy.rules).into_iter().find(|other| {
                let is_first = (static_rank(other), other.id()) < (static_rank(rule), rule.id());
                is_first && later.iter().any(|(_, later)| can_match_one_pair(other, later))
            })
        })
    }

    /// Returns `true` if rules in another order have the keys of the path; they are reported.
    fn is_ambiguous(&self, path: &[(&'p Level, &'p Rule)]) -> bool {
        let mut keys: Vec<_> = path.iter().map(|(_, rule)| rule.key.text()).collect();
        keys.sort_unstable();
        let rules = self.found.get(&keys).map(Vec::as_slice).unwrap_or_default();
        rules.iter().any(|(order, _)| rules.first().is_some_and(|(first, _)| first != order))
    }
}

fn can_match_one_pair(rule: &Rule, other: &Rule) -> bool {
    let are_exact = static_rank(rule) == 0 && static_rank(other) == 0;
    rule.key.text() == other.key.text() && (!are_exact || rule.value_text() == other.value_text())
}

/// Returns the place of a rule in the order in which a level is searched.
fn static_rank(rule: &Rule) -> u8 {
    match rule.value_text() {
        _ if rule.is_wild() => 1,
        Some(_) => 0,
        None => 2,
    }
}
