//! `tollgate inspect`: shows the state of a counter, its callers and denials, and how to admit a
//! caller.

mod stored_callers;

use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};

use self::stored_callers::StoredCallersArgs;
use super::counter::{CounterArgs, length, when};
use super::output::print;
use super::{CommandError, table, try_block_on};
use crate::admin::api::counter::CounterView;
use crate::admin::api::denials::DenialView;
use crate::admin::api::queries::TallyView;
use crate::admin::api::state::StateView;
use crate::printable::{counted, escaped};

/// Maximum number of callers to show, those with the most hits first.
const MAX_CALLERS: usize = 10;
/// Hits of the proposed grant, unless a request needs more or the limit is lower.
const DEFAULT_GRANT: u64 = 10;
const TEN_MINUTES: SignedDuration = SignedDuration::from_mins(10);

/// Show the state, callers and denials of a counter, and the commands to change it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if hits remain, 1 if none remain, 2 if the request fails; with --store 0 if callers are recorded, 1 if \
none are. Times are UTC.

Examples:
  # Show the counter of user ann
  tollgate inspect gateway user=ann
  # Read who used up a counter directly from Redis; its rate_limit needs `record`
  tollgate inspect --policy limits.yaml --store redis://redis:6379 gateway tenant=acme")]
pub struct Inspect {
    #[command(flatten)]
    which: CounterArgs,
    #[command(flatten)]
    stored: StoredCallersArgs,
}

impl Inspect {
    /// Queries the service and prints the state.
    pub(super) fn run(mut self) -> Result<ExitCode, CommandError> {
        if let Some(store) = self.stored.store.take() {
            return self.stored.run(&store, &self.which);
        }
        let CounterArgs { server, domain, descriptor, .. } = &self.which;
        let query = [("domain", domain.as_str()), ("descriptor", descriptor.as_str())];
        let view: CounterView = try_block_on(server.get("counter", &query))?;
        print(if self.which.json { table::json(&view) } else { self.text(&view) });
        Ok(ExitCode::from(u8::from(view.state.remaining == 0)))
    }

    fn text(&self, view: &CounterView) -> String {
        let rows = rows(view);
        let mut text: String =
            rows.iter().map(|(name, value)| format!("{name:<9} {}\n", escaped(value))).collect();
        let hits = view.denials.as_ref().map_or(1, |denials| denials.last_hits.max(1));
        text.push('\n');
        let exceeds_limit = view.state.capacity().is_some_and(|capacity| hits > capacity);
        // A grant of that many hits would be larger than the limit.
        if exceeds_limit || view.denials.as_ref().is_some_and(DenialView::never_fits) {
            text.push_str(&format!(
                "A request of {hits} hits, like the last denied one, can never be admitted by the limit ({}): send \
                 fewer hits or raise the limit.\n",
                view.limit
            ));
            return text;
        }
        text.push_str(&match view.state.remaining {
            _ if view.is_shadow => {
                "Shadow mode: no request is denied. To change the counter:\n".to_owned()
            }
            remaining if remaining >= hits => {
                "Hits remain. To change the counter anyway:\n".to_owned()
            }
            _ if hits == 1 => "To admit the next hit:\n".to_owned(),
            _ => format!("To admit a request of {hits} hits, like the last denied one:\n"),
        });
        let reset = ("reset".to_owned(), "clears used hits, debt and grants".to_owned());
        let end = ("grant 0".to_owned(), "ends the current grant".to_owned());
        let end = view.state.grant.is_some().then_some(end);
        for (command, effect) in [grant(hits, &view.state)].into_iter().chain(end).chain([reset]) {
            text.push_str(&format!("  {}\n      {effect}\n", self.which.command(&command)));
        }
        text
    }
}

/// Returns the command for a grant of enough hits, and its effect. The grant replaces the current
/// one, so it includes the remaining hits of that one and ends no earlier.
fn grant(hits: u64, state: &StateView) -> (String, String) {
    let hits = hits.max(state.capacity().map_or(1, |capacity| capacity.min(DEFAULT_GRANT)));
    let Some(current) = &state.grant else {
        return (
            format!("grant {hits} --for 10m"),
            format!("adds {hits} hits to the limit for 10 minutes"),
        );
    };
    let all = hits.saturating_add(current.remaining);
    let left = current.remaining;
    let end = when(&current.until, &state.at);
    let at_ten = state.at.parse::<Timestamp>().ok().and_then(|at| at.checked_add(TEN_MINUTES).ok());
    let is_later =
        at_ten.zip(current.until.parse::<Timestamp>().ok()).is_some_and(|(ten, until)| until > ten);
    if is_later {
        (
            format!("grant {all} --until {}", current.until),
            format!(
                "adds {hits} hits to the {left} remaining of the current grant, until {end} as before"
            ),
        )
    } else {
        (
            format!("grant {all} --for 10m"),
            format!(
                "adds {hits} hits to the {left} remaining of the current grant, for 10 minutes from now"
            ),
        )
    }
}

/// Returns the rows of the output, each with its name.
fn rows(view: &CounterView) -> Vec<(&'static str, String)> {
    let state = &view.state;
    let now = &view.state.at;
    let mode = if view.is_shadow { " (shadow mode)" } else { "" };
    let mut rows = vec![
        ("counter", format!("{} in {}", view.key, view.domain)),
        ("rule", format!("{}{mode}", view.rule)),
        ("limit", format!("{}, {}", view.limit, view.algorithm)),
        ("state", availability(view)),
    ];
    if let Some(error) = &view.write_error {
        rows.push(("writes", format!("{error}; on_store_error decides")));
    }
    for window in &state.windows {
        let reset = if window.used == 0 {
            String::new()
        } else {
            format!("; resets at {}", when(&window.reset_at, now))
        };
        rows.push((
            "used",
            format!("{} of {}; {} remaining{reset}", window.used, window.limit, window.remaining),
        ));
    }
    rows.extend(held(view));
    if let Some(grant) = &state.grant {
        let remaining = counted(grant.remaining, "hit");
        rows.push((
            "granted",
            format!("{remaining} remaining; expires at {}", when(&grant.until, now)),
        ));
    }
    match &view.denials {
        None if view.denials_missing.is_some() => {
            rows.push(("denials", "none recorded".to_owned()))
        }
        None => {
            let late =
                if view.is_shared { "; those of other replicas appear within 5s" } else { "" };
            rows.push(("denials", format!("none recorded in the last 15 minutes{late}")));
        }
        Some(denials) => {
            let first = when(&denials.first, now);
            let last = when(&denials.last, now);
            let callers = match denials.recorded.as_slice() {
                [] => String::new(),
                recorded => format!("; recent callers: {}", recorded.join(" ")),
            };
            let times = match denials.count {
                1 => format!("once at {last}"),
                count => format!("{count} times from {first} to {last}"),
            };
            rows.push(("denials", format!("{times}, {}{callers}", counted(denials.hits, "hit"))));
        }
    }
    if let Some(reason) = &view.denials_missing {
        rows.push(("denials", format!("some may be missing: {reason}")));
    }
    rows.extend(view.who_unknown.clone().map(|reason| ("used by", reason)));
    rows.extend(view.who.iter().take(MAX_CALLERS).map(|tally| ("used by", caller(tally))));
    let more = view.who.len().saturating_sub(MAX_CALLERS);
    if more > 0 {
        rows.push(("used by", format!("{more} more; --json prints all")));
    }
    rows
}

/// Returns the rows of open holds.
fn held(view: &CounterView) -> Vec<(&'static str, String)> {
    let unknown = view.held_unknown.iter().map(|reason| ("held", reason.clone()));
    let mut rows: Vec<_> = unknown.collect();
    let Some(held) = &view.held else { return rows };
    let now = &view.state.at;
    let all = counted(held.hits, "hit");
    let holds = counted(held.count, "hold");
    rows.push((
        "held",
        match (held.count, held.unread) {
            (0, 0) => "none".to_owned(),
            (_, 0) => format!("{all} in {holds}"),
            (_, unread) => {
                let ids = counted(unread, "more ID");
                format!("{all} in {holds} of a sample; {ids} not read")
            }
        },
    ));
    for hold in held.holds.iter().take(MAX_CALLERS) {
        let id = hold.id.as_deref().unwrap_or("(no ID)");
        let hits = counted(hold.hits, "hit");
        let since = length(&hold.since, now);
        let until = when(&hold.until, now);
        rows.push(("held by", format!("{id}: {hits} for {since}; ends at {until}")));
    }
    let more = held.count.saturating_sub(MAX_CALLERS);
    if more > 0 {
        rows.push(("held by", format!("{more} more; --json prints up to 100")));
    }
    rows
}

fn availability(view: &CounterView) -> String {
    let state = &view.state;
    match (state.remaining, &state.retry_at) {
        (0, Some(retry)) => {
            format!(
                "no hits remaining; retry at {}, in {}",
                when(retry, &state.at),
                length(&state.at, retry)
            )
        }
        (0, None) => "no hits remaining".to_owned(),
        (hits, _) => format!("{} remaining", counted(hits, "hit")),
    }
}

fn caller(tally: &TallyView) -> String {
    let who = tally.who.as_deref().unwrap_or("other callers");
    format!("{who}: {} charged, {} denied", tally.charged, tally.denied)
}
