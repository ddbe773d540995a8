//! Calls by the workload of `verify` to processes that a test disturbs, and what its checker finds
//! in their history.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::join;
use tokio::task::LocalSet;
use tollgate::policy::{CompileOptions, Source, load};
use tollgate::verify::check::CheckedProperty;
use tollgate::verify::history::{CallAction, ObservedAnswer, ObservedCall};
use tollgate::verify::rules::{TargetKind, rules_of};
use tollgate::verify::run::VerifyRun;
use tollgate::verify::service::VerifiedService;
use tollgate::verify::workload::{VerifyClient, Workload};

use super::remaining;
use crate::support::rls::Client;
use crate::support::{TEST_TIMEOUT, becomes};

/// Difference between clocks in milliseconds that is allowed for: all are of this machine.
const SKEW_MS: u64 = 50;

/// Returns a run without calls, of all rules of a policy.
pub(super) fn run_of(policy: &str) -> VerifyRun {
    let source = Source { name: "policy.yaml".to_owned(), text: policy.to_owned() };
    let policies = load(&[source], &CompileOptions::default()).unwrap().policies;
    let (rules, skipped) = rules_of(&policies, SKEW_MS, &TargetKind::Service);
    assert_eq!(skipped, [""; 0]);
    VerifyRun::new(rules, skipped)
}

/// Sends requests for some time while `disturb` acts, and returns its result.
pub(super) async fn drive<S: VerifiedService + 'static, T>(
    run: VerifyRun,
    workload: &Workload,
    clients: impl IntoIterator<Item = S>,
    disturb: impl AsyncFnOnce(&RefCell<VerifyRun>) -> T,
) -> (VerifyRun, T) {
    let clients = clients.into_iter().map(|service| VerifyClient { target: 0, service });
    let run = Rc::new(RefCell::new(run));
    let local = LocalSet::new();
    let both = join(workload.drive(clients.collect(), &run), disturb(&run));
    let ((), result) = local.run_until(both).await;
    drop(local);
    (Rc::into_inner(run).unwrap().into_inner(), result)
}

/// Waits for so many answers, or until a time.
pub(super) async fn answered(run: &RefCell<VerifyRun>, more: usize, until: Instant) {
    let known = || run.borrow().calls.iter().filter(|call| !call.is_unknown()).count();
    let enough = known() + more;
    let is_enough = || std::future::ready(known() >= enough || Instant::now() >= until);
    becomes("clients continue", TEST_TIMEOUT, is_enough, |enough| *enough).await;
}

/// Returns the key and the value of a counter.
pub(super) fn name_of(run: &VerifyRun, counter: usize) -> (String, String) {
    let name = run.counter_name(counter).unwrap();
    let (key, value) = name.strip_prefix("test ").unwrap().split_once('=').unwrap();
    (key.to_owned(), value.to_owned())
}

/// Adds a peek of each counter.
pub(super) async fn peek(run: &mut VerifyRun, client: &Client) {
    let now = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros().try_into().unwrap();
    for counter in 0..run.counters.len() {
        let (key, value) = name_of(run, counter);
        let begin = now();
        let remaining = Some(remaining(client, &key, &value).await.into());
        run.calls.push(ObservedCall {
            counter,
            request: usize::MAX,
            target: 0,
            action: CallAction::Charge,
            hits: 0,
            begin,
            end: now(),
            answer: ObservedAnswer::Admitted { remaining, reset: None },
        });
    }
}

/// Returns an example of each of these properties that the history contradicts.
pub(super) fn contradictions(run: &VerifyRun, properties: &[CheckedProperty]) -> Vec<String> {
    let checker = run.check(SKEW_MS);
    let results = checker.results().iter();
    let results = results.filter(|result| properties.contains(&result.property));
    let found = results.filter_map(|result| {
        let example = result.example.as_ref()?;
        let counter = run.counter_name(example.calls.first()?.counter)?;
        Some(format!("{:?} of {counter}: {example:#?}", result.property))
    });
    found.collect()
}

/// Returns the workload for some time.
pub(super) fn workload(duration: Duration, rate: u32, deadline: Duration) -> Workload {
    Workload { duration, rate, deadline, disturbance: None }
}
