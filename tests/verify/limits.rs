//! Calendar windows, several limits in a request, and leases.

use std::collections::HashMap;

use serde_json::{Value, json};
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tonic::{Request, Response, Status};

use super::{report, verdict, verify};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, serve_grpc};
use crate::support::tollgate::Tollgate;

/// Returns a policy with a limit of 10 per calendar day of a zone.
fn calendar(zone: &str) -> Policies {
    Policies::of(&format!(
        "domain: test\ndescriptors:\n  - key: user\n    rate_limit: \
         {{ unit: day, requests_per_unit: 10, calendar: true, time_zone: {zone} }}\n"
    ))
}

#[test]
fn the_days_of_another_time_zone_are_found() {
    let policies = calendar("Europe/Berlin");
    let service = Tollgate::serve(policies.path());
    let ended = verify(&policies, &[&service.grpc.to_string()], &[]);
    let right = report(&ended);
    assert_eq!(ended.status.code(), Some(0), "{right:#}");
    assert_eq!(right["not_checked"], json!([]), "{right:#}");

    let ended = verify(&calendar("Asia/Tokyo"), &[&service.grpc.to_string()], &[]);
    let wrong = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{wrong:#}");
    assert_eq!(verdict(&wrong, "reset_accurate"), "violated", "{wrong:#}");
}

const TWO: &str = "
domain: test
defaults: { charge: admitted }
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 40 }
";

#[test]
fn requests_with_several_limits_are_sent() {
    let policies = Policies::of(TWO);
    let service = Tollgate::serve(policies.path());
    let history = policies.path().with_file_name("history.jsonl");
    let flags = ["--duration", "3", "--history", history.to_str().unwrap()];
    let ended = verify(&policies, &[&service.grpc.to_string()], &flags);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(0), "{report:#}");
    let history = std::fs::read_to_string(history).unwrap();
    let calls = history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut by_request = HashMap::<u64, Vec<Value>>::new();
    for call in calls {
        by_request.entry(call["request"].as_u64().unwrap()).or_default().push(call);
    }
    assert_eq!(by_request.len() as u64, report["requests"].as_u64().unwrap());
    let is_denied_by_one = |calls: &Vec<Value>| {
        let codes: Vec<_> =
            calls.iter().map(|call| call["answer"]["code"].as_str().unwrap()).collect();
        codes.contains(&"denied") && codes.contains(&"denied_by_other")
    };
    assert!(by_request.values().any(is_denied_by_one), "{report:#}");
}

/// A proxy that sends each descriptor in a request of its own, so that a limit charges a request
/// that another one denies.
struct SendsEachAlone(Client);

#[tonic::async_trait]
impl RateLimitService for SendsEachAlone {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let RateLimitRequest { domain, descriptors, hits_addend } = request.into_inner();
        let mut combined = RateLimitResponse::default();
        for descriptor in descriptors {
            let domain = domain.clone();
            let alone = RateLimitRequest { domain, descriptors: vec![descriptor], hits_addend };
            let response = self.0.decide(alone).await?;
            combined.statuses.extend(response.statuses);
        }
        let is_denied = |code: i32| code == i32::from(Code::OverLimit);
        let code = if combined.statuses.iter().any(|status| is_denied(status.code)) {
            Code::OverLimit
        } else {
            Code::Ok
        };
        combined.overall_code = code.into();
        Ok(Response::new(combined))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_that_are_charged_though_another_limit_denies_are_found() {
    let policies = Policies::of(TWO);
    let service = Tollgate::serve(policies.path());
    let wrong = SendsEachAlone(Client::connect(service.grpc).await);
    let routes = tonic::service::Routes::new(RateLimitServiceServer::new(wrong));
    let address = serve_grpc(routes).await;
    let ended = verify(&policies, &[&address], &["--duration", "20"]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
}

#[tokio::test]
async fn leases_of_rolling_limits_stay_within_their_bound() {
    let redis = Redis::start().await;
    let policies = Policies::of(
        "domain: test\ndefaults: { lease: { size: 16, ttl: 100ms } }\ndescriptors:\n\
         - key: user\n  rate_limit: { algorithm: sliding_window, unit: 3s, requests_per_unit: 200 }\n\
         - key: tenant\n  rate_limit: { algorithm: gcra, unit: minute, requests_per_unit: 200 }\n",
    );
    let replicas = [(); 2].map(|()| {
        let flags = ["--store", &redis.url(), "--store-timeout", "15s"];
        Tollgate::serve_with(policies.path(), &flags)
    });
    for replica in &replicas {
        replica.wait_until_ready().await;
    }
    let [one, other] = replicas.each_ref().map(|replica| replica.grpc.to_string());
    let ended = verify(&policies, &[&one, &other], &["--duration", "8", "--rate", "1000"]);
    let report = report(&ended);
    assert_ne!(ended.status.code(), Some(1), "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "not_checked", "{report:#}");
    assert_eq!(report["not_checked"], json!([]), "{report:#}");
}
