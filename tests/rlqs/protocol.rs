//! The service as a client library sees it: the answers to buckets of all kinds, and refusals.

use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_strategy::BlanketRule;

use crate::support::policy::Policies;
use crate::support::quotas::{QuotaClient, blanket};
use crate::support::rls::{Client, channel, descriptor};
use crate::support::secure::SecureTollgate;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = "
domain: test
descriptors:
  - key: tenant
    rate_limit: &limit { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 1s, rlqs: { ttl: 15s, size: 10% } } }
  - key: shadow
    shadow_mode: true
    rate_limit: *limit
  - key: plain
    rate_limit: { unit: day, requests_per_unit: 1000 }
  - key: ban
    rate_limit: { unit: day, requests_per_unit: 0 }
  - key: free
    rate_limit: { unlimited: true }
  - key: user
    descriptors: [{ key: route, rate_limit: *limit }]
---
domain: lenient
rlqs: { unsupported: allow }
descriptors:
  - key: plain
    rate_limit: { unit: day, requests_per_unit: 1000 }
";

fn serve() -> Tollgate {
    Tollgate::serve(Policies::of(POLICY).path())
}

async fn open(
    service: &Tollgate,
    pairs: &[(&str, &str)],
    allowed: u64,
    denied: u64,
) -> QuotaClient {
    let channel = channel(service.grpc).await;
    QuotaClient::open(channel, "test", pairs, allowed, denied).await.unwrap()
}

async fn remaining(client: &Client, entries: &[(&str, &str)]) -> u32 {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(entries) };
    client.status(peek).await.limit_remaining
}

#[tokio::test]
async fn a_bucket_gets_hits_that_were_charged_to_the_counter_of_its_descriptor() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    let mut proxy = open(&service, &[("tenant", "a")], 0, 1).await;
    assert_eq!(
        proxy.next_loan().await,
        (15, 50),
        "a twentieth of the limit, before a demand is known"
    );
    assert_eq!(remaining(&client, &[("tenant", "a")]).await, 950);
    // The demand of the next report: hits until the next one, up to the size, and not for longer,
    // since more is wanted than remains. The rest of the charge is taken back.
    proxy.report(&[("tenant", "a")], 50, 4_000).await;
    assert_eq!(proxy.next_loan().await, (15, 91));
    let left = || remaining(&client, &[("tenant", "a")]);
    becomes("the rest is back", TEST_TIMEOUT, left, |left| *left == 859).await;
    // The order of the pairs is that of the rules.
    let mut proxy = open(&service, &[("route", "/"), ("user", "u")], 0, 1).await;
    assert_eq!(proxy.next_loan().await.1, 50);
    assert_eq!(remaining(&client, &[("user", "u"), ("route", "/")]).await, 950);
    let web = Web::new(service.http);
    assert_eq!(web.metric("tollgate_rlqs_streams").await, 2);
    assert_eq!(web.metric("tollgate_rlqs_hits_lent_total").await, 191);
    assert_eq!(web.metric("tollgate_rlqs_hits_spent_total").await, 50);
    let allowed = "tollgate_decisions_total{domain=\"test\",rule=\"tenant\",outcome=\"denied\"}";
    assert_eq!(web.metric(allowed).await, 4_001);
}

#[tokio::test]
async fn proxies_share_what_remains() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    let take = RateLimitDescriptor { hits_addend: Some(890), ..descriptor(&[("tenant", "a")]) };
    client.status(take).await;
    let mut first = open(&service, &[("tenant", "a")], 0, 1).await;
    assert_eq!(first.next_loan().await.1, 50);
    let mut second = open(&service, &[("tenant", "a")], 0, 1).await;
    assert_eq!(second.next_loan().await.1, 50);
    // Ten remain, and both want more than that.
    first.report(&[("tenant", "a")], 50, 10_000).await;
    assert_eq!(first.next_loan().await.1, 10, "the other has no want yet");
    second.report(&[("tenant", "a")], 50, 10_000).await;
    assert_eq!(remaining(&client, &[("tenant", "a")]).await, 0);
    let mut third = open(&service, &[("tenant", "a")], 0, 1).await;
    let denied = third.next().await.unwrap();
    assert_eq!(Some(&denied[0].1), blanket(BlanketRule::DenyAll).as_ref(), "{denied:?}");
}

#[tokio::test]
async fn buckets_without_quotas_get_the_same_answer_for_all_requests() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    for (key, rule) in [
        ("free", BlanketRule::AllowAll),
        ("unknown", BlanketRule::AllowAll),
        ("shadow", BlanketRule::AllowAll),
        ("ban", BlanketRule::DenyAll),
        ("plain", BlanketRule::DenyAll),
    ] {
        let mut proxy = open(&service, &[(key, "a")], 7, 0).await;
        let answer = proxy.next().await.unwrap();
        assert_eq!(answer, [(60, blanket(rule).unwrap())], "{key}");
    }
    // What a limit in shadow mode has allowed is charged afterwards.
    let charged = async || remaining(&client, &[("shadow", "a")]).await;
    becomes("the hits are charged afterwards", TEST_TIMEOUT, charged, |left| *left == 993).await;
    let channel = channel(service.grpc).await;
    let mut proxy = QuotaClient::open(channel, "lenient", &[("plain", "a")], 0, 1).await.unwrap();
    assert_eq!(proxy.next().await.unwrap(), [(60, blanket(BlanketRule::AllowAll).unwrap())]);
    let web = Web::new(service.http);
    assert_eq!(web.metric("tollgate_rlqs_unsupported_buckets_total").await, 2);
}

#[tokio::test]
async fn hits_beyond_all_loans_are_charged_and_counted() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    // Those of the first report may have been lent by another replica.
    let mut proxy = open(&service, &[("tenant", "a")], 30, 0).await;
    assert_eq!(proxy.next_loan().await.1, 50);
    assert_eq!(remaining(&client, &[("tenant", "a")]).await, 920);
    proxy.report(&[("tenant", "a")], 60, 0).await;
    proxy.next_loan().await;
    let web = Web::new(service.http);
    assert_eq!(web.metric("tollgate_rlqs_first_hits_total").await, 30);
    assert_eq!(web.metric("tollgate_rlqs_overrun_hits_total").await, 10);
}

#[tokio::test]
async fn a_changed_limit_is_pushed_without_a_report() {
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve(policies.path());
    let mut proxy = open(&service, &[("tenant", "a")], 0, 1).await;
    assert_eq!(proxy.next_loan().await.1, 50);
    policies.write("policy.yaml", &POLICY.replacen("1000", "400", 1));
    assert_eq!(proxy.next_loan().await.1, 20);
    policies.write("policy.yaml", &POLICY.replacen("1000", "0", 1));
    let banned = proxy.next().await.unwrap();
    assert_eq!(banned, [(60, blanket(BlanketRule::DenyAll).unwrap())]);
}

#[tokio::test]
async fn a_stream_is_bound_to_its_domain() {
    let service = serve();
    let refused = async |domain: &str| {
        let channel = channel(service.grpc).await;
        let mut proxy = QuotaClient::open(channel, domain, &[("tenant", "a")], 0, 1).await.unwrap();
        proxy.next().await.unwrap_err()
    };
    assert_eq!(refused("").await.code(), tonic::Code::InvalidArgument);
    let mut unknown =
        QuotaClient::open(channel(service.grpc).await, "nowhere", &[("tenant", "a")], 0, 1)
            .await
            .unwrap();
    assert_eq!(unknown.next().await.unwrap(), [(60, blanket(BlanketRule::AllowAll).unwrap())]);
}

#[tokio::test]
async fn a_client_without_rights_to_a_domain_gets_nothing() {
    let allowed = ["edge=test", "other=elsewhere"];
    let secure = SecureTollgate::serve(&Policies::of(POLICY), &allowed, &[]);
    let connect = async |name: &str| {
        let channel = secure.connect(name).await;
        QuotaClient::open(channel, "test", &[("tenant", "a")], 0, 1).await.unwrap()
    };
    assert_eq!(connect("edge").await.next_loan().await.1, 50);
    let refused = connect("other").await.next().await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
}

#[tokio::test]
async fn streams_end_when_the_service_does() {
    let mut service = serve();
    let mut proxy = open(&service, &[("tenant", "a")], 0, 1).await;
    proxy.next_loan().await;
    assert!(service.terminate().success());
    assert!(proxy.next().await.is_err());
}
