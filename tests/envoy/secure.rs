//! Envoy and tollgate with certificates like those of Envoy Gateway: RSA, a single-label wildcard,
//! no extended key usage.

use tempfile::TempDir;

use super::failure::Traffic;
use crate::support::certificates::{Authority, files};
use crate::support::envoy::Envoy;
use crate::support::root;
use crate::support::tollgate::Tollgate;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_changed_certificates_nor_the_age_of_connections_fail_a_request() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    authority.sign_rsa("*.envoy-gateway-system").write(folder.path());
    let [certificate, key] = files(folder.path()).map(|path| path.to_str().unwrap().to_owned());
    let authorities = folder.path().join("ca.crt").to_str().unwrap().to_owned();
    std::fs::write(&authorities, &authority.pem).unwrap();
    let flags = [
        ["--grpc-tls-cert", &certificate],
        ["--grpc-tls-key", &key],
        ["--grpc-tls-client-ca", &authorities],
        ["--grpc-tls-client-san", "envoy.envoy-gateway-system"],
        ["--max-connection-age", "200ms"],
    ];
    let mut tollgate =
        Tollgate::serve_with(&root().join("tests/envoy/policy.yaml"), flags.as_flattened());

    let port = tollgate.grpc.port().to_string();
    let values = [
        ("TOLLGATE", port.as_str()),
        ("TOLLGATE_2", &port),
        ("CERT", &certificate),
        ("KEY", &key),
        ("CA", &authorities),
    ];
    let envoy = Envoy::start_by(&template(), &values).await;
    let traffic = Traffic::start(&envoy.edge, 4);
    traffic.flows("by the first certificate").await;
    authority.sign_rsa("*.envoy-gateway-system").write(folder.path());
    tollgate.wait_for_message("certificates reloaded");
    traffic.flows("by the other certificate").await;
    let (answers, failures) = traffic.stop().await;
    assert_eq!(failures, Vec::<u16>::new(), "of {answers} requests");
    let connections = envoy.counter("cluster.tollgate.upstream_cx_total").await;
    assert!(connections > 2, "{connections} connections for {answers} requests");
}

/// Returns `pair.yaml` without retries, and with TLS.
fn template() -> String {
    let text = std::fs::read_to_string(root().join("tests/envoy/pair.yaml")).unwrap();
    let (before, after) = text.split_once("    - name: tollgate\n").unwrap();
    let tls = r#"      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          common_tls_context:
            tls_certificates: [{ certificate_chain: { filename: "${CERT}" }, private_key: { filename: "${KEY}" } }]
            validation_context: { trusted_ca: { filename: "${CA}" } }
"#;
    format!(
        "{}    - name: tollgate\n{tls}{after}",
        before.replace("num_retries: 1", "num_retries: 0")
    )
}
