//! The same request by each protocol: RLS, `Check`, `/auth/NAME` and JSON.

use std::time::Duration;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::algorithm::time::Timestamp;
use crate::grpc::headers::HeaderStyle;
use crate::grpc::proto::auth::attribute_context::HttpRequest;
use crate::grpc::proto::auth::check_response::HttpResponse;
use crate::grpc::proto::auth::{AttributeContext, CheckRequest, CheckResponse, attribute_context};
use crate::grpc::proto::rate_limit_descriptor::Entry;
use crate::grpc::proto::rate_limit_response::Code as Overall;
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::grpc::request::RequestBounds;
use crate::grpc::response::{AnswerStyle, Receiver};
use crate::grpc::rights::DomainRights;
use crate::grpc::service::CallerAnswer;
use crate::limiter::{InForce, Limiter, Modes};
use crate::policy::{self, CompileOptions, PolicySet, Source};
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::telemetry::metrics::Metrics;
use std::sync::Arc;

type ManualRls = Rls<Arc<MemoryStore<Arc<ManualClock>>>>;

const BEGIN: u64 = 1_780_000_000_000_000;

fn ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing here waits")
}

fn compiled(name: &str, text: &str) -> PolicySet {
    let source = Source { name: name.to_owned(), text: text.to_owned() };
    let loaded = policy::load(&[source], &CompileOptions::default());
    loaded.unwrap_or_else(|report| panic!("{report}")).policies
}

/// Creates a service with counters of its own.
fn service(policies: PolicySet, clock: &Arc<ManualClock>) -> ManualRls {
    let metrics = Metrics::new();
    let in_force = InForce::new(Arc::clone(&metrics));
    in_force.install(policies);
    let bounds = Bounds { max_bytes: 1 << 22, domain_max_bytes: 1 << 22 };
    let store = Arc::new(MemoryStore::new(bounds, Arc::clone(clock)));
    let limiter = Limiter::new(in_force, store, Modes::default());
    let legacy = ["x-limit", "x-remaining", "x-reset"].map(str::to_owned);
    let headers = HeaderStyle { legacy: Some(legacy), ietf: true };
    let style = AnswerStyle { headers, ..AnswerStyle::default() };
    let bounds = RequestBounds { descriptors: 64, entries: 32, all_entries: 2_048 };
    Rls::new(limiter, metrics, bounds, style, Duration::from_secs(1))
}

/// The examples of policies, each with a mapping that takes the value of each key from a header.
struct Example {
    text: String,
    domain: String,
    /// Keys of each descriptor of the mapping.
    descriptors: Vec<Vec<String>>,
    /// Values that rules name, and one that none names.
    values: Vec<String>,
}

fn examples() -> Vec<Example> {
    let texts = [
        include_str!("../../../../config/policies/api-gateway.yaml"),
        include_str!("../../../../config/policies/llm-tokens.yaml"),
        include_str!("../../../../config/policies/login.yaml"),
        include_str!("../../../../config/policies/per-api-key.yaml"),
        include_str!("../../../../config/policies/tenants.yaml"),
        include_str!("../../../../config/policies/tiers.yaml"),
    ];
    texts.map(Example::of).into()
}

impl Example {
    fn of(text: &str) -> Self {
        let set = compiled("example.yaml", text);
        let mut descriptors = Vec::new();
        let mut values = vec!["other".to_owned()];
        for rule in set.rules() {
            let steps = rule.path().split(" > ");
            let steps = steps.map(|step| step.split_once('=').unwrap_or((step, "")));
            let (keys, named): (Vec<_>, Vec<_>) =
                steps.map(|(key, value)| (key.to_owned(), value.replace('*', "x"))).unzip();
            if !descriptors.contains(&keys) {
                descriptors.push(keys);
            }
            values.extend(named.into_iter().filter(|value| !value.is_empty()));
        }
        let mut text = text.to_owned();
        text.push_str("\nrequests:\n- name: all\n  descriptors:\n");
        for keys in &descriptors {
            let entries = keys.iter().map(|key| format!("{key}: {{ header: x-{key} }}"));
            text.push_str(&format!(
                "  - entries: {{ {} }}\n",
                entries.collect::<Vec<_>>().join(", ")
            ));
        }
        let domain = set.policies().next().unwrap().domain().to_owned();
        Self { text, domain, descriptors, values }
    }

    fn services(&self) -> (Arc<ManualClock>, [ManualRls; 4]) {
        let clock = Arc::<ManualClock>::default();
        clock.set(Timestamp::from_micros(BEGIN));
        let one = || service(compiled("example.yaml", &self.text), &clock);
        let services = [one(), one(), one(), one()];
        (clock, services)
    }
}

/// The parts of a decision that every protocol sends.
#[derive(Debug, PartialEq)]
struct WireDecision {
    is_over_limit: bool,
    headers: Vec<(String, String)>,
}

/// Asks by RLS; `None` if there is no descriptor, for which gateways need not ask.
fn by_rls(rls: &ManualRls, request: &RateLimitRequest) -> WireDecision {
    let mut answer = Vec::new();
    let message = request.encode_to_vec();
    let proxy = Caller { receiver: Receiver::Proxy, ..rls.http_caller() };
    ready(rls.answer(&message, proxy, None, &mut answer)).unwrap();
    decoded(&answer)
}

fn decoded(answer: &[u8]) -> WireDecision {
    let answer = RateLimitResponse::decode(answer).unwrap();
    let headers = answer.response_headers_to_add.iter();
    WireDecision {
        is_over_limit: answer.overall_code() == Overall::OverLimit,
        headers: headers.map(|header| (header.key.clone(), header.value.clone())).collect(),
    }
}

/// Asks as `/json` does, and also returns `Retry-After`.
fn by_json(rls: &ManualRls, request: &RateLimitRequest) -> (WireDecision, Option<u64>) {
    let mut answer = Vec::new();
    let message = request.encode_to_vec();
    let code = ready(rls.answer(&message, rls.http_caller(), None, &mut answer)).unwrap();
    let retry_after = match code {
        CallerAnswer::Ok => None,
        CallerAnswer::OverLimit { retry_after } => retry_after,
    };
    (decoded(&answer), retry_after)
}

fn by_check(rls: &ManualRls, headers: &[(String, String)]) -> (WireDecision, Option<u64>) {
    let http = HttpRequest {
        method: "GET".into(),
        path: "/".into(),
        headers: headers.iter().cloned().collect(),
        ..Default::default()
    };
    let request = attribute_context::Request { http: Some(http), ..Default::default() };
    let attributes = AttributeContext { request: Some(request), ..Default::default() };
    let message = CheckRequest { attributes: Some(attributes) }.encode_to_vec();
    let caller = CheckCaller { is_gateway: true, caller: rls.http_caller(), mapping: None };
    let mut answer = Vec::new();
    ready(rls.check(&message, caller, None, &mut answer)).unwrap();
    let answer = CheckResponse::decode(answer.as_slice()).unwrap();
    let code = answer.status.unwrap().code;
    let (headers, is_over_limit) = match answer.http_response.unwrap() {
        HttpResponse::OkResponse(ok) => (ok.response_headers_to_add, false),
        HttpResponse::DeniedResponse(denied) => {
            assert_eq!(denied.status.unwrap().code, 429);
            (denied.headers, true)
        }
    };
    assert_eq!(code != 0, is_over_limit);
    let headers = headers.into_iter().map(|option| option.header.unwrap());
    split(is_over_limit, headers.map(|header| (header.key, header.value)).collect())
}

fn by_auth(rls: &ManualRls, headers: &[(String, String)]) -> (WireDecision, Option<u64>) {
    let lines = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let http = GatewayRequest {
        method: b"GET",
        target: b"/",
        headers: lines.collect(),
        ..GatewayRequest::default()
    };
    let call = GatewayCall { mapping: Some("all"), http, caller: rls.http_caller() };
    let answer = ready(rls.decide_http(call, None)).unwrap();
    split(answer.denial.is_some(), answer.headers)
}

/// Takes the headers that are not those of the settings from the others.
fn split(is_over_limit: bool, headers: Vec<(String, String)>) -> (WireDecision, Option<u64>) {
    let retry_after = headers.iter().find(|(name, _)| name == "retry-after");
    let retry_after = retry_after.map(|(_, seconds)| seconds.parse().unwrap());
    let is_own = |name: &str| name == "retry-after" || name == "content-type";
    let headers = headers.into_iter().filter(|(name, _)| !is_own(name)).collect();
    (WireDecision { is_over_limit, headers }, retry_after)
}

/// A request: the value of each key of the example, if it has one, and the time since the last.
type RandomRequest = (Vec<Option<prop::sample::Index>>, u64);

fn requests() -> impl Strategy<Value = Vec<RandomRequest>> {
    let values =
        prop::collection::vec(prop::option::weighted(0.9, any::<prop::sample::Index>()), 12);
    prop::collection::vec((values, 0u64..2_000_000), 200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// Decisions, headers and counters are those of RLS, for each rule of the examples.
    #[test]
    fn each_protocol_has_the_same_decision_headers_and_counters(requests in requests()) {
        for example in examples() {
            let (clock, [rls, check, auth, json]) = example.services();
            let mut keys: Vec<_> = example.descriptors.iter().flatten().cloned().collect();
            keys.sort_unstable();
            keys.dedup();
            let mut at = BEGIN;
            let mut denied = 0;
            for (values, after) in &requests {
                at = at.saturating_add(*after);
                clock.set(Timestamp::from_micros(at));
                let pairs: Vec<(String, String)> = keys.iter().zip(values)
                    .filter_map(|(key, value)| Some((key.clone(), value.as_ref()?.get(&example.values).clone())))
                    .collect();
                let value = |key: &String| pairs.iter().find(|(own, _)| own == key).map(|(_, value)| value);
                let entry = |key: &String| Some(Entry { key: key.clone().into(), value: value(key)?.clone().into() });
                let descriptors: Vec<_> = example.descriptors.iter()
                    .filter_map(|keys| keys.iter().map(entry).collect::<Option<Vec<_>>>())
                    .map(|entries| RateLimitDescriptor { entries, ..Default::default() })
                    .collect();
                let headers: Vec<_> = pairs.iter().map(|(key, value)| (format!("x-{key}"), value.clone())).collect();
                let checked = by_check(&check, &headers);
                prop_assert_eq!(&checked, &by_auth(&auth, &headers));
                if descriptors.is_empty() {
                    prop_assert_eq!(checked, (WireDecision { is_over_limit: false, headers: Vec::new() }, None));
                    continue;
                }
                let request = RateLimitRequest { domain: example.domain.clone(), descriptors, hits_addend: 0 };
                prop_assert_eq!(&checked.0, &by_rls(&rls, &request));
                prop_assert_eq!(&checked, &by_json(&json, &request));
                prop_assert!(checked.0.is_over_limit || checked.1.is_none());
                denied = denied.max(usize::from(checked.0.is_over_limit));
            }
            prop_assert!(denied > 0 || example.domain != "login", "no request was denied");
        }
    }
}

const SHOP: &str = "
domain: shop
requests:
- { name: shop, descriptors: [{ entries: { user: { header: x-user } } }] }
- { name: quota, descriptors: [{ entries: { short: a } }, { entries: { long: a } }] }
descriptors:
- { key: user, rate_limit: { unit: day, requests_per_unit: 2, charge: admitted } }
- { key: short, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
- { key: long, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";

fn shop() -> ManualRls {
    let clock = Arc::<ManualClock>::default();
    clock.set(Timestamp::from_micros(BEGIN));
    service(compiled("shop.yaml", SHOP), &clock)
}

fn decide(rls: &ManualRls, mapping: Option<&str>, target: &str) -> Result<GatewayAnswer, Status> {
    let http = GatewayRequest {
        method: b"GET",
        target: target.as_bytes(),
        headers: vec![(b"x-user", b"ann")],
        ..GatewayRequest::default()
    };
    let call = GatewayCall { mapping, http, caller: rls.http_caller() };
    ready(rls.decide_http(call, None))
}

#[test]
fn a_call_has_the_time_of_its_caller_or_else_that_of_the_service() {
    let wait = Duration::from_millis(20);
    let now = Instant::now();
    let waits = [None, Some(wait)].map(|time| shop().deadline(now, time) - now);
    assert_eq!(waits, [Duration::from_secs(1), wait]);
}

#[test]
fn a_mapping_is_named_unless_it_is_the_only_one() {
    let shop = shop();
    assert!(decide(&shop, Some("shop"), "/").is_ok());
    assert_eq!(decide(&shop, Some("other"), "/").unwrap_err().code(), Code::NotFound);
    assert_eq!(decide(&shop, None, "/").unwrap_err().code(), Code::NotFound);
}

#[test]
fn a_request_that_cannot_be_mapped_is_denied_and_charges_nothing() {
    let shop = shop();
    for _ in 0..3 {
        let denial = decide(&shop, Some("shop"), "/a/..%2fb").unwrap().denial.unwrap();
        assert_eq!(denial.status, 400);
    }
    assert_eq!(decide(&shop, Some("shop"), "/").unwrap().denial, None);
}

#[test]
fn a_denial_by_quota_ends_when_one_of_its_limits_admits() {
    let shop = shop();
    let [_, denied] = [(); 2].map(|()| decide(&shop, Some("quota"), "/").unwrap());
    let seconds = denied.headers.iter().find(|(name, _)| name == "retry-after").unwrap();
    assert!(seconds.1.parse::<u64>().unwrap() <= 60, "{seconds:?}");
}

#[test]
fn a_domain_without_rights_is_an_error() {
    let http = GatewayRequest { target: b"/", ..GatewayRequest::default() };
    let shop = shop();
    let stranger = Caller { rights: &DomainRights::none(), ..shop.http_caller() };
    let call = GatewayCall { mapping: Some("shop"), http, caller: stranger };
    let status = ready(shop.decide_http(call, None)).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let caller = CheckCaller { is_gateway: false, caller: shop.http_caller(), mapping: None };
    let status = ready(shop.check(&[], caller, None, &mut Vec::new())).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "not a gateway");
}

#[test]
fn a_denied_caller_receives_what_remains_and_a_proxy_is_not() {
    let entries = vec![Entry { key: "user".into(), value: "ann".into() }];
    let two = RateLimitDescriptor { entries, hits_addend: Some(3), ..Default::default() };
    let request =
        RateLimitRequest { domain: "shop".into(), descriptors: vec![two], hits_addend: 0 };
    let message = request.encode_to_vec();
    let mut answers = [Vec::new(), Vec::new()];
    let shop = shop();
    let [caller, proxy] = &mut answers;
    ready(shop.answer(&message, shop.http_caller(), None, caller)).unwrap();
    let as_proxy = Caller { receiver: Receiver::Proxy, ..shop.http_caller() };
    ready(shop.answer(&message, as_proxy, None, proxy)).unwrap();
    let left =
        |answer: &[u8]| RateLimitResponse::decode(answer).unwrap().statuses[0].limit_remaining;
    assert_eq!([left(caller), left(proxy)], [2, 0]);
}

mod waits;
