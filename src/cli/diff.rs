//! `tollgate diff`: what changes for whom, and which counters start anew.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::load;
use crate::policy::PolicySet;
use crate::policy::diff::{Change, Counters, Detail, Kind, diff};
use crate::settings::Reading;

/// Say what differs between two sets of policies: exit status 0 where nothing does, 1 where something does
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tollgate diff /etc/tollgate config/policies\n\nExit status 2 where policies cannot be read."
)]
pub struct Diff {
    /// The policies in force: a file or a directory
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// Those that are to follow
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    reading: Reading,
    /// Print the differences as JSON
    #[arg(long)]
    json: bool,
}

impl Diff {
    /// Prints the differences. Exit 0 where there are none, 1 where there are some, 2 where policies cannot be read.
    pub fn run(self) -> ExitCode {
        let both = self.policies(&self.old).and_then(|old| Ok((old, self.policies(&self.new)?)));
        match both {
            Ok((old, new)) => {
                let changes = diff(&old, &new);
                let told = if self.json { json_of(&old, &new, &changes).to_string() } else { text_of(&changes) };
                // Nobody left to tell is no reason to fail.
                let _ = writeln!(io::stdout(), "{told}");
                ExitCode::from(u8::from(!changes.is_empty()))
            }
            Err(report) => {
                let _ = write!(io::stderr(), "{report}");
                ExitCode::from(2)
            }
        }
    }

    fn policies(&self, place: &Path) -> Result<PolicySet, crate::policy::Report> {
        Ok(load(&self.reading, &[place.to_owned()])?.1.policies)
    }
}

fn text_of(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "the same: no limit differs, and all counters go on".to_owned();
    }
    let mut lines: Vec<_> = changes.iter().map(told).collect();
    let of = |is_it: fn(&Kind) -> bool| changes.iter().filter(|change| is_it(&change.kind)).count();
    let counts = [
        (of(|kind| *kind == Kind::Added), "added"),
        (of(|kind| *kind == Kind::Removed), "removed"),
        (of(|kind| matches!(kind, Kind::Moved { .. })), "moved"),
        (of(|kind| *kind == Kind::Changed), "changed"),
    ];
    let counts: Vec<_> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let anew = changes.iter().filter(|change| change.counters == Counters::Anew && change.kind != Kind::Added).count();
    lines.push(format!("{}; counters that were there start anew in {anew}", counts.join(", ")));
    lines.join("\n")
}

/// One difference, in a few lines.
fn told(change: &Change) -> String {
    let (sign, verb) = match &change.kind {
        Kind::Added => ("+", "is new".to_owned()),
        Kind::Removed => ("-", "is gone".to_owned()),
        Kind::Moved { from } => (">", format!("was at `{from}`")),
        Kind::Changed => ("~", "changes".to_owned()),
    };
    let rule = if change.rule.is_empty() { "the domain".to_owned() } else { format!("rule `{}`", change.rule) };
    let mut lines = vec![format!("{sign} {}: {rule} {verb}", change.domain)];
    let mut line = |word: &str, meaning: &str| lines.push(format!("    {word:<15} {meaning}"));
    line("who", &change.who);
    change.details.iter().for_each(|detail| line(detail.what, &change_of(detail)));
    if let Some(instead) = &change.instead {
        let word = match change.kind {
            Kind::Added => "until now",
            Kind::Removed => "from now on",
            Kind::Moved { .. } | Kind::Changed => "but",
        };
        line(word, instead);
    }
    let counters = match (change.counters, &change.kind) {
        (Counters::None, _) => "",
        (Counters::Kept, _) => "go on; what was used counts by the new rule at once",
        (Counters::Anew, Kind::Added) => "begin",
        (Counters::Anew, _) => "start anew: everybody has all of it again",
        (Counters::Dropped, _) => "are not asked any more",
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

fn json_of(old: &PolicySet, new: &PolicySet, changes: &[Change]) -> Value {
    let of = |change: &Change| -> Value {
        let (kind, from) = match &change.kind {
            Kind::Added => ("added", None),
            Kind::Removed => ("removed", None),
            Kind::Moved { from } => ("moved", Some(from)),
            Kind::Changed => ("changed", None),
        };
        let counters = match change.counters {
            Counters::None => "none",
            Counters::Kept => "kept",
            Counters::Anew => "anew",
            Counters::Dropped => "dropped",
        };
        let details = change.details.iter();
        let details: Vec<_> =
            details.map(|Detail { what, old, new }| json!({ "what": what, "old": old, "new": new })).collect();
        json!({
            "change": kind, "from": from, "domain": change.domain, "rule": change.rule, "who": change.who,
            "details": details, "counters": counters, "instead": change.instead,
        })
    };
    json!({
        "same": changes.is_empty(), "old": old.version(), "new": new.version(),
        "changes": changes.iter().map(of).collect::<Vec<_>>(),
    })
}
