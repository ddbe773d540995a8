//! Buckets beyond the bounds: answered by each report, with nothing kept of them.

use super::admitted::charged;
use super::buckets::MAX_BUCKETS;
use super::*;
use crate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use crate::grpc::proto::quota::rate_limit_quota_response::bucket_action::BucketAction as Action;
use crate::grpc::proto::rate_limit_strategy::{BlanketRule, Strategy};
use crate::rlqs::terms::BucketTerms;

/// Returns the bucket of an action, and its answer: a rule with its time to live, or that the
/// bucket is abandoned.
fn answer(action: &BucketAction) -> (&str, Option<(BlanketRule, i64)>) {
    let tenant = action.bucket_id.as_ref().unwrap().bucket["tenant"].as_str();
    let Some(Action::QuotaAssignmentAction(assignment)) = &action.bucket_action else {
        assert!(matches!(action.bucket_action, Some(Action::AbandonAction(_))), "{action:?}");
        return (tenant, None);
    };
    let strategy = assignment.rate_limit_strategy.as_ref().unwrap().strategy.as_ref();
    let Some(Strategy::BlanketRule(rule)) = strategy else { panic!("{strategy:?}") };
    let ttl = assignment.assignment_time_to_live.as_ref().unwrap().seconds;
    (tenant, Some((BlanketRule::try_from(*rule).unwrap(), ttl)))
}

/// Sends a report of one bucket, and returns the answer.
async fn answer_to(
    test: &mut TestSession,
    tenant: &str,
    usage: BucketUsage,
) -> Option<(BlanketRule, i64)> {
    test.report_usage(&[tenant.to_owned()], usage);
    let response = tokio::time::timeout(SECOND, test.session.next()).await.unwrap().unwrap();
    let response = RateLimitQuotaResponse::decode(&response.unwrap()[PREFIX..]).unwrap();
    let [action] = response.bucket_action.as_slice() else { panic!("{response:?}") };
    let (answered, answer) = answer(action);
    assert_eq!(answered, tenant);
    answer
}

/// Returns a session that has as many buckets as it may.
fn full(policy: &str) -> TestSession {
    let mut test = TestSession::new(WIDE);
    install(&test.in_force, policy);
    for number in 0..u32::try_from(MAX_BUCKETS).unwrap() {
        let hold = test.session.account.hold(0).unwrap();
        let memory =
            BucketMemory { _hold: hold, want: ProxyWant::default(), lent: None, counter: None };
        test.session.rls.metrics.loans.quotas.buckets.inc();
        test.session.stream.open(&number.to_be_bytes(), BucketTerms::Open, memory);
    }
    test
}

#[tokio::test(start_paused = true)]
async fn a_busy_bucket_beyond_the_bounds_is_denied_and_an_idle_one_is_abandoned() {
    let mut test = TestSession::new(WIDE);
    let long = "x".repeat(5_000);
    let busy = BucketUsage { allowed: 0, denied: 1 };
    for _ in 0..2 {
        let denied = Some((BlanketRule::DenyAll, 300));
        assert_eq!(answer_to(&mut test, &long, busy).await, denied, "each report is answered");
    }
    assert_eq!(answer_to(&mut test, &long, BucketUsage::default()).await, None);
    assert_eq!(test.session.rls.metrics.loans.quotas.refused.get(), 3);
    install(&test.in_force, &format!("rlqs: {{ unsupported: allow }}{POLICY}"));
    assert_eq!(answer_to(&mut test, &long, busy).await, Some((BlanketRule::AllowAll, 300)));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_beyond_the_number_is_answered_by_its_rule_and_charged() {
    let deny = Some((BlanketRule::DenyAll, 300));
    let allow = Some((BlanketRule::AllowAll, 300));
    let ban = POLICY.replace("1000", "0");
    let free = "domain: test\ndescriptors: [{ key: other, rate_limit: { unlimited: true } }]\n";
    let lenient = format!("rlqs: {{ unsupported: allow }}{POLICY}");
    let usage = BucketUsage { allowed: 7, denied: 3 };
    for (policy, expected, hits) in [
        (POLICY, deny, Some(7)),
        (lenient.as_str(), allow, Some(7)),
        (super::admitted::SHADOW, allow, Some(7)),
        (ban.as_str(), deny, None),
        (free, allow, None),
    ] {
        let mut test = full(policy);
        assert_eq!(answer_to(&mut test, "a", usage).await, expected, "{policy}");
        if let Some(hits) = hits {
            assert_eq!(charged(&test.session.rls, "a").await, hits, "{policy}");
        }
        assert_eq!(test.session.stream.len(), MAX_BUCKETS);
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_many_buckets_beyond_the_bounds_is_answered_in_turn() {
    let mut test = full(POLICY);
    test.delivery.set_room(1_000);
    let tenants = tenants(100);
    let mut answered = std::collections::BTreeSet::new();
    let mut messages = 0;
    while answered.len() < tenants.len() {
        test.report(&tenants, 1);
        let response = test.next().unwrap().unwrap();
        assert!(response.encoded_len() <= 1_000);
        answered.extend(response.bucket_action.iter().map(|action| answer(action).0.to_owned()));
        messages += 1;
    }
    assert!(messages <= 8, "{messages} messages");
}

#[tokio::test(start_paused = true)]
async fn without_memory_for_clients_a_bucket_is_answered_too() {
    let mut test = TestSession::new(WIDE);
    let budget = Arc::clone(&test.budget);
    let _held = budget.hold(BUDGET / 4 * 3 - budget.used()).unwrap();
    let busy = BucketUsage { allowed: 0, denied: 1 };
    assert_eq!(answer_to(&mut test, "a", busy).await, Some((BlanketRule::DenyAll, 300)));
}
