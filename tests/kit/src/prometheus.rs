//! A real Prometheus, which `tests/run` installs.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::process::Process;
use super::web::Web;

/// A running Prometheus that scrapes its targets twice a second. A scrape of a service that is
/// built without optimization takes more than a quarter of a second on a busy machine.
pub struct Prometheus {
    web: Web,
    files: TempDir,
    _process: Process,
}

const CONFIGURATION: &str = "
global: { scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 250ms }
rule_files: [rules.yaml]
scrape_configs:
  - job_name: none
    relabel_configs: [{ source_labels: [of], target_label: job }, { source_labels: [path], target_label: __metrics_path__ }]
    file_sd_configs: [{ files: [targets.json] }]
";

/// A scrape target: job, address, path.
pub type Target<'a> = (&'a str, SocketAddr, &'a str);

impl Prometheus {
    /// Starts Prometheus with a rule file.
    pub fn start(rules: &str) -> Self {
        let files = TempDir::new().unwrap();
        let file = |name: &str| files.path().join(name);
        std::fs::write(file("rules.yaml"), rules).unwrap();
        std::fs::write(file("prometheus.yaml"), CONFIGURATION).unwrap();
        write_targets(files.path(), &[]);
        let mut command = Command::new("prometheus");
        command
            .arg("--config.file")
            .arg(file("prometheus.yaml"))
            .arg("--storage.tsdb.path")
            .arg(file("data"));
        command.args([
            "--web.listen-address",
            "127.0.0.1:0",
            "--enable-feature",
            "exemplar-storage",
        ]);
        let mut process = Process::start("prometheus", &mut command);
        let address = process.wait_for_line("its address", |line| {
            line.contains("Listening on")
                .then(|| line.rsplit_once("address=").unwrap().1.parse().unwrap())
        });
        // It listens before it serves requests.
        process.wait_for_line("that it is ready", |line| {
            line.contains("Server is ready").then_some(())
        });
        Self { web: Web::new(address), files, _process: process }
    }

    /// Replaces the scrape targets.
    pub fn scrape(&self, targets: &[Target<'_>]) {
        write_targets(self.files.path(), targets);
    }

    /// Returns the samples of a query as `(labels, value)`, or the error response.
    pub async fn query(&self, query: &str) -> Result<Vec<(Value, f64)>, String> {
        let answer = self.fetch(&format!("/api/v1/query?query={}", escaped(query))).await;
        let samples = answer["data"]["result"].as_array().ok_or_else(|| answer.to_string())?;
        let value = |sample: &Value| sample["value"][1].as_str().unwrap().parse().unwrap();
        Ok(samples.iter().map(|sample| (sample["metric"].clone(), value(sample))).collect())
    }

    /// Returns the labels of all exemplars of the series that a query selects.
    pub async fn exemplars(&self, query: &str) -> Vec<Value> {
        let always = "start=2020-01-01T00:00:00Z&end=2100-01-01T00:00:00Z";
        let answer =
            self.fetch(&format!("/api/v1/query_exemplars?{always}&query={}", escaped(query))).await;
        let series = answer["data"].as_array().unwrap_or_else(|| panic!("{query}: {answer}"));
        let exemplars = series.iter().flat_map(|series| series["exemplars"].as_array().unwrap());
        exemplars.map(|exemplar| exemplar["labels"].clone()).collect()
    }

    /// Returns the names of the firing alerts.
    pub async fn firing(&self) -> Vec<String> {
        let answer = self.fetch("/api/v1/alerts").await;
        let alerts = answer["data"]["alerts"].as_array().unwrap().iter();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }

    async fn fetch(&self, path: &str) -> Value {
        let reply = self.web.get(path).await;
        serde_json::from_str(&reply.body)
            .unwrap_or_else(|error| panic!("{path}: {error}: {}", reply.body))
    }
}

/// Replaces the target file by a rename, which Prometheus detects immediately.
fn write_targets(folder: &Path, targets: &[Target<'_>]) {
    let entry = |(job, address, path): &Target<'_>| json!({ "targets": [address.to_string()], "labels": { "of": job, "path": path } });
    let entries: Vec<Value> = targets.iter().map(entry).collect();
    let fresh = folder.join("fresh");
    std::fs::write(&fresh, json!(entries).to_string()).unwrap();
    std::fs::rename(fresh, folder.join("targets.json")).unwrap();
}

/// Percent-encodes text for a URL.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}
