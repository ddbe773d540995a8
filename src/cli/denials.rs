//! `tollgate denials`: who was denied in the last 15 minutes, by which limit, since when and how often.

use std::io::{self, Write as _};
use std::process::ExitCode;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::api::Server;
use super::counter::quoted;
use super::{block_on, table};
use crate::admin::api::denials::{DenialView, DenialsView};
use crate::descriptor::Keyed;
use crate::journal::key::read_text;

/// Say who was denied in the last 15 minutes, by which limit, since when and how often.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 somebody was, 1 nobody was, 2 no answer. Times are UTC.

Why was ann denied at 12:03? Whom has a rule denied in the last two minutes? All, as JSON:
  tollgate denials --key user=ann --at 12:03
  tollgate denials --rule 'plan=free > user' --last 2m
  tollgate denials --json")]
pub struct Denials {
    #[command(flatten)]
    server: Server,
    /// Of this domain alone.
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Of this rule alone, by its path as `tollgate explain` shows it.
    #[arg(long, value_name = "PATH")]
    rule: Option<String>,
    /// Of keys that have this in them.
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// In this minute: 12:03, or an instant as RFC 3339.
    #[arg(long, value_name = "TIME", conflicts_with_all = ["since", "until", "last"], value_parser = instant)]
    at: Option<Timestamp>,
    /// From this time on: 12:03, 12:03:07, or RFC 3339.
    #[arg(long, value_name = "TIME", conflicts_with = "last", value_parser = instant)]
    since: Option<Timestamp>,
    /// Up to this time.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Timestamp>,
    /// In the last so long, such as 2m.
    #[arg(long, value_name = "DURATION")]
    last: Option<SignedDuration>,
    /// Keys that are shown at most.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// Print the answer as it comes.
    #[arg(long)]
    json: bool,
}

impl Denials {
    /// Asks and prints.
    pub fn run(self) -> ExitCode {
        let told = block_on(self.ask()).map_err(|error| error.to_string()).and_then(|told| told);
        match told {
            Ok(told) => {
                let text = if self.json { table::json(&told) } else { self.text(&told) };
                // Nobody left to tell is no reason to fail.
                let _ = io::stdout().write_all(text.as_bytes());
                if told.total > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        }
    }

    async fn ask(&self) -> Result<DenialsView, String> {
        let (since, until) = self.span();
        let (since, until) = (since.map(|at| at.to_string()), until.map(|at| at.to_string()));
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
        self.server.get("denials", &query).await
    }

    fn span(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let minute = SignedDuration::from_micros(59_999_999);
        match (self.at, self.last) {
            (Some(at), _) => (Some(at), at.checked_add(minute).ok()),
            (None, Some(last)) => (Timestamp::now().checked_sub(last).ok(), self.until),
            (None, None) => (self.since, self.until),
        }
    }

    /// What to ask next about the only key that was denied.
    fn next(&self, only: &DenialView) -> String {
        let (domain, key) = (quoted(&only.domain), quoted(&only.key));
        let key =
            if is_hashed(&only.key) { "KEY=VALUE,...  (with its values: none is found by its hash)" } else { &key };
        let flags = self.server.flags();
        format!("who used it up, and how to let it through:\n  tollgate inspect{flags} {domain} {key}\n")
    }

    fn text(&self, told: &DenialsView) -> String {
        let mut text = match told.total {
            0 => format!("nobody was denied there; denials are known since {}\n", clock(&told.known_since)),
            _ => table::of(["first", "last", "denied", "domain", "rule", "key", ""], told.denials.iter().map(row)),
        };
        if let [only] = told.denials.as_slice() {
            text.push_str(&self.next(only));
        }
        let more = told.total.saturating_sub(told.denials.len());
        if more > 0 {
            text.push_str(&format!("and {more} keys more; see --limit, --key, --rule\n"));
        }
        text.push_str(&others(told));
        if told.dropped > 0 {
            let of = "denials more of keys that there was no room for";
            text.push_str(&format!("and {} {of}; see --denial-journal\n", told.dropped));
        }
        text
    }
}

/// Whether the values of a key are hashed.
fn is_hashed(key: &str) -> bool {
    read_text(key).is_ok_and(|read| read.entries().iter().any(|entry| Keyed::is_shown(entry.value)))
}

/// Whose denials these are, where there are other processes.
pub(super) fn others(told: &DenialsView) -> String {
    let mut text = String::new();
    if told.processes > 1 {
        text.push_str(&format!(
            "of {} processes on the same store; others are up to 5 seconds behind\n",
            told.processes
        ));
    }
    if let Some(missing) = &told.missing {
        text.push_str(&format!("some of other processes are missing: {missing}\n"));
    }
    text
}

fn row(one: &DenialView) -> [String; 7] {
    let mut notes = vec![];
    if one.missed_at_most > 0 {
        notes.push(format!("perhaps {} more", one.missed_at_most));
    }
    if one.passed > 0 {
        notes.push(format!("{} passed all the same", one.passed));
    }
    if one.presumed > 0 {
        notes.push(format!("{} since the store could not say", one.presumed));
    }
    if one.hits != one.count {
        notes.push(format!("{} hits wanted", one.hits));
    }
    notes.extend(one.retry_at.as_ref().map(|at| format!("room again at {}", clock(at))));
    if !one.recorded.is_empty() {
        notes.push(format!("lately by {}", one.recorded.join(" ")));
    }
    notes.push(format!("policies {}", one.version));
    let (first, last, denied) = (clock(&one.first), clock(&one.last), one.count.to_string());
    [first, last, denied, one.domain.clone(), one.rule.clone(), one.key.clone(), notes.join(", ")]
}

/// The time of day of an instant, to the second.
fn clock(text: &str) -> String {
    let at = text.parse::<Timestamp>().map(|at| at.strftime("%H:%M:%S").to_string());
    at.unwrap_or_else(|_| text.to_owned())
}

/// An instant, or a time of day: the last time that it was that.
fn instant(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let error = || format!("expected a time such as 12:03 or 2026-06-01T12:03:00Z, found `{text}`");
    let (time, now): (Time, _) = (text.parse().map_err(|_| error())?, Timestamp::now());
    let at = now.to_zoned(TimeZone::UTC).date().to_datetime(time).to_zoned(TimeZone::UTC).map_err(|_| error())?;
    let at = at.timestamp();
    if at <= now { Ok(at) } else { at.checked_sub(SignedDuration::from_hours(24)).map_err(|_| error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_is_the_last_time_that_it_was_that() {
        for time in ["00:00", "12:03", "23:59:59"] {
            let (at, now) = (instant(time).unwrap(), Timestamp::now());
            assert!(at <= now && now.duration_since(at) < SignedDuration::from_hours(24));
            assert!(at.to_string().contains(time));
        }
        assert!(instant("noon").unwrap_err().contains("found `noon`"));
        assert_eq!(instant("2026-06-01T12:03:00Z").unwrap().to_string(), "2026-06-01T12:03:00Z");
    }
}
