//! The workload, with a service in this process, in paused time.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;

use tollgate_policy::{CompileOptions, Imposes, PolicySet, Source};

use super::services::MemoryService;
use crate::check::CheckedProperty;
use crate::history::ObservedAnswer;
use crate::rules::rules_of;
use crate::run::{VerifyRun, epoch_micros};
use crate::service::{LimitStatus, ServiceDecision, VerifiedService, VerifyRequest};
use crate::workload::{VerifyClient, Workload};

/// Difference between clocks that is allowed for, in milliseconds.
const SKEW: u64 = 1000;
/// Hits per day of the policy that is verified.
const AMOUNT: u32 = 10;

/// Connections to one service.
impl VerifiedService for Rc<MemoryService> {
    type Error = Infallible;

    async fn decide(
        &mut self,
        request: VerifyRequest,
        _: Duration,
    ) -> Result<ServiceDecision, Infallible> {
        let [(_, value)] = &request.entries[..] else { panic!("{request:?}") };
        let answer = self.decide_for(value, epoch_micros(), request.hits);
        let (ObservedAnswer::Admitted { remaining, reset }
        | ObservedAnswer::Denied { remaining, reset }) = answer
        else {
            panic!("{answer:?}")
        };
        let status =
            LimitStatus { amount: AMOUNT, period: None, remaining: remaining.unwrap(), reset };
        let is_denied = matches!(answer, ObservedAnswer::Denied { .. });
        Ok(ServiceDecision { is_denied, status: Some(status) })
    }
}

fn policies(amount: u32) -> PolicySet {
    let limit = format!("{{ unit: day, requests_per_unit: {amount}, charge: admitted }}");
    let text = format!("domain: test\ndescriptors:\n- key: user\n  rate_limit: {limit}\n");
    let source = Source { name: "policy.yaml".to_owned(), text };
    tollgate_policy::load(&[source], &CompileOptions::default()).unwrap().policies
}

/// Returns a run of 16 clients against a service with a limit of this amount.
async fn run(amount: u32) -> VerifyRun {
    let (rules, skipped) = rules_of(&policies(AMOUNT), SKEW);
    assert_eq!((rules.len(), skipped.len()), (1, 0), "{skipped:?}");
    let served = policies(amount);
    let limits = served.rules().filter_map(|rule| match rule.imposes() {
        Imposes::Limit(limit) => Some(limit.clone()),
        Imposes::Nothing | Imposes::Unlimited => None,
    });
    let mut service = Rc::new(MemoryService::new(limits.last().unwrap()));
    let mut run = VerifyRun::new(rules, skipped);
    let deadline = Duration::from_secs(1);
    run.probe("target", &mut service, deadline).await.unwrap();
    let clients: Vec<_> =
        (0..16).map(|_| VerifyClient { target: 0, service: Rc::clone(&service) }).collect();
    let run = Rc::new(RefCell::new(run));
    let duration = Duration::from_secs(5);
    let workload = Workload { duration, rate: 200, deadline, disturbance: None };
    let local = tokio::task::LocalSet::new();
    local.run_until(workload.drive(clients, &run)).await;
    drop(local);
    Rc::into_inner(run).unwrap().into_inner()
}

#[tokio::test(start_paused = true)]
async fn a_service_that_keeps_its_limit_contradicts_nothing() {
    let run = run(10).await;
    assert!(run.calls.len() > 500 && run.never_reached().is_empty(), "{}", run.calls.len());
    let found = run.check(SKEW);
    assert!(found.results().iter().all(|result| result.contradictions == 0), "{found:?}");
    assert!(found.results().iter().all(|result| result.examined > 0), "{found:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_admits_more_is_found() {
    let checker = run(11).await.check(SKEW);
    let over = checker.results().iter().find(|one| one.property == CheckedProperty::NeverOver);
    assert!(over.is_some_and(|over| over.contradictions > 0), "{checker:?}");
}
