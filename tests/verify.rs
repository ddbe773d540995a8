//! `tollgate verify`, on services that keep their limits and on one that does not.

use std::net::TcpListener;
use std::process::Output;

use serde_json::Value;

use crate::support::policy::{Policies, daily};
use crate::support::tollgate::{Tollgate, output};

#[test]
fn a_service_that_keeps_its_limits_exits_0() {
    let policies = Policies::of(&daily("user", 10));
    let service = Tollgate::serve(policies.path());
    let ended = verify(&policies, &[&service.grpc.to_string()]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(0), "{report}");
    assert!(report["calls"].as_u64().unwrap() > 100, "{report}");
    assert_eq!(contradictions(&report, "never_over"), 0);
}

#[test]
fn replicas_with_separate_counters_are_found_to_admit_too_much() {
    let policies = Policies::of(&daily("user", 10));
    let services = [(); 2].map(|()| Tollgate::serve(policies.path()));
    let [one, other] = services.each_ref().map(|service| service.grpc.to_string());
    let ended = verify(&policies, &[&one, &other]);
    let report = report(&ended);
    assert_eq!(ended.status.code(), Some(1), "{report}");
    assert!(contradictions(&report, "never_over") > 0, "{report}");
    let example = &report["properties"][0]["example"]["calls"];
    let hits: u64 = example.as_array().unwrap().iter().map(|c| c["hits"].as_u64().unwrap()).sum();
    assert!((11..=12).contains(&hits), "not the smallest example: {report}");
}

#[test]
fn a_closed_port_exits_2() {
    let policies = Policies::of(&daily("user", 10));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let ended = verify(&policies, &[&closed]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&ended.stderr).contains(&closed));
}

fn verify(policies: &Policies, targets: &[&str]) -> Output {
    let policy = policies.path().to_str().unwrap();
    let targets = targets.iter().flat_map(|target| ["--target", target]);
    let flags = ["verify", "--policy", policy, "--duration", "2", "--deadline", "20000", "--json"];
    output(flags.into_iter().chain(targets))
}

fn report(ended: &Output) -> Value {
    serde_json::from_slice(&ended.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&ended.stderr)))
}

fn contradictions(report: &Value, property: &str) -> u64 {
    let mut properties = report["properties"].as_array().unwrap().iter();
    let found = properties.find(|one| one["property"] == property).unwrap();
    found["contradictions"].as_u64().unwrap()
}
