//! Decides requests: matches the descriptors, calls the store once, and combines the outcomes.
//!
//! Policies and stores meet here; neither knows the other. One policy snapshot serves one request.
//! Over limit is a value; an [`Undecided`] means that there is no decision, and the caller's own
//! failure mode applies.
//!
//! | file | subject |
//! |---|---|
//! | `target`, `entries` | what a descriptor matches, and its counter |
//! | `status`, `decision` | the status of a descriptor, and the decision on a request |
//! | `live`, `modes` | the policies in force, and modes of the process |
//! | `candidates` | candidate limits |
//! | `holds` | operations on holds |
//! | `loans` | counters from which hits are lent to clients |
//! | `quotas` | limits of buckets, from which hits are lent to proxies |
//! | `count`, `recording` | what is counted and recorded of a decision |
//! | `amend` | operator actions on one counter |

mod amend;
mod candidates;
mod count;
mod decision;
mod entries;
mod holds;
mod live;
mod loans;
mod modes;
mod quotas;
mod recording;
mod status;
mod target;

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use self::candidates::CandidateCheck;
pub use self::candidates::CandidateOutcome;
use self::count::RequestTally;
pub use self::decision::Decision;
pub use self::live::{InForce, Live, Snapshot};
pub use self::loans::LoanTarget;
pub use self::modes::Modes;
pub use self::quotas::BucketTarget;
use self::status::Statuses;
pub use self::status::{AppliedLimit, CallerWait, Status, StatusKind};
use self::target::DescriptorTarget;
use crate::algorithm::verdict::{Overall, Prior, Role, Verdict, combine};
use crate::descriptor::{KeyBuffer, Request};
use crate::policy::Policy;
use crate::store::{Check, Outcomes, Store, StoreError, error_behind};
use crate::telemetry::journal::Recorder;

/// A rate limiter that decides requests by the active policies and a store.
pub struct Limiter<S> {
    policies: Arc<InForce>,
    store: S,
    modes: Modes,
    recorder: Recorder,
}

/// A request with the rules that it matches, to be judged by the store. Filled in place, and so is
/// its decision: both are large, and moving them would cost more than matching.
#[derive(Default)]
struct MatchedRequest<'a> {
    keys: KeyBuffer,
    prior: Prior,
    in_one_slot: bool,
    candidates: Vec<CandidateCheck<'a>>,
    /// Counts of the request; `None` if it is not counted.
    tally: Option<RequestTally<'a>>,
}

/// The effect of judging a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judging {
    /// The decision is counted, and candidates are evaluated beside it.
    Decide,
    /// Nothing is counted but store errors.
    Peek,
}

/// The checks of a request. A call holds them while it waits, so there is no room for a fourth
/// without an allocation.
type Checks<'c> = SmallVec<[Check<'c>; 3]>;

/// An error for a request without a decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// No policy set has been installed yet.
    #[error("no policy is loaded yet")]
    NoPolicy,
    /// The store failed for a limit whose `on_store_error` is `error`.
    #[error("no decision: {0}")]
    Store(StoreError),
}

impl<S: Store> Limiter<S> {
    /// Creates a limiter. `modes` apply to all limits of the process.
    pub fn new(policies: Arc<InForce>, store: S, modes: Modes) -> Self {
        Self { policies, store, modes, recorder: Recorder::default() }
    }

    /// Returns the limiter with a recorder for its denials.
    pub fn with_recorder(self, recorder: Recorder) -> Self {
        Self { recorder, ..self }
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the active policies.
    pub fn snapshot(&self) -> Snapshot {
        self.policies.snapshot()
    }

    /// Decides one request by a [`snapshot`](Self::snapshot), no later than `deadline`.
    ///
    /// # Errors
    /// [`Undecided`]: there is no decision, neither OK nor over limit.
    pub fn decide<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Decision<'a>, Undecided>> + Send {
        self.judge(snapshot, request, deadline, Judging::Decide, None)
    }

    /// Decides one request, and reports the time spent waiting for the store in `store_time`, which
    /// is left as it is if the store was not called.
    ///
    /// # Errors
    /// See [`decide`](Self::decide).
    pub fn decide_timed<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
        store_time: Option<&mut Option<Duration>>,
    ) -> impl Future<Output = Result<Decision<'a>, Undecided>> + Send {
        self.judge(snapshot, request, deadline, Judging::Decide, store_time)
    }

    /// Judges one request whose descriptors only peek, as [`decide`](Self::decide) judges one that
    /// charges the same hits. Counts nothing but store errors.
    ///
    /// # Errors
    /// See [`decide`](Self::decide).
    pub fn peek<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Decision<'a>, Undecided>> + Send {
        self.judge(snapshot, request, deadline, Judging::Peek, None)
    }

    fn judge<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
        judging: Judging,
        store_time: Option<&mut Option<Duration>>,
    ) -> impl Future<Output = Result<Decision<'a>, Undecided>> + Send {
        async move {
            let live = snapshot.as_deref().ok_or(Undecided::NoPolicy)?;
            let mut decision = Decision::default();
            let mut matched = MatchedRequest::default();
            if !self.match_request(live, request, judging, &mut decision, &mut matched) {
                return Ok(Decision::unlimited(request.descriptors.len()));
            }
            let checks = matched.checks(decision.statuses(), request);
            let mut outcomes = if checks.is_empty() {
                Outcomes::new()
            } else {
                let begun = store_time.map(|time| (time, Instant::now()));
                let outcomes = self.store.decide(&checks, matched.prior, deadline).await;
                if let Some((time, begun)) = begun {
                    *time = Some(begun.elapsed());
                }
                outcomes
            };
            if judging == Judging::Decide {
                self.count_shadow(&checks, &outcomes);
            }
            let overall = self.overall(matched.prior, &checks, &outcomes);
            if judging == Judging::Decide {
                count_errors(live, decision.statuses(), &outcomes, overall.is_err());
            }
            let overall = overall?;
            let applying = checks.len() - matched.candidates.len();
            drop(checks);
            let candidates = std::mem::take(&mut matched.candidates);
            let candidates = CandidateOutcome::all(candidates, &mut outcomes, applying);
            decision.make(overall, &mut outcomes, candidates, || self.store.now());
            if let Some(tally) = &matched.tally {
                self.record(live, request, &decision, tally);
            }
            Ok(decision)
        }
    }

    /// Matches a request to rules. Returns `false` if its domain has no policy.
    #[inline]
    fn match_request<'a>(
        &self,
        live: &'a Live,
        request: &Request<'_>,
        judging: Judging,
        decision: &mut Decision<'a>,
        matched: &mut MatchedRequest<'a>,
    ) -> bool {
        let policy = live.in_force.policies.find(request.domain);
        if policy.is_none() {
            if judging == Judging::Decide {
                self.policies.metrics.unknown_domain(request.domain);
            }
            if live.candidates.is_none() {
                return false;
            }
        }
        let statuses = decision.statuses_mut();
        self.find(policy, request, &mut matched.keys, statuses);
        let mut targets = statuses.iter().map(Status::target);
        let has_unmatched = targets.any(|target| matches!(target, DescriptorTarget::Nothing));
        matched.prior = self.modes.prior(has_unmatched);
        matched.in_one_slot = policy.is_some_and(Policy::in_one_slot);
        if judging == Judging::Decide {
            matched.candidates = CandidateCheck::all(live, request, statuses, &mut matched.keys);
            matched.tally = Some(live.in_force.counters.begin_tally(policy, request, statuses));
        }
        true
    }

    /// Counts a decision, and records its denials.
    fn record(
        &self,
        live: &Live,
        request: &Request<'_>,
        decision: &Decision<'_>,
        tally: &RequestTally<'_>,
    ) {
        let counters = &live.in_force.counters;
        for (status, descriptor) in decision.statuses().iter().zip(&request.descriptors) {
            counters.count(status);
            if let Some(hold) = &descriptor.hold
                && !holds::is_only_recorded(decision.statuses(), status, descriptor)
            {
                counters.holds().count(status, hold, request.domain, &self.policies.metrics);
            }
            self.count_exception(status, descriptor.hits);
            self.record_denial(live, request.domain, decision, status, descriptor);
        }
        tally.count(decision.statuses());
        if !decision.candidates().is_empty() {
            decision
                .candidates()
                .iter()
                .for_each(|candidate| candidate.count(decision.is_over_limit()));
            self.record_candidate_denials(live, request, decision);
        }
    }

    /// Matches the descriptors of a request, and encodes the keys of their counters.
    fn find<'a>(
        &self,
        policy: Option<&'a Policy>,
        request: &Request<'_>,
        keys: &mut KeyBuffer,
        statuses: &mut Statuses<'a>,
    ) {
        statuses.extend(request.descriptors.iter().map(|descriptor| {
            let target = policy.map_or(DescriptorTarget::Nothing, |policy| {
                DescriptorTarget::find(policy, descriptor, keys, None)
            });
            Status::of(target, self.modes).with_vote(!descriptor.changes_no_hits())
        }));
        status::drop_replaced(statuses);
        status::record(statuses, request);
    }

    /// Counts a request that is admitted only because of global shadow mode.
    fn count_shadow(&self, checks: &[Check<'_>], outcomes: &Outcomes) {
        if self.modes.shadow
            && let Some(stats) = self.policies.metrics.stats()
            && combine(Prior::Open, verdicts(checks, outcomes)) == Overall::Denied
        {
            stats.service.global_shadow_mode.add(1);
        }
    }

    fn overall(
        &self,
        prior: Prior,
        checks: &[Check<'_>],
        outcomes: &Outcomes,
    ) -> Result<Overall, Undecided> {
        let overall = combine(prior, verdicts(checks, outcomes));
        let met = outcomes.iter().filter_map(error_behind);
        met.for_each(|error| self.policies.metrics.store.store_error(error.kind()));
        match (overall, outcomes.iter().find_map(|outcome| outcome.as_ref().err())) {
            (Overall::Failed, Some(error)) => Err(Undecided::Store(*error)),
            (Overall::Failed | Overall::Admitted | Overall::Denied, _) => Ok(overall),
        }
    }
}

impl MatchedRequest<'_> {
    /// Returns the checks for the store: one for each limit, then one for each candidate.
    #[inline]
    fn checks<'c>(&'c self, statuses: &'c [Status<'_>], request: &'c Request<'_>) -> Checks<'c> {
        let limits =
            statuses.iter().zip(&request.descriptors).filter_map(|(status, descriptor)| {
                status.check(request, descriptor, &self.keys, self.in_one_slot)
            });
        let candidates =
            self.candidates.iter().filter_map(|candidate| candidate.check(request, &self.keys));
        let mut checks: Checks<'c> = limits.chain(candidates).collect();
        holds::drop_superseded(&mut checks);
        checks
    }
}

/// Counts the store errors that the limits of a request met, by rule.
#[inline]
fn count_errors(live: &Live, statuses: &[Status<'_>], outcomes: &Outcomes, is_failed: bool) {
    if outcomes.iter().all(|outcome| error_behind(outcome).is_none()) {
        return;
    }
    let limited = statuses.iter().filter(|status| status.target().limit().is_some());
    for (status, outcome) in limited.zip(outcomes) {
        live.in_force.counters.count_error(status, outcome, is_failed);
    }
}

/// Returns the verdict on each check, with its role in the request.
fn verdicts(checks: &[Check<'_>], outcomes: &Outcomes) -> impl Iterator<Item = (Role, Verdict)> {
    checks
        .iter()
        .zip(outcomes)
        .map(|(check, outcome)| (check.role, check.verdict(outcome.as_ref())))
}

#[cfg(test)]
mod tests;
