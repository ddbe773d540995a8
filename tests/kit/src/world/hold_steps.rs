//! The steps of all IDs of a counter, read from its calls and answers.

use tollgate::algorithm::concurrency::Permit;
use tollgate::algorithm::hold::HoldEffect;

use super::claims::{Claim, CounterHistory};
use super::history::{CallRecord, Ending};
use super::holds::{IdHistory, IdRules, NEVER, Step, StepKind};
use super::plan::{Fault, PartHits, Plan};
use super::process::SimProcess;
use super::rules::Counting;
use super::server::fleet::Moment;
use super::shared::SharedWorld;

/// The open holds of a counter, as the store listed them between two moments.
pub struct HeldList {
    pub counter: usize,
    pub begun: Moment,
    pub ended: Moment,
    /// `None`: the store did not report them.
    pub list: Option<Vec<Permit>>,
}

/// Lists the open holds of each counter that keeps them.
pub(super) async fn list_holds(
    process: &SimProcess,
    plan: &Plan,
    shared: &SharedWorld,
) -> Vec<HeldList> {
    let mut all = Vec::new();
    for counter in (0..plan.counters.len()).filter(|one| plan.rule_of(*one).hold.is_some()) {
        let begun = shared.now();
        let list = process.usage(plan, counter).await.map(|(_, held)| held.holds);
        all.push(HeldList { counter, begun, ended: shared.now(), list });
    }
    all
}

impl Plan {
    /// Returns the time after which no hold is open.
    pub(super) fn holds_end_within(&self) -> std::time::Duration {
        let ttl = self.rules.iter().filter_map(|rule| Some(rule.hold.as_ref()?.ttl_max())).max();
        let steps: u64 = self.faults.iter().map(|(_, fault)| clock_step(fault)).sum();
        std::time::Duration::from_micros(ttl.map_or(0, |ttl| ttl + steps + 1_000_000))
    }
}

fn clock_step(fault: &Fault) -> u64 {
    match fault {
        Fault::Clock { by_us, .. } => by_us.unsigned_abs(),
        _ => 0,
    }
}

impl<'a> IdRules<'a> {
    pub(super) fn of(history: &CounterHistory<'a>) -> Option<Self> {
        let rule = history.rule();
        let hold = rule.hold.as_ref()?;
        let report = history.report;
        let faults = || report.chronicle.faults.iter().map(|(_, fault)| fault);
        let is_alone = rule.is_local() && report.decided_alone > 0;
        // What goes past the limit of a log moves entries, which then give nothing back.
        let moves_entries = rule.counting == Counting::Log && has_excess(history);
        // A counter has at most 128 marks, one for each hit at most.
        let has_marks = rule.counting != Counting::Gcra
            || rule.amounts.iter().all(|amount| *amount <= 120) && !has_excess(history);
        Some(Self {
            hold,
            is_permits: rule.counting == Counting::Permits,
            gives_back_less: !rule.is_long() || moves_entries || !has_marks,
            is_loose: history.losses > 0 || is_alone,
            may_be_stale: faults().any(|fault| matches!(fault, Fault::Promote { .. })),
            steps_us: faults().map(clock_step).sum(),
        })
    }
}

/// Returns `true` if commits may have charged a counter past its limit.
pub(super) fn has_excess(history: &CounterHistory<'_>) -> bool {
    history.report.chronicle.calls.iter().any(|record| {
        let parts = record.call.parts.iter().enumerate();
        let mut own = parts.filter(|(_, part)| part.counter == history.counter);
        own.any(|(number, part)| match (part.hits, &record.ending) {
            (PartHits::End { cost: Some(_), .. }, Ending::Decided(_, statuses)) => {
                match statuses[number].effect {
                    Some(HoldEffect::Committed { reserved, cost }) => cost > reserved,
                    Some(HoldEffect::Nothing) => false,
                    _ => true,
                }
            }
            (PartHits::End { cost: Some(_), .. }, _) => true,
            _ => false,
        })
    })
}

/// Returns all IDs of a counter.
pub(super) fn ids_of<'a>(history: &CounterHistory<'a>) -> Vec<IdHistory<'a>> {
    let Some(rules) = IdRules::of(history) else { return Vec::new() };
    let mut all = std::collections::BTreeMap::<u32, Vec<Step>>::new();
    for record in &history.report.chronicle.calls {
        for (number, part) in record.call.parts.iter().enumerate() {
            match part.hits {
                _ if part.counter != history.counter => {}
                PartHits::Reserve { id, hits } => {
                    let steps = all.entry(id).or_default();
                    add_reserve(history, record, number, hits, steps);
                }
                PartHits::End { id, cost, .. } => {
                    let is_superseded = cost.is_none()
                        && record.call.parts.iter().any(|other| {
                            let commits = matches!(
                                other.hits,
                                PartHits::End { id: of_other, cost: Some(_), .. } if of_other == id
                            );
                            commits && other.counter == part.counter
                        });
                    if !is_superseded {
                        let step = end_step(record, number, cost, &rules);
                        all.entry(id).or_default().push(step);
                    }
                }
                PartHits::Charge(_) | PartHits::Peek | PartHits::Refund(_) => {}
            }
        }
    }
    all.into_iter().map(|(id, steps)| IdHistory::new(id, steps, rules)).collect()
}

fn add_reserve(
    history: &CounterHistory<'_>,
    record: &CallRecord,
    number: usize,
    hits: u32,
    steps: &mut Vec<Step>,
) {
    let Some(claim) = history.claim(record, number, &record.call.parts[number]) else { return };
    let kind = StepKind::Reserve(hits.into());
    let begun = record.begun;
    match claim {
        Claim::Admitted { .. } => {
            let effect = effect_of(record, number);
            steps.push(Step { kind, begun, ended: record.ended, is_certain: true, effect });
        }
        Claim::Possible { until, .. } => {
            let ended = until.unwrap_or(NEVER);
            steps.push(Step { kind, begun, ended, is_certain: false, effect: None });
            if record.call.parts.len() > 1 {
                let kind = StepKind::TakeBack(steps.len() - 1);
                let is_certain = until.is_some();
                steps.push(Step { kind, begun, ended, is_certain, effect: None });
            }
        }
        Claim::Refunded { .. } | Claim::Lent { .. } | Claim::Transient { .. } => {}
    }
}

fn effect_of(record: &CallRecord, number: usize) -> Option<HoldEffect> {
    match &record.ending {
        Ending::Decided(_, statuses) if statuses[number].left.is_some() => statuses[number].effect,
        _ => None,
    }
}

fn end_step(record: &CallRecord, number: usize, cost: Option<u32>, rules: &IdRules<'_>) -> Step {
    let mut effect = effect_of(record, number).filter(|_| !rules.is_loose);
    if rules.may_be_stale && effect == Some(HoldEffect::Nothing) {
        effect = None;
    }
    let is_certain = effect.is_some();
    Step {
        kind: StepKind::End(cost.map(u64::from)),
        begun: record.begun,
        ended: if is_certain { record.ended } else { NEVER },
        is_certain,
        effect,
    }
}
