//! Policy files that change at run time.

use std::time::Duration;

use serde_json::Value;

use crate::support::policy::{Policies, daily};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const BROKEN: &str = "domain: test\ndescriptors:\n  - kee: user\n";

#[tokio::test]
async fn changes_are_served() {
    let policies = Policies::of(&daily("user", 5));
    let (_service, client) = serve(&policies).await;
    for amount in [6, 7, 8] {
        policies.write("policy.yaml", &daily("user", amount));
        limit_becomes(&client, Some(amount)).await;
    }
}

#[tokio::test]
async fn equal_policies_have_one_version_in_the_metrics_of_all_replicas() {
    let one = Policies::of(&daily("user", 5));
    let other = Policies::of(&format!("# As a file of another layout.\n{}", daily("user", 5)));
    let services = [serve(&one).await, serve(&other).await];
    let versions = async || {
        let mut lines = Vec::new();
        for (service, _) in &services {
            let metrics = Web::new(service.http).get("/metrics").await.body;
            let of = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
            assert_eq!((of("tollgate_policy_info{"), of("tollgate_build_info{")), (1, 1));
            let line = metrics.lines().find(|line| line.starts_with("tollgate_policy_info{"));
            lines.push(line.unwrap().to_owned());
        }
        lines
    };
    let before = versions().await;
    assert_eq!(before[0], before[1]);
    other.write("policy.yaml", &daily("user", 6));
    becomes("the versions differ", TEST_TIMEOUT, versions, |now| now[0] != now[1]).await;
    assert_eq!(versions().await[0], before[0]);
    let program = env!("CARGO_PKG_VERSION");
    let metrics = Web::new(services[0].0.http).get("/metrics").await.body;
    assert!(metrics.contains(&format!("tollgate_build_info{{version=\"{program}\"")), "{metrics}");
}

#[tokio::test]
async fn a_file_that_changes_back_at_once_after_a_reload_is_served() {
    let policies = Policies::of(&daily("user", 5));
    let (service, client) = serve(&policies).await;
    let admin = format!("http://{}", service.admin);
    policies.write("policy.yaml", &daily("user", 7));
    assert!(output(["reload", "--admin", &admin]).status.success());
    policies.write("policy.yaml", &daily("user", 5));
    limit_becomes(&client, Some(5)).await;
}

#[tokio::test]
async fn a_file_that_is_written_in_place_is_served() {
    let policies = Policies::of(&daily("user", 5));
    let (_service, client) = serve(&policies).await;
    policies.write("policy.yaml", &daily("user", 7));
    limit_becomes(&client, Some(7)).await;
}

#[tokio::test]
async fn a_file_that_is_renamed_over_the_old_one_is_served() {
    let policies = Policies::of(&daily("user", 5));
    let (_service, client) = serve(&policies).await;
    policies.write("policy.yaml.new", &daily("user", 7));
    std::fs::rename(policies.file("policy.yaml.new"), policies.file("policy.yaml")).unwrap();
    limit_becomes(&client, Some(7)).await;
}

#[tokio::test]
async fn a_config_map_that_kubernetes_swaps_is_served() {
    let policies = config_map(&daily("user", 5));
    let (_service, client) = serve(&policies).await;
    swap(&policies, &daily("user", 7));
    limit_becomes(&client, Some(7)).await;
}

#[tokio::test]
async fn one_file_of_a_config_map_is_followed_as_well() {
    let policies = config_map(&daily("user", 5));
    let service = Tollgate::serve(&policies.file("policy.yaml"));
    let client = Client::connect(service.grpc).await;
    swap(&policies, &daily("user", 7));
    limit_becomes(&client, Some(7)).await;
}

#[tokio::test]
async fn a_file_that_is_added_is_served() {
    let policies = Policies::none();
    policies.write("other.yaml", "domain: other\ndescriptors: []\n");
    let (_service, client) = serve(&policies).await;
    assert_eq!(client.limit("user", "ann").await, None);
    policies.write("below/policy.yaml", &daily("user", 5));
    limit_becomes(&client, Some(5)).await;
}

#[tokio::test]
async fn the_limits_of_a_file_that_is_removed_end() {
    let policies = Policies::of(&daily("user", 5));
    policies.write("other.yaml", "domain: other\ndescriptors: []\n");
    let (_service, client) = serve(&policies).await;
    std::fs::remove_file(policies.file("policy.yaml")).unwrap();
    limit_becomes(&client, None).await;
}

#[tokio::test]
async fn a_bad_change_is_reported_and_the_running_policy_stays() {
    let policies = Policies::of(&daily("user", 5));
    let (mut service, client) = serve(&policies).await;
    policies.write("policy.yaml", BROKEN);
    let parts = ["rejected", "policy.yaml:3", "kee"];
    let reports = |line: &str| parts.iter().all(|part| line.contains(part)).then_some(());
    service.process.wait_for_line("the rejection, with place and reason", reports);
    assert_eq!(client.limit("user", "ann").await, Some(5));
}

#[tokio::test]
async fn loads_are_counted_and_a_bad_change_once() {
    let policies = Policies::of(&daily("user", 5));
    let (_service, client, admin, public) = serve_all(&policies).await;
    policies.write("policy.yaml", BROKEN);
    becomes("the change is refused", TEST_TIMEOUT, || last_error(&admin), Value::is_string).await;
    // No event shows that the files were read again; they are polled twice a second.
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    policies.write("policy.yaml", &daily("user", 7));
    limit_becomes(&client, Some(7)).await;
    let metrics = public.get("/metrics").await.body;
    assert!(metrics.contains("tollgate_policy_loads_total{kind=\"refused\"} 1\n"), "{metrics}");
    assert!(metrics.contains("tollgate_policy_loads_total{kind=\"loaded\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn admin_shows_the_error_until_it_is_corrected() {
    let policies = Policies::of(&daily("user", 5));
    let (_service, _client, admin, _public) = serve_all(&policies).await;
    assert_eq!(last_error(&admin).await, Value::Null);
    policies.write("policy.yaml", BROKEN);
    let has_place =
        |error: &Value| error.as_str().is_some_and(|error| error.contains("policy.yaml:3"));
    becomes("the error is reported", TEST_TIMEOUT, || last_error(&admin), has_place).await;
    policies.write("policy.yaml", &daily("user", 5));
    becomes("the error is cleared", TEST_TIMEOUT, || last_error(&admin), Value::is_null).await;
}

#[tokio::test]
async fn a_missing_directory_is_a_bad_change() {
    let policies = Policies::none();
    policies.write("limits/policy.yaml", &daily("user", 5));
    let mut service = Tollgate::serve(&policies.file("limits"));
    std::fs::rename(policies.file("limits"), policies.file("elsewhere")).unwrap();
    service.process.wait_for_line("the rejection", |line| line.contains("rejected").then_some(()));
    assert_eq!(Client::connect(service.grpc).await.limit("user", "ann").await, Some(5));
}

#[tokio::test]
async fn a_directory_without_policies_is_a_bad_change() {
    let policies = Policies::of(&daily("user", 5));
    let (_service, client, admin, _) = serve_all(&policies).await;
    std::fs::remove_file(policies.file("policy.yaml")).unwrap();
    becomes(
        "it is reported",
        TEST_TIMEOUT,
        || last_error(&admin),
        |error| error.as_str().is_some_and(|error| error.contains("*.yaml")),
    )
    .await;
    limit_becomes(&client, Some(5)).await;
}

#[tokio::test]
async fn counters_continue_when_an_amount_is_raised() {
    let policies = Policies::of(&daily("user", 2));
    let (_service, client) = serve(&policies).await;
    assert_eq!(hits(&client, 2).await, [true, true]);
    policies.write("policy.yaml", &daily("user", 3));
    limit_becomes(&client, Some(3)).await;
    assert_eq!(hits(&client, 2).await, [true, false], "two of three were taken before");
}

#[tokio::test]
async fn counters_continue_when_an_amount_is_lowered() {
    let policies = Policies::of(&daily("user", 5));
    let (_service, client) = serve(&policies).await;
    assert_eq!(hits(&client, 3).await, [true, true, true]);
    policies.write("policy.yaml", &daily("user", 3));
    limit_becomes(&client, Some(3)).await;
    assert_eq!(hits(&client, 1).await, [false]);
}

#[tokio::test]
async fn counters_start_over_when_the_period_changes() {
    let policies = Policies::of(&daily("user", 2));
    let (_service, client) = serve(&policies).await;
    assert_eq!(hits(&client, 3).await, [true, true, false]);
    policies.write("policy.yaml", &daily("user", 3).replace("day", "week"));
    limit_becomes(&client, Some(3)).await;
    assert_eq!(hits(&client, 4).await, [true, true, true, false]);
}

#[tokio::test]
async fn counters_of_other_rules_continue_through_every_change() {
    let policies = Policies::of(&daily("user", 2));
    let (_service, client) = serve(&policies).await;
    assert_eq!(hits(&client, 2).await, [true, true]);
    let first =
        "  - key: user\n    value: bob\n    rate_limit: { requests_per_unit: 9, unit: hour }\n";
    policies.write(
        "policy.yaml",
        &daily("user", 2).replace("descriptors:\n", &format!("descriptors:\n{first}")),
    );
    client.limit_becomes("user", "bob", Some(9)).await;
    assert_eq!(hits(&client, 1).await, [false]);
}

async fn serve(policies: &Policies) -> (Tollgate, Client) {
    let service = Tollgate::serve(policies.path());
    let client = Client::connect(service.grpc).await;
    (service, client)
}

/// Serves with clients of the admin and public HTTP listeners.
async fn serve_all(policies: &Policies) -> (Tollgate, Client, Web, Web) {
    let (service, client) = serve(policies).await;
    let admin = Web::new(service.admin);
    let public = Web::new(service.http);
    (service, client, admin, public)
}

/// Waits until the limit of users has the given amount.
async fn limit_becomes(client: &Client, amount: Option<u32>) {
    client.limit_becomes("user", "ann", amount).await;
}

/// Sends `count` hits for user Ann; each result is `true` if the hit was admitted.
async fn hits(client: &Client, count: usize) -> Vec<bool> {
    let mut admitted = Vec::new();
    for _ in 0..count {
        admitted.push(client.hit("user", "ann").await);
    }
    admitted
}

async fn last_error(admin: &Web) -> Value {
    let facts: Value = serde_json::from_str(&admin.get("/policies").await.body).unwrap();
    facts["last_error"].clone()
}

/// Creates a directory like a ConfigMap mounted by Kubernetes: a link into `..data`, which is a
/// link to the folder of a version.
fn config_map(text: &str) -> Policies {
    let policies = Policies::none();
    policies.write("..1/policy.yaml", text);
    policies.link("..data", "..1");
    policies.link("policy.yaml", "..data/policy.yaml");
    policies
}

/// Updates the directory like Kubernetes: a new folder, one renamed link, the old folder removed.
fn swap(policies: &Policies, text: &str) {
    policies.write("..2/policy.yaml", text);
    policies.link("..data", "..2");
    std::fs::remove_dir_all(policies.file("..1")).unwrap();
}
