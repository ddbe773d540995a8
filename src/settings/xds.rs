//! The control plane that policies come from.

use std::path::PathBuf;

use super::{Problem, Problems, parse};
use crate::grpc::client::Header;
use crate::xds::{ControlPlane, Target, Tls};

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Policies from a control plane")]
pub(super) struct Flags {
    /// Take the policies from the control plane at this address, by Envoy's xDS, instead of files.
    #[arg(long, env = "TOLLGATE_XDS", value_name = "HOST:PORT")]
    pub(super) xds: Option<String>,
    /// Ask for changes only (delta); otherwise each response is the whole configuration, as envoyproxy/ratelimit asks for it.
    #[arg(long, env = "TOLLGATE_XDS_DELTA")]
    xds_delta: bool,
    /// What the control plane knows this process as; Envoy Gateway answers `envoy-ratelimit`.
    #[arg(long, env = "TOLLGATE_XDS_NODE_ID", value_name = "ID", default_value = "default")]
    xds_node_id: String,
    /// What it is told of this process besides.
    #[arg(long, env = "TOLLGATE_XDS_NODE_METADATA", value_name = "KEY=VALUE,...", value_delimiter = ',')]
    xds_node_metadata: Vec<String>,
    /// A header of the calls to it. May be given again; in the environment separated by commas.
    #[arg(long, env = "TOLLGATE_XDS_HEADER", value_name = "NAME=VALUE", value_delimiter = ',', hide_env_values = true)]
    xds_header: Vec<String>,
    /// Encrypt, and verify the control plane by the authorities of the system.
    #[arg(long, env = "TOLLGATE_XDS_TLS")]
    xds_tls: bool,
    /// PEM file of authorities to trust beside those of the system. This and the next two are read for each connection.
    #[arg(long, env = "TOLLGATE_XDS_CA", value_name = "FILE")]
    xds_ca: Option<PathBuf>,
    /// PEM file of the certificate to show to it.
    #[arg(long, env = "TOLLGATE_XDS_CERT", value_name = "FILE")]
    xds_cert: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, env = "TOLLGATE_XDS_KEY", value_name = "FILE")]
    xds_key: Option<PathBuf>,
    /// The name that its certificate has to be for, instead of the host.
    #[arg(long, env = "TOLLGATE_XDS_SERVER_NAME", value_name = "NAME")]
    xds_server_name: Option<String>,
    /// The largest response, in bytes; a larger one ends the stream, and the running policies stay.
    #[arg(long, env = "TOLLGATE_XDS_MAX_MESSAGE", value_name = "SIZE", default_value = "4MiB")]
    xds_max_message: String,
    /// How long the connection may be silent before a sign of life is asked for. Servers of gRPC for Go close connections
    /// that ask more often than every five minutes, unless they are told otherwise.
    #[arg(long, env = "TOLLGATE_XDS_KEEPALIVE", value_name = "DURATION", default_value = "5m")]
    xds_keepalive: String,
    /// The shortest time to wait before a control plane that failed is tried again; up to twice as long each time.
    #[arg(long, env = "TOLLGATE_XDS_BACKOFF_MIN", value_name = "DURATION", default_value = "500ms")]
    xds_backoff_min: String,
    /// The longest.
    #[arg(long, env = "TOLLGATE_XDS_BACKOFF_MAX", value_name = "DURATION", default_value = "30s")]
    xds_backoff_max: String,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> Option<ControlPlane> {
        let target = self.xds.as_ref().map(|text| problems.read("--xds", text, Target::parse));
        let plane = ControlPlane {
            target: target.clone().unwrap_or_default(),
            is_delta: self.xds_delta,
            node_metadata: self.node_metadata(problems),
            headers: self.headers(problems),
            tls: self.tls(problems),
            max_message_bytes: problems.read("--xds-max-message", &self.xds_max_message, parse::bytes),
            keepalive: problems.read("--xds-keepalive", &self.xds_keepalive, parse::some_time),
            backoff_min: problems.read("--xds-backoff-min", &self.xds_backoff_min, parse::some_time),
            backoff_max: problems.read("--xds-backoff-max", &self.xds_backoff_max, parse::some_time),
            node_id: self.xds_node_id,
        };
        if plane.backoff_max < plane.backoff_min {
            let (least, found) = (plane.backoff_min, plane.backoff_max);
            let what = format!("expected at least {least:?}, which --xds-backoff-min is, found {found:?}");
            problems.0.push(Problem { flag: "--xds-backoff-max", what });
        }
        target.map(|_| plane)
    }

    fn node_metadata(&self, problems: &mut Problems) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for text in self.xds_node_metadata.iter().filter(|text| !text.is_empty()) {
            match text.split_once('=').filter(|(key, _)| !key.is_empty()) {
                Some((key, value)) => pairs.push((key.to_owned(), value.to_owned())),
                None => {
                    let what = format!("expected key=value, found `{text}`");
                    problems.0.push(Problem { flag: "--xds-node-metadata", what });
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
                Err(what) => problems.0.push(Problem { flag: "--xds-header", what }),
            }
        }
        headers
    }

    fn tls(&self, problems: &mut Problems) -> Option<Tls> {
        let mut needs = |flag, what: &str| problems.0.push(Problem { flag, what: what.to_owned() });
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
        self.xds_tls.then(|| Tls {
            ca: self.xds_ca.clone(),
            certificate: self.xds_cert.clone().zip(self.xds_key.clone()),
            server_name: self.xds_server_name.clone(),
        })
    }
}
