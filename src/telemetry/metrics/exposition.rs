//! The older text format of Prometheus, made of OpenMetrics: what those read who do not ask for the newer one, `promtool` among
//! them.

use std::collections::HashSet;

/// OpenMetrics in the older format, which calls a counter by the name of its samples and knows no end.
pub(super) fn plain(open_metrics: &str) -> String {
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
