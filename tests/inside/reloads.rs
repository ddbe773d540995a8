//! Updates of the listener, each with a new configuration of the module, under load.
//! `TOLLGATE_INSIDE_UPDATES` sets their number.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{InsideEnvoy, TENANT, all_returned, policy, template};
use crate::support::envoy::module;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Number of updates, and the time between two, which is more than the drain time in part.
const UPDATES: usize = 12;
const INTERVAL: Duration = Duration::from_millis(400);

/// A listener that is read from a file.
struct ListenerFile {
    folder: TempDir,
    /// The listener, with the placeholder `stat_prefix: edge` for its version.
    text: String,
}

impl ListenerFile {
    /// Returns the file, and the bootstrap without the listener.
    async fn of(template: &str) -> (Self, String) {
        let folder = TempDir::new().unwrap();
        let (head, rest) = template.split_once("  listeners:\n    - name: edge\n").unwrap();
        let (listener, clusters) = rest.split_once("  clusters:\n").unwrap();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let lines = listener.lines().map(|line| line.strip_prefix("    ").unwrap_or(line));
        let listener = lines.collect::<Vec<_>>().join("\n");
        let listener = listener
            .replacen("port_value: 0", &format!("port_value: {free}"), 1)
            .replace("${MODULE}", module().to_str().unwrap())
            .replace("${RATE_LIMITS}", TENANT)
            .replace("${FAILURE_MODE_DENY}", "true");
        let kind = "type.googleapis.com/envoy.config.listener.v3.Listener";
        let text = format!("resources:\n- \"@type\": {kind}\n  name: edge\n{listener}\n");
        let file = Self { folder, text };
        let path = file.path();
        let dynamic = format!(
            "dynamic_resources: {{ lds_config: {{ resource_api_version: V3, path_config_source: {{ path: {} }} }} }}\n",
            path.display()
        );
        // Envoy requires a node for dynamic resources.
        let node = "node: { id: test, cluster: test }\n";
        (file, format!("{node}{dynamic}{head}  clusters:\n{clusters}"))
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("listeners.yaml")
    }

    /// Moves another version into place, as Envoy requires.
    fn write(&self, version: usize) {
        let next = self.folder.path().join("next.yaml");
        let prefix = format!("stat_prefix: edge_{version}");
        std::fs::write(&next, self.text.replacen("stat_prefix: edge", &prefix, 1)).unwrap();
        std::fs::rename::<&Path, _>(&next, self.path()).unwrap();
    }
}

/// Sends requests until the end, and counts those that were admitted.
async fn send(web: Web, ended: Arc<AtomicBool>, admitted: Arc<AtomicU64>) {
    while !ended.load(Ordering::Relaxed) {
        // A connection of a listener that has been replaced ends with one of its answers.
        let reply = web.afresh().get_with("/", &[("x-tenant", b"ann")]).await;
        assert_eq!(reply.status, 200);
        admitted.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn updates_of_the_listener_under_load_keep_the_blocks_and_each_hit_is_charged_once() {
    let service = Tollgate::serve(policy(1_000_000, "day", "2s").path());
    let (listener, bootstrap) = ListenerFile::of(&template()).await;
    listener.write(0);
    let envoy = InsideEnvoy::start_by(&bootstrap, service.grpc, TENANT).await;
    envoy.heat("ann").await;
    let passed_on = envoy.stat("passed_on").await;
    let before = envoy.stat("decided").await + passed_on;
    let admitted = Arc::new(AtomicU64::new(before));
    let ended = Arc::<AtomicBool>::default();
    let mut clients = JoinSet::new();
    for _ in 0..2 {
        let web = envoy.0.edge.afresh();
        clients.spawn(send(web, Arc::clone(&ended), Arc::clone(&admitted)));
    }
    let updates = std::env::var("TOLLGATE_INSIDE_UPDATES").map(|text| text.parse().unwrap());
    for version in 1..=updates.unwrap_or(UPDATES) {
        listener.write(version);
        let updated = || envoy.0.counter("listener_manager.lds.update_success");
        let expected = u64::try_from(version).unwrap() + 1;
        becomes("Envoy updates", TEST_TIMEOUT, updated, |count| *count >= expected).await;
        sleep(INTERVAL).await;
    }
    ended.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let total = admitted.load(Ordering::Relaxed);
    let passed_on = envoy.stat("passed_on").await - passed_on;
    assert!(passed_on * 10 <= total - before, "{passed_on} of {total} were not decided in Envoy");
    let unknown = envoy.stat("unknown_hits").await;
    let blocks = || envoy.stat("blocks");
    becomes("all blocks are closed", TEST_TIMEOUT, blocks, |blocks| *blocks == 0).await;
    if unknown == 0 {
        all_returned(&Web::new(service.http)).await;
    }
    let reply = envoy.send_plain("ann").await;
    let charged = 1_000_000 - reply.header("x-ratelimit-remaining").parse::<u64>().unwrap() - 1;
    assert!((total..=total + unknown).contains(&charged), "{charged}, {total}, {unknown} unknown");
    println!("{total} admitted, {passed_on} passed on, {unknown} unknown, {charged} charged");
}
