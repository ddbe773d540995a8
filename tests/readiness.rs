//! Readiness, which all probes report alike: two paths over HTTP, three service names over gRPC.

use crate::support::policy::{Policies, daily};
use crate::support::probes::Probes;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::{Tollgate, command, quiet};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const BROKEN: &str = "domain: test\ndescriptors:\n  - kee: user\n";

#[tokio::test]
async fn the_probes_of_a_ready_service_agree() {
    let service = Tollgate::serve(Policies::of(&daily("user", 5)).path());
    let probes = Probes::of(&service).await;
    assert_eq!(probes.agree().await, (true, "ok\n".to_owned()));
    let health = probes.web.send("POST", "/healthcheck", "").await;
    assert_eq!((health.status, health.body.as_str()), (200, "OK"));
}

#[tokio::test]
async fn with_the_flag_it_starts_without_a_policy_and_loads_the_first_valid_one() {
    for first in [None, Some(BROKEN)] {
        let policies = Policies::none();
        first.iter().for_each(|text| policies.write("policy.yaml", text));
        let mut service = Tollgate::serve_with(policies.path(), &["--start-without-policy"]);
        let probes = Probes::of(&service).await;
        assert_eq!(probes.agree().await, (false, "no policy loaded yet\n".to_owned()));
        let client = Client::connect(service.grpc).await;
        let answer = client.decide(request(vec![descriptor(&[("user", "ann")])])).await;
        assert_eq!(answer.unwrap_err().code(), tonic::Code::Unavailable);
        assert_eq!(
            probes.web.send("POST", "/json", r#"{"domain":"d","descriptors":[{}]}"#).await.status,
            503
        );
        assert_eq!(Web::new(service.admin).get("/rlconfig").await.body, "");
        policies.write("policy.yaml", &daily("user", 5));
        becomes(
            "a good policy is found",
            TEST_TIMEOUT,
            || probes.agree(),
            |(is_ready, _)| *is_ready,
        )
        .await;
        assert_eq!(client.limit("user", "ann").await, Some(5));
        service
            .process
            .wait_for_line("the error", |line| line.contains("policies rejected").then_some(()));
    }
}

#[tokio::test]
async fn it_starts_without_a_policy_and_reports_the_next_error() {
    let policies = Policies::of(BROKEN);
    let service = Tollgate::serve_with(policies.path(), &["--start-without-policy"]);
    let admin = Web::new(service.admin);
    let policies_page = || async { admin.get("/policies").await.body };
    assert!(policies_page().await.contains("kee"));
    policies.write("policy.yaml", &BROKEN.replace("kee", "kea"));
    becomes("the next error is reported", TEST_TIMEOUT, policies_page, |page| page.contains("kea"))
        .await;
}

#[test]
fn without_the_flag_a_missing_policy_fails_startup() {
    let ended = command(quiet(&[]))
        .arg("--policy")
        .arg("/nowhere.yaml")
        .arg("--ready-without-policy")
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("/nowhere.yaml"));
}

#[tokio::test]
async fn with_the_flag_it_is_ready_without_a_policy() {
    let service = Tollgate::serve_with(
        Policies::none().path(),
        &["--start-without-policy", "--ready-without-policy"],
    );
    assert_eq!(Probes::of(&service).await.agree().await, (true, "ok\n".to_owned()));
}

#[test]
fn readiness_cannot_both_follow_something_and_do_without_it() {
    let policies = Policies::of(&daily("user", 5));
    let mut both = command(quiet(&[]));
    both.arg("--policy")
        .arg(policies.path())
        .args(["--ready-while-store", "--ready-without-store"]);
    let ended = both.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&ended.stderr)
            .contains("--ready-while-store: cannot be used with --ready-without-store")
    );
    let mut both = command(quiet(&[]));
    both.arg("--policy")
        .arg(policies.path())
        .args(["--ready-while-policy", "--ready-without-policy"]);
    let error = String::from_utf8(both.output().unwrap().stderr).unwrap();
    assert!(
        error.contains("--ready-while-policy: cannot be used with --ready-without-policy"),
        "{error}"
    );
}
