//! A request with a counter in each of two slots: both are charged in parallel, and what was
//! charged is taken back if the other slot denies.

use stateright::{Model, Property};
use tollgate::algorithm::fixed_window::FixedWindow;
use tollgate::algorithm::gcra::Gcra;
use tollgate::algorithm::quota::Window;
use tollgate::algorithm::sliding_log::SlidingLog;
use tollgate::algorithm::time::Micros;
use tollgate::algorithm::{Algorithm, Charge, Limit, OnStoreError, Receipt};

use super::{ModelCounter, SECOND, at, breaks, holds_in_every_state};

const SLOTS: usize = 2;

const NEVER_OVER: &str = "admitted less refunded hits are charged in every slot";
const NOTHING_LOST: &str = "after quiet, only charges counted as lost remain";

/// A mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// A charge is taken back twice.
    TakesBackTwice,
    /// A charge is taken back although the request was admitted.
    TakesBackAdmitted,
    /// No charge is taken back.
    ForgetsTakeBacks,
    /// A slot that did not reply counts as one that admits.
    TrustsSilence,
}

/// Concurrent requests of one hit each in every slot.
#[derive(Clone)]
struct Slots {
    limit: Limit,
    scope: Scope,
    flaw: Option<Flaw>,
}

/// The bounds of a model.
#[derive(Clone, Copy, Debug)]
struct Scope {
    /// The amount of each limit.
    amount: u64,
    requests: usize,
    /// Instants of the model: all are in one window.
    instants: u8,
    /// `true` if callers refund admitted hits.
    has_refunds: bool,
    /// `true` if replies and take-backs may be lost.
    has_losses: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SlotsState {
    seconds: u8,
    counters: [ModelCounter; SLOTS],
    requests: Vec<SlotRequest>,
}

/// A request, and its calls of the slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SlotRequest {
    calls: [SlotCall; SLOTS],
    admitted: Option<bool>,
    is_refunded: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct SlotCall {
    /// Set once the slot has judged the request: the second of its charge, if it allowed.
    judged: Option<Option<u8>>,
    reply: Reply,
    /// Number of take-backs under way.
    undoing: u8,
    /// Set if a take-back was lost.
    is_undo_lost: bool,
    has_undone: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Reply {
    #[default]
    Awaited,
    Received,
    /// The deadline has passed, or the connection is lost. The slot may still judge.
    Missed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Judge {
        request: usize,
        slot: usize,
    },
    Receive {
        request: usize,
        slot: usize,
    },
    Miss {
        request: usize,
        slot: usize,
    },
    /// Decides a request whose calls have ended.
    Decide {
        request: usize,
    },
    TakeBack {
        request: usize,
        slot: usize,
    },
    LoseTakeBack {
        request: usize,
        slot: usize,
    },
    /// The caller of an admitted request refunds its hit in both slots.
    Refund {
        request: usize,
    },
    Tick,
}

impl Slots {
    fn receipt(second: u8) -> Receipt {
        Receipt { at: at(second), hits: 1, of_grant: false }
    }

    fn decide(&self, request: &mut SlotRequest) {
        let admits = |call: &SlotCall| match (call.reply, call.judged) {
            (Reply::Received, Some(charged)) => charged.is_some(),
            _ => self.flaw == Some(Flaw::TrustsSilence),
        };
        let admitted = request.calls.iter().all(admits);
        request.admitted = Some(admitted);
        let undoes = if admitted {
            self.flaw == Some(Flaw::TakesBackAdmitted)
        } else {
            self.flaw != Some(Flaw::ForgetsTakeBacks)
        };
        for call in request.calls.iter_mut().filter(|_| undoes) {
            if call.reply == Reply::Received && call.judged.flatten().is_some() {
                call.undoing = 1 + u8::from(self.flaw == Some(Flaw::TakesBackTwice));
            }
        }
    }

    /// Returns the used hits of a slot.
    fn used(&self, state: &SlotsState, slot: usize) -> u64 {
        let counter = &state.counters[slot].0;
        self.scope.amount - self.limit.report(counter, None, at(state.seconds)).unwrap().remaining
    }
}

impl SlotsState {
    /// Returns the number of admitted requests that were not refunded.
    fn admitted(&self) -> u64 {
        let stays = |found: &&SlotRequest| found.admitted == Some(true) && !found.is_refunded;
        self.requests.iter().filter(stays).count() as u64
    }
}

impl Model for Slots {
    type State = SlotsState;
    type Action = Step;

    fn init_states(&self) -> Vec<SlotsState> {
        let counter = || ModelCounter(self.limit.unused());
        let requests = vec![SlotRequest::default(); self.scope.requests];
        vec![SlotsState { seconds: 0, counters: [counter(), counter()], requests }]
    }

    fn actions(&self, state: &SlotsState, steps: &mut Vec<Step>) {
        for (request, found) in state.requests.iter().enumerate() {
            for (slot, call) in found.calls.iter().enumerate() {
                if call.judged.is_none() {
                    steps.push(Step::Judge { request, slot });
                }
                if call.reply == Reply::Awaited {
                    if self.scope.has_losses {
                        steps.push(Step::Miss { request, slot });
                    }
                    steps.extend(call.judged.map(|_| Step::Receive { request, slot }));
                }
                if call.undoing > 0 {
                    steps.push(Step::TakeBack { request, slot });
                    if self.scope.has_losses {
                        steps.push(Step::LoseTakeBack { request, slot });
                    }
                }
            }
            let has_ended = found.calls.iter().all(|call| call.reply != Reply::Awaited);
            if has_ended && found.admitted.is_none() {
                steps.push(Step::Decide { request });
            }
            if self.scope.has_refunds && found.admitted == Some(true) && !found.is_refunded {
                steps.push(Step::Refund { request });
            }
        }
        if state.seconds + 1 < self.scope.instants {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &SlotsState, step: Step) -> Option<SlotsState> {
        let mut next = last.clone();
        let now = at(next.seconds);
        match step {
            Step::Judge { request, slot } => {
                let counter = &mut next.counters[slot].0;
                let allowed = self.limit.allows(counter, 1, now).unwrap();
                let charge = |_| self.limit.charge(counter, 1, now).unwrap();
                let charged = allowed.then_some(()).map(charge).map(|_| next.seconds);
                next.requests[request].calls[slot].judged = Some(charged);
            }
            Step::Receive { request, slot } => {
                next.requests[request].calls[slot].reply = Reply::Received;
            }
            Step::Miss { request, slot } => {
                next.requests[request].calls[slot].reply = Reply::Missed;
            }
            Step::Decide { request } => self.decide(&mut next.requests[request]),
            Step::TakeBack { request, slot } => {
                let call = &mut next.requests[request].calls[slot];
                call.undoing -= 1;
                call.has_undone = true;
                let charged = call.judged.flatten()?;
                let counter = &mut next.counters[slot].0;
                self.limit.take_back(counter, Self::receipt(charged), now).unwrap();
            }
            Step::LoseTakeBack { request, slot } => {
                let call = &mut next.requests[request].calls[slot];
                call.undoing -= 1;
                call.is_undo_lost = true;
            }
            Step::Refund { request } => {
                next.requests[request].is_refunded = true;
                for counter in &mut next.counters {
                    self.limit.refund(&mut counter.0, 1, now).unwrap();
                }
            }
            Step::Tick => next.seconds += 1,
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NEVER_OVER, |model: &Self, state: &SlotsState| {
                let admitted = state.admitted();
                admitted <= model.scope.amount
                    && (0..SLOTS).all(|slot| model.used(state, slot) >= admitted)
            }),
            Property::always(NOTHING_LOST, |model: &Self, state: &SlotsState| {
                let is_quiet = state.requests.iter().all(|found| {
                    let ended = |call: &SlotCall| call.judged.is_some() && call.undoing == 0;
                    found.admitted.is_some() && found.calls.iter().all(ended)
                });
                // A refund takes the newest hits: those of a charge that is being taken back, too.
                let has_refunds = state.requests.iter().any(|found| found.is_refunded);
                let is_counted = |slot: usize| {
                    let lost = |found: &&SlotRequest| {
                        let call = found.calls[slot];
                        let is_unknown = call.reply == Reply::Missed || call.is_undo_lost;
                        found.admitted == Some(false)
                            && call.judged.flatten().is_some()
                            && is_unknown
                    };
                    let lost = state.requests.iter().filter(lost).count() as u64;
                    model.used(state, slot) == state.admitted() + lost
                };
                !is_quiet || has_refunds || (0..SLOTS).all(is_counted)
            }),
            Property::sometimes("the limit is used up", |model: &Self, state: &SlotsState| {
                state.admitted() == model.scope.amount
            }),
            Property::sometimes(
                "requests are denied for charges that are taken back",
                |model: &Self, state: &SlotsState| {
                    let is_heard = |call: &SlotCall| call.reply == Reply::Received;
                    let is_decided = |found: &SlotRequest| {
                        found.admitted.is_some() && found.calls.iter().all(is_heard)
                    };
                    state.admitted() < model.scope.amount && state.requests.iter().all(is_decided)
                },
            ),
        ]
    }
}

/// Two requests for one hit, with all that can happen to them.
const EVERYTHING: Scope =
    Scope { amount: 1, requests: 2, instants: 2, has_refunds: true, has_losses: true };
/// Three requests for two hits.
const MORE_REQUESTS: Scope =
    Scope { amount: 2, requests: 3, instants: 1, has_refunds: false, has_losses: false };

/// Returns a model under each kind of limit whose charges are taken back by receipt.
fn models(scope: Scope, flaw: Option<Flaw>) -> Vec<Slots> {
    let amount = u32::try_from(scope.amount).unwrap();
    let window = || Window::new(amount, Micros::new(60 * SECOND)).unwrap();
    [
        Algorithm::FixedWindow(FixedWindow::new(vec![window()]).unwrap()),
        Algorithm::SlidingLog(SlidingLog::new(vec![window()]).unwrap()),
        Algorithm::Gcra(Gcra::new(window(), None, None).unwrap()),
    ]
    .into_iter()
    .map(|algorithm| Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap())
    .map(|limit| Slots { limit, scope, flaw })
    .collect()
}

#[test]
fn requests_in_two_slots_never_pass_a_limit_and_lose_nothing() {
    for scope in [EVERYTHING, MORE_REQUESTS] {
        models(scope, None).into_iter().for_each(holds_in_every_state);
    }
}

#[test]
fn the_model_of_slots_finds_flaws() {
    for (flaw, property) in [
        (Flaw::TakesBackTwice, NEVER_OVER),
        (Flaw::TakesBackAdmitted, NEVER_OVER),
        (Flaw::ForgetsTakeBacks, NOTHING_LOST),
        (Flaw::TrustsSilence, NEVER_OVER),
    ] {
        let scope = if flaw == Flaw::TakesBackTwice { MORE_REQUESTS } else { EVERYTHING };
        breaks(property, flaw, models(scope, Some(flaw)).swap_remove(0));
    }
}
