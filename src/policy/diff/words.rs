//! Text form of differences.

use super::{Change, ChangeKind, CounterEffect, Detail};

/// Returns the differences, a few lines each, and their number. Those that do not fit in
/// `max_bytes` are only counted.
pub fn text_of(changes: &[Change], max_bytes: usize) -> String {
    if changes.is_empty() {
        return "the same: no limit differs, and all counters go on".to_owned();
    }
    let mut text = String::new();
    for (number, change) in changes.iter().enumerate() {
        let told = told(change);
        if text.len().saturating_add(told.len()) >= max_bytes {
            text.push_str(&format!("and {} more\n", changes.len().saturating_sub(number)));
            break;
        }
        text.push_str(&told);
        text.push('\n');
    }
    text + &sum(changes)
}

fn sum(changes: &[Change]) -> String {
    let of = |is_it: fn(&ChangeKind) -> bool| changes.iter().filter(|change| is_it(&change.kind)).count();
    let counts = [
        (of(|kind| *kind == ChangeKind::Added), "added"),
        (of(|kind| *kind == ChangeKind::Removed), "removed"),
        (of(|kind| matches!(kind, ChangeKind::Moved { .. })), "moved"),
        (of(|kind| *kind == ChangeKind::Changed), "changed"),
    ];
    let counts: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let anew = changes
        .iter()
        .filter(|change| change.counters == CounterEffect::Anew && change.kind != ChangeKind::Added)
        .count();
    format!("{}; counters that were there start anew in {anew}", counts.join(", "))
}

/// Returns one difference, in a few lines.
fn told(change: &Change) -> String {
    let (sign, verb) = match &change.kind {
        ChangeKind::Added => ("+", "is new".to_owned()),
        ChangeKind::Removed => ("-", "is gone".to_owned()),
        ChangeKind::Moved { from } => (">", format!("was at `{from}`")),
        ChangeKind::Changed => ("~", "changes".to_owned()),
    };
    let rule = if change.rule.is_empty() { "the domain".to_owned() } else { format!("rule `{}`", change.rule) };
    let mut lines = vec![format!("{sign} {}: {rule} {verb}", change.domain)];
    let mut line = |word: &str, meaning: &str| lines.push(format!("    {word:<15} {meaning}"));
    line("who", &change.who);
    change.details.iter().for_each(|detail| line(detail.what, &change_of(detail)));
    if let Some(instead) = &change.instead {
        let word = match change.kind {
            ChangeKind::Added => "until now",
            ChangeKind::Removed => "from now on",
            ChangeKind::Moved { .. } | ChangeKind::Changed => "but",
        };
        line(word, instead);
    }
    let counters = match (change.counters, &change.kind) {
        (CounterEffect::None, _) => "",
        (CounterEffect::Kept, _) => "go on; what was used counts by the new rule at once",
        (CounterEffect::Anew, ChangeKind::Added) => "begin",
        (CounterEffect::Anew, _) => "start anew: everybody has all of it again",
        (CounterEffect::Dropped, _) => "are not asked any more",
    };
    if !counters.is_empty() {
        line("counters", counters);
    }
    lines.join("\n")
}

fn change_of(Detail { old, new, .. }: &Detail) -> String {
    match (old, new) {
        (Some(old), Some(new)) => format!("{old} -> {new}"),
        (None, Some(text)) => text.clone(),
        (Some(text), None) => format!("no more: {text}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let change = |rule: usize| Change {
            kind: ChangeKind::Added,
            domain: "d".to_owned(),
            rule: format!("rule-{rule}"),
            who: format!("rule-{rule}=(any)"),
            details: vec![],
            counters: CounterEffect::Anew,
            instead: None,
        };
        let changes: Vec<_> = (0..1000).map(change).collect();
        let whole = text_of(&changes, usize::MAX);
        assert!(whole.contains("rule `rule-999` is new") && !whole.contains(" more"), "{whole}");
        let part = text_of(&changes, 4096);
        let told = part.matches(" is new").count();
        assert!(part.len() < 4096 + 128 && told > 10, "{part}");
        assert!(part.contains(&format!("and {} more\n1000 added; ", 1000 - told)), "{part}");
    }
}
