//! `tollgate inspect`: how a counter stands, who used it up, when it denied, and how to let somebody through.

use std::io::{self, Write as _};
use std::process::ExitCode;

use super::counter::{Which, length, when};
use super::{block_on, table};
use crate::admin::api::ask::TallyView;
use crate::admin::api::counter::CounterView;

/// Those who used most that are shown.
const SHOWN: usize = 10;

/// Say how a counter stands, who used it up, when it denied, and how to let somebody through.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code: 0 it has room, 1 it has none, 2 no answer. Times are UTC.

Example:
  tollgate inspect gateway user=ann")]
pub struct Inspect {
    #[command(flatten)]
    which: Which,
}

impl Inspect {
    /// Asks and prints.
    pub fn run(self) -> ExitCode {
        let Which { server, domain, descriptor, .. } = &self.which;
        let query = [("domain", domain.as_str()), ("descriptor", descriptor.as_str())];
        let told = block_on(server.get::<CounterView>("counter", &query)).map_err(|error| error.to_string());
        match told.and_then(|told| told) {
            Ok(told) => {
                let text = if self.which.json { table::json(&told) } else { self.text(&told) };
                // Nobody left to tell is no reason to fail.
                let _ = io::stdout().write_all(text.as_bytes());
                if told.state.remaining > 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        }
    }

    fn text(&self, told: &CounterView) -> String {
        let mut text: String = facts(told).iter().map(|(word, fact)| format!("{word:<9} {fact}\n")).collect();
        let tell = |command: &str, what: &str| format!("  {}\n      {what}\n", self.which.command(command));
        text.push('\n');
        if told.state.remaining > 0 {
            text.push_str("it has room. To change that nevertheless:\n");
        } else {
            text.push_str("To let it through:\n");
        }
        text.push_str(&tell("grant 10 --for 10m", "10 hits beside the limit, for ten minutes"));
        text.push_str(&tell("reset", "as if never used: nothing used, owed or granted"));
        text
    }
}

/// What there is to say, a line each.
fn facts(told: &CounterView) -> Vec<(&'static str, String)> {
    let (state, now) = (&told.state, &told.state.at);
    let watches = if told.is_shadow { ", and only watches" } else { "" };
    let mut facts = vec![
        ("counter", format!("{} in {}", table::clean(&told.key), told.domain)),
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
        facts.push(("granted", format!("{} hits more until {}", grant.remaining, when(&grant.until, now))));
    }
    match &told.denials {
        None if told.denials_missing.is_some() => facts.push(("denied", "not that it were known".to_owned())),
        None => facts.push(("denied", "not in the last 15 minutes, as far as the journal goes".to_owned())),
        Some(denials) => {
            let (first, last) = (when(&denials.first, now), when(&denials.last, now));
            let lately = match denials.recorded.as_slice() {
                [] => String::new(),
                recorded => format!(", lately of {}", table::clean(&recorded.join(" "))),
            };
            let times = match denials.count {
                1 => format!("once at {last}"),
                count => format!("{count} times from {first} to {last}"),
            };
            facts.push(("denied", format!("{times}, {} hits{lately}", denials.hits)));
        }
    }
    let missing = |why: &String| ("denied", format!("some may be missing: {}", table::clean(why)));
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
        (1, _) => "room for 1 hit".to_owned(),
        (hits, _) => format!("room for {hits} hits"),
    }
}

fn user(tally: &TallyView) -> String {
    let who = tally.who.as_deref().map_or_else(|| "all others".to_owned(), table::clean);
    format!("{who}: {} charged, {} denied", tally.charged, tally.denied)
}
