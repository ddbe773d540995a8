//! Holds of one counter: reserves, commits and settles that are lost, delivered late, twice and in
//! any order, while time passes. A reserve that is sent again while its hold is open is free.

use stateright::{Model, Property};
use tollgate::algorithm::concurrency::Concurrency;
use tollgate::algorithm::fixed_window::FixedWindow;
use tollgate::algorithm::hold::{Hold, HoldAction, HoldEffect, HoldRequest, OnSettle};
use tollgate::algorithm::judge::{Hits, Question, judge};
use tollgate::algorithm::quota::Window;
use tollgate::algorithm::sliding_log::SlidingLog;
use tollgate::algorithm::tallies::Recorded;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::verdict::{Prior, Role};
use tollgate::algorithm::{Algorithm, Charge, Limit, OnStoreError};

use super::{ModelCounter, SECOND, at, breaks, holds_in_every_state};

/// The amount of the limit, or its permits.
const AMOUNT: u32 = 3;
/// Seconds for which a hold lives.
const TTL: u8 = 2;
/// Instants of the model: all are in one window.
const INSTANTS: u8 = 4;
const IDS: [&[u8]; 2] = [b"a", b"b"];
/// Hits of a reserve.
const ESTIMATE: u32 = 2;
/// Costs of the commits of each ID: less than the estimate, and more.
const COSTS: [&[u32]; IDS.len()] = [&[1, 3], &[3]];
/// Number of reserves of each ID: one of them is retried.
const RESERVES: [u8; IDS.len()] = [2, 1];
/// Number of ends of each ID: enough for a commit, its retry and a settle, in any order.
const ENDS: [u8; IDS.len()] = [3, 2];

const EXACT: &str = "each hold counts its estimate until its end, and its cost after";
const NEVER_OVER: &str = "hits without overruns and unknown costs never exceed the limit";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// A commit charges its cost whether or not it came before.
    ForgetsCommits,
    /// A settle after a commit gives the cost back.
    SettlesTwice,
    /// The end of a hold by its TTL gives its hits back.
    ReleasesAtTtl,
    /// A reserve is charged again while its hold is open.
    ChargesRetries,
}

#[derive(Clone)]
struct Holds {
    limit: Limit,
    on_settle: OnSettle,
    flaw: Option<Flaw>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HoldsState {
    second: u8,
    counter: ModelCounter,
    ids: [Account; IDS.len()],
}

/// The hits of an ID by the specification, independently of the counter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Account {
    /// Number of reserves that were delivered: one, and its retry.
    reserves: u8,
    /// The open hold: its hits.
    open: Option<u32>,
    /// Second from which there is no record; `None` without one.
    until: Option<u8>,
    /// Hits that the ID has in the window.
    hits: u32,
    /// Hits beyond its holds: overruns, and costs without a hold.
    beyond: u32,
    /// Number of ends that were delivered.
    ends: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Reserve(usize),
    Commit(usize, u32),
    Settle(usize),
    Tick,
}

impl Holds {
    fn is_concurrency(&self) -> bool {
        self.limit.in_flight().is_some()
    }

    /// Returns the hits that the counter has left.
    fn remaining(&self, state: &HoldsState) -> u64 {
        self.limit.report(&state.counter.0, None, at(state.second)).unwrap().remaining
    }

    /// Applies an end to the account of an ID. `cost`: that of a commit.
    fn end(&self, account: &mut Account, cost: Option<u32>, second: u8) {
        account.ends += 1;
        if self.is_concurrency() {
            if account.open.take().is_some() {
                account.hits = 0;
            }
            return;
        }
        if account.until.is_some_and(|until| until <= second) {
            account.until = None;
            account.open = None;
        }
        match (account.open.take(), cost) {
            (Some(held), Some(cost)) => {
                account.hits = account.hits - held + cost;
                account.beyond += cost.saturating_sub(held);
                account.until = Some(second + TTL);
            }
            (Some(held), None) if self.on_settle == OnSettle::Release => account.hits -= held,
            (None, Some(cost)) if account.until.is_none() => {
                account.hits += cost;
                account.beyond += cost;
                account.until = Some(second + TTL);
            }
            (Some(_) | None, _) => {}
        }
    }

    /// Applies a flaw to the counter.
    fn err(&self, state: &mut HoldsState, before: &Account, step: Step) {
        let now = at(state.second);
        let counter = &mut state.counter.0;
        match (self.flaw, step) {
            (Some(Flaw::ForgetsCommits), Step::Commit(_, cost)) if before.open.is_none() => {
                self.limit.charge(counter, cost.into(), now).unwrap();
            }
            (Some(Flaw::SettlesTwice), Step::Settle(_)) if before.open.is_none() => {
                self.limit.refund(counter, 1, now).unwrap();
            }
            (Some(Flaw::ReleasesAtTtl), Step::Tick) if before.until == Some(state.second) => {
                self.limit.refund(counter, ESTIMATE.into(), now).unwrap();
            }
            (Some(Flaw::ChargesRetries), Step::Reserve(_)) if before.open.is_some() => {
                self.limit.charge(counter, 1, now).unwrap();
            }
            _ => {}
        }
    }

    /// Delivers a reserve to the counter and to the account of its ID.
    fn reserve(&self, state: &mut HoldsState, number: usize) {
        let second = state.second;
        let account = &mut state.ids[number];
        account.reserves += 1;
        let hold = HoldRequest { id: IDS[number], action: HoldAction::ReserveOnce, ttl: None };
        let question = Question {
            limit: &self.limit,
            hits: Hits::Charge(ESTIMATE),
            role: Role::Enforce,
            counter: Some(0),
            recorded: Recorded { entries: &[], may_grow: false },
            hold: Some(&hold),
        };
        let counters = std::slice::from_mut(&mut state.counter.0);
        let judged = judge(&[question], counters, Prior::Open, at(second));
        let outcome = judged.outcomes[0].unwrap();
        let is_open = account.open.is_some() && account.until.is_some_and(|until| until > second);
        match outcome.hold {
            HoldEffect::Held => assert!(is_open && outcome.allowed),
            HoldEffect::Nothing => assert!(!is_open && !outcome.allowed),
            HoldEffect::Reserved { repeated } => {
                assert!(!repeated && !is_open && outcome.allowed);
                account.open = Some(ESTIMATE);
                account.hits += ESTIMATE;
                account.until = Some(second + TTL);
            }
            HoldEffect::Conflict
            | HoldEffect::Unrecorded
            | HoldEffect::Committed { .. }
            | HoldEffect::Unknown { .. }
            | HoldEffect::Settled
            | HoldEffect::Extended
            | HoldEffect::Open { .. } => panic!("{:?}", outcome.hold),
        }
    }
}

impl Model for Holds {
    type State = HoldsState;
    type Action = Step;

    fn init_states(&self) -> Vec<HoldsState> {
        let counter = ModelCounter(self.limit.unused());
        vec![HoldsState { second: 0, counter, ids: Default::default() }]
    }

    fn actions(&self, state: &HoldsState, steps: &mut Vec<Step>) {
        for (number, account) in state.ids.iter().enumerate() {
            if account.reserves < RESERVES[number] {
                steps.push(Step::Reserve(number));
            }
            if account.ends < ENDS[number] {
                steps.extend(COSTS[number].iter().map(|cost| Step::Commit(number, *cost)));
                steps.push(Step::Settle(number));
            }
        }
        if state.second + 1 < INSTANTS {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &HoldsState, step: Step) -> Option<HoldsState> {
        let mut next = last.clone();
        if step == Step::Tick {
            next.second += 1;
        }
        let second = next.second;
        let now = at(second);
        let counter = &mut next.counter.0;
        let request = |number: usize, action| HoldRequest { id: IDS[number], action, ttl: None };
        match step {
            Step::Reserve(number) => self.reserve(&mut next, number),
            Step::Commit(number, cost) => {
                self.limit
                    .change_hold(
                        counter,
                        request(number, HoldAction::Commit(cost)),
                        Recorded::default(),
                        now,
                    )
                    .unwrap();
                self.end(&mut next.ids[number], Some(cost), second);
            }
            Step::Settle(number) => {
                self.limit
                    .change_hold(
                        counter,
                        request(number, HoldAction::Settle),
                        Recorded::default(),
                        now,
                    )
                    .unwrap();
                self.end(&mut next.ids[number], None, second);
            }
            Step::Tick if self.is_concurrency() => {
                for account in next.ids.iter_mut().filter(|account| account.until == Some(second)) {
                    account.open = None;
                    account.hits = 0;
                }
            }
            Step::Tick => {}
        }
        for before in &last.ids {
            self.err(&mut next, before, step);
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXACT, |model: &Self, state: &HoldsState| {
                let hits: u32 = state.ids.iter().map(|account| account.hits).sum();
                model.remaining(state) == u64::from(AMOUNT.saturating_sub(hits))
            }),
            Property::always(NEVER_OVER, |_, state: &HoldsState| {
                let within = |account: &Account| account.hits.saturating_sub(account.beyond);
                state.ids.iter().map(within).sum::<u32>() <= AMOUNT
            }),
            Property::sometimes("a reserve is denied", |_, state: &HoldsState| {
                state.ids.iter().any(|account| account.reserves > 0 && account.hits == 0)
            }),
            Property::sometimes("a hold ends by its TTL", |_, state: &HoldsState| {
                state.ids.iter().any(|account| {
                    account.reserves > 0 && account.until.is_some_and(|until| until <= state.second)
                })
            }),
        ]
    }
}

fn models(flaw: Option<Flaw>) -> Vec<Holds> {
    let window = || vec![Window::new(AMOUNT, Micros::new(60 * SECOND)).unwrap()];
    let with = |algorithm, on_settle| {
        let limit = Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap();
        let hold = Hold { ttl: Micros::new(u64::from(TTL) * SECOND), on_settle };
        Holds { limit: limit.with_hold(hold), on_settle, flaw }
    };
    let fixed = || Algorithm::FixedWindow(FixedWindow::new(window()).unwrap());
    vec![
        with(fixed(), OnSettle::Charge),
        with(fixed(), OnSettle::Release),
        with(Algorithm::SlidingLog(SlidingLog::new(window()).unwrap()), OnSettle::Charge),
        with(Algorithm::Concurrency(Concurrency::new(AMOUNT).unwrap()), OnSettle::Charge),
    ]
}

#[test]
fn every_order_of_reserves_commits_and_settles_is_exact() {
    models(None).into_iter().for_each(holds_in_every_state);
}

#[test]
fn the_model_of_holds_finds_flaws() {
    for flaw in
        [Flaw::ForgetsCommits, Flaw::SettlesTwice, Flaw::ReleasesAtTtl, Flaw::ChargesRetries]
    {
        let model = models(Some(flaw)).swap_remove(0);
        breaks(EXACT, flaw, model);
    }
}
