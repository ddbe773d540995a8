//! `deploy/k8s`, `deploy/helm` and `deploy/compose.yaml`: the manifests match the schemas of
//! Kubernetes and Compose, and have the promised content. The checks are in Python, whose packages
//! contain the schemas.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::root;
use crate::support::tollgate::output;

#[test]
fn every_overlay_renders_fits_the_kubernetes_schemas_and_the_documented_properties() {
    finds_nothing("manifests.py");
}

#[test]
fn the_chart_renders_what_the_overlays_do_and_its_values_are_documented() {
    finds_nothing("chart.py");
}

#[test]
fn the_playground_is_a_compose_file_of_what_is_there() {
    finds_nothing("compose.py");
}

fn finds_nothing(script: &str) {
    let python = root().join(".venv/bin/python");
    assert!(
        python.exists(),
        "this needs packages of Python: run `tests/run` once, which installs them in .venv"
    );
    let mut command = Command::new(python);
    command.arg(root().join("tests/deploy").join(script)).current_dir(root());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&output(["serve", "--help"]).stdout).unwrap();
    let ended = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned()
        + &String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && !text.is_empty(), "{text}");
}
