//! Envoy in front of an application with tollgate behind it, from a client's perspective.

mod authority;
pub(crate) mod example;
mod failure;
pub(crate) mod holds;
mod secure;

use std::time::{Duration, SystemTime};

use crate::support::envoy::Envoy;
use crate::support::root;
use crate::support::tollgate::{Tollgate, lasting_address};
use crate::support::web::Reply;
use crate::support::{TEST_TIMEOUT, becomes};

const DAY: u64 = 86_400;

#[tokio::test]
async fn a_client_gets_429_after_the_limit() {
    let edge = Edge::start().await;
    for expected in [200, 200, 200, 429, 429] {
        assert_eq!(edge.envoy.edge.status("/user", "ann").await, expected);
    }
}

#[tokio::test]
async fn a_denied_client_does_not_affect_others() {
    let edge = Edge::start().await;
    edge.use_up("/user", "ann").await;
    assert_eq!(edge.envoy.edge.status("/user", "bob").await, 200);
}

#[tokio::test]
async fn headers_show_the_limit_the_remaining_hits_and_the_reset() {
    let edge = Edge::start().await;
    let latest = seconds_of_today_left();
    let reply = edge.get("/user", &[("x-user", b"ann")]).await;
    assert_eq!(reply.header("x-ratelimit-limit"), "3, 3;w=86400");
    assert_eq!(reply.header("x-ratelimit-remaining"), "2");
    let reset: u64 = reply.header("x-ratelimit-reset").parse().unwrap();
    assert!((seconds_of_today_left()..=latest).contains(&reset), "{reset}");
}

#[tokio::test]
async fn a_429_has_retry_after() {
    let edge = Edge::start().await;
    edge.use_up("/user", "ann").await;
    let latest = seconds_of_today_left();
    let reply = edge.get("/user", &[("x-user", b"ann")]).await;
    let retry_after: u64 = reply.header("retry-after").parse().unwrap();
    assert!((seconds_of_today_left()..=latest).contains(&retry_after), "{retry_after}");
    assert_eq!(reply.header("x-ratelimit-reset"), reply.header("retry-after"));
    assert_eq!(reply.header("x-ratelimit-remaining"), "0");
    assert_eq!(reply.header("x-envoy-ratelimited"), "true");
}

#[tokio::test]
async fn configured_headers_reach_the_client_also_with_metadata() {
    let edge =
        Edge::start_as("true", &["--response-headers", "legacy,ietf", "--dynamic-metadata"]).await;
    let reply = edge.get("/both", &[("x-user", b"ann \xff")]).await;
    let of = |name| reply.header(name);
    assert_eq!((reply.status, of("ratelimit-limit"), of("ratelimit-remaining")), (200, "1", "0"));
    assert!(of("ratelimit-reset").parse::<u64>().unwrap() > 0);
    assert_eq!(of("ratelimit-policy"), r#""wide";q=100;w=86400, "one \"a day\"";q=1;w=86400"#);
    assert!(of("ratelimit").starts_with(r#""wide";r=99;t="#), "{}", of("ratelimit"));
    let denied = edge.get("/both", &[("x-user", b"ann \xff")]).await;
    assert_eq!((denied.status, denied.header("ratelimit-remaining")), (429, "0"));
    assert_eq!(edge.envoy.counter("cluster.upstream.ratelimit.error").await, 0);
}

#[tokio::test]
async fn a_request_is_charged_its_cost() {
    let edge = Edge::start().await;
    assert_eq!(edge.pay("/cost", b"7").await, (200, 3));
    assert_eq!(edge.pay("/cost", b"4").await, (429, 0));
    assert_eq!(edge.pay("/cost", b"3").await, (200, 0), "the denied request was not charged");
}

#[tokio::test]
async fn a_peek_charges_nothing() {
    let edge = Edge::start().await;
    edge.pay("/cost", b"9").await;
    for _ in 0..3 {
        assert_eq!(edge.pay("/balance", b"").await, (200, 1));
    }
}

#[tokio::test]
async fn a_refund_returns_hits() {
    let edge = Edge::start().await;
    edge.pay("/cost", b"9").await;
    assert_eq!(edge.pay("/refund", b"5").await, (200, 6));
    assert_eq!(edge.pay("/balance", b"").await, (200, 6));
}

#[tokio::test]
async fn a_cost_in_the_response_is_charged_afterwards() {
    let edge = Edge::start().await;
    let send = async || {
        left(&edge.get("/tokens", &[("x-user", b"ann"), ("x-answer-tokens", b"60")]).await)
    };
    // Without a token count no hits are charged after the response, so this is a peek.
    let tokens = || async { left(&edge.get("/tokens", &[("x-user", b"ann")]).await) };
    assert_eq!(send().await, (200, 100));
    becomes("the first answer is charged", TEST_TIMEOUT, tokens, |left| *left == (200, 40)).await;
    assert_eq!(send().await, (200, 40));
    becomes("the second answer is charged", TEST_TIMEOUT, tokens, |left| *left == (429, 0)).await;
}

#[tokio::test]
async fn a_value_that_is_not_text_is_limited_like_any_other() {
    Edge::start().await.limits_agent(b"\xff\xfe\x80 \xc3\x28").await;
}

#[tokio::test]
async fn values_that_are_not_text_have_their_own_counters() {
    let edge = Edge::start().await;
    edge.limits_agent(b"\xff").await;
    edge.limits_agent(b"\xfe").await;
}

#[tokio::test]
async fn a_value_of_20_kb_is_limited_like_any_other() {
    Edge::start().await.limits_agent(&[b'x'; 20_000]).await;
}

#[tokio::test]
async fn an_empty_value_is_limited_like_any_other() {
    Edge::start().await.limits_agent(b"").await;
}

#[tokio::test]
async fn a_descriptor_without_entries_is_admitted_by_a_decision() {
    let edge = Edge::start().await;
    assert_eq!(edge.envoy.edge.get("/bare").await.status, 200);
    assert_eq!(edge.envoy.counter("cluster.upstream.ratelimit.ok").await, 1);
}

#[tokio::test]
async fn a_descriptor_that_is_sent_twice_takes_two_hits() {
    let edge = Edge::start().await;
    for expected in [(200, 2), (200, 0), (429, 0)] {
        assert_eq!(left(&edge.get("/twice", &[("x-user", b"ann")]).await), expected);
    }
}

#[tokio::test]
async fn of_two_limits_the_one_with_fewer_remaining_hits_is_shown() {
    let edge = Edge::start().await;
    let reply = edge.get("/both", &[("x-user", b"ann")]).await;
    assert_eq!(left(&reply), (200, 0));
    // Double quotes in a rule's name would end the header's quoted string.
    assert_eq!(reply.header("x-ratelimit-limit"), "1, 100;w=86400, 1;w=86400;name=\"one 'a day'\"");
}

#[tokio::test]
async fn a_limit_of_the_request_overrides_the_rules() {
    let edge = Edge::start().await;
    let reply = edge.get("/contract", &[("x-user", b"ann")]).await;
    assert_eq!(reply.header("x-ratelimit-limit"), "2, 2;w=86400");
    assert_eq!(edge.envoy.edge.status("/contract", "ann").await, 200);
    assert_eq!(edge.envoy.edge.status("/contract", "ann").await, 429);
}

#[tokio::test]
async fn many_actions_make_one_descriptor() {
    let edge = Edge::start().await;
    assert_eq!(edge.envoy.edge.status("/actions?page=17", "ann").await, 200);
    assert_eq!(edge.envoy.edge.status("/actions?page=17", "ann").await, 429);
    let other = edge.get("/actions?page=2", &[("x-user", b"ann")]).await;
    assert_eq!(
        (other.status, other.header("x-ratelimit-limit")),
        (200, ""),
        "no rule is for page 2"
    );
}

/// Envoy with `edge.yaml`, and tollgate with the limits of `policy.yaml`.
struct Edge {
    envoy: Envoy,
    tollgate: Tollgate,
}

impl Edge {
    async fn start() -> Self {
        Self::start_with("false").await
    }

    async fn start_with(failure_mode_deny: &str) -> Self {
        Self::start_as(failure_mode_deny, &[]).await
    }

    async fn start_as(failure_mode_deny: &str, flags: &[&str]) -> Self {
        let address = lasting_address();
        let flags = [flags, &["--grpc-listen", &address]].concat();
        let tollgate = Tollgate::serve_with(&root().join("tests/envoy/policy.yaml"), &flags);
        let port = tollgate.grpc.port().to_string();
        let values = [("TOLLGATE", port.as_str()), ("FAILURE_MODE_DENY", failure_mode_deny)];
        Self { envoy: Envoy::start("edge.yaml", &values).await, tollgate }
    }

    async fn get(&self, path: &str, headers: &[(&'static str, &[u8])]) -> Reply {
        self.envoy.edge.get_with(path, headers).await
    }

    /// Sends a request of user Ann with a cost. Returns the status and her remaining hits.
    async fn pay(&self, path: &str, cost: &[u8]) -> (u16, u32) {
        left(&self.get(path, &[("x-user", b"ann"), ("x-cost", cost)]).await)
    }

    /// Uses up the three requests per day of a user.
    async fn use_up(&self, path: &str, user: &str) {
        for _ in 0..3 {
            assert_eq!(self.envoy.edge.status(path, user).await, 200);
        }
    }

    async fn limits_agent(&self, agent: &[u8]) {
        for expected in [200, 200, 429] {
            assert_eq!(self.get("/agent", &[("x-agent", agent)]).await.status, expected);
        }
    }
}

/// Returns a reply's status and its remaining hits.
fn left(reply: &Reply) -> (u16, u32) {
    (reply.status, reply.header("x-ratelimit-remaining").parse().unwrap())
}

/// Returns the seconds until midnight UTC, rounded up.
fn seconds_of_today_left() -> u64 {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let left = Duration::from_secs((now.as_secs() / DAY + 1) * DAY) - now;
    left.as_millis().div_ceil(1000).try_into().unwrap()
}
