//! Every pair of features: charged, given back, tallied, answered.

use tollgate_testkit::features::Cell;

use crate::found_in;

#[test]
fn features_do_together_what_each_does_alone_or_are_refused() {
    let cells: Vec<Cell> = Cell::all().collect();
    let broken = found_in(&cells, |cell| cell.broken());
    assert!(broken.is_empty(), "{} of {} cells:\n{}", broken.len(), cells.len(), broken.join("\n"));
}
