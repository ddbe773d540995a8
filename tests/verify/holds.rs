//! Holds and permits, through `HoldService`.

use serde_json::Value;
use tollgate::descriptor::hold::SETTLE;
use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;
use tollgate::grpc::proto::hold::hold_service_server::{HoldService, HoldServiceServer};
use tollgate::grpc::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use tollgate::grpc::proto::rate_limit_service_server::{RateLimitService, RateLimitServiceServer};
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::{report, serve_grpc, verdict, verify};
use crate::support::policy::Policies;
use crate::support::rls::{Client, channel};
use crate::support::tollgate::Tollgate;

const HOLDS: &str = "
domain: test
descriptors:
  - key: window
    rate_limit: { unit: day, requests_per_unit: 10, hold: { ttl: 10m } }
  - key: bucket
    rate_limit: { algorithm: token_bucket, unit: hour, requests_per_unit: 10, hold: { ttl: 10m, on_settle: release } }
";

/// Returns a rule that has a number of permits.
fn rule(amount: u32) -> String {
    let limit = format!("algorithm: concurrency, in_flight: {amount}, hold: {{ ttl: 1s }}");
    format!("  - key: permits\n    rate_limit: {{ {limit} }}\n")
}

/// Returns a policy that has a number of permits.
fn permits(amount: u32) -> String {
    format!("domain: test\ndescriptors:\n{}", rule(amount))
}

#[test]
fn a_service_that_keeps_its_limits_of_holds_and_permits_exits_0() {
    let policies = Policies::of(&(HOLDS.to_owned() + &rule(3)));
    let service = Tollgate::serve(policies.path());
    let flags = ["--duration", "5"];
    let ended = verify(&policies, &[&service.grpc.to_string()], &flags);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(0), "{report:#}");
    assert_eq!(report["not_checked"].as_array().map(Vec::len), Some(0), "{report:#}");
    assert_eq!(report["rules"].as_array().map(Vec::len), Some(3), "{report:#}");
    for change in ["kept", "ended"] {
        assert!(report[change].as_u64().unwrap() > 10, "{report:#}");
    }
}

#[test]
fn a_permit_more_than_the_limit_is_found() {
    let policies = Policies::of(&permits(4));
    let service = Tollgate::serve(policies.path());
    let assumed = Policies::of(&permits(3));
    let ended = verify(&assumed, &[&service.grpc.to_string()], &[]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "violated", "{report:#}");
    let mismatch = report["mismatches"][0].as_str().unwrap();
    let end = "reports a limit of 4 for test permits, the policy has 3 in flight";
    assert!(mismatch.ends_with(end), "{mismatch}");
}

#[test]
fn permits_that_last_longer_than_their_ttl_are_found() {
    let policies = Policies::of(&permits(3).replace("1s", "1h"));
    let service = Tollgate::serve(policies.path());
    let assumed = Policies::of(&permits(3));
    // On a busy machine, few counters are called for longer than a TTL.
    let ended = verify(&assumed, &[&service.grpc.to_string()], &["--duration", "15"]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
}

/// A fault of a proxy in front of a service.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    /// A commit charges its cost once more.
    CommitsTwice,
    /// A cancel returns a hit of others.
    CancelsTooMuch,
    /// A commit, a cancel or a settle does nothing.
    EndsNothing,
}

#[derive(Clone)]
struct Proxy {
    holds: HoldServiceClient<Channel>,
    limits: Client,
    fault: Fault,
}

type Answer = Result<Response<RateLimitResponse>, Status>;

impl Proxy {
    /// Charges hits at each descriptor, or returns them.
    async fn charge(&self, of: &[RateLimitDescriptor], domain: &str, hits: i64) -> Answer {
        let descriptors = of.iter().map(|descriptor| RateLimitDescriptor {
            hits_addend: Some(hits.unsigned_abs()),
            is_negative_hits: hits < 0,
            ..descriptor.clone()
        });
        let descriptors = descriptors.collect();
        let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 };
        let mut response = self.limits.decide(request).await?;
        response.overall_code = 1;
        for status in &mut response.statuses {
            status.code = 1;
        }
        Ok(Response::new(response))
    }
}

#[tonic::async_trait]
impl HoldService for Proxy {
    async fn reserve(&self, request: Request<ReserveRequest>) -> Answer {
        self.holds.clone().reserve(request.into_inner()).await
    }

    async fn extend(&self, request: Request<ExtendRequest>) -> Answer {
        self.holds.clone().extend(request.into_inner()).await
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Answer {
        let request = request.into_inner();
        if self.fault == Fault::EndsNothing {
            return self.charge(&request.descriptors, &request.domain, 0).await;
        }
        let response = self.holds.clone().commit(request.clone()).await;
        if self.fault == Fault::CommitsTwice {
            let CommitRequest { domain, descriptors, hits, .. } = request;
            return self.charge(&descriptors, &domain, hits.into()).await;
        }
        response
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Answer {
        let request = request.into_inner();
        if self.fault == Fault::EndsNothing {
            return self.charge(&request.descriptors, &request.domain, 0).await;
        }
        let response = self.holds.clone().cancel(request.clone()).await;
        if self.fault == Fault::CancelsTooMuch {
            return self.charge(&request.descriptors, &request.domain, -1).await;
        }
        response
    }
}

#[tonic::async_trait]
impl RateLimitService for Proxy {
    async fn should_rate_limit(&self, request: Request<RateLimitRequest>) -> Answer {
        let mut request = request.into_inner();
        let of = request.descriptors.iter_mut();
        let settles = of.filter_map(|of| of.entries.pop_if(|last| last.key == SETTLE));
        if self.fault == Fault::EndsNothing && settles.count() > 0 {
            return self.charge(&request.descriptors, &request.domain, 0).await;
        }
        self.limits.decide(request).await.map(Response::new)
    }
}

/// Verifies a service behind a proxy with a fault.
async fn verify_with(fault: Fault) -> Value {
    let policies = Policies::of(HOLDS);
    let service = Tollgate::serve(policies.path());
    let holds = HoldServiceClient::new(channel(service.grpc).await);
    let proxy = Proxy { holds, limits: Client::connect(service.grpc).await, fault };
    let routes = tonic::service::Routes::new(RateLimitServiceServer::new(proxy.clone()))
        .add_service(HoldServiceServer::new(proxy));
    let address = serve_grpc(routes).await;
    let ended = verify(&policies, &[&address], &["--duration", "10"]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report:#}");
    report
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_charges_twice_is_found() {
    let report = verify_with(Fault::CommitsTwice).await;
    assert_eq!(verdict(&report, "no_unjustified_denial"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "remaining_accurate"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_returns_too_much_is_found() {
    let report = verify_with(Fault::CancelsTooMuch).await;
    assert_eq!(verdict(&report, "never_over"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "no_unjustified_denial"), "held", "{report:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_is_not_ended_is_found() {
    let report = verify_with(Fault::EndsNothing).await;
    assert_eq!(verdict(&report, "no_unjustified_denial"), "violated", "{report:#}");
    assert_eq!(verdict(&report, "never_over"), "held", "{report:#}");
}
