//! `tollgate serve`: the service, until SIGTERM or SIGINT.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::block_on;
use crate::settings::{Flags, Settings};
use crate::{app, telemetry};

/// Serve decisions.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "\
Examples:
  tollgate serve --policy limits.yaml
  tollgate serve --policy /etc/tollgate --grpc-listen 127.0.0.1:8081 --log-format json")]
pub struct Serve {
    #[command(flatten)]
    flags: Flags,
}

impl Serve {
    /// Serves. Exit 0 after a signal, 1 where it could not start.
    pub fn run(self) -> ExitCode {
        let settings = match self.flags.resolve() {
            Ok(settings) => settings,
            Err(problems) => {
                problems.iter().for_each(|problem| eprintln!("error: {problem}"));
                return ExitCode::FAILURE;
            }
        };
        if let Err(error) = telemetry::log::begin(&settings.log.filter, settings.log.format) {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
        match block_on(serve(settings)) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(problems)) => {
                eprint!("{problems}");
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("error: no runtime: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

async fn serve(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    let prepared = app::prepare(&settings).await?;
    // Installed once and kept: a second signal is taken and changes nothing.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    app::run(settings, prepared, shutdown).await?;
    Ok(())
}
