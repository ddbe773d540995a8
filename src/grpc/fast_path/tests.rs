#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::algorithm::time::Timestamp;
use crate::grpc::health::Health;
use crate::grpc::proto::auth::attribute_context::{self, HttpRequest};
use crate::grpc::proto::auth::{AttributeContext, CheckRequest, CheckResponse};
use crate::grpc::proto::rate_limit_descriptor::{Entry, RateLimitOverride};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use crate::grpc::request::RequestBounds;
use crate::grpc::response::AnswerStyle;
use crate::grpc::rights::Allowance;
use crate::grpc::server::{GrpcServices, MessageBounds, Offered};
use crate::grpc::service::gateway::TrustedGateways;
use crate::http2::Budget;
use crate::limiter::{InForce, Limiter, Modes};
use crate::policy::{self, CompileOptions, Source};
use crate::store::any::AnyStore;
use crate::store::clock::{ManualClock, SystemClock};
use crate::store::layer::Layered;
use crate::store::memory::{Bounds, MemoryStore};
use crate::telemetry::metrics::Metrics;

type ManualMemory = Layered<Arc<MemoryStore<Arc<ManualClock>>>>;

const MAX_MESSAGE: usize = 200;
const POLICY: &str = "
domain: a
requests:
  - name: all
    descriptors:
      - entries: { user: { header: x-user } }
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3, name: daily }
  - key: burst
    rate_limit: { algorithm: gcra, unit: minute, requests_per_unit: 2 }
    metadata: { tier: gold }
  - key: free
    rate_limit: { unlimited: true }
";

/// Creates a service with counters of its own.
fn context(style: AnswerStyle, rights: DomainRights) -> Arc<CallContext<ManualMemory>> {
    let source = Source { name: "test.yaml".into(), text: POLICY.to_owned() };
    let loaded = policy::load(&[source], &CompileOptions::default())
        .unwrap_or_else(|report| panic!("{report}"));
    let metrics = Metrics::new();
    let in_force = InForce::new(Arc::clone(&metrics));
    in_force.install(loaded.policies);
    let clock = Arc::<ManualClock>::default();
    clock.set(Timestamp::from_micros(1_780_000_000_000_000));
    let store =
        Arc::new(MemoryStore::new(Bounds { max_bytes: 1 << 20, domain_max_bytes: 1 << 20 }, clock));
    let store = Layered::disabled(store, Arc::clone(&metrics.store));
    let limiter = Limiter::new(in_force, store, Modes::default());
    let bounds = RequestBounds { descriptors: 3, entries: 2, all_entries: 6 };
    let rls =
        Arc::new(Rls::new(limiter, Arc::clone(&metrics), bounds, style, Duration::from_secs(1)));
    let health = ready(Health::new());
    let bounds = MessageBounds { max_bytes: MAX_MESSAGE, timeout: Duration::from_secs(1) };
    let account = CallAccount::new(Arc::new(Budget::new(1 << 20)));
    let offered = Offered {
        bounds,
        allowances: Arc::new([]),
        gateways: TrustedGateways::default(),
        has_reflection: true,
    };
    let services = GrpcServices::new(Arc::clone(&rls), &health, offered, metrics).unwrap();
    Arc::new(services.context(rights, IsGateway(true), account))
}

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing here waits")
}

/// The status, headers, body and trailers that the client receives.
type CallParts = (http::StatusCode, HeaderMap, Bytes, HeaderMap);

fn parts(answer: Answer<Body>) -> CallParts {
    match answer {
        Answer::Message(exchange) => {
            let map = |name: &'static str, value| {
                HeaderMap::from_iter([(http::HeaderName::from_static(name), value)])
            };
            let head = map("content-type", HeaderValue::from_static("application/grpc"));
            let trailers = map("grpc-status", HeaderValue::from_static("0"));
            (http::StatusCode::OK, head, exchange.answer.into(), trailers)
        }
        Answer::Response(response) => {
            let (head, body) = response.into_parts();
            let collected = ready(body.collect()).unwrap();
            let trailers = collected.trailers().cloned().unwrap_or_default();
            (head.status, head.headers, collected.to_bytes(), trailers)
        }
    }
}

/// Returns the answers of a service by tonic, and of another one by the fast path.
fn answers(
    [by_tonic, short]: &[Arc<CallContext<ManualMemory>>; 2],
    head: &CallHead,
    request: &[u8],
) -> [CallParts; 2] {
    let exchange = || Exchange { request: request.to_vec(), answer: Vec::new() };
    [
        parts(ready(answer_by_tonic(Arc::clone(by_tonic), head.clone(), exchange()))),
        parts(ready(answer(Arc::clone(short), head.clone(), exchange()))),
    ]
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// Returns an encoded request.
fn asking(descriptors: Vec<RateLimitDescriptor>) -> Vec<u8> {
    RateLimitRequest { domain: "a".to_owned(), descriptors, hits_addend: 0 }.encode_to_vec()
}

fn of_ann(key: &'static str) -> RateLimitDescriptor {
    let entries = vec![Entry { key: key.into(), value: "ann".into() }];
    RateLimitDescriptor { entries, ..Default::default() }
}

fn entries() -> impl Strategy<Value = Entry> {
    let key = prop::sample::select(vec!["user", "burst", "free", "other"]);
    let value = prop::collection::vec(prop::sample::select(vec![b'a', b'b', 0xff, 0]), 0..3);
    (key, value).prop_map(|(key, value)| Entry { key: key.into(), value: value.into() })
}

fn requests() -> impl Strategy<Value = RateLimitRequest> {
    let limit = prop::option::of((0u32..3, 0i32..8, prop::option::of(0u32..3)));
    let hits = prop::option::of(prop_oneof![4 => 0u64..4, 1 => any::<u64>()]);
    let descriptor = (
        prop::collection::vec(entries(), 0..4),
        prop::option::weighted(0.1, limit),
        hits,
        any::<bool>(),
    );
    let descriptor = descriptor.prop_map(|(entries, limit, hits_addend, is_negative_hits)| {
        RateLimitDescriptor {
            entries,
            limit: limit.flatten().map(|(requests_per_unit, unit, unit_multiplier)| {
                RateLimitOverride { requests_per_unit, unit, unit_multiplier }
            }),
            hits_addend,
            is_negative_hits: is_negative_hits && hits_addend.is_some(),
        }
    });
    let domain = prop::sample::select(vec!["a", "a", "a", "b", ""]);
    (domain, prop::collection::vec(descriptor, 0..5), 0u32..3).prop_map(
        |(domain, descriptors, hits_addend)| RateLimitRequest {
            domain: domain.to_owned(),
            descriptors,
            hits_addend,
        },
    )
}

/// Generates encoded requests, some with a changed byte that makes them invalid.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (requests(), changes).prop_map(|(request, change)| {
        let mut message = request.encode_to_vec();
        if let Some((at, byte)) = change.filter(|_| !message.is_empty()) {
            *at.get_mut(&mut message) = byte;
        }
        message
    })
}

fn heads() -> impl Strategy<Value = CallHead> {
    let timeout = prop::option::of(prop::sample::select(vec![
        "20m",
        "0n",
        "1H",
        "x",
        "99999999S",
        "123456789S",
        "",
    ]));
    timeout.prop_map(|timeout| {
        let mut fields = HeaderFields::default();
        timeout.iter().for_each(|timeout| fields.add(b"grpc-timeout", timeout.as_bytes(), 1 << 10));
        CallHead::read(UnaryMethod::ShouldRateLimit, &fields, false)
    })
}

proptest! {
    /// Compares the fast path with tonic's service over a series of calls; each has counters of its
    /// own.
    #[test]
    fn the_shortcut_answers_as_tonic_does(
        calls in prop::collection::vec((messages(), heads()), 1..12),
        dynamic_metadata in any::<bool>(),
        is_restricted in any::<bool>(),
    ) {
        let style = AnswerStyle { dynamic_metadata, ..AnswerStyle::default() };
        let rights = if is_restricted { DomainRights::of(&[Allowance::parse("*=b").unwrap()], &[], None) } else { DomainRights::All };
        let both = [(); 2].map(|()| context(style.clone(), rights.clone()));
        for (message, head) in calls {
            let [expected, found] = answers(&both, &head, &framed(&message));
            prop_assert_eq!(found, expected, "{:?}", RateLimitRequest::decode(message.as_slice()));
        }
    }
}

#[test]
fn a_body_of_one_message_is_distinguished_from_none_or_several() {
    for (body, is_one, has_more) in [
        (&[][..], false, false),
        (&[0, 0, 0, 0], false, false),
        (&[0, 0, 0, 0, 0], true, false),
        (&[0, 0, 0, 0, 2, 7], false, false),
        (&[0, 0, 0, 0, 2, 7, 8], true, false),
        (&[1, 0, 0, 0, 2, 7, 8], false, false),
        (&[0, 0, 0, 0, 2, 7, 8, 9], false, true),
        (&[0, 0, 0, 0, 3, 7, 8, 9], false, false),
    ] {
        assert_eq!(
            (is_one_message(body, 2), has_more_messages(body)),
            (is_one, has_more),
            "{body:?}"
        );
    }
}

/// Checks the size of a call that waits for its store, since a connection is charged for it.
#[test]
fn a_call_that_waits_for_its_store_does_not_grow() {
    fn size_of_output<A, B, C, F>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }
    let size = size_of_output(answer::<Layered<AnyStore<SystemClock>>>);
    assert!(size <= 2_200, "{size} bytes");
}

#[test]
fn a_compressed_message_is_answered_like_any_other() {
    let message = asking(vec![RateLimitDescriptor::default()]);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, &message).unwrap();
    let mut compressed = framed(&encoder.finish().unwrap());
    compressed[0] = 1;
    let head = CallHead { encoding: Some(HeaderValue::from_static("gzip")), ..CallHead::default() };
    for (body, is_read) in
        [(framed(&message), true), (compressed.clone(), true), (compressed[..20].to_vec(), false)]
    {
        let both = [(); 2].map(|()| context(AnswerStyle::default(), DomainRights::All));
        let [tonic, own] = answers(&both, &head, &body);
        assert_eq!(tonic, own);
        assert_eq!(own.3.get("grpc-status").is_some_and(|status| status == "0"), is_read);
    }
}

#[test]
fn a_check_is_answered_as_by_tonic() {
    let message = |user: &str, path: &str| {
        let http = HttpRequest {
            path: path.to_owned(),
            headers: [("x-user".to_owned(), user.to_owned())].into(),
            ..Default::default()
        };
        let request = attribute_context::Request { http: Some(http), ..Default::default() };
        let attributes = AttributeContext { request: Some(request), ..Default::default() };
        CheckRequest { attributes: Some(attributes) }.encode_to_vec()
    };
    let denied = message("ann", "/a/..%2fb");
    let calls = [message("ann", "/"), Vec::new(), denied, vec![0xff]];
    let calls = calls.into_iter().chain(vec![message("ann", "/"); 4]);
    let both = [(); 2].map(|()| context(AnswerStyle::default(), DomainRights::All));
    let head = CallHead { method: UnaryMethod::Check, ..CallHead::default() };
    let mut statuses = Vec::new();
    for message in calls {
        let [tonic, own] = answers(&both, &head, &framed(&message));
        assert_eq!((tonic.0, &tonic.2), (own.0, &own.2));
        let status =
            |parts: &CallParts| parts.3.get("grpc-status").or(parts.1.get("grpc-status")).cloned();
        assert_eq!(status(&tonic), status(&own));
        statuses.extend(CheckResponse::decode(own.2.get(PREFIX..).unwrap_or_default()).ok());
    }
    let denials = statuses
        .iter()
        .filter(|answer| answer.status.as_ref().is_some_and(|status| status.code != 0));
    assert_eq!(denials.count(), 3, "an ambiguous path, and two over limit: {statuses:?}");
}

#[test]
fn a_call_of_many_descriptors_counts_as_work() {
    let work = |count: usize| {
        let mut context = context(AnswerStyle::default(), DomainRights::All);
        Arc::get_mut(&mut context).unwrap().max_message = 1 << 10;
        let request = framed(&asking(vec![of_ann("user"); count]));
        let exchange = Exchange { request, answer: Vec::new() };
        ready(answer(Arc::clone(&context), CallHead::default(), exchange));
        context.account.take_work()
    };
    assert_eq!(work(1), 0);
    assert_eq!(work(10), 0);
    assert!(work(50) >= 32 << 10, "half of a turn");
}

#[test]
fn a_call_that_need_not_wait_allocates_nothing() {
    let context = context(AnswerStyle::default(), DomainRights::All);
    let message = asking(vec![of_ann("burst")]);
    let mut exchanges: Vec<_> = (0..2)
        .map(|_| Exchange { request: framed(&message), answer: Vec::with_capacity(128) })
        .collect();
    // The first call creates the counter.
    let mut call =
        || drop(ready(answer(Arc::clone(&context), CallHead::default(), exchanges.pop().unwrap())));
    call();
    assert_eq!(allocation_counter::measure(call).count_total, 0);
}
