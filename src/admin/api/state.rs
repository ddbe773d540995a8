//! The state of a counter.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rfc3339;
use crate::algorithm::Limit;
use crate::algorithm::amend::CounterReading;
use crate::algorithm::time::Micros;
use crate::policy::explain::burst_in_words;

/// The state of a counter.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StateView {
    /// Time of the state by the clock of the store, RFC 3339.
    pub at: String,
    /// Maximum hits that a request would be admitted with now. Hits are charged either to the limit
    /// or to a grant, so this is the larger of what the two have left.
    pub remaining: u64,
    /// Time at which the next hit is admitted if there are no other requests; absent if it is now
    /// or never.
    pub retry_at: Option<String>,
    /// Windows of the limit.
    pub windows: Vec<WindowView>,
    /// Hits granted in addition to the limit; absent if there are none.
    pub grant: Option<GrantView>,
}

/// The state of one window of a limit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct WindowView {
    /// Amount and length of the window as text.
    pub limit: String,
    /// Maximum hits of one request: the amount of the window, or the burst.
    #[serde(default)]
    pub capacity: u32,
    /// Hits used; more than the limit if hits were charged beyond it.
    pub used: u64,
    /// Remaining hits.
    pub remaining: u64,
    /// Time at which the window resets.
    pub reset_at: String,
}

/// Hits granted in addition to a limit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct GrantView {
    /// Remaining hits of the grant.
    pub remaining: u64,
    /// Time at which the grant expires.
    pub until: String,
}

impl StateView {
    /// Returns the maximum hits of one request.
    pub fn capacity(&self) -> Option<u64> {
        self.windows.iter().map(|window| u64::from(window.capacity)).min()
    }

    /// Returns the state of a counter of `limit`.
    pub(super) fn of(limit: &Limit, look: &CounterReading) -> Self {
        let permits = limit.in_flight().map(|amount| (format!("{amount} in flight"), amount));
        let windows = limit.windows().iter().map(|window| {
            let text = window.to_string() + &burst_in_words(limit);
            (text, limit.burst().unwrap_or_else(|| window.limit()))
        });
        let windows = windows.chain(permits).zip(&look.windows);
        let windows = windows.map(|((limit, capacity), usage)| WindowView {
            limit,
            capacity,
            used: usage.used,
            remaining: usage.remaining,
            reset_at: rfc3339(look.at + usage.reset_after),
        });
        let granted = look.grant.map_or(0, |grant| grant.left);
        let room = look.windows.iter().map(|window| window.remaining).min().unwrap_or_default();
        let retry =
            look.windows.iter().map(|window| window.retry_after).collect::<Option<Vec<_>>>();
        let retry = retry
            .and_then(|all| all.into_iter().max())
            .filter(|wait| *wait > Micros::ZERO && granted == 0);
        Self {
            at: rfc3339(look.at),
            remaining: room.max(granted),
            retry_at: retry.map(|wait| rfc3339(look.at + wait)),
            windows: windows.collect(),
            grant: look
                .grant
                .map(|grant| GrantView { remaining: grant.left, until: rfc3339(grant.until) }),
        }
    }
}
