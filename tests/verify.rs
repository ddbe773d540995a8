//! `tollgate verify`, on services that keep their limits and on services that do not.

mod gateways;
mod holds;
mod limits;

use std::net::TcpListener;
use std::process::Output;

use serde_json::{Value, json};
use tollgate::grpc::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};

use crate::support::policy::{Policies, daily, yearly};
use crate::support::redis::{Redis, Setup};
use crate::support::rls::{Client, serve_grpc};
use crate::support::tollgate::{Tollgate, output};
use crate::support::{TEST_TIMEOUT, eventually};

#[test]
fn a_service_that_keeps_its_limits_exits_0() {
    let policies = Policies::of(&daily("user", 10));
    let service = Tollgate::serve(policies.path());
    let ended = verify(&policies, &[&service.grpc.to_string()], &[]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(0), "{report:#}");
    for property in report["properties"].as_array().unwrap() {
        assert_eq!(property["verdict"], "held", "{report:#}");
        assert!(property["checked_on"].as_u64().unwrap() > 0, "{report:#}");
    }
}

#[test]
fn replicas_with_separate_counters_are_found_to_admit_too_much() {
    let report = run_with_separate_counters(&yearly("user", 10));
    assert_eq!(verdict(&report, "never_over"), "violated", "{report:#}");
    let example = &report["properties"][0]["example"]["calls"];
    let hits: u64 = example.as_array().unwrap().iter().map(|c| c["hits"].as_u64().unwrap()).sum();
    assert!((11..=12).contains(&hits), "not the smallest example: {report:#}");
    assert_eq!(report["explained_by_skew_ms"], Value::Null, "{report:#}");
}

#[test]
fn clocks_do_not_explain_replicas_with_separate_counters_however_short_the_period() {
    // With clocks that differ by a second, hits of one window may be those of any other.
    let report =
        run_with_separate_counters(&daily("user", 10).replace("unit: day", "unit: second"));
    assert_eq!(verdict(&report, "never_over"), "violated", "{report:#}");
    assert_eq!(report["explained_by_skew_ms"], Value::Null, "{report:#}");
}

/// Verifies two replicas that do not share their counters.
fn run_with_separate_counters(policy: &str) -> Value {
    let policies = Policies::of(policy);
    let services = [(); 2].map(|()| Tollgate::serve(policies.path()));
    let [one, other] = services.each_ref().map(|service| service.grpc.to_string());
    let ended = verify(&policies, &[&one, &other], &[]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report:#}");
    report
}

#[test]
fn a_limit_that_is_one_too_high_is_found_and_named() {
    let (report, code) = run_with_other_limit(11);
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(report["explained_by_skew_ms"], Value::Null, "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "remaining_accurate"), "violated", "{report:#}");
    let mismatch = report["mismatches"][0].as_str().unwrap();
    assert!(
        mismatch
            .ends_with("reports a limit of 11 per 365d for test user, the policy has 10 per 365d"),
        "{mismatch}"
    );
}

#[test]
fn a_limit_that_is_one_too_low_is_found() {
    let (report, code) = run_with_other_limit(9);
    assert_eq!(code, Some(1), "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "violated", "{report:#}");
}

#[test]
fn windows_that_are_twice_as_long_as_configured_are_found() {
    let per = |unit: &str| daily("user", 20).replace("unit: day", unit);
    let policies = Policies::of(&per("unit: 2s, charge: always"));
    let service = Tollgate::serve(policies.path());
    let assumed = Policies::of(&per("unit: second, charge: always"));
    let ended = verify(&assumed, &[&service.grpc.to_string()], &["--duration", "6"]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "violated", "{report:#}");
}

#[test]
fn a_run_that_is_too_short_to_show_when_hits_return_says_so() {
    let policies = Policies::of(&daily("user", 10));
    let service = Tollgate::serve(policies.path());
    let short = report(&verify(&policies, &[&service.grpc.to_string()], &[]));
    assert_eq!(short["returns_not_seen"], json!(["test user"]), "{short:#}");

    let policies = Policies::of(&daily("user", 10).replace("unit: day", "unit: second"));
    let service = Tollgate::serve(policies.path());
    let history = policies.path().with_file_name("history.jsonl");
    let flags = ["--duration", "4", "--history", history.to_str().unwrap()];
    let long = report(&verify(&policies, &[&service.grpc.to_string()], &flags));
    assert_eq!(long["returns_not_seen"], json!([]), "{long:#}");
    // Some of the calls are peeks.
    let history = std::fs::read_to_string(history).unwrap();
    assert!(history.lines().any(|call| call.contains("\"hits\":0")), "{history}");
}

/// A proxy in front of a service that charges a hit for each peek.
struct ChargesPeeks(Client);

#[tonic::async_trait]
impl RateLimitService for ChargesPeeks {
    async fn should_rate_limit(
        &self,
        request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, tonic::Status> {
        let mut request = request.into_inner();
        for descriptor in &mut request.descriptors {
            descriptor.hits_addend = descriptor.hits_addend.map(|hits| hits.max(1));
        }
        self.0.decide(request).await.map(tonic::Response::new)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peeks_that_charge_are_found() {
    let policies = Policies::of(&yearly("user", 10));
    let service = Tollgate::serve(policies.path());
    let wrong = ChargesPeeks(Client::connect(service.grpc).await);
    let routes = tonic::service::Routes::new(RateLimitServiceServer::new(wrong));
    let address = serve_grpc(routes).await;
    // Few of the calls are peeks: at a load of 17, 175 calls in two seconds had too few.
    let ended = verify(&policies, &[&address], &["--duration", "8"]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
}

#[test]
fn another_period_is_named_and_not_taken_for_a_clock() {
    let policies = Policies::of(&daily("user", 10));
    let service = Tollgate::serve(policies.path());
    let assumed = Policies::of(&daily("user", 10).replace("unit: day", "unit: hour"));
    let report = report(&verify(&assumed, &[&service.grpc.to_string()], &[]));
    let mismatch = report["mismatches"][0].as_str().unwrap();
    assert!(mismatch.ends_with("10 per 1d for test user, the policy has 10 per 1h"), "{mismatch}");
}

#[test]
fn a_disturbance_that_fails_exits_2() {
    let policies = Policies::of(&daily("user", 10));
    let service = Tollgate::serve(policies.path());
    let flags = ["--disturb", "exit 3", "--disturb-every", "1"];
    let ended = verify(&policies, &[&service.grpc.to_string()], &flags);
    assert_eq!(ended.status.code(), Some(2), "{:#}", report(&ended));
}

/// Verifies a limit of 10 on a service with another.
fn run_with_other_limit(amount: u32) -> (Value, Option<i32>) {
    let policies = Policies::of(&yearly("user", amount));
    let service = Tollgate::serve(policies.path());
    let assumed = Policies::of(&yearly("user", 10));
    let ended = verify(&assumed, &[&service.grpc.to_string()], &[]);
    (report(&ended), ended.status.code())
}

#[test]
fn a_service_that_stops_answering_is_late() {
    let policies = Policies::of(&daily("user", 10));
    // A verdict is inconclusive if the deadline is short for a busy machine.
    for deadline in ["400", "1600", "6400"] {
        let service = Tollgate::serve(policies.path());
        let stop = format!("kill -STOP {}", service.process.id());
        let flags = ["--disturb", &stop, "--disturb-every", "1", "--deadline", deadline];
        let ended = verify(&policies, &[&service.grpc.to_string()], &flags);
        let report = report(&ended);
        assert_eq!(report["disturbances"][0], "exit status: 0");
        if verdict(&report, "answered_in_time") == "inconclusive" && deadline != "6400" {
            continue;
        }
        assert_eq!(verdict(&report, "answered_in_time"), "violated", "{report:#}");
        assert_eq!(ended.status.code(), Some(1), "{report:#}");
        return;
    }
}

#[test]
fn an_interrupted_run_has_a_result() {
    let policies = Policies::of(&daily("user", 10));
    let service = Tollgate::serve(policies.path());
    let interrupt = ["--disturb", "kill -INT $PPID", "--disturb-every", "1", "--duration", "60"];
    let ended = verify(&policies, &[&service.grpc.to_string()], &interrupt);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(0), "{report:#}");
    assert!(report["seconds"].as_f64().unwrap() < 60.0, "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
}

#[test]
fn a_run_with_mostly_errors_shows_nothing() {
    let policies = Policies::of(&daily("user", 10));
    let service = Tollgate::serve(policies.path());
    let kill = format!("kill -KILL {}", service.process.id());
    let flags = ["--disturb", &kill, "--disturb-every", "1", "--duration", "4"];
    let ended = verify(&policies, &[&service.grpc.to_string()], &flags);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(2), "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "inconclusive", "{report:#}");
    let reason = report["properties"][0]["reason"].as_str().unwrap();
    assert!(reason.starts_with("most calls had no decision"), "{reason}");
}

#[test]
fn a_limit_that_was_not_reached_is_inconclusive() {
    let policies = Policies::of(&daily("user", 5000));
    let service = Tollgate::serve(policies.path());
    let ended = verify(&policies, &[&service.grpc.to_string()], &[]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(2), "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "inconclusive", "{report:#}");
    assert_eq!(verdict(&report, "remaining_accurate"), "held", "{report:#}");
    assert_eq!(report["never_reached"][0], "test user");
}

/// Returns a policy with a daily limit of 10 for `first`, and another limit for `tenant`.
fn two_rules(first: &str, other: &str) -> String {
    let first = daily(first, 10);
    format!("{first}  - key: tenant\n    rate_limit: {{ {other} }}\n")
}

#[test]
fn a_limit_that_was_not_reached_is_inconclusive_next_to_one_that_was() {
    let policies = Policies::of(&two_rules("user", "requests_per_unit: 5000, unit: day"));
    let service = Tollgate::serve(policies.path());
    let ended = verify(&policies, &[&service.grpc.to_string()], &[]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(2), "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "inconclusive", "{report:#}");
    assert_eq!(report["never_reached"], json!(["test tenant"]));
}

#[test]
fn a_client_whose_next_request_is_far_away_does_not_delay_the_end() {
    let policies = Policies::of(&daily("user", 1));
    let service = Tollgate::serve(policies.path());
    // Each client sends a request every 20 minutes.
    let flags = ["--clients", "1200", "--rate", "1"];
    let target = service.grpc.to_string();
    let verifying = std::thread::spawn(move || verify(&policies, &[&target], &flags));
    let is_over = || verifying.is_finished().then_some(());
    eventually("the run ends", 5 * TEST_TIMEOUT, is_over);
    let report = report(&verifying.join().unwrap());
    assert!(report["calls"].as_u64().unwrap() > 0, "{report:#}");
}

#[tokio::test]
async fn a_store_whose_clock_is_ahead_is_named_as_the_explanation() {
    let setup = Setup { clock_offset: 8, ..Setup::default() };
    let redis = Redis::start_as(setup).await;
    // The short period does not keep a larger difference from explaining the long one.
    let policies = Policies::of(&two_rules("user", "requests_per_unit: 10, unit: second"));
    let flags = ["--store", &redis.url(), "--store-timeout", "15s"];
    let service = Tollgate::serve_with(policies.path(), &flags);
    service.wait_until_ready().await;
    let ended = verify(&policies, &[&service.grpc.to_string()], &[]);
    let report = report(&ended);
    assert_eq!(verdict(&report, "reset_accurate"), "violated", "{report:#}");
    assert_eq!(report["explained_by_skew_ms"], 10_000, "{report:#}");
}

#[test]
fn a_run_that_cannot_start_exits_2_with_the_next_step() {
    let policies = Policies::of(&daily("user", 10));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ended = verify(&policies, &[&closed], &[]);
    assert_eq!(ended.status.code(), Some(2));
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(text.contains(&closed) && text.contains("Is the service running there?"), "{text}");

    let ended = verify(&policies, &[&closed], &["--duration", "86400"]);
    assert_eq!(ended.status.code(), Some(2));
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(text.contains("--duration x --rate is 43200000 calls, at most 5000000"), "{text}");

    let never = ["--disturb", "true", "--disturb-every", "0"];
    let ended = verify(&policies, &[&closed], &never);
    assert_eq!(ended.status.code(), Some(2));
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(text.contains("must be a duration from 1s to 24h"), "{text}");

    let service = Tollgate::serve(policies.path());
    let other = Policies::of(&daily("tenant", 10));
    let ended = verify(&other, &[&service.grpc.to_string()], &[]);
    assert_eq!(ended.status.code(), Some(2));
    let text = String::from_utf8_lossy(&ended.stderr);
    assert!(text.contains("has no limit for test tenant"), "{text}");
}

fn verify(policies: &Policies, targets: &[&str], flags: &[&str]) -> Output {
    let policy = policies.path().to_str().unwrap();
    let targets = targets.iter().flat_map(|target| ["--target", target]);
    let own = ["verify", "--policy", policy, "--json"];
    let mut all: Vec<&str> = own.into_iter().chain(targets).collect();
    for pair in [["--duration", "2"], ["--deadline", "5000"]] {
        if !flags.contains(&pair[0]) {
            all.extend(pair);
        }
    }
    output(all.into_iter().chain(flags.iter().copied()))
}

fn report(ended: &Output) -> Value {
    serde_json::from_slice(&ended.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ended.stderr)))
}

fn verdict<'a>(report: &'a Value, property: &str) -> &'a str {
    let mut properties = report["properties"].as_array().unwrap().iter();
    let found = properties.find(|one| one["property"] == property).unwrap();
    found["verdict"].as_str().unwrap()
}
