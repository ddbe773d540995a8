//! Descriptors of the module and of Envoy's rate limit filter for the same requests, by a service
//! that records both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::lease_service_server::{LeaseService, LeaseServiceServer};
use tollgate::grpc::proto::lease::{
    AskEachRequest, ExchangeRequest, ExchangeResponse, LeaseAnswer,
};
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::{Request, Response, Status};

use super::template;
use crate::support::envoy::{Envoy, binary, module, oldest_binary};
use crate::support::random::Random;
use crate::support::rls::serve_grpc;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Number of random requests, each of which is sent so often that the module wants blocks.
const REQUESTS: usize = 60;
const SENT: usize = 12;
/// Number of descriptors that a configuration of the module may have.
const MAX_LIMITS: usize = 16;
/// The runtime guard of Envoy without which it compares the joined values of a header.
const JOINS: &str = "
layered_runtime:
  layers:
    - name: joins
      static_layer: { envoy.reloadable_features.match_headers_individually: false }
";
/// Values of headers.
const VALUES: [&[u8]; 12] = [
    b"one",
    b"One",
    b"two",
    b"one,two",
    b"",
    b"7",
    b"+7",
    b"-3",
    b"07",
    b"7x",
    b"\xff\xfe",
    b"one two",
];

/// The descriptors that were seen, by the number of the request, the first part of `x-id`.
type Seen = BTreeMap<String, BTreeSet<String>>;

/// Records the descriptors of calls, and of wants for blocks, of which it lends none.
#[derive(Clone, Default)]
struct Recorder {
    called: Arc<Mutex<Seen>>,
    wanted: Arc<Mutex<Seen>>,
}

impl Recorder {
    fn record(seen: &Mutex<Seen>, descriptor: &RateLimitDescriptor) {
        let entries = descriptor.entries.iter();
        let mut entries = entries.map(|entry| (&entry.key, &entry.value));
        let (key, id) = entries.next().unwrap();
        assert_eq!(key, "id");
        let (id, _attempt) = std::str::from_utf8(id).unwrap().split_once('-').unwrap();
        let rest = format!("{:?}", entries.collect::<Vec<_>>());
        seen.lock().unwrap().entry(id.to_owned()).or_default().insert(rest);
    }

    fn of(seen: &Mutex<Seen>, id: usize) -> BTreeSet<String> {
        seen.lock().unwrap().get(&id.to_string()).cloned().unwrap_or_default()
    }
}

#[tonic::async_trait]
impl RateLimitService for Recorder {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        for descriptor in &request.into_inner().descriptors {
            Self::record(&self.called, descriptor);
        }
        let overall_code = Code::Ok.into();
        Ok(Response::new(RateLimitResponse { overall_code, ..Default::default() }))
    }
}

#[tonic::async_trait]
impl LeaseService for Recorder {
    async fn exchange(
        &self,
        request: Request<ExchangeRequest>,
    ) -> Result<Response<ExchangeResponse>, Status> {
        let wants = request.into_inner().wants;
        for want in &wants {
            Self::record(&self.wanted, want.descriptor.as_ref().unwrap());
        }
        let none = || Some(Answer::AskEachRequest(AskEachRequest::default()));
        let answers = wants.iter().map(|_| LeaseAnswer { generation: 1, answer: none() });
        let answers = answers.collect();
        Ok(Response::new(ExchangeResponse { answers, results: Vec::new() }))
    }
}

/// Returns a matcher for the values of the header `x-a` or `x-b`, with a condition.
fn matcher(name: &str, condition: Value, inverts: bool) -> Value {
    let mut matcher = json!({"name": name, "invert_match": inverts});
    matcher.as_object_mut().unwrap().extend(condition.as_object().unwrap().clone());
    matcher
}

/// Returns all actions of the module: of `header_value_match`, with each condition as it is,
/// inverted, and with its match expected to fail.
fn actions() -> Vec<Value> {
    let text = |part: &str, text: &str| json!({"string_match": {part: text}});
    let folded =
        |part: &str, text: &str| json!({"string_match": {part: text, "ignore_case": true}});
    let conditions = [
        json!({"present_match": true}),
        json!({"present_match": false}),
        text("exact", "one"),
        text("exact", "one,two"),
        folded("exact", "ONE"),
        text("prefix", "one"),
        text("suffix", "two"),
        text("contains", "e,t"),
        folded("contains", "NE"),
        json!({"range_match": {"start": -5, "end": 8}}),
    ];
    let matches = |name: &str, expects: bool, matchers: Vec<Value>| json!({"header_value_match": {"descriptor_value": name, "expect_match": expects, "headers": matchers}});
    let mut actions = Vec::new();
    for (number, condition) in conditions.iter().enumerate() {
        for (kind, expects, inverts) in
            [("is", true, false), ("inverted", true, true), ("not", false, false)]
        {
            let name = format!("{kind} {number}");
            actions.push(matches(&name, expects, vec![matcher("x-a", condition.clone(), inverts)]));
        }
    }
    // Of two headers, the second is sent once at most.
    let both = || {
        vec![
            matcher("x-a", text("exact", "one"), false),
            matcher("x-b", text("prefix", "o"), false),
        ]
    };
    actions.push(matches("both", true, both()));
    actions.push(matches("not both", false, both()));
    for skips in [true, false] {
        actions.push(json!({"request_headers": {"header_name": "x-a", "descriptor_key": format!("a {skips}"), "skip_if_absent": skips}}));
    }
    actions.push(json!({"remote_address": {}}));
    actions.push(json!({"destination_cluster": {}}));
    let key = json!({"key": "test", "path": [{"key": "plan"}]});
    actions.push(json!({"metadata": {"descriptor_key": "plan", "metadata_key": key, "source": "ROUTE_ENTRY"}}));
    actions
}

/// A request: values of the headers `x-a` and `x-b`.
struct Sent([Vec<&'static [u8]>; 2]);

impl Sent {
    fn random(random: &mut Random) -> Self {
        let mut values = |most: usize| {
            let count = random.below(most + 1);
            (0..count).map(|_| *random.one_of(&VALUES)).collect()
        };
        Self([values(3), values(1)])
    }

    async fn send(&self, edge: &Web, id: usize, attempt: usize) {
        let id = format!("{id}-{attempt}");
        let mut headers = vec![("x-id", id.as_bytes())];
        for (name, values) in ["x-a", "x-b"].into_iter().zip(&self.0) {
            headers.extend(values.iter().map(|value| (name, *value)));
        }
        let sent = (0..SENT).map(|_| edge.get_with("/", &headers));
        for reply in futures_util::future::join_all(sent).await {
            assert_eq!(reply.status, 200);
        }
    }
}

/// Starts an Envoy that compares values of headers joined or one by one, before a recorder.
async fn start(binary: &Path, actions: &[Value], joins: bool) -> (Envoy, Recorder) {
    let recorder = Recorder::default();
    let routes = tonic::service::Routes::new(RateLimitServiceServer::new(recorder.clone()));
    let routes = routes.add_service(LeaseServiceServer::new(recorder.clone()));
    let address: std::net::SocketAddr = serve_grpc(routes).await.parse().unwrap();
    let id = json!({"request_headers": {"header_name": "x-id", "descriptor_key": "id"}});
    let limits = actions.iter().enumerate().map(|(number, action)| {
        let number = json!({"generic_key": {"descriptor_value": number.to_string()}});
        json!({"actions": [id, number, action]})
    });
    let limits = Value::from_iter(limits).to_string();
    let port = address.port().to_string();
    let module = module();
    let values = [
        ("TOLLGATE", port.as_str()),
        ("MODULE", module.to_str().unwrap()),
        ("RATE_LIMITS", limits.as_str()),
        ("FAILURE_MODE_DENY", "true"),
    ];
    // The filter of the oldest Envoy does not know this header.
    let template = template().replace("\n                          enable_retry_after_header: true\n                          rate_limit_service", "\n                          rate_limit_service");
    let template = if joins { template + JOINS } else { template };
    let envoy = Envoy::start_binary(binary, &["--concurrency", "1"], &template, &values).await;
    (envoy, recorder)
}

/// The module wants the descriptors that the filter has where both settings of Envoy give the
/// same, and passes the request on where they differ.
async fn compare(binary: &Path) {
    let mut counts = [0; 2];
    for actions in actions().chunks(MAX_LIMITS) {
        let compared = compare_actions(binary, actions).await;
        counts = [counts[0] + compared[0], counts[1] + compared[1]];
    }
    assert!(counts[0] >= 20 && counts[1] >= 20, "{counts:?}");
}

/// Compares some actions. Returns the number of requests that were passed on, and of those with
/// several values of a header that were not.
async fn compare_actions(binary: &Path, actions: &[Value]) -> [usize; 2] {
    let both = [start(binary, actions, false).await, start(binary, actions, true).await];
    let mut random = Random(36);
    let requests: Vec<_> = (0..REQUESTS).map(|_| Sent::random(&mut random)).collect();
    let mut expected = Vec::new();
    for (id, request) in requests.iter().enumerate() {
        for (envoy, _) in &both {
            request.send(&envoy.edge, id, 0).await;
        }
        let [alone, joined] =
            both.each_ref().map(|(_, recorder)| Recorder::of(&recorder.called, id));
        expected.push(if alone == joined { alone } else { BTreeSet::new() });
    }
    for (id, (request, expected)) in requests.iter().zip(&expected).enumerate() {
        for (envoy, recorder) in &both {
            // Two keys of a request can share an entry of the module's counts, so that none is
            // wanted: those of another attempt have others.
            let attempts = std::cell::Cell::new(0);
            let wanted = || async {
                let wanted = Recorder::of(&recorder.wanted, id);
                if wanted.len() < expected.len() {
                    attempts.set(attempts.get() + 1);
                    request.send(&envoy.edge, id, attempts.get()).await;
                }
                wanted
            };
            let what = format!("request {id}: {:?}", request.0);
            becomes(&what, TEST_TIMEOUT, wanted, |wanted| wanted == expected).await;
        }
    }
    // Nothing was wanted for others in the meantime.
    for (id, expected) in expected.iter().enumerate() {
        for (_, recorder) in &both {
            assert_eq!(&Recorder::of(&recorder.wanted, id), expected, "request {id}");
        }
    }
    let is_wanted = |wanted: &&BTreeSet<String>| !wanted.is_empty();
    let repeats = requests.iter().zip(&expected).filter(|(request, _)| request.0[0].len() > 1);
    [
        expected.iter().filter(|wanted| !is_wanted(wanted)).count(),
        repeats.map(|(_, wanted)| wanted).filter(is_wanted).count(),
    ]
}

#[tokio::test]
async fn the_module_has_the_descriptors_of_the_filter() {
    compare(&binary()).await;
}

#[tokio::test]
async fn the_module_has_the_descriptors_of_the_filter_of_the_oldest_envoy() {
    compare(&oldest_binary()).await;
}
