//! Coverage of worlds: events and pairs of overlapping events, by number of worlds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::run::Report;

/// Everything that happens in some world: kinds of faults, errors that servers reply with, parts of
/// scripts that ran, ends of calls.
pub const EVENTS: [&str; 80] = [
    "answer OK",
    "answer OVER_LIMIT",
    "answer canceled",
    "answer late",
    "answer lost",
    "answer no_room",
    "answer refused",
    "answer unavailable",
    "change amended",
    "change not amended",
    "exchange lost",
    "exchange repeated",
    "fault Amend",
    "fault BlockStream",
    "fault Busy",
    "fault Clock",
    "fault Crash",
    "fault CutAll",
    "fault CutOne",
    "fault CutStream",
    "fault EndHolder",
    "fault EndProxy",
    "fault Evict",
    "fault Flush",
    "fault Full",
    "fault Hang",
    "fault Lag",
    "fault Loading",
    "fault LoseStream",
    "fault MoveSlots",
    "fault Promote",
    "fault Reload",
    "fault Restart",
    "fault Silence",
    "fault Slow",
    "fault Stop",
    "fault StopHolder",
    "fault StopProxy",
    "hold committed",
    "hold committed less",
    "hold committed more",
    "hold reserved",
    "hold reserved again",
    "hold settled",
    "hold unknown",
    "loan NEAR_LIMIT",
    "loan STORE_FAILED",
    "loan denied",
    "loan lent",
    "loan not leasable",
    "loan used",
    "proxy denied",
    "proxy first",
    "proxy lent",
    "reply ASK",
    "reply BUSY",
    "reply LOADING",
    "reply MOVED",
    "reply NOSCRIPT",
    "reply OOM",
    "reply READONLY",
    "reply TRYAGAIN",
    "return ACCEPTED",
    "return FAILED",
    "return LATE",
    "return OTHER_COUNTER",
    "return REPEATED",
    "script amend",
    "script decide",
    "script decide concurrency",
    "script decide fixed_window",
    "script decide gcra",
    "script decide holds",
    "script decide marks",
    "script decide one_fixed_window",
    "script decide sliding_log",
    "script decide sliding_window",
    "stream ended",
    "stream lent",
    "stream opened",
];

/// Names of the files that a script is composed of.
const PARTS: [&str; 8] = [
    "concurrency",
    "fixed_window",
    "gcra",
    "holds",
    "marks",
    "one_fixed_window",
    "sliding_log",
    "sliding_window",
];

/// Counts of worlds.
#[derive(Debug, Default)]
pub struct Coverage {
    worlds: u64,
    /// Worlds in which an event happened, and in which both of a pair did.
    pairs: BTreeMap<(String, String), u64>,
}

impl Coverage {
    /// Adds a world.
    pub fn add(&mut self, report: &Report) {
        self.worlds += 1;
        let events = events_of(report);
        for (number, first) in events.iter().enumerate() {
            for second in events.iter().skip(number) {
                *self.pairs.entry((first.clone(), second.clone())).or_default() += 1;
            }
        }
    }

    /// Returns the number of worlds in which both of two events happened.
    fn met(&self, first: &str, second: &str) -> u64 {
        let (first, second) = if first <= second { (first, second) } else { (second, first) };
        self.pairs.get(&(first.to_owned(), second.to_owned())).copied().unwrap_or_default()
    }

    /// Returns the events that happened in no world.
    pub fn missing(&self) -> Vec<&'static str> {
        EVENTS.into_iter().filter(|event| self.met(event, event) == 0).collect()
    }

    /// Returns the pairs of a fault and an event that met in no world.
    fn pairs_missing(&self) -> Vec<String> {
        let faults = || EVENTS.into_iter().filter(|event| event.starts_with("fault"));
        let is_in_order = |fault: &str, event: &str| !event.starts_with("fault") || fault < event;
        let pairs = faults().flat_map(|fault| EVENTS.into_iter().map(move |event| (fault, event)));
        pairs
            .filter(|(fault, event)| is_in_order(fault, event) && self.met(fault, event) == 0)
            .map(|(fault, event)| format!("{fault} and {event}"))
            .collect()
    }
}

impl fmt::Display for Coverage {
    /// Formats a table of worlds: a row for each event, a column for each kind of fault.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<&str> =
            EVENTS.into_iter().filter(|event| event.starts_with("fault")).collect();
        write!(f, "{:<29}{:>7}", "worlds", "all")?;
        for fault in &faults {
            let name = fault.trim_start_matches("fault ");
            write!(f, "{:>8}", name.get(..7).unwrap_or(name))?;
        }
        writeln!(f)?;
        for event in EVENTS {
            write!(f, "{event:<29}{:>7}", self.met(event, event))?;
            for fault in &faults {
                write!(f, "{:>8}", self.met(fault, event))?;
            }
            writeln!(f)?;
        }
        let missing = self.pairs_missing();
        writeln!(
            f,
            "{} worlds; {} pairs of a fault and an event never met",
            self.worlds,
            missing.len()
        )?;
        missing.iter().try_for_each(|pair| writeln!(f, "  {pair}"))
    }
}

fn events_of(report: &Report) -> BTreeSet<String> {
    let endings = report.chronicle.calls.iter().map(|record| &record.ending);
    let answers = endings.clone().map(|ending| format!("answer {}", ending.name()));
    let holds = endings.flat_map(|ending| ending.effects()).map(|effect| format!("hold {effect}"));
    report.counts.keys().cloned().chain(answers).chain(holds).collect()
}

/// Returns the names of the parts of a script, which its first line lists.
pub fn parts_of(text: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(text);
    let first = text.lines().next().and_then(|line| line.strip_prefix("-- tollgate "));
    let (kind, names) = first.and_then(|line| line.split_once(": ")).unwrap_or_default();
    let kind = if kind == "amend" { "script amend" } else { "script decide" };
    let names: Vec<&str> = names.split(", ").collect();
    let parts = PARTS.into_iter().filter(|name| names.contains(name));
    std::iter::once(kind.to_owned()).chain(parts.map(|name| format!("{kind} {name}"))).collect()
}
