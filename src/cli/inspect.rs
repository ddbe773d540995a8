//! `tollgate inspect`: shows the state of a counter, its users and denials, and how to admit a
//! caller.

use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};

use super::counter::{CounterArgs, length, when};
use super::said::{no_answer, say};
use super::{block_on, table};
use crate::admin::api::ask::TallyView;
use crate::admin::api::counter::{CounterView, StateView};
use crate::admin::api::denials::DenialView;
use crate::printable::escaped;

/// Maximum number of users to show, those with the most hits first.
const SHOWN: usize = 10;
/// Hits of the proposed grant, unless a request needs more.
const USUAL: u64 = 10;
const TEN_MINUTES: SignedDuration = SignedDuration::from_mins(10);

/// Show the state of a counter, who used it up, when it denied, and how to admit a caller.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 it has room, 1 it has none, 2 no answer. Times are UTC.

Example:
  tollgate inspect gateway user=ann")]
pub struct Inspect {
    #[command(flatten)]
    which: CounterArgs,
}

impl Inspect {
    /// Queries the service and prints the state.
    pub fn run(self) -> ExitCode {
        let CounterArgs { server, domain, descriptor, .. } = &self.which;
        let query = [("domain", domain.as_str()), ("descriptor", descriptor.as_str())];
        let told = block_on(server.get::<CounterView>("counter", &query)).map_err(|error| error.to_string());
        match told.and_then(|told| told) {
            Ok(told) => {
                let text = if self.which.json { table::json(&told) } else { self.text(&told) };
                say(text);
                if told.state.remaining > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => no_answer(error),
        }
    }

    fn text(&self, told: &CounterView) -> String {
        let mut text: String =
            facts(told).iter().map(|(word, fact)| format!("{word:<9} {}\n", escaped(fact))).collect();
        let tell = |command: &str, what: &str| format!("  {}\n      {what}\n", self.which.command(command));
        let wanted = told.denials.as_ref().map_or(1, |denials| denials.last_hits.max(1));
        text.push('\n');
        if told.denials.as_ref().is_some_and(DenialView::never_fits) {
            text.push_str(&format!(
                "{wanted} at once never fit in {}: ask for fewer, or change the limit.\n",
                told.limit
            ));
        }
        text.push_str(&match told.state.remaining {
            _ if told.is_shadow => "it only watches: nobody is denied for it. To change what it counts:\n".to_owned(),
            room if room >= wanted => "it has room. To change that nevertheless:\n".to_owned(),
            _ if wanted == 1 => "To let it through:\n".to_owned(),
            _ => format!("To let {wanted} hits at once through, as were wanted last:\n"),
        });
        let (grant, what) = grant(wanted, &told.state);
        text.push_str(&tell(&grant, &what));
        text.push_str(&tell("reset", "as if never used: nothing used, owed or granted"));
        text
    }
}

/// Returns the command for a grant of enough hits, and its effect. The grant replaces a live one,
/// so it includes the remaining hits of that one and ends no earlier.
fn grant(wanted: u64, state: &StateView) -> (String, String) {
    let hits = wanted.max(USUAL);
    let Some(live) = &state.grant else {
        return (format!("grant {hits} --for 10m"), format!("{hits} hits beside the limit, for ten minutes"));
    };
    let all = hits.saturating_add(live.remaining);
    let left = live.remaining;
    let end = when(&live.until, &state.at);
    let at_ten = state.at.parse::<Timestamp>().ok().and_then(|at| at.checked_add(TEN_MINUTES).ok());
    let is_later = at_ten.zip(live.until.parse::<Timestamp>().ok()).is_some_and(|(ten, until)| until > ten);
    if is_later {
        (
            format!("grant {all} --until {}", live.until),
            format!("{hits} hits more than the {left} that are left of a grant, until {end} as these"),
        )
    } else {
        (
            format!("grant {all} --for 10m"),
            format!("{hits} hits more than the {left} that are left of a grant, for ten minutes from now"),
        )
    }
}

/// Returns the facts about a counter, one per line.
fn facts(told: &CounterView) -> Vec<(&'static str, String)> {
    let state = &told.state;
    let now = &told.state.at;
    let watches = if told.is_shadow { ", and only watches" } else { "" };
    let mut facts = vec![
        ("counter", format!("{} in {}", told.key, told.domain)),
        ("rule", format!("{}{watches}", told.rule)),
        ("limit", format!("{}, {}", told.limit, told.algorithm)),
        ("now", standing(told)),
    ];
    for window in &state.windows {
        let reset =
            if window.used == 0 { String::new() } else { format!(", as new at {}", when(&window.reset_at, now)) };
        facts.push(("used", format!("{} of {}; {} left{reset}", window.used, window.limit, window.remaining)));
    }
    if let Some(grant) = &state.grant {
        facts.push((
            "granted",
            format!("{} more until {}", table::counted(grant.remaining, "hit"), when(&grant.until, now)),
        ));
    }
    match &told.denials {
        None if told.denials_missing.is_some() => facts.push(("denied", "not that it were known".to_owned())),
        None => facts.push(("denied", "not in the last 15 minutes, as far as the journal goes".to_owned())),
        Some(denials) => {
            let first = when(&denials.first, now);
            let last = when(&denials.last, now);
            let lately = match denials.recorded.as_slice() {
                [] => String::new(),
                recorded => format!(", lately: {}", recorded.join(" ")),
            };
            let times = match denials.count {
                1 => format!("once at {last}"),
                count => format!("{count} times from {first} to {last}"),
            };
            facts.push(("denied", format!("{times}, {}{lately}", table::counted(denials.hits, "hit"))));
        }
    }
    let missing = |why: &String| ("denied", format!("some may be missing: {why}"));
    facts.extend(told.denials_missing.iter().map(missing));
    facts.extend(told.who_unknown.clone().map(|why| ("used by", why)));
    facts.extend(told.who.iter().take(SHOWN).map(|tally| ("used by", user(tally))));
    let more = told.who.len().saturating_sub(SHOWN);
    if more > 0 {
        facts.push(("used by", format!("{more} more; --json has all")));
    }
    facts
}

fn standing(told: &CounterView) -> String {
    let state = &told.state;
    match (state.remaining, &state.retry_at) {
        (0, Some(retry)) => {
            format!("no room; for one hit at {}, in {}", when(retry, &state.at), length(&state.at, retry))
        }
        (0, None) => "no room".to_owned(),
        (hits, _) => format!("room for {}", table::counted(hits, "hit")),
    }
}

fn user(tally: &TallyView) -> String {
    let who = tally.who.as_deref().unwrap_or("all others");
    format!("{who}: {} charged, {} denied", tally.charged, tally.denied)
}
