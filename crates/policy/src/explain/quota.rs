//! Explanations of RLQS: the hits that proxies may hold, and the bucket of the descriptor.

use std::fmt;

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::descriptor::Entry;
use tollgate_core::printable::counted;

use super::line;
use crate::{Policy, QUOTA_GUARD, Rule};

/// Writes the bounds of the hits that proxies may hold of a rule with `rlqs`, and whether a bucket
/// with the entries of the descriptor has its counter.
pub(super) fn write(
    text: &mut String,
    policy: &Policy,
    rule: &Rule,
    entries: &[Entry<'_>],
) -> fmt::Result {
    let has_section = rule.lease().is_some_and(|lease| lease.quota.is_some());
    if !has_section || rule.limit().is_none() {
        return Ok(());
    }
    let (limit, lease) = match rule.quota() {
        Ok(quota) => quota,
        Err(reason) => {
            let reason = reason.map_or("the rule has no limit", |reason| reason.text());
            return line(text, "rlqs", format_args!("none: {reason}"));
        }
    };
    let size = counted(lease.hits, "hit");
    let ttl = lease.ttl;
    line(text, "rlqs", format_args!("each proxy may hold up to {size}, for at most {ttl}"))?;
    line(text, "", bound(limit, lease.ttl))?;
    let bucket = policy.bucket_entries(entries).filter(|_| !has_repeated_keys(entries));
    match bucket.as_deref() {
        None => line(text, "", "no bucket has this counter: its pairs match no rule"),
        Some(order) if order == entries => {
            line(text, "", format_args!("the bucket {} has this counter", pairs(order)))
        }
        Some(order) => {
            let other = "a bucket of these pairs has the descriptor";
            line(text, "", format_args!("{other} {}", pairs(order)))
        }
    }
}

fn bound(limit: &Limit, ttl: Micros) -> String {
    if limit.counts_per_window() {
        format!(
            "at most the limit in a window; in its last {QUOTA_GUARD} to 3s, proxies hold nothing (--rlqs-guard {QUOTA_GUARD})"
        )
    } else {
        format!(
            "at most the limit in any period less {} (--rlqs-guard {QUOTA_GUARD}); in a full one, the hits that proxies held when it began more",
            ttl + QUOTA_GUARD
        )
    }
}

/// Returns `true` if two entries have one key, which a bucket cannot.
fn has_repeated_keys(entries: &[Entry<'_>]) -> bool {
    entries.iter().enumerate().any(|(at, entry)| {
        entries.iter().skip(at.saturating_add(1)).any(|other| other.key == entry.key)
    })
}

fn pairs(entries: &[Entry<'_>]) -> String {
    let pairs = entries.iter().map(|entry| {
        let key = String::from_utf8_lossy(entry.key);
        format!("{key}={}", String::from_utf8_lossy(entry.value))
    });
    pairs.collect::<Vec<_>>().join(",")
}
