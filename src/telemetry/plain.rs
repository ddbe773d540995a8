//! Metrics in the older text format of Prometheus, from the newer.

use std::collections::HashSet;

/// OpenMetrics in the older format, which calls a counter by the name of its samples and knows no end.
pub(super) fn of(open_metrics: &str) -> String {
    let of_counter = |line: &str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
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

    #[test]
    fn the_older_format_names_counters_as_their_samples_are_and_is_the_same_otherwise() {
        let (open, plain) = (
            "# HELP a_b Of a. b.\n# TYPE a_b counter\na_b_total{c=\"# TYPE x counter\"} 1\n",
            "# HELP a_b_total Of a. b.\n# TYPE a_b_total counter\na_b_total{c=\"# TYPE x counter\"} 1\n",
        );
        let gauge = "# HELP g Of g.\n# TYPE g gauge\ng 2\n";
        assert_eq!(of(&format!("{open}{gauge}# EOF\n")), format!("{plain}{gauge}"));
    }
}
