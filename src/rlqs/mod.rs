//! Quotas of proxies by RLQS, Envoy's rate limit quota protocol: how many hits each proxy holds of
//! a limit, for how long, and what comes back.
//!
//! A proxy reports the requests of its buckets every 5 s and admits by itself what is assigned to a
//! bucket. Hits are charged before they are assigned, so in a fixed window all proxies together
//! never admit more than the limit. Does no IO: the time, reports and loans come in, assignments,
//! wants and returns come out. Does not know policies, stores or the protocol.
//!
//! | file | subject |
//! |---|---|
//! | `stream` | the buckets of one proxy, acknowledgements, timers |
//! | `bucket` | one bucket: terms, the assignment that the proxy has, the next step |
//! | `terms` | terms, loans and assignments as values |
//! | `ttl` | times to live of assignments |
//! | `ledger` | the loans of a bucket: admitted hits, and hits that can be given back |
//! | `demand` | the rate of the requests of a bucket |
//! | `refused` | answers to buckets beyond the bounds |
//! | `share` | division of the remaining hits between the proxies of a counter |

pub mod bucket;
mod demand;
mod ledger;
mod refused;
pub mod share;
pub mod stream;
pub mod terms;
mod ttl;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

/// Interval of a proxy's reports. Not configurable in Envoy 1.40.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Time by which a loan outlasts the next report. What is left is of no use after the answer.
const DELAY: Duration = Duration::from_millis(500);
/// Time for which a loan should last from a report on.
const HORIZON: Duration = REPORT_INTERVAL.saturating_add(DELAY);
/// Default of [`QuotaOptions::guard`].
pub const DEFAULT_GUARD: Duration = Duration::from_secs(2);

/// Options of all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaOptions {
    /// Maximum time from the charge of hits until the proxy has them: assignments end earlier by
    /// it, and a proxy that acknowledges later is disconnected.
    pub guard: Duration,
    /// `true` if unused hits are given back.
    pub returns: bool,
}

impl Default for QuotaOptions {
    fn default() -> Self {
        Self { guard: DEFAULT_GUARD, returns: true }
    }
}

/// Returns an instant after a time; the instant itself if that cannot be represented.
fn after(instant: Instant, time: Duration) -> Instant {
    instant.checked_add(time).unwrap_or(instant)
}
