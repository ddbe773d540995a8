//! The command line: one module per subcommand, each with its arguments and a `run` method.

pub mod api;
mod arguments;
pub mod check;
pub mod check_store;
mod client_tls;
mod counter;
pub mod denials;
pub mod diff;
mod dry_run;
pub mod explain;
pub mod grant;
pub mod hit;
pub mod inspect;
pub mod migrate;
pub mod refund;
pub mod reload;
pub mod replay;
pub mod reset;
mod said;
pub mod schema;
mod secrets;
pub mod serve;
pub mod settings;
mod table;
pub mod test;
pub mod top;
pub mod who;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::policy::source::files;
use crate::policy::{self, Loaded, PolicyReport};
use crate::settings::ReadingFlags;

/// Tollgate decides whether a request is within its limits. It implements Envoy's rate limit
/// protocol (RLS v3).
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    after_help = "\
Without a subcommand, `tollgate` serves. First steps:
  tollgate serve --policy config/policies
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7 --count 3"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve decisions over gRPC (the default).
    Serve(Box<serve::ServeArgs>),
    /// Check policy files and summarize their content.
    Check(check::CheckArgs),
    /// Show what a Redis or Valkey supports and what it lacks, before a service uses it.
    CheckStore(check_store::CheckStore),
    /// Show the differences between two sets of policies, and who is affected.
    Diff(diff::Diff),
    /// Show which rule a descriptor matches, and why.
    Explain(explain::Explain),
    /// Send requests to a running service, as a client.
    Hit(hit::Hit),
    /// Decide a recorded trace in virtual time.
    Replay(replay::Replay),
    /// Show what a running service is limiting now, and who is denied.
    Top(top::TopArgs),
    /// List who was denied in the last 15 minutes, and why.
    Denials(denials::DenialsArgs),
    /// Show the state of a counter, who used it up, and how to admit a caller.
    Inspect(inspect::Inspect),
    /// Reset a counter to its unused state.
    Reset(reset::ResetArgs),
    /// Give hits back to a counter.
    Refund(refund::Refund),
    /// Grant hits in addition to the limit of a counter, for a time.
    Grant(grant::GrantArgs),
    /// Reload the policies of a running service.
    Reload(reload::Reload),
    /// Run the tests of policies.
    Test(test::Test),
    /// Show who used a counter up.
    Who(who::WhoArgs),
    /// Compare an envoyproxy/ratelimit with the Tollgate that replaces it, before and after the
    /// switch.
    Migrate(migrate::Migrate),
    /// Show how the variables of envoyproxy/ratelimit map to flags.
    Settings(settings::SettingsArgs),
    /// Print the JSON Schema of policy files, for editors.
    Schema(schema::Schema),
}

impl Cli {
    /// Parses the command line of the process; exits if it is invalid, or after printing help.
    pub fn of_process() -> Self {
        let written: Vec<_> = std::env::args_os().collect();
        let mut secrets = secrets::on_command_line(&written);
        let (arguments, mut notes) =
            arguments::expanded(written, &settings::variables()).unwrap_or_else(|complaints| {
                said::remark(complaints.trim_end());
                std::process::exit(1)
            });
        notes.append(&mut secrets);
        let mut cli = Self::parse_from(arguments);
        match &mut cli.command {
            Some(Command::Serve(serve)) => serve.note(notes),
            None => cli.serve.note(notes),
            Some(_) => notes.iter().for_each(|note| said::remark(format_args!("warning: {note}"))),
        }
        cli
    }

    /// Runs the subcommand and returns its exit code.
    pub fn run(self) -> ExitCode {
        match self.command {
            None => self.serve.run(),
            Some(Command::Serve(serve)) => serve.run(),
            Some(Command::Check(check)) => check.run(),
            Some(Command::CheckStore(check)) => check.run(),
            Some(Command::Diff(diff)) => diff.run(),
            Some(Command::Explain(explain)) => explain.run(),
            Some(Command::Hit(hit)) => hit.run(),
            Some(Command::Replay(replay)) => replay.run(),
            Some(Command::Top(top)) => top.run(),
            Some(Command::Denials(denials)) => denials.run(),
            Some(Command::Inspect(inspect)) => inspect.run(),
            Some(Command::Reset(reset)) => reset.run(),
            Some(Command::Refund(refund)) => refund.run(),
            Some(Command::Grant(grant)) => grant.run(),
            Some(Command::Reload(reload)) => reload.run(),
            Some(Command::Test(test)) => test.run(),
            Some(Command::Who(who)) => who.run(),
            Some(Command::Migrate(migrate)) => migrate.run(),
            Some(Command::Settings(settings)) => settings.run(),
            Some(Command::Schema(schema)) => schema.run(),
        }
    }
}

/// Runs `work` on a runtime of this thread.
///
/// # Errors
/// The system lacks the resources for a runtime.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // Dropping it would block on pending name resolution and file reads, however long they take.
    runtime.shutdown_background();
    Ok(done)
}

/// Reads and compiles policies; returns the number of files and the result.
///
/// # Errors
/// All problems of the policies.
fn load(reading: &ReadingFlags, paths: &[PathBuf]) -> Result<(usize, Loaded), PolicyReport> {
    let sources = files::read(&reading.places(paths))?;
    Ok((sources.len(), policy::load(&sources, &reading.options())?))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn every_command_line_can_be_read() {
        super::Cli::command().debug_assert();
    }
}
