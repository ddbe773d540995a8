//! Sessions without a connection: their room, acknowledgements and time are given.
#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]

mod admitted;
mod bounds;
mod gated;
mod returns;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use prost::Message as _;

use self::gated::GatedStore;
use super::*;
use crate::algorithm::time::Timestamp;
use crate::grpc::PREFIX;
use crate::grpc::proto::quota::rate_limit_quota_usage_reports::BucketQuotaUsage;
use crate::grpc::proto::quota::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use crate::grpc::request::RequestBounds;
use crate::grpc::response::AnswerStyle;
use crate::http2::{BodySender, Budget};
use crate::limiter::{BucketTarget, InForce, Limiter, Modes};
use crate::policy::{self, CompileOptions, Source};
use crate::rlqs::terms::BucketUsage;
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::telemetry::metrics::Metrics;

type TestService = Rls<Layered<GatedStore>>;

const POLICY: &str = "
domain: test
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 1s, rlqs: { ttl: 15s, size: 10% } } }
";
/// Room for a response with any number of buckets of these tests.
const WIDE: usize = 1 << 18;
/// Time of the store's clock, in microseconds.
const BEGIN: u64 = 1_780_000_000_000_000;
/// Memory for clients. Calls may hold three quarters of it, streams half.
const BUDGET: usize = 1 << 24;
const SECOND: Duration = Duration::from_secs(1);
/// More turns than any message of these tests takes.
const MAX_TURNS: usize = 1_000;

/// A session with the reports that its proxy sends.
struct TestSession {
    session: QuotaSession<GatedStore>,
    sender: BodySender,
    delivery: Delivery,
    in_force: Arc<InForce>,
    store: GatedStore,
    clock: Arc<ManualClock>,
    /// Memory of all clients.
    budget: Arc<Budget>,
}

fn install(in_force: &InForce, text: &str) {
    let source = Source { name: "test.yaml".into(), text: text.to_owned() };
    let loaded = policy::load(&[source], &CompileOptions::default());
    in_force.install(loaded.unwrap_or_else(|report| panic!("{report}")).policies);
}

impl TestSession {
    fn new(room: usize) -> Self {
        let metrics = Metrics::new();
        let in_force = InForce::new(Arc::clone(&metrics));
        install(&in_force, POLICY);
        let clock = Arc::<ManualClock>::default();
        clock.set(Timestamp::from_micros(BEGIN));
        let bounds = Bounds { max_bytes: 1 << 22, domain_max_bytes: 1 << 22 };
        let gated = GatedStore::new(MemoryStore::new(bounds, Arc::clone(&clock)));
        let store = Layered::disabled(gated.clone(), Arc::clone(&metrics.store));
        let limiter = Limiter::new(Arc::clone(&in_force), store, Modes::default());
        let bounds = RequestBounds { descriptors: 3, entries: 2, all_entries: 6 };
        let rls = Rls::new(limiter, metrics, bounds, AnswerStyle::default(), SECOND);
        let budget = Arc::new(Budget::new(BUDGET));
        let account = CallAccount::new(Arc::clone(&budget));
        let (sender, body) =
            RequestBody::channel(Waker::noop().clone(), account.clone(), Some(1 << 20));
        let delivery = Delivery::new();
        delivery.set_room(room);
        let caller = QuotaCaller {
            rights: DomainRights::of(&[], &[], None),
            delivery: delivery.clone(),
            account,
            message_timeout: SECOND,
        };
        let session = QuotaSession::new(Arc::new(rls), caller, body);
        Self { session, sender, delivery, in_force, store: gated, clock, budget }
    }

    /// Sends a report of buckets, each with this number of denied requests.
    fn report(&self, tenants: &[String], denied: u64) {
        self.report_usage(tenants, BucketUsage { allowed: 0, denied });
    }

    fn report_usage(&self, tenants: &[String], usage: BucketUsage) {
        self.send(&message_of(tenants, usage));
    }

    fn send(&self, message: &[u8]) {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.sender.send(&[&[0][..], &length, message].concat()).unwrap();
    }

    /// Returns the next response if the session has one now, in however many turns.
    fn next(&mut self) -> Option<Result<RateLimitQuotaResponse, Status>> {
        let mut next = pin!(self.session.next());
        let mut poll = || next.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let polled = (0..MAX_TURNS).map(|_| poll()).find(Poll::is_ready);
        match polled.unwrap_or(Poll::Pending) {
            Poll::Ready(Ok(response)) => {
                let response = response.unwrap();
                Some(Ok(RateLimitQuotaResponse::decode(&response[PREFIX..]).unwrap()))
            }
            Poll::Ready(Err(status)) => Some(Err(status)),
            Poll::Pending => None,
        }
    }

    /// Returns the number of tenants with a loan in the next response.
    fn loans(&mut self) -> usize {
        let Some(Ok(response)) = self.next() else { return 0 };
        response.bucket_action.len() / 2
    }

    /// Returns the hits that proxies hold of the rule.
    fn held(&self) -> i64 {
        let held = self.session.rls.metrics.loans.held("test", "tenant");
        held.map_or(0, |held| held.proxies)
    }

    fn lent(&self) -> u64 {
        self.session.rls.metrics.loans.quotas.lent.get()
    }
}

/// Returns an encoded report of buckets, each with the same requests.
fn message_of(tenants: &[String], usage: BucketUsage) -> Vec<u8> {
    let usages = tenants.iter().map(|tenant| BucketQuotaUsage {
        bucket_id: Some(BucketId { bucket: [("tenant".to_owned(), tenant.clone())].into() }),
        num_requests_allowed: usage.allowed,
        num_requests_denied: usage.denied,
        ..BucketQuotaUsage::default()
    });
    let bucket_quota_usages = usages.collect();
    let message = RateLimitQuotaUsageReports { domain: "test".to_owned(), bucket_quota_usages };
    message.encode_to_vec()
}

fn tenants(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("tenant-{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_arrived_late_ends_the_stream() {
    for (millis, is_late) in [(1_900, false), (2_100, true)] {
        let mut test = TestSession::new(WIDE);
        test.report(&tenants(1), 1);
        assert_eq!(test.loans(), 1);
        let sent = instant();
        assert!(test.delivery.take_ping(1).is_some());
        // It arrives, and the session is polled before its own timer fires.
        assert!(test.delivery.acknowledge(1, sent + Duration::from_millis(millis)));
        let end = test.next();
        assert_eq!(end.is_some_and(|end| end.is_err()), is_late, "after {millis} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_has_what_finds_room_and_nothing_else_is_charged() {
    let mut test = TestSession::new(600);
    test.report(&tenants(9), 1);
    assert_eq!(test.loans(), 3);
    assert_eq!((test.lent(), test.session.rls.metrics.loans.quotas.unsent.get()), (150, 0));
    test.delivery.set_room(10);
    tokio::time::advance(SECOND).await;
    assert_eq!((test.loans(), test.lent()), (0, 150), "no room for a single bucket");
    test.delivery.set_room(WIDE);
    tokio::time::advance(SECOND / 2).await;
    assert_eq!((test.loans(), test.lent()), (6, 450));
}

#[tokio::test(start_paused = true)]
async fn more_buckets_than_fit_one_message_of_the_past_go_into_one_response() {
    let mut test = TestSession::new(WIDE);
    test.report(&tenants(600), 1);
    assert_eq!(test.loans(), 600);
    assert!(test.session.pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn loans_that_find_no_room_are_not_kept_for_later() {
    let mut test = TestSession::new(WIDE);
    let work = opened(&mut test, 600).await;
    assert_eq!(work, 600);
    test.delivery.set_room(1_000);
    let sent = test.session.response().unwrap();
    assert!(sent.len() <= 1_000);
    assert!(test.session.pending.is_empty());
    assert_eq!(test.session.rls.metrics.loans.quotas.unsent.get(), 1);
}

/// Lets a session lend hits to buckets, without sending them. Returns the number of loans.
async fn opened(test: &mut TestSession, count: usize) -> usize {
    test.session.domain = Some("test".into());
    let rls = Arc::clone(&test.session.rls);
    let snapshot = rls.limiter.snapshot();
    let live = snapshot.as_deref().unwrap();
    let mut wants = Wants::new();
    for tenant in tenants(count) {
        let mut id = Vec::new();
        for text in ["tenant", &tenant] {
            id.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
            id.extend_from_slice(text.as_bytes());
        }
        let place = test.session.place_of(live, &id).unwrap();
        test.session.advance(place, instant(), &mut wants);
    }
    test.session.run(live, wants).await;
    test.session.pending.len()
}

#[tokio::test(start_paused = true)]
async fn a_loan_that_waited_is_sent_for_the_time_that_is_left() {
    let mut test = TestSession::new(WIDE);
    opened(&mut test, 1).await;
    tokio::time::advance(3 * SECOND).await;
    assert!(test.session.response().is_some(), "a day has room for 15 s");
    opened(&mut test, 2).await;
    tokio::time::advance(24 * 3_600 * SECOND).await;
    assert!(test.session.response().is_none(), "the window is over");
    assert!(test.session.pending.is_empty());
}

#[tokio::test(start_paused = true)]
async fn hits_of_a_replaced_limit_are_given_back_to_its_counter_and_to_no_other() {
    // An edit leaves the counter what it is, unless that is of other windows.
    for (was, is, is_given_back) in [
        ("1000", "2000", true),
        ("1000", "0", false),
        ("rate_limit:", "shadow_mode: true\n    rate_limit:", true),
        ("lease:", "record: [user], lease:", true),
        ("unit: day", "unit: hour", false),
        ("key: tenant", "key: other", false),
    ] {
        let mut test = TestSession::new(WIDE);
        opened(&mut test, 1).await;
        let (place, action) = test.session.pending.pop().unwrap();
        let PendingAction::Assign(Assignment::Loan(loan, _)) = action else { panic!("{action:?}") };
        install(&test.in_force, &POLICY.replace(was, is));
        assert_eq!(test.session.give_back(place, loan.receipt), is_given_back, "{is}");
        let stranded = test.session.rls.metrics.loans.quotas.stranded.get();
        assert_eq!(stranded, if is_given_back { 0 } else { loan.receipt.hits });
    }
}

#[tokio::test(start_paused = true)]
async fn a_report_after_a_reload_is_handled_by_the_new_policies() {
    let mut test = TestSession::new(WIDE);
    test.report(&tenants(1), 1);
    assert_eq!(test.loans(), 1);
    install(&test.in_force, &POLICY.replace("1000", "0"));
    test.report(&tenants(1), 1);
    let response = test.next().unwrap().unwrap();
    assert_eq!(response.bucket_action.len(), 1, "DENY_ALL");
}

#[tokio::test(start_paused = true)]
async fn a_rule_shows_the_hits_that_proxies_hold_until_they_report_or_their_stream_ends() {
    let mut test = TestSession::new(WIDE);
    test.report(&tenants(2), 1);
    assert_eq!((test.loans(), test.held()), (2, 100));
    test.report_usage(&tenants(1), BucketUsage { allowed: 30, denied: 0 });
    while test.next().is_some() {}
    let lent = i64::try_from(test.lent()).unwrap();
    assert!(lent > 100, "another loan for the bucket with requests");
    assert_eq!(test.held(), lent - 30);
    let metrics = Arc::clone(&test.session.rls.metrics);
    drop(test);
    assert_eq!(metrics.loans.held("test", "tenant").unwrap().proxies, 0);
}
