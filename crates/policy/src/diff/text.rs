//! Text form of differences.

use super::{Change, ChangeKind, CounterEffect, Detail};

/// Returns the differences, a few lines each, and their number. Those that do not fit in
/// `max_bytes` are only counted.
pub fn text_of(changes: &[Change], max_bytes: usize) -> String {
    if changes.is_empty() {
        return "no differences: limits are the same and counters continue".to_owned();
    }
    let mut text = String::new();
    for (number, change) in changes.iter().enumerate() {
        let lines = change_text(change);
        if text.len().saturating_add(lines.len()) >= max_bytes {
            text.push_str(&format!("and {} more\n", changes.len().saturating_sub(number)));
            break;
        }
        text.push_str(&lines);
        text.push('\n');
    }
    text + &summary(changes)
}

impl ChangeKind {
    fn word(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Moved { .. } => "moved",
            Self::Changed => "changed",
        }
    }
}

fn summary(changes: &[Change]) -> String {
    let words = ["added", "removed", "moved", "changed"].iter();
    let counts: Vec<_> = words
        .map(|word| (changes.iter().filter(|change| change.kind.word() == *word).count(), word))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    let restarted = changes
        .iter()
        .filter(|change| change.counters == CounterEffect::Anew && change.kind != ChangeKind::Added)
        .count();
    format!("{}; existing counters restarted: {restarted}", counts.join(", "))
}

/// Returns one difference, in a few lines.
fn change_text(change: &Change) -> String {
    let (sign, from) = match &change.kind {
        ChangeKind::Added => ("+", String::new()),
        ChangeKind::Removed => ("-", String::new()),
        ChangeKind::Moved { from } => (">", format!(" from `{from}`")),
        ChangeKind::Changed => ("~", String::new()),
    };
    let verb = change.kind.word();
    let rule = if change.rule.is_empty() {
        "the domain".to_owned()
    } else {
        format!("rule `{}`", change.rule)
    };
    let mut lines = vec![format!("{sign} {}: {rule} {verb}{from}", change.domain)];
    lines.push(line("descriptors", &change.who));
    lines.extend(change.details.iter().map(|detail| line(detail.what, &detail_text(detail))));
    if let Some(instead) = &change.instead {
        let name = match change.kind {
            ChangeKind::Added => "before",
            ChangeKind::Removed => "after",
            ChangeKind::Moved { .. } | ChangeKind::Changed => "note",
        };
        lines.push(line(name, instead));
    }
    let counters = match (change.counters, &change.kind) {
        (CounterEffect::None, _) => "",
        (CounterEffect::Kept, _) => "continue; used hits count against the new limit",
        (CounterEffect::Anew, ChangeKind::Added) => "start at zero",
        (CounterEffect::Anew, _) => "restart at zero",
        (CounterEffect::Dropped, _) => "no longer used",
    };
    if !counters.is_empty() {
        lines.push(line("counters", counters));
    }
    lines.join("\n")
}

fn line(name: &str, value: &str) -> String {
    format!("    {name:<15} {value}")
}

fn detail_text(Detail { old, new, .. }: &Detail) -> String {
    match (old, new) {
        (Some(old), Some(new)) => format!("{old} -> {new}"),
        (None, Some(text)) => text.clone(),
        (Some(text), None) => format!("removed: {text}"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_do_not_fit_are_counted() {
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
        assert!(whole.contains("rule `rule-999` added") && !whole.contains(" more"), "{whole}");
        let part = text_of(&changes, 4096);
        let shown = part.matches("` added").count();
        assert!(part.len() < 4096 + 128 && shown > 10, "{part}");
        assert!(part.contains(&format!("and {} more\n1000 added; ", 1000 - shown)), "{part}");
    }
}
