//! Times to live of assignments, in whole seconds, which a proxy counts from the arrival.

use std::time::{Duration, Instant};

use super::after;
use super::terms::ChargedLoan;
use crate::algorithm::lease::Lease;

/// Time to live of assignments that do not depend on the counter.
pub(super) const BLANKET_TTL: Duration = Duration::from_secs(60);
/// Time to live of answers to buckets beyond the bounds: only some get one after each report.
pub(super) const REFUSED_TTL: Duration = Duration::from_secs(300);
/// Time to live of what `on_store_error` assigns while the store fails.
pub(super) const FAILURE_TTL: Duration = Duration::from_secs(7);
/// Bounds of the time to live of a denial.
pub(super) const DENIAL_TTL: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(300)];

/// Returns the seconds for which a denial is assigned until a retry after this time, which replaces
/// it.
pub(super) fn denial_ttl(retry: Duration) -> u64 {
    let [shortest, longest] = DENIAL_TTL;
    retry.saturating_add(shortest).clamp(shortest, longest).as_secs()
}

/// Returns the seconds for which a loan that is sent at `now` can be admitted; 0 if it is too late.
///
/// In a fixed window it ends the guard before the window does. For other limits the time since the
/// charge counts, so the hits are admitted within the TTL of the lease and the guard.
pub(super) fn loan_ttl(loan: &ChargedLoan, lease: &Lease, now: Instant, guard: Duration) -> u64 {
    let ttl = Duration::from(lease.ttl);
    let ttl = match loan.window_rest {
        Some(rest) => {
            let end = after(loan.asked_at, rest.into());
            ttl.min(end.saturating_duration_since(after(now, guard)))
        }
        None => ttl.saturating_sub(now.saturating_duration_since(loan.asked_at)),
    };
    ttl.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::Receipt;
    use crate::algorithm::time::{Micros, Timestamp};

    #[test]
    fn the_time_since_the_charge_shortens_a_loan() {
        let now = Instant::now();
        let guard = Duration::from_secs(2);
        let lease = Lease { hits: 100, ttl: Micros::from_secs(15) };
        let receipt = Receipt { at: Timestamp::from_micros(1), hits: 10, of_grant: false };
        let ttl = |rest: Option<u64>, millis| {
            let window_rest = rest.map(Micros::from_secs);
            let loan = ChargedLoan { receipt, asked_at: now, charged_at: now, window_rest };
            loan_ttl(&loan, &lease, after(now, Duration::from_millis(millis)), guard)
        };
        assert_eq!([0, 1, 4_500, 14_001, 20_000].map(|age| ttl(None, age)), [15, 14, 10, 0, 0]);
        assert_eq!([0, 1, 4_500, 20_000].map(|age| ttl(Some(12), age)), [10, 9, 5, 0]);
        assert_eq!([0, 1_000].map(|age| ttl(Some(60), age)), [15, 15]);
    }
}
