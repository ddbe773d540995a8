//! Connection to a control plane: establishing, losing and restoring it.

use std::net::TcpListener;

use serde_json::json;

use super::{broken, daily, follow, limit_becomes, metric, metric_becomes, ready, refuses};
use crate::support::certificates::{self, Pair};
use crate::support::control_plane::ControlPlane;
use crate::support::redis::tls::{Clients, Tls};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn a_restarted_control_plane_receives_the_version_in_force() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &[]);
    limit_becomes(&service, Some(5)).await;
    plane.kill();
    metric_becomes(&service, "tollgate_xds_connected", 0).await;
    limit_becomes(&service, Some(5)).await;
    plane.restart();
    let first = plane.wait_for_request("the first request", |_| true);
    assert_eq!((&first["version_info"], &first["response_nonce"]), (&json!("1"), &json!(null)));
    plane.serve("2", &[daily("user", 7)]);
    limit_becomes(&service, Some(7)).await;
    assert!(metric(&service, "tollgate_xds_reconnects_total").await > 0);
}

#[tokio::test]
async fn a_new_stream_after_a_refusal_names_the_version_in_force() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &[]);
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[broken()]);
    plane.wait_for_request("that the second is refused", refuses);
    plane.restart();
    let first = plane.wait_for_request("the first request", |_| true);
    assert_eq!((&first["version_info"], &first["response_nonce"]), (&json!("1"), &json!(null)));
    limit_becomes(&service, Some(5)).await;
}

#[tokio::test]
async fn certificates_headers_and_metadata_arrive() {
    let tls = Tls::new(Clients::Certified);
    let (certificate, key) = tls.server();
    let paths = [certificate, key, tls.authority()].map(|path| path.to_str().unwrap().to_owned());
    let plane =
        ControlPlane::start_with(&["--tls", &paths[0], &paths[1], &paths[2]], &[daily("user", 5)]);
    let (certificate, key) = tls.client();
    let certificate = certificate.to_str().unwrap();
    let key = key.to_str().unwrap();
    let authority = &paths[2];
    let own = ["--xds-tls", "--xds-ca", authority, "--xds-cert", certificate, "--xds-key", key];
    let metadata = [
        "--xds-header",
        "authorization=Bearer a=b",
        "--xds-header",
        "x-team=edge",
        "--xds-node-metadata",
        "zone=a,rack=7",
    ];
    let service =
        follow(&plane, &[&own[..], &metadata[..], &["--xds-server-name", "localhost"]].concat());
    limit_becomes(&service, Some(5)).await;
    let headers = plane.events("stream")[0]["headers"].to_string();
    assert!(
        headers.contains(r#"["authorization","Bearer a=b"]"#)
            && headers.contains(r#"["x-team","edge"]"#),
        "{headers}"
    );
    let node = &plane.events("request")[0]["node"];
    assert_eq!(node["metadata"], json!({ "zone": "a", "rack": "7" }));
    assert_eq!(node["user_agent_name"], "tollgate");
}

#[tokio::test]
async fn a_control_plane_may_send_the_trusted_certificate_itself() {
    let clients = Tls::new(Clients::Certified);
    let files = tempfile::tempdir().unwrap();
    let [own, other] = ["own", "other"].map(|name| files.path().join(name));
    for folder in [&own, &other] {
        std::fs::create_dir(folder).unwrap();
        Pair::signed_by_itself("localhost").write(folder);
    }
    let [certificate, key] =
        certificates::files(&own).map(|path| path.to_str().unwrap().to_owned());
    let authority = clients.authority().to_str().unwrap().to_owned();
    let plane =
        ControlPlane::start_with(&["--tls", &certificate, &key, &authority], &[daily("user", 5)]);
    let (shown, its_key) = clients.client();
    let shown = shown.to_str().unwrap();
    let its_key = its_key.to_str().unwrap();
    let flags =
        |trusted| ["--xds-tls", "--xds-ca", trusted, "--xds-cert", shown, "--xds-key", its_key];
    let named = |trusted| [&flags(trusted)[..], &["--xds-server-name", "localhost"]].concat();
    limit_becomes(&follow(&plane, &named(&certificate)), Some(5)).await;
    let [another, _] = certificates::files(&other);
    let mut service = follow(&plane, &named(another.to_str().unwrap()));
    service.process.wait_for_line("that it does not trust the certificate", |line| {
        line.contains("invalid peer certificate").then_some(())
    });
}

#[tokio::test]
async fn an_untrusted_server_is_refused_and_certificate_files_are_reloaded() {
    let tls = Tls::new(Clients::Certified);
    let (certificate, key) = tls.server();
    let paths = [certificate, key, tls.authority()].map(|path| path.to_str().unwrap().to_owned());
    let plane =
        ControlPlane::start_with(&["--tls", &paths[0], &paths[1], &paths[2]], &[daily("user", 5)]);
    let files = tempfile::tempdir().unwrap();
    let own = ["ca.pem", "client.pem", "client.key"].map(|name| files.path().join(name));
    let texts = own.each_ref().map(|path| path.to_str().unwrap());
    std::fs::copy(Tls::new(Clients::Anyone).authority(), &own[0]).unwrap();
    let flags = ["--xds-tls", "--xds-ca", texts[0], "--xds-cert", texts[1], "--xds-key", texts[2]];
    let mut service = follow(&plane, &flags);
    service
        .process
        .wait_for_line("the missing file", |line| line.contains("client.pem").then_some(()));
    std::fs::copy(tls.client().1, &own[2]).unwrap();
    std::fs::copy(tls.client().0, &own[1]).unwrap();
    service.process.wait_for_line("that it does not trust the certificate", |line| {
        line.contains("invalid peer certificate").then_some(())
    });
    assert_eq!(ready(&service).await, 503);
    std::fs::copy(tls.authority(), &own[0]).unwrap();
    limit_becomes(&service, Some(5)).await;
}

#[tokio::test]
async fn a_response_that_is_too_large_ends_the_stream_and_the_running_policies_stay() {
    let plane = ControlPlane::start(&[daily("user", 5)]);
    let mut service = follow(&plane, &["--xds-max-message", "1KiB"]);
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[daily(&"x".repeat(2_000), 5)]);
    service
        .process
        .wait_for_line("the excessive size", |line| line.contains("too large").then_some(()));
    limit_becomes(&service, Some(5)).await;
    plane.serve("3", &[daily("user", 7)]);
    limit_becomes(&service, Some(7)).await;
}

#[tokio::test]
async fn a_control_plane_that_hangs_is_noticed() {
    let plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &["--xds-keepalive", "100ms"]);
    limit_becomes(&service, Some(5)).await;
    plane.hang();
    let missed = |connected: &u64| *connected == 0;
    // The keepalive timeout is 20 s.
    becomes(
        "the outage is reported",
        TEST_TIMEOUT * 3,
        || metric(&service, "tollgate_xds_connected"),
        missed,
    )
    .await;
    limit_becomes(&service, Some(5)).await;
    ends_at_once(service).await;
}

#[tokio::test]
async fn the_process_exits_at_once_in_every_state() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (what, address) in
        [("an answer", silent.local_addr().unwrap()), ("the next attempt", closed)]
    {
        let tls: &[&[&str]] = &[&[], &["--xds-tls"]];
        for tls in tls {
            let target = address.to_string();
            let flags = ["--xds", &target, "--xds-backoff-min", "1h", "--xds-backoff-max", "1h"];
            let mut service = Tollgate::serve_by(&[&flags, *tls].concat());
            if address == closed {
                service
                    .process
                    .wait_for_line(what, |line| line.contains("cannot connect").then_some(()));
            } else {
                silent.accept().unwrap();
            }
            assert_eq!(ready(&service).await, 503);
            ends_at_once(service).await;
        }
    }
}

#[test]
fn problems_of_an_overlay_are_reported_before_serving() {
    let files = crate::support::policy::Policies::of(
        "overlay:\n- key: user\n  rate_limit: { algoritm: gcra }\n",
    );
    let overlay = files.file("policy.yaml");
    let flags = ["serve", "--xds", "127.0.0.1:1", "--overlay", overlay.to_str().unwrap()];
    let quiet = crate::support::tollgate::quiet(&[]);
    let ended = crate::support::tollgate::output([&flags[..], &quiet[..]].concat());
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{error}");
    assert!(
        error.contains("policy.yaml:3:17") && error.contains("did you mean `algorithm`?"),
        "{error}"
    );
}

/// Terminates the service on another thread, so that clients on this one can close their
/// connections.
async fn ends_at_once(mut service: Tollgate) {
    let ended = tokio::task::spawn_blocking(move || service.terminate()).await.unwrap();
    assert!(ended.success(), "{ended}");
}
