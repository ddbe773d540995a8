//! Random traces of requests that several stores must judge alike.
//!
//! | module | contents |
//! |---|---|
//! | `sides`, `calls` | memory, and the stores that are compared with it |
//! | `rules` | random rules, with limits of every kind |
//! | `cases`, `hold_cases` | random policies and traces |
//! | `simulated` | cases with simulated servers, in one thread |

pub mod calls;
pub mod cases;
pub mod hold_cases;
pub mod rules;
pub mod sides;
pub mod simulated;

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldAction;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::{Charge, Receipt};
use tollgate::grpc::proto::RateLimitRequest;
use tollgate::limiter::Modes;

use self::sides::{Sides, a_try_is_what_follows};

/// Maximum distance that clocks step back, in microseconds: memory keeps a counter for a minute
/// after it stopped mattering.
const FARTHEST_BACK: u64 = 59_000_000;

/// A case, whose policies share its trace evenly.
#[derive(Clone, Debug)]
pub struct TraceCase {
    pub policies: Vec<String>,
    pub modes: Modes,
    pub begin: u64,
    pub trace: Vec<TraceStep>,
}

impl TraceCase {
    /// Sends requests at once one after another: servers in other processes may judge them in any
    /// order.
    #[must_use]
    pub fn in_turn(self) -> Self {
        let mut trace = Vec::new();
        for (step, operation) in self.trace {
            if let TraceOperation::Together(messages) = operation {
                let steps = std::iter::once(step).chain(std::iter::repeat(0));
                trace.extend(steps.zip(messages.into_iter().map(TraceOperation::Decide)));
            } else {
                trace.push((step, operation));
            }
        }
        Self { trace, ..self }
    }
}

/// An operation on the holds of an ID, with a TTL of its own.
#[derive(Clone, Copy, Debug)]
pub struct TracedHoldCall {
    pub id: &'static str,
    pub action: HoldAction,
    /// Of a reserve.
    pub hits: u32,
    pub ttl: Option<Micros>,
}

/// Microseconds forwards or back, and the operation that follows.
pub type TraceStep = (i64, TraceOperation);

#[derive(Clone, Debug)]
pub enum TraceOperation {
    Decide(RateLimitRequest),
    /// Requests at once, each for one counter.
    Together(Vec<RateLimitRequest>),
    /// A call for the holds of an ID at some counters.
    Hold(RateLimitRequest, TracedHoldCall),
    /// A request, first without taking its hits, then with.
    Try(RateLimitRequest),
    /// An amendment of a descriptor's counter.
    Amend(String, Amendment),
    /// Hits charged to that counter in advance.
    Lend(String, u32, Charge),
    /// Take-back of hits of one such charge.
    TakeBack(usize, u64),
    /// The tallies of a descriptor's counter.
    Tallies(String),
    /// The open holds of a descriptor's counter.
    OpenHolds(String),
}

/// Runs a trace. Returns the first difference between the sides.
pub async fn run(sides: &Sides, case: &TraceCase) -> Result<(), String> {
    let TraceCase { policies, begin, trace, .. } = case;
    let mut now = *begin;
    let mut latest = *begin;
    let mut lent = Vec::new();
    for (number, (step, operation)) in trace.iter().enumerate() {
        if number % (trace.len() / policies.len()).max(1) == 0 {
            sides.install(
                &policies[(number * policies.len() / trace.len()).min(policies.len() - 1)],
            );
        }
        now = now.saturating_add_signed(*step).max(latest - FARTHEST_BACK);
        latest = latest.max(now);
        let result = match operation {
            TraceOperation::Decide(message) => {
                sides.decide(now, message).await.map(|answer| drop(answer.ok()))
            }
            TraceOperation::Together(messages) => sides.decide_together(now, messages).await,
            TraceOperation::Hold(message, call) => {
                sides.hold(now, message, call).await.map(|answer| drop(answer.ok()))
            }
            TraceOperation::Try(message) => a_try_is_what_follows(sides, now, message).await,
            TraceOperation::Amend(descriptor, amendment) => {
                sides.amend(now, descriptor, *amendment).await.map(drop)
            }
            TraceOperation::Lend(descriptor, hits, mode) => {
                let receipt = sides.lend(now, descriptor, *hits, *mode).await;
                let receipt = receipt.map_err(|error| format!("request {number} {error}"))?;
                lent.extend(receipt.map(|receipt| (descriptor, receipt)));
                sides.amend(now, descriptor, Amendment::Look).await.map(drop)
            }
            TraceOperation::Tallies(descriptor) => sides.tallies(descriptor).await.map(drop),
            TraceOperation::OpenHolds(descriptor) => {
                sides.open_holds(now, descriptor).await.map(drop)
            }
            TraceOperation::TakeBack(..) if lent.is_empty() => Ok(()),
            TraceOperation::TakeBack(which, hits) => {
                let which = which % lent.len();
                let (descriptor, receipt) = lent[which];
                let part = Receipt { hits: receipt.hits.min(*hits), ..receipt };
                lent[which].1.hits -= part.hits;
                lent.retain(|(_, receipt)| receipt.hits > 0);
                sides.take_back(now, descriptor, part).await;
                sides.amend(now, descriptor, Amendment::Look).await.map(drop)
            }
        };
        result.map_err(|error| {
            let before = &trace[number.saturating_sub(12)..number];
            format!("request {number} {error}\n{policies:#?}\nafter {before:?}")
        })?;
    }
    Ok(())
}
