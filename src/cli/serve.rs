//! `tollgate serve`: the service, until SIGTERM, SIGINT or SIGHUP.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;

use super::block_on;
use super::said::remark;
use crate::settings::{Flags, Problem, Settings};
use crate::{app, telemetry};

/// Serve decisions.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(
    args_override_self = true,
    after_help = "\
Examples:
  tollgate serve --policy limits.yaml
  tollgate serve --policy /etc/tollgate --grpc-listen 127.0.0.1:8081 --log-format json"
)]
pub struct Serve {
    #[command(flatten)]
    flags: Flags,
    /// Take the settings from the variables that envoyproxy/ratelimit reads, see `tollgate settings`; flags after this one win.
    /// Under the name `ratelimit` that is so without it.
    // Replaced by flags before these are read.
    #[arg(long, help_heading = "In the place of envoyproxy/ratelimit")]
    envoyproxy_env: bool,
    #[arg(skip)]
    notes: Vec<String>,
}

impl Serve {
    /// Keeps what has to be said of the settings once there is a log.
    pub(super) fn note(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }

    /// Serves. Exit 0 after a signal, 1 where it could not start.
    pub fn run(self) -> ExitCode {
        let (settings, problems) = self.flags.resolve();
        match block_on(serve(settings, &problems, &self.notes)) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => {
                remark(error.to_string().trim_end());
                ExitCode::FAILURE
            }
            Err(error) => {
                remark(format_args!("error: no runtime: {error}"));
                ExitCode::FAILURE
            }
        }
    }
}

async fn serve(settings: Settings, problems: &[Problem], notes: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    // Goes on after a problem, to find those of the policies and the addresses too.
    let prepared = app::prepare(&settings).await;
    let prepared = match (prepared, problems) {
        (Ok(prepared), []) => prepared,
        (prepared, problems) => {
            let mut text: String = problems.iter().map(|problem| format!("error: {problem}\n")).collect();
            text.extend(prepared.err().map(|error| error.to_string()));
            return Err(text.into());
        }
    };
    telemetry::log::begin(&settings.log.filter, settings.log.format)?;
    notes.iter().for_each(|note| warn!("{note}"));
    // Installed once and kept: a second signal is taken and changes nothing.
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // Policies are read again when their files change: there is nothing else that it could ask for.
    let mut hang_up = signal(SignalKind::hangup())?;
    let shutdown = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
    };
    app::run(settings, prepared, shutdown).await?;
    Ok(())
}
