//! Replay of traffic against one or two policy sets.

use std::io::BufRead;

use super::NonEmptyLines;
use super::denied::Comparison;
use super::line::{Format, LineError};
use crate::cli::CommandError;
use crate::cli::output::print_stderr;
use crate::limiter::{Live, Snapshot};
use crate::policy::PolicySet;
use crate::printable::counted;
use crate::scenario::dry_run::DryRun;

/// Lines that were not decided, for one reason.
#[derive(Default)]
struct SkippedLines {
    lines: u64,
    /// The first of them: its position, with its error if it has one.
    first: Option<String>,
}

impl SkippedLines {
    fn add(&mut self, line: impl FnOnce() -> String) {
        self.lines += 1;
        self.first.get_or_insert_with(line);
    }
}

/// Decides all lines, and prints warnings. In an access log, lines that are not requests are
/// skipped and counted.
///
/// # Errors
/// The file cannot be read, or none of its lines can.
pub(super) async fn decide_all(
    mut lines: NonEmptyLines<impl BufRead>,
    format: &Format,
    first: &DryRun,
    second: Option<&DryRun>,
) -> Result<Comparison, CommandError> {
    let mut comparison = Comparison::default();
    let mut invalid = SkippedLines::default();
    let mut without_request = SkippedLines::default();
    while let Some(line) = lines.next()? {
        match decide(line, format, first, second, &mut comparison).await {
            Ok(true) => {}
            Ok(false) => without_request.add(|| lines.position()),
            Err(error) => {
                let error = error.at(&lines.position());
                if matches!(format, Format::Trace) {
                    return Err(error.into());
                }
                invalid.add(|| error);
            }
        }
    }
    if let Some(error) = invalid.first {
        if comparison.is_empty() {
            return Err(format!(
                "no valid line; first error: {error}\neach line of an access log is a JSON object: \
                 nginx writes it with `escape=json`, Envoy with `json_format`"
            )
            .into());
        }
        print_stderr(format_args!(
            "warning: {} skipped; first error: {error}",
            counted(invalid.lines, "invalid line")
        ));
    }
    if let Some(first) = without_request.first {
        let skipped = format!(
            "{} skipped, the first {first}: the domain or a field of each descriptor is missing",
            counted(without_request.lines, "line")
        );
        if comparison.is_empty() {
            return Err(format!(
                "no line is a request: {skipped}; compare the map with its fields"
            )
            .into());
        }
        print_stderr(format_args!("note: {skipped}"));
    }
    comparison.order.note().into_iter().for_each(print_stderr);
    Ok(comparison)
}

/// Decides a line; returns `false` if it contains no request.
async fn decide(
    line: &[u8],
    format: &Format,
    first: &DryRun,
    second: Option<&DryRun>,
    comparison: &mut Comparison,
) -> Result<bool, LineError> {
    let Some(line) = format.read(line)? else { return Ok(false) };
    let by_first = first.snapshot();
    let content = line.by(policies_of(&by_first)?)?;
    let request = content.request()?;
    let one = first.decide(line.instant, &by_first, &request).await?;
    let Some(second) = second else {
        comparison.add(line.instant, &request, &one, None);
        return Ok(true);
    };
    let by_second = second.snapshot();
    let content = line.by(policies_of(&by_second)?)?;
    let other_request = content.request()?;
    let other = second.decide(line.instant, &by_second, &other_request).await?;
    comparison.add(line.instant, &request, &one, Some((&other_request, &other)));
    Ok(true)
}

fn policies_of(snapshot: &Snapshot) -> Result<&PolicySet, LineError> {
    snapshot.as_deref().map(Live::policies).ok_or(LineError::NoPolicy)
}
