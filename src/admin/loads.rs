//! The last loads of policies: when, what brought them, what came of them.

use std::collections::VecDeque;

/// Loads that are kept.
const KEPT: usize = 20;
/// Bytes of what is told of one, but for a line that says what is left out.
pub const MAX_TOLD: usize = 16 * 1024;

/// One attempt to put policies in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// When, RFC 3339.
    pub at: String,
    /// What brought it.
    pub by: By,
    /// The version in force from then on; empty: none yet.
    pub version: String,
    /// What came of it.
    pub outcome: Outcome,
}

/// What brings policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The process began.
    Start,
    /// A file is another than before.
    Files,
    /// Somebody asked for it.
    Admin,
    /// A control plane says others.
    ControlPlane,
}

/// What came of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// They are the first.
    First,
    /// They are in force in the place of others.
    Changed {
        /// The version before.
        before: String,
        /// What differs from it, in words, of about [`MAX_TOLD`] bytes.
        changes: String,
    },
    /// They were refused, and what was in force stays: the report, of at most [`MAX_TOLD`] bytes.
    Refused(String),
}

/// The last of them.
#[derive(Debug, Default)]
pub(super) struct Loads {
    latest: VecDeque<Load>,
    total: u64,
}

impl By {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Files => "files",
            Self::Admin => "admin",
            Self::ControlPlane => "control plane",
        }
    }
}

impl Outcome {
    /// A refusal by a report of any length.
    pub fn refused(report: &str) -> Self {
        match report.len() {
            0..=MAX_TOLD => Self::Refused(report.to_owned()),
            _ => {
                const END: &str = "\n(the log has the rest)\n";
                let end = report.floor_char_boundary(MAX_TOLD.saturating_sub(END.len()));
                Self::Refused(report.get(..end).unwrap_or_default().to_owned() + END)
            }
        }
    }
}

impl Loads {
    pub(super) fn push(&mut self, load: Load) {
        self.latest.truncate(KEPT.saturating_sub(1));
        self.latest.push_front(load);
        self.total = self.total.saturating_add(1);
    }

    /// The latest first, and how many there were.
    pub(super) fn all(&self) -> (Vec<Load>, u64) {
        (self.latest.iter().cloned().collect(), self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_and_all_are_counted() {
        let mut loads = Loads::default();
        for number in 0..50 {
            let version = number.to_string();
            loads.push(Load { at: String::new(), by: By::Files, version, outcome: Outcome::First });
        }
        let (latest, total) = loads.all();
        assert_eq!((latest.len(), total), (KEPT, 50));
        assert_eq!((latest[0].version.as_str(), latest[KEPT - 1].version.as_str()), ("49", "30"));
    }

    #[test]
    fn a_long_report_is_cut_between_letters() {
        assert_eq!(Outcome::refused("short"), Outcome::Refused("short".to_owned()));
        let Outcome::Refused(told) = Outcome::refused(&"ü".repeat(MAX_TOLD)) else { panic!("refused") };
        assert!(told.len() <= MAX_TOLD && told.ends_with("the rest)\n"), "{}", told.len());
    }
}
