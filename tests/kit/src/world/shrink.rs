//! Makes a failing plan small: removes calls, requests of holders and faults as long as it fails.

use super::checker::check;
use super::plan::Plan;
use super::run::run;

/// Returns a plan with fewer calls and faults that breaks the same kind of promise.
pub fn shrink(mut plan: Plan) -> Plan {
    let Some(kind) = failure(&plan) else { return plan };
    loop {
        let before = plan.calls.len() + plan.faults.len() + uses(&plan);
        remove(
            &mut plan,
            &kind,
            |plan| plan.faults.len(),
            |plan, part| drop(plan.faults.drain(part)),
        );
        remove(
            &mut plan,
            &kind,
            |plan| plan.calls.len(),
            |plan, part| drop(plan.calls.drain(part)),
        );
        remove(&mut plan, &kind, uses, |plan, part| {
            plan.loans.iter_mut().for_each(|loans| drop(loans.uses.drain(part.clone())));
        });
        if plan.calls.len() + plan.faults.len() + uses(&plan) == before {
            return plan;
        }
    }
}

/// Returns the number of requests that holders decide.
fn uses(plan: &Plan) -> usize {
    plan.loans.as_ref().map_or(0, |loans| loans.uses.len())
}

/// Returns the kind of the first broken promise: its text up to the second colon.
fn failure(plan: &Plan) -> Option<String> {
    let broken = check(&run(plan));
    broken.first().map(|text| text.split(':').take(2).collect())
}

/// Removes parts of a list, large ones first.
fn remove(
    plan: &mut Plan,
    kind: &String,
    length: impl Fn(&Plan) -> usize,
    drain: impl Fn(&mut Plan, std::ops::Range<usize>),
) {
    let mut size = length(plan).div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < length(plan) {
            let mut smaller = plan.clone();
            drain(&mut smaller, at..(at + size).min(length(plan)));
            if failure(&smaller).as_ref() == Some(kind) {
                *plan = smaller;
            } else {
                at += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
}
