//! Spans of calls: their number, their attributes, and an unavailable collector. The collector is
//! in Python, with packages installed by `tests/run`.

use std::process::Command;

use serde_json::{Value, json};
use tollgate::grpc::proto::rate_limit_service_client::RateLimitServiceClient;

use crate::support::control_plane::python;
use crate::support::envoy::Envoy;
use crate::support::policy::{Policies, daily};
use crate::support::process::Process;
use crate::support::prometheus::Prometheus;
use crate::support::rls::{channel, descriptor, request};
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[tokio::test]
async fn a_sampled_request_creates_a_span_below_envoys_and_others_create_none() {
    let collector = Collector::start(0);
    let service = serve(&collector.url(), &[]);
    let ports = [service.grpc.port(), collector.port].map(|port| port.to_string());
    let envoy =
        Envoy::start("../spans/envoy.yaml", &[("TOLLGATE", &ports[0]), ("COLLECTOR", &ports[1])])
            .await;
    for (user, flags) in [("bob", "00"), ("ann", "01")] {
        let traceparent = format!("00-{TRACE}-{PARENT}-{flags}");
        let headers = [("traceparent", traceparent.as_bytes()), ("x-user", user.as_bytes())];
        assert_eq!(envoy.edge.get_with("/user", &headers).await.status, 200);
    }
    // Envoy sends its spans every five seconds.
    let all = || async { collector.spans() };
    let of = |spans: &[Value], service: &str| -> Vec<Value> {
        spans.iter().filter(|span| span["resource"]["service.name"] == service).cloned().collect()
    };
    let is_whole =
        |spans: &Vec<Value>| of(spans, "edge").len() >= 2 && !of(spans, "tollgate").is_empty();
    let spans = becomes("both send their spans", TEST_TIMEOUT, all, is_whole).await;
    let own = of(&spans, "tollgate");
    assert_eq!(own.len(), 1, "{own:?}");
    assert_eq!(
        (&own[0]["trace"], &own[0]["attributes"]["tollgate.domain"]),
        (&json!(TRACE), &json!("test"))
    );
    let parent = spans.iter().find(|span| span["id"] == own[0]["parent"]);
    assert_eq!(
        parent.unwrap()["resource"]["service.name"],
        "edge",
        "the call as Envoy saw it: {spans:?}"
    );
    assert_eq!(Web::new(service.http).metric("tollgate_spans_dropped_total").await, 0);
}

#[tokio::test]
async fn a_span_has_domain_rules_outcome_and_store_latency() {
    let collector = Collector::start(0);
    let resource = [
        "--resource-attribute",
        "deployment.environment=test",
        "--otlp-header",
        "authorization=Bearer x",
    ];
    let service = serve(&collector.url(), &resource);
    assert_eq!(send(&service, Some("01"), 5).await, 0);
    assert_eq!(send(&service, None, 0).await, 0, "without a trace there is none to propagate");
    assert_eq!(send(&service, Some("01"), 1).await, 0);
    let spans = collector.sent(2).await;
    for (span, outcome) in spans.iter().zip(["OK", "OVER_LIMIT"]) {
        let attributes = &span["attributes"];
        assert_eq!(attributes["tollgate.outcome"], outcome);
        assert_eq!(attributes["tollgate.rules"], json!(["user", ""]));
        assert_eq!(attributes["rpc.grpc.status_code"], 0);
        let store_ns = attributes["tollgate.store_time_us"].as_u64().unwrap() * 1_000;
        assert!(store_ns <= span["length_ns"].as_u64().unwrap(), "{span}");
        assert_eq!(
            (&span["parent"], &span["state"], &span["kind"]),
            (&json!(PARENT), &json!("a=b"), &json!(2))
        );
        assert_eq!(
            span["resource"],
            json!({ "service.name": "tollgate", "deployment.environment": "test" })
        );
        assert_eq!(span["headers"], json!({ "authorization": "Bearer x" }));
        assert!(!span.to_string().contains("ann"), "values of requests are in none: {span}");
    }
    assert_ne!(spans[0]["id"], spans[1]["id"]);
}

#[tokio::test]
async fn over_http_the_same_spans_are_sent_on_one_connection() {
    let collector = Collector::start_by_http(0);
    let flags = ["--otlp-protocol", "http/protobuf", "--otlp-header", "authorization=Bearer x"];
    let service = serve(&collector.url(), &flags);
    for sent in [1, 2] {
        assert_eq!(send(&service, Some("01"), 1).await, 0);
        let spans = collector.sent(sent).await;
        let span = &spans[sent - 1];
        assert_eq!(
            (&span["attributes"]["tollgate.outcome"], &span["parent"]),
            (&json!("OK"), &json!(PARENT))
        );
        assert_eq!(span["resource"], json!({ "service.name": "tollgate" }));
        assert_eq!(span["headers"], json!({ "authorization": "Bearer x" }));
    }
    assert_eq!(collector.events("connection").len(), 1);
    let web = Web::new(service.http);
    let sent = || web.metric("tollgate_spans_sent_total");
    becomes("both are counted", TEST_TIMEOUT, sent, |sent| *sent == 2).await;
}

#[tokio::test]
async fn over_http_spans_lost_by_a_failing_collector_are_counted_and_sending_resumes() {
    let collector = Collector::start_by_http(0);
    let url = collector.url();
    let port = collector.port;
    let mut refused = serve(&format!("{url}/elsewhere"), &["--otlp-protocol", "http/protobuf"]);
    assert_eq!(send(&refused, Some("01"), 1).await, 0);
    refused
        .process
        .wait_for_line("the reason", |line| line.contains("404 Not Found: not here").then_some(()));
    let service = serve(&url, &["--otlp-protocol", "http/protobuf"]);
    assert_eq!(send(&service, Some("01"), 1).await, 0);
    collector.sent(1).await;
    drop(collector);
    let web = Web::new(service.http);
    assert_eq!(send(&service, Some("01"), 1).await, 0);
    let dropped = || web.metric("tollgate_spans_dropped_total");
    becomes("it is counted", TEST_TIMEOUT, dropped, |dropped| *dropped == 1).await;
    let collector = Collector::start_by_http(port);
    let sent = || async {
        send(&service, Some("01"), 0).await;
        collector.spans().len()
    };
    becomes("a collector that comes back is found", TEST_TIMEOUT, sent, |spans| *spans > 0).await;
}

#[tokio::test]
async fn prometheus_reads_the_trace_of_a_call_as_an_exemplar() {
    let collector = Collector::start(0);
    let service = serve(&collector.url(), &[]);
    let prometheus = Prometheus::start("groups: []");
    let older = || async { Web::new(service.http).get("/metrics").await.body };
    assert_eq!(send(&service, None, 1).await, 0);
    assert_eq!(send(&service, Some("00"), 1).await, 0);
    prometheus.scrape(&[("tollgate", service.http, "/metrics")]);
    let found = || prometheus.exemplars("tollgate_call_duration_seconds_bucket");
    let counted =
        || async { prometheus.query("tollgate_call_duration_seconds_count == 2").await.unwrap() };
    becomes("both are read", TEST_TIMEOUT, counted, |samples| samples.len() == 1).await;
    assert_eq!(found().await, [Value::Null; 0], "of calls that are not traced there are none");
    assert_eq!(send(&service, Some("01"), 1).await, 0);
    let exemplars =
        becomes("it is read", TEST_TIMEOUT, found, |exemplars| !exemplars.is_empty()).await;
    let spans = collector.sent(1).await;
    assert_eq!(exemplars, [json!({ "trace_id": TRACE, "span_id": spans[0]["id"] })]);
    assert!(!older().await.contains("trace_id"), "the older format knows none");
}

#[tokio::test]
async fn an_undecided_call_is_an_error_and_roots_are_sampled_if_configured() {
    let collector = Collector::start(0);
    let service = serve(
        &collector.url(),
        &["--trace-sampler", "parentbased_always_on", "--service-name", "limits"],
    );
    assert_eq!(send(&service, Some("00"), 1).await, 0);
    assert_eq!(send(&service, None, 1).await, 0);
    let invalid = RateLimitServiceClient::new(channel(service.grpc).await)
        .should_rate_limit(request(vec![]))
        .await;
    assert_eq!(invalid.unwrap_err().code(), tonic::Code::InvalidArgument);
    let spans = collector.sent(2).await;
    let codes: Vec<_> =
        spans.iter().map(|span| span["attributes"]["rpc.grpc.status_code"].clone()).collect();
    assert_eq!(codes, [0, 3], "that whose caller was not sampled has none");
    assert!(spans.iter().all(|span| span["parent"] == "" && span["trace"] != TRACE), "{spans:?}");
    assert!(spans.iter().all(|span| span["resource"]["service.name"] == "limits"), "{spans:?}");
}

#[tokio::test]
async fn an_unavailable_collector_delays_no_call_and_lost_spans_are_counted() {
    let collector = Collector::start(0);
    let url = collector.url();
    let port = collector.port;
    drop(collector);
    let mut service = serve(&url, &[]);
    let web = Web::new(service.http);
    assert_eq!(send(&service, Some("01"), 1).await, 0);
    let dropped = || web.metric("tollgate_spans_dropped_total");
    becomes("it is counted", TEST_TIMEOUT, dropped, |dropped| *dropped == 1).await;
    service.wait_for_message("failed to send spans; dropped");
    let collector = Collector::start(port);
    let sent = || async {
        send(&service, Some("01"), 0).await;
        collector.spans().len()
    };
    becomes("a collector that comes back is found", TEST_TIMEOUT, sent, |spans| *spans > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn pending_spans_are_sent_at_exit() {
    let collector = Collector::start(0);
    let mut service = serve(&collector.url(), &[]);
    assert_eq!(send(&service, Some("01"), 1).await, 0);
    service.terminate();
    collector.sent(1).await;
}

#[test]
fn invalid_settings_are_reported() {
    let policies = Policies::of(&daily("user", 5));
    let cases: [&[&str]; 4] = [
        &["--otlp-endpoint", "ftp://h"],
        &["--otlp-endpoint", "h:1", "--trace-sampler", "often"],
        &["--otlp-endpoint", "h:1", "--trace-sampler", "traceidratio", "--trace-sampler-arg", "2"],
        &["--otlp-endpoint", "h:1", "--otlp-protocol", "http/json"],
    ];
    for flags in cases {
        let serve = [&["serve", "--policy", policies.path().to_str().unwrap()], flags].concat();
        let output = crate::support::tollgate::output(serve);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains("error: --"), "{flags:?}: {error}");
    }
}

/// Sends hits with a trace context, and returns the response code.
async fn send(service: &Tollgate, flags: Option<&str>, hits: u64) -> i32 {
    let mut user = descriptor(&[("user", "ann")]);
    user.hits_addend = Some(hits);
    let mut call = tonic::Request::new(request(vec![user, descriptor(&[("nothing", "here")])]));
    if let Some(flags) = flags {
        let traceparent = format!("00-{TRACE}-{PARENT}-{flags}");
        call.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        call.metadata_mut().insert("tracestate", "a=b".parse().unwrap());
    }
    let answer =
        RateLimitServiceClient::new(channel(service.grpc).await).should_rate_limit(call).await;
    answer.map_or_else(|status| status.code().into(), |_| 0)
}

fn serve(collector: &str, flags: &[&str]) -> Tollgate {
    let policies = Policies::of(&daily("user", 5));
    Tollgate::serve_with(policies.path(), &[&["--otlp-endpoint", collector], flags].concat())
}

/// A running `tests/spans/collector.py`.
pub(crate) struct Collector {
    port: u16,
    process: Process,
}

impl Collector {
    fn start(port: u16) -> Self {
        Self::start_with(port, &[])
    }

    pub(crate) fn start_by_http(port: u16) -> Self {
        Self::start_with(port, &["http"])
    }

    fn start_with(port: u16, arguments: &[&str]) -> Self {
        let mut command = Command::new(python());
        command.arg(root().join("tests/spans/collector.py")).arg(port.to_string()).args(arguments);
        let mut process = Process::start("collector", &mut command);
        let port = process.wait_for_line("its address", |line| {
            let facts: Value = serde_json::from_str(line).ok()?;
            (facts["event"] == "listening").then(|| facts["port"].as_u64().unwrap())
        });
        Self { port: port.try_into().unwrap(), process }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until it has received a number of spans, and returns them.
    async fn sent(&self, count: usize) -> Vec<Value> {
        let spans = || async { self.spans() };
        becomes("spans are sent", TEST_TIMEOUT, spans, |spans| spans.len() == count).await
    }

    /// Returns the spans received so far.
    pub(crate) fn spans(&self) -> Vec<Value> {
        self.events("span")
    }

    fn events(&self, event: &str) -> Vec<Value> {
        let lines = self.process.log().into_iter();
        let facts = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        facts.filter(|facts| facts["event"] == event).collect()
    }
}
