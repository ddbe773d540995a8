//! The two text formats, derived from the registry's OpenMetrics text. OpenMetrics, with exemplars
//! of traced calls: the client library supports none for custom histograms. And the older
//! Prometheus text format, for scrapers that do not request OpenMetrics, such as `promtool`; it has
//! no exemplars.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::SystemTime;

use crate::histogram::Exemplar;

/// Adds exemplars to the buckets of a histogram without labels.
pub(super) fn with_exemplars(
    open_metrics: &str,
    histogram: &str,
    exemplars: &[Option<Exemplar>],
) -> String {
    if exemplars.iter().all(Option::is_none) {
        return open_metrics.to_owned();
    }
    let mut buckets = exemplars.iter();
    let bucket = format!("{histogram}_bucket{{");
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        text.push_str(line);
        if line.starts_with(&bucket) {
            buckets.next().into_iter().flatten().for_each(|exemplar| push(exemplar, &mut text));
        }
        text.push('\n');
    }
    text
}

/// Appends ` # {trace_id="..",span_id=".."} SECONDS TIMESTAMP`.
fn push(exemplar: &Exemplar, text: &mut String) {
    let at = exemplar.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let trace = u128::from_be_bytes(exemplar.trace);
    let span = u64::from_be_bytes(exemplar.span);
    let seconds = exemplar.length.as_secs_f64();
    let at = at.as_secs_f64();
    // Writing to a `String` cannot fail.
    let _ =
        write!(text, " # {{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {seconds} {at:.3}");
}

/// Converts OpenMetrics to the older format, which names a counter like its samples and has no end
/// marker.
pub(super) fn plain(open_metrics: &str) -> String {
    let of_counter =
        |line: &str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
    let counters: HashSet<String> = open_metrics.lines().filter_map(of_counter).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", what, name, rest] if counters.contains(name) => {
                text.extend(["# ", what, " ", name, "_total ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn exemplars_stand_on_their_buckets_and_on_no_other_line() {
        let mut exemplars = [None; 3];
        let length = Duration::from_micros(150);
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_780_000_000_137);
        exemplars[1] = Some(Exemplar { trace: [0x0a; 16], span: [0xb7; 8], length, at });
        let before = "h_bucket{le=\"0.1\"} 1\n";
        let on = "h_bucket{le=\"0.2\"} 2";
        let after = "\nh_bucket{le=\"+Inf\"} 2\nother_h_bucket{le=\"0.1\"} 1\n# EOF\n";
        let ids = "trace_id=\"0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\",span_id=\"b7b7b7b7b7b7b7b7\"";
        let expected = format!("{before}{on} # {{{ids}}} 0.00015 1780000000.137{after}");
        assert_eq!(with_exemplars(&format!("{before}{on}{after}"), "h", &exemplars), expected);
        assert_eq!(with_exemplars(on, "h", &[None; 3]), on);
    }

    #[test]
    fn the_older_format_names_counters_as_their_samples_are_and_is_the_same_otherwise() {
        let open = "# HELP a_b Of a. b.\n# TYPE a_b counter\na_b_total{c=\"# TYPE x counter\"} 1\n";
        let plain = "# HELP a_b_total Of a. b.\n# TYPE a_b_total counter\na_b_total{c=\"# TYPE x counter\"} 1\n";
        let gauge = "# HELP g Of g.\n# TYPE g gauge\ng 2\n";
        assert_eq!(super::plain(&format!("{open}{gauge}# EOF\n")), format!("{plain}{gauge}"));
    }
}
