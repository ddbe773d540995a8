//! Decides requests: matches the descriptors, calls the store once, and combines the outcomes.
//!
//! Policies and stores meet here; neither knows the other. One policy snapshot serves one request.
//! Over limit is a value; an [`Undecided`] means that there is no decision, and the caller's own
//! failure mode applies.
//!
//! | file | subject |
//! |---|---|
//! | `target`, `entries` | what a descriptor matches, and its counter |
//! | `decision` | the result of a request |
//! | `live`, `modes` | the policies in force, and modes of the process |
//! | `candidates` | candidate limits |
//! | `holds` | operations on holds |
//! | `count`, `recording` | what is counted and recorded of a decision |
//! | `amend` | operator actions on one counter |

mod amend;
mod candidates;
mod count;
mod decision;
mod entries;
mod holds;
mod live;
mod modes;
mod recording;
mod target;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use self::candidates::CandidateCheck;
pub use self::candidates::CandidateResult;
use self::count::{RequestTally, RuleCounters};
use self::decision::Statuses;
pub use self::decision::{AppliedLimit, Decision, Standing, Status};
pub use self::modes::Modes;
use self::target::DescriptorTarget;
use crate::algorithm::judge::Few;
use crate::algorithm::verdict::{Overall, Prior, Role, Verdict, combine};
use crate::descriptor::{Descriptor, KeyBuffer, Request};
use crate::journal::Recorder;
use crate::policy::{Policy, PolicySet};
use crate::store::{Check, Outcomes, Store, StoreError};
use crate::telemetry::candidates::CandidateSource;
use crate::telemetry::metrics::Metrics;

/// A rate limiter that decides requests by the active policies and a store.
pub struct Limiter<S> {
    policies: Arc<InForce>,
    store: S,
    modes: Modes,
    recorder: Recorder,
}

/// The active policies, shared by all limiters of a process.
pub struct InForce {
    live: ArcSwapOption<Live>,
    /// Candidate policy set; kept also before any policy is active.
    candidates: Mutex<Option<Arc<CountedPolicies>>>,
    metrics: Arc<Metrics>,
    generations: AtomicU64,
}

/// An active policy set, with the candidate set beside it.
#[derive(Clone, Debug)]
pub struct Live {
    in_force: Arc<CountedPolicies>,
    candidates: Option<Arc<CountedPolicies>>,
    version: Arc<str>,
    generation: u64,
}

/// A policy set, with the counters of its rules.
#[derive(Debug)]
struct CountedPolicies {
    policies: PolicySet,
    counters: RuleCounters,
}

/// A request with the rules that it matches, to be judged by the store.
struct MatchedRequest<'a> {
    keys: KeyBuffer,
    statuses: Statuses<'a>,
    prior: Prior,
    in_one_slot: bool,
    candidates: Vec<CandidateCheck<'a>>,
    /// Counts of the request; `None` if it is not counted.
    tally: Option<RequestTally<'a>>,
}

/// A snapshot of the active policies, held for the duration of one request.
pub type Snapshot = Guard<Option<Arc<Live>>>;

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

impl InForce {
    /// Creates an instance without policies.
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        StoreError::ALL.iter().for_each(|error| metrics.show_store_error(error.kind()));
        let live = ArcSwapOption::empty();
        let candidates = Mutex::default();
        Arc::new(Self { live, candidates, metrics, generations: AtomicU64::new(0) })
    }

    /// Activates a policy set for every request that begins from now on.
    pub fn install(&self, policies: PolicySet) {
        let rules: HashSet<_> = policies.rules().map(|rule| (rule.domain(), rule.path())).collect();
        self.metrics.keep_rules(&rules);
        let tried = policies.rules().filter(|rule| rule.candidate().is_some());
        self.metrics
            .candidates
            .keep(CandidateSource::rule, &tried.map(|rule| (rule.domain(), rule.path())).collect());
        drop(rules);
        let counters = RuleCounters::of(&policies, &self.metrics);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let version = policies.version().into();
        let in_force = Arc::new(CountedPolicies { policies, counters });
        let candidates = self.candidates.lock();
        self.live.store(Some(Arc::new(Live {
            in_force,
            candidates: candidates.clone(),
            version,
            generation,
        })));
    }

    /// Evaluates a candidate policy set beside the active one, in place of the previous candidate.
    /// Its counters must be separate, as by
    /// [`CompileOptions::are_candidates`](crate::policy::CompileOptions::are_candidates).
    pub fn try_out(&self, policies: PolicySet) {
        let rules: HashSet<_> = policies.rules().map(|rule| (rule.domain(), rule.path())).collect();
        self.metrics.candidates.keep(CandidateSource::policy, &rules);
        drop(rules);
        let counters = RuleCounters::of_candidates(&policies, &self.metrics);
        let mut candidates = self.candidates.lock();
        *candidates = Some(Arc::new(CountedPolicies { policies, counters }));
        if let Some(live) = self.live.load_full() {
            self.live
                .store(Some(Arc::new(Live { candidates: candidates.clone(), ..(*live).clone() })));
        }
    }

    /// Returns the active policies.
    pub fn snapshot(&self) -> Snapshot {
        self.live.load()
    }

    /// Returns the estimated memory of the active and candidate policies, in bytes.
    pub fn memory(&self) -> usize {
        let in_force = self.live.load().as_ref().map_or(0, |live| live.in_force.policies.memory());
        let on_trial =
            self.candidates.lock().as_ref().map_or(0, |candidates| candidates.policies.memory());
        in_force.saturating_add(on_trial)
    }
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
        self.judge(snapshot, request, deadline, true, None)
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
        self.judge(snapshot, request, deadline, true, store_time)
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
        self.judge(snapshot, request, deadline, false, None)
    }

    fn judge<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
        counts: bool,
        store_time: Option<&mut Option<Duration>>,
    ) -> impl Future<Output = Result<Decision<'a>, Undecided>> + Send {
        async move {
            let live = snapshot.as_deref().ok_or(Undecided::NoPolicy)?;
            let Some(matched) = self.match_request(live, request, counts) else {
                return Ok(Decision::unlimited(request.descriptors.len()));
            };
            let checks = matched.checks(request);
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
            if counts {
                self.count_shadow(&checks, &outcomes);
            }
            let overall = self.overall(matched.prior, &checks, &outcomes)?;
            let applying = checks.len().saturating_sub(matched.candidates.len());
            drop(checks);
            let MatchedRequest { statuses, candidates, tally, .. } = matched;
            let tried = CandidateResult::all(candidates, &mut outcomes, applying);
            let decision = Decision::new(overall, statuses, outcomes, tried);
            if let Some(tally) = &tally {
                self.record(live, request, &decision, tally);
            }
            Ok(decision)
        }
    }

    /// Matches a request to rules. Returns `None` if its domain has no policy. If `counts`, the
    /// decision is counted, and candidates are evaluated beside it.
    #[inline]
    fn match_request<'a>(
        &self,
        live: &'a Live,
        request: &Request<'_>,
        counts: bool,
    ) -> Option<MatchedRequest<'a>> {
        let policy = live.in_force.policies.find(request.domain);
        if policy.is_none() {
            if counts {
                self.policies.metrics.unknown_domain(request.domain);
            }
            live.candidates.as_ref()?;
        }
        let mut keys = KeyBuffer::default();
        let statuses = self.find(policy, request, &mut keys);
        let prior = self.modes.prior(&statuses);
        let candidates = if counts {
            CandidateCheck::all(live, request, &statuses, &mut keys)
        } else {
            Vec::new()
        };
        let tally = counts.then(|| live.in_force.counters.asked(policy, request, &statuses));
        let in_one_slot = policy.is_some_and(Policy::in_one_slot);
        Some(MatchedRequest { keys, statuses, prior, in_one_slot, candidates, tally })
    }

    /// Counts a decision, and records its denials.
    fn record(
        &self,
        live: &Live,
        request: &Request<'_>,
        decision: &Decision<'_>,
        tally: &RequestTally<'_>,
    ) {
        live.in_force.counters.decided(decision, tally);
        live.in_force.counters.holds().count(request, decision, &self.policies.metrics);
        self.record_denials(live, request, decision);
        self.record_candidate_denials(live, request, decision);
    }

    /// Matches the descriptors of a request, and encodes the keys of their counters.
    fn find<'a>(
        &self,
        policy: Option<&'a Policy>,
        request: &Request<'_>,
        keys: &mut KeyBuffer,
    ) -> Statuses<'a> {
        let find = |descriptor| {
            let target = policy.map_or(DescriptorTarget::Nothing, |policy| {
                DescriptorTarget::find(policy, descriptor, keys, None)
            });
            Status::of(target, self.modes).with_vote(!descriptor.changes_no_hits())
        };
        let mut statuses: Statuses<'a> = request.descriptors.iter().map(find).collect();
        target::drop_replaced(&mut statuses);
        entries::record(&mut statuses, request);
        statuses
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
        let failed = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        failed.clone().for_each(|error| self.policies.metrics.store_error(error.kind()));
        match (overall, failed.clone().next()) {
            (Overall::Failed, Some(error)) => Err(Undecided::Store(error.clone())),
            (Overall::Failed | Overall::Admitted | Overall::Denied, _) => Ok(overall),
        }
    }
}

impl MatchedRequest<'_> {
    /// Returns the checks for the store: one for each limit, then one for each candidate.
    #[inline]
    fn checks<'c>(&'c self, request: &'c Request<'_>) -> Few<Check<'c>> {
        let check = |(status, descriptor): (&'c Status<'_>, &'c Descriptor<'_>)| {
            status.check(request, descriptor, &self.keys, self.in_one_slot)
        };
        let limits = self.statuses.iter().zip(&request.descriptors).filter_map(check);
        let mut checks: Few<Check<'c>> = limits
            .chain(
                self.candidates.iter().filter_map(|candidate| candidate.check(request, &self.keys)),
            )
            .collect();
        holds::drop_superseded(&mut checks);
        checks
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
