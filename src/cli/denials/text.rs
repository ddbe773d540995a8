//! Denials as text, with the command to run next.

use jiff::Timestamp;

use crate::admin::api::denials::{DenialView, DenialsView};
use crate::cli::api::ServerArgs;
use crate::cli::table;
use crate::descriptor::Keyed;
use crate::printable::shell_quoted;
use crate::printable::{counted, escaped};
use crate::telemetry::journal::key::read_text;

/// Formats a whole response of a service.
pub(super) fn of(view: &DenialsView, server: &ServerArgs) -> String {
    // First, since it qualifies all that follows.
    let mut text = missing_notice(view);
    let headings = ["first UTC", "last UTC", "denied", "domain", "rule", "key", "limit", ""];
    text.push_str(&match view.total {
        0 => no_denials(view, server.url()),
        _ => table::of(headings, view.denials.iter().map(row)),
    });
    text.push_str(&next(&view.denials, &server.flags()));
    let more = view.total.saturating_sub(view.denials.len());
    if more > 0 {
        text.push_str(&format!(
            "and {}; filter with --key or --rule, or raise --limit\n",
            counted(more, "more key")
        ));
    }
    text.push_str(&replicas_notice(view));
    if view.dropped > 0 {
        let denials = counted(view.dropped, "more denial");
        text.push_str(&format!(
            "and {denials} of keys that did not fit in the journal; raise --denial-journal\n"
        ));
    }
    text
}

/// Returns a notice if denials of other replicas are missing.
pub(in crate::cli) fn missing_notice(view: &DenialsView) -> String {
    match &view.missing {
        Some(reason) => format!("some denials of other replicas are missing: {reason}\n"),
        None => String::new(),
    }
}

/// Returns a notice about the number of replicas if there are several.
pub(in crate::cli) fn replicas_notice(view: &DenialsView) -> String {
    match view.processes {
        0 | 1 => String::new(),
        processes => {
            format!("from {processes} replicas; denials of other replicas appear within 5s\n")
        }
    }
}

fn no_denials(view: &DenialsView, url: &str) -> String {
    let since = clock(&view.known_since);
    let others = match &view.others_since {
        _ if !view.is_shared => " only".to_owned(),
        Some(others) => format!(", and by other replicas since {} UTC", clock(others)),
        None if view.missing.is_some() => String::new(),
        None => "; no other replica has reported denials for this time".to_owned(),
    };
    let delay = if view.is_shared { "; those of other replicas appear within 5s" } else { "" };
    format!(
        "no denials found at {url}; recorded since {since} UTC by this replica{others}{delay}\n"
    )
}

/// Returns the next command for the first denial that an operator can resolve, or why there is
/// none.
fn next(shown: &[DenialView], flags: &str) -> String {
    let Some(first) = shown.iter().find(|one| !one.is_ban && !one.is_watching).or(shown.first())
    else {
        return String::new();
    };
    let rule = escaped(&first.rule);
    if first.is_watching {
        return format!("rule `{rule}` is in shadow mode: no request is denied\n");
    }
    if first.is_ban {
        return format!(
            "rule `{rule}` is a ban and has no counter: only a policy change can admit these requests\n"
        );
    }
    let domain = shell_quoted(&first.domain);
    let key = shell_quoted(&first.key);
    let key = if is_hashed(&first.key) {
        "KEY=VALUE,...  (with the original values, not their hashes)"
    } else {
        &key
    };
    let counter = if shown.len() > 1 { "one of these counters" } else { "the counter" };
    format!(
        "to see who used up {counter}, and how to admit requests:\n  tollgate inspect{flags} {domain} {key}\n"
    )
}

/// Returns `true` if the values of a key are hashed.
fn is_hashed(key: &str) -> bool {
    read_text(key).is_ok_and(|read| read.entries().iter().any(|entry| Keyed::is_shown(entry.value)))
}

fn row(one: &DenialView) -> [String; 8] {
    let mut notes = vec![];
    if one.missed_at_most > 0 {
        notes.push(format!("up to {} more", one.missed_at_most));
    }
    if one.passed > 0 {
        notes.push(format!("{} admitted anyway", one.passed));
    }
    if one.presumed > 0 {
        notes.push(format!("{} because the store was unavailable", one.presumed));
    }
    if one.hits != one.count {
        notes.push(format!("{} requested", counted(one.hits, "hit")));
    }
    if one.never_fits() {
        notes.push(format!("a request of {} hits can never be admitted", one.last_hits));
    }
    notes.extend(one.retry_at.as_ref().map(|at| format!("retry at {}", clock(at))));
    if !one.recorded.is_empty() {
        notes.push(format!("recent callers: {}", one.recorded.join(" ")));
    }
    notes.push(format!("policies {}", one.version));
    let first = clock(&one.first);
    let last = clock(&one.last);
    let denied = one.count.to_string();
    let limit = one
        .limit
        .as_deref()
        .unwrap_or("-")
        .replace(" hits in ", " in ")
        .replace(" hit in ", " in ");
    [
        first,
        last,
        denied,
        one.domain.clone(),
        one.rule.clone(),
        one.key.clone(),
        limit,
        notes.join(", "),
    ]
}

/// Formats the time of day of an instant, to the second.
fn clock(text: &str) -> String {
    let at = text.parse::<Timestamp>().map(|at| at.strftime("%H:%M:%S").to_string());
    at.unwrap_or_else(|_| text.to_owned())
}
