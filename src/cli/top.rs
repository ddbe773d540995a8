//! `tollgate top`: shows live request rates per rule, and the keys that are denied most.

use std::io::{self, IsTerminal as _, Write as _};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::api::ServerArgs;
use super::counter::when;
use super::denials::{missing_notice, replicas_notice};
use super::duration::duration;
use super::{CommandError, table, try_block_on};
use crate::admin::api::denials::{DenialView, DenialsView};
use crate::admin::api::rules::{RateView, RuleList, RuleView};
use crate::admin::api::store::ProcessStatus;
use crate::printable::{counted, escaped_json, escaped_lines};

/// Escape sequence that clears a terminal and moves the cursor to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J";
/// Shortest time between two refreshes.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// A rate of 0.
const NO_RATE: &str = "-";
/// Columns that are left out if no rule has a value: those of rare cases.
const OPTIONAL_COLUMNS: Range<usize> = 5..9;

/// Show live request rates per rule, and the keys that are denied most.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Columns of near, shadow, failed and unchecked requests are left out if they have no value.

Exit codes: 0 after --once or --json, 2 if a request fails.

Examples:
  # Watch the local service
  tollgate top
  # Watch one domain, rules with the most admitted requests first
  tollgate top --domain gateway --order allowed
  # Write a line of JSON every 10 s
  tollgate top --json --every 10s
  # Print once, from a remote service
  tollgate top --once --admin https://tollgate.example:6070 --token-file token")]
pub struct TopArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Show only this domain.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Order of the rules: most denied first, most allowed first, or the order of the policies.
    #[arg(long, value_name = "ORDER", default_value = "denied", value_parser = ["denied", "allowed", "policy"])]
    order: String,
    /// Maximum number of rules, and of keys, to show.
    #[arg(long, value_name = "N", default_value_t = 15)]
    lines: usize,
    /// Show the keys that were denied in the last N minutes.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=15))]
    minutes: u64,
    /// Refresh interval. Default: 1s.
    #[arg(long, value_name = "DURATION", conflicts_with = "once", value_parser = duration)]
    every: Option<jiff::SignedDuration>,
    /// Print once and exit.
    #[arg(long)]
    once: bool,
    /// Print the data as JSON, once; with --every a line each time.
    #[arg(long)]
    json: bool,
}

/// The data of one refresh.
#[derive(Serialize)]
struct TopData {
    /// Time of the refresh, RFC 3339.
    at: String,
    status: ProcessStatus,
    rules: RuleList,
    top: DenialsView,
}

impl TopArgs {
    /// Queries and prints until interrupted. Exits with 2 if the service does not respond.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        try_block_on(self.show())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn show(&self) -> Result<(), CommandError> {
        let is_terminal = io::stdout().is_terminal();
        let every = self.every.and_then(|every| Duration::try_from(every).ok());
        let every = every.unwrap_or(Duration::from_secs(1)).max(MIN_INTERVAL);
        let is_once = self.once || (self.json && self.every.is_none());
        loop {
            let data = self.fetch().await?;
            let text = match (self.json, is_once) {
                (true, true) => table::json(&data),
                (true, false) => format!("{}\n", escaped_json(&serde_json::to_string(&data)?)),
                (false, _) => escaped_lines(&self.text(&data)).into_owned(),
            };
            let clear = if is_terminal && !is_once && !self.json { CLEAR } else { "" };
            let written = io::stdout().write_all(format!("{clear}{text}").as_bytes());
            // A closed standard output is no reason to fail.
            if is_once || written.is_err() {
                return Ok(());
            }
            tokio::time::sleep(every).await;
        }
    }

    /// Returns the queries for the rules, and for the denied keys.
    fn queries(&self) -> [Vec<(&'static str, String)>; 2] {
        let with_own = |name, value| {
            let domain = self.domain.clone().map(|domain| ("domain", domain));
            let own = [(name, value), ("limit", self.lines.to_string())];
            own.into_iter().chain(domain).collect()
        };
        [with_own("order", self.order.clone()), with_own("minutes", self.minutes.to_string())]
    }

    async fn fetch(&self) -> Result<TopData, CommandError> {
        let [rules, top] = &self.queries();
        let [rules, top] = [rules, top].map(|query| {
            query.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>()
        });
        let status: ProcessStatus = self.server.get("status", &[]).await?;
        let rules = self.server.get("rules", &rules).await?;
        let top = if status.journal.is_on {
            self.server.get("top", &top).await?
        } else {
            DenialsView::default()
        };
        Ok(TopData { at: Timestamp::now().to_string(), status, rules, top })
    }

    fn text(&self, data: &TopData) -> String {
        let TopData { at, status, rules, top } = data;
        let now = when(at, at);
        let ready = if status.is_ready { "ready" } else { "NOT READY" };
        let mut text = format!(
            "{}: tollgate {}, {ready}, policies {}, since {}, at {now}\n",
            status.instance,
            status.program,
            rules.version,
            when(&status.begun_at, at),
        );
        status.degraded.iter().for_each(|reason| text.push_str(&format!("warning: {reason}\n")));
        let headings = [
            "domain",
            "rule",
            "limit",
            "allowed/s",
            "denied/s",
            "near/s",
            "shadow/s",
            "failed/s",
            "unchecked/s",
            "allowed/s (1m)",
            "denied/s (1m)",
        ];
        let rows: Vec<_> = rules.rules.iter().map(rule_row).collect();
        let rules_table = table::without_empty(headings, rows, &OPTIONAL_COLUMNS, NO_RATE);
        text.push_str(&format!("\n{rules_table}"));
        if rules.replicas > 1 {
            let replicas = counted(rules.replicas, "replica");
            text.push_str(&format!(
                "1m columns: all {replicas}, up to 5s late; other columns: this replica\n"
            ));
        }
        let more = rules.total.saturating_sub(rules.rules.len());
        if more > 0 {
            text.push_str(&format!("and {}\n", counted(more, "more rule")));
        }
        for rule in &rules.rules {
            if let Some(estimate) = rule.estimate.as_ref().filter(|of| of.advice.is_some()) {
                let RuleView { domain, rule, .. } = rule;
                text.push_str(&format!("estimate of {rule} in {domain}: {}\n", estimate.text));
            }
        }
        text.push_str(&if status.journal.is_on {
            format!("\nmost denied keys of the last {}\n", counted(self.minutes, "minute"))
        } else {
            "\ndenials are not recorded: --denial-journal is off\n".to_owned()
        });
        text.push_str(&missing_notice(top));
        text.push_str(&replicas_notice(top));
        if !top.denials.is_empty() {
            text.push_str(&table::of(
                ["denied", "domain", "rule", "key"],
                top.denials.iter().map(key_row),
            ));
        }
        text
    }
}

fn rule_row(rule: &RuleView) -> [String; 11] {
    let RateView { allowed, denied, near, shadow_denied, failed, unchecked } = rule.rates.second;
    let minute = rule.rates.replicas.unwrap_or(rule.rates.minute);
    let seconds = [allowed, denied, near, shadow_denied, failed, unchecked].map(rate);
    let minutes = [minute.allowed, minute.denied].map(rate);
    let limit = rule.limit.clone().unwrap_or_else(|| "unlimited".to_owned());
    let domain = rule.domain.clone();
    let path = rule.rule.clone();
    let [allowed, denied, near, shadow, failed, unchecked] = seconds;
    let [allowed_1m, denied_1m] = minutes;
    [domain, path, limit, allowed, denied, near, shadow, failed, unchecked, allowed_1m, denied_1m]
}

fn key_row(one: &DenialView) -> [String; 4] {
    let missed =
        if one.missed_at_most > 0 { format!(" (+{})", one.missed_at_most) } else { String::new() };
    [format!("{}{missed}", one.count), one.domain.clone(), one.rule.clone(), one.key.clone()]
}

fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => NO_RATE.to_owned(),
        per_second if per_second < 10.0 => format!("{per_second:.2}"),
        per_second => format!("{per_second:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::{Cli, Command};

    #[test]
    fn the_queries_have_the_values_of_the_flags() {
        let line = "tollgate top --order allowed --minutes 7 --lines 3 --domain a";
        let Some(Command::Top(top)) = Cli::parse_from(line.split(' ')).command else { panic!() };
        let queries = top.queries().map(|query| {
            let query: Vec<_> =
                query.iter().map(|(name, value)| format!("{name}={value}")).collect();
            query.join("&")
        });
        assert_eq!(queries, ["order=allowed&limit=3&domain=a", "minutes=7&limit=3&domain=a"]);
    }
}
