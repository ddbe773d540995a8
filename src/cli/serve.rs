//! `tollgate serve`: runs the service until SIGTERM, SIGINT or SIGHUP.

use std::env;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::block_on;
use super::output::print_stderr;
use crate::settings::{FlagProblem, Flags, Settings, missing_allocator_variables};
use crate::{app, telemetry};

/// Run the service
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(
    args_override_self = true,
    after_help = "\
Exit codes: 0 after SIGTERM, SIGINT or SIGHUP (a second SIGINT exits at once), 1 if the service cannot start or fails.

Examples:
  # Serve the policies of one file, with counters in memory
  tollgate serve --policy limits.yaml
  # Serve the policies of a directory and log in JSON
  tollgate serve --policy /etc/tollgate --grpc-listen 127.0.0.1:8081 --log-format json"
)]
pub struct ServeArgs {
    #[command(flatten)]
    flags: Flags,
    /// Read the settings from the variables of envoyproxy/ratelimit (see `tollgate settings`).
    /// Later flags override them. Default if the program is named `ratelimit`.
    // Replaced with flags before clap parses them.
    #[arg(long, help_heading = "Compatibility with envoyproxy/ratelimit")]
    envoyproxy_env: bool,
    #[arg(skip)]
    notes: Vec<String>,
}

impl ServeArgs {
    /// Stores notes on the settings until the log is initialized.
    pub(super) fn note(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }

    /// Serves. Exits with 0 after a signal, 1 if it could not start or failed.
    pub fn run(self) -> ExitCode {
        if let Err(error) = limit_address_space() {
            print_stderr(format_args!(
                "warning: address space is limited, and the allocators could not be configured to reserve less: {error}"
            ));
        }
        let (settings, problems) = self.flags.resolve();
        match block_on(serve(settings, &problems, &self.notes)) {
            Ok(Ok(())) => ExitCode::SUCCESS,
            Ok(Err(error)) => {
                print_stderr(error.to_string().trim_end());
                ExitCode::FAILURE
            }
            Err(error) => {
                print_stderr(format_args!("error: cannot start the async runtime: {error}"));
                ExitCode::FAILURE
            }
        }
    }
}

/// Executes this program again, in this process, if its address space is limited and its allocators
/// would reserve most of it: they read their variables before `main`, and have no other safe
/// interface. Returns only if that is not needed.
///
/// # Errors
/// The program cannot be executed.
fn limit_address_space() -> io::Result<()> {
    let variables = missing_allocator_variables();
    if variables.is_empty() {
        return Ok(());
    }
    let mut arguments = env::args_os();
    let mut again = Command::new(env::current_exe()?);
    again.envs(variables).arg0(arguments.next().unwrap_or_default()).args(arguments);
    Err(again.exec())
}

async fn serve(
    settings: Settings,
    problems: &[FlagProblem],
    notes: &[String],
) -> Result<(), Box<dyn std::error::Error>> {
    // Continues after a problem, to also find those of the policies and the addresses.
    let prepared = app::prepare(&settings).await;
    let prepared = match (prepared, problems) {
        (Ok(prepared), []) => prepared,
        (prepared, problems) => {
            let mut text: String =
                problems.iter().map(|problem| format!("error: {problem}\n")).collect();
            text.extend(prepared.err().map(|error| error.to_string()));
            return Err(text.into());
        }
    };
    telemetry::log::begin(&settings.log.filter, settings.log.format)?;
    notes.iter().for_each(|note| warn!("{note}"));
    settings.memory.warnings().iter().for_each(|warning| warn!("{warning}"));
    info!(memory = %settings.memory, request = settings.limits.message_room(), "resource limits");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // SIGHUP shuts down as well: policies reload when their files change, so there is nothing to
    // reload on it.
    let mut hang_up = signal(SignalKind::hangup())?;
    let (begin, begun) = oneshot::channel();
    // Ctrl-C twice is a person who will not wait. Supervisors may repeat SIGTERM, which loses no
    // call.
    let second_interrupt = async {
        let is_interrupt = tokio::select! {
            _ = terminate.recv() => false,
            _ = hang_up.recv() => false,
            _ = interrupt.recv() => true,
        };
        // Fails only if the service has ended by itself.
        let _ = begin.send(());
        if !is_interrupt {
            interrupt.recv().await;
        }
        interrupt.recv().await;
    };
    let shutdown = async {
        let _ = begun.await;
    };
    tokio::select! {
        ended = app::run(settings, prepared, shutdown) => ended?,
        () = second_interrupt => warn!("second SIGINT; exiting without waiting for calls"),
    }
    Ok(())
}
