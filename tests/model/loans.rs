//! Loans: services charge blocks of hits for holders outside of them, which admit the hits by
//! themselves and return the unused ones. Messages are lost, late, repeated and out of order. A
//! process that leases hits from its store is a holder, too, to which less can happen.
//!
//! Time passes in microseconds, so that [`Limit::loan_time`] shortens a loan by one of them: the
//! clock of a holder may lose up to that. A clock that is ahead only ends blocks early, which they
//! may do at any time. A message that is lost is one that never arrives, and a party that is dead
//! one that takes no more steps: both are among the histories that end at any step. A service keeps
//! nothing of its holders, so its death loses the messages that it has.
//!
//! | file | contents |
//! |---|---|
//! | `state` | holders, loans and messages, and what is true of them |
//! | `steps` | the steps of holders, of messages and of the service |

mod state;
mod steps;

use stateright::{Model, Property};
use tollgate::algorithm::fixed_window::FixedWindow;
use tollgate::algorithm::quota::Window;
use tollgate::algorithm::sliding_log::SlidingLog;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::{Algorithm, Charge, Limit, OnStoreError};

use self::state::LoansState;
use self::steps::Step;
use super::{breaks, holds_in_every_state};

/// The amount of the limit, and of a lowered one.
const AMOUNT: u8 = 3;
const LOWERED: u8 = 2;
/// Hits of a charge.
const BLOCK: u8 = 2;
/// Microseconds for which a loan may last.
const TTL: u64 = 3;
/// Microseconds after the end of a loan in which its return is accepted.
const RETURN_TIME: u64 = 2;
const PERIOD: u64 = 1_000;
/// Number of instants of a model.
const INSTANTS: usize = 3;
/// Two of the last instants of a window, and the first one of the next.
const AROUND_A_BOUNDARY: [u64; INSTANTS] = [PERIOD - 3, PERIOD - 2, PERIOD];
/// Two instants, and one that is a period after the first.
const A_PERIOD_APART: [u64; INSTANTS] = [0, 1, PERIOD];
const HOLDERS: usize = 2;
/// The holder that stops waiting, and whose messages are late, lost, repeated and out of order. The
/// exchanges of the other one take no time, which keeps the model small.
const TROUBLED: usize = 0;
/// Two replicas of the service, and the limits that they have before and after a reload.
const REPLICAS: usize = 2;
const VERSIONS: usize = 2;

const NEVER_OVER: &str = "hits admitted in a window were charged in it, or were lent before";
const CONSERVED: &str = "a counter has the hits of all charges that were not given back";
const NOTHING_LOST: &str = "after quiet, lent hits were used or returned, or were refused or late";
const EXPIRES: &str = "every charge has expired a period later";
const FOLLOWED: &str = "once all know a lowered limit, no hits are admitted that it does not allow";

/// A mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// A return is accepted each time that it arrives.
    ReturnsTwice,
    /// The number of a loan is forgotten before its returns are late.
    ForgetsNumbers,
    /// A block is handed over before its charge is known to fit.
    LendsUncharged,
    /// Hits of a block are admitted after its end.
    UsesAfterEnd,
    /// The life of a block is measured from the answer and not from the request.
    MeasuresFromAnswer,
    /// A loan is as long as the time to the end of its window, although clocks run apart.
    HasNoMargin,
    /// A loan lasts for its TTL, although its window ends.
    OutlivesWindow,
    /// A return is taken from the window in which it arrives.
    ReturnsAreRefunds,
    /// An answer that arrives again is another block.
    OpensTwice,
    /// The part of a charge that is not handed over is taken back, and is in the receipt.
    CutsOnlyAnswer,
    /// Blocks of another generation are kept.
    ForgetsGeneration,
    /// A return is taken from the counter of the policy in force, although it is another one.
    IgnoresDigest,
    /// A hit that was taken before its block was returned is returned, and admitted.
    AdmitsReturned,
    /// Unused hits of a block that has ended are not returned.
    NeverReturns,
}

/// A change of the policy that replicas load one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PolicyChange {
    None,
    /// The same counter has a lower limit.
    LowersLimit,
    /// Requests are charged to another counter.
    OtherCounter,
}

/// The bounds of a model.
#[derive(Clone, Copy, Debug)]
struct Scope {
    /// Number of requests for a block of each holder.
    asks: [u8; HOLDERS],
    /// Number of messages that are delivered twice.
    copies: u8,
    /// `true` if the troubled holder stops waiting for answers.
    gives_up: bool,
    /// Microseconds that the clock of a holder loses.
    lost_us: u8,
    /// `true` if a part of each charge is not handed over.
    cuts: bool,
    change: PolicyChange,
}

#[derive(Clone)]
struct Loans {
    /// The limits of the versions of the policy.
    limits: [Limit; VERSIONS],
    /// `true` if a block ends with its window.
    in_fixed_windows: bool,
    scope: Scope,
    flaw: Option<Flaw>,
}

impl Model for Loans {
    type State = LoansState;
    type Action = Step;

    fn init_states(&self) -> Vec<LoansState> {
        vec![LoansState::new(self)]
    }

    fn actions(&self, state: &LoansState, steps: &mut Vec<Step>) {
        state.steps_of_holders(self, steps);
        state.steps_of_messages(self, steps);
        // The old counter of two has no other callers, which keeps the model small.
        let is_old = |replica: &usize| self.counters() > 1 && state.versions[*replica] == 0;
        let replicas = state.replicas().filter(|replica| !is_old(replica));
        steps.extend(replicas.map(|replica| Step::Direct { replica }));
        if self.scope.change != PolicyChange::None {
            let old = (0..REPLICAS).filter(|replica| state.versions[*replica] == 0);
            steps.extend(old.map(|replica| Step::Reload { replica }));
        }
        if state.instant + 1 < INSTANTS {
            steps.push(Step::Tick { loses_us: 0 });
            if state.lost_us < self.scope.lost_us {
                steps.push(Step::Tick { loses_us: 1 });
            }
        }
    }

    fn next_state(&self, last: &LoansState, step: Step) -> Option<LoansState> {
        let mut next = last.clone();
        next.take_step(self, step)?;
        next.learn_lowered(self);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_OVER, |model: &Self, state: &LoansState| {
                state.admitted.iter().all(|admitted| {
                    (0..INSTANTS).all(|from| {
                        let counted = (from..INSTANTS).filter(|at| model.is_within(from, *at));
                        let hits: u8 = counted.map(|at| admitted[at]).sum();
                        hits <= AMOUNT + state.lent_before[from].min(AMOUNT)
                    })
                })
            }),
            Property::always(CONSERVED, |model: &Self, state: &LoansState| {
                (0..model.counters())
                    .all(|counter| state.used(model, counter) == state.charged(model, counter))
            }),
            Property::always(NOTHING_LOST, |_, state: &LoansState| {
                let is_settled = |loan: &state::Loan| {
                    loan.is_lost || loan.hits == loan.admitted + loan.given_back
                };
                !state.is_quiet() || state.loans.iter().all(is_settled)
            }),
            Property::always(EXPIRES, |model: &Self, state: &LoansState| {
                (0..model.counters()).all(|counter| state.used_a_period_later(model, counter) == 0)
            }),
            Property::always(FOLLOWED, |_, state: &LoansState| {
                let Some(known) = state.admitted_when_known else { return true };
                state.admitted_before_boundary() <= known.max(LOWERED)
            }),
            Property::sometimes("all hits of a block are admitted", |_, state: &LoansState| {
                state.loans.iter().any(|loan| loan.hits > 0 && loan.hits == loan.admitted)
            }),
            Property::sometimes("unused hits come back", |_, state: &LoansState| {
                state.loans.iter().any(|loan| loan.given_back > 0)
            }),
        ]
    }
}

impl Loans {
    /// Returns the instants of the model, in microseconds.
    fn instants(&self) -> [u64; INSTANTS] {
        if self.in_fixed_windows { AROUND_A_BOUNDARY } else { A_PERIOD_APART }
    }

    /// Returns `true` if an instant is in the fixed window, or in the period, that another begins.
    /// Of a fixed window, every instant before its end is in it.
    fn is_within(&self, from: usize, at: usize) -> bool {
        let [from, at] = [from, at].map(|instant| self.instants()[instant]);
        if self.in_fixed_windows {
            from / PERIOD == at / PERIOD
        } else {
            (from..from + PERIOD).contains(&at)
        }
    }

    /// Returns the number of counters.
    fn counters(&self) -> usize {
        if self.scope.change == PolicyChange::OtherCounter { VERSIONS } else { 1 }
    }

    /// Returns the counter that a version of the policy charges.
    fn counter(&self, version: usize) -> usize {
        if self.scope.change == PolicyChange::OtherCounter { version } else { 0 }
    }
}

/// One holder with all that can happen to its messages, beside callers that charge by themselves.
const MESSAGES: Scope = Scope {
    asks: [2, 0],
    copies: 1,
    gives_up: true,
    lost_us: 0,
    cuts: false,
    change: PolicyChange::None,
};
/// Two holders of which one has a slow clock.
const CLOCKS: Scope = Scope { asks: [1, 1], copies: 0, lost_us: 1, ..MESSAGES };
/// Charges of which a part is handed over.
const CUT: Scope = Scope { asks: [1, 0], cuts: true, ..MESSAGES };
/// Replicas that load another policy one after the other.
const LOWERS: Scope =
    Scope { copies: 0, gives_up: false, change: PolicyChange::LowersLimit, ..MESSAGES };
const MOVES: Scope = Scope { asks: [1, 0], change: PolicyChange::OtherCounter, ..LOWERS };

/// The smallest in which most flaws are found.
const SMALL: Scope = Scope { asks: [1, 0], gives_up: false, ..MESSAGES };
const SMALL_CLOCKS: Scope = Scope { lost_us: 1, copies: 0, ..SMALL };

/// Returns a model in fixed windows and one in a rolling period.
fn models(scope: Scope, flaw: Option<Flaw>) -> [Loans; 2] {
    let limit = |algorithm| Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap();
    let lower = if scope.change == PolicyChange::LowersLimit { LOWERED } else { AMOUNT };
    let windows = |amount: u8| vec![Window::new(amount.into(), Micros::new(PERIOD)).unwrap()];
    let fixed = |amount| limit(Algorithm::FixedWindow(FixedWindow::new(windows(amount)).unwrap()));
    let log = |amount| limit(Algorithm::SlidingLog(SlidingLog::new(windows(amount)).unwrap()));
    [([AMOUNT, lower].map(fixed), true), ([AMOUNT, lower].map(log), false)]
        .map(|(limits, in_fixed_windows)| Loans { limits, in_fixed_windows, scope, flaw })
}

#[test]
fn holders_of_loans_never_pass_a_limit_and_lose_nothing() {
    for scope in [MESSAGES, CLOCKS, CUT] {
        models(scope, None).into_iter().for_each(holds_in_every_state);
    }
    for scope in [LOWERS, MOVES] {
        let [fixed, _] = models(scope, None);
        holds_in_every_state(fixed);
    }
}

#[test]
fn the_model_of_loans_finds_flaws() {
    let [fixed, log] = [0, 1];
    for (flaw, property, kind, scope) in [
        (Flaw::ReturnsTwice, NEVER_OVER, fixed, SMALL),
        (Flaw::ReturnsTwice, NEVER_OVER, log, SMALL),
        (Flaw::ForgetsNumbers, CONSERVED, fixed, SMALL),
        (Flaw::LendsUncharged, NEVER_OVER, fixed, SMALL),
        (Flaw::LendsUncharged, NEVER_OVER, log, SMALL),
        (Flaw::UsesAfterEnd, NEVER_OVER, fixed, SMALL),
        (Flaw::UsesAfterEnd, NEVER_OVER, log, SMALL),
        (Flaw::MeasuresFromAnswer, NEVER_OVER, fixed, SMALL),
        (Flaw::HasNoMargin, NEVER_OVER, fixed, SMALL_CLOCKS),
        (Flaw::OutlivesWindow, NEVER_OVER, fixed, SMALL_CLOCKS),
        (Flaw::ReturnsAreRefunds, NEVER_OVER, fixed, SMALL),
        (Flaw::OpensTwice, NEVER_OVER, fixed, SMALL),
        (Flaw::OpensTwice, NEVER_OVER, log, SMALL),
        (Flaw::CutsOnlyAnswer, NEVER_OVER, fixed, CUT),
        (Flaw::ForgetsGeneration, FOLLOWED, fixed, LOWERS),
        (Flaw::IgnoresDigest, NEVER_OVER, fixed, MOVES),
        (Flaw::AdmitsReturned, NEVER_OVER, fixed, SMALL),
        (Flaw::NeverReturns, NOTHING_LOST, fixed, SMALL),
    ] {
        let model = models(scope, Some(flaw))[kind].clone();
        breaks(property, flaw, model);
    }
}
