//! `examples/report`, which makes the rows of `docs/report.md`.

use crate::support::release::release;

#[test]
fn a_row_of_the_report_is_one_command() {
    release(&["build", "--bin", "tollgate"], &[]);
    let row = ["--service", "tollgate", "--store", "cluster", "--disturb", "slots-move"];
    let short = ["--seconds", "4", "--rate", "200", "--keep-held"];
    let text = release(&["run", "--example", "report", "--"], &[row.as_slice(), &short].concat());
    let cells: Vec<&str> = text.lines().last().unwrap().split(" | ").collect();
    assert_eq!(cells[1], "slots move", "{text}");
    let [moves, calls] = [cells[2], cells[4]].map(|cell| cell.parse::<u32>().unwrap());
    assert!(moves > 0 && calls > 100, "{text}");
    assert!(cells[9].starts_with("0 of "), "{text}");
}
