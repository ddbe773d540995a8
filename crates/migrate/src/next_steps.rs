//! The next steps at the end of the page.

use std::path::PathBuf;

use tollgate_core::printable::{counted, shell_quoted};
use tollgate_envoyproxy::Translation;

use crate::deployment::{Deployment, DeploymentSource};
use crate::export::ExportedFiles;
use crate::page::Page;

/// A listener: the variable of its port, the flag, and ports that are free beside a running
/// envoyproxy/ratelimit: for the same variables, and for the exported ones.
struct ListenerPort {
    variable: &'static str,
    flag: &'static str,
    beside: u16,
    exported: u16,
}

/// The listeners, gRPC first.
const PORTS: [ListenerPort; 4] = [
    ListenerPort { variable: "GRPC_PORT", flag: "--grpc-listen", beside: 9081, exported: 8091 },
    ListenerPort { variable: "PORT", flag: "--http-listen", beside: 9080, exported: 8090 },
    ListenerPort { variable: "DEBUG_PORT", flag: "--admin-listen", beside: 9070, exported: 6071 },
    ListenerPort {
        variable: "PROMETHEUS_ADDR",
        flag: "--stats-prometheus-listen",
        beside: 9091,
        exported: 9092,
    },
];

/// A step, with the shell commands that it consists of.
pub(crate) struct Step {
    pub(crate) text: String,
    pub(crate) commands: Vec<String>,
}

impl Step {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), commands: Vec::new() }
    }

    fn with(text: impl Into<String>, command: String) -> Self {
        Self { text: text.into(), commands: vec![command] }
    }
}

impl Page<'_> {
    /// Returns the next steps, in order.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps =
            self.written.map(|written| written.steps(self.translation)).unwrap_or_default();
        if !self.deployment.is_read() {
            let text = "check each `not read` line above: this report does not cover it";
            steps.insert(0, Step::new(text));
        }
        if self.written.is_none() {
            steps.push(start(self.deployment, self.translation, self.given));
        }
        let live = self.addresses();
        let command = format!("tollgate migrate {live} --peek TRACE");
        steps.push(Step::with("compare the responses:", command));
        if self.written.is_none() {
            let text = "replace the image; files, variables and ports stay. --output DIR converts them to Tollgate's own";
            steps.push(Step::new(format!("{text} format")));
        }
        steps
    }

    /// Returns the addresses of both services, as flags.
    fn addresses(&self) -> String {
        let [grpc, ..] = &PORTS;
        let new = if self.written.is_some() { grpc.exported } else { free(self.translation, grpc) };
        match (port_of(self.translation, grpc), self.deployment.source) {
            (Some(old), DeploymentSource::Manifest) => {
                format!("--live OLD:{old} --against NEW:{old}")
            }
            (Some(old), _) => format!("--live 127.0.0.1:{old} --against 127.0.0.1:{new}"),
            (None, _) => format!("--live OLD:8081 --against NEW:{new}"),
        }
    }
}

/// Returns a port that the service can have beside the old one.
fn free(translation: &Translation, port: &ListenerPort) -> u16 {
    let is_taken = PORTS.iter().any(|other| port_of(translation, other) == Some(port.beside));
    if is_taken { port.exported } else { port.beside }
}

/// Returns the step that starts the service beside the old one, on the same machine: every variable
/// of a port must change.
fn start(deployment: &Deployment, translation: &Translation, given: &[PathBuf]) -> Step {
    let file = match deployment.source {
        DeploymentSource::Manifest => {
            return Step::new(
                "start it beside the old service, in a Deployment of its own with the same variables and volumes",
            );
        }
        DeploymentSource::EnvFile if deployment.from.contains('/') => {
            format!("set -a; . {}; ", shell_quoted(&deployment.from))
        }
        DeploymentSource::EnvFile => format!("set -a; . ./{}; ", shell_quoted(&deployment.from)),
        DeploymentSource::Environment => "export ".to_owned(),
    };
    let mut changes = Vec::new();
    for port in &PORTS {
        let Some(text) = text_of(translation, port) else { continue };
        if text.starts_with("unix:") {
            changes.push("GRPC_UDS=".to_owned());
        }
        let free = free(translation, port);
        let colon = if port.variable == "PROMETHEUS_ADDR" { ":" } else { "" };
        changes.push(format!("{}={colon}{free}", port.variable));
    }
    let changes = changes.join(" ");
    let policies: String = given
        .iter()
        .map(|path| format!(" --policy {}", shell_quoted(&path.to_string_lossy())))
        .collect();
    let command = format!("({file}{changes}; tollgate serve --envoyproxy-env{policies})");
    Step::with("start it beside the old service, on other ports:", command)
}

/// Returns the flags that put the listeners on other ports.
fn other_ports(translation: &Translation) -> String {
    let listeners = PORTS.iter().filter_map(|port| Some((port, text_of(translation, port)?)));
    let flags = listeners.map(|(port, text)| match text.rsplit_once(':') {
        Some((host, _)) if !text.starts_with("unix:") => {
            format!(" {} {host}:{}", port.flag, port.exported)
        }
        Some(_) | None => format!(" {} 127.0.0.1:{}", port.flag, port.exported),
    });
    flags.collect()
}

/// Returns the value of a listener's flag.
fn text_of<'t>(translation: &'t Translation, port: &ListenerPort) -> Option<&'t str> {
    Some(translation.flag(port.flag)?.values.first()?.as_str())
}

fn port_of(translation: &Translation, port: &ListenerPort) -> Option<u16> {
    text_of(translation, port)?.rsplit_once(':')?.1.parse().ok()
}

impl ExportedFiles {
    fn steps(&self, translation: &Translation) -> Vec<Step> {
        let mut steps = Vec::new();
        let variables = self.variables.display();
        if self.open > 0 {
            let open = counted(self.open, "value");
            steps.push(Step::new(format!("fill in {open} in {variables}")));
        }
        let policies = self.policies.as_ref().map(|policies| policies.display().to_string());
        if let Some(policies) = &policies
            && !self.is_native
        {
            let set = "TOLLGATE_POLICY_DIALECT=envoyproxy is set until then";
            steps.push(Step::new(format!(
                "remove the keys named in the warnings from {policies}; {set}"
            )));
        }
        let and = policies.map(|policies| format!(" and {policies}")).unwrap_or_default();
        let file = shell_quoted(&variables.to_string());
        steps.push(Step {
            text: format!(
                "start the service with {variables}{and}. The second command has ports that are free beside it:"
            ),
            commands: vec![
                format!("(set -a; . {file}; tollgate serve)"),
                format!("(set -a; . {file}; tollgate serve{})", other_ports(translation)),
            ],
        });
        steps
    }
}
