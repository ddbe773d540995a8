//! The last policy loads: time, trigger and outcome of each.

use std::collections::VecDeque;

/// Number of loads kept.
const KEPT: usize = 20;
/// Maximum size in bytes of the report or changes of one load, not counting a line about omitted
/// text.
pub const MAX_TEXT: usize = 16 * 1024;

/// One attempt to load policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyLoad {
    /// Time of the load, RFC 3339.
    pub at: String,
    /// The trigger of the load.
    pub by: LoadTrigger,
    /// The version in force after the load; empty if there is none yet.
    pub version: String,
    /// The outcome of the load.
    pub outcome: LoadOutcome,
}

/// The trigger of a policy load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadTrigger {
    /// Process start.
    Start,
    /// A changed policy file.
    Files,
    /// A request to the admin API.
    Admin,
    /// An update from a control plane.
    ControlPlane,
}

/// The outcome of a policy load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The first policies are in force.
    First,
    /// The policies replaced those in force before.
    Changed {
        /// The previous version.
        before: String,
        /// The differences from it as text, of about [`MAX_TEXT`] bytes.
        changes: String,
    },
    /// The policies were rejected, and those in force stay. Holds the report, of at most
    /// [`MAX_TEXT`] bytes.
    Refused(String),
}

/// The last loads, and the total number of loads.
#[derive(Debug, Default)]
pub(super) struct Loads {
    latest: VecDeque<PolicyLoad>,
    total: u64,
}

impl LoadTrigger {
    /// Returns the name of the trigger.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Files => "files",
            Self::Admin => "admin",
            Self::ControlPlane => "control plane",
        }
    }
}

impl LoadOutcome {
    /// Creates a rejection from a report of any length, truncating it to [`MAX_TEXT`] bytes.
    pub fn refused(report: &str) -> Self {
        match report.len() {
            0..=MAX_TEXT => Self::Refused(report.to_owned()),
            _ => {
                const END: &str = "\n(truncated; the log has the full report)\n";
                let end = report.floor_char_boundary(MAX_TEXT - END.len());
                Self::Refused(report.get(..end).unwrap_or_default().to_owned() + END)
            }
        }
    }
}

impl Loads {
    pub(super) fn push(&mut self, load: PolicyLoad) {
        self.latest.truncate(KEPT - 1);
        self.latest.push_front(load);
        self.total += 1;
    }

    /// Returns the kept loads, latest first, and the total number of loads.
    pub(super) fn all(&self) -> (Vec<PolicyLoad>, u64) {
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
            loads.push(PolicyLoad {
                at: String::new(),
                by: LoadTrigger::Files,
                version,
                outcome: LoadOutcome::First,
            });
        }
        let (latest, total) = loads.all();
        assert_eq!((latest.len(), total), (KEPT, 50));
        assert_eq!((latest[0].version.as_str(), latest[KEPT - 1].version.as_str()), ("49", "30"));
    }

    #[test]
    fn a_long_report_is_cut_between_letters() {
        assert_eq!(LoadOutcome::refused("short"), LoadOutcome::Refused("short".to_owned()));
        let LoadOutcome::Refused(shortened) = LoadOutcome::refused(&"ü".repeat(MAX_TEXT)) else {
            panic!("refused")
        };
        assert!(
            shortened.len() <= MAX_TEXT && shortened.ends_with("full report)\n"),
            "{}",
            shortened.len()
        );
    }
}
