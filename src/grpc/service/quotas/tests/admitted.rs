//! Hits that were admitted without a loan are charged, also if the stream ends meanwhile.

use super::*;
use crate::algorithm::judge::Hits;
use crate::descriptor::Entry;
use crate::store::{Check, Lender as _};

pub(super) const SHADOW: &str = "
domain: test
descriptors:
  - key: tenant
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 1s, rlqs: { ttl: 15s, size: 10% } } }
";
/// Buckets of a report: more than are charged at once.
const BUCKETS: usize = 100;

/// Returns the hits charged to the counter of a tenant.
pub(super) async fn charged(service: &TestService, tenant: &str) -> u64 {
    let snapshot = service.limiter.snapshot();
    let entry = Entry { key: b"tenant", value: tenant.as_bytes() };
    let target = service.limiter.bucket_target(snapshot.as_deref().unwrap(), "test", &[entry]);
    let (BucketTarget::Shadow(target) | BucketTarget::Limited(target, _)) = &target else {
        panic!("{target:?}")
    };
    let one = Check { hits: Hits::Charge(1), ..target.check() };
    let lent = service.limiter.store().backend().store.lend(&one, instant()).await.unwrap();
    999 - lent.report.remaining
}

/// Sends a report of tenants whose hits were allowed, to a store that does not answer.
fn reported(test: &mut TestSession) -> Vec<String> {
    test.store.gate.send_replace(false);
    let tenants = tenants(BUCKETS);
    test.report_usage(&tenants, BucketUsage { allowed: 7, denied: 0 });
    assert!(test.next().is_none(), "it waits for the store");
    tenants
}

#[tokio::test(start_paused = true)]
async fn hits_are_charged_although_the_stream_has_ended() {
    for policy in [SHADOW, POLICY] {
        let mut test = TestSession::new(WIDE);
        install(&test.in_force, policy);
        let tenants = reported(&mut test);
        let service = Arc::clone(&test.session.rls);
        let gate = test.store.gate.clone();
        let budget = Arc::clone(&test.budget);
        drop(test);
        assert!(budget.used() >= BUCKETS << 10, "of what is to be charged");
        gate.send_replace(true);
        service.limiter.store().settled().await;
        for tenant in tenants {
            assert_eq!(charged(&service, &tenant).await, 7, "{tenant}");
        }
        assert_eq!(budget.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_report_does_not_undo_those_before_it() {
    let mut test = TestSession::new(WIDE);
    install(&test.in_force, SHADOW);
    let usage = BucketUsage { allowed: 7, denied: 0 };
    let mut message = message_of(&tenants(1), usage);
    message.extend_from_slice(b"\x12\x03\x0a\x05\x0a");
    test.send(&message);
    assert!(test.next().unwrap().is_err());
    let service = Arc::clone(&test.session.rls);
    drop(test);
    service.limiter.store().settled().await;
    assert_eq!(charged(&service, "tenant-0").await, 7);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_within_a_message_charges_what_it_has_read() {
    let mut test = TestSession::new(WIDE);
    install(&test.in_force, SHADOW);
    test.report_usage(&tenants(500), BucketUsage { allowed: 7, denied: 0 });
    // The first turn, in which a part of the message is read.
    let polled = pin!(test.session.next()).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending() && (1..500).contains(&test.session.admitted.len()));
    let service = Arc::clone(&test.session.rls);
    drop(test);
    service.limiter.store().settled().await;
    assert_eq!(charged(&service, "tenant-0").await, 7);
    assert_eq!(charged(&service, "tenant-499").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_delays_the_end_of_the_process_for_two_seconds() {
    let mut test = TestSession::new(WIDE);
    install(&test.in_force, SHADOW);
    reported(&mut test);
    let service = Arc::clone(&test.session.rls);
    let budget = Arc::clone(&test.budget);
    let begun = instant();
    drop(test);
    service.limiter.store().settled().await;
    let waited = instant().duration_since(begun);
    assert!((2 * SECOND..2 * SECOND + SECOND / 10).contains(&waited), "{waited:?}");
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn charges_under_way_are_bounded_by_the_memory_for_clients() {
    let mut test = TestSession::new(WIDE);
    install(&test.in_force, SHADOW);
    let budget = Arc::clone(&test.budget);
    // The first report opens the buckets.
    test.report_usage(&tenants(BUCKETS), BucketUsage { allowed: 0, denied: 1 });
    assert!(test.next().is_some());
    let left = 20 << 10;
    let _held = budget.hold(BUDGET / 2 - budget.used() - left).unwrap();
    reported(&mut test);
    let refused = test.session.rls.metrics.loans.quotas.refused.get();
    assert!((81..BUCKETS as u64).contains(&refused), "{refused} of {BUCKETS}");
}
