//! Denials as text, with the command to run next.

use jiff::Timestamp;

use crate::admin::api::denials::{DenialView, DenialsView};
use crate::cli::counter::quoted;
use crate::cli::table;
use crate::descriptor::Keyed;
use crate::journal::key::read_text;
use crate::printable::escaped;

/// Formats a whole response; `flags` are those that call the same service.
pub(super) fn of(told: &DenialsView, flags: &str) -> String {
    // First, as the rest may be incomplete.
    let mut text = missing(told);
    let headings = ["first UTC", "last UTC", "denied", "domain", "rule", "key", "limit", ""];
    text.push_str(&match told.total {
        0 => nobody(told),
        _ => table::of(headings, told.denials.iter().map(row)),
    });
    text.push_str(&next(&told.denials, flags));
    let more = told.total.saturating_sub(told.denials.len());
    if more > 0 {
        text.push_str(&format!("and {} more; see --limit, --key, --rule\n", table::counted(more, "key")));
    }
    text.push_str(&others(told));
    if told.dropped > 0 {
        let what = table::counted(told.dropped, "denial");
        text.push_str(&format!("and {what} more of keys that there was no room for; see --denial-journal\n"));
    }
    text
}

/// Returns a notice if denials of other replicas are missing.
pub(in crate::cli) fn missing(told: &DenialsView) -> String {
    told.missing.as_ref().map(|why| format!("some of other processes are missing: {why}\n")).unwrap_or_default()
}

/// Returns a notice about the number of replicas if there are several.
pub(in crate::cli) fn others(told: &DenialsView) -> String {
    match told.processes {
        0 | 1 => String::new(),
        processes => format!("of {processes} processes on the same store; others are up to 5 seconds behind\n"),
    }
}

fn nobody(told: &DenialsView) -> String {
    let since = clock(&told.known_since);
    let known = match &told.others_since {
        _ if !told.is_shared => format!("denials are known since {since} UTC, of this process alone"),
        Some(others) => {
            format!("this process knows since {since} UTC, others have told of theirs since {} UTC", clock(others))
        }
        None if told.missing.is_some() => format!("this process knows since {since} UTC"),
        None => format!("this process knows since {since} UTC, and no other on its store has told of any"),
    };
    format!("nobody was denied there; {known}\n")
}

/// Returns the next command for the first denial that an operator can resolve, or why there is
/// none.
fn next(shown: &[DenialView], flags: &str) -> String {
    let Some(first) = shown.iter().find(|one| !one.is_ban && !one.is_watching).or(shown.first()) else {
        return String::new();
    };
    let rule = escaped(&first.rule);
    if first.is_watching {
        return format!("nobody is denied for it: `{rule}` only watches\n");
    }
    if first.is_ban {
        return format!("only another policy lets anybody through: rule `{rule}` is a ban\n");
    }
    let domain = quoted(&first.domain);
    let key = quoted(&first.key);
    let key = if is_hashed(&first.key) { "KEY=VALUE,...  (with its values: none is found by its hash)" } else { &key };
    let it = if shown.len() > 1 { "such a counter" } else { "it" };
    format!("who used {it} up, and how to let it through:\n  tollgate inspect{flags} {domain} {key}\n")
}

/// Returns `true` if the values of a key are hashed.
fn is_hashed(key: &str) -> bool {
    read_text(key).is_ok_and(|read| read.entries().iter().any(|entry| Keyed::is_shown(entry.value)))
}

fn row(one: &DenialView) -> [String; 8] {
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
        notes.push(format!("{} wanted", table::counted(one.hits, "hit")));
    }
    if one.never_fits() {
        notes.push(format!("{} at once never fit", one.last_hits));
    }
    notes.extend(one.retry_at.as_ref().map(|at| format!("room again at {}", clock(at))));
    if !one.recorded.is_empty() {
        notes.push(format!("denied lately: {}", one.recorded.join(" ")));
    }
    notes.push(format!("policies {}", one.version));
    let first = clock(&one.first);
    let last = clock(&one.last);
    let denied = one.count.to_string();
    let limit = one.limit.as_deref().unwrap_or("-").replace(" hits in ", " in ").replace(" hit in ", " in ");
    [first, last, denied, one.domain.clone(), one.rule.clone(), one.key.clone(), limit, notes.join(", ")]
}

/// Formats the time of day of an instant, to the second.
fn clock(text: &str) -> String {
    let at = text.parse::<Timestamp>().map(|at| at.strftime("%H:%M:%S").to_string());
    at.unwrap_or_else(|_| text.to_owned())
}
