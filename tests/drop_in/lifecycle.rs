//! Start, changed configuration and end: without a policy, without Redis, by every signal.

use rustix::process::Signal;

use super::plain::BROKEN;
use super::{Istio, Ratelimit};
use crate::support::policy::{Policies, daily};
use crate::support::rls::{descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn a_swap_of_the_config_map_is_served_and_a_bad_one_is_not() {
    let mut istio = Istio::with(&daily("user", 5)).await;
    let mut service = istio.serve(&[]).await;
    let client = service.client().await;
    assert!(client.hit("user", "ann").await);
    istio.map.swap(BROKEN);
    service.wait_for("policy change rejected");
    service.wait_for("kee");
    assert_eq!((client.limit("user", "ann").await, service.health().await), (Some(5), 200));
    istio.map.swap(&daily("user", 2));
    client.limit_becomes("user", "ann", Some(2)).await;
    assert!(client.hit("user", "ann").await && !client.hit("user", "ann").await, "counters go on");
}

#[tokio::test]
async fn a_start_with_a_bad_configuration_serves_and_is_healthy_unless_a_good_one_is_required() {
    for (required, health) in [("false", 200), ("true", 500)] {
        let mut istio = Istio::with(BROKEN).await;
        let more = [("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", required)];
        let mut service = Ratelimit::start(&istio.variables(&more));
        service.wait_for("store connected");
        service.health_becomes(health).await;
        let client = service.client().await;
        client.decide(request(vec![descriptor(&[("user", "ann")])])).await.unwrap_err();
        service.wait_for("kee");
        istio.map.swap(&daily("user", 5));
        let decided = || client.decide(request(vec![descriptor(&[("user", "ann")])]));
        becomes("it answers", TEST_TIMEOUT, decided, Result::is_ok).await.unwrap();
        assert_eq!(service.health().await, 200);
    }
}

#[tokio::test]
async fn no_policy_is_a_configuration_without_limits() {
    let istio = Istio::with("").await;
    std::fs::remove_file(istio.map.files.file("ratelimit/config/policy.yaml")).unwrap();
    let mut service = istio.serve(&[]).await;
    let client = service.client().await;
    let becomes = async |what: &str, amount| {
        becomes(what, TEST_TIMEOUT, || client.limit("user", "ann"), |limit| *limit == amount).await;
    };
    becomes("no limit is in force", None).await;
    istio.map.files.write("ratelimit/config/below/policy.yaml", &daily("user", 5));
    becomes("a file below is noticed", Some(5)).await;
    std::fs::rename(
        istio.map.files.file("ratelimit/config/below"),
        istio.map.files.file("elsewhere"),
    )
    .unwrap();
    becomes("a moved file is noticed", None).await;
}

#[tokio::test]
async fn health_may_need_a_policy_at_any_time() {
    let mut istio = Istio::with("").await;
    let link = istio.map.files.file("ratelimit/config/policy.yaml");
    std::fs::remove_file(&link).unwrap();
    let more = [("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")];
    let mut service = Ratelimit::start(&istio.variables(&more));
    service.wait_for("store connected");
    assert_eq!(service.health().await, 500);
    istio.map.swap(&daily("user", 5));
    istio.map.files.link("ratelimit/config/policy.yaml", "..data/policy.yaml");
    service.health_becomes(200).await;
    std::fs::remove_file(link).unwrap();
    service.health_becomes(500).await;
}

#[tokio::test]
async fn the_root_may_be_a_link_that_is_swapped() {
    let files = Policies::none();
    for (version, amount) in [("v1", 5), ("v2", 7)] {
        files.write(&format!("{version}/ratelimit/config/policy.yaml"), &daily("user", amount));
        files.write(&format!("{version}/ratelimit/other/policy.yaml"), BROKEN);
    }
    files.link("current", "v1");
    let root = files.file("current");
    let istio = Istio::with("").await;
    let more = [("RUNTIME_ROOT", root.to_str().unwrap()), ("RUNTIME_WATCH_ROOT", "true")];
    let mut service = istio.serve(&more).await;
    let client = service.client().await;
    assert_eq!(client.limit("user", "ann").await, Some(5));
    files.link("current", "v2");
    client.limit_becomes("user", "ann", Some(7)).await;
}

#[tokio::test]
async fn every_signal_ends_the_process_with_exit_code_0() {
    let istio = Istio::with(&daily("user", 5)).await;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut service = istio.serve(&[]).await;
        service.process.signal(signal);
        assert_eq!(service.process.wait_for_end().code(), Some(0), "{signal:?}");
    }
    let mut with_all_defaults = istio.serve(&[("TOLLGATE_DRAIN_DELAY", "3s")]).await;
    assert_eq!(with_all_defaults.terminate().code(), Some(0));
}

#[tokio::test]
async fn without_redis_it_listens_and_is_healthy_once_there_is_one() {
    let istio = Istio::with(&daily("user", 5)).await;
    istio.redis.kill();
    let mut service = Ratelimit::start(&istio.variables(&[]));
    let client = service.client().await;
    assert_eq!(service.health().await, 500);
    client.decide(request(vec![descriptor(&[("user", "ann")])])).await.unwrap_err();
    assert_eq!(client.limit("other", "ann").await, None, "what has no limit needs no Redis");
    istio.redis.restart().await;
    becomes("it is healthy", TEST_TIMEOUT, || service.health(), |status| *status == 200).await;
    assert!(client.hit("user", "ann").await);
}
