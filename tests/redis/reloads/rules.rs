//! The limits: every algorithm, most of them also with leases; some are charged for denied hits.
//!
//! Periods are a year, so that no hits become available meanwhile; additional windows of seconds
//! end during leases, and deny nothing that the year allows.

use std::time::Duration;

/// Duration of a lease.
pub(super) const LEASE: Duration = Duration::from_secs(1);

/// A rule for every value of its key.
pub(super) struct Rule {
    pub(super) key: &'static str,
    /// Its limit; `N` is replaced by the amount.
    limit: &'static str,
    pub(super) counts: Counts,
}

/// Hits that a counter counts once everything has settled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    /// Hits admitted and not refunded.
    Exactly,
    /// Hits admitted and not refunded, less those drained; the amount drains in this many seconds.
    Drains(u64),
    /// Hits admitted, since none are ever refunded.
    Admitted,
    /// More than the hits admitted: also denied hits; or, for a log, hits refunded while a charge
    /// was being taken back. A refund removes the newest hits, which then are not the caller's, and
    /// are missing for the take-back.
    AtLeast,
}

const YEAR: u64 = 365 * 86_400;

pub(super) const RULES: [Rule; 17] = [
    rule("fixed", "requests_per_unit: N, unit: year", Counts::Exactly),
    rule("fixed_leased", "requests_per_unit: N, unit: year, LEASE", Counts::Exactly),
    rule("fixed_always", "requests_per_unit: N, unit: year, charge: always", Counts::AtLeast),
    rule(
        "fixed_windows",
        "windows: [{ requests_per_unit: N, unit: year }, { requests_per_unit: N, unit: 3650d }]",
        Counts::Exactly,
    ),
    rule(
        "fixed_windows_leased",
        "windows: [{ requests_per_unit: N, unit: second }, { requests_per_unit: N, unit: year }], LEASE",
        Counts::Exactly,
    ),
    rule(
        "calendar",
        "requests_per_unit: N, unit: year, calendar: true, time_zone: Asia/Kathmandu",
        Counts::Exactly,
    ),
    rule("sliding", "algorithm: sliding_window, requests_per_unit: N, unit: year", Counts::Exactly),
    rule(
        "sliding_leased",
        "algorithm: sliding_window, windows: [{ requests_per_unit: N, unit: 2s }, { requests_per_unit: N, unit: year }], LEASE",
        Counts::Exactly,
    ),
    rule("log", "algorithm: sliding_log, requests_per_unit: N, unit: year", Counts::AtLeast),
    rule(
        "log_leased",
        "algorithm: sliding_log, requests_per_unit: N, unit: year, LEASE",
        Counts::AtLeast,
    ),
    rule(
        "log_kept",
        "algorithm: sliding_log, requests_per_unit: N, unit: year, LEASE",
        Counts::Admitted,
    ),
    rule("gcra", "algorithm: gcra, requests_per_unit: N, unit: year", Counts::Drains(YEAR)),
    rule(
        "gcra_leased",
        "algorithm: gcra, requests_per_unit: N, unit: year, LEASE",
        Counts::Drains(YEAR),
    ),
    rule(
        "gcra_blamed",
        "algorithm: gcra, requests_per_unit: N, unit: year, charge: blamed",
        Counts::AtLeast,
    ),
    rule(
        "gcra_always",
        "algorithm: gcra, requests_per_unit: N, unit: year, charge: always",
        Counts::AtLeast,
    ),
    rule(
        "bucket",
        "algorithm: token_bucket, requests_per_unit: N, unit: hour, burst: N",
        Counts::Drains(3_600),
    ),
    rule(
        "bucket_leased",
        "algorithm: token_bucket, requests_per_unit: N, unit: hour, burst: N, LEASE",
        Counts::Drains(3_600),
    ),
];

/// Returns the policy with this amount in all limits.
pub(super) fn policy(amount: u32) -> String {
    let rules: Vec<(&str, String)> =
        RULES.iter().map(|rule| (rule.key, rule.with(amount))).collect();
    let rules: Vec<(&str, &str)> =
        rules.iter().map(|(key, limit)| (*key, limit.as_str())).collect();
    format!("defaults: {{ charge: admitted }}\n{}", super::super::policy(&rules))
}

const fn rule(key: &'static str, limit: &'static str, counts: Counts) -> Rule {
    Rule { key, limit, counts }
}

impl Rule {
    /// Returns `true` if less than a hit drains during a run.
    pub(super) fn drains_slowly(&self) -> bool {
        !matches!(self.counts, Counts::Drains(seconds) if seconds < YEAR)
    }

    /// Returns the number of whole hits of this amount that drain in `us` microseconds.
    pub(super) fn drained(&self, amount: u32, us: u64) -> u64 {
        match self.counts {
            Counts::Drains(seconds) => u64::from(amount) * us / (seconds * 1_000_000),
            Counts::Exactly | Counts::Admitted | Counts::AtLeast => 0,
        }
    }

    fn with(&self, amount: u32) -> String {
        let limit = self.limit.replace("LEASE", &format!("lease: {{ size: 5%, ttl: {LEASE:?} }}"));
        limit.replace(": N", &format!(": {amount}"))
    }
}
