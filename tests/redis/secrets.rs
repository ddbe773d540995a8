//! A wrong password appears neither in the log nor on a page.

use crate::support::policy::{Policies, daily};
use crate::support::redis::Redis;
use crate::support::rls::Client;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

const MARKER: &str = "mArKeR-of-sixteen-bytes";

#[tokio::test]
async fn logs_and_pages_show_no_secret() {
    let redis = Redis::start().await;
    let policies = Policies::of(&daily("user", 5));
    // A real server and a wrong password: the case with the most attempts and log messages.
    let url = redis.url().replace("redis://", &format!("redis://u:{MARKER}@"));
    let flags =
        ["--policy", policies.path().to_str().unwrap(), "--log", "trace", "--ready-without-store"];
    let secrets = [
        "--store",
        &url,
        "--per-second-store",
        &url,
        "--sentinel-password",
        MARKER,
        "--hash-key",
        MARKER,
    ];
    let mut service = Tollgate::serve_by(
        &[&flags[..], &secrets, &["--xds-header", &format!("a={MARKER}")]].concat(),
    );
    service.process.wait_for_line("the refusal by Redis", |line| {
        line.contains("Redis unreachable").then_some(())
    });
    let _ = Client::connect(service.grpc).await.decide(crate::support::rls::request(vec![])).await;
    let mut shown = Web::new(service.http).get("/metrics").await.body
        + &Web::new(service.http).get("/readyz").await.body;
    let admin = Web::new(service.admin);
    for line in admin.get("/").await.body.lines() {
        shown += &admin.get(line.split(':').next().unwrap()).await.body;
    }
    service.terminate();
    let log = service.process.final_log();
    assert!(!shown.contains(MARKER), "{shown}");
    assert!(!log.contains(MARKER), "{log}");
    for flag in
        ["--store", "--per-second-store", "--sentinel-password", "--hash-key", "--xds-header"]
    {
        assert!(log.contains(&format!("{flag}: a ")), "{flag} is warned of\n{log}");
    }
    assert!(log.contains("--redis-password-file or TOLLGATE_REDIS_PASSWORD"), "{log}");
}
