//! Allocations of a decision: none. Decoding, the memory store and encoding use the stack and the
//! response buffer.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocation_counter::measure;
use prost::Message as _;
use tollgate::algorithm::time::Timestamp;
use tollgate::grpc::request::{self, RequestBounds};
use tollgate::grpc::response::{AnswerStyle, Receiver};
use tollgate::grpc::service::{Caller, CallerAnswer, Rls};
use tollgate::limiter::{InForce, Limiter, Modes};
use tollgate::policy::{CompileOptions, Source, load};
use tollgate::store::clock::ManualClock;
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::telemetry::metrics::Metrics;
use tollgate::telemetry::spans::{Sampler, Tracer};

use crate::support::rls::{descriptor, request};

type Service = Rls<Arc<MemoryStore<Arc<ManualClock>>>>;

#[test]
fn a_decision_allocates_nothing_whatever_the_algorithm() {
    for algorithm in ["fixed_window", "gcra"] {
        assert_eq!(
            allocations(
                &format!("algorithm: {algorithm}, unit: day, requests_per_unit: 1000"),
                1,
                CallerAnswer::Ok
            ),
            0,
            "{algorithm}"
        );
    }
}

#[test]
fn descriptors_beyond_the_bound_are_counted_without_memory() {
    let mut message = request(vec![]).encode_to_vec();
    // 2 MiB of empty descriptors, of 2 bytes each.
    message.extend([0x12, 0].repeat(1 << 20));
    let bounds = RequestBounds { descriptors: 64, entries: 32, all_entries: 2048 };
    let mut read = None;
    let allocated = measure(|| read = Some(request::read(&message, &bounds))).bytes_max;
    let error = read.unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "a request must have at most 64 descriptors (--max-descriptors), found 1048576"
    );
    assert!(allocated < 4_096, "{allocated} bytes");
}

#[test]
fn a_window_that_slides_allocates_only_when_it_grows() {
    for algorithm in ["sliding_window", "sliding_log"] {
        // The first request has allocated its list, with capacity for four.
        assert_eq!(
            allocations(
                &format!("algorithm: {algorithm}, unit: day, requests_per_unit: 1000"),
                1,
                CallerAnswer::Ok
            ),
            0,
            "{algorithm}"
        );
    }
}

#[test]
fn two_descriptors_allocate_nothing_and_more_allocate_a_list_each() {
    let of = |descriptors| {
        allocations("unit: day, requests_per_unit: 1000", descriptors, CallerAnswer::Ok)
    };
    // The list of the request and that of the statuses; from four on also that of the checks.
    // Larger inline capacities would increase the size of every call that waits.
    assert_eq!([of(2), of(3), of(4)], [0, 2, 3]);
}

#[test]
fn a_denial_allocates_nothing() {
    // The rest of the day.
    let denied = CallerAnswer::OverLimit { retry_after: Some(12_800) };
    assert_eq!(allocations("unit: day, requests_per_unit: 1", 1, denied), 0);
}

#[test]
fn a_descriptor_without_a_rule_allocates_nothing() {
    assert_eq!(allocations("unlimited: true", 2, CallerAnswer::Ok), 0);
}

#[test]
fn a_call_without_a_recorded_trace_allocates_nothing() {
    let (tracer, _spans) = Tracer::new(Sampler { by_parent: true, share: 0.0 }, Arc::default());
    let unsampled = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00".as_slice();
    for parent in [None, Some(unsampled)] {
        let mut is_recorded = true;
        let count = measure(|| is_recorded = tracer.begin(|_| parent).is_some());
        assert_eq!((is_recorded, count.count_total), (false, 0), "{parent:?}");
    }
}

/// Returns the allocations of the second of two identical requests with `descriptors` descriptors,
/// under a rule with the limit `what`.
fn allocations(what: &str, descriptors: usize, expected: CallerAnswer) -> u64 {
    let service = service(what);
    let names: Vec<String> = (0..descriptors).map(|number| format!("ann-{number}")).collect();
    let message =
        request(names.iter().map(|name| descriptor(&[("user", name)])).collect()).encode_to_vec();
    let answered = answer(&service, &message);
    assert_eq!(answered, CallerAnswer::Ok);
    let mut answered = None;
    let count = measure(|| answered = Some(answer(&service, &message)));
    assert_eq!(answered, Some(expected));
    // Excludes the response buffer, which the protocol layer owns.
    count.count_total - 1
}

fn answer(service: &Service, message: &[u8]) -> CallerAnswer {
    let mut answer = Vec::with_capacity(256);
    let time = Some(Duration::from_secs(1));
    let caller = Caller { time, receiver: Receiver::Proxy, ..service.http_caller() };
    let mut answering = pin!(service.answer(message, caller, None, &mut answer));
    match answering.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answered) => answered.unwrap(),
        Poll::Pending => panic!("the memory store never waits"),
    }
}

fn service(what: &str) -> Service {
    let text = format!("domain: test\ndescriptors:\n  - key: user\n    rate_limit: {{ {what} }}\n");
    let source = Source { name: "test.yaml".into(), text };
    let loaded =
        load(&[source], &CompileOptions::default()).unwrap_or_else(|report| panic!("{report}"));
    let metrics = Metrics::new();
    let in_force = InForce::new(Arc::clone(&metrics));
    in_force.install(loaded.policies);
    let clock = Arc::<ManualClock>::default();
    clock.set(Timestamp::from_micros(1_780_000_000_000_000));
    let store = MemoryStore::new(Bounds { max_bytes: 1 << 20, domain_max_bytes: 1 << 20 }, clock);
    let limiter = Limiter::new(in_force, Arc::new(store), Modes::default());
    let bounds = RequestBounds { descriptors: 16, entries: 8, all_entries: 128 };
    Rls::new(limiter, metrics, bounds, AnswerStyle::default(), Duration::from_secs(1))
}
