//! Explanations of matches in words: each step of the match, the rules that were tried, and the
//! limit.

use std::fmt::{self, Write as _};

use super::diff::in_words;
use super::{Imposes, MatchStep, MatchedBy, Policy, PolicySet, Rule};
use crate::algorithm::lease::{BLOCKS, Lease};
use crate::algorithm::quota::Window;
use crate::algorithm::sliding_window::Estimate;
use crate::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use crate::descriptor::Entry;

/// Maximum number of rules with `*` that are listed as tried.
const MAX_TRIED: usize = 10;

/// Returns the explanation, and the rule that the descriptor matches.
pub fn explain<'p>(policies: &'p PolicySet, domain: &str, entries: &[Entry<'_>]) -> (String, Option<&'p Rule>) {
    let Some(policy) = policies.find(domain) else {
        let domains: Vec<_> = policies.policies().map(Policy::domain).collect();
        let known = format!("no policy for domain `{domain}`: OK, without a limit");
        return (format!("{known}\ndomains here: {}\n", domains.join(", ")), None);
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let hit = tell(&mut text, policy, entries).unwrap_or_default();
    (text, hit)
}

/// Returns the limit of a rule in words, such as `100 hits in 1m`; `None` if it imposes none.
pub fn limit_in_words(rule: &Rule) -> Option<String> {
    let Imposes::Limit(limit) = rule.imposes() else { return None };
    let amounts: Vec<_> = limit.windows().iter().map(Window::to_string).collect();
    Some(amounts.join(" and "))
}

fn tell<'p>(text: &mut String, policy: &'p Policy, entries: &[Entry<'_>]) -> Result<Option<&'p Rule>, fmt::Error> {
    writeln!(text, "domain {}", policy.domain())?;
    let steps = policy.trace(entries);
    for (number, (step, entry)) in (1..).zip(steps.iter().zip(entries)) {
        tell_step(text, number, step, entry)?;
    }
    writeln!(text)?;
    let Some((_, rule)) = steps.last().filter(|_| steps.len() == entries.len()).and_then(|step| step.taken) else {
        let depth = if entries.is_empty() { "no entries" } else { "no rule for the whole descriptor" };
        writeln!(text, "{depth}: OK, without a limit")?;
        return Ok(None);
    };
    tell_rule(text, rule)?;
    Ok(Some(rule))
}

fn tell_step(text: &mut String, number: usize, step: &MatchStep<'_>, entry: &Entry<'_>) -> fmt::Result {
    let key = String::from_utf8_lossy(entry.key);
    let value = String::from_utf8_lossy(entry.value);
    writeln!(text, "\n{number}. {key}={value}, among {}", plural(step.siblings, "rule"))?;
    let taken = step.taken.map(|(taken, _)| taken);
    let answer = |found| if found { "yes" } else { "no" };
    writeln!(text, "   exact {key}={value}: {}", answer(taken == Some(MatchedBy::Exact)))?;
    if taken != Some(MatchedBy::Exact) {
        let passed = step.wildcards.len().saturating_sub(usize::from(taken == Some(MatchedBy::Wildcard)));
        for rule in step.wildcards.iter().take(passed.min(MAX_TRIED)) {
            writeln!(text, "   wildcard {}: no", rule.step())?;
        }
        if passed > MAX_TRIED {
            writeln!(text, "   ... and {} wildcards more: no", passed.saturating_sub(MAX_TRIED))?;
        }
        if let Some(MatchedBy::Wildcard) = taken
            && let Some(rule) = step.wildcards.last()
        {
            writeln!(text, "   wildcard {}: yes", rule.step())?;
        } else {
            writeln!(text, "   key alone {key}: {}", answer(taken == Some(MatchedBy::KeyAlone)))?;
        }
    }
    match step.taken {
        Some((_, rule)) => writeln!(text, "   -> {}", rule.path()),
        None => writeln!(text, "   -> nothing; there is no way back to other rules"),
    }
}

fn tell_rule(text: &mut String, rule: &Rule) -> fmt::Result {
    line(text, "rule", rule.path())?;
    if let Some(name) = rule.name() {
        line(text, "name", name)?;
    }
    match rule.imposes() {
        Imposes::Nothing => line(text, "limit", "none written: OK")?,
        Imposes::Unlimited => line(text, "limit", "unlimited: OK")?,
        Imposes::Limit(limit) => tell_limit(text, rule, limit)?,
    }
    if let Some(candidate) = rule.candidate() {
        let words = in_words(candidate);
        line(text, "candidate", &format!("{words}; tried out, and without a part in the answer"))?;
    }
    if !rule.replaces().is_empty() {
        line(text, "replaces", &rule.replaces().join(", "))?;
    }
    if let Some(metadata) = rule.metadata() {
        line(text, "metadata", &metadata.to_string())?;
    }
    Ok(())
}

fn tell_limit(text: &mut String, rule: &Rule, limit: &Limit) -> fmt::Result {
    for (index, window) in limit.windows().iter().enumerate() {
        line(text, if index == 0 { "limit" } else { "and" }, &window.to_string())?;
    }
    line(text, "counted", &counting(rule.algorithm(), limit))?;
    if rule.share_threshold() {
        line(text, "shared", "one counter for all values that match the wildcard")?;
    }
    line(text, "charged", charging(limit.charge_mode()))?;
    if rule.looks_postpaid() {
        line(text, "", "looks paid afterwards: a later charge that does not fit is lost; see `charge: afterwards`")?;
    }
    for (word, meaning) in modes(rule) {
        line(text, word, meaning)?;
    }
    line(text, "no store", failing(limit.on_store_error()))?;
    if !rule.record().is_empty() {
        let keys: Vec<_> = rule.record().iter().map(|key| String::from_utf8_lossy(key)).collect();
        line(text, "records", &keys.join(", "))?;
    }
    if let Some(lease) = rule.lease() {
        tell_lease(text, &lease.of(limit), limit, rule.quota_mode())?;
    }
    Ok(())
}

fn tell_lease(text: &mut String, lease: &Lease, limit: &Limit, is_vote: bool) -> fmt::Result {
    let Some(largest) = lease.largest(limit).filter(|_| !is_vote) else {
        return line(text, "lease", "none: no block of hits would be worth it; see `tollgate check`");
    };
    let size = plural(usize::try_from(largest).unwrap_or(usize::MAX), "hit");
    let ttl = lease.ttl;
    line(
        text,
        "lease",
        &format!("up to {size} in advance, kept for {ttl} at most, of counters that are often asked for"),
    )?;
    let bound = match limit.algorithm() {
        Algorithm::FixedWindow(_) => {
            format!("never more than the limit in a window; up to {BLOCKS} blocks a worker held")
        }
        Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::Gcra(_) => {
            format!(
                "never more than it in any period less {ttl}; in any period the blocks held more, up to {BLOCKS} a worker"
            )
        }
    };
    line(text, "", &bound)
}

fn line(text: &mut String, word: &str, meaning: &str) -> fmt::Result {
    writeln!(text, "{word:<9} {meaning}")
}

fn counting(word: &str, limit: &Limit) -> String {
    if limit.is_ban() {
        return format!("{word}: a ban, every hit is denied");
    }
    let how = match limit.algorithm() {
        Algorithm::FixedWindow(_) => {
            "from the beginning of each window; around a boundary up to twice as many may pass".to_owned()
        }
        Algorithm::SlidingWindow(window) => {
            let oldest = match window.estimate() {
                Estimate::Strict => "the oldest whole: never more in any period",
                Estimate::Weighted => "the oldest by the part still in the period: an estimate",
            };
            format!("in {}, {oldest}", plural(usize::try_from(window.buckets()).unwrap_or(usize::MAX), "bucket"))
        }
        Algorithm::SlidingLog(_) => "each hit on its own: exact in any period".to_owned(),
        Algorithm::Gcra(gcra) => {
            format!("evenly, {} at once when rested, up to {} of debt", gcra.burst(), gcra.max_debt())
        }
    };
    format!("{word}: {how}")
}

fn charging(charge: Charge) -> &'static str {
    match charge {
        Charge::Admitted => "admitted: only when the whole request is; a denied one costs nothing anywhere",
        Charge::Blamed => "blamed: when the request is admitted, or when this limit denied it",
        Charge::Always => "always: denied requests count too, who hammers stays out",
        Charge::Afterwards => {
            "afterwards: always; a peek passes where one more hit would fit, the cost is charged later"
        }
    }
}

fn failing(answer: OnStoreError) -> &'static str {
    match answer {
        OnStoreError::Error => "error: the call fails, and the caller's own failure mode decides",
        OnStoreError::Allow => "allow: OK",
        OnStoreError::Deny => "deny: OVER_LIMIT",
        OnStoreError::Local => "local: this process decides alone",
    }
}

fn modes(rule: &Rule) -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = [
        (rule.shadow_mode(), "shadow", "judged and counted, never denies"),
        (rule.quota_mode(), "quota", "a vote: the request is denied where all limits in this mode deny"),
        (rule.hashes_values(), "hashed", "its values, with the key of the process, before they are stored or shown"),
        (rule.inherits_override(), "override", "a limit in the request replaces this one's amount and period"),
    ];
    all.into_iter().filter(|(on, ..)| *on).map(|(_, word, meaning)| (word, meaning))
}

fn plural(number: usize, word: &str) -> String {
    format!("{number} {word}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::entries;
    use crate::policy::{CompileOptions, Source, load};

    const POLICY: &str = "domain: tiers
descriptors:
- key: plan
  value: free
  descriptors:
  - key: user
    value: test-*
  - key: user
    rate_limit: {algorithm: gcra, requests_per_unit: 100, unit: minute, burst: 20}
- key: tokens
  quota_mode: true
  rate_limit:
    name: budget
    algorithm: sliding_window
    windows: [{requests_per_unit: 1, unit: second}, {requests_per_unit: 5000, unit: 10s}]
    lease: {size: 0.5%, ttl: 100ms}
- key: day
  rate_limit: {requests_per_unit: 0, unit: day, calendar: true, time_zone: Europe/Berlin}
- key: fixed
  rate_limit: {requests_per_unit: 10000, unit: minute, lease: {size: 1%, ttl: 100ms}}
- key: sliding
  rate_limit: {algorithm: sliding_window, requests_per_unit: 10000, unit: minute, lease: {size: 1%, ttl: 100ms}}
- key: gcra
  rate_limit: {algorithm: gcra, requests_per_unit: 10000, unit: minute, lease: {size: 20, ttl: 100ms}}
";

    fn explained(descriptor: &str) -> (String, bool) {
        let source = Source { name: "tiers.yaml".into(), text: POLICY.into() };
        let policies: PolicySet = load(&[source], &CompileOptions::default()).unwrap().policies;
        let (text, rule) = explain(&policies, "tiers", &entries(descriptor));
        (text, rule.is_some())
    }

    #[test]
    fn each_step_and_the_limit_are_told() {
        let (text, hit) = explained("plan=free,user=42");
        assert!(hit);
        insta::assert_snapshot!(text, @r##"
        domain tiers

        1. plan=free, among 6 rules
           exact plan=free: yes
           -> plan=free

        2. user=42, among 2 rules
           exact user=42: no
           wildcard user=test-*: no
           key alone user: yes
           -> plan=free > user

        rule      plan=free > user
        limit     100 hits in 1m
        counted   gcra: evenly, 20 at once when rested, up to 200 of debt
        charged   admitted: only when the whole request is; a denied one costs nothing anywhere
        no store  error: the call fails, and the caller's own failure mode decides
        "##);
    }

    #[test]
    fn windows_and_modes_are_told() {
        insta::assert_snapshot!(explained("tokens=a=b").0, @r##"
        domain tiers

        1. tokens=a=b, among 6 rules
           exact tokens=a=b: no
           key alone tokens: yes
           -> tokens

        rule      tokens
        name      budget
        limit     1 hit in 1s
        and       5000 hits in 10s
        counted   sliding_window: in 60 buckets, the oldest whole: never more in any period
        charged   admitted: only when the whole request is; a denied one costs nothing anywhere
                  looks paid afterwards: a later charge that does not fit is lost; see `charge: afterwards`
        quota     a vote: the request is denied where all limits in this mode deny
        no store  error: the call fails, and the caller's own failure mode decides
        lease     none: no block of hits would be worth it; see `tollgate check`
        "##);
        assert!(explained("day=1").0.contains("nothing (a ban) in each calendar day of Europe/Berlin"));
    }

    #[test]
    fn what_a_lease_does_to_the_limit_is_told() {
        let of = |key: &str| explained(&format!("{key}=a")).0.split_once("lease     ").unwrap().1.to_owned();
        insta::assert_snapshot!(of("fixed"), @r##"
        up to 100 hits in advance, kept for 100ms at most, of counters that are often asked for
                  never more than the limit in a window; up to 2 blocks a worker held
        "##);
        insta::assert_snapshot!(of("sliding"), @r##"
        up to 100 hits in advance, kept for 100ms at most, of counters that are often asked for
                  never more than it in any period less 100ms; in any period the blocks held more, up to 2 a worker
        "##);
        insta::assert_snapshot!(of("gcra"), @r##"
        up to 20 hits in advance, kept for 100ms at most, of counters that are often asked for
                  never more than it in any period less 100ms; in any period the blocks held more, up to 2 a worker
        "##);
    }

    #[test]
    fn where_nothing_matches_the_last_step_says_so() {
        let (text, hit) = explained("plan=free,route=x");
        assert!(!hit);
        insta::assert_snapshot!(text, @r##"
        domain tiers

        1. plan=free, among 6 rules
           exact plan=free: yes
           -> plan=free

        2. route=x, among 2 rules
           exact route=x: no
           wildcard user=test-*: no
           key alone route: no
           -> nothing; there is no way back to other rules

        no rule for the whole descriptor: OK, without a limit
        "##);
        assert!(!explained("").1);
    }
}
