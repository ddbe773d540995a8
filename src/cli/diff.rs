//! `tollgate diff`: lists the changes between two policy sets, the affected descriptors, and the
//! counters that restart.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::output::{print, print_json};
use super::{CommandError, load};
use crate::policy::PolicySet;
use crate::policy::diff::{Change, ChangeKind, CounterEffect, Detail, diff, text_of};
use crate::settings::ReadingFlags;

/// Show the differences between two sets of policies, and the descriptors that they affect
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 if there are no differences, 1 if there are some, 2 if policies are invalid.

Examples:
  # Compare the policies in force with those of a checkout
  tollgate diff /etc/tollgate config/policies")]
pub struct Diff {
    /// Old policies: a file or a directory
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// New policies: a file or a directory
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Print the differences as JSON
    #[arg(long)]
    json: bool,
    // Last: its help heading applies to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
}

impl Diff {
    /// Prints the differences. Exits with 0 if there are none, 1 if there are some, 2 if policies
    /// cannot be read.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        let old = load(&self.reading, &[self.old])?.1.policies;
        let new = load(&self.reading, &[self.new])?.1.policies;
        let changes = diff(&old, &new);
        if self.json {
            print_json(format_args!("{}\n", json_of(&old, &new, &changes)));
        } else {
            print(format_args!("{}\n", text_of(&changes, usize::MAX)));
        }
        Ok(ExitCode::from(u8::from(!changes.is_empty())))
    }
}

fn json_of(old: &PolicySet, new: &PolicySet, changes: &[Change]) -> Value {
    json!({
        "same": changes.is_empty(), "old": old.version(), "new": new.version(),
        "changes": changes.iter().map(json_of_change).collect::<Vec<_>>(),
    })
}

fn json_of_change(change: &Change) -> Value {
    let (kind, from) = match &change.kind {
        ChangeKind::Added => ("added", None),
        ChangeKind::Removed => ("removed", None),
        ChangeKind::Moved { from } => ("moved", Some(from)),
        ChangeKind::Changed => ("changed", None),
    };
    let counters = match change.counters {
        CounterEffect::None => "none",
        CounterEffect::Kept => "kept",
        CounterEffect::Anew => "anew",
        CounterEffect::Dropped => "dropped",
    };
    let details = change.details.iter();
    let details: Vec<_> = details
        .map(|Detail { what, old, new }| json!({ "what": what, "old": old, "new": new }))
        .collect();
    json!({
        "change": kind, "from": from, "domain": change.domain, "rule": change.rule, "who": change.who,
        "details": details, "counters": counters, "instead": change.instead,
    })
}
