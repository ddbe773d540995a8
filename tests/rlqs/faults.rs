//! A stock Envoy whose acknowledgements are missing, whose unused hits are not given back, and with
//! a bucket beyond the bounds.

use std::net::SocketAddr;

use crate::support::envoy::Envoy;
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor};
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

use tollgate::grpc::proto::RateLimitDescriptor;

use crate::support::quota_wire::{Passing, QuotaWire};

const POLICY: &str = "
domain: test
descriptors:
  - key: bucket
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 1s, rlqs: { ttl: 7s, size: 10% } } }
";
/// Hits of the first loan: a twentieth of the limit.
const FIRST: u64 = 50;

fn serve(flags: &[&str]) -> Tollgate {
    let flags = [&["--rlqs-guard", "1s"], flags].concat();
    Tollgate::serve_with(Policies::of(POLICY).path(), &flags)
}

async fn envoy(service: SocketAddr) -> Envoy {
    let template = std::fs::read_to_string(root().join("tests/rlqs/envoy.yaml")).unwrap();
    let port = service.port().to_string();
    Envoy::start_by(&template, &[("TOLLGATE", port.as_str())]).await
}

/// Sends a request of a bucket, and returns the status.
async fn status(envoy: &Envoy, bucket: &str, settings: &str) -> u16 {
    let headers = [("x-bucket", bucket.as_bytes()), ("x-settings", settings.as_bytes())];
    envoy.edge.get_with("/", &headers).await.status
}

/// Sends requests until one passes.
async fn passes(envoy: &Envoy) {
    let status = async || status(envoy, "a", "deny").await;
    becomes("a request passes", TEST_TIMEOUT, status, |status| *status == 200).await;
}

async fn remaining(service: &Tollgate) -> u64 {
    let client = Client::connect(service.grpc).await;
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("bucket", "a")]) };
    client.status(peek).await.limit_remaining.into()
}

#[tokio::test]
async fn an_envoy_whose_acknowledgements_are_missing_is_disconnected_and_its_hits_stay_charged() {
    let service = serve(&[]);
    let wire = QuotaWire::to(service.grpc, Passing::NoAcknowledgements).await;
    let envoy = envoy(wire.address).await;
    passes(&envoy).await;
    let web = Web::new(service.http);
    let ended = "tollgate_rlqs_streams_ended_total{kind=\"unacknowledged\"}";
    let ends = async || web.metric(ended).await;
    becomes("its stream is closed", TEST_TIMEOUT, ends, |ends| *ends > 0).await;
    wire.pass(Passing::All);
    let stranded = web.metric("tollgate_rlqs_hits_stranded_total").await;
    assert!(stranded >= FIRST, "{stranded}");
    assert_eq!(web.metric("tollgate_rlqs_hits_returned_total").await, 0);
    assert!(remaining(&service).await <= 1_000 - FIRST);
    // It connects again, and is lent hits as before.
    let lent = web.metric("tollgate_rlqs_hits_lent_total").await;
    let lent_again = async || web.metric("tollgate_rlqs_hits_lent_total").await;
    becomes("hits are lent again", TEST_TIMEOUT, lent_again, |now| *now > lent).await;
    let ends = web.metric(ended).await;
    passes(&envoy).await;
    assert_eq!(web.metric(ended).await, ends, "with acknowledgements, the stream stays");
}

#[tokio::test]
async fn unused_hits_come_back_unless_returns_are_off() {
    let [on, off] = [serve(&[]), serve(&["--rlqs-return", "off"])];
    let (first, second) = tokio::join!(envoy(on.grpc), envoy(off.grpc));
    tokio::join!(passes(&first), passes(&second));
    let [on_web, off_web] = [&on, &off].map(|service| Web::new(service.http));
    let returned = "tollgate_rlqs_hits_returned_total";
    let come_back = async || on_web.metric(returned).await;
    becomes("hits come back", TEST_TIMEOUT, come_back, |hits| *hits >= FIRST / 2).await;
    let stranded = "tollgate_rlqs_hits_stranded_total";
    let stay = async || off_web.metric(stranded).await;
    becomes("hits stay charged", TEST_TIMEOUT, stay, |hits| *hits >= FIRST / 2).await;
    assert_eq!((off_web.metric(returned).await, on_web.metric(stranded).await), (0, 0));
    let [with, without] = [remaining(&on).await, remaining(&off).await];
    assert!(without <= 1_000 - FIRST && with > without, "{with} and {without} remain");
}

#[tokio::test]
async fn hits_that_an_envoy_holds_come_back_after_an_edit_of_their_limit() {
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve_with(policies.path(), &["--rlqs-guard", "1s"]);
    let envoy = envoy(service.grpc).await;
    passes(&envoy).await;
    policies.write("policy.yaml", &POLICY.replace("1000", "1100"));
    let web = Web::new(service.http);
    let left = async || remaining(&service).await;
    becomes("all but a request are left", TEST_TIMEOUT, left, |left| *left >= 1_100 - 5).await;
    assert_eq!(web.metric("tollgate_rlqs_hits_stranded_total").await, 0);
}

#[tokio::test]
async fn a_bucket_beyond_the_bounds_is_denied_while_it_is_used_and_forgotten_once_it_is_idle() {
    let service = serve(&[]);
    let envoy = envoy(service.grpc).await;
    let long = "x".repeat(5_000);
    assert_eq!(status(&envoy, &long, "allow").await, 200, "before the first answer");
    let denied = async || status(&envoy, &long, "allow").await;
    becomes("it is denied", TEST_TIMEOUT, denied, |status| *status == 429).await;
    let web = Web::new(service.http);
    let reports = async || web.metric("tollgate_rlqs_refused_reports_total").await;
    let seen = reports().await;
    // The next report has the requests so far, the one after it has none.
    becomes("an idle report", TEST_TIMEOUT, reports, |reports| *reports >= seen + 2).await;
    let again = async || status(&envoy, &long, "allow").await;
    becomes("Envoy has forgotten it", TEST_TIMEOUT, again, |status| *status == 200).await;
}
