//! The recent policy loads that the process reports: the changes of each, and each load once.

use serde_json::Value;

use super::reload;
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::{Web, fetch};
use crate::support::{TEST_TIMEOUT, becomes};

/// Returns the loads so far, the latest first: the trigger of each, and `true` if it was
/// successful.
async fn loads(admin: &Web) -> Vec<(String, bool)> {
    let list = fetch(admin, "/api/v1/reloads").await;
    let loads = list["reloads"].as_array().unwrap();
    assert_eq!(list["total"], loads.len());
    loads
        .iter()
        .map(|load| (load["by"].as_str().unwrap().to_owned(), load["is_loaded"] == true))
        .collect()
}

/// Waits until the latest load has this trigger and result.
async fn until_first(admin: &Web, by: &str, is_loaded: bool) -> Value {
    let wanted = (by.to_owned(), is_loaded);
    becomes(
        &format!("a load by {by}"),
        TEST_TIMEOUT,
        || loads(admin),
        |loads| loads.first() == Some(&wanted),
    )
    .await;
    fetch(admin, "/api/v1/reloads").await["reloads"][0].clone()
}

#[tokio::test]
async fn each_load_is_reported_once_with_its_differences() {
    let policies = Policies::of(&daily("user", 2));
    let service = Tollgate::serve(policies.path());
    let admin = Web::new(service.admin);
    let web = Web::new(service.http);
    assert_eq!(loads(&admin).await, [("start".to_owned(), true)]);

    policies.write("policy.yaml", &daily("user", 5));
    let changed = until_first(&admin, "files", true).await;
    let changes = changed["changes"].as_str().unwrap();
    assert!(
        changes.contains("rule `user` changed") && changes.contains("2 hits in 1d -> 5 hits in 1d"),
        "{changes}"
    );
    assert!(changed["before"].is_string() && changed["before"] != changed["version"], "{changed}");

    policies.write("policy.yaml", "domain: test\ndescriptors: 7\n");
    let refused = until_first(&admin, "files", false).await;
    assert!(refused["report"].as_str().unwrap().contains("policy.yaml:2"), "{refused}");
    assert_eq!(refused["version"], changed["version"], "what was in force stays");

    let admin_url = format!("http://{}", service.admin);
    let rejected = output(["reload", "--admin", &admin_url]);
    assert_eq!(rejected.status.code(), Some(2));
    let text = String::from_utf8(rejected.stderr).unwrap();
    assert!(text.starts_with(&format!("error: --admin {admin_url}: 422:\nerror: ")), "{text}");
    assert!(text.ends_with("the previous policies remain in force\n"), "{text}");

    // A manual reload loads the change before the file watcher does. The watcher then finds nothing
    // new, and detects the next change.
    let report = (7..100).find_map(|amount| {
        policies.write("policy.yaml", &daily("user", amount));
        let report = String::from_utf8(output(["reload", "--admin", &admin_url]).stdout).unwrap();
        report.starts_with(&format!("policies reloaded at {admin_url}: version ")).then_some(report)
    });
    assert!(report.unwrap().contains("rule `user` changed"));
    let since = loads(&admin).await;
    assert_eq!(since[0], ("admin".to_owned(), true));
    policies.write("policy.yaml", &daily("user", 6));
    until_first(&admin, "files", true).await;
    let all = loads(&admin).await;
    assert_eq!(all.len(), since.len() + 1, "the requested reload is listed once: {all:?}");
    let metrics = web.get("/metrics").await.body;
    let counted = format!(
        "tollgate_policy_loads_total{{kind=\"loaded\"}} {}",
        all.iter().filter(|load| load.1).count()
    );
    assert!(metrics.contains(&counted), "{counted}\n{metrics}");
}

#[tokio::test]
async fn a_reload_without_a_change_says_so() {
    let policies = Policies::of(&daily("user", 2));
    let service = Tollgate::serve(policies.path());
    let admin = Web::new(service.admin);
    let answer: Value = serde_json::from_str(&reload(&admin, &[]).await.body).unwrap();
    assert_eq!(
        (
            &answer["is_changed"],
            answer["changes"].as_str().unwrap().starts_with("no differences: ")
        ),
        (&false.into(), true)
    );
    assert_eq!(loads(&admin).await, [("admin".to_owned(), true), ("start".to_owned(), true)]);
}

#[tokio::test]
async fn the_history_of_rules_is_sent_on_request_and_not_every_second() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let admin = Web::new(service.admin);
    let rule = async |query: &str| {
        fetch(&admin, &format!("/api/v1/rules{query}")).await["rules"][0].clone()
    };
    assert_eq!(rule("").await.get("history"), None);
    // Its contents, which take 15 seconds to appear, are tested with the rates.
    assert_eq!(rule("?history=true").await["history"], serde_json::json!([]));
}
