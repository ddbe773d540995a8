//! An xDS control plane on Python's gRPC and Envoy's own protocol files, which `tests/run`
//! installs.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::Process;
use super::root;

/// A running `tests/xds/control_plane.py`.
pub struct ControlPlane {
    pub port: u16,
    process: Process,
    flags: Vec<String>,
    files: TempDir,
}

impl ControlPlane {
    /// Serves `resources` as version 1.
    pub fn start(resources: &[Value]) -> Self {
        Self::start_with(&[], resources)
    }

    /// Serves `resources` as version 1, with additional flags.
    pub fn start_with(flags: &[&str], resources: &[Value]) -> Self {
        let files = TempDir::new().unwrap();
        write(&files, &json!({ "version": "1", "resources": resources }));
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (process, port) = run(&files, 0, &flags);
        Self { port, process, flags, files }
    }

    /// Kills the server and starts a new one on the same port.
    pub fn restart(&mut self) {
        if self.process.is_running() {
            self.kill();
        }
        (self.process, _) = run(&self.files, self.port, &self.flags);
    }

    pub fn kill(&mut self) {
        self.process.signal(rustix::process::Signal::KILL);
        self.process.wait_for_end();
    }

    /// Pauses the process with its connections open: it accepts data and sends nothing.
    pub fn hang(&self) {
        self.process.stop();
    }

    /// Replaces the served resources.
    pub fn serve(&self, version: &str, resources: &[Value]) {
        self.serve_content(&json!({ "version": version, "resources": resources }));
    }

    /// Replaces the served snapshot file as a whole.
    pub fn serve_content(&self, content: &Value) {
        write(&self.files, content);
    }

    /// Returns the logged events of one kind.
    pub fn events(&self, event: &str) -> Vec<Value> {
        let lines = self.process.log().into_iter();
        let facts = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        facts.filter(|facts| facts["event"] == event).collect()
    }

    /// Waits until it has received a request that satisfies `is_it`.
    #[track_caller]
    pub fn wait_for_request(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        self.process.wait_for_line(what, |line| {
            let facts: Value = serde_json::from_str(line).ok()?;
            (facts["event"] == "request" && is_it(&facts)).then_some(facts)
        })
    }
}

/// Replaces the snapshot file by a rename.
fn write(files: &TempDir, content: &Value) {
    let fresh = files.path().join("fresh");
    std::fs::write(&fresh, content.to_string()).unwrap();
    std::fs::rename(fresh, files.path().join("snapshot.json")).unwrap();
}

fn run(files: &TempDir, port: u16, flags: &[String]) -> (Process, u16) {
    let mut command = Command::new(python());
    command.arg(root().join("tests/xds/control_plane.py")).arg(files.path().join("snapshot.json"));
    let mut process =
        Process::start("control plane", command.args(["--port", &port.to_string()]).args(flags));
    let port = process.wait_for_line("its address", |line| {
        let facts: Value = serde_json::from_str(line).ok()?;
        (facts["event"] == "listening").then(|| facts["port"].as_u64().unwrap())
    });
    (process, port.try_into().unwrap())
}

pub fn python() -> PathBuf {
    let python = root().join(".venv/bin/python");
    assert!(
        python.exists(),
        "these tests need packages of Python: run `tests/run` once, which installs them in .venv"
    );
    python
}
