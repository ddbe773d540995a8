//! `tollgate.v1.LeaseService` over gRPC and JSON: answers, bounds, rights and receipts.

use serde_json::{Value, json};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::lease::ask_each_request::Reason as AskReason;
use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::not_leasable::Reason as NotLeasableReason;
use tollgate::grpc::proto::lease::{ExchangeRequest, LeaseResult, LeaseReturn, LeaseWant};

use crate::support::loans::{Holder, back, of, want};
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, entry};
use crate::support::secure::SecureTollgate;
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = "
domain: test
defaults: { charge: admitted }
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 30s, holders: [client] } }
  - key: other
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 30s, holders: [client] } }
  - key: gcra
    rate_limit: { algorithm: gcra, unit: day, requests_per_unit: 100, lease: { size: 6, ttl: 30s, holders: [process, client] } }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: day, requests_per_unit: 100, lease: { size: 6, ttl: 30s, holders: [client] } }
  - key: small
    rate_limit: { unit: day, requests_per_unit: 100, lease: { size: 6, ttl: 30s, holders: [client] } }
  - key: process
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 30s } }
  - key: recorded
    rate_limit: { unit: day, requests_per_unit: 1000, record: [user], lease: { size: 50, ttl: 30s, holders: [client] } }
  - key: ban
    rate_limit: { unit: day, requests_per_unit: 0, lease: { size: 50, ttl: 30s, holders: [client] } }
  - key: vote
    quota_mode: true
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 30s, holders: [client] } }
---
domain: foreign
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000, lease: { size: 50, ttl: 30s, holders: [client] } }
";

fn serve() -> Tollgate {
    Tollgate::serve(Policies::of(POLICY).path())
}

async fn remaining(client: &Client, key: &str) -> u32 {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[(key, "a")]) };
    client.status(peek).await.limit_remaining
}

#[tokio::test]
async fn a_want_is_answered_by_what_remains() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    let mut holder = Holder::connect(service.grpc).await;
    let reason = async |holder: &mut Holder, key, hits| match holder.want(key, hits).await.answer {
        Some(Answer::AskEachRequest(ask)) => (ask.reason(), ask.counter.map(|c| c.remaining)),
        other => panic!("{other:?}"),
    };
    let loan = holder.borrow("small", 100).await;
    let counter = loan.counter.unwrap();
    assert_eq!((loan.hits, counter.limit, counter.remaining), (6, 100, 94));
    let usable_for = loan.usable_for.unwrap();
    assert_eq!((usable_for.seconds, usable_for.nanos), (29, 970_000_000));
    assert_eq!(reason(&mut holder, "small", 3).await, (AskReason::TooFewWanted, None));
    // Of 64 remaining hits, a block has four, and of 63 none.
    let take =
        |hits| RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("small", "a")]) };
    client.status(take(30)).await;
    assert_eq!(holder.borrow("small", 100).await.hits, 4);
    let left = async || remaining(&client, "small").await;
    becomes("the rest is returned", TEST_TIMEOUT, left, |left| *left == 60).await;
    assert_eq!(reason(&mut holder, "small", 100).await, (AskReason::NearLimit, Some(60)));
    becomes("the rest is returned", TEST_TIMEOUT, left, |left| *left == 60).await;
    client.status(take(58)).await;
    assert_eq!(reason(&mut holder, "small", 100).await, (AskReason::NearLimit, Some(2)));
    client.status(take(2)).await;
    for key in ["small", "gcra"] {
        let all = RateLimitDescriptor { hits_addend: Some(100), ..descriptor(&[(key, "a")]) };
        client.status(all).await;
        let answer = holder.want(key, 100).await;
        let Some(Answer::Denial(denial)) = answer.answer else { panic!("{answer:?}") };
        assert_eq!((denial.valid_for.unwrap().seconds, denial.counter.unwrap().remaining), (1, 0));
    }
    let all = RateLimitDescriptor { hits_addend: Some(100), ..descriptor(&[("shadow", "a")]) };
    client.status(all).await;
    assert_eq!(reason(&mut holder, "shadow", 100).await, (AskReason::NearLimit, Some(0)));
    let denials = output(["denials", "--admin", &format!("http://{}", service.admin)]);
    let denials = String::from_utf8(denials.stdout).unwrap();
    assert!(denials.contains("small=a") && !denials.contains("shadow=a"), "{denials}");
}

#[tokio::test]
async fn rules_that_lend_nothing_are_named_with_the_reason() {
    let service = serve();
    let mut holder = Holder::connect(service.grpc).await;
    for (key, reason) in [
        ("unknown", NotLeasableReason::NoLimit),
        ("process", NotLeasableReason::NoLease),
        ("ban", NotLeasableReason::Ban),
        ("vote", NotLeasableReason::QuotaMode),
        ("recorded", NotLeasableReason::Records),
    ] {
        let answer = holder.want(key, 100).await;
        let Some(Answer::NotLeasable(found)) = answer.answer else { panic!("{answer:?}") };
        assert_eq!((found.reason(), answer.generation), (reason, 0), "{key}");
    }
    let web = Web::new(service.http);
    assert_eq!(web.metric("tollgate_loan_answers_total{kind=\"not_leasable\"}").await, 5);
    assert_eq!(web.metric("tollgate_loan_blocks_total").await, 0);
}

#[tokio::test]
async fn a_receipt_returns_hits_of_its_own_counter_up_to_its_own() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    let mut holder = Holder::connect(service.grpc).await;
    let loan = holder.borrow("tenant", 50).await;
    assert_eq!((loan.hits, remaining(&client, "tenant").await), (50, 950));
    let web = Web::new(service.http);
    let held = "tollgate_loan_hits_held{domain=\"test\",rule=\"tenant\",holder=\"client\"}";
    assert_eq!(web.metric(held).await, 50);
    let rules = Web::new(service.admin).get("/api/v1/rules?domain=test&rule=tenant").await.body;
    let rules: Value = serde_json::from_str(&rules).unwrap();
    assert_eq!(rules["rules"][0]["held"], json!({ "clients": 50, "proxies": 0 }), "{rules}");
    let other = back("other", &loan, 50, 0);
    assert_eq!(holder.give_back(other).await, LeaseResult::OtherCounter);
    let foreign = ExchangeRequest {
        domain: "foreign".to_owned(),
        ..of(vec![], vec![back("tenant", &loan, 50, 0)])
    };
    let results = holder.exchange(foreign).await.unwrap();
    assert_eq!(results.results().next(), Some(LeaseResult::OtherCounter));
    for (unused, used) in [(51, 0), (1, 50), (u32::MAX, u32::MAX)] {
        let back = back("tenant", &loan, unused, used);
        assert_eq!(holder.give_back(back).await, LeaseResult::InvalidReceipt);
    }
    let long = LeaseReturn { receipt: vec![1; 4_000], ..back("tenant", &loan, 50, 0) };
    assert_eq!(holder.give_back(long).await, LeaseResult::InvalidReceipt);
    assert_eq!(remaining(&client, "tenant").await, 950);
    assert_eq!(holder.give_back(back("tenant", &loan, 30, 20)).await, LeaseResult::Accepted);
    assert_eq!(remaining(&client, "tenant").await, 980);
    assert_eq!(holder.give_back(back("tenant", &loan, 30, 20)).await, LeaseResult::Repeated);
    assert_eq!(remaining(&client, "tenant").await, 980);
    assert_eq!(web.metric(held).await, 0);
    let rule = "{domain=\"test\",rule=\"tenant\"}";
    for (name, expected) in [("lent", 50), ("used", 20), ("returned", 30)] {
        let name = format!("tollgate_loan_hits_{name}_total{rule}");
        assert_eq!(web.metric(&name).await, expected, "{name}");
    }
    let allowed = "tollgate_decisions_total{domain=\"test\",rule=\"tenant\",outcome=\"allowed\"}";
    // Four peeks, and the hits that the holder used.
    assert_eq!(web.metric(allowed).await, 24);
    for (kind, expected) in
        [("accepted", 1), ("repeated", 1), ("other_counter", 2), ("invalid_receipt", 4)]
    {
        let name = format!("tollgate_loan_returns_total{{kind=\"{kind}\"}}");
        assert_eq!(web.metric(&name).await, expected, "{name}");
    }
}

#[tokio::test]
async fn hits_that_an_operator_gave_back_are_not_returned_again() {
    let service = serve();
    let client = Client::connect(service.grpc).await;
    let mut holder = Holder::connect(service.grpc).await;
    let loan = holder.borrow("tenant", 50).await;
    let server = format!("http://{}", service.admin);
    let reset = output(["reset", "--admin", &server, "test", "tenant=a"]);
    assert!(reset.status.success(), "{reset:?}");
    client.status(descriptor(&[("tenant", "a")])).await;
    assert_eq!(remaining(&client, "tenant").await, 999);
    assert_eq!(holder.give_back(back("tenant", &loan, 50, 0)).await, LeaseResult::Accepted);
    assert_eq!(remaining(&client, "tenant").await, 999);
}

#[tokio::test]
async fn a_changed_limit_has_another_generation() {
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve(policies.path());
    let mut holder = Holder::connect(service.grpc).await;
    let first = holder.want("tenant", 50).await;
    assert_eq!(holder.want("tenant", 50).await.generation, first.generation);
    let Some(Answer::Loan(loan)) = first.answer else { panic!("{first:?}") };
    policies.write("policy.yaml", &POLICY.replacen("1000", "2000", 1));
    let generation = async || holder.clone().want("tenant", 4).await.generation;
    becomes("the generation changes", TEST_TIMEOUT, generation, |now| *now != first.generation)
        .await;
    assert_eq!(holder.give_back(back("tenant", &loan, 50, 0)).await, LeaseResult::Accepted);
}

#[tokio::test]
async fn an_invalid_call_is_refused_with_the_reason() {
    let service = serve();
    let mut holder = Holder::connect(service.grpc).await;
    let with = |change: &dyn Fn(&mut RateLimitDescriptor)| {
        let mut one = descriptor(&[("tenant", "a")]);
        change(&mut one);
        of(vec![want("tenant", 4), LeaseWant { descriptor: Some(one), hits: 4 }], vec![])
    };
    let none = LeaseReturn::default();
    let domain = String::new();
    for (request, expected) in [
        (of(vec![], vec![]), "must not both be empty"),
        (of(vec![want("tenant", 4); 257], vec![]), "wants must have at most 256 items, found 257"),
        (of(vec![], vec![none.clone(); 257]), "returns must have at most 256 items, found 257"),
        (of(vec![], vec![none]), "missing in returns[0]"),
        (with(&|one| one.hits_addend = Some(1)), "wants[1]"),
        (with(&|one| one.is_negative_hits = true), "wants[1]"),
        (with(&|one| one.entries.push(entry(b"tollgate.reserve", b"x"))), "wants[1]"),
        (ExchangeRequest { domain, ..of(vec![want("tenant", 4)], vec![]) }, "domain must not be"),
    ] {
        let status = holder.exchange(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
        assert!(status.message().contains(expected), "{expected}: {status}");
    }
    let long = "x".repeat(1_000);
    let large = LeaseWant { descriptor: Some(descriptor(&[("tenant", &long)])), hits: 4 };
    let status = holder.exchange(of(vec![large; 200], vec![])).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::OutOfRange, "{status}");
    let full = of(vec![want("tenant", 0); 256], vec![]);
    assert_eq!(holder.exchange(full).await.unwrap().answers.len(), 256);
}

#[tokio::test]
async fn the_same_is_possible_in_json() {
    let service = serve();
    let web = Web::new(service.http);
    let exchange = async |body: Value| {
        let reply = web.send("POST", "/json/exchange", body.to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        serde_json::from_str::<Value>(&reply.body).unwrap()
    };
    let tenant = json!({"entries": [{"key": "tenant", "value": "a"}]});
    let found = exchange(json!({
        "domain": "test",
        "wants": [{"descriptor": tenant, "hits": 40}, {"descriptor": tenant, "hits": 1}],
    }))
    .await;
    let loan = &found["answers"][0]["loan"];
    assert_eq!((&loan["hits"], &loan["usableFor"]), (&json!(40), &json!("29.970s")));
    assert_eq!(found["answers"][1]["askEachRequest"]["reason"], "TOO_FEW_WANTED");
    let back = json!({"descriptor": tenant, "receipt": loan["receipt"], "unused": 30, "used": 10});
    let found = exchange(json!({"domain": "test", "returns": [back, back]})).await;
    let mut results: Vec<_> = found["results"].as_array().unwrap().clone();
    results.sort_by_key(Value::to_string);
    assert_eq!(results, [json!("ACCEPTED"), json!("REPEATED")]);
    let refused = web.send("POST", "/json/exchange", "{}").await;
    assert_eq!(refused.status, 400, "{refused:?}");
    let refused = web.send("POST", "/json/exchange", r#"{"domian": "d"}"#).await;
    assert!(refused.status == 400 && refused.body.contains("domian"), "{refused:?}");
}

#[tokio::test]
async fn a_holder_borrows_in_its_own_domains_and_returns_its_own_receipts_only() {
    let folder = tempfile::TempDir::new().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "0123456789abcdef0123456789abcdef\n").unwrap();
    let allowed = ["billing=test", "shop=test", "other=elsewhere"];
    let flags = ["--loan-key-file", keys.to_str().unwrap()];
    let secure = SecureTollgate::serve(&Policies::of(POLICY), &allowed, &flags);
    let connect = async |name: &str| Holder::over(secure.connect(name).await);
    let mut billing = connect("billing").await;
    let loan = billing.borrow("tenant", 50).await;
    let mut other = connect("other").await;
    let status = other.exchange(of(vec![want("tenant", 4)], vec![])).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::PermissionDenied);
    let mut shop = connect("shop").await;
    let result = shop.give_back(back("tenant", &loan, 50, 0)).await;
    assert_eq!(result, LeaseResult::InvalidReceipt, "the receipt of another client");
    let result = billing.give_back(back("tenant", &loan, 50, 0)).await;
    assert_eq!(result, LeaseResult::Accepted);
    let refused = Web::new(secure.service.http).send("POST", "/json/exchange", "{}").await;
    assert_eq!(refused.status, 403, "{refused:?}");
}

#[tokio::test]
async fn receipts_are_signed_by_the_first_key_and_valid_until_it_is_removed() {
    const FIRST: &str = "0123456789abcdef0123456789abcdef";
    const SECOND: &str = "fedcba9876543210fedcba9876543210";
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, FIRST).unwrap();
    let flags = ["--loan-key-file", file.to_str().unwrap()];
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o604);
    std::fs::set_permissions(&file, readable).unwrap();
    let mut service = Tollgate::serve_with(Policies::of(POLICY).path(), &flags);
    let advice = format!("chmod o-r {}", file.display());
    let log = service.process.log().join("\n");
    assert!(log.contains(&advice), "{log}");
    let mut holder = Holder::connect(service.grpc).await;
    let loan = holder.borrow("tenant", 50).await;
    assert!(loan.receipt.len() <= 256);
    for at in [0, 20, 60, loan.receipt.len() - 1] {
        let mut forged = back("tenant", &loan, 50, 0);
        forged.receipt[at] ^= 1;
        assert_eq!(holder.give_back(forged).await, LeaseResult::InvalidReceipt, "byte {at}");
    }
    std::fs::write(&file, format!("{SECOND}\n{FIRST}\n")).unwrap();
    service.wait_for_message("loan keys reloaded");
    assert_eq!(holder.give_back(back("tenant", &loan, 50, 0)).await, LeaseResult::Accepted);
    let loan = holder.borrow("tenant", 50).await;
    std::fs::write(&file, "short").unwrap();
    service.wait_for_message("loan key reload failed; current keys remain in use");
    std::fs::write(&file, FIRST).unwrap();
    // Of another counter while its key is known.
    let other = async || holder.clone().give_back(back("other", &loan, 50, 0)).await;
    let is_unknown = |result: &LeaseResult| *result == LeaseResult::InvalidReceipt;
    becomes("the key is removed", TEST_TIMEOUT, other, is_unknown).await;
    let result = holder.give_back(back("tenant", &loan, 50, 0)).await;
    assert_eq!(result, LeaseResult::InvalidReceipt, "signed by the key that was removed");
    let found = output(["serve", "--loan-key-file", "/dev/null"]);
    let error = String::from_utf8(found.stderr).unwrap();
    assert!(error.contains("--loan-key-file") && error.contains("found 0"), "{error}");
}
