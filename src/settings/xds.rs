//! The control plane as a source of policies.

use std::path::PathBuf;
use std::time::Duration;

use super::{FlagError, FlagValue, Problems, deferred, parse};
use crate::grpc::client::{ClientTls, Header};
use crate::xds::{ControlPlane, XdsTarget};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Policies from a control plane")]
pub(super) struct Flags {
    /// Load policies from the control plane at this address, by Envoy's xDS, instead of from files.
    #[arg(long, env = "TOLLGATE_XDS", value_name = "HOST:PORT", value_parser = deferred(target))]
    pub(super) xds: Option<FlagValue<XdsTarget>>,
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
        value_delimiter = ',',
        value_parser = deferred(node_metadata)
    )]
    xds_node_metadata: Vec<FlagValue<Option<(String, String)>>>,
    /// Header to send to the control plane. May be repeated; separated by commas in the
    /// environment.
    #[arg(
        long,
        env = "TOLLGATE_XDS_HEADER",
        value_name = "NAME=VALUE",
        value_delimiter = ',',
        hide_env_values = true,
        value_parser = deferred(header)
    )]
    xds_header: Vec<FlagValue<Option<Header>>>,
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
    #[arg(long, env = "TOLLGATE_XDS_MAX_MESSAGE", value_name = "SIZE", default_value = "4MiB", value_parser = deferred(parse::bytes))]
    xds_max_message: FlagValue<usize>,
    /// Idle time after which a keepalive PING is sent. By default, gRPC servers in Go close
    /// connections that send PINGs more often than every five minutes.
    #[arg(long, env = "TOLLGATE_XDS_KEEPALIVE", value_name = "DURATION", default_value = "5m", value_parser = deferred(parse::some_time))]
    xds_keepalive: FlagValue<Duration>,
    /// Minimum delay before reconnecting to a control plane that failed. The delay is random; its
    /// upper bound doubles with each attempt, up to --xds-backoff-max.
    #[arg(
        long,
        env = "TOLLGATE_XDS_BACKOFF_MIN",
        value_name = "DURATION",
        default_value = "500ms",
        value_parser = deferred(parse::some_time)
    )]
    xds_backoff_min: FlagValue<Duration>,
    /// Maximum delay before reconnecting.
    #[arg(long, env = "TOLLGATE_XDS_BACKOFF_MAX", value_name = "DURATION", default_value = "30s", value_parser = deferred(parse::some_time))]
    xds_backoff_max: FlagValue<Duration>,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> Option<ControlPlane> {
        let is_used = self.xds.is_some();
        let target = self.xds.map(|target| problems.take(target)).unwrap_or_default();
        let node_metadata = problems.take_all(self.xds_node_metadata);
        let headers = problems.take_all(self.xds_header);
        match (&self.xds_cert, &self.xds_key) {
            (Some(_), None) => problems.add("--xds-cert", "needs its key, --xds-key"),
            (None, Some(_)) => problems.add("--xds-key", "needs its certificate, --xds-cert"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let given = [
            ("--xds-ca", self.xds_ca.is_some()),
            ("--xds-cert", self.xds_cert.is_some()),
            ("--xds-server-name", self.xds_server_name.is_some()),
        ];
        for (flag, _) in given.into_iter().filter(|(_, is_given)| *is_given && !self.xds_tls) {
            problems.add(flag, "needs --xds-tls");
        }
        let plane = ControlPlane {
            target,
            is_delta: self.xds_delta,
            node_metadata,
            headers,
            tls: self.xds_tls.then(|| ClientTls {
                ca: self.xds_ca,
                certificate: self.xds_cert.zip(self.xds_key),
                server_name: self.xds_server_name,
            }),
            max_message_bytes: problems.take(self.xds_max_message),
            keepalive: problems.take(self.xds_keepalive),
            backoff_min: problems.take(self.xds_backoff_min),
            backoff_max: problems.take(self.xds_backoff_max),
            node_id: self.xds_node_id,
        };
        if plane.backoff_max < plane.backoff_min {
            let ControlPlane { backoff_min: least, backoff_max: found, .. } = &plane;
            let what = format_args!(
                "expected at least {least:?}, which --xds-backoff-min is, found {found:?}"
            );
            problems.add("--xds-backoff-max", what);
        }
        is_used.then_some(plane)
    }
}

fn target(text: &str) -> Result<XdsTarget, FlagError> {
    XdsTarget::parse(text).map_err(FlagError::refused)
}

fn node_metadata(text: &str) -> Result<Option<(String, String)>, FlagError> {
    let found = match text.split_once('=') {
        None if text.is_empty() => return Ok(None),
        None => "no `=`",
        Some(("", _)) => "an empty key",
        Some((key, value)) => return Ok(Some((key.to_owned(), value.to_owned()))),
    };
    Err(FlagError::refused(format_args!(
        "expected key=value, found {found} in `***`, which may be a secret"
    )))
}

fn header(text: &str) -> Result<Option<Header>, FlagError> {
    if text.is_empty() {
        return Ok(None);
    }
    Header::parse(text).map(Some).map_err(FlagError::refused)
}
