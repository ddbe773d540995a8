//! The command line: one module per subcommand, each with its arguments and a `run` method.

pub mod api;
mod arguments;
pub mod check;
pub mod check_store;
mod client_tls;
pub mod completions;
mod counter;
pub mod denials;
pub mod diff;
mod duration;
pub mod explain;
mod findings;
pub mod grant;
mod help;
pub mod hit;
pub mod init;
pub mod inspect;
#[cfg(feature = "migrate")]
pub mod migrate;
mod output;
pub mod refund;
pub mod reload;
pub mod replay;
pub mod replicas;
pub mod reset;
pub mod schema;
mod secrets;
pub mod serve;
pub mod settings;
mod table;
pub mod test;
pub mod top;
mod variables;
#[cfg(feature = "verify")]
pub mod verify;

use std::error::Error;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::policy::source::files;
use crate::policy::{self, Loaded, ProblemReport};
use crate::settings::ReadingFlags;

/// Rate limit service that implements Envoy's rate limit protocol (RLS v3).
#[derive(Debug, Parser)]
#[command(
    name = "tollgate",
    version,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    after_help = "\
Without a subcommand, `tollgate` runs `tollgate serve`.

Examples:
  # Serve the policies of a directory
  tollgate serve --policy config/policies
  # Send 3 requests to the running service
  tollgate hit 127.0.0.1:8081 gateway remote_address=203.0.113.7 --count 3"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::ServeArgs,
}

/// The reason why a subcommand failed, which is only printed.
type CommandError = Box<dyn Error>;

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the service (the default).
    Serve(Box<serve::ServeArgs>),
    /// Write a first policy and its test.
    Init(init::Init),
    /// Validate policy files.
    Check(check::CheckArgs),
    /// Check that a Redis or Valkey server can be used as the store.
    CheckStore(Box<check_store::CheckStore>),
    /// Show the differences between two sets of policies, and the descriptors that they affect.
    Diff(diff::Diff),
    /// Show which rule a descriptor matches, and why.
    Explain(explain::Explain),
    /// Send rate limit requests to a running service.
    Hit(hit::Hit),
    /// Replay recorded traffic against policies, in virtual time.
    Replay(Box<replay::Replay>),
    /// Show live request rates per rule, and the keys that are denied most.
    Top(top::TopArgs),
    /// List the denials of the last 15 minutes.
    Denials(denials::DenialsArgs),
    /// Show the state, callers and denials of a counter, and the commands to change it.
    Inspect(Box<inspect::Inspect>),
    /// Reset a counter.
    Reset(reset::ResetArgs),
    /// Refund hits to a counter.
    Refund(refund::Refund),
    /// Grant hits in addition to the limit of a counter, for a limited time.
    Grant(grant::GrantArgs),
    /// Reload the policies of a running service.
    Reload(reload::Reload),
    /// List the replicas that share the store, with their releases and policies.
    Replicas(replicas::ReplicasArgs),
    /// Run policy tests.
    Test(test::Test),
    /// Compare an envoyproxy/ratelimit deployment with Tollgate, before or after the switch.
    #[cfg(feature = "migrate")]
    Migrate(migrate::Migrate),
    /// Verify that a running rate limit service enforces its limits.
    #[cfg(feature = "verify")]
    Verify(Box<verify::Verify>),
    /// Show how the variables of envoyproxy/ratelimit map to flags.
    Settings(settings::SettingsArgs),
    /// Print the JSON Schema of policy files, for editors.
    Schema(schema::Schema),
    /// Print the completions of a shell.
    Completions(completions::Completions),
    /// Write the manual pages to a directory.
    Man(completions::ManPages),
}

impl Cli {
    /// Parses the command line of the process; exits if it is invalid, or after printing help.
    pub fn of_process() -> Self {
        let original: Vec<_> = std::env::args_os().collect();
        let mut secrets = secrets::on_command_line(&original);
        let (arguments, mut notes) = arguments::expanded(original, &settings::variables())
            .unwrap_or_else(|errors| {
                output::print_stderr(errors);
                std::process::exit(1)
            });
        notes.append(&mut secrets);
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        notes.extend(variables::mistyped(names, &Self::command()));
        let mut cli =
            Self::parsed(arguments).unwrap_or_else(|error| arguments::explained(error).exit());
        match &mut cli.command {
            Some(Command::Serve(serve)) => serve.note(notes),
            None => cli.serve.note(notes),
            Some(_) => {
                notes.iter().for_each(|note| output::print_stderr(format_args!("warning: {note}")))
            }
        }
        cli
    }

    /// Parses a command line, with short helps for `-h`.
    fn parsed(arguments: Vec<OsString>) -> Result<Self, clap::Error> {
        let mut command = help::with_short_help(Self::command());
        let matches = command.try_get_matches_from_mut(arguments)?;
        Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    }

    /// Runs the subcommand and returns its exit code.
    pub fn run(self) -> ExitCode {
        let ended = match self.command {
            None => Ok(self.serve.run()),
            Some(Command::Serve(serve)) => Ok(serve.run()),
            Some(Command::Init(init)) => init.run(),
            Some(Command::Check(check)) => Ok(check.run()),
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
            Some(Command::Replicas(replicas)) => replicas.run(),
            Some(Command::Test(test)) => test.run(),
            #[cfg(feature = "migrate")]
            Some(Command::Migrate(migrate)) => migrate.run(),
            #[cfg(feature = "verify")]
            Some(Command::Verify(verify)) => verify.run(),
            Some(Command::Settings(settings)) => Ok(settings.run()),
            Some(Command::Schema(schema)) => Ok(schema.run()),
            Some(Command::Completions(completions)) => Ok(completions.run()),
            Some(Command::Man(pages)) => pages.run(),
        };
        ended.unwrap_or_else(|error| output::report_error(&error))
    }
}

/// Runs `work` on a runtime of this thread.
///
/// # Errors
/// The system lacks the resources for a runtime.
fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // Dropping it would block on pending name resolution and file reads, however long they take.
    runtime.shutdown_background();
    Ok(done)
}

/// As [`block_on`], for work that can fail.
///
/// # Errors
/// As for [`block_on`], and those of the work.
fn try_block_on<T>(work: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    block_on(work)?
}

/// Reads and compiles policies; returns the number of files and the result.
///
/// # Errors
/// All problems of the policies.
fn load(reading: &ReadingFlags, paths: &[PathBuf]) -> Result<(usize, Loaded), ProblemReport> {
    let sources = files::read(&reading.places(paths))?;
    Ok((sources.len(), policy::load(&sources, &reading.options())?))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_definition_is_valid() {
        super::Cli::command().debug_assert();
    }
}
