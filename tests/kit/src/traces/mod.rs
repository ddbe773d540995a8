//! Traces of requests that several stores must judge alike: memory, simulated servers
//! (`tests/world`) and real ones (`tests/redis/traces.rs`). A new case is a trace of `directed`.
//!
//! | module | contents |
//! |---|---|
//! | `sides`, `calls` | memory, and the stores that are compared with it |
//! | `rules` | random rules, with limits of every kind |
//! | `cases`, `hold_cases` | random policies and traces |
//! | `directed` | traces made by hand |
//! | `simulated` | cases with simulated servers, in one thread |
//! | `network`, `disturbed`, `lifetimes` | these servers, their faults, lifetimes of their keys |

pub mod calls;
pub mod cases;
pub mod directed;
mod disturbed;
pub mod hold_cases;
mod lifetimes;
pub(crate) mod network;
pub mod rules;
pub mod sides;
pub mod simulated;

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldAction;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::{Charge, Receipt};
use tollgate::grpc::proto::RateLimitRequest;
use tollgate::limiter::Modes;
use tollgate::store::loan::LoanReturn;

use self::cases::START;
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
    /// Creates a case that begins at the usual instant, in no mode.
    #[must_use]
    pub fn new(policies: Vec<String>, trace: Vec<TraceStep>) -> Self {
        Self { policies, modes: Modes::default(), begin: START, trace }
    }

    /// Sends requests at once one after another: servers in other processes may judge them in any
    /// order.
    #[must_use]
    pub fn in_turn(self) -> Self {
        let mut trace = Vec::new();
        for (step, operation) in self.trace {
            let all: Vec<_> = if let TraceOperation::Together(messages) = operation {
                messages.into_iter().map(TraceOperation::Decide).collect()
            } else if let TraceOperation::Overlapping(messages) = operation {
                let alone = |message| TraceOperation::Overlapping(vec![message]);
                messages.into_iter().map(alone).collect()
            } else {
                vec![operation]
            };
            trace.extend(std::iter::once(step).chain(std::iter::repeat(0)).zip(all));
        }
        Self { trace, ..self }
    }

    /// Never steps back.
    #[must_use]
    fn forwards(self) -> Self {
        let steps = self.trace.into_iter();
        let trace = steps.map(|(step, operation)| (step.max(0), operation)).collect();
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
    /// Requests at once, of which one may meet charges of another that are taken back: their
    /// answers are not compared.
    Overlapping(Vec<RateLimitRequest>),
    /// A request whose scripts take this time each, in microseconds, so that charges are taken back
    /// later than they are made. Its answers are not compared.
    Slow(RateLimitRequest, u64),
    /// A call for the holds of an ID at some counters.
    Hold(RateLimitRequest, TracedHoldCall),
    /// A request, first without taking its hits, then with.
    Try(RateLimitRequest),
    /// An amendment of a descriptor's counter.
    Amend(String, Amendment),
    /// The same amendment of the counters of several descriptors at once.
    AmendTogether(Vec<String>, Amendment),
    /// Hits charged to that counter in advance.
    Lend(String, u32, Charge),
    /// Take-back of hits of one such charge.
    TakeBack(usize, u64),
    /// Return of hits of one such charge as a loan that could be used for this time.
    Return(usize, u64, Micros),
    /// The tallies of a descriptor's counter.
    Tallies(String),
    /// The open holds of a descriptor's counter.
    OpenHolds(String),
}

/// The rest of charges in advance, each with the descriptor of its counter.
type LentHits = Vec<(String, Receipt)>;

/// Runs a trace. Returns the first difference between the sides.
pub async fn run(sides: &Sides, case: &TraceCase) -> Result<(), String> {
    run_with(sides, case, &mut Unwatched).await
}

/// Looks at the steps of a trace, each given by its number and its instant.
trait StepWatch {
    /// Called before a step.
    async fn before(
        &mut self,
        _: &Sides,
        _: (usize, u64),
        _: &TraceOperation,
        _: &LentHits,
    ) -> Result<(), String> {
        Ok(())
    }

    /// Called after a step.
    async fn after(&mut self, _: &Sides, _: (usize, u64)) -> Result<(), String> {
        Ok(())
    }
}

struct Unwatched;

impl StepWatch for Unwatched {}

async fn run_with(
    sides: &Sides,
    case: &TraceCase,
    watch: &mut impl StepWatch,
) -> Result<(), String> {
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
        now = now.saturating_add_signed(*step);
        // A larger single step back is intended.
        if *step < -FARTHEST_BACK.cast_signed() {
            latest = now;
        }
        now = now.max(latest.saturating_sub(FARTHEST_BACK));
        latest = latest.max(now);
        let step = (number, now);
        let watched = async {
            watch.before(sides, step, operation, &lent).await?;
            perform(sides, now, operation, &mut lent).await?;
            watch.after(sides, step).await
        };
        watched.await.map_err(|error| {
            let before = &trace[number.saturating_sub(12)..number];
            format!("request {number} {error}\n{policies:#?}\nafter {before:?}")
        })?;
    }
    Ok(())
}

/// Performs an operation on all sides. Returns the first difference between them.
async fn perform(
    sides: &Sides,
    now: u64,
    operation: &TraceOperation,
    lent: &mut LentHits,
) -> Result<(), String> {
    match operation {
        TraceOperation::Decide(message) => {
            sides.decide(now, message).await.map(|answer| drop(answer.ok()))
        }
        TraceOperation::Together(messages) => sides.decide_together(now, messages).await,
        TraceOperation::Overlapping(messages) => {
            sides.decide_overlapping(now, messages).await;
            Ok(())
        }
        TraceOperation::Slow(message, _) => {
            sides.decide_overlapping(now, std::slice::from_ref(message)).await;
            Ok(())
        }
        TraceOperation::Hold(message, call) => {
            sides.hold(now, message, call).await.map(|answer| drop(answer.ok()))
        }
        TraceOperation::Try(message) => a_try_is_what_follows(sides, now, message).await,
        TraceOperation::Amend(descriptor, amendment) => {
            sides.amend(now, descriptor, *amendment).await.map(drop)
        }
        TraceOperation::AmendTogether(descriptors, amendment) => {
            sides.amend_together(now, descriptors, *amendment).await.map(drop)
        }
        TraceOperation::Lend(descriptor, hits, mode) => {
            let receipt = sides.lend(now, descriptor, *hits, *mode).await?;
            lent.extend(receipt.map(|receipt| (descriptor.clone(), receipt)));
            sides.amend(now, descriptor, Amendment::Look).await.map(drop)
        }
        TraceOperation::Tallies(descriptor) => sides.tallies(descriptor).await.map(drop),
        TraceOperation::OpenHolds(descriptor) => sides.open_holds(now, descriptor).await.map(drop),
        TraceOperation::TakeBack(which, hits) => {
            let Some((descriptor, part)) = part_of(lent, *which, *hits) else { return Ok(()) };
            sides.take_back(now, &descriptor, part).await;
            sides.amend(now, &descriptor, Amendment::Look).await.map(drop)
        }
        TraceOperation::Return(which, hits, usable_for) => {
            let loan = loan_of(lent, *which, *hits, *usable_for);
            let Some((descriptor, back)) = loan else { return Ok(()) };
            sides.return_loan(now, &descriptor, back).await?;
            sides.amend(now, &descriptor, Amendment::Look).await.map(drop)
        }
    }
}

/// Takes hits of one of the charges that are lent. Returns them as a loan that could be used for
/// this time, with their descriptor.
fn loan_of(
    lent: &mut LentHits,
    which: usize,
    hits: u64,
    usable_for: Micros,
) -> Option<(String, LoanReturn)> {
    let (descriptor, part) = part_of(lent, which, hits)?;
    // The hits of a loan are never from a grant. The same number means the same loan.
    let unused = Receipt { of_grant: false, ..part };
    let number = u128::from(part.at.as_micros()) << 64 | u128::from(usable_for.get());
    Some((descriptor, LoanReturn { unused, number: number.to_be_bytes(), usable_for }))
}

/// Takes hits of one of the charges that are lent. Returns them with their descriptor.
fn part_of(lent: &mut LentHits, which: usize, hits: u64) -> Option<(String, Receipt)> {
    let which = which.checked_rem(lent.len())?;
    let (descriptor, receipt) = lent[which].clone();
    let part = Receipt { hits: receipt.hits.min(hits), ..receipt };
    lent[which].1.hits -= part.hits;
    lent.retain(|(_, receipt)| receipt.hits > 0);
    Some((descriptor, part))
}
