//! The admin page in a real Chromium, with a service under load: the page shows the traffic that
//! was sent.
//!
//! `browser.mjs` drives the browser through playwright-core; `tests/run` installs both. If
//! `TOLLGATE_PAGE_IMAGES` names a folder, the screenshots of `docs/page.md` are written to it.

mod assets;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::store::clock::SystemClock;

use crate::support::policy::{Policies, daily};
use crate::support::process::Process;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::toy::Toy;
use crate::support::toy_service::ToyService;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = include_str!("policy.yaml");
/// A value that would run as a script if it were inserted as HTML.
const SCRIPT: &str = "<img src=x onerror=\"window.ran=1\"><script>window.ran=1</script>";
const TOKEN: &str = "reader-0123456789";
/// A service with `POLICY`, and background load until it is stopped.
struct Busy {
    service: Tollgate,
    client: Client,
    stop: Arc<AtomicBool>,
    /// Denials of `login=load`, and of `search=q`.
    load: JoinHandle<[u64; 2]>,
    policies: Policies,
}

impl Busy {
    async fn start() -> Self {
        Self::start_with(&[]).await
    }

    async fn start_with(flags: &[&str]) -> Self {
        let policies = Policies::of(POLICY);
        let service = Tollgate::serve_with(policies.path(), flags);
        let client = Client::connect(service.grpc).await;
        let stop = Arc::<AtomicBool>::default();
        let loading = client.clone();
        let stopped = Arc::clone(&stop);
        let load = tokio::spawn(async move {
            let mut denied = [0; 2];
            let mut pause = tokio::time::interval(Duration::from_millis(10));
            while !stopped.load(Ordering::Relaxed) {
                pause.tick().await;
                denied[0] += u64::from(!loading.hit("login", "load").await);
                denied[1] += u64::from(!loading.hit("search", "q").await);
            }
            denied
        });
        Self { service, client, stop, load, policies }
    }

    /// Sends the given number of hits for each user of the free plan.
    async fn send(&self, users: &[(&str, u64)]) {
        for (user, hits) in users {
            for _ in 0..*hits {
                let one = request(vec![descriptor(&[("plan", "free"), ("user", user)])]);
                self.client
                    .decide(tollgate::grpc::proto::RateLimitRequest {
                        domain: "test".to_owned(),
                        ..one
                    })
                    .await
                    .unwrap();
            }
        }
    }

    /// Stops the load, and returns the number of denials.
    async fn quiet(self) -> (Tollgate, [u64; 2], Policies) {
        self.stop.store(true, Ordering::Relaxed);
        (self.service, self.load.await.unwrap(), self.policies)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_the_traffic() {
    let busy = Busy::start().await;
    // 20 per day: 30, 5 and 5 denials; 60 allowed.
    busy.send(&[("ann", 50), ("bob", 25), (SCRIPT, 25)]).await;
    let rates = json!({"domain": "test", "rule": "plan=free > user", "share": "40 %"});
    check("rates", &busy.service, rates).await;
    let (service, [login, search], _policies) = busy.quiet().await;
    assert!(login > 0, "there was a load");
    let of = |user: &str, denied| (format!("plan=free,user={user}"), denied);
    let stories = [("login=load".to_owned(), login), of("ann", 30), of("bob", 5), of(SCRIPT, 5)];
    let mut keys: Vec<_> =
        stories.iter().cloned().chain([("search=q".to_owned(), search)]).collect();
    keys.retain(|(_, denied)| *denied > 0);
    keys.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
    check("keys", &service, json!({"keys": shown(&keys), "stories": shown(&stories)})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_under_load_are_exactly_what_was_sent() {
    const EACH: u64 = 1_000;
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve(policies.path());
    let users = [
        ("free", "ann"),
        ("free", "bob"),
        ("free", "cy"),
        ("free", "dan"),
        ("paid", "eve"),
        ("paid", "fay"),
    ];
    // 20 per day for each user of the free plan; paid users are never denied.
    let rules = [
        ("plan=free > user", "80 allowed3,920 denied"),
        ("plan=paid > user", "2,000 allowed0 denied"),
    ];
    let given = json!({"sums": ["2,080 total", "3,920 total"], "rules": rules});
    let mut browser =
        Process::start("the browser", &mut browser("numbers", service.admin, given.clone()));
    browser.wait_for_line("the page", |line| (line == "shown").then_some(()));
    let mut senders = tokio::task::JoinSet::new();
    for (plan, user) in users {
        let client = Client::connect(service.grpc).await;
        senders.spawn(async move {
            let mut denied = 0;
            let mut pause = tokio::time::interval(Duration::from_millis(4));
            for _ in 0..EACH {
                pause.tick().await;
                let decided = client
                    .decide(request(vec![descriptor(&[("plan", plan), ("user", user)])]))
                    .await
                    .unwrap();
                denied += u64::from(decided.overall_code() != Code::Ok);
            }
            denied
        });
    }
    let mut denied = senders.join_all().await;
    denied.sort_unstable();
    assert_eq!(denied, [0, 0, 980, 980, 980, 980], "as the clients were answered");
    assert!(browser.wait_for_end().success(), "{}", browser.log().join("\n"));
    check("numbers", &service, given).await;
    let of = |user| (format!("plan=free,user={user}"), 980);
    check(
        "keys",
        &service,
        json!({"keys": shown(&["ann", "bob", "cy", "dan"].map(of)), "stories": []}),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_is_changed_from_the_page_after_a_confirmation() {
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve(policies.path());
    let client = Client::connect(service.grpc).await;
    let ann = || request(vec![descriptor(&[("plan", "free"), ("user", "ann")])]);
    for _ in 0..20 {
        client.decide(ann()).await.unwrap();
    }
    check("counter", &service, one_key()).await;
    // Decisions see the reset.
    for _ in 0..20 {
        assert_eq!(client.decide(ann()).await.unwrap().overall_code(), Code::Ok);
    }
    assert_eq!(client.decide(ann()).await.unwrap().overall_code(), Code::OverLimit);
}

#[tokio::test(flavor = "multi_thread")]
async fn loads_of_policies_are_shown_with_their_differences() {
    let policies = Policies::of(&daily("user", 2));
    let service = Tollgate::serve(policies.path());
    let given = json!({"differs": "2 hits in 1d -> 5 hits in 1d"});
    let mut browser = Process::start("the browser", &mut browser("reloads", service.admin, given));
    browser.wait_for_line("the page", |line| (line == "shown").then_some(()));
    policies.write("policy.yaml", &daily("user", 5));
    browser.wait_for_line("the change", |line| (line == "changed").then_some(()));
    policies.write("policy.yaml", "domain: test\ndescriptors: 7\n");
    assert!(browser.wait_for_end().success(), "{}", browser.log().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_is_shown() {
    let redis = Redis::start().await;
    let policies = Policies::of(POLICY);
    let flags = ["--store", &redis.url(), "--store-timeout", "15s", "--workers", "2"];
    let service = Tollgate::serve_with(policies.path(), &flags);
    // Two workers and the HTTP listener.
    let given = json!({"workers": 3, "key": one_key()["key"]});
    let mut browser = Process::start("the browser", &mut browser("store", service.admin, given));
    browser.wait_for_line("the page", |line| (line == "shown").then_some(()));
    redis.kill();
    let client = Client::connect(service.grpc).await;
    let load = tokio::spawn(async move {
        loop {
            let _ = client.decide(request(vec![descriptor(&[("login", "load")])])).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let ended = tokio::task::spawn_blocking(move || (browser.wait_for_end(), browser));
    let (ended, browser) = ended.await.unwrap();
    load.abort();
    assert!(ended.success(), "{}", browser.log().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_hashed_values_is_shown_by_its_hashes_alone() {
    let limit = "{ requests_per_unit: 1, unit: day, hash_values: true, record: [user] }";
    let policies = Policies::of(&format!(
        "domain: test\ndescriptors: [{{ key: mail, rate_limit: {limit} }}]\n"
    ));
    policies.write("key", "a secret of sixteen bytes");
    let flags = ["--hash-key-file", &policies.file("key").display().to_string()];
    let service = Tollgate::serve_with(&policies.file("policy.yaml"), &flags);
    let client = Client::connect(service.grpc).await;
    for _ in 0..2 {
        client.decide(request(vec![descriptor(&[("mail", "ann@example.com")])])).await.unwrap();
    }
    check("hashed", &service, json!({"value": "ann@"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tree_has_every_rule_and_a_request_is_tried() {
    let passes = "Over limit, but would be admitted (shadow mode).";
    for (flags, words) in [(&[] as &[_], "Would be denied."), (&["--shadow-mode"], passes)] {
        let busy = Busy::start_with(flags).await;
        busy.send(&[("ann", 21)]).await;
        let leaves = ["user", "user", "login", "search", "trial", "partner"];
        let given = json!({"descriptor": "plan=free,user=ann", "rule": "plan=free > user", "words": words, "leaves": leaves});
        check("policy", &busy.service, given).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_reachable_by_keyboard_and_accessible() {
    let busy = Busy::start().await;
    busy.send(&[("ann", 25), (SCRIPT, 25)]).await;
    check("keyboard", &busy.service, one_key()).await;
    check("accessible", &busy.service, one_key()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_paint_is_at_once() {
    let busy = Busy::start().await;
    check("paint", &busy.service, json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_requested_if_needed() {
    let policies = Policies::of(&daily("user", 2));
    policies.write("tokens", &format!("bob:{TOKEN}\n"));
    let tokens = policies.file("tokens");
    let flags = [
        "--admin-read-token-file",
        tokens.to_str().unwrap(),
        "--admin-token-file",
        tokens.to_str().unwrap(),
    ];
    let service = Tollgate::serve_with(&policies.file("policy.yaml"), &flags[..2]);
    let key = json!({"domain": "test", "rule": "user", "key": "user=ann"});
    check("token", &service, json!({"token": TOKEN, "key": key})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_service_is_shown() {
    let mut busy = Busy::start().await;
    let mut browser =
        Process::start("the browser", &mut browser("lost", busy.service.admin, json!({})));
    browser.wait_for_line("the page", |line| (line == "shown").then_some(()));
    busy.load.abort();
    assert!(busy.service.terminate().success());
    assert!(browser.wait_for_end().success(), "{}", browser.log().join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_view_has_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let images =
        std::env::var("TOLLGATE_PAGE_IMAGES").map_or(folder.path().to_owned(), PathBuf::from);
    let redis = Redis::start().await;
    let busy = Busy::start_with(&["--store", &redis.url(), "--store-timeout", "15s"]).await;
    let admin = Web::new(busy.service.admin);
    let changes = [("unit: second", "unit: fortnight"), ("60, unit: second", "80, unit: second")];
    for (number, (was, is)) in changes.into_iter().enumerate() {
        busy.policies.write("policy.yaml", &POLICY.replace(was, is));
        let loads = || async { admin.get("/api/v1/reloads").await.body };
        let total = format!("\"total\":{}", number + 2);
        becomes("the change is listed", TEST_TIMEOUT, loads, |text| text.contains(&total)).await;
    }
    let trial = request(vec![descriptor(&[("trial", "t1")])]);
    for round in 0..40 {
        busy.send(&[
            ("ann", 3),
            ("bob", 1),
            ("cy", u64::from(round % 2 == 0)),
            ("dan.o'neil@example.org", 1),
        ])
        .await;
        busy.client.decide(trial.clone()).await.unwrap();
    }
    // Screenshots for the book need enough data for a chart.
    let is_for_good = std::env::var_os("TOLLGATE_PAGE_IMAGES").is_some();
    let given = json!({"images": images, "watch_ms": if is_for_good { 25_000 } else { 0 }, "key": one_key()["key"]});
    check("pictures", &busy.service, given).await;
    let pictures = std::fs::read_dir(&images).unwrap().filter(|file| {
        file.as_ref().is_ok_and(|file| file.file_name().to_string_lossy().starts_with("page-"))
    });
    assert_eq!(pictures.count(), 18);
}

/// Formats keys and counts as the page displays them.
fn shown(keys: &[(String, u64)]) -> Value {
    keys.iter().map(|(key, denied)| json!([key, thousands(*denied)])).collect()
}

fn thousands(count: u64) -> String {
    match count {
        0..1000 => count.to_string(),
        1000.. => format!("{},{:03}", thousands(count / 1000), count % 1000),
    }
}

fn one_key() -> Value {
    json!({"key": {"domain": "test", "rule": "plan=free > user", "key": "plan=free,user=ann"}})
}

/// A store that supports nothing optional has its reasons on the page.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_store_does_not_support_is_named() {
    const POLICY: &str = "
domain: test
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 2, charge: admitted, record: [path] }
  - key: tokens
    rate_limit: { unit: day, requests_per_unit: 10, hold: { ttl: 10m } }
";
    ToyService::run(&Toy::new(SystemClock), POLICY, &[], async |service| {
        let reason = "not supported by this store";
        let given = json!({
            "servers": format!("No servers are listed: {reason}."),
            "domain": "test",
            "counters": [
                ["user=ann", format!("callers cannot be listed: {reason}")],
                ["tokens=a", format!("open holds cannot be listed: {reason}")],
            ],
        });
        check_at("unsupported", service.admin.server(), given).await;
    })
    .await;
}

/// Tests one subject in the browser, and fails with the browser's report if anything is wrong.
async fn check(subject: &'static str, service: &Tollgate, given: Value) {
    check_at(subject, service.admin, given).await;
}

/// Asserts that the page at an address shows the given values.
async fn check_at(subject: &'static str, admin: SocketAddr, given: Value) {
    let mut command = browser(subject, admin, given);
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let output = String::from_utf8_lossy(&stdout);
    assert!(status.success(), "{subject}\n{output}\n{}", String::from_utf8_lossy(&stderr));
    println!("{output}");
}

fn browser(subject: &str, admin: SocketAddr, mut given: Value) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tools = root.join("target/page-tools");
    assert!(
        tools.join("node_modules/playwright-core").exists(),
        "these tests need Chromium and its driver: run `tests/run` once"
    );
    given["url"] = format!("http://{admin}").into();
    let mut command = Command::new("node");
    command.arg(root.join("tests/page/browser.mjs")).arg(subject).arg(given.to_string());
    let chromium =
        std::env::var_os("TOLLGATE_CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    command.env("TOLLGATE_PAGE_TOOLS", tools).env("TOLLGATE_CHROMIUM", chromium);
    command
}
