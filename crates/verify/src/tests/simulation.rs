//! Runs against simulated services in virtual time: one that keeps its limits, and a family of
//! services with one fault each.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, sleep};
use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::hold::{HoldAction, HoldRequest};
use tollgate_core::algorithm::judge::Hits;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::descriptor::Entry;
use tollgate_policy::{CompileOptions, Imposes, PolicySet, Source};

use super::services::{MemoryCounters, MemoryRequest};
use super::{SECOND, START};
use crate::history::{CallAction, HoldEnd};
use crate::rules::{TargetKind, rules_at};
use crate::run::VerifyRun;
use crate::service::{
    DescriptorDecision, LimitStatus, ServiceDecision, VerifiedService, VerifyRequest,
};
use crate::workload::{VerifyClient, Workload};

/// Difference between clocks that is allowed for, in milliseconds.
pub(super) const SKEW: u64 = 10;
const DEADLINE: Duration = Duration::from_millis(500);

/// The fault of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Each limit is one hit higher.
    OneMore,
    /// Counters are forgotten every second.
    ForgetsAtReload,
    /// One call in a thousand is admitted without a charge.
    AdmitsTwice,
    /// The hits of a window also count in the first tenth of the next one.
    LateReset,
    /// Reports one remaining hit too many.
    WrongRemaining,
    /// Reads a counter, and writes it some milliseconds later.
    ReadsBeforeItWrites,
    /// A commit charges its cost once more.
    CommitsTwice,
    /// A cancel returns one hit too many.
    CancelsTooMuch,
    /// A cancel returns nothing.
    CancelsNothing,
    /// One hold in ten is not ended.
    NeverEnds,
    /// An extension leaves the hold as it is.
    ExtendsNothing,
    /// One repeated reserve in ten is charged.
    ChargesRepeats,
    /// A commit of a hold that has ended charges its cost.
    CommitsAgain,
    /// A cancel of a hold that has ended returns a hit.
    CancelsAgain,
    /// A commit charges no more than its hold has.
    ForgivesOverruns,
    /// Limits with room charge requests that another limit denies.
    ChargesDenied,
}

/// A run to simulate.
#[derive(Clone, Debug)]
pub(super) struct SimulatedRun {
    pub(super) policy: String,
    pub(super) fault: Fault,
    pub(super) seed: u64,
    pub(super) clients: usize,
    pub(super) rate: u32,
    pub(super) seconds: u64,
    /// Most microseconds by which the clock of a replica is ahead.
    pub(super) apart: u64,
    /// Of so many calls, one request and one answer is lost, and one about a hold is answered
    /// without the store; 0 for none.
    pub(super) lost: u32,
}

/// A service that several clients share.
struct SimulatedService {
    policies: PolicySet,
    fault: Fault,
    counters: RefCell<MemoryCounters>,
    /// Hits of holds by their IDs.
    reserved: RefCell<HashMap<String, u64>>,
    /// Hits by counter and window, of the service that reads before it writes.
    windows: RefCell<HashMap<(String, u64), u64>>,
    reloaded: Cell<u64>,
    random: RefCell<StdRng>,
    started: Instant,
    epoch: u64,
    lost: u32,
}

/// A connection to a replica of the service.
struct ReplicaConnection {
    service: Rc<SimulatedService>,
    /// Microseconds by which the clock of the replica is ahead.
    ahead: u64,
}

impl SimulatedService {
    fn now(&self) -> u64 {
        self.epoch + u64::try_from(self.started.elapsed().as_micros()).unwrap()
    }

    fn chance(&self, of: u32) -> bool {
        of > 0 && self.random.borrow_mut().random_ratio(1, of)
    }

    /// Returns a delay of a request or an answer: a few milliseconds, now and then a lot more.
    fn delay(&self) -> Duration {
        let mut random = self.random.borrow_mut();
        let most = if random.random_ratio(1, 50) { 200 } else { 4 };
        Duration::from_millis(random.random_range(0..most))
    }

    /// Returns the decision on a request of a replica whose clock is ahead.
    async fn judge(&self, request: &VerifyRequest, ahead: u64) -> ServiceDecision {
        let policy = self.policies.find(&request.domain).unwrap();
        let counters = request.descriptors.iter().map(|entries| {
            let texts = entries.iter();
            let texts: Vec<_> = texts
                .map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() })
                .collect();
            let rule = policy.find(&texts, &mut Default::default()).unwrap();
            let Imposes::Limit(limit) = rule.imposes() else { panic!("{request:?}") };
            (limit.clone(), format!("{entries:?}"))
        });
        let counters: Vec<_> = counters.collect();
        if self.fault == Fault::ReadsBeforeItWrites {
            return self.read_and_write(&counters, request.hits).await;
        }
        let mut now = self.now() + ahead;
        if self.fault == Fault::ForgetsAtReload
            && self.reloaded.replace(now / SECOND) != now / SECOND
        {
            self.counters.replace(MemoryCounters::default());
        }
        let period = counters[0].0.windows().first().map_or(u64::MAX, |one| one.period().get());
        if self.fault == Fault::LateReset && now % period < period / 10 {
            now -= now % period + 1;
        }
        let is_free = self.fault == Fault::AdmitsTwice && self.chance(1000);
        let uncharged = if is_free { request.hits } else { 0 };
        let (hits, action) = match request.action {
            CallAction::Charge => (Hits::Charge(as_u32(request.hits - uncharged)), None),
            CallAction::Reserve { .. } | CallAction::Repeat { .. } => {
                self.reserved.borrow_mut().insert(request.hold.clone(), request.hits);
                (Hits::Charge(as_u32(request.hits)), Some(HoldAction::ReserveOnce))
            }
            CallAction::Extend { .. } => (Hits::Refund(0), Some(HoldAction::Extend)),
            CallAction::End { by, .. } | CallAction::EndAgain { by, .. } => {
                let action = match by {
                    HoldEnd::Commit if self.fault == Fault::ForgivesOverruns => {
                        let reserved = self.reserved.borrow()[&request.hold];
                        HoldAction::CommitEach(as_u32(request.hits.min(reserved)))
                    }
                    HoldEnd::Commit => HoldAction::CommitEach(as_u32(request.hits)),
                    HoldEnd::Cancel => HoldAction::Cancel,
                    HoldEnd::Settle => HoldAction::Settle,
                };
                (Hits::Refund(0), Some(action))
            }
        };
        let id = request.hold.as_bytes();
        let hold = action.map(|action| HoldRequest { id, action, ttl: None });
        let memory = MemoryRequest { now, hits, hold, counters: &counters };
        let outcomes = self.decide(&memory, request.action);
        let is_denied = outcomes.iter().any(|(is_allowed, _, _)| !is_allowed);
        let parts = outcomes.into_iter().zip(&counters).map(
            |((is_allowed, remaining, reset), (limit, _))| {
                let amount = limit.in_flight().or(limit.windows().first().map(Window::limit));
                let remaining = remaining + u64::from(self.fault == Fault::WrongRemaining);
                let remaining = remaining.saturating_sub(uncharged);
                let status =
                    LimitStatus { amount: amount.unwrap(), period: None, remaining, reset };
                DescriptorDecision { is_denied: !is_allowed, status: Some(status) }
            },
        );
        ServiceDecision { is_denied, descriptors: parts.collect() }
    }

    /// Decides a request by the counters in memory, with the faults of holds.
    fn decide(
        &self,
        request: &MemoryRequest<'_>,
        action: CallAction,
    ) -> Vec<(bool, u64, Option<u64>)> {
        let counters = self.counters.borrow();
        let is_ignored = match (self.fault, action) {
            (Fault::NeverEnds, CallAction::End { .. }) => self.chance(10),
            (Fault::CancelsNothing, CallAction::End { by: HoldEnd::Cancel, .. })
            | (Fault::ExtendsNothing, CallAction::Extend { .. }) => true,
            _ => false,
        };
        if is_ignored {
            return counters.decide(&MemoryRequest {
                hits: Hits::Refund(0),
                hold: None,
                ..*request
            });
        }
        let outcomes = counters.decide(request);
        if self.fault == Fault::ChargesDenied
            && outcomes.iter().any(|(is_allowed, _, _)| !is_allowed)
        {
            for ((is_allowed, _, _), counter) in outcomes.iter().zip(request.counters) {
                if *is_allowed {
                    let alone = std::slice::from_ref(counter);
                    counters.decide(&MemoryRequest { counters: alone, ..*request });
                }
            }
        }
        let cost = match request.hold.map(|hold| hold.action) {
            Some(HoldAction::CommitEach(cost)) => cost,
            Some(_) | None => 0,
        };
        let also = match (self.fault, action) {
            (Fault::CommitsTwice, CallAction::End { by: HoldEnd::Commit, .. })
            | (Fault::CommitsAgain, CallAction::EndAgain { by: HoldEnd::Commit, .. }) => {
                Hits::Charge(cost)
            }
            (Fault::CancelsTooMuch, CallAction::End { by: HoldEnd::Cancel, .. })
            | (Fault::CancelsAgain, CallAction::EndAgain { by: HoldEnd::Cancel, .. }) => {
                Hits::Refund(1)
            }
            (Fault::ChargesRepeats, CallAction::Repeat { .. }) if self.chance(10) => request.hits,
            _ => return outcomes,
        };
        let mut outcomes = counters.decide(&MemoryRequest { hits: also, hold: None, ..*request });
        for (is_allowed, _, _) in &mut outcomes {
            *is_allowed = true;
        }
        outcomes
    }

    async fn read_and_write(&self, counters: &[(Limit, String)], hits: u64) -> ServiceDecision {
        let windows = counters.iter().map(|(limit, name)| {
            let window = &limit.windows()[0];
            let period = window.period().get();
            (window.limit(), period, (name.clone(), self.now() / period))
        });
        let windows: Vec<_> = windows.collect();
        let used = windows.iter().map(|(_, _, place)| self.windows.borrow().get(place).copied());
        let used: Vec<u64> = used.map(Option::unwrap_or_default).collect();
        sleep(Duration::from_millis(3)).await;
        let mut is_denied = false;
        let parts = windows.into_iter().zip(used).map(|((amount, period, place), used)| {
            let is_over = used + hits > u64::from(amount);
            is_denied |= is_over;
            *self.windows.borrow_mut().entry(place).or_default() += if is_over { 0 } else { hits };
            let remaining = u64::from(amount).saturating_sub(used + hits);
            let reset = Some((period - self.now() % period) / SECOND);
            let status = Some(LimitStatus { amount, period: None, remaining, reset });
            DescriptorDecision { is_denied: is_over, status }
        });
        let descriptors = parts.collect();
        ServiceDecision { is_denied, descriptors }
    }
}

fn as_u32(hits: u64) -> u32 {
    hits.try_into().unwrap()
}

impl VerifiedService for ReplicaConnection {
    type Error = &'static str;

    async fn decide(
        &mut self,
        request: VerifyRequest,
        _: Duration,
    ) -> Result<ServiceDecision, &'static str> {
        sleep(self.service.delay()).await;
        if self.service.chance(self.service.lost) {
            return Err("the request was lost");
        }
        // Without the store, all is admitted; of charges, that would be a fault.
        if !request.action.is_charge() && self.service.chance(self.service.lost) {
            let descriptors = vec![DescriptorDecision::default(); request.descriptors.len()];
            return Ok(ServiceDecision { is_denied: false, descriptors });
        }
        let decision = self.service.judge(&request, self.ahead).await;
        sleep(self.service.delay()).await;
        if self.service.chance(self.service.lost) {
            return Err("the answer was lost");
        }
        Ok(decision)
    }
}

pub(super) fn policies(text: &str) -> PolicySet {
    let source = Source { name: "policy.yaml".to_owned(), text: text.to_owned() };
    tollgate_policy::load(&[source], &CompileOptions::default()).unwrap().policies
}

impl SimulatedRun {
    /// Returns the run.
    pub(super) fn run(&self) -> VerifyRun {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(self.drive())
    }

    async fn drive(&self) -> VerifyRun {
        let mut random = StdRng::seed_from_u64(self.seed);
        let epoch = START + random.random_range(0..86_400 * SECOND);
        let (rules, skipped) = rules_at(&policies(&self.policy), SKEW, epoch, &TargetKind::Service);
        assert_eq!(skipped, Vec::<String>::new());
        let mut run = VerifyRun::new(rules, skipped);
        run.epoch = epoch;
        run.random = StdRng::seed_from_u64(random.random());
        let service = Rc::new(SimulatedService {
            policies: policies(&self.served()),
            fault: self.fault,
            counters: RefCell::default(),
            reserved: RefCell::default(),
            windows: RefCell::default(),
            reloaded: Cell::default(),
            started: Instant::now(),
            epoch: run.epoch,
            lost: self.lost,
            random: RefCell::new(StdRng::seed_from_u64(random.random())),
        });
        if self.lost == 0 {
            let mut service = ReplicaConnection { service: Rc::clone(&service), ahead: 0 };
            run.probe("target", &mut service, DEADLINE).await.unwrap();
        }
        let clients = (0..self.clients).map(|target| {
            let ahead = random.random_range(0..=self.apart);
            let service = Rc::clone(&service);
            VerifyClient { target, service: ReplicaConnection { service, ahead } }
        });
        let clients: Vec<_> = clients.collect();
        let run = Rc::new(RefCell::new(run));
        let workload = Workload {
            duration: Duration::from_secs(self.seconds),
            rate: self.rate,
            deadline: DEADLINE,
            disturbance: None,
        };
        let local = tokio::task::LocalSet::new();
        local.run_until(workload.drive(clients, &run)).await;
        drop(local);
        Rc::into_inner(run).unwrap().into_inner()
    }

    /// Returns the policy that the service has.
    fn served(&self) -> String {
        if self.fault != Fault::OneMore {
            return self.policy.clone();
        }
        let mut served = String::new();
        for word in self.policy.split_inclusive(' ') {
            let amount = word.trim_end_matches([' ', ',']);
            let is_amount =
                ["requests_per_unit: ", "in_flight: "].iter().any(|key| served.ends_with(key));
            if is_amount {
                let one_more = amount.parse::<u32>().unwrap() + 1;
                served += &word.replace(amount, &one_more.to_string());
            } else {
                served += word;
            }
        }
        served
    }
}
