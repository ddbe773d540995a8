//! The command line: one file a subcommand, all of one shape, arguments and `run`.

pub mod api;
mod arguments;
pub mod check;
mod counter;
pub mod denials;
pub mod diff;
mod dry_run;
pub mod explain;
pub mod grant;
pub mod hit;
pub mod inspect;
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
use crate::policy::{self, Loaded, Report};
use crate::settings::Reading;

/// Tollgate decides whether a request is within its limits. It speaks Envoy's rate limit protocol (RLS v3).
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
    serve: serve::Serve,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve decisions over gRPC (the default).
    Serve(Box<serve::Serve>),
    /// Check policy files and say what is in them.
    Check(check::Check),
    /// Say what differs between two sets of policies, and for whom.
    Diff(diff::Diff),
    /// Say which rule a descriptor hits, and why.
    Explain(explain::Explain),
    /// Ask a running service, as a client.
    Hit(hit::Hit),
    /// Decide a recorded trace in virtual time.
    Replay(replay::Replay),
    /// Show what a running service limits right now, and whom it denies.
    Top(top::Top),
    /// Say who was denied in the last 15 minutes, and why.
    Denials(denials::Denials),
    /// Say how a counter stands, who used it up, and how to let somebody through.
    Inspect(inspect::Inspect),
    /// Have a counter be as if never used.
    Reset(reset::Reset),
    /// Give hits back to a counter.
    Refund(refund::Refund),
    /// Grant hits beside the limit of a counter, for a time.
    Grant(grant::Grant),
    /// Have a running service read its policies again.
    Reload(reload::Reload),
    /// Run the tests of policies.
    Test(test::Test),
    /// Say who used a counter up.
    Who(who::Who),
    /// Say what the variables of envoyproxy/ratelimit are here.
    Settings(settings::Settings),
    /// Print the JSON Schema of policy files, for editors.
    Schema(schema::Schema),
}

impl Cli {
    /// Reads the command line of the process; ends it where that cannot be read, or where help is asked for.
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
            Some(_) => {}
        }
        cli
    }

    /// Does what the command line says, and says how it went.
    pub fn run(self) -> ExitCode {
        match self.command {
            None => self.serve.run(),
            Some(Command::Serve(serve)) => serve.run(),
            Some(Command::Check(check)) => check.run(),
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
            Some(Command::Settings(settings)) => settings.run(),
            Some(Command::Schema(schema)) => schema.run(),
        }
    }
}

/// Runs `work` on a runtime of this thread.
///
/// # Errors
/// Where the system has no room for a runtime.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // Dropped, it would wait for a name that is being resolved or a file that is being read, however long.
    runtime.shutdown_background();
    Ok(done)
}

/// Reads and compiles policies: how many files there were, and what came of them.
///
/// # Errors
/// Everything that is wrong with them.
fn load(reading: &Reading, paths: &[PathBuf]) -> Result<(usize, Loaded), Report> {
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
