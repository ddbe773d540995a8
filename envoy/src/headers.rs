//! The headers `x-ratelimit-*`, as Envoy's rate limit filter writes them.

use std::fmt::Write;

use tollgate_lease::holder::LeasedCounter;

/// The values of the headers of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitHeaders {
    limit: String,
    remaining: String,
    reset: String,
}

impl LimitHeaders {
    /// Returns the names and values.
    pub(crate) fn pairs(&self) -> [(&str, &str); 3] {
        [
            ("x-ratelimit-limit", self.limit.as_str()),
            ("x-ratelimit-remaining", self.remaining.as_str()),
            ("x-ratelimit-reset", self.reset.as_str()),
        ]
    }
}

/// Returns the headers for the limits of a request: the one with the fewest remaining hits, and
/// the list of all. `None` if none is known.
pub(crate) fn limits(counters: impl IntoIterator<Item = LeasedCounter>) -> Option<LimitHeaders> {
    let mut least: Option<LeasedCounter> = None;
    let mut list = String::new();
    for counter in counters.into_iter().filter(|counter| counter.limit > 0) {
        // Writing to a text cannot fail.
        let _ = write!(list, ", {};w={}", counter.limit, counter.period.as_secs());
        if least.is_none_or(|least| counter.remaining < least.remaining) {
            least = Some(counter);
        }
    }
    let least = least?;
    Some(LimitHeaders {
        limit: format!("{}{list}", least.limit),
        remaining: u32::try_from(least.remaining).unwrap_or(u32::MAX).to_string(),
        reset: seconds(&least),
    })
}

/// Returns the seconds until the counter is as if never used, rounded up.
pub(crate) fn seconds(counter: &LeasedCounter) -> String {
    let part = u64::from(counter.reset_after.subsec_nanos() > 0);
    counter.reset_after.as_secs().saturating_add(part).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn standing(limit: u32, seconds: u64, remaining: u64, reset_ms: u64) -> LeasedCounter {
        LeasedCounter {
            limit,
            period: Duration::from_secs(seconds),
            remaining,
            reset_after: Duration::from_millis(reset_ms),
        }
    }

    #[test]
    fn headers_are_of_the_limit_with_the_fewest_remaining_hits_and_list_all() {
        let found = limits([standing(100, 60, 7, 59_001), standing(9, 1, 3, 1_000)]).unwrap();
        let pairs = found.pairs().map(|(_, value)| value);
        assert_eq!(pairs, ["9, 100;w=60, 9;w=1", "3", "1"]);
        assert_eq!(seconds(&standing(1, 1, 1, 59_001)), "60");
        assert_eq!(limits([standing(0, 0, 0, 0)]), None);
    }
}
