//! The certificates of the gRPC listener: loaded at the start, exchanged when their files change.

use std::sync::Arc;

use tracing::{error, info};

use crate::telemetry::metrics::Metrics;
use crate::transport::tls::{Contents, Tls, TlsFiles};
use crate::watch;

/// Certificates that can be used, and what they were read from.
pub(super) struct Certificates {
    files: TlsFiles,
    contents: Contents,
    /// What connections are opened with.
    pub(super) tls: Tls,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// All that is wrong with them.
    pub(super) fn load(files: TlsFiles) -> Result<Self, Vec<String>> {
        let contents = files.read();
        let tls = Tls::new(files.configure(&contents)?);
        Ok(Self { files, contents, tls })
    }

    /// Puts changes in force, for ever. What cannot be used is told, and what was in force stays.
    pub(super) async fn follow(self, metrics: Arc<Metrics>) {
        let Self { files, contents, tls } = self;
        metrics.tls_load(true);
        let read = {
            let files = files.clone();
            move || files.read()
        };
        watch::watch(contents, read, |contents| {
            let config = files.configure(&contents);
            metrics.tls_load(config.is_ok());
            match config {
                Ok(config) => {
                    tls.replace(config);
                    info!("changed certificates are in force");
                }
                Err(problems) => {
                    let problems = problems.join("; ");
                    error!(problems, "changed certificates are refused, those in force stay");
                }
            }
        })
        .await;
    }
}
