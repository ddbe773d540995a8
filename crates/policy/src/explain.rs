//! Explanations of matches: each step, the rules that were tried, and the limit.

mod quota;

use std::fmt::{self, Write as _};

use tollgate_core::algorithm::hold::{Hold, OnSettle};
use tollgate_core::algorithm::lease::{BLOCKS, Lease};
use tollgate_core::algorithm::sliding_window::Estimate;
use tollgate_core::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use tollgate_core::descriptor::Entry;
use tollgate_core::descriptor::hold::is_reserved;
use tollgate_core::printable::counted;

use super::diff::{amounts, candidate_text, in_flight_text};
use super::{Imposes, LeaseHolder, MatchStep, MatchedBy, Policy, PolicySet, Rule};

/// Maximum number of rules with `*` that are listed as tried.
const MAX_TRIED: usize = 10;

/// Returns the explanation, and the rule that the descriptor matches.
pub fn explain<'p>(
    policies: &'p PolicySet,
    domain: &str,
    entries: &[Entry<'_>],
) -> (String, Option<&'p Rule>) {
    let Some(policy) = policies.find(domain) else {
        let domains: Vec<_> = policies.policies().map(Policy::domain).collect();
        let domains = domains.join(", ");
        let text = format!("no policy for domain `{domain}` (domains: {domains}): OK, no limit\n");
        return (text, None);
    };
    let mut text = String::new();
    // Writing to a string cannot fail.
    let rule = write_match(&mut text, policy, entries).unwrap_or_default();
    (text, rule)
}

/// Returns the limit of a rule in words, such as `100 hits in 1m` or `100 hits in 1m, burst 20`;
/// `None` if it imposes none.
pub fn limit_in_words(rule: &Rule) -> Option<String> {
    rule.limit().map(|limit| amounts(limit) + &burst_in_words(limit))
}

/// Returns the burst of a limit in words, to follow its rate; empty if the rate implies it.
pub fn burst_in_words(limit: &Limit) -> String {
    limit.distinct_burst().map_or_else(String::new, |burst| format!(", burst {burst}"))
}

fn write_match<'p>(
    text: &mut String,
    policy: &'p Policy,
    entries: &[Entry<'_>],
) -> Result<Option<&'p Rule>, fmt::Error> {
    writeln!(text, "domain {}", policy.domain())?;
    let (operation, entries) = match entries.split_last() {
        Some((last, rest)) if is_reserved(last.key) => (Some(last), rest),
        _ => (None, entries),
    };
    if let Some(operation) = operation {
        let key = String::from_utf8_lossy(operation.key);
        let id = String::from_utf8_lossy(operation.value);
        writeln!(text, "\n{key}={id}: an operation on a hold, taken off before rules are matched")?;
    }
    let steps = policy.trace(entries);
    for (number, (step, entry)) in (1..).zip(steps.iter().zip(entries)) {
        write_step(text, number, step, entry)?;
    }
    writeln!(text)?;
    let Some((_, rule)) =
        steps.last().filter(|_| steps.len() == entries.len()).and_then(|step| step.taken)
    else {
        let reason =
            if entries.is_empty() { "no entries" } else { "no rule matches the whole descriptor" };
        writeln!(text, "{reason}: OK, no limit")?;
        return Ok(None);
    };
    write_rule(text, rule)?;
    quota::write(text, policy, rule, entries)?;
    Ok(Some(rule))
}

fn write_step(
    text: &mut String,
    number: usize,
    step: &MatchStep<'_>,
    entry: &Entry<'_>,
) -> fmt::Result {
    let key = String::from_utf8_lossy(entry.key);
    let value = String::from_utf8_lossy(entry.value);
    writeln!(text, "\n{number}. {key}={value}, among {}", counted(step.siblings, "rule"))?;
    let taken = step.taken.map(|(taken, _)| taken);
    let exact = if taken == Some(MatchedBy::Exact) { "yes" } else { "no" };
    writeln!(text, "   exact {key}={value}: {exact}")?;
    if taken != Some(MatchedBy::Exact) {
        let passed =
            step.wildcards.len().saturating_sub(usize::from(taken == Some(MatchedBy::Wildcard)));
        for rule in step.wildcards.iter().take(passed.min(MAX_TRIED)) {
            writeln!(text, "   wildcard {}: no", rule.step())?;
        }
        if passed > MAX_TRIED {
            writeln!(text, "   ... and {} more wildcards: no", passed.saturating_sub(MAX_TRIED))?;
        }
        if let Some(MatchedBy::Wildcard) = taken
            && let Some(rule) = step.wildcards.last()
        {
            writeln!(text, "   wildcard {}: yes", rule.step())?;
        } else {
            let key_only = if taken == Some(MatchedBy::KeyAlone) { "yes" } else { "no" };
            writeln!(text, "   key only {key}: {key_only}")?;
        }
    }
    match step.taken {
        Some((_, rule)) => writeln!(text, "   -> {}", rule.path()),
        None => writeln!(text, "   -> no match; other branches are not tried"),
    }
}

fn write_rule(text: &mut String, rule: &Rule) -> fmt::Result {
    line(text, "rule", rule.path())?;
    if let Some(name) = rule.name() {
        line(text, "name", name)?;
    }
    match rule.imposes() {
        Imposes::Nothing => line(text, "limit", "none (always admitted)")?,
        Imposes::Unlimited => line(text, "limit", "unlimited (always admitted)")?,
        Imposes::Limit(limit) => write_limit(text, rule, limit)?,
    }
    if let Some(candidate) = rule.candidate() {
        let settings = candidate_text(candidate);
        let effect = "counted and reported, without effect on decisions";
        line(text, "candidate", format_args!("{settings}; {effect}"))?;
    }
    if !rule.replaces().is_empty() {
        line(text, "replaces", rule.replaces().join(", "))?;
    }
    if let Some(metadata) = rule.metadata() {
        line(text, "metadata", metadata)?;
    }
    Ok(())
}

fn write_limit(text: &mut String, rule: &Rule, limit: &Limit) -> fmt::Result {
    if let Some(in_flight) = limit.in_flight() {
        line(text, "limit", in_flight_text(in_flight))?;
    }
    for (index, window) in limit.windows().iter().enumerate() {
        line(text, if index == 0 { "limit" } else { "and" }, window)?;
    }
    line(text, "algorithm", algorithm_text(rule.algorithm(), limit))?;
    if rule.modes.share_threshold {
        line(text, "share_threshold", "one counter for all values that match the wildcard")?;
    }
    line(text, "charge", charge_text(limit.charge_mode()))?;
    if rule.looks_postpaid() {
        let what = "probably charged after the request: a charge over the limit is lost";
        line(text, "", format_args!("{what}; see `charge: afterwards`"))?;
    }
    for (name, meaning) in modes(rule) {
        line(text, name, meaning)?;
    }
    line(text, "on_store_error", store_error_text(limit.on_store_error()))?;
    if !rule.record().is_empty() {
        let keys: Vec<_> = rule.record().iter().map(|key| String::from_utf8_lossy(key)).collect();
        line(text, "record", keys.join(", "))?;
    }
    if let Some(hold) = limit.hold() {
        write_hold(text, limit, hold)?;
    }
    if let Some(lease) = rule.lease_for(LeaseHolder::Process) {
        write_lease(text, &lease.of(limit), limit, rule.quota_mode())?;
    }
    if rule.lease_for(LeaseHolder::Client).is_some() {
        write_loan(text, rule)?;
    }
    Ok(())
}

/// Writes the effect of each of the three calls for an ID.
fn write_hold(text: &mut String, limit: &Limit, hold: Hold) -> fmt::Result {
    let ttl = hold.ttl;
    if limit.in_flight().is_some() {
        line(text, "hold", format_args!("each request takes a permit, which expires after {ttl}"))?;
        line(text, "", "tollgate.reserve = ID: takes a permit of that many hits, if they fit")?;
        let end = "tollgate.commit = ID, tollgate.settle = ID: end the oldest permit of the ID";
        return line(text, "", end);
    }
    line(text, "hold", format_args!("charges with an ID can be corrected for {ttl}"))?;
    line(text, "", "tollgate.reserve = ID: charges the hits as an estimate, if they fit")?;
    let commit = "sets the oldest hold of the ID to the hits, even beyond the limit";
    line(text, "", format_args!("tollgate.commit = ID: {commit}"))?;
    let settled = match hold.on_settle {
        OnSettle::Charge => "its estimate stays charged",
        OnSettle::Release => "its estimate is refunded",
    };
    line(text, "", format_args!("tollgate.settle = ID: ends the oldest hold of the ID; {settled}"))
}

fn write_lease(text: &mut String, lease: &Lease, limit: &Limit, is_vote: bool) -> fmt::Result {
    let Some(largest) = lease.largest(limit).filter(|_| !is_vote) else {
        let none = "none: blocks of hits would be too small; see `tollgate check`";
        return line(text, "lease", none);
    };
    let size = counted(largest, "hit");
    let ttl = lease.ttl;
    let terms = "frequently used counters charge up to";
    line(text, "lease", format_args!("{terms} {size} in advance, for at most {ttl}"))?;
    let bound = if limit.counts_per_window() {
        format!(
            "at most the limit in a window; up to {BLOCKS} blocks per worker may be held unused"
        )
    } else {
        format!(
            "at most the limit in any period less {ttl}; in a full one, up to {BLOCKS} held blocks per worker more"
        )
    };
    line(text, "", bound)
}

/// Writes the bounds of the blocks that clients may hold.
fn write_loan(text: &mut String, rule: &Rule) -> fmt::Result {
    let (limit, lease) = match rule.loan() {
        Ok(loan) => loan,
        Err(reason) => return line(text, "loans", format_args!("none: {}", reason.text())),
    };
    let largest = lease.largest(limit).unwrap_or_default();
    let size = counted(largest, "hit");
    let time = limit.longest_loan(lease.ttl);
    let terms = "clients may hold blocks of up to";
    line(text, "loans", format_args!("{terms} {size}, each for at most {time}"))?;
    let bound = if limit.counts_per_window() {
        "at most the limit in a window".to_owned()
    } else {
        format!(
            "at most the limit in any period less {time}; in a full one, the blocks that were held when it began more"
        )
    };
    line(text, "", bound)
}

fn line(text: &mut String, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(text, "{name:<15} {value}")
}

fn algorithm_text(name: &str, limit: &Limit) -> String {
    if limit.is_ban() {
        return format!("{name}: a ban, every hit is denied");
    }
    let description = match limit.algorithm() {
        Algorithm::FixedWindow(_) => {
            "counts per window; up to twice the limit can pass around a window boundary".to_owned()
        }
        Algorithm::SlidingWindow(window) => {
            let oldest = match window.estimate() {
                Estimate::Strict => {
                    "the oldest counted in full: never over the limit in any period"
                }
                Estimate::Weighted => {
                    "the oldest weighted by its overlap with the period: an estimate"
                }
            };
            format!("{}, {oldest}", counted(window.buckets(), "bucket"))
        }
        Algorithm::SlidingLog(_) => "each hit recorded: exact in any period".to_owned(),
        Algorithm::Concurrency(_) => "hits in flight, until they end".to_owned(),
        Algorithm::Gcra(gcra) => {
            let burst = gcra.burst();
            format!("evenly spaced, burst {burst} when idle, debt up to {}", gcra.max_debt())
        }
    };
    format!("{name}: {description}")
}

fn charge_text(charge: Charge) -> &'static str {
    match charge {
        Charge::Admitted => {
            "admitted: charged only if the whole request is admitted; denied requests are not charged"
        }
        Charge::Blamed => "blamed: charged if the request is admitted, or if this limit denies it",
        Charge::Always => {
            "always: denied requests are charged too, so that a client that keeps retrying stays denied"
        }
        Charge::Afterwards => {
            "afterwards: always charged; a peek passes if one more hit fits, and the cost is charged later"
        }
    }
}

fn store_error_text(action: OnStoreError) -> &'static str {
    match action {
        OnStoreError::Error => "error: the call fails, and the failure mode of the client applies",
        OnStoreError::Allow => "allow: OK",
        OnStoreError::Deny => "deny: OVER_LIMIT",
        OnStoreError::Local => {
            "local: each replica admits its share: the limit divided by the replicas, which may be 0"
        }
    }
}

fn modes(rule: &Rule) -> impl Iterator<Item = (&'static str, &'static str)> {
    let hashed = "values are hashed with a secret key before they are stored or shown";
    let replaced = "a limit in the request replaces the amount and period";
    let all = [
        (rule.shadow_mode(), "shadow_mode", "counted and reported, never denies"),
        (rule.quota_mode(), "quota_mode", "denies a request only if all limits in quota mode do"),
        (rule.hashes_values(), "hash_values", hashed),
        (rule.inherits_override(), "override", replaced),
    ];
    all.into_iter().filter(|(on, ..)| *on).map(|(_, name, meaning)| (name, meaning))
}

#[cfg(test)]
mod tests;
