//! `tollgate denials`: lists the denials of the last 15 minutes, with their keys, limits, times and
//! counts.

mod span;
mod text;

use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};

use self::span::{SpanArgs, instant};
pub(super) use self::text::{missing, others};
use super::api::ServerArgs;
use super::said::{no_answer, remark, say};
use super::{block_on, table};
use crate::admin::api::denials::DenialsView;

/// List who was denied in the last 15 minutes, by which limit, since when and how often.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 somebody was, 1 nobody was, 2 no answer. Times are UTC.

Why was ann denied at 12:03? Whom has a rule denied in the last two minutes? All, as JSON:
  tollgate denials --key user=ann --at 12:03
  tollgate denials --rule 'plan=free > user' --last 2m
  tollgate denials --json")]
pub struct DenialsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Show only this domain.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Show only the rule with this path, as `tollgate explain` prints it.
    #[arg(long, value_name = "PATH")]
    rule: Option<String>,
    /// Show only keys that contain this text, or for which `record` kept an entry that does.
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
    #[arg(long, value_name = "DURATION")]
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
    pub fn run(self) -> ExitCode {
        let told = block_on(self.ask()).map_err(|error| error.to_string()).and_then(|told| told);
        match told {
            Ok(told) => {
                let text = if self.json { table::json(&told) } else { text::of(&told, &self.server.flags()) };
                say(text);
                if told.total > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => no_answer(error),
        }
    }

    async fn ask(&self) -> Result<DenialsView, String> {
        let asked = SpanArgs { at: self.at, since: self.since, until: self.until, last: self.last };
        let (span, note) = asked.span(Timestamp::now())?;
        if let Some(note) = note {
            remark(format_args!("note: {note}"));
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
        let query: Vec<_> = all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let told: DenialsView = self.server.get("denials", &query).await?;
        told.unknown.clone().map_or(Ok(told), Err)
    }
}
