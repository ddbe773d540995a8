//! The history of an ID at a counter: all orders of its calls that explain their answers.
//!
//! A call acts at some moment between its begin and its answer; one without a certain answer at any
//! later moment, or never. So an ID has several courses, few mostly. A course gives, at each
//! moment, the hits that the ID has at the counter, and those of its open holds.

use tollgate::algorithm::hold::HoldEffect;

use super::plan_holds::SimHold;
use super::server::fleet::Moment;

/// A server's clock is up to a millisecond ahead, and so are timers.
const CLOCK_US: u64 = 3_000;
/// Later than all that happens.
pub(super) const NEVER: Moment = Moment::MAX;
/// Receipts of one record.
const MAX_RECEIPTS: usize = 4;

/// A step of an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    Reserve(u64),
    /// Undoes the reserve of this number.
    TakeBack(usize),
    /// With a cost a commit, else a settle.
    End(Option<u64>),
}

/// A call about an ID at a counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    pub(super) begun: Moment,
    pub(super) ended: Moment,
    /// `true` if it certainly acted, provided that the step which it undoes did.
    pub(super) is_certain: bool,
    /// The effect that the store reported.
    pub(super) effect: Option<HoldEffect>,
}

/// Hits that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OpenHold {
    hits: u64,
    step: usize,
    /// The earliest and the latest moment at which it ends by itself.
    until: (Moment, Moment),
}

/// Hits: the fewest and the most.
pub(super) type Bounds = (u64, u64);

/// A counter's view of an ID at some point of a course.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct IdState {
    /// Steps that have acted, as bits, and those that never will.
    acted: u32,
    skipped: u32,
    /// Hits that count, those of permits not.
    hits: Bounds,
    /// Hits that count and were admitted as such, at least.
    within: u64,
    has_record: bool,
    until: (Moment, Moment),
    open: Vec<OpenHold>,
}

/// An ID at a counter.
pub(super) struct IdHistory<'a> {
    pub(super) id: u32,
    pub(super) steps: Vec<Step>,
    rules: IdRules<'a>,
    /// States in their order.
    courses: Vec<Vec<IdState>>,
}

/// Properties common to all IDs of a counter.
#[derive(Clone, Copy)]
pub(super) struct IdRules<'a> {
    pub(super) hold: &'a SimHold,
    pub(super) is_permits: bool,
    /// `true` if fewer hits may be given back.
    pub(super) gives_back_less: bool,
    /// `true` if records may be gone, and answers be those of another store.
    pub(super) is_loose: bool,
    /// `true` if an answer of a server without the latest writes may report that nothing happened.
    pub(super) may_be_stale: bool,
    /// Time by which clocks may disagree; 0 if they agree.
    pub(super) steps_us: u64,
}

impl<'a> IdHistory<'a> {
    pub(super) fn new(id: u32, steps: Vec<Step>, rules: IdRules<'a>) -> Self {
        let mut history = Self { id, steps, rules, courses: Vec::new() };
        if !rules.is_loose {
            history.go_on(&mut vec![IdState::default()]);
        }
        history
    }

    /// Returns `true` if some order of the steps explains their answers.
    pub(super) fn is_explained(&self) -> bool {
        self.rules.is_loose || !self.courses.is_empty()
    }

    /// Adds all courses that go on from the last state.
    fn go_on(&mut self, course: &mut Vec<IdState>) {
        let state = course.last().unwrap().clone();
        let open =
            (0..self.steps.len()).filter(|step| (state.acted | state.skipped) >> step & 1 == 0);
        let open: Vec<usize> = open.collect();
        if open.is_empty() {
            self.courses.push(course.clone());
            return;
        }
        // A step acts before all that begin after its end.
        let first_end = open.iter().map(|step| self.steps[*step].ended).min().unwrap();
        for step in &open {
            if self.steps[*step].begun <= first_end {
                for next in self.act(&state, *step) {
                    course.push(next);
                    self.go_on(course);
                    course.pop();
                }
            }
        }
        // Steps that never act are chosen before any acts, in their order, so that each course is
        // found once.
        if state.acted == 0 {
            for step in open.into_iter().filter(|step| state.skipped >> step == 0) {
                if !self.steps[step].is_certain {
                    let skipped = state.skipped | 1 << step;
                    course.push(IdState { skipped, ..state.clone() });
                    self.go_on(course);
                    course.pop();
                }
            }
        }
    }

    /// Returns the states after a step.
    fn act(&self, state: &IdState, number: usize) -> Vec<IdState> {
        let step = self.steps[number];
        let acted = IdState { acted: state.acted | 1 << number, ..state.clone() };
        let after = match step.kind {
            StepKind::Reserve(hits) => {
                let states = self.expiries(&acted, step).into_iter();
                states.map(|state| self.reserve(state, number, hits)).collect()
            }
            StepKind::TakeBack(reserve) if acted.skipped >> reserve & 1 == 1 => {
                vec![(acted, HoldEffect::Nothing)]
            }
            // It is sent once its reserve is known.
            StepKind::TakeBack(reserve) if acted.acted >> reserve & 1 == 0 => Vec::new(),
            StepKind::TakeBack(reserve) => {
                vec![(self.take_back(acted, reserve), HoldEffect::Nothing)]
            }
            StepKind::End(cost) => {
                let states = self.expiries(&acted, step).into_iter();
                states.map(|state| self.end(state, step, cost)).collect()
            }
        };
        let explains = |effect: &HoldEffect| step.effect.is_none_or(|answered| answered == *effect);
        after.into_iter().filter(|(_, effect)| explains(effect)).map(|(state, _)| state).collect()
    }

    /// Returns the moments at which the records of a step expire.
    fn until(&self, step: Step) -> (Moment, Moment) {
        let hold = self.rules.hold;
        let earliest = if self.rules.steps_us > 0 { 0 } else { step.begun + hold.ttl_min() };
        let latest = step.ended.saturating_add(hold.ttl_max() + self.rules.steps_us);
        (earliest, latest)
    }

    fn reserve(&self, mut state: IdState, number: usize, hits: u64) -> (IdState, HoldEffect) {
        let step = self.steps[number];
        let until = self.until(step);
        let repeated = !state.open.is_empty();
        if !self.rules.is_permits {
            state.hits = (state.hits.0 + hits, state.hits.1 + hits);
            state.within += hits;
            if state.open.len() >= MAX_RECEIPTS {
                return (state, HoldEffect::Unrecorded);
            }
            state.has_record = true;
            state.until = until;
        }
        state.open.push(OpenHold { hits, step: number, until });
        (state, HoldEffect::Reserved { repeated })
    }

    /// Returns the states with and without the records that may have expired.
    fn expiries(&self, state: &IdState, step: Step) -> Vec<IdState> {
        let is_ended = |until: (Moment, Moment)| {
            let may_be = step.ended.saturating_add(CLOCK_US) >= until.0;
            let may_not_be = step.begun <= until.1.saturating_add(CLOCK_US);
            (may_be, may_not_be)
        };
        let mut all = Vec::new();
        if self.rules.is_permits {
            // Permits end one by one, the oldest first.
            for gone in 0..=state.open.len() {
                let is_possible = state.open.iter().enumerate().all(|(place, open)| {
                    let (may_be, may_not_be) = is_ended(open.until);
                    if place < gone { may_be } else { may_not_be }
                });
                if is_possible {
                    all.push(IdState { open: state.open[gone..].to_vec(), ..state.clone() });
                }
            }
            return all;
        }
        let (may_be, may_not_be) = is_ended(state.until);
        if !state.has_record || may_not_be {
            all.push(state.clone());
        }
        if state.has_record && may_be {
            all.push(IdState { has_record: false, open: Vec::new(), ..state.clone() });
        }
        all
    }

    fn end(&self, mut state: IdState, step: Step, cost: Option<u64>) -> (IdState, HoldEffect) {
        let hits = |hits: u64| u32::try_from(hits).unwrap();
        if !state.open.is_empty() {
            let oldest = state.open.remove(0);
            if self.rules.is_permits {
                return (state, HoldEffect::Settled);
            }
            let releases = self.rules.hold.releases;
            self.correct(
                &mut state,
                oldest.hits,
                cost.unwrap_or(if releases { 0 } else { oldest.hits }),
            );
            let Some(cost) = cost else { return (state, HoldEffect::Settled) };
            state.until = self.until(step);
            return (
                state,
                HoldEffect::Committed { reserved: hits(oldest.hits), cost: hits(cost) },
            );
        }
        match cost {
            Some(cost) if !state.has_record && !self.rules.is_permits => {
                state.hits = (state.hits.0 + cost, state.hits.1 + cost);
                state.has_record = true;
                state.until = self.until(step);
                (state, HoldEffect::Unknown { cost: hits(cost) })
            }
            _ => (state, HoldEffect::Nothing),
        }
    }

    /// Puts held hits to a cost.
    fn correct(&self, state: &mut IdState, held: u64, cost: u64) {
        let less = held.saturating_sub(cost);
        let more = cost.saturating_sub(held);
        let most = if self.rules.gives_back_less { 0 } else { less };
        state.hits = (state.hits.0.saturating_sub(less) + more, state.hits.1 - most + more);
        state.within = state.within.saturating_sub(less);
    }

    fn take_back(&self, mut state: IdState, reserve: usize) -> IdState {
        let Some(place) = state.open.iter().position(|open| open.step == reserve) else {
            return state;
        };
        let open = state.open.remove(place);
        if !self.rules.is_permits {
            self.correct(&mut state, open.hits, 0);
            // The record goes, unless something has ended.
            state.has_record = !state.open.is_empty() || self.has_ended(&state);
            // What remains lives as long as before that reserve.
            state.until.0 = 0;
        }
        state
    }

    fn has_ended(&self, state: &IdState) -> bool {
        let is_end = |step: &usize| matches!(self.steps[*step].kind, StepKind::End(_));
        (0..self.steps.len()).any(|step| state.acted >> step & 1 == 1 && is_end(&step))
    }

    /// Returns the states in which a counter may have been at a moment between two.
    fn between(&self, from: Moment, to: Moment) -> impl Iterator<Item = &IdState> {
        let has = |bits: u32, step: usize| bits >> step & 1 == 1;
        let is_there = move |state: &IdState, last: &IdState| {
            (0..self.steps.len()).all(|step| {
                let acts = has(last.acted, step);
                let acted = has(state.acted, step);
                let is_missing = acts && !acted && self.steps[step].ended < from;
                let is_early = acted && self.steps[step].begun > to;
                !is_missing && !is_early
            })
        };
        self.courses.iter().flat_map(move |course| {
            let last = course.last().unwrap();
            course.iter().filter(move |state| is_there(state, last))
        })
    }

    /// Returns the hits that count at a moment between two, and with them those that were admitted
    /// as such, at least.
    pub(super) fn counted(&self, from: Moment, to: Moment) -> (Bounds, u64) {
        if self.rules.is_loose {
            return self.loosely_counted(from, to);
        }
        let mut bounds = (u64::MAX, 0);
        let mut within = u64::MAX;
        for state in self.between(from, to) {
            let (hits, of_admitted) = if self.rules.is_permits {
                let open = self.open_of(state, from, to);
                (open, open.0)
            } else {
                (state.hits, state.within.min(state.hits.0))
            };
            bounds = (bounds.0.min(hits.0), bounds.1.max(hits.1));
            within = within.min(of_admitted);
        }
        if bounds.0 == u64::MAX { ((0, u64::MAX), 0) } else { (bounds, within) }
    }

    /// Returns the hits that count if records may be gone: at least those of an admitted
    /// reserve that nothing may have given back.
    fn loosely_counted(&self, from: Moment, to: Moment) -> (Bounds, u64) {
        let mut least = 0;
        let mut most = 0;
        for step in self.steps.iter().filter(|step| step.begun <= to) {
            let until = self.until(*step);
            match step.kind {
                StepKind::Reserve(hits) => {
                    let is_over = self.rules.is_permits && until.0 <= to.saturating_add(CLOCK_US);
                    least +=
                        if step.is_certain && step.ended < from && !is_over { hits } else { 0 };
                    let may_be = !self.rules.is_permits || until.1.saturating_add(CLOCK_US) >= from;
                    most += if may_be { hits } else { 0 };
                }
                StepKind::End(Some(cost)) if !self.rules.is_permits => most += cost,
                StepKind::End(_) | StepKind::TakeBack(_) => {}
            }
        }
        for step in self.steps.iter().filter(|step| step.begun <= to) {
            match step.kind {
                StepKind::End(Some(cost)) if !self.rules.is_permits => least = least.min(cost),
                StepKind::End(None) if !self.rules.is_permits && !self.rules.hold.releases => {}
                StepKind::End(_) => least = 0,
                StepKind::Reserve(_) | StepKind::TakeBack(_) => {}
            }
        }
        ((least, most), least)
    }

    /// Returns the hits of open holds at a moment between two.
    pub(super) fn open(&self, from: Moment, to: Moment) -> Bounds {
        let mut bounds = (u64::MAX, 0);
        for state in self.between(from, to) {
            let open = self.open_of(state, from, to);
            bounds = (bounds.0.min(open.0), bounds.1.max(open.1));
        }
        if bounds.0 == u64::MAX { (0, u64::MAX) } else { bounds }
    }

    fn open_of(&self, state: &IdState, from: Moment, to: Moment) -> Bounds {
        let mut bounds = (0, 0);
        for open in &state.open {
            let until = if self.rules.is_permits { open.until } else { state.until };
            if until.0 > to.saturating_add(CLOCK_US) {
                bounds.0 += open.hits;
            }
            if until.1.saturating_add(CLOCK_US) >= from {
                bounds.1 += open.hits;
            }
        }
        bounds
    }

    /// Returns the reserves that were certainly admitted: begin, end and hits.
    pub(super) fn admitted(&self) -> impl Iterator<Item = (Moment, Moment, u64)> {
        self.steps.iter().filter(|step| step.is_certain).filter_map(|step| match step.kind {
            StepKind::Reserve(hits) => Some((step.begun, step.ended, hits)),
            StepKind::TakeBack(_) | StepKind::End(_) => None,
        })
    }

    /// Returns `true` if a step may have acted after a moment.
    pub(super) fn acts_after(&self, moment: Moment) -> bool {
        self.steps.iter().any(|step| step.ended >= moment)
    }
}
