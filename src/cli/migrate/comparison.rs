//! The differences between the responses of two services to the requests of a trace.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use super::responses::FieldDifference;

/// Maximum number of differences to print, and of lines that are skipped; further ones are counted.
const MAX_SHOWN: u64 = 20;
/// Fields that depend on the hits that a service has counted before.
const COUNTS: [&str; 4] = ["code", "limit_remaining", "overall_code", "response_headers_to_add"];

/// The result of a trace.
#[derive(Debug, Default)]
pub(super) struct LiveComparison {
    /// Number of requests.
    pub(super) requests: u64,
    /// Number of requests with different responses.
    pub(super) different: u64,
    /// Number of lines of the trace that are not requests.
    pub(super) skipped: u64,
    shown: String,
    shown_count: u64,
    /// Number of differences by field.
    fields: BTreeMap<&'static str, u64>,
}

impl LiveComparison {
    /// Counts a request. `name_of` returns the name of a descriptor by its index.
    pub(super) fn add(
        &mut self,
        position: &str,
        differences: &[FieldDifference],
        name_of: impl Fn(usize) -> String,
    ) {
        self.requests += 1;
        self.different += u64::from(!differences.is_empty());
        for FieldDifference { descriptor, field, old, new } in differences {
            *self.fields.entry(field).or_default() += 1;
            let of = descriptor.map(|index| format!("{}: ", name_of(index))).unwrap_or_default();
            self.show(&format!("{position}: {of}{field}: {old} from --live, {new} from --against"));
        }
    }

    /// Counts a line that is not a request.
    pub(super) fn skip(&mut self, position: &str, error: impl Display) {
        self.skipped += 1;
        self.show(&format!("{position}: skipped: {error}"));
    }

    /// Returns the lines about differences and about lines that were skipped.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    fn show(&mut self, line: &str) {
        if self.shown_count < MAX_SHOWN {
            self.shown_count += 1;
            self.shown.push_str(line);
            self.shown.push('\n');
        }
    }
}

impl Display for LiveComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)?;
        let all = self.fields.values().sum::<u64>() + self.skipped;
        let more = all - self.shown_count;
        if more > 0 {
            writeln!(f, "… and {more} more")?;
        }
        let same = self.requests - self.different;
        writeln!(f, "{} requests: {same} equal, {} different", self.requests, self.different)?;
        match self.skipped {
            0 => {}
            1 => writeln!(f, "1 line of the trace is not a request")?,
            lines => writeln!(f, "{lines} lines of the trace are not requests")?,
        }
        if self.fields.is_empty() {
            return Ok(());
        }
        let fields: Vec<String> =
            self.fields.iter().map(|(field, count)| format!("{field} {count}")).collect();
        writeln!(f, "  {}", fields.join(", "))?;
        if self.fields.keys().all(|field| COUNTS.contains(field)) {
            writeln!(
                f,
                "Only counts differ: one service had counted hits before, or other clients use the same counters."
            )?;
            writeln!(f, "Run with --peek, or with values that neither service has counted.")?;
        }
        Ok(())
    }
}
