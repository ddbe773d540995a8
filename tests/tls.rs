//! gRPC over TLS: client authentication, and rotation of certificates.

mod startup;

use std::path::Path;

use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ProtocolVersion, version};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::certificates::{Authority, Pair, files};
use crate::support::policy::{Policies, daily};
use crate::support::rls::{descriptor, request};
use crate::support::secure::Secure;
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn tls_1_2_and_1_3_are_served_with_keys_and_wildcards_of_envoy_gateway() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let pair = authority.sign_rsa("*.gateway");
    assert!(pair.key.starts_with("-----BEGIN RSA PRIVATE KEY-----"), "{}", pair.key);
    pair.write(folder.path());
    let service = serve(folder.path(), &[]);
    let versions =
        [(&version::TLS12, ProtocolVersion::TLSv1_2), (&version::TLS13, ProtocolVersion::TLSv1_3)];
    for (version, spoken) in versions {
        let client = Secure::with(&authority, None, &[version]);
        let stream = client.connect(service.grpc).await.unwrap();
        assert_eq!(stream.get_ref().1.protocol_version(), Some(spoken));
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        assert!(client.client(service.grpc).await.unwrap().hit("user", "ann").await);
    }
}

#[tokio::test]
async fn a_client_without_alpn_is_served_and_one_without_tls_is_not() {
    let (authority, _folder, service) = with_server_only();
    assert!(Secure::trusting(&authority).without_alpn().is_accepted(service.grpc).await);
    let mut clear = crate::support::rls::channel(service.grpc).await;
    assert!(tower::ServiceExt::ready(&mut clear).await.is_err() || !answers(clear).await);
}

#[tokio::test]
async fn clients_need_a_certificate_of_the_configured_authority() {
    let authority = Authority::new();
    let other = Authority::new();
    let folder = TempDir::new().unwrap();
    let service = serve_certified(&authority, folder.path(), &[]);
    let right = authority.sign("*.edge");
    assert!(
        Secure::showing(&right, &authority).is_accepted(service.grpc).await,
        "a wildcard, and no extended key usage"
    );
    assert!(!Secure::trusting(&authority).is_accepted(service.grpc).await, "without a certificate");
    let strange = other.sign("*.edge");
    assert!(
        !Secure::showing(&strange, &authority).is_accepted(service.grpc).await,
        "another authority's"
    );
    for version in [&version::TLS12, &version::TLS13] {
        assert!(Secure::with(&authority, Some(&right), &[version]).is_accepted(service.grpc).await);
        assert!(
            !Secure::with(&authority, Some(&strange), &[version]).is_accepted(service.grpc).await
        );
    }
    let counted = |count: &u64| *count >= 3;
    let failures =
        || metric(&service, r#"tls_handshake_failures_total{kind="client_certificate"}"#);
    becomes("failures are counted", TEST_TIMEOUT, failures, counted).await;
}

#[test]
fn hit_sends_its_certificate_if_required() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let own = TempDir::new().unwrap();
    let service = serve_certified(&authority, folder.path(), &[]);
    authority.sign("*.edge").write(own.path());
    let [ca, cert, key] =
        [&folder.path().join("ca.crt"), &files(own.path())[0], &files(own.path())[1]]
            .map(|path| path.to_str().unwrap().to_owned());
    let address = service.grpc.to_string();
    let hit_with = |flags: &[&str]| {
        let arguments = [&["hit", &address, "test", "user=ann"], flags].concat();
        output(arguments).status.code()
    };
    let trusting = ["--tls", "--ca", &ca, "--server-name", "a.gateway"];
    assert_eq!(hit_with(&[&trusting[..], &["--cert", &cert, "--key", &key]].concat()), Some(0));
    assert_eq!(hit_with(&trusting), Some(2), "without a certificate");
    assert_eq!(
        hit_with(&["--tls", "--cert", &cert, "--key", &key]),
        Some(2),
        "of an authority that is not trusted"
    );
    assert_eq!(hit_with(&[]), Some(2), "in the clear");
}

/// A client may present a trusted certificate even if it is marked as a CA, as with OpenSSL and Go.
#[tokio::test]
async fn a_client_may_send_a_trusted_certificate_itself() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let trusted = TempDir::new().unwrap();
    let [own, other] = ["edge.example", "edge.example"].map(Pair::signed_by_itself);
    let signed = authority.sign("edge.example");
    let file = trusted.path().join("clients.pem");
    std::fs::write(&file, [own.certificate.as_str(), &authority.pem].concat()).unwrap();
    authority.sign("localhost").write(folder.path());
    let name = ["--grpc-tls-client-ca", file.to_str().unwrap(), "--grpc-tls-client-san"];
    let service = serve(folder.path(), &[&name[..], &["edge.example"]].concat());
    for version in [&version::TLS12, &version::TLS13] {
        let shows = |pair| Secure::with(&authority, Some(pair), &[version]);
        assert!(shows(&own).is_accepted(service.grpc).await, "it is among the trusted ones");
        assert!(shows(&signed).is_accepted(service.grpc).await, "another authority has signed");
        assert!(!shows(&other).is_accepted(service.grpc).await, "another one of that name");
    }
    let elsewhere = serve(folder.path(), &[&name[..], &["other.example"]].concat());
    assert!(
        !Secure::showing(&own, &authority).is_accepted(elsewhere.grpc).await,
        "it is for another name"
    );
}

#[tokio::test]
async fn clients_need_the_configured_name() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let service =
        serve_certified(&authority, folder.path(), &["--grpc-tls-client-san", "envoy.gateway"]);
    for (name, is_accepted) in [
        ("envoy.gateway", true),
        ("*.gateway", true),
        ("other.gateway", false),
        ("spiffe://gateway/envoy", false),
    ] {
        let client = Secure::showing(&authority.sign(name), &authority);
        assert_eq!(client.is_accepted(service.grpc).await, is_accepted, "{name}");
    }
    let other = Authority::new().sign("envoy.gateway");
    assert!(
        !Secure::showing(&other, &authority).is_accepted(service.grpc).await,
        "the name alone is not enough"
    );
}

#[tokio::test]
async fn the_name_may_be_a_uri() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let service = serve_certified(
        &authority,
        folder.path(),
        &["--grpc-tls-client-san", "spiffe://mesh/ns/edge"],
    );
    let right = authority.sign("spiffe://mesh/ns/edge");
    assert!(Secure::showing(&right, &authority).is_accepted(service.grpc).await);
    let wrong = authority.sign("spiffe://mesh/ns/edge/more");
    assert!(!Secure::showing(&wrong, &authority).is_accepted(service.grpc).await);
}

#[tokio::test]
async fn a_client_may_use_its_own_domains_and_others_are_refused_by_name() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let allowed = ["--allow", "edge.gateway=test,more", "--allow", "spiffe://mesh/*=other"];
    let service = serve_certified(&authority, folder.path(), &allowed);
    let send_as = |name: &'static str| {
        let client = Secure::showing(&authority.sign(name), &authority);
        let address = service.grpc;
        async move {
            client
                .client(address)
                .await
                .unwrap()
                .decide(request(vec![descriptor(&[("user", "ann")])]))
                .await
        }
    };
    assert_eq!(send_as("edge.gateway").await.unwrap().statuses.len(), 1);
    for name in ["spiffe://mesh/ns/edge", "else.gateway"] {
        let refused = send_as(name).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("\"test\""), "{refused}");
    }
    assert_eq!(metric(&service, "forbidden_calls_total").await, 2);
    let over_http = Web::new(service.http).send("POST", "/json", r#"{"domain": "test"}"#).await;
    assert_eq!(over_http.status, 403, "{over_http:?}");
    assert!(over_http.body.contains("--allow"), "{over_http:?}");
}

#[test]
fn rights_need_certificates_that_identify_the_client() {
    let started = output(["serve", "--allow", "edge.gateway=test", "--allow", "x"]);
    assert_eq!(started.status.code(), Some(1));
    let error = String::from_utf8(started.stderr).unwrap();
    assert!(
        error.contains("--allow: requires --grpc-tls-client-ca") && error.contains("found `x`"),
        "{error}"
    );
}

#[tokio::test]
async fn a_changed_pair_is_used_for_new_connections_and_old_ones_continue() {
    let (authority, folder, mut service) = with_server_only();
    let secure = Secure::trusting(&authority);
    let old = secure.client(service.grpc).await.unwrap();
    let fresh = authority.sign_rsa("*.gateway");
    fresh.write(folder.path());
    service.wait_for_message("certificates reloaded");
    assert!(old.hit("user", "ann").await);
    assert_eq!(secure.seen(), 1, "on the connection that it had");
    assert!(secure.is_accepted(service.grpc).await);
    assert_eq!(secure.last_seen(), der(&fresh));
}

#[tokio::test]
async fn a_secret_swapped_by_kubernetes_is_loaded_and_other_files_are_not_read() {
    let authority = Authority::new();
    let secret = Policies::none();
    for version in ["..1", "..2"] {
        std::fs::create_dir(secret.file(version)).unwrap();
    }
    authority.sign("a.gateway").write(&secret.file("..1"));
    let fresh = authority.sign("b.gateway");
    fresh.write(&secret.file("..2"));
    secret.link("..data", "..1");
    for name in ["tls.crt", "tls.key"] {
        secret.link(name, &format!("..data/{name}"));
    }
    // Reading every file in the folder would block forever on this one.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        secret.file("pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let service = serve(secret.path(), &[]);
    secret.link("..data", "..2");
    let secure = Secure::trusting(&authority);
    let shown =
        || async { secure.connect(service.grpc).await.map(|_| secure.last_seen()).unwrap() };
    becomes("the other certificate is shown", TEST_TIMEOUT, shown, |shown| *shown == der(&fresh))
        .await;
}

#[tokio::test]
async fn a_changed_client_authority_applies_to_new_connections() {
    let authority = Authority::new();
    let other = Authority::new();
    let folder = TempDir::new().unwrap();
    let mut service = serve_certified(&authority, folder.path(), &[]);
    std::fs::write(folder.path().join("ca.crt"), &other.pem).unwrap();
    service.wait_for_message("certificates reloaded");
    assert!(Secure::showing(&other.sign("edge"), &authority).is_accepted(service.grpc).await);
    assert!(!Secure::showing(&authority.sign("edge"), &authority).is_accepted(service.grpc).await);
}

#[tokio::test]
async fn a_mismatched_pair_is_refused_and_the_current_one_stays() {
    let (authority, folder, mut service) = with_server_only();
    let secure = Secure::trusting(&authority);
    assert!(secure.is_accepted(service.grpc).await);
    let old = secure.last_seen();
    let [certificate, key] = files(folder.path());
    let fresh = authority.sign("c.gateway");
    let broken = [
        ("the key of another certificate", fresh.key.as_str()),
        ("half a key", fresh.key.split_at(fresh.key.len() / 2).0),
        ("no key", ""),
    ];
    for (number, (what, text)) in (1..).zip(broken) {
        std::fs::write(&key, text).unwrap();
        let refused = || metric(&service, r#"tls_loads_total{kind="refused"}"#);
        becomes(what, TEST_TIMEOUT, refused, |count| *count == number).await;
        assert!(secure.is_accepted(service.grpc).await, "{what}");
        assert_eq!(secure.last_seen(), old, "{what}");
    }
    std::fs::remove_file(&key).unwrap();
    service.wait_for_message("certificate reload failed; current certificates remain in force");
    std::fs::write(&certificate, &fresh.certificate).unwrap();
    std::fs::write(&key, &fresh.key).unwrap();
    service.wait_for_message("certificates reloaded");
    assert!(secure.is_accepted(service.grpc).await);
    assert_eq!(secure.last_seen(), der(&fresh));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stalled_handshake_delays_neither_other_connections_nor_the_exit() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    authority.sign("a.gateway").write(folder.path());
    let mut service = serve(folder.path(), &["--workers", "1", "--drain-timeout", "1h"]);
    let silent = TcpStream::connect(service.grpc).await.unwrap();
    let mut stuck = TcpStream::connect(service.grpc).await.unwrap();
    // A handshake record header with a length of 512 bytes.
    stuck.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    let idle = Secure::trusting(&authority).connect(service.grpc).await.unwrap();
    assert!(Secure::trusting(&authority).is_accepted(service.grpc).await);
    service.process.signal(Signal::TERM);
    assert_eq!(service.process.wait_for_end().code(), Some(0));
    drop((silent, stuck, idle));
}

/// Serves with the pair in `folder`.
fn serve(folder: &Path, flags: &[&str]) -> Tollgate {
    let [certificate, key] = files(folder).map(|path| path.to_str().unwrap().to_owned());
    let flags = [&["--grpc-tls-cert", &certificate, "--grpc-tls-key", &key], flags].concat();
    Tollgate::serve_with(Policies::of(&daily("user", 1000)).path(), &flags)
}

fn with_server_only() -> (Authority, TempDir, Tollgate) {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    authority.sign("a.gateway").write(folder.path());
    let service = serve(folder.path(), &[]);
    (authority, folder, service)
}

/// Serves only clients with a certificate signed by `authority`.
fn serve_certified(authority: &Authority, folder: &Path, flags: &[&str]) -> Tollgate {
    authority.sign("a.gateway").write(folder);
    let authorities = folder.join("ca.crt");
    std::fs::write(&authorities, &authority.pem).unwrap();
    serve(folder, &[&["--grpc-tls-client-ca", authorities.to_str().unwrap()], flags].concat())
}

/// Returns a counter by its name and labels.
async fn metric(service: &Tollgate, name: &str) -> u64 {
    let metrics = Web::new(service.http).get("/metrics").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("tollgate_")?.strip_prefix(name));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

async fn answers(channel: tonic::transport::Channel) -> bool {
    use crate::support::rls::Client;
    Client::over(channel).decide(request(vec![descriptor(&[("user", "ann")])])).await.is_ok()
}

fn der(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}
