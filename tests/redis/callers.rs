//! `record`, and `tollgate inspect --store`: the users that used up a counter.

use std::process::Output;

use tollgate::grpc::proto::rate_limit_response::Code;

use super::{policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::output;

const RECORDING: &str =
    "algorithm: sliding_window, requests_per_unit: 5, unit: year, record: [user]";

#[tokio::test]
async fn top_users_are_listed_in_descending_order() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("tenant", RECORDING)]));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "0s"]).await;
    for (user, hits) in [("ann", 1), ("bob", 3), ("ann", 1), ("cy", 7)] {
        hit_as(&client, user, hits).await;
    }
    let output = who(&policies, &redis.url(), "tenant=acme");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        lines(&output),
        [[3, 0], [2, 0], [0, 7]]
            .into_iter()
            .zip(["user=bob", "user=ann", "user=cy"])
            .map(row)
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn cached_denials_are_tallied() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("tenant", RECORDING)]));
    let (_service, client) = serve(&policies, &redis.url(), &["--deny-cache-max", "60s"]).await;
    hit_as(&client, "ann", 5).await;
    for _ in 0..10 {
        hit_as(&client, "bob", 1).await;
    }
    let is_complete = || {
        let found = lines(&who(&policies, &redis.url(), "tenant=acme"));
        (found == [row(([5, 0], "user=ann")), row(([0, 10], "user=bob"))]).then_some(())
    };
    crate::support::eventually(
        "all ten denials are listed",
        crate::support::TEST_TIMEOUT,
        is_complete,
    );
}

#[tokio::test]
async fn small_users_are_listed_as_one_row() {
    let redis = Redis::start().await;
    let limit = "algorithm: sliding_window, requests_per_unit: 10000, unit: year, record: [user]";
    let policies = Policies::of(&policy(&[("tenant", limit)]));
    let (_service, client) = serve(&policies, &redis.url(), &[]).await;
    hit_as(&client, "heavy", 1_000).await;
    for user in 0..60 {
        hit_as(&client, &format!("user-{user}"), 1).await;
    }
    let found = lines(&who(&policies, &redis.url(), "tenant=acme"));
    assert_eq!(found[0], row(([1_000, 0], "user=heavy")));
    assert_eq!(found.last().unwrap().1, "(other)");
    assert_eq!(
        found.iter().map(|([charged, _], _)| charged).sum::<u64>(),
        1_060,
        "no caller is lost"
    );
    let stored: u64 = redis
        .query(&["EVAL", "return #redis.call('GET', redis.call('KEYS', '*')[1])", "0"])
        .await
        .unwrap();
    assert!(stored < 3_000, "tallies are bounded, found {stored} bytes");
}

#[tokio::test]
async fn an_unused_counter_has_its_own_exit_code() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("tenant", RECORDING)]));
    assert_eq!(who(&policies, &redis.url(), "tenant=absent").status.code(), Some(1));
}

#[tokio::test]
async fn unavailable_tallies_are_an_error_with_the_reason() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[
        ("tenant", RECORDING),
        ("path", "requests_per_unit: 5, unit: year"),
    ]));
    for (store, descriptor, reason) in [
        (redis.url().as_str(), "path=/", "does not record callers"),
        (redis.url().as_str(), "nothing=here", "no rule"),
        ("memory", "tenant=acme", "expected a Redis URL"),
    ] {
        let output = who(&policies, store, descriptor);
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(error.contains(reason), "{error}");
    }
}

/// Takes hits of the tenant's counter as one of its users.
pub(super) async fn hit_as(client: &Client, user: &str, hits: u64) -> Code {
    let mut tenant = descriptor(&[("tenant", "acme")]);
    tenant.hits_addend = Some(hits);
    client
        .decide(request(vec![tenant, descriptor(&[("user", user)])]))
        .await
        .unwrap()
        .overall_code()
}

pub(super) fn who(policies: &Policies, store: &str, descriptor: &str) -> Output {
    let policy = policies.file("policy.yaml");
    output(["inspect", "--policy", policy.to_str().unwrap(), "--store", store, "test", descriptor])
}

/// Hits charged and denied, and the user.
type Row = ([u64; 2], String);

pub(super) fn row((hits, who): ([u64; 2], &str)) -> Row {
    (hits, who.to_owned())
}

/// Returns the rows below the headings.
pub(super) fn lines(output: &Output) -> Vec<Row> {
    let read = |line: &str| -> Option<Row> {
        let mut words = line.split_whitespace();
        let charged = words.next()?.parse().ok()?;
        let denied = words.next()?.parse().ok()?;
        Some(([charged, denied], words.next()?.to_owned()))
    };
    String::from_utf8_lossy(&output.stdout).lines().skip(1).filter_map(read).collect()
}
