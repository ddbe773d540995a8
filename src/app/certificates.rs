//! The certificates of a listener: loaded at startup, and replaced when their files change.

use std::sync::Arc;

use tracing::{error, info};

use crate::http2::tls::{ServerTls, TlsContents, TlsFiles};
use crate::telemetry::metrics::TlsMetrics;
use crate::watch;

/// A valid TLS configuration with the file contents that it was built from.
pub(super) struct Certificates {
    files: TlsFiles,
    contents: TlsContents,
    /// TLS configuration for new connections.
    pub(super) tls: ServerTls,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// All problems with the files.
    pub(super) fn load(files: TlsFiles) -> Result<Self, Vec<String>> {
        let contents = files.read();
        let tls = ServerTls::new(files.configure(&contents)?);
        Ok(Self { files, contents, tls })
    }

    /// Applies changes, forever. Invalid files are logged, and the current certificates stay in
    /// force.
    pub(super) async fn follow(self, metrics: Arc<TlsMetrics>) {
        let Self { files, contents, tls } = self;
        metrics.loaded();
        let read = {
            let files = files.clone();
            move || files.read()
        };
        watch::watch(contents, read, |contents| {
            let config = files.configure(&contents);
            match config {
                Ok(config) => {
                    metrics.loaded();
                    tls.replace(config);
                    info!("certificates reloaded");
                }
                Err(problems) => {
                    metrics.refused();
                    let problems = problems.join("; ");
                    error!(
                        problems,
                        "certificate reload failed; current certificates remain in force"
                    );
                }
            }
        })
        .await;
    }
}
