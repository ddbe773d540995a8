//! Access to the admin port: tokens, rights, host names.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use super::{READER, WRITER, guarded, reload};
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::{Tollgate, command, output, quiet};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn rights_are_enforced() {
    let folder = Policies::of(&daily("user", 2));
    let mut service = guarded(&folder, &[]);
    let admin = Web::new(service.admin);
    let writer = ("authorization", "Bearer writer-0123456789");
    let reader = ("authorization", "Bearer reader-0123456789");
    for wrong in [
        None,
        Some("Bearer "),
        Some("Bearer writer-012345678"),
        Some("Basic writer-0123456789"),
        Some("writer-0123456789"),
    ] {
        for path in ["/api/v1/policies", "/api/v1/openapi.json", "/rlconfig", "/"] {
            let headers: Vec<(&'static str, &[u8])> =
                wrong.iter().map(|value| ("authorization", value.as_bytes())).collect();
            let reply = admin.get_with(path, &headers).await;
            assert_eq!(reply.status, 401, "{path} {wrong:?}");
            assert_eq!(reply.header("www-authenticate"), "Bearer");
        }
        let headers: Vec<_> = wrong
            .iter()
            .map(|value| ("authorization", *value))
            .chain([("x-tollgate", "1")])
            .collect();
        assert_eq!(
            admin.send_with("POST", "/api/v1/policies/reload", &headers, "").await.status,
            401,
            "{wrong:?}"
        );
    }
    for known in [writer, reader] {
        assert_eq!(
            admin.get_with("/api/v1/policies", &[(known.0, known.1.as_bytes())]).await.status,
            200
        );
        assert_eq!(admin.get_with("/rlconfig", &[(known.0, known.1.as_bytes())]).await.status, 200);
    }
    let refused = reload(&admin, &[reader]).await;
    assert!(
        refused.status == 403 && refused.body.contains("`bob` has read access only"),
        "{refused:?}"
    );
    assert_eq!(reload(&admin, &[writer]).await.status, 200);
    assert_eq!(
        admin.send_with("POST", "/api/v1/policies/reload", &[writer], "").await.status,
        415,
        "pages of elsewhere cannot write"
    );
    service.process.wait_for_line("the write by ann", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["target"] == "audit"
            && line["fields"]["who"] == "ann"
            && line["fields"]["status"] == 200)
            .then_some(())
    });
    let log = service.process.log().join("\n");
    assert!(!log.contains("writer-0123456789") && !log.contains("reader-0123456789"), "{log}");
    folder.write("tokens", "eve:another-0123456789\n");
    let known =
        || async { reload(&admin, &[("authorization", "Bearer another-0123456789")]).await.status };
    becomes("a changed token is accepted", TEST_TIMEOUT, known, |status| *status == 200).await;
    assert_eq!(reload(&admin, &[writer]).await.status, 401, "the old one is not any more");
}

#[tokio::test]
async fn changed_tokens_are_accepted_if_only_one_file_is_given() {
    for flag in ["--admin-token-file", "--admin-read-token-file"] {
        let folder = Policies::of(&daily("user", 2));
        folder.write("tokens", WRITER);
        let flags = [flag, folder.file("tokens").to_str().unwrap()].map(str::to_owned);
        let service = Tollgate::serve_with(
            &folder.file("policy.yaml"),
            &flags.each_ref().map(String::as_str),
        );
        folder.write("tokens", "eve:another-0123456789\n");
        let headers: [(_, &[u8]); 1] = [("authorization", b"Bearer another-0123456789")];
        let admin = Web::new(service.admin);
        let status = async || admin.get_with("/api/v1/policies", &headers).await.status;
        becomes("the other token is accepted", TEST_TIMEOUT, status, |status| *status == 200).await;
    }
}

#[tokio::test]
async fn a_foreign_host_name_is_refused_without_a_token() {
    let service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let admin = Web::new(service.admin);
    for path in ["/api/v1/policies", "/rlconfig"] {
        assert_eq!(
            admin.get_with(path, &[("host", b"evil.example:6070")]).await.status,
            421,
            "{path}"
        );
        assert_eq!(
            admin.get_with(path, &[("host", b"localhost:6070")]).await.status,
            200,
            "{path}"
        );
    }
    let reply = reload(&admin, &[("host", "evil.example")]).await;
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (421, ""));
}

#[test]
fn a_port_beyond_loopback_needs_a_token() {
    let policies = Policies::of(&daily("user", 2));
    let flags = ["--admin-listen", "0.0.0.0:0"];
    let mut serve = command(["serve"]);
    let ended = serve
        .args(quiet(&flags))
        .args(flags)
        .arg("--policy")
        .arg(policies.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        ended.status.code() == Some(1)
            && error.contains("--admin-token-file")
            && error.contains("127.0.0.1"),
        "{error}"
    );
    policies.write("tokens", "short\n");
    let tokens = policies.file("tokens");
    let ended = output([
        "serve",
        "--policy",
        policies.path().to_str().unwrap(),
        "--admin-token-file",
        tokens.to_str().unwrap(),
    ]);
    let error = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        ended.status.code() == Some(1)
            && error.contains("at least 16 characters")
            && !error.contains("short\n"),
        "{error}"
    );
}

#[test]
fn tokens_that_others_can_read_are_warned_about_at_the_start() {
    let folder = Policies::of(&daily("user", 2));
    for (listen, mode, on_network, on_machine) in [
        ("0.0.0.0:0", 0o640, true, false),
        ("127.0.0.1:0", 0o640, false, false),
        ("127.0.0.1:0", 0o644, false, true),
    ] {
        for (file, token) in [("tokens", WRITER), ("read-tokens", READER)] {
            folder.write(file, token);
            let mode = Permissions::from_mode(mode);
            std::fs::set_permissions(folder.file(file), mode).unwrap();
        }
        let [write, read] = ["tokens", "read-tokens"].map(|file| folder.file(file));
        let flags = [
            ["--admin-listen", listen],
            ["--admin-token-file", write.to_str().unwrap()],
            ["--admin-read-token-file", read.to_str().unwrap()],
        ];
        let service = Tollgate::serve_with(&folder.file("policy.yaml"), flags.as_flattened());
        let log = service.process.log().join("\n");
        assert_eq!(log.contains("tokens are sent over plain HTTP"), on_network, "{log}");
        for file in [write, read] {
            let advice = format!("chmod o-r {}", file.display());
            assert_eq!(log.contains(&advice), on_machine, "{mode:o}: {log}");
        }
    }
}

#[tokio::test]
async fn plain_pages_may_be_open_while_the_api_is_not() {
    let service = Tollgate::serve_with(
        Policies::of(&daily("user", 2)).path(),
        &["--admin-listen", "0.0.0.0:0", "--admin-open-pages"],
    );
    let admin = Web::new(([127, 0, 0, 1], service.admin.port()).into());
    assert_eq!(admin.get("/rlconfig").await.status, 200);
    assert_eq!(admin.get("/api/v1/policies").await.status, 401);
    assert_eq!(reload(&admin, &[]).await.status, 401);
}
