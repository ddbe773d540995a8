//! One counter through the API and the command line: inspect, reset, refund, grant.

use serde_json::{Value, json};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{guarded, text};
use crate::support::policy::{Policies, yearly};
use crate::support::rls::{Client, descriptor};
use crate::support::tollgate::{Tollgate, output, stdout};
use crate::support::web::{Reply, Web, fetch};

const ANN: &str = "/api/v1/counter?domain=test&descriptor=user=ann";

#[tokio::test]
async fn a_counter_shows_its_state_and_its_changes() {
    let windows = "{ requests_per_unit: 2, unit: year }, { requests_per_unit: 2, unit: 300d }";
    let policy = format!(
        "domain: test\ndescriptors:\n  - key: user\n    rate_limit: {{ windows: [{windows}], charge: admitted }}\n"
    );
    let service = Tollgate::serve(Policies::of(&policy).path());
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    for _ in 0..3 {
        client.hit("user", "anna").await;
    }
    let unused = fetch(&admin, ANN).await;
    assert_eq!(
        (&unused["state"]["remaining"], &unused["denials"], &unused["who"]),
        (&json!(2), &Value::Null, &json!([]))
    );
    assert_eq!(unused["state"]["retry_at"], Value::Null);
    assert_eq!([true, true, false, false], hits(&client).await);
    let used = fetch(&admin, ANN).await;
    assert_eq!(
        (&used["rule"], &used["key"], &used["limit"]),
        (&json!("user"), &json!("user=ann"), &json!("2 hits in 365d and 2 hits in 300d"))
    );
    let window = &used["state"]["windows"][0];
    assert_eq!(
        (&window["used"], &window["remaining"], &used["denials"]["count"]),
        (&json!(2), &json!(0), &json!(2))
    );
    let resets = [0, 1].map(|window| text(&used["state"]["windows"][window]["reset_at"]));
    assert_eq!(Some(text(&used["state"]["retry_at"])), resets.into_iter().max());
    assert!(text(&used["state"]["at"]) < text(&window["reset_at"]), "{used}");
    let granted = done(&admin, "grant", json!({"hits": 3, "for": "1h"})).await;
    assert_eq!(
        (&granted["before"]["remaining"], &granted["after"]["remaining"]),
        (&json!(0), &json!(3))
    );
    assert_eq!(
        (&granted["elsewhere_within_us"], &granted["key"]),
        (&Value::Null, &json!("user=ann"))
    );
    assert!(text(&granted["elsewhere"]).contains("this process only"), "{granted}");
    let grant = &granted["after"]["grant"];
    assert!(
        grant["remaining"] == 3 && text(&granted["after"]["at"]) < text(&grant["until"]),
        "{grant}"
    );
    assert_eq!([true, true, true, false], hits(&client).await);
    assert_eq!(
        fetch(&admin, ANN).await["state"]["windows"],
        used["state"]["windows"],
        "a grant does not charge the limit"
    );
    let refunded = done(&admin, "refund", json!({"hits": 1})).await;
    assert_eq!(
        (&refunded["before"]["windows"][0]["used"], &refunded["after"]["windows"][0]["used"]),
        (&json!(2), &json!(1))
    );
    assert_eq!([true, false], hits(&client).await);
    let reset = done(&admin, "reset", json!({})).await;
    assert_eq!(
        (&reset["before"]["windows"][0]["used"], &reset["after"]["windows"][0]["used"]),
        (&json!(2), &json!(0))
    );
    assert_eq!([true, true, false], hits(&client).await);
    let ended = done(&admin, "grant", json!({"hits": 0, "for": "1s"})).await;
    assert_eq!((&ended["before"]["grant"], &ended["after"]["grant"]), (&Value::Null, &Value::Null));
}

#[tokio::test]
async fn remaining_hits_are_those_that_a_request_would_be_admitted_with() {
    let service = Tollgate::serve(Policies::of(&yearly("user", 2)).path());
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    let granted = done(&admin, "grant", json!({"hits": 3, "for": "1h"})).await;
    assert_eq!(granted["after"]["remaining"], 3);
    for (hits, admits) in [(4, false), (3, true)] {
        let tried = json!({"entries": [{"key": "user", "value": "ann"}], "hits": hits});
        let message = json!({"domain": "test", "descriptors": [tried]}).to_string();
        let headers = [("content-type", "application/json")];
        let peeked = admin.send_with("POST", "/api/v1/try", &headers, message).await;
        let peeked: Value = serde_json::from_str(&peeked.body).unwrap();
        assert_eq!(
            (&peeked["would_admit"], &peeked["statuses"][0]["remaining"]),
            (&json!(admits), &json!(3)),
            "{hits}: {peeked}"
        );
        let many =
            RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("user", "ann")]) };
        let status = client.status(many).await;
        assert_eq!(status.code() == Code::Ok, admits, "{hits}");
    }
}

#[tokio::test]
async fn a_counter_of_hashed_values_is_found_by_value_and_shown_by_hash() {
    let limit = "{ requests_per_unit: 1, unit: year, hash_values: true }";
    let policies = Policies::of(&format!(
        "domain: test\ndescriptors: [{{ key: user, rate_limit: {limit} }}]\n"
    ));
    policies.write("key", "a secret of sixteen bytes");
    let key = policies.file("key").display().to_string();
    let mut service =
        Tollgate::serve_with(&policies.file("policy.yaml"), &["--hash-key-file", &key]);
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    assert_eq!([true, false], hits(&client).await);
    let found = fetch(&admin, ANN).await;
    let hashed = text(&found["key"]);
    assert!(hashed.starts_with("user=hash-"), "{found}");
    assert_eq!((&found["state"]["remaining"], &found["denials"]["count"]), (&json!(0), &json!(1)));
    assert_eq!(text(&done(&admin, "reset", json!({})).await["key"]), hashed);
    assert_eq!([true], hits(&client).await);
    let by_hash = admin.get(&format!("/api/v1/counter?domain=test&descriptor={hashed}")).await;
    assert!(
        by_hash.status == 404 && by_hash.body.contains("cannot be looked up by hash"),
        "{by_hash:?}"
    );
    service.terminate();
    let log = service.process.final_log();
    assert!(log.contains(hashed) && !log.contains("ann"), "{log}");
}

#[tokio::test]
async fn invalid_changes_are_refused_with_the_reason() {
    let policy = format!(
        "{}  - key: banned\n    rate_limit: {{ requests_per_unit: 0, unit: year }}\n  - key: free\n",
        yearly("user", 2)
    );
    let service = Tollgate::serve(Policies::of(&policy).path());
    let admin = Web::new(service.admin);
    let until = "2100-01-01T00:00:00Z";
    for (what, with, status, reason) in [
        ("reset", json!({"descriptor": "nothing=here"}), 404, "no rule"),
        ("reset", json!({"domain": "other"}), 404, "no policy for domain `other`"),
        ("reset", json!({"descriptor": "free=x"}), 404, "has no limit"),
        ("reset", json!({"descriptor": "banned=x"}), 409, "has no counter"),
        ("refund", json!({"hits": 0}), 400, "at least 1"),
        ("refund", json!({}), 422, "hits"),
        ("grant", json!({"hits": 1}), 400, "either `for` or `until`"),
        ("grant", json!({"hits": 1, "for": "1m", "until": until}), 400, "either `for` or `until`"),
        ("grant", json!({"hits": 1, "for": "soon"}), 400, "found `soon`"),
        ("grant", json!({"hits": 1, "for": "-1m"}), 400, "found `-1m`"),
        ("grant", json!({"hits": 1, "for": "9000h"}), 400, "within 366d"),
        ("grant", json!({"hits": 1, "until": "2020-01-01T00:00:00Z"}), 400, "in the future"),
        ("grant", json!({"hits": -1, "for": "1m"}), 422, "hits"),
    ] {
        let reply = post(&admin, what, &[], &with_ann(with)).await;
        assert!(reply.status == status && reply.body.contains(reason), "{what} {reply:?}");
    }
}

#[tokio::test]
async fn a_counter_that_cannot_be_shown_is_refused_with_the_reason() {
    let policy = format!(
        "{}  - key: banned\n    rate_limit: {{ requests_per_unit: 0, unit: year }}\n",
        yearly("user", 2)
    );
    let service = Tollgate::serve(Policies::of(&policy).path());
    let admin = Web::new(service.admin);
    for (query, status, reason) in [
        ("domain=test&descriptor=banned=x", 409, "is a ban"),
        ("domain=test&descriptor=nothing=here", 404, "no rule"),
        ("domain=test", 400, "descriptor"),
        ("domain=test&descriptor=user=%E2%80%A6", 400, "truncated"),
    ] {
        let reply = admin.get(&format!("/api/v1/counter?{query}")).await;
        assert!(reply.status == status && reply.body.contains(reason), "{query}: {reply:?}");
    }
}

#[tokio::test]
async fn unknown_denials_are_reported_as_unknown() {
    let policies = Policies::of(&yearly("user", 1));
    let service = Tollgate::serve_with(policies.path(), &["--denial-journal", "off"]);
    let client = Client::connect(service.grpc).await;
    let admin = Web::new(service.admin);
    assert_eq!([true, false], hits(&client).await);
    let found = fetch(&admin, ANN).await;
    assert_eq!(found["denials"], Value::Null);
    assert!(text(&found["denials_missing"]).contains("--denial-journal is off"), "{found}");
    let inspected =
        output(["inspect", "test", "user=ann", "--admin", &format!("http://{}", service.admin)]);
    let inspected = stdout(&inspected);
    assert!(inspected.contains("denials   none recorded"), "{inspected}");
    assert!(inspected.contains("some may be missing: denials are not recorded"), "{inspected}");
}

#[tokio::test]
async fn read_rights_allow_inspection_and_every_change_is_logged() {
    let folder = Policies::of(&yearly("user", 2));
    let mut service = guarded(&folder, &[]);
    let admin = Web::new(service.admin);
    let reader = ("authorization", "Bearer reader-0123456789");
    let writer = ("authorization", "Bearer writer-0123456789");
    assert_eq!(admin.get(ANN).await.status, 401);
    assert_eq!(admin.get_with(ANN, &[(reader.0, reader.1.as_bytes())]).await.status, 200);
    let body = json!({"domain": "test", "descriptor": "user=ann", "hits": 5, "for": "10m"});
    assert_eq!(post(&admin, "grant", &[], &body).await.status, 401);
    let refused = post(&admin, "grant", &[reader], &body).await;
    assert!(refused.status == 403 && refused.body.contains("has read access only"), "{refused:?}");
    assert_eq!(post(&admin, "grant", &[writer], &body).await.status, 200);
    let done = service.process.wait_for_line("the grant by ann", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let fields = &line["fields"];
        let is_it = line["target"] == "audit"
            && fields["who"] == "ann"
            && fields["path"] == "/api/v1/counter/grant";
        is_it.then(|| fields["done"].as_str().unwrap().to_owned())
    });
    let expected = "counter user=ann of rule user in domain test: 5 hits granted for 10m; 2 hits remaining before, 5 after";
    assert_eq!(done, expected);
}

async fn hits<const N: usize>(client: &Client) -> [bool; N] {
    let mut all = [false; N];
    for one in &mut all {
        *one = client.hit("user", "ann").await;
    }
    all
}

/// Returns a body with ann's counter, unless it has another one.
fn with_ann(with: Value) -> Value {
    let mut body = json!({"domain": "test", "descriptor": "user=ann"});
    body.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
    body
}

/// Changes ann's counter, and returns the response.
async fn done(admin: &Web, what: &str, with: Value) -> Value {
    let body = with_ann(with);
    let reply = post(admin, what, &[], &body).await;
    assert_eq!(reply.status, 200, "{what} {body}: {}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

async fn post(admin: &Web, what: &str, headers: &[(&'static str, &str)], body: &Value) -> Reply {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    admin.send_with("POST", &format!("/api/v1/counter/{what}"), &headers, body.to_string()).await
}
