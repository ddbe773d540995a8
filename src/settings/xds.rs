//! The control plane as a source of policies.

use std::path::PathBuf;

use super::{Problems, SettingProblem, parse};
use crate::grpc::client::Header;
use crate::xds::{ControlPlane, XdsTarget, XdsTls};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Policies from a control plane")]
pub(super) struct Flags {
    /// Load policies from the control plane at this address, by Envoy's xDS, instead of from files.
    #[arg(long, env = "TOLLGATE_XDS", value_name = "HOST:PORT")]
    pub(super) xds: Option<String>,
    /// Use the delta protocol, which sends only changes; by default, each response has the whole
    /// configuration, as envoyproxy/ratelimit requests it.
    #[arg(long, env = "TOLLGATE_XDS_DELTA")]
    xds_delta: bool,
    /// Node ID to report to the control plane; Envoy Gateway responds to `envoy-ratelimit`.
    #[arg(long, env = "TOLLGATE_XDS_NODE_ID", value_name = "ID", default_value = "default")]
    xds_node_id: String,
    /// Node metadata to report to the control plane.
    #[arg(
        long,
        env = "TOLLGATE_XDS_NODE_METADATA",
        value_name = "KEY=VALUE,...",
        value_delimiter = ','
    )]
    xds_node_metadata: Vec<String>,
    /// Header to send to the control plane. May be repeated; separated by commas in the
    /// environment.
    #[arg(
        long,
        env = "TOLLGATE_XDS_HEADER",
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        hide_env_values = true
    )]
    xds_header: Vec<String>,
    /// Use TLS, and verify the control plane against the CA certificates of the system.
    #[arg(long, env = "TOLLGATE_XDS_TLS")]
    xds_tls: bool,
    /// PEM file with CA certificates to trust in addition to those of the system. This file and the
    /// next two are read for each connection.
    #[arg(long, env = "TOLLGATE_XDS_CA", value_name = "FILE")]
    xds_ca: Option<PathBuf>,
    /// PEM file with the client certificate.
    #[arg(long, env = "TOLLGATE_XDS_CERT", value_name = "FILE")]
    xds_cert: Option<PathBuf>,
    /// PEM file with the private key of the client certificate.
    #[arg(long, env = "TOLLGATE_XDS_KEY", value_name = "FILE")]
    xds_key: Option<PathBuf>,
    /// Name that the control plane's certificate must contain, instead of the host.
    #[arg(long, env = "TOLLGATE_XDS_SERVER_NAME", value_name = "NAME")]
    xds_server_name: Option<String>,
    /// Maximum size of a response, in bytes; a larger one ends the stream, and the policies in
    /// force stay.
    #[arg(long, env = "TOLLGATE_XDS_MAX_MESSAGE", value_name = "SIZE", default_value = "4MiB")]
    xds_max_message: String,
    /// Idle time after which a keepalive PING is sent. By default, gRPC servers in Go close
    /// connections that send PINGs more often than every five minutes.
    #[arg(long, env = "TOLLGATE_XDS_KEEPALIVE", value_name = "DURATION", default_value = "5m")]
    xds_keepalive: String,
    /// Minimum delay before reconnecting to a control plane that failed. The delay is random; its
    /// upper bound doubles with each attempt, up to --xds-backoff-max.
    #[arg(
        long,
        env = "TOLLGATE_XDS_BACKOFF_MIN",
        value_name = "DURATION",
        default_value = "500ms"
    )]
    xds_backoff_min: String,
    /// Maximum delay before reconnecting.
    #[arg(long, env = "TOLLGATE_XDS_BACKOFF_MAX", value_name = "DURATION", default_value = "30s")]
    xds_backoff_max: String,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> Option<ControlPlane> {
        let target = self.xds.as_ref().map(|text| problems.read("--xds", text, XdsTarget::parse));
        let plane = ControlPlane {
            target: target.clone().unwrap_or_default(),
            is_delta: self.xds_delta,
            node_metadata: self.node_metadata(problems),
            headers: self.headers(problems),
            tls: self.tls(problems),
            max_message_bytes: problems.read(
                "--xds-max-message",
                &self.xds_max_message,
                parse::bytes,
            ),
            keepalive: problems.read("--xds-keepalive", &self.xds_keepalive, parse::some_time),
            backoff_min: problems.read(
                "--xds-backoff-min",
                &self.xds_backoff_min,
                parse::some_time,
            ),
            backoff_max: problems.read(
                "--xds-backoff-max",
                &self.xds_backoff_max,
                parse::some_time,
            ),
            node_id: self.xds_node_id,
        };
        if plane.backoff_max < plane.backoff_min {
            let least = plane.backoff_min;
            let found = plane.backoff_max;
            let what =
                format!("expected at least {least:?}, which --xds-backoff-min is, found {found:?}");
            problems.0.push(SettingProblem { flag: "--xds-backoff-max", what });
        }
        target.map(|_| plane)
    }

    fn node_metadata(&self, problems: &mut Problems) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for text in self.xds_node_metadata.iter().filter(|text| !text.is_empty()) {
            match text.split_once('=').filter(|(key, _)| !key.is_empty()) {
                Some((key, value)) => pairs.push((key.to_owned(), value.to_owned())),
                None => {
                    let found = if text.contains('=') { "an empty key" } else { "no `=`" };
                    let what = format!(
                        "expected key=value, found {found} in `***`, which may be a secret"
                    );
                    problems.0.push(SettingProblem { flag: "--xds-node-metadata", what });
                }
            }
        }
        pairs
    }

    fn headers(&self, problems: &mut Problems) -> Vec<Header> {
        let mut headers = Vec::new();
        for text in self.xds_header.iter().filter(|text| !text.is_empty()) {
            match Header::parse(text) {
                Ok(header) => headers.push(header),
                Err(error) => {
                    let what = error.to_string();
                    problems.0.push(SettingProblem { flag: "--xds-header", what });
                }
            }
        }
        headers
    }

    fn tls(&self, problems: &mut Problems) -> Option<XdsTls> {
        let mut needs =
            |flag, what: &str| problems.0.push(SettingProblem { flag, what: what.to_owned() });
        match (&self.xds_cert, &self.xds_key) {
            (Some(_), None) => needs("--xds-cert", "needs its key, --xds-key"),
            (None, Some(_)) => needs("--xds-key", "needs its certificate, --xds-cert"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let given = [
            ("--xds-ca", self.xds_ca.is_some()),
            ("--xds-cert", self.xds_cert.is_some()),
            ("--xds-server-name", self.xds_server_name.is_some()),
        ];
        for (flag, _) in given.into_iter().filter(|(_, is_given)| *is_given && !self.xds_tls) {
            needs(flag, "needs --xds-tls");
        }
        self.xds_tls.then(|| XdsTls {
            ca: self.xds_ca.clone(),
            certificate: self.xds_cert.clone().zip(self.xds_key.clone()),
            server_name: self.xds_server_name.clone(),
        })
    }
}
