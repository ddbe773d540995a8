//! Shared parts of the subcommands about one counter: how to select it, and how to print its state.

use std::fmt::Display;
use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::api::ServerArgs;
use super::output::print;
use super::{CommandError, table, try_block_on};
use crate::admin::api::counter::Changed;
use crate::printable::escaped;
use crate::printable::shell_quoted;

/// Explains the number of remaining hits beside a grant.
const REMAINING_WITH_GRANT: &str = "note: remaining is the maximum for one request, which uses the limit or the grant, \
                                    not both; several requests can use both\n";

/// The counter to select, and the service to query.
#[derive(Debug, clap::Args)]
pub(super) struct CounterArgs {
    #[command(flatten)]
    pub(super) server: ServerArgs,
    /// Print the response as JSON.
    #[arg(long)]
    pub(super) json: bool,
    /// Domain of the counter.
    pub(super) domain: String,
    /// Descriptor of the counter, key=value,key=value, as in the output of `tollgate denials`.
    #[arg(value_name = "KEY=VALUE,...")]
    pub(super) descriptor: String,
}

/// A request for a change of one counter.
#[derive(Serialize)]
struct AmendArgs<'a, T> {
    domain: &'a str,
    descriptor: &'a str,
    #[serde(flatten)]
    fields: T,
}

impl CounterArgs {
    /// Requests a change and prints the result; the exit code is 0 or 2.
    pub(super) fn change(
        &self,
        path: &str,
        fields: impl Serialize,
    ) -> Result<ExitCode, CommandError> {
        let body = AmendArgs { domain: &self.domain, descriptor: &self.descriptor, fields };
        let changed: Changed = try_block_on(self.server.post(path, &body))?;
        print(if self.json { table::json(&changed) } else { text(&changed, self.server.url()) });
        Ok(ExitCode::SUCCESS)
    }

    /// Returns a command line of this program for the same counter, quoted for a shell.
    pub(super) fn command(&self, subcommand: &str) -> String {
        let Self { server, domain, descriptor, .. } = self;
        format!(
            "tollgate {subcommand}{} {} {}",
            server.flags(),
            shell_quoted(domain),
            shell_quoted(descriptor)
        )
    }
}

/// Formats a change of a counter by the service at `url`.
fn text(changed: &Changed, url: &str) -> String {
    let before = &changed.before;
    let after = &changed.after;
    let domain = escaped(&changed.domain);
    let rule = escaped(&changed.rule);
    let key = escaped(&changed.key);
    let rows = [("before", before), ("after", after)];
    let rows = rows.map(|(word, state)| {
        let used: Vec<_> = state.windows.iter().map(|window| window.used.to_string()).collect();
        let granted = state
            .grant
            .as_ref()
            .map(|grant| format!("{} until {}", grant.remaining, when(&grant.until, &state.at)));
        [
            word.to_owned(),
            used.join(" and "),
            granted.unwrap_or_else(|| "none".to_owned()),
            state.remaining.to_string(),
        ]
    });
    let table = table::of(["", "used", "granted", "remaining"], rows.into_iter());
    // A request is charged to the limit or to the grant, so they do not add up.
    let has_grant = before.grant.is_some() || after.grant.is_some();
    let limit_or_grant = if has_grant { REMAINING_WITH_GRANT } else { "" };
    let notes: String =
        changed.notes.iter().map(|note| format!("note: {}\n", escaped(note))).collect();
    let clock = if before.at > after.at {
        let ahead = length(&after.at, &before.at);
        format!("note: the counter's clock was {ahead} ahead of the store's, and is set to it\n")
    } else {
        String::new()
    };
    format!(
        "{key}, rule {rule} in {domain} at {url}\n{table}{limit_or_grant}{notes}{clock}note: {}\n",
        changed.elsewhere
    )
}

/// Formats an instant as `12:03:00 UTC`, with the date if it differs from that of `now`.
pub(super) fn when(text: &str, now: &str) -> String {
    let (Ok(at), Ok(now)) = (text.parse::<Timestamp>(), now.parse::<Timestamp>()) else {
        return text.to_owned();
    };
    date_and(at, at.strftime("%H:%M:%S UTC"), now)
}

/// Returns the time of an instant, after its date in UTC if that differs from the date of `now`.
pub(super) fn date_and(at: Timestamp, time: impl Display, now: Timestamp) -> String {
    let date = at.strftime("%Y-%m-%d").to_string();
    let is_today = date == now.strftime("%Y-%m-%d").to_string();
    if is_today { time.to_string() } else { format!("{date} {time}") }
}

/// Formats the time from one instant to another, rounded up to whole seconds.
pub(super) fn length(from: &str, to: &str) -> String {
    let (Ok(from), Ok(to)) = (from.parse::<Timestamp>(), to.parse::<Timestamp>()) else {
        return String::new();
    };
    let seconds = to.duration_since(from).as_millis_f64() / 1_000.0;
    let seconds = SignedDuration::try_from_secs_f64(seconds.ceil()).unwrap_or_default();
    format!("{seconds:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_another_day_have_a_date() {
        let now = "2026-06-01T12:03:00Z";
        assert_eq!(when("2026-06-01T12:04:00.000001Z", now), "12:04:00 UTC");
        assert_eq!(when("2026-06-02T00:00:00Z", now), "2026-06-02 00:00:00 UTC");
        assert_eq!(length(now, "2026-06-01T13:04:00.5Z"), "1h 1m 1s");
    }
}
