//! Request to decision: match every descriptor, ask the store once, say what each limit and the whole request came to.
//!
//! Here policies and stores meet; neither knows the other. One policy snapshot serves one request. Over limit is a value;
//! an [`Undecided`] means that nobody decided, and the caller's own failure mode has to.

mod count;
mod decision;
mod modes;
mod noting;
mod target;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwapOption, Guard};

use self::count::Counters;
pub use self::decision::{Decision, Standing, Status};
pub use self::modes::Modes;
use self::target::Target;
use crate::algorithm::judge::Few;
use crate::algorithm::verdict::{Overall, Prior, combine};
use crate::descriptor::{KeyBuffer, Request};
use crate::journal::Pen;
use crate::journal::rates::Look;
use crate::policy::PolicySet;
use crate::store::{Check, Outcomes, Store, StoreError};
use crate::telemetry::metrics::Metrics;

/// Decides requests by the policies in force and a store.
pub struct Limiter<S> {
    policies: Arc<InForce>,
    store: S,
    modes: Modes,
    pen: Pen,
}

/// The policies in force, shared by all limiters of a process.
pub struct InForce {
    live: ArcSwapOption<Live>,
    metrics: Arc<Metrics>,
    generations: AtomicU64,
}

/// A policy set in force, with what its rules count in.
#[derive(Debug)]
pub struct Live {
    policies: PolicySet,
    counters: Counters,
    version: Arc<str>,
    generation: u64,
}

/// What requests are decided by; held for the length of one request.
pub type Snapshot = Guard<Option<Arc<Live>>>;

/// Nobody decided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// No policy set was ever installed.
    #[error("no policy is loaded yet")]
    NoPolicy,
    /// The store failed for a limit whose `on_store_error` is `error`.
    #[error("the store could not decide: {0}")]
    Store(StoreError),
}

impl InForce {
    /// No policies yet.
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        StoreError::ALL.iter().for_each(|error| metrics.show_store_error(error.kind()));
        Arc::new(Self { live: ArcSwapOption::empty(), metrics, generations: AtomicU64::new(0) })
    }

    /// Puts a policy set in force, for every request that begins from now on.
    pub fn install(&self, policies: PolicySet) {
        let rules: HashSet<_> = policies.rules().map(|rule| (rule.domain(), rule.path())).collect();
        self.metrics.keep_rules(&rules);
        drop(rules);
        let counters = Counters::of(&policies, &self.metrics);
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let version = policies.version().into();
        self.live.store(Some(Arc::new(Live { policies, counters, version, generation })));
    }

    /// The policies in force.
    pub fn snapshot(&self) -> Snapshot {
        self.live.load()
    }
}

impl<S: Store> Limiter<S> {
    /// A limiter. `modes`: what the process makes of all limits.
    pub fn new(policies: Arc<InForce>, store: S, modes: Modes) -> Self {
        Self { policies, store, modes, pen: Pen::default() }
    }

    /// The same, which takes its denials down.
    pub fn with_pen(self, pen: Pen) -> Self {
        Self { pen, ..self }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The policies in force.
    pub fn snapshot(&self) -> Snapshot {
        self.policies.snapshot()
    }

    /// Decides one request by a [`snapshot`](Self::snapshot), and no later than `deadline`.
    ///
    /// # Errors
    /// [`Undecided`]: the answer is not known, neither OK nor over limit.
    pub async fn decide<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<Decision<'a>, Undecided> {
        self.judge(snapshot, request, deadline, true, None).await
    }

    /// The same, and says how long the store was waited for, where somebody wants to know.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub async fn decide_timed<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
        store_time: Option<&mut Option<Duration>>,
    ) -> Result<Decision<'a>, Undecided> {
        self.judge(snapshot, request, deadline, true, store_time).await
    }

    /// Judges one request whose descriptors only peek, as [`decide`](Self::decide) does, and counts it nowhere.
    ///
    /// # Errors
    /// As [`decide`](Self::decide).
    pub async fn peek<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<Decision<'a>, Undecided> {
        self.judge(snapshot, request, deadline, false, None).await
    }

    async fn judge<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
        counts: bool,
        store_time: Option<&mut Option<Duration>>,
    ) -> Result<Decision<'a>, Undecided> {
        let live = snapshot.as_deref().ok_or(Undecided::NoPolicy)?;
        let Some(policy) = live.policies.find(request.domain) else {
            if counts {
                self.policies.metrics.unknown_domain(request.domain);
            }
            return Ok(Decision::unlimited(request.descriptors.len()));
        };
        let mut keys = KeyBuffer::default();
        let mut targets: Few<Target<'a>> =
            request.descriptors.iter().map(|descriptor| Target::find(policy, descriptor, &mut keys)).collect();
        target::drop_replaced(&mut targets);
        let (prior, roles) = (self.modes.prior(&targets), self.modes.roles(&targets));
        let tally = counts.then(|| live.counters.asked(policy, request, &targets));
        let recorded: Few<Vec<Vec<u8>>> = targets.iter().map(|target| target.recorded(policy, request)).collect();
        let asked = targets.iter().zip(&request.descriptors).zip(&recorded).zip(&roles).filter_map(
            |(((target, descriptor), recorded), role)| {
                let key = keys.key(request.domain, target.key()?).in_one_slot(policy.in_one_slot());
                let (limit, lease) = (target.limit()?, target.lease());
                Some(Check { key, limit, hits: descriptor.hits, role: *role, recorded, lease })
            },
        );
        let checks: Few<Check<'_>> = asked.collect();
        let outcomes = match checks.is_empty() {
            true => Outcomes::new(),
            false => {
                let begun = store_time.map(|time| (time, Instant::now()));
                let outcomes = self.store.decide(&checks, prior, deadline).await;
                if let Some((time, begun)) = begun {
                    *time = Some(begun.elapsed());
                }
                outcomes
            }
        };
        let overall = self.overall(prior, &checks, &outcomes)?;
        drop(checks);
        let decision = Decision::new(overall, targets, roles, outcomes);
        if let Some(tally) = &tally {
            live.counters.decided(&decision, tally);
            self.note(live, request, &decision, &recorded);
        }
        Ok(decision)
    }

    fn overall(&self, prior: Prior, checks: &[Check<'_>], outcomes: &Outcomes) -> Result<Overall, Undecided> {
        let verdicts =
            checks.iter().zip(outcomes).map(|(check, outcome)| (check.role, check.verdict(outcome.as_ref())));
        let overall = combine(prior, verdicts.clone());
        if let (true, Some(stats)) = (self.modes.shadow, self.policies.metrics.stats())
            && combine(Prior::Open, verdicts) == Overall::Denied
        {
            stats.service.global_shadow_mode.add(1);
        }
        let failed = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        failed.clone().for_each(|error| self.policies.metrics.store_error(error.kind()));
        match (overall, failed.clone().next()) {
            (Overall::Failed, Some(error)) => Err(Undecided::Store(error.clone())),
            (Overall::Failed | Overall::Admitted | Overall::Denied, _) => Ok(overall),
        }
    }
}

impl Live {
    /// The policies.
    pub fn policies(&self) -> &PolicySet {
        &self.policies
    }

    /// Tells these policies from those that were before and will be, also where they are the same.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What each rule has counted, in the order of their numbers. Of rules that count together nothing is told.
    pub fn looks(&self) -> impl Iterator<Item = Look<'_>> + Clone {
        let rules = self.policies.rules().zip(self.counters.of_rules());
        rules.map(|(rule, counts)| Look { domain: rule.domain(), rule: rule.path(), counts })
    }
}

#[cfg(test)]
mod tests;
