//! `tollgate denials`: lists the denials of the last 15 minutes, with their keys, limits, times and
//! counts.

mod span;
mod text;

use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};

use self::span::{SpanArgs, instant};
pub(super) use self::text::{missing_notice, replicas_notice};
use super::api::ServerArgs;
use super::duration::duration;
use super::output::{print, print_stderr};
use super::{CommandError, table, try_block_on};
use crate::admin::api::denials::DenialsView;

/// List the denials of the last 15 minutes, with their keys, limits, times and counts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if there are denials, 1 if there are none, 2 if the request fails. Times are UTC.

Examples:
  # Show the denials of user ann at 12:03
  tollgate denials --key user=ann --at 12:03
  # Show the denials of one rule in the last 2 minutes
  tollgate denials --rule 'plan=free > user' --last 2m
  # Print all denials as JSON
  tollgate denials --json")]
pub struct DenialsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Show only this domain.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Show only the rule with this path, as printed by `tollgate explain`.
    #[arg(long, value_name = "PATH")]
    rule: Option<String>,
    /// Show only keys that contain this text, or whose recorded entries (`record`) do.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Show only this minute: 12:03, or an instant as RFC 3339.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["since", "until", "last"], value_parser = instant)]
    at: Option<Timestamp>,
    /// Show denials from this time on: 12:03, 12:03:07, or RFC 3339.
    #[arg(long, value_name = "TIME", conflicts_with = "last", value_parser = instant)]
    since: Option<Timestamp>,
    /// Show denials up to this time.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Timestamp>,
    /// Show denials of the last DURATION, such as 2m; at most 15m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    last: Option<SignedDuration>,
    /// Maximum number of keys to show.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print the response as JSON.
    #[arg(long)]
    json: bool,
}

impl DenialsArgs {
    /// Queries the service and prints the denials.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let view = try_block_on(self.fetch())?;
        print(if self.json { table::json(&view) } else { text::of(&view, &self.server) });
        Ok(if view.total > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn fetch(&self) -> Result<DenialsView, CommandError> {
        let args = SpanArgs { at: self.at, since: self.since, until: self.until, last: self.last };
        let (span, note) = args.span(Timestamp::now())?;
        if let Some(note) = note {
            print_stderr(format_args!("note: {note}"));
        }
        let since = span.since.map(|at| at.to_string());
        let until = span.until.map(|at| at.to_string());
        let limit = self.limit.to_string();
        let all = [
            ("domain", self.domain.as_deref()),
            ("rule", self.rule.as_deref()),
            ("key", self.key.as_deref()),
            ("since", since.as_deref()),
            ("until", until.as_deref()),
            ("limit", Some(limit.as_str())),
        ];
        let query: Vec<_> =
            all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let view: DenialsView = self.server.get("denials", &query).await?;
        // The service has no such domain or rule.
        if let Some(reason) = view.unknown {
            return Err(reason.into());
        }
        Ok(view)
    }
}
