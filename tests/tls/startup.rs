//! Problems of certificates, keys and flags, reported at startup.

use tempfile::TempDir;

use crate::support::certificates::{Authority, Pair, files};
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::{command, quiet};

#[test]
fn an_unknown_kind_of_key_is_reported_with_the_known_ones() {
    let folder = TempDir::new().unwrap();
    Pair::p521().write(folder.path());
    let [certificate, key] = files(folder.path()).map(|path| path.to_str().unwrap().to_owned());
    let error = start_error(&["--grpc-tls-cert", &certificate, "--grpc-tls-key", &key]);
    assert!(error.contains("supported keys: RSA, ECDSA on P-256 or P-384, Ed25519"), "{error}");
}

#[test]
fn all_problems_of_the_files_are_reported_at_startup() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let pair = authority.sign("a.gateway");
    pair.write(folder.path());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("other.key"), authority.sign("b.gateway").key).unwrap();
    let start = |certificate: &str, key: &str, authorities: &str| {
        let flags = [
            "--grpc-tls-cert",
            certificate,
            "--grpc-tls-key",
            key,
            "--grpc-tls-client-ca",
            authorities,
        ];
        start_error(&flags)
    };
    let all = start(&path("absent"), &path("empty"), &path("tls.key"));
    for part in [
        "absent: failed to read",
        "empty: invalid PEM private key",
        "tls.key: no PEM certificate found",
    ] {
        assert!(all.contains(part), "{part} is not in\n{all}");
    }
    let all = start(&path("tls.crt"), &path("other.key"), &path("tls.crt"));
    assert!(all.contains("tls.crt and ") && all.contains("other.key: "), "{all}");
}

#[test]
fn flags_that_require_each_other_are_reported() {
    let all = start_error(&["--grpc-tls-cert", "a", "--grpc-tls-client-san", "envoy"]);
    for part in [
        "--grpc-tls-cert: requires --grpc-tls-key",
        "--grpc-tls-client-san: requires --grpc-tls-client-ca",
    ] {
        assert!(all.contains(part), "{part} is not in\n{all}");
    }
}

/// Returns the error output of a failed start.
fn start_error(flags: &[&str]) -> String {
    let policies = Policies::of(&daily("user", 5));
    let mut serve = command(["serve"]);
    let ended =
        serve.args(quiet(flags)).args(flags).arg("--policy").arg(policies.path()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    String::from_utf8(ended.stderr).unwrap()
}
