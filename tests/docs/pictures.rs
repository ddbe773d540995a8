//! Charts of the requests that each algorithm admits, on the same traffic: `docs/algorithms.md` has
//! the policies, `tollgate replay` decides by them in virtual time, and the results are drawn.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::drawing::{Course, comparison, course};
use super::{Page, fences, is_written, pages};
use crate::support::policy::Policies;
use crate::support::tollgate::output;

/// Start of the traffic, at the start of a window of ten seconds.
const BEGIN_S: u64 = 1_780_000_000;
/// Traffic as first second, end, and requests per second: quiet, a burst across a window boundary,
/// sustained traffic at twice the limit, quiet, a burst.
const TRAFFIC: [(u64, u64, u64); 7] =
    [(0, 9, 2), (9, 11, 100), (11, 20, 5), (20, 40, 20), (40, 50, 1), (50, 52, 60), (52, 60, 5)];
/// Folder of the charts, below `docs`.
const IMAGES: &str = "images/algorithms";

#[test]
fn the_pictures_of_algorithms_match_their_decisions() {
    let page = pages().into_iter().find(|page| page.name == "algorithms.md").unwrap();
    let courses: Vec<Course> =
        policies(&page).into_iter().map(|(name, policy)| decided(&name, &policy)).collect();
    assert!(courses.len() >= 6, "{} pictures in docs/algorithms.md", courses.len());
    for one in &courses {
        is_written(&format!("{IMAGES}/{}.svg", one.name), &course(one));
    }
    is_written(&format!("{IMAGES}/comparison.svg"), &comparison(&courses));
}

/// Returns each chart of the page with the policy that precedes it.
fn policies(page: &Page) -> Vec<(String, String)> {
    let fences: Vec<_> =
        fences::of(page).into_iter().filter(|fence| fence.language == "yaml").collect();
    let mut policies = Vec::new();
    for (line, text) in page.text.lines().enumerate() {
        let Some((_, rest)) = text.split_once(&format!("({IMAGES}/")) else { continue };
        let name = rest.split_once(".svg)").unwrap().0;
        if let Some(policy) = fences.iter().rfind(|fence| fence.end <= line) {
            policies.push((name.to_owned(), policy.text.clone()));
        }
    }
    policies
}

/// Decides the traffic by a policy of domain `shop` for key `user`.
fn decided(name: &str, policy: &str) -> Course {
    let files = Policies::of(policy);
    let offered = offered_us();
    let mut trace = String::new();
    for at in &offered {
        let entries = json!([{ "key": "user", "value": "ann" }]);
        let request = json!({ "domain": "shop", "descriptors": [{ "entries": entries }] });
        writeln!(trace, "{}", json!({ "at": BEGIN_S * 1_000_000 + at, "request": request }))
            .unwrap();
    }
    files.write("trace.jsonl", &trace);
    let [policy, trace] = ["policy.yaml", "trace.jsonl"].map(|name| files.file(name));
    let ended =
        output(["replay".as_ref(), "--policy".as_ref(), policy.as_os_str(), trace.as_os_str()]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let answers = String::from_utf8(ended.stdout).unwrap();
    let is_admitted = answers.lines().map(|line| {
        let answer: Value = serde_json::from_str(line).unwrap();
        let is_limited = !answer["response"]["statuses"][0]["currentLimit"].is_null();
        assert!(is_limited, "docs/algorithms.md, {name}: no limit applies");
        answer["response"]["overallCode"] == "OK"
    });
    let admitted = offered
        .iter()
        .zip(is_admitted)
        .filter(|(_, is_admitted)| *is_admitted)
        .map(|(at, _)| *at)
        .collect();
    Course { name: name.to_owned(), offered, admitted }
}

/// Returns the times of the requests, in microseconds from the start.
fn offered_us() -> Vec<u64> {
    let spans = TRAFFIC
        .iter()
        .flat_map(|(from, until, rate)| (*from..*until).map(move |second| (second, *rate)));
    spans
        .flat_map(|(second, rate)| {
            (0..rate).map(move |n| second * 1_000_000 + n * 1_000_000 / rate)
        })
        .collect()
}
